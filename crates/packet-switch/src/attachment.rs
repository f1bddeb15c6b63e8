//! The attachment protocol: JSON over a UNIX socket, memory and bells beside it.
//!
//! A client sends a [`Request`] and gets one [`Answer`]. In between the daemon may send
//! [`Answer::CutOff`]. `docs/attachment.md` says the same for people who write clients in other
//! languages. An attachment lasts as long as the connection, so one that is killed leaves nothing.

mod refusal;

use std::os::fd::OwnedFd;

use ring::{BUFFER_BYTES_DEFAULT, BUFFER_BYTES_MAX, SLOTS_MAX, Seat};
use serde::{Deserialize, Serialize};
use shm::MESSAGE_BYTES_MAX;
use thiserror::Error;

use crate::counters::PortCount;
use crate::name::{Name, PortName};
use crate::panics::printable;

pub use refusal::RefusalCode;

/// Version of the protocol. A daemon answers a request of another with a refusal that says so.
pub const VERSION: u32 = 1;

/// Default number of slots of a ring, as in VALE.
pub const SLOTS_DEFAULT: u32 = 1024;

/// Most pipes of one group: they share a region.
pub const PIPES_MAX: u32 = 32;

/// A message from a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Version of the protocol: [`VERSION`].
    pub version: u32,
    /// The request itself.
    pub ask: Ask,
}

/// The requests of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// A port of a switch. One that does not exist yet is created, and removed with the attachment.
    AttachPort {
        /// Name of the port.
        port: PortName,
        /// Of a new port; one that exists has its own.
        #[serde(default)]
        shape: Shape,
    },
    /// One end of a pipe, which must exist.
    AttachPipe {
        /// The group it belongs to.
        group: Name,
        /// Which of the group's pipes.
        pipe: u32,
        /// The end to attach to.
        end: PipeEnd,
    },
    /// One end of a pipe that is created if it does not exist, and removed with its last client.
    OpenPipe {
        /// Its name: that of a group of one.
        group: Name,
        /// The end to attach to.
        end: PipeEnd,
        /// Of a new pipe; one that exists has its own.
        #[serde(default)]
        shape: Shape,
    },
    /// Ends an attachment.
    Detach {
        /// Number of the attachment.
        attachment: u32,
    },
    /// Adds a persistent port.
    AddPort {
        /// Name of the port.
        port: PortName,
        /// Geometry of its rings.
        #[serde(default)]
        shape: Shape,
    },
    /// Makes a group of pipes in one region. Their users must be of the user id that made it.
    AddPipes {
        /// The group's name.
        group: Name,
        /// Number of pipes, 1 to [`PIPES_MAX`].
        pipes: u32,
        /// Geometry of their rings.
        #[serde(default)]
        shape: Shape,
    },
    /// Makes a port of a device whose descriptors come with the request.
    AddDevice {
        /// Name of the port.
        port: PortName,
        /// What the descriptors are.
        device: DeviceKind,
        /// Geometry of its rings.
        #[serde(default = "Shape::of_device")]
        shape: Shape,
    },
    /// The same, and the port goes with this connection.
    LendDevice {
        /// Its name.
        port: PortName,
        /// What the descriptors are.
        device: DeviceKind,
        /// Its rings.
        #[serde(default = "Shape::of_device")]
        shape: Shape,
    },
    /// As [`Ask::AddPort`], and the port goes with this connection.
    LendPort {
        /// Name of the port.
        port: PortName,
        /// Geometry of its rings.
        #[serde(default)]
        shape: Shape,
    },
    /// A port that nobody has, with rings in memory of the client's, which comes with the request: the sealed memfd,
    /// then as in [`Answer::Attached`] the bells. The answer brings none. Bells of several pairs of rings, up to
    /// [`PAIRS_MAX`], make a port with as many: of their rings all that transmit come first, and a frame is received in
    /// the ring that its flow chooses.
    AttachMemory {
        /// Name of the port.
        port: PortName,
        /// Whether the rings are made anew. Otherwise they are what another attachment has left, also of a daemon
        /// that has ended.
        is_fresh: bool,
        /// The seat that the client has of that memory, where it is a trust group's; its rings are made anew.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trust: Option<TrustSeat>,
    },
    /// Makes a port that nobody has a member of a trust group, which is made if there is none with a free seat: the
    /// members share one memory, and frames between them are handed over without a copy. A group is of one switch and of
    /// one user; another user's of the same name is another group. Answered with [`Answer::Seated`].
    JoinGroup {
        /// Name of the port.
        port: PortName,
        /// Name of the group.
        group: Name,
    },
    /// Makes two ports and a link between them.
    AddLink {
        /// Port at one end.
        one: PortName,
        /// The other, of the same switch or another.
        other: PortName,
        /// What the link is like, both ways.
        link: LinkConfig,
    },
    /// Copies of the frames that pass a port, in both directions, each behind a [`Record`]. They wake no client.
    Watch {
        /// Name of the port.
        port: PortName,
    },
    /// Sets how many bytes of virtio-net header come before each frame of a port.
    SetHeader {
        /// Name of the port.
        port: PortName,
        /// 0, 10, or 12: the same with a count of buffers that is not looked at.
        header_bytes: u8,
    },
    /// Whether the switch polls a port without end, and a core is busy with it, or sleeps when all are
    /// idle.
    Poll {
        /// Name of the port.
        port: PortName,
        /// Whether the switch polls it without pause.
        always: bool,
    },
    /// Removes a port and its client; for a link, both ports.
    DeletePort {
        /// Name of the port.
        port: PortName,
    },
    /// Removes a group of pipes and its clients.
    DeletePipes {
        /// Name of the group.
        group: Name,
    },
    /// Lists ports and groups, so many at a time.
    List {
        /// Where the last list ended.
        #[serde(default)]
        after: Option<String>,
    },
}

