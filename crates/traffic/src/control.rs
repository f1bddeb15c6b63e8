//! The control protocol: the messages between near and far, not how they are carried out. Specified
//! in `docs/protocol.md`.
//!
//! A server has one port. Every TCP connection and every UDP stream starts with a [`Greeting`] of
//! 37 bytes, so that other protocols can share the port and each side can recognise the other's.
//! Frames follow: a length and one JSON message ([`ClientMessage`], [`ServerMessage`]).
//!
//! Everything except [`Link`], the TCP connection that carries the frames, is pure.

mod frame;
mod greeting;
mod limits;
mod link;
mod message;
mod streams;

use std::time::Duration;

pub use frame::{FrameBuffer, FrameError, encode};
pub use greeting::{GREETING_BYTES, Greeting, PROTOCOL_MAJOR, Purpose, Token};
pub use limits::{Limits, admit, report_bytes_max};
pub use link::{Link, LinkError};
pub use message::{
    ClientMessage, CounterReading, Refusal, RefusalCode, ServerMessage, WireInterval,
};
pub use streams::{PROBE_LABEL, StreamPlan, streams_of};

/// Name of the extension by which one end changes the other host's settings.
pub const TUNE_EXTENSION: &str = "tune";
/// Largest frame that a server accepts from a client, in bytes.
pub const CLIENT_FRAME_BYTES_MAX: usize = 64 << 10;
/// Largest frame that a client accepts from a server while no test runs, in bytes: the facts of a host
/// with many cores. What JSON becomes in memory may be many times as large.
pub const ANSWER_FRAME_BYTES_MAX: usize = 4 << 20;
/// Largest frame that a client accepts from a server during a test, in bytes: the report of a long one.
/// See [`report_bytes_max`] for that of a given test.
pub const SERVER_FRAME_BYTES_MAX: usize = 64 << 20;
/// Time limit for receiving the 37 bytes of a greeting, and for one complete frame of a client.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// While a test runs, both ends send a message at least this often.
pub const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// While a test runs, a peer that sends nothing for this long is considered gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Time limit for opening all data connections of a test.
pub const STREAMS_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a client repeats the greeting of a UDP stream until the server confirms it.
pub const UDP_GREETING_EVERY: Duration = Duration::from_millis(100);
