//! How the switch's cost grows with ports and addresses, what it costs at rest, and how fast ports come
//! and go. The switch has core 0; all its clients are this program's, in one polling thread on core 1.

use std::time::{Duration, Instant};

use packet_switch::attachment::{Ask, RefusalCode};
use packet_switch::client::{Attached, ClientError, Connection};
use packet_switch::pkt::{Frame, MacAddress};
use ring::Patience;

use crate::comparison::Figures;
use crate::host::BenchError;
use crate::packets::Testbed;

/// Clients, and what they send each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Ports that send.
    pub(crate) senders: u16,
    /// Ports that take in; more than one get broadcasts.
    pub(crate) receivers: u16,
    /// Stations behind the senders, and as many behind the receiver.
    pub(crate) addresses: u32,
}

/// Frames under way at most: less than a ring has, so that none is dropped.
const UNDER_WAY: u64 = 768;
/// Frames handed over and taken in at once, over all ports of a kind.
const BURST: u32 = 256;
const FRAME_BYTES: usize = 60;

/// Frames a second that all receivers together take in.
pub(crate) fn forward(load: Load, length: Duration) -> Result<Figures, BenchError> {
    let bed = Testbed::new(&[])?;
    let work = || -> Result<f64, BenchError> {
        sys::thread::pin_current(&[1])
            .map_err(|error| BenchError::Failed(format!("core 1: {error}")))?;
        Exchange::attach(&bed, load)?.run(length)
    };
    let rate = std::thread::scope(|scope| scope.spawn(work).join());
    let frames_per_s = rate.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(Figures::from([("frames_per_s", frames_per_s)]))
}

struct Exchange {
    load: Load,
    senders: Vec<Attached>,
    receivers: Vec<Attached>,
    next: u32,
    frame: [u8; FRAME_BYTES],
    _connections: Vec<Connection>,
}

/// A station: `side` 1 sends, 2 takes in.
fn station(side: u8, number: u32) -> MacAddress {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddress([2, side, a, b, c, d])
}

impl Exchange {
    fn attach(bed: &Testbed, load: Load) -> Result<Self, BenchError> {
        let mut connections = Vec::new();
        let mut ports = Vec::new();
        for number in 0..load.senders + load.receivers {
            // A connection may have 64.
            if number % 64 == 0 {
                connections.push(bed.connect()?);
            }
            let connection = connections.last_mut().ok_or_else(|| failed("no connection"))?;
            let name = format!("vale0:p{number}").parse().map_err(failed)?;
            ports.push(connection.attach_port(&name).map_err(failed)?);
        }
        let senders = ports.split_off(load.receivers.into());
        let mut frame = [0; FRAME_BYTES];
        frame.copy_from_slice(Frame::new(station(1, 0), station(2, 0), FRAME_BYTES).bytes());
        let receivers = ports;
        let mut exchange =
            Self { load, senders, receivers, next: 0, frame, _connections: connections };
        exchange.announce()?;
        Ok(exchange)
    }

    /// Lets the switch learn where the stations to be sent to are.
    fn announce(&mut self) -> Result<(), BenchError> {
        for number in 0..self.load.addresses {
            let frame = Frame::new(station(2, number), station(2, number), FRAME_BYTES);
            let sender = &mut self.receivers[0].sender;
            while sender.reserve(1).map_err(failed)? == 0 {
                std::hint::spin_loop();
            }
            if !sender.put(0, frame.bytes()) {
                return Err(failed("a frame does not fit"));
            }
            sender.publish(1).map_err(failed)?;
        }
        Ok(())
    }

    fn run(&mut self, length: Duration) -> Result<f64, BenchError> {
        let copies = u64::from(self.load.receivers);
        let (mut began, mut sent, mut received) = (Instant::now(), 0, 0);
        let (mut warm, mut last) = (false, Instant::now());
        while !warm || began.elapsed() < length {
            for index in 0..self.senders.len() {
                if sent - received / copies < UNDER_WAY {
                    sent += u64::from(self.send(index)?);
                }
            }
            let before = received;
            // One that takes in each frame as it comes pays for the cache lines each time.
            let worthwhile = BURST / self.receivers.len() as u32;
            for attached in &mut self.receivers {
                let arrived = attached.receiver.peek(worthwhile).map_err(failed)?;
                if arrived < worthwhile && sent - received / copies < UNDER_WAY {
                    continue;
                }
                attached.receiver.release(arrived).map_err(failed)?;
                received += u64::from(arrived);
            }
            if received > before {
                last = Instant::now();
            } else if last.elapsed() > Duration::from_secs(2) {
                return Err(failed(format!("{received} of {sent} arrived, then no more")));
            }
            // Every slot has been written by then.
            if !warm && sent > 100_000 {
                (warm, began, sent, received) = (true, Instant::now(), sent - received / copies, 0);
            }
        }
        Ok(received as f64 / began.elapsed().as_secs_f64())
    }

