//! State spaces: storing states without loss, searching all that can be reached, finding accepting
//! cycles.
//!
//! Pure: no I/O, no clock; a search is advanced in portions by its caller, who watches time and memory.

#![forbid(unsafe_code)]

mod cycle;
mod fair;
mod lossy;
mod pairs;
pub mod partition;
mod reach;
mod snapshot;
mod store;
mod together;

pub use cycle::{Accepting, CycleSearch, Found, Lasso};
pub use fair::{Acting, Actors, FairFound, FairLasso, FairSearch, Fairness};
pub use lossy::{LossySearch, LossyStorage};
pub use pairs::StoreFull;
pub use reach::{Progress, Reach, System};
pub use snapshot::SnapshotError;
pub use store::{Batch, StateId, Store, Unpacked};
pub use together::{Ended, HostEnd, SharedSearch, ThreadFailed};
