//! The rings of a queue.
//!
//! Memory order. The guest writes descriptors and the entry, then the index: the index is read with acquire before
//! them. The device writes the used entry, then its index with release. Who asks to be woken (the device with
//! `avail_event` or its flag, the guest with `used_event` or its) writes that, executes a full fence and looks at the
//! other's index once more; who has moved an index executes a full fence before it looks whether to wake the other.
//! Of these two looks one sees the other's write, so no wake-up is lost.

use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};

use crate::Violation;
use crate::chain::{Chain, Descriptor, GuestMemory};

/// Most entries of a queue.
pub const SIZE_MAX: u16 = 32_768;

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`.
const DO_NOT_WAKE: u16 = 1;

/// Where flags and index stand in an area; entries follow in the available one.
const FLAGS: usize = 0;
const INDEX: usize = 1;
const ENTRIES: usize = 2;

/// The areas of a queue of N entries, little-endian. They lie in the guest's memory, and it may write them at any time.
pub trait Rings {
    /// Two words a descriptor: 2 N.
    fn descriptors(&self) -> &[AtomicU64];
    /// Flags, index, N entries, `used_event`: N + 3.
    fn available(&self) -> &[AtomicU16];
    /// The used ring's flags and index: 2.
    fn used_head(&self) -> &[AtomicU16];
    /// The used ring's entries, two words each: 2 N.
    fn used(&self) -> &[AtomicU32];
    /// `avail_event`: 1.
    fn used_tail(&self) -> &[AtomicU16];
}

/// What was negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// `VIRTIO_F_EVENT_IDX`: each side says at which index it wants to be woken.
    pub event_index: bool,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
}

/// A queue at the device's seat.
pub struct Queue<R> {
    rings: R,
    size: u16,
    options: Options,
    /// Entries taken from the available ring, modulo 2^16, as all that follow.
    taken: u16,
    /// The guest's index as it was seen last.
    seen: u16,
    /// Entries written to the used ring ...
    used: u16,
    /// ... of which the guest can see so many.
    published: u16,
    /// Up to where it was decided whether to signal; not yet at the beginning.
    decided: Option<u16>,
    #[cfg(test)]
    pub(crate) fault: Option<Fault>,
}

impl<R: Rings> Queue<R> {
    /// A queue of `size` entries of which `taken` (modulo 2^16) were taken before.
    ///
    /// # Errors
    /// The size is not possible, or the areas have another one.
    pub fn new(rings: R, size: u32, options: Options, taken: u16) -> Result<Self, Violation> {
        let fits = |size: u16| {
            let entries = usize::from(size);
            rings.descriptors().len() == 2 * entries
                && rings.available().len() == entries + 3
                && rings.used_head().len() == 2
                && rings.used().len() == 2 * entries
                && rings.used_tail().len() == 1
        };
        let checked = u16::try_from(size)
            .ok()
            .filter(|size| size.is_power_of_two() && (1..=SIZE_MAX).contains(size) && fits(*size));
        let size = checked.ok_or(Violation::Size { size })?;
        // A device that comes back after its process ended goes on where it was.
        let used = u16::from_le(rings.used_head()[INDEX].load(Relaxed));
        let (seen, published, decided) = (taken, used, None);
        Ok(Self {
            rings,
            size,
            options,
            taken,
            seen,
            used,
            published,
            decided,
            #[cfg(test)]
            fault: None,
        })
    }

    /// Entries.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Entries taken so far, modulo 2^16: where another device would go on.
    #[must_use]
    pub fn taken(&self) -> u16 {
        self.taken
    }

    /// How many chains wait to be taken.
    ///
    /// # Errors
    /// The index is none that a driver could have written.
    #[inline]
    pub fn waiting(&mut self) -> Result<u16, Violation> {
        let index = u16::from_le(self.rings.available()[INDEX].load(Acquire));
        let count = index.wrapping_sub(self.taken);
        if count > self.size {
            return Err(Violation::IndexAhead { index, taken: self.taken, size: self.size });
        }
        self.seen = index;
        Ok(count)
    }

    /// Takes the next chain; false when there is none.
    ///
    /// # Errors
    /// The driver broke a rule. Nothing is taken then.
    #[inline]
    pub fn take(
        &mut self,
        memory: &impl GuestMemory,
        chain: &mut Chain,
    ) -> Result<bool, Violation> {
        if self.seen == self.taken && self.waiting()? == 0 {
            return Ok(false);
        }
        let place = ENTRIES + usize::from(self.taken & self.mask());
        let head = u16::from_le(self.rings.available()[place].load(Relaxed));
        if head >= self.size && !self.is_faulty(Fault::HeadUnchecked) {
            return Err(Violation::Head { head, size: self.size });
        }
        chain.begin(head);
        let rings = &self.rings;
        let read = |number: u16| {
            let pair = usize::from(number) * 2;
            let [address, rest] = [pair, pair + 1].map(|at| match rings.descriptors().get(at) {
                Some(word) => u64::from_le(word.load(Relaxed)),
                None => 0,
            });
            Ok(Descriptor::from_words(address, rest))
        };
        let table = chain.walk(self.size.into(), head, self.options.indirect, read)?;
        if let Some(table) = table {
            chain.walk_table(&table, memory)?;
        }
        let step = if self.is_faulty(Fault::TakenTwice) { head & 1 } else { 1 };
        self.taken = self.taken.wrapping_add(step);
        Ok(true)
    }

    /// Puts the last `chains` that were taken back, as if they had not been: they come again. None of them may have
    /// been given back.
    #[inline]
    pub fn untake(&mut self, chains: u16) {
        self.taken = self.taken.wrapping_sub(chains);
    }

    /// Gives a chain back, into which `written_bytes` were written. The guest sees it with the next
    /// [`publish`](Self::publish).
    #[inline]
    pub fn give_back(&mut self, head: u16, written_bytes: u32) {
        let step = u16::from(self.is_faulty(Fault::UsedEntryKept) && self.used > self.size);
        let pair = usize::from((self.used - step) & self.mask()) * 2;
        let entries = self.rings.used();
        entries[pair].store(u32::from(head).to_le(), Relaxed);
        entries[pair + 1].store(written_bytes.to_le(), Relaxed);
        self.used = self.used.wrapping_add(1);
    }

    /// Shows the guest what was given back; true when it asked to be signalled.
    #[inline]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        if self.used == self.published {
            return false;
        }
        self.published = self.used;
        self.rings.used_head()[INDEX].store(self.used.to_le(), Release);
        fence(SeqCst);
        let decided = self.decided.replace(self.used);
        let available = self.rings.available();
        if !self.options.event_index {
            return u16::from_le(available[FLAGS].load(Relaxed)) & DO_NOT_WAKE == 0;
        }
        let event = u16::from_le(available[ENTRIES + usize::from(self.size)].load(Relaxed));
        match decided {
            // As the driver's `vring_need_event`: whether the index has moved past the event.
            Some(_) if self.is_faulty(Fault::SignalOnePast) => event == self.used,
            Some(old) => {
                let since_event = self.used.wrapping_sub(event).wrapping_sub(1);
                since_event < self.used.wrapping_sub(old)
            }
            None => true,
        }
    }

    /// Asks to be notified of the next chain; false when there is one already: then do not sleep.
    ///
    /// # Errors
    /// As [`waiting`](Self::waiting).
    pub fn arm(&mut self) -> Result<bool, Violation> {
        let after = if self.is_faulty(Fault::ArmedBehind) {
            self.taken.wrapping_sub(1)
        } else {
            self.taken
        };
        if self.options.event_index {
            self.rings.used_tail()[0].store(after.to_le(), Relaxed);
        } else {
            self.rings.used_head()[FLAGS].store(0, Relaxed);
        }
        fence(SeqCst);
        Ok(self.waiting()? == 0)
    }

    /// As [`arm`](Self::arm), to be notified only once `chains` more than those taken are there; false when they are.
    /// Without event indexes the guest notifies of each.
    ///
    /// # Errors
    /// As [`waiting`](Self::waiting).
    pub fn arm_for(&mut self, chains: u16) -> Result<bool, Violation> {
        let chains = chains.clamp(1, self.size);
        if self.options.event_index {
            let last = self.taken.wrapping_add(chains - 1);
            self.rings.used_tail()[0].store(last.to_le(), Relaxed);
        } else {
            self.rings.used_head()[FLAGS].store(0, Relaxed);
        }
        fence(SeqCst);
        Ok(self.waiting()? < chains)
    }

    /// No longer asks to be notified. With event indexes the guest notifies once more at most, when its index
    /// passes the one asked for.
    pub fn disarm(&mut self) {
        if !self.options.event_index {
            self.rings.used_head()[FLAGS].store(DO_NOT_WAKE.to_le(), Relaxed);
        }
    }

    fn mask(&self) -> u16 {
        self.size - 1
    }

    /// Whether a test has planted this fault.
    #[cfg(test)]
    fn is_faulty(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(test))]
    #[inline]
    #[expect(clippy::unused_self, reason = "only tests plant faults")]
    fn is_faulty(&self, _fault: Fault) -> bool {
        false
    }
}

/// Faults that tests plant, to show that the model finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    HeadUnchecked,
    /// The guest is signalled one entry later than it asked.
    SignalOnePast,
    /// The device asks to be notified of a chain that it has already.
    ArmedBehind,
    /// What is given back is written over what was given back before.
    UsedEntryKept,
    /// An entry of the available ring is taken twice.
    TakenTwice,
}

impl<R> fmt::Debug for Queue<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Queue")
            .field("size", &self.size)
            .field("taken", &self.taken)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}
