//! From results to the verdict: which link of the chain binds, how we know, what would prove it.
//!
//! [`diagnose`] weighs every limit of the documented list (`docs/limits.md`) against what the
//! points of a document show, each on its own mechanism. The best explanation brings an
//! [`Experiment`]: one [`Change`] to the judged test and what must come of it. The caller runs it
//! and hands the points to [`judge`]; when they refute it, the next explanation is tried:
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
//! Pure: no I/O, no clock. Any document that the schema admits gives a verdict: figures that are
//! absent are not reasoned from, figures that are absurd (NaN, negative, infinite) count as absent.

#![forbid(unsafe_code)]

mod ceiling;
mod ceilings;
mod change;
mod diagnosis;
mod experiment;
mod files;
mod host_change;
mod judgement;
mod limits;
mod mechanism;
mod numbers;
mod observed;
mod pages;
mod remedy;
mod verdict;

pub use ceilings::{Headers, ceilings};
pub use change::Change;
pub use diagnosis::{Candidate, Diagnosis, diagnose};
pub use experiment::{Experiment, Prediction, Rule, point_name};
pub use host_change::confirm_host_change;
pub use judgement::{Judgement, explain, judge};
pub use pages::limits_page;
pub use verdict::next_ceiling;
