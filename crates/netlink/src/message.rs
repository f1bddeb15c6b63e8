//! Messages: `struct nlmsghdr` and a body.

use crate::bytes::{u16_of, u32_of};
use crate::object::MalformedError;

/// Flags of a message's header.
pub mod flag {
    /// `NLM_F_REQUEST`.
    pub const REQUEST: u16 = 1;
    /// `NLM_F_ACK`: the kernel says also that it went well.
    pub const ACKNOWLEDGE: u16 = 4;
    /// `NLM_F_DUMP_INTR`: what a dump lists changed while it was read.
    pub const DUMP_INTERRUPTED: u16 = 0x10;
    /// `NLM_F_REPLACE`.
    pub const REPLACE: u16 = 0x100;
    /// `NLM_F_EXCL`.
    pub const EXCLUSIVE: u16 = 0x200;
    /// `NLM_F_CREATE`.
    pub const CREATE: u16 = 0x400;
    /// `NLM_F_APPEND`.
    pub const APPEND: u16 = 0x800;
    /// `NLM_F_DUMP`: everything there is.
    pub const DUMP: u16 = 0x300;
    /// `NLM_F_CAPPED`: an error does not repeat the request.
    pub(crate) const CAPPED: u16 = 0x100;
    /// `NLM_F_ACK_TLVS`: attributes follow an error.
    pub(crate) const ACK_ATTRIBUTES: u16 = 0x200;
}

/// Length of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// A request, or an answer that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `RTM_NEWROUTE`, or the number of a generic family.
    pub kind: u16,
    /// Flags besides [`flag::REQUEST`], which a socket adds.
    pub flags: u16,
    /// What follows the header.
    pub body: Vec<u8>,
}

impl Message {
    /// Whether the answer is a list.
    #[must_use]
    pub fn is_dump(&self) -> bool {
        self.flags & flag::DUMP == flag::DUMP && self.flags & flag::CREATE == 0
    }

    /// Appends header and body to `to`, with further flags.
    pub fn write(&self, sequence: u32, more_flags: u16, to: &mut Vec<u8>) {
        // A body is a fixed part and attributes of at most 64 KiB each.
        let length = u32::try_from(HEADER_BYTES + self.body.len()).unwrap_or(u32::MAX);
        to.extend_from_slice(&length.to_ne_bytes());
        to.extend_from_slice(&self.kind.to_ne_bytes());
        to.extend_from_slice(&(self.flags | more_flags).to_ne_bytes());
        to.extend_from_slice(&sequence.to_ne_bytes());
        to.extend_from_slice(&0_u32.to_ne_bytes());
        to.extend_from_slice(&self.body);
        to.resize(to.len().next_multiple_of(4), 0);
    }

    /// Bytes that [`write`](Self::write) appends.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        HEADER_BYTES + self.body.len().next_multiple_of(4)
    }
}

/// One message of what was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Type of the message.
    pub kind: u16,
    /// Flags of the message.
    pub flags: u16,
    /// The sequence number of the request it answers; 0 for notifications.
    pub sequence: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

/// The messages of one datagram. One that is cut off is an error and ends the walk.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// The messages of a datagram.
    #[must_use]
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    fn advance(&mut self) -> Option<Frame<'a>> {
        let length = u32_of(self.rest)? as usize;
        let frame = Frame {
            kind: u16_of(self.rest.get(4..)?)?,
            flags: u16_of(self.rest.get(6..)?)?,
            sequence: u32_of(self.rest.get(8..)?)?,
            body: self.rest.get(HEADER_BYTES..length)?,
        };
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(frame)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, MalformedError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.advance().ok_or_else(|| {
            self.rest = &[];
            MalformedError::Cut { object: "netlink" }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let messages = [
            Message { kind: 24, flags: flag::CREATE, body: vec![1, 2, 3] },
            Message { kind: 26, flags: flag::DUMP, body: Vec::new() },
        ];
        let mut bytes = Vec::new();
        for (sequence, message) in (7..).zip(&messages) {
            message.write(sequence, flag::REQUEST, &mut bytes);
        }
        assert_eq!(bytes.len(), messages.iter().map(Message::length_bytes).sum::<usize>());
        let frames: Vec<_> = Frames::new(&bytes).map(Result::unwrap).collect();
        assert_eq!((frames[0].kind, frames[0].sequence, frames[0].body), (24, 7, &[1, 2, 3][..]));
        assert_eq!((frames[1].flags, frames[1].sequence), (flag::REQUEST | flag::DUMP, 8));
        assert_eq!(frames.len(), 2);
        assert!(messages[1].is_dump() && !messages[0].is_dump());
    }

    #[test]
    fn a_cut_message_is_reported_once() {
        let mut bytes = Vec::new();
        Message { kind: 1, flags: 0, body: vec![0; 8] }.write(0, 0, &mut bytes);
        for length in 1..bytes.len() {
            let frames: Vec<_> = Frames::new(&bytes[..length]).collect();
            assert_eq!(frames, [Err(MalformedError::Cut { object: "netlink" })], "{length}");
        }
        assert!(Frames::new(&[0; 64]).next().unwrap().is_err());
    }

    #[test]
    fn any_datagram_ends() {
        bolero::check!().for_each(|bytes: &[u8]| {
            assert!(Frames::new(bytes).count() <= bytes.len() / HEADER_BYTES + 1);
        });
    }
}
