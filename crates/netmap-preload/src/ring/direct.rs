//! Slots go from one ring to the other, buffers stay where they are.
//!
//! Program's ring and switch's ring have equally many slots and move in step, so one slot stands for the
//! other.

use ring::{Receiver, Sender, Slot, SlotFlags};

use super::Ring;
use crate::abi;
use crate::user::UserMemory;

/// `hwcur` and `hwtail`, or that the switch's ring is of no more use.
pub(super) type Moved = Result<(u32, u32), ()>;

impl Ring {
    /// Hands over the `moved` slots before `head`, and takes back what has been sent; the program has those before
    /// `hwtail` already.
    pub(super) fn send_direct(
        &self,
        sender: &mut Sender,
        head: u32,
        (moved, hwtail): (u32, u32),
        user: &dyn UserMemory,
    ) -> Moved {
        let mut index = self.after(head, self.slots - moved);
        let mut fragments = 0;
        for offset in 0..moved {
            let place = sender.place();
            let at = place.index(offset);
            let before = place.memory().slot(at);
            let slot = match self.outgoing(index, user) {
                Some(slot) => slot,
                // As VALE does: sent as nothing. The program gets the switch's buffer back.
                None => {
                    self.set_slot(index, Slot { length_bytes: 0, ..before });
                    Slot { length_bytes: 0, flags: SlotFlags(0), ..before }
                }
            };
            fragments += 1;
            let last = offset + 1 == moved || fragments == abi::FRAGMENTS_MAX;
            let goes_on = slot.flags.more_fragments() && !last;
            fragments = if goes_on { fragments } else { 0 };
            let mut flags = if goes_on { abi::MORE_FRAGMENTS } else { 0 };
            if slot.buffer != before.buffer {
                flags |= abi::BUF_CHANGED;
            }
            place.memory().set_slot(at, Slot { flags: SlotFlags(flags), ..slot });
            self.acknowledge(index);
            index = self.after(index, 1);
        }
        sender.publish(moved).map_err(drop)?;
        // Not what the sender knows of: whoever asks to be woken looks too, and may be the first to see a slot.
        let known = self.distance(head, hwtail);
        let free = sender.reserve(u32::MAX).map_err(drop)?;
        if self.pipe {
            for offset in known..free {
                self.take_over(
                    sender.place().memory().slot(sender.place().index(offset)),
                    head,
                    offset,
                );
            }
        }
        Ok((head, self.after(head, free)))
    }

    /// A slot that came back from a pipe's other end, which may have put another buffer into it.
    fn take_over(&self, theirs: Slot, head: u32, offset: u32) {
        let index = self.after(head, offset);
        let mine = self.slot(index);
        if mine.buffer != theirs.buffer && self.memory.has_buffer(theirs.buffer) {
            let flags = SlotFlags(abi::BUF_CHANGED);
            self.set_slot(index, Slot { buffer: theirs.buffer, flags, ..mine });
        }
    }

    /// Gives back the `moved` slots before `head`, and takes in what has arrived.
    pub(super) fn receive_direct(
        &self,
        receiver: &mut Receiver,
        head: u32,
        moved: u32,
        hwtail: u32,
    ) -> Moved {
        let mut index = self.after(head, self.slots - moved);
        for offset in 0..moved {
            let place = receiver.place();
            let at = place.index(offset);
            let (mine, theirs) = (self.slot(index), place.memory().slot(at));
            if mine.buffer != theirs.buffer {
                if self.memory.has_buffer(mine.buffer) {
                    let flags = SlotFlags(abi::BUF_CHANGED);
                    place
                        .memory()
                        .set_slot(at, Slot { buffer: mine.buffer, length_bytes: 0, flags });
                } else {
                    self.set_slot(index, theirs);
                }
            }
            self.acknowledge(index);
            index = self.after(index, 1);
        }
        receiver.release(moved).map_err(drop)?;
        let known = self.distance(head, hwtail);
        let arrived = receiver.peek(u32::MAX).map_err(drop)?;
        let mut index = hwtail;
        for offset in known..arrived {
            let place = receiver.place();
            let slot = place.memory().slot(place.index(offset));
            self.set_slot(index, self.incoming(slot));
            index = self.after(index, 1);
        }
        Ok((head, index))
    }

