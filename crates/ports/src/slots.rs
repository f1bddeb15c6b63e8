//! Ends whose packets lie in slots: those of a ring, the descriptors of an AF_XDP socket.
//!
//! Such an end says what its slots are ([`Arrivals`], [`Space`]); how packets are found in them and spread over
//! them stands here once.

use std::os::fd::{AsFd, BorrowedFd};

use shm::{Buffer, Bytes};

use crate::end::{EndError, Fill, Filled, Moved, PACKET_BYTES_MAX, Parts, Sink, Source};

/// Most slots of one packet, as the switch takes them.
pub const PACKET_SLOTS_MAX: u32 = shm::transfer::BUFFERS_MAX as u32;

/// What a slot holds.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// `None` when the slot points nowhere.
    pub bytes: Option<Bytes<'a>>,
    /// Whether the packet goes on in the next slot.
    pub goes_on: bool,
}

/// Slots with packets that have arrived, numbered from the first that was not given back; readable when more
/// come.
pub trait Arrivals: AsFd {
    /// How many there are; looks at the other side when fewer than `wanted` are known of.
    ///
    /// # Errors
    /// The end has closed.
    fn arrived(&mut self, wanted: u32) -> Result<u32, EndError>;

    /// What is in one of them.
    fn part(&self, slot: u32) -> Option<Part<'_>>;

    /// Gives the first ones back.
    ///
    /// # Errors
    /// The end has closed.
    fn give_back(&mut self, slots: u32) -> Result<(), EndError>;

    /// As [`Source::arm`].
    ///
    /// # Errors
    /// The end has closed.
    fn arm(&mut self) -> Result<bool, EndError> {
        Ok(true)
    }

    /// As [`Source::disarm`].
    ///
    /// # Errors
    /// The end has closed.
    fn disarm(&mut self) -> Result<(), EndError> {
        Ok(())
    }
}

/// Slots to send in, numbered from the first that was not handed over.
pub trait Space {
    /// How many may be filled now; looks at the other side when fewer than `wanted` are known of.
    ///
    /// # Errors
    /// The end has closed.
    fn reserve(&mut self, wanted: u32) -> Result<u32, EndError>;

    /// Bytes of each buffer.
    fn buffer_bytes(&self) -> usize;

    /// Most slots of one packet.
    fn slots_max(&self) -> u32;

    /// The buffer of a reserved slot.
    fn buffer(&self, slot: u32) -> Option<Buffer<'_>>;

    /// Says what is in it: `bytes`, at most a buffer's.
    fn set(&mut self, slot: u32, bytes: usize, goes_on: bool);

    /// Hands the first ones over.
    ///
    /// # Errors
    /// The end has closed.
    fn hand_over(&mut self, slots: u32) -> Result<(), EndError>;
}

/// The packets in an end's slots.
#[derive(Debug)]
pub struct FromSlots<A> {
    slots: A,
    arrived: u32,
    taken: u32,
}

impl<A: Arrivals> FromSlots<A> {
    /// Makes a source of an end with slots.
    pub fn new(slots: A) -> Self {
        Self { slots, arrived: 0, taken: 0 }
    }

    /// The end itself.
    pub fn slots(&mut self) -> &mut A {
        &mut self.slots
    }
}

impl<A: Arrivals> Source for FromSlots<A> {
    #[inline]
    fn look(&mut self) -> Result<(), EndError> {
        self.arrived = self.slots.arrived(1)?;
        let last = self.arrived.checked_sub(1).and_then(|last| self.slots.part(last));
        if last.is_some_and(|part| part.goes_on) {
            // Its end may be there by now.
            self.arrived = self.slots.arrived(self.arrived + 1)?;
        }
        Ok(())
    }

    /// A packet whose last part is not there yet stays.
    #[inline]
    fn pass(&mut self, to: &mut impl Sink) -> Result<Moved, EndError> {
        let (slots, first) = (&self.slots, self.taken);
        let (mut bytes, mut is_sound, mut end) = (0, true, first);
        loop {
            if end >= self.arrived {
                return Ok(Moved::Nothing);
            }
            let Some(part) = slots.part(end) else { return Ok(Moved::Nothing) };
            end += 1;
            match part.bytes {
                Some(part) => bytes += part.length_bytes(),
                None => is_sound = false,
            }
            if !part.goes_on {
                break;
            }
        }
        let parts = (first..end).filter_map(|slot| slots.part(slot)?.bytes);
        let moved = if is_sound { to.put(bytes, parts)? } else { Moved::Refused };
        if moved != Moved::NoRoom {
            self.taken = end;
        }
        Ok(moved)
    }

