//! Checks DVE models.
//!
//! [`check()`] searches the states of a model, by one rank or by many ([`Ranks`]), and returns a [`Report`] for
//! each property. Whoever calls it watches the search through an [`Observer`]: nothing is printed here, and no
//! signal is caught. [`ModelSystem`] and [`RankedModel`] join the language (`dve`) to the searches
//! (`statespace`). The crate's tests hold both against a second interpreter, as plain as can be, on random
//! models.

#![forbid(unsafe_code)]

mod check;
mod checkpoint;
mod counterexample;
mod error;
mod fair;
mod formulas;
mod lossy;
mod observer;
mod options;
mod ranked;
mod ranks;
mod report;
mod search;
mod simulation;
mod system;
mod watch;

pub use check::check;
pub use error::{CheckError, DriveError};
pub use formulas::Formulas;
pub use observer::Observer;
pub use options::{Bounds, Options};
pub use ranked::RankedModel;
pub use ranks::{Many, Ranks, Threads};
pub use report::{Report, TraceState, Traffic, Unreachable, Verdict};
pub use simulation::Simulation;
pub use system::{FAILED, ModelSystem, TAKEN, WENT_WELL, actors};
