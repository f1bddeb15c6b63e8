//! Ordered packets: messages begin, continue and are announced in the order they were sent.

use super::Machine;
use super::operations::Arriving;
use crate::matching::{Body, Unexpected};
use crate::peer::{Early, Target, WINDOW_PKTS};
use crate::slab::{Link, NONE};
use crate::types::{Channel, Failure, Memory};
use crate::wire::{Envelope, FLAG_ACK_NOW, FLAG_DATA, Header, Kind, u64_at};

/// An acknowledgement is sent after at most this many packets.
const ACK_EVERY_PKTS: u32 = 16;
/// Bytes of early packets kept for a peer, beyond its eager window.
const EARLY_BYTES: u64 = 32 * 1024;

/// The result of processing a packet whose turn it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Taken,
    /// There is no room: the packet counts as not received.
    Refused,
    /// No correct peer sends this.
    Violation,
}

impl Machine {
    /// Processes an ordered packet with a valid tag.
    pub(super) fn handle_ordered(
        &mut self,
        now_ns: u64,
        peer: u32,
        seq: u64,
        header: &Header,
        packet: &[u8],
        memory: &mut impl Memory,
    ) {
        let inn = &mut self.peers[peer as usize].inn;
        if seq < inn.next_seq || (seq < inn.next_seq + WINDOW_PKTS && inn.has(seq)) {
            self.counters.duplicate_pkts += 1;
            self.peers[peer as usize].must.ack = true;
            return;
        }
        if seq > inn.next_seq {
            return self.keep_early(peer, seq, packet);
        }
        if !self.take_ordered(now_ns, peer, header, packet, memory) {
            return;
        }
        self.drain_early(now_ns, peer, memory);
    }

    /// Processes early packets whose turn has come.
    fn drain_early(&mut self, now_ns: u64, peer: u32, memory: &mut impl Memory) {
        while let Some(index) = self.peers[peer as usize].inn.early.first() {
            if self.early[index].seq != self.peers[peer as usize].inn.next_seq {
                break;
            }
            let packet = std::mem::take(&mut self.early[index].packet);
            let header = Header::parse(&packet).expect("it was parsed when it came");
            let is_taken = self.take_ordered(now_ns, peer, &header, &packet, memory);
            if self.peers[peer as usize].inn.early.first() != Some(index) {
                // The peer failed, and its early packets were removed.
                let bytes = packet.len();
                self.pool.put(packet, bytes);
                return;
            }
            if !is_taken {
                self.early[index].packet = packet;
                return;
            }
            let inn = &mut self.peers[peer as usize].inn;
            inn.set(inn.next_seq - 1, false);
            inn.early_bytes -= packet.len() as u64;
            inn.early.remove(&mut self.early, index);
            self.early.remove(index);
            let bytes = packet.len();
            self.pool.put(packet, bytes);
            self.peers[peer as usize].must.ack = true;
        }
    }

    fn keep_early(&mut self, peer: u32, seq: u64, packet: &[u8]) {
        let bytes_max = u64::from(self.config.eager_window_bytes()) + EARLY_BYTES;
        let inn = &mut self.peers[peer as usize].inn;
        let has_room = inn.early_bytes + packet.len() as u64 <= bytes_max;
        self.peers[peer as usize].must.ack = true;
        let inn = &mut self.peers[peer as usize].inn;
        if seq >= inn.next_seq + WINDOW_PKTS || !has_room {
            self.counters.refused_pkts += 1;
            return;
        }
        inn.set(seq, true);
        inn.early_bytes += packet.len() as u64;
        let mut copy = self.pool.take(packet.len());
        copy.extend_from_slice(packet);
        let mut before = inn.early.front();
        while before != NONE && self.early[before].seq < seq {
            before = self.early[before].link.next();
        }
        let index = self.early.insert(Early { seq, packet: copy, link: Link::OUT });
        self.peers[peer as usize].inn.early.insert_before(&mut self.early, before, index);
    }

