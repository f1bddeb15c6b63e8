//! Messages between endpoints over Ethernet, as a pure machine: no I/O, no clock, no thread. Time
//! comes in as `now_ns`, packets as bytes that the owner read, and what leaves is a header with a
//! place in the owner's memory.
//!
//! * [`Machine`]: an endpoint: sends, receives, probes, and the packets between it and its peers;
//! * [`wire`]: the packets as bytes, described in `docs/messages.md`;
//! * [`Memory`]: how the machine reaches the owner's buffers.
//!
//! Messages have 64 match bits and go to receives with a mask, as in MX; receives may name their
//! source and take many messages, as in libfabric. Short messages go by themselves, long ones wait
//! until a receive takes them and are pulled by the receiver.
//!
//! Three mechanisms carry them, each in a module of its own under `machine`:
//! * ordered packets, acknowledged selectively, with a window a peer (`order`, `reliable`);
//! * pulls, in which the receiver asks, and all its senders share one window (`pulls`);
//! * sessions with keys of their own, opened after a cookie (`greet`).
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
pub use types::{
    Address, Arrived, BufferId, Channel, ClaimId, Completion, Event, Failure, Memory, Operation,
    OperationError, PeerId, Receive, ReceiveId, Send, SendMode, Status,
};
