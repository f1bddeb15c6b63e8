//! Frames as they come off a port: a virtio-net header, then Ethernet without its checksum.
//!
//! A TCP segment of up to 64 KiB travels whole and unchecksummed; on a real wire it would be many
//! packets. [`FrameShape`] says how many and how long, which is all that a link needs to know.

/// Bytes of the legacy virtio-net header (virtio 1.2, section 5.1.6, without `num_buffers`).
pub const VNET_HEADER_BYTES: usize = 10;

/// What Ethernet adds to a frame on the wire: preamble and delimiter 8, checksum 4, gap 12 bytes
/// (IEEE 802.3, clauses 3 and 4).
pub const WIRE_OVERHEAD_BYTES: u64 = 24;

/// Shortest Ethernet frame without its checksum.
const FRAME_BYTES_MIN: u64 = 60;
const ETHERNET_BYTES: usize = 14;

/// Most wire packets that a frame may stand for. No real sender comes near: Linux accepts no segment
/// size of TCP below 88 bytes (`TCP_MIN_MSS`, `include/net/tcp.h`), of which timestamps take 12, so 64 KiB
/// are at most 863; of UDP it sends at most 128 at once (`UDP_MAX_SEGMENTS`, `include/linux/udp.h`).
pub const PACKETS_MAX: u32 = 1024;

pub(crate) const FLAG_NEEDS_CHECKSUM: u8 = 1;

/// How a super-segment is to be cut (`VIRTIO_NET_HDR_GSO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segmentation {
    /// One packet.
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of one `UDP_SEGMENT` send.
    Udp,
}

/// The virtio-net header, little-endian on the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VnetHeader {
    /// `VIRTIO_NET_HDR_F_*`.
    pub flags: u8,
    /// `VIRTIO_NET_HDR_GSO_*`, the ECN bit included.
    pub gso_type: u8,
    /// Length of all headers, a hint.
    pub header_len_bytes: u16,
    /// Payload of one wire packet.
    pub gso_size_bytes: u16,
    /// Where the checksum starts: the transport header.
    pub checksum_start: u16,
    /// Where it is stored, from there.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Takes the header off a packet; `None` when there is not even that.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (header, frame) = packet.split_first_chunk::<VNET_HEADER_BYTES>()?;
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = *header;
        let parsed = Self {
            flags,
            gso_type,
            header_len_bytes: u16::from_le_bytes([h0, h1]),
            gso_size_bytes: u16::from_le_bytes([g0, g1]),
            checksum_start: u16::from_le_bytes([s0, s1]),
            checksum_offset: u16::from_le_bytes([o0, o1]),
        };
        Some((parsed, frame))
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; VNET_HEADER_BYTES] {
        let [h0, h1] = self.header_len_bytes.to_le_bytes();
        let [g0, g1] = self.gso_size_bytes.to_le_bytes();
        let [s0, s1] = self.checksum_start.to_le_bytes();
        let [o0, o1] = self.checksum_offset.to_le_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Packets that a frame of so many bytes with this header stands for, at most.
    #[must_use]
    pub fn packets_most(&self, frame_bytes: u32) -> u32 {
        match self.segmentation() {
            Segmentation::None => 1,
            // What would be more is none.
            _ => frame_bytes.div_ceil(self.gso_size_bytes.into()).clamp(1, PACKETS_MAX),
        }
    }

    /// How the frame is to be cut.
    #[must_use]
    pub fn segmentation(&self) -> Segmentation {
        if self.gso_size_bytes == 0 || self.flags & FLAG_NEEDS_CHECKSUM == 0 {
            return Segmentation::None;
        }
        match self.gso_type & 0x7f {
            1 => Segmentation::Tcp4,
            4 => Segmentation::Tcp6,
            5 => Segmentation::Udp,
            _ => Segmentation::None,
        }
    }
}

/// What a frame is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameShape {
    /// Ethernet header to the end of the payload.
    pub frame_bytes: u32,
    /// Headers that every wire packet repeats; 0 for a frame that is one packet.
    pub header_bytes: u32,
    /// Payload of every wire packet but the last; 0 for a frame that is one packet.
    pub segment_bytes: u32,
    /// Wire packets, at least 1.
    pub packets_count: u32,
    /// The sender understands congestion marks (RFC 3168: ECT(0) or ECT(1)).
    pub marks_understood: bool,
}

