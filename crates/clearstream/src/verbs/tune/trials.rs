//! Each change with and without, in turns: the experiment that `tune apply --measure` is.

use results::{AppliedChange, End, Estimate, Point, PointOutcome, Results, TestSpec};
use sweep::{Experiment, Plan, Setting};
use tuning::plan::PlannedChange;
use units::show_bit_rate;

use super::evidence::Evidence;

/// A gain below this is no gain, whatever the spread: the rule of the verdict's experiments.
const GAIN_MIN: f64 = 1.04;

/// Rounds through the changes: one that does nothing alone may help once another is there.
const ROUNDS_MAX: u32 = 2;

/// What the points of a trial are called.
pub(super) const WITH: &str = "tune-with";
const WITHOUT: &str = "tune-without";

/// What a point of a trial varies: the change's number in the plan, and the round through all.
pub(super) const CHANGE: &str = "change";
const ROUND: &str = "round";

/// Changes to try and how.
pub(super) struct Trials<'a> {
    pub(super) source: Source<'a>,
    /// The test of every turn.
    pub(super) spec: TestSpec,
    /// Turns of each change.
    pub(super) turns: u32,
    /// What was asked for beside the tests: another wish is another run.
    pub(super) asked: String,
    /// Why the far host's changes cannot be made, where they cannot.
    pub(super) far_refusal: Option<String>,
}

/// Where the changes come from.
pub(super) enum Source<'a> {
    /// Tests made first: from the evidence follow the changes, of which some are chosen.
    Tests(Box<Evidence>, Choice<'a>),
    /// A file.
    Given(Vec<PlannedChange>),
}

/// Chooses among the changes of a plan.
pub(super) type Choice<'a> = &'a dyn Fn(&tuning::plan::Plan) -> Vec<PlannedChange>;

/// How the trials stand.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Numbers of the changes that helped.
    pub(super) kept: Vec<usize>,
    /// The change that is to be tried next, or further.
    pub(super) next: Option<Next>,
    pub(super) records: Vec<AppliedChange>,
}

/// A turn that is to be made.
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
        // Once a change was made, the tests that ask for it would no longer be the same.
        if !so_far.points.iter().any(is_of_trial)
            && let Source::Tests(evidence, _) = &self.source
            && let Some(plan) = evidence.round(number, so_far)
        {
            return Some(plan);
        }
        let next = self.standing(&self.chosen(so_far), &so_far.points).next?;
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
        results.changes = self.standing(&self.chosen(results), &results.points).records;
    }
}

impl Trials<'_> {
    /// The changes that are wanted, as the evidence so far asks for them.
    pub(super) fn chosen(&self, so_far: &Results) -> Vec<PlannedChange> {
        match &self.source {
            Source::Given(changes) => changes.clone(),
            Source::Tests(_, choose) => choose(&self.plan(so_far)),
        }
    }

    /// The plan that the evidence so far asks for.
    pub(super) fn plan(&self, so_far: &Results) -> tuning::plan::Plan {
        tuning::plan::plan(&without_trials(so_far))
    }

    /// Where the trials of these changes stand after these points.
    pub(super) fn standing(&self, chosen: &[PlannedChange], points: &[Point]) -> Standing {
        let mut standing = Standing::default();
        let mut records: Vec<Option<AppliedChange>> = vec![None; chosen.len()];
        let mut open = Vec::new();
        for (number, change) in chosen.iter().enumerate() {
            match self.far_refusal.as_ref().filter(|_| change.end == End::Far) {
                Some(why) => records[number] = Some(by_hand(change, why)),
                None => open.push(number),
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

    /// The first turn of which something is missing; `None` when the trial is over: all turns were
    /// made, or the change was not measured in force in any so far.
    fn next_turn(&self, turns: u32) -> Option<u32> {
        let was_tried = |points: &[&Point], turn: u32| points.iter().any(|one| one.repeat == turn);
        let next = (0..turns)
            .find(|turn| !(was_tried(&self.with, *turn) && was_tried(&self.without, *turn)));
        let was_in_force = self.with.iter().any(|point| point.measured().is_some());
        next.filter(|turn| *turn == 0 || was_in_force)
    }

    /// What came of it, and whether it helped; `None` where it could not be measured.
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

/// Whether a point is of a trial, and not of the evidence before.
pub(super) fn is_of_trial(point: &Point) -> bool {
    point.experiment == WITH || point.experiment == WITHOUT
}

fn without_trials(so_far: &Results) -> Results {
    let mut base = so_far.clone();
    base.points.retain(|point| !is_of_trial(point));
    base.summaries = sweep::summarise(&base.points);
    base
}

fn estimate(points: &[&Point]) -> Option<Estimate> {
    let rate = |point: &&Point| Some(point.measured()?.directions.first()?.received_bits_per_s);
    Estimate::of(&points.iter().filter_map(rate).collect::<Vec<f64>>())
}

/// Whether it helped beyond the noise: the ranges do not touch and the medians are apart.
fn judge(before: &Estimate, after: &Estimate, predicted: Option<f64>) -> (bool, String) {
    let gain = after.median / before.median.max(f64::MIN_POSITIVE);
    let helped = after.low > before.high && gain >= GAIN_MIN;
    let figures = format!(
        "{} -> {} ({:+.0}%)",
        show_bit_rate(before.median),
        show_bit_rate(after.median),
        (gain - 1.0) * 100.0
    );
    if !helped {
        return (false, format!("{figures}: not beyond the noise; taken back"));
    }
    let beside = predicted.map_or_else(String::new, |predicted| {
        let off = (after.median / predicted - 1.0) * 100.0;
        format!("; predicted {} ({off:+.0}%)", show_bit_rate(predicted))
    });
    (true, format!("{figures}{beside}; kept"))
}

fn by_hand(change: &PlannedChange, why: &str) -> AppliedChange {
    let text = format!("{why}; by hand on the far host: {}", change.command());
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
