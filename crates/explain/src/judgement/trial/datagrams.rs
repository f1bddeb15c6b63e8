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
        let datagrams: u64 = self
            .points
            .iter()
            .filter_map(|point| point.measured()?.directions.first()?.udp.as_ref())
            .map(|udp| udp.sent_count)
            .sum();
        let Some(lost_share) = middle(seen.iter().map(|seen| seen.lost_share)) else {
            return self
                .undecided(Some(after.median), "the peer did not report its datagrams".to_owned());
        };
        let outcome = if lost_share > 0.0 && lost_share >= low_share {
            Ruling::Confirmed
        } else if datagrams as f64 * low_share < rulings::LOST_EXPECTED_LEAST {
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
