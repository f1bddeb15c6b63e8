//! An endpoint: the machine, its socket, the program's operations and peers. Progress is made only inside the program's
//! calls, but that `backstop` sends short messages that wait; nothing here blocks but [`Endpoint::close`], for a bounded time.

mod endings;
mod initiate;
mod live;
mod progress;
mod sending;
mod site;
mod target;
mod unmatched;
mod waits;

pub(crate) use endings::Queues;
use endings::{flags_of, number_of};
use initiate::Started;
pub(crate) use initiate::{Given, Order};
use live::Live;
use sending::Burst;
pub(crate) use sending::Looked;
pub(crate) use site::Site;
use site::planned_sockets;
use target::Target;
use waits::Waits;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use messaging::{
    Channel, ClaimId, Config, Machine, OperationError, Path, PeerId, Receive, SendMode,
};

use crate::abi;
use crate::backstop::Backstop;
use crate::buffers::{Buffers, Lent};
use crate::card::{self, Card};
use crate::fence::Number;
use crate::interfaces;
use crate::local::Local;
use crate::name::Name;
use crate::operations::{Operation, Operations};
use crate::planned;
use crate::port::{self, Port};
use crate::presence::{Presence, Probes};
use crate::queue::{Ended, Error};
use crate::transport::Udp;

/// libfabric's `inject_size`.
pub(crate) const INJECT_BYTES_MAX: u64 = 4096;
/// Longest message that is copied, so that its buffer is free at once. Longer ones ask their receiver for an acknowledgement of their own, a
/// packet and an interrupt more, and wait for it while the receiver computes.
const COPY_BYTES_MAX: u64 = 16 * 1024;
// Requests for a peer's memory are copied too.
const _: () = {
    use crate::remote::request::{HEADER_BYTES, OPERANDS_BYTES_MAX};
    assert!(COPY_BYTES_MAX as usize >= HEADER_BYTES + OPERANDS_BYTES_MAX);
};
/// Unexpected messages of one peer that are kept, bytes.
const PEER_UNEXPECTED_BYTES: u64 = 128 * 1024;
/// A peer whose process does not run for so long, while something is awaited from it, has failed.
const STOPPED: Duration = Duration::from_secs(60);
/// Says it otherwise, in whole seconds.
const STOPPED_VARIABLE: &str = "FI_CLEARSTREAM_STOPPED_S";

/// A message to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    pub(crate) to: u64,
    pub(crate) channel: Channel,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    pub(crate) lent: Lent,
    pub(crate) mode: SendMode,
    pub(crate) context: usize,
    pub(crate) is_told: bool,
}

/// A receive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) from: u64,
    pub(crate) channel: Channel,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) lent: Lent,
    pub(crate) is_multi: bool,
    pub(crate) context: usize,
    pub(crate) is_told: bool,
    /// The message is taken and thrown away.
    pub(crate) is_discarded: bool,
}

/// What completion queues and flags an endpoint was opened and bound with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Binding {
    pub(crate) vector: Option<usize>,
    pub(crate) send_queue: Option<usize>,
    pub(crate) receive_queue: Option<usize>,
    pub(crate) send_counter: Option<usize>,
    pub(crate) receive_counter: Option<usize>,
    pub(crate) read_counter: Option<usize>,
    pub(crate) write_counter: Option<usize>,
    /// Of what peers read and wrote here.
    pub(crate) remote_read_counter: Option<usize>,
    pub(crate) remote_write_counter: Option<usize>,
    /// Only sends with `COMPLETION` are told.
    pub(crate) is_send_selective: bool,
    pub(crate) is_receive_selective: bool,
    /// Capabilities: whether receives may name their source, and what of remote access it may ask for and serves.
    pub(crate) caps: u64,
    /// Flags of calls that take none.
    pub(crate) send_flags: u64,
    pub(crate) receive_flags: u64,
}