    fn send(&mut self, index: usize) -> Result<u32, BenchError> {
        let broadcast = self.receivers.len() > 1;
        let count = (BURST / self.senders.len() as u32).max(1);
        let sender = &mut self.senders[index].sender;
        let free = sender.reserve(count).map_err(failed)?.min(count);
        for offset in 0..free {
            self.next = (self.next + 1) % self.load.addresses;
            let to = if broadcast { MacAddress([0xff; 6]) } else { station(2, self.next) };
            self.frame[..6].copy_from_slice(&to.0);
            self.frame[6..12].copy_from_slice(&station(1, self.next).0);
            if !sender.put(offset, &self.frame) {
                return Err(failed("a frame does not fit"));
            }
        }
        sender.publish(free).map_err(failed)?;
        Ok(free)
    }
}

/// Share of a core that the switch takes with 64 attached ports at which nothing happens.
pub(crate) fn idle(length: Duration) -> Result<Figures, BenchError> {
    let bed = Testbed::new(&[])?;
    let mut connection = bed.connect()?;
    let mut ports = Vec::new();
    for number in 0..64 {
        let name = format!("vale0:p{number}").parse().map_err(failed)?;
        ports.push(connection.attach_port(&name).map_err(failed)?);
    }
    // One frame to all, and what it stirs up.
    let first: &mut Attached = &mut ports[0];
    let frame = Frame::new(station(1, 1), MacAddress([0xff; 6]), FRAME_BYTES);
    let patience = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(1) };
    if first.sender.wait(patience).map_err(failed)? == 0 || !first.sender.put(0, frame.bytes()) {
        return Err(failed("no room for a frame"));
    }
    first.sender.publish(1).map_err(failed)?;
    std::thread::sleep(Duration::from_millis(500));
    let (before, began) = (bed.busy_s()?, Instant::now());
    std::thread::sleep(length);
    let share = (bed.busy_s()? - before) / began.elapsed().as_secs_f64();
    Ok(Figures::from([("core_share", share)]))
}

/// Ports attached and detached again a second, by one client, while another stays.
pub(crate) fn attach(length: Duration) -> Result<Figures, BenchError> {
    let bed = Testbed::new(&[])?;
    let mut connection = bed.connect()?;
    let mut attach = |name: &str| -> Result<Attached, BenchError> {
        connection.attach_port(&name.parse().map_err(failed)?).map_err(failed)
    };
    let _stays = attach("vale0:stays")?;
    let (began, mut count) = (Instant::now(), 0_u32);
    let mut other = bed.connect()?;
    while began.elapsed() < length {
        let name = "vale0:comes".parse().map_err(failed)?;
        let comes = match other.attach_port(&name) {
            // Ports leave faster than their memory is freed: the wait for it counts.
            Err(ClientError::Refused { code: RefusalCode::Busy, .. }) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            answer => answer.map_err(failed)?,
        };
        let attachment = comes.attachment;
        drop(comes);
        other.ask(Ask::Detach { attachment }).map_err(failed)?;
        count += 1;
    }
    let per_s = f64::from(count) / began.elapsed().as_secs_f64();
    Ok(Figures::from([("ports_per_s", per_s)]))
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl Testbed {
    fn connect(&self) -> Result<Connection, BenchError> {
        let opened: Result<Connection, ClientError> = Connection::open(&self.socket);
        opened.map_err(failed)
    }

    /// Processor time that the daemon's threads have had, seconds (`schedstat`, first field).
    fn busy_s(&self) -> Result<f64, BenchError> {
        let mut sum_ns = 0.0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.daemon.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let field = text.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
            sum_ns += field.ok_or_else(|| failed("schedstat has no first field"))?;
        }
        Ok(sum_ns * 1e-9)
    }
}
