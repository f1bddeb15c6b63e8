//! What a probe says.
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | `CSgp` |
//! | 4 | version, 1 |
//! | 5 | 1: question, 2: answer |
//! | 6–7 | index of the gateway in the plan |
//! | 8–15 | the plan's number |
//! | 16–23 | sequence number |
//! | 24–31 | send time, nanoseconds of the prober's clock: the reflector does not look at it |
//! | 32–33 | bytes of the payload, padding included |
//! | 34 | 0: small, 1: padded to the MTU |
//! | 35–39 | 0 |
//! | 40–55 | tag ([`siphash`](crate::siphash)) of bytes 0–39, the prober's and the reflector's address |
//! | 56– | padding, 0 |
//!
//! Numbers are big-endian. IPv4 addresses enter the tag as IPv4-mapped IPv6 addresses. The kind is under
//! the tag, so a question never passes for an answer; the addresses are in the order prober, reflector in both.

use core::net::{IpAddr, Ipv6Addr};

use super::RefusedProbeError;
use crate::siphash::{Key, TAG_BYTES};

/// Bytes of a payload without padding.
pub const PAYLOAD_BYTES: usize = 56;

const MAGIC: [u8; 4] = *b"CSgp";
const VERSION: u8 = 1;
const TAGGED_BYTES: usize = 40;

/// Which way a probe goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From the prober to the reflector.
    Question,
    /// From the reflector to the prober.
    Answer,
}

/// How long a probe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SizeClass {
    /// Without padding.
    Small,
    /// Padded to the MTU.
    Full,
}

/// A probe's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Which way it goes.
    pub kind: Kind,
    /// Index of the gateway in the plan.
    pub gateway: u16,
    /// The plan's number.
    pub plan_id: u64,
    /// Number of the question.
    pub sequence: u64,
    /// When the question was sent, on the prober's clock.
    pub sent_ns: u64,
    /// How long it is.
    pub size: SizeClass,
}

/// Both ends' addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Address of the prober.
    pub prober: IpAddr,
    /// Address of the reflector.
    pub reflector: IpAddr,
}

impl Payload {
    /// Writes the payload with its tag over the whole of `into`, whose rest becomes padding.
    ///
    /// # Panics
    /// `into` is shorter than [`PAYLOAD_BYTES`] or longer than 65535 bytes.
    pub fn write(&self, key: &Key, ends: &Ends, into: &mut [u8]) {
        let length = u16::try_from(into.len()).expect("at most 65535 bytes");
        let (head, padding) = into.split_at_mut(PAYLOAD_BYTES);
        head[..4].copy_from_slice(&MAGIC);
        head[4] = VERSION;
        head[5] = match self.kind {
            Kind::Question => 1,
            Kind::Answer => 2,
        };
        head[6..8].copy_from_slice(&self.gateway.to_be_bytes());
        head[8..16].copy_from_slice(&self.plan_id.to_be_bytes());
        head[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        head[24..32].copy_from_slice(&self.sent_ns.to_be_bytes());
        head[32..34].copy_from_slice(&length.to_be_bytes());
        head[34] = u8::from(self.size == SizeClass::Full);
        head[35..40].fill(0);
        let tag = key.tag(&tagged(head, ends));
        head[40..].copy_from_slice(&tag);
        padding.fill(0);
    }

    /// Reads a payload and checks everything but its tag. `length` is that of the whole payload, of which
    /// `bytes` may be the beginning: ICMP errors quote no more.
    ///
    /// # Errors
    /// It is no probe, or one that contradicts itself.
    pub fn parse(bytes: &[u8], length: usize) -> Result<Self, RefusedProbeError> {
        let head = bytes.get(..PAYLOAD_BYTES).ok_or(RefusedProbeError::TooShort)?;
        if head[..4] != MAGIC {
            return Err(RefusedProbeError::NoProbe);
        }
        if head[4] != VERSION {
            return Err(RefusedProbeError::Version);
        }
        let kind = match head[5] {
            1 => Kind::Question,
            2 => Kind::Answer,
            _other => return Err(RefusedProbeError::Direction),
        };
        let size = match head[34] {
            0 => SizeClass::Small,
            1 => SizeClass::Full,
            _other => return Err(RefusedProbeError::Padding),
        };
        let stated = usize::from(u16::from_be_bytes([head[32], head[33]]));
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if stated != length || !is_zero(&head[35..40]) || !is_zero(&bytes[PAYLOAD_BYTES..]) {
            return Err(RefusedProbeError::Padding);
        }
        let number = |at: usize| {
            let bytes = head[at..].first_chunk::<8>();
            bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
        };
        Ok(Self {
            kind,
            gateway: u16::from_be_bytes([head[6], head[7]]),
            plan_id: number(8),
            sequence: number(16),
            sent_ns: number(24),
            size,
        })
    }
}

/// Whether the tag of a payload that [`Payload::parse`] has read is right.
#[must_use]
pub fn is_genuine(bytes: &[u8], key: &Key, ends: &Ends) -> bool {
    let Some(head) = bytes.first_chunk::<PAYLOAD_BYTES>() else { return false };
    let tag = head.last_chunk::<TAG_BYTES>();
    tag.is_some_and(|tag| key.verifies(&tagged(head, ends), tag))
}

fn tagged(head: &[u8], ends: &Ends) -> [u8; TAGGED_BYTES + 32] {
    let mut message = [0; TAGGED_BYTES + 32];
    message[..TAGGED_BYTES].copy_from_slice(&head[..TAGGED_BYTES]);
    message[TAGGED_BYTES..TAGGED_BYTES + 16].copy_from_slice(&wide(ends.prober).octets());
    message[TAGGED_BYTES + 16..].copy_from_slice(&wide(ends.reflector).octets());
    message
}

fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
