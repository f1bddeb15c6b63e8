//! Who must not notice: pairs that exchange numbered frames, one a millisecond, all the time.
//!
//! A pair at ports of the switch under attack, one at ports of another switch of the same daemon, a pipe, and
//! somebody who asks the daemon for its list again and again. How long each frame and each answer took is kept.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use packet_switch::attachment::{PipeEnd, Shape};
use packet_switch::client::{Attached, Connection};
use ring::{Patience, Receiver, Sender};

use testkit::spans::{Span, now_ns};
use testkit::stalls::lock;

/// From one frame to the next.
const PACE: Duration = Duration::from_millis(1);
/// From one question to the next.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// After how many frames a station says again where it is. An attack may make the switch forget it, and frames to it go
/// everywhere then, also around a loop of links that the next round makes; this is sooner than that begins.
const INTRODUCE_EVERY: u64 = 50;
/// Waits from here on are kept one by one.
const NOTABLE_NS: u64 = 5_000_000;
/// Seconds of frames fit into a ring: a machine that stalls loses none.
const SHAPE: Shape = Shape { slots: 4096, buffer_bytes: 2112 };
const FRAME_BYTES: usize = 60;
/// An experimental `EtherType` (IEEE 802, "local experimental").
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// What is known of a pair.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// The port that its frames arrive at; none for a pipe.
    pub(crate) port: Option<&'static str>,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Since when a frame or a question waits to be taken, 0 for none.
    waits_since_ns: AtomicU64,
    waits: Mutex<Vec<Span>>,
    shorter_ns: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Lane {
    fn new(name: &'static str, port: Option<&'static str>) -> Arc<Self> {
        Arc::new(Self {
            name,
            port,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            waits_since_ns: AtomicU64::new(0),
            waits: Mutex::default(),
            shorter_ns: AtomicU64::new(0),
            trouble: Mutex::default(),
        })
    }

    fn note(&self, from_ns: u64, to_ns: u64) {
        let span = Span { from_ns, to_ns };
        if span.length_ns() < NOTABLE_NS {
            self.shorter_ns.fetch_max(span.length_ns(), Ordering::Relaxed);
        } else {
            lock(&self.waits).push(span);
        }
    }

    fn fail(&self, what: String) {
        lock(&self.trouble).get_or_insert(what);
    }

    /// What went wrong for good, once.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// The longest of the short waits, and the others one by one, since the last call. One that goes on still
    /// is among them.
    pub(crate) fn take_waits(&self) -> (u64, Vec<Span>) {
        let mut waits = std::mem::take(&mut *lock(&self.waits));
        let since = self.waits_since_ns.load(Ordering::Relaxed);
        if since > 0 {
            let span = Span { from_ns: since, to_ns: now_ns() };
            waits.extend((span.length_ns() >= NOTABLE_NS).then_some(span));
        }
        (self.shorter_ns.swap(0, Ordering::Relaxed), waits)
    }

    /// Says that frames do not move at all, if so.
    pub(crate) fn give_up(&self, sent: u64, is_late: bool) {
        let missing = self.missing(sent);
        if is_late && missing > 0 {
            self.fail(format!("stopped: {missing} of its frames do not arrive"));
        }
    }

    /// Frames that were sent and are not accounted for.
    pub(crate) fn missing(&self, sent: u64) -> u64 {
        let seen = self.received.load(Ordering::Relaxed) + self.lost.load(Ordering::Relaxed);
        sent.saturating_sub(seen)
    }
}

