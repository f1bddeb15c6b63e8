//! Two samples compared without assuming a distribution: the rank-sum test (Mann and Whitney 1947) and the
//! shift between them with its interval (Hodges and Lehmann 1963); many such tests together (Benjamini and
//! Hochberg 1995).

/// How two samples differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankSum {
    /// The shift from the first sample to the second: the median of all pairwise differences.
    pub difference: f64,
    /// Lower end of the shift's interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability that the interval holds the true shift; below 0.95 only where the samples are so small
    /// that the interval is the whole range of differences.
    pub confidence: f64,
    /// Two-sided probability of ranks at least as unequal when both samples come from one distribution.
    pub chance: f64,
    /// The smallest `chance` that samples of these sizes with these ties can reach.
    pub least_chance: f64,
}

/// Up to so many values together the distribution of the rank sum is counted; beyond, the normal
/// approximation is closer than the figure is worth.
const EXACT_COUNT_MAX: usize = 40;

/// Values of one sample whose pairwise differences are formed; more are thinned to evenly spaced ranks.
const PAIRED_COUNT_MAX: usize = 1000;

/// Compares two samples; values that are not finite do not count. `None` when either is empty.
///
/// ```
/// let faster = stats::rank_sum(&[1.0, 1.1, 1.2, 1.3], &[2.0, 2.1, 2.2, 2.3]).unwrap();
/// assert!((faster.difference - 1.0).abs() < 1e-9 && faster.chance < 0.05);
/// ```
#[must_use]
pub fn rank_sum(first: &[f64], second: &[f64]) -> Option<RankSum> {
    let (first, second) = (sorted(first), sorted(second));
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let counts = (first.len(), second.len());
    let (chance, least_chance) = chances(&first, &second);
    let differences = differences(&first, &second);
    let (skipped, confidence) = skipped_differences(counts, differences.len());
    let last = differences.len() - 1;
    Some(RankSum {
        difference: crate::median(&differences)?,
        low: differences[skipped.min(last / 2)],
        high: differences[last - skipped.min(last / 2)],
        confidence,
        chance,
        least_chance,
    })
}

/// The smallest two-sided probability that two samples of these sizes can reach: `2 / C(n + m, n)`.
///
/// ```
/// assert!(stats::least_chance(3, 3) > 0.05 && stats::least_chance(4, 4) < 0.05);
/// ```
#[must_use]
pub fn least_chance(first_count: usize, second_count: usize) -> f64 {
    let few = first_count.min(second_count);
    let all = (first_count + second_count) as f64;
    let ways: f64 = (0..few).map(|taken| (all - taken as f64) / (taken + 1) as f64).product();
    (2.0 / ways).min(1.0)
}

/// The probabilities of several tests, each raised so that calling those at or below `x` discoveries
/// makes at most the share `x` of them false on average.
#[must_use]
pub fn false_discovery_adjusted(chances: &[f64]) -> Vec<f64> {
    let count = chances.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|one, other| chances[*other].total_cmp(&chances[*one]));
    let mut adjusted = vec![1.0; count];
    let mut lowest = 1.0_f64;
    for (from_the_largest, place) in order.into_iter().enumerate() {
        let rank = (count - from_the_largest) as f64;
        lowest = lowest.min(chances[place] * count as f64 / rank);
        adjusted[place] = lowest;
    }
    adjusted
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// All differences second minus first, ascending.
fn differences(first: &[f64], second: &[f64]) -> Vec<f64> {
    let (first, second) = (thinned(first), thinned(second));
    let pairs = second.iter().flat_map(|to| first.iter().map(move |from| to - from));
    let mut differences: Vec<f64> = pairs.collect();
    differences.sort_by(f64::total_cmp);
    differences
}

/// At most [`PAIRED_COUNT_MAX`] values of evenly spaced ranks.
fn thinned(sorted: &[f64]) -> Vec<f64> {
    let (count, kept) = (sorted.len(), PAIRED_COUNT_MAX.min(sorted.len()));
    (0..kept).map(|place| sorted[(2 * place + 1) * count / (2 * kept)]).collect()
}

