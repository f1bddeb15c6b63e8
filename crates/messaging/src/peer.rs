//! The state of a peer, and the records linked to it.

use crate::congestion::Window;
use crate::rtt::RoundTrip;
use crate::slab::{Link, List, NONE, linked};
use crate::tag::{HashKey, Key};
use crate::types::{Address, BufferId, Channel, Failure, Path};

/// Sequence numbers, from the next expected one on, that a receiver accepts; a sender has at most
/// half as many packets in flight.
pub(crate) const WINDOW_PKTS: u64 = 1024;

/// Progress of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No session, and none is requested.
    Idle,
    /// `Hello` was sent; `Cookie` is awaited.
    Greeting,
    /// `Open` was sent; `Accept` is awaited.
    Opening,
    /// Both ends have the keys.
    Open,
    /// The session ended; [`reconnect`](crate::Machine::reconnect) permits a new one.
    Failed(Failure),
}

/// Where the payload of the next `More` packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nowhere: the next packet begins a message.
    Nothing,
    /// A message that a receive has matched, by its index in `Machine::receiving`.
    Receiving(u32),
    /// An unexpected message, by its index in the matcher.
    Unexpected(u32),
}

/// A peer. Whatever grows is in lists through the machine's slabs.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: Address,
    pub(crate) instance: u64,
    pub(crate) state: State,
    /// Number of sessions begun so far; it enters the cookie, so that an old cookie opens no new
    /// session.
    pub(crate) sessions_count: u64,
    pub(crate) nonce: u64,
    pub(crate) cookie: u64,
    /// When the session began, in the time unit of packets.
    pub(crate) begun: u32,
    pub(crate) remote_index: u32,
    pub(crate) remote_endpoint: u16,
    /// The smaller of both ends' packet size limits.
    pub(crate) packet_bytes_max: u16,
    /// The key of the greetings that this peer answers.
    pub(crate) key: Key,
    /// The hash key of the session's tags, where it is not this endpoint's own.
    pub(crate) hash_key: Option<HashKey>,
    pub(crate) send_key: Key,
    pub(crate) receive_key: Key,
    pub(crate) out: Outbound,
    pub(crate) inn: Inbound,
    pub(crate) pulls: Pulls,
    pub(crate) rtt: RoundTrip,
    pub(crate) ready: Link,
    pub(crate) puller: Link,
    pub(crate) due: Due,
    pub(crate) silence: Silence,
    pub(crate) must: Must,
    /// How packets to the peer travel; none: as the configuration says.
    pub(crate) path: Option<Path>,
    /// The transport has no room for further packets to it.
    pub(crate) is_held: bool,
}
linked!(Peer, 0 => ready, 1 => puller);

/// What is to be sent besides messages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Must {
    pub(crate) ack: bool,
    pub(crate) ping: bool,
    pub(crate) close: bool,
    pub(crate) greet: bool,
    pub(crate) accept: bool,
    /// Tell the peer that packets refused earlier would be accepted now.
    pub(crate) again: bool,
    /// Answer a `Ping`, by an `Ack` that names it.
    pub(crate) answer: bool,
}

/// Deadlines of a peer; 0 means none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Due {
    pub(crate) ack_ns: u64,
    /// The wait for an acknowledgement, for the answer to a `Ping` or for one to a greeting
    /// expires.
    pub(crate) answer_ns: u64,
    pub(crate) pull_ns: u64,
    /// A packet that later ones overtook counts as lost.
    pub(crate) reorder_ns: u64,
    pub(crate) pace_ns: u64,
    pub(crate) keepalive_ns: u64,
}

impl Due {
    pub(crate) fn earliest_ns(&self) -> Option<u64> {
        let all = [
            self.ack_ns,
            self.answer_ns,
            self.pull_ns,
            self.reorder_ns,
            self.pace_ns,
            self.keepalive_ns,
        ];
        all.into_iter().filter(|at_ns| *at_ns > 0).min()
    }
}

/// How long a peer has left questions unanswered. Only time that this end actually spent waiting
/// counts: an owner that does not poll for minutes has not waited for minutes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Silence {
    /// Time waited since the peer or its host was last heard.
    pub(crate) host_ns: u64,
    /// Time waited since the peer itself was last heard.
    pub(crate) peer_ns: u64,
    pub(crate) last_heard_ns: u64,
    /// Its host reports that the port is closed.
    pub(crate) is_refused: bool,
    /// Consecutive timeouts.
    pub(crate) timeouts: u8,
    pub(crate) pull_timeouts: u8,
    pub(crate) is_probed: bool,
    /// A `Ping` was sent and is unanswered.
    pub(crate) is_pinged: bool,
    pub(crate) last_waited_ns: u64,
}

