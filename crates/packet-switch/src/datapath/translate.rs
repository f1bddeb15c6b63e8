//! Between ports with virtio-net headers (TAP devices, links) and ports without.
//!
//! Only where the two differ: ports alike pass their frames on as they are. A frame that goes to a port
//! without headers gets the checksum it lacks, and a super-segment becomes the packets it stands
//! for; one that comes from there gets an empty header. All that is made once a frame, however many ports
//! it goes to.

use std::ops::Range;

use ring::{Slot, SlotFlags};
use shm::Buffers;
use switch::frame::VNET_HEADER_BYTES;
use switch::offload;
use switch::vale::DropReason;

use super::FRAGMENTS_MAX;
use super::outlet::Outlet;
use crate::attachment::HEADERS_BYTES;
use crate::counters::Tally;

/// The part of a virtio-net header that says anything.
pub(super) type Header = [u8; VNET_HEADER_BYTES];

/// The longest header.
const HEADER_BYTES_MAX: usize = HEADERS_BYTES[HEADERS_BYTES.len() - 1] as usize;

/// Packets of a turn in the forms that other ports need. The senders' memory is read once for all of them.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// Headers of the turn's packets, as far as they were read; empty where the source has none.
    pub(super) headers: Vec<Header>,
    /// Packets in one piece: header, frame.
    packets: Vec<u8>,
    /// Where finished frames begin otherwise than their packets.
    heads: Vec<u8>,
    /// Finished frames: the beginning in `heads`, the rest in `packets`.
    parts: Vec<[Range<usize>; 2]>,
    /// What there is of each packet of the turn.
    made: Vec<Made>,
}

#[derive(Debug, Clone, Default)]
struct Made {
    packet: Option<Range<usize>>,
    /// Its finished frames; none of a packet that is not what its header says.
    finished: Option<Option<Range<usize>>>,
}

/// A packet of a turn, where it lies at its source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Original<'a> {
    /// Which of the turn's packets.
    pub(super) index: usize,
    pub(super) fragments: &'a [Slot],
    pub(super) from: &'a Buffers,
    /// Bytes of virtio-net header before its frame.
    pub(super) header_bytes: u8,
}

impl Forms {
    pub(super) fn clear(&mut self) {
        self.headers.clear();
        self.packets.clear();
        self.heads.clear();
        self.parts.clear();
        self.made.clear();
    }

    /// The packet in one piece.
    fn packet(&mut self, original: Original<'_>) -> Range<usize> {
        let Original { index, fragments, from, header_bytes } = original;
        if self.made.len() <= index {
            self.made.resize(index + 1, Made::default());
        }
        if let Some(packet) = &self.made[index].packet {
            return packet.clone();
        }
        let begin = self.packets.len();
        // What was read when the packet was judged: it may be another by now.
        self.packets.extend(self.headers.get(index).unwrap_or(&[0; VNET_HEADER_BYTES]));
        let mut skip = usize::from(header_bytes);
        for fragment in fragments {
            let (at, length) = (self.packets.len(), usize::from(fragment.length_bytes));
            let skipped = skip.min(length);
            self.packets.resize(at + length - skipped, 0);
            // Its length was checked when the slot was taken.
            let there =
                from.get(fragment.buffer).map(|one| one.read(skipped, &mut self.packets[at..]));
            debug_assert_eq!(there, Some(true), "checked lengths fit");
            skip -= skipped;
        }
        let packet = begin..self.packets.len();
        self.made[index].packet = Some(packet.clone());
        packet
    }

    /// The frames that the packet stands for, ready to be sent.
    fn finished(&mut self, original: Original<'_>) -> Option<Range<usize>> {
        let packet = self.packet(original);
        if let Some(finished) = &self.made[original.index].finished {
            return finished.clone();
        }
        let begin = self.parts.len();
        let (heads, parts) = (&mut self.heads, &mut self.parts);
        let count = offload::finish(&self.packets[packet.clone()], |head, tail| {
            let at = heads.len();
            heads.extend_from_slice(head);
            parts.push([at..heads.len(), packet.start + tail.start..packet.start + tail.end]);
        });
        let finished = count.map(|_| begin..self.parts.len());
        self.made[original.index].finished = Some(finished.clone());
        finished
    }
}

impl Outlet {
    /// Copies a packet in the form of this port, with `header_bytes` of header, and leaves `spare` slots free;
    /// what became of it is added to `tally`.
    #[cold]
    pub(super) fn put_translated(
        &mut self,
        original: Original<'_>,
        forms: &mut Forms,
        header_bytes: u8,
        spare: u32,
        tally: &mut Tally,
    ) {
        if header_bytes > 0 {
            let packet = forms.packet(original);
            let (header, frame) = forms.packets[packet].split_at(VNET_HEADER_BYTES);
            // The longer header is the shorter one and a count of buffers that nobody needs.
            let mut longer = [0; HEADER_BYTES_MAX];
            longer[..VNET_HEADER_BYTES].copy_from_slice(header);
            let header = &longer[..usize::from(header_bytes).min(HEADER_BYTES_MAX)];
            return tally.settle(self.put_bytes(header, frame, spare), frame.len());
        }
        let Some(finished) = forms.finished(original) else {
            return tally.drop(DropReason::Malformed);
        };
        let parts = &forms.parts[finished];
        for (done, [head, tail]) in parts.iter().enumerate() {
            let (head, tail) = (&forms.heads[head.clone()], &forms.packets[tail.clone()]);
            let outcome = self.put_bytes(head, tail, spare);
            if outcome == Err(DropReason::RingFull) {
                // Nor is there room for those behind it.
                return tally.drop_many(DropReason::RingFull, parts.len() - done);
            }
            tally.settle(outcome, head.len() + tail.len());
        }
    }

    /// Copies bytes into as many slots as they take, all or none of them, and leaves `spare` slots free.
    pub(super) fn put_bytes(
        &mut self,
        head: &[u8],
        tail: &[u8],
        spare: u32,
    ) -> Result<(), DropReason> {
        let slots = self.slots_for(head.len() + tail.len(), spare)?;
        let (all, each) = (head.len() + tail.len(), self.buffer_bytes());
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

    /// How many slots so many bytes take, if they are there.
    pub(super) fn slots_for(&self, bytes: usize, spare: u32) -> Result<usize, DropReason> {
        let slots = bytes.div_ceil(self.buffer_bytes()).max(1);
        if slots > FRAGMENTS_MAX {
            return Err(DropReason::TooLong);
        }
        if slots > self.free().saturating_sub(spare) as usize {
            return Err(DropReason::RingFull);
        }
        Ok(slots)
    }
}
