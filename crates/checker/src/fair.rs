//! Runs that leave no process out.

use dve::{Model, Steps};
use statespace::{Actors, FairFound, FairSearch, Fairness, Lasso};

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
                let cycle_start = Some(found.lasso.prefix.len());
                let run = lines(model, &found.lasso, &found.actors);
                break Verdict::Violated { why: why(fairness), run, cycle_start };
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

/// Why it does not hold.
pub(crate) fn why(fairness: Fairness) -> String {
    format!("the counterexample is a {} fair infinite run (lasso)", word(fairness))
}

/// The run, its last steps taken by whom the search says, those before by any that can; the cycle's
/// first state comes once more.
pub(crate) fn lines(model: &Model, lasso: &Lasso, who: &[Actors]) -> Vec<TraceState> {
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