impl FrameShape {
    /// Reads a packet (virtio-net header and frame). Never fails: what it cannot read it takes for
    /// a single packet of that length.
    #[must_use]
    pub fn of(packet: &[u8]) -> Self {
        match VnetHeader::parse(packet) {
            Some((header, frame)) => Self::of_frame(&header, frame),
            None => Self::one_packet(0, false),
        }
    }

    /// A frame that is one packet on the wire.
    #[must_use]
    pub fn one_packet(frame_bytes: u32, marks_understood: bool) -> Self {
        Self { frame_bytes, header_bytes: 0, segment_bytes: 0, packets_count: 1, marks_understood }
    }

    /// Whether it is one packet.
    pub(crate) fn is_one(&self) -> bool {
        self.packets_count == 1
    }

    pub(crate) fn of_frame(header: &VnetHeader, frame: &[u8]) -> Self {
        Self::checked(header, frame).unwrap_or_else(|| {
            let frame_bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            Self::one_packet(frame_bytes, marks_understood(frame))
        })
    }

    /// The same; `None` for a frame that would be more than [`PACKETS_MAX`] packets.
    pub(crate) fn checked(header: &VnetHeader, frame: &[u8]) -> Option<Self> {
        let frame_bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let single = Self::one_packet(frame_bytes, marks_understood(frame));
        let start = usize::from(header.checksum_start);
        let transport_bytes = match header.segmentation() {
            Segmentation::None => return Some(single),
            Segmentation::Udp => 8,
            Segmentation::Tcp4 | Segmentation::Tcp6 => match frame.get(start + 12) {
                Some(offset) => usize::from(offset >> 4) * 4,
                None => return Some(single),
            },
        };
        let header_bytes = start + transport_bytes;
        let segment_bytes = u32::from(header.gso_size_bytes);
        let shape = match frame.len().checked_sub(header_bytes).map(u32::try_from) {
            Some(Ok(payload_bytes)) if payload_bytes > segment_bytes => Self {
                header_bytes: u32::try_from(header_bytes).unwrap_or(0),
                segment_bytes,
                packets_count: payload_bytes.div_ceil(segment_bytes),
                ..single
            },
            _ => single,
        };
        (shape.packets_count <= PACKETS_MAX).then_some(shape)
    }

    /// Bytes of the frame's first `packets_count` packets on the wire: repeated headers, padding to
    /// the shortest frame and [`WIRE_OVERHEAD_BYTES`] for each.
    #[must_use]
    pub fn wire_bytes(&self, packets_count: u32) -> u64 {
        let packets = u64::from(packets_count.min(self.packets_count));
        if packets == 0 {
            return 0;
        }
        let full = u64::from(self.header_bytes + self.segment_bytes);
        let all_but_last = u64::from(self.packets_count - 1);
        let last = u64::from(self.frame_bytes) - all_but_last * u64::from(self.segment_bytes);
        let on_wire = |frame_bytes: u64| frame_bytes.max(FRAME_BYTES_MIN) + WIRE_OVERHEAD_BYTES;
        if packets == u64::from(self.packets_count) {
            all_but_last * on_wire(full) + on_wire(last)
        } else {
            packets * on_wire(full)
        }
    }

    /// How many of the frame's packets, from the first, fit into `room_bytes` of wire bytes.
    #[must_use]
    pub fn packets_within(&self, room_bytes: u64) -> u32 {
        if self.wire_bytes(self.packets_count) <= room_bytes {
            return self.packets_count;
        }
        let one = self.wire_bytes(1);
        u32::try_from(room_bytes / one).unwrap_or(u32::MAX).min(self.packets_count - 1)
    }
}

/// Sets Congestion Experienced on a frame whose sender understands marks; says whether it did.
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    let Some(frame) = packet.get_mut(VNET_HEADER_BYTES..) else { return false };
    if !marks_understood(frame) {
        return false;
    }
    if frame[12..14] == IPV6 {
        frame[15] |= 0x30;
        return true;
    }
    let before = u16::from_be_bytes([frame[14], frame[15]]);
    frame[15] |= 0x03;
    let after = u16::from_be_bytes([frame[14], frame[15]]);
    let Some(stored) = frame.get_mut(24..26) else { return true };
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let sum = !u16::from_be_bytes([stored[0], stored[1]]);
    let sum = add_ones_complement(add_ones_complement(sum, !before), after);
    stored.copy_from_slice(&(!sum).to_be_bytes());
    true
}

