//! Frames as pkt-gen sends them: Ethernet, IPv4, UDP, and a stamp in the payload.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::flows::{Ends, Flows};

/// Shortest frame: Ethernet's, without its checksum.
pub const FRAME_BYTES_MIN: usize = 60;
/// Longest frame that a slot describes.
pub const FRAME_BYTES_MAX: usize = 65_535;

const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const PAYLOAD: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;
/// Before the stamp; with the stamp it fills the shortest frame.
const MAGIC: [u8; 2] = *b"CS";
const STAMP: usize = PAYLOAD + MAGIC.len();
/// What tells our frames from other traffic, by offset: IPv4 without options, UDP without a checksum, and the magic. The
/// magic alone would be in one of 65536 frames of random bytes.
const MARK: [(usize, &[u8]); 4] =
    [(12, &[0x08, 0x00, 0x45]), (23, &[17]), (PAYLOAD - 2, &[0, 0]), (PAYLOAD, &MAGIC)];

/// An Ethernet address as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacAddress(pub [u8; 6]);

/// Not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{0}' is not an Ethernet address such as 02:00:00:00:00:01")]
pub struct MacError(String);

impl FromStr for MacAddress {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let bad = || MacError(text.chars().take(40).collect());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).ok().ok_or_else(bad)?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// Which frame of a stream, and when it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Sequence number, from 0.
    pub sequence: u64,
    /// `CLOCK_MONOTONIC` of the sending host.
    pub sent_ns: u64,
}

impl Stamp {
    /// Where it lies in a frame.
    pub(crate) const OFFSET: usize = STAMP;
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// From a frame's first [`FRAME_BYTES_MIN`] bytes; `None` for other traffic.
    pub(crate) fn decode(head: &[u8; FRAME_BYTES_MIN]) -> Option<Self> {
        let is_ours = MARK.iter().all(|(at, bytes)| head[*at..].starts_with(bytes));
        let (sequence, sent) = head[STAMP..].split_first_chunk::<8>()?;
        let sent = sent.first_chunk::<8>()?;
        is_ours.then(|| Self {
            sequence: u64::from_le_bytes(*sequence),
            sent_ns: u64::from_le_bytes(*sent),
        })
    }
}

