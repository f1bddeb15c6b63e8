//! Access of peers to memory of this process: their requests, executed in this process's own calls. Those of one peer are
//! executed in order, each once: the machine delivers each message once. What a peer may have under way here is bounded;
//! beyond that its requests wait in the machine, whose credit makes the peer wait.

use std::collections::VecDeque;

use messaging::{
    Arrived, BufferId, Channel, ClaimId, Completion, PeerId, Receive, Send, SendMode, Status,
};

use super::endings::number_of;
use super::{Endpoint, Queues};
use crate::abi;
use crate::buffers::Lent;
use crate::operations::Table;
use crate::queue::Ended;
use crate::remote::execute::{Executed, execute};
use crate::remote::request::{Action, HEADER_BYTES, Kind, OPERANDS_BYTES_MAX, Refusal, Request};

/// Contexts of what the machine does for a peer have this bit.
pub(super) const WORK: u64 = 1 << 63;
/// Reads and long writes of one peer that are under way at once.
const PEER_WORKS_MAX: u32 = 256;
/// Requests that tell the program something wait while so many entries wait for the program.
const WAITING_ENTRIES_MAX: usize = 1 << 16;
const REQUEST_BYTES_MAX: u64 = (HEADER_BYTES + OPERANDS_BYTES_MAX) as u64;

/// A long write: its data come next.
#[derive(Debug, Clone, Copy)]
struct Apart {
    number: u64,
    request: Request,
    outcome: Result<(), Refusal>,
}

/// A peer that asks.
#[derive(Debug, Default)]
struct Client {
    /// Its messages that wait, in order.
    waiting: VecDeque<(ClaimId, Arrived)>,
    apart: Option<Apart>,
    /// A request is fetched: later ones wait.
    is_fetching: bool,
    works_count: u32,
    /// It is in the list of those that may go on.
    is_listed: bool,
}

impl Client {
    fn may_go_on(&self) -> bool {
        !self.is_fetching && self.works_count < PEER_WORKS_MAX && !self.waiting.is_empty()
    }
}

/// What the machine does for a peer.
#[derive(Debug)]
enum Work {
    /// Fetches a request that was announced only.
    Fetch { peer: PeerId, number: u64, bytes: Vec<u8> },
    /// Writes data into a region.
    Write { peer: PeerId, number: u64, request: Request, buffer: BufferId },
    /// Sends what was read.
    Read { peer: PeerId, buffer: BufferId },
    /// Throws a message away.
    Discard,
}

/// An answer that could not be sent yet.
#[derive(Debug)]
struct Answer {
    peer: PeerId,
    number: u64,
    code: Option<u64>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Bytes(Vec<u8>),
    Region(Lent),
}

/// Requests of peers, and what is done about them.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// By peer.
    clients: Vec<Client>,
    /// Peers with requests that may be executed now.
    ready: VecDeque<PeerId>,
    works: Table<Work>,
    answers: VecDeque<Answer>,
    /// Since the last look.
    has_sent: bool,
    /// Requests that were executed or refused.
    pub(super) served_count: u64,
}

impl Target {
    fn client(&mut self, peer: PeerId) -> &mut Client {
        let index = peer.0 as usize;
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, Client::default);
        }
        &mut self.clients[index]
    }

    fn list(&mut self, peer: PeerId) {
        let client = self.client(peer);
        if client.may_go_on() && !client.is_listed {
            client.is_listed = true;
            self.ready.push_back(peer);
        }
    }
}

impl Endpoint {
    /// Whether peers may want something, or are to be sent something. Most programs' peers never do.
    #[inline]
    pub(super) fn has_requests(&self) -> bool {
        let target = &self.target;
        self.machine.has_unexpected(Channel::Remote)
            || target.has_sent
            || !target.answers.is_empty()
            || !target.ready.is_empty()
    }

