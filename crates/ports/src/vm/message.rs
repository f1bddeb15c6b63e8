//! Messages of vhost-user (QEMU's `docs/interop/vhost-user.rst`): what a hypervisor may say, read from bytes that
//! anybody may have sent.

use thiserror::Error;

/// Bytes of what comes before each message's payload.
pub const HEADER_BYTES: usize = 12;

/// Longest payload of any request that is understood: a memory table of [`REGIONS_MAX`], or a device's
/// configuration.
pub const PAYLOAD_BYTES_MAX: usize = 512;

/// Most regions of a guest's memory, as QEMU's (`VHOST_MEMORY_BASELINE_NREGIONS`).
pub const REGIONS_MAX: usize = 8;

/// Longest configuration space (`VHOST_USER_MAX_CONFIG_SIZE`).
const CONFIG_BYTES_MAX: u32 = 256;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const IS_REPLY: u32 = 4;
const NEEDS_REPLY: u32 = 8;

/// A part of the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionEntry {
    /// Where the guest has it.
    pub guest_address: u64,
    /// Length, bytes.
    pub bytes: u64,
    /// Where the hypervisor has it.
    pub user_address: u64,
    /// Where it begins in the file that comes with it.
    pub file_offset: u64,
}

/// Where the areas of a queue are, in the hypervisor's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Address of the descriptor table.
    pub descriptors: u64,
    /// Address of the used ring.
    pub used: u64,
    /// Address of the available ring.
    pub available: u64,
}

/// What a hypervisor asks. Queues are numbered from 0: what the guest receives on, what it sends on, and so on for
/// the next pair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the protocol names them")]
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<RegionEntry>),
    SetVringNum {
        queue: u32,
        size: u32,
    },
    SetVringAddr {
        queue: u32,
        addresses: Addresses,
    },
    SetVringBase {
        queue: u32,
        base: u32,
    },
    GetVringBase {
        queue: u32,
    },
    /// Whether a descriptor comes with it; so for the next two.
    SetVringKick {
        queue: u32,
        has_fd: bool,
    },
    SetVringCall {
        queue: u32,
        has_fd: bool,
    },
    SetVringErr {
        queue: u32,
        has_fd: bool,
    },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable {
        queue: u32,
        enable: bool,
    },
    NetSetMtu(u64),
    GetConfig {
        offset: u32,
        bytes: u32,
    },
    SetConfig,
    ResetDevice,
    /// One that is not understood.
    Unknown(u32),
}

/// A request and whether its sender waits for an answer to it, beside those that always have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The request.
    pub request: Request,
    /// The protocol's `need_reply`.
    pub needs_reply: bool,
    number: u32,
}

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The message is of another protocol version.
    #[error("vhost-user message of version {0}")]
    Version(u32),
    /// The message is longer than any request.
    #[error("vhost-user message {request} of {bytes} bytes")]
    Length {
        /// Number of the request.
        request: u32,
        /// Length of its payload.
        bytes: u32,
    },
    /// A memory table of more regions than there may be.
    #[error("a memory table of {0} regions")]
    Regions(u32),
}

/// How many bytes the payload behind a header has.
///
/// # Errors
/// More than any message has, or another version.
pub fn payload_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, MessageError> {
    let (request, flags, bytes) = (word(header, 0), word(header, 4), word(header, 8));
    if flags & VERSION_MASK != VERSION {
        return Err(MessageError::Version(flags & VERSION_MASK));
    }
    if bytes as usize > PAYLOAD_BYTES_MAX {
        return Err(MessageError::Length { request, bytes });
    }
    Ok(bytes as usize)
}

