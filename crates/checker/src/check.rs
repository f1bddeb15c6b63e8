//! The one call: a model and what is asked of it, searched by one or many ranks.

use dve::Model;
use statespace::partition::Goal;

use crate::checkpoint::CheckpointFiles;
use crate::formulas::Formulas;
use crate::observer::Observer;
use crate::options::Options;
use crate::ranks::{Files, Ranks, Task};
use crate::report::Report;
use crate::{CheckError, fair, lossy, search};

/// Checks a model: for the formulas, else for its property process, else for deadlocks, failed
/// assertions and run-time errors. A report for each property, in order. For the caller that
/// [leads](Ranks::leads).
///
/// # Errors
/// Options or formulas do not fit the model; a checkpoint cannot be read or written; there are more
/// states than can be numbered. A search that is cut short, or whose ranks lose each other, is no error:
/// its verdict is undecided.
pub fn check(
    model: &Model,
    formulas: Option<&Formulas>,
    options: &Options,
    ranks: &mut Ranks,
    observer: &mut dyn Observer,
) -> Result<Vec<Report>, CheckError> {
    options.validate(model, formulas.is_some())?;
    let Some(formulas) = formulas else {
        let report = if options.kept.is_none() && model.has_property() {
            cycles(model, "the property process", options, ranks, observer)
        } else {
            states(model, options, ranks, observer)
        };
        return Ok(vec![report?]);
    };
    let mut reports = Vec::new();
    for (label, formula) in formulas.each() {
        for warning in formulas.warnings(formula) {
            observer.warn(&warning);
        }
        if options.bounds.is_reduced && formula.has_next() {
            let text = format!("{label}: --reduce does not preserve formulas with X; leave it out");
            return Err(CheckError::Formula(text));
        }
        let product = formulas.product(model, formula)?;
        reports.push(cycles(&product, label, options, ranks, observer)?);
    }
    Ok(reports)
}

/// Looks for deadlocks, failed assertions and run-time errors.
fn states(
    model: &Model,
    options: &Options,
    ranks: &mut Ranks,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let Options { allow_deadlock, bounds, kept, .. } = *options;
    let what = &search::properties(allow_deadlock);
    let aim = Goal::BadState { is_full: options.is_full && kept.is_none() };
    let (mut files, fairness) = (Files::default(), None);
    let many = match (ranks, kept) {
        (Ranks::One, Some(kept)) => return lossy::states(model, options, kept, observer),
        (Ranks::One, None) => return search::states(model, options, observer),
        (Ranks::Many(many), _) => many,
    };
    let is_checkpointed = options.checkpoint.is_some() || options.resume.is_some();
    if is_checkpointed {
        files =
            Files::new(CheckpointFiles::new(model, options), options.is_full, many.ranks_count())?;
    }
    let task = Task { aim, allow_deadlock, what, bounds, kept, files: &files, fairness };
    if many.has_messages() || kept.is_some() || is_checkpointed {
        many.search(model, &task, observer)
    } else {
        many.search_shared(model, &task, observer)
    }
}

/// Looks for a run that the property process accepts forever.
fn cycles(
    model: &Model,
    what: &str,
    options: &Options,
    ranks: &mut Ranks,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let Options { bounds, fairness, .. } = *options;
    let many = match (ranks, fairness) {
        (Ranks::One, None) => return search::cycles(model, what, bounds, observer),
        (Ranks::One, Some(kind)) => return fair::cycles(model, what, kind, bounds, observer),
        (Ranks::Many(many), _) => many,
    };
    let (aim, files) =
        (fairness.map_or(Goal::AcceptingCycle, |_| Goal::FairCycle), &Files::default());
    let what = &fairness.map_or_else(|| what.to_owned(), |kind| fair::what(what, kind));
    let task = Task { aim, allow_deadlock: true, what, bounds, kept: None, files, fairness };
    many.search(model, &task, observer)
}
