//! The control protocol: what near and far say to each other, and nothing about how it is carried
//! out. `docs/protocol.md` is its specification.
//!
//! One port. Every TCP connection, and every UDP stream, opens with a [`Greeting`] of 37 bytes, so
//! that other protocols can share the port and each side can tell what the other speaks.
//! Then come frames: a length and one JSON message ([`ClientMessage`], [`ServerMessage`]).
//!
//! All but [`Link`], the TCP connection that carries the frames, is pure.

mod frame;
mod greeting;
mod limits;
mod link;
mod message;
mod streams;

use std::time::Duration;

pub use frame::{FrameBuffer, FrameError, encode};
pub use greeting::{GREETING_BYTES, Greeting, PROTOCOL_MAJOR, Purpose, Token};
pub use limits::{Limits, admit};
pub use link::{Link, LinkError};
pub use message::{
    ClientMessage, CounterReading, Refusal, RefusalCode, ServerMessage, WireInterval,
};
pub use streams::{PROBE_LABEL, StreamPlan, streams_of};

/// Name of the extension by which one end changes the other host's settings.
pub const TUNE_EXTENSION: &str = "tune";
/// Largest frame a server accepts from a client, bytes.
pub const CLIENT_FRAME_BYTES_MAX: usize = 64 << 10;
/// Largest frame a client accepts from a server, bytes: the account of a long test.
pub const SERVER_FRAME_BYTES_MAX: usize = 64 << 20;
/// Time for the 37 bytes of a greeting, and for one frame of a client to come in whole.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Both ends say something at least this often while a test runs.
pub const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// A peer that says nothing for this long while a test runs is gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Time for all data connections of a test to be there.
pub const STREAMS_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a client repeats the greeting of a UDP stream until the server has confirmed it.
pub const UDP_GREETING_EVERY: Duration = Duration::from_millis(100);
