//! The owner's operations: send, receive, probe, claim, cancel.

use super::Machine;
use crate::matching::{Body, Posted, Unexpected};
use crate::peer::{Class, Outgoing, Receiving, Source, State, Target};
use crate::slab::Link;
use crate::types::{
    Arrived, ClaimId, Completion, Memory, Operation, OperationError, PeerId, Receive, ReceiveId,
    Send, SendMode, Status,
};

impl Machine {
    /// Sends a message. Messages to one peer are matched in the order of these calls. A buffer that
    /// was not copied must stay unchanged until the completion; an inject's may be reused at once.
    ///
    /// # Errors
    /// The peer is unknown or has failed, the message is too long to inject, or resources are
    /// exhausted for now; in each case nothing was started.
    pub fn send(
        &mut self,
        now_ns: u64,
        send: &Send,
        memory: &impl Memory,
    ) -> Result<(), OperationError> {
        let peer = self.check_peer(send.peer)?;
        if self.sends.count() >= self.config.operations_max {
            return Err(OperationError::Busy);
        }
        let is_short = send.length_bytes <= self.config.copy_bytes_max;
        if send.mode == SendMode::Inject && !is_short {
            let max_bytes = self.config.copy_bytes_max;
            return Err(OperationError::TooLong { length_bytes: send.length_bytes, max_bytes });
        }
        let has_room = send.length_bytes == 0
            || self.copies_bytes + send.length_bytes <= self.config.copies_bytes_max;
        let is_copied = is_short && send.mode != SendMode::Synchronous && has_room;
        if send.mode == SendMode::Inject && !is_copied {
            return Err(OperationError::Busy);
        }
        let source = if is_copied {
            self.copies_bytes += send.length_bytes;
            self.counters.copied_bytes += send.length_bytes;
            let mut copy = self.pool.take(send.length_bytes as usize);
            if send.length_bytes > 0 {
                memory.read(send.buffer, send.offset, send.length_bytes as usize, &mut copy);
            }
            Source::Copy(copy)
        } else {
            Source::User(send.buffer, send.offset)
        };
        let is_direct = !is_copied && self.is_direct(peer);
        let place = if is_direct { memory.place(send.buffer, send.offset) } else { None };
        let is_eager = send.length_bytes <= self.config.eager_bytes_max;
        let is_sync = send.mode == SendMode::Synchronous;
        if is_copied && send.mode == SendMode::Standard {
            let (context, operation) = (send.context, Operation::Send);
            self.completions.push_back(Completion { context, operation, status: Status::Ok });
        }
        self.enqueue(
            now_ns,
            Outgoing {
                peer,
                class: if is_eager { Class::Eager } else { Class::Announced },
                channel: send.channel,
                bits: send.match_bits,
                data: send.data,
                length: send.length_bytes,
                source,
                place,
                is_sync,
                context: (!is_copied).then_some(send.context),
                cut_bytes: 0,
                is_cut: false,
                unacked_pkts: 0,
                awaits_done: !is_eager || is_sync,
                queue: Link::OUT,
                all: Link::OUT,
            },
        );
        self.await_peer(now_ns, peer);
        Ok(())
    }

    fn check_peer(&self, peer: PeerId) -> Result<u32, OperationError> {
        match self.peers.get(peer.0 as usize).map(|peer| peer.state) {
            None => Err(OperationError::UnknownPeer(peer.0)),
            Some(State::Failed(failure)) => Err(OperationError::PeerFailed(peer.0, failure)),
            Some(_) => Ok(peer.0),
        }
    }

    pub(super) fn enqueue(&mut self, now_ns: u64, outgoing: Outgoing) {
        let peer = outgoing.peer;
        let index = self.sends.insert(outgoing);
        let out = &mut self.peers[peer as usize].out;
        out.queue.push_back(&mut self.sends, index);
        out.sends.push_back(&mut self.sends, index);
        self.want_session(now_ns, peer);
        self.mark_ready(peer);
    }

    /// Posts a receive. Receives take messages in the order of these calls.
    ///
    /// # Errors
    /// The source is unknown or has failed, or there are too many receives; nothing was started.
    pub fn receive(
        &mut self,
        now_ns: u64,
        receive: &Receive,
        memory: &mut impl Memory,
    ) -> Result<ReceiveId, OperationError> {
        if let Some(source) = receive.source {
            self.check_peer(source)?;
        }
        if self.matcher.posted.count() + self.receiving.count() >= self.config.operations_max {
            return Err(OperationError::Busy);
        }
        let index = self.matcher.post(Posted {
            source: receive.source,
            channel: receive.channel,
            bits: receive.match_bits,
            ignore: receive.ignore_bits,
            buffer: receive.buffer,
            offset: receive.offset,
            room: receive.length_bytes,
            multi: receive.multi,
            writers: 0,
            context: receive.context,
            order: 0,
            link: Link::OUT,
        });
        let id = ReceiveId(self.matcher.posted.handle(index));
        while self.is_posted(id)
            && let Some(unexpected) = self.matcher.unexpected_for(
                receive.source,
                receive.channel,
                receive.match_bits,
                receive.ignore_bits,
            )
        {
            self.matcher.withdraw(unexpected);
            let receiving = self.occupy_for(index, unexpected);
            self.take_unexpected(now_ns, unexpected, receiving, memory);
        }
        self.retry_refused(now_ns, memory);
        if let Some(PeerId(source)) = receive.source
            && self.is_posted(id)
        {
            self.await_peer(now_ns, source);
        }
        Ok(id)
    }