/// An endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) binding: Binding,
    pub(crate) min_multi_bytes: u64,
    pub(crate) name: Name,
    pub(crate) buffers: Buffers,
    pub(crate) is_enabled: bool,
    began: Instant,
    machine: Machine,
    udp: Udp,
    local: Local,
    /// On a packet switch, where one is asked for.
    port: Option<Port>,
    /// A queue of the network card, where one is asked for and can be had.
    card: Option<Card>,
    /// Polls since a datagram came.
    quiet_polls: u32,
    /// The last poll that looked for datagrams found some.
    is_udp_busy: bool,
    /// Polls in a row at which an answer was late and not all packets were taken in.
    overdue_polls: u32,
    /// Where a report is asked for, or somebody may look.
    waits: Option<Waits>,
    live: Option<Live>,
    _presence: Presence,
    probes: Probes,
    operations: Operations,
    /// By address of the address vector.
    peers: Vec<Option<PeerId>>,
    /// The same peers' names.
    names: Vec<Option<Name>>,
    /// By peer: its address in the address vector.
    addresses: Vec<u64>,
    tells_peers: bool,
    claims: Vec<(usize, ClaimId)>,
    /// Access to the memory of peers, under way.
    started: Started,
    /// Access of peers to memory of this process.
    target: Target,
    /// Short messages that wait for further ones.
    burst: Burst,
    /// Sends them where the program calls nothing; none: no message waits.
    pub(crate) backstop: Option<Backstop>,
    /// Packets to itself.
    own: VecDeque<Vec<u8>>,
    scratch: Vec<u8>,
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Number> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::rand::getrandom(&mut bytes[..], flags).map_err(|error| error.raw_os_error())?;
    Ok(bytes)
}

fn stopped() -> Duration {
    let given = std::env::var(STOPPED_VARIABLE).ok().and_then(|text| text.parse().ok());
    given.map_or(STOPPED, Duration::from_secs)
}

impl Endpoint {
    /// An endpoint at a free port, with room for so many peers at least.
    pub(crate) fn open(binding: Binding, peers_count: usize) -> Result<Self, Number> {
        planned::bind();
        Self::open_at(binding, peers_count, &Site::chosen()?)
    }

    /// An endpoint at a site.
    pub(crate) fn open_at(
        binding: Binding,
        peers_count: usize,
        site: &Site,
    ) -> Result<Self, Number> {
        let place = &site.place;
        // Who asks for a port wants no other way.
        let no_port = |line: String| {
            interfaces::complain(&line);
            libc::ENODEV
        };
        let wish = port::Wish::asked().map_err(no_port)?;
        let number = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let wants_card = wish.is_none() && card::is_wanted();
        let (udp, presence) = planned_sockets(place, site.port, wants_card).map_err(number)?;
        let at = udp.local_address().map_err(number)?;
        let network = wish.as_ref().map(|wish| wish.network);
        let name = Name::new(at, network, site.unique, site.key);
        let port = wish.map(|wish| Port::open(&wish, &name)).transpose().map_err(no_port)?;
        let card = wants_card.then(|| Card::try_open(place, at)).flatten();
        let peers_max = (2 * peers_count as u32).clamp(1024, 1 << 20);
        let config = Config {
            packet_bytes_max: place.packet_bytes_max(),
            copy_bytes_max: site.copy_bytes_max,
            peers_max,
            unexpected_bytes_max: u64::from(peers_max) * PEER_UNEXPECTED_BYTES,
            // The kernel counts its own overhead too, and others send meanwhile.
            pull_bytes_max: udp.receive_buffer_bytes() / 4,
            silent_peer_ns: Some(stopped().as_nanos() as u64),
            ..Config::new(name.address, at.port(), name.key, random()?)
        };
        let machine = Machine::new(config).map_err(|_config| libc::EINVAL)?;
        let live = Live::of_port(&endings::host_name(), at.port());
        Ok(Self {
            binding,
            min_multi_bytes: 64,
            name,
            buffers: Buffers::default(),
            is_enabled: false,
            began: Instant::now(),
            machine,
            udp,
            local: Local::open(&name),
            port,
            card,
            quiet_polls: 0,
            is_udp_busy: false,
            overdue_polls: 0,
            waits: (live.is_some() || endings::report_file().is_some()).then(Waits::begin),
            live,
            _presence: presence,
            probes: Probes::default(),
            operations: Operations::default(),
            peers: Vec::new(),
            names: Vec::new(),
            addresses: Vec::new(),
            tells_peers: site.tells_peers,
            claims: Vec::new(),
            started: Started::default(),
            target: Target::default(),
            burst: Burst::default(),
            backstop: None,
            own: VecDeque::new(),
            scratch: Vec::new(),
        })
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }

    /// The peer at an address of the address vector.
    pub(crate) fn introduce(&mut self, at: u64, name: &Name) -> Result<(), Number> {
        let peer = self.machine.insert_keyed_peer(name.address, &name.key).map_err(number_of)?;
        let (at_index, peer_index) = (at as usize, peer.0 as usize);
        if self.peers.len() <= at_index {
            self.peers.resize(at_index + 1, None);
            self.names.resize(at_index + 1, None);
        }
        self.peers[at_index] = Some(peer);
        self.names[at_index] = Some(*name);
        if let Some(port) = self.port.as_ref().filter(|port| port.reaches(&name.address)) {
            let packet_bytes_max = port.packet_bytes_max();
            self.machine.set_path(peer, Path { packet_bytes_max, is_direct: false });
        }
        self.local.introduce(peer, &name.address, &mut self.machine);
        if self.addresses.len() <= peer_index {
            self.addresses.resize(peer_index + 1, abi::ADDR_UNSPEC);
        }
        self.addresses[peer_index] = at;
        Ok(())
    }

    fn peer(&self, at: u64) -> Result<PeerId, Number> {
        self.peers.get(at as usize).copied().flatten().ok_or(libc::EINVAL)
    }

    /// The name of the peer at an address of the address vector is what greetings to it need.
    fn reach(&mut self, at: u64, peer: PeerId) {
        let names = &self.names;
        let name = || names.get(at as usize).copied().flatten();
        self.local.reach(peer, name, &mut self.machine);
    }

    fn source(&self, from: u64) -> Result<Option<PeerId>, Number> {
        if from == abi::ADDR_UNSPEC { Ok(None) } else { self.peer(from).map(Some) }
    }

    fn address(&self, peer: PeerId) -> u64 {
        if self.tells_peers {
            return peer.0.into();
        }
        self.addresses.get(peer.0 as usize).copied().unwrap_or(abi::ADDR_UNSPEC)
    }

    /// Posts a receive.
    pub(crate) fn receive(
        &mut self,
        incoming: &Incoming,
        queues: &mut Queues<'_>,
    ) -> Result<(), Number> {
        let outcome = self.begin_receive(incoming);
        match outcome {
            Ok(now_ns) => {
                self.transmit(now_ns);
                self.settle(queues);
            }
            Err(libc::EAGAIN) => {
                self.buffers.give_back(incoming.lent.buffer);
                self.progress(queues);
            }
            Err(_) => self.buffers.give_back(incoming.lent.buffer),
        }
        outcome.map(|_now_ns| ())
    }

    /// Returns when it began.
    fn begin_receive(&mut self, incoming: &Incoming) -> Result<u64, Number> {
        let source = self.source(incoming.from)?;
        if let Some(peer) = source {
            self.reach(incoming.from, peer);
        }
        let receive = self.insert_receive(incoming, source);
        let now_ns = self.now_ns();
        let outcome = self.machine.receive(now_ns, &receive, &mut self.buffers);
        let outcome = match outcome {
            Ok(id) => {
                self.operations.set_receive(receive.context, id);
                return Ok(now_ns);
            }
            // Messages that were here before the peer failed are good.
            Err(OperationError::PeerFailed(..)) => self
                .machine
                .claim(source, incoming.channel, incoming.tag, incoming.ignore)
                .map_or(outcome.map(|_id| ()), |(claim, _arrived)| {
                    self.machine.receive_claimed(now_ns, claim, &receive, &mut self.buffers)
                }),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            self.operations.remove(receive.context);
        }
        outcome.map(|()| now_ns).map_err(number_of)
    }

