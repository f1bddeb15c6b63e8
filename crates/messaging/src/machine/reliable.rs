//! Which ordered packets arrived, which are lost, and what that implies for the path.

use super::Machine;
use crate::peer::{Class, FlightState, Source};
use crate::slab::NONE;
use crate::types::{Completion, Operation, Status};
use crate::wire::{HEADER_BYTES, Header, Kind, SACK_WORDS, u64_at};

/// Upper bound on the reordering threshold.
const REORDERING_PKTS_MAX: u8 = 64;

impl Machine {
    /// Processes an acknowledgement. `ack` is the first packet that the peer lacks; an `Ack` also
    /// says which later ones it has. Returns whether it names packets of which that was not known.
    pub(super) fn handle_ack(
        &mut self,
        now_ns: u64,
        peer: u32,
        ack: u64,
        header: &Header,
        packet: &[u8],
    ) -> bool {
        let out = &self.peers[peer as usize].out;
        if ack > out.next_seq || out.flights.is_empty() {
            return false;
        }
        let under_way_bytes = out.under_way_bytes;
        let mut arrived_bytes = 0;
        while let Some(index) = self.peers[peer as usize].out.flights.first() {
            if self.flights[index].seq >= ack {
                break;
            }
            arrived_bytes += self.note_arrival(peer, index, header.echo);
            let out = &mut self.peers[peer as usize].out;
            out.oldest_seq = self.flights[index].seq + 1;
            out.flights.remove(&mut self.flights, index);
            self.flights.remove(index);
        }
        if header.kind == Kind::Ack {
            if packet.len() > HEADER_BYTES {
                arrived_bytes += self.note_later(peer, ack, header.echo, packet);
            }
            self.note_answer(peer, header);
        }
        if arrived_bytes > 0 {
            let known = &mut self.peers[peer as usize];
            let packet_bytes = u64::from(known.packet_bytes_max);
            if 2 * under_way_bytes >= known.out.window.bytes() {
                let is_queueing = known.rtt.is_queueing();
                known.out.window.grow(arrived_bytes, packet_bytes, is_queueing);
            }
            self.await_answer(now_ns, peer);
        }
        self.find_losses(now_ns, peer);
        arrived_bytes > 0
    }

    /// Notes the packets that an `Ack` names beyond the first missing one. Returns their bytes.
    fn note_later(&mut self, peer: u32, ack: u64, echo: u32, packet: &[u8]) -> u64 {
        let mut arrived_bytes = 0;
        let mut index = self.peers[peer as usize].out.flights.front();
        while index != NONE {
            let next = self.flights[index].link.next();
            let seq = self.flights[index].seq;
            if seq > ack {
                let bit = (seq - ack - 1) as usize;
                if bit >= 64 * SACK_WORDS {
                    break;
                }
                let Some(word) = u64_at(packet, HEADER_BYTES + 8 * (bit / 64)) else { break };
                if word >> (bit % 64) & 1 == 1 {
                    arrived_bytes += self.note_arrival(peer, index, echo);
                }
            }
            index = next;
        }
        arrived_bytes
    }

    /// Notes that a packet arrived at the peer. Returns its bytes, 0 if that was already known.
    fn note_arrival(&mut self, peer: u32, index: u32, echo: u32) -> u64 {
        let flight = &mut self.flights[index];
        if flight.state == FlightState::Acked {
            return 0;
        }
        let out = &mut self.peers[peer as usize].out;
        let bytes = u64::from(flight.packet_bytes);
        // The echo is the time of the packet that arrived last: if that is before the
        // retransmission, the original arrived.
        let is_original =
            flight.is_repeated && (super::stamp(flight.sent_ns).wrapping_sub(echo) as i32) > 0;
        match flight.state {
            FlightState::Lost => out.lost_count -= 1,
            _ => out.under_way_bytes -= bytes,
        }
        let was_given_up = flight.state == FlightState::Lost && !flight.is_repeated;
        if (is_original || was_given_up) && !flight.is_probe {
            // The packet was late, not lost: tolerate as much reordering from now on.
            self.counters.spurious_losses += 1;
            out.reordering_pkts = (out.reordering_pkts + 2).min(REORDERING_PKTS_MAX);
            if flight.seq < out.recovery_seq {
                out.window.restore();
            }
        }
        if !is_original && flight.order.wrapping_sub(out.acked_order) as i32 > 0 {
            out.acked_order = flight.order;
        }
        flight.state = FlightState::Acked;
        let send = flight.send;
        self.sends[send].unacked_pkts -= 1;
        self.retire(send);
        bytes
    }

