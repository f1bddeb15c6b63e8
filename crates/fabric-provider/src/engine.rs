//! An endpoint for libraries that give programs another interface than libfabric's (`mx-api`): the same machine,
//! transports, shared memory and presence, with peers instead of address vectors and one queue of what ended.
//!
//! Progress is made only in calls. A child of a `fork` has none of its parent's endpoints.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use messaging::{
    Address, Arrived, Channel, Counters, Failure, PeerId, SendMode, UnexpectedId, derived_key,
};

use crate::abi;
use crate::buffers::Lent;
use crate::endpoint::{Binding, Endpoint, Incoming, Outgoing, Queues, Site};
use crate::fence::Number;

use crate::interfaces::{self, Place};
use crate::name::Name;
use crate::queue::Queue;
use crate::remote::regions::Regions;
use crate::{GENERATION, count_forks};

/// Room in the peer table, at least.
const PEERS_COUNT: usize = 1024;

/// How an endpoint is opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The interface of `ip`.
    pub interface: String,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Its UDP port, and the TCP port by which others learn that it is there.
    pub port: u16,
    /// Eight bytes of its address that no other endpoint has.
    pub unique: [u8; 8],
    /// Its name's key, of its address.
    pub key: fn(&Address) -> [u8; 16],
    /// Sends up to this length complete at once: they are copied.
    pub copy_bytes_max: u64,
}

/// The interface and the address that endpoints use: `FI_CLEARSTREAM_IFACE`'s, or the one that messages to other hosts
/// leave from.
///
/// # Errors
/// A line: there is none.
pub fn own_place() -> Result<(String, IpAddr), String> {
    interfaces::choose().map(|place| (place.interface, place.ip))
}

/// What a send or a receive came to.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// The word that the operation was started with.
    pub context: usize,
    /// The sender, of a receive that took a message.
    pub source: Option<PeerId>,
    /// Match bits of that message.
    pub match_bits: u64,
    /// Its whole length, and how much of it was written.
    pub length_bytes: u64,
    /// Bytes written to the buffer.
    pub received_bytes: u64,
    /// How it failed.
    pub error: Option<EndError>,
}

/// How an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndError {
    /// The message was longer than the buffer.
    Truncated,
    /// Cancelled before a message matched.
    Cancelled,
    /// The peer closed its endpoint, or nobody listens there any more.
    Closed,
    /// The peer or its host did not answer.
    Silent,
    /// The peer restarted, or broke the protocol.
    Lost,
}

/// Why a call did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Too much is under way.
    #[error("too many operations or peers: make progress, then try again")]
    Busy,
    /// The peer has failed; [`Engine::reconnect`] permits a new session.
    #[error("the peer has failed")]
    PeerFailed,
    /// Another endpoint has the port.
    #[error("another endpoint has the port")]
    InUse,
    /// A buffer is a null pointer, or a number is not one of this endpoint.
    #[error("an argument is invalid")]
    Invalid,
    /// An error number of the kernel's.
    #[error("the system refused: error number {0}")]
    System(Number),
}

impl From<Number> for EngineError {
    fn from(number: Number) -> Self {
        match number {
            libc::EAGAIN => Self::Busy,
            libc::EADDRINUSE => Self::InUse,
            libc::EINVAL | libc::EFAULT | libc::EMSGSIZE => Self::Invalid,
            libc::ETIMEDOUT
            | libc::ECONNREFUSED
            | libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::EIO => Self::PeerFailed,
            other => Self::System(other),
        }
    }
}

/// An endpoint.
#[derive(Debug)]
pub struct Engine {
    endpoint: Endpoint,
    queues: Vec<Option<Queue>>,
    generation: u32,
}

