//! The newer format: blocks, each with its type and length, in sections with interfaces.

use super::{ByteOrder, Defect, Packet, Stored};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Options of an interface: the resolution of its times, and what to add to them, seconds.
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

/// Interfaces of a section that are kept.
const INTERFACES_MAX: usize = 65_536;

/// The packets of a file.
#[derive(Debug, Clone)]
pub(crate) struct Blocks<'a> {
    /// From the next block on.
    pub(super) rest: &'a [u8],
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: u32,
    ticks_per_s: u64,
    offset_s: i64,
}

pub(super) fn is_pcapng(bytes: &[u8]) -> bool {
    // The type reads the same in both orders; the order follows at byte 8.
    ByteOrder::Little.u32(bytes, 0) == Some(SECTION_HEADER) && section_order(bytes).is_some()
}

fn section_order(block: &[u8]) -> Option<ByteOrder> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| order.u32(block, 8) == Some(BYTE_ORDER_MAGIC))
}

impl<'a> Blocks<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, order: ByteOrder::Little, interfaces: Vec::new() }
    }

    /// The next packet; `None` at the end of the file. A block that does not fit its section (a packet
    /// of an interface that was never described) is malformed.
    pub(super) fn read(&mut self) -> Result<Option<Packet<'a>>, Defect> {
        while !self.rest.is_empty() {
            let (kind, body, rest) = self.block()?;
            let interface = match kind {
                ENHANCED_PACKET => self.order.u32(body, 0),
                OBSOLETE_PACKET => self.order.u16(body, 0).map(u32::from),
                INTERFACE => {
                    self.describe(body);
                    None
                }
                // Statistics, names, packets without a time.
                _ => None,
            };
            let packet = interface.map(|number| self.packet(number, body)).transpose()?;
            self.rest = rest;
            if packet.is_some() {
                return Ok(packet);
            }
        }
        Ok(None)
    }

    /// The next block: its type, its body and what follows it. A section header sets the byte order for
    /// itself.
    fn block(&mut self) -> Result<(u32, &'a [u8], &'a [u8]), Defect> {
        if ByteOrder::Little.u32(self.rest, 0) == Some(SECTION_HEADER) {
            let defect = if self.rest.len() < 12 { Defect::Truncated } else { Defect::Malformed };
            self.order = section_order(self.rest).ok_or(defect)?;
            self.interfaces.clear();
        }
        let word = |at| self.order.u32(self.rest, at).ok_or(Defect::Truncated);
        let (kind, length) = (word(0)?, word(4)? as usize);
        // Type, length, and the length again at the end.
        if length < 12 || !length.is_multiple_of(4) {
            return Err(Defect::Malformed);
        }
        let body = self.rest.get(8..length - 4).ok_or(Defect::Truncated)?;
        if word(length - 4)? as usize != length {
            return Err(Defect::Malformed);
        }
        Ok((kind, body, &self.rest[length..]))
    }

    fn packet(&self, interface: u32, body: &'a [u8]) -> Result<Packet<'a>, Defect> {
        let interface = self.interfaces.get(interface as usize).ok_or(Defect::Malformed)?;
        let fields = body.get(4..).ok_or(Defect::Malformed)?;
        // The block is whole, so a packet longer than the block is malformed.
        let stored = Stored::read(self.order, fields).map_err(|_defect| Defect::Malformed)?;
        let [high, low] = stored.time.map(u64::from);
        Ok(Packet {
            time_ns: interface.time_ns(high << 32 | low),
            link_type: interface.link_type,
            bytes: stored.bytes,
            original_bytes: stored.original_bytes,
        })
    }

    fn describe(&mut self, body: &[u8]) {
        if self.interfaces.len() < INTERFACES_MAX {
            // One that cannot be read keeps its number, so that the others keep theirs.
            let unread = Interface { link_type: u32::MAX, ticks_per_s: 1, offset_s: 0 };
            self.interfaces.push(self.interface(body).unwrap_or(unread));
        }
    }

    fn interface(&self, body: &[u8]) -> Option<Interface> {
        let link_type = u32::from(self.order.u16(body, 0)?);
        let mut interface = Interface { link_type, ticks_per_s: 1_000_000, offset_s: 0 };
        let mut options = body.get(8..).unwrap_or_default();
        while let (Some(code), Some(length)) =
            (self.order.u16(options, 0), self.order.u16(options, 2))
        {
            let length = usize::from(length);
            let Some(value) = options.get(4..4 + length).filter(|_| code != 0) else { break };
            match (code, value) {
                (IF_TSRESOL, [resolution, ..]) => interface.ticks_per_s = ticks_per_s(*resolution)?,
                (IF_TSOFFSET, value) => interface.offset_s = self.order.i64(value).unwrap_or(0),
                _ => {}
            }
            options = options.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(interface)
    }
}

/// `None` for a resolution finer than can be counted.
fn ticks_per_s(resolution: u8) -> Option<u64> {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 2_u64.checked_pow(exponent) }
}

impl Interface {
    fn time_ns(self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_s.max(1));
        let offset_ns = i128::from(self.offset_s) * 1_000_000_000;
        let ns = i128::try_from(ns).unwrap_or(i128::MAX).saturating_add(offset_ns);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}