    /// Executes what peers have asked for. True: there is something to send.
    pub(super) fn serve(&mut self, queues: &mut Queues<'_>) -> bool {
        self.claim_requests();
        if !self.target.answers.is_empty() || !self.target.ready.is_empty() {
            let now_ns = self.now_ns();
            while let Some(answer) = self.target.answers.pop_front() {
                if !self.answer(now_ns, answer) {
                    return false;
                }
            }
            for _ in 0..self.target.ready.len() {
                let Some(peer) = self.target.ready.pop_front() else { break };
                self.target.client(peer).is_listed = false;
                self.serve_peer(now_ns, peer, queues);
                self.target.list(peer);
            }
        }
        std::mem::take(&mut self.target.has_sent)
    }

    /// Takes what has come out of the machine's matching, where only answers are matched.
    fn claim_requests(&mut self) {
        while let Some((id, arrived)) = self.machine.poll_unexpected(Channel::Remote) {
            let Some(claim) = self.machine.claim_unexpected(id) else { continue };
            match Kind::of(arrived.match_bits) {
                Some((Kind::Request | Kind::Data, _)) => {
                    self.target.client(arrived.source).waiting.push_back((claim, arrived));
                    self.target.list(arrived.source);
                }
                Some((Kind::Answer, _)) | None => {
                    let now_ns = self.now_ns();
                    self.throw_away(now_ns, claim);
                }
            }
        }
    }

    /// Executes a peer's requests until it has to wait.
    fn serve_peer(&mut self, now_ns: u64, peer: PeerId, queues: &mut Queues<'_>) {
        while self.target.answers.is_empty()
            && queues.waiting(self.binding.receive_queue) < WAITING_ENTRIES_MAX
            && self.target.client(peer).may_go_on()
            && let Some((claim, arrived)) = self.target.client(peer).waiting.pop_front()
        {
            self.target.has_sent = true;
            let apart = self.target.client(peer).apart.take();
            match (Kind::of(arrived.match_bits), apart) {
                (Some((Kind::Data, number)), Some(apart)) if apart.number == number => {
                    self.write_apart(now_ns, peer, (claim, arrived.length_bytes), &apart, queues);
                }
                (Some((Kind::Request, number)), apart) => {
                    if let Some(apart) = apart {
                        self.refuse(now_ns, peer, apart.number, Refusal::Malformed);
                    }
                    let length_bytes = arrived.length_bytes;
                    self.take_request(now_ns, peer, number, (claim, length_bytes), queues);
                }
                _ => self.throw_away(now_ns, claim),
            }
        }
    }

    fn take_request(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        number: u64,
        (claim, length_bytes): (ClaimId, u64),
        queues: &mut Queues<'_>,
    ) {
        self.target.served_count += 1;
        let serves = self.binding.caps & (abi::RMA | abi::ATOMIC) != 0;
        let regions = queues.regions;
        let read = |bytes: &[u8]| {
            if serves { execute(bytes, regions) } else { Executed::Refused(Refusal::NotServed) }
        };
        let executed = self.machine.take_claimed(now_ns, claim, &mut self.buffers, read);
        match executed {
            Some(executed) => self.act(now_ns, peer, number, executed, queues),
            None if length_bytes > REQUEST_BYTES_MAX || !serves => {
                self.throw_away(now_ns, claim);
                self.refuse(now_ns, peer, number, Refusal::Malformed);
            }
            None => self.fetch(now_ns, peer, number, (claim, length_bytes)),
        }
    }

    /// Fetches a request whose bytes are still at the sender, for want of credit.
    fn fetch(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        number: u64,
        (claim, length_bytes): (ClaimId, u64),
    ) {
        let mut bytes = vec![0; length_bytes as usize];
        // SAFETY: the vector's memory stays where it is and is touched by nobody until the work ends.
        let lent = unsafe { Lent::whole(bytes.as_mut_ptr(), bytes.len()) };
        let Ok(lent) = lent else { return };
        let work = self.target.works.insert(Work::Fetch { peer, number, bytes });
        if self.receive_for(now_ns, claim, lent, work) {
            self.target.client(peer).is_fetching = true;
        }
    }

