//! The experiment of `tune apply --measure`: measures with and without each change, in turns.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use results::{AppliedChange, End, Estimate, Point, PointOutcome, Results, TestSpec, Verdict};
use sweep::{Experiment, Plan, Setting};
use tuning::plan::PlannedChange;
use units::show_bit_rate;

use super::evidence::Evidence;
use super::left::Left;

/// Smallest factor that counts as a gain, whatever the spread; the verdict's experiments use the same.
pub(super) const GAIN_MIN: f64 = 1.04;

/// Rounds through the changes: one without effect alone may help once another is in force.
const ROUNDS_MAX: u32 = 2;

/// Experiment name of the points with the change.
pub(super) const WITH: &str = "tune-with";
/// Experiment name of the points without it.
const WITHOUT: &str = "tune-without";

/// Parameter of a trial's point: the index of the change.
pub(super) const CHANGE: &str = "change";
/// Parameter of a trial's point: the round through all changes.
const ROUND: &str = "round";

/// The changes to try, and the tests.
pub(super) struct Trials<'a> {
    pub(super) source: Source<'a>,
    /// The test to run in every turn.
    pub(super) spec: TestSpec,
    /// Turns per change.
    pub(super) turns: u32,
    /// Options of the user that identify the run besides the tests: with other options it is not resumed.
    pub(super) asked: String,
    /// Why the far host's changes cannot be made, if so.
    pub(super) far_refusal: Option<String>,
    /// The changes that are not tried, by their index; looked up once, before the first trial.
    pub(super) left: OnceCell<BTreeMap<usize, Left>>,
}

/// Where the changes come from.
pub(super) enum Source<'a> {
    /// From tests that are run first, and a choice among the changes that they justify.
    Tests(Box<Evidence>, Choice<'a>),
    /// From a file.
    Given(Vec<PlannedChange>),
}

/// Selects changes of a plan.
pub(super) type Choice<'a> = &'a dyn Fn(&tuning::plan::Plan) -> Vec<PlannedChange>;

/// State of the trials.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Indexes of the changes that helped.
    pub(super) kept: Vec<usize>,
    /// The next change to try, or to continue with.
    pub(super) next: Option<Next>,
    pub(super) records: Vec<AppliedChange>,
}

/// The next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    round: u32,
    pub(super) change: usize,
    turn: u32,
}

/// The points of one trial.
struct Trial<'a> {
    with: Vec<&'a Point>,
    without: Vec<&'a Point>,
}

impl Experiment for Trials<'_> {
    fn round(&self, number: u32, so_far: &Results) -> Option<Plan> {
        // Once a change was made, the tests that led to it would give different results.
        if !so_far.points.iter().any(is_of_trial)
            && let Source::Tests(evidence, _) = &self.source
            && let Some(plan) = evidence.round(number, so_far)
        {
            return Some(plan);
        }
        let chosen = self.chosen(so_far);
        if self.refused(&chosen, so_far).is_some() {
            return None;
        }
        let next = self.standing(&chosen, &so_far.points).next?;
        let settings = [WITHOUT, WITH].map(|name| {
            Setting::new(name, self.spec.clone())
                .varying(CHANGE, next.change as f64)
                .varying(ROUND, f64::from(next.round))
        });
        Some(Plan::in_turns(settings.to_vec(), next.turn + 1))
    }

    fn identity(&self, so_far: &Results) -> Option<Plan> {
        let turns = f64::from(self.turns);
        let named = |name: String| Setting::new(name, self.spec.clone()).varying("turns", turns);
        Some(match &self.source {
            Source::Tests(evidence, _) => {
                let mut settings = evidence.round(0, so_far)?.settings().to_vec();
                settings.push(named(format!("tune {}", self.asked)));
                Plan::new(settings, 1, 0)
            }
            Source::Given(changes) => {
                let name =
                    |one: &PlannedChange| format!("tune {:?} {}={}", one.end, one.key, one.to);
                Plan::new(changes.iter().map(|one| named(name(one))).collect(), 1, 0)
            }
        })
    }

    fn conclude(&self, results: &mut Results, is_complete: bool) {
        if let Source::Tests(evidence, _) = &self.source {
            let mut base = without_trials(results);
            evidence.conclude(&mut base, is_complete);
            (results.verdict, results.path) = (base.verdict, base.path);
        }
        results.summaries = sweep::summarise(&results.points);
        let chosen = self.chosen(results);
        results.changes = match self.refused(&chosen, results) {
            Some((change, why)) => vec![by_hand(change, why)],
            None => self.standing(&chosen, &results.points).records,
        };
        let binding = binding(&chosen, results);
        results.verdict = results.verdict.take().map(|it| tried(it, binding, &results.changes));
    }
}

