//! The packet switch: ports that processes attach to, switches between them, pipes that need none.
//!
//! * [`attachment`]: the protocol over a UNIX socket (`docs/attachment.md`);
//! * [`client`]: attaching from a program; frames then pass without system calls while both sides
//!   poll;
//! * [`station`]: the same, and again when the daemon is started anew;
//! * [`daemon`]: the process that makes memory and bells, keeps the list of ports, and lets go of
//!   clients that die or lie;
//! * [`mod@line`]: the thread that carries one direction of a lightpath, between devices or ports;
//! * [`passthrough`]: a device's queue for one client alone, without a switch;
//! * [`pkt`]: generators, sinks and bridges, as pkt-gen has them;
//! * its threads, one a switch, copy frames between the regions of its ports and trust nothing they
//!   read there.
//!
//! A client sees its own region only. What it does to its rings harms its own frames and nobody
//! else's.
#![forbid(unsafe_code)]

pub mod attachment;
pub mod client;
pub mod counters;
pub mod daemon;
mod datapath;
mod deferred_drop;
mod device;
#[cfg(doctest)]
pub mod guide;
pub mod line;
mod name;
mod panics;
pub mod passthrough;
pub mod pkt;
pub mod station;
mod threads;

pub use name::{Name, NameError, PortName};
