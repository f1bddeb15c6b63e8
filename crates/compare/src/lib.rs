//! Results held against something: against requirements ([`Gate`]), or against other results
//! ([`compare`]).
//!
//! A comparison reduces each results document to a [`Run`], matches what was asked of whom, and tells for
//! each figure by how much the second side differs from the first, with an interval that assumes no
//! distribution, and whether that is more than noise: by ranks, or, where the values are too few for ranks, by a spread
//! that is never taken as smaller than that of all such figures. Over all figures compared, at most 5% of the
//! differences told are there by chance on average ([`FALSE_SHARE_MAX`]). Tests that were asked for with other
//! settings are paired where that is unambiguous, and told apart from those that were asked for alike.

mod better;
mod comparison;
mod facts;
mod gate;
mod quantity;
mod run;
mod words;

pub use better::Better;
pub use comparison::{
    ComparedFigure, Comparison, Counted, FALSE_SHARE_MAX, HostChange, JudgedBy, OneSided, Outcome,
    SettingChange, Side, WhyAlone, compare,
};
pub use gate::{Gate, GateError, GatedVerb, Judged};
pub use quantity::Quantity;
pub use run::Run;
pub use words::{figure_words, phase_name};
