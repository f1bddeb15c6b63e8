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
    /// Hands over the `moved` slots before `head`, and takes back what has been sent.
    pub(super) fn send_direct(
        &self,
        sender: &mut Sender,
        head: u32,
        moved: u32,
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
        let known = sender.place().available();
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
