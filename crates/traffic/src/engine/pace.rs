//! Pacing: an application that sends or reads no faster than it was told to.

use std::time::{Duration, Instant};

use super::shared::add;
use super::worker::{PATIENCE, Worker};

/// How much of the schedule may be caught up at once after a stall.
const CREDIT_MAX: Duration = Duration::from_millis(100);

/// Time between portions, in seconds: short enough for a smooth slow rate, long enough for a cheap
/// fast one.
const PORTION_TIME_S: f64 = 2e-3;

/// An absolute schedule: lateness is caught up, except what a stall beyond [`CREDIT_MAX`] cost.
#[derive(Debug)]
pub(super) struct Pace {
    ns_per_byte: f64,
    due: Instant,
    owed_ns: f64,
}

impl Pace {
    /// Starts the schedule now and makes the thread's timers precise.
    pub(super) fn new(bits_per_s: f64) -> Self {
        // If the kernel refuses, sleeps are 50 us longer, and the schedule compensates for that.
        sys::thread::timer_slack_ns(1).ok();
        Self { ns_per_byte: 8e9 / bits_per_s.max(1.0), due: Instant::now(), owed_ns: 0.0 }
    }

    /// How many bytes to move at a time, at most `block_bytes`.
    pub(super) fn portion_bytes(&self, block_bytes: u64) -> u64 {
        let portion = PORTION_TIME_S * 1e9 / self.ns_per_byte;
        (portion as u64).clamp(1, block_bytes)
    }

    /// Whether the next portion is due. If not, sleeps until then, but never for longer than
    /// [`PATIENCE`].
    #[inline]
    pub(super) fn is_due(&mut self, worker: &Worker<'_>) -> bool {
        let now = Instant::now();
        let Some(ahead) = self.due.checked_duration_since(now).filter(|ahead| !ahead.is_zero())
        else {
            let earliest = now.checked_sub(CREDIT_MAX).unwrap_or(now);
            self.due = self.due.max(earliest);
            return true;
        };
        std::thread::sleep(ahead.min(PATIENCE));
        let slept_ns = u64::try_from(now.elapsed().as_nanos()).unwrap_or(u64::MAX);
        add(&worker.stream.counters.idle_ns, slept_ns);
        false
    }

    /// How many pieces of this size are due; waits like [`Self::is_due`] when none is.
    pub(super) fn due_count(&mut self, worker: &Worker<'_>, piece_bytes: u64) -> u64 {
        if !self.is_due(worker) {
            return 0;
        }
        let late_ns = self.due.elapsed().as_nanos() as f64;
        (late_ns / (self.ns_per_byte * piece_bytes as f64)) as u64 + 1
    }

    /// Advances the schedule by the bytes that were moved.
    #[inline]
    pub(super) fn took(&mut self, bytes: u64) {
        self.owed_ns += bytes as f64 * self.ns_per_byte;
        let whole = self.owed_ns as u64;
        self.owed_ns -= whole as f64;
        self.due += Duration::from_nanos(whole);
    }
}
