//! Deadlines: delayed acknowledgements, overdue answers, and peers that have been silent for too
//! long.

use super::Machine;
use crate::peer::State;
use crate::types::{Event, Failure, PeerId};

/// Upper bound on the interval between retransmissions, unless the estimated timeout is longer.
const BACKOFF_NS_MAX: u64 = 200_000_000;
/// Consecutive timeouts after which a peer is asked whether it still has the session.
pub(super) const TIMEOUTS_BEFORE_DOUBT: u8 = 6;

impl Machine {
    /// Does everything that is due at `now_ns`.
    pub fn handle_timeouts(&mut self, now_ns: u64) {
        while let Some(peer) = self.deadlines.pop_due(now_ns) {
            self.handle_due(now_ns, peer);
            if let Some(at_ns) = self.peers[peer as usize].due.earliest_ns() {
                // At least 1 ns later, so that this loop ends.
                self.deadlines.wake_by(peer, at_ns.max(now_ns + 1));
            }
        }
    }

    fn handle_due(&mut self, now_ns: u64, peer: u32) {
        let is_due = |at_ns: u64| at_ns > 0 && at_ns <= now_ns;
        let due = self.peers[peer as usize].due;
        if is_due(due.ack_ns) {
            let known = &mut self.peers[peer as usize];
            known.due.ack_ns = 0;
            known.must.ack = true;
            self.mark_ready(peer);
        }
        if is_due(due.pace_ns) {
            self.peers[peer as usize].due.pace_ns = 0;
            self.mark_ready(peer);
        }
        if is_due(due.reorder_ns) {
            self.find_losses(now_ns, peer);
        }
        if is_due(due.keepalive_ns) {
            self.peers[peer as usize].due.keepalive_ns = 0;
            self.await_peer(now_ns, peer);
        }
        if is_due(due.pull_ns) {
            self.handle_late_fragments(now_ns, peer);
        }
        if is_due(self.peers[peer as usize].due.answer_ns) {
            self.handle_late_answer(now_ns, peer);
        }
    }

    /// How long to wait for the next answer.
    fn patience_ns(&self, peer: u32, timeouts: u8) -> u64 {
        self.backoff_ns(self.config.ack_delay_ns, peer, timeouts)
    }

    /// How long to wait for the next fragment; the peer does not delay it.
    pub(super) fn fragment_patience_ns(&self, peer: u32, timeouts: u8) -> u64 {
        self.backoff_ns(0, peer, timeouts)
    }

    fn backoff_ns(&self, ack_delay_ns: u64, peer: u32, timeouts: u8) -> u64 {
        let usual_ns = self.peers[peer as usize].rtt.timeout_ns(ack_delay_ns);
        (usual_ns << timeouts.min(12)).min(BACKOFF_NS_MAX.max(usual_ns))
    }

    /// Restarts the wait for an answer, after something was sent or partly answered.
    pub(super) fn await_answer(&mut self, now_ns: u64, peer: u32) {
        let known = &self.peers[peer as usize];
        let is_awaited = !known.out.flights.is_empty() || known.silence.is_pinged;
        let at_ns = now_ns + self.patience_ns(peer, known.silence.timeouts);
        self.peers[peer as usize].due.answer_ns = if is_awaited { at_ns } else { 0 };
        self.arm(peer);
    }

    /// Restarts the wait for fragments.
    pub(super) fn await_fragments(&mut self, now_ns: u64, peer: u32) {
        let known = &self.peers[peer as usize];
        let at_ns = now_ns + self.fragment_patience_ns(peer, known.silence.pull_timeouts);
        let is_awaited = !known.pulls.asked.is_empty();
        self.peers[peer as usize].due.pull_ns = if is_awaited { at_ns } else { 0 };
        self.arm(peer);
    }

