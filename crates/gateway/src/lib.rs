//! Native routing over many gateways, on the host it is for.
//!
//! The crate `route-plan` says what a host is to have. [`read_host`] reads what it has, [`apply()`] makes the changes
//! between, [`check()`] finds what has drifted since, [`drain()`] moves flows off a gateway and [`Passing`] sees whether it
//! still forwards any, [`Steered`] moves flows for a watcher, [`revert`] puts back exactly what was there. Everything is of the
//! network namespace of the calling thread. The journal and the undo engine are `tuning`'s: [`Network`] is a world
//! whose settings are also nexthops, routes, rules and packet filter tables.

#![forbid(unsafe_code)]

mod apply;
mod ask;
mod check;
mod drain;
mod facts;
mod hex;
mod marks;
mod moves;
mod on_link;
mod passing;
mod read;
mod steering;
mod watching;
mod world;

pub use apply::{ApplyError, Made, Options, apply, revert};
pub use ask::{AskError, ask};
pub use check::{CheckError, Drift, DriftKind, check};
pub use drain::{DrainError, drain, undrained, used};
pub use facts::{Facts, PortFacts, compare, facts};
pub use marks::{MarksError, read_marks};
pub use moves::{MoveError, move_flows};
pub use on_link::off_link;
pub use passing::{Passed, Passing, PassingError};
pub use read::{ReadError, read_host};
pub use steering::{Steered, SteeringError};
pub use watching::{Asked, OptionsError, far_hosts, plan_id, reflect_options, watch_options};
pub use world::Network;
