//! Received packets: their session, their tag, and their header.

use super::{Machine, stamp};
use crate::peer::State;
use crate::types::Memory;
use crate::wire::{
    FLAG_AGAIN, FLAG_LATE, FLAG_TAGGED, HEADER_BYTES, Header, Kind, NO_SESSION, PullRequest,
    SACK_WORDS, extend,
};

/// Larger round-trip samples come from a peer that was suspended, or lies.
const ROUND_TRIP_NS_MAX: u64 = 60_000_000_000;

impl Machine {
    /// Processes a received packet. `packet` may be any bytes from anybody; the message bytes in it
    /// are copied to their destination at once.
    pub fn handle_packet(&mut self, now_ns: u64, packet: &[u8], memory: &mut impl Memory) {
        self.counters.received_pkts += 1;
        let Some(header) = Header::parse(packet) else {
            self.counters.malformed_pkts += 1;
            return;
        };
        if header.kind.is_greeting() {
            return self.handle_greeting(now_ns, &header, packet);
        }
        let is_short = packet.len() < header.length();
        let is_long = header.kind == Kind::Ack && packet.len() > HEADER_BYTES + 8 * SACK_WORDS;
        if is_short || is_long || packet.len() > usize::from(u16::MAX) {
            self.counters.malformed_pkts += 1;
            return;
        }
        let peer = header.session;
        let Some(known) = self.peers.get(peer as usize) else {
            self.counters.stray_pkts += 1;
            return;
        };
        let has_keys = matches!(known.state, State::Open | State::Failed(_));
        if !has_keys || header.endpoint != self.config.endpoint || peer == NO_SESSION {
            self.counters.stray_pkts += 1;
            return;
        }
        let seq = extend(known.inn.next_seq, header.seq);
        let ack = extend(known.out.oldest_seq, header.ack);
        if !self.is_genuine(&header, packet, seq, ack) {
            self.counters.forged_pkts += 1;
            return;
        }
        if self.peers[peer as usize].state != State::Open {
            // The peer does not know yet that the session is over.
            if header.kind != Kind::Close {
                self.peers[peer as usize].must.close = true;
                self.mark_ready(peer);
            }
            return;
        }
        let timeouts = self.peers[peer as usize].silence.timeouts;
        self.heard(now_ns, peer);
        self.note_header(now_ns, peer, &header);
        if self.handle_ack(now_ns, peer, ack, &header, packet) && timeouts > 0 {
            self.judge_timeouts(peer);
        }
        self.handle_kind(now_ns, peer, seq, &header, packet, memory);
        self.mark_if_busy(peer);
    }

    fn is_genuine(&self, header: &Header, packet: &[u8], seq: u64, ack: u64) -> bool {
        let split = if header.kind == Kind::Ack { packet.len() } else { header.length() };
        let (head, payload) = packet.split_at(split);
        let covers = header.has(FLAG_TAGGED);
        if !covers && self.config.tags_payloads {
            return false;
        }
        let known = &self.peers[header.session as usize];
        let hash_key = known.hash_key.as_ref().unwrap_or(&self.hash_key);
        let key = known.receive_key;
        let covered = if covers { payload } else { &[] };
        let hidden = hidden(seq, ack);
        crate::tag::tag(key, hash_key, hidden, head, covered, payload.len()) == header.tag
    }

    fn note_header(&mut self, now_ns: u64, peer: u32, header: &Header) {
        self.note_lateness(peer, header);
        let known = &mut self.peers[peer as usize];
        known.inn.stamp = header.stamp;
        known.inn.stamp_at_ns = now_ns;
        if header.credit.wrapping_sub(known.out.credit_bytes) as i32 > 0 {
            known.out.credit_bytes = header.credit;
        }
        if header.has(FLAG_AGAIN) {
            self.send_again(now_ns, peer);
        }
        self.sample_echo(now_ns, peer, header);
    }

    /// Takes a round-trip sample from the echoed time; 0 is none.
    pub(super) fn sample_echo(&mut self, now_ns: u64, peer: u32, header: &Header) {
        if header.echo == 0 {
            return;
        }
        let sample_ns = u64::from(stamp(now_ns).wrapping_sub(header.echo)) << 6;
        if sample_ns < ROUND_TRIP_NS_MAX {
            let is_late = header.has(FLAG_LATE) || self.is_behind;
            self.peers[peer as usize].rtt.sample(now_ns, sample_ns, is_late);
        }
    }

    /// Resets the silence of a peer that was itself heard.
    pub(super) fn heard(&mut self, now_ns: u64, peer: u32) {
        let silence = &mut self.peers[peer as usize].silence;
        silence.host_ns = 0;
        silence.peer_ns = 0;
        silence.last_heard_ns = now_ns;
        silence.is_refused = false;
        silence.is_probed = false;
        silence.is_pinged = false;
        silence.timeouts = 0;
    }

    fn handle_kind(
        &mut self,
        now_ns: u64,
        peer: u32,
        seq: u64,
        header: &Header,
        packet: &[u8],
        memory: &mut impl Memory,
    ) {
        match header.kind {
            kind if kind.is_ordered() => {
                self.handle_ordered(now_ns, peer, seq, header, packet, memory);
                self.arm(peer);
            }
            Kind::Pull => {
                if let Some(request) = PullRequest::parse(packet) {
                    self.handle_pull(peer, header.bytes, &request);
                }
            }
            Kind::Data => self.handle_fragment(now_ns, peer, packet, memory),
            Kind::Ping => {
                let known = &mut self.peers[peer as usize];
                known.inn.ping = header.channel;
                (known.must.ack, known.must.answer) = (true, true);
            }
            Kind::Close => self.handle_close(now_ns, peer, header.channel),
            _ => {}
        }
    }

    /// Queues the peer for transmission if it may have something to send.
    fn mark_if_busy(&mut self, peer: u32) {
        let known = &self.peers[peer as usize];
        let out = &known.out;
        let has_work = known.must.ack
            || known.must.close
            || out.lost_count > 0
            || !out.queue.is_empty()
            || !out.jobs.is_empty()
            || !known.pulls.to_ask.is_empty();
        if has_work {
            self.mark_ready(peer);
        }
    }
}

/// The upper halves of a packet's numbers, which both ends know and the packet does not carry. They
/// enter the tag, so that a recorded packet is invalid once the 32 bits it carries have wrapped.
pub(super) fn hidden(seq: u64, ack: u64) -> u64 {
    seq >> 32 << 32 | ack >> 32
}
