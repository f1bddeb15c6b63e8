//! The older format: a file header of 24 bytes, then records with a header of 16 bytes each.

use super::{ByteOrder, Defect, Packet, Stored};
use crate::RecordedError;

const HEADER_BYTES: usize = 24;
const SECOND_NS: u64 = 1_000_000_000;

/// First word of a file whose times count microseconds, and of one whose times count nanoseconds.
const MAGIC_US: u32 = 0xa1b2_c3d4;
const MAGIC_NS: u32 = 0xa1b2_3c4d;

/// The records of a file.
#[derive(Debug, Clone)]
pub(crate) struct Records<'a> {
    /// From the next record on.
    pub(super) rest: &'a [u8],
    order: ByteOrder,
    ns_per_fraction: u64,
    link_type: u32,
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
        Ok(Self { rest, order, ns_per_fraction, link_type: network & 0x0fff_ffff })
    }

    /// The next packet; `None` at the end of the file.
    pub(super) fn read(&mut self) -> Result<Option<Packet<'a>>, Defect> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let stored = Stored::read(self.order, self.rest)?;
        let [seconds, fraction] = stored.time.map(u64::from);
        let fraction_ns = fraction * self.ns_per_fraction;
        if fraction_ns >= SECOND_NS {
            return Err(Defect::Malformed);
        }
        self.rest = &self.rest[Stored::HEADER_BYTES + stored.bytes.len()..];
        Ok(Some(Packet {
            time_ns: seconds * SECOND_NS + fraction_ns,
            link_type: self.link_type,
            bytes: stored.bytes,
            original_bytes: stored.original_bytes,
        }))
    }
}
