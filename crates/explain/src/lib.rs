//! Derives the verdict from results: which limit binds, the evidence, and the experiment that would prove it.
//!
//! [`diagnose`] weighs every limit of the documented list (`docs/limits.md`) against what the
//! points of a document show, each on its own mechanism. The best explanation comes with an
//! [`Experiment`]: one [`Change`] to the judged test, and its predicted outcome. The caller runs it
//! and passes the points to [`judge`]; if they refute the explanation, the next one is tried:
//!
//! ```no_run
//! # fn run(_: &explain::Experiment, _: results::TestSpec) -> Vec<results::Point> { vec![] }
//! # fn verdict(results: &results::Results) -> results::Verdict {
//! let mut diagnosis = explain::diagnose(results);
//! while let Some((experiment, spec)) = diagnosis.experiment() {
//!     let points = run(experiment, spec); // as points named `experiment.point_name()`
//!     match explain::judge(results, &diagnosis, &points) {
//!         explain::Judgement { next: Some(next), .. } => diagnosis = next,
//!         explain::Judgement { verdict, next: None } => return verdict,
//!     }
//! }
//! diagnosis.verdict()
//! # }
//! ```
//!
//! Pure: no I/O, no clock. Any document that the schema admits gives a verdict; absurd figures (NaN,
//! negative, infinite) are treated as absent.

#![forbid(unsafe_code)]

mod advice;
mod buffers;
mod ceiling;
mod ceilings;
mod change;
mod datagrams;
mod diagnosis;
mod experiment;
mod files;
mod host_change;
mod judgement;
mod limits;
mod load_change;
mod mechanism;
mod numbers;
mod observed;
mod pages;
mod recording;
mod remedy;
mod rivals;
mod round_trips;
mod stuck;
pub mod symptoms;
mod thresholds;
mod unexplained;
mod unseen;
mod verdict;
mod wanted;
mod weighing;

pub use advice::Advice;
pub use buffers::{Buffer, round_up};
pub use ceilings::{Headers, ceilings};
pub use change::Change;
pub use diagnosis::{Candidate, Diagnosis, diagnose};
pub use experiment::{Experiment, Prediction, Rule, point_name};
pub use host_change::{
    HostChangeError, check_later, confirm_host_change, trial, window_asked, with_trial,
};
pub use judgement::{Judgement, explain, explain_fitted, judge};
pub use load_change::{
    LoadRates, LoadTrial, confirm_load_change, has_load_verdict, is_lifted_by_settings,
};
pub use observed::judged_test;
pub use pages::limits_page;
pub use round_trips::load::FILE;
pub use thresholds::{Fit, PlantedCase};
pub use verdict::next_ceiling;
pub use wanted::{Wanted, wanted};
