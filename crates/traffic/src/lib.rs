//! Traffic: the engine that moves bytes, and the protocols that set it up at both ends.
//!
//! - [`engine`] — threads, sockets and counters of *one end* of one test;
//! - [`control`] — our control protocol: what near and far say to each other (pure codec);
//! - [`client`] / [`server`] — the two ends of a test over that protocol, and where a program hands in
//!   other protocols ([`client::FarProtocol`], [`server::Personality`]); one port for everything;
//! - [`describe_test`] — what a test is, in words.

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
