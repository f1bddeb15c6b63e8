//! The machine: one endpoint with its peers, receives, messages and sessions.
//!
//! The owner hands in packets ([`handle_packet`](Machine::handle_packet)) and the time
//! ([`handle_timeouts`](Machine::handle_timeouts)), takes out packets
//! ([`poll_transmit`](Machine::poll_transmit)), completions and events, and calls again at
//! [`poll_deadline_ns`](Machine::poll_deadline_ns) at the latest. Nothing happens in between.

mod arrive;
mod fail;
mod greet;
mod operations;
mod order;
mod pulls;
mod reliable;
mod timeouts;
mod transmit;

use std::collections::{BTreeMap, VecDeque};

pub use transmit::{Payload, Transmit};

use crate::congestion::Window;
use crate::deadlines::Deadlines;
use crate::matching::Matcher;
use crate::peer::{Block, Early, Flight, Job, Outgoing, Peer, Pull, Receiving, State};
use crate::pool::Pool;
use crate::slab::{List, Slab};
use crate::tag::{Key, PayloadKey};
use crate::types::{Address, Completion, Event, Failure, OperationError, PeerId};
use crate::wire::{Greeting, HEADER_BYTES_MAX, Kind};

/// Most eager bytes of one peer that may wait unexpected.
const EAGER_WINDOW_BYTES_MAX: u64 = 256 * 1024;
/// Answers to strangers' greetings that wait to be sent.
const REPLIES_MAX: usize = 64;

/// What an endpoint is and how much it may use.
#[derive(Clone)]
pub struct Config {
    /// Its name, which no other endpoint has.
    pub address: Address,
    /// Its number on its host: the packets' steering field.
    pub endpoint: u16,
    /// Different each time the endpoint is opened: random.
    pub instance: u64,
    /// Known to all endpoints of a job and to nobody else: one key for all of them, or one of each
    /// endpoint's own, which its peers hand to [`Machine::insert_keyed_peer`].
    pub job_key: [u8; 16],
    /// Random, known to nobody else: nonces and cookies come from it.
    pub secret: [u8; 16],
    /// Most bytes of a packet, 256 to 65535: what a datagram carries.
    pub packet_bytes_max: u16,
    /// Longer messages wait at the sender until a receive takes them.
    pub eager_bytes_max: u64,
    /// Messages up to this long are copied, so that a send completes at once.
    pub copy_bytes_max: u64,
    /// Most bytes of such copies.
    pub copies_bytes_max: u64,
    /// Most peers.
    pub peers_max: u32,
    /// Most bytes of messages that no receive took yet. Shared among `peers_max`: a peer that has
    /// used its share announces its messages and keeps them.
    pub unexpected_bytes_max: u64,
    /// Most such messages; further ones are refused until there is room, and sent again.
    pub unexpected_max: usize,
    /// Most sends, and most receives, under way.
    pub operations_max: usize,
    /// Most bytes asked for and not received: what the way in can hold (half a socket's receive
    /// buffer, a ring).
    pub pull_bytes_max: u64,
    /// Acknowledgements wait so long for a packet to ride on.
    pub ack_delay_ns: u64,
    /// A peer fails after so long without an answer from it or its machine, while one is awaited.
    pub silent_host_ns: u64,
    /// A peer fails after so long without an answer from itself, while one is awaited: only where
    /// something answers for a process that computes.
    pub silent_peer_ns: Option<u64>,
    /// A peer fails after so long without an answer, when its machine says that nobody is there.
    pub refused_ns: u64,
    /// A peer that receives wait for is asked this often whether it is there.
    pub keepalive_ns: u64,
    /// Tags cover payloads, and packets without such a tag are dropped. The same on all endpoints
    /// of a job. Off: only headers are safe from strangers; for ways that no stranger reaches.
    pub tags_payloads: bool,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Config").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Config {
    /// The usual figures for an endpoint of this name.
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

    /// Eager bytes that one peer may have waiting here.
    pub(crate) fn eager_window_bytes(&self) -> u32 {
        let share = self.unexpected_bytes_max / u64::from(self.peers_max);
        share.min(EAGER_WINDOW_BYTES_MAX) as u32
    }
}

