//! Native routing over many gateways, on the host it is for: what is there, read through netlink.
//!
//! The crate `route-plan` says what a host is to have. [`read_host`] reads what it has, for the network namespace
//! of the calling thread.

#![forbid(unsafe_code)]

mod read;

pub use read::{ReadError, read_host};
