//! Announced messages: the receiver requests blocks of fragments, all its senders share one window
//! of requested bytes, and a sender serves the requests for what it announced.
//!
//! Only the receiver knows what is missing: fragments are not acknowledged but requested again.
//! Three events indicate a loss: later fragments of its block overtake a fragment, answers to later
//! requests overtake a block, or nothing arrives for too long.

use super::Machine;
use super::transmit::BURST_PKTS;
use crate::peer::{Block, Class, Job, Pull, Receiving};
use crate::slab::{Link, NONE};
use crate::types::Memory;
use crate::wire::{DATA_BYTES, Fragment, PullRequest};

/// Upper bound on the bytes of a block; it has no more fragments than leave in one batch.
const BLOCK_BYTES_MAX: u64 = 64 * 1024;
/// Fragments that this many later ones overtook are requested again.
const OVERTAKEN_PKTS: u32 = 3;
/// Upper bound on a peer's requests waiting to be served; it repeats those that are dropped.
const JOBS_MAX: u32 = 128;
/// Smallest fragment that is served, except for a message's last.
const FRAGMENT_BYTES_MIN: u64 = 128;

/// The lowest `count` bits.
fn low_bits(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

impl Machine {
    /// Starts to pull an announced message that a receive has matched.
    pub(super) fn begin_pull(&mut self, now_ns: u64, receiving: Receiving) {
        let wanted = receiving.length.min(receiving.room);
        if wanted == 0 {
            return self.finish(now_ns, receiving);
        }
        let peer = receiving.peer;
        let known = &mut self.peers[peer as usize];
        let fragment_bytes = u64::from(known.packet_bytes_max) - DATA_BYTES as u64;
        if known.pulls.list.is_empty() {
            self.pulling_count += 1;
        }
        let is_copied = receiving.place.is_some() && self.is_direct(peer);
        // Nothing is requested of what the owner copies.
        let asked = if is_copied { wanted } else { 0 };
        let pull = Pull { receiving, wanted, asked, fragment_bytes, link: Link::OUT };
        let index = self.pulls.insert(pull);
        self.peers[peer as usize].pulls.list.push_back(&mut self.pulls, index);
        if is_copied {
            return self.copies.push_back(self.pulls.handle(index));
        }
        self.line_up(peer);
        self.ask(now_ns);
    }

    /// Queues the peer for further requests if there is something left to request.
    pub(super) fn line_up(&mut self, peer: u32) {
        if !self.peers[peer as usize].puller.is_linked() && self.next_unasked(peer) != NONE {
            self.pullers.push_back(&mut self.peers, peer);
        }
    }

    /// The first pull from this peer that is not completely requested, or [`NONE`].
    fn next_unasked(&self, peer: u32) -> u32 {
        let mut index = self.peers[peer as usize].pulls.list.front();
        while index != NONE && self.pulls[index].asked >= self.pulls[index].wanted {
            index = self.pulls[index].link.next();
        }
        index
    }

    /// Requests blocks while the window has room, from one peer after the other, each up to its
    /// share. A peer's turn comes when a quarter of its share is free: several requests then leave together.
    pub(super) fn ask(&mut self, now_ns: u64) {
        let window_bytes = self.pull_window.bytes();
        let share_bytes = window_bytes / self.pulling_count.max(1);
        while self.pull_under_way_bytes < window_bytes
            && let Some(peer) = self.pullers.pop_front(&mut self.peers)
        {
            let under_way_bytes =
                |machine: &Self| machine.peers[peer as usize].pulls.under_way_bytes;
            let bytes = under_way_bytes(self);
            // The peer is queued again with its next fragment.
            if bytes > 0 && bytes + share_bytes / 4 >= share_bytes {
                continue;
            }
            self.ask_block(now_ns, peer, share_bytes);
            while self.pull_under_way_bytes < window_bytes
                && under_way_bytes(self) < share_bytes
                && self.next_unasked(peer) != NONE
            {
                self.ask_block(now_ns, peer, share_bytes);
            }
            self.line_up(peer);
        }
    }

    fn ask_block(&mut self, now_ns: u64, peer: u32, share_bytes: u64) {
        let index = self.next_unasked(peer);
        if index == NONE {
            return;
        }
        let pull = &mut self.pulls[index];
        let most_bytes = BLOCK_BYTES_MAX.min(share_bytes / 2).max(pull.fragment_bytes);
        let fragments = (most_bytes / pull.fragment_bytes).clamp(1, BURST_PKTS.into());
        let offset = pull.asked;
        let bytes = (pull.wanted - offset).min(fragments * pull.fragment_bytes);
        let mask = low_bits(bytes.div_ceil(pull.fragment_bytes));
        pull.asked += bytes;
        let block = self.blocks.insert(Block {
            pull: index,
            peer,
            offset,
            missing: mask,
            wanted: mask,
            again: 0,
            request: 0,
            overtaken: 0,
            asked: Link::OUT,
            to_ask: Link::OUT,
        });
        self.pull_under_way_bytes += bytes;
        let known = &mut self.peers[peer as usize];
        known.pulls.under_way_bytes += bytes;
        known.pulls.asked.push_back(&mut self.blocks, block);
        self.put_to_ask(now_ns, block);
    }

    /// Queues a request for the block's wanted fragments.
    fn put_to_ask(&mut self, now_ns: u64, block: u32) {
        let peer = self.blocks[block].peer;
        let pulls = &mut self.peers[peer as usize].pulls;
        // In the order of the requests, so that the first is answered first.
        pulls.asked.remove(&mut self.blocks, block);
        pulls.asked.push_back(&mut self.blocks, block);
        pulls.request = pulls.request.wrapping_add(1);
        self.blocks[block].request = pulls.request;
        self.blocks[block].overtaken = 0;
        if !self.blocks[block].to_ask.is_linked() {
            pulls.to_ask.push_back(&mut self.blocks, block);
        }
        self.mark_ready(peer);
        if self.peers[peer as usize].due.pull_ns == 0 {
            self.await_fragments(now_ns, peer);
        }
    }

    /// The request for a block, to be sent now.
    pub(super) fn write_request(&mut self, block: u32) -> (PullRequest, u16) {
        let (offset, pull) = (self.blocks[block].offset, self.blocks[block].pull);
        let mask = std::mem::replace(&mut self.blocks[block].wanted, 0);
        let request = self.blocks[block].request;
        let handle = self.pulls.handle(pull);
        let pull = &self.pulls[pull];
        let send = pull.receiving.handle.expect("an announced message has its sender's handle");
        let request = PullRequest { pull: handle, send, offset, mask, end: pull.wanted, request };
        (request, pull.fragment_bytes as u16)
    }

    /// Processes a fragment that arrived.
    pub(super) fn handle_fragment(
        &mut self,
        now_ns: u64,
        peer: u32,
        packet: &[u8],
        memory: &mut impl Memory,
    ) {
        let Some(fragment) = Fragment::parse(packet) else { return };
        let payload = &packet[DATA_BYTES..];
        let Some((block, bit)) = self.find_fragment(peer, &fragment, payload.len()) else {
            self.counters.duplicate_pkts += 1;
            return;
        };
        let bytes = payload.len() as u64;
        let pull_index = self.blocks[block].pull;
        let pull = &mut self.pulls[pull_index];
        memory.write(pull.receiving.buffer, pull.receiving.offset + fragment.offset, payload);
        pull.receiving.received += bytes;
        let is_whole = pull.receiving.received == pull.wanted;
        let is_full = 2 * self.pull_under_way_bytes >= self.pull_window.bytes();
        self.pull_under_way_bytes -= bytes;
        let known = &mut self.peers[peer as usize];
        known.pulls.under_way_bytes -= bytes;
        known.silence.pull_timeouts = 0;
        if is_full {
            // Up to a quarter of what the receive path holds, waiting there is no sign of a full path.
            let is_queueing = known.rtt.is_answered_late()
                && self.pull_window.bytes() >= self.config.pull_bytes_max / 4;
            let packet_bytes = u64::from(known.packet_bytes_max);
            self.pull_window.grow(bytes, packet_bytes, is_queueing);
        }
        let is_late = self.blocks[block].again >> bit & 1 == 1
            && fragment.request != self.blocks[block].request;
        if is_late {
            // The answer to the first request: the fragment was late, not lost.
            self.counters.spurious_losses += 1;
            self.pull_window.restore();
        }
        self.blocks[block].missing &= !(1 << bit);
        self.blocks[block].wanted &= !(1 << bit);
        self.find_overtaken(now_ns, peer, block, bit, fragment.request);
        if self.blocks[block].missing == 0 {
            self.remove_block(block);
        }
        self.await_fragments(now_ns, peer);
        if is_whole {
            let receiving = self.remove_pull(pull_index);
            self.finish(now_ns, receiving);
        }
        self.line_up(peer);
        self.ask(now_ns);
    }

    /// The block and bit of a fragment, if it is missing.
    fn find_fragment(&self, peer: u32, fragment: &Fragment, bytes: usize) -> Option<(u32, u64)> {
        let pull_index = self.pulls.find(fragment.pull)?;
        let pull = &self.pulls[pull_index];
        if pull.receiving.peer != peer || fragment.offset >= pull.wanted {
            return None;
        }
        if bytes as u64 != pull.fragment_bytes.min(pull.wanted - fragment.offset) {
            return None;
        }
        let mut index = self.peers[peer as usize].pulls.asked.front();
        while index != NONE {
            let block = &self.blocks[index];
            if block.pull == pull_index && fragment.offset >= block.offset {
                let distance = fragment.offset - block.offset;
                let bit = distance / pull.fragment_bytes;
                if bit < 64 && block.missing >> bit & 1 == 1 {
                    let is_aligned = distance.is_multiple_of(pull.fragment_bytes);
                    return is_aligned.then_some((index, bit));
                }
            }
            index = block.asked.next();
        }
        None
    }

    /// Requests again what the arrived fragment, an answer to `request`, has overtaken.
    fn find_overtaken(&mut self, now_ns: u64, peer: u32, block: u32, bit: u64, request: u32) {
        let this = &mut self.blocks[block];
        let before = low_bits((bit + 1).saturating_sub(u64::from(OVERTAKEN_PKTS)));
        let lost = this.missing & !this.wanted & before;
        if this.request == request && lost != 0 {
            this.wanted |= lost;
            this.again |= lost;
            self.note_loss(now_ns, peer, lost);
            self.put_to_ask(now_ns, block);
        }
        let mut index = self.peers[peer as usize].pulls.asked.front();
        while index != NONE && (request.wrapping_sub(self.blocks[index].request) as i32) > 0 {
            let next = self.blocks[index].asked.next();
            let late = &mut self.blocks[index];
            late.overtaken = late.overtaken.saturating_add(1);
            if index != block && u32::from(late.overtaken) >= OVERTAKEN_PKTS {
                let lost = late.missing & !late.wanted;
                late.wanted = late.missing;
                late.again |= lost;
                self.note_loss(now_ns, peer, lost);
                self.put_to_ask(now_ns, index);
            }
            index = next;
        }
    }

    fn note_loss(&mut self, now_ns: u64, peer: u32, lost: u64) {
        self.counters.reasked_pkts += u64::from(lost.count_ones());
        let rtt = &self.peers[peer as usize].rtt;
        if now_ns >= self.pull_shrunk_ns + rtt.answer_ns() {
            self.pull_shrunk_ns = now_ns;
            self.pull_window.shrink(rtt.is_answered_late());
        }
    }

    /// Handles the case that no fragment arrived for too long: requests the oldest block again.
    pub(super) fn handle_late_fragments(&mut self, now_ns: u64, peer: u32) {
        self.counters.timeouts += 1;
        let known = &mut self.peers[peer as usize];
        let waited_ns = now_ns - known.silence.last_waited_ns.min(now_ns);
        let timeouts = known.silence.pull_timeouts;
        known.silence.pull_timeouts = timeouts.saturating_add(1);
        known.due.pull_ns = 0;
        let patience_ns = self.fragment_patience_ns(peer, timeouts);
        if self.note_silence(now_ns, peer, waited_ns.min(patience_ns)) {
            return;
        }
        if timeouts >= super::timeouts::TIMEOUTS_BEFORE_DOUBT {
            self.peers[peer as usize].must.greet = true;
        }
        if let Some(block) = self.peers[peer as usize].pulls.asked.first() {
            let late = &mut self.blocks[block];
            let lost = late.missing & !late.wanted;
            self.counters.reasked_pkts += u64::from(lost.count_ones());
            late.again |= lost;
            late.wanted = late.missing;
            self.put_to_ask(now_ns, block);
        }
        self.await_fragments(now_ns, peer);
    }

    fn remove_block(&mut self, index: u32) {
        let pulls = &mut self.peers[self.blocks[index].peer as usize].pulls;
        pulls.asked.remove(&mut self.blocks, index);
        if self.blocks[index].to_ask.is_linked() {
            pulls.to_ask.remove(&mut self.blocks, index);
        }
        self.blocks.remove(index);
    }

    /// Ends a pull together with its outstanding requests.
    pub(super) fn remove_pull(&mut self, index: u32) -> Receiving {
        let peer = self.pulls[index].receiving.peer;
        let mut block = self.peers[peer as usize].pulls.asked.front();
        while block != NONE {
            let next = self.blocks[block].asked.next();
            if self.blocks[block].pull == index {
                let bytes = self.missing_bytes(block);
                self.pull_under_way_bytes -= bytes;
                self.peers[peer as usize].pulls.under_way_bytes -= bytes;
                self.remove_block(block);
            }
            block = next;
        }
        let pulls = &mut self.peers[peer as usize].pulls;
        pulls.list.remove(&mut self.pulls, index);
        if pulls.list.is_empty() {
            self.pulling_count -= 1;
        }
        self.pulls.remove(index).receiving
    }

    fn missing_bytes(&self, block: u32) -> u64 {
        let block = &self.blocks[block];
        let pull = &self.pulls[block.pull];
        let fragments = (0..64).filter(|bit| block.missing >> bit & 1 == 1);
        fragments
            .map(|bit| block.offset + bit * pull.fragment_bytes)
            .map(|offset| pull.fragment_bytes.min(pull.wanted - offset))
            .sum()
    }

    /// Queues a peer's request for fragments of a message that was announced to it.
    pub(super) fn handle_pull(&mut self, peer: u32, fragment_bytes: u16, request: &PullRequest) {
        let fragment_bytes = u64::from(fragment_bytes);
        let known = &self.peers[peer as usize];
        let most_bytes = u64::from(known.packet_bytes_max) - DATA_BYTES as u64;
        let is_announced = self.sends.find(request.send).is_some_and(|index| {
            let send = &self.sends[index];
            send.peer == peer
                && send.class == Class::Announced
                && send.is_cut
                && request.end <= send.length
        });
        let is_sensible = (FRAGMENT_BYTES_MIN..=most_bytes).contains(&fragment_bytes)
            && request.offset < request.end;
        if !is_announced || !is_sensible || !self.is_new_request(peer, request.request) {
            return;
        }
        let mut index = self.peers[peer as usize].out.jobs.front();
        while index != NONE {
            let job = &mut self.jobs[index];
            if job.pull == request.pull && job.offset == request.offset {
                job.mask |= request.mask;
                job.request = request.request;
                // Requests are answered in their order: otherwise the receiver takes those between for lost.
                let jobs = &mut self.peers[peer as usize].out.jobs;
                jobs.remove(&mut self.jobs, index);
                jobs.push_back(&mut self.jobs, index);
                return;
            }
            index = job.link.next();
        }
        let out = &mut self.peers[peer as usize].out;
        if out.jobs_count >= JOBS_MAX {
            return;
        }
        out.jobs_count += 1;
        let job = self.jobs.insert(Job {
            send: request.send,
            pull: request.pull,
            offset: request.offset,
            fragment_bytes,
            end: request.end,
            mask: request.mask,
            request: request.request,
            link: Link::OUT,
        });
        self.peers[peer as usize].out.jobs.push_back(&mut self.jobs, job);
    }

    /// Whether a request is new: each number counts once, so that a replayed request has no effect.
    fn is_new_request(&mut self, peer: u32, request: u32) -> bool {
        let out = &mut self.peers[peer as usize].out;
        let step = request.wrapping_sub(out.last_request) as i32;
        if step > 0 {
            let shift = step.unsigned_abs();
            out.requests_seen = if shift < 64 { out.requests_seen << shift | 1 } else { 1 };
            out.last_request = request;
            return true;
        }
        let bit = step.unsigned_abs();
        let is_new = bit < 64 && out.requests_seen >> bit & 1 == 0;
        if is_new {
            out.requests_seen |= 1 << bit;
        }
        is_new
    }

    /// The next fragment to send to a peer: the index of its message, its position, and its length
    /// in bytes.
    pub(super) fn next_fragment(&mut self, peer: u32) -> Option<(u32, Fragment, u64)> {
        while let Some(index) = self.peers[peer as usize].out.jobs.first() {
            let job = &mut self.jobs[index];
            let bit = u64::from(job.mask.trailing_zeros());
            let offset = job.offset.saturating_add(bit.saturating_mul(job.fragment_bytes));
            let send = self.sends.find(job.send);
            if let Some(send) = send
                && job.mask != 0
                && offset < job.end
            {
                job.mask &= job.mask - 1;
                let bytes = job.fragment_bytes.min(job.end - offset);
                let fragment = Fragment { pull: job.pull, offset, request: job.request };
                return Some((send, fragment, bytes));
            }
            let out = &mut self.peers[peer as usize].out;
            out.jobs.remove(&mut self.jobs, index);
            out.jobs_count -= 1;
            self.jobs.remove(index);
        }
        None
    }
}