/// All of them at one daemon.
#[derive(Debug)]
pub(crate) struct Innocents {
    pub(crate) lanes: Vec<Arc<Lane>>,
    /// Who asks for lists; its `sent` and `received` are questions and answers.
    pub(crate) asker: Arc<Lane>,
    /// Holds their attachments.
    connection: Connection,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

type Pair = (Attached, Attached, Arc<Lane>);

impl Innocents {
    /// Attaches them all; `few` for the pair of a switch that nobody attacks.
    pub(crate) fn start(socket: &Path, few: bool) -> Result<Self, String> {
        let said = |error: packet_switch::client::ClientError| format!("the innocents: {error}");
        let mut connection = Connection::open(socket).map_err(said)?;
        let mut pairs = Vec::new();
        let switches = [
            ("switch", "vale0:innocent-a", "vale0:innocent-b"),
            ("other switch", "vale1:innocent-a", "vale1:innocent-b"),
        ];
        for (name, one, other) in switches.into_iter().take(if few { 1 } else { 2 }) {
            let mut attach = |port: &str| {
                let port = port.parse().map_err(|error| format!("{port}: {error}"))?;
                connection.attach_port_as(&port, SHAPE).map_err(said)
            };
            pairs.push((attach(one)?, attach(other)?, Lane::new(name, Some(other))));
        }
        if !few {
            let group = "innocents".parse().map_err(|error| format!("innocents: {error}"))?;
            let mut open = |end| connection.open_pipe(&group, end, SHAPE).map_err(said);
            let ends = (open(PipeEnd::Master)?, open(PipeEnd::Slave)?);
            pairs.push((ends.0, ends.1, Lane::new("pipe", None)));
        }
        let asker = Lane::new("requests", None);
        let (stop, asking) =
            (Arc::new(AtomicBool::new(false)), Connection::open(socket).map_err(said)?);
        let lanes: Vec<Arc<Lane>> = pairs.iter().map(|pair| Arc::clone(&pair.2)).collect();
        let threads = run(pairs, asking, &asker, &stop);
        Ok(Self { lanes, asker, connection, stop, threads })
    }

    /// Whether somebody has been cut off, or met anything else that is no wait.
    pub(crate) fn trouble(&mut self) -> Option<String> {
        match self.connection.poll_cut_off() {
            Ok(Some((_, why))) => return Some(format!("an innocent was cut off: {why}")),
            Ok(None) => {}
            Err(error) => return Some(format!("the innocents' connection: {error}")),
        }
        let all = self.lanes.iter().chain([&self.asker]);
        all.filter_map(|lane| Some(format!("{}: {}", lane.name, lane.trouble()?))).next()
    }

