//! Messages between endpoints over Ethernet, as a pure machine: no I/O, no clock, no threads. The
//! owner passes in the time as `now_ns` and the bytes of received packets; the machine returns
//! packets to send, each a header and a reference to payload bytes in the owner's memory.
//!
//! * [`Machine`]: one endpoint with its sends, receives, probes, and the packets exchanged with its
//!   peers;
//! * [`wire`]: the packet formats, specified in `docs/messages.md`;
//! * [`Memory`]: access to the owner's buffers.
//!
//! Messages have 64 match bits and receives a mask, as in MX; receives may name their source and
//! may take several messages, as in libfabric. Short messages are sent at once (eager); long ones
//! are announced, wait until a receive matches them, and are then pulled by the receiver.
//!
//! Three mechanisms transport them, each in its own module under `machine`:
//! * ordered packets with selective acknowledgements and one window per peer (`order`, `reliable`);
//! * pulls: the receiver requests fragments, and all its senders share one window (`pulls`); where it can
//!   read the sender's memory, its owner copies the message instead (`paths`);
//! * sessions, each with its own keys, opened by a cookie exchange (`greet`).
#![forbid(unsafe_code)]

mod congestion;
mod deadlines;
mod machine;
mod matching;
mod peer;
mod pool;
mod rtt;
mod slab;
mod tag;
mod types;
pub mod wire;

pub use machine::{Config, ConfigError, Counters, Machine, Payload, Transmit};
pub use tag::derived_key;
pub use types::{
    Address, Arrived, BufferId, Channel, ClaimId, Completion, CopyId, CopyRequest, Event, Failure,
    Memory, Operation, OperationError, Path, PeerId, Receive, ReceiveId, Send, SendMode, Status,
    UnexpectedId,
};
