//! How fast a stream is, measured by itself at next to no cost.

use std::time::Instant;

/// The clock is read once in so many calls.
const CALLS_COUNT: u32 = 64;

/// A rate over the last few calls. Streams use it to choose what a system call should move: large
/// pieces where the path is fast, because each sleep and each wake-up costs as much as copying tens
/// of kilobytes; small ones where it is slow, so that bytes are counted when they move.
#[derive(Debug)]
pub(super) struct Tempo {
    calls_count: u32,
    bytes: u64,
    since: Instant,
}

impl Tempo {
    /// Starts now.
    pub(super) fn new() -> Self {
        Self { calls_count: 0, bytes: 0, since: Instant::now() }
    }

    /// A call moved this many bytes; the rate in bytes a second, once in a while.
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
