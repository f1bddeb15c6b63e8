//! From a captured packet to its TCP segment, through the link layers, tags and headers between.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::capture::Packet;

const ETHERNET: u32 = 1;
const NULL: u32 = 0;
const LOOP: u32 = 108;
const RAW_BSD: [u32; 2] = [12, 14];
const RAW: u32 = 101;
const COOKED_V1: u32 = 113;
const RAW_IPV4: u32 = 228;
const RAW_IPV6: u32 = 229;
const COOKED_V2: u32 = 276;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad and its predecessor.
const TYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const TAGS_MAX: usize = 4;
const EXTENSIONS_MAX: usize = 8;
const PROTOCOL_TCP: u8 = 6;

/// An address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoint {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// One TCP segment, as its headers tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) time_ns: u64,
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: Flags,
    /// As sent, not scaled.
    pub(crate) window: u16,
    pub(crate) payload_bytes: u32,
    /// IPv4's identification; absent in IPv6.
    pub(crate) ident: Option<u16>,
    /// Whether a router marked it (ECN's CE).
    pub(crate) is_marked: bool,
    pub(crate) options: Options,
}

/// The flags that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) fn is_syn(self) -> bool {
        self.0 & 2 != 0
    }

    pub(crate) fn is_rst(self) -> bool {
        self.0 & 4 != 0
    }

    pub(crate) fn is_ack(self) -> bool {
        self.0 & 16 != 0
    }
}

/// TCP options, as far as they were captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Options {
    pub(crate) mss_bytes: Option<u16>,
    pub(crate) window_shift: Option<u8>,
    pub(crate) may_sack: bool,
    /// Value and echo.
    pub(crate) timestamps: Option<(u32, u32)>,
    /// The first block of a selective acknowledgement.
    pub(crate) sack: Option<(u32, u32)>,
    /// The capture ends within them.
    pub(crate) is_cut: bool,
}

/// Whether packets of this link type can be read.
pub(crate) fn reads(link_type: u32) -> bool {
    RAW_BSD.contains(&link_type)
        || [ETHERNET, NULL, LOOP, RAW, COOKED_V1, RAW_IPV4, RAW_IPV6, COOKED_V2]
            .contains(&link_type)
}

/// The segment in a packet; `None` when it is no TCP or too little of it was captured.
pub(crate) fn segment(packet: &Packet<'_>) -> Option<Segment> {
    let (ip, skipped_bytes) = network_layer(packet)?;
    let left_bytes = packet.original_bytes.saturating_sub(u32::try_from(skipped_bytes).ok()?);
    match ip.first()? >> 4 {
        4 => ipv4(packet.time_ns, ip, left_bytes),
        6 => ipv6(packet.time_ns, ip, left_bytes),
        _ => None,
    }
}

/// The bytes from the IP header on, and how many were before.
fn network_layer<'a>(packet: &Packet<'a>) -> Option<(&'a [u8], usize)> {
    let bytes = packet.bytes;
    let from = |at: usize| Some((bytes.get(at..)?, at));
    match packet.link_type {
        ETHERNET => untagged(bytes, 12),
        COOKED_V1 => untagged(bytes, 14),
        COOKED_V2 => is_ip(be16(bytes, 0)?).then(|| from(20))?,
        NULL | LOOP => from(4),
        RAW | RAW_IPV4 | RAW_IPV6 => from(0),
        other => RAW_BSD.contains(&other).then(|| from(0))?,
    }
}

fn is_ip(ether_type: u16) -> bool {
    ether_type == TYPE_IPV4 || ether_type == TYPE_IPV6
}

/// Past the tags; `at` is where the type stands.
fn untagged(bytes: &[u8], mut at: usize) -> Option<(&[u8], usize)> {
    for _ in 0..=TAGS_MAX {
        let ether_type = be16(bytes, at)?;
        if is_ip(ether_type) {
            return Some((bytes.get(at + 2..)?, at + 2));
        }
        if !TYPES_VLAN.contains(&ether_type) {
            return None;
        }
        at += 4;
    }
    None
}