    /// What the program may see of a slot that somebody else wrote.
    #[inline]
    fn incoming(&self, slot: Slot) -> Slot {
        if !self.memory.has_buffer(slot.buffer) {
            return Slot::default();
        }
        let changed = if self.pipe { abi::BUF_CHANGED } else { 0 };
        let kept = abi::MORE_FRAGMENTS | abi::FRAGMENT_COUNT | changed;
        let flags = SlotFlags(slot.flags.0 & kept);
        let most = self.memory.buffers().buffer_bytes();
        let fits = usize::from(slot.length_bytes) <= most;
        Slot { length_bytes: if fits { slot.length_bytes } else { 0 }, flags, ..slot }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ring::{Bells, Geometry, Layout, Receiver, Seat, Sender, Slot, SlotFlags};
    use rustix::io::Errno;

    use crate::memory::Memory;
    use crate::ring::{Backend, Direction, Ring, Synced};
    use crate::user::UserMemory;

    const SLOTS: u32 = 8;

    struct Nowhere;

    impl UserMemory for Nowhere {
        fn read(&self, _address: u64, _out: &mut [u8]) -> Result<(), Errno> {
            Err(Errno::FAULT)
        }

        fn write(&self, _address: u64, _bytes: &[u8]) -> Result<(), Errno> {
            Err(Errno::FAULT)
        }
    }

    /// A program's ring to a pipe, and what its other end receives from.
    fn pipe() -> (Arc<Ring>, Receiver) {
        let geometry = Geometry {
            tx_rings: 1,
            rx_rings: 0,
            slots: SLOTS,
            buffer_bytes: 2048,
            extra_buffers: 2,
        };
        let region = shm::Region::private(geometry.region_bytes().unwrap()).unwrap();
        let layout = Layout::format(&region, &geometry).unwrap();
        let (near, far) = Bells::pair().unwrap();
        let end = |seat| layout.end(&region, 0, seat, 1).unwrap();
        let buffers = || layout.buffers(&region).unwrap();
        let sender = Sender::join(end(Seat::User), buffers(), near);
        let receiver = Receiver::join(end(Seat::TxOwner), buffers(), far);
        let memory = Memory::of_switch(1, &region, Some(false)).unwrap();
        let transmit = Direction::Transmit;
        let ring = Ring::new(&memory, transmit, SLOTS, Backend::Send(sender), true).unwrap();
        (ring, receiver)
    }

    /// Sends all slots but one, and has the other end keep the first one's buffer and give another for it.
    fn exchanged(ring: &Ring, receiver: &mut Receiver) -> u32 {
        let full = SLOTS - 1;
        assert_eq!(ring.sync_at(full, full, &Nowhere), Synced::Ready(false), "none is left");
        let given = ring::FIRST_BUFFER + SLOTS;
        assert_eq!(receiver.peek(SLOTS).unwrap(), full);
        let at = receiver.place().index(0);
        let slot = receiver.place().memory().slot(at);
        let flags = SlotFlags(slot.flags.0 | SlotFlags::BUFFER_CHANGED);
        receiver.place().memory().set_slot(at, Slot { buffer: given, flags, ..slot });
        assert_ne!(slot.buffer, given);
        // The one that it kept from the beginning on comes back before the first one.
        receiver.release(2).unwrap();
        given
    }

    #[test]
    fn a_pipes_slot_comes_back_with_the_buffer_that_the_other_end_gave() {
        let (ring, mut receiver) = pipe();
        let given = exchanged(&ring, &mut receiver);
        assert_eq!(ring.sync_at(SLOTS - 1, SLOTS - 1, &Nowhere), Synced::Ready(true));
        assert_eq!(ring.slot(0).buffer, given);
    }

    #[test]
    fn so_it_does_where_a_wait_was_the_first_to_see_it() {
        let (ring, mut receiver) = pipe();
        let given = exchanged(&ring, &mut receiver);
        assert!(!ring.arm(), "it has come back");
        ring.disarm();
        assert_eq!(ring.sync_at(SLOTS - 1, SLOTS - 1, &Nowhere), Synced::Ready(true));
        assert_eq!(ring.slot(0).buffer, given);
    }
}