    /// Directs a claimed message into a buffer. False: its sender failed, and the work is gone.
    fn receive_for(&mut self, now_ns: u64, claim: ClaimId, lent: Lent, work: u64) -> bool {
        let receive = Receive {
            source: None,
            channel: Channel::Remote,
            match_bits: 0,
            ignore_bits: 0,
            buffer: lent.buffer,
            offset: 0,
            length_bytes: lent.length_bytes,
            multi: None,
            context: WORK | work,
        };
        let outcome = self.machine.receive_claimed(now_ns, claim, &receive, &mut self.buffers);
        if outcome.is_err() {
            self.target.works.remove(work);
            self.buffers.give_back(lent.buffer);
        }
        outcome.is_ok()
    }

    fn throw_away(&mut self, now_ns: u64, claim: ClaimId) {
        self.target.has_sent = true;
        let taken = self.machine.take_claimed(now_ns, claim, &mut self.buffers, |_bytes| ());
        if taken.is_none() {
            let work = self.target.works.insert(Work::Discard);
            self.receive_for(now_ns, claim, Lent::NOTHING, work);
        }
    }

    /// Writes the data of a long write, or nothing where it is refused.
    fn write_apart(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        (claim, length_bytes): (ClaimId, u64),
        apart: &Apart,
        queues: &Queues<'_>,
    ) {
        let request = &apart.request;
        // The region may have been closed since.
        let found = apart.outcome.and_then(|()| {
            let Request { key, offset, .. } = *request;
            queues.regions.find(key, offset, request.length_bytes, request.access())
        });
        let found = found.and_then(|span| {
            let is_whole = length_bytes == request.length_bytes;
            is_whole.then_some(span).ok_or(Refusal::Malformed)
        });
        match found {
            Err(refusal) => {
                self.throw_away(now_ns, claim);
                self.refuse(now_ns, peer, apart.number, refusal);
            }
            Ok(span) => {
                let lent = self.buffers.of_region(request.key, span);
                let work = Work::Write {
                    peer,
                    number: apart.number,
                    request: *request,
                    buffer: lent.buffer,
                };
                let work = self.target.works.insert(work);
                if self.receive_for(now_ns, claim, lent, work) {
                    self.target.client(peer).works_count += 1;
                }
            }
        }
    }

    /// Answers a request that was executed as far as its bytes go.
    fn act(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        number: u64,
        executed: Executed,
        queues: &mut Queues<'_>,
    ) {
        match executed {
            Executed::Refused(refusal) => self.refuse(now_ns, peer, number, refusal),
            Executed::Apart { request, outcome } => {
                self.target.client(peer).apart = Some(Apart { number, request, outcome });
            }
            Executed::Done { request, reply } => {
                self.tell(peer, &request, queues);
                let body = Body::Bytes(reply);
                self.answer_or_keep(now_ns, Answer { peer, number, code: None, body });
            }
            Executed::Read { request, span } => {
                self.tell(peer, &request, queues);
                let body = Body::Region(self.buffers.of_region(request.key, span));
                self.answer_or_keep(now_ns, Answer { peer, number, code: None, body });
            }
        }
    }

    fn refuse(&mut self, now_ns: u64, peer: PeerId, number: u64, refusal: Refusal) {
        let body = Body::Bytes(Vec::new());
        let code = Some(refusal as u64);
        self.answer_or_keep(now_ns, Answer { peer, number, code, body });
    }

    /// Tells the program what a peer has done, where it counts that or the peer sent data for it.
    fn tell(&mut self, peer: PeerId, request: &Request, queues: &mut Queues<'_>) {
        let access = request.access();
        if access & abi::REMOTE_READ != 0 {
            queues.count(self.binding.remote_read_counter, true);
        }
        if access & abi::REMOTE_WRITE != 0 {
            queues.count(self.binding.remote_write_counter, true);
        }
        let Some(data) = request.data else { return };
        let kind = if matches!(request.action, Action::Atomic(_)) { abi::ATOMIC } else { abi::RMA };
        let entry = abi::CqEntry {
            op_context: 0,
            flags: kind | access | abi::REMOTE_CQ_DATA,
            len: request.length_bytes as usize,
            buf: 0,
            data,
            tag: 0,
        };
        let ended = Ended { entry, source: self.address(peer), error: None };
        queues.push(self.binding.receive_queue, ended);
    }

