//! Experiments that send UDP: what their datagrams show.

use results::{Estimate, Ruling};
use units::{show_bit_rate, show_share};

use super::{Told, Trial};
use crate::change::Change;
use crate::numbers::{middle, positive, ratio};
use crate::observed::udp_seen;
use crate::thresholds::rulings;

impl Trial<'_> {
    pub(super) fn loses(&self, after: &Estimate, low_share: f64) -> Told {
        let seen: Vec<_> = self
            .points
            .iter()
            .filter_map(|point| udp_seen(point, point.measured()?.directions.first()?.direction))
            .collect();
        let Some(lost_share) = middle(seen.iter().map(|seen| seen.lost_share)) else {
            return self
                .undecided(Some(after.median), "the peer did not report its datagrams".to_owned());
        };
        let outcome = if lost_share > 0.0 && lost_share >= low_share {
            Ruling::Confirmed
        } else if self.datagrams_sent() * low_share < rulings::LOST_EXPECTED_LEAST {
            Ruling::Inconclusive
        } else {
            Ruling::Refuted
        };
        let lost = format!("{} of the datagrams were lost on the path", show_share(lost_share));
        let low = format!("at least {} predicted", show_share(low_share));
        let predicted = self.experiment.predicted.expected_bits_per_s;
        Told {
            outcome,
            predicted_bits_per_s: predicted,
            after_bits_per_s: Some(after.median),
            interval: self.interval(),
            text: format!("{lost} though the rate was moderate ({low})"),
        }
    }

    /// Datagrams that the experiment's repeats sent.
    fn datagrams_sent(&self) -> f64 {
        let udp = self
            .points
            .iter()
            .filter_map(|point| point.measured()?.directions.first()?.udp.as_ref());
        udp.map(|udp| udp.sent_count as f64).sum()
    }

    /// Whether UDP datagrams arrive out of order and are not lost.
    pub(super) fn reorders(&self, after: &Estimate, low_share: f64) -> Told {
        let seen = self.points.iter().filter_map(|point| {
            let udp = point.measured()?.directions.first()?.udp.as_ref()?;
            let of_sent = |count: u64| ratio(count as f64, udp.sent_count as f64).unwrap_or(0.0);
            Some((of_sent(udp.reordered_count), udp.lost_share().unwrap_or(0.0)))
        });
        let (late, lost): (Vec<f64>, Vec<f64>) = seen.unzip();
        let Some((late, lost)) = middle(late).zip(middle(lost)) else {
            let text = "the peer did not report its datagrams".to_owned();
            return self.undecided(Some(after.median), text);
        };
        let outcome = match (late > 0.0 && late >= low_share, lost < late) {
            (true, true) => Ruling::Confirmed,
            (true, false) => Ruling::Inconclusive,
            (false, _) if self.datagrams_sent() * low_share < rulings::LOST_EXPECTED_LEAST => {
                Ruling::Inconclusive
            }
            (false, _) => Ruling::Refuted,
        };
        Told {
            outcome,
            predicted_bits_per_s: self.experiment.predicted.expected_bits_per_s,
            after_bits_per_s: Some(after.median),
            interval: self.interval(),
            text: format!(
                "{} of the datagrams came after a later one, {} were lost, at a moderate rate",
                show_share(late),
                show_share(lost)
            ),
        }
    }

    /// Whether what was sent against the data's direction arrives, or no more than the acknowledgements did.
    pub(super) fn saturates(&self, after: &Estimate) -> Told {
        let predicted = self.experiment.predicted;
        let sent =
            middle(self.points.iter().filter_map(|point| {
                positive(point.measured()?.directions.first()?.sent_bits_per_s)
            }));
        let asked = match self.experiment.change {
            Change::UdpAgainst { bits_per_s, .. } => bits_per_s,
            _ => predicted.high_bits_per_s,
        };
        let Some(sent) = sent.filter(|sent| *sent >= rulings::SATURATED_MOST * asked) else {
            let text = "UDP was not sent as fast as asked".to_owned();
            return self.undecided(Some(after.median), text);
        };
        let outcome = if after.median <= predicted.high_bits_per_s {
            Ruling::Confirmed
        } else if after.median >= rulings::SATURATED_MOST * sent {
            Ruling::Refuted
        } else {
            Ruling::Inconclusive
        };
        let shown = [sent, after.median, predicted.expected_bits_per_s, predicted.high_bits_per_s];
        let [sent, arrived, expected, high] = shown.map(show_bit_rate);
        Told {
            outcome,
            predicted_bits_per_s: predicted.expected_bits_per_s,
            after_bits_per_s: Some(after.median),
            interval: self.interval(),
            text: format!(
                "of {sent} sent the other way {arrived} arrived; {expected} was predicted, at most {high}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use results::{Limit, TestSpec};

    use super::*;
    use crate::experiment::{Experiment, Prediction, Rule};

    /// What datagrams, of which so many came late, say of packets that come out of order.
    fn word(sent_count: u64, reordered_count: u64, low_share: f64) -> Ruling {
        let rate = 1e6;
        let value = serde_json::json!({
            "experiment": "confirm:reordering", "repeat": 0, "started_unix_ms": 0,
            "work": results::Work::from(TestSpec::udp(1400)),
            "outcome": { "measured": { "duration_s": 1.0,
                "hosts": [{ "host": "near", "account": {
                    "streams": [], "cores": [], "counters": {}, "findings": [] } }],
                "directions": [{ "direction": "forward", "sent_bytes": 1, "received_bytes": 1,
                    "sent_bits_per_s": rate, "received_bits_per_s": rate,
                    "udp": { "sent_count": sent_count, "received_count": sent_count,
                        "lost_count": 0, "reordered_count": reordered_count,
                        "duplicate_count": 0, "jitter_s": 0.0, "loss": {} } }] } }
        });
        let points = [serde_json::from_value(value).expect("a point of the schema")];
        let experiment = Experiment {
            limit: Limit::Reordering,
            change: Change::UdpAtRate { bits_per_s: rate, datagram_bytes: 1400 },
            predicted: Prediction::new(0.5 * rate, rate, rate),
            rule: Rule::Reorders { low_share },
        };
        let before = Estimate::of(&[2.0 * rate]).expect("one figure");
        Trial { experiment: &experiment, before, points: &points, judged: vec![] }.ruling().outcome
    }

    #[test]
    fn datagrams_of_which_none_can_be_expected_late_refute_nothing() {
        assert_eq!(word(10_000, 0, 1e-3), Ruling::Refuted);
        assert_eq!(word(300, 0, 1e-3), Ruling::Inconclusive);
        assert_eq!(word(300, 3, 1e-3), Ruling::Confirmed);
    }
}
