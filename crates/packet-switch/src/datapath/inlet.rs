//! What comes from a client: each slot is read once, and what was read is checked and used.

use ring::{End, Mapped, Slot, Violation};
use shm::{Bell, Buffers};
use switch::flow;

use super::translate::Header;
use super::{BATCH_SLOTS, CutOff, Marks};

/// Most slots of one packet, as netmap's `NETMAP_MAX_FRAGS`.
pub(crate) const FRAGMENTS_MAX: usize = 64;

/// A packet of a batch: a run of slots.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Packet {
    pub(crate) first: u16,
    pub(crate) slots: u16,
    pub(crate) bytes: u32,
    /// Whether it goes to everybody.
    pub(crate) flood: bool,
    /// Number of its flow, where a port has several queues.
    pub(crate) flow: u32,
}

/// The slots of one turn, copied and checked, and the packets they make.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) slots: Vec<Slot>,
    pub(crate) packets: Vec<Packet>,
}

impl Taken {
    /// The slots of a packet.
    #[inline]
    pub(crate) fn fragments(&self, packet: Packet) -> &[Slot] {
        let first = usize::from(packet.first);
        &self.slots[first..first + usize::from(packet.slots)]
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn fragments_mut(&mut self, packet: Packet) -> &mut [Slot] {
        let first = usize::from(packet.first);
        &mut self.slots[first..first + usize::from(packet.slots)]
    }
}

/// The owner's seat of a client's transmit ring.
#[derive(Debug)]
pub(crate) struct Inlet {
    end: End<Mapped>,
    buffers: Buffers,
    bell: Bell,
    /// How many slots the client has handed over, as of the last look.
    seen: Result<u32, Violation>,
}

impl Inlet {
    pub(crate) fn new(end: End<Mapped>, buffers: Buffers, bell: Bell) -> Self {
        Self { end, buffers, bell, seen: Ok(0) }
    }

    /// Looks what the client has handed over; whether there is anything to be done.
    #[inline]
    pub(crate) fn look(&mut self) -> bool {
        self.seen = self.end.observe();
        self.seen != Ok(0)
    }

    /// Takes, of the slots that were there at the last [look](Self::look), up to a turn's worth and the whole packets
    /// they make. The slots of a packet whose end is not there yet stay for the next turn.
    pub(crate) fn take(&mut self, marks: &mut Marks, taken: &mut Taken) -> Result<(), CutOff> {
        taken.slots.clear();
        taken.packets.clear();
        let count = (std::mem::replace(&mut self.seen, Ok(0))? as usize).min(BATCH_SLOTS);
        let mut packet = Packet::default();
        for offset in 0..count {
            let slot = self.end.memory().slot(self.end.index(offset as u32));
            self.check(slot, marks)?;
            taken.slots.push(slot);
            packet.slots += 1;
            packet.bytes += u32::from(slot.length_bytes);
            if usize::from(packet.slots) > FRAGMENTS_MAX {
                return Err(CutOff::Fragments(FRAGMENTS_MAX));
            }
            if !slot.flags.more_fragments() {
                taken.packets.push(packet);
                packet = Packet { first: taken.slots.len() as u16, ..Packet::default() };
            }
        }
        for slot in taken.slots.drain(usize::from(packet.first)..) {
            marks.give(slot.buffer);
        }
        Ok(())
    }

    #[inline]
    fn check(&self, slot: Slot, marks: &mut Marks) -> Result<(), CutOff> {
        let (length_bytes, buffer_bytes) = (slot.length_bytes, self.buffers.buffer_bytes());
        if usize::from(length_bytes) > buffer_bytes {
            return Err(CutOff::TooLong { length_bytes, buffer_bytes });
        }
        marks.take(slot.buffer)?;
        if let Some(buffer) = self.buffers.get(slot.buffer) {
            buffer.prefetch();
        }
        Ok(())
    }

    /// Whether there was anything at the last look.
    pub(crate) fn has_some(&self) -> Result<bool, CutOff> {
        Ok(self.seen? > 0)
    }

    /// Leaves all but the first `packets` of those taken for the next turn.
    pub(crate) fn put_back(&self, marks: &mut Marks, taken: &mut Taken, packets: usize) {
        if let Some(packet) = taken.packets.get(packets) {
            let slots = taken.slots.drain(usize::from(packet.first)..);
            slots.for_each(|slot| marks.give(slot.buffer));
            taken.packets.truncate(packets);
        }
    }

    /// What says anything of a packet's virtio-net header, which is in its first slot.
    pub(super) fn header(&self, fragments: &[Slot]) -> Header {
        let mut header = Header::default();
        let buffer = fragments.first().and_then(|slot| self.buffers.get(slot.buffer));
        // No buffer is shorter; of a shorter packet nothing is used.
        let there = buffer.is_some_and(|buffer| buffer.read(0, &mut header));
        debug_assert!(there, "checked when the slot was taken");
        header
    }

    /// The first twelve bytes of a packet's frame, which begins after `skip_bytes`, and how many bytes
    /// of it are in the first slot.
    #[inline]
    pub(crate) fn head(&self, fragments: &[Slot], skip_bytes: usize) -> Option<([u8; 12], usize)> {
        let mut first = fragments.first()?;
        let mut skip_bytes = skip_bytes;
        if skip_bytes > 0 && usize::from(first.length_bytes) == skip_bytes {
            // The header has a slot of its own.
            (first, skip_bytes) = (fragments.get(1)?, 0);
        }
        let mut head = [0; 12];
        let there = self.buffers.get(first.buffer)?.read(skip_bytes, &mut head);
        there.then_some((head, usize::from(first.length_bytes).saturating_sub(skip_bytes)))
    }

    /// The number of the flow that a packet's frame belongs to, which begins after `skip_bytes`.
    pub(crate) fn flow(&self, fragments: &[Slot], skip_bytes: usize) -> u32 {
        let mut head = [0; flow::HEAD_BYTES];
        let (mut there, mut skip) = (0, skip_bytes);
        for slot in fragments {
            let length = usize::from(slot.length_bytes).saturating_sub(skip);
            let part = length.min(head.len() - there);
            let buffer = self.buffers.get(slot.buffer).filter(|_| part > 0);
            if buffer.is_some_and(|one| one.read(skip, &mut head[there..there + part])) {
                there += part;
            }
            skip = skip.saturating_sub(slot.length_bytes.into());
            if there == head.len() {
                break;
            }
        }
        flow::number(&head[..there])
    }

    /// Gives the taken slots back, those that were [traded](super::Outlet::trade) with the buffers that were got for
    /// theirs; whether the client is to be woken. One that waits for room is let
    /// sleep as long as another full turn's worth is there: that turn takes at least one packet, so
    /// the question comes again, and a client that wakes to much room wakes seldom.
    pub(crate) fn release(&mut self, marks: &mut Marks, slots: &[Slot]) -> bool {
        for (offset, slot) in (0..).zip(slots) {
            if slot.flags.buffer_changed() {
                self.end.memory().set_slot(self.end.index(offset), *slot);
            }
            marks.give(slot.buffer);
        }
        self.end.advance(slots.len() as u32);
        (self.end.available() as usize) < BATCH_SLOTS && self.end.must_ring()
    }

    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn arm(&mut self) -> Result<bool, Violation> {
        self.end.arm()
    }

    pub(crate) fn disarm(&mut self) {
        self.end.disarm();
    }
}
