//! Derives a congestion control's behaviour from points: its throughput, its ramp, and its effect on the
//! queue and on a competing flow.

use std::collections::BTreeMap;
use std::fmt;

use results::{Estimate, Point, PointOutcome, Results, StreamEnd, Summary, TestOutcome};

use super::pairs;
use crate::runner::Done;

const ALONE: &str = "cc:";
const RATE: &str = "forward_received_bits_per_s";
const RETRANSMITS: &str = "retransmits_count";
const RAMP: &str = "ramp_s";
const INFLATION: &str = "rtt_inflation";
const JAIN: &str = "jain_index";
const SHARE: &str = "first_flow_share";
const TOGETHER: &str = "both_received_bits_per_s";

/// The ramp ends when a flow first reaches this share of its settled rate.
const RAMPED: f64 = 0.9;

/// The results of a comparison, by setting.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Single flows, one row per congestion control.
    pub(super) alone: Vec<Alone>,
    /// Two concurrent flows, one row per pair.
    pub(super) pairs: Vec<Pair>,
    /// Remarks for the reader.
    pub(super) notes: Vec<String>,
}

/// Figures of a single flow.
#[derive(Debug)]
pub(super) struct Alone {
    name: String,
    figures: BTreeMap<&'static str, Estimate>,
    idle_rtt_s: Option<f64>,
}

/// Figures of two concurrent flows.
#[derive(Debug)]
pub(super) struct Pair {
    names: (String, String),
    figures: BTreeMap<&'static str, Estimate>,
}

/// Experiment name of a single flow.
pub(super) fn alone(name: &str) -> String {
    format!("{ALONE}{name}")
}

/// Marks a test as failed if the kernel did not use the requested congestion control; the peer is not at fault.
pub(super) fn checked(mut done: Done) -> Done {
    let Some((spec, outcome)) = done.point.tested() else { return done };
    let used = outcome.near().streams.iter().find_map(|stream| stream.tcp.as_ref());
    let used = used.map(|tcp| tcp.congestion_control.as_str());
    if used == spec.congestion_control.as_deref() {
        return done;
    }
    let refusal =
        outcome.near().findings.iter().find(|finding| finding.code == "congestion-control-refused");
    let why = refusal.map_or("the kernel used another", |finding| finding.text.as_str());
    let why = format!("{}: {why}", spec.congestion_control.as_deref().unwrap_or("-"));
    done.point.outcome = PointOutcome::Failed(why);
    done
}

/// The points of an interrupted run, without second flows that their first flow's point does not follow.
pub(super) fn whole(points: Vec<Point>) -> Vec<Point> {
    let has_first = |at: usize, second: &Point| {
        points.get(at + 1).is_some_and(|first| {
            first.repeat == second.repeat
                && pairs::second(&first.experiment) == second.experiment
                && first.experiment != second.experiment
        })
    };
    let is_second = |point: &Point| {
        !point.experiment.starts_with(ALONE) && pairs::of(&point.experiment).is_none()
    };
    let is_kept = |(at, point): (usize, &Point)| !is_second(point) || has_first(at, point);
    let keep: Vec<bool> = points.iter().enumerate().map(is_kept).collect();
    points.into_iter().zip(keep).filter_map(|(point, keep)| keep.then_some(point)).collect()
}

/// Number of failed points.
pub(super) fn failures(points: &[Point]) -> usize {
    points.iter().filter(|point| matches!(point.outcome, PointOutcome::Failed(_))).count()
}

