//! Changing a host's settings so that nothing is lost: what to change and why, the journal, exact
//! undo, profiles of the papers.
//!
//! [`plan::plan`] decides from a results document and nothing else. [`Engine`] makes changes and undoes
//! them as a step machine over a [`World`] and a [`Log`]: it has no I/O of its own, so tests end it at
//! every step. [`Host`] is the world of this machine, [`Store`] the journal on disk.

#![forbid(unsafe_code)]

mod dump;
mod engine;
mod host;
pub mod journal;
mod persist;
pub mod plan;
pub mod profile;
pub mod remote;
mod store;
mod tuner;
pub mod verdict;
mod world;

pub use dump::every_key;
pub use engine::{
    Applied, ChangeResult, Decision, Engine, Log, LogError, Outcome, Policy, RevertOutcome,
    RevertRequest, Reverted, Step, decide,
};
pub use host::{Host, namespace};
pub use journal::Owner;
pub use persist::{read_settings, settings_path};
pub use settings::{Change, FILES, InterfaceKey, Key, KeyError};
pub use store::{Held, Store, StoreError, Writer};
pub use tuner::{Standing, StatusLine, TuneError, Tuner, Undo, check_namespace};
pub use world::{World, WorldError};
