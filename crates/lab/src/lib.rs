//! Hosts and links on one machine, from a TOML file.
//!
//! A host is a network namespace, a link is a veth pair or an emulated lightpath between two TAP
//! devices, a switch is the packet switch with a TAP device for each of its hosts. A lab that is up is *one* process, its anchor: it is the init of a process-id namespace,
//! holds the only descriptors of the network namespaces, and carries the frames. Whatever
//! ends it, SIGKILL included, the kernel ends every program of the lab and frees every namespace and
//! device; all that can stay is a directory of small files, which the next command removes.
#![forbid(unsafe_code)]

mod anchor;
mod answer;
mod builtin;
mod counters;
mod error;
mod exec;
mod failure;
pub mod file;
mod guest;
mod lab;
mod lines;
mod machines;
mod network;
pub mod plan;
mod program;
mod routes;
mod scoped;
mod state;
mod store;
mod switches;
mod veth;
mod view;

pub use builtin::{BuiltinLab, builtin, builtin_labs};
pub use counters::{
    DirectionCounters, HostPortCounters, LabCounters, Lateness, LinkCounters, SwitchCounters,
};
pub use error::LabError;
pub use exec::{ExecEnd, ExecError};
pub use failure::{Failure, FailureKind};
pub use lab::{Arrival, Lab, find_plan};
pub use program::{Program, run_role};
pub use scoped::ScopedLab;
pub use state::{LabOwner, LabState};
pub use veth::PinnedThread;
