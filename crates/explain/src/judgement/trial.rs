//! The outcome of one experiment, by its rule.

mod companions;
mod datagrams;

use results::{Companion, Confirmation, End, Estimate, Limit, Point, PointOutcome, Rival, Ruling};
use units::{show_bit_rate, show_byte_size};

use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::numbers::{fine_percent, middle, percent, positive, ratio};
use crate::observed::{granted_bytes, repeats_of};
use crate::thresholds::{predictions, rulings};
use crate::verdict::title;

/// Processor time that an end's threads used per byte they moved, seconds.
fn cost_s_per_byte(point: &Point, end: End) -> Option<f64> {
    let outcome = point.measured()?;
    let report = match end {
        End::Near => Some(outcome.near()),
        End::Far => outcome.far(),
    };
    let streams = &report?.streams;
    let spent = |stream: &results::StreamEnd| Some(stream.thread_user_s? + stream.thread_system_s?);
    let spent_s: f64 = streams.iter().filter_map(spent).sum();
    let bytes: u64 = streams.iter().map(|stream| stream.bytes).sum();
    ratio(spent_s, bytes as f64)
}

/// Time that an end's threads ran or waited for a core, over the time they ran: 1 if they never waited,
/// `None` if the kernel did not report it.
fn wanted_over_had(point: &Point, end: End) -> Option<f64> {
    let streams = point.measured().and_then(|outcome| match end {
        End::Near => Some(&outcome.near().streams),
        End::Far => outcome.far().map(|far| &far.streams),
    });
    let (mut ran_s, mut waited_s) = (0.0, 0.0);
    for stream in streams.into_iter().flatten() {
        if let (Some(user_s), Some(system_s)) = (stream.thread_user_s, stream.thread_system_s) {
            ran_s += user_s + system_s;
            waited_s += stream.thread_wait_s.unwrap_or(0.0);
        }
    }
    ratio(ran_s + waited_s, ran_s)
}

/// Whether an end sends the data; `None` if it reported no stream.
fn sends(point: &Point, end: End) -> Option<bool> {
    let outcome = point.measured()?;
    let report = match end {
        End::Near => Some(outcome.near()),
        End::Far => outcome.far(),
    };
    Some(report?.streams.first()?.sending)
}

/// Payload of the sender's segments, bytes.
fn segment_bytes(point: &Point) -> Option<f64> {
    let outcome = point.measured()?;
    let streams = outcome.hosts.iter().flat_map(|host| &host.account.streams);
    let mut tcp = streams.filter(|stream| stream.sending).filter_map(|stream| stream.tcp.as_ref());
    positive(f64::from(tcp.next()?.mss_bytes))
}

/// Segments that the sender retransmitted, as a share of all that it sent.
fn retransmit_share(point: &Point) -> Option<f64> {
    let (again, sent) = retransmitted(point)?;
    Some(again / (again + sent))
}

/// Segments that the sender retransmitted, and those of its payload.
fn retransmitted(point: &Point) -> Option<(f64, f64)> {
    let outcome = point.measured()?;
    let ends = std::iter::once(outcome.near()).chain(outcome.far());
    let senders = ends.flat_map(|end| &end.streams).filter(|stream| stream.sending);
    let counts = senders.filter_map(|stream| {
        let tcp = stream.tcp.as_ref()?;
        let again = tcp.last.retransmits_count.saturating_sub(tcp.first.retransmits_count) as f64;
        Some((again, ratio(stream.bytes as f64, f64::from(tcp.mss_bytes))?))
    });
    counts.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// An experiment with its measurements.
pub(super) struct Trial<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) before: Estimate,
    pub(super) points: &'a [Point],
    /// Repeats of the judged test.
    pub(super) judged: Vec<&'a Point>,
}

pub(super) struct Told {
    pub(super) outcome: Ruling,
    pub(super) predicted_bits_per_s: f64,
    pub(super) after_bits_per_s: Option<f64>,
    pub(super) text: String,
    /// Lowest and highest throughput that was predicted, bit/s, where it was bounded.
    pub(super) interval: Interval,
}

/// Bounds of a prediction, bit/s.
type Interval = (Option<f64>, Option<f64>);

