//! Options that do not go together, and what is kept of a state by those that do.

use dve::Model;
use statespace::Kept;

use super::CheckArgs;
use crate::exit::VerbError;

/// What to keep of a state, where it is not all.
pub(super) fn kept(args: &CheckArgs) -> Option<Kept> {
    match args.bitstate {
        Some(bytes) => {
            Some(Kept::Bits { table_bytes: usize::try_from(bytes).unwrap_or(usize::MAX) })
        }
        None => args.hash_compaction.then_some(Kept::Hash),
    }
}

/// Says no to options that do not go together.
pub(super) fn refuse(args: &CheckArgs, model: &Model) -> Result<(), VerbError> {
    let is_lossy = kept(args).is_some();
    let has_formula = args.ltl.is_some() || model.has_property();
    if args.fairness.is_some() && !has_formula {
        let text = "--fairness is of runs: it needs --ltl or a property process";
        return Err(VerbError::usage(text));
    }
    let is_kept = args.checkpoint.is_some() || args.resume.is_some();
    if is_kept && (has_formula || is_lossy) {
        let text = "--checkpoint and --resume are for a search for deadlocks and errors that keeps \
                    whole states";
        return Err(VerbError::usage(text));
    }
    if args.reduce && model.has_property() {
        let text = "--reduce is for formulas without X: the model's property may count steps";
        return Err(VerbError::usage(text));
    }
    if is_lossy && has_formula {
        let text = "--hash-compaction and --bitstate are for models without a property";
        return Err(VerbError::usage(text));
    }
    if let (Some(table), Some(memory)) = (args.bitstate, args.memory)
        && table > memory
    {
        return Err(VerbError::usage("the table of --bitstate is larger than --memory allows"));
    }
    Ok(())
}
