//! One test, the server's end of it.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use results::{End, Finding, Protocol, TestLimit, TestSpec};

use super::registry::{Arrival, Inbox, Wanted};
use super::session::{Client, SessionEnd};
use super::sockets::drain;
use crate::control::{
    ALIVE_EVERY, ClientMessage, Refusal, RefusalCode, SILENCE_MAX, STREAMS_TIMEOUT, ServerMessage,
    StreamPlan, Token, admit, streams_of,
};
use crate::engine::{
    BufferCaps, EndPlan, Event, IntervalReport, Need, RunningEnd, Samples, StreamRole,
    StreamSocket, need_of, prepare_socket,
};
use crate::interrupts::{self, MoveError, Moved};
use crate::outcome::note;

/// How often the loops look at the other side.
const TURN: Duration = Duration::from_millis(20);
/// What a receiver may still find in its socket after the sender has said it is done.
const DRAIN_TCP: Duration = Duration::from_secs(3);
const DRAIN_UDP: Duration = Duration::from_millis(200);
/// Time beyond its length that a test may take to begin and to end.
const MARGIN: Duration = Duration::from_secs(15);
/// Greetings of a UDP stream that may have come after the first.
const GREETINGS_MAX: usize = 10_000;
/// Messages of a client between two looks at the clock and at the far end.
const MESSAGES_A_TURN: usize = 64;
/// A client that sends this much faster than it was allowed to is stopped.
const RATE_TOLERANCE: f64 = 1.5;

/// Serves one test, from the request to the account.
pub(super) fn serve(client: &mut Client, spec: TestSpec) -> Result<(), SessionEnd> {
    let (spec, findings) = match admit(spec, &client.shared.config.limits) {
        Ok(admitted) => admitted,
        Err(refusal) => return client.refuse(refusal),
    };
    let plans = streams_of(&spec);
    let longest = client.shared.config.limits.longest(&spec);
    let need = need_of_test(&spec, &plans, longest, client.shared.buffer_caps);
    // Held until everything of the test is gone again.
    let _share = match client.place.take(need) {
        Ok(share) => share,
        Err(refusal) => return client.refuse(refusal),
    };
    client.place.touch();
    let moved = spec
        .far_interrupt_core
        .map(|core| interrupts::move_to(core, client.peer.ip().to_canonical(), End::Far));
    let moved = match moved.transpose() {
        Ok(moved) => moved,
        Err(error) => {
            let is_busy = matches!(error, MoveError::Busy(_));
            let code = if is_busy { RefusalCode::Busy } else { RefusalCode::Other };
            return client.refuse(Refusal::new(code, error.to_string()));
        }
    };
    client.began(crate::describe_test(&spec));
    let token = Token::random();
    let wanted = Wanted { streams_max: plans.len(), probes: false };
    let inbox = client.shared.registry.expect(&token, client.peer.ip(), client.local, wanted);
    // Only the connections that are about to be made need it.
    let offered = spec
        .window_bytes
        .filter(|_| spec.protocol == Protocol::Tcp)
        .and_then(|window_bytes| client.shared.listeners.offer_window(window_bytes));
    let accepted = Some(Box::new(spec.clone()));
    client.link.send(&ServerMessage::Accepted { token, spec: accepted, findings })?;
    let mut noticed = Vec::new();
    let Some(streams) = collect(client, &spec, &plans, &inbox, &mut noticed)? else {
        return Ok(());
    };
    drop(offered);
    // What else the client connects is closed.
    drop(inbox);
    client.link.send(&ServerMessage::Ready)?;
    if !wait_for_go(client)? {
        return Ok(());
    }
    // Greetings that were under way when their stream was confirmed.
    let datagrams = streams.iter().filter(|stream| stream.udp);
    datagrams.for_each(|stream| drain(&stream.socket.socket, GREETINGS_MAX));
    let streams = streams.into_iter().map(|stream| stream.socket).collect();
    let plan = EndPlan { spec: spec.clone(), end: End::Far, streams, udp_counters_64bit: true };
    let running = match RunningEnd::start(plan) {
        Ok(running) => running,
        Err(error) => {
            return Err(SessionEnd::Failed(format!("the far end cannot run it: {error}")));
        }
    };
    client.link.send(&ServerMessage::Started)?;
    Trial::new(client, &spec).run(running, noticed, moved)
}

