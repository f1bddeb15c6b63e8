//! The newer format: blocks, each with its type and length, in sections with interfaces.

use super::{ByteOrder, PACKET_BYTES_MAX, Packet};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Options of an interface: the resolution of its times, and what to add to them, seconds.
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

/// Interfaces of a section that are kept.
const INTERFACES_MAX: usize = 1024;

/// The packets of a file.
#[derive(Debug, Clone)]
pub(crate) struct Blocks<'a> {
    rest: &'a [u8],
    order: ByteOrder,
    interfaces: Vec<Interface>,
    pub(super) is_cut: bool,
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
        Self { rest: bytes, order: ByteOrder::Little, interfaces: Vec::new(), is_cut: false }
    }

    /// The next block: its type and its body. A section header sets the byte order for itself.
    fn block(&mut self) -> Option<(u32, &'a [u8])> {
        if ByteOrder::Little.u32(self.rest, 0)? == SECTION_HEADER {
            self.order = section_order(self.rest)?;
            self.interfaces.clear();
        }
        let kind = self.order.u32(self.rest, 0)?;
        let length = self.order.u32(self.rest, 4)? as usize;
        // Type, length, and the length again at the end.
        if length < 12 || !length.is_multiple_of(4) {
            return None;
        }
        let body = self.rest.get(8..length - 4)?;
        self.rest = self.rest.get(length..)?;
        Some((kind, body))
    }

    fn packet(&self, interface: u32, at: usize, body: &'a [u8]) -> Option<Packet<'a>> {
        let interface = self.interfaces.get(interface as usize)?;
        let word = |offset: usize| self.order.u32(body, at + offset);
        let ticks = u64::from(word(0)?) << 32 | u64::from(word(4)?);
        let (captured_bytes, original_bytes) = (word(8)?, word(12)?);
        if captured_bytes > PACKET_BYTES_MAX {
            return None;
        }
        let bytes = body.get(at + 16..(at + 16).checked_add(captured_bytes as usize)?)?;
        let time_ns = interface.time_ns(ticks);
        Some(Packet { time_ns, link_type: interface.link_type, bytes, original_bytes })
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

impl<'a> Iterator for Blocks<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        while let Some((kind, body)) = self.block() {
            match kind {
                INTERFACE if self.interfaces.len() < INTERFACES_MAX => {
                    // One that cannot be read keeps its number, so that the others keep theirs.
                    let unread = Interface { link_type: u32::MAX, ticks_per_s: 1, offset_s: 0 };
                    let interface = self.interface(body).unwrap_or(unread);
                    self.interfaces.push(interface);
                }
                ENHANCED_PACKET => {
                    let interface = self.order.u32(body, 0).unwrap_or(u32::MAX);
                    if let Some(packet) = self.packet(interface, 4, body) {
                        return Some(packet);
                    }
                }
                OBSOLETE_PACKET => {
                    let interface = self.order.u16(body, 0).map_or(u32::MAX, u32::from);
                    if let Some(packet) = self.packet(interface, 4, body) {
                        return Some(packet);
                    }
                }
                // Statistics, names, packets without a time.
                _ => {}
            }
        }
        self.is_cut |= !self.rest.is_empty();
        None
    }
}
