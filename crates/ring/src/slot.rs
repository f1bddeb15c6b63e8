//! netmap's slot (`struct netmap_slot`).

/// Flags of a slot (`NS_*` of netmap's ABI) below, the fragment count above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotFlags(pub u16);

impl SlotFlags {
    /// `NS_BUF_CHANGED`: the slot names another buffer than last time.
    pub const BUFFER_CHANGED: u16 = 0x01;
    /// `NS_MOREFRAG`: the packet goes on in the next slot.
    pub const MORE_FRAGMENTS: u16 = 0x20;

    /// Whether the packet goes on in the next slot.
    #[inline]
    #[must_use]
    pub const fn more_fragments(self) -> bool {
        self.0 & Self::MORE_FRAGMENTS != 0
    }

    /// Whether the slot names another buffer than last time.
    #[inline]
    #[must_use]
    pub const fn buffer_changed(self) -> bool {
        self.0 & Self::BUFFER_CHANGED != 0
    }
}

/// The first eight bytes of a slot, read and written as one word: what is checked is what is used,
/// however often the other side changes it meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// Index of the buffer; 0 and 1 name none.
    pub buffer: u32,
    /// Bytes of this fragment.
    pub length_bytes: u16,
    /// Flags of the slot.
    pub flags: SlotFlags,
}

impl Slot {
    /// From a shared word: `buf_idx` lowest, then `len`, then `flags`.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self {
            buffer: word as u32,
            length_bytes: (word >> 32) as u16,
            flags: SlotFlags((word >> 48) as u16),
        }
    }

    /// As a shared word.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.buffer as u64 | (self.length_bytes as u64) << 32 | (self.flags.0 as u64) << 48
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_in_memory_as_netmaps_does() {
        let slot = Slot { buffer: 0x0403_0201, length_bytes: 0x0605, flags: SlotFlags(0x0807) };
        assert_eq!(slot.to_word().to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    #[cfg(not(miri))]
    fn every_word_is_a_slot() {
        bolero::check!().with_type::<u64>().for_each(|&word| {
            assert_eq!(Slot::from_word(word).to_word(), word);
        });
    }
}
