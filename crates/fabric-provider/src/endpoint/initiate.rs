//! Access to the memory of a peer: a request goes out, its answer ends the operation. A failure of the peer ends it too,
//! because a receive waits for the answer.

use messaging::{BufferId, Channel, Completion, PeerId, Receive, Send, SendMode, Status};

use super::endings::{number_of, number_of_failure};
use super::{Endpoint, Queues, random};
use crate::abi;
use crate::buffers::Lent;
use crate::fence::Number;
use crate::operations::Table;
use crate::queue::{Ended, Error};
use crate::remote::request::{Kind, Refusal, Request};

/// Contexts of such operations have this bit.
pub(super) const STARTED: u64 = 1 << 62;
/// Of the send of data that are no part of the request.
const DATA: u64 = 1 << 61;
const INDEX: u64 = (1 << 32) - 1;
/// Operations under way.
const STARTED_MAX: usize = 1 << 16;

/// With so many under way each further one makes progress.
const UNWATCHED_MAX: usize = 32;

/// What a program asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) to: u64,
    pub(crate) request: Request,
    /// Where what is read goes.
    pub(crate) result: Lent,
    pub(crate) context: usize,
    /// Flags of its completion.
    pub(crate) flags: u64,
    /// Whether a success is told; failures always are.
    pub(crate) is_told: bool,
}

/// What the program gives along.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given<'a> {
    /// Operands that are part of the request.
    Operands(&'a [u8]),
    /// Data that are a message of their own, of the program's buffer.
    Data(Lent),
}

/// An operation whose answer is awaited.
#[derive(Debug, Clone, Copy)]
struct Operation {
    context: usize,
    flags: u64,
    is_told: bool,
    result: Lent,
    data: BufferId,
    error: Option<Number>,
    /// The answer, and the data's end.
    awaited_count: u8,
    /// The request never left: nobody is told.
    is_void: bool,
}

/// The operations under way.
#[derive(Debug, Default)]
pub(super) struct Started {
    operations: Table<Operation>,
    count: usize,
    /// Makes numbers of operations differ from earlier ones of the same place, and of earlier processes.
    serial: Option<u32>,
    request: Vec<u8>,
}

impl Started {
    fn number(&mut self, index: u64) -> Result<u64, Number> {
        let serial = match self.serial {
            Some(serial) => serial.wrapping_add(1),
            None => u32::from_le_bytes(random()?),
        };
        self.serial = Some(serial);
        Ok(u64::from(serial) << 32 | index)
    }
}

impl Endpoint {
    /// Starts an operation; its buffers are the program's again at its end, and if this fails.
    pub(crate) fn start(
        &mut self,
        order: &Order,
        given: Given<'_>,
        queues: &mut Queues<'_>,
    ) -> Result<(), Number> {
        let outcome = self.begin(order, given);
        match outcome {
            // Programs may ask again and again and look at nothing: what came in between is taken in here.
            Ok(_) if self.started.count >= UNWATCHED_MAX => {
                self.progress(queues);
            }
            Ok(now_ns) => {
                self.transmit(now_ns);
                self.settle(queues);
            }
            Err(number) => {
                self.buffers.give_back(order.result.buffer);
                if let Given::Data(lent) = given {
                    self.buffers.give_back(lent.buffer);
                }
                if number == libc::EAGAIN {
                    self.progress(queues);
                }
            }
        }
        outcome.map(|_now_ns| ())
    }

    /// Returns when it began.
    fn begin(&mut self, order: &Order, given: Given<'_>) -> Result<u64, Number> {
        let peer = self.peer(order.to)?;
        self.reach(order.to, peer);
        // Whatever follows the first message must be possible too.
        if self.machine.sends_room() < 2 || self.started.count >= STARTED_MAX {
            return Err(libc::EAGAIN);
        }
        let (data, awaited_count) = match given {
            Given::Operands(_) => (BufferId(0), 1),
            Given::Data(lent) => (lent.buffer, 2),
        };
        let index = self.started.operations.insert(Operation {
            context: order.context,
            flags: order.flags,
            is_told: order.is_told,
            result: order.result,
            data,
            error: None,
            awaited_count,
            is_void: false,
        });
        let outcome = self.begin_numbered(order, given, peer, index);
        match outcome {
            Ok(_) => self.started.count += 1,
            Err(_) => {
                // Its number is used again only when the machine knows nothing of it any more.
                let is_void = |operation: &Operation| operation.is_void;
                if !self.started.operations.find(index).is_some_and(is_void) {
                    self.started.operations.remove(index);
                }
            }
        }
        outcome
    }

