//! Rings behind which there is no ring of the switch's that fits them: a monitor's, fed with copies, and
//! the host's, fed by a TAP device.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use packet_switch::attachment::Record;
use ports::tap::Port;
use ring::{Receiver, Slot, SlotFlags};
use switch::frame::VNET_HEADER_BYTES;

use super::Ring;
use super::direct::Moved;
use crate::abi;
use crate::user::UserMemory;

/// Copies of what passes a port.
#[derive(Debug)]
pub struct Watch {
    receiver: Receiver,
    /// Whether those of frames that the port sent are wanted, and those of frames that it received.
    sent: bool,
    received: bool,
    copy: Vec<u8>,
}

impl Watch {
    /// Of the copies that come there: of frames that the port sent, of those that it received.
    #[must_use]
    pub fn new(receiver: Receiver, [sent, received]: [bool; 2]) -> Self {
        Self { receiver, sent, received, copy: Vec::new() }
    }

    /// From now on of those that come elsewhere.
    pub(super) fn renew(&mut self, receiver: Receiver) {
        self.receiver = receiver;
    }

    /// The next copy, put together, with the slots that it takes: left in the ring.
    fn next(&mut self, first: u32, arrived: u32) -> Option<u32> {
        self.copy.clear();
        for offset in first..arrived {
            if let Some((buffer, length)) = self.receiver.frame(offset) {
                let at = self.copy.len();
                self.copy.resize(at + length, 0);
                // No longer than its buffer, so it is there.
                let _there = buffer.read(0, &mut self.copy[at..]);
            }
            if !self.receiver.goes_on(offset) {
                return Some(offset + 1);
            }
        }
        None
    }
}

/// Longest packet of a TAP device, with room to spare.
const PACKET_BYTES_MAX: usize = 1 << 17;

/// The host's network stack behind a TAP device.
#[derive(Debug)]
pub struct HostEnd {
    port: Arc<Port>,
    /// Whether what the host sends comes here, or to another ring of the same device.
    receives: bool,
    /// Frames of a super-segment for which there was no room yet.
    waiting: VecDeque<Vec<u8>>,
    space: Vec<u8>,
}

impl HostEnd {
    /// At that device.
    #[must_use]
    pub fn new(port: &Arc<Port>, receives: bool) -> Self {
        let space = if receives { vec![0; PACKET_BYTES_MAX] } else { Vec::new() };
        Self { port: Arc::clone(port), receives, waiting: VecDeque::new(), space }
    }

    /// Whether what the host sends comes here.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.receives
    }

    /// The device.
    #[must_use]
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// The next frame that the host sent, finished: super-segments are taken apart.
    fn next(&mut self) -> Option<&[u8]> {
        while self.waiting.is_empty() {
            // A device that is down has nothing to say.
            let length = self.port.recv(&mut self.space).ok().flatten()?;
            let (packet, waiting) = (&self.space[..length], &mut self.waiting);
            let whole = |head: &[u8], rest: Range<usize>| {
                waiting.push_back([head, &packet[rest]].concat());
            };
            // A malformed packet stands for no frames.
            switch::offload::finish(packet, whole);
        }
        self.waiting.front().map(Vec::as_slice)
    }
}

impl Ring {
    /// Takes in as many copies as there is room for; the others stay, and what does not find room there the
    /// switch leaves out.
    pub(super) fn receive_watched(&self, watch: &mut Watch, head: u32, hwtail: u32) -> Moved {
        let arrived = watch.receiver.peek(u32::MAX).map_err(drop)?;
        let (mut index, mut taken) = (hwtail, 0);
        while let Some(after) = watch.next(taken, arrived) {
            let wanted =
                |record: &Record| if record.outgoing { watch.received } else { watch.sent };
            if let Some((record, frame)) = Record::split(&watch.copy)
                && wanted(&record)
            {
                let flags = if record.outgoing { 0 } else { abi::SENT };
                let Some(next) = self.place(frame, flags, head, index) else { break };
                index = next;
            }
            taken = after;
        }
        watch.receiver.release(taken).map_err(drop)?;
        Ok((head, index))
    }

    /// Hands the packets of the `moved` slots before `head` to the host.
    pub(super) fn send_to_host(
        &self,
        end: &HostEnd,
        head: u32,
        moved: u32,
        user: &dyn UserMemory,
    ) -> Moved {
        let mut index = self.after(head, self.slots - moved);
        let mut packet = vec![0; VNET_HEADER_BYTES];
        for offset in 0..moved {
            let slot = self.outgoing(index, user).unwrap_or_default();
            if let Some(buffer) = self.memory.buffers().get(slot.buffer) {
                let at = packet.len();
                packet.resize(at + usize::from(slot.length_bytes), 0);
                // A slot that is fit to be sent has no more than its buffer.
                let _there = buffer.read(0, &mut packet[at..]);
            }
            if !slot.flags.more_fragments()
                || offset + 1 == moved
                || packet.len() > PACKET_BYTES_MAX
            {
                // A device that is down loses it, as a wire without plug.
                end.port.send(&[IoSlice::new(&packet)]).ok();
                packet.truncate(VNET_HEADER_BYTES);
            }
            self.acknowledge(index);
            index = self.after(index, 1);
        }
        Ok((head, self.before(head)))
    }

    /// Takes in what the host has sent.
    pub(super) fn receive_from_host(&self, end: &mut HostEnd, head: u32, hwtail: u32) -> Moved {
        let mut index = hwtail;
        while end.receives && self.room(head, index) > 0 {
            let Some(frame) = end.next() else { break };
            let Some(next) = self.place(frame, 0, head, index) else { break };
            index = next;
            end.waiting.pop_front();
        }
        Ok((head, index))
    }

    /// Slots that may be filled from `index` on, while the program is at `head`.
    pub(super) fn room(&self, head: u32, index: u32) -> u32 {
        self.slots - 1 - self.distance(head, index)
    }

    /// Writes a frame into as many slots from `index` on as it takes; the index behind them, or `None` when
    /// there is not the room.
    fn place(&self, frame: &[u8], flags: u16, head: u32, index: u32) -> Option<u32> {
        let each = self.memory.buffers().buffer_bytes();
        let slots = u32::try_from(frame.len().div_ceil(each).max(1)).unwrap_or(u32::MAX);
        if slots > self.room(head, index) {
            return None;
        }
        let mut at = index;
        for number in 0..slots {
            let (from, slot) = (number as usize * each, self.slot(at));
            let piece = &frame[from..frame.len().min(from + each)];
            let buffer = self.memory.buffers().get(slot.buffer);
            let written = buffer.is_some_and(|buffer| buffer.write(0, piece));
            let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
            let more = if number + 1 < slots { abi::MORE_FRAGMENTS } else { 0 };
            let flags = SlotFlags(flags | more);
            let length_bytes = if written { length } else { 0 };
            self.set_slot(at, Slot { length_bytes, flags, ..slot });
            at = self.after(at, 1);
        }
        Some(at)
    }
}
