//! Round-trip times of a session, smoothed as in RFC 6298, and the smallest of the last seconds: a
//! peer that computes answers late, which says nothing about the path.

/// How long the smallest sample is remembered, at least.
const MIN_WINDOW_NS: u64 = 5_000_000_000;
/// Round-trip time assumed before the first sample.
const INITIAL_NS: u64 = 1_000_000;
/// Slack added to the timeout's upper bound, which follows from the smallest sample.
const SLACK_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    smoothed_ns: u64,
    variation_ns: u64,
    min_ns: u64,
    /// The smallest sample since `min_since_ns`, to follow a path that became longer.
    min_next_ns: u64,
    min_since_ns: u64,
}

impl RoundTrip {
    pub(crate) const NEW: Self = Self {
        smoothed_ns: 0,
        variation_ns: 0,
        min_ns: u64::MAX,
        min_next_ns: u64::MAX,
        min_since_ns: 0,
    };

    pub(crate) fn sample(&mut self, now_ns: u64, sample_ns: u64) {
        let sample_ns = sample_ns.max(1);
        if now_ns.saturating_sub(self.min_since_ns) > MIN_WINDOW_NS {
            self.min_ns = self.min_next_ns;
            self.min_next_ns = sample_ns;
            self.min_since_ns = now_ns;
        }
        self.min_ns = self.min_ns.min(sample_ns);
        self.min_next_ns = self.min_next_ns.min(sample_ns);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = sample_ns;
            self.variation_ns = sample_ns / 2;
            return;
        }
        let error_ns = self.smoothed_ns.abs_diff(sample_ns);
        self.variation_ns = (3 * self.variation_ns + error_ns) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + sample_ns) / 8;
    }

    pub(crate) fn smoothed_ns(&self) -> u64 {
        if self.smoothed_ns == 0 { INITIAL_NS } else { self.smoothed_ns }
    }

    pub(crate) fn min_ns(&self) -> u64 {
        if self.min_ns == u64::MAX { INITIAL_NS } else { self.min_ns }
    }

    /// Round trips take more than twice the smallest sample plus 50 µs: packets wait in queues.
    pub(crate) fn is_queueing(&self) -> bool {
        self.smoothed_ns() > 2 * self.min_ns() + 50_000
    }

    /// How long to wait for an answer before something may be lost.
    pub(crate) fn timeout_ns(&self, ack_delay_ns: u64) -> u64 {
        let usual_ns = self.smoothed_ns() + (4 * self.variation_ns).max(10_000) + ack_delay_ns;
        usual_ns.min(8 * self.min_ns() + 2 * ack_delay_ns + SLACK_NS)
    }

    /// How long after a round trip an overtaken packet counts as lost: a quarter of the smoothed
    /// round trip, at least 2 µs.
    pub(crate) fn reordering_ns(&self) -> u64 {
        (self.smoothed_ns() / 4).max(2_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_path_and_forgets_a_peer_that_computed() {
        let mut rtt = RoundTrip::NEW;
        assert!(rtt.timeout_ns(0) >= INITIAL_NS);
        (0..100).for_each(|at| rtt.sample(at, 20_000));
        assert!((18_000..22_000).contains(&rtt.smoothed_ns()));
        assert!(rtt.timeout_ns(50_000) < 100_000, "{rtt:?}");
        rtt.sample(101, 3_000_000_000);
        assert!(rtt.timeout_ns(50_000) < 2_000_000, "{rtt:?}");
        let later_ns = 3 * MIN_WINDOW_NS;
        (0..200).for_each(|at| rtt.sample(at * later_ns / 100, 400_000));
        assert_eq!(rtt.min_ns(), 400_000, "a longer path is learnt");
    }
}
