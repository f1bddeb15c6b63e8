//! The packet formats, specified as tables in `docs/messages.md`. All numbers are little-endian.
//!
//! Every parser accepts arbitrary bytes and returns none for what is too short or of an unknown
//! kind.

use crate::types::Address;

/// First byte of every packet: ClearStream, version 1.
pub const MAGIC: u8 = 0xc1;
/// Length of the header that all kinds share.
pub const HEADER_BYTES: usize = 40;
/// Longest header of any kind, in bytes.
pub const HEADER_BYTES_MAX: usize = 144;
/// Offset of the destination endpoint, two bytes, in packets of every kind: a device or a BPF
/// program can choose the receive queue by it.
pub const ENDPOINT_AT: usize = 2;
/// Length of a packet that opens a session. All four are equally long, so that no answer is longer
/// than its question.
pub const GREETING_BYTES: usize = 144;

/// Offset of the length, two bytes.
const BYTES_AT: usize = 38;

/// `session` of packets that belong to none.
pub(crate) const NO_SESSION: u32 = u32::MAX;
/// Upper bound on the words of a selective acknowledgement, 64 packets each.
pub(crate) const SACK_WORDS: usize = 16;
/// Header lengths in bytes: of a message's first packet, of a synchronous or announced message's
/// first packet, of later packets, and of the kinds that the constants name.
pub(crate) const EAGER_BYTES: usize = 64;
pub(crate) const ANNOUNCED_BYTES: usize = 72;
/// Of the first packet of a message that the receiver may copy itself.
pub(crate) const PLACED_BYTES: usize = 80;
pub(crate) const MORE_BYTES: usize = HEADER_BYTES;
pub(crate) const DONE_BYTES: usize = 48;
pub(crate) const PULL_BYTES: usize = 84;
pub(crate) const DATA_BYTES: usize = 60;

/// The kinds of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Requests a session.
    Hello = 1,
    /// Answers `Hello` without keeping state.
    Cookie = 2,
    /// Repeats the cookie; the session begins at its receiver.
    Open = 3,
    /// Answers `Open`; the session begins at the initiator.
    Accept = 4,
    /// Acknowledges packets, also those received out of order.
    Ack = 5,
    /// The first packet of a message, with as much of it as fits.
    Eager = 6,
    /// The continuation of the message in the ordered packet before.
    More = 7,
    /// The envelope of a message that waits to be pulled.
    Announce = 8,
    /// An announced message was pulled, or a synchronous one matched.
    Done = 9,
    /// Requests fragments of an announced message.
    Pull = 10,
    /// One such fragment.
    Data = 11,
    /// Requests an acknowledgement.
    Ping = 12,
    /// Ends the session.
    Close = 13,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::Cookie,
            3 => Self::Open,
            4 => Self::Accept,
            5 => Self::Ack,
            6 => Self::Eager,
            7 => Self::More,
            8 => Self::Announce,
            9 => Self::Done,
            10 => Self::Pull,
            11 => Self::Data,
            12 => Self::Ping,
            13 => Self::Close,
            _ => return None,
        })
    }

    /// Whether packets of this kind open a session.
    #[must_use]
    pub fn is_greeting(self) -> bool {
        (self as u8) <= Self::Accept as u8
    }

    /// Whether packets of this kind have a sequence number of their own.
    pub(crate) fn is_ordered(self) -> bool {
        matches!(self, Self::Eager | Self::More | Self::Announce | Self::Done)
    }
}

/// The receiver acknowledges at once.
pub(crate) const FLAG_ACK_NOW: u8 = 1;
/// The receiver reports the match with a `Done`.
pub(crate) const FLAG_SYNC: u8 = 2;
/// The message has completion data.
pub(crate) const FLAG_DATA: u8 = 4;
/// The tag covers the payload.
pub(crate) const FLAG_TAGGED: u8 = 8;
/// Packets that were refused for lack of memory would be accepted now.
pub(crate) const FLAG_AGAIN: u8 = 16;
/// An announcement names the address of the message in its sender's memory.
pub(crate) const FLAG_PLACED: u8 = 32;
/// The packet that the echo names may have waited for its receiver's process: the echo is no measure of the path.
pub(crate) const FLAG_LATE: u8 = 64;

