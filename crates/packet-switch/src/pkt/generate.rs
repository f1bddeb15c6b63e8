//! Sending, and one frame there and back.

use std::time::{Duration, Instant};

use ring::{Receiver, Sender};
use stats::LatencyHistogram;

use super::flows::Flows;
use super::frame::{FRAME_BYTES_MIN, Frame, Stamp};
use super::{Manner, PktError, Ticker, now_ns};

/// What to send.
#[derive(Debug, Clone)]
pub struct Generate {
    /// Each frame.
    pub frame: Frame,
    /// Whose frames they are in turn; the frame's own addresses without.
    pub flows: Option<Flows>,
    /// Hands slots over without writing their frames again: a buffer is written once and sent again as
    /// it is, as pkt-gen does. Otherwise each frame is written whole, with its number and the time.
    pub slots_only: bool,
    /// Frames a second; as fast as it goes without.
    pub rate_per_s: Option<f64>,
    /// How many; without end without.
    pub count: Option<u64>,
    /// How long; without end without.
    pub duration: Option<Duration>,
    /// How, and how many at once.
    pub manner: Manner,
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GenerateCount {
    /// Frames handed over.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Duration of the run.
    pub elapsed: Duration,
}

/// How far a run has come that goes on elsewhere when it is interrupted.
#[derive(Debug, Default)]
pub struct Sent {
    frames: u64,
    began: Option<Instant>,
    /// Time that does not count: there was no switch to send to.
    pub away: Duration,
}

/// Sends.
///
/// # Errors
/// The frame does not fit, or the ring broke.
pub fn generate(
    sender: &mut Sender,
    what: &Generate,
    report: &mut dyn FnMut(GenerateCount),
    stop: &dyn Fn() -> bool,
) -> Result<GenerateCount, PktError> {
    generate_on(sender, what, &mut Sent::default(), report, stop)
}

/// The same, from where a former run was interrupted: its frames, numbers and time count on.
///
/// # Errors
/// As [`generate`].
pub fn generate_on(
    sender: &mut Sender,
    what: &Generate,
    so_far: &mut Sent,
    report: &mut dyn FnMut(GenerateCount),
    stop: &dyn Fn() -> bool,
) -> Result<GenerateCount, PktError> {
    let (first, mut ticker) = (*so_far.began.get_or_insert_with(Instant::now), Ticker::new());
    let began = first + so_far.away;
    let mut writer = Writer::new(sender, what);
    let mut sent = so_far.frames;
    let count = |frames: u64| GenerateCount {
        frames,
        bytes: frames * what.frame.bytes().len() as u64,
        elapsed: began.elapsed(),
    };
    let paced = what.rate_per_s.is_some() || what.duration.is_some();
    while !stop() {
        let left = what.count.map_or(u64::MAX, |all| all - sent).min(what.manner.batch.into());
        let left = if paced { allowed(what, began.elapsed(), sent).min(left) } else { left };
        let finished =
            what.count == Some(sent) || what.duration.is_some_and(|all| began.elapsed() >= all);
        if finished {
            break;
        }
        let mut now = 0;
        if left > 0 {
            // No more than the batch, a u32.
            now = send(sender, &mut writer, what, left as u32, sent)?;
            sent += u64::from(now);
        } else {
            pause(what, began.elapsed(), sent);
        }
        if ticker.tick(now == 0) {
            report(count(sent));
        }
    }
    so_far.frames = sent;
    let sent = count(sent);
    drain(sender, stop)?;
    Ok(sent)
}

/// Waits until the other side has taken everything, as long as it takes something within a second:
/// what is still in the ring when a port goes is lost.
fn drain(sender: &mut Sender, stop: &dyn Fn() -> bool) -> Result<(), PktError> {
    let all = sender.end().slots() - 1;
    let (mut before, mut since) = (sender.reserve(all)?, Instant::now());
    while before < all && !stop() && since.elapsed() < LOST_AFTER {
        std::thread::sleep(Duration::from_micros(100));
        let now = sender.reserve(all)?;
        if now > before {
            (before, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// How many frames ahead a buffer is asked for: the receiver's cache has it still.
const AHEAD_FRAMES: u32 = 16;

/// Sends up to `wanted` frames, waiting for the first slot.
fn send(
    sender: &mut Sender,
    writer: &mut Writer,
    what: &Generate,
    wanted: u32,
    first: u64,
) -> Result<u32, PktError> {
    let mut free = sender.reserve(wanted)?;
    if free == 0 {
        free = sender.wait(what.manner.patience())?;
    }
    let now = free.min(wanted);
    let sent_ns = if what.slots_only { 0 } else { now_ns() };
    for offset in 0..now {
        let sequence = first + u64::from(offset);
        if !what.slots_only
            && offset + AHEAD_FRAMES < now
            && let Some(ahead) = sender.buffer(offset + AHEAD_FRAMES)
        {
            ahead.prefetch_to_write();
        }
        let fits = if what.slots_only {
            writer.hand_over(sender, offset, what, sequence)
        } else {
            write(sender, offset, what, Stamp { sequence, sent_ns })
        };
        if !fits {
            return Err(PktError::TooLong { frame_bytes: what.frame.bytes().len() });
        }
    }
    sender.publish(now)?;
    Ok(now)
}

/// Frames that the rate lets out by now, beyond those that are.
fn allowed(what: &Generate, elapsed: Duration, sent: u64) -> u64 {
    match what.rate_per_s {
        Some(rate) => ((elapsed.as_secs_f64() * rate) as u64 + 1).saturating_sub(sent),
        None => u64::MAX,
    }
}

/// Waits for the next frame's time: asleep when that is long, else polling.
fn pause(what: &Generate, elapsed: Duration, sent: u64) {
    let Some(rate) = what.rate_per_s else { return };
    let due = Duration::try_from_secs_f64(sent as f64 / rate).unwrap_or(Duration::MAX);
    let wait = due.saturating_sub(elapsed).min(super::ATTENTION);
    if wait > Duration::from_micros(200) {
        std::thread::sleep(wait - Duration::from_micros(100));
    } else {
        std::hint::spin_loop();
    }
}

/// Writes a whole frame into the `offset`th slot; false when it does not fit.
#[inline]
fn write(sender: &mut Sender, offset: u32, what: &Generate, stamp: Stamp) -> bool {
    let Some(buffer) = sender.put_frame(offset, what.frame.bytes()) else { return false };
    // The flow's headers, and the stamp, over those of the first frame.
    let headed = match what.flows {
        Some(flows) => buffer.write(0, &what.frame.head(flows.at(stamp.sequence))),
        None => true,
    };
    headed && buffer.write(Stamp::OFFSET, &stamp.encode())
}

/// Knows which slots hold the frame already, where frames are not written again.
struct Writer {
    /// By slot: the buffer that was written there; 0 for none.
    written: Vec<u32>,
    frame_bytes: u16,
}

impl Writer {
    fn new(sender: &mut Sender, what: &Generate) -> Self {
        let slots = sender.end().slots() as usize;
        let frame_bytes = u16::try_from(what.frame.bytes().len()).unwrap_or(u16::MAX);
        Self { written: vec![0; slots], frame_bytes }
    }

    #[inline]
    fn hand_over(
        &mut self,
        sender: &mut Sender,
        offset: u32,
        what: &Generate,
        sequence: u64,
    ) -> bool {
        let index = sender.end().index(offset);
        let buffer = sender.end().memory().slot(index).buffer;
        let written = &mut self.written[index as usize];
        let there = *written == buffer;
        let mut fits = if there {
            sender.put_length(offset, self.frame_bytes)
        } else {
            *written = buffer;
            sender.put(offset, what.frame.bytes())
        };
        if let Some(flows) = what.flows {
            let head = what.frame.head(flows.at(sequence));
            fits = fits && sender.buffer(offset).is_some_and(|buffer| buffer.write(0, &head));
        }
        fits
    }
}

/// Results of `pkt ping`.
#[derive(Debug, Clone, Default)]
pub struct PingCount {
    /// How long each took.
    pub round_trips: LatencyHistogram,
    /// Frames that did not come back within a second.
    pub lost: u64,
}

/// How long a frame is waited for.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// How far a run of round trips has come that goes on elsewhere when it is interrupted.
#[derive(Debug, Default)]
pub struct Pinged {
    count: PingCount,
    began: Option<Instant>,
    /// Time that does not count: there was no switch to send to.
    pub away: Duration,
}

/// Sends one frame after the other and waits for each to come back, at most `what.count` times (a
/// thousand unless given), not sooner than the rate says.
///
/// # Errors
/// As [`generate`].
pub fn ping(
    sender: &mut Sender,
    receiver: &mut Receiver,
    what: &Generate,
    report: &mut dyn FnMut(&PingCount),
    stop: &dyn Fn() -> bool,
) -> Result<PingCount, PktError> {
    let mut so_far = Pinged::default();
    ping_on((sender, receiver), what, &mut so_far, report, stop)?;
    Ok(so_far.count)
}

/// The same, from where a former run was interrupted; whether there is nothing left to do.
///
/// # Errors
/// As [`generate`].
pub fn ping_on(
    (sender, receiver): (&mut Sender, &mut Receiver),
    what: &Generate,
    so_far: &mut Pinged,
    report: &mut dyn FnMut(&PingCount),
    stop: &dyn Fn() -> bool,
) -> Result<bool, PktError> {
    let what = Generate { slots_only: false, ..what.clone() };
    let mut writer = Writer::new(sender, &what);
    let began = *so_far.began.get_or_insert_with(Instant::now) + so_far.away;
    let (count, mut ticker) = (&mut so_far.count, Ticker::new());
    loop {
        let sequence = count.round_trips.count() + count.lost;
        let over = what.duration.is_some_and(|all| began.elapsed() >= all);
        if over || sequence >= what.count.unwrap_or(1000) {
            return Ok(true);
        }
        if stop() {
            return Ok(false);
        }
        if allowed(&what, began.elapsed(), sequence) == 0 {
            pause(&what, began.elapsed(), sequence);
            continue;
        }
        if send(sender, &mut writer, &what, 1, sequence)? == 0 {
            continue;
        }
        match comes_back(receiver, &what.manner, sequence)? {
            Some(sent_ns) => count.round_trips.record_ns(now_ns().saturating_sub(sent_ns)),
            None => count.lost += 1,
        }
        if ticker.tick(false) {
            report(count);
        }
    }
}

impl Pinged {
    /// What has come back, and what has not.
    #[must_use]
    pub fn count(&self) -> &PingCount {
        &self.count
    }
}

/// When the frame with that number was sent, once it is back.
fn comes_back(
    receiver: &mut Receiver,
    manner: &Manner,
    sequence: u64,
) -> Result<Option<u64>, PktError> {
    let until = Instant::now() + LOST_AFTER;
    loop {
        let arrived = receiver.wait(manner.patience())?;
        let mut head = [0; FRAME_BYTES_MIN];
        let mut found = None;
        for offset in 0..arrived {
            if receiver.copy(offset, &mut head).is_some() {
                let stamp = Stamp::decode(&head).filter(|stamp| stamp.sequence == sequence);
                found = found.or(stamp.map(|stamp| stamp.sent_ns));
            }
        }
        receiver.release(arrived)?;
        if found.is_some() {
            return Ok(found);
        }
        if Instant::now() >= until {
            return Ok(None);
        }
    }
}