/// Jain's fairness index of two or more rates: 1 if all are equal, 1/n if one flow gets everything.
/// (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984.)
pub(super) fn jain_index(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

impl Comparison {
    /// Derives the comparison of these congestion controls from the points.
    pub(super) fn of(results: &Results, names: &[String]) -> Self {
        let idle_rtt_s = results.path.idle_rtt.as_ref().and_then(|rtt| rtt.percentile_s(50.0));
        let mut comparison = Self::default();
        for name in names {
            let outcomes = outcomes(&results.points, &alone(name));
            let values = [
                (RATE, gather(&outcomes, rate)),
                (
                    RETRANSMITS,
                    gather(&outcomes, |o| Some(o.directions.first()?.retransmits_count? as f64)),
                ),
                (RAMP, gather(&outcomes, ramp_s)),
                (
                    INFLATION,
                    gather(&outcomes, |outcome| Some(loaded_rtt_s(outcome)? / idle_rtt_s?)),
                ),
            ];
            let figures = estimates(values);
            comparison.alone.push(Alone { name: name.clone(), figures, idle_rtt_s });
        }
        for experiment in pair_experiments(&results.points) {
            let Some(names) = pairs::of(&experiment) else { continue };
            let both = both_rates(&results.points, &experiment);
            let of =
                |figure: fn(&[f64; 2]) -> Option<f64>| both.iter().filter_map(figure).collect();
            let values = [
                (JAIN, of(|rates| jain_index(rates))),
                (
                    SHARE,
                    of(|rates| Some(rates[0] / (rates[0] + rates[1])).filter(|s| s.is_finite())),
                ),
                (TOGETHER, of(|rates| Some(rates[0] + rates[1]))),
            ];
            comparison.pairs.push(Pair { names, figures: estimates(values) });
        }
        for point in &results.points {
            if let PointOutcome::Failed(why) = &point.outcome {
                let note = format!("{} (repeat {}): {why}", point.experiment, point.repeat + 1);
                comparison.notes.push(note);
            }
        }
        comparison
    }

    /// The figures that the general summaries lack.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        let summary = |experiment: String, figure: &str, estimate: &Estimate| Summary {
            experiment,
            varied: BTreeMap::new(),
            figure: figure.to_owned(),
            estimate: *estimate,
        };
        let alone = self.alone.iter().flat_map(|row| {
            let own = row.figures.iter().filter(|(name, _)| [RAMP, INFLATION].contains(*name));
            own.map(|(name, estimate)| summary(alone(&row.name), name, estimate))
        });
        let pairs = self.pairs.iter().flat_map(|row| {
            let experiment = pairs::experiment(&row.names.0, &row.names.1);
            row.figures.iter().map(move |(name, own)| summary(experiment.clone(), name, own))
        });
        alone.chain(pairs).collect()
    }
}

impl fmt::Display for Alone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = |name| self.figures.get(name);
        let median = |name| figure(name).map(|estimate: &Estimate| estimate.median);
        let rate =
            figure(RATE).map_or("not measured".to_owned(), |rate| rate.text(units::show_bit_rate));
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let retransmits = or_dash(median(RETRANSMITS).map(|count| format!("{count:.0}")));
        let ramp = or_dash(median(RAMP).map(|seconds| format!("{seconds:.1} s")));
        write!(out, "{:<12} {rate:<40} {retransmits:>11} {ramp:>11}   ", self.name)?;
        match (median(INFLATION), self.idle_rtt_s) {
            (Some(factor), Some(idle_s)) => {
                let (idle_ms, loaded_ms) = (idle_s * 1e3, factor * idle_s * 1e3);
                write!(out, "{idle_ms:.1} -> {loaded_ms:.1} ms ({factor:.2}-fold)")
            }
            _ => write!(out, "-"),
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = format!("{} + {}", self.names.0, self.names.1);
        let figure = |name| self.figures.get(name);
        let (Some(jain), Some(share), Some(together)) =
            (figure(JAIN), figure(SHARE), figure(TOGETHER))
        else {
            return write!(out, "{names:<16} not measured");
        };
        let (first, second) = (share.median * 100.0, 100.0 - share.median * 100.0);
        let shares = format!("{first:.0}% : {second:.0}%");
        let index = jain.text(|value| format!("{value:.2}"));
        let together = units::show_bit_rate(together.median);
        write!(out, "{names:<16} {shares:<15} {index:<26} {together}")
    }
}

fn outcomes<'a>(points: &'a [Point], experiment: &str) -> Vec<&'a TestOutcome> {
    let of = points.iter().filter(|point| point.experiment == experiment);
    of.filter_map(Point::measured).collect()
}

fn gather(outcomes: &[&TestOutcome], figure: impl Fn(&TestOutcome) -> Option<f64>) -> Vec<f64> {
    outcomes.iter().filter_map(|outcome| figure(outcome)).collect()
}

