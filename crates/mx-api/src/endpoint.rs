//! An endpoint of the program: the engine below it, its requests, and what the program has said of it.
//!
//! One lock guards it all. It is free while a thread waits and while the handler of unexpected messages runs.

use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Instant;

use clearstream_fi::engine::{
    End, EndError, Engine, EngineError, Opening, PeerId, SendMode, UnexpectedId,
};
use clearstream_fi::name::Name;

use crate::abi::{self, EndpointAddress, ErrorHandler, UnexpectedHandler};
use crate::boards::{self, Board};
use crate::connecting::Question;
use crate::failing::{Code, StatusCode};
use crate::requests::{Ended, Kind, Request, Requests};

/// Sends up to this length complete at once: MX's eager messages, which a program may send without the receiver's help.
pub(crate) const COPY_BYTES_MAX: u32 = 32 * 1024;

/// The handler of unexpected messages is given the bytes of messages up to this length, as Open-MX has it.
const HANDLER_BYTES_MAX: usize = 4096;

/// What the program says when it opens an endpoint, and its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    /// Its place in the registry.
    pub(crate) index: usize,
    pub(crate) filter: u32,
    /// The bits of a context id; receives compare all of them.
    pub(crate) context_mask: u64,
}

/// The handler of unexpected messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handler {
    pub(crate) function: UnexpectedHandler,
    /// The program's pointer.
    pub(crate) context: usize,
}

/// What the program keeps of a peer.
#[derive(Debug, Clone, Copy, Default)]
struct Peer {
    is_known: bool,
    context: usize,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) own: Own,
    pub(crate) engine: Engine,
    pub(crate) requests: Requests,
    pub(crate) questions: Vec<Question>,
    pub(crate) questions_count: u32,
    /// By the engine's number.
    peers: Vec<Peer>,
    pub(crate) handler: Option<Handler>,
    /// The thread that runs it.
    in_handler: Option<ThreadId>,
    /// The program has disabled progress.
    pub(crate) is_stopped: bool,
}

/// An endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) own: Own,
    pub(crate) board: u32,
    /// Of errors; none: the program's.
    handler: Mutex<ErrorHandler>,
    state: Mutex<Option<State>>,
    /// How often sleepers were woken.
    pub(crate) wakeups_count: AtomicU32,
}

impl std::fmt::Debug for abi::Parameter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Parameter").field("key", &self.key).finish_non_exhaustive()
    }
}

/// An endpoint while it is locked.
pub(crate) struct Locked<'a>(MutexGuard<'a, Option<State>>);

impl std::ops::Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect("`lock` has seen it")
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("`lock` has seen it")
    }
}

impl Endpoint {
    /// Opens endpoint `id` of a board, or with [`abi::ANY`] the first free one.
    pub(crate) fn open(
        own: Own,
        handler: ErrorHandler,
        number: u32,
        board: &Board,
        id: u32,
    ) -> Result<Self, Code> {
        let ids = if id == abi::ANY { 0..boards::ENDPOINTS_MAX } else { id..id + 1 };
        for id in ids.clone() {
            let opening = Opening {
                interface: board.interface.clone(),
                ip: board.ip,
                port: boards::port(id),
                unique: boards::unique(id),
                key: boards::key,
                copy_bytes_max: COPY_BYTES_MAX.into(),
            };
            let engine = match Engine::open(&opening) {
                Ok(engine) => engine,
                Err(EngineError::InUse) if ids.len() > 1 => continue,
                Err(EngineError::InUse) => return Err(Code::Busy),
                Err(_) => return Err(Code::NoResources),
            };
            let state = State {
                own,
                engine,
                requests: Requests::default(),
                questions: Vec::new(),
                questions_count: 0,
                peers: Vec::new(),
                handler: None,
                in_handler: None,
                is_stopped: false,
            };
            return Ok(Self {
                own,
                board: number,
                handler: Mutex::new(handler),
                state: Mutex::new(Some(state)),
                wakeups_count: AtomicU32::new(0),
            });
        }
        Err(Code::Busy)
    }

    /// Its handler of errors.
    pub(crate) fn handler(&self) -> ErrorHandler {
        *self.handler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets it; returns the one before.
    pub(crate) fn set_handler(&self, handler: ErrorHandler) -> ErrorHandler {
        let mut current = self.handler.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, handler)
    }