impl Engine {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// [`EngineError::InUse`] where another has the port; what the kernel refuses.
    pub fn open(opening: &Opening) -> Result<Self, EngineError> {
        count_forks();
        let at = SocketAddr::new(opening.ip.into(), opening.port);
        let address = Name::new(at, None, opening.unique, [0; 16]).address;
        let site = Site {
            place: Place { interface: opening.interface.clone(), ip: opening.ip.into() },
            port: opening.port,
            unique: opening.unique,
            key: (opening.key)(&address),
            copy_bytes_max: opening.copy_bytes_max,
            tells_peers: true,
        };
        let binding = Binding { send_queue: Some(0), receive_queue: Some(0), ..Binding::default() };
        let mut endpoint = Endpoint::open_at(binding, PEERS_COUNT, &site)?;
        endpoint.is_enabled = true;
        let queues = vec![Some(Queue::new(size_of::<abi::CqEntry>()))];
        Ok(Self { endpoint, queues, generation: GENERATION.load(Ordering::Relaxed) })
    }

    /// Whether this process opened it, not a parent.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
    }

    /// The endpoint's own name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.endpoint.name
    }

    /// The peer of this name, which may be the endpoint itself.
    ///
    /// # Errors
    /// [`EngineError::Busy`]: the table is full.
    pub fn peer(&mut self, name: &Name) -> Result<PeerId, EngineError> {
        Ok(self.endpoint.peer_of(name)?)
    }

    /// The address of a peer; none if there is none of this number.
    #[must_use]
    pub fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.endpoint.peer_address(peer)
    }

    /// Why a peer failed, if it did.
    #[must_use]
    pub fn failure(&self, peer: PeerId) -> Option<Failure> {
        self.endpoint.failure(peer)
    }

    /// Permits a peer that failed a new session.
    pub fn reconnect(&mut self, peer: PeerId) {
        self.endpoint.reconnect(peer);
    }

    /// Whether messages to a peer go through memory that both share.
    #[must_use]
    pub fn is_local(&self, peer: PeerId) -> bool {
        self.endpoint.is_local(peer)
    }

    /// Sends a message of pieces of memory.
    ///
    /// # Errors
    /// The peer has failed or is none; a piece is a null pointer; too much is under way. Nothing was started.
    ///
    /// # Safety
    /// Each piece may be read until [`next_end`](Self::next_end) returns the end with this context.
    pub unsafe fn send(
        &mut self,
        peer: PeerId,
        match_bits: u64,
        pieces: &[libc::iovec],
        mode: SendMode,
        context: usize,
    ) -> Result<(), EngineError> {
        // SAFETY: the caller's promise.
        let lent = unsafe { self.endpoint.buffers.pieces(pieces) }?;
        let outgoing = Outgoing {
            to: peer.0.into(),
            channel: Channel::Tagged,
            tag: match_bits,
            data: None,
            lent,
            mode,
            context,
            is_told: true,
        };
        Ok(self.endpoint.send(&outgoing, &mut queues(&mut self.queues))?)
    }

    /// Sends 128 bits beside the messages: the peer's [`next_note`](Self::next_note) returns them.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_note(&mut self, peer: PeerId, bits: u64, data: u64) -> Result<(), EngineError> {
        let outgoing = Outgoing {
            to: peer.0.into(),
            channel: Channel::Plain,
            tag: bits,
            data: Some(data),
            lent: Lent::NOTHING,
            mode: SendMode::Inject,
            context: 0,
            is_told: false,
        };
        Ok(self.endpoint.send(&outgoing, &mut queues(&mut self.queues))?)
    }

    /// The next note of a peer: who sent it, its bits and its data.
    pub fn next_note(&mut self) -> Option<(PeerId, u64, u64)> {
        let arrived = self.endpoint.take_envelope(Channel::Plain, &mut queues(&mut self.queues))?;
        Some((arrived.source, arrived.match_bits, arrived.data.unwrap_or(0)))
    }

    /// Posts a receive from any peer; bits that `ignore_bits` has are not compared.
    ///
    /// # Errors
    /// A piece is a null pointer, or too much is under way. Nothing was started.
    ///
    /// # Safety
    /// Each piece may be written until [`next_end`](Self::next_end) returns the end with this context.
    pub unsafe fn receive(
        &mut self,
        match_bits: u64,
        ignore_bits: u64,
        pieces: &[libc::iovec],
        context: usize,
    ) -> Result<(), EngineError> {
        // SAFETY: the caller's promise.
        let lent = unsafe { self.endpoint.buffers.pieces(pieces) }?;
        let incoming = Incoming {
            from: abi::ADDR_UNSPEC,
            channel: Channel::Tagged,
            tag: match_bits,
            ignore: ignore_bits,
            lent,
            is_multi: false,
            context,
            is_told: true,
            is_discarded: false,
        };
        Ok(self.endpoint.receive(&incoming, &mut queues(&mut self.queues))?)
    }

    /// Takes a receive back; its end tells whether a message had matched before.
    pub fn cancel(&mut self, context: usize) {
        self.endpoint.cancel(context, &mut queues(&mut self.queues));
    }

    /// The message that such a receive would take now.
    #[must_use]
    pub fn probe(&self, match_bits: u64, ignore_bits: u64) -> Option<Arrived> {
        self.endpoint.matching(Channel::Tagged, match_bits, ignore_bits)
    }

    /// The next message that no receive has matched, once, in the order of arrival, with its bytes where they are here
    /// and no more than `bytes_max`.
    pub fn next_unmatched(
        &mut self,
        bytes_max: usize,
    ) -> Option<(UnexpectedId, Arrived, Option<Vec<u8>>)> {
        self.endpoint.next_unmatched(Channel::Tagged, bytes_max)
    }

    /// Takes such a message and throws it away, if nothing has taken it.
    pub fn discard(&mut self, id: UnexpectedId) {
        self.endpoint.discard(id, &mut queues(&mut self.queues));
    }

    /// Takes packets in and sends what is due. True: packets came.
    pub fn progress(&mut self) -> bool {
        self.endpoint.progress(&mut queues(&mut self.queues))
    }

    /// What ended next.
    pub fn next_end(&mut self) -> Option<End> {
        let ended = self.queues.first_mut()?.as_mut()?.pop_any()?;
        let received_bytes = ended.entry.len as u64;
        let cut_bytes = ended.error.map_or(0, |error| error.cut_bytes as u64);
        let source = u32::try_from(ended.source).ok().map(PeerId);
        Some(End {
            context: ended.entry.op_context,
            source,
            match_bits: ended.entry.tag,
            length_bytes: received_bytes + cut_bytes,
            received_bytes,
            error: ended.error.map(|error| end_error(error.number)),
        })
    }

    /// A poll of the program found what it waits for, or did not. True: somebody else should run.
    pub fn note_poll(&mut self, has_found: bool) -> bool {
        let queue = self.queues.first_mut().and_then(Option::as_mut);
        queue.is_some_and(|queue| queue.note_poll(has_found))
    }

    /// Others ran for so long since.
    pub fn note_yield(&mut self, took: Duration) {
        if let Some(queue) = self.queues.first_mut().and_then(Option::as_mut) {
            queue.note_yield(took);
        }
    }

    /// Counts since the endpoint was opened.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }

    /// Waits until the peers have what was sent to them, for 5 s at most, and tells them that the endpoint closes.
    pub fn close(mut self) {
        self.endpoint.close(&mut queues(&mut self.queues));
    }
}

fn queues(queues: &mut [Option<Queue>]) -> Queues<'_> {
    /// Programs of these libraries register no memory.
    static NO_REGIONS: LazyLock<Regions> = LazyLock::new(Regions::default);
    Queues { queues, counters: &mut [], regions: &NO_REGIONS }
}

fn end_error(number: Number) -> EndError {
    match number {
        abi::ETRUNC => EndError::Truncated,
        libc::ECANCELED => EndError::Cancelled,
        libc::ECONNREFUSED | libc::ECONNRESET => EndError::Closed,
        libc::ETIMEDOUT => EndError::Silent,
        _ => EndError::Lost,
    }
}
