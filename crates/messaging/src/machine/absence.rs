//! Processes that compute: they make progress only when they poll, and leave packets waiting meanwhile.
//!
//! An end that was absent says so of the packets that waited for it (`FLAG_LATE`), and the times of such packets measure
//! the process, not the path. A peer that computes is asked what it has by a bare `Ping` when its answer is overdue: nothing is
//! retransmitted before its answer shows a loss.

use super::Machine;
use super::timeouts::TIMEOUTS_BEFORE_DOUBT;
use crate::peer::FlightState;
use crate::slab::NONE;
use crate::wire::{FLAG_LATE, Header};

/// Polls further apart let packets wait: the process computed in between, or had no core.
const ABSENCE_NS: u64 = 50_000;
/// Polls in a row that may leave packets waiting before those count as waiting on the path all the same.
const BEHIND_POLLS_MAX: u32 = 64;
/// A peer that let a packet wait counts as computing until so many did not wait.
const PROMPT_PKTS: u8 = 64;
/// Timeouts in a row after which nothing is retransmitted to any peer before it answers.
const RETRANSMISSIONS_MAX: u8 = 2;

impl Machine {
    /// Reports that the owner now begins to look for packets. An owner that calls neither this nor
    /// [`end_poll`](Self::end_poll) counts as always present.
    pub fn begin_poll(&mut self, now_ns: u64) {
        if self.polled_ns > 0 && now_ns > self.polled_ns + ABSENCE_NS {
            (self.is_behind, self.behind_polls) = (true, 0);
        }
        self.behind_polls = self.behind_polls.saturating_add(1);
    }

    /// Reports that the owner has looked for packets, passed them in, and sent what was due. `has_all`: no further packet
    /// waits.
    pub fn end_poll(&mut self, now_ns: u64, has_all: bool) {
        self.polled_ns = now_ns;
        self.is_behind &= !has_all && self.behind_polls < BEHIND_POLLS_MAX;
    }

    /// Notes whether packets wait for either process.
    pub(super) fn note_lateness(&mut self, peer: u32, header: &Header) {
        let inn = &mut self.peers[peer as usize].inn;
        inn.is_late = self.is_behind;
        inn.until_prompt_pkts = if header.has(FLAG_LATE) {
            PROMPT_PKTS
        } else {
            inn.until_prompt_pkts.saturating_sub(1)
        };
    }

    /// Whether the peer has lately let packets wait.
    pub(super) fn is_computing(&self, peer: u32) -> bool {
        self.peers[peer as usize].inn.until_prompt_pkts > 0
    }

    /// Provokes an answer that is overdue, by a `Ping`. To a peer that is not known to compute, a packet is retransmitted the first times: the
    /// last, whose acknowledgement shows what else is lost a round trip earlier than the answer to a `Ping` would, then the oldest.
    pub(super) fn probe_path(&mut self, peer: u32, timeouts: u8) {
        let is_bare = timeouts >= RETRANSMISSIONS_MAX || self.is_computing(peer);
        let known = &mut self.peers[peer as usize];
        known.must.ping |= known.silence.is_pinged || is_bare;
        known.must.greet |= timeouts >= TIMEOUTS_BEFORE_DOUBT;
        self.mark_ready(peer);
        if is_bare {
            return;
        }
        let mut probe = None;
        let mut index = self.peers[peer as usize].out.flights.front();
        while index != NONE {
            if self.flights[index].state == FlightState::UnderWay {
                probe = Some(index);
                if timeouts > 0 {
                    break;
                }
            }
            index = self.flights[index].link.next();
        }
        if let Some(index) = probe {
            self.lose(peer, index);
        }
    }

    /// Processes the answer to the last `Ping`: what was sent before and has not arrived was overtaken by it.
    pub(super) fn note_answer(&mut self, peer: u32, header: &Header) {
        let out = &mut self.peers[peer as usize].out;
        let is_answer = out.ping > 0 && header.channel == out.ping;
        if is_answer && out.ping_order.wrapping_sub(out.acked_order) as i32 > 0 {
            out.acked_order = out.ping_order;
        }
    }

    /// Judges the timeouts that an acknowledgement ended: where it shows no loss, the answer was late.
    pub(super) fn judge_timeouts(&mut self, peer: u32) {
        let known = &mut self.peers[peer as usize];
        if known.out.lost_count == 0 {
            self.counters.spurious_timeouts += 1;
            known.rtt.tolerate();
        }
    }
}
