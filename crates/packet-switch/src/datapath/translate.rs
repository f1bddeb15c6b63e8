//! Between ports with virtio-net headers (TAP devices, links) and ports without.
//!
//! Only where the two differ: ports alike pass their frames on as they are. A frame that goes to a port
//! without headers gets the checksum it lacks, and a super-segment becomes the packets it stands
//! for; one that comes from there gets an empty header.

use ring::{Slot, SlotFlags};
use shm::Buffers;
use switch::frame::VNET_HEADER_BYTES;
use switch::offload;
use switch::vale::DropReason;

use super::inlet::FRAGMENTS_MAX;
use super::outlet::Outlet;
use crate::attachment::HEADER_BYTES;
use crate::counters::Tally;

impl Outlet {
    /// Puts a packet into the port's form and copies it; what became of it is added to `tally`.
    #[cold]
    pub(crate) fn put_translated(
        &mut self,
        fragments: &[Slot],
        from: &Buffers,
        [theirs, mine]: [u8; 2],
        tally: &mut Tally,
    ) {
        let mut packet = std::mem::take(&mut self.scratch);
        packet.clear();
        if theirs == 0 {
            packet.resize(mine.into(), 0);
        }
        for fragment in fragments {
            let at = packet.len();
            packet.resize(at + usize::from(fragment.length_bytes), 0);
            // Its length was checked when the slot was taken.
            let there = from.get(fragment.buffer).map(|buffer| buffer.read(0, &mut packet[at..]));
            debug_assert_eq!(there, Some(true), "checked lengths fit");
        }
        if theirs == 0 {
            self.put_headed(&packet, mine, tally);
        } else if packet.len() < theirs.into() {
            tally.drop(DropReason::Malformed);
        } else {
            // The longer header is the shorter one and a count of buffers that nobody needs.
            let count = VNET_HEADER_BYTES..usize::from(if mine == 0 { HEADER_BYTES } else { mine });
            packet.splice(VNET_HEADER_BYTES..theirs.into(), count.map(|_| 0));
            match mine {
                0 => self.put_finished(&mut packet, tally),
                mine => self.put_headed(&packet, mine, tally),
            }
        }
        self.scratch = packet;
    }

    fn put_headed(&mut self, packet: &[u8], header_bytes: u8, tally: &mut Tally) {
        let frame_bytes = packet.len().saturating_sub(header_bytes.into());
        tally.settle(self.put_bytes(packet, &[]), frame_bytes);
    }

    fn put_finished(&mut self, packet: &mut [u8], tally: &mut Tally) {
        let mut count = |head: &[u8], tail: &[u8]| {
            tally.settle(self.put_bytes(head, tail), head.len() + tail.len());
        };
        if offload::finish(packet, &mut count).is_none() {
            tally.drop(DropReason::Malformed);
        }
    }

    /// Copies bytes into as many slots as they take, all or none of them.
    pub(crate) fn put_bytes(&mut self, head: &[u8], tail: &[u8]) -> Result<(), DropReason> {
        let (all, each) = (head.len() + tail.len(), self.buffer_bytes());
        let slots = all.div_ceil(each).max(1);
        if slots > FRAGMENTS_MAX {
            return Err(DropReason::TooLong);
        }
        if slots > self.free() as usize {
            return Err(DropReason::RingFull);
        }
        for number in 0..slots {
            let (from, to) = (number * each, all.min((number + 1) * each));
            let part = |bytes: &[u8], begins: usize| {
                let cut = |at: usize| at.saturating_sub(begins).min(bytes.len());
                (cut(from), cut(to))
            };
            let ((h0, h1), (t0, t1)) = (part(head, 0), part(tail, head.len()));
            let more = if number + 1 < slots { SlotFlags::MORE_FRAGMENTS } else { 0 };
            // At most 64, and a piece is no longer than a buffer.
            let flags = SlotFlags((slots as u16) << 8 | more);
            self.fill(&[&head[h0..h1], &tail[t0..t1]], (to - from) as u16, flags);
        }
        Ok(())
    }
}
