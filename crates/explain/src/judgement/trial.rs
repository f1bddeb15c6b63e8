//! The outcome of one experiment, by its rule.

mod companions;
mod datagrams;
mod figures;
mod proportions;
mod spacing;
mod told;

use results::{Estimate, Point, PointOutcome, Ruling};
use units::show_bit_rate;

use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::numbers::{middle, percent, positive, ratio};
use crate::observed::repeats_of;
use crate::thresholds::rulings;
use told::{Interval, Told};

/// An experiment with its measurements.
pub(super) struct Trial<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) before: Estimate,
    pub(super) points: &'a [Point],
    /// Repeats of the judged test.
    pub(super) judged: Vec<&'a Point>,
}

impl Trial<'_> {
    pub(super) fn ruling(&self) -> Told {
        let expected = self.experiment.predicted.expected_bits_per_s;
        let Some(after) = self.after() else {
            return self.undecided(None, format!("the experiment failed ({})", self.failure()));
        };
        if let Some(reason) = self.not_made(&after) {
            return self.undecided(Some(after.median), reason);
        }
        let (outcome, predicted) = match self.experiment.rule {
            Rule::Lifts => (self.lifts(&after), expected),
            Rule::Eases => (self.eases(&after), expected),
            Rule::Scales => match self.drops_excess(&after) {
                Some(text) => {
                    let told = self.told(Ruling::Refuted, &after, expected);
                    return Told { text: format!("{text}; {}", told.text), ..told };
                }
                None => (self.scales(&after), expected),
            },
            Rule::Stays => (self.stays(&after), expected),
            Rule::Loses { low_share } => return self.loses(&after, low_share),
            Rule::Reorders { low_share } => return self.reorders(&after, low_share),
            Rule::FollowsPackets => return self.follows_packets(&after),
            Rule::Saturates => return self.saturates(&after),
            Rule::FollowsSegments => return self.follows_segments(&after),
            Rule::Calms => return self.calms(&after),
            Rule::FollowsCost(end) => return self.follows_cost(&after, end),
            Rule::FollowsReceiveWindow => {
                return self.follows(&after, "advertised window", |granted| granted.0);
            }
            Rule::FollowsSendBuffer => {
                return self.follows(&after, "send buffer", |granted| granted.1);
            }
        };
        self.told(outcome, &after, predicted)
    }

    /// Whether the change should have raised throughput and did not, beyond the noise.
    pub(super) fn is_fruitless(&self) -> bool {
        let should_gain = matches!(self.experiment.rule, Rule::Lifts | Rule::Eases | Rule::Scales);
        self.after().is_some_and(|after| {
            should_gain
                && self.not_made(&after).is_none()
                && self.gain(&after) <= self.noise(&after)
        })
    }

    /// Throughput of the experiment's repeats, bit/s; `None` if it measured nothing.
    fn after(&self) -> Option<Estimate> {
        let measured: Vec<&Point> = self.points.iter().collect();
        let rates: Vec<f64> = repeats_of(&measured).into_iter().map(|(_, rate)| rate).collect();
        Estimate::of(&rates)
    }

    /// Median of a figure over the judged test's repeats.
    fn middle_before(&self, of: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
        middle(self.judged.iter().filter_map(|point| of(point)))
    }

    /// Smallest gain that is not noise, as a share.
    fn noise(&self, after: &Estimate) -> f64 {
        let spread = |estimate: &Estimate| match estimate.count {
            0 | 1 => rulings::NOISE_OF_ONE,
            _ => ratio(rulings::NOISE_OF_SPREAD * (estimate.high - estimate.low), estimate.median)
                .unwrap_or(0.0),
        };
        (spread(&self.before) + spread(after)).clamp(rulings::NOISE_LEAST, 1.0)
    }

    fn gain(&self, after: &Estimate) -> f64 {
        ratio(after.median, self.before.median).unwrap_or(0.0) - 1.0
    }

    fn lifts(&self, after: &Estimate) -> Ruling {
        let (gain, noise) = (self.gain(after), self.noise(after));
        if gain > noise {
            Ruling::Confirmed
        } else if noise > rulings::NOISE_MOST {
            Ruling::Inconclusive
        } else {
            Ruling::Refuted
        }
    }

    fn eases(&self, after: &Estimate) -> Ruling {
        if self.gain(after) > self.noise(after) { Ruling::Confirmed } else { Ruling::Inconclusive }
    }

    fn scales(&self, after: &Estimate) -> Ruling {
        let (gain, noise) = (self.gain(after), self.noise(after));
        let reached = after.median >= self.experiment.predicted.low_bits_per_s;
        match (gain > noise, reached) {
            (true, true) => Ruling::Confirmed,
            // More than noise, less than predicted: the change lifted another limit too.
            (true, false) => Ruling::Inconclusive,
            // As much as predicted, but repeats differ by as much.
            (false, true) => Ruling::Inconclusive,
            (false, false) => Ruling::Refuted,
        }
    }

    fn stays(&self, after: &Estimate) -> Ruling {
        let above = after.median > self.experiment.predicted.high_bits_per_s;
        if above && self.gain(after) > self.noise(after) {
            Ruling::Refuted
        } else {
            Ruling::Confirmed
        }
    }

    /// Why the change did not take effect, if it did not.
    fn not_made(&self, after: &Estimate) -> Option<String> {
        match &self.experiment.change {
            Change::CongestionControl { to, .. } => {
                let used = self.points.iter().find_map(|point| {
                    let outcome = point.measured()?;
                    let streams = outcome.hosts.iter().flat_map(|host| &host.account.streams);
                    streams.filter(|stream| stream.sending).find_map(|stream| stream.tcp.as_ref())
                })?;
                let other = !used.congestion_control.is_empty() && used.congestion_control != *to;
                other
                    .then(|| format!("the kernel used {} instead of {to}", used.congestion_control))
            }
            Change::UdpAtRate { .. } if self.experiment.rule == Rule::Stays => {
                let sent = middle(self.points.iter().filter_map(|point| {
                    positive(point.measured()?.directions.first()?.sent_bits_per_s)
                }))?;
                let pushed = sent >= self.before.median * rulings::PUSHED;
                if pushed {
                    self.fell_short(after).map(|rate| format!("UDP arrived at {rate} only"))
                } else {
                    Some(format!("UDP was sent at {} only", show_bit_rate(sent)))
                }
            }
            Change::MoreStreams { to_count, .. } if self.experiment.rule == Rule::Stays => {
                self.fell_short(after).map(|rate| format!("{to_count} streams carried {rate} only"))
            }
            _ => None,
        }
    }

    /// What came of a rate that should stay, in words, if that is far less: a limit of its own held the experiment back.
    fn fell_short(&self, after: &Estimate) -> Option<String> {
        let is_short = after.median < self.before.median * rulings::ARRIVED;
        is_short.then(|| show_bit_rate(after.median))
    }

    fn failure(&self) -> &str {
        let mut reasons = self.points.iter().filter_map(|point| match &point.outcome {
            PointOutcome::Failed(reason) => Some(reason.as_str()),
            _ => None,
        });
        reasons.next_back().unwrap_or("it measured nothing")
    }

    fn told(&self, outcome: Ruling, after: &Estimate, predicted: f64) -> Told {
        let text = format!(
            "{} -> {} ({}{}), predicted {}; noise {}",
            show_bit_rate(self.before.median),
            show_bit_rate(after.median),
            if self.gain(after) < 0.0 { "" } else { "+" },
            percent(self.gain(after)),
            show_bit_rate(predicted),
            percent(self.noise(after))
        );
        Told {
            outcome,
            predicted_bits_per_s: predicted,
            after_bits_per_s: Some(after.median),
            text,
            interval: self.interval(),
        }
    }

    fn undecided(&self, after_bits_per_s: Option<f64>, text: String) -> Told {
        let predicted_bits_per_s = self.experiment.predicted.expected_bits_per_s;
        let interval = self.interval();
        Told {
            outcome: Ruling::Inconclusive,
            predicted_bits_per_s,
            after_bits_per_s,
            text,
            interval,
        }
    }

    /// The bounds by which the rule judges throughput; a lifted limit's gain has no upper bound, because it ends at the
    /// next limit.
    fn interval(&self) -> Interval {
        let Prediction { low_bits_per_s: low, high_bits_per_s: high, .. } =
            self.experiment.predicted;
        match self.experiment.rule {
            Rule::Lifts | Rule::Eases | Rule::Scales => (Some(low), None),
            Rule::Stays | Rule::Saturates => (None, Some(high)),
            Rule::FollowsPackets | Rule::FollowsSegments | Rule::Calms => (Some(low), Some(high)),
            Rule::FollowsCost(_)
            | Rule::FollowsReceiveWindow
            | Rule::FollowsSendBuffer
            | Rule::Reorders { .. }
            | Rule::Loses { .. } => (None, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use results::{End, Limit, StreamEnd, TestSpec};

    use super::*;

    /// A second of one stream whose sending thread ran and waited so long.
    pub(super) fn point(rate: f64, ran_s: f64, waited_s: f64) -> Point {
        let stream = StreamEnd {
            sending: true,
            bytes: (rate / 8.0) as u64,
            duration_s: 1.0,
            thread_user_s: Some(0.0),
            thread_system_s: Some(ran_s),
            thread_wait_s: Some(waited_s),
            ..StreamEnd::default()
        };
        let report = serde_json::json!({ "streams": [stream], "cores": [], "counters": {},
            "findings": [] });
        let value = serde_json::json!({
            "experiment": "single-stream", "repeat": 0, "started_unix_ms": 0,
            "work": results::Work::from(TestSpec::tcp()),
            "outcome": { "measured": { "duration_s": 1.0,
                "hosts": [{ "host": "near", "account": report }],
                "directions": [{ "direction": "forward", "sent_bytes": 1, "received_bytes": 1,
                    "sent_bits_per_s": rate, "received_bits_per_s": rate }] } }
        });
        serde_json::from_value(value).expect("a point of the schema")
    }

    #[test]
    fn noise_puts_no_bound_of_a_prediction_below_zero() {
        let judged = point(10e9, 0.95, 0.0);
        let points = [point(5e9, 0.95, 0.0)];
        let experiment = Experiment {
            limit: Limit::SenderCore,
            change: Change::Block { to_bytes: 8192 },
            predicted: Prediction::new(2e9, 6e9, 9e9),
            rule: Rule::FollowsCost(End::Near),
        };
        let low = |figures: &[f64]| {
            let before = Estimate::of(figures).expect("figures");
            let judged = vec![&judged];
            let told = Trial { experiment: &experiment, before, points: &points, judged }.ruling();
            told.confirmation(&experiment, &before).expect("measured").predicted_low_bits_per_s
        };
        assert!(low(&[9.5e9, 10e9, 10.5e9]).is_some_and(|low| low > 0.0));
        assert_eq!(low(&[1.5e9, 10e9, 21e9]), None);
    }
}
