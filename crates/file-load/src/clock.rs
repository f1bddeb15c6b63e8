//! One clock for all ranks: the monotonic clock of rank 0's host, and how well others know it.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of this host's monotonic clock.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds since 1970 by this host's wall clock.
#[must_use]
pub fn wall_s() -> f64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// How a rank's clock relates to that of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClockOffset {
    /// To be added to the rank's monotonic clock to have that of rank 0, seconds.
    pub monotonic_s: f64,
    /// By how much the rank's wall clock is ahead of that of rank 0, seconds.
    pub wall_s: f64,
    /// How far either may be wrong, seconds: half the shortest round trip.
    pub uncertainty_s: f64,
}

/// One question to a rank for its clocks: when it was sent and answered by the asker's monotonic clock,
/// seconds, the middle of that by the asker's wall clock, and the clocks of the rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exchanged {
    /// Sent, seconds.
    pub sent_s: f64,
    /// Answered, seconds.
    pub answered_s: f64,
    /// Wall clock less monotonic clock of the asker, seconds.
    pub wall_less_monotonic_s: f64,
    /// The rank's monotonic clock, seconds.
    pub monotonic_s: f64,
    /// The rank's wall clock, seconds since 1970.
    pub wall_s: f64,
}

impl ClockOffset {
    /// From questions and answers: the fastest decides, because it leaves the least room.
    #[must_use]
    pub fn of(exchanges: &[Exchanged]) -> Option<Self> {
        let round = |one: &Exchanged| one.answered_s - one.sent_s;
        let best = exchanges.iter().min_by(|a, b| round(a).total_cmp(&round(b)))?;
        let middle_s = f64::midpoint(best.sent_s, best.answered_s);
        Some(Self {
            monotonic_s: middle_s - best.monotonic_s,
            wall_s: best.wall_s - (middle_s + best.wall_less_monotonic_s),
            uncertainty_s: round(best) / 2.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_exchange_decides() {
        let exchanged = |sent_s, answered_s, monotonic_s| Exchanged {
            sent_s,
            answered_s,
            wall_less_monotonic_s: 1000.0,
            monotonic_s,
            wall_s: 1010.5 + 0.25,
        };
        // The rank's clock is 3 s behind; the slow exchange was held up on its way back.
        let offset = ClockOffset::of(&[exchanged(10.0, 12.0, 7.1), exchanged(10.0, 11.0, 7.5)])
            .expect("two");
        assert_eq!((offset.monotonic_s, offset.wall_s, offset.uncertainty_s), (3.0, 0.25, 0.5));
        assert_eq!(ClockOffset::of(&[]), None);
    }

    #[test]
    fn clocks_run() {
        let before = now_ns();
        assert!(now_ns() >= before && before > 0 && wall_s() > 1.6e9);
    }
}
