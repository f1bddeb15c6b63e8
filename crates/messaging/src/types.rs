//! The types of the machine's inputs and outputs.

/// The address of an endpoint, opaque to the machine: the transport stores in it what it needs to
/// reach the endpoint (an IP address and a port, a MAC address and an endpoint number). Addresses
/// are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 32]);

/// A peer's index in the machine's table, in the order of insertion from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A buffer of the owner, by a number that the owner chooses. The machine reaches its bytes only
/// through [`Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferId(pub u64);

/// The owner's buffers. Offsets and lengths stay within the ranges passed to
/// [`send`](crate::Machine::send) and [`receive`](crate::Machine::receive).
pub trait Memory {
    /// Copies message bytes into a buffer, from `offset` on.
    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]);
    /// Appends `bytes_count` bytes of a buffer, from `offset` on, to `into`.
    fn read(&self, buffer: BufferId, offset: u64, bytes_count: usize, into: &mut Vec<u8>);
    /// The address at which a peer that can read this process's memory finds the bytes of a buffer from
    /// `offset` on; none where they are not in one piece, or no peer can read them.
    fn place(&self, buffer: BufferId, offset: u64) -> Option<u64> {
        let _ = (buffer, offset);
        None
    }
}

/// How packets to a peer travel, where that differs from what [`Config`](crate::Config) says of all peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Size limit of a packet in bytes, 256 to 65535.
    pub packet_bytes_max: u16,
    /// Either end may be able to read the other's memory: announcements name the address of the message, and
    /// [`poll_copy`](crate::Machine::poll_copy) returns the messages to copy from there.
    pub is_direct: bool,
}

/// A message for the owner to copy from its sender's memory. Lengths stay within the receive's room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRequest {
    /// Names the copy in [`end_copy`](crate::Machine::end_copy).
    pub id: CopyId,
    /// The sender.
    pub peer: PeerId,
    /// Address of the first byte in the sender's memory, as the sender claims.
    pub place: u64,
    /// The buffer of the receive.
    pub buffer: BufferId,
    /// Where the message begins in the buffer, in bytes.
    pub offset: u64,
    /// Bytes to copy, at least 1.
    pub length_bytes: u64,
}

/// A copy in progress. Once its session has ended it names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyId(pub(crate) u64);

/// The kinds of messages. A receive takes only messages of its own channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Messages with match bits: those of MX, and libfabric's tagged ones.
    Tagged,
    /// libfabric's untagged messages.
    Plain,
    /// Requests for access to memory, their data and their answers: messages of the owner's own, which no
    /// program sees.
    Remote,
}

impl Channel {
    pub(crate) const COUNT: usize = 3;

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Tagged, Self::Plain, Self::Remote].into_iter().find(|channel| *channel as u8 == byte)
    }
}

/// When a send completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMode {
    /// When its buffer may be used again.
    Standard,
    /// When a receive has matched it and its buffer may be used again.
    Synchronous,
    /// At once, without a [`Completion`]: the bytes are copied. Only up to
    /// [`Config::copy_bytes_max`](crate::Config).
    Inject,
}

/// A message to send.
#[derive(Debug, Clone, Copy)]
pub struct Send {
    /// The destination.
    pub peer: PeerId,
    /// The channel whose receives may take it.
    pub channel: Channel,
    /// Compared with the match bits of receives.
    pub match_bits: u64,
    /// 64 bits for the receiver's completion (libfabric's remote CQ data).
    pub data: Option<u64>,
    /// The buffer that holds the message.
    pub buffer: BufferId,
    /// Where the message begins in the buffer, in bytes.
    pub offset: u64,
    /// Length of the message.
    pub length_bytes: u64,
    /// When the send completes.
    pub mode: SendMode,
    /// Returned in its [`Completion`].
    pub context: u64,
}

