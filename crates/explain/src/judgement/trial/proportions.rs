//! Experiments whose throughput should follow what they changed: a window, the cost of a byte, packets, segments.

use results::{End, Estimate, Ruling};
use units::{show_bit_rate, show_byte_size};

use super::figures::{cost_s_per_byte, segment_bytes, wanted_over_had};
use super::{Told, Trial};
use crate::change::Change;
use crate::numbers::{middle, ratio};
use crate::observed::granted_bytes;
use crate::thresholds::{predictions, rulings};

impl Trial<'_> {
    /// Whether throughput follows the window or buffer that the kernel granted.
    pub(super) fn follows(
        &self,
        after: &Estimate,
        what: &str,
        read: impl Fn((Option<f64>, Option<f64>)) -> Option<f64>,
    ) -> Told {
        let Change::Window { from_bytes, to_bytes, .. } = self.experiment.change else {
            return self.told(
                self.lifts(after),
                after,
                self.experiment.predicted.expected_bits_per_s,
            );
        };
        let before_bytes = self.middle_before(|point| read(granted_bytes(point)));
        let after_bytes = middle(self.points.iter().filter_map(|point| read(granted_bytes(point))));
        let granted =
            after_bytes.zip(before_bytes).and_then(|(after, before)| ratio(after, before));
        let granted = granted.or_else(|| ratio(to_bytes as f64, from_bytes as f64)).unwrap_or(1.0);
        let sizes = after_bytes.zip(before_bytes).map(|(after, before)| {
            let show = |bytes: f64| show_byte_size(units::saturating_u64(bytes));
            format!("{what} {} -> {}", show(before), show(after))
        });
        if (granted - 1.0).abs() < rulings::WINDOW_MADE {
            let same = format!("the kernel granted the same {what} again");
            let text = sizes.map_or(same.clone(), |sizes| format!("{same}: {sizes}"));
            return self.undecided(Some(after.median), text);
        }
        if let Some(text) = self.taken_over(after, what).filter(|_| granted > 1.0) {
            return self.undecided(Some(after.median), text);
        }
        let (gain, noise) = (self.gain(after), self.noise(after));
        let before = self.before.median;
        let next_ceiling = self.experiment.predicted.expected_bits_per_s.max(before);
        let expected = if granted > 1.0 {
            (before * granted).min(next_ceiling.max(before * predictions::LIFT_LEAST))
        } else {
            before * granted
        };
        // A wider window that binds carries more in proportion; a small part of that may be anything.
        let least = 1.0 + noise.max(rulings::GAINED_LEAST * (expected / before - 1.0));
        let outcome = if granted > 1.0 {
            match self.lifts(after) {
                Ruling::Confirmed if gain + 1.0 < least => Ruling::Inconclusive,
                other => other,
            }
        } else {
            let follows = ((gain + 1.0) / granted - 1.0).abs() <= rulings::FOLLOWS + noise;
            match (follows, gain < -noise) {
                (true, true) => Ruling::Confirmed,
                // A fall within the noise could as well be none.
                (true, false) => Ruling::Inconclusive,
                (false, _) => Ruling::Refuted,
            }
        };
        let mut ruling = self.told(outcome, after, expected);
        // Registered as a proportion, because the kernel decides what it grants.
        let tolerance = rulings::FOLLOWS + noise;
        ruling.interval = if granted > 1.0 {
            (Some(before * least), None)
        } else {
            (Some(expected * (1.0 - tolerance)), Some(expected * (1.0 + tolerance)))
        };
        if let Some(sizes) = sizes {
            ruling.text += &format!("; {sizes}");
        }
        ruling
    }

    /// Whether throughput falls as the processor time of a byte rises.
    pub(super) fn follows_cost(&self, after: &Estimate, end: End) -> Told {
        let before_s = self.middle_before(|point| cost_s_per_byte(point, end));
        let after_s = middle(self.points.iter().filter_map(|point| cost_s_per_byte(point, end)));
        let Some(factor) = after_s.zip(before_s).and_then(|(after, before)| ratio(after, before))
        else {
            let text = "the threads' processor time is unknown".to_owned();
            return self.undecided(Some(after.median), text);
        };
        if factor < rulings::COST_RISES_LEAST {
            let text = format!("a byte cost {factor:.2} times as much, too little to tell");
            return self.undecided(Some(after.median), text);
        }
        let (kept, noise) = (self.gain(after) + 1.0, self.noise(after));
        // With less data to move, other tasks leave the threads more of the core, up to all they waited for.
        let wanted = self.middle_before(|point| wanted_over_had(point, end)).unwrap_or(1.0);
        let tolerance = rulings::FOLLOWS + noise;
        let follows = 1.0 - tolerance..=wanted * (1.0 + tolerance);
        // A fall within the noise could as well be none.
        let outcome = match (follows.contains(&(kept * factor)), kept < 1.0 - noise) {
            (true, true) => Ruling::Confirmed,
            (false, false) => Ruling::Refuted,
            _ => Ruling::Inconclusive,
        };
        let mut ruling = self.told(outcome, after, self.before.median / factor);
        let in_proportion = self.before.median / factor;
        ruling.interval = (
            Some(in_proportion * (1.0 - tolerance)),
            Some(in_proportion * wanted * (1.0 + tolerance)),
        );
        ruling.text += &format!("; processor time per byte {factor:.2}-fold");
        if wanted > 1.0 + rulings::FOLLOWS {
            let most = show_bit_rate(self.before.median / factor * wanted);
            ruling.text += &format!("; at most {most} if its threads never waited for the core");
        }
        ruling
    }

    /// Whether throughput falls as each byte costs more packets.
    pub(super) fn follows_packets(&self, after: &Estimate) -> Told {
        let Change::SmallerSegments { from_bytes, to_bytes } = self.experiment.change else {
            let text = "the experiment changed no segments".to_owned();
            return self.undecided(Some(after.median), text);
        };
        let factor = ratio(f64::from(from_bytes), f64::from(to_bytes)).unwrap_or(1.0);
        let (kept, noise) = (self.gain(after) + 1.0, self.noise(after));
        // The cost of copying a byte is unchanged, so throughput falls at most in proportion to the packets.
        let follows =
            kept < 1.0 - rulings::PACKETS_PART * (1.0 - 1.0 / factor) && kept < 1.0 - noise;
        let outcome = if follows { Ruling::Confirmed } else { Ruling::Inconclusive };
        let mut ruling = self.told(outcome, after, self.before.median / factor);
        ruling.text += &format!("; packets per byte {factor:.1}-fold");
        ruling
    }

    /// Whether throughput falls as predicted once segments are smaller.
    pub(super) fn follows_segments(&self, after: &Estimate) -> Told {
        let before_bytes = self.middle_before(segment_bytes);
        let after_bytes = middle(self.points.iter().filter_map(segment_bytes));
        let made = after_bytes.zip(before_bytes).and_then(|(after, before)| ratio(after, before));
        if made.is_none_or(|made| made > rulings::SEGMENTS_MADE) {
            let text = "the kernel did not make the segments smaller".to_owned();
            return self.undecided(Some(after.median), text);
        }
        let predicted = self.experiment.predicted;
        let falls = self.gain(after) < -self.noise(after);
        let within = (predicted.low_bits_per_s..=predicted.high_bits_per_s).contains(&after.median);
        let outcome = match (falls, within) {
            (true, true) => Ruling::Confirmed,
            (false, false) => Ruling::Refuted,
            // A fall within the noise could as well be none.
            (false, true) | (true, false) => Ruling::Inconclusive,
        };
        let mut ruling = self.told(outcome, after, predicted.expected_bits_per_s);
        ruling.text += &format!(
            "; {} to {} was predicted",
            show_bit_rate(predicted.low_bits_per_s),
            show_bit_rate(predicted.high_bits_per_s)
        );
        ruling
    }
}

