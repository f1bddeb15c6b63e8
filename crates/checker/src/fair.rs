//! Runs that leave no process out.

use dve::{Model, Steps};
use statespace::{Actors, FairFound, FairSearch, Fairness, Lasso};

use crate::counterexample::{finite_part, why_finite};
use crate::observer::Observer;
use crate::options::Bounds;
use crate::report::{Report, TraceState, Verdict, failing};
use crate::search::PORTION;
use crate::watch::Watch;
use crate::{CheckError, ModelSystem, actors};

/// Looks for a fair infinite run that the property process accepts.
pub(crate) fn cycles(
    model: &Model,
    what: &str,
    fairness: Fairness,
    bounds: Bounds,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let mut watch = Watch::new(bounds, observer);
    let mut search = FairSearch::new(ModelSystem::new(model), fairness)
        .map_err(|_full| CheckError::TooManyStates)?;
    let verdict = loop {
        if let Some(reason) = watch.look(&search.progress()) {
            break Verdict::Undecided(reason);
        }
        match search.advance(PORTION).map_err(|_full| CheckError::TooManyStates)? {
            FairFound::NoCycle => break Verdict::Holds,
            FairFound::Cycle(found) => {
                break violated(model, &found.lasso, &found.actors, fairness);
            }
            FairFound::More => {}
        }
    };
    let failing = failing(model, search.system().taken());
    let what = self::what(what, fairness);
    Ok(Report { failing, ..watch.report(model, what, verdict, search.progress()) })
}

fn word(fairness: Fairness) -> &'static str {
    match fairness {
        Fairness::Weak => "weakly",
        Fairness::Strong => "strongly",
    }
}

/// What is checked, in words.
pub(crate) fn what(what: &str, fairness: Fairness) -> String {
    format!("{what} (on {} fair runs)", word(fairness))
}

/// The verdict that a fair run shows. Every finite run can go on fairly, so the beginning of this one is enough
/// where it violates the formula.
pub(crate) fn violated(
    model: &Model,
    lasso: &Lasso,
    who: &[Actors],
    fairness: Fairness,
) -> Verdict {
    let mut run = lines(model, lasso, who);
    let states = lasso.prefix.iter().chain(&lasso.cycle).map(Vec::as_slice);
    if let Some(count) = finite_part(model, states) {
        run.truncate(count);
        return Verdict::Violated { why: why_finite(), run, cycle_start: None };
    }
    let why = format!("the counterexample is a {} fair infinite run (lasso)", word(fairness));
    Verdict::Violated { why, run, cycle_start: Some(lasso.prefix.len()) }
}

/// The run, its last steps taken by whom the search says, those before by any that can; the cycle's
/// first state comes once more.
fn lines(model: &Model, lasso: &Lasso, who: &[Actors]) -> Vec<TraceState> {
    let states: Vec<&Vec<u8>> =
        lasso.prefix.iter().chain(&lasso.cycle).chain(lasso.cycle.first()).collect();
    let told_from = states.len().saturating_sub(1 + who.len());
    let mut steps = Steps::new(model);
    let mut lines = Vec::new();
    for (number, state) in states.iter().enumerate() {
        let step = number.checked_sub(1).and_then(|before| {
            let wanted = before.checked_sub(told_from).map(|place| who[place]);
            let mut found = None;
            steps.each(states[before], |step, next| {
                let is_who = wanted.is_none_or(|wanted| actors(model, &step) == wanted);
                if next == state.as_slice() && is_who {
                    found.get_or_insert(step);
                }
            });
            found
        });
        lines.push(TraceState::new(model, step.as_ref(), state));
    }
    lines
}
