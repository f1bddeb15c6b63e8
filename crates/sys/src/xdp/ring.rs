//! Rings that the kernel and this process share: one writes entries and moves the producer's place on, the
//! other reads them and moves the consumer's (`Documentation/networking/af_xdp.rst`).
//!
//! The process that opened the socket may have them mapped too and write anything into them. So
//! entries are only copied, as atomics, and a place that runs beyond the ring is an error.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::SyscallError;
use crate::memory::Mapping;

/// Where the parts of a ring lie in its mapping (`struct xdp_ring_offset`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) entries: u64,
    pub(super) flags: u64,
    pub(super) slots: u32,
    pub(super) entry_bytes: usize,
}

/// Most slots of a ring that is mapped here.
const SLOTS_MAX: u32 = 1 << 16;

impl Place {
    /// Of the whole mapping.
    pub(super) fn length_bytes(&self) -> Result<usize, SyscallError> {
        let invalid = || {
            let object = format!("a ring of {} slots", self.slots);
            SyscallError::new("mmap(AF_XDP)", object, io::ErrorKind::InvalidInput)
        };
        if !self.slots.is_power_of_two() || self.slots > SLOTS_MAX {
            return Err(invalid());
        }
        let begin = usize::try_from(self.entries).map_err(|_large| invalid())?;
        begin.checked_add(self.slots as usize * self.entry_bytes).ok_or_else(invalid)
    }
}

/// A mapped ring.
#[derive(Debug)]
pub(super) struct Ring {
    mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<AtomicU64>,
    slots: u32,
    /// Atomics of an entry.
    words: usize,
}

// SAFETY: it lends atomics only, in a mapping that it holds and that is bound to no thread.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn new(mapping: Mapping, place: &Place) -> Result<Self, SyscallError> {
        let number = |offset| part(&mapping, offset, size_of::<AtomicU32>());
        Ok(Self {
            producer: number(place.producer)?,
            consumer: number(place.consumer)?,
            flags: number(place.flags)?,
            entries: part(&mapping, place.entries, place.slots as usize * place.entry_bytes)?,
            slots: place.slots,
            words: place.entry_bytes / size_of::<u64>(),
            mapping,
        })
    }

    fn number(&self, place: NonNull<AtomicU32>) -> &AtomicU32 {
        debug_assert!(self.mapping.length() > 0, "a ring keeps its mapping");
        // SAFETY: checked on creation to lie in the mapping, which `self` keeps; `Mapping::part` gives
        // aligned parts only, and every bit pattern is an integer.
        unsafe { place.as_ref() }
    }

    /// One of the atomics of the entry at that place of the ring.
    #[inline]
    fn word(&self, at: u32, word: usize) -> &AtomicU64 {
        let index = (at & (self.slots - 1)) as usize * self.words + word;
        // SAFETY: the index is below `slots * words`, and so many were checked to lie in the mapping.
        let place = unsafe { self.entries.add(index) };
        // SAFETY: as in `number`.
        unsafe { place.as_ref() }
    }
}

fn part<T>(mapping: &Mapping, offset: u64, bytes: usize) -> Result<NonNull<T>, SyscallError> {
    let offset = usize::try_from(offset).ok();
    offset
        .and_then(|offset| mapping.part(offset, bytes))
        .ok_or_else(|| SyscallError::new("mmap(AF_XDP)", "ring", io::ErrorKind::InvalidData))
}

/// A frame, or a part of one, in the registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Where it begins, from the start of the memory.
    pub address: u64,
    /// How long it is.
    pub length_bytes: u32,
    /// Whether the frame goes on in the next descriptor.
    pub goes_on: bool,
}

impl Descriptor {
    fn words(self) -> [u64; 2] {
        let options = if self.goes_on { libc::XDP_PKT_CONTD } else { 0 };
        let [l0, l1, l2, l3] = self.length_bytes.to_ne_bytes();
        let [o0, o1, o2, o3] = options.to_ne_bytes();
        [self.address, u64::from_ne_bytes([l0, l1, l2, l3, o0, o1, o2, o3])]
    }

    fn of(address: u64, rest: u64) -> Self {
        let [l0, l1, l2, l3, o0, o1, o2, o3] = rest.to_ne_bytes();
        let options = u32::from_ne_bytes([o0, o1, o2, o3]);
        Self {
            address,
            length_bytes: u32::from_ne_bytes([l0, l1, l2, l3]),
            goes_on: options & libc::XDP_PKT_CONTD != 0,
        }
    }
}

/// A place beyond the ring: somebody has written into it who should not.
fn run_away() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an AF_XDP ring's places are out of step")
}

/// The side that writes entries.
#[derive(Debug)]
pub struct Producer {
    ring: Ring,
    /// Where the next entry goes.
    next: u32,
    /// Places that were free when last looked at.
    free: u32,
}

impl Producer {
    pub(super) fn new(ring: Ring) -> Self {
        let next = ring.number(ring.producer).load(Ordering::Relaxed);
        Self { ring, next, free: 0 }
    }

    /// Places that may be filled; looks at the other side only when fewer than `wanted` are known of.
    ///
    /// # Errors
    /// The ring makes no sense.
    #[inline]
    pub fn reserve(&mut self, wanted: u32) -> io::Result<u32> {
        if self.free < wanted {
            let used = self.pending();
            self.free = self.ring.slots.checked_sub(used).ok_or_else(run_away)?;
        }
        Ok(self.free)
    }

