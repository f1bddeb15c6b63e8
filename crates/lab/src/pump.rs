//! The thread that carries one direction of a lightpath: from one port, through the delay line, out
//! of the other.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use port_tap::Port;
use rustix::event::{PollFd, PollFlags, Timespec};
use stats::LatencyHistogram;
use switch::delay_line::DelayLine;
use switch::frame::{FrameShape, mark_congestion};
use switch::lightpath::{Lightpath, LightpathCounters, LostPackets, Verdict};
use switch::split::send_survivors;

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
/// How often the published counters follow.
const PUBLISH_NS: u64 = 200_000_000;

/// What one direction has done, for others to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct PumpReport {
    pub(crate) counters: LightpathCounters,
    pub(crate) queue_bytes: u64,
    pub(crate) held_frames_count: usize,
    pub(crate) sent_frames_count: u64,
    pub(crate) overflow_frames_count: u64,
    pub(crate) refused_frames_count: u64,
    pub(crate) lateness: LatencyHistogram,
}

/// A report that the pump writes and others read.
pub(crate) type SharedReport = Arc<Mutex<PumpReport>>;

/// Carries one direction.
pub(crate) struct Pump {
    from: Arc<Port>,
    to: Arc<Port>,
    path: Lightpath,
    line: DelayLine<LostPackets>,
    began: Instant,
    report: PumpReport,
    shared: SharedReport,
    published_ns: u64,
    changed: bool,
    few_cores: bool,
}

impl Pump {
    pub(crate) fn new(
        from: Arc<Port>,
        to: Arc<Port>,
        path: Lightpath,
        limit_bytes: usize,
        shared: SharedReport,
    ) -> Self {
        Self {
            from,
            to,
            path,
            line: DelayLine::new(limit_bytes),
            began: Instant::now(),
            report: PumpReport::default(),
            shared,
            published_ns: 0,
            changed: false,
            few_cores: false,
        }
    }

    /// Cores are scarce: bulk traffic is carried in batches, a fraction of a millisecond late.
    pub(crate) fn batch_bulk(&mut self) {
        self.few_cores = true;
    }

    /// Runs until the device it reads from is gone.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        loop {
            self.send_due();
            let idle = self.receive()?;
            let now_ns = self.now_ns();
            self.publish(now_ns, PUBLISH_NS);
            if idle {
                self.wait(now_ns)?;
            }
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn send_due(&mut self) {
        loop {
            let now_ns = self.now_ns();
            let (to, report) = (&self.to, &mut self.report);
            let sent = self.line.poll_due(now_ns, |packet, due_ns, lost| {
                report.lateness.record_ns(now_ns - due_ns);
                report.sent_frames_count += 1;
                if !send(to, packet, lost) {
                    report.refused_frames_count += 1;
                }
            });
            if !sent {
                return;
            }
            self.changed = true;
        }
    }

    /// Reads a batch; whether the device had no more.
    fn receive(&mut self) -> std::io::Result<bool> {
        for _ in 0..BATCH_FRAMES {
            let Some(len) = self.from.recv(self.line.space())? else { return Ok(true) };
            self.changed = true;
            let now_ns = self.now_ns();
            let packet = &mut self.line.space()[..len];
            let shape = FrameShape::of(packet);
            if let Verdict::Forward { leaves_ns, marked, lost } =
                self.path.handle_frame(now_ns, &shape)
            {
                if marked {
                    mark_congestion(packet);
                }
                if !self.line.hold(len, leaves_ns, lost) {
                    self.report.overflow_frames_count += 1;
                }
            }
            if self.line.next_leaves_ns().is_some_and(|leaves_ns| leaves_ns <= now_ns) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Sleeps until a frame arrives or is due.
    fn wait(&mut self, now_ns: u64) -> std::io::Result<()> {
        let timeout = match self.line.next_leaves_ns() {
            None => {
                self.publish(now_ns, 0);
                None
            }
            Some(leaves_ns) => {
                let left_ns = leaves_ns.saturating_sub(now_ns);
                if self.few_cores && self.line.held_count() > BULK_FRAMES {
                    let nap = timespec((left_ns + BULK_SLACK_NS).min(BULK_SLEEP_NS));
                    // Woken early or not, everything is looked at again.
                    match rustix::thread::nanosleep(&nap) {
                        rustix::thread::NanosleepRelativeResult::Err(error) => {
                            return Err(error.into());
                        }
                        _ => return Ok(()),
                    }
                }
                let sparse = self.line.held_count() <= SPARSE_FRAMES;
                let spin_ns = if sparse { SPARSE_SPIN_NS } else { SPIN_NS };
                if left_ns <= spin_ns {
                    return Ok(());
                }
                Some(timespec(left_ns - spin_ns))
            }
        };
        let mut fds = [PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn publish(&mut self, now_ns: u64, every_ns: u64) {
        if !self.changed || now_ns - self.published_ns < every_ns {
            return;
        }
        self.changed = false;
        self.published_ns = now_ns;
        self.report.counters = *self.path.counters();
        self.report.queue_bytes = self.path.poll_queue_bytes(now_ns);
        self.report.held_frames_count = self.line.held_count();
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.report);
    }
}

fn send(to: &Port, packet: &[u8], lost: LostPackets) -> bool {
    if !lost.any() {
        return to.send(&[IoSlice::new(packet)]).is_ok();
    }
    let mut all_sent = true;
    send_survivors(packet, &FrameShape::of(packet), lost, |headers, payload| {
        all_sent &= to.send(&[IoSlice::new(headers), IoSlice::new(payload)]).is_ok();
    });
    all_sent
}

fn timespec(ns: u64) -> Timespec {
    let whole = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    Timespec { tv_sec: whole, tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0) }
}
