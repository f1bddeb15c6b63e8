//! What is asked of a model.

use std::path::PathBuf;
use std::time::Duration;

use dve::Model;
use statespace::{Fairness, LossyStorage};

use crate::{CheckError, ModelSystem};

/// How to search, and for what besides formulas. By default for deadlocks, failed assertions and run-time errors, up
/// to the first violation, without bounds.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Check formulas on fair runs only.
    pub fairness: Option<Fairness>,
    /// Deadlocks are not violations.
    pub allow_deadlock: bool,
    /// The search goes on after a violation, for unreachable code.
    pub is_full: bool,
    /// Store states lossily.
    pub kept: Option<LossyStorage>,
    /// An undecided search is written here, and a long one every 10 minutes.
    pub checkpoint: Option<PathBuf>,
    /// The search in this file is resumed.
    pub resume: Option<PathBuf>,
    /// When to give up, and what may be left out.
    pub bounds: Bounds,
}

/// When to give up, and what may be left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// The search ends undecided when its states take more, bytes.
    pub memory_bytes: Option<u64>,
    /// The search ends undecided after this long.
    pub time: Option<Duration>,
    /// Steps that make no difference are left out.
    pub is_reduced: bool,
}

impl Bounds {
    /// What is searched.
    pub(crate) fn system(self, model: &Model) -> ModelSystem<'_> {
        if self.is_reduced { ModelSystem::reduced(model) } else { ModelSystem::new(model) }
    }

    /// What is checked, in words.
    pub(crate) fn what(self, what: &str) -> String {
        let reduced = if self.is_reduced { " (reduced search)" } else { "" };
        format!("{what}{reduced}")
    }
}

impl Options {
    /// Rejects options that do not go together, or do not fit the model. `has_formulas` tells whether
    /// formulas are asked for beside the model's own property process.
    ///
    /// # Errors
    /// [`CheckError::Options`].
    pub fn validate(&self, model: &Model, has_formulas: bool) -> Result<(), CheckError> {
        let is_lossy = self.kept.is_some();
        let has_formula = has_formulas || model.has_property();
        let refuse = |why| Err(CheckError::Options(why));
        if self.fairness.is_some() && !has_formula {
            return refuse(
                "--fairness restricts the runs that a formula is about: it needs --ltl or a property process",
            );
        }
        if has_formulas && model.has_property() {
            return refuse("--ltl cannot be used with a model that has a property process");
        }
        let is_checkpointed = self.checkpoint.is_some() || self.resume.is_some();
        if is_checkpointed && (has_formula || is_lossy) {
            return refuse(
                "--checkpoint and --resume cannot be combined with a formula, --hash-compaction or \
                 --bitstate",
            );
        }
        if self.bounds.is_reduced && model.has_property() {
            return refuse(
                "--reduce cannot be used with a property process: it may count transitions",
            );
        }
        if is_lossy && has_formula {
            return refuse(
                "--hash-compaction and --bitstate cannot check a formula or a property process",
            );
        }
        if let (Some(LossyStorage::Bitstate { table_bytes }), Some(memory)) =
            (self.kept, self.bounds.memory_bytes)
            && table_bytes as u64 > memory
        {
            return refuse("the table of --bitstate is larger than --memory allows");
        }
        Ok(())
    }
}
