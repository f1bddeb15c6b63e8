//! The two file formats of packet captures: pcap (draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng), in either byte order.

mod pcap;
mod pcapng;

use crate::RecordedError;

/// Longest packet a record may hold, bytes: libpcap's `MAXIMUM_SNAPLEN`.
const PACKET_BYTES_MAX: u32 = 262_144;

/// One packet of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    /// Since 1970.
    pub(crate) time_ns: u64,
    /// Number in the registry of link types.
    pub(crate) link_type: u32,
    /// What was captured of it.
    pub(crate) bytes: &'a [u8],
    /// Its length on the wire, bytes.
    pub(crate) original_bytes: u32,
}

/// The packets of a capture, in the order of the file. Ends at the first record that is damaged or
/// cut short.
#[derive(Debug, Clone)]
pub(crate) enum Packets<'a> {
    Pcap(pcap::Records<'a>),
    PcapNg(pcapng::Blocks<'a>),
}

/// Whether the bytes begin as a capture does.
pub(crate) fn is_capture(bytes: &[u8]) -> bool {
    pcap::is_pcap(bytes) || pcapng::is_pcapng(bytes)
}

/// Opens a capture.
pub(crate) fn packets(bytes: &[u8]) -> Result<Packets<'_>, RecordedError> {
    if pcapng::is_pcapng(bytes) {
        return Ok(Packets::PcapNg(pcapng::Blocks::new(bytes)));
    }
    pcap::Records::new(bytes).map(Packets::Pcap)
}

impl Packets<'_> {
    /// Whether reading stopped before the end of the file, at something that is no whole record.
    pub(crate) fn is_cut(&self) -> bool {
        match self {
            Self::Pcap(records) => records.is_cut,
            Self::PcapNg(blocks) => blocks.is_cut,
        }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        match self {
            Self::Pcap(records) => records.next(),
            Self::PcapNg(blocks) => blocks.next(),
        }
    }
}

/// Order of the bytes of a number, as the file's writer had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let word: [u8; 2] = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(word),
            Self::Big => u16::from_be_bytes(word),
        })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let word: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(word),
            Self::Big => u32::from_be_bytes(word),
        })
    }

    fn i64(self, bytes: &[u8]) -> Option<i64> {
        let word: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
        Some(match self {
            Self::Little => i64::from_le_bytes(word),
            Self::Big => i64::from_be_bytes(word),
        })
    }
}
