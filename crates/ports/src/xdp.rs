//! A queue of a network device as a port: its frames come and go past the kernel's network stack, by
//! `AF_XDP`, without a copy where the driver can.
//!
//! Opening needs privilege and happens in the device's network namespace; carrying needs neither. So
//! [`open()`] makes descriptors, which may go to another process, and [`Port`] is made of them there. All
//! that is on the device hangs on those descriptors: when the last copies are closed, however their
//! process ends, the program is off the device and the queue is the host's again.

mod arrived;
mod open;
mod port;
mod steered;

pub use open::{OpenError, Opened, open};
pub use port::{Flush, Frame, Port, PortError};
pub use steered::{Steered, open_steered, queues_count};

/// Slots of each ring between this process and the kernel.
pub const RING_SLOTS: u32 = 1024;

/// Bytes of a chunk: a page, the most there can be.
const CHUNK_BYTES: u32 = 4096;

/// Chunks that frames arrive in: what the ring of free ones holds. As many again are for frames to send.
const RECEIVE_CHUNKS: u32 = RING_SLOTS;

/// The memory of all frames of a queue.
pub const MEMORY_BYTES: u64 = 2 * RECEIVE_CHUNKS as u64 * CHUNK_BYTES as u64;