impl Trials<'_> {
    /// The changes to try, by the evidence so far.
    pub(super) fn chosen(&self, so_far: &Results) -> Vec<PlannedChange> {
        match &self.source {
            Source::Given(changes) => changes.clone(),
            Source::Tests(_, choose) => choose(&self.plan(so_far)),
        }
    }

    /// The change that lifts the binding limit and the reason, if that change cannot be made: measuring the
    /// other changes would then show nothing.
    fn refused<'c>(
        &self,
        chosen: &'c [PlannedChange],
        so_far: &Results,
    ) -> Option<(&'c PlannedChange, &str)> {
        let why = self.far_refusal.as_deref()?;
        let binding = binding(chosen, so_far)?;
        (binding.end == End::Far).then_some((binding, why))
    }

    /// Describes that refusal on one line.
    pub(super) fn refused_line(&self, results: &Results) -> Option<String> {
        let chosen = self.chosen(results);
        let (change, why) = self.refused(&chosen, results)?;
        let limit = results.verdict.as_ref().map_or("the limit", |verdict| verdict.limit.name());
        Some(format!(
            "nothing is changed or measured: {why}; to lift {limit}, set on the far host: {}",
            change.command()
        ))
    }

    fn left_of(&self, number: usize) -> Option<&Left> {
        self.left.get()?.get(&number)
    }

    /// Those of the chosen changes that were in force before the first trial.
    pub(super) fn in_force<'c>(&self, chosen: &'c [PlannedChange]) -> Vec<&'c PlannedChange> {
        let is_in_force = |number| matches!(self.left_of(number), Some(Left::InForce { .. }));
        let numbered = chosen.iter().enumerate();
        numbered.filter(|(number, _)| is_in_force(*number)).map(|(_, change)| change).collect()
    }

    /// Whether a journal has a change at this end that was in force before the first trial.
    pub(super) fn has_journalled(&self, chosen: &[PlannedChange], end: End) -> bool {
        chosen.iter().enumerate().any(|(number, change)| {
            let left = self.left_of(number);
            change.end == end && matches!(left, Some(Left::InForce { is_journalled: true }))
        })
    }

    /// The plan that follows from the evidence so far.
    pub(super) fn plan(&self, so_far: &Results) -> tuning::plan::Plan {
        tuning::plan::plan(&without_trials(so_far))
    }

    /// State of the trials of these changes after these points.
    pub(super) fn standing(&self, chosen: &[PlannedChange], points: &[Point]) -> Standing {
        let mut standing = Standing::default();
        let mut records: Vec<Option<AppliedChange>> = vec![None; chosen.len()];
        let mut open = Vec::new();
        for (number, change) in chosen.iter().enumerate() {
            let refusal = self.far_refusal.as_ref().filter(|_| change.end == End::Far);
            match (refusal, self.left_of(number)) {
                (Some(why), _) => records[number] = Some(by_hand(change, why)),
                (None, Some(Left::InForce { .. })) => {
                    records[number] = Some(in_force_before(change));
                }
                (None, Some(Left::Foreign { now })) => {
                    records[number] = Some(left_alone(change, now));
                }
                (None, None) => open.push(number),
            }
        }
        'rounds: for round in 0..ROUNDS_MAX {
            let (mut left, mut kept_count) = (Vec::new(), 0);
            for number in open {
                let trial = Trial::of(points, round, number);
                if let Some(turn) = trial.next_turn(self.turns) {
                    standing.next = Some(Next { round, change: number, turn });
                    break 'rounds;
                }
                let (record, helped) = trial.judged(&chosen[number]);
                records[number] = Some(record);
                match helped {
                    Some(true) => {
                        kept_count += 1;
                        standing.kept.push(number);
                    }
                    Some(false) => left.push(number),
                    None => {}
                }
            }
            if kept_count == 0 || left.is_empty() {
                break;
            }
            open = left;
        }
        standing.records = records.into_iter().flatten().collect();
        standing
    }
}

