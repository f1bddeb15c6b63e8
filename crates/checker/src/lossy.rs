//! Searches that keep less than the states: for finding errors, not for showing that there is none.

use dve::Model;
use statespace::{LossySearch, LossyStorage};

use crate::CheckError;
use crate::observer::Observer;
use crate::options::Options;
use crate::report::{Report, Verdict, lines};
use crate::search::{PORTION, properties, violated_property};
use crate::watch::Watch;

/// Looks for deadlocks, failed assertions and run-time errors; a violation's run is not the shortest.
pub(crate) fn states(
    model: &Model,
    options: &Options,
    kept: LossyStorage,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let Options { allow_deadlock, bounds, .. } = *options;
    let mut watch = Watch::new(bounds, observer);
    let mut search = LossySearch::new(bounds.system(model), kept);
    let has_assertions = model.has_assertions();
    let mut violation = None;
    let ended = loop {
        if let Some(reason) = watch.look(&search.progress()) {
            break Some(reason);
        }
        let more = search.advance(PORTION, |state, steps| {
            let is_deadlock = steps == 0 && !allow_deadlock;
            violation = violated_property(model, state, is_deadlock, has_assertions);
            violation.is_none()
        });
        if !more {
            break None;
        }
    };
    let verdict = match (violation, ended) {
        (Some(why), _) => {
            Verdict::Violated { why, run: lines(model, &search.run()), cycle_start: None }
        }
        (None, Some(reason)) => Verdict::Undecided(cut_short(kept, &reason)),
        (None, None) => Verdict::Undecided(nothing_found(
            kept,
            search.missed_states(),
            search.progress().states_count,
        )),
    };
    let what = bounds.what(&properties(allow_deadlock));
    Ok(watch.report(model, what, verdict, search.progress()))
}

fn option(kept: LossyStorage) -> &'static str {
    match kept {
        LossyStorage::HashCompaction => "--hash-compaction",
        LossyStorage::Bitstate { .. } => "--bitstate",
    }
}

/// The search ended early: why.
pub(crate) fn cut_short(kept: LossyStorage, reason: &str) -> String {
    format!("{reason}; {} may have missed errors", option(kept))
}

/// The search is done, and some states were probably never seen.
pub(crate) fn nothing_found(kept: LossyStorage, missed_states: f64, states_count: u64) -> String {
    let option = option(kept);
    format!(
        "no error found, but {option} may miss errors: an estimated {missed_states:.1e} of \
         {states_count} states were mistaken for others"
    )
}