/// What the far end of a test may come to hold.
fn need_of_test(
    spec: &TestSpec,
    plans: &[StreamPlan],
    longest: Duration,
    caps: BufferCaps,
) -> Need {
    let streams: Vec<_> = plans.iter().map(|plan| (plan.protocol, plan.far)).collect();
    let intervals = (longest + MARGIN).as_secs_f64() / spec.interval_s;
    need_of(spec, &streams, Samples::All(units::saturating_u64(intervals) + 2), caps)
}

struct Stream {
    socket: StreamSocket,
    udp: bool,
}

/// Waits for all data connections; `None` when the client has changed its mind.
fn collect(
    client: &mut Client,
    spec: &TestSpec,
    plans: &[StreamPlan],
    inbox: &Inbox,
    findings: &mut Vec<Finding>,
) -> Result<Option<Vec<Stream>>, SessionEnd> {
    let deadline = Instant::now() + STREAMS_TIMEOUT;
    let mut streams: Vec<Option<Stream>> = plans.iter().map(|_| None).collect();
    while streams.iter().any(Option::is_none) {
        if let Some(arrival) = inbox.next(TURN)
            && let Some((index, socket, udp)) = opened(arrival)
            && let Some(plan) = plans.get(usize::from(index))
            && streams[usize::from(index)].is_none()
            && udp == (plan.protocol == Protocol::Udp)
        {
            if !udp && spec.window_bytes.is_none() {
                // Made while another test was offered a large window, it would be stuck with it.
                sys::socket::release_buffers(&socket).ok();
            }
            let noticed = prepare_socket(&socket, spec, plan.far == StreamRole::Send);
            note(findings, noticed, End::Far);
            let socket = StreamSocket { index: u32::from(index), role: plan.far, socket };
            streams[usize::from(index)] = Some(Stream { socket, udp });
            client.link.send(&ServerMessage::StreamConnected { index })?;
            continue;
        }
        match client.next_message(Duration::ZERO)? {
            Some(ClientMessage::Bye) => return Err(SessionEnd::Bye),
            Some(ClientMessage::Stop) => return Ok(None),
            Some(_) | None => {}
        }
        if Instant::now() > deadline {
            let missing = streams.iter().filter(|stream| stream.is_none()).count();
            return Err(SessionEnd::Failed(format!(
                "{missing} of {} data connections did not come within {} s",
                plans.len(),
                STREAMS_TIMEOUT.as_secs()
            )));
        }
    }
    Ok(Some(streams.into_iter().flatten().collect()))
}

fn opened(arrival: Arrival) -> Option<(u16, OwnedFd, bool)> {
    match arrival {
        Arrival::Tcp { index, stream } => {
            stream.set_nonblocking(false).ok()?;
            Some((index, stream.into(), false))
        }
        Arrival::Udp { index, socket, .. } => Some((index, UdpSocket::into(socket), true)),
        Arrival::Iperf3 { .. } | Arrival::Probe { .. } => None,
    }
}

fn wait_for_go(client: &mut Client) -> Result<bool, SessionEnd> {
    let deadline = Instant::now() + SILENCE_MAX;
    while Instant::now() < deadline {
        match client.next_message(TURN)? {
            Some(ClientMessage::Go) => return Ok(true),
            Some(ClientMessage::Stop) => return Ok(false),
            Some(ClientMessage::Bye) => return Err(SessionEnd::Bye),
            Some(_) | None => {}
        }
    }
    Err(SessionEnd::Silent)
}

/// A running test.
struct Trial<'a> {
    client: &'a mut Client,
    drain: Duration,
    deadline: Instant,
    moved_bytes: u64,
    rate_bits_per_s_max: Option<f64>,
    spoke: Instant,
    /// When the near end said it is done.
    near_done: Option<Instant>,
    far_done: bool,
}

