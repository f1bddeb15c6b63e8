//! Medians and how sure we are of them.

/// A median and an interval that holds the true one with the stated confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MedianInterval {
    /// Values.
    pub count: usize,
    /// Median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability that the interval holds the true median, 0 to 1.
    pub confidence: f64,
}

/// The median of `values`; of an even count the mean of the middle two. `None` when empty.
///
/// ```
/// assert_eq!(stats::median(&[3.0, 1.0, 2.0]), Some(2.0));
/// ```
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    median_interval(values).map(|interval| interval.median)
}

/// The median with its distribution-free confidence interval from order statistics: the narrowest
/// symmetric pair of ranks that reaches 95%. Below six values no pair does; then the interval is
/// the whole range and `confidence` says what that is worth (five values: 93.75%).
///
/// Source: the interval `[x(k), x(n+1-k)]` misses the median with probability `2 P(Bin(n, 1/2) < k)`.
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<MedianInterval> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    if count == 0 {
        return None;
    }
    let middle = count / 2;
    let median = if count % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    let (skipped, confidence) = widest_skip(count);
    let (low, high) = (sorted[skipped], sorted[count - 1 - skipped]);
    Some(MedianInterval { count, median, low, high, confidence })
}

/// Half the interval's width as a share of the median; 0 when the median is 0.
#[must_use]
pub fn relative_spread(interval: &MedianInterval) -> f64 {
    if interval.median == 0.0 {
        return 0.0;
    }
    (interval.high - interval.low) / 2.0 / interval.median.abs()
}

/// Beyond this the normal approximation is as good as the figure it is for, and exact terms would
/// underflow.
const EXACT_COUNT_MAX: usize = 500;

/// How many values may be left out at either end so that 95% remain, and what is left exactly.
fn widest_skip(count: usize) -> (usize, f64) {
    if count > EXACT_COUNT_MAX {
        let half_width = 1.96 * (count as f64).sqrt() / 2.0;
        return ((count as f64 / 2.0 - half_width).floor() as usize, 0.95);
    }
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut missed = 2.0 * term;
    let mut widest = (0, 1.0 - missed);
    for skipped in 1..count.div_ceil(2) {
        term *= (count - skipped + 1) as f64 / skipped as f64;
        missed += 2.0 * term;
        if 1.0 - missed < 0.95 {
            break;
        }
        widest = (skipped, 1.0 - missed);
    }
    widest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_intervals() {
        // Tabulated ranks for the median: n=5 whole range 93.75%, n=6 whole range 96.9%,
        // n=9 ranks 2..8 96.1%, n=15 ranks 4..12 96.5%.
        for (count, low, high, sure) in [
            (5, 1.0, 5.0, 0.9375),
            (6, 1.0, 6.0, 0.969),
            (9, 2.0, 8.0, 0.961),
            (15, 4.0, 12.0, 0.965),
        ] {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let interval = median_interval(&values).expect("not empty");
            assert_eq!((interval.low, interval.high), (low, high), "n={count}");
            assert!((interval.confidence - sure).abs() < 1e-3, "n={count} {}", interval.confidence);
        }
    }

    #[test]
    fn degenerate_inputs() {
        assert_eq!(median_interval(&[]), None);
        assert_eq!(median(&[f64::NAN]), None);
        let one = median_interval(&[7.0]).expect("one value");
        assert_eq!((one.median, one.low, one.high, one.confidence), (7.0, 7.0, 7.0, 0.0));
    }

    #[test]
    fn many_values_cost_little_and_underflow_nothing() {
        let values: Vec<f64> = (0..100_000).map(f64::from).collect();
        let interval = median_interval(&values).expect("many");
        assert!(interval.high - interval.low < 700.0 && interval.low < 50_000.0, "{interval:?}");
    }

    #[test]
    fn interval_covers_the_true_median_as_often_as_it_says() {
        let mut random = crate::Random::from_seed(1);
        let (trials, mut covered) = (4000, 0);
        for _ in 0..trials {
            let values: Vec<f64> = (0..11).map(|_| random.unit()).collect();
            let interval = median_interval(&values).expect("eleven values");
            covered += u32::from(interval.low <= 0.5 && 0.5 <= interval.high);
        }
        assert!(f64::from(covered) / f64::from(trials) > 0.95, "{covered}");
    }
}
