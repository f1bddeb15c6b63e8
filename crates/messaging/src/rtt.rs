//! Round-trip times of a session, smoothed as in RFC 6298, and the smallest of the last seconds.
//!
//! A process that computes leaves packets waiting, which says nothing about the path: samples of such packets (late ones)
//! count for how long to wait for an answer, but for the path only as upper bounds.

/// How long the smallest sample is remembered, at least.
const MIN_WINDOW_NS: u64 = 5_000_000_000;
/// Round-trip time assumed before the first sample.
const INITIAL_NS: u64 = 1_000_000;
/// Slack added to the timeout's upper bound, which follows from the smallest sample: at least, and at most, where answers
/// came later than that.
const SLACK_NS: u64 = 1_000_000;
const SLACK_NS_MAX: u64 = 16_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    /// Of the path.
    smoothed_ns: u64,
    /// Until the answer, with the time that packets wait for either process.
    answer_ns: u64,
    variation_ns: u64,
    slack_ns: u64,
    min_ns: u64,
    /// The smallest sample since `min_since_ns`, to follow a path that became longer.
    min_next_ns: u64,
    min_since_ns: u64,
}

impl RoundTrip {
    pub(crate) const NEW: Self = Self {
        smoothed_ns: 0,
        answer_ns: 0,
        variation_ns: 0,
        slack_ns: SLACK_NS,
        min_ns: u64::MAX,
        min_next_ns: u64::MAX,
        min_since_ns: 0,
    };

    /// `is_late`: the packet or its answer waited for a process.
    pub(crate) fn sample(&mut self, now_ns: u64, sample_ns: u64, is_late: bool) {
        let sample_ns = sample_ns.max(1);
        if now_ns.saturating_sub(self.min_since_ns) > MIN_WINDOW_NS {
            self.min_ns = self.min_next_ns;
            self.min_next_ns = sample_ns;
            self.min_since_ns = now_ns;
        }
        self.min_ns = self.min_ns.min(sample_ns);
        self.min_next_ns = self.min_next_ns.min(sample_ns);
        if !is_late {
            self.slack_ns = (self.slack_ns - self.slack_ns / 16).max(SLACK_NS);
        }
        if !is_late || sample_ns < self.smoothed_ns() {
            let before_ns = if self.smoothed_ns == 0 { sample_ns } else { self.smoothed_ns };
            self.smoothed_ns = (7 * before_ns + sample_ns) / 8;
        }
        if self.answer_ns == 0 {
            (self.answer_ns, self.variation_ns) = (sample_ns, sample_ns / 2);
            return;
        }
        let error_ns = self.answer_ns.abs_diff(sample_ns);
        self.variation_ns = (3 * self.variation_ns + error_ns) / 4;
        self.answer_ns = (7 * self.answer_ns + sample_ns) / 8;
    }

    /// Waits longer from now on: an answer came later than the timeout allowed.
    pub(crate) fn tolerate(&mut self) {
        self.slack_ns = (2 * self.slack_ns).min(SLACK_NS_MAX);
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

    /// The same of the time until an answer: packets wait in queues or for a process.
    pub(crate) fn is_answered_late(&self) -> bool {
        self.answer_ns() > 2 * self.min_ns() + 50_000
    }

    /// Smoothed time until an answer.
    pub(crate) fn answer_ns(&self) -> u64 {
        if self.answer_ns == 0 { INITIAL_NS } else { self.answer_ns }
    }

    /// How long to wait for an answer before something may be lost.
    pub(crate) fn timeout_ns(&self, ack_delay_ns: u64) -> u64 {
        let usual_ns = self.answer_ns() + (4 * self.variation_ns).max(10_000) + ack_delay_ns;
        usual_ns.min(8 * self.min_ns() + 2 * ack_delay_ns + self.slack_ns)
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
        (0..100).for_each(|at| rtt.sample(at, 20_000, false));
        assert!((18_000..22_000).contains(&rtt.smoothed_ns()));
        assert!(rtt.timeout_ns(50_000) < 100_000, "{rtt:?}");
        rtt.sample(101, 3_000_000_000, false);
        assert!(rtt.timeout_ns(50_000) < 2_000_000, "{rtt:?}");
        let later_ns = 3 * MIN_WINDOW_NS;
        (0..200).for_each(|at| rtt.sample(at * later_ns / 100, 400_000, false));
        assert_eq!(rtt.min_ns(), 400_000, "a longer path is learnt");
    }

    #[test]
    fn late_answers_lengthen_the_timeout_and_not_the_path() {
        let mut rtt = RoundTrip::NEW;
        (0..100).for_each(|at| rtt.sample(at, 5_000_000, true));
        assert_eq!(rtt.smoothed_ns(), INITIAL_NS, "nothing is known of the path");
        rtt.sample(100, 30_000, true);
        assert!(rtt.smoothed_ns() <= 30_000, "a late sample is an upper bound");
        (0..100).for_each(|at| rtt.sample(at, 20_000 + 5_000_000 * (at % 2), at % 2 == 1));
        assert!(rtt.smoothed_ns() < 30_000 && !rtt.is_queueing(), "{rtt:?}");
        let before_ns = rtt.timeout_ns(50_000);
        (0..9).for_each(|_| rtt.tolerate());
        let tolerant_ns = rtt.timeout_ns(50_000);
        assert!(before_ns < 1_500_000 && tolerant_ns > 5_000_000, "{before_ns} {tolerant_ns}");
        assert!(tolerant_ns < 2 * SLACK_NS_MAX, "{tolerant_ns}");
        (0..200).for_each(|at| rtt.sample(at, 20_000, false));
        assert!(rtt.timeout_ns(50_000) < 100_000, "prompt again: {rtt:?}");
    }
}