    /// # Errors
    /// The endpoint was closed meanwhile, belongs to the parent of a fork, or a call on it has panicked.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, Code> {
        let state = self.state.lock().map_err(|_poisoned| Code::BadBadBad)?;
        match &*state {
            Some(open) if open.engine.is_own() => Ok(Locked(state)),
            _ => Err(Code::BadEndpoint),
        }
    }

    /// As [`lock`](Self::lock), after progress: what came is taken in, and what no receive matched is shown to the handler.
    ///
    /// # Errors
    /// Also inside the handler, which may not wait for what only its own end lets happen.
    pub(crate) fn advance(&self) -> Result<Locked<'_>, Code> {
        let mut state = self.lock()?;
        if state.in_handler == Some(std::thread::current().id()) {
            return Err(Code::CloseInHandler);
        }
        if state.is_stopped {
            return Ok(state);
        }
        state.engine.progress();
        state.settle();
        while let Some((handler, unmatched)) = state.next_unmatched_for_handler() {
            drop(state);
            let data = unmatched.bytes.as_ref().map_or(std::ptr::null(), |bytes| bytes.as_ptr());
            let context = std::ptr::with_exposed_provenance_mut::<c_void>(handler.context);
            // SAFETY: the program's handler; the data lives until it returns, and it may only read it.
            let action = unsafe {
                (handler.function)(
                    context,
                    unmatched.source,
                    unmatched.match_info,
                    unmatched.length_bytes,
                    data.cast_mut().cast(),
                )
            };
            state = self.lock()?;
            state.in_handler = None;
            if action == abi::RECV_FINISHED {
                state.engine.discard(unmatched.id);
            }
            state.settle();
        }
        Ok(state)
    }

    /// Closes it: what was sent is delivered first, as long as the peers answer.
    pub(crate) fn close(&self) -> Result<(), Code> {
        let mut state = self.lock()?;
        if state.in_handler.is_some() {
            return Err(Code::CloseInHandler);
        }
        let state = state.0.take();
        if let Some(state) = state {
            state.engine.close();
        }
        Ok(())
    }
}

/// A message for the handler.
#[derive(Debug)]
struct Unmatched {
    id: UnexpectedId,
    source: EndpointAddress,
    match_info: u64,
    length_bytes: u32,
    bytes: Option<Vec<u8>>,
}

impl State {
    /// The next message that no receive has matched, while there is a handler that does not run.
    fn next_unmatched_for_handler(&mut self) -> Option<(Handler, Unmatched)> {
        let handler = self.handler.filter(|_| self.in_handler.is_none())?;
        let (id, arrived, bytes) = self.engine.next_unmatched(HANDLER_BYTES_MAX)?;
        self.in_handler = Some(std::thread::current().id());
        let unmatched = Unmatched {
            id,
            source: self.address_of(arrived.source),
            match_info: arrived.match_bits,
            length_bytes: length(arrived.length_bytes),
            bytes,
        };
        Some((handler, unmatched))
    }

    /// Records what ended.
    pub(crate) fn settle(&mut self) {
        while let Some(end) = self.engine.next_end() {
            self.record(&end);
        }
        self.settle_questions();
    }

    fn record(&mut self, end: &End) {
        let number = end.context as u64;
        let code = StatusCode::of_end(end.error);
        match (self.requests.get(number).map(|request| request.kind), end.source) {
            (Some(Kind::Receive), Some(source)) => {
                let ended = Ended {
                    code,
                    source: self.address_of(source),
                    length_bytes: length(end.length_bytes),
                    received_bytes: length(end.received_bytes),
                };
                self.requests.end(number, Some(end.match_bits), ended);
            }
            _ => self.requests.end_without_message(number, code),
        }
    }

    /// Ends receives and connects whose time is over.
    pub(crate) fn end_overdue(&mut self) {
        for number in self.requests.overdue(Instant::now()) {
            self.cancel(number, StatusCode::Timeout);
        }
    }

    /// Ends a receive that no message has matched, or a connect that waits. False: it has ended, or will.
    pub(crate) fn cancel(&mut self, number: u64, code: StatusCode) -> bool {
        let Some(request) = self.requests.get(number).copied() else { return false };
        if request.is_ended() {
            return false;
        }
        if request.kind == Kind::Connect {
            self.questions.retain(|question| question.request != number);
            self.requests.end_without_message(number, code);
            return true;
        }
        self.engine.cancel(number as usize);
        let mut is_cancelled = false;
        while let Some(end) = self.engine.next_end() {
            if end.context as u64 == number && end.error == Some(EndError::Cancelled) {
                is_cancelled = true;
                self.requests.end_without_message(number, code);
            } else {
                self.record(&end);
            }
        }
        is_cancelled
    }

