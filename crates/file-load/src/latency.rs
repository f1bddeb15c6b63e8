//! Times of single calls: counted by each rank, joined at rank 0.

use stats::LatencyHistogram;

/// A histogram as bytes, to be sent: each time that was counted, ns, and how often.
#[must_use]
pub fn to_bytes(histogram: &LatencyHistogram) -> Vec<u8> {
    let pairs = histogram.recorded().flat_map(|(time_ns, count)| [time_ns, count]);
    pairs.flat_map(u64::to_le_bytes).collect()
}

/// Adds what another rank sent.
pub fn add(histogram: &mut LatencyHistogram, bytes: &[u8]) {
    for pair in bytes.as_chunks::<16>().0 {
        let (time, count) = pair.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        histogram.record_many_ns(number(time), number(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_counted_is_joined() {
        let (mut one, mut other) = (LatencyHistogram::default(), LatencyHistogram::default());
        (1..=100).for_each(|time| one.record_ns(time * 1000));
        other.record_many_ns(5_000_000, 7);
        let mut all = LatencyHistogram::default();
        add(&mut all, &to_bytes(&one));
        add(&mut all, &to_bytes(&other));
        assert_eq!(all.count(), 107);
        let near = |value: Option<f64>, expected: f64| {
            (value.expect("counted") / expected - 1.0).abs() < 2e-3
        };
        assert!(
            near(all.max_s(), 5e-3)
                && near(all.min_s(), 1e-6)
                && near(all.percentile_s(50.0), 54e-6)
        );
    }
}