/// Ordered packets to a peer.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) next_seq: u64,
    /// The oldest unacknowledged sequence number.
    pub(crate) oldest_seq: u64,
    /// Packets in flight, lost or acknowledged out of order, from the oldest unacknowledged one on,
    /// by sequence number.
    pub(crate) flights: List<0>,
    pub(crate) under_way_bytes: u64,
    pub(crate) lost_count: u32,
    /// Number of the next transmission; retransmissions count.
    pub(crate) order: u32,
    pub(crate) acked_order: u32,
    /// Number of the last `Ping`, from 1 on; 0: none was sent. And its place among the transmissions.
    pub(crate) ping: u8,
    pub(crate) ping_order: u32,
    /// Losses of packets before this one do not shrink the window again.
    pub(crate) recovery_seq: u64,
    /// Reordering threshold: a packet that this many later transmissions overtook counts as lost.
    pub(crate) reordering_pkts: u8,
    pub(crate) window: Window,
    pub(crate) paced_ns: u64,
    /// Messages that are not yet completely cut into packets.
    pub(crate) queue: List<0>,
    /// All messages that are not finished.
    pub(crate) sends: List<1>,
    pub(crate) eager_bytes: u32,
    pub(crate) credit_bytes: u32,
    /// Requests of the peer for fragments, being served.
    pub(crate) jobs: List<0>,
    pub(crate) jobs_count: u32,
    pub(crate) last_request: u32,
    pub(crate) requests_seen: u64,
}

/// Ordered packets from a peer.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) next_seq: u64,
    pub(crate) arrived: [u64; WINDOW_PKTS as usize / 64],
    pub(crate) early: List<0>,
    pub(crate) early_bytes: u64,
    pub(crate) unacked_pkts: u32,
    pub(crate) credit_sent: u32,
    /// Eager bytes that have arrived, and how many of them are no longer kept; both modulo 2³².
    pub(crate) eager_bytes: u32,
    pub(crate) consumed_bytes: u32,
    pub(crate) stamp: u32,
    pub(crate) stamp_at_ns: u64,
    /// The packet with that stamp may have waited for this process.
    pub(crate) is_late: bool,
    /// Packets after which the peer, whose process let packets wait, counts as prompt again.
    pub(crate) until_prompt_pkts: u8,
    /// Number of the last `Ping`; 0: none came.
    pub(crate) ping: u8,
    pub(crate) target: Target,
    pub(crate) remaining_bytes: u64,
    /// A packet of this peer was refused for lack of room.
    pub(crate) is_refused: bool,
}

/// What this endpoint pulls from a peer.
#[derive(Debug)]
pub(crate) struct Pulls {
    pub(crate) list: List<0>,
    /// Blocks with missing fragments, in the order of their latest requests.
    pub(crate) asked: List<0>,
    /// Blocks whose next request is to be sent.
    pub(crate) to_ask: List<1>,
    pub(crate) under_way_bytes: u64,
    pub(crate) request: u32,
}

impl Outbound {
    pub(crate) fn new(packet_bytes: u64, credit_bytes: u32) -> Self {
        let window = Window::new(16 * packet_bytes, 4 * packet_bytes, WINDOW_PKTS * packet_bytes);
        Self {
            next_seq: 1,
            oldest_seq: 1,
            flights: List::EMPTY,
            under_way_bytes: 0,
            lost_count: 0,
            order: 1,
            acked_order: 0,
            ping: 0,
            ping_order: 0,
            recovery_seq: 0,
            reordering_pkts: 3,
            window,
            paced_ns: 0,
            queue: List::EMPTY,
            sends: List::EMPTY,
            eager_bytes: 0,
            credit_bytes,
            jobs: List::EMPTY,
            jobs_count: 0,
            last_request: 0,
            requests_seen: 0,
        }
    }
}

impl Inbound {
    pub(crate) fn new(credit_bytes: u32) -> Self {
        Self {
            next_seq: 1,
            arrived: [0; WINDOW_PKTS as usize / 64],
            early: List::EMPTY,
            early_bytes: 0,
            unacked_pkts: 0,
            credit_sent: credit_bytes,
            eager_bytes: 0,
            consumed_bytes: 0,
            stamp: 0,
            stamp_at_ns: 0,
            is_late: false,
            until_prompt_pkts: 0,
            ping: 0,
            target: Target::Nothing,
            remaining_bytes: 0,
            is_refused: false,
        }
    }

    fn place(seq: u64) -> (usize, u64) {
        let at = seq % WINDOW_PKTS;
        ((at / 64) as usize, 1 << (at % 64))
    }

    pub(crate) fn has(&self, seq: u64) -> bool {
        let (word, bit) = Self::place(seq);
        self.arrived[word] & bit != 0
    }

    pub(crate) fn set(&mut self, seq: u64, is_here: bool) {
        let (word, bit) = Self::place(seq);
        self.arrived[word] =
            if is_here { self.arrived[word] | bit } else { self.arrived[word] & !bit };
    }
}

impl Pulls {
    pub(crate) const NEW: Self = Self {
        list: List::EMPTY,
        asked: List::EMPTY,
        to_ask: List::EMPTY,
        under_way_bytes: 0,
        request: 0,
    };
}