    #[inline]
    fn release(&mut self) -> Result<(), EndError> {
        let taken = std::mem::take(&mut self.taken);
        self.arrived -= taken;
        self.slots.give_back(taken)
    }

    fn arm(&mut self) -> Result<bool, EndError> {
        self.slots.arm()
    }

    fn disarm(&mut self) -> Result<(), EndError> {
        self.slots.disarm()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.slots.as_fd()]
    }
}

/// Packets into an end's slots, each in as many as it takes or in none.
#[derive(Debug)]
pub struct ToSlots<S> {
    slots: S,
    filled: u32,
}

impl<S: Space> ToSlots<S> {
    /// Makes a sink of an end with slots.
    pub fn new(slots: S) -> Self {
        Self { slots, filled: 0 }
    }

    /// The end itself.
    pub fn slots(&mut self) -> &mut S {
        &mut self.slots
    }

    #[inline]
    fn has_room(&mut self, slots: u32) -> Result<bool, EndError> {
        let wanted = self.filled + slots;
        Ok(self.slots.reserve(wanted)? >= wanted)
    }

    /// Copies `bytes` of a packet, each buffer filled before the next; false when its parts have fewer.
    #[inline]
    fn spread<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> bool {
        let each = self.slots.buffer_bytes();
        let (mut slot, mut used, mut left) = (self.filled, 0, bytes);
        for part in parts {
            let mut done = 0;
            while done < part.length_bytes() && left > 0 {
                let length = (each - used).min(part.length_bytes() - done).min(left);
                let copied = self
                    .slots
                    .buffer(slot)
                    .and_then(|buffer| buffer.cut(used, length))
                    .zip(part.cut(done, length))
                    .is_some_and(|(to, from)| to.copy_from(&from, length));
                debug_assert!(copied, "a reserved slot has a buffer");
                (used, done, left) = (used + length, done + length, left - length);
                if left == 0 || used == each {
                    self.slots.set(slot, used, left > 0);
                    (slot, used) = (slot + 1, 0);
                }
            }
        }
        left == 0
    }
}

impl<S: Space> Sink for ToSlots<S> {
    #[inline]
    fn put<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> Result<Moved, EndError> {
        let each = self.slots.buffer_bytes();
        let slots = if bytes <= each { 1 } else { bytes.div_ceil(each.max(1)) };
        if bytes == 0 || slots > self.slots.slots_max() as usize {
            return Ok(Moved::Refused);
        }
        let slots = slots as u32;
        if !self.has_room(slots)? {
            return Ok(Moved::NoRoom);
        }
        if !self.spread(bytes, parts) {
            return Ok(Moved::Refused);
        }
        self.filled += slots;
        Ok(Moved::Given)
    }

    #[inline]
    fn fill(&mut self, from: &mut impl Fill) -> Result<Moved, EndError> {
        let each = self.slots.buffer_bytes().max(1);
        let room = (PACKET_BYTES_MAX.div_ceil(each) as u32).min(self.slots.slots_max());
        if !self.has_room(room)? {
            return Ok(Moved::NoRoom);
        }
        let (slots, first) = (&self.slots, self.filled);
        let space = (first..first + room).filter_map(|slot| slots.buffer(slot));
        let bytes = match from.fill(space)? {
            Filled::Bytes(bytes) => bytes.min(room as usize * each),
            Filled::Dropped => return Ok(Moved::Dropped),
            Filled::Nothing => return Ok(Moved::Nothing),
        };
        let slots = bytes.div_ceil(each).max(1) as u32;
        for number in 0..slots {
            let length = (bytes - number as usize * each).min(each);
            self.slots.set(first + number, length, number + 1 < slots);
        }
        self.filled += slots;
        Ok(Moved::Given)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), EndError> {
        match std::mem::take(&mut self.filled) {
            0 => Ok(()),
            filled => self.slots.hand_over(filled),
        }
    }
}