/// The length in bytes of the first packet in `joined`, datagrams that a kernel handed over in one piece:
/// those that follow have the same length, and only the last may be shorter. The length of the whole piece if
/// it does not begin with a packet.
#[inline]
#[must_use]
pub fn first_packet_bytes(joined: &[u8]) -> usize {
    let bytes = match joined.get(1) {
        Some(&kind) if kind == Kind::Pull as u8 => PULL_BYTES,
        _ => u16_at(joined, BYTES_AT).map_or(0, usize::from),
    };
    if (HEADER_BYTES..joined.len()).contains(&bytes) { bytes } else { joined.len() }
}

/// The header that every packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) endpoint: u16,
    pub(crate) session: u32,
    pub(crate) tag: u64,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) stamp: u32,
    pub(crate) echo: u32,
    pub(crate) credit: u32,
    pub(crate) flags: u8,
    /// Of a message; of a `Ping`, its number; of an `Ack`, the number of the last `Ping` received.
    pub(crate) channel: u8,
    /// Of a fragment, in `Pull`; of the packet, in every other kind.
    pub(crate) bytes: u16,
}

impl Header {
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let bytes = packet.first_chunk::<HEADER_BYTES>()?;
        if bytes[0] != MAGIC {
            return None;
        }
        Some(Self {
            kind: Kind::from_byte(bytes[1])?,
            endpoint: u16_at(bytes, ENDPOINT_AT)?,
            session: u32_at(bytes, 4)?,
            tag: u64_at(bytes, 8)?,
            seq: u32_at(bytes, 16)?,
            ack: u32_at(bytes, 20)?,
            stamp: u32_at(bytes, 24)?,
            echo: u32_at(bytes, 28)?,
            credit: u32_at(bytes, 32)?,
            flags: bytes[36],
            channel: bytes[37],
            bytes: u16_at(bytes, BYTES_AT)?,
        })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Header bytes of a packet of this kind and these flags.
    pub(crate) fn length(&self) -> usize {
        match self.kind {
            Kind::Eager if self.has(FLAG_SYNC) => ANNOUNCED_BYTES,
            Kind::Eager => EAGER_BYTES,
            Kind::Announce if self.has(FLAG_PLACED) => PLACED_BYTES,
            Kind::Announce => ANNOUNCED_BYTES,
            Kind::More | Kind::Ack | Kind::Ping | Kind::Close => HEADER_BYTES,
            Kind::Done => DONE_BYTES,
            Kind::Pull => PULL_BYTES,
            Kind::Data => DATA_BYTES,
            Kind::Hello | Kind::Cookie | Kind::Open | Kind::Accept => GREETING_BYTES,
        }
    }

    pub(crate) fn put(&self, packet: &mut PacketHeader) {
        packet.put(&[MAGIC, self.kind as u8]);
        packet.put(&self.endpoint.to_le_bytes());
        packet.put(&self.session.to_le_bytes());
        packet.put(&self.tag.to_le_bytes());
        for word in [self.seq, self.ack, self.stamp, self.echo, self.credit] {
            packet.put(&word.to_le_bytes());
        }
        packet.put(&[self.flags, self.channel]);
        packet.put(&self.bytes.to_le_bytes());
    }
}

/// A packet's bytes before its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketHeader {
    bytes: [u8; HEADER_BYTES + 8 * SACK_WORDS],
    length: usize,
}

impl PacketHeader {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; HEADER_BYTES + 8 * SACK_WORDS], length: 0 }
    }

    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    pub(crate) fn put_u64s(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.put(&word.to_le_bytes()));
    }

    pub(crate) fn set_bytes(&mut self, bytes: u16) {
        self.bytes[BYTES_AT..BYTES_AT + 2].copy_from_slice(&bytes.to_le_bytes());
    }

    pub(crate) fn set_tag(&mut self, tag: u64) {
        self.bytes[8..16].copy_from_slice(&tag.to_le_bytes());
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The envelope in a message's first packet: what receives match, and more about the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) bits: u64,
    pub(crate) data: u64,
    pub(crate) length: u64,
    /// The sender's handle, of an announced or synchronous message.
    pub(crate) handle: Option<u64>,
    /// Address of the message in its sender's memory.
    pub(crate) place: Option<u64>,
}