fn ipv4(time_ns: u64, ip: &[u8], left_bytes: u32) -> Option<Segment> {
    let header_bytes = usize::from(ip.first()? & 0x0f) * 4;
    // No fragments: ports and flags are in the first one only.
    if header_bytes < 20 || *ip.get(9)? != PROTOCOL_TCP || be16(ip, 6)? & 0x3fff != 0 {
        return None;
    }
    let total_bytes = match be16(ip, 2)? {
        // A super-segment that was captured before it got a length.
        0 => left_bytes,
        bytes => u32::from(bytes),
    };
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes).into())
    };
    let tcp_bytes = total_bytes.checked_sub(u32::try_from(header_bytes).ok()?)?;
    let segment = tcp(ip.get(header_bytes..)?, tcp_bytes, address(12)?, address(16)?)?;
    let is_marked = ip.get(1)? & 3 == 3;
    Some(Segment { time_ns, ident: be16(ip, 4), is_marked, ..segment })
}

fn ipv6(time_ns: u64, ip: &[u8], left_bytes: u32) -> Option<Segment> {
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(bytes).into())
    };
    let payload_bytes = match be16(ip, 4)? {
        0 => left_bytes.checked_sub(40)?,
        bytes => u32::from(bytes),
    };
    let (mut next, mut at) = (*ip.get(6)?, 40_usize);
    for _ in 0..EXTENSIONS_MAX {
        match next {
            PROTOCOL_TCP => break,
            // Hop-by-hop, routing, destination options: their length in units of 8 bytes.
            0 | 43 | 60 => {
                let bytes = (usize::from(*ip.get(at + 1)?) + 1) * 8;
                (next, at) = (*ip.get(at)?, at + bytes);
            }
            _ => return None,
        }
    }
    if next != PROTOCOL_TCP {
        return None;
    }
    let tcp_bytes = payload_bytes.checked_sub(u32::try_from(at - 40).ok()?)?;
    let segment = tcp(ip.get(at..)?, tcp_bytes, address(8)?, address(24)?)?;
    let is_marked = be16(ip, 0)? >> 4 & 3 == 3;
    Some(Segment { time_ns, is_marked, ..segment })
}

fn tcp(tcp: &[u8], tcp_bytes: u32, from: IpAddr, to: IpAddr) -> Option<Segment> {
    let header_bytes = u32::from(tcp.get(12)? >> 4) * 4;
    let payload_bytes = tcp_bytes.checked_sub(header_bytes).filter(|_| header_bytes >= 20)?;
    let end = (header_bytes as usize).min(tcp.len());
    Some(Segment {
        time_ns: 0,
        from: Endpoint { address: from, port: be16(tcp, 0)? },
        to: Endpoint { address: to, port: be16(tcp, 2)? },
        seq: be32(tcp, 4)?,
        ack: be32(tcp, 8)?,
        flags: Flags(*tcp.get(13)?),
        window: be16(tcp, 14)?,
        payload_bytes,
        ident: None,
        is_marked: false,
        options: Options {
            is_cut: tcp.len() < header_bytes as usize,
            ..options(tcp.get(20..end).unwrap_or_default())
        },
    })
}

fn options(mut rest: &[u8]) -> Options {
    let mut options = Options::default();
    while let Some(kind) = rest.first() {
        let length = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(rest.get(1).copied().unwrap_or(0)),
        };
        // One that claims less than its own two bytes, or was cut off, ends the list.
        let Some(option) = rest.get(..length).filter(|_| length > 0) else { break };
        match (kind, length) {
            (2, 4) => options.mss_bytes = be16(option, 2),
            // RFC 7323: a shift beyond 14 counts as 14.
            (3, 3) => options.window_shift = option.get(2).map(|shift| (*shift).min(14)),
            (4, 2) => options.may_sack = true,
            (5, 10..) => options.sack = be32(option, 2).zip(be32(option, 6)),
            (8, 10) => options.timestamps = be32(option, 2).zip(be32(option, 6)),
            _ => {}
        }
        rest = &rest[length..];
    }
    options
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