/// Bytes that are not there are 0: lengths are checked before.
fn word(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |word| u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// The number of a queue, and whether a descriptor comes with the message.
const QUEUE_MASK: u64 = 0xff;
const WITHOUT_FD: u64 = 0x100;

impl Message {
    /// From a header and the payload behind it.
    ///
    /// # Errors
    /// The payload is not what the request has.
    pub fn decode(header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Self, MessageError> {
        let (number, needs_reply) = (word(header, 0), word(header, 4) & NEEDS_REPLY != 0);
        let wanted = match number {
            2 | 12..=14 | 16 | 20 => 8,
            8 | 10 | 11 | 18 => 8,
            9 => 40,
            5 => 8 + 32 * word(payload, 0).min(u32::from(u16::MAX)) as usize,
            24 | 25 => 12,
            _ => 0,
        };
        let wrong = MessageError::Length { request: number, bytes: payload.len() as u32 };
        if number == 5 && word(payload, 0) as usize > REGIONS_MAX {
            return Err(MessageError::Regions(word(payload, 0)));
        }
        if payload.len() < wanted {
            return Err(wrong);
        }
        let (queue, state) = (word(payload, 0), word(payload, 4));
        let value = long(payload, 0);
        let (file_queue, has_fd) = ((value & QUEUE_MASK) as u32, value & WITHOUT_FD == 0);
        let request = match number {
            1 => Request::GetFeatures,
            2 => Request::SetFeatures(value),
            3 => Request::SetOwner,
            4 => Request::ResetOwner,
            5 => Request::SetMemTable(regions(payload)),
            8 => Request::SetVringNum { queue, size: state },
            9 => Request::SetVringAddr { queue, addresses: addresses(payload) },
            10 => Request::SetVringBase { queue, base: state },
            11 => Request::GetVringBase { queue },
            12 => Request::SetVringKick { queue: file_queue, has_fd },
            13 => Request::SetVringCall { queue: file_queue, has_fd },
            14 => Request::SetVringErr { queue: file_queue, has_fd },
            15 => Request::GetProtocolFeatures,
            16 => Request::SetProtocolFeatures(value),
            17 => Request::GetQueueNum,
            18 => Request::SetVringEnable { queue, enable: state != 0 },
            20 => Request::NetSetMtu(value),
            24 if state > CONFIG_BYTES_MAX => return Err(wrong),
            24 => Request::GetConfig { offset: queue, bytes: state },
            25 => Request::SetConfig,
            34 => Request::ResetDevice,
            _ => Request::Unknown(number),
        };
        Ok(Self { request, needs_reply, number })
    }

    /// The answer with this payload.
    #[must_use]
    pub fn reply(&self, payload: &[u8]) -> Vec<u8> {
        let length = payload.len() as u32;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
        for word in [self.number, VERSION | IS_REPLY, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(payload);
        bytes
    }
}

fn regions(payload: &[u8]) -> Vec<RegionEntry> {
    let count = word(payload, 0) as usize;
    let region = |at: usize| RegionEntry {
        guest_address: long(payload, at),
        bytes: long(payload, at + 8),
        user_address: long(payload, at + 16),
        file_offset: long(payload, at + 24),
    };
    (0..count.min(REGIONS_MAX)).map(|number| region(8 + 32 * number)).collect()
}

/// Number and flags come first; a log's address, which nobody here has asked for, last.
fn addresses(payload: &[u8]) -> Addresses {
    let (descriptors, used) = (long(payload, 8), long(payload, 16));
    Addresses { descriptors, used, available: long(payload, 24) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(request: u32, flags: u32, bytes: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        for (at, word) in [request, flags, bytes].into_iter().enumerate() {
            header[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        header
    }

    #[test]
    fn messages_are_read_as_the_protocol_lays_them_out() {
        let mut table = vec![2, 0, 0, 0, 0, 0, 0, 0];
        table.extend((1..=8_u64).flat_map(u64::to_le_bytes));
        let message = Message::decode(&header(5, 9, 72), &table).unwrap();
        let region = |first: u64| RegionEntry {
            guest_address: first,
            bytes: first + 1,
            user_address: first + 2,
            file_offset: first + 3,
        };
        assert!(message.needs_reply);
        assert_eq!(message.request, Request::SetMemTable(vec![region(1), region(5)]));
        let kick = Message::decode(&header(12, 1, 8), &0x103_u64.to_le_bytes()).unwrap();
        assert_eq!(kick.request, Request::SetVringKick { queue: 3, has_fd: false });
        assert_eq!(kick.reply(&[7]), [12, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 7]);
    }

    #[test]
    fn lengths_that_no_message_has_are_refused() {
        assert_eq!(payload_bytes(&header(1, 2, 0)), Err(MessageError::Version(2)));
        let long = MessageError::Length { request: 1, bytes: 513 };
        assert_eq!(payload_bytes(&header(1, 1, 513)), Err(long));
        let nine = 9_u32.to_le_bytes();
        let regions = Message::decode(&header(5, 1, 512), &[&nine[..], &[0; 508]].concat());
        assert_eq!(regions, Err(MessageError::Regions(9)));
        for (request, enough) in [(2, 8), (9, 40), (18, 8), (24, 12)] {
            let short = Message::decode(&header(request, 1, 0), &vec![0; enough - 1]);
            assert!(matches!(short, Err(MessageError::Length { .. })), "{request}");
        }
        assert!(
            Message::decode(&header(5, 1, 39), &[[1; 1].as_slice(), &[0; 38]].concat()).is_err()
        );
    }

    #[test]
    fn any_bytes_are_a_message_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
            let Ok(length) = payload_bytes(header) else { return };
            if let Some(payload) = rest.get(..length)
                && let Ok(message) = Message::decode(header, payload)
                && let Request::SetMemTable(regions) = message.request
            {
                assert!(regions.len() <= REGIONS_MAX);
            }
        });
    }
}
