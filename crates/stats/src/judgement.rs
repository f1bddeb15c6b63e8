//! Judgements on repeats that a machine may disturb: how many of them may be wrong, and how often a
//! judgement fails by chance all the same.

use std::fmt;

/// A judgement that is made once, on repeats that were all taken before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// Repeats, each right or wrong by itself.
    pub repeats_count: u32,
    /// With more wrong ones than this it fails.
    pub wrong_max: u32,
    /// Share of the repeats that are wrong by chance though all is well, 0 to 1: an assumption, to be
    /// held against what is measured.
    pub wrong_share: f64,
}

impl Judgement {
    /// The strictest one that fails by chance less often than `chance_max`. Where even all wrong is
    /// more likely than that, it never fails: the repeats are too few to judge by.
    #[must_use]
    pub fn strictest(repeats_count: u32, wrong_share: f64, chance_max: f64) -> Self {
        let with = |wrong_max| Self { repeats_count, wrong_max, wrong_share };
        let is_rare = |one: &Self| one.chance_of_failing() < chance_max;
        (0..repeats_count).map(with).find(is_rare).unwrap_or(with(repeats_count))
    }

    /// More than half must be right. Of figures that must lie in a range this is the median's test, or a
    /// stricter one: a median outside has half of the figures outside with it.
    #[must_use]
    pub const fn majority(repeats_count: u32, wrong_share: f64) -> Self {
        Self { repeats_count, wrong_max: repeats_count.saturating_sub(1) / 2, wrong_share }
    }

    /// Whether it fails when every repeat is wrong. One that does not says nothing by passing.
    #[must_use]
    pub const fn can_fail(&self) -> bool {
        self.wrong_max < self.repeats_count
    }

    /// How often it fails although nothing is the matter: the chance of more than `wrong_max` wrong
    /// ones when each repeat is wrong with `wrong_share`, whatever the others are.
    #[must_use]
    pub fn chance_of_failing(&self) -> f64 {
        binomial_at_least(self.repeats_count, self.wrong_max.saturating_add(1), self.wrong_share)
    }

    /// The judgement.
    #[must_use]
    pub const fn passes(&self, wrong_count: u32) -> bool {
        wrong_count <= self.wrong_max
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "of {} repeats at most {} may be wrong, which more are by chance once in {:.0} times where {} % \
             of the repeats are",
            self.repeats_count,
            self.wrong_max,
            1.0 / self.chance_of_failing(),
            self.wrong_share * 100.0
        )
    }
}

/// Probability of at least `least` hits in `count` independent draws that hit with `share` each.
///
/// ```
/// assert_eq!(stats::binomial_at_least(3, 2, 0.5), 0.5);
/// ```
#[must_use]
pub fn binomial_at_least(count: u32, least: u32, share: f64) -> f64 {
    // From the far end, where the terms are small: no sum of near ones is subtracted from one.
    let mut sum = 0.0;
    for hits in (least..=count).rev() {
        let ways: f64 = (0..hits).map(|i| f64::from(count - i) / f64::from(hits - i)).product();
        let exponent = |number: u32| f64::from(number);
        sum += ways * share.powf(exponent(hits)) * (1.0 - share).powf(exponent(count - hits));
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn known_tails() {
        // Bin(5, 0.1): 10 * 0.001 * 0.81 + 5 * 0.0001 * 0.9 + 0.00001.
        close(binomial_at_least(5, 3, 0.1), 0.00856);
        close(binomial_at_least(29, 0, 0.03), 1.0);
        close(binomial_at_least(29, 1, 0.03), 1.0 - 0.97_f64.powi(29));
        close(binomial_at_least(10, 10, 0.2), 0.2_f64.powi(10));
        assert_eq!(binomial_at_least(4, 5, 0.9), 0.0);
        assert_eq!(binomial_at_least(4, 1, 0.0), 0.0);
        assert_eq!(binomial_at_least(4, 4, 1.0), 1.0);
    }

    #[test]
    fn the_strictest_is_strict_and_rare_enough() {
        for (count, share, chance) in [(29, 0.03, 1e-4), (13, 0.03, 1e-4), (40, 0.2, 1e-3)] {
            let judgement = Judgement::strictest(count, share, chance);
            assert!(judgement.chance_of_failing() < chance, "{judgement}");
            let stricter = Judgement { wrong_max: judgement.wrong_max - 1, ..judgement };
            assert!(stricter.chance_of_failing() >= chance, "{stricter}");
            assert!(judgement.passes(judgement.wrong_max));
            assert!(!judgement.passes(judgement.wrong_max + 1));
        }
        assert_eq!(Judgement::strictest(2, 0.5, 1e-4).wrong_max, 2, "two say nothing");
        for (count, can_fail) in [(0, false), (1, false), (2, false), (3, true), (8, true)] {
            assert_eq!(Judgement::strictest(count, 0.03, 1e-4).can_fail(), can_fail, "{count}");
        }
        assert_eq!(Judgement::strictest(9, 0.0, 1e-4).wrong_max, 0, "none may be wrong");
    }

    #[test]
    fn a_majority_is_more_than_half() {
        for (count, wrong_max) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (9, 4)] {
            assert_eq!(Judgement::majority(count, 0.1).wrong_max, wrong_max, "of {count}");
        }
    }

    /// Simulated, a judgement fails as often by chance as it says.
    #[test]
    fn it_fails_by_chance_as_often_as_it_says() {
        let mut random = crate::Random::from_seed(2);
        let judgement = Judgement::majority(5, 0.3);
        let trials = 20_000;
        let fails = |_: &i32| {
            let wrong = (0..judgement.repeats_count).filter(|_| random.chance(0.3)).count();
            !judgement.passes(wrong as u32)
        };
        let share = (0..trials).filter(fails).count() as f64 / f64::from(trials);
        let told = judgement.chance_of_failing();
        assert!((share - told).abs() < 0.01, "{share} of them, {told} told");
    }
}
