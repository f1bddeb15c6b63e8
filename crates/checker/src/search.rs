//! Searching a model by one rank, in portions.

use dve::Model;
use statespace::{CycleSearch, Found};

use crate::checkpoint::CheckpointFiles;
use crate::observer::Observer;
use crate::options::{Bounds, Options};
use crate::report::{Report, Unreachable, Verdict, failing, lines};
use crate::watch::{Watch, too_much};
use crate::{CheckError, counterexample};

/// States and edges between two looks at the clock.
pub(crate) const PORTION: usize = 20_000;

/// Looks for deadlocks, failed assertions and run-time errors; a violation's run is the shortest.
pub(crate) fn states(
    model: &Model,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let Options { allow_deadlock, is_full, bounds, .. } = *options;
    let mut keep = CheckpointFiles::new(model, options);
    let mut watch = Watch::new(bounds, observer);
    let mut search = keep.begin(model, options)?;
    if let Some(bytes) = bounds.memory_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        search.limit_memory(bytes.saturating_sub(search.progress().memory_bytes));
    }
    let has_assertions = model.has_assertions();
    let mut violation = None;
    let ended = loop {
        if let Some(reason) = watch.look(&search.progress()) {
            break Some(reason);
        }
        let more = search.advance(PORTION, |id, state, steps| {
            if violation.is_none() {
                let why =
                    violated_property(model, state, steps == 0 && !allow_deadlock, has_assertions);
                violation = why.map(|why| (id, why));
            }
            is_full || violation.is_none()
        });
        match more {
            Ok(false) => break None,
            Ok(true) => {}
            Err(_full) if bounds.memory_bytes.is_some() => {
                let used_bytes = search.progress().memory_bytes as u64;
                break Some(too_much(used_bytes, bounds.memory_bytes));
            }
            Err(_full) => return Err(CheckError::TooManyStates),
        }
        keep.now_and_then(&search, watch.observer())?;
    };
    if ended.is_some() && violation.is_none() {
        keep.save(&search, watch.observer())?;
    }
    let (progress, elapsed) = (search.progress(), watch.elapsed());
    // A search that stopped at a violation has successors that are neither stored nor queued.
    let is_whole = ended.is_none() && (is_full || violation.is_none()) && !bounds.is_reduced;
    let unreachable = is_whole.then(|| Unreachable::of(model, search.system().taken()));
    let verdict = match (violation, ended) {
        (Some((id, why)), _) => {
            Verdict::Violated { why, run: lines(model, &search.way_to(id)), cycle_start: None }
        }
        (None, Some(reason)) => Verdict::Undecided(reason),
        (None, None) => Verdict::Holds,
    };
    let what = bounds.what(&properties(allow_deadlock));
    Ok(Report { elapsed, unreachable, ..watch.report(model, what, verdict, progress) })
}

/// The properties that are checked of every state, in words.
pub(crate) fn properties(allow_deadlock: bool) -> String {
    let deadlocks = if allow_deadlock { "" } else { "deadlocks, " };
    format!("absence of {deadlocks}failed assertions and run-time errors")
}

/// Looks for an infinite run that the property process accepts.
pub(crate) fn cycles(
    model: &Model,
    what: &str,
    bounds: Bounds,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let mut watch = Watch::new(bounds, observer);
    let mut search =
        CycleSearch::new(bounds.system(model)).map_err(|_full| CheckError::TooManyStates)?;
    let verdict = loop {
        if let Some(reason) = watch.look(&search.progress()) {
            break Verdict::Undecided(reason);
        }
        match search.advance(PORTION).map_err(|_full| CheckError::TooManyStates)? {
            Found::NoCycle => break Verdict::Holds,
            Found::Cycle(lasso) => {
                let so_far = (&watch, &search.progress());
                break counterexample::shortest(model, &lasso, bounds, so_far);
            }
            Found::More => {}
        }
    };
    let failing = failing(model, search.system().taken());
    let what = bounds.what(what);
    Ok(Report { failing, ..watch.report(model, what, verdict, search.progress()) })
}

pub(crate) fn violated_property(
    model: &Model,
    state: &[u8],
    is_deadlock: bool,
    has_assertions: bool,
) -> Option<String> {
    if model.is_error(state) {
        return Some("run-time error in the last transition".to_owned());
    }
    if has_assertions && let Some(failed) = model.violated_assertions(state).first() {
        return Some(failed.to_string());
    }
    is_deadlock.then(|| "deadlock: no transition is enabled".to_owned())
}