impl<'a> Trial<'a> {
    fn new(client: &'a mut Client, spec: &TestSpec) -> Self {
        let now = Instant::now();
        let limits = &client.shared.config.limits;
        let margin = match spec.limit {
            TestLimit::DurationS(_) => MARGIN,
            // Nothing says when such a test is over, so the limit is the end.
            TestLimit::TotalBytes(_) | TestLimit::TotalBlocks(_) => Duration::ZERO,
        };
        let drain = if spec.protocol == Protocol::Udp { DRAIN_UDP } else { DRAIN_TCP };
        Self {
            drain,
            deadline: now + limits.longest(spec) + margin,
            moved_bytes: 0,
            rate_bits_per_s_max: limits.rate_bits_per_s_max,
            client,
            spoke: now,
            near_done: None,
            far_done: false,
        }
    }

    fn run(
        mut self,
        mut running: RunningEnd,
        mut noticed: Vec<Finding>,
        moved: Option<Moved>,
    ) -> Result<(), SessionEnd> {
        // Leaving early drops `running`, which ends its threads.
        while !self.is_over() {
            let stopped = self.turn(&mut running)?;
            if let Some(reason) = stopped {
                self.say(&ServerMessage::Stopped { reason })?;
                break;
            }
        }
        running.stop();
        let mut report = Box::new(running.finish().report);
        report.findings.append(&mut noticed);
        if let Some(moved) = moved {
            moved.undo(&mut report, End::Far);
        }
        if !self.far_done {
            self.say(&ServerMessage::Finished)?;
        }
        self.say(&ServerMessage::Report { report })
    }

    fn is_over(&self) -> bool {
        self.near_done.is_some_and(|since| self.far_done || since.elapsed() > self.drain)
    }

    /// Hands on what both sides have to say; a reason when the test must end now.
    fn turn(&mut self, running: &mut RunningEnd) -> Result<Option<String>, SessionEnd> {
        // A finished engine has no more events and must not be asked in a tight loop.
        let mut patience = TURN;
        if !self.far_done {
            patience = Duration::ZERO;
            match running.next_event(TURN) {
                Event::Interval(report) => {
                    if let Some(reason) = self.check_rate(&report) {
                        return Ok(Some(reason));
                    }
                    self.say(&ServerMessage::Interval(report.into()))?;
                }
                Event::Finished => {
                    self.far_done = true;
                    self.say(&ServerMessage::Finished)?;
                }
                Event::Quiet => {}
            }
        }
        // No more than so many: a client that never stops talking is not listened to for ever.
        for _ in 0..MESSAGES_A_TURN {
            let Some(message) = self.client.next_message(patience)? else { break };
            patience = Duration::ZERO;
            match message {
                ClientMessage::Finished => self.near_done = Some(Instant::now()),
                ClientMessage::Stop => {
                    running.stop();
                    self.near_done = Some(Instant::now());
                }
                ClientMessage::Bye => return Err(SessionEnd::Bye),
                _ => {}
            }
        }
        let moved_bytes = running.moved_bytes();
        if moved_bytes != self.moved_bytes {
            self.moved_bytes = moved_bytes;
            self.client.place.touch();
        }
        if self.client.link.silent_for() > SILENCE_MAX {
            return Err(SessionEnd::Silent);
        }
        if self.spoke.elapsed() > ALIVE_EVERY {
            self.say(&ServerMessage::Alive)?;
        }
        let late = Instant::now() > self.deadline;
        Ok(late.then(|| "the test took longer than this server allows".to_owned()))
    }

    /// Whether the client sends much faster than it was told to.
    fn check_rate(&self, report: &IntervalReport) -> Option<String> {
        let max = self.rate_bits_per_s_max?;
        let received_bytes: u64 = report
            .streams
            .iter()
            .filter(|(_, sending, _)| !sending)
            .map(|(_, _, sample)| sample.bytes)
            .sum();
        let seconds = report.end_s - report.start_s;
        // Shorter ones are too noisy to accuse anybody.
        let excessive =
            seconds > 0.2 && received_bytes as f64 * 8.0 / seconds > max * RATE_TOLERANCE;
        excessive.then(|| {
            format!("the client sends faster than the {} allowed", units::show_bit_rate(max))
        })
    }

    fn say(&mut self, message: &ServerMessage) -> Result<(), SessionEnd> {
        self.spoke = Instant::now();
        Ok(self.client.link.send(message)?)
    }
}
