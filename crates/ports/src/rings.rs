//! Rings, at a client's seat.

use std::os::fd::{AsFd, BorrowedFd};

use ring::{Receiver, Sender};
use shm::Buffer;

use crate::end::EndError;
use crate::slots::{Arrivals, FromSlots, PACKET_SLOTS_MAX, Part, Space, ToSlots};

/// What a switch delivers to a port.
pub type FromRing = FromSlots<Receiver>;

/// What goes into a switch by a port.
pub type ToRing = ToSlots<Sender>;

/// The longest length that a slot can tell; a buffer may be a byte longer.
const LENGTH_MAX: usize = u16::MAX as usize;

impl Arrivals for Receiver {
    #[inline]
    fn arrived(&mut self, wanted: u32) -> Result<u32, EndError> {
        Ok(self.peek(wanted)?)
    }

    #[inline]
    fn part(&self, slot: u32) -> Option<Part<'_>> {
        let (buffer, length, goes_on) = self.fragment(slot)?;
        Some(Part { bytes: Some(buffer.first(length)), goes_on })
    }

    #[inline]
    fn give_back(&mut self, slots: u32) -> Result<(), EndError> {
        Ok(self.release(slots)?)
    }

    fn arm(&mut self) -> Result<bool, EndError> {
        Ok(Receiver::arm(self)?)
    }

    fn disarm(&mut self) -> Result<(), EndError> {
        Ok(Receiver::disarm(self)?)
    }
}

impl Space for Sender {
    #[inline]
    fn reserve(&mut self, wanted: u32) -> Result<u32, EndError> {
        Ok(Sender::reserve(self, wanted)?)
    }

    #[inline]
    fn buffer_bytes(&self) -> usize {
        self.buffers().buffer_bytes().min(LENGTH_MAX)
    }

    /// At most half a ring, so that there is room for the next packet while one is on its way.
    #[inline]
    fn slots_max(&self) -> u32 {
        PACKET_SLOTS_MAX.min(self.place().slots() / 2)
    }

    #[inline]
    fn buffer(&self, slot: u32) -> Option<Buffer<'_>> {
        Sender::buffer(self, slot)?.cut(0, self.buffer_bytes())
    }

    #[inline]
    fn set(&mut self, slot: u32, bytes: usize, goes_on: bool) {
        // At most LENGTH_MAX.
        let put = self.put_part(slot, bytes as u16, goes_on);
        debug_assert!(put, "a reserved slot takes what its buffer holds");
    }

    #[inline]
    fn hand_over(&mut self, slots: u32) -> Result<(), EndError> {
        Ok(self.publish(slots)?)
    }
}

/// Waiting for room, as for packets.
impl ToRing {
    /// As [`Source::arm`](crate::Source::arm).
    ///
    /// # Errors
    /// The other side broke the protocol.
    pub fn arm(&mut self) -> Result<bool, EndError> {
        Ok(self.slots().arm()?)
    }

    /// As [`Source::disarm`](crate::Source::disarm).
    ///
    /// # Errors
    /// The bell is broken.
    pub fn disarm(&mut self) -> Result<(), EndError> {
        Ok(self.slots().disarm()?)
    }

    /// Readable when there is room.
    pub fn fd(&mut self) -> BorrowedFd<'_> {
        self.slots().bell().as_fd()
    }
}