/// A receive to post.
#[derive(Debug, Clone, Copy)]
pub struct Receive {
    /// Take messages only from this peer; none: from any.
    pub source: Option<PeerId>,
    /// The channel of the messages to take.
    pub channel: Channel,
    /// A message matches if its match bits equal these in every bit that `ignore_bits` leaves 0.
    pub match_bits: u64,
    /// Bits that are not compared. (The mask of MX has the opposite sense.)
    pub ignore_bits: u64,
    /// The buffer that the message is written to.
    pub buffer: BufferId,
    /// Where the message begins in the buffer, in bytes.
    pub offset: u64,
    /// Room in the buffer. A longer message is cut off and completes with [`Status::Truncated`].
    pub length_bytes: u64,
    /// With `Some(least)`: the receive takes several messages, one behind the other, until fewer
    /// than `least` bytes are left.
    pub multi: Option<u64>,
    /// Returned in each [`Completion`].
    pub context: u64,
}

/// A posted receive, for [`cancel`](crate::Machine::cancel). It may be kept indefinitely: once the
/// receive has completed, it names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceiveId(pub(crate) u64);

/// A message removed from matching by [`claim`](crate::Machine::claim) and not yet received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimId(pub(crate) u64);

/// A message that no receive has matched, returned by [`poll_unexpected`](crate::Machine::poll_unexpected). Once a
/// receive or a claim has taken the message it names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnexpectedId(pub(crate) u64);

/// The envelope of a message that has arrived; its bytes may still be on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// The sender.
    pub source: PeerId,
    /// The sender's match bits.
    pub match_bits: u64,
    /// The sender's completion data.
    pub data: Option<u64>,
    /// Length of the whole message, even where it is cut off.
    pub length_bytes: u64,
}

/// What a [`Completion`] completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A send.
    Send,
    /// A receive, with the message it took.
    Receive {
        /// The message; none where the receive ended without one.
        message: Option<Arrived>,
        /// Where the message begins in the receive's buffer, in bytes.
        offset: u64,
        /// How many bytes of it were written there.
        received_bytes: u64,
        /// Nothing more will be written to the buffer. False only for a multi-message receive that
        /// goes on.
        is_buffer_released: bool,
    },
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Successfully.
    Ok,
    /// The message was longer than the receive's room.
    Truncated,
    /// Cancelled before a message matched.
    Cancelled,
    /// The peer failed before the operation ended.
    PeerFailed(Failure),
}

/// Why the session with a peer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Neither the peer nor its host answered in the configured time.
    Silent,
    /// Its host reported that nobody listens at the address.
    Refused,
    /// The peer closed its endpoint.
    Closed,
    /// The peer restarted under the same address, or gave this session up.
    Restarted,
    /// The peer broke the protocol.
    Violation,
}

/// The end of an operation. Each [`send`](crate::Machine::send) other than an
/// [`Inject`](SendMode::Inject) has exactly one, and so has each receive; a multi-message receive
/// has one per message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The context that the operation was started with.
    pub context: u64,
    /// What completed.
    pub operation: Operation,
    /// How it ended.
    pub status: Status,
}

/// Something the owner should know or do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A peer that is not in the owner's table opened a session and was added.
    PeerAppeared(PeerId),
    /// A peer failed; its operations have completed with [`Status::PeerFailed`]. With
    /// [`Failure::Restarted`] a new session may already be open.
    PeerFailed(PeerId, Failure),
    /// Probe the peer's host in a way that its kernel answers without the process, and report the
    /// answer with [`host_answered`](crate::Machine::host_answered) or
    /// [`port_refused`](crate::Machine::port_refused).
    ProbeHost(PeerId),
}

/// Why an operation was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// Out of resources for now: poll for transmits and completions, then try again.
    #[error("too many operations are under way: progress the endpoint, then try again")]
    Busy,
    /// The peer is not in the table.
    #[error("peer {0} is not in the table")]
    UnknownPeer(u32),
    /// The peer has failed; [`reconnect`](crate::Machine::reconnect) permits a new session.
    #[error("peer {0} failed ({1:?}): reconnect it first")]
    PeerFailed(u32, Failure),
    /// An inject longer than [`Config::copy_bytes_max`](crate::Config).
    #[error("a message of {length_bytes} bytes is too long to be copied (most is {max_bytes})")]
    TooLong {
        /// Length of the message.
        length_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// The claimed message was received already, or its sender failed.
    #[error("the message was claimed and received before, or its sender failed")]
    NoClaim,
}