    /// The address by which the program knows a peer.
    pub(crate) fn address_of(&self, peer: PeerId) -> EndpointAddress {
        let address = self.engine.peer_address(peer);
        let (nic_id, endpoint_id) = address.map_or((0, 0), |address| boards::parts(&address));
        let at = u64::from(peer.0)
            | (self.own.index as u64 + 1) << PEER_BITS
            | u64::from(endpoint_id) << (PEER_BITS + INDEX_BITS);
        EndpointAddress { stuff: [nic_id, at] }
    }

    /// Has the engine know the name of a peer that has itself connected.
    pub(crate) fn know(&mut self, peer: PeerId) -> Result<(), Code> {
        if self.peer(peer).is_known {
            return Ok(());
        }
        let address = self.engine.peer_address(peer).ok_or(Code::BadEndpoint)?;
        let name = Name { address, key: boards::key(&address) };
        self.engine.peer(&name).map_err(|_error| Code::NoResources)?;
        self.peer(peer).is_known = true;
        Ok(())
    }

    fn peer(&mut self, peer: PeerId) -> &mut Peer {
        let index = peer.0 as usize;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, Peer::default());
        }
        &mut self.peers[index]
    }

    /// The peer of an address that this endpoint has given.
    ///
    /// # Errors
    /// It is another endpoint's, or none's.
    pub(crate) fn peer_at(&self, address: &EndpointAddress) -> Result<PeerId, Code> {
        let peer = PeerId(address.stuff[1] as u32);
        let is_own = endpoint_index(address) == Some(self.own.index);
        let is_peer = is_own && self.engine.peer_address(peer).is_some();
        is_peer.then_some(peer).ok_or(Code::BadEndpoint)
    }

    /// The program's pointer for a peer.
    pub(crate) fn context(&mut self, peer: PeerId) -> &mut usize {
        &mut self.peer(peer).context
    }

    /// Starts a send to the request's peer.
    ///
    /// # Safety
    /// The pieces may be read until the request has ended.
    pub(crate) unsafe fn send(
        &mut self,
        pieces: &[libc::iovec],
        mode: SendMode,
        request: Request,
    ) -> Result<u64, Code> {
        let peer = self.peer_at(&request.peer)?;
        self.know(peer)?;
        let match_info = request.match_info;
        let number = self.requests.insert(request);
        // SAFETY: the caller's promise; the engine's end is the request's.
        match unsafe { self.engine.send(peer, match_info, pieces, mode, number as usize) } {
            Ok(()) => {}
            Err(EngineError::PeerFailed) => {
                let failure = self.engine.failure(peer);
                let code = failure.map_or(StatusCode::EndpointClosed, StatusCode::of_failure);
                self.requests.end_without_message(number, code);
            }
            Err(error) => {
                self.requests.remove(number);
                return Err(code_of(error));
            }
        }
        self.settle();
        Ok(number)
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The pieces may be written until the request has ended.
    pub(crate) unsafe fn receive(
        &mut self,
        pieces: &[libc::iovec],
        mask: u64,
        request: Request,
    ) -> Result<u64, Code> {
        let match_info = request.match_info;
        let number = self.requests.insert(request);
        // SAFETY: the caller's promise; the engine's end is the request's.
        match unsafe { self.engine.receive(match_info, !mask, pieces, number as usize) } {
            Ok(()) => {}
            Err(error) => {
                self.requests.remove(number);
                return Err(code_of(error));
            }
        }
        self.settle();
        Ok(number)
    }
}

/// Bits of an address: the peer's number, then the endpoint's place in the registry and 1, then the peer's endpoint id.
const PEER_BITS: u32 = 32;
const INDEX_BITS: u32 = 16;

/// The place in the registry of the endpoint that gave an address.
pub(crate) fn endpoint_index(address: &EndpointAddress) -> Option<usize> {
    let index = address.stuff[1] >> PEER_BITS & ((1 << INDEX_BITS) - 1);
    (index as usize).checked_sub(1)
}

/// The endpoint id in an address.
pub(crate) fn endpoint_id(address: &EndpointAddress) -> u32 {
    (address.stuff[1] >> (PEER_BITS + INDEX_BITS)) as u32
}

fn length(bytes: u64) -> u32 {
    bytes.try_into().unwrap_or(u32::MAX)
}

fn code_of(error: EngineError) -> Code {
    match error {
        EngineError::Invalid => Code::BadSegmentMemory,
        _ => Code::NoResources,
    }
}
