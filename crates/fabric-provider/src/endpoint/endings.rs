//! What an endpoint tells the program: completions, errors, and at its end a line of counters.

use std::fmt::Write as _;
use std::io::Write as _;

use messaging::{Arrived, Channel, Completion, Event, Failure, OperationError, PeerId, Status};

use super::{Endpoint, initiate, target};
use crate::abi;
use crate::fence::Number;
use crate::name::socket_address;
use crate::presence::Found;
use crate::queue::{Counter, Ended, Error, Queue};
use crate::remote::regions::Regions;

/// Names a file to which a line is added when an endpoint closes: what went through it, and whom it waited for.
const REPORT_VARIABLE: &str = "FI_CLEARSTREAM_REPORT";
/// Where launchers say which rank a process is: Open MPI, PMIx, PMI.
const RANK_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];

impl Endpoint {
    /// Tells the program what ended.
    pub(super) fn settle(&mut self, queues: &mut Queues<'_>) {
        self.settle_messages(queues);
        while self.has_requests() && self.serve(queues) {
            let now_ns = self.now_ns();
            self.transmit(now_ns);
            self.settle_messages(queues);
        }
    }

    fn settle_messages(&mut self, queues: &mut Queues<'_>) {
        while let Some(completion) = self.machine.poll_completion() {
            self.complete(&completion, queues);
        }
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::ProbeHost(peer) => self.probe(peer),
                Event::PeerFailed(peer, _) => {
                    self.local.forget(peer, &mut self.machine);
                    self.forget_requests(peer);
                }
                Event::PeerAppeared(_) => {}
            }
        }
        if !self.probes.is_empty() {
            for (peer, found) in self.probes.found() {
                match found {
                    Found::Host => self.machine.host_answered(peer),
                    Found::Process => self.machine.process_answered(peer),
                    Found::Nobody => self.machine.port_refused(peer),
                }
            }
        }
    }

    fn probe(&mut self, peer: PeerId) {
        if let Some(address) = self.machine.peer_address(peer)
            && let Some(at) = socket_address(&address)
        {
            self.probes.ask(peer, at);
        }
    }

    fn complete(&mut self, completion: &Completion, queues: &mut Queues<'_>) {
        if completion.context & (target::WORK | initiate::STARTED) != 0 {
            return if completion.context & target::WORK != 0 {
                self.complete_work(completion, queues)
            } else {
                self.complete_started(completion, queues)
            };
        }
        let (is_over, message, offset, received_bytes, is_send) = match &completion.operation {
            messaging::Operation::Send => (true, None, 0, 0, true),
            messaging::Operation::Receive {
                message,
                offset,
                received_bytes,
                is_buffer_released,
            } => (*is_buffer_released, message.as_ref(), *offset, *received_bytes, false),
        };
        let Some(&operation) = self.operations.find(completion.context) else { return };
        if is_over {
            self.operations.remove(completion.context);
            self.buffers.give_back(operation.buffer);
        }
        let mut ended = self.ended(operation.flags, operation.context, message);
        ended.entry.len = received_bytes as usize;
        if operation.address != 0 {
            ended.entry.buf = operation.address + offset as usize;
        }
        if is_over && operation.is_multi {
            ended.entry.flags |= abi::MULTI_RECV;
        }
        let length_bytes = message.map_or(0, |message| message.length_bytes);
        let cut_bytes = length_bytes.saturating_sub(received_bytes) as usize;
        ended.error = match completion.status {
            Status::Truncated if operation.is_discarded => None,
            status => error_of(status, cut_bytes),
        };
        let counter =
            if is_send { self.binding.send_counter } else { self.binding.receive_counter };
        queues.count(counter, ended.error.is_none());
        if !operation.is_told && ended.error.is_none() {
            return;
        }
        let queue = if is_send { self.binding.send_queue } else { self.binding.receive_queue };
        queues.push(queue, ended);
    }

    pub(super) fn ended(&self, flags: u64, context: usize, message: Option<&Arrived>) -> Ended {
        let data = message.and_then(|message| message.data);
        let entry = abi::CqEntry {
            op_context: context,
            flags: flags | if data.is_some() { abi::REMOTE_CQ_DATA } else { 0 },
            len: 0,
            buf: 0,
            data: data.unwrap_or(0),
            tag: message.map_or(0, |message| message.match_bits),
        };
        let source = message.map_or(abi::ADDR_UNSPEC, |message| self.address(message.source));
        Ended { entry, source, error: None }
    }

    /// One line, where one is asked for.
    pub(super) fn report(&self) {
        let (Some(path), Some(line)) = (report_file(), self.counters_line()) else { return };
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        // Nobody is left to tell.
        file.and_then(|mut file| file.write_all(line.as_bytes())).ok();
    }

    /// Writes the counters anew, where somebody may look at them while the program runs.
    pub(super) fn show(&mut self, now_ns: u64) {
        // The counters take several system calls, and each poll asks.
        if !self.live.as_mut().is_some_and(|live| live.is_due(now_ns)) {
            return;
        }
        if let (Some(live), Some(line)) = (&self.live, self.counters_line()) {
            live.write(&line);
        }
    }

    /// Its counters, and for whom it waited; `None` where that is not recorded.
    fn counters_line(&self) -> Option<String> {
        let waits = self.waits.as_ref()?;
        let address = socket_address(&self.name.address);
        let host = host_name();
        let counters = self.machine.counters();
        let numbers = [
            ("pid", u64::from(std::process::id())),
            ("ran_ns", self.now_ns()),
            ("polled_ns", waits.polled_ns()),
            ("queued_ns", waits.queued_ns()),
            ("peers", u64::from(self.machine.peers_count())),
            ("sent_pkts", counters.sent_pkts),
            ("received_pkts", counters.received_pkts),
            ("resent_pkts", counters.resent_pkts),
            ("reasked_pkts", counters.reasked_pkts),
            ("duplicate_pkts", counters.duplicate_pkts),
            ("spurious_losses", counters.spurious_losses),
            ("timeouts", counters.timeouts),
            ("spurious_timeouts", counters.spurious_timeouts),
            ("pings", counters.pings),
            ("announced_for_room", counters.announced_for_room),
            ("forged_pkts", counters.forged_pkts),
            ("sends", self.udp.sends_count),
            ("receives", self.udp.receives_count),
            ("port_pkts", self.port.as_ref().map_or(0, |port| port.sends_count)),
            ("xdp_pkts", self.card.as_ref().map_or(0, |card| card.sends_count)),
            ("xdp_received_pkts", self.card.as_ref().map_or(0, |card| card.receives_count)),
            ("memory_peers", self.local.peers_count),
            ("memory_pkts", self.local.sends_count),
            ("direct_bytes", counters.direct_bytes),
            ("copied_bytes", counters.copied_bytes),
            ("unexpected_messages", counters.unexpected_messages),
            ("announced_for_room", counters.announced_for_room),
            ("served_requests", self.target.served_count),
        ];
        let mut line = String::from("{\"kind\":\"messages_of_a_rank\"");
        for (name, number) in numbers {
            write!(line, ",\"{name}\":{number}").ok();
        }
        if let Some(rank) = rank() {
            write!(line, ",\"rank\":{rank}").ok();
        }
        write!(line, ",\"host\":\"{host}\"").ok();
        if let Some(card) = &self.card {
            write!(line, ",\"xdp_queue\":{}", card.queue).ok();
        }
        if let Some(address) = address {
            write!(line, ",\"address\":\"{address}\"").ok();
        }
        let waited = waits.by_peer().filter_map(|(peer, waited_ns)| {
            let address = socket_address(&self.machine.peer_address(peer)?)?;
            Some(format!("{{\"for\":\"{address}\",\"ns\":{waited_ns}}}"))
        });
        let waited: Vec<String> = waited.collect();
        writeln!(line, ",\"waited\":[{}]}}", waited.join(",")).ok();
        Some(line)
    }
}