impl Peer {
    pub(crate) fn new(address: Address, key: Key) -> Self {
        Self {
            address,
            key,
            hash_key: None,
            instance: 0,
            state: State::Idle,
            sessions_count: 0,
            nonce: 0,
            cookie: 0,
            begun: 0,
            remote_index: NONE,
            remote_endpoint: 0,
            packet_bytes_max: 0,
            send_key: Key::NONE,
            receive_key: Key::NONE,
            out: Outbound::new(1500, 0),
            inn: Inbound::new(0),
            pulls: Pulls::NEW,
            rtt: RoundTrip::NEW,
            ready: Link::OUT,
            puller: Link::OUT,
            due: Due::default(),
            silence: Silence::default(),
            must: Must::default(),
            path: None,
            is_held: false,
        }
    }

    /// Whether the next acknowledgement must be an `Ack`, because no other packet says what it has to.
    pub(crate) fn needs_bare_ack(&self) -> bool {
        !self.inn.early.is_empty() || self.must.again || self.must.answer
    }
}

/// Where a message's bytes are.
#[derive(Debug)]
pub(crate) enum Source {
    /// In a copy that the machine owns.
    Copy(Vec<u8>),
    /// In a buffer of the owner, from this offset on.
    User(BufferId, u64),
}

/// Kind of an outgoing message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// A message sent with its bytes.
    Eager,
    /// A message that is announced, then pulled.
    Announced,
    /// Tells the peer that its message with this handle was pulled or matched.
    Done(u64),
}

/// A message to send, or a `Done`.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) peer: u32,
    pub(crate) class: Class,
    pub(crate) channel: Channel,
    pub(crate) bits: u64,
    pub(crate) data: Option<u64>,
    pub(crate) length: u64,
    pub(crate) source: Source,
    /// Address of the message, for a peer that may read it there.
    pub(crate) place: Option<u64>,
    pub(crate) is_sync: bool,
    /// None once the operation has completed.
    pub(crate) context: Option<u64>,
    /// Bytes cut into packets so far.
    pub(crate) cut_bytes: u64,
    pub(crate) is_cut: bool,
    /// Packets not yet acknowledged.
    pub(crate) unacked_pkts: u32,
    /// The peer's `Done` is still to come.
    pub(crate) awaits_done: bool,
    pub(crate) queue: Link,
    pub(crate) all: Link,
}
linked!(Outgoing, 0 => queue, 1 => all);

/// An ordered packet that is not acknowledged, or that follows one that is not.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) seq: u64,
    pub(crate) send: u32,
    pub(crate) offset: u64,
    pub(crate) payload_bytes: u16,
    pub(crate) packet_bytes: u16,
    pub(crate) is_first: bool,
    pub(crate) state: FlightState,
    pub(crate) is_repeated: bool,
    /// It is retransmitted to provoke an answer, not because it is considered lost.
    pub(crate) is_probe: bool,
    pub(crate) order: u32,
    pub(crate) sent_ns: u64,
    pub(crate) link: Link,
}
linked!(Flight, 0 => link);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlightState {
    UnderWay,
    Lost,
    Acked,
}

/// An ordered packet that arrived before its turn.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) seq: u64,
    pub(crate) packet: Vec<u8>,
    pub(crate) link: Link,
}
linked!(Early, 0 => link);

/// A message that a receive has matched, while it is written into the buffer.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) peer: u32,
    pub(crate) bits: u64,
    pub(crate) data: Option<u64>,
    pub(crate) length: u64,
    /// The sender's handle of a message that `Done` answers.
    pub(crate) handle: Option<u64>,
    /// Address of the message in its sender's memory.
    pub(crate) place: Option<u64>,
    pub(crate) context: u64,
    pub(crate) buffer: BufferId,
    pub(crate) offset: u64,
    pub(crate) room: u64,
    pub(crate) received: u64,
    /// The multi-message receive that took it.
    pub(crate) multi: Option<u32>,
}

/// An announced message that is being pulled.
#[derive(Debug)]
pub(crate) struct Pull {
    pub(crate) receiving: Receiving,
    /// Bytes to pull: the message's length or the receive's room, whichever is less.
    pub(crate) wanted: u64,
    /// Bytes requested so far.
    pub(crate) asked: u64,
    pub(crate) fragment_bytes: u64,
    pub(crate) link: Link,
}
linked!(Pull, 0 => link);

/// Up to 64 fragments that were requested together.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) pull: u32,
    pub(crate) peer: u32,
    pub(crate) offset: u64,
    /// Fragments that have not arrived, as bits.
    pub(crate) missing: u64,
    /// Missing fragments to name in the next request, as bits.
    pub(crate) wanted: u64,
    /// Fragments that were requested more than once, as bits.
    pub(crate) again: u64,
    /// The number of the latest request for it.
    pub(crate) request: u32,
    /// Fragments that arrived in answer to later requests.
    pub(crate) overtaken: u8,
    pub(crate) asked: Link,
    pub(crate) to_ask: Link,
}
linked!(Block, 0 => asked, 1 => to_ask);

/// A peer's request for fragments, being served.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) send: u64,
    pub(crate) pull: u64,
    pub(crate) offset: u64,
    pub(crate) fragment_bytes: u64,
    pub(crate) end: u64,
    pub(crate) mask: u64,
    pub(crate) request: u32,
    pub(crate) link: Link,
}
linked!(Job, 0 => link);