    fn handle_late_answer(&mut self, now_ns: u64, peer: u32) {
        let known = &mut self.peers[peer as usize];
        let has_asked = !known.out.flights.is_empty() || known.silence.is_pinged;
        if known.state == State::Open && !has_asked {
            known.due.answer_ns = 0;
            return;
        }
        self.counters.timeouts += 1;
        let waited_ns = now_ns - known.silence.last_waited_ns.min(now_ns);
        let timeouts = known.silence.timeouts;
        known.silence.timeouts = timeouts.saturating_add(1);
        known.due.answer_ns = 0;
        let patience_ns = self.patience_ns(peer, timeouts);
        if self.note_silence(now_ns, peer, waited_ns.min(patience_ns)) {
            return;
        }
        let known = &mut self.peers[peer as usize];
        match known.state {
            State::Greeting | State::Opening => {
                known.must.greet = true;
                // A cookie is good for one session: after a while it may be outdated.
                if timeouts % 4 == 3 {
                    known.state = State::Greeting;
                    known.cookie = 0;
                }
                let at_ns = now_ns + self.patience_ns(peer, timeouts.saturating_add(1));
                self.peers[peer as usize].due.answer_ns = at_ns;
                self.mark_ready(peer);
                self.arm(peer);
            }
            State::Open => {
                self.probe_path(peer, timeouts);
                self.await_answer(now_ns, peer);
            }
            State::Idle | State::Failed(_) => {}
        }
    }

    /// Records that the peer left `waited_ns` of waiting unanswered. Returns true if it has failed.
    pub(super) fn note_silence(&mut self, now_ns: u64, peer: u32, waited_ns: u64) -> bool {
        let silence = &mut self.peers[peer as usize].silence;
        silence.last_waited_ns = now_ns;
        silence.host_ns += waited_ns;
        silence.peer_ns += waited_ns;
        let is_peer_gone = self.config.silent_peer_ns.is_some_and(|most| silence.peer_ns > most);
        if silence.host_ns > self.config.silent_host_ns || is_peer_gone {
            self.peers[peer as usize].must.close = true;
            self.fail_peer(now_ns, peer, Failure::Silent);
            return true;
        }
        if silence.is_refused && silence.peer_ns > self.config.refused_ns {
            self.fail_peer(now_ns, peer, Failure::Refused);
            return true;
        }
        if !silence.is_probed && silence.host_ns > self.config.silent_host_ns / 4 {
            silence.is_probed = true;
            self.events.push_back(Event::ProbeHost(PeerId(peer)));
        }
        false
    }

    /// Sends a `Ping` to a quiet peer that a posted receive names or that a send waits for, once per
    /// keepalive interval.
    pub(super) fn await_peer(&mut self, now_ns: u64, peer: u32) {
        if self.peers[peer as usize].due.keepalive_ns > 0 || !self.owes(peer) {
            return;
        }
        let known = &mut self.peers[peer as usize];
        let keepalive_ns = self.config.keepalive_ns;
        known.due.keepalive_ns = now_ns + keepalive_ns;
        let is_quiet = known.silence.last_heard_ns + keepalive_ns <= now_ns;
        let is_first = known.silence.last_heard_ns == 0;
        if is_quiet && !is_first {
            match known.state {
                State::Open => {
                    known.silence.is_pinged = true;
                    known.must.ping = true;
                    self.mark_ready(peer);
                    if self.peers[peer as usize].due.answer_ns == 0 {
                        self.await_answer(now_ns, peer);
                    }
                }
                _ => self.want_session(now_ns, peer),
            }
        } else if is_first {
            // So that the next check sends one.
            known.silence.last_heard_ns = 1;
        }
        self.arm(peer);
    }

    /// Reports that the peer's host answered a probe: it runs, whatever the peer does.
    pub fn host_answered(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get_mut(peer.0 as usize) {
            known.silence.host_ns = 0;
            known.silence.is_probed = false;
        }
    }

    /// Reports that the peer's process answered a probe: it runs, whatever it computes.
    pub fn process_answered(&mut self, peer: PeerId) {
        self.host_answered(peer);
        if let Some(known) = self.peers.get_mut(peer.0 as usize) {
            known.silence.peer_ns = 0;
            known.silence.is_refused = false;
        }
    }

    /// Reports that nobody listens at the peer's port, according to its host. Anybody on the
    /// network can forge that, so it counts only while the peer itself stays silent.
    pub fn port_refused(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get_mut(peer.0 as usize) {
            known.silence.is_refused = true;
            known.silence.host_ns = 0;
        }
    }
}