/// How many of the sorted differences lie outside the interval at either end, and what it is worth.
fn skipped_differences((first, second): (usize, usize), differences_count: usize) -> (usize, f64) {
    let (n, m) = (first as f64, second as f64);
    if first + second > EXACT_COUNT_MAX {
        let half = 1.96 * (n * m * (n + m + 1.0) / 12.0).sqrt();
        // As a share of all pairs: of thinned samples only some of them are there.
        let share = ((n * m / 2.0 - half) / (n * m)).max(0.0);
        return ((share * differences_count as f64).floor() as usize, 0.95);
    }
    let ranks: Vec<usize> = (1..=first + second).collect();
    let ways = ways_of_sums(&ranks, first);
    let all: f64 = ways.iter().sum();
    let least = first * (first + 1) / 2;
    let (mut below, mut skipped) = (0.0, 0_usize);
    let mut confidence = 1.0 - 2.0 * ways[least] / all;
    for count in ways[least..].iter().take(first * second / 2) {
        below += count;
        let sure = 1.0 - 2.0 * below / all;
        if sure < 0.95 {
            break;
        }
        confidence = sure;
        skipped += 1;
    }
    (skipped.saturating_sub(1), confidence.max(0.0))
}

/// The probability of these ranks, and the least that the ties allow.
fn chances(first: &[f64], second: &[f64]) -> (f64, f64) {
    let ranks = doubled_ranks(first, second);
    let sum: usize = ranks.iter().filter(|(_, is_first)| *is_first).map(|(rank, _)| rank).sum();
    let mut all: Vec<usize> = ranks.iter().map(|(rank, _)| *rank).collect();
    all.sort_unstable();
    let taken = first.len();
    // Twice the mean of the doubled sum is whole.
    let centre = taken * (all.len() + 1);
    let lowest: usize = all[..taken].iter().sum();
    let highest: usize = all[all.len() - taken..].iter().sum();
    let farthest = centre.abs_diff(lowest).max(centre.abs_diff(highest));
    let distance = centre.abs_diff(sum);
    if all.len() > EXACT_COUNT_MAX {
        let spread = doubled_deviation(&all, taken);
        return (two_sided(distance, spread), two_sided(farthest, spread));
    }
    let ways = ways_of_sums(&all, taken);
    let total: f64 = ways.iter().sum();
    let at_least = |wanted: usize| -> f64 {
        let far = ways.iter().enumerate().filter(|(sum, _)| centre.abs_diff(*sum) >= wanted);
        (far.map(|(_, count)| count).sum::<f64>() / total).min(1.0)
    };
    (at_least(distance), at_least(farthest))
}

/// Twice the rank of each value among all (the mean rank where values are equal), and whether it is of the
/// first sample.
fn doubled_ranks(first: &[f64], second: &[f64]) -> Vec<(usize, bool)> {
    let mut values: Vec<(f64, bool)> = first.iter().map(|value| (*value, true)).collect();
    values.extend(second.iter().map(|value| (*value, false)));
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut ranks = Vec::with_capacity(values.len());
    for equal in values.chunk_by(|one, other| one.0 == other.0) {
        let before = ranks.len();
        ranks.extend(equal.iter().map(|(_, is_first)| (2 * before + equal.len() + 1, *is_first)));
    }
    ranks
}

/// In how many ways `taken` of the ranks add up to each sum.
fn ways_of_sums(ranks: &[usize], taken: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; taken + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for count in (1..=taken).rev() {
            let (fewer, more) = ways.split_at_mut(count);
            let (from, to) = (&fewer[count - 1], &mut more[0]);
            for sum in (*rank..=most).rev() {
                to[sum] += from[sum - rank];
            }
        }
    }
    ways.pop().unwrap_or_default()
}

/// Standard deviation of the sum of `taken` doubled ranks drawn without replacement.
fn doubled_deviation(ranks: &[usize], taken: usize) -> f64 {
    let count = ranks.len() as f64;
    let mean = count + 1.0;
    let squares: f64 = ranks.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum();
    let (n, m) = (taken as f64, count - taken as f64);
    (n * m * squares / (count * (count - 1.0))).sqrt()
}

/// The probability that a normal variable lies at least so far from its mean, with the correction for
/// whole rank sums (1 of the doubled ones).
fn two_sided(distance: usize, deviation: f64) -> f64 {
    if deviation == 0.0 {
        return 1.0;
    }
    let far = (distance as f64 - 1.0).max(0.0) / deviation;
    complementary_error_function(far / std::f64::consts::SQRT_2).min(1.0)
}