impl<'a> Trial<'a> {
    fn of(points: &'a [Point], round: u32, change: usize) -> Self {
        let is_of = |name: &str, point: &&Point| {
            point.experiment == name
                && point.varied.get(CHANGE) == Some(&(change as f64))
                && point.varied.get(ROUND) == Some(&f64::from(round))
        };
        let of = |name: &str| points.iter().filter(|point| is_of(name, point)).collect();
        Self { with: of(WITH), without: of(WITHOUT) }
    }

    /// The first incomplete turn; `None` when the trial is over: all turns were made, or no turn so far could
    /// measure with the change in force.
    fn next_turn(&self, turns: u32) -> Option<u32> {
        let was_tried = |points: &[&Point], turn: u32| points.iter().any(|one| one.repeat == turn);
        let next = (0..turns)
            .find(|turn| !(was_tried(&self.with, *turn) && was_tried(&self.without, *turn)));
        let was_in_force = self.with.iter().any(|point| point.measured().is_some());
        next.filter(|turn| *turn == 0 || was_in_force)
    }

    /// The outcome, and whether the change helped; `None` if that could not be measured.
    fn judged(&self, change: &PlannedChange) -> (AppliedChange, Option<bool>) {
        let (before, after) = (estimate(&self.without), estimate(&self.with));
        let (Some(was), Some(is)) = (&before, &after) else {
            let why =
                self.with.iter().chain(&self.without).find_map(|point| match &point.outcome {
                    PointOutcome::Failed(why) => Some(why.as_str()),
                    _ => None,
                });
            let text = format!("not measured: {}; not kept", why.unwrap_or("no test was run"));
            return (record(change, None, None, false, text), None);
        };
        let (helped, text) = judge(was, is, change.predicted_bits_per_s);
        (record(change, before, after, helped, text), Some(helped))
    }
}

/// Whether a change has a test of its own among these.
pub(super) fn was_tried(points: &[Point], change: usize) -> bool {
    let is_of =
        |point: &Point| is_of_trial(point) && point.varied.get(CHANGE) == Some(&(change as f64));
    points.iter().any(is_of)
}

/// Whether a point belongs to a trial, and not to the evidence before it.
pub(super) fn is_of_trial(point: &Point) -> bool {
    point.experiment == WITH || point.experiment == WITHOUT
}

/// The document without the points of trials, which were measured with changed settings.
pub(super) fn without_trials(so_far: &Results) -> Results {
    let mut base = so_far.clone();
    base.points.retain(|point| !is_of_trial(point));
    base.summaries = sweep::summarise(&base.points);
    base
}

/// The chosen change that lifts the limit of the verdict.
fn binding<'c>(chosen: &'c [PlannedChange], so_far: &Results) -> Option<&'c PlannedChange> {
    let named = match &so_far.verdict {
        Some(verdict) => verdict.changes.clone(),
        None => explain::diagnose(&without_trials(so_far)).verdict().changes,
    };
    let is_named = |change: &PlannedChange| {
        let key = change.key.to_string();
        named.iter().any(|one| one.end == change.end && one.key == key)
    };
    chosen.iter().find(|change| is_named(change))
}

/// The verdict, with the outcome of measuring its own change if that was tried.
fn tried(verdict: Verdict, binding: Option<&PlannedChange>, records: &[AppliedChange]) -> Verdict {
    let told = binding.and_then(|change| {
        let key = change.key.to_string();
        let is_of = |record: &&AppliedChange| record.end == change.end && record.key == key;
        explain::trial(records.iter().find(is_of)?)
    });
    match told {
        Some((confirmation, helped)) if !verdict.confirmed => {
            explain::with_trial(verdict, confirmation, helped)
        }
        _ => verdict,
    }
}

fn estimate(points: &[&Point]) -> Option<Estimate> {
    let rate = |point: &&Point| Some(point.measured()?.directions.first()?.received_bits_per_s);
    Estimate::of(&points.iter().filter_map(rate).collect::<Vec<f64>>())
}

