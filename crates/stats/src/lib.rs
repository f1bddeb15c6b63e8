//! Figures from repeats: medians with confidence intervals, two samples compared by their ranks or,
//! where they are too few, by their spread, judgements with their chance of failing, latency histograms, and the seeded random numbers that
//! emulated links and shuffled sweeps draw from.

mod histogram;
mod judgement;
mod median;
mod random;
mod rank_sum;
mod student;

pub use histogram::{LatencyHistogram, percentile_count_min};
pub use judgement::{Judgement, binomial_at_least};
pub use median::{MedianInterval, median, median_interval, relative_spread};
pub use random::Random;
pub use rank_sum::{RankSum, false_discovery_adjusted, least_chance, rank_sum};
pub use student::{Spread, student_chance};
