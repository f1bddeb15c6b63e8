//! Whether one set of repeats is better than another beyond the noise.

/// Values of each set beyond which the normal approximation serves.
const EXACT_COUNT_MAX: usize = 40;

/// How likely a difference at least as clear as this would be if `better` and `other` came from
/// the same place: the one-sided p-value of the exact Mann–Whitney test (Mann and Whitney 1947),
/// ties counted against. No distribution is assumed, and one outlier does not decide. 1 when
/// either set is empty.
#[must_use]
pub fn chance_of_being_better(better: &[f64], other: &[f64], more_is_better: bool) -> f64 {
    if better.is_empty() || other.is_empty() {
        return 1.0;
    }
    let wins = |a: f64, b: f64| if more_is_better { a > b } else { a < b };
    let lost = better
        .iter()
        .flat_map(|a| other.iter().map(move |b| (*a, *b)))
        .filter(|(a, b)| !wins(*a, *b))
        .count();
    if better.len() > EXACT_COUNT_MAX || other.len() > EXACT_COUNT_MAX {
        return approximate(better.len() as f64, other.len() as f64, lost as f64);
    }
    let ways = ways_to_lose(better.len(), other.len());
    let total: f64 = ways.iter().sum();
    (ways.iter().take(lost + 1).sum::<f64>() / total).min(1.0)
}

/// The smallest p-value that so many repeats can give: every one of `count` above all of
/// `other_count`.
pub(super) fn least_chance(count: usize, other_count: usize) -> f64 {
    let ones = vec![1.0; count.min(EXACT_COUNT_MAX)];
    chance_of_being_better(&ones, &vec![0.0; other_count.min(EXACT_COUNT_MAX)], true)
}

/// In how many orders of `n` and `m` values the first set loses 0, 1, 2, … of the comparisons: the
/// coefficients of the Gaussian binomial, by multiplying and dividing its factors one by one.
fn ways_to_lose(n: usize, m: usize) -> Vec<f64> {
    let mut ways = vec![0.0; n * m + 1];
    ways[0] = 1.0;
    for i in 1..=n {
        for at in (m + i..ways.len()).rev() {
            ways[at] -= ways[at - m - i];
        }
        for at in i..ways.len() {
            ways[at] += ways[at - i];
        }
    }
    ways
}

/// The normal approximation with continuity correction.
fn approximate(n: f64, m: f64, lost: f64) -> f64 {
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let z = (lost + 0.5 - n * m / 2.0) / deviation;
    // Logistic approximation of the normal distribution function, off by less than 0.01.
    1.0 / (1.0 + (-1.702 * z).exp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tabulated_chances() {
        // Complete separation of 3 and 3: 1 of C(6,3); of 5 and 5: 1 of 252; one inversion: 2.
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(chance_of_being_better(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0], true), 0.05);
        near(chance_of_being_better(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], false), 0.05);
        near(least_chance(5, 5), 1.0 / 252.0);
        let (a, b) = ([5.0, 7.0, 8.0, 9.0, 10.0], [1.0, 2.0, 3.0, 4.0, 6.0]);
        near(chance_of_being_better(&a, &b, true), 2.0 / 252.0);
        near(chance_of_being_better(&b, &a, true), 251.0 / 252.0);
        assert_eq!(chance_of_being_better(&[], &a, true), 1.0);
    }

    #[test]
    fn many_values_are_no_burden() {
        let (low, high) = (vec![1.0; 1000], vec![2.0; 1000]);
        assert!(chance_of_being_better(&high, &low, true) < 1e-6);
        assert!(chance_of_being_better(&low, &high, true) > 0.99);
    }

    proptest! {
        #[test]
        fn every_order_is_counted(n in 1_usize..12, m in 1_usize..12) {
            let total: f64 = ways_to_lose(n, m).iter().sum();
            let orders = (1..=n).fold(1.0, |c, i| c * (m + i) as f64 / i as f64);
            prop_assert!((total / orders - 1.0).abs() < 1e-9, "{total} {orders}");
        }
    }
}