    fn answer_or_keep(&mut self, now_ns: u64, answer: Answer) {
        if self.target.answers.is_empty() {
            self.answer(now_ns, answer);
        } else {
            self.target.answers.push_back(answer);
        }
    }

    /// Sends an answer. False: there is no room now, and it is kept.
    fn answer(&mut self, now_ns: u64, answer: Answer) -> bool {
        let Answer { peer, number, code, .. } = answer;
        let bits = Kind::Answer.bits(number);
        self.target.has_sent = true;
        let outcome = match &answer.body {
            Body::Bytes(bytes) => self.send_bytes(now_ns, peer, bits, code, bytes),
            Body::Region(lent) => self.send_region(now_ns, peer, bits, *lent),
        };
        match (outcome, &answer.body) {
            (Err(libc::EAGAIN), _) => {
                self.target.answers.push_front(answer);
                return false;
            }
            // The peer has failed.
            (Err(_), Body::Region(lent)) => self.buffers.give_back(lent.buffer),
            _ => {}
        }
        true
    }

    fn send_region(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        match_bits: u64,
        lent: Lent,
    ) -> Result<(), crate::fence::Number> {
        let work = self.target.works.insert(Work::Read { peer, buffer: lent.buffer });
        let send = Send {
            peer,
            channel: Channel::Remote,
            match_bits,
            data: None,
            buffer: lent.buffer,
            offset: 0,
            length_bytes: lent.length_bytes,
            mode: SendMode::Standard,
            context: WORK | work,
        };
        let outcome = self.machine.send(now_ns, &send, &self.buffers).map_err(number_of);
        match outcome {
            Ok(()) => self.target.client(peer).works_count += 1,
            Err(_) => drop(self.target.works.remove(work)),
        }
        outcome
    }

    /// The machine has done something for a peer.
    pub(super) fn complete_work(&mut self, completion: &Completion, queues: &mut Queues<'_>) {
        let Some(work) = self.target.works.remove(completion.context & !WORK) else { return };
        let now_ns = self.now_ns();
        let is_good = completion.status == Status::Ok;
        match work {
            Work::Discard => {}
            Work::Read { peer, buffer } => {
                self.buffers.give_back(buffer);
                self.end_work(peer);
            }
            Work::Write { peer, number, request, buffer } => {
                let is_closed = !self.buffers.is_of_region(buffer);
                self.buffers.give_back(buffer);
                self.end_work(peer);
                if is_closed && is_good {
                    self.refuse(now_ns, peer, number, Refusal::Closed);
                } else if is_good {
                    let reply = Vec::new();
                    self.act(now_ns, peer, number, Executed::Done { request, reply }, queues);
                }
            }
            Work::Fetch { peer, number, bytes } => {
                self.target.client(peer).is_fetching = false;
                if is_good {
                    let executed = execute(&bytes, queues.regions);
                    self.act(now_ns, peer, number, executed, queues);
                }
                self.target.list(peer);
            }
        }
    }

    fn end_work(&mut self, peer: PeerId) {
        let client = self.target.client(peer);
        client.works_count = client.works_count.saturating_sub(1);
        self.target.list(peer);
    }

    /// A peer failed: nobody waits for what it asked for.
    pub(super) fn forget_requests(&mut self, peer: PeerId) {
        if peer.0 as usize >= self.target.clients.len() {
            return;
        }
        let now_ns = self.now_ns();
        let client = self.target.client(peer);
        client.apart = None;
        for (claim, _arrived) in std::mem::take(&mut client.waiting) {
            self.machine.take_claimed(now_ns, claim, &mut self.buffers, |_bytes| ());
        }
    }
}

#[cfg(test)]
mod tests;