    /// Entries that the other side has not taken yet.
    #[inline]
    #[must_use]
    pub fn pending(&self) -> u32 {
        // Whoever sees the place moved on sees what was done with the entries before.
        let taken = self.ring.number(self.ring.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(taken)
    }

    /// Writes a frame at the `offset`th reserved place.
    #[inline]
    pub fn put(&self, offset: u32, descriptor: Descriptor) {
        let at = self.next.wrapping_add(offset);
        let [address, rest] = descriptor.words();
        self.ring.word(at, 0).store(address, Ordering::Relaxed);
        if self.ring.words > 1 {
            self.ring.word(at, 1).store(rest, Ordering::Relaxed);
        }
    }

    /// Writes a chunk's address at the `offset`th reserved place of a ring of chunks.
    #[inline]
    pub fn put_chunk(&self, offset: u32, address: u64) {
        self.ring.word(self.next.wrapping_add(offset), 0).store(address, Ordering::Relaxed);
    }

    /// Hands over the first `count` reserved places.
    #[inline]
    pub fn publish(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.free = self.free.saturating_sub(count);
        // Whoever sees the place moved on sees the entries.
        self.ring.number(self.ring.producer).store(self.next, Ordering::Release);
    }

    /// Whether the kernel wants a system call to go on.
    #[inline]
    #[must_use]
    pub fn wants_wakeup(&self) -> bool {
        self.ring.number(self.ring.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The side that reads entries.
#[derive(Debug)]
pub struct Consumer {
    ring: Ring,
    /// The next entry to read.
    next: u32,
    /// Entries that were there when last looked at.
    known: u32,
}

impl Consumer {
    pub(super) fn new(ring: Ring) -> Self {
        let next = ring.number(ring.consumer).load(Ordering::Relaxed);
        Self { ring, next, known: 0 }
    }

    /// Entries that are there; looks at the other side only when fewer than `wanted` are known of.
    ///
    /// # Errors
    /// The ring makes no sense.
    #[inline]
    pub fn peek(&mut self, wanted: u32) -> io::Result<u32> {
        if self.known < wanted {
            let written = self.ring.number(self.ring.producer).load(Ordering::Acquire);
            let known = written.wrapping_sub(self.next);
            self.known = if known <= self.ring.slots { known } else { return Err(run_away()) };
        }
        Ok(self.known)
    }

    /// The `offset`th of the frames that are there.
    #[inline]
    #[must_use]
    pub fn get(&self, offset: u32) -> Descriptor {
        let at = self.next.wrapping_add(offset);
        let last = self.ring.words - 1;
        let rest = if last == 0 { 0 } else { self.ring.word(at, last).load(Ordering::Relaxed) };
        Descriptor::of(self.ring.word(at, 0).load(Ordering::Relaxed), rest)
    }

    /// Gives the first `count` entries back.
    #[inline]
    pub fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.known = self.known.saturating_sub(count);
        // The entries were read before.
        self.ring.number(self.ring.consumer).store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides of one ring in memory of this process.
    fn pair(slots: u32) -> (Producer, Consumer) {
        let memory = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, 8192).unwrap();
        let place =
            Place { producer: 0, consumer: 64, flags: 128, entries: 192, slots, entry_bytes: 16 };
        let ring = || {
            let mapping = Mapping::of_file(&memory, 8192, 0, "test").unwrap();
            Ring::new(mapping, &place).unwrap()
        };
        (Producer::new(ring()), Consumer::new(ring()))
    }

    #[test]
    fn what_is_put_is_got_in_order_round_and_round() {
        let (mut to, mut from) = pair(8);
        let frame = |number: u32| Descriptor {
            address: u64::from(number) << 32,
            length_bytes: number,
            goes_on: number.is_multiple_of(3),
        };
        let (mut sent, mut seen) = (0, 0);
        while seen < 100 {
            let room = to.reserve(8).unwrap().min(5);
            (0..room).for_each(|offset| to.put(offset, frame(sent + offset)));
            to.publish(room);
            sent += room;
            let there = from.peek(1).unwrap().min(3);
            (0..there).for_each(|offset| assert_eq!(from.get(offset), frame(seen + offset)));
            from.release(there);
            seen += there;
        }
        assert_eq!(to.pending(), sent - seen);
        assert!(!to.wants_wakeup());
    }

    #[test]
    fn places_out_of_step_are_errors() {
        let (mut to, mut from) = pair(8);
        from.ring.number(from.ring.producer).store(9, Ordering::Relaxed);
        assert!(from.peek(1).is_err());
        to.ring.number(to.ring.consumer).store(1, Ordering::Relaxed);
        assert!(to.reserve(1).is_err());
    }

    #[test]
    fn rings_that_cannot_be_are_refused() {
        let place = |slots| Place {
            producer: 0,
            consumer: 64,
            flags: 128,
            entries: 192,
            slots,
            entry_bytes: 16,
        };
        assert!(place(0).length_bytes().is_err());
        assert!(place(100).length_bytes().is_err());
        assert!(place(1 << 31).length_bytes().is_err());
        assert!(Place { entries: u64::MAX, ..place(64) }.length_bytes().is_err());
        assert_eq!(place(64).length_bytes().unwrap(), 192 + 1024);
    }
}