    /// Processes the next packet in order. Returns false if it was not taken.
    fn take_ordered(
        &mut self,
        now_ns: u64,
        peer: u32,
        header: &Header,
        packet: &[u8],
        memory: &mut impl Memory,
    ) -> bool {
        let fate = match header.kind {
            Kind::Eager => self.begin_eager(now_ns, peer, header, packet, memory),
            Kind::More => self.continue_eager(now_ns, peer, packet, header, memory),
            Kind::Announce => self.announce(now_ns, peer, header, packet),
            _ => self.handle_done(peer, packet),
        };
        match fate {
            Fate::Taken => {}
            Fate::Refused => {
                self.counters.refused_pkts += 1;
                let known = &mut self.peers[peer as usize];
                known.must.ack = true;
                if !known.inn.is_refused {
                    known.inn.is_refused = true;
                    self.refused.push_back(peer);
                }
                return false;
            }
            Fate::Violation => {
                self.peers[peer as usize].must.close = true;
                self.fail_peer(now_ns, peer, Failure::Violation);
                return false;
            }
        }
        let known = &mut self.peers[peer as usize];
        known.inn.next_seq += 1;
        known.inn.unacked_pkts += 1;
        if header.has(FLAG_ACK_NOW) || known.inn.unacked_pkts >= ACK_EVERY_PKTS {
            known.must.ack = true;
        } else if known.due.ack_ns == 0 {
            known.due.ack_ns = now_ns + self.config.ack_delay_ns;
        }
        true
    }

    fn envelope(peer: u32, header: &Header, envelope: &Envelope) -> Option<Arriving> {
        Some(Arriving {
            peer,
            channel: Channel::from_byte(header.channel)?,
            bits: envelope.bits,
            data: header.has(FLAG_DATA).then_some(envelope.data),
            length: envelope.length,
            handle: envelope.handle,
            place: envelope.place,
        })
    }

    fn begin_eager(
        &mut self,
        now_ns: u64,
        peer: u32,
        header: &Header,
        packet: &[u8],
        memory: &mut impl Memory,
    ) -> Fate {
        let payload = &packet[header.length()..];
        let arriving = Envelope::parse(header, packet)
            .and_then(|envelope| Self::envelope(peer, header, &envelope));
        let Some(arriving) = arriving else { return Fate::Violation };
        let inn = &self.peers[peer as usize].inn;
        let stored_bytes = inn.eager_bytes.wrapping_sub(inn.consumed_bytes);
        let is_within_credit = arriving.length + u64::from(stored_bytes)
            <= u64::from(self.config.eager_window_bytes());
        let is_whole = payload.len() as u64 == arriving.length;
        let is_senseless = payload.len() as u64 > arriving.length
            || (payload.is_empty() && !is_whole)
            || inn.target != Target::Nothing;
        if is_senseless || (arriving.length > 0 && !is_within_credit) {
            return Fate::Violation;
        }
        let posted = self.matcher.posted_for(peer, arriving.channel, arriving.bits);
        if posted.is_none() && !self.has_room(arriving.length) || self.is_overrun() {
            return Fate::Refused;
        }
        let inn = &mut self.peers[peer as usize].inn;
        inn.eager_bytes = inn.eager_bytes.wrapping_add(arriving.length as u32);
        inn.remaining_bytes = arriving.length - payload.len() as u64;
        match posted {
            Some(posted) => {
                let mut receiving = self.occupy(posted, &arriving);
                let fitting = payload.len().min(receiving.room as usize);
                if fitting > 0 {
                    memory.write(receiving.buffer, receiving.offset, &payload[..fitting]);
                }
                receiving.received = fitting as u64;
                self.consume(peer, payload.len() as u32);
                if is_whole {
                    self.finish(now_ns, receiving);
                } else {
                    let index = self.receiving.insert(receiving);
                    self.peers[peer as usize].inn.target = Target::Receiving(index);
                }
            }
            None => {
                let mut copy = self.pool.take(arriving.length as usize);
                copy.extend_from_slice(payload);
                self.counters.copied_bytes += payload.len() as u64;
                let index = self.keep_unexpected(&arriving, Body::Eager(copy));
                if !is_whole {
                    self.peers[peer as usize].inn.target = Target::Unexpected(index);
                }
            }
        }
        Fate::Taken
    }

    /// Whether another unexpected message may be kept.
    fn has_room(&self, bytes: u64) -> bool {
        self.matcher.unexpected.count() < self.config.unexpected_max
            && self.unexpected_bytes + bytes <= self.config.unexpected_bytes_max
    }

    /// Whether the owner has left too many completions unpolled.
    fn is_overrun(&self) -> bool {
        self.completions.len() >= self.config.operations_max
    }

