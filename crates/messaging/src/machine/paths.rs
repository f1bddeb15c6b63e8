//! Paths of single peers: larger packets than other peers take, back-pressure, and messages that the owner
//! copies from the sender's memory.

use super::Machine;
use crate::types::{CopyId, CopyRequest, Failure, Path, PeerId};

impl Machine {
    /// Sets how packets to a peer travel. The packet size applies from the next session on, so this is called
    /// before the first operation on the peer; an unknown peer is ignored.
    pub fn set_path(&mut self, peer: PeerId, path: Path) {
        if let Some(known) = self.peers.get_mut(peer.0 as usize) {
            let packet_bytes_max = path.packet_bytes_max.max(256);
            known.path = Some(Path { packet_bytes_max, ..path });
        }
    }

    /// Returns no packets to this peer from [`poll_transmit`](Self::poll_transmit) until
    /// [`release`](Self::release): its path is full. Timeouts go on, so that a peer whose path stays full is
    /// given up.
    pub fn hold(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get_mut(peer.0 as usize) {
            known.is_held = true;
        }
    }

    /// Ends a [`hold`](Self::hold).
    pub fn release(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get_mut(peer.0 as usize)
            && std::mem::take(&mut known.is_held)
        {
            self.mark_ready(peer.0);
        }
    }

    /// Ends the session with a peer that broke the rules of its path.
    pub fn reject(&mut self, now_ns: u64, peer: PeerId) {
        if (peer.0 as usize) < self.peers.len() {
            self.peers[peer.0 as usize].must.close = true;
            self.fail_peer(now_ns, peer.0, Failure::Violation);
        }
    }

    /// The next message to copy from its sender's memory. Each must be answered with
    /// [`end_copy`](Self::end_copy).
    pub fn poll_copy(&mut self) -> Option<CopyRequest> {
        while let Some(handle) = self.copies.pop_front() {
            // Without a pull the session has ended.
            let Some(index) = self.pulls.find(handle) else { continue };
            let pull = &self.pulls[index];
            let receiving = &pull.receiving;
            let Some(place) = receiving.place else { continue };
            return Some(CopyRequest {
                id: CopyId(handle),
                peer: PeerId(receiving.peer),
                place,
                buffer: receiving.buffer,
                offset: receiving.offset,
                length_bytes: pull.wanted,
            });
        }
        None
    }

    /// Reports that all bytes of a copy are in the buffer and were the message's while they were read;
    /// otherwise the message is pulled in packets.
    pub fn end_copy(&mut self, now_ns: u64, id: CopyId, is_whole: bool) {
        let Some(index) = self.pulls.find(id.0) else { return };
        if is_whole {
            let mut receiving = self.remove_pull(index);
            receiving.received = receiving.length.min(receiving.room);
            self.counters.direct_bytes += receiving.received;
            return self.finish(now_ns, receiving);
        }
        let pull = &mut self.pulls[index];
        pull.asked = 0;
        let peer = pull.receiving.peer;
        self.line_up(peer);
        self.ask(now_ns);
    }

    /// Whether messages may be copied between the peer's memory and this end's.
    pub(super) fn is_direct(&self, peer: u32) -> bool {
        self.peers[peer as usize].path.is_some_and(|path| path.is_direct)
    }

    /// Size limit of packets to and from a peer, in bytes.
    pub(super) fn packet_bytes_max(&self, peer: u32) -> u16 {
        let path = self.peers[peer as usize].path;
        path.map_or(self.config.packet_bytes_max, |path| path.packet_bytes_max)
    }
}