/// What the frames of a stream have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    /// A UDP datagram to the discard port; `frame_bytes` is brought between [`FRAME_BYTES_MIN`] and
    /// [`FRAME_BYTES_MAX`].
    #[must_use]
    pub fn new(source: MacAddress, destination: MacAddress, frame_bytes: usize) -> Self {
        Self::of(Flows::between(source, destination), frame_bytes)
    }

    /// The first of these flows, as long as [`Frame::new`] makes it.
    #[must_use]
    pub fn of(flows: Flows, frame_bytes: usize) -> Self {
        let frame_bytes = frame_bytes.clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX);
        let mut bytes = vec![0; frame_bytes];
        // No more than 65535 in all, so the lengths fit.
        let ip_bytes = (frame_bytes - ETHERNET_BYTES) as u16;
        let ip = &mut bytes[ETHERNET_BYTES..ETHERNET_BYTES + IP_BYTES];
        ip[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
        ip[8] = 64;
        let udp = &mut bytes[ETHERNET_BYTES + IP_BYTES..PAYLOAD];
        udp[4..6].copy_from_slice(&(ip_bytes - IP_BYTES as u16).to_be_bytes());
        for (at, mark) in MARK {
            bytes[at..at + mark.len()].copy_from_slice(mark);
        }
        let mut frame = Self { bytes };
        let head = frame.head(flows.at(0));
        frame.bytes[..PAYLOAD].copy_from_slice(&head);
        frame
    }

    /// Its headers between other ends.
    #[must_use]
    pub(super) fn head(&self, ends: Ends) -> [u8; PAYLOAD] {
        let Ends { macs, source, destination } = ends;
        let mut head = [0; PAYLOAD];
        head.copy_from_slice(&self.bytes[..PAYLOAD]);
        head[..6].copy_from_slice(&macs[0].0);
        head[6..12].copy_from_slice(&macs[1].0);
        let ip = &mut head[ETHERNET_BYTES..ETHERNET_BYTES + IP_BYTES];
        ip[10..12].fill(0);
        ip[12..16].copy_from_slice(&source.0.octets());
        ip[16..20].copy_from_slice(&destination.0.octets());
        let sum = checksum(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let udp = &mut head[ETHERNET_BYTES + IP_BYTES..];
        udp[0..2].copy_from_slice(&source.1.to_be_bytes());
        udp[2..4].copy_from_slice(&destination.1.to_be_bytes());
        head
    }

    /// The whole frame.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    // Ten words: two foldings are enough.
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_datagram_with_room_for_its_stamp() {
        let frame = Frame::new(MacAddress([2; 6]), MacAddress([4; 6]), 60);
        assert_eq!(frame.bytes().len(), 60);
        assert_eq!(frame.bytes()[..14], [4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 8, 0]);
        assert_eq!(checksum(&frame.bytes()[14..34]), 0);
        let stamp = Stamp { sequence: 0x0102_0304, sent_ns: u64::MAX - 1 };
        let mut head: [u8; 60] = frame.bytes().try_into().unwrap();
        head[Stamp::OFFSET..].copy_from_slice(&stamp.encode());
        assert_eq!(Stamp::decode(&head), Some(stamp));
        assert_eq!(Stamp::decode(&[0; 60]), None);
        assert_eq!(
            Frame::new(MacAddress([0; 6]), MacAddress([0; 6]), 1 << 20).bytes().len(),
            65_535
        );
    }

    #[test]
    fn traffic_with_any_other_mark_is_not_ours() {
        let frame = Frame::new(MacAddress([2; 6]), MacAddress([4; 6]), 60);
        let ours: [u8; 60] = frame.bytes().try_into().unwrap();
        let marked: Vec<usize> =
            MARK.iter().flat_map(|(at, bytes)| *at..at + bytes.len()).collect();
        assert_eq!(marked, [12, 13, 14, 23, 40, 41, 42, 43]);
        for at in 0..60 {
            let mut head = ours;
            head[at] ^= 0x10;
            assert_eq!(Stamp::decode(&head).is_some(), !marked.contains(&at), "byte {at}");
        }
        // An echo request whose data begins with the magic.
        let mut ping = ours;
        (ping[23], ping[34]) = (1, 8);
        assert_eq!(Stamp::decode(&ping), None);
    }

    #[test]
    fn other_ends_change_nothing_else() {
        let frame = Frame::new(MacAddress([2; 6]), MacAddress([4; 6]), 100);
        let flows = Flows {
            sources: "10.0.0.1:7".parse().unwrap(),
            destinations: "10.0.0.2:8".parse().unwrap(),
            ..Flows::between(MacAddress([6; 6]), MacAddress([8; 6]))
        };
        let head = frame.head(flows.at(0));
        assert_eq!(head[..14], [8, 8, 8, 8, 8, 8, 6, 6, 6, 6, 6, 6, 8, 0]);
        assert_eq!(checksum(&head[14..34]), 0);
        assert_eq!(head[26..38], [10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 8]);
        assert_eq!((&head[14..24], &head[38..]), (&frame.bytes()[14..24], &frame.bytes()[38..42]));
    }

    #[test]
    fn addresses_are_written_as_usual() {
        let address: MacAddress = "02:00:5e:0a:ff:01".parse().unwrap();
        assert_eq!(address.to_string(), "02:00:5e:0a:ff:01");
        for bad in [
            "",
            "02",
            "02:00:5e:0a:ff",
            "02:00:5e:0a:ff:01:02",
            "2:0:5e:a:ff:1",
            "02:00:5e:0a:ff:xx",
        ] {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(address) = text.parse::<MacAddress>() {
                assert_eq!(address.to_string(), text.to_lowercase());
            }
        });
    }
}
