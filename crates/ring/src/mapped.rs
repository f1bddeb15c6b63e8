//! The words and slots of a ring in a mapped region.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use shm::View;

use crate::memory::{Fence, Shared, Word};
use crate::slot::Slot;

/// `u32` words of a CSB entry.
pub(crate) const CSB_WORDS: usize = 16;
/// `u64` words of a slot: the one that matters here, and netmap's user pointer.
pub(crate) const SLOT_WORDS: usize = 2;

/// One ring in a region.
#[derive(Debug)]
pub struct Mapped {
    user: View<AtomicU32>,
    owner: View<AtomicU32>,
    slots: View<AtomicU64>,
}

impl Mapped {
    pub(crate) fn new(
        user: View<AtomicU32>,
        owner: View<AtomicU32>,
        slots: View<AtomicU64>,
    ) -> Self {
        Self { user, owner, slots }
    }

    #[inline]
    fn word(&self, word: Word) -> &AtomicU32 {
        match word {
            Word::Head => &self.user[0],
            Word::Cur => &self.user[1],
            Word::UserSleeps => &self.user[2],
            Word::HwCur => &self.owner[0],
            Word::HwTail => &self.owner[1],
            Word::OwnerSleeps => &self.owner[2],
        }
    }

    /// Reads a slot, once. `index` is less than the ring's number of slots.
    #[inline]
    #[must_use]
    pub fn slot(&self, index: u32) -> Slot {
        Slot::from_word(self.slots[index as usize * SLOT_WORDS].load(Ordering::Relaxed))
    }

    /// Writes a slot. One that stays as it is is left alone: its cache line then stays with whoever
    /// read it last, which is what makes a stream of equal frames fast.
    #[inline]
    pub fn set_slot(&self, index: u32, slot: Slot) {
        let (cell, word) = (&self.slots[index as usize * SLOT_WORDS], slot.to_word());
        if cell.load(Ordering::Relaxed) != word {
            cell.store(word, Ordering::Relaxed);
        }
    }
}

impl Shared for Mapped {
    #[inline]
    fn load(&self, word: Word) -> u32 {
        self.word(word).load(word.load_order())
    }

    #[inline]
    fn store(&self, word: Word, value: u32) {
        self.word(word).store(value, word.store_order());
    }

    #[inline]
    fn fence(&self, place: Fence) {
        fence(place.order());
    }
}
