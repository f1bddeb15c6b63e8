//! An application that offers or reads no faster than it was told.

use std::time::{Duration, Instant};

use super::shared::add;
use super::worker::{PATIENCE, Worker};

/// How much of the schedule may be made up for at once after a stall.
const CREDIT_MAX: Duration = Duration::from_millis(100);

/// Portions are this far apart, so that a slow rate is smooth and a fast one cheap.
const PORTION_TIME_S: f64 = 2e-3;

/// An absolute schedule: what is late is made up for, what a stall cost is not.
#[derive(Debug)]
pub(super) struct Pace {
    ns_per_byte: f64,
    due: Instant,
    owed_ns: f64,
}

impl Pace {
    /// Starts now; the thread's timers become precise.
    pub(super) fn new(bits_per_s: f64) -> Self {
        // Where the kernel refuses, sleeps are 50 us longer and the schedule makes up for it.
        sys::thread::timer_slack_ns(1).ok();
        Self { ns_per_byte: 8e9 / bits_per_s.max(1.0), due: Instant::now(), owed_ns: 0.0 }
    }

    /// How many bytes to move at a time, at most `block_bytes`.
    pub(super) fn portion_bytes(&self, block_bytes: u64) -> u64 {
        let portion = PORTION_TIME_S * 1e9 / self.ns_per_byte;
        (portion as u64).clamp(1, block_bytes)
    }

    /// Whether the next portion's time has come; sleeps towards it if not, but never for longer
    /// than the thread's patience.
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

    /// How many pieces of this size are due; waits as [`Self::is_due`] does when none is.
    pub(super) fn due_count(&mut self, worker: &Worker<'_>, piece_bytes: u64) -> u64 {
        if !self.is_due(worker) {
            return 0;
        }
        let late_ns = self.due.elapsed().as_nanos() as f64;
        (late_ns / (self.ns_per_byte * piece_bytes as f64)) as u64 + 1
    }

    /// Moves the schedule on by what went.
    #[inline]
    pub(super) fn took(&mut self, bytes: u64) {
        self.owed_ns += bytes as f64 * self.ns_per_byte;
        let whole = self.owed_ns as u64;
        self.owed_ns -= whole as f64;
        self.due += Duration::from_nanos(whole);
    }
}
