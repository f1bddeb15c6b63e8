//! Why a request is refused, as a code for programs.

use serde::{Deserialize, Serialize};

/// Why a request is refused. A program decides by this; the text beside it is for people and may be reworded.
///
/// A code that this version does not know reads as [`Other`](Self::Other), as does a refusal by a daemon from before
/// there were codes. So codes may be added within version 1 of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// There is no such port, pipe or switch.
    NotThere,
    /// A port or group of that name is there already.
    Exists,
    /// Another client, or a device, has the port or the end of the pipe.
    Taken,
    /// It belongs to another user id.
    NotOwner,
    /// A limit is reached: of ports, pipes, clients, attachments, memory or descriptors.
    Limit,
    /// No daemon could ever do that: a ring of one slot, a header of 11 bytes.
    Invalid,
    /// What came with the request makes no device that the daemon can drive.
    Device,
    /// A system call of the daemon failed, also on a descriptor that came with the request.
    System,
    /// Descriptors that this user sent earlier are still being opened or closed, a doorbell of this user's was jammed, or
    /// memory of ports that have left is still being freed: later.
    Busy,
    /// The message could not be read.
    Malformed,
    /// The message is of another version of the protocol.
    Version,
    /// None of these.
    #[default]
    #[serde(other)]
    Other,
}

impl RefusalCode {
    /// All of them, in the order of `docs/attachment.md`.
    pub const ALL: [Self; 12] = [
        Self::NotThere,
        Self::Exists,
        Self::Taken,
        Self::NotOwner,
        Self::Limit,
        Self::Invalid,
        Self::Device,
        Self::System,
        Self::Busy,
        Self::Malformed,
        Self::Version,
        Self::Other,
    ];
}