/// `erfc(x)` of `x >= 0` with a relative error below 1.2e-7 (Press et al., Numerical Recipes, `erfcc`).
fn complementary_error_function(x: f64) -> f64 {
    const TERMS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let series = TERMS.iter().rev().fold(0.0, |sum, term| sum * t + term);
    t * (series - x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() < 1e-4
    }

    #[test]
    fn published_values_are_met() {
        // Hollander and Wolfe, Nonparametric Statistical Methods, section 4.1 (permeability of membranes):
        // one-sided p = 0.1272, shift 0.305 with the 96% interval -0.15 to 0.76 for first minus second.
        let at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let earlier = [1.15, 0.88, 0.90, 0.74, 1.21];
        let found = rank_sum(&at_term, &earlier).expect("two samples");
        assert!(near(found.chance, 0.2544), "{found:?}");
        assert!(near(found.difference, -0.305), "{found:?}");
        assert!(near(found.low, -0.76) && near(found.high, 0.15), "{found:?}");
        assert!(near(found.confidence, 0.96004), "{found:?}");
    }

    #[test]
    fn small_samples_reach_no_further_than_their_counts_allow() {
        for (first, second, least) in
            [(1, 1, 1.0), (3, 3, 0.1), (4, 4, 2.0 / 70.0), (3, 5, 2.0 / 56.0)]
        {
            assert!(near(least_chance(first, second), least), "{first} {second}");
            let low: Vec<f64> = (0..first).map(|value| value as f64).collect();
            let high: Vec<f64> = (0..second).map(|value| 100.0 + value as f64).collect();
            let found = rank_sum(&low, &high).expect("two samples");
            assert!(near(found.chance, least) && near(found.least_chance, least), "{found:?}");
            assert!(found.confidence <= 1.0 - least + 1e-9, "{found:?}");
        }
    }

    #[test]
    fn equal_samples_do_not_differ() {
        for count in [1, 5, 60] {
            let same = vec![7.0; count];
            let found = rank_sum(&same, &same).expect("two samples");
            assert_eq!((found.chance, found.least_chance, found.difference), (1.0, 1.0, 0.0));
            assert_eq!((found.low, found.high), (0.0, 0.0));
        }
        assert_eq!(rank_sum(&[], &[1.0]), None);
        assert_eq!(rank_sum(&[f64::NAN], &[1.0]), None);
    }

    #[test]
    fn counting_and_the_approximation_agree_where_they_meet() {
        let first: Vec<f64> = (0..20).map(|value| f64::from(value) * 1.7 % 13.0).collect();
        let second: Vec<f64> = (0..20).map(|value| f64::from(value) * 2.3 % 13.0 + 2.5).collect();
        let exact = rank_sum(&first, &second).expect("40 values");
        let longer: Vec<f64> = [second.as_slice(), &[8.0]].concat();
        let approximate = rank_sum(&first, &longer).expect("41 values");
        assert!((exact.chance - approximate.chance).abs() < 0.02, "{exact:?} {approximate:?}");
        assert!((exact.low - approximate.low).abs() < 0.5, "{exact:?} {approximate:?}");
    }

    #[test]
    fn adjusted_chances_are_those_of_benjamini_and_hochberg() {
        // Their p_(i) * m / i, made monotone from the largest down.
        let adjusted = false_discovery_adjusted(&[0.01, 0.5, 0.02, 0.03]);
        for (found, wanted) in adjusted.iter().zip([0.04, 0.5, 0.04, 0.04]) {
            assert!(near(*found, wanted), "{adjusted:?}");
        }
        assert!(false_discovery_adjusted(&[]).is_empty());
    }

    #[test]
    fn the_interval_holds_the_true_shift_and_the_test_errs_as_often_as_stated() {
        let mut random = crate::Random::from_seed(16);
        let (trials, mut missed, mut wrong) = (2000, 0, 0);
        for _ in 0..trials {
            let first: Vec<f64> = (0..6).map(|_| random.normal()).collect();
            let second: Vec<f64> = (0..7).map(|_| random.normal() + 1.0).collect();
            let found = rank_sum(&first, &second).expect("two samples");
            missed += u32::from(found.low > 1.0 || found.high < 1.0);
            let level: Vec<f64> = second.iter().map(|value| value - 1.0).collect();
            wrong += u32::from(rank_sum(&first, &level).expect("two samples").chance <= 0.05);
        }
        // 5% of 2000 are 100 with a deviation of 10.
        assert!(missed < 140 && wrong < 140, "{missed} {wrong}");
    }
}
