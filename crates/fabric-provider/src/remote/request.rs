//! Requests for access to an endpoint's memory and their answers, as `docs/messages.md` specifies them: messages of
//! [`Channel::Remote`](messaging::Channel). Whoever sends one may be hostile; nothing here trusts its length.

use super::atomics::{ATOMIC_BYTES_MAX, Atomic, Shape};
use crate::abi;
use crate::fence::Number;

/// Bytes of a request before its operands.
pub(crate) const HEADER_BYTES: usize = 40;
/// Longest operands that are part of a request; more data is a message of its own.
pub(crate) const OPERANDS_BYTES_MAX: usize = 4096;

const WRITE: u8 = 1;
const WRITE_APART: u8 = 2;
const READ: u8 = 3;
const UPDATE: u8 = 4;
const FETCH: u8 = 5;
const COMPARE: u8 = 6;
/// Flag: the target's completion queue is told 64 bits.
const HAS_DATA: u8 = 1;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The data are the request's operands.
    Write,
    /// The data are the next message.
    WriteApart,
    Read,
    Atomic(Atomic),
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) action: Action,
    /// Of the region.
    pub(crate) key: u64,
    /// Where in the region.
    pub(crate) offset: u64,
    /// How much of the region is read or written.
    pub(crate) length_bytes: u64,
    /// Told to the target's program.
    pub(crate) data: Option<u64>,
}

impl Request {
    /// Appends the header; the operands follow.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let (kind, op, datatype) = match self.action {
            Action::Write => (WRITE, 0, 0),
            Action::WriteApart => (WRITE_APART, 0, 0),
            Action::Read => (READ, 0, 0),
            Action::Atomic(atomic) => {
                let kind = match atomic.shape {
                    Shape::Update => UPDATE,
                    Shape::Fetch => FETCH,
                    Shape::Compare => COMPARE,
                };
                (kind, atomic.op as u8, atomic.datatype as u8)
            }
        };
        let flags = if self.data.is_some() { HAS_DATA } else { 0 };
        into.extend_from_slice(&[kind, flags, op, datatype, 0, 0, 0, 0]);
        for number in [self.key, self.offset, self.length_bytes, self.data.unwrap_or(0)] {
            into.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// A request and its operands; none where the bytes are not what a correct endpoint sends.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, operands) = bytes.split_at_checked(HEADER_BYTES)?;
        let number = |at: usize| {
            let bytes = header.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_le_bytes)
        };
        let atomic =
            |shape| Atomic::new(shape, header[2].into(), header[3].into()).map(Action::Atomic);
        let action = match header[0] {
            WRITE => Action::Write,
            WRITE_APART => Action::WriteApart,
            READ => Action::Read,
            UPDATE => atomic(Shape::Update)?,
            FETCH => atomic(Shape::Fetch)?,
            COMPARE => atomic(Shape::Compare)?,
            _ => return None,
        };
        if header[1] & !HAS_DATA != 0 || header[4..8] != [0; 4] {
            return None;
        }
        let has_data = header[1] & HAS_DATA != 0;
        let request = Self {
            action,
            key: number(8)?,
            offset: number(16)?,
            length_bytes: number(24)?,
            data: number(32).filter(|_| has_data),
        };
        (request.operands_bytes() == Some(operands.len())).then_some((request, operands))
    }

    /// How many bytes the operands have; none where the request is not possible.
    fn operands_bytes(&self) -> Option<usize> {
        let length = usize::try_from(self.length_bytes).ok()?;
        match self.action {
            Action::Write => (length <= OPERANDS_BYTES_MAX).then_some(length),
            Action::WriteApart | Action::Read => Some(0),
            Action::Atomic(atomic) => {
                let is_whole = length.is_multiple_of(atomic.datatype.bytes());
                let fits = is_whole && length > 0 && length <= ATOMIC_BYTES_MAX;
                fits.then_some(atomic.operands_count() * length)
            }
        }
    }

    /// What a region has to permit.
    pub(crate) fn access(&self) -> u64 {
        use super::atomics::Op;
        match self.action {
            Action::Write | Action::WriteApart => abi::REMOTE_WRITE,
            Action::Read => abi::REMOTE_READ,
            Action::Atomic(Atomic { op: Op::Read, .. }) => abi::REMOTE_READ,
            Action::Atomic(Atomic { shape: Shape::Update, .. }) => abi::REMOTE_WRITE,
            Action::Atomic(_) => abi::REMOTE_READ | abi::REMOTE_WRITE,
        }
    }
}