    /// Tells the threads to stop. They end when the daemon has, at the latest.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Innocents {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

fn run(
    pairs: Vec<Pair>,
    asking: Connection,
    asker: &Arc<Lane>,
    stop: &Arc<AtomicBool>,
) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    let mut senders = Vec::new();
    for (number, (one, other, lane)) in (1..).zip(pairs) {
        let (mut back, mut receiver) = (other.sender, other.receiver);
        introduce(&mut back, number);
        let (its, stopped) = (Arc::clone(&lane), Arc::clone(stop));
        threads.push(std::thread::spawn(move || {
            sys::process::run_before_others().ok();
            receive(&mut receiver, number, &its, &stopped);
        }));
        senders.push(Station { sender: one.sender, back, number, lane, next: 0 });
    }
    let stopped = Arc::clone(stop);
    threads.push(std::thread::spawn(move || {
        sys::process::run_before_others().ok();
        send_all(senders, &stopped);
    }));
    let (asker, stopped) = (Arc::clone(asker), Arc::clone(stop));
    threads.push(std::thread::spawn(move || ask(asking, &asker, &stopped)));
    threads
}

/// A sender with what it is to say.
struct Station {
    sender: Sender,
    /// The other's, to say where it is.
    back: Sender,
    number: u8,
    lane: Arc<Lane>,
    next: u64,
}

/// Station `number`'s one or other side; locally administered.
fn address(number: u8, side: u8) -> [u8; 6] {
    [0x02, 0x1c, 0, 0, number, side]
}

fn frame(number: u8, next: u64, due_ns: u64) -> [u8; FRAME_BYTES] {
    let mut bytes = [next as u8; FRAME_BYTES];
    bytes[..6].copy_from_slice(&address(number, 2));
    bytes[6..12].copy_from_slice(&address(number, 1));
    bytes[12..14].copy_from_slice(&ETHER_TYPE);
    bytes[14..22].copy_from_slice(&next.to_le_bytes());
    bytes[22..30].copy_from_slice(&due_ns.to_le_bytes());
    bytes
}

/// A frame from the receiving station to itself: the switch learns, and tells nobody.
fn introduce(sender: &mut Sender, number: u8) {
    let mut bytes = [0; FRAME_BYTES];
    bytes[..6].copy_from_slice(&address(number, 2));
    bytes[6..12].copy_from_slice(&address(number, 2));
    // At a pipe nobody reads it; a full ring is as good.
    if matches!(sender.reserve(1), Ok(free) if free > 0) && sender.put(0, &bytes) {
        sender.publish(1).ok();
    }
}

fn send_all(mut stations: Vec<Station>, stop: &AtomicBool) {
    sys::thread::timer_slack_ns(1).ok();
    // Those who receive introduced themselves just now.
    std::thread::sleep(Duration::from_millis(50));
    while !stop.load(Ordering::Relaxed) {
        for station in &mut stations {
            station.send_one();
        }
        std::thread::sleep(PACE);
    }
}

impl Station {
    fn send_one(&mut self) {
        let lane = &self.lane;
        let waiting_ns = lane.waits_since_ns.load(Ordering::Relaxed);
        let due_ns = if waiting_ns > 0 { waiting_ns } else { now_ns() };
        match self.sender.reserve(1) {
            Ok(0) => lane.waits_since_ns.store(due_ns, Ordering::Relaxed),
            Ok(_) => {
                if !self.sender.put(0, &frame(self.number, self.next, due_ns)) {
                    lane.fail("a slot of its own takes no frame".to_owned());
                }
                if let Err(error) = self.sender.publish(1) {
                    lane.fail(format!("its bell: {error}"));
                }
                self.next += 1;
                lane.sent.store(self.next, Ordering::Relaxed);
                lane.waits_since_ns.store(0, Ordering::Relaxed);
                if self.next.is_multiple_of(INTRODUCE_EVERY) {
                    introduce(&mut self.back, self.number);
                }
            }
            Err(error) => lane.fail(format!("its sender: {error}")),
        }
    }
}

fn receive(receiver: &mut Receiver, number: u8, lane: &Lane, stop: &AtomicBool) {
    let patience = Patience { linger: Duration::ZERO, timeout: Duration::from_millis(200) };
    let mut expected = 0;
    while !stop.load(Ordering::Relaxed) {
        let arrived = match receiver.wait(patience) {
            Ok(arrived) => arrived,
            Err(error) => return lane.fail(format!("its receiver: {error}")),
        };
        let at_ns = now_ns();
        for offset in 0..arrived {
            let mut bytes = [0; FRAME_BYTES];
            let length = receiver.copy(offset, &mut bytes);
            if bytes[6..12] != address(number, 1) || bytes[12..14] != ETHER_TYPE {
                continue; // somebody else's
            }
            let word =
                |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
            let (next, due_ns) = (word(14), word(22));
            if length != Some(FRAME_BYTES) || bytes != frame(number, next, due_ns) {
                lane.fail(format!("frame {next} is damaged"));
            } else if next < expected {
                lane.fail(format!("frame {next} after {expected}"));
            } else {
                lane.lost.fetch_add(next - expected, Ordering::Relaxed);
                expected = next + 1;
                lane.note(due_ns, at_ns);
                lane.received.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Err(error) = receiver.release(arrived) {
            return lane.fail(format!("its bell: {error}"));
        }
    }
}

fn ask(mut connection: Connection, lane: &Lane, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let from_ns = now_ns();
        lane.waits_since_ns.store(from_ns, Ordering::Relaxed);
        lane.sent.fetch_add(1, Ordering::Relaxed);
        let answer = connection.list();
        lane.waits_since_ns.store(0, Ordering::Relaxed);
        match answer {
            Ok(_) => lane.note(from_ns, now_ns()),
            Err(error) => return lane.fail(error.to_string()),
        }
        lane.received.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(ASK_EVERY);
    }
}
