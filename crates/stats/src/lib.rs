//! Figures from repeats: medians with confidence intervals, latency histograms, and the seeded
//! random numbers that emulated links and shuffled sweeps draw from.

mod histogram;
mod median;
mod random;

pub use histogram::LatencyHistogram;
pub use median::{MedianInterval, median, median_interval, relative_spread};
pub use random::Random;
