//! Counterexamples of formulas: a finite run where that suffices, otherwise a lasso.
//!
//! A safety formula is violated by the beginning of a run, whatever follows: from there on, the property process
//! accepts every continuation. The lasso that a search finds then says less than its beginning.

use dve::Model;
use statespace::{Lasso, Progress, Reach};

use crate::options::Bounds;
use crate::report::{Verdict, lines};
use crate::search::PORTION;
use crate::watch::Watch;

/// Why a formula is violated whose counterexample repeats its end.
const LASSO: &str = "the counterexample is an infinite run (lasso)";
/// Why a formula is violated by the beginning of a run.
const FINITE: &str = "the formula can no longer hold";
/// The same where no shortest run was looked for, or the search for one was given up.
const FINITE_PERHAPS_LONG: &str = "the formula can no longer hold (a shorter run may exist)";

/// A shortest run is looked for among this many states, or as many as the search for a violation stored.
const SHORTEST_STATES_MAX: u64 = 1_000_000;

/// The verdict that a lasso shows.
pub(crate) fn of_lasso(model: &Model, lasso: &Lasso) -> Verdict {
    let turn = lasso.prefix.len();
    let mut run = [&lasso.prefix[..], &lasso.cycle].concat();
    // The cycle's first state once more, to show the step that closes it.
    run.extend(lasso.cycle.first().cloned());
    match finite_part(model, run.iter().map(Vec::as_slice)) {
        Some(count) => finite(model, &run[..count], FINITE_PERHAPS_LONG),
        None => {
            let why = LASSO.to_owned();
            Verdict::Violated { why, run: lines(model, &run), cycle_start: Some(turn) }
        }
    }
}

/// As [`of_lasso`]; a finite counterexample is a shortest one, unless finding it takes too much.
pub(crate) fn shortest(
    model: &Model,
    lasso: &Lasso,
    bounds: Bounds,
    (watch, progress): (&Watch<'_>, &Progress),
) -> Verdict {
    let states = lasso.prefix.iter().chain(&lasso.cycle).map(Vec::as_slice);
    if finite_part(model, states).is_none() {
        return of_lasso(model, lasso);
    }
    match shortest_way(model, bounds, watch, progress) {
        Some(way) => finite(model, &way[..way.len().saturating_sub(1).max(1)], FINITE),
        None => of_lasso(model, lasso),
    }
}

/// How many states of a run suffice to violate the formula: all that the property process has read when it accepts
/// whatever follows. `None` if no beginning of the run suffices.
pub(crate) fn finite_part<'s>(
    model: &Model,
    mut states: impl Iterator<Item = &'s [u8]>,
) -> Option<usize> {
    states.position(|state| model.accepts_all(state)).map(|count| count.max(1))
}

/// Why a run violates the formula that [`finite_part`] cut.
pub(crate) fn why_finite() -> String {
    FINITE_PERHAPS_LONG.to_owned()
}

fn finite(model: &Model, run: &[Vec<u8>], why: &str) -> Verdict {
    Verdict::Violated { why: why.to_owned(), run: lines(model, run), cycle_start: None }
}

/// The states of a shortest run to one from which the property process accepts everything; `None` if the bounds or
/// the number of states end the search before it finds one.
fn shortest_way(
    model: &Model,
    bounds: Bounds,
    watch: &Watch<'_>,
    so_far: &Progress,
) -> Option<Vec<Vec<u8>>> {
    let mut search = Reach::new(bounds.system(model)).ok()?;
    let states_max = so_far.states_count.max(SHORTEST_STATES_MAX);
    let mut found = None;
    while found.is_none() {
        let progress = search.progress();
        let used_bytes = so_far.memory_bytes + progress.memory_bytes;
        if progress.states_count > states_max || watch.reason(used_bytes as u64).is_some() {
            return None;
        }
        let more = search.advance(PORTION, |id, state, _steps| {
            if model.accepts_all(state) {
                found = Some(id);
            }
            found.is_none()
        });
        if !more.ok()? && found.is_none() {
            return None;
        }
    }
    found.map(|id| search.way_to(id))
}
