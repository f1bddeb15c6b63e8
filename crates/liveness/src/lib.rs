//! Whether the gateways between two networks forward: the probes that find out, BFD with routers that
//! speak it, and the states and decisions drawn from both.
//!
//! Everything here is a pure machine: bytes and events go in through `handle_*`, work comes out of
//! `poll`, and the time is an argument, in nanoseconds of the caller's monotonic clock. Time that goes
//! back is taken as time that stands still.
//!
//! * [`bfd`]: Bidirectional Forwarding Detection in asynchronous mode (RFC 5880, 5881, 5883);
//! * [`probe`]: probes that a far host reflects through the gateway they came by;
//! * [`states`]: the state of each gateway, and which gateways are to be used;
//! * [`sentinel`]: verdicts that a few hosts send to many, and what these believe;
//! * [`siphash`]: the keyed hash that authenticates probes and verdicts.
#![forbid(unsafe_code)]

pub mod bfd;
pub mod probe;
pub mod sentinel;
pub mod siphash;
pub mod states;

mod steady;