    fn is_posted(&self, id: ReceiveId) -> bool {
        let posted = self.matcher.posted.find(id.0);
        posted.is_some_and(|index| self.matcher.posted[index].link.is_linked())
    }

    /// Assigns a message to a posted receive and reserves room for it. A receive that can take no
    /// further message is removed from matching.
    pub(super) fn occupy(&mut self, index: u32, arrived: &Arriving) -> Receiving {
        let posted = &mut self.matcher.posted[index];
        let (offset, room) = (posted.offset, posted.room);
        let mut is_last = true;
        if let Some(least) = posted.multi {
            let taken = room.min(arrived.length);
            posted.offset += taken;
            posted.room -= taken;
            posted.writers += 1;
            is_last = posted.room < least || posted.room == 0;
        }
        let receiving = Receiving {
            peer: arrived.peer,
            bits: arrived.bits,
            data: arrived.data,
            length: arrived.length,
            handle: arrived.handle,
            place: arrived.place,
            context: posted.context,
            buffer: posted.buffer,
            offset,
            room,
            received: 0,
            multi: posted.multi.map(|_| index),
        };
        if is_last {
            self.matcher.unpost(index);
            if receiving.multi.is_none() {
                self.matcher.posted.remove(index);
            }
        }
        receiving
    }

    fn arriving(&self, unexpected: u32) -> Arriving {
        let unexpected = &self.matcher.unexpected[unexpected];
        Arriving {
            peer: unexpected.source,
            channel: unexpected.channel,
            bits: unexpected.bits,
            data: unexpected.data,
            length: unexpected.length,
            handle: unexpected.handle,
            place: unexpected.place,
        }
    }

    fn occupy_for(&mut self, posted: u32, unexpected: u32) -> Receiving {
        let arriving = self.arriving(unexpected);
        self.occupy(posted, &arriving)
    }

    /// Copies an unexpected message into a receive's buffer, and directs the rest of it there.
    fn take_unexpected(
        &mut self,
        now_ns: u64,
        index: u32,
        mut receiving: Receiving,
        memory: &mut impl Memory,
    ) {
        let unexpected = self.remove_unexpected(index);
        let Body::Eager(bytes) = unexpected.body else {
            return self.begin_pull(now_ns, receiving);
        };
        let fitting = bytes.len().min(receiving.room as usize);
        if fitting > 0 {
            memory.write(receiving.buffer, receiving.offset, &bytes[..fitting]);
        }
        receiving.received = fitting as u64;
        let known = &self.peers[unexpected.source as usize];
        if known.state == State::Open && known.sessions_count == unexpected.session {
            self.consume(unexpected.source, bytes.len() as u32);
        }
        self.pool.put(bytes, unexpected.length as usize);
        if self.peers[unexpected.source as usize].inn.target == Target::Unexpected(index) {
            let index = self.receiving.insert(receiving);
            self.peers[unexpected.source as usize].inn.target = Target::Receiving(index);
        } else {
            self.finish(now_ns, receiving);
        }
    }

    /// Removes an unexpected message that is no longer in a list.
    pub(super) fn remove_unexpected(&mut self, index: u32) -> Unexpected {
        let unexpected = self.matcher.unexpected.remove(index);
        if let Body::Eager(_) = unexpected.body {
            self.unexpected_bytes -= unexpected.length;
        }
        unexpected
    }

    /// Sends a `Done`: an announced or synchronous message has been matched and has arrived.
    pub(super) fn say_done(&mut self, now_ns: u64, peer: u32, handle: u64) {
        self.enqueue(
            now_ns,
            Outgoing {
                peer,
                class: Class::Done(handle),
                channel: crate::types::Channel::Tagged,
                bits: 0,
                data: None,
                length: 0,
                source: Source::Copy(Vec::new()),
                place: None,
                is_sync: false,
                context: None,
                cut_bytes: 0,
                is_cut: false,
                unacked_pkts: 0,
                awaits_done: false,
                queue: Link::OUT,
                all: Link::OUT,
            },
        );
    }

    /// Completes a receive that has all of its message.
    pub(super) fn finish(&mut self, now_ns: u64, receiving: Receiving) {
        if let Some(handle) = receiving.handle {
            self.say_done(now_ns, receiving.peer, handle);
        }
        let is_cut = receiving.length > receiving.room;
        self.complete_receive(&receiving, if is_cut { Status::Truncated } else { Status::Ok });
    }

