//! The rate of a stream, measured by its own thread at almost no cost.

use std::time::Instant;

/// Calls per reading of the clock.
const CALLS_COUNT: u32 = 64;

/// The rate over the last few calls, by which streams choose how much one system call moves: large
/// blocks on a fast path, because each sleep and wake-up costs as much as copying tens of
/// kilobytes; small blocks on a slow path, so that bytes are counted when they move.
#[derive(Debug)]
pub(super) struct Tempo {
    calls_count: u32,
    bytes: u64,
    since: Instant,
}

impl Tempo {
    /// Starts measuring now.
    pub(super) fn new() -> Self {
        Self { calls_count: 0, bytes: 0, since: Instant::now() }
    }

    /// Counts a call that moved `bytes`. Every [`CALLS_COUNT`] calls, returns the rate in bytes per
    /// second.
    #[inline]
    pub(super) fn moved(&mut self, bytes: u64) -> Option<f64> {
        self.calls_count += 1;
        self.bytes += bytes;
        if self.calls_count < CALLS_COUNT { None } else { Some(self.take()) }
    }

    fn take(&mut self) -> f64 {
        let now = Instant::now();
        let rate = self.bytes as f64 / (now - self.since).as_secs_f64().max(1e-9);
        *self = Self { calls_count: 0, bytes: 0, since: now };
        rate
    }
}
