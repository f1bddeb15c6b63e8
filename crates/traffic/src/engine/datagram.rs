//! The datagram format of both ends: iperf3's header, then arbitrary bytes.

use std::time::{SystemTime, UNIX_EPOCH};

/// Payload of the largest UDP datagram over IPv4, in bytes.
pub(super) const DATAGRAM_BYTES_MAX: usize = 65507;

/// Layout of the header: the time of sending (seconds and microseconds since 1970, 32 bits each)
/// and the sequence number (32 or 64 bits), all big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Whether the number has 64 bits (iperf3's `--udp-counters-64bit`).
    pub(super) wide: bool,
}

impl Header {
    /// Writes the header of a datagram. A datagram shorter than the header gets only the fields
    /// that fit.
    #[inline]
    pub(super) fn write(self, datagram: &mut [u8], stamp: [u8; 8], number: u64) {
        if let Some(front) = datagram.first_chunk_mut() {
            *front = stamp;
        }
        if self.wide {
            if let Some(place) = datagram.get_mut(8..16) {
                place.copy_from_slice(&number.to_be_bytes());
            }
        } else if let Some(place) = datagram.get_mut(8..12) {
            place.copy_from_slice(&(number as u32).to_be_bytes());
        }
    }

    /// The time of sending, in nanoseconds since 1970, and the sequence number; a 32-bit number is
    /// not extended. `None` if the datagram is too short.
    #[inline]
    pub(super) fn read(self, datagram: &[u8]) -> Option<(i64, u64)> {
        let sent_s = i64::from(u32::from_be_bytes(*datagram.first_chunk()?));
        let sent_us = i64::from(u32::from_be_bytes(datagram.get(4..8)?.try_into().ok()?));
        let number = if self.wide {
            u64::from_be_bytes(datagram.get(8..16)?.try_into().ok()?)
        } else {
            u64::from(u32::from_be_bytes(datagram.get(8..12)?.try_into().ok()?))
        };
        Some((sent_s * 1_000_000_000 + sent_us * 1000, number))
    }
}

/// The current time, as the header encodes it.
pub(super) fn stamp_now() -> [u8; 8] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut stamp = [0; 8];
    stamp[..4].copy_from_slice(&(now.as_secs() as u32).to_be_bytes());
    stamp[4..].copy_from_slice(&now.subsec_micros().to_be_bytes());
    stamp
}

/// The current time, in nanoseconds since 1970.
pub(super) fn unix_now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_read_back() {
        let mut stamp = [0; 8];
        stamp[..4].copy_from_slice(&1_700_000_000_u32.to_be_bytes());
        stamp[4..].copy_from_slice(&123_456_u32.to_be_bytes());
        for (wide, number, expected) in
            [(true, u64::MAX - 1, u64::MAX - 1), (false, 7, 7), (false, (1 << 32) + 5, 5)]
        {
            let header = Header { wide };
            let mut datagram = [0xaa; 20];
            header.write(&mut datagram, stamp, number);
            assert_eq!(header.read(&datagram), Some((1_700_000_000_123_456_000, expected)));
            let bytes = if wide { 16 } else { 12 };
            assert_eq!(datagram[bytes..], [0xaa; 20][bytes..]);
        }
    }

    #[test]
    fn anything_can_be_read() {
        bolero::check!().for_each(|bytes: &[u8]| {
            for wide in [true, false] {
                let header = Header { wide };
                assert_eq!(header.read(bytes).is_some(), bytes.len() >= if wide { 16 } else { 12 });
            }
        });
    }
}