fn estimates<const N: usize>(
    values: [(&'static str, Vec<f64>); N],
) -> BTreeMap<&'static str, Estimate> {
    let known = values.into_iter();
    known.filter_map(|(name, values)| Some((name, Estimate::of(&values)?))).collect()
}

fn pair_experiments(points: &[Point]) -> Vec<String> {
    let mut names: Vec<String> = points
        .iter()
        .filter(|point| pairs::of(&point.experiment).is_some())
        .map(|point| point.experiment.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The rates of both flows, by repeat, bit/s.
fn both_rates(points: &[Point], experiment: &str) -> Vec<[f64; 2]> {
    let second = pairs::second(experiment);
    let firsts = points.iter().filter(|point| point.experiment == experiment);
    firsts
        .filter_map(|first| {
            let other = points
                .iter()
                .find(|other| other.experiment == second && other.repeat == first.repeat)?;
            Some([rate(first.measured()?)?, rate(other.measured()?)?])
        })
        .collect()
}

fn rate(outcome: &TestOutcome) -> Option<f64> {
    outcome.directions.first().map(|direction| direction.received_bits_per_s)
}

/// The receiving stream if the far end reported it, else the sending one.
fn stream(outcome: &TestOutcome) -> Option<&StreamEnd> {
    let far = outcome.far().into_iter().flat_map(|far| &far.streams).find(|stream| !stream.sending);
    far.or_else(|| outcome.near().streams.first())
}

/// Seconds until the flow first reaches nine tenths of the median rate of its second half.
fn ramp_s(outcome: &TestOutcome) -> Option<f64> {
    let samples = &stream(outcome)?.intervals;
    let rates: Vec<(f64, f64)> = samples
        .iter()
        .filter(|sample| sample.end_s > sample.start_s)
        .map(|sample| (sample.end_s, sample.bytes as f64 / (sample.end_s - sample.start_s)))
        .collect();
    let late: Vec<f64> = rates[rates.len() / 2..].iter().map(|(_, rate)| *rate).collect();
    let settled = stats::median(&late)?;
    rates.iter().find(|(_, rate)| *rate >= RAMPED * settled).map(|(end_s, _)| *end_s)
}

/// Median of the sender's smoothed round-trip times, seconds.
fn loaded_rtt_s(outcome: &TestOutcome) -> Option<f64> {
    let sender = outcome.near().streams.iter().find(|stream| stream.sending)?;
    let samples: Vec<f64> =
        sender.intervals.iter().filter_map(|sample| Some(sample.tcp.as_ref()?.rtt_s)).collect();
    stats::median(&samples)
}

#[cfg(test)]
mod tests {
    use results::TestSpec;

    use super::*;

    #[test]
    fn jains_index() {
        assert_eq!(jain_index(&[5.0, 5.0]), Some(1.0));
        assert_eq!(jain_index(&[5.0, 0.0]), Some(0.5));
        assert_eq!(jain_index(&[3.0, 1.0]), Some(0.8));
        assert_eq!(jain_index(&[0.0, 0.0]), None);
        assert_eq!(jain_index(&[]), None);
    }

    #[test]
    fn a_pair_is_whole_with_both_flows_only() {
        let point = |experiment: &str, repeat| Point {
            experiment: experiment.to_owned(),
            varied: BTreeMap::new(),
            repeat,
            started_unix_ms: 0,
            command: String::new(),
            work: TestSpec::tcp().into(),
            by: Vec::new(),
            outcome: PointOutcome::Failed(String::new()),
        };
        let name = pairs::experiment("htcp", "cubic");
        assert_eq!(pairs::of(&name), Some(("htcp".to_owned(), "cubic".to_owned())));
        let second = pairs::second(&name);
        let points =
            vec![point("cc:htcp", 0), point(&second, 0), point(&name, 0), point(&second, 1)];
        assert_eq!(whole(points.clone()), points[..3]);
        // Taken up again, the second flow of the cut pair is there twice.
        let again = [&points[..], &[point(&second, 1), point(&name, 1)]].concat();
        assert_eq!(whole(again).len(), 5);
    }
}
