//! The machine: one endpoint with its peers, receives, messages and sessions.
//!
//! The owner passes in packets ([`handle_packet`](Machine::handle_packet)) and the time
//! ([`handle_timeouts`](Machine::handle_timeouts)), and polls for packets to send
//! ([`poll_transmit`](Machine::poll_transmit)), completions and events. It calls `handle_timeouts`
//! again no later than [`poll_deadline_ns`](Machine::poll_deadline_ns). The machine does nothing
//! between calls.

mod absence;
mod arrive;
mod fail;
mod greet;
mod operations;
mod order;
mod paths;
mod pulls;
mod reliable;
mod requests;
mod timeouts;
mod transmit;
mod unexpected;

use std::collections::{BTreeMap, VecDeque};

pub use transmit::{Payload, Transmit};

use crate::congestion::Window;
use crate::deadlines::Deadlines;
use crate::matching::Matcher;
use crate::peer::{Block, Early, Flight, Job, Outgoing, Peer, Pull, Receiving, State};
use crate::pool::Pool;
use crate::slab::{List, Slab};
use crate::tag::{HashKey, Key};
use crate::types::{Address, Completion, Event, Failure, OperationError, PeerId};
use crate::wire::{Greeting, HEADER_BYTES_MAX, Kind};

/// Upper bound on the unmatched eager bytes kept for one peer.
const EAGER_WINDOW_BYTES_MAX: u64 = 256 * 1024;
/// Upper bound on the queued answers to greetings; further greetings are ignored.
const REPLIES_MAX: usize = 64;

