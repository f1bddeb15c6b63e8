//! One clock for all ranks: the monotonic clock of rank 0's host, and how well others know it.

use std::fs;

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

/// What processes with the same monotonic clock have in common: the running system, and the time namespace,
/// which shifts that clock (`time_namespaces(7)`). Empty where the system does not say.
#[must_use]
pub fn identity() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    if boot.is_empty() {
        return String::new();
    }
    let namespace = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    format!("{boot} {}", namespace.display())
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
    fn a_planted_offset_is_found_within_the_stated_uncertainty() {
        // Way there, time at the rank, way back, us; clocks apart, ns and s.
        type Material = (Vec<(u32, u16, u32)>, i64, i32);
        bolero::check!().with_type::<Material>().for_each(|(ways, monotonic_ns, wall_s)| {
            // Up to 11 days, so that double precision leaves a nanosecond.
            let planted_s = (monotonic_ns % 1_000_000_000_000_000) as f64 * 1e-9;
            let (wall_ahead_s, epoch_s) = (f64::from(*wall_s) * 1e-3, 1.7e9);
            let mut now_s = 1000.0;
            let exchange = |&(there, held, back): &(u32, u16, u32)| {
                let us = |count: u32| f64::from(count) * 1e-6;
                let sent_s = now_s;
                let answered_s = sent_s + us(there) + us(u32::from(held)) + us(back);
                // The rank looks at its clocks when the question is there.
                let at_s = sent_s + us(there);
                now_s = answered_s;
                Exchanged {
                    sent_s,
                    answered_s,
                    wall_less_monotonic_s: epoch_s,
                    monotonic_s: at_s - planted_s,
                    wall_s: at_s + epoch_s + wall_ahead_s,
                }
            };
            let exchanges: Vec<Exchanged> = ways.iter().map(exchange).collect();
            let Some(found) = ClockOffset::of(&exchanges) else {
                assert!(exchanges.is_empty());
                return;
            };
            // Rounding: seconds since 1970 in double precision are good to a quarter of a microsecond.
            let may_s = found.uncertainty_s + 1e-6;
            assert!((found.monotonic_s - planted_s).abs() <= may_s, "{found:?}, {planted_s}");
            assert!((found.wall_s - wall_ahead_s).abs() <= may_s, "{found:?}, {wall_ahead_s}");
            let shortest = ways.iter().map(|&(a, b, c)| u64::from(a) + u64::from(b) + u64::from(c));
            let half_s = shortest.min().unwrap_or(0) as f64 * 0.5e-6;
            assert!(found.uncertainty_s <= half_s + 1e-6, "the fastest exchange decides");
        });
    }

    #[test]
    fn clocks_run() {
        let before = now_ns();
        assert!(now_ns() >= before && before > 0 && wall_s() > 1.6e9);
    }
}
