//! The experiments on the likeliest limits, until one is confirmed or none is left.

use explain::{Diagnosis, Judgement};
use results::{Point, Results, Verdict};
use sweep::{Plan, Setting};

/// Prefix of the experiment names.
pub(super) const EXPERIMENTS: &str = results::CONFIRMATION;

/// State of the search for the binding limit.
pub(super) struct Standing {
    /// The verdict so far.
    pub(super) verdict: Verdict,
    /// The next experiment that is incomplete; `None` if nothing is left to try.
    pub(super) next: Option<Plan>,
}

/// Judges the experiments in order, up to the first incomplete one; each has `repeats` repeats, and with 0
/// there are none.
///
/// `results` contains no points of experiments, `points` contains all points.
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
        // Each point holds what was predicted before it was measured.
        let registered = experiment.registration().into_iter();
        let setting = registered.fold(setting, |setting, (what, rate)| setting.varying(what, rate));
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
