//! The end of a session: every operation that depends on it completes with an error, exactly once.

use super::Machine;
use crate::matching::Body;
use crate::peer::{Inbound, Must, Outbound, Pulls, State, Target};
use crate::types::{Event, Failure, OperationError, PeerId, Status};

/// Reasons in a `Close`.
const CLOSED: u8 = 0;
const GIVEN_UP: u8 = 1;

impl Machine {
    /// Ends the session with a peer: operations in progress and receives that name the peer
    /// complete with [`Status::PeerFailed`]. Messages that had arrived completely stay.
    pub(super) fn fail_peer(&mut self, now_ns: u64, peer: u32, failure: Failure) {
        let known = &mut self.peers[peer as usize];
        if matches!(known.state, State::Failed(_)) {
            return;
        }
        let must_close = known.state == State::Open && known.must.close;
        known.state = State::Failed(failure);
        let status = Status::PeerFailed(failure);
        while let Some(index) = self.peers[peer as usize].out.flights.first() {
            self.peers[peer as usize].out.flights.remove(&mut self.flights, index);
            self.flights.remove(index);
        }
        while let Some(index) = self.peers[peer as usize].out.sends.first() {
            self.end_send(index, status);
        }
        self.fail_receiving(peer, status);
        let known = &mut self.peers[peer as usize];
        while let Some(index) = known.out.jobs.pop_front(&mut self.jobs) {
            self.jobs.remove(index);
        }
        while let Some(index) = known.inn.early.pop_front(&mut self.early) {
            let packet = self.early.remove(index).packet;
            let bytes = packet.len();
            self.pool.put(packet, bytes);
        }
        if known.inn.is_refused {
            self.refused.retain(|refused| *refused != peer);
        }
        if known.puller.is_linked() {
            self.pullers.remove(&mut self.peers, peer);
        }
        let known = &mut self.peers[peer as usize];
        // The numbers stay: packets that are still under way have to be understood.
        let (seq, oldest_seq) = (known.out.next_seq, known.out.oldest_seq);
        let next_seq = known.inn.next_seq;
        known.out = Outbound::new(u64::from(known.packet_bytes_max), 0);
        (known.out.next_seq, known.out.oldest_seq) = (seq, oldest_seq);
        known.inn = Inbound::new(0);
        known.inn.next_seq = next_seq;
        known.pulls = Pulls::NEW;
        known.due = Default::default();
        known.must = Must { close: must_close, ..Must::default() };
        known.silence.last_heard_ns = now_ns;
        self.mark_ready(peer);
        self.events.push_back(Event::PeerFailed(PeerId(peer), failure));
    }

    /// Ends receives that name this peer or hold part of a message from it, and drops its
    /// incomplete unexpected messages.
    fn fail_receiving(&mut self, peer: u32, status: Status) {
        let target = std::mem::replace(&mut self.peers[peer as usize].inn.target, Target::Nothing);
        if let Target::Receiving(index) = target {
            let receiving = self.receiving.remove(index);
            self.complete_receive(&receiving, status);
        }
        while let Some(index) = self.peers[peer as usize].pulls.list.first() {
            let receiving = self.remove_pull(index);
            self.complete_receive(&receiving, status);
        }
        let gone: Vec<u32> = self.matcher.unexpected.indices().collect();
        for index in gone {
            let unexpected = &self.matcher.unexpected[index];
            let is_whole = match &unexpected.body {
                Body::Announced => false,
                Body::Eager(_) => target != Target::Unexpected(index),
            };
            if unexpected.source == peer && is_whole {
                // The sender no longer waits to hear of the match.
                self.matcher.unexpected[index].handle = None;
            } else if unexpected.source == peer {
                self.matcher.withdraw(index);
                let unexpected = self.remove_unexpected(index);
                if let Body::Eager(bytes) = unexpected.body {
                    self.pool.put(bytes, unexpected.length as usize);
                }
            }
        }
        while let Some(index) = self.matcher.awaiting(peer) {
            self.end_posted(index, status);
        }
    }

    pub(super) fn handle_close(&mut self, now_ns: u64, peer: u32, reason: u8) {
        let failure = if reason == CLOSED { Failure::Closed } else { Failure::Restarted };
        self.fail_peer(now_ns, peer, failure);
    }

    /// The reason in a `Close` to this peer.
    pub(super) fn close_reason(&self, peer: u32) -> u8 {
        match self.peers[peer as usize].state {
            State::Failed(Failure::Closed) => CLOSED,
            _ => GIVEN_UP,
        }
    }

    /// Ends all sessions; the following polls for transmits return a `Close` for every peer with an
    /// open session. Operations in progress complete as failed: wait until
    /// [`is_drained`](Self::is_drained) first.
    pub fn close(&mut self, now_ns: u64) {
        for peer in 0..self.peers.len() as u32 {
            let known = &mut self.peers[peer as usize];
            if known.address != self.config.address {
                known.must.close = true;
                self.fail_peer(now_ns, peer, Failure::Closed);
            }
        }
    }

    /// Permits a failed peer a new session; the next operation requests it.
    ///
    /// # Errors
    /// [`OperationError::UnknownPeer`]: the peer is not in the table.
    pub fn reconnect(&mut self, peer: PeerId) -> Result<(), OperationError> {
        let known =
            self.peers.get_mut(peer.0 as usize).ok_or(OperationError::UnknownPeer(peer.0))?;
        if matches!(known.state, State::Failed(_)) {
            known.state = State::Idle;
            known.silence = Default::default();
        }
        Ok(())
    }
}
