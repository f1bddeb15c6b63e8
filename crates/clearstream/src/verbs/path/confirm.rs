//! The experiments that put the likeliest limit to the test until one stands or none is left.

use explain::{Diagnosis, Judgement};
use results::{Point, Results, Verdict};
use sweep::{Plan, Setting};

/// What the points of an experiment are called.
pub(super) const EXPERIMENTS: &str = results::CONFIRMATION;

/// Where the search for the binding limit stands.
pub(super) struct Standing {
    /// The verdict so far.
    pub(super) verdict: Verdict,
    /// The trial that is not done; `None` when nothing is left to try.
    pub(super) next: Option<Plan>,
}

/// Judges one trial of so many repeats after the other, as long as they are done; of no repeats, none.
///
/// `results` has no points of trials, `points` has all.
pub(super) fn standing(
    results: &Results,
    repeats: u32,
    points: &[Point],
    is_done: impl Fn(u32, &Plan) -> bool,
) -> Standing {
    let mut diagnosis: Diagnosis = explain::diagnose(results);
    for trial in 0_u32.. {
        let Some((experiment, spec)) = diagnosis.experiment().filter(|_| repeats > 0) else {
            break;
        };
        let name = experiment.point_name();
        let setting = Setting::new(name.as_str(), spec).varying("trial", f64::from(trial));
        let plan = Plan::new(vec![setting], repeats, u64::from(trial));
        if !is_done(trial, &plan) {
            return Standing { verdict: diagnosis.verdict(), next: Some(plan) };
        }
        let of_trial = |point: &&Point| {
            point.experiment == name && point.varied.get("trial") == Some(&f64::from(trial))
        };
        let measured: Vec<Point> = points.iter().filter(of_trial).cloned().collect();
        match explain::judge(results, &diagnosis, &measured) {
            Judgement { next: Some(next), .. } => diagnosis = next,
            Judgement { verdict, next: None } => return Standing { verdict, next: None },
        }
    }
    Standing { verdict: diagnosis.verdict(), next: None }
}
