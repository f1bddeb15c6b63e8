//! Few values of two samples compared by their spread (Student 1908), for samples that are too small for ranks.

use std::f64::consts::FRAC_2_PI;

/// The squared deviations of a sample from its mean, and how many of them are free.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    /// Sum of the squared deviations, in the square of the values' unit.
    pub squares: f64,
    /// Degrees of freedom: values less one for each sample.
    pub freedom: usize,
}

impl Spread {
    /// Of one sample; nothing is free in one of fewer than two values.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mean = mean(values);
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { squares, freedom: values.len().saturating_sub(1) }
    }

    /// Of both samples together, each about its own mean.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { squares: self.squares + other.squares, freedom: self.freedom + other.freedom }
    }

    /// The variance; `None` where nothing is free.
    #[must_use]
    pub fn variance(self) -> Option<f64> {
        (self.freedom > 0).then(|| self.squares / self.freedom as f64)
    }
}

/// Two-sided probability that the means of two samples of one normal distribution differ at least as much as
/// these do (Student's test). The variance is taken as at least `variance_min`, which can only raise the probability.
/// `None` where neither sample has two values, or nothing varies and `variance_min` is 0.
///
/// ```
/// let chance = stats::student_chance(&[1.0, 1.1], &[3.0, 3.1], 0.0).unwrap();
/// assert!(chance < 0.01);
/// assert!(stats::student_chance(&[1.0, 1.1], &[3.0, 3.1], 1.0).unwrap() > 0.1);
/// ```
#[must_use]
pub fn student_chance(first: &[f64], second: &[f64], variance_min: f64) -> Option<f64> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let own = Spread::of(first).and(Spread::of(second));
    let variance = own.variance()?.max(variance_min);
    let of_means = variance * (1.0 / first.len() as f64 + 1.0 / second.len() as f64);
    let distance = (mean(second) - mean(first)).abs() / of_means.sqrt();
    distance.is_finite().then(|| 1.0 - share_within(distance, own.freedom))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Probability that Student's distribution with so many degrees of freedom is at most `distance` from 0: the finite
/// series of Abramowitz and Stegun, 26.7.3 and 26.7.4.
fn share_within(distance: f64, freedom: usize) -> f64 {
    let angle = (distance / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum) = if is_odd { (cosine, 0.0) } else { (1.0, 0.0) };
    // The powers of the cosine that the series has: 1, 3, …, freedom - 2, or 0, 2, …, freedom - 2.
    let mut power = usize::from(is_odd);
    while power + 2 <= freedom {
        sum += term;
        term *= cosine * cosine * (power + 1) as f64 / (power + 2) as f64;
        power += 2;
    }
    if is_odd { FRAC_2_PI * (angle + sine * sum) } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, at_5_percent, at_1_percent) in [
            (1, 12.706_205, 63.656_741),
            (2, 4.302_653, 9.924_843),
            (3, 3.182_446, 5.840_909),
            (4, 2.776_445, 4.604_095),
            (5, 2.570_582, 4.032_143),
            (10, 2.228_139, 3.169_273),
            (31, 2.039_513, 2.744_042),
        ] {
            for (distance, chance) in [(at_5_percent, 0.05), (at_1_percent, 0.01)] {
                let found = 1.0 - share_within(distance, freedom);
                assert!((found - chance).abs() < 1e-6, "{freedom}: {distance}: {found}");
            }
        }
    }

    #[test]
    fn a_sample_without_spread_takes_the_least_variance_and_none_has_no_chance() {
        assert_eq!(student_chance(&[1.0, 1.0], &[2.0, 2.0], 0.0), None);
        assert_eq!(student_chance(&[1.0, 1.0], &[1.0, 1.0], 0.0), None);
        assert_eq!(student_chance(&[1.0], &[2.0], 1.0), None);
        assert_eq!(student_chance(&[], &[2.0, 3.0], 1.0), None);
        let same = student_chance(&[1.0, 1.0], &[1.0, 1.0], 0.1).expect("a variance");
        assert!((same - 1.0).abs() < 1e-12, "{same}");
        let apart = student_chance(&[1.0, 1.0], &[2.0, 2.0], 0.01).expect("a variance");
        assert!(apart < 0.011 && apart > 0.009, "10 deviations, two free: {apart}");
    }

    #[test]
    fn equal_distributions_differ_as_rarely_as_stated() {
        let mut random = crate::Random::from_seed(5);
        for count in [2, 3] {
            let mut wrong = 0;
            for _ in 0..4000 {
                let mut sample = || (0..count).map(|_| random.normal()).collect::<Vec<_>>();
                let chance = student_chance(&sample(), &sample(), 0.0).expect("varies");
                wrong += u32::from(chance <= 0.05);
            }
            // 5% of 4000 are 200, with a deviation of 14.
            assert!((150..250).contains(&wrong), "{count} values: {wrong}");
        }
    }
}