/// Whether a change helped beyond the noise: the ranges do not overlap and the medians differ enough.
fn judge(before: &Estimate, after: &Estimate, predicted: Option<f64>) -> (bool, String) {
    let gain = after.median / before.median.max(f64::MIN_POSITIVE);
    let helped = after.low > before.high && gain >= GAIN_MIN;
    let figures = format!(
        "{} -> {} ({})",
        show_bit_rate(before.median),
        show_bit_rate(after.median),
        signed_percent(gain - 1.0)
    );
    if !helped {
        return (false, format!("{figures}: not beyond the noise; reverted"));
    }
    let beside = predicted.map_or_else(String::new, |predicted| {
        let off = signed_percent(after.median / predicted - 1.0);
        format!("; predicted {} ({off})", show_bit_rate(predicted))
    });
    (true, format!("{figures}{beside}; kept"))
}

/// A relative difference in whole percent; less than half a percent has no sign: `0%`, not `-0%`.
fn signed_percent(share: f64) -> String {
    match (share * 100.0).round() {
        0.0 => "0%".to_owned(),
        percent => format!("{percent:+.0}%"),
    }
}

fn by_hand(change: &PlannedChange, why: &str) -> AppliedChange {
    let text = format!("{why}; by hand on the far host: {}", change.command());
    record(change, None, None, false, text)
}

/// Outcome of a change that was in force before the first trial.
pub(super) const IN_FORCE_BEFORE: &str = "already in force, not measured by this run";

/// Whether it helps is not known: it may be left of a run that was killed.
fn in_force_before(change: &PlannedChange) -> AppliedChange {
    let text = IN_FORCE_BEFORE.to_owned();
    AppliedChange { is_kept: None, ..record(change, None, None, false, text) }
}

/// Whether a run left this change in force without having measured it.
pub(super) fn was_in_force(change: &AppliedChange) -> bool {
    change.is_kept.is_none() && change.after.is_none()
}

fn left_alone(change: &PlannedChange, now: &str) -> AppliedChange {
    let from = change.from.as_deref().unwrap_or("?");
    let text = format!("left alone: it is now {now}, but the change was planned for {from}");
    record(change, None, None, false, text)
}

fn record(
    change: &PlannedChange,
    before: Option<Estimate>,
    after: Option<Estimate>,
    is_kept: bool,
    outcome: String,
) -> AppliedChange {
    AppliedChange {
        end: change.end,
        key: change.key.to_string(),
        from: change.from.clone().unwrap_or_default(),
        to: change.to.clone(),
        why: Some(change.why.clone()),
        source: Some(change.source.clone()),
        predicted_bits_per_s: change.predicted_bits_per_s,
        before,
        after,
        is_kept: Some(is_kept),
        outcome: Some(outcome),
    }
}

#[cfg(test)]
mod tests {
    use tuning::plan::Risk;

    use super::*;

    #[test]
    fn less_than_half_a_percent_has_no_sign() {
        let shown = [-0.001, 0.004, -0.02, 0.126].map(signed_percent);
        assert_eq!(shown, ["0%", "0%", "-2%", "+13%"]);
    }

    #[test]
    fn a_change_that_was_in_force_is_recorded_and_not_tried() {
        let change = |key: &str| PlannedChange {
            end: End::Near,
            key: key.parse().expect("a key"),
            from: Some("1".to_owned()),
            to: "0".to_owned(),
            why: String::new(),
            source: String::new(),
            effect: String::new(),
            predicted_bits_per_s: None,
            risk: Risk::Low,
            danger: String::new(),
        };
        let chosen = vec![change("net.ipv4.tcp_sack"), change("net.ipv4.tcp_timestamps")];
        let in_force = BTreeMap::from([(0, Left::InForce { is_journalled: true })]);
        let trials = Trials {
            source: Source::Given(chosen.clone()),
            spec: TestSpec::tcp(),
            turns: 2,
            asked: String::new(),
            far_refusal: None,
            left: OnceCell::from(in_force),
        };
        let Standing { next, records, kept } = trials.standing(&chosen, &[]);
        assert_eq!(next.map(|next| next.change), Some(1));
        assert!(kept.is_empty(), "it is not known to help");
        let [record] = &records[..] else { panic!("{records:?}") };
        assert_eq!((record.key.as_str(), record.is_kept), ("net.ipv4.tcp_sack", None));
        assert_eq!(record.outcome.as_deref(), Some(IN_FORCE_BEFORE));
        assert!(was_in_force(record));
        assert!(trials.has_journalled(&chosen, End::Near));
        assert!(!trials.has_journalled(&chosen, End::Far));
    }
}
