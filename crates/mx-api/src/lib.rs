//! The MX interface: programs that were written for Myricom's MX or for Open-MX exchange messages over ClearStream's
//! protocol (`docs/messages.md`) between any Ethernet devices, and through shared memory inside a host. `docs/mx.md`
//! tells users what differs from MX.
//!
//! * `abi`: MX's types and numbers as C sees them; `failing`: return codes, status codes, error handlers;
//! * `boards`: the host's addresses as boards, names of hosts, where an endpoint of a number is reached;
//! * `registry`: what C's handles name; `endpoint`: an endpoint with its requests; `connecting`: how an endpoint asks
//!   another for its filter; `requests`: operations until the program has learned of their end; `waiting`;
//! * `calls`: the functions.
//!
//! The endpoint below, its transports and its shared memory are `fabric-provider`'s.
#![expect(unsafe_code, reason = "a fence: C programs pass pointers to buffers and structures")]

mod abi;
mod boards;
mod calls;
mod connecting;
mod endpoint;
mod failing;
mod registry;
mod requests;
mod waiting;

pub use abi::layout;
