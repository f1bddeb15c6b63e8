//! The two file formats of packet captures: pcap (draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng), in either byte order.

mod pcap;
mod pcapng;

use core::fmt;

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
/// cut short, as nothing tells where the one after it begins.
#[derive(Debug, Clone)]
pub(crate) struct Packets<'a> {
    records: Records<'a>,
    whole_bytes: usize,
    packets_count: u64,
    damage: Option<Damage>,
}

#[derive(Debug, Clone)]
enum Records<'a> {
    Pcap(pcap::Records<'a>),
    PcapNg(pcapng::Blocks<'a>),
}

/// Where a capture stops being readable, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    defect: Defect,
    /// Where the record begins that is not whole.
    at_byte: usize,
    /// Packets before it.
    packets_count: u64,
    /// From there to the end of the file.
    unread_bytes: usize,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// The file ends within it.
    Truncated,
    /// Its header is none that a writer of captures makes.
    Malformed,
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_byte, packets_count, unread_bytes, .. } = self;
        let (state, record) = match self.defect {
            Defect::Truncated => ("truncated", "the file ends within this record"),
            Defect::Malformed => ("damaged", "no valid record begins there"),
        };
        write!(
            out,
            "the capture is {state} at byte {at_byte}, after packet {packets_count}: {record}, and the \
             {unread_bytes} bytes from there on were not read"
        )
    }
}

/// Whether the bytes begin as a capture does.
pub(crate) fn is_capture(bytes: &[u8]) -> bool {
    pcap::is_pcap(bytes) || pcapng::is_pcapng(bytes)
}

/// Opens a capture.
pub(crate) fn packets(bytes: &[u8]) -> Result<Packets<'_>, RecordedError> {
    let records = if pcapng::is_pcapng(bytes) {
        Records::PcapNg(pcapng::Blocks::new(bytes))
    } else {
        Records::Pcap(pcap::Records::new(bytes)?)
    };
    Ok(Packets { records, whole_bytes: bytes.len(), packets_count: 0, damage: None })
}

impl Packets<'_> {
    /// What ended the reading before the end of the file.
    pub(crate) fn damage(&self) -> Option<Damage> {
        self.damage
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        if self.damage.is_some() {
            return None;
        }
        let read = match &mut self.records {
            Records::Pcap(records) => records.read(),
            Records::PcapNg(blocks) => blocks.read(),
        };
        match read {
            Ok(packet) => {
                self.packets_count += u64::from(packet.is_some());
                packet
            }
            Err(defect) => {
                let unread_bytes = match &self.records {
                    Records::Pcap(records) => records.rest.len(),
                    Records::PcapNg(blocks) => blocks.rest.len(),
                };
                let at_byte = self.whole_bytes - unread_bytes;
                let packets_count = self.packets_count;
                self.damage = Some(Damage { defect, at_byte, packets_count, unread_bytes });
                None
            }
        }
    }
}

/// A captured packet as both formats store it: two words of time, the captured length, the length on
/// the wire, and the captured bytes.
struct Stored<'a> {
    time: [u32; 2],
    original_bytes: u32,
    bytes: &'a [u8],
}

impl<'a> Stored<'a> {
    const HEADER_BYTES: usize = 16;

    fn read(order: ByteOrder, record: &'a [u8]) -> Result<Self, Defect> {
        let word = |at| order.u32(record, at).ok_or(Defect::Truncated);
        let (time, captured_bytes) = ([word(0)?, word(4)?], word(8)?);
        let original_bytes = word(12)?;
        if captured_bytes > PACKET_BYTES_MAX {
            return Err(Defect::Malformed);
        }
        let end = Self::HEADER_BYTES + captured_bytes as usize;
        let bytes = record.get(Self::HEADER_BYTES..end).ok_or(Defect::Truncated)?;
        Ok(Self { time, original_bytes, bytes })
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
