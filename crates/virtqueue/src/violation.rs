//! What a guest's driver can break.

use thiserror::Error;

/// A rule of virtio that the driver of a queue broke. The queue is not used any further until the driver resets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// The size is no power of two from 1 to [`SIZE_MAX`](crate::SIZE_MAX), or an area has another size.
    #[error("a queue of {size} entries with areas that do not fit it")]
    Size {
        /// Entries.
        size: u32,
    },
    /// The available ring's index is further ahead than the queue has entries.
    #[error("the available index {index} is more than {size} ahead of {taken}")]
    IndexAhead {
        /// As the driver wrote it.
        index: u16,
        /// Entries taken so far, modulo 2^16.
        taken: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// The available ring names a descriptor beyond the table.
    #[error("the available ring names descriptor {head} of {size}")]
    Head {
        /// As the driver wrote it.
        head: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A descriptor's `next` lies beyond its table.
    #[error("a descriptor continues at {next} in a table of {size}")]
    Next {
        /// As the driver wrote it.
        next: u16,
        /// Entries of the table.
        size: u32,
    },
    /// A chain has more descriptors than its table, so it loops, or than any chain may have.
    #[error("a chain of more than {most} descriptors, or one that loops")]
    TooManyDescriptors {
        /// Most that it may have.
        most: u32,
    },
    /// A segment without bytes.
    #[error("a descriptor of length 0")]
    EmptySegment,
    /// Segments of a chain have 4 GiB or more.
    #[error("a chain of 4 GiB or more")]
    TooLong,
    /// A segment to read comes after one to write.
    #[error("a segment for the device to read follows one to write")]
    Order,
    /// An indirect table without the feature, in the middle of a chain, in another table, or together with `NEXT`.
    #[error("an indirect table where none may be")]
    Indirect,
    /// An indirect table's length is no multiple of a descriptor's, or 0.
    #[error("an indirect table of {bytes} bytes")]
    IndirectLength {
        /// As the driver wrote it.
        bytes: u32,
    },
    /// An indirect table lies outside the guest's memory.
    #[error("an indirect table at {address:#x} outside the guest's memory")]
    IndirectAddress {
        /// Guest-physical address.
        address: u64,
    },
}
