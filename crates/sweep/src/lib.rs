//! Experiments as ordered points: what to run next, what is done already, what repeats say.
//!
//! An [`Experiment`] is asked for its next [`Plan`] until it has none, and then for its conclusion. Pure:
//! the caller runs the tests and keeps the files. A [`Plan`] gives the order (every round of repeats runs
//! each setting once, shuffled, so that drift of the hosts or the path hits all of them alike), a [`Journal`] turns finished points into bytes and back (so that a run that was
//! cut short goes on where it was), [`summarise`] takes repeats together, and [`window`](window_sweep)
//! holds the one sweep whose law is known in advance. [`placement`] decides which pairs of cores are
//! worth measuring, and what they say.

#![forbid(unsafe_code)]

mod experiment;
mod journal;
pub mod placement;
mod plan;
mod summary;
mod window;

pub use experiment::Experiment;
pub use journal::{Earlier, Journal, JournalError};
pub use plan::{Plan, PlannedPoint, Setting};
pub use summary::summarise;
pub use window::{SweptWindow, WindowModel, fit_window_model, swept_windows, window_sweep};