    pub(super) fn complete_receive(&mut self, receiving: &Receiving, status: Status) {
        let mut is_buffer_released = true;
        if let Some(index) = receiving.multi {
            let posted = &mut self.matcher.posted[index];
            posted.writers -= 1;
            is_buffer_released = posted.writers == 0 && !posted.link.is_linked();
            if is_buffer_released {
                self.matcher.posted.remove(index);
            }
        }
        let message = Arrived {
            source: PeerId(receiving.peer),
            match_bits: receiving.bits,
            data: receiving.data,
            length_bytes: receiving.length,
        };
        self.completions.push_back(Completion {
            context: receiving.context,
            operation: Operation::Receive {
                message: Some(message),
                offset: receiving.offset,
                received_bytes: receiving.received,
                is_buffer_released,
            },
            status,
        });
    }

    /// The message that such a receive would take now; it stays. The caller makes progress: packets
    /// still in the transport are not seen.
    #[must_use]
    pub fn probe(
        &self,
        source: Option<PeerId>,
        channel: crate::types::Channel,
        match_bits: u64,
        ignore_bits: u64,
    ) -> Option<Arrived> {
        self.peers.get(source.map_or(0, |PeerId(source)| source as usize))?;
        let index = self.matcher.unexpected_for(source, channel, match_bits, ignore_bits)?;
        Some(self.arrived(index))
    }

    fn arrived(&self, index: u32) -> Arrived {
        let unexpected = &self.matcher.unexpected[index];
        Arrived {
            source: PeerId(unexpected.source),
            match_bits: unexpected.bits,
            data: unexpected.data,
            length_bytes: unexpected.length,
        }
    }

    /// Removes the message that such a receive would take now from matching: no other receive or
    /// probe finds it.
    pub fn claim(
        &mut self,
        source: Option<PeerId>,
        channel: crate::types::Channel,
        match_bits: u64,
        ignore_bits: u64,
    ) -> Option<(ClaimId, Arrived)> {
        self.peers.get(source.map_or(0, |PeerId(source)| source as usize))?;
        let index = self.matcher.unexpected_for(source, channel, match_bits, ignore_bits)?;
        let arrived = self.arrived(index);
        self.matcher.withdraw(index);
        Some((ClaimId(self.matcher.unexpected.handle(index)), arrived))
    }

    /// Receives a claimed message. The source, channel and bits of `receive` are ignored.
    ///
    /// # Errors
    /// [`OperationError::NoClaim`]: the claim was used before, or the sender failed before the
    /// whole message had arrived.
    pub fn receive_claimed(
        &mut self,
        now_ns: u64,
        claim: ClaimId,
        receive: &Receive,
        memory: &mut impl Memory,
    ) -> Result<(), OperationError> {
        let index = self.matcher.unexpected.find(claim.0).ok_or(OperationError::NoClaim)?;
        let arriving = self.arriving(index);
        let receiving = Receiving {
            peer: arriving.peer,
            bits: arriving.bits,
            data: arriving.data,
            length: arriving.length,
            handle: arriving.handle,
            place: arriving.place,
            context: receive.context,
            buffer: receive.buffer,
            offset: receive.offset,
            room: receive.length_bytes,
            received: 0,
            multi: None,
        };
        self.take_unexpected(now_ns, index, receiving, memory);
        self.retry_refused(now_ns, memory);
        Ok(())
    }

    /// Cancels a receive. Returns true if no message had matched: it has completed with
    /// [`Status::Cancelled`]. False: it has completed, or will, with its message. A multi-message
    /// receive takes no further messages; the last one in progress releases its buffer.
    pub fn cancel(&mut self, receive: ReceiveId) -> bool {
        let Some(index) = self.matcher.posted.find(receive.0) else { return false };
        if !self.matcher.posted[index].link.is_linked() {
            return false;
        }
        self.end_posted(index, Status::Cancelled);
        true
    }

    /// Ends a receive without a message.
    pub(super) fn end_posted(&mut self, index: u32, status: Status) {
        self.matcher.unpost(index);
        let posted = &self.matcher.posted[index];
        let (context, offset, is_buffer_released) =
            (posted.context, posted.offset, posted.writers == 0);
        if is_buffer_released {
            self.matcher.posted.remove(index);
        }
        let operation =
            Operation::Receive { message: None, offset, received_bytes: 0, is_buffer_released };
        self.completions.push_back(Completion { context, operation, status });
    }
}

/// A message as its envelope describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arriving {
    pub(super) peer: u32,
    pub(super) channel: crate::types::Channel,
    pub(super) bits: u64,
    pub(super) data: Option<u64>,
    pub(super) length: u64,
    pub(super) handle: Option<u64>,
    pub(super) place: Option<u64>,
}
