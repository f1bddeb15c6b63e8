//! Generic netlink (`struct genlmsghdr`): families that are numbered as the kernel boots.

use crate::attribute::attribute;
use crate::bytes::u16_of;
use crate::encoder::Encoder;
use crate::message::{Message, flag};
use crate::object::MalformedError;

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Length of `struct genlmsghdr`.
const HEADER_BYTES: usize = 4;

/// Asks for the number of a family; the kernel refuses with `ENOENT` where it has none of this name.
#[must_use]
pub fn family_question(name: &str) -> Message {
    let mut encoder = Encoder::default();
    encoder.fixed(&[CTRL_CMD_GETFAMILY, 1, 0, 0]);
    encoder.text(CTRL_ATTR_FAMILY_NAME, name);
    Message { kind: GENL_ID_CTRL, flags: 0, body: encoder.finish().unwrap_or_default() }
}

/// The number of a family, from the answer to [`family_question`].
///
/// # Errors
/// The answer has no number.
pub fn family_number(body: &[u8]) -> Result<u16, MalformedError> {
    let missing =
        MalformedError::Missing { object: "generic netlink family", kind: CTRL_ATTR_FAMILY_ID };
    attribute(generic_attributes(body)?, CTRL_ATTR_FAMILY_ID).and_then(u16_of).ok_or(missing)
}

/// Lists what a command of a family lists.
#[must_use]
pub fn generic_dump(family: u16, command: u8) -> Message {
    Message { kind: family, flags: flag::DUMP, body: vec![command, 1, 0, 0] }
}

/// The attributes of a generic netlink message.
///
/// # Errors
/// Too short for its header.
pub fn generic_attributes(body: &[u8]) -> Result<&[u8], MalformedError> {
    body.get(HEADER_BYTES..)
        .ok_or(MalformedError::Short { object: "generic netlink", bytes_count: body.len() })
}
