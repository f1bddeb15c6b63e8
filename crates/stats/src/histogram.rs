//! Latency histograms.

use hdrhistogram::Histogram;

/// Round-trip times from 1 ns to 60 s with three significant digits, at a fixed cost a sample.
///
/// Longer times count as 60 s, so that a stall is never lost from the tail.
#[derive(Debug, Clone)]
pub struct LatencyHistogram {
    inner: Histogram<u64>,
}

/// Fewest samples of which one lies beyond this percentile (below it, under the median): 1000 for 99.9. With fewer, it
/// would be the highest or lowest sample under another name.
#[must_use]
pub fn percentile_count_min(percentile: f64) -> u64 {
    if percentile == 50.0 {
        return 1;
    }
    let tail = percentile.min(100.0 - percentile);
    // 100.0 - 99.9 is not exact.
    if tail > 0.0 { (100.0 / tail - 1e-6).ceil() as u64 } else { u64::MAX }
}

const LATENCY_NS_MAX: u64 = 60_000_000_000;

impl Default for LatencyHistogram {
    fn default() -> Self {
        let inner = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("1 ns to 60 s with three digits is a valid range");
        Self { inner }
    }
}

impl LatencyHistogram {
    /// Counts one round trip.
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.inner.saturating_record(latency_ns.clamp(1, LATENCY_NS_MAX));
    }

    /// Counts so many that took equally long.
    pub fn record_many_ns(&mut self, latency_ns: u64, count: u64) {
        self.inner.saturating_record_n(latency_ns.clamp(1, LATENCY_NS_MAX), count);
    }

    /// Adds all of another's samples.
    pub fn merge(&mut self, other: &Self) {
        self.inner.add(&other.inner).expect("same bounds, so every sample fits");
    }

    /// Samples so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Lowest, seconds; `None` when empty.
    #[must_use]
    pub fn min_s(&self) -> Option<f64> {
        self.when_any(|histogram| seconds(histogram.min()))
    }

    /// Highest, seconds; `None` when empty.
    #[must_use]
    pub fn max_s(&self) -> Option<f64> {
        self.when_any(|histogram| seconds(histogram.max()))
    }

    /// Mean, seconds; `None` when empty.
    #[must_use]
    pub fn mean_s(&self) -> Option<f64> {
        self.when_any(|histogram| histogram.mean() * 1e-9)
    }

    /// Standard deviation, seconds; `None` when empty.
    #[must_use]
    pub fn deviation_s(&self) -> Option<f64> {
        self.when_any(|histogram| histogram.stdev() * 1e-9)
    }

    /// The value below which `percentile` percent of the samples lie, seconds; `None` when empty.
    #[must_use]
    pub fn percentile_s(&self, percentile: f64) -> Option<f64> {
        self.when_any(|histogram| seconds(histogram.value_at_percentile(percentile)))
    }

    /// The same, `None` with fewer samples than [`percentile_count_min`]: for figures that are reported.
    #[must_use]
    pub fn known_percentile_s(&self, percentile: f64) -> Option<f64> {
        let is_enough = self.count() >= percentile_count_min(percentile);
        self.percentile_s(percentile).filter(|_| is_enough)
    }

    /// The counted times, ns, each with how many there were, from the lowest on; as exact as the histogram is.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.inner.iter_recorded().map(|one| (one.value_iterated_to(), one.count_at_value()))
    }

    fn when_any<T>(&self, read: impl FnOnce(&Histogram<u64>) -> T) -> Option<T> {
        (!self.inner.is_empty()).then(|| read(&self.inner))
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_within_a_thousandth() {
        let mut histogram = LatencyHistogram::default();
        (1..=10_000_u64).for_each(|us| histogram.record_ns(us * 1000));
        for (percentile, expected_s) in [(50.0, 0.005), (99.0, 0.0099), (99.9, 0.00999)] {
            let found = histogram.percentile_s(percentile).expect("samples");
            assert!((found / expected_s - 1.0).abs() < 2e-3, "p{percentile} {found}");
        }
    }

    #[test]
    fn a_percentile_needs_a_sample_beyond_it() {
        assert_eq!([90.0, 99.0, 99.9].map(percentile_count_min), [10, 100, 1000]);
        let mut histogram = LatencyHistogram::default();
        (1..=300_u64).for_each(|us| histogram.record_ns(us * 1000));
        assert!(
            histogram.known_percentile_s(99.0).is_some()
                && histogram.known_percentile_s(1.0).is_some()
        );
        assert_eq!(histogram.known_percentile_s(99.9), None, "300 samples");
        let mut one = LatencyHistogram::default();
        one.record_ns(1000);
        assert!(one.known_percentile_s(50.0).is_some() && one.known_percentile_s(90.0).is_none());
    }

    #[test]
    fn empty_says_nothing_and_stalls_are_kept() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!(histogram.percentile_s(50.0), None);
        histogram.record_ns(u64::MAX);
        assert_eq!(histogram.count(), 1);
        assert!(histogram.max_s().expect("one") > 59.9);
    }
}
