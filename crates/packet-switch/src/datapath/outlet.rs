//! What goes to a client.

use ring::{End, Mapped, Slot, SlotFlags, Violation};
use shm::{Bell, Buffer, Buffers};
use switch::vale::DropReason;

use super::{CutOff, Marks};

/// The owner's seat of a client's receive ring.
#[derive(Debug)]
pub(crate) struct Outlet {
    end: End<Mapped>,
    buffers: Buffers,
    bell: Bell,
    /// The buffer of each slot the switch holds, by the slot's index: read once and checked when the
    /// client handed it over. Whatever it writes there afterwards is never read.
    held: Vec<u32>,
    /// Slots that have been read so.
    known: u32,
    /// Slots filled since the last [`publish`](Self::publish).
    filled: u32,
    #[cfg(test)]
    pub(super) fault: Option<TradeFault>,
}

/// A fault planted into [`Outlet::trade`].
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TradeFault {
    /// The sender gets its own buffer back.
    SenderKeepsBuffer,
    /// The buffer that the receiver gave is nobody's.
    BufferLost,
}

impl Outlet {
    pub(crate) fn new(end: End<Mapped>, buffers: Buffers, bell: Bell) -> Self {
        let held = vec![0; end.slots() as usize];
        Self {
            end,
            buffers,
            bell,
            held,
            known: 0,
            filled: 0,
            #[cfg(test)]
            fault: None,
        }
    }

    /// Reads the slots that the client has handed over since the last time.
    pub(crate) fn refill(&mut self, marks: &mut Marks) -> Result<(), CutOff> {
        let available = self.end.observe()?;
        for offset in self.known..available {
            let index = self.end.index(offset);
            let buffer = self.end.memory().slot(index).buffer;
            marks.take(buffer)?;
            self.held[index as usize] = buffer;
        }
        self.known = available;
        Ok(())
    }

    /// Slots that frames to everybody leave free, so that whoever sends many of them takes nobody's
    /// room for frames of its own.
    pub(super) fn spare(&self) -> u32 {
        self.end.slots() / 4
    }

    /// Copies a packet, whole or not at all, and leaves `spare` slots free.
    #[inline]
    pub(crate) fn put(
        &mut self,
        fragments: &[Slot],
        from: &Buffers,
        spare: u32,
    ) -> Result<(), DropReason> {
        if fragments.len() > self.free().saturating_sub(spare) as usize {
            return Err(DropReason::RingFull);
        }
        let longest = fragments.iter().map(|slot| slot.length_bytes).max().unwrap_or(0);
        if usize::from(longest) > self.buffers.buffer_bytes() {
            return Err(DropReason::TooLong);
        }
        // At most 64 fragments; netmap's receivers find their number in every slot.
        let count = (fragments.len() as u16) << 8;
        for (offset, fragment) in (self.filled..).zip(fragments) {
            let index = self.end.index(offset);
            let buffer = self.held[index as usize];
            let length_bytes = fragment.length_bytes;
            if let (Some(to), Some(from)) = (self.buffers.get(buffer), from.get(fragment.buffer)) {
                // Both lengths were checked above and when the slot was taken.
                let copied = to.copy_from(&from, usize::from(length_bytes));
                debug_assert!(copied, "checked lengths fit");
            }
            let flags = SlotFlags(count | fragment.flags.0 & SlotFlags::MORE_FRAGMENTS);
            self.end.memory().set_slot(index, Slot { buffer, length_bytes, flags });
        }
        self.filled += fragments.len() as u32;
        Ok(())
    }

    /// Hands a packet over without a copy, whole or not at all, to a port that shares the sender's region: its slots get the
    /// packet's buffers, and the packet's slots, which return to the sender, those that were in them.
    pub(crate) fn trade(
        &mut self,
        fragments: &mut [Slot],
        (marks, sender): (&mut Marks, &Marks),
    ) -> Result<(), DropReason> {
        if fragments.len() > self.free() as usize {
            return Err(DropReason::RingFull);
        }
        let count = (fragments.len() as u16) << 8;
        for (offset, fragment) in (self.filled..).zip(&mut *fragments) {
            let index = self.end.index(offset);
            let Slot { buffer, length_bytes, flags } = *fragment;
            let theirs = std::mem::replace(&mut self.held[index as usize], buffer);
            marks.trade(theirs, sender, buffer);
            let more = flags.0 & SlotFlags::MORE_FRAGMENTS | SlotFlags::BUFFER_CHANGED;
            let flags = SlotFlags(count | more);
            self.end.memory().set_slot(index, Slot { buffer, length_bytes, flags });
            let flags = SlotFlags(SlotFlags::BUFFER_CHANGED);
            *fragment = Slot { buffer: theirs, length_bytes: 0, flags };
            #[cfg(test)]
            self.fail(fragment, buffer);
        }
        self.filled += fragments.len() as u32;
        Ok(())
    }

    #[cfg(test)]
    fn fail(&self, fragment: &mut Slot, traded: u32) {
        match self.fault {
            Some(TradeFault::SenderKeepsBuffer) => fragment.buffer = traded,
            Some(TradeFault::BufferLost) => fragment.buffer = 0,
            None => {}
        }
    }

    /// Slots that may still be filled.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.known - self.filled
    }

    /// Slots that have been, since the last [`publish`](Self::publish).
    #[inline]
    pub(crate) fn filled(&self) -> u32 {
        self.filled
    }

    /// Slots of the ring.
    pub(crate) fn slots(&self) -> u32 {
        self.end.slots()
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffers.buffer_bytes()
    }

    /// Writes parts, together no longer than a buffer, into the next free slot.
    pub(super) fn fill(&mut self, parts: &[&[u8]], length_bytes: u16, flags: SlotFlags) {
        if let Some(to) = self.buffer(0) {
            let mut at = 0;
            for part in parts {
                let written = to.write(at, part);
                debug_assert!(written, "no longer than a buffer");
                at += part.len();
            }
        }
        self.set_filled(length_bytes, flags);
    }

    /// The buffer of the `offset`th slot that may still be filled.
    #[inline]
    pub(crate) fn buffer(&self, offset: u32) -> Option<Buffer<'_>> {
        let index = self.end.index(self.filled + offset);
        self.buffers.get(*self.held.get(index as usize)?)
    }

    /// The next slot that may be filled has been: says what is in its buffer.
    #[inline]
    pub(crate) fn set_filled(&mut self, length_bytes: u16, flags: SlotFlags) {
        let index = self.end.index(self.filled);
        let buffer = self.held[index as usize];
        self.end.memory().set_slot(index, Slot { buffer, length_bytes, flags });
        self.filled += 1;
    }

    /// Hands over what was filled; whether that was anything.
    pub(crate) fn publish(&mut self, marks: &mut Marks) -> bool {
        if self.filled == 0 {
            return false;
        }
        for offset in 0..self.filled {
            marks.give(self.held[self.end.index(offset) as usize]);
        }
        self.end.advance(self.filled);
        self.known -= self.filled;
        self.filled = 0;
        true
    }

    /// Whether the client sleeps and has not been rung for that, to be asked after [`publish`](Self::publish).
    pub(crate) fn must_ring(&mut self) -> bool {
        self.end.must_ring()
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Asks to be woken when the client makes room; false when it has just done so.
    pub(crate) fn arm(&mut self) -> Result<bool, Violation> {
        self.end.arm()
    }

    pub(crate) fn disarm(&mut self) {
        self.end.disarm();
    }
}
