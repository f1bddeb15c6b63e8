//! The two places where frames take time to pass: a line and a token bucket. Times are exact: the
//! fraction of a nanosecond that a frame leaves over is carried to the next.

use crate::lightpath::Shaper;

const BITS_NS: u64 = 8 * 1_000_000_000;

/// A line that sends one byte after the other.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    rate_bits_per_s: u64,
    free_ns: u64,
    /// Left over from the last frame, in units of 1/rate ns; less than the rate.
    remainder: u64,
}

impl Line {
    pub(crate) fn new(rate_bits_per_s: u64) -> Self {
        Self { rate_bits_per_s, free_ns: 0, remainder: 0 }
    }

    /// When the last bit of a frame has left that may start at `ready_ns`.
    pub(crate) fn send(&mut self, ready_ns: u64, wire_bytes: u64) -> u64 {
        if ready_ns > self.free_ns {
            self.free_ns = ready_ns;
            self.remainder = 0;
        }
        let work = wire_bytes * BITS_NS + self.remainder;
        // A slow line with much before it is busy for longer than the clock goes.
        self.free_ns = self.free_ns.saturating_add(work / self.rate_bits_per_s);
        self.remainder = work % self.rate_bits_per_s;
        self.free_ns
    }
}

/// A token bucket, kept as the time at which it would be full of debt (the virtual scheduling form
/// of the generic cell rate algorithm, ITU-T I.371).
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    drain: Line,
    burst_ns: u64,
}

impl Bucket {
    pub(crate) fn new(shaper: Shaper) -> Self {
        let burst_ns = u128::from(shaper.burst_bytes) * u128::from(BITS_NS)
            / u128::from(shaper.rate_bits_per_s);
        Self {
            drain: Line::new(shaper.rate_bits_per_s),
            burst_ns: u64::try_from(burst_ns).unwrap_or(u64::MAX),
        }
    }

    /// When a frame that arrives at `now_ns` has its tokens.
    pub(crate) fn pass(&mut self, now_ns: u64, wire_bytes: u64) -> u64 {
        let debt_paid_ns = self.drain.send(now_ns, wire_bytes);
        debt_paid_ns.saturating_sub(self.burst_ns).max(now_ns)
    }
}