/// Identity and resource limits of an endpoint.
#[derive(Clone)]
pub struct Config {
    /// Address of this endpoint, unique among all endpoints.
    pub address: Address,
    /// Number of the endpoint on its host: the steering field of packets sent to it.
    pub endpoint: u16,
    /// Random number, different each time the endpoint is opened; not 0.
    pub instance: u64,
    /// Secret key of the greetings: one key shared by all endpoints of a job, or one of this
    /// endpoint alone, which its peers pass to [`Machine::insert_keyed_peer`].
    pub job_key: [u8; 16],
    /// Random secret of this endpoint alone; nonces and cookies are derived from it.
    pub secret: [u8; 16],
    /// Size limit of a packet in bytes, 256 to 65535: what one datagram carries.
    pub packet_bytes_max: u16,
    /// Longer messages are announced and wait at the sender until a receive matches them.
    pub eager_bytes_max: u64,
    /// Standard and inject sends up to this length are copied, so that they complete at once.
    pub copy_bytes_max: u64,
    /// Limit on the total bytes of such copies.
    pub copies_bytes_max: u64,
    /// Capacity of the peer table.
    pub peers_max: u32,
    /// Limit on the bytes of messages that no receive has matched yet, divided equally among
    /// `peers_max`. A peer that has used its share announces its messages and keeps their bytes.
    pub unexpected_bytes_max: u64,
    /// Limit on the number of unexpected messages; further ones are refused until there is room,
    /// and the sender retransmits them.
    pub unexpected_max: usize,
    /// Limit on the sends in progress and, separately, on the receives in progress.
    pub operations_max: usize,
    /// Limit on the bytes requested by pulls and not yet received: what the receive path can hold
    /// (half a socket's receive buffer, a ring).
    pub pull_bytes_max: u64,
    /// How long an acknowledgement may wait for a packet that can carry it.
    pub ack_delay_ns: u64,
    /// A peer fails after this long without an answer from it or its host, while one is awaited.
    pub silent_host_ns: u64,
    /// A peer fails after this long without an answer from itself, while one is awaited. Set it
    /// only where something in the peer's process answers even while the process computes.
    pub silent_peer_ns: Option<u64>,
    /// A peer fails after this long without an answer, if its host reports that nobody listens
    /// there.
    pub refused_ns: u64,
    /// How often a quiet peer that operations wait for is asked whether it is alive.
    pub keepalive_ns: u64,
    /// Tags cover payloads, and packets without such a tag are dropped. Must be the same on all
    /// endpoints of a job. When off, only headers are authenticated: for paths that no attacker can
    /// reach.
    pub tags_payloads: bool,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Config").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Config {
    /// The default limits, for an endpoint with this address. `instance` is derived from `secret`.
    #[must_use]
    pub fn new(address: Address, endpoint: u16, job_key: [u8; 16], secret: [u8; 16]) -> Self {
        Self {
            address,
            endpoint,
            instance: Key::from_bytes(&secret).prf(&[4]) | 1,
            job_key,
            secret,
            packet_bytes_max: 1472,
            eager_bytes_max: 32 * 1024,
            copy_bytes_max: 4096,
            copies_bytes_max: 16 << 20,
            peers_max: 4096,
            unexpected_bytes_max: 64 << 20,
            unexpected_max: 1 << 20,
            operations_max: 1 << 20,
            pull_bytes_max: 1 << 20,
            ack_delay_ns: 50_000,
            silent_host_ns: 10_000_000_000,
            silent_peer_ns: None,
            refused_ns: 1_000_000_000,
            keepalive_ns: 1_000_000_000,
            tags_payloads: true,
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let packet_bytes_max = u64::from(self.packet_bytes_max);
        if packet_bytes_max < 256 {
            return Err(ConfigError::SmallPackets(self.packet_bytes_max));
        }
        let most_bytes = 512 * (packet_bytes_max - HEADER_BYTES_MAX as u64);
        if self.eager_bytes_max > most_bytes {
            return Err(ConfigError::Eager { bytes: self.eager_bytes_max, most_bytes });
        }
        if self.peers_max == 0 || self.instance == 0 || self.ack_delay_ns == 0 {
            return Err(ConfigError::Zero);
        }
        Ok(())
    }

    /// Credit of one peer: how many of its eager bytes may be kept here without a receive.
    pub(crate) fn eager_window_bytes(&self) -> u32 {
        let share = self.unexpected_bytes_max / u64::from(self.peers_max);
        share.min(EAGER_WINDOW_BYTES_MAX) as u32
    }
}

/// An invalid configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `packet_bytes_max` leaves no room for headers.
    #[error("packets of at most {0} bytes are too small: at least 256 are needed")]
    SmallPackets(u16),
    /// `eager_bytes_max` allows messages of more packets than may be in flight at once.
    #[error("eager messages of {bytes} bytes need too many packets: at most {most_bytes} bytes")]
    Eager {
        /// The configured `eager_bytes_max`.
        bytes: u64,
        /// The most that `packet_bytes_max` allows.
        most_bytes: u64,
    },
    /// A value that must not be 0.
    #[error("peers_max, instance and ack_delay_ns must not be 0")]
    Zero,
}

/// Counts since the machine was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets returned by [`Machine::poll_transmit`].
    pub sent_pkts: u64,
    /// Packets passed to [`Machine::handle_packet`], valid or not.
    pub received_pkts: u64,
    /// Ordered packets that were retransmitted.
    pub resent_pkts: u64,
    /// Fragments that were requested again.
    pub reasked_pkts: u64,
    /// Packets that had already been received.
    pub duplicate_pkts: u64,
    /// Packets that are not of this protocol, or are too short or too long for their kind.
    pub malformed_pkts: u64,
    /// Packets for an unknown session or another endpoint.
    pub stray_pkts: u64,
    /// Packets with a wrong tag.
    pub forged_pkts: u64,
    /// Packets dropped for lack of room; the sender retransmits them.
    pub refused_pkts: u64,
    /// Expired waits for an answer or a fragment.
    pub timeouts: u64,
    /// Expired waits for an answer that then came and showed that nothing was lost.
    pub spurious_timeouts: u64,
    /// `Ping`s sent, after expired waits or to quiet peers.
    pub pings: u64,
    /// Packets considered lost that turned out to be late.
    pub spurious_losses: u64,
    /// Messages that arrived before a matching receive was posted.
    pub unexpected_messages: u64,
    /// Eager messages that were announced because the receiver had no room for them.
    pub announced_for_room: u64,
    /// Bytes that the owner copied from senders' memory.
    pub direct_bytes: u64,
    /// Bytes copied into the machine: of short sends and of unexpected messages.
    pub copied_bytes: u64,
}

