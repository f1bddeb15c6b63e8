//! What all objects have in common: creating, deleting, listing.

use thiserror::Error;

use crate::encoder::{Encoder, TooLongError};
use crate::message::{Message, flag};

/// Who installed an object (`RTPROT_…`): routing daemons know their own objects by it.
pub mod protocol {
    /// No protocol is stated.
    pub const UNSPECIFIED: u8 = 0;
    /// Installed by the kernel itself.
    pub const KERNEL: u8 = 2;
    /// During boot; what `ip` writes when nothing is said.
    pub const BOOT: u8 = 3;
    /// Installed by the administrator.
    pub const STATIC: u8 = 4;
    /// By this program: everything it installs for good has it, so that it finds it again and leaves what is
    /// others' alone. No entry of iproute2's `rt_protos` has the number.
    pub const CLEARSTREAM: u8 = 77;
}

/// Routing tables (`RT_TABLE_…`).
pub mod table {
    /// Routes of the administrator and of daemons.
    pub const MAIN: u32 = 254;
    /// Addresses of this host.
    pub const LOCAL: u32 = 255;
}

/// How far away a destination is (`RT_SCOPE_…`).
pub mod scope {
    /// Anywhere: behind a gateway.
    pub const UNIVERSE: u8 = 0;
    /// On a link of this host.
    pub const LINK: u8 = 253;
    /// Valid on this host only.
    pub const HOST: u8 = 254;
}

/// What happens when an object is there already, or is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It must not be there.
    Create,
    /// It takes the place of the one that is there, in one step: no packet sees neither.
    Replace,
    /// It must be there.
    Change,
    /// It stands beside others with the same key (IPv6 multipath).
    Append,
}

impl Mode {
    fn flags(self) -> u16 {
        match self {
            Self::Create => flag::CREATE | flag::EXCLUSIVE,
            Self::Replace => flag::CREATE | flag::REPLACE,
            Self::Change => flag::REPLACE,
            Self::Append => flag::CREATE | flag::APPEND,
        }
    }
}

/// A message that cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CreateError {
    /// An attribute is too long: too many members, too many paths.
    #[error(transparent)]
    TooLong(#[from] TooLongError),
    /// The kernel ignores "replace" for this object and would make a second one.
    #[error("the kernel cannot replace a {object}: delete the old one after creating the new one")]
    NotReplaceable {
        /// Kind of object: `rule`.
        object: &'static str,
    },
}

/// A message whose bytes do not have the form its kind demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MalformedError {
    /// Too short for its fixed part.
    #[error("malformed {object} message: {bytes_count} bytes are too few")]
    Short {
        /// Kind of object: `route`.
        object: &'static str,
        /// Length of the body.
        bytes_count: usize,
    },
    /// A header or an attribute says it is longer than what is there, or shorter than itself.
    #[error("malformed {object} message: its end is missing")]
    Cut {
        /// Kind of object: `route`.
        object: &'static str,
    },
    /// An attribute whose value has not the length or form of its kind.
    #[error("malformed {object} message: attribute {kind} with a value of {bytes_count} bytes")]
    Attribute {
        /// Kind of object: `route`.
        object: &'static str,
        /// Type of the attribute.
        kind: u16,
        /// Length of its value.
        bytes_count: usize,
    },
    /// An attribute that every such object has is missing.
    #[error("malformed {object} message: attribute {kind} is missing")]
    Missing {
        /// Kind of object: `nexthop`.
        object: &'static str,
        /// Type of the attribute.
        kind: u16,
    },
    /// An address family other than IPv4 and IPv6, or one that its addresses do not have.
    #[error("{object} message of address family {family}, which is not read here")]
    Family {
        /// Kind of object: `route`.
        object: &'static str,
        /// The number of the family.
        family: u8,
    },
}

/// What the kernel lists and announces.
pub trait Object: Sized {
    /// As it is named in errors.
    const NAME: &'static str;
    /// `RTM_NEW…`; `RTM_DEL…` is one above, `RTM_GET…` two.
    const NEW_KIND: u16;

    /// From the body of a message.
    ///
    /// # Errors
    /// The body has not the form of this object.
    fn parse(body: &[u8]) -> Result<Self, MalformedError>;
}

/// What is created and deleted as a whole, and the same after it was listed and sent back.
pub trait Configurable: Object {
    /// Whether the kernel heeds [`Mode::Replace`].
    const IS_REPLACEABLE: bool = true;

    /// The body that creates the object.
    fn encode(&self, to: &mut Encoder);

    /// The body that names the object for deletion.
    fn encode_key(&self, to: &mut Encoder) {
        self.encode(to);
    }
}

/// The request that creates an object.
///
/// # Errors
/// The object does not fit a message, or the kernel cannot do what `mode` says.
pub fn create<O: Configurable>(object: &O, mode: Mode) -> Result<Message, CreateError> {
    if mode != Mode::Create && !O::IS_REPLACEABLE {
        return Err(CreateError::NotReplaceable { object: O::NAME });
    }
    let mut encoder = Encoder::default();
    object.encode(&mut encoder);
    Ok(Message { kind: O::NEW_KIND, flags: mode.flags(), body: encoder.finish()? })
}

/// The request that deletes an object: one that equals it in everything the kernel compares.
///
/// # Errors
/// The object does not fit a message.
pub fn delete<O: Configurable>(object: &O) -> Result<Message, CreateError> {
    let mut encoder = Encoder::default();
    object.encode_key(&mut encoder);
    Ok(Message { kind: O::NEW_KIND + 1, flags: 0, body: encoder.finish()? })
}

/// The request that lists objects, from the body that narrows it. Such bodies are short.
pub(crate) fn list<O: Object>(encoder: Encoder) -> Message {
    Message { kind: O::NEW_KIND + 2, flags: flag::DUMP, body: encoder.finish().unwrap_or_default() }
}

/// The request that asks for one object. Such bodies are short.
pub(crate) fn ask<O: Object>(encoder: Encoder) -> Message {
    Message { flags: 0, ..list::<O>(encoder) }
}

/// The fixed part of a body and the attributes behind it.
pub(crate) fn split<'a, const N: usize>(
    object: &'static str,
    body: &'a [u8],
) -> Result<(&'a [u8; N], &'a [u8]), MalformedError> {
    body.split_first_chunk().ok_or(MalformedError::Short { object, bytes_count: body.len() })
}
