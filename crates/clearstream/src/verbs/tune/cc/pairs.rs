//! Two concurrent flows, each with its own congestion control and its own session.

use std::thread;

use sweep::PlannedPoint;

use super::figures;
use crate::exit::VerbError;
use crate::far::Tests;
use crate::runner::{self, Done};

const FIRST: &str = "cc-pair:";
const SECOND: &str = "cc-beside:";

/// Experiment name of a pair.
pub(super) fn experiment(name: &str, other: &str) -> String {
    format!("{FIRST}{name}+{other}")
}

/// Experiment name under which the second flow's point of a pair is stored.
pub(super) fn second(experiment: &str) -> String {
    experiment.replacen(FIRST, SECOND, 1)
}

/// The congestion controls of a pair; `None` if the experiment is not a pair.
pub(super) fn of(experiment: &str) -> Option<(String, String)> {
    let (name, other) = experiment.strip_prefix(FIRST)?.split_once('+')?;
    Some((name.to_owned(), other.to_owned()))
}

/// Runs both flows at once. The second flow's point is stored first, so that the pair counts as done
/// only once both are on disk.
pub(super) fn measure(
    planned: &PlannedPoint,
    other: &str,
    [near, beside]: [&mut dyn Tests; 2],
) -> Done {
    let mut theirs = PlannedPoint { experiment: second(&planned.experiment), ..planned.clone() };
    if let Some(spec) = theirs.work.test_mut() {
        spec.congestion_control = Some(other.to_owned());
    }
    let theirs = &theirs;
    let (mut ours, second) = thread::scope(|scope| {
        let second = scope.spawn(|| figures::checked(runner::test(theirs, beside, &mut |_| {})));
        let first = figures::checked(runner::test(planned, near, &mut |_| {}));
        let ended = || VerbError::failed("the second flow's thread ended early");
        let lost = |_panic| Done::failed(theirs, runner::now_unix_ms(), ended());
        (first, second.join().unwrap_or_else(lost))
    });
    ours.beside.push(second.point);
    ours
}
