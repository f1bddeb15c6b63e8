//! Two flows beside each other, each with a congestion control and a session of its own.

use std::thread;

use results::{Point, TestSpec};
use sweep::PlannedPoint;

use super::{compare, figures};
use crate::far::FarEnd;
use crate::progress::Progress;
use crate::runner;
use crate::signals;

const FIRST: &str = "cc-pair:";
const SECOND: &str = "cc-beside:";

/// The experiment's name for these two.
pub(super) fn experiment(name: &str, other: &str) -> String {
    format!("{FIRST}{name}+{other}")
}

/// The name under which the second flow's point of such an experiment is stored.
pub(super) fn second(experiment: &str) -> String {
    experiment.replacen(FIRST, SECOND, 1)
}

/// The two of an experiment; `None` for one that is no pair.
pub(super) fn of(experiment: &str) -> Option<(String, String)> {
    let (name, other) = experiment.strip_prefix(FIRST)?.split_once('+')?;
    Some((name.to_owned(), other.to_owned()))
}

/// Runs both flows at once. The second one's point comes first, so that the pair counts as done
/// only when both are on disk.
pub(super) fn measure(
    planned: &PlannedPoint,
    spec: &TestSpec,
    other: &str,
    ends: [&mut FarEnd; 2],
    progress: &mut Progress,
) -> Vec<Point> {
    progress.begin(&format!("{} (repeat {})", planned.experiment, planned.repeat + 1));
    let started_unix_ms = runner::now_unix_ms();
    let theirs = TestSpec { congestion_control: Some(other.to_owned()), ..spec.clone() };
    let [near, beside] = ends;
    let run = |far: &mut FarEnd, spec: &TestSpec| {
        let outcome = far.run_test(spec, &mut |_| {}, &|| signals::caught().is_some());
        figures::checked(spec, outcome)
    };
    let (ours, second_outcome) = thread::scope(|scope| {
        let second = scope.spawn(|| run(beside, &theirs));
        let first = run(near, spec);
        let ended = "the second flow's thread ended early";
        (first, second.join().unwrap_or_else(|_| results::PointOutcome::Failed(ended.to_owned())))
    });
    let name = second(&planned.experiment);
    vec![
        compare::point(planned, &name, &theirs, started_unix_ms, beside, second_outcome),
        compare::point(planned, &planned.experiment, spec, started_unix_ms, near, ours),
    ]
}
