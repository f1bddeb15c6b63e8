//! Frames are copied: the ring is in another memory than what is behind it.

use ring::{Receiver, Sender, Slot, SlotFlags};

use super::Ring;
use super::direct::Moved;
use crate::abi;
use crate::user::UserMemory;

impl Ring {
    /// Sends as many of the `moved` slots from `hwcur` on as there is room for.
    pub(super) fn send_copied(
        &self,
        sender: &mut Sender,
        hwcur: u32,
        moved: u32,
        user: &dyn UserMemory,
    ) -> Moved {
        let count = sender.reserve(moved).map_err(drop)?.min(moved);
        let mut index = hwcur;
        let mut fragments = 0;
        for offset in 0..count {
            let slot = self.outgoing(index, user).unwrap_or_default();
            let from = self.memory.buffers().get(slot.buffer);
            let length = usize::from(slot.length_bytes);
            let copied = match (sender.buffer(offset), from) {
                (Some(to), Some(from)) => to.copy_from(&from, length),
                _ => false,
            };
            fragments += 1;
            let last = offset + 1 == moved || fragments == abi::FRAGMENTS_MAX;
            let goes_on = slot.flags.more_fragments() && !last;
            fragments = if goes_on { fragments } else { 0 };
            let place = sender.place();
            let at = place.index(offset);
            place.memory().set_slot(
                at,
                Slot {
                    length_bytes: if copied { slot.length_bytes } else { 0 },
                    flags: SlotFlags(if goes_on { abi::MORE_FRAGMENTS } else { 0 }),
                    ..place.memory().slot(at)
                },
            );
            self.acknowledge(index);
            index = self.after(index, 1);
        }
        sender.publish(count).map_err(drop)?;
        Ok((index, self.before(index)))
    }

    /// Takes in as many frames as there are empty slots before `head`.
    pub(super) fn receive_copied(&self, receiver: &mut Receiver, head: u32, hwtail: u32) -> Moved {
        let room = self.slots - 1 - self.distance(head, hwtail);
        let count = receiver.peek(room).map_err(drop)?.min(room);
        let mut index = hwtail;
        for offset in 0..count {
            let place = receiver.place();
            let theirs = place.memory().slot(place.index(offset));
            let mine = self.slot(index);
            let copied = match (receiver.frame(offset), self.memory.buffers().get(mine.buffer)) {
                (Some((from, length)), Some(to)) if to.copy_from(&from, length) => {
                    u16::try_from(length).unwrap_or(0)
                }
                _ => 0,
            };
            let flags = SlotFlags(theirs.flags.0 & (abi::MORE_FRAGMENTS | abi::FRAGMENT_COUNT));
            self.set_slot(index, Slot { length_bytes: copied, flags, ..mine });
            index = self.after(index, 1);
        }
        receiver.release(count).map_err(drop)?;
        Ok((head, index))
    }
}