impl Envelope {
    pub(crate) fn parse(header: &Header, packet: &[u8]) -> Option<Self> {
        let handle = match header.length() {
            ANNOUNCED_BYTES | PLACED_BYTES => Some(u64_at(packet, EAGER_BYTES)?),
            _ => None,
        };
        let place = match header.length() {
            PLACED_BYTES => Some(u64_at(packet, ANNOUNCED_BYTES)?),
            _ => None,
        };
        let [bits, data, length] = [u64_at(packet, 40)?, u64_at(packet, 48)?, u64_at(packet, 56)?];
        Some(Self { bits, data, length, handle, place })
    }
}

/// A request for fragments of an announced message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PullRequest {
    pub(crate) pull: u64,
    pub(crate) send: u64,
    /// Where the first fragment begins in the message, in bytes.
    pub(crate) offset: u64,
    /// Fragments requested: bit `i` is the `i`-th from `offset` on.
    pub(crate) mask: u64,
    /// Where the wanted part of the message ends, in bytes.
    pub(crate) end: u64,
    /// Number of the request in its session.
    pub(crate) request: u32,
}

impl PullRequest {
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        Some(Self {
            pull: u64_at(packet, 40)?,
            send: u64_at(packet, 48)?,
            offset: u64_at(packet, 56)?,
            mask: u64_at(packet, 64)?,
            end: u64_at(packet, 72)?,
            request: u32_at(packet, 80)?,
        })
    }

    pub(crate) fn put(&self, packet: &mut PacketHeader) {
        packet.put_u64s(&[self.pull, self.send, self.offset, self.mask, self.end]);
        packet.put(&self.request.to_le_bytes());
    }
}

/// A fragment of an announced message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) pull: u64,
    pub(crate) offset: u64,
    /// The request that it answers.
    pub(crate) request: u32,
}

impl Fragment {
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        Some(Self {
            pull: u64_at(packet, 40)?,
            offset: u64_at(packet, 48)?,
            request: u32_at(packet, 56)?,
        })
    }

    pub(crate) fn put(&self, packet: &mut PacketHeader) {
        packet.put_u64s(&[self.pull, self.offset]);
        packet.put(&self.request.to_le_bytes());
    }
}

/// The contents of the four packets that open a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) from: Address,
    pub(crate) to: Address,
    /// Identifies this incarnation of `from`.
    pub(crate) instance: u64,
    /// Drawn by the initiator.
    pub(crate) nonce: u64,
    /// Drawn by the other end; 0 in a first `Hello`.
    pub(crate) cookie: u64,
    /// The sender's number for the receiver: `session` of the packets that come back.
    pub(crate) index: u32,
    /// The sender's endpoint number.
    pub(crate) endpoint: u16,
    /// Size limit, in bytes, of packets that the sender accepts.
    pub(crate) packet_bytes_max: u16,
    /// Bytes that the receive path of the sender holds; 0: not given.
    pub(crate) way_in_bytes: u32,
}

impl Greeting {
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let packet = packet.first_chunk::<GREETING_BYTES>()?;
        let address = |at: usize| packet[at..].first_chunk::<32>().copied().map(Address);
        Some(Self {
            from: address(40)?,
            to: address(72)?,
            instance: u64_at(packet, 104)?,
            nonce: u64_at(packet, 112)?,
            cookie: u64_at(packet, 120)?,
            index: u32_at(packet, 128)?,
            endpoint: u16_at(packet, 132)?,
            packet_bytes_max: u16_at(packet, 134)?,
            way_in_bytes: u32_at(packet, 136)?,
        })
    }

    pub(crate) fn put(&self, packet: &mut PacketHeader) {
        packet.put(&self.from.0);
        packet.put(&self.to.0);
        packet.put_u64s(&[self.instance, self.nonce, self.cookie]);
        packet.put(&self.index.to_le_bytes());
        packet.put(&self.endpoint.to_le_bytes());
        packet.put(&self.packet_bytes_max.to_le_bytes());
        packet.put(&self.way_in_bytes.to_le_bytes());
        packet.put(&[0; 4]);
    }
}

