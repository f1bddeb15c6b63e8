//! Transparent mode: what a program gives back marked goes to the other side, from the port to the host's network
//! stack or from there to the port, when it next asks for packets.
//!
//! As netmap does it: a ring to receive on takes part whose flags say so (`NR_FORWARD`), of it the packets
//! whose first slot says so (`NS_FORWARD`). To the host they are copied, to the port their buffers change places.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use ports::tap::Port;
use ring::{Slot, SlotFlags};
use switch::frame::VNET_HEADER_BYTES;

use super::{Backend, Direction, Ring, State};
use crate::abi::{self, ring as words};
use crate::user::UserMemory;

/// Shortest frame that is one: two addresses and a type.
const FRAME_BYTES_MIN: usize = 14;

impl Ring {
    /// Whether packets that are given back may go to the other side.
    #[must_use]
    pub fn forwards(&self) -> bool {
        self.direction == Direction::Receive && self.load(words::FLAGS) & words::FORWARD != 0
    }

    /// Whether what comes here is from the host.
    #[must_use]
    pub fn is_hosts(&self) -> bool {
        matches!(self.state().backend, Backend::Host(_))
    }

    /// Hands marked packets to the host. A device that is down loses them, as a wire without plug.
    pub fn forward_up(&self, port: &Port) {
        let state = self.state();
        for packet in self.marked(&state) {
            let mut frame = vec![0; VNET_HEADER_BYTES];
            for &index in &packet {
                let slot = self.slot(index);
                if let Some(buffer) = self.memory.buffers().get(slot.buffer) {
                    let at = frame.len();
                    let length = usize::from(slot.length_bytes).min(buffer.length_bytes());
                    frame.resize(at + length, 0);
                    // No longer than its buffer, so it is there.
                    let _there = buffer.read(0, &mut frame[at..]);
                }
            }
            if frame.len() >= VNET_HEADER_BYTES + FRAME_BYTES_MIN {
                port.send(&[IoSlice::new(&frame)]).ok();
            }
        }
    }

    /// Puts marked packets into a ring of the same memory to transmit on, as the program could do itself, and
    /// sends them. What finds no room there is lost.
    pub fn forward_down(&self, to: &Self, user: &dyn UserMemory) {
        let packets = self.marked(&self.state());
        if packets.is_empty() {
            return;
        }
        // Takes back what has been sent meanwhile, and sets cursors right that make no sense.
        to.sync(user);
        for packet in packets {
            to.take_over_packet(self, &packet);
        }
        to.sync(user);
    }

    /// Appends a packet of another ring to what the program wants to send.
    fn take_over_packet(&self, from: &Self, packet: &[u32]) {
        let state = self.state();
        let (head, cur) = self.cursors();
        if self.moved(&state, head, cur).is_none() {
            return;
        }
        if (self.distance(head, state.hwtail) as usize) < packet.len() {
            return;
        }
        let mut at = head;
        for &index in packet {
            let (theirs, mine) = (from.slot(index), self.slot(at));
            let more = theirs.flags.0 & abi::MORE_FRAGMENTS;
            let flags = SlotFlags(abi::BUF_CHANGED | more);
            self.set_slot(at, Slot { flags, ..theirs });
            from.set_slot(index, Slot { flags: SlotFlags(abi::BUF_CHANGED), ..mine });
            at = self.after(at, 1);
        }
        self.header[words::HEAD].store(at, Ordering::Relaxed);
        self.header[words::CUR].store(at, Ordering::Relaxed);
    }

    /// Marked packets among what the program has given back since the last synchronisation: the slots of each. They
    /// are marked no longer.
    fn marked(&self, state: &State) -> Vec<Vec<u32>> {
        let (head, cur) = self.cursors();
        let moved = self.moved(state, head, cur).unwrap_or(0);
        let mut packets: Vec<Vec<u32>> = Vec::new();
        let (mut goes_on, mut is_marked) = (false, false);
        for offset in 0..moved {
            let index = self.after(state.hwcur, offset);
            let slot = self.slot(index);
            let mark = slot.flags.0 & abi::FORWARD;
            is_marked = if goes_on { is_marked } else { mark != 0 };
            if is_marked && !goes_on {
                packets.push(Vec::new());
            }
            if let Some(packet) = packets.last_mut().filter(|_| is_marked) {
                packet.push(index);
            }
            if mark != 0 {
                let flags = SlotFlags(slot.flags.0 & !abi::FORWARD);
                self.set_slot(index, Slot { flags, ..slot });
            }
            goes_on = slot.flags.more_fragments();
        }
        packets
    }
}
