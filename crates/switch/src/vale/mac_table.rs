//! Who is behind which port.

use super::port_set::PortId;

/// An address not seen this long is forgotten, seconds (IEEE 802.1Q's default).
pub const AGE_S_MAX: u32 = 300;

const WAYS: usize = 4;
/// 16 384 addresses; with four ways to a set, 10 000 seldom push one another out.
const SETS: usize = 4096;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(u64);

impl Mac {
    /// An address that no station has.
    pub const NONE: Self = Self(u64::MAX >> 16);

    /// From its bytes as they stand in a frame.
    #[inline]
    #[must_use]
    pub const fn new(bytes: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = bytes;
        Self(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// Whether it means several stations: multicast or broadcast.
    #[inline]
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Four addresses whose hash is the same; 48 bytes. Zero is no entry, since the port is stored plus one.
#[derive(Debug, Clone, Copy, Default)]
struct Set {
    /// Address in the lower 48 bits, port plus one above.
    entries: [u64; WAYS],
    seen_s: [u32; WAYS],
}

/// Addresses, the ports they were seen at, and when.
#[derive(Debug)]
pub struct MacTable {
    sets: Vec<Set>,
    multiplier: u64,
}

impl MacTable {
    /// An empty table with a hash of its own.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // An odd multiplier with its high bits set spreads addresses that differ in their last bytes.
        let multiplier = (seed ^ 0x9e37_79b9_7f4a_7c15) | 1 | 1 << 63;
        Self { sets: vec![Set::default(); SETS], multiplier }
    }

    /// `mac` was seen at `port`; says where it was before. Takes the place of the address of its set
    /// seen longest ago.
    pub fn learn(&mut self, mac: Mac, port: PortId, now_s: u32) -> Option<PortId> {
        let set = self.set_of(mac);
        let set = &mut self.sets[set];
        let way = (0..WAYS).find(|&way| is(set.entries[way], mac)).unwrap_or_else(|| {
            let age = |way: usize| now_s.wrapping_sub(set.seen_s[way]);
            (0..WAYS)
                .max_by_key(|&way| if set.entries[way] == 0 { u32::MAX } else { age(way) })
                .unwrap_or(0)
        });
        let before = is(set.entries[way], mac).then(|| port_of(set.entries[way]));
        set.entries[way] = mac.0 | (u64::from(port.byte()) + 1) << 48;
        set.seen_s[way] = now_s;
        before
    }

    /// Where `mac` was seen last, unless that is too long ago.
    #[inline]
    #[must_use]
    pub fn find(&self, mac: Mac, now_s: u32) -> Option<PortId> {
        let set = &self.sets[self.set_of(mac)];
        for way in 0..WAYS {
            if is(set.entries[way], mac) {
                let fresh = now_s.wrapping_sub(set.seen_s[way]) <= AGE_S_MAX;
                return fresh.then(|| port_of(set.entries[way]));
            }
        }
        None
    }

    /// Forgets everybody at `port`.
    pub fn forget(&mut self, port: PortId) {
        for entry in self.sets.iter_mut().flat_map(|set| &mut set.entries) {
            if *entry != 0 && port_of(*entry) == port {
                *entry = 0;
            }
        }
    }

    #[inline]
    fn set_of(&self, mac: Mac) -> usize {
        let hash = (mac.0 ^ mac.0 >> 24).wrapping_mul(self.multiplier);
        (hash >> (64 - SETS.trailing_zeros())) as usize
    }
}

#[inline]
fn is(entry: u64, mac: Mac) -> bool {
    entry != 0 && (entry ^ mac.0) << 16 == 0
}

#[inline]
fn port_of(entry: u64) -> PortId {
    PortId::from_byte(((entry >> 48) as u8).wrapping_sub(1))
}
