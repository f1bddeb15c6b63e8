//! Searches that keep less than the states: for finding errors, not for showing that there is none.

use dve::Model;
use statespace::{Kept, LossySearch};

use crate::CheckError;
use crate::observer::Observer;
use crate::options::Options;
use crate::report::{Report, Verdict, lines};
use crate::search::{PORTION, broken_promise, promises};
use crate::watch::Watch;

/// Looks for deadlocks, failed assertions and run-time errors; a violation's run is not the shortest.
pub(crate) fn states(
    model: &Model,
    options: &Options,
    kept: Kept,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let Options { allow_deadlock, bounds, .. } = *options;
    let mut watch = Watch::new(bounds, observer);
    let mut search = LossySearch::new(bounds.system(model), kept);
    let has_assertions = model.has_assertions();
    let mut violation = None;
    let ended = loop {
        let more = search.advance(PORTION, |state, steps| {
            let is_deadlock = steps == 0 && !allow_deadlock;
            violation = broken_promise(model, state, is_deadlock, has_assertions);
            violation.is_none()
        });
        if !more {
            break None;
        }
        if let Some(reason) = watch.look(&search.progress()) {
            break Some(reason);
        }
    };
    let verdict = match (violation, ended) {
        (Some(why), _) => Verdict::Violated { why, run: lines(model, &search.run()), turn: None },
        (None, Some(reason)) => Verdict::Undecided(cut_short(kept, &reason)),
        (None, None) => Verdict::Undecided(nothing_found(
            kept,
            search.missed_states(),
            search.progress().states_count,
        )),
    };
    let what = bounds.what(&promises(allow_deadlock));
    Ok(watch.report(model, what, verdict, search.progress()))
}

fn option(kept: Kept) -> &'static str {
    match kept {
        Kept::Hash => "--hash-compaction",
        Kept::Bits { .. } => "--bitstate",
    }
}

/// The search ended early: why.
pub(crate) fn cut_short(kept: Kept, reason: &str) -> String {
    format!("{reason}; {} may have missed errors", option(kept))
}

/// The search is done, and some states were probably never seen.
pub(crate) fn nothing_found(kept: Kept, missed_states: f64, states_count: u64) -> String {
    let option = option(kept);
    format!(
        "no error found, but {option} may miss errors: some {missed_states:.1e} states of \
         {states_count} were taken for others"
    )
}