impl Told {
    /// The same beside what the second candidate predicts and what else the limit predicted: as predicted is not
    /// enough where the other limit predicts the same, or something else failed.
    pub(super) fn beside(
        mut self,
        rival: Option<&Rival>,
        companions: &[Companion],
        limit: Limit,
    ) -> Self {
        if self.outcome != Ruling::Confirmed {
            return self;
        }
        if let Some(failed) = companions.iter().find(|companion| !companion.holds) {
            self.outcome = Ruling::Inconclusive;
            let Companion { predicted, measured, .. } = failed;
            self.text += &format!("; but it also predicts {predicted}; measured {measured}");
        } else if let Some(rival) = rival.filter(|rival| !rival.is_separate) {
            self.outcome = Ruling::Inconclusive;
            let (one, other) = (title(limit), title(rival.limit));
            self.text += &format!(
                "; {one} or {other}: the experiment does not distinguish them, as both predict \
                 this outcome"
            );
        }
        self
    }

    /// The outcome in the form that verdicts store; `None` if the experiment measured nothing.
    pub(super) fn confirmation(
        &self,
        experiment: &Experiment,
        before: &Estimate,
    ) -> Option<Confirmation> {
        Some(Confirmation {
            change: experiment.change.to_string(),
            predicted_bits_per_s: self.predicted_bits_per_s,
            before_bits_per_s: before.median,
            after_bits_per_s: self.after_bits_per_s?,
            outcome: self.text.clone(),
            // Every rate is above a bound that noise puts below zero.
            predicted_low_bits_per_s: self.interval.0.filter(|low| *low > 0.0),
            predicted_high_bits_per_s: self.interval.1,
            ruling: Some(self.outcome),
            ..Confirmation::default()
        })
    }
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

    /// Whether throughput follows the window or buffer that the kernel granted.
    fn follows(
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
        let outcome = if granted > 1.0 {
            self.lifts(after)
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
            (Some(before * (1.0 + noise)), None)
        } else {
            (Some(expected * (1.0 - tolerance)), Some(expected * (1.0 + tolerance)))
        };
        if let Some(sizes) = sizes {
            ruling.text += &format!("; {sizes}");
        }
        ruling
    }

    /// Whether throughput falls as the processor time of a byte rises.
    fn follows_cost(&self, after: &Estimate, end: End) -> Told {
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
    fn follows_packets(&self, after: &Estimate) -> Told {
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
    fn follows_segments(&self, after: &Estimate) -> Told {
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

    /// Whether losses go away when packets are paced at about the same throughput.
    fn calms(&self, after: &Estimate) -> Told {
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
    use results::{Limit, StreamEnd, TestSpec};

    use super::*;
    use crate::change::Change;
    use crate::experiment::Prediction;

    /// A second of one stream whose sending thread ran and waited so long.
    fn point(rate: f64, ran_s: f64, waited_s: f64) -> Point {
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
    fn what_the_second_candidate_predicts_as_well_confirms_nothing() {
        let told = || Told {
            outcome: Ruling::Confirmed,
            predicted_bits_per_s: 1e9,
            after_bits_per_s: Some(1e9),
            text: "as predicted".to_owned(),
            interval: (None, None),
        };
        let rival = |is_separate| Rival {
            limit: Limit::ReceiverCore,
            low_bits_per_s: None,
            high_bits_per_s: None,
            is_separate,
        };
        let failed =
            Companion { predicted: "more".to_owned(), measured: "less".to_owned(), holds: false };
        let word = |rival: Option<&Rival>, companions: &[Companion]| {
            let told = told().beside(rival, companions, Limit::SenderCore);
            (told.outcome, told.text)
        };
        assert_eq!(word(None, &[]).0, Ruling::Confirmed);
        assert_eq!(word(Some(&rival(true)), &[]).0, Ruling::Confirmed);
        let (outcome, text) = word(Some(&rival(false)), &[]);
        assert_eq!(outcome, Ruling::Inconclusive);
        assert!(text.contains("the sending core or the receiving core, not told apart"), "{text}");
        let (outcome, text) = word(None, &[failed]);
        assert_eq!(outcome, Ruling::Inconclusive);
        assert!(text.contains("predicts also: more; measured less"), "{text}");
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