/// A configuration that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Too small for headers.
    #[error("packets of at most {0} bytes are too small: at least 256 are needed")]
    SmallPackets(u16),
    /// Too many packets for one message.
    #[error("eager messages of {bytes} bytes need too many packets: at most {most_bytes} bytes")]
    Eager {
        /// The bound asked for.
        bytes: u64,
        /// What packets of this size allow.
        most_bytes: u64,
    },
    /// A figure that must not be 0.
    #[error("peers_max, instance and ack_delay_ns must not be 0")]
    Zero,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets given out.
    pub sent_pkts: u64,
    /// Packets taken in, good and bad.
    pub received_pkts: u64,
    /// Ordered packets sent again.
    pub resent_pkts: u64,
    /// Fragments asked for again.
    pub reasked_pkts: u64,
    /// Packets that came twice.
    pub duplicate_pkts: u64,
    /// Packets that were none of this protocol.
    pub malformed_pkts: u64,
    /// Packets for no session or another endpoint.
    pub stray_pkts: u64,
    /// Packets whose tag was wrong.
    pub forged_pkts: u64,
    /// Packets for which there was no room; they come again.
    pub refused_pkts: u64,
    /// Timeouts without an answer.
    pub timeouts: u64,
    /// Losses that turned out to be late packets.
    pub spurious_losses: u64,
    /// Messages that no receive waited for.
    pub unexpected_messages: u64,
    /// Eager messages that were announced for want of room at the receiver.
    pub announced_for_room: u64,
    /// Bytes copied into the machine: of small sends and of unexpected messages.
    pub copied_bytes: u64,
}

/// One endpoint.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    /// What greetings to this endpoint are tagged with.
    own_key: Key,
    secret: Key,
    payload_key: PayloadKey,
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
    /// Packets given out in a row for the first of them.
    burst_pkts: u32,
    pullers: List<1>,
    pulling_count: u64,
    pull_window: Window,
    pull_under_way_bytes: u64,
    pull_shrunk_ns: u64,
    replies: VecDeque<(Kind, u32, u32, Greeting)>,
    refused: VecDeque<u32>,
    completions: VecDeque<Completion>,
    events: VecDeque<Event>,
    deadlines: Deadlines,
    counters: Counters,
}

impl Machine {
    /// An endpoint without peers.
    ///
    /// # Errors
    /// The configuration makes no sense.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let own_key = Key::from_bytes(&config.job_key);
        let packet_bytes = u64::from(config.packet_bytes_max);
        Ok(Self {
            own_key,
            secret: Key::from_bytes(&config.secret),
            payload_key: PayloadKey::new(own_key),
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
            completions: VecDeque::new(),
            events: VecDeque::new(),
            deadlines: Deadlines::default(),
            counters: Counters::default(),
            config,
        })
    }

    /// Introduces a peer, or finds it again. Nothing is sent until there is something to say.
    ///
    /// # Errors
    /// [`OperationError::Busy`]: the table is full.
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

    /// The same for a peer whose `job_key` is another than this endpoint's. For one that is known
    /// already it counts from the next session on that this endpoint asks for.
    ///
    /// # Errors
    /// As [`insert_peer`](Self::insert_peer).
    pub fn insert_keyed_peer(
        &mut self,
        address: Address,
        job_key: &[u8; 16],
    ) -> Result<PeerId, OperationError> {
        let peer = self.insert_peer(address)?;
        self.peers[peer.0 as usize].key = Key::from_bytes(job_key);
        Ok(peer)
    }

    /// A peer's name.
    #[must_use]
    pub fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.peers.get(peer.0 as usize).map(|peer| peer.address)
    }

    /// The peers so far.
    #[must_use]
    pub fn peers_count(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Why a peer failed, if it did.
    #[must_use]
    pub fn peer_failure(&self, peer: PeerId) -> Option<Failure> {
        match self.peers.get(peer.0 as usize)?.state {
            State::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The next operation that ended, in the order they did.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The next thing to know or do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) has something to do. Earlier calls do
    /// nothing; late ones only delay.
    #[must_use]
    pub fn poll_deadline_ns(&self) -> Option<u64> {
        self.deadlines.earliest_ns()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Nothing that was sent waits for an answer: the endpoint may be closed without loss.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.sends.count() == 0 && self.pulls.count() == 0
    }

    /// Bytes that peers and their idle sessions take, on average.
    #[must_use]
    pub fn peer_bytes(&self) -> usize {
        let lists = 4 * size_of::<List<0>>();
        // With a key of its own a session has a table for payloads.
        crate::tag::PAYLOAD_KEY_BYTES
            + size_of::<Peer>()
            + lists
            + size_of::<(u64, u32)>()
            + 4
            + 2 * size_of::<(Address, u32)>()
    }

    /// Bytes of messages and packets that the machine holds copies of.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pool.lent_bytes()
    }

    /// Unexpected messages that no receive took yet.
    #[must_use]
    pub fn unexpected_count(&self) -> usize {
        self.matcher.unexpected.count()
    }

    fn mark_ready(&mut self, peer: u32) {
        if !self.peers[peer as usize].ready.is_linked() {
            self.ready.push_back(&mut self.peers, peer);
        }
    }

    /// Lets the peer's earliest deadline wake it.
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

/// Time as packets say it: in units of 64 ns, never 0.
fn stamp(now_ns: u64) -> u32 {
    ((now_ns >> 6) as u32).max(1)
}

#[cfg(test)]
mod tests;