/// The 64-bit number nearest to `near` whose lower half is `low`.
#[inline]
pub(crate) fn extend(near: u64, low: u32) -> u64 {
    let step = low.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(i64::from(step))
}

#[inline]
fn u16_at(packet: &[u8], at: usize) -> Option<u16> {
    packet.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

#[inline]
fn u32_at(packet: &[u8], at: usize) -> Option<u32> {
    packet.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[inline]
pub(crate) fn u64_at(packet: &[u8], at: usize) -> Option<u64> {
    packet.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_parse_to_what_they_were_written_from_or_to_nothing() {
        bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(kind, rest)| {
            let mut packet = vec![MAGIC, kind % 15];
            packet.extend_from_slice(rest);
            let Some(header) = Header::parse(&packet) else {
                assert!(packet.len() < HEADER_BYTES || !(1..=13).contains(&packet[1]));
                return;
            };
            let mut written = PacketHeader::new();
            header.put(&mut written);
            if header.kind == Kind::Pull {
                let Some(pull) = PullRequest::parse(&packet) else { return };
                pull.put(&mut written);
            } else if header.kind == Kind::Data {
                let Some(fragment) = Fragment::parse(&packet) else { return };
                fragment.put(&mut written);
            } else if header.kind.is_greeting() {
                let Some(greeting) = Greeting::parse(&packet) else { return };
                greeting.put(&mut written);
                packet[136..144].fill(0);
            } else if let Some(envelope) = Envelope::parse(&header, &packet) {
                let has_handle = matches!(header.length(), ANNOUNCED_BYTES | PLACED_BYTES);
                assert_eq!(envelope.handle.is_some(), has_handle);
                assert_eq!(envelope.place.is_some(), header.length() == PLACED_BYTES);
            }
            assert_eq!(written.bytes(), &packet[..written.bytes().len()]);
        });
    }

    #[test]
    fn joined_packets_are_cut_where_the_first_ends() {
        let mut packet = vec![0; 200];
        (packet[0], packet[1]) = (MAGIC, Kind::More as u8);
        packet[BYTES_AT..BYTES_AT + 2].copy_from_slice(&200_u16.to_le_bytes());
        let joined = [&packet[..], &packet[..], &packet[..150]].concat();
        assert_eq!(first_packet_bytes(&joined), 200);
        assert_eq!(first_packet_bytes(&packet), 200);
        assert_eq!(first_packet_bytes(&packet[..150]), 150, "cut off");
        packet[1] = Kind::Pull as u8;
        assert_eq!(first_packet_bytes(&packet), PULL_BYTES, "its field is a fragment's length");
        bolero::check!().for_each(|bytes: &[u8]| {
            let first = first_packet_bytes(bytes);
            assert!(first <= bytes.len() && (first > 0 || bytes.is_empty()));
        });
    }

    #[test]
    fn numbers_extend_to_the_nearest() {
        assert_eq!(extend(5, 7), 7);
        assert_eq!(extend(1 << 32, u32::MAX), u64::from(u32::MAX));
        assert_eq!(extend((1 << 32) - 1, 3), (1 << 32) + 3);
        bolero::check!().with_type::<(u64, i32)>().for_each(|&(near, step)| {
            let Some(number) = near.checked_add_signed(i64::from(step)) else { return };
            assert_eq!(extend(near, number as u32), number);
        });
    }

    #[test]
    fn the_endpoint_stands_at_one_place_in_every_packet() {
        for kind in (0..=255).filter_map(Kind::from_byte) {
            let header = Header {
                kind,
                endpoint: 0x1234,
                session: 1,
                tag: 2,
                seq: 3,
                ack: 4,
                stamp: 5,
                echo: 6,
                credit: 7,
                flags: 0,
                channel: 0,
                bytes: 0,
            };
            let mut packet = PacketHeader::new();
            header.put(&mut packet);
            assert_eq!(packet.bytes()[ENDPOINT_AT..ENDPOINT_AT + 2], [0x34, 0x12]);
            assert_eq!(packet.bytes().len(), HEADER_BYTES);
            assert_eq!(Header::parse(packet.bytes()), Some(header));
        }
    }
}
