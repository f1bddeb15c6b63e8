//! The older format: a file header of 24 bytes, then records with a header of 16 bytes each.

use super::{ByteOrder, PACKET_BYTES_MAX, Packet};
use crate::RecordedError;

const HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

/// First word of a file whose times count microseconds, and of one whose times count nanoseconds.
const MAGIC_US: u32 = 0xa1b2_c3d4;
const MAGIC_NS: u32 = 0xa1b2_3c4d;

/// The records of a file.
#[derive(Debug, Clone)]
pub(crate) struct Records<'a> {
    rest: &'a [u8],
    order: ByteOrder,
    ns_per_fraction: u64,
    link_type: u32,
    pub(super) is_cut: bool,
}

pub(super) fn is_pcap(bytes: &[u8]) -> bool {
    order_of(bytes).is_some()
}

fn order_of(bytes: &[u8]) -> Option<(ByteOrder, u64)> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| match order.u32(bytes, 0)? {
        MAGIC_US => Some((order, 1000)),
        MAGIC_NS => Some((order, 1)),
        _ => None,
    })
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, RecordedError> {
        let short = RecordedError::Header("it ends in the file header");
        let (order, ns_per_fraction) = order_of(bytes).ok_or(RecordedError::Header("no magic"))?;
        let rest = bytes.get(HEADER_BYTES..).ok_or(short)?;
        let network = order.u32(bytes, 20).unwrap_or_default();
        // The upper bits may tell the length of a frame check sequence.
        Ok(Self { rest, order, ns_per_fraction, link_type: network & 0x0fff_ffff, is_cut: false })
    }

    fn record(&mut self) -> Option<Packet<'a>> {
        let word = |at| self.order.u32(self.rest, at);
        let (seconds, fraction) = (u64::from(word(0)?), u64::from(word(4)?));
        let (captured_bytes, original_bytes) = (word(8)?, word(12)?);
        if captured_bytes > PACKET_BYTES_MAX {
            return None;
        }
        let end = RECORD_HEADER_BYTES.checked_add(captured_bytes as usize)?;
        let bytes = self.rest.get(RECORD_HEADER_BYTES..end)?;
        self.rest = &self.rest[end..];
        let time_ns = seconds * 1_000_000_000 + fraction * self.ns_per_fraction;
        Some(Packet { time_ns, link_type: self.link_type, bytes, original_bytes })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        let packet = self.record();
        self.is_cut |= packet.is_none() && !self.rest.is_empty();
        packet
    }
}