/// One endpoint.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    /// The key of the greetings that this endpoint answers.
    own_key: Key,
    secret: Key,
    hash_key: HashKey,
    nonces_count: u64,
    peers: Vec<Peer>,
    by_address: BTreeMap<Address, u32>,
    matcher: Matcher,
    sends: Slab<Outgoing>,
    flights: Slab<Flight>,
    early: Slab<Early>,
    receiving: Slab<Receiving>,
    pulls: Slab<Pull>,
    blocks: Slab<Block>,
    jobs: Slab<Job>,
    pool: Pool,
    copies_bytes: u64,
    unexpected_bytes: u64,
    ready: List<0>,
    /// Consecutive packets sent to the first peer of `ready`.
    burst_pkts: u32,
    pullers: List<1>,
    pulling_count: u64,
    pull_window: Window,
    pull_under_way_bytes: u64,
    pull_shrunk_ns: u64,
    replies: VecDeque<(Kind, u32, u32, Greeting)>,
    refused: VecDeque<u32>,
    /// Pulls that the owner is to copy, by their handles.
    copies: VecDeque<u64>,
    completions: VecDeque<Completion>,
    events: VecDeque<Event>,
    deadlines: Deadlines,
    counters: Counters,
    /// When the owner last looked for packets; 0: it does not tell.
    polled_ns: u64,
    /// The owner was absent, and has not yet passed in all that came meanwhile.
    is_behind: bool,
    /// Polls since it came back.
    behind_polls: u32,
}

