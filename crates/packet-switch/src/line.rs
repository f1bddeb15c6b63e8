//! One direction of a lightpath, carried by a thread of its own: from one end, through the delay line,
//! out of the other.
//!
//! The ends are what frames come from and go to: hosts' devices, which are the links of a lab, or
//! ports of a switch, which are its links. The loop is [`carry()`], into a [`Delayed`] sink; here stands when
//! it sleeps.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use ports::{Delayed, EndError, LineReport, Moved, Sink, Source, carry};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::thread::NanosleepRelativeResult;
use switch::lightpath::Lightpath;

use crate::device::Stop;

/// Frames read before due ones are sent again.
const BATCH_FRAMES: u32 = 16;
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

/// A report that the line writes and others read.
pub type SharedReport = Arc<Mutex<LineReport>>;

/// Carries one direction.
#[derive(Debug)]
pub struct Line<From, To> {
    from: From,
    to: Delayed<To>,
    shared: SharedReport,
    published_ns: u64,
    changed: bool,
    few_cores: bool,
    stop: Option<Arc<Stop>>,
}

impl<From: Source, To: Sink> Line<From, To> {
    /// Between these ends. The frames held take at most `limit_bytes` of memory; those that wait for the
    /// line, which are remembered once more, at most three eighths of that.
    pub fn new(
        from: From,
        to: To,
        path: Lightpath,
        limit_bytes: usize,
        shared: SharedReport,
    ) -> Self {
        let to = Delayed::new(to, path, limit_bytes);
        Self { from, to, shared, published_ns: 0, changed: false, few_cores: false, stop: None }
    }

    /// Cores are scarce: bulk traffic is carried in batches, a fraction of a millisecond late.
    pub fn batch_bulk(&mut self) {
        self.few_cores = true;
    }

    /// It ends when it is asked to.
    pub(crate) fn until(self, stop: Arc<Stop>) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Runs until it is asked to end.
    ///
    /// # Errors
    /// One of the ends has closed.
    pub fn run(mut self) -> Result<(), EndError> {
        while !self.stop.as_ref().is_some_and(|stop| stop.is_asked()) {
            let turn = carry(&mut self.from, &mut self.to, BATCH_FRAMES)?;
            self.changed |= turn.packets > 0;
            let now_ns = self.to.now_ns();
            self.publish(now_ns, PUBLISH_NS);
            if turn.last == Moved::Nothing {
                self.wait(now_ns)?;
                // Something may be due even though nothing has come.
                self.changed |= self.to.held_count() > 0;
                self.to.flush()?;
            }
        }
        Ok(())
    }

    /// Sleeps until a frame arrives or is due.
    fn wait(&mut self, now_ns: u64) -> Result<(), EndError> {
        let timeout = match self.to.next_leaves_ns() {
            None => {
                self.publish(now_ns, 0);
                None
            }
            Some(leaves_ns) => {
                let left_ns = leaves_ns.saturating_sub(now_ns);
                if self.few_cores && self.to.held_count() > BULK_FRAMES {
                    let nap = timespec((left_ns + BULK_SLACK_NS).min(BULK_SLEEP_NS));
                    // Woken early or not, everything is looked at again.
                    return match rustix::thread::nanosleep(&nap) {
                        NanosleepRelativeResult::Err(error) => Err(io::Error::from(error).into()),
                        _ => Ok(()),
                    };
                }
                let sparse = self.to.held_count() <= SPARSE_FRAMES;
                let spin_ns = if sparse { SPARSE_SPIN_NS } else { SPIN_NS };
                if left_ns <= spin_ns {
                    return Ok(());
                }
                Some(timespec(left_ns - spin_ns))
            }
        };
        if self.from.arm()? {
            let stop = self.stop.as_ref().map(|stop| stop.bell().as_fd());
            let fds = self.from.fds().into_iter().chain(stop);
            let mut set: Vec<_> =
                fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match rustix::event::poll(&mut set, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        self.from.disarm()
    }

    fn publish(&mut self, now_ns: u64, every_ns: u64) {
        if !self.changed || now_ns - self.published_ns < every_ns {
            return;
        }
        self.changed = false;
        self.published_ns = now_ns;
        let report = self.to.report(now_ns);
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone_from(report);
    }
}

fn timespec(ns: u64) -> Timespec {
    let whole = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    Timespec { tv_sec: whole, tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0) }
}