    fn insert_receive(&mut self, incoming: &Incoming, source: Option<PeerId>) -> Receive {
        let context = self.operations.insert(Operation {
            context: incoming.context,
            flags: abi::RECV | flags_of(incoming.channel),
            is_told: incoming.is_told,
            buffer: incoming.lent.buffer,
            address: incoming.lent.address(),
            is_multi: incoming.is_multi,
            is_discarded: incoming.is_discarded,
            receive: None,
        });
        Receive {
            source,
            channel: incoming.channel,
            match_bits: incoming.tag & !incoming.ignore,
            ignore_bits: incoming.ignore,
            buffer: incoming.lent.buffer,
            offset: 0,
            length_bytes: incoming.lent.length_bytes,
            multi: incoming.is_multi.then_some(self.min_multi_bytes),
            context,
        }
    }

    /// Tells whether a message waits that such a receive would take; takes it out of the queue for
    /// [`receive_claimed`](Self::receive_claimed) with `claims`, for nobody if it is discarded.
    pub(crate) fn peek(
        &mut self,
        incoming: &Incoming,
        claims: bool,
        queues: &mut Queues<'_>,
    ) -> Result<(), Number> {
        self.progress(queues);
        let source = self.source(incoming.from)?;
        let (channel, tag, ignore) = (incoming.channel, incoming.tag, incoming.ignore);
        let found = if claims || incoming.is_discarded {
            let claimed = self.machine.claim(source, channel, tag, ignore);
            claimed.map(|(claim, arrived)| (Some(claim), arrived))
        } else {
            self.machine.probe(source, channel, tag, ignore).map(|arrived| (None, arrived))
        };
        let flags = abi::RECV | flags_of(channel);
        let ended = match found {
            Some((claim, arrived)) => {
                if let Some(claim) = claim {
                    self.claims.push((incoming.context, claim));
                }
                let mut ended = self.ended(flags, incoming.context, Some(&arrived));
                ended.entry.len = arrived.length_bytes as usize;
                ended
            }
            None => {
                let error = Some(Error { number: libc::ENOMSG, cut_bytes: 0 });
                Ended { error, ..self.ended(flags, incoming.context, None) }
            }
        };
        let is_discarded = incoming.is_discarded && ended.error.is_none();
        queues.push(self.binding.receive_queue, ended);
        if is_discarded {
            let nothing = Incoming { lent: Lent::NOTHING, is_told: false, ..*incoming };
            self.receive_claimed(&nothing, queues)?;
        }
        Ok(())
    }

    /// Receives a message that [`peek`](Self::peek) claimed under the same context.
    pub(crate) fn receive_claimed(
        &mut self,
        incoming: &Incoming,
        queues: &mut Queues<'_>,
    ) -> Result<(), Number> {
        let known = self.claims.iter().position(|(context, _)| *context == incoming.context);
        let (_, claim) = self.claims.swap_remove(known.ok_or(libc::EINVAL)?);
        let receive = self.insert_receive(incoming, None);
        let now_ns = self.now_ns();
        let outcome = self.machine.receive_claimed(now_ns, claim, &receive, &mut self.buffers);
        if outcome.is_err() {
            self.operations.remove(receive.context);
            self.buffers.give_back(incoming.lent.buffer);
        }
        self.transmit(now_ns);
        self.settle(queues);
        outcome.map_err(number_of)
    }

    /// Takes receives back that the program knows by this word.
    pub(crate) fn cancel(&mut self, context: usize, queues: &mut Queues<'_>) {
        for receive in self.operations.receives(context) {
            if self.machine.cancel(receive) {
                break;
            }
        }
        self.settle(queues);
    }
}
