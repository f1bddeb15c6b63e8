//! Split virtqueues at the device's seat (virtio 1.2, section 2.7): what a guest's driver has made available is
//! taken as chains of segments, and given back as used.
//!
//! The guest writes the rings, the descriptors and the indirect tables at any time and is not trusted. Each word is
//! read once, what was read is checked, and only that is used: every index against the size of the queue, every
//! chain against loops and against the rules for its parts. What a segment's address points to is not looked at
//! here: whoever copies from or to it checks the address against the guest's memory.
//!
//! * [`Rings`]: the three areas of a queue as atomics, wherever they lie;
//! * [`Queue`]: takes chains, gives them back, says when the guest is to be signalled, asks to be notified;
//! * [`Chain`]: the segments of a chain;
//! * [`Violation`]: which rule the guest broke.
#![forbid(unsafe_code)]

mod chain;
mod queue;
mod violation;

pub use chain::{CHAIN_SEGMENTS_MAX, Chain, DESCRIPTOR_BYTES, GuestMemory, Segment};
pub use queue::{Options, Queue, Rings, SIZE_MAX};
pub use violation::Violation;

#[cfg(test)]
mod tests;