    fn keep_unexpected(&mut self, arriving: &Arriving, body: Body) -> u32 {
        if arriving.channel != Channel::Remote {
            self.counters.unexpected_messages += 1;
        }
        if let Body::Eager(_) = body {
            self.unexpected_bytes += arriving.length;
        }
        self.matcher.keep(Unexpected {
            source: arriving.peer,
            channel: arriving.channel,
            bits: arriving.bits,
            data: arriving.data,
            length: arriving.length,
            handle: arriving.handle,
            place: arriving.place,
            body,
            session: self.peers[arriving.peer as usize].sessions_count,
            is_shown: false,
            by_source: Link::OUT,
            by_arrival: Link::OUT,
        })
    }

    fn continue_eager(
        &mut self,
        now_ns: u64,
        peer: u32,
        packet: &[u8],
        header: &Header,
        memory: &mut impl Memory,
    ) -> Fate {
        let payload = &packet[header.length()..];
        let inn = &mut self.peers[peer as usize].inn;
        let target = inn.target;
        if payload.is_empty()
            || payload.len() as u64 > inn.remaining_bytes
            || target == Target::Nothing
        {
            return Fate::Violation;
        }
        inn.remaining_bytes -= payload.len() as u64;
        let is_last = inn.remaining_bytes == 0;
        if is_last {
            inn.target = Target::Nothing;
        }
        match target {
            Target::Nothing => {}
            Target::Receiving(index) => {
                let receiving = &mut self.receiving[index];
                let room = receiving.room.min(receiving.length) - receiving.received;
                let fitting = payload.len().min(room as usize);
                if fitting > 0 {
                    let offset = receiving.offset + receiving.received;
                    memory.write(receiving.buffer, offset, &payload[..fitting]);
                }
                receiving.received += fitting as u64;
                self.consume(peer, payload.len() as u32);
                if is_last {
                    let receiving = self.receiving.remove(index);
                    self.finish(now_ns, receiving);
                }
            }
            Target::Unexpected(index) => {
                self.counters.copied_bytes += payload.len() as u64;
                if let Body::Eager(bytes) = &mut self.matcher.unexpected[index].body {
                    bytes.extend_from_slice(payload);
                }
            }
        }
        Fate::Taken
    }

    fn announce(&mut self, now_ns: u64, peer: u32, header: &Header, packet: &[u8]) -> Fate {
        let arriving = Envelope::parse(header, packet)
            .and_then(|envelope| Self::envelope(peer, header, &envelope));
        let Some(arriving) = arriving.filter(|_| packet.len() == header.length()) else {
            return Fate::Violation;
        };
        if self.peers[peer as usize].inn.target != Target::Nothing {
            return Fate::Violation;
        }
        let posted = self.matcher.posted_for(peer, arriving.channel, arriving.bits);
        if posted.is_none() && !self.has_room(0) || self.is_overrun() {
            return Fate::Refused;
        }
        match posted {
            Some(posted) => {
                let receiving = self.occupy(posted, &arriving);
                self.begin_pull(now_ns, receiving);
            }
            None => {
                self.keep_unexpected(&arriving, Body::Announced);
            }
        }
        Fate::Taken
    }

    fn handle_done(&mut self, peer: u32, packet: &[u8]) -> Fate {
        let Some(handle) = u64_at(packet, 40) else { return Fate::Violation };
        let found = self.sends.find(handle);
        let Some(index) = found.filter(|&index| self.sends[index].peer == peer) else {
            return Fate::Violation;
        };
        if !self.sends[index].awaits_done || !self.sends[index].is_cut {
            return Fate::Violation;
        }
        self.sends[index].awaits_done = false;
        self.retire(index);
        Fate::Taken
    }

    /// Releases eager bytes of a peer that are no longer kept: it may send as many more.
    pub(super) fn consume(&mut self, peer: u32, bytes: u32) {
        let window_bytes = self.config.eager_window_bytes();
        let known = &mut self.peers[peer as usize];
        known.inn.consumed_bytes = known.inn.consumed_bytes.wrapping_add(bytes);
        let limit = known.inn.consumed_bytes.wrapping_add(window_bytes);
        if limit.wrapping_sub(known.inn.credit_sent) > window_bytes / 2 && bytes > 0 {
            known.must.ack = true;
            self.mark_ready(peer);
        }
    }

    /// Accepts what was refused earlier: requests it again, or processes it if it was kept.
    pub(super) fn retry_refused(&mut self, now_ns: u64, memory: &mut impl Memory) {
        for _ in 0..self.refused.len() {
            let Some(peer) = self.refused.pop_front() else { break };
            let known = &mut self.peers[peer as usize];
            known.inn.is_refused = false;
            known.must.ack = true;
            known.must.again = true;
            self.mark_ready(peer);
            self.drain_early(now_ns, peer, memory);
        }
    }
}
