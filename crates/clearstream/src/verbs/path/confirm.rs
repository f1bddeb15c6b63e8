//! The loop that puts the likeliest limit to the test until one stands or none is left.

use explain::{Diagnosis, Judgement};
use results::{Point, Results, Verdict};
use sweep::{Plan, Setting};

use crate::exit::VerbError;
use crate::far::FarEnd;
use crate::progress::Progress;
use crate::runner::{self, Ended};
use crate::store::PointLog;

/// The verdict on `results`, confirmed by experiments of so many repeats; of none, unconfirmed.
///
/// # Errors
/// The peer is gone, or the journal cannot be written.
pub(super) fn verdict(
    results: &Results,
    far: &mut FarEnd,
    repeats: u32,
    points: &mut Vec<Point>,
    log: &mut PointLog,
    progress: &mut Progress,
) -> Result<(Verdict, Ended), VerbError> {
    let mut diagnosis: Diagnosis = explain::diagnose(results);
    if repeats == 0 {
        return Ok((diagnosis.verdict(), Ended::Complete));
    }
    for trial in 0_u32.. {
        let Some((experiment, spec)) = diagnosis.experiment() else { break };
        let name = experiment.point_name();
        let setting = Setting::new(name.as_str(), spec).varying("trial", f64::from(trial));
        let plan = Plan::new(vec![setting], repeats, u64::from(trial));
        progress.extend(plan.remaining(points).len());
        if let interrupted @ Ended::Interrupted(_) = runner::run(&plan, far, points, log, progress)?
        {
            return Ok((diagnosis.verdict(), interrupted));
        }
        let of_trial = |point: &&Point| {
            point.experiment == name && point.varied.get("trial") == Some(&f64::from(trial))
        };
        let measured: Vec<Point> = points.iter().filter(of_trial).cloned().collect();
        match explain::judge(results, &diagnosis, &measured) {
            Judgement { next: Some(next), .. } => diagnosis = next,
            Judgement { verdict, next: None } => return Ok((verdict, Ended::Complete)),
        }
    }
    Ok((diagnosis.verdict(), Ended::Complete))
}
