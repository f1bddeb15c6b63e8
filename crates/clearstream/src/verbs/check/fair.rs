//! Runs that leave no process out.

use checker::{ModelSystem, actors};
use dve::{Model, Steps};
use statespace::{Actors, FairFound, FairLasso, FairSearch};

use super::Fairness;
use super::search::{Bounds, Line, PORTION, Report, Verdict, Watch, too_many};
use crate::exit::VerbError;

/// Looks for a fair run that the property process accepts for ever.
pub(super) fn cycles(
    model: &Model,
    what: &str,
    fairness: Fairness,
    bounds: Bounds,
) -> Result<Report, VerbError> {
    let (fairness, word) = match fairness {
        Fairness::Weak => (statespace::Fairness::Weak, "weakly"),
        Fairness::Strong => (statespace::Fairness::Strong, "strongly"),
    };
    let mut watch = Watch::new(bounds);
    let mut search =
        FairSearch::new(ModelSystem::new(model), fairness).map_err(|_full| too_many())?;
    let verdict = loop {
        match search.advance(PORTION).map_err(|_full| too_many())? {
            FairFound::NoCycle => break Verdict::Holds,
            FairFound::Cycle(found) => {
                let why = format!("a {word} fair run violates it for ever");
                let turn = Some(found.lasso.prefix.len());
                break Verdict::Violated { why, run: lines(model, &found), turn };
            }
            FairFound::More => {}
        }
        if let Some(reason) = watch.look(&search.progress())? {
            break Verdict::Undecided(reason);
        }
    };
    Ok(Report {
        what: format!("{what} ({word} fair runs)"),
        verdict,
        progress: search.progress(),
        state_bytes: model.state_bytes(),
        elapsed: watch.elapsed(),
        over_time: watch.over_time(&search.progress()),
        unreachable: None,
        ranks: None,
    })
}

/// The run, its steps taken by whom the search says; the cycle's first state comes once more.
fn lines(model: &Model, found: &FairLasso) -> Vec<Line> {
    let FairLasso { lasso, actors: who } = found;
    let states: Vec<&Vec<u8>> =
        lasso.prefix.iter().chain(&lasso.cycle).chain(lasso.cycle.first()).collect();
    let mut steps = Steps::new(model);
    let mut lines = Vec::new();
    for (number, state) in states.iter().enumerate() {
        let step = number.checked_sub(1).and_then(|before| {
            let wanted: Actors = who[before];
            let mut found = None;
            steps.each(states[before], |step, next| {
                if next == state.as_slice() && actors(model, &step) == wanted {
                    found.get_or_insert(step);
                }
            });
            found
        });
        lines.push(Line::new(model, step.as_ref(), state));
    }
    lines
}
