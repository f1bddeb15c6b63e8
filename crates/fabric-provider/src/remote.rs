//! Access to the memory of other endpoints: reads, writes and atomic operations, as the messages that ask for them.
//! The target's process executes each in its own calls, in the order in which the peer asked; who asks may be hostile.

pub(crate) mod atomics;
pub(crate) mod execute;
pub(crate) mod regions;
pub(crate) mod request;
