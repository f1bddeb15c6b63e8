//! Traffic: the engine that moves bytes, and the protocols that set it up at both ends.
//!
//! - [`engine`] — threads, sockets and counters of *one end* of one test;
//! - [`control`] — the messages between the near and the far end (a pure codec, except for the
//!   connection that carries them);
//! - [`client`] / [`server`] — the two ends of a test over that protocol, on a single port;
//!   programs add other protocols with [`client::FarProtocol`] and [`server::Personality`];
//! - [`describe_test`] — a one-line description of a test.

pub mod client;
pub mod control;
pub mod engine;
mod interrupts;
pub mod outcome;
mod running;
pub mod server;
mod words;

pub use interrupts::{MoveError, put_back_what_was_left};
pub use words::describe_test;