/// Most pairs of rings of a port whose client brings the memory.
pub const PAIRS_MAX: u32 = 8;

/// Seats of a trust group's memory: so many members share one, further ones the next.
pub const TRUST_SEATS: u8 = 7;

/// A member's place in the memory of a trust group: it has the rings `seat` to transmit and `TRUST_SEATS + seat` to receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustSeat {
    /// Name of the group.
    pub group: Name,
    /// Number of the seat, below [`TRUST_SEATS`].
    pub seat: u8,
}

/// What a port's rings are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Slots of each ring, 2 to [`SLOTS_MAX`].
    pub slots: u32,
    /// Bytes of each buffer, a multiple of 64 up to [`BUFFER_BYTES_MAX`].
    pub buffer_bytes: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { slots: SLOTS_DEFAULT, buffer_bytes: BUFFER_BYTES_DEFAULT }
    }
}

impl Shape {
    /// Of a device's port: super-segments of 64 KiB take 16 slots.
    #[must_use]
    pub fn of_device() -> Self {
        Self { slots: SLOTS_DEFAULT, buffer_bytes: 4096 + 64 }
    }

    /// Whether rings can be like that.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        (2..=SLOTS_MAX).contains(&self.slots)
            && (64..=BUFFER_BYTES_MAX).contains(&self.buffer_bytes)
            && self.buffer_bytes.is_multiple_of(64)
    }
}

/// Bytes of a [`Record`].
pub const RECORD_BYTES: usize = 16;

/// What comes before each frame that [`Ask::Watch`] shows; little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When the switch carried it, nanoseconds since 1970.
    pub seen_ns: u64,
    /// Frames left out just before it, because the watcher was too slow.
    pub missed: u32,
    /// Whether it went to the port's client, or came from there.
    pub outgoing: bool,
}

impl Record {
    pub(crate) fn encode(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&self.seen_ns.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.missed.to_le_bytes());
        bytes[12] = u8::from(self.outgoing);
        bytes
    }

    /// Takes it off a copy.
    #[must_use]
    pub fn split(copy: &[u8]) -> Option<(Self, &[u8])> {
        let (head, frame) = copy.split_first_chunk::<RECORD_BYTES>()?;
        let (seen, rest) = head.split_first_chunk::<8>()?;
        let (missed, rest) = rest.split_first_chunk::<4>()?;
        let record = Self {
            seen_ns: u64::from_le_bytes(*seen),
            missed: u32::from_le_bytes(*missed),
            outgoing: rest[0] != 0,
        };
        Some((record, frame))
    }
}

/// Bytes of a virtio-net header as devices and links have it.
pub const HEADER_BYTES: u8 = switch::frame::VNET_HEADER_BYTES as u8;

/// Lengths that a virtio-net header may have: none, the usual, the usual and a count of buffers.
pub const HEADERS_BYTES: [u8; 3] = [0, HEADER_BYTES, HEADER_BYTES + 2];