impl Machine {
    /// Creates an endpoint without peers.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let own_key = Key::from_bytes(&config.job_key);
        let packet_bytes = u64::from(config.packet_bytes_max);
        Ok(Self {
            own_key,
            secret: Key::from_bytes(&config.secret),
            hash_key: HashKey::new(own_key),
            nonces_count: 0,
            peers: Vec::new(),
            by_address: BTreeMap::new(),
            matcher: Matcher::new(),
            sends: Slab::new(),
            flights: Slab::new(),
            early: Slab::new(),
            receiving: Slab::new(),
            pulls: Slab::new(),
            blocks: Slab::new(),
            jobs: Slab::new(),
            pool: Pool::default(),
            copies_bytes: 0,
            unexpected_bytes: 0,
            ready: List::EMPTY,
            burst_pkts: 0,
            pullers: List::EMPTY,
            pulling_count: 0,
            pull_window: Window::new(
                (config.pull_bytes_max / 4).max(128 << 10),
                2 * packet_bytes,
                config.pull_bytes_max,
            ),
            pull_under_way_bytes: 0,
            pull_shrunk_ns: 0,
            replies: VecDeque::new(),
            refused: VecDeque::new(),
            copies: VecDeque::new(),
            completions: VecDeque::new(),
            events: VecDeque::new(),
            deadlines: Deadlines::default(),
            counters: Counters::default(),
            polled_ns: 0,
            is_behind: false,
            behind_polls: 0,
            config,
        })
    }

    /// Adds a peer to the table, or finds the one with this address. Nothing is sent before the
    /// first operation on it.
    ///
    /// # Errors
    /// [`OperationError::Busy`]: the peer table is full.
    pub fn insert_peer(&mut self, address: Address) -> Result<PeerId, OperationError> {
        if let Some(&index) = self.by_address.get(&address) {
            return Ok(PeerId(index));
        }
        if self.peers.len() >= self.config.peers_max as usize {
            return Err(OperationError::Busy);
        }
        let index = self.peers.len() as u32;
        self.peers.push(Peer::new(address, self.own_key));
        self.by_address.insert(address, index);
        self.matcher.add_peer();
        self.deadlines.add_peer();
        if address == self.config.address {
            self.begin_with_itself(index);
        }
        Ok(PeerId(index))
    }

    /// Like [`insert_peer`](Self::insert_peer), for a peer whose `job_key` differs from this
    /// endpoint's. For a peer already in the table, the key applies from the next session that this
    /// endpoint requests.
    ///
    /// # Errors
    /// Those of [`insert_peer`](Self::insert_peer).
    pub fn insert_keyed_peer(
        &mut self,
        address: Address,
        job_key: &[u8; 16],
    ) -> Result<PeerId, OperationError> {
        let peer = self.insert_peer(address)?;
        self.peers[peer.0 as usize].key = Key::from_bytes(job_key);
        Ok(peer)
    }

    /// The address of a peer; none if it is not in the table.
    #[must_use]
    pub fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.peers.get(peer.0 as usize).map(|peer| peer.address)
    }

    /// The peer with this address; none if it is not in the table.
    #[must_use]
    pub fn find_peer(&self, address: &Address) -> Option<PeerId> {
        self.by_address.get(address).copied().map(PeerId)
    }

    /// Number of peers in the table, failed ones included.
    #[must_use]
    pub fn peers_count(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Whether a message or an answer of this peer is awaited: a posted receive names it, a message of it is on its way
    /// here, or one to it has not been received.
    #[must_use]
    pub fn awaits(&self, peer: PeerId) -> bool {
        let Some(known) = self.peers.get(peer.0 as usize) else { return false };
        self.owes(peer.0) || !known.pulls.list.is_empty()
    }

    /// Whether a peer is to send a message that a posted receive names, or to receive one.
    pub(crate) fn owes(&self, peer: u32) -> bool {
        // An acknowledged announcement still waits for its `Done`.
        self.matcher.is_awaited(peer) || !self.peers[peer as usize].out.sends.is_empty()
    }

    /// Why a peer failed, if it did.
    #[must_use]
    pub fn peer_failure(&self, peer: PeerId) -> Option<Failure> {
        match self.peers.get(peer.0 as usize)?.state {
            State::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The oldest completion not yet polled, in the order in which operations ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The oldest event not yet polled.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) next has something to do. Earlier calls do
    /// nothing; later ones only delay.
    #[must_use]
    pub fn poll_deadline_ns(&self) -> Option<u64> {
        self.deadlines.earliest_ns()
    }

    /// Counts since the machine was created.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// No message to a peer awaits an answer, and no pull is in progress: the endpoint may be
    /// closed without loss.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.sends.count() == 0 && self.pulls.count() == 0
    }

    /// Congestion window of the ordered packets to a peer, in bytes; none if it is not in the table.
    #[must_use]
    pub fn window_bytes(&self, peer: PeerId) -> Option<u64> {
        Some(self.peers.get(peer.0 as usize)?.out.window.bytes())
    }

    /// Approximate memory of one peer with an idle session, in bytes.
    #[must_use]
    pub fn peer_bytes(&self) -> usize {
        let lists = 4 * size_of::<List<0>>();
        // A session whose key is not this endpoint's has its own hash key.
        crate::tag::HASH_KEY_BYTES
            + size_of::<Peer>()
            + lists
            + size_of::<(u64, u32)>()
            + 4
            + 2 * size_of::<(Address, u32)>()
    }

    /// Bytes of copied messages and packets that the machine holds, rounded up to buffer
    /// capacities.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pool.lent_bytes()
    }

    /// Number of messages that no receive or claim has taken yet.
    #[must_use]
    pub fn unexpected_count(&self) -> usize {
        self.matcher.unexpected.count()
    }

    fn mark_ready(&mut self, peer: u32) {
        if !self.peers[peer as usize].ready.is_linked() {
            self.ready.push_back(&mut self.peers, peer);
        }
    }

    /// Schedules a wake-up at the peer's earliest deadline.
    fn arm(&mut self, peer: u32) {
        if let Some(at_ns) = self.peers[peer as usize].due.earliest_ns() {
            self.deadlines.wake_by(peer, at_ns);
        }
    }

    fn draw(&mut self) -> u64 {
        self.nonces_count += 1;
        self.secret.prf(&[5, self.nonces_count])
    }
}

/// Time as packets carry it: in units of 64 ns, modulo 2³², never 0.
fn stamp(now_ns: u64) -> u32 {
    ((now_ns >> 6) as u32).max(1)
}

#[cfg(test)]
mod tests;