/// One's complement sum (RFC 1071).
pub(crate) fn add_ones_complement(left: u16, right: u16) -> u16 {
    let (sum, carry) = left.overflowing_add(right);
    sum + u16::from(carry)
}

/// Where the network header begins: after the addresses, up to two VLAN tags (IEEE 802.1Q, 802.1ad)
/// and the type.
pub(crate) fn network_at(frame: &[u8]) -> usize {
    let is_tag = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    match (is_tag(12), is_tag(16)) {
        (false, _) => ETHERNET_BYTES,
        (true, false) => ETHERNET_BYTES + 4,
        (true, true) => ETHERNET_BYTES + 8,
    }
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

fn marks_understood(frame: &[u8]) -> bool {
    let Some(kind) = frame.get(12..ETHERNET_BYTES) else { return false };
    let Some(second) = frame.get(15) else { return false };
    let codepoint = match [kind[0], kind[1]] {
        IPV4 => second & 3,
        IPV6 => (second >> 4) & 3,
        _ => 0,
    };
    matches!(codepoint, 1 | 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4_packet(second_byte: u8) -> Vec<u8> {
        let mut packet = vec![0; VNET_HEADER_BYTES + 60];
        let frame = &mut packet[VNET_HEADER_BYTES..];
        frame[12..14].copy_from_slice(&IPV4);
        frame[14] = 0x45;
        frame[15] = second_byte;
        frame[17] = 46;
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn checksum(header: &[u8]) -> u16 {
        !header
            .chunks_exact(2)
            .fold(0, |sum, pair| add_ones_complement(sum, u16::from_be_bytes([pair[0], pair[1]])))
    }

    #[test]
    fn marks_only_those_who_understand() {
        for (codepoint, understood) in [(0, false), (1, true), (2, true), (3, false)] {
            let mut packet = ipv4_packet(0xb8 | codepoint);
            assert_eq!(FrameShape::of(&packet).marks_understood, understood);
            assert_eq!(mark_congestion(&mut packet), understood);
            let frame = &packet[VNET_HEADER_BYTES..];
            assert_eq!(frame[15] & 3 == 3, understood || codepoint == 3);
            assert_eq!(checksum(&frame[14..34]), 0, "the header checksum still holds");
        }
        let mut v6 = vec![0; VNET_HEADER_BYTES + 60];
        v6[VNET_HEADER_BYTES + 12..][..4].copy_from_slice(&[0x86, 0xdd, 0x60, 0x20]);
        assert!(mark_congestion(&mut v6));
        assert_eq!(v6[VNET_HEADER_BYTES + 15], 0x30);
    }

    #[test]
    fn counts_wire_packets_of_a_segment() {
        let header = VnetHeader {
            flags: FLAG_NEEDS_CHECKSUM,
            gso_type: 1,
            header_len_bytes: 66,
            gso_size_bytes: 1448,
            checksum_start: 34,
            checksum_offset: 16,
        };
        let mut packet = header.encode().to_vec();
        packet.resize(VNET_HEADER_BYTES + 66 + 44 * 1448 + 100, 0);
        packet[VNET_HEADER_BYTES + 34 + 12] = 0x80;
        let shape = FrameShape::of(&packet);
        assert_eq!((shape.packets_count, shape.header_bytes), (45, 66));
        assert_eq!(shape.wire_bytes(45), 44 * (1514 + 24) + 166 + 24);
        assert_eq!(shape.wire_bytes(1), 1538);
        assert_eq!(shape.packets_within(3 * 1538 + 5), 3);
        assert_eq!(VnetHeader::parse(&packet).unwrap().0, header);
    }

    #[test]
    fn any_bytes_have_a_shape() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let shape = FrameShape::of(bytes);
            assert!((1..=PACKETS_MAX).contains(&shape.packets_count));
            if let Some((header, frame)) = VnetHeader::parse(bytes) {
                assert!(shape.packets_count <= header.packets_most(frame.len() as u32));
            }
            assert!(shape.wire_bytes(shape.packets_count) >= u64::from(shape.frame_bytes));
            mark_congestion(&mut bytes.to_vec());
        });
    }
}