/// This host's name, of letters that need no quoting.
pub(super) fn host_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-._".contains(*letter);
    host.chars().filter(is_plain).collect()
}

/// The file to which a line is added when an endpoint closes, if one is asked for.
pub(super) fn report_file() -> Option<std::ffi::OsString> {
    std::env::var_os(REPORT_VARIABLE).filter(|path| !path.is_empty())
}

/// The number that the launcher gave this process.
fn rank() -> Option<u32> {
    let given = |name: &&str| std::env::var(name).ok()?.parse().ok();
    RANK_VARIABLES.iter().find_map(given)
}

/// The completion queues and event counters of a domain, and the memory that peers may access.
#[derive(Debug)]
pub(crate) struct Queues<'a> {
    pub(crate) queues: &'a mut [Option<Queue>],
    pub(crate) counters: &'a mut [Option<Counter>],
    pub(crate) regions: &'a Regions,
}

impl Queues<'_> {
    pub(super) fn push(&mut self, queue: Option<usize>, ended: Ended) {
        if let Some(Some(queue)) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.push(ended);
        }
    }

    /// How many entries of a queue wait for the program.
    pub(super) fn waiting(&self, queue: Option<usize>) -> usize {
        let queue = queue.and_then(|queue| self.queues.get(queue)?.as_ref());
        queue.map_or(0, Queue::count)
    }

    /// An operation ended well, or failed.
    pub(super) fn count(&mut self, counter: Option<usize>, is_success: bool) {
        if let Some(Some(counter)) = counter.and_then(|counter| self.counters.get_mut(counter)) {
            let count =
                if is_success { &mut counter.successes_count } else { &mut counter.errors_count };
            *count = count.wrapping_add(1);
        }
    }
}

pub(super) fn flags_of(channel: Channel) -> u64 {
    match channel {
        Channel::Tagged => abi::TAGGED,
        Channel::Plain => abi::MSG,
        Channel::Remote => abi::RMA,
    }
}

fn error_of(status: Status, cut_bytes: usize) -> Option<Error> {
    let number = match status {
        Status::Ok => return None,
        Status::Truncated => return Some(Error { number: abi::ETRUNC, cut_bytes }),
        Status::Cancelled => libc::ECANCELED,
        Status::PeerFailed(failure) => number_of_failure(failure),
    };
    Some(Error { number, cut_bytes: 0 })
}

pub(super) fn number_of_failure(failure: Failure) -> Number {
    match failure {
        Failure::Silent => libc::ETIMEDOUT,
        Failure::Refused => libc::ECONNREFUSED,
        Failure::Closed => libc::ECONNRESET,
        Failure::Restarted => libc::ECONNABORTED,
        Failure::Violation => libc::EIO,
    }
}

pub(super) fn number_of(error: OperationError) -> Number {
    match error {
        OperationError::Busy => libc::EAGAIN,
        OperationError::PeerFailed(_, failure) => number_of_failure(failure),
        OperationError::TooLong { .. } => libc::EMSGSIZE,
        _ => libc::EINVAL,
    }
}
