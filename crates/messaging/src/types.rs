//! What goes into the machine and comes out of it.

/// An endpoint's name on the network, opaque to the machine: a transport puts there what it needs
/// to reach it (an IP address and a port, a MAC address and an endpoint). Two endpoints never have
/// the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 32]);

/// A peer by its place in the machine's table: 0, 1, 2 … in the order of their introduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A buffer of the owner, by whatever number the owner gave it. The machine never sees its bytes
/// but through [`Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferId(pub u64);

/// The owner's buffers. Offsets and lengths stay within what was given to
/// [`send`](crate::Machine::send) and [`receive`](crate::Machine::receive).
pub trait Memory {
    /// Copies message bytes into a buffer.
    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]);
    /// Appends bytes of a buffer to `into`.
    fn read(&self, buffer: BufferId, offset: u64, bytes_count: usize, into: &mut Vec<u8>);
}

/// Messages and receives of one channel never meet those of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// With match bits: MX messages, libfabric's tagged ones.
    Tagged,
    /// libfabric's messages without tags.
    Plain,
}

impl Channel {
    pub(crate) const COUNT: usize = 2;

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Tagged, Self::Plain].into_iter().find(|channel| *channel as u8 == byte)
    }
}

/// When a send completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMode {
    /// When its buffer may be used again.
    Standard,
    /// When a receive was matched with it, and its buffer may be used again.
    Synchronous,
    /// At once: the bytes are copied. Only up to [`Config::copy_bytes_max`](crate::Config).
    Inject,
}

/// A message to send.
#[derive(Debug, Clone, Copy)]
pub struct Send {
    /// To whom.
    pub peer: PeerId,
    /// Which of the two kinds of receives may take it.
    pub channel: Channel,
    /// What receives are matched by.
    pub match_bits: u64,
    /// 64 bits for the receiver's completion (libfabric's remote CQ data).
    pub data: Option<u64>,
    /// Where the message is.
    pub buffer: BufferId,
    /// Where it begins there.
    pub offset: u64,
    /// Its length.
    pub length_bytes: u64,
    /// When it completes.
    pub mode: SendMode,
    /// Comes back in its [`Completion`].
    pub context: u64,
}

/// A receive to post.
#[derive(Debug, Clone, Copy)]
pub struct Receive {
    /// Only from this peer; none: from any.
    pub source: Option<PeerId>,
    /// Of which kind.
    pub channel: Channel,
    /// A message matches whose match bits differ from these …
    pub match_bits: u64,
    /// … in none but the bits set here. (MX says it with the opposite mask.)
    pub ignore_bits: u64,
    /// Where the message goes.
    pub buffer: BufferId,
    /// Where it begins there.
    pub offset: u64,
    /// Room. A longer message is cut off, and its completion says [`Status::Truncated`].
    pub length_bytes: u64,
    /// With `Some(least)`: takes message after message, one behind the other, until fewer than
    /// `least` bytes are left.
    pub multi: Option<u64>,
    /// Comes back in its [`Completion`].
    pub context: u64,
}

/// A posted receive, for [`cancel`](crate::Machine::cancel). It may be kept for ever: after the
/// receive completed it names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReceiveId(pub(crate) u64);

/// A message taken out of the queue by [`claim`](crate::Machine::claim) and not yet received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimId(pub(crate) u64);

/// A message that has arrived, at least its envelope, and that no receive took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// From whom.
    pub source: PeerId,
    /// Its match bits.
    pub match_bits: u64,
    /// Its completion data.
    pub data: Option<u64>,
    /// Its whole length.
    pub length_bytes: u64,
}

/// What ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A send.
    Send,
    /// A receive, with what it received.
    Receive {
        /// The message; none where the receive ended without one.
        message: Option<Arrived>,
        /// Where its bytes begin in the receive's buffer.
        offset: u64,
        /// How many of them are there.
        received_bytes: u64,
        /// Nothing more will be written to the buffer: always, but for receives of many messages
        /// with further room.
        is_buffer_released: bool,
    },
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// As asked.
    Ok,
    /// The message was longer than the room for it.
    Truncated,
    /// Cancelled before a message matched.
    Cancelled,
    /// The peer failed before the end.
    PeerFailed(Failure),
}

/// Why a peer is no longer talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Neither it nor its machine answered for the time set.
    Silent,
    /// Its machine said that nobody is there.
    Refused,
    /// It closed its endpoint.
    Closed,
    /// It began anew, under the same address, or gave this session up.
    Restarted,
    /// It broke the protocol.
    Violation,
}

/// An operation that ended. Each [`send`](crate::Machine::send) that is no
/// [`Inject`](SendMode::Inject) has exactly one, each receive too; receives of many messages have
/// one a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// What the operation was given.
    pub context: u64,
    /// What it was.
    pub operation: Operation,
    /// How it ended.
    pub status: Status,
}

/// What the owner should know or do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A peer that nobody introduced opened a session.
    PeerAppeared(PeerId),
    /// A peer failed; its operations have completed with [`Status::PeerFailed`]. With
    /// [`Failure::Restarted`] a new session may already be open.
    PeerFailed(PeerId, Failure),
    /// Ask the peer's machine whether it is there, in whatever way its kernel answers without the
    /// process, and report it with [`host_answered`](crate::Machine::host_answered) or
    /// [`port_refused`](crate::Machine::port_refused).
    ProbeHost(PeerId),
}

/// What the machine refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// Nothing is lost: poll for transmits and completions, then ask again.
    #[error("too many operations are under way: progress the endpoint, then try again")]
    Busy,
    /// No such peer.
    #[error("peer {0} is not in the table")]
    UnknownPeer(u32),
    /// The peer failed before.
    #[error("peer {0} failed ({1:?}): reconnect it first")]
    PeerFailed(u32, Failure),
    /// An inject that is too long.
    #[error("a message of {length_bytes} bytes is too long to be copied (most is {max_bytes})")]
    TooLong {
        /// Its length.
        length_bytes: u64,
        /// Most.
        max_bytes: u64,
    },
    /// The claim was used.
    #[error("the message was claimed and received before, or its sender failed")]
    NoClaim,
}
