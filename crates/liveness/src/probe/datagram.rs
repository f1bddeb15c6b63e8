//! IPv4 and IPv6 packets with one UDP datagram: written and read without the kernel's stack, since a
//! probe is sent to a MAC address that no route leads to.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::RefusedProbeError;

/// Type of service of every probe: class selector 6, network control.
const TRAFFIC_CLASS: u8 = 0xc0;
const HOP_LIMIT: u8 = 64;
const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;

/// A UDP datagram in an IP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Where it comes from.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// UDP port it comes from.
    pub source_port: u16,
    /// UDP port it goes to.
    pub destination_port: u16,
    /// Where in the packet its payload is, or the beginning of it.
    pub payload: Range<usize>,
    /// How long its payload is.
    pub payload_bytes: usize,
}

/// Bytes of IP and UDP headers before the payload, by family.
#[must_use]
pub fn header_bytes(is_v6: bool) -> usize {
    if is_v6 { V6_BYTES + UDP_BYTES } else { V4_BYTES + UDP_BYTES }
}

impl Datagram {
    /// Reads a packet.
    ///
    /// # Errors
    /// It is no unfragmented UDP datagram with a plain IP header.
    pub fn parse(packet: &[u8]) -> Result<Self, RefusedProbeError> {
        Self::parse_beginning(packet, Some(packet.len()))
    }

    /// Reads the beginning of a packet of so many bytes; `None` where nobody knows how many, as in a quotation.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), or the packet is shorter than its header states.
    pub fn parse_beginning(
        packet: &[u8],
        packet_bytes: Option<usize>,
    ) -> Result<Self, RefusedProbeError> {
        let (source, destination, udp) = match packet.first().map(|first| first >> 4) {
            Some(4) => parse_v4(packet)?,
            Some(6) => parse_v6(packet)?,
            Some(_other) => return Err(RefusedProbeError::Header),
            None => return Err(RefusedProbeError::TooShort),
        };
        let head = packet.get(udp.start..udp.start + UDP_BYTES);
        let head = head.ok_or(RefusedProbeError::TooShort)?;
        let stated = usize::from(u16::from_be_bytes([head[4], head[5]]));
        if stated != udp.len() {
            return Err(RefusedProbeError::Padding);
        }
        let end = udp.end.min(packet.len());
        let is_cut_off = packet_bytes.is_some_and(|bytes| bytes < udp.end);
        if is_cut_off || end < udp.start + UDP_BYTES {
            return Err(RefusedProbeError::TooShort);
        }
        Ok(Self {
            source,
            destination,
            source_port: u16::from_be_bytes([head[0], head[1]]),
            destination_port: u16::from_be_bytes([head[2], head[3]]),
            payload: udp.start + UDP_BYTES..end,
            payload_bytes: stated - UDP_BYTES,
        })
    }
}

/// Addresses and where the UDP datagram should be, by the header's own lengths.
type Parsed = (IpAddr, IpAddr, Range<usize>);

fn parse_v4(packet: &[u8]) -> Result<Parsed, RefusedProbeError> {
    let head = packet.first_chunk::<V4_BYTES>().ok_or(RefusedProbeError::TooShort)?;
    if head[0] != 0x45 {
        return Err(RefusedProbeError::Header);
    }
    if u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0 {
        return Err(RefusedProbeError::Fragment);
    }
    if head[9] != UDP {
        return Err(RefusedProbeError::OtherPorts);
    }
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if total < V4_BYTES {
        return Err(RefusedProbeError::Header);
    }
    let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
    Ok((address(12).into(), address(16).into(), V4_BYTES..total))
}

fn parse_v6(packet: &[u8]) -> Result<Parsed, RefusedProbeError> {
    let head = packet.first_chunk::<V6_BYTES>().ok_or(RefusedProbeError::TooShort)?;
    if head[6] == 44 {
        return Err(RefusedProbeError::Fragment);
    }
    if head[6] != UDP {
        return Err(RefusedProbeError::OtherPorts);
    }
    let total = V6_BYTES + usize::from(u16::from_be_bytes([head[4], head[5]]));
    let address = |at: usize| {
        let octets = head[at..].first_chunk::<16>();
        Ipv6Addr::from(octets.copied().unwrap_or_default())
    };
    Ok((address(8).into(), address(24).into(), V6_BYTES..total))
}

/// Writes IP and UDP headers before the payload that is already in `packet`, which is the whole packet. Of
/// the payload the first `summed_bytes` count for the checksum and the rest must be 0, so padding costs nothing here.
///
/// The packet may not be fragmented on its way.
///
/// # Panics
/// The addresses are of two families, or the packet is shorter than its headers or longer than 65535 bytes.
pub fn write_headers(
    packet: &mut [u8],
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    summed_bytes: usize,
) {
    write_headers_with(HOP_LIMIT, packet, source, destination, summed_bytes);
}

/// [`write_headers`] with another TTL or hop limit than that of probes, 64.
///
/// # Panics
/// As there.
pub fn write_headers_with(
    hop_limit: u8,
    packet: &mut [u8],
    (source, source_port): (IpAddr, u16),
    (destination, destination_port): (IpAddr, u16),
    summed_bytes: usize,
) {
    let total = u16::try_from(packet.len()).expect("at most 65535 bytes");
    let ip_bytes = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let head = &mut packet[..V4_BYTES];
            head.fill(0);
            head[..2].copy_from_slice(&[0x45, TRAFFIC_CLASS]);
            head[2..4].copy_from_slice(&total.to_be_bytes());
            head[6] = 0x40; // do not fragment
            head[8..10].copy_from_slice(&[hop_limit, UDP]);
            head[12..16].copy_from_slice(&source.octets());
            head[16..20].copy_from_slice(&destination.octets());
            let checksum = !folded(sum(head));
            head[10..12].copy_from_slice(&checksum.to_be_bytes());
            V4_BYTES
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let head = &mut packet[..V6_BYTES];
            head.fill(0);
            let class = 6 << 28 | u32::from(TRAFFIC_CLASS) << 20;
            head[..4].copy_from_slice(&class.to_be_bytes());
            head[4..6].copy_from_slice(&(total - V6_BYTES as u16).to_be_bytes());
            head[6..8].copy_from_slice(&[UDP, hop_limit]);
            head[8..24].copy_from_slice(&source.octets());
            head[24..40].copy_from_slice(&destination.octets());
            V6_BYTES
        }
        _mixed => panic!("{source} and {destination} are of two families"),
    };
    let udp_length = total - ip_bytes as u16;
    let udp = &mut packet[ip_bytes..];
    udp[..2].copy_from_slice(&source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&destination_port.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    udp[6..8].fill(0);
    let covered = UDP_BYTES + summed_bytes;
    let all = sum(&udp[..covered.min(udp.len())])
        + address_sum(source)
        + address_sum(destination)
        + u64::from(UDP)
        + u64::from(udp_length);
    // 0 would mean that there is no checksum.
    let checksum = match !folded(all) {
        0 => 0xffff,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
}

fn address_sum(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    }
}

/// Sum of 16-bit words (RFC 1071), an odd byte counted as if a 0 followed.
fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let whole: u64 =
        words.by_ref().map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    whole + words.remainder().first().map_or(0, |last| u64::from(*last) << 8)
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