#[cfg(test)]
mod tests {
    use results::Limit;

    use super::super::tests::point;
    use super::*;
    use crate::experiment::{Experiment, Prediction, Rule};

    /// What the experiment "a byte costs ten times as much" says.
    fn dearer(before: (f64, f64), after: (f64, f64, f64)) -> Ruling {
        let judged = point(10e9, before.0, before.1);
        let points = [point(after.0, after.1, after.2)];
        let experiment = Experiment {
            limit: Limit::SenderCore,
            change: Change::Block { to_bytes: 8192 },
            predicted: Prediction::new(2e9, 6e9, 9e9),
            rule: Rule::FollowsCost(End::Near),
        };
        let before = Estimate::of(&[10e9]).expect("one figure");
        let trial =
            Trial { experiment: &experiment, before, points: &points, judged: vec![&judged] };
        trial.ruling().outcome
    }

    #[test]
    fn a_fall_within_the_noise_confirms_nothing() {
        // Repeats of 1.5 to 21 Gbit/s before; then a byte costs twice as much and half of the rate is left.
        let outcome = |low: f64, high: f64| {
            let judged = point(10e9, 0.95, 0.0);
            let points = [point(5e9, 0.95, 0.0)];
            let experiment = Experiment {
                limit: Limit::SenderCore,
                change: Change::Block { to_bytes: 8192 },
                predicted: Prediction::new(2e9, 6e9, 9e9),
                rule: Rule::FollowsCost(End::Near),
            };
            let before = Estimate::of(&[low, 10e9, high]).expect("figures");
            let judged = vec![&judged];
            Trial { experiment: &experiment, before, points: &points, judged }.ruling().outcome
        };
        assert_eq!(outcome(9.5e9, 10.5e9), Ruling::Confirmed);
        assert_eq!(outcome(1.5e9, 21e9), Ruling::Inconclusive);
    }

    #[test]
    fn a_thread_that_waited_for_its_core_may_have_more_of_it_once_others_have_less_to_do() {
        // A full core: ten times the cost, a tenth of the throughput.
        assert_eq!(dearer((0.95, 0.0), (1e9, 0.95, 0.0)), Ruling::Confirmed);
        // Half of it was taken by others, who then had less to do.
        assert_eq!(dearer((0.46, 0.43), (1.5e9, 0.69, 0.3)), Ruling::Confirmed);
        // The demo's: 29% ran, 29% waited; all of what it waited for and a fifth more.
        assert_eq!(dearer((0.29, 0.29), (1.41e9, 0.69, 0.3)), Ruling::Confirmed);
        // Nobody was in its way, and it could run twice as long: it was not the core.
        assert_eq!(dearer((0.46, 0.0), (2e9, 0.92, 0.0)), Ruling::Inconclusive);
        // It costs as much and nothing was lost.
        assert_eq!(dearer((0.09, 0.0), (10e9, 0.9, 0.0)), Ruling::Refuted);
    }
}