/// Why a request is refused: the completion data of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No region has the key.
    UnknownKey = 1,
    /// The region does not permit it.
    Access = 2,
    /// It is not within the region.
    Bounds = 3,
    /// No correct endpoint asks for this.
    Malformed = 4,
    /// The endpoint serves no requests.
    NotServed = 5,
    /// The region was closed meanwhile.
    Closed = 6,
}

impl Refusal {
    /// The error of the operation. Codes that are not known are a broken peer's.
    pub(crate) fn number_of(code: u64) -> Number {
        const ALL: [(Refusal, Number); 6] = [
            (Refusal::UnknownKey, abi::ENOKEY),
            (Refusal::Access, libc::EACCES),
            (Refusal::Bounds, libc::EINVAL),
            (Refusal::Malformed, libc::EPROTO),
            (Refusal::NotServed, libc::EOPNOTSUPP),
            (Refusal::Closed, libc::ECANCELED),
        ];
        let known = ALL.iter().find(|(refusal, _)| *refusal as u64 == code);
        known.map_or(libc::EPROTO, |(_, number)| *number)
    }
}

/// The kinds of messages, in the two highest match bits; the others have the operation's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request = 1,
    Data = 2,
    Answer = 3,
}

const KIND_SHIFT: u32 = 62;
const NUMBER_MASK: u64 = (1 << KIND_SHIFT) - 1;

impl Kind {
    /// Match bits of a message of this kind that belongs to an operation.
    pub(crate) fn bits(self, number: u64) -> u64 {
        (self as u64) << KIND_SHIFT | number & NUMBER_MASK
    }

    /// A message's kind, and the number of its operation.
    pub(crate) fn of(bits: u64) -> Option<(Self, u64)> {
        let kind = match bits >> KIND_SHIFT {
            1 => Self::Request,
            2 => Self::Data,
            3 => Self::Answer,
            _ => return None,
        };
        Some((kind, bits & NUMBER_MASK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::atomics::{Datatype, Op};

    fn encoded(request: &Request, operands: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        assert_eq!(bytes.len(), HEADER_BYTES);
        bytes.resize(HEADER_BYTES + operands, 7);
        bytes
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_only_with_operands_of_its_length() {
        let atomic = |shape, op: Op| {
            Action::Atomic(
                Atomic::new(shape, op as u32, Datatype::U64 as u32).expect("it is served"),
            )
        };
        for (action, length_bytes, operands) in [
            (Action::Write, 0, 0),
            (Action::Write, 4096, 4096),
            (Action::WriteApart, 1 << 40, 0),
            (Action::Read, u64::MAX, 0),
            (atomic(Shape::Update, Op::Sum), 16, 16),
            (atomic(Shape::Fetch, Op::Read), 16, 0),
            (atomic(Shape::Fetch, Op::Write), 8, 8),
            (atomic(Shape::Compare, Op::SwapIfEqual), 2048, 4096),
        ] {
            for data in [None, Some(9)] {
                let request = Request { action, key: 1, offset: u64::MAX, length_bytes, data };
                let bytes = encoded(&request, operands);
                let parsed = Request::parse(&bytes).expect("it is correct");
                assert_eq!(parsed, (request, &bytes[HEADER_BYTES..]));
                assert_eq!(Request::parse(&encoded(&request, operands + 1)), None);
                assert_eq!(Request::parse(&bytes[..bytes.len() - 1]), None);
            }
        }
        for (action, length_bytes) in [
            (Action::Write, 4097),
            (atomic(Shape::Update, Op::Sum), 12),
            (atomic(Shape::Update, Op::Sum), 0),
            (atomic(Shape::Compare, Op::SwapIfEqual), 2056),
        ] {
            let request = Request { action, key: 1, offset: 0, length_bytes, data: None };
            for operands in [length_bytes as usize, 2 * length_bytes as usize] {
                assert_eq!(Request::parse(&encoded(&request, operands)), None, "{request:?}");
            }
        }
    }

    #[test]
    fn any_bytes_are_a_request_or_none() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Some((request, operands)) = Request::parse(bytes) {
                let mut again = Vec::new();
                request.encode(&mut again);
                again.extend_from_slice(operands);
                if request.data.is_some() {
                    assert_eq!(again, bytes);
                }
                assert!(operands.len() <= OPERANDS_BYTES_MAX);
            }
        });
    }

    #[test]
    fn a_code_that_no_correct_peer_answers_with_is_a_protocol_error() {
        for code in [0, 7, u64::MAX] {
            assert_eq!(Refusal::number_of(code), libc::EPROTO);
        }
        assert_eq!(Refusal::number_of(Refusal::Bounds as u64), libc::EINVAL);
    }
}