    /// Marks packets as lost that were overtaken, by enough packets or for long enough.
    pub(super) fn find_losses(&mut self, now_ns: u64, peer: u32) {
        let known = &mut self.peers[peer as usize];
        let acked_order = known.out.acked_order;
        let reordering_pkts = u32::from(known.out.reordering_pkts);
        let late_ns = known.rtt.smoothed_ns() + known.rtt.reordering_ns();
        known.due.reorder_ns = 0;
        let mut index = known.out.flights.front();
        let mut is_loss = false;
        while index != NONE {
            let flight = &mut self.flights[index];
            let this = index;
            index = flight.link.next();
            let overtaken = acked_order.wrapping_sub(flight.order) as i32;
            if overtaken <= 0 {
                // Later ones in the list were also sent later, unless this one was retransmitted.
                if flight.is_repeated {
                    continue;
                }
                break;
            }
            if flight.state != FlightState::UnderWay {
                continue;
            }
            let is_late = now_ns >= flight.sent_ns + late_ns;
            if overtaken as u32 >= reordering_pkts || is_late {
                self.flights[this].state = FlightState::Lost;
                self.flights[this].is_probe = false;
                known.out.lost_count += 1;
                known.out.under_way_bytes -= u64::from(self.flights[this].packet_bytes);
                is_loss |= self.flights[this].seq >= known.out.recovery_seq;
            } else {
                let at_ns = flight.sent_ns + late_ns;
                let due_ns = known.due.reorder_ns;
                known.due.reorder_ns = if due_ns == 0 { at_ns } else { due_ns.min(at_ns) };
            }
        }
        if is_loss {
            let is_queueing = known.rtt.is_queueing();
            known.out.window.shrink(is_queueing);
            known.out.recovery_seq = known.out.next_seq;
            known.out.reordering_pkts = (known.out.reordering_pkts - 1).max(3);
        }
        if known.out.lost_count > 0 {
            self.mark_ready(peer);
        }
        self.arm(peer);
    }

    /// Retransmits what the peer refused earlier and now has room for.
    pub(super) fn send_again(&mut self, now_ns: u64, peer: u32) {
        if let Some(index) = self.peers[peer as usize].out.flights.first()
            && self.flights[index].state == FlightState::UnderWay
        {
            self.lose(peer, index);
        }
        self.await_answer(now_ns, peer);
    }

    /// Has a packet retransmitted without treating it as a sign of congestion.
    pub(super) fn lose(&mut self, peer: u32, index: u32) {
        let out = &mut self.peers[peer as usize].out;
        self.flights[index].state = FlightState::Lost;
        self.flights[index].is_probe = true;
        out.lost_count += 1;
        out.under_way_bytes -= u64::from(self.flights[index].packet_bytes);
        self.mark_ready(peer);
    }

    /// Ends a message if all its packets have arrived and no `Done` is awaited.
    pub(super) fn retire(&mut self, index: u32) {
        let send = &self.sends[index];
        if !send.is_cut || send.unacked_pkts > 0 || send.awaits_done {
            return;
        }
        self.end_send(index, Status::Ok);
    }

    /// Removes a message, completes it and frees its copy. Its packets must be removed or
    /// acknowledged.
    pub(super) fn end_send(&mut self, index: u32, status: Status) {
        let peer = self.sends[index].peer;
        let out = &mut self.peers[peer as usize].out;
        if self.sends[index].queue.is_linked() {
            out.queue.remove(&mut self.sends, index);
        }
        out.sends.remove(&mut self.sends, index);
        let send = self.sends.remove(index);
        if let Some(context) = send.context {
            self.completions.push_back(Completion { context, operation: Operation::Send, status });
        }
        if let Source::Copy(copy) = send.source
            && !matches!(send.class, Class::Done(_))
        {
            self.copies_bytes -= send.length;
            self.pool.put(copy, send.length as usize);
        }
    }
}