/// A device that somebody opened, and the descriptors that come with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A TAP device with virtio-net headers, as `/dev/net/tun` gives it: a descriptor a queue, 1 to
    /// [`TAP_QUEUES_MAX`].
    Tap,
    /// A queue of a network device: an `AF_XDP` socket with its rings made and tied to the queue, the
    /// sealed memory of its frames, and whatever else is to stay open as long as the port is there.
    Xdp(XdpFacts),
    /// A guest by vhost-user: a UNIX stream socket that listens for its hypervisor.
    VhostUser {
        /// Where it listens, for people.
        path: String,
    },
}

/// Most queues of a TAP device's port.
pub const TAP_QUEUES_MAX: u32 = 64;

/// What only the opener of an `AF_XDP` socket knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XdpFacts {
    /// The interface, for people.
    pub device: String,
    /// Which of its queues.
    pub queue: u32,
    /// The program runs in the kernel's receive path instead of the driver.
    #[serde(default)]
    pub is_generic: bool,
    /// Frames longer than a chunk come and go as several descriptors.
    #[serde(default)]
    pub takes_parts: bool,
}

/// Longest name of a device: a link's, with the names of both ports.
const DEVICE_NAME_MAX: usize = 200;

/// Longest name of an interface, bytes, as the kernel's.
const INTERFACE_BYTES_MAX: usize = 15;

impl DeviceKind {
    /// Bytes of virtio-net header before each of its frames.
    pub(crate) fn header_bytes(&self) -> u8 {
        match self {
            Self::Tap | Self::VhostUser { .. } => HEADER_BYTES,
            Self::Xdp(_) => 0,
        }
    }
}

impl XdpFacts {
    /// As it stands in lists: `eth0 queue 2`.
    pub(crate) fn name(&self) -> String {
        let device = printable(&self.device, INTERFACE_BYTES_MAX);
        format!("{device} queue {}", self.queue)
    }
}

/// What a link between two ports is like, each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    /// Time on the way, nanoseconds.
    pub delay_ns: u64,
    /// Variation of the delay to either side, nanoseconds.
    pub jitter_ns: u64,
    /// Line rate, bit/s with Ethernet's overhead; none for an unlimited rate.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait for the line, wire bytes; none for no limit.
    pub queue_bytes: Option<u64>,
    /// Wire packets lost of a billion.
    pub loss_per_billion: u32,
    /// Every random draw comes from this.
    pub seed: u64,
}

/// What is known of a port's device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceState {
    /// `tap`, `xdp`, `vhost-user` or `link`.
    pub kind: String,
    /// The interface, the socket, or the link's two ports.
    pub name: String,
    /// How frames get there, where there is more than one way: `zero-copy`, `copy`, or `copy, generic`
    /// where the driver itself can do nothing for it. Of a guest: whether it is there, and how many pairs of queues
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Queues of a TAP device that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// What a link is like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkConfig>,
    /// Frames that the device did not take; of a link, for which the far port had no room.
    pub refused: u64,
    /// Wire packets that a link lost, on purpose or because its queue was full; of a device's queue, frames
    /// that the kernel had to drop because the port was too slow.
    pub lost: u64,
    /// What a guest or its hypervisor did wrong last; the port goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Why it no longer works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

impl DeviceState {
    pub(crate) fn new(kind: &str, name: &str) -> Self {
        // Who names an interface may name it with what a terminal obeys.
        let name = printable(name, DEVICE_NAME_MAX);
        Self { kind: kind.to_owned(), name, ..Self::default() }
    }
}

/// Which end of a pipe; netmap's `{` and `}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipeEnd {
    /// The end written `GROUP{N`.
    Master,
    /// The end written `GROUP}N`.
    Slave,
}

/// A message from the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Attached. Descriptors: the memory, then for each ring the bell to ring and the bell to wait
    /// for.
    Attached {
        /// To name it by.
        attachment: u32,
        /// The attachment's rings.
        rings: Vec<RingSeat>,
        /// Bytes of virtio-net header before each frame.
        #[serde(default)]
        header_bytes: u8,
    },
    /// The port is a member of the trust group. Descriptor: the memory, to be brought with [`Ask::AttachMemory`].
    Seated {
        /// Number of its seat there.
        seat: u8,
    },
    /// The request was carried out.
    Done,
    /// Ports and groups, sorted.
    Listed {
        /// The next entries, in the order of their names.
        entries: Vec<Entry>,
        /// Whether there are more, after the last of these.
        more: bool,
        /// What the daemon says of itself.
        #[serde(default)]
        health: Health,
    },
    /// The request is refused.
    Refused {
        /// The reason for programs.
        #[serde(default)]
        code: RefusalCode,
        /// The reason for people.
        why: String,
        /// Whether the code is [`RefusalCode::Invalid`], for clients from before there were codes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_senseless: bool,
    },
    /// Not an answer: an attachment ended that the client did not end.
    CutOff {
        /// Number of the attachment.
        attachment: u32,
        /// The reason for people.
        why: String,
    },
}