    fn begin_numbered(
        &mut self,
        order: &Order,
        given: Given<'_>,
        peer: PeerId,
        index: u64,
    ) -> Result<u64, Number> {
        let number = self.started.number(index)?;
        let now_ns = self.now_ns();
        let answer = Receive {
            source: Some(peer),
            channel: Channel::Remote,
            match_bits: Kind::Answer.bits(number),
            ignore_bits: 0,
            buffer: order.result.buffer,
            offset: 0,
            length_bytes: order.result.length_bytes,
            multi: None,
            context: STARTED | index,
        };
        let posted = self.machine.receive(now_ns, &answer, &mut self.buffers).map_err(number_of)?;
        let mut bytes = std::mem::take(&mut self.started.request);
        bytes.clear();
        order.request.encode(&mut bytes);
        if let Given::Operands(operands) = given {
            bytes.extend_from_slice(operands);
        }
        let outcome = self.send_bytes(now_ns, peer, Kind::Request.bits(number), None, &bytes);
        self.started.request = bytes;
        if let Err(error) = outcome {
            if let Some(operation) = self.started.operations.find_mut(index) {
                operation.is_void = true;
            }
            self.machine.cancel(posted);
            return Err(error);
        }
        if let Given::Data(lent) = given {
            let send = Send {
                peer,
                channel: Channel::Remote,
                match_bits: Kind::Data.bits(number),
                data: None,
                buffer: lent.buffer,
                offset: 0,
                length_bytes: lent.length_bytes,
                mode: SendMode::Standard,
                context: STARTED | DATA | index,
            };
            // There is room, and the peer took the request: were it refused all the same, the target would say so.
            if let Err(error) = self.machine.send(now_ns, &send, &self.buffers)
                && let Some(operation) = self.started.operations.find_mut(index)
            {
                operation.error = Some(number_of(error));
                operation.awaited_count -= 1;
            }
        }
        Ok(now_ns)
    }

    /// Sends bytes that are copied at once.
    pub(super) fn send_bytes(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        match_bits: u64,
        data: Option<u64>,
        bytes: &[u8],
    ) -> Result<(), Number> {
        // SAFETY: the bytes are read before this call returns.
        let lent = unsafe { Lent::whole(bytes.as_ptr(), bytes.len()) }?;
        let send = Send {
            peer,
            channel: Channel::Remote,
            match_bits,
            data,
            buffer: lent.buffer,
            offset: 0,
            length_bytes: lent.length_bytes,
            mode: SendMode::Inject,
            context: 0,
        };
        self.machine.send(now_ns, &send, &self.buffers).map_err(number_of)
    }

    /// The answer came, or the data have left.
    pub(super) fn complete_started(&mut self, completion: &Completion, queues: &mut Queues<'_>) {
        let index = completion.context & INDEX;
        let Some(operation) = self.started.operations.find_mut(index) else { return };
        if let Some(error) = error_of(completion, operation.result.length_bytes) {
            operation.error.get_or_insert(error);
        }
        operation.awaited_count = operation.awaited_count.saturating_sub(1);
        if operation.awaited_count > 0 && !operation.is_void {
            return;
        }
        let operation = *operation;
        self.started.operations.remove(index);
        if operation.is_void {
            return;
        }
        self.started.count -= 1;
        self.buffers.give_back(operation.result.buffer);
        self.buffers.give_back(operation.data);
        let counter = if operation.flags & abi::READ != 0 {
            self.binding.read_counter
        } else {
            self.binding.write_counter
        };
        queues.count(counter, operation.error.is_none());
        if !operation.is_told && operation.error.is_none() {
            return;
        }
        let error = operation.error.map(|number| Error { number, cut_bytes: 0 });
        let ended = self.ended(operation.flags, operation.context, None);
        queues.push(self.binding.send_queue, Ended { error, ..ended });
    }
}

/// How an operation failed, if its answer or the end of its data says so.
fn error_of(completion: &Completion, expected_bytes: u64) -> Option<Number> {
    match completion.status {
        Status::PeerFailed(failure) => return Some(number_of_failure(failure)),
        Status::Cancelled => return Some(libc::ECANCELED),
        Status::Truncated => return Some(libc::EPROTO),
        Status::Ok => {}
    }
    let messaging::Operation::Receive { message: Some(answer), .. } = completion.operation else {
        return None;
    };
    match answer.data {
        Some(code) => Some(Refusal::number_of(code)),
        None => (answer.length_bytes != expected_bytes).then_some(libc::EPROTO),
    }
}
