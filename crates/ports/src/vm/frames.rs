//! Frames between a guest's queues and another end. In the guest's memory each frame has a virtio-net header of 12
//! bytes, of drivers from before virtio 1.0 perhaps of 10; at the other end one of 10.

use std::os::fd::BorrowedFd;

use shm::{Buffer, Bytes};
use switch::{flow, offload};

use super::guest::{Guest, QueueFault};
use super::memory::Memory;
use super::memory::Place;
use super::protocol::Feature;
use crate::end::{EndError, Fill, Filled, Moved, PACKET_BYTES_MAX, Parts, Sink, Source};

/// The header at the other end.
const HEADER: usize = switch::frame::VNET_HEADER_BYTES;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM` and `DATA_VALID`.
const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_FLAGS: u8 = 3;
/// `VIRTIO_NET_HDR_GSO_TCPV4`, `TCPV6` and `ECN`.
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const ECN: u8 = 0x80;

/// What a guest sends.
#[derive(Debug)]
pub struct FromGuest<'a>(pub &'a mut Guest);

/// What a guest receives.
#[derive(Debug)]
pub struct ToGuest<'a>(pub &'a mut Guest);

impl Guest {
    /// Takes the next chain of the queue and looks its segments up; false when there is none.
    fn take(&mut self, number: usize, to_read: bool) -> Result<bool, QueueFault> {
        let queue = self.vrings.get_mut(number).and_then(|vring| vring.queue.as_mut());
        let Some(queue) = queue else { return Ok(false) };
        if !queue.take(&self.memory, &mut self.chain)? {
            return Ok(false);
        }
        let (wanted, other) = (self.chain.readable(), self.chain.writable());
        let (wanted, other) = if to_read { (wanted, other) } else { (other, wanted) };
        if wanted.is_empty() || !other.is_empty() {
            return Err(QueueFault::Direction);
        }
        for segment in wanted {
            let (address, bytes) = (segment.address, segment.length_bytes);
            let place = self.memory.place(address, bytes as usize);
            self.places.push(place.ok_or(QueueFault::Outside { address, bytes })?);
        }
        Ok(true)
    }

    fn untake(&mut self, number: usize, chains: usize) {
        if let Some(queue) = self.vrings.get_mut(number).and_then(|vring| vring.queue.as_mut()) {
            queue.untake(chains as u16);
        }
    }

    fn publish(&mut self, first: usize) {
        let signaller = self.signaller.as_deref();
        let vrings = self.vrings.iter_mut().skip(first).step_by(2).take(self.pairs);
        vrings.for_each(|vring| vring.publish(signaller));
    }

    /// The next frame of one queue.
    fn send(
        &mut self,
        number: usize,
        to: &mut impl Sink,
    ) -> Result<Result<Moved, QueueFault>, EndError> {
        self.places.clear();
        match self.take(number, true) {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(Moved::Nothing)),
            Err(fault) => return Ok(Err(fault)),
        }
        let bytes = self.chain.readable_bytes();
        let Some(rest) = (bytes as usize).checked_sub(self.header_bytes()) else {
            return Ok(Err(QueueFault::Short(bytes)));
        };
        let moved = match rest + HEADER {
            length if length > PACKET_BYTES_MAX => Moved::Refused,
            length => to.put(length, cut(&self.memory, &self.places, self.header_bytes()))?,
        };
        if moved == Moved::NoRoom {
            self.untake(number, 1);
        } else if let Some(queue) = self.vrings.get_mut(number).and_then(|one| one.queue.as_mut()) {
            queue.give_back(self.chain.head(), 0);
        }
        Ok(Ok(moved))
    }
}

/// The parts of a frame in the guest's memory, without what its header has beyond ten bytes.
fn cut<'a>(memory: &'a Memory, places: &'a [Place], header_bytes: usize) -> impl Parts<'a> {
    let pieces = places.iter().scan(0, move |at, place| {
        let (start, end) = (*at, *at + place.bytes);
        *at = end;
        let buffer = memory.buffer(*place);
        let piece = move |from: usize, to: usize| {
            let (from, to) = (from.max(start), to.min(end));
            let length = to.checked_sub(from).filter(|length| *length > 0)?;
            Some(buffer?.cut(from - start, length)?.first(length))
        };
        Some([piece(0, HEADER), piece(header_bytes, usize::MAX)])
    });
    pieces.flatten().flatten()
}

impl Source for FromGuest<'_> {
    /// One frame of each queue in turn.
    fn pass(&mut self, to: &mut impl Sink) -> Result<Moved, EndError> {
        let guest = &mut *self.0;
        for _ in 0..guest.pairs {
            let pair = guest.next % guest.pairs;
            match guest.send(2 * pair + 1, to)? {
                Ok(Moved::Nothing) => guest.next = pair + 1,
                Ok(Moved::NoRoom) => return Ok(Moved::NoRoom),
                Ok(moved) => {
                    guest.next = pair + 1;
                    return Ok(moved);
                }
                Err(fault) => {
                    guest.stop_for(&fault);
                    return Ok(Moved::Nothing);
                }
            }
        }
        Ok(Moved::Nothing)
    }

    fn release(&mut self) -> Result<(), EndError> {
        self.0.publish(1);
        Ok(())
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.0.fds(true, false)
    }
}

/// The first bytes of a packet.
fn head_of<'a, const N: usize>(parts: impl Parts<'a>) -> ([u8; N], usize) {
    let (mut head, mut at) = ([0; N], 0);
    for part in parts {
        let bytes = part.length_bytes().min(N - at);
        if !part.read(0, &mut head[at..at + bytes]) || at + bytes == N {
            return (head, at + bytes);
        }
        at += bytes;
    }
    (head, at)
}

impl Guest {
    /// Whether the guest's driver takes frames with that header.
    fn understands(&self, header: [u8; HEADER]) -> bool {
        let [flags, kind, ..] = header;
        let takes_kind = match kind & !ECN {
            0 => true,
            TCP4 => self.has(Feature::GuestTso4),
            TCP6 => self.has(Feature::GuestTso6),
            _ => false,
        };
        let takes_ecn = kind & ECN == 0 || self.has(Feature::GuestEcn);
        let takes_checksum = flags & NEEDS_CHECKSUM == 0 || self.has(Feature::GuestChecksum);
        takes_kind && takes_ecn && takes_checksum
    }

    /// Which of its queues a frame goes to: by its flow, as long as the same pairs run.
    fn receiver_of<'a>(&self, parts: impl Parts<'a>) -> usize {
        if self.pairs < 2 {
            return 0;
        }
        let (head, bytes) = head_of::<{ HEADER + flow::HEAD_BYTES }>(parts);
        let flow = flow::number(head.get(HEADER..bytes).unwrap_or_default());
        2 * (flow as usize % self.pairs)
    }

    /// Takes chains until they hold so many bytes; `None` when there are not so many.
    fn reserve(&mut self, number: usize, bytes: usize) -> Result<Option<Moved>, QueueFault> {
        self.places.clear();
        self.heads.clear();
        let mut space = 0;
        while space < bytes {
            if !self.take(number, false)? {
                let chains = self.heads.len();
                if self.vrings.get(number).is_none_or(|vring| chains as u32 >= vring.size) {
                    // All that there can be is not enough.
                    self.untake(number, chains);
                    return Ok(Some(Moved::Refused));
                }
                self.stuck = (number, u16::try_from(chains + 1).unwrap_or(u16::MAX));
                self.untake(number, chains);
                return Ok(Some(Moved::NoRoom));
            }
            let length = self.chain.writable_bytes() as usize;
            if self.heads.is_empty() && length < self.header_bytes() {
                return Err(QueueFault::Short(length as u32));
            }
            self.heads.push((self.chain.head(), length));
            space += length;
            if space < bytes && !self.has(Feature::MergeBuffers) {
                // A frame that is longer than what the guest has for one.
                self.untake(number, 1);
                return Ok(Some(Moved::Refused));
            }
        }
        Ok(None)
    }

    /// Gives a frame to one queue: `header` first, then `parts` without their first `skip` bytes.
    fn receive<'a>(
        &mut self,
        number: usize,
        header: [u8; HEADER],
        (bytes, skip): (usize, usize),
        parts: impl Parts<'a>,
    ) -> Result<Moved, QueueFault> {
        let long = self.header_bytes();
        let total = long + bytes - skip;
        if let Some(moved) = self.reserve(number, total)? {
            return Ok(moved);
        }
        let mut own = [0; 12];
        own[..HEADER].copy_from_slice(&header);
        own[0] &= CHECKSUM_FLAGS;
        own[HEADER..].copy_from_slice(&(self.heads.len() as u16).to_le_bytes());
        let body = parts.scan(skip, |skip, part| {
            let skipped = part.length_bytes().min(*skip);
            *skip -= skipped;
            Some(part.cut(skipped, part.length_bytes() - skipped))
        });
        let all = std::iter::once(Bytes::from(&own[..long])).chain(body.flatten());
        copy(all, self.places.iter().filter_map(|place| self.memory.buffer(*place)), total);
        let Some(queue) = self.vrings.get_mut(number).and_then(|vring| vring.queue.as_mut()) else {
            return Ok(Moved::Refused);
        };
        let mut left = total;
        for (head, space) in &self.heads {
            let written = left.min(*space);
            queue.give_back(*head, written as u32);
            left -= written;
        }
        Ok(Moved::Given)
    }

    /// Gives a frame that the guest's driver would not take as the frames that it stands for.
    fn receive_finished<'a>(
        &mut self,
        number: usize,
        parts: impl Parts<'a>,
    ) -> Result<Moved, QueueFault> {
        let mut packet = std::mem::take(&mut self.scratch);
        packet.clear();
        for part in parts {
            let at = packet.len();
            packet.resize(at + part.length_bytes(), 0);
            // It was asked for its length.
            let _whole = part.read(0, &mut packet[at..]);
        }
        let mut outcome = Ok(Moved::Refused);
        let mut given = false;
        let finished = offload::finish(&packet, |head, tail| {
            if matches!(outcome, Ok(Moved::NoRoom) | Err(_)) {
                return;
            }
            let tail = packet.get(tail).unwrap_or_default();
            let parts = [Bytes::from(head), Bytes::from(tail)];
            let bytes = head.len() + tail.len();
            outcome = self.receive(number, [0; HEADER], (bytes, 0), parts.into_iter());
            given |= outcome == Ok(Moved::Given);
        });
        self.scratch = packet;
        match (outcome, finished) {
            (_, None) => Ok(Moved::Refused),
            // The first ones are there: the rest is lost, as on any full wire.
            (Ok(Moved::NoRoom), _) if given => Ok(Moved::Refused),
            (outcome, _) => outcome,
        }
    }
}

/// Copies `bytes` from parts into buffers, each filled before the next.
fn copy<'a, 'b>(
    parts: impl Iterator<Item = Bytes<'a>>,
    mut buffers: impl Iterator<Item = Buffer<'b>>,
    bytes: usize,
) {
    let (mut buffer, mut used, mut left) = (buffers.next(), 0, bytes);
    for part in parts {
        let mut done = 0;
        while done < part.length_bytes() && left > 0 {
            let Some(space) = buffer else { return };
            let length = (space.length_bytes() - used).min(part.length_bytes() - done).min(left);
            let to = space.cut(used, length).zip(part.cut(done, length));
            let copied = to.is_some_and(|(to, from)| to.copy_from(&from, length));
            debug_assert!(copied, "both have so many bytes");
            (used, done, left) = (used + length, done + length, left - length);
            if used == space.length_bytes() {
                (buffer, used) = (buffers.next(), 0);
            }
        }
    }
}

impl Sink for ToGuest<'_> {
    /// A guest that is not there takes nothing, and nothing waits for it.
    fn put<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> Result<Moved, EndError> {
        let guest = &mut *self.0;
        let (header, there) = head_of::<HEADER>(parts.clone());
        if guest.pairs == 0 || there < HEADER || bytes > PACKET_BYTES_MAX {
            return Ok(Moved::Refused);
        }
        let number = guest.receiver_of(parts.clone());
        let moved = if guest.understands(header) {
            guest.receive(number, header, (bytes, HEADER), parts)
        } else {
            guest.receive_finished(number, parts)
        };
        Ok(moved.unwrap_or_else(|fault| {
            guest.stop_for(&fault);
            Moved::Refused
        }))
    }

    fn fill(&mut self, from: &mut impl Fill) -> Result<Moved, EndError> {
        let mut space = vec![0; PACKET_BYTES_MAX];
        let space = Buffer::from(&mut space[..]);
        Ok(match from.fill(std::iter::once(space))? {
            Filled::Bytes(bytes) => self.put(bytes, std::iter::once(space.first(bytes)))?,
            Filled::Dropped => Moved::Dropped,
            Filled::Nothing => Moved::Nothing,
        })
    }

    fn flush(&mut self) -> Result<(), EndError> {
        self.0.publish(0);
        Ok(())
    }
}
