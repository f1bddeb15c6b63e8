//! Experiments that space the packets: whether losses go away.

use results::{Estimate, Ruling};

use super::figures::{retransmit_share, retransmitted};
use super::{Told, Trial};
use crate::numbers::{fine_percent, middle};
use crate::thresholds::rulings;

impl Trial<'_> {
    /// Whether losses go away when packets are paced at about the same throughput.
    pub(super) fn calms(&self, after: &Estimate) -> Told {
        let before = self.middle_before(retransmit_share);
        let later = middle(self.points.iter().filter_map(retransmit_share));
        let Some((before, later)) = before.zip(later) else {
            let text = "the sender's kernel reports nothing about its losses".to_owned();
            return self.undecided(Some(after.median), text);
        };
        let held = after.median >= self.experiment.predicted.low_bits_per_s;
        let counts = self.points.iter().filter_map(retransmitted);
        let (again, sent) = counts.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let expected = before * (again + sent);
        // Of few losses, as few may remain by chance.
        let tells = expected - again >= rulings::CALMED_ERRORS * expected.sqrt();
        let outcome = if later <= rulings::CALMED * before && held && tells {
            Ruling::Confirmed
        } else if later >= rulings::NOT_CALMED * before && held {
            Ruling::Refuted
        } else {
            Ruling::Inconclusive
        };
        let predicted = self.experiment.predicted.expected_bits_per_s;
        let mut ruling = self.told(outcome, after, predicted);
        ruling.text = format!(
            "retransmissions {} -> {} with spaced packets; {}",
            fine_percent(before),
            fine_percent(later),
            ruling.text
        );
        ruling
    }
}

#[cfg(test)]
mod tests {
    use results::{Limit, PointOutcome};

    use super::super::tests::point;
    use super::*;
    use crate::change::Change;
    use crate::experiment::{Experiment, Prediction, Rule};

    /// What a stream says whose sender lost so many of so many segments after spacing, and one of a hundred before.
    fn spaced(again: u64, sent: u64) -> Ruling {
        let lossy = |again: u64, sent: u64| {
            let mut point = point(sent as f64 * 8e3, 0.1, 0.0);
            let PointOutcome::Measured(outcome) = &mut point.outcome else { panic!("measured") };
            let sample = |retransmits_count| results::TcpSample {
                retransmits_count,
                ..results::TcpSample::default()
            };
            outcome.near_mut().streams[0].tcp = Some(results::TcpSummary {
                mss_bytes: 1000,
                first: sample(0),
                last: sample(again),
                ..results::TcpSummary::default()
            });
            point
        };
        let (judged, points) = (lossy(sent / 99, sent), [lossy(again, sent)]);
        let rate = sent as f64 * 8e3;
        let experiment = Experiment {
            limit: Limit::Policer,
            change: Change::PaceAt { bits_per_s: rate },
            predicted: Prediction::new(rate * 0.75, rate, rate * 1.05),
            rule: Rule::Calms,
        };
        let before = Estimate::of(&[rate]).expect("one figure");
        let judged = vec![&judged];
        Trial { experiment: &experiment, before, points: &points, judged }.ruling().outcome
    }

    #[test]
    fn few_losses_that_go_away_with_spacing_confirm_nothing() {
        assert_eq!(spaced(2, 5_000), Ruling::Confirmed);
        assert_eq!(spaced(50, 5_000), Ruling::Refuted);
        assert_eq!(spaced(1, 500), Ruling::Inconclusive, "one of five is chance");
    }
}