/// What should not happen to a daemon, and how often it did since that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// System calls that its sandbox refused; the log says which.
    pub refused_calls: u64,
    /// Faults of the program that took a connection, a port, a device or a switch away, and nothing else.
    pub faults: u64,
}

/// A ring of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingSeat {
    /// Its number in the region.
    pub ring: u32,
    /// Whether the client sends on it, or receives.
    pub sends: bool,
    /// Where it sits: at the user's seat, or, at the receiving end of a pipe, the owner's.
    pub user: bool,
}

impl RingSeat {
    /// The seat; a client is never the owner of a receive ring.
    #[must_use]
    pub fn seat(&self) -> Seat {
        if self.user { Seat::User } else { Seat::TxOwner }
    }
}

/// A port or a group of pipes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// `vale0:a`, or the group's name.
    pub name: String,
    /// Kind of the entry.
    pub kind: Kind,
    /// Geometry of its rings.
    pub shape: Shape,
    /// How many attachments it has now.
    pub attached: u32,
    /// What went through. Absent for pipes: the switch does not see their frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<PortCount>,
    /// Why its last client was cut off, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_cut_off: Option<String>,
    /// The device behind it, if it is one's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceState>,
    /// Bytes of virtio-net header before each frame.
    #[serde(default)]
    pub header_bytes: u8,
    /// The trust group that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Name>,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A persistent port of a switch.
    Port,
    /// A port of a switch that is removed with its client.
    Ephemeral,
    /// Pipes in one region.
    Pipes {
        /// Number of pipes.
        pipes: u32,
    },
}

/// Bytes that are no message of this protocol.
#[derive(Debug, Error)]
pub enum MessageError {
    /// Longer than any message.
    #[error("a message of more than {MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// Its descriptors could not be taken over.
    #[error("no file descriptor left for what came with a message (see `ulimit -n`)")]
    NoDescriptors,
    /// Not what is expected.
    #[error("not a message of protocol version {VERSION}: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The message is of another protocol version.
    #[error("protocol version {theirs}; this is version {VERSION}")]
    Version {
        /// Version that the message states.
        theirs: u32,
    },
}

impl Request {
    /// Encodes a request.
    #[must_use]
    pub fn encode(ask: Ask) -> Vec<u8> {
        // Nothing in it can fail to be JSON: no maps with other keys than text, no floats.
        serde_json::to_vec(&Self { version: VERSION, ask }).unwrap_or_default()
    }

    /// From bytes that anybody may have sent.
    ///
    /// # Errors
    /// They are not a request of this version.
    pub fn decode(bytes: &[u8]) -> Result<Ask, MessageError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong);
        }
        // The version first: a later one may ask for what this one cannot even read.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version: theirs } = serde_json::from_slice(bytes)?;
        if theirs != VERSION {
            return Err(MessageError::Version { theirs });
        }
        Ok(serde_json::from_slice::<Self>(bytes)?.ask)
    }
}

impl MessageError {
    /// The code with which a daemon refuses such a message.
    pub(crate) fn code(&self) -> RefusalCode {
        match self {
            Self::TooLong | Self::Malformed(_) => RefusalCode::Malformed,
            Self::NoDescriptors => RefusalCode::Limit,
            Self::Version { .. } => RefusalCode::Version,
        }
    }
}

impl Answer {
    /// A refusal.
    pub(crate) fn refused(code: RefusalCode, why: impl Into<String>) -> Self {
        Self::Refused { code, why: why.into(), is_senseless: code == RefusalCode::Invalid }
    }

    /// Encodes the answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // As above.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From a daemon's bytes.
    ///
    /// # Errors
    /// They are not an answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// An answer and the descriptors that go with it.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) answer: Answer,
    pub(crate) fds: Vec<OwnedFd>,
}

impl From<Answer> for Delivery {
    fn from(answer: Answer) -> Self {
        Self { answer, fds: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
