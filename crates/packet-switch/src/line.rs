//! One direction of a lightpath, carried by a thread of its own: from one end, through the delay line,
//! out of the other.
//!
//! The ends are what frames come from and go to: hosts' devices, which are the links of a lab, or
//! ports of a switch, which are its links. The loop is the same.

mod ends;

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::Timespec;
use stats::LatencyHistogram;
use switch::delay_line::DelayLine;
use switch::frame::{FrameShape, mark_congestion};
use switch::lightpath::{Lightpath, LightpathCounters, LostPackets, Verdict};
use switch::split::send_survivors;

pub use ends::{FromRing, ToRing};

/// Where frames come from.
pub trait Source {
    /// Reads the next frame into `space`; its length, or `None` when there is none.
    ///
    /// # Errors
    /// The end is gone.
    fn take(&mut self, space: &mut [u8]) -> io::Result<Option<usize>>;

    /// Sleeps until there may be one, or the time is up.
    ///
    /// # Errors
    /// The end is gone.
    fn wait(&mut self, timeout: Option<&Timespec>) -> io::Result<()>;

    /// Whether somebody has asked for the end.
    fn is_over(&self) -> bool {
        false
    }
}

/// Where they go.
pub trait Sink {
    /// Hands over a frame, given in parts; false when it is not taken.
    fn put(&mut self, parts: &[IoSlice<'_>]) -> bool;

    /// Those put since the last call are to be seen now.
    ///
    /// # Errors
    /// The end is gone.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Frames read before due ones are sent again.
const BATCH_FRAMES: usize = 16;
/// A sleep that would be shorter is spent looking at the clock: falling asleep and waking up cost
/// about as much.
const SPIN_NS: u64 = 5_000;
/// With no more than so many frames in flight (probes, not load) ...
const SPARSE_FRAMES: usize = 16;
/// ... it looks at the clock this long: a core that has to wake from its own sleep first takes some
/// 40 us.
const SPARSE_SPIN_NS: u64 = 50_000;
/// On a machine with few cores, beyond so many frames in flight ...
const BULK_FRAMES: usize = 100;
/// ... a direction wakes up this long after the next is due, to send several at once: waking for
/// each takes more processor time than carrying it, and takes it from the programs that send. ...
const BULK_SLACK_NS: u64 = 300_000;
/// ... In between it looks for arrivals this often.
const BULK_SLEEP_NS: u64 = 500_000;
/// Of the bytes for frames, one frame that waits for the line for so many: it takes 16 bytes, and three
/// times that while a full table of them moves to one twice as long.
const WAITING_SHARE: usize = 128;
/// How often the published counters follow.
const PUBLISH_NS: u64 = 200_000_000;

/// What one direction has done, for others to read.
#[derive(Debug, Clone, Default)]
pub struct LineReport {
    /// What became of the packets.
    pub counters: LightpathCounters,
    /// Wire bytes waiting for the line.
    pub queue_bytes: u64,
    /// Frames on the fibre or waiting.
    pub held_frames_count: usize,
    /// Frames that have left.
    pub sent_frames_count: u64,
    /// Frames for which the delay line had no memory.
    pub overflow_frames_count: u64,
    /// Frames that the far end did not take.
    pub refused_frames_count: u64,
    /// How late frames left against their due time.
    pub lateness: LatencyHistogram,
}

/// A report that the line writes and others read.
pub type SharedReport = Arc<Mutex<LineReport>>;

/// Carries one direction.
#[derive(Debug)]
pub struct Line<From, To> {
    from: From,
    to: To,
    path: Lightpath,
    held: DelayLine<LostPackets>,
    began: Instant,
    report: LineReport,
    shared: SharedReport,
    published_ns: u64,
    changed: bool,
    few_cores: bool,
}

impl<From: Source, To: Sink> Line<From, To> {
    /// Between these ends. The frames held take at most `limit_bytes` of memory; those that wait for the
    /// line, which are remembered once more, at most three eighths of that.
    pub fn new(
        from: From,
        to: To,
        mut path: Lightpath,
        limit_bytes: usize,
        shared: SharedReport,
    ) -> Self {
        path.remember_at_most(limit_bytes / WAITING_SHARE);
        Self {
            from,
            to,
            path,
            held: DelayLine::new(limit_bytes),
            began: Instant::now(),
            report: LineReport::default(),
            shared,
            published_ns: 0,
            changed: false,
            few_cores: false,
        }
    }

    /// Cores are scarce: bulk traffic is carried in batches, a fraction of a millisecond late.
    pub fn batch_bulk(&mut self) {
        self.few_cores = true;
    }

    /// Runs until it is asked to end.
    ///
    /// # Errors
    /// One of the ends is gone.
    pub fn run(mut self) -> io::Result<()> {
        while !self.from.is_over() {
            self.send_due()?;
            let idle = self.receive()?;
            let now_ns = self.now_ns();
            self.publish(now_ns, PUBLISH_NS);
            if idle {
                self.wait(now_ns)?;
            }
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn send_due(&mut self) -> io::Result<()> {
        loop {
            let now_ns = self.now_ns();
            let (to, report) = (&mut self.to, &mut self.report);
            let sent = self.held.poll_due(now_ns, |packet, due_ns, lost| {
                report.lateness.record_ns(now_ns - due_ns);
                report.sent_frames_count += 1;
                if !send(to, packet, lost) {
                    report.refused_frames_count += 1;
                }
            });
            if !sent {
                return self.to.flush();
            }
            self.changed = true;
        }
    }

    /// Reads a batch; whether the device had no more.
    fn receive(&mut self) -> io::Result<bool> {
        for _ in 0..BATCH_FRAMES {
            let Some(len) = self.from.take(self.held.space())? else { return Ok(true) };
            self.changed = true;
            let now_ns = self.now_ns();
            let packet = &mut self.held.space()[..len];
            let shape = FrameShape::of(packet);
            if let Verdict::Forward { leaves_ns, marked, lost } =
                self.path.handle_frame(now_ns, &shape)
            {
                if marked {
                    mark_congestion(packet);
                }
                if !self.held.hold(len, leaves_ns, lost) {
                    self.report.overflow_frames_count += 1;
                }
            }
            if self.held.next_leaves_ns().is_some_and(|leaves_ns| leaves_ns <= now_ns) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Sleeps until a frame arrives or is due.
    fn wait(&mut self, now_ns: u64) -> io::Result<()> {
        let timeout = match self.held.next_leaves_ns() {
            None => {
                self.publish(now_ns, 0);
                None
            }
            Some(leaves_ns) => {
                let left_ns = leaves_ns.saturating_sub(now_ns);
                if self.few_cores && self.held.held_count() > BULK_FRAMES {
                    let nap = timespec((left_ns + BULK_SLACK_NS).min(BULK_SLEEP_NS));
                    // Woken early or not, everything is looked at again.
                    match rustix::thread::nanosleep(&nap) {
                        rustix::thread::NanosleepRelativeResult::Err(error) => {
                            return Err(error.into());
                        }
                        _ => return Ok(()),
                    }
                }
                let sparse = self.held.held_count() <= SPARSE_FRAMES;
                let spin_ns = if sparse { SPARSE_SPIN_NS } else { SPIN_NS };
                if left_ns <= spin_ns {
                    return Ok(());
                }
                Some(timespec(left_ns - spin_ns))
            }
        };
        self.from.wait(timeout.as_ref())
    }

    fn publish(&mut self, now_ns: u64, every_ns: u64) {
        if !self.changed || now_ns - self.published_ns < every_ns {
            return;
        }
        self.changed = false;
        self.published_ns = now_ns;
        self.report.counters = *self.path.counters();
        self.report.queue_bytes = self.path.poll_queue_bytes(now_ns);
        self.report.held_frames_count = self.held.held_count();
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.report);
    }
}

fn send(to: &mut impl Sink, packet: &[u8], lost: LostPackets) -> bool {
    if !lost.any() {
        return to.put(&[IoSlice::new(packet)]);
    }
    let mut all_sent = true;
    send_survivors(packet, &FrameShape::of(packet), lost, |headers, payload| {
        all_sent &= to.put(&[IoSlice::new(headers), IoSlice::new(payload)]);
    });
    all_sent
}

fn timespec(ns: u64) -> Timespec {
    let whole = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    Timespec { tv_sec: whole, tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0) }
}
