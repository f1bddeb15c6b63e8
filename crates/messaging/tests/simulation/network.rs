//! Machines joined by a simulated network: each has a link up to a switch and a link down from it,
//! with a rate and a queue that drops what does not fit; in between packets are delayed, lost,
//! doubled, overtaken and corrupted at random.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use messaging::{
    Address, BufferId, Channel, Completion, Config, CopyRequest, Event, Machine, Memory, Payload,
    PeerId, Receive, Send, SendMode,
};
use stats::Random;

/// What the network does to packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    pub(crate) delay_ns: u64,
    pub(crate) jitter_ns: u64,
    pub(crate) loss: f64,
    pub(crate) doubling: f64,
    pub(crate) corruption: f64,
    /// Share of packets that are held back, and for how long at most.
    pub(crate) overtaking: f64,
    pub(crate) overtaking_ns: u64,
    /// Bits a second of each link, 0 for no limit, and the bytes its queue holds.
    pub(crate) rate_bits_per_s: u64,
    pub(crate) queue_bytes: u64,
}

impl Path {
    /// A clean network of 10 Gbit/s with round trips of 20 µs.
    pub(crate) const LAN: Self = Self {
        delay_ns: 10_000,
        jitter_ns: 0,
        loss: 0.0,
        doubling: 0.0,
        corruption: 0.0,
        overtaking: 0.0,
        overtaking_ns: 0,
        rate_bits_per_s: 10_000_000_000,
        queue_bytes: 1 << 20,
    };
}

/// Buffers by number.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) bytes: HashMap<u64, Vec<u8>>,
    next: u64,
}

/// Bits of an address that are the offset in a buffer; the rest is the buffer's number.
const OFFSET_BITS: u32 = 32;

impl Buffers {
    pub(crate) fn add(&mut self, bytes: Vec<u8>) -> BufferId {
        self.next += 1;
        self.bytes.insert(self.next, bytes);
        BufferId(self.next)
    }
}

impl Memory for Buffers {
    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        let buffer = self.bytes.get_mut(&buffer.0).expect("a buffer that was handed in");
        let at = offset as usize;
        buffer[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes_count: usize, into: &mut Vec<u8>) {
        let at = offset as usize;
        into.extend_from_slice(&self.bytes[&buffer.0][at..at + bytes_count]);
    }

    fn place(&self, buffer: BufferId, offset: u64) -> Option<u64> {
        Some(buffer.0 << OFFSET_BITS | offset)
    }
}

/// A machine with its buffers and its link.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) machine: Machine,
    pub(crate) memory: Buffers,
    /// The process runs: not killed, not stopped.
    pub(crate) is_running: bool,
    /// The host answers probes.
    pub(crate) is_host_up: bool,
    /// It computes until then: packets wait in its socket.
    pub(crate) busy_until_ns: u64,
    /// It has not looked for packets since it computed, or was stopped.
    is_absent: bool,
    inbox: VecDeque<Vec<u8>>,
    up_free_ns: u64,
    down_free_ns: u64,
    wake_ns: u64,
    pub(crate) completions: Vec<(u64, Completion)>,
    pub(crate) events: Vec<Event>,
    pub(crate) received_bytes: u64,
}

impl Node {
    /// It looks for packets, as it did all the time before unless it was absent.
    fn begin_poll(&mut self, now_ns: u64) {
        if !std::mem::take(&mut self.is_absent) {
            self.machine.end_poll(now_ns, true);
        }
        self.machine.begin_poll(now_ns);
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrives(usize, Vec<u8>),
    /// It leaves the switch towards a node.
    Switched(usize, Vec<u8>),
    Wake(usize),
    /// A node's path to a peer has room again.
    Emptied(usize, u32),
}

/// Packets a socket holds while its process computes.
const INBOX_PKTS: usize = 4096;

/// The machines and the network between them.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) path: Path,
    pub(crate) now_ns: u64,
    pub(crate) random: Random,
    queue: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    order: u64,
    by_address: HashMap<Address, usize>,
    pub(crate) dropped_by_queue: u64,
    pub(crate) sent_pkts: u64,
    /// Copies of what passed, for replays, where it is set.
    pub(crate) recorded: Option<Vec<(usize, Vec<u8>)>>,
    /// Loses the packets whose number this names, once.
    pub(crate) lose: Vec<u64>,
    /// Hosts share memory.
    pub(crate) shared: Option<Shared>,
    /// Share of sends whose packets leave with a later call, as those of a burst do, within 200 µs.
    pub(crate) waiting: f64,
}

/// Nodes that read each other's memory, over paths that are full at times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared {
    pub(crate) path: messaging::Path,
    /// Share of copies that fail.
    pub(crate) refusal: f64,
    /// Share of packets after which a path is full, for a while.
    pub(crate) filling: f64,
}

pub(crate) fn address(index: usize) -> Address {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(index as u64).to_le_bytes());
    bytes[31] = 7;
    Address(bytes)
}

pub(crate) fn config(index: usize, seed: u64) -> Config {
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&(index as u64 ^ seed << 20).to_le_bytes());
    secret[8..].copy_from_slice(&seed.to_le_bytes());
    Config {
        peers_max: 64,
        ..Config::new(address(index), index as u16, *b"the key of a job", secret)
    }
}

impl World {
    pub(crate) fn new(count: usize, path: Path, seed: u64) -> Self {
        Self::with(count, path, seed, |config| config)
    }

    pub(crate) fn with(
        count: usize,
        path: Path,
        seed: u64,
        adapt: impl Fn(Config) -> Config,
    ) -> Self {
        let mut world = Self {
            nodes: Vec::new(),
            path,
            now_ns: 1_000,
            random: Random::from_seed(seed),
            queue: BinaryHeap::new(),
            order: 0,
            by_address: HashMap::new(),
            dropped_by_queue: 0,
            sent_pkts: 0,
            recorded: None,
            lose: Vec::new(),
            shared: None,
            waiting: 0.0,
        };
        for index in 0..count {
            let machine = Machine::new(adapt(config(index, seed))).expect("a sound configuration");
            world.by_address.insert(address(index), index);
            world.nodes.push(Node {
                machine,
                memory: Buffers::default(),
                is_running: true,
                is_host_up: true,
                busy_until_ns: 0,
                is_absent: false,
                inbox: VecDeque::new(),
                up_free_ns: 0,
                down_free_ns: 0,
                wake_ns: u64::MAX,
                completions: Vec::new(),
                events: Vec::new(),
                received_bytes: 0,
            });
        }
        world
    }

    /// The number by which `from` knows `to`.
    pub(crate) fn peer(&mut self, from: usize, to: usize) -> PeerId {
        let address = address(to);
        let machine = &mut self.nodes[from].machine;
        let peer = machine.insert_peer(address).expect("room for peers");
        if let Some(shared) = self.shared {
            machine.set_path(peer, shared.path);
        }
        peer
    }

    pub(crate) fn send(
        &mut self,
        from: usize,
        to: usize,
        bits: u64,
        bytes: Vec<u8>,
        mode: SendMode,
    ) -> u64 {
        let peer = self.peer(from, to);
        let node = &mut self.nodes[from];
        let length_bytes = bytes.len() as u64;
        let buffer = node.memory.add(bytes);
        let send = Send {
            peer,
            channel: Channel::Tagged,
            match_bits: bits,
            data: Some(bits),
            buffer,
            offset: 0,
            length_bytes,
            mode,
            context: buffer.0,
        };
        node.machine.send(self.now_ns, &send, &node.memory).expect("room to send");
        if self.waiting > 0.0 && self.random.chance(self.waiting) {
            let at_ns = self.now_ns + self.random.below(200_000);
            self.wake(from, at_ns);
        } else {
            self.pump(from);
        }
        buffer.0
    }

    pub(crate) fn receive(
        &mut self,
        at: usize,
        source: Option<usize>,
        bits: u64,
        room: usize,
    ) -> u64 {
        let source = source.map(|source| self.peer(at, source));
        let node = &mut self.nodes[at];
        let buffer = node.memory.add(vec![0; room]);
        let receive = Receive {
            source,
            channel: Channel::Tagged,
            match_bits: bits,
            ignore_bits: 0,
            buffer,
            offset: 0,
            length_bytes: room as u64,
            multi: None,
            context: buffer.0,
        };
        let posted = node.machine.receive(self.now_ns, &receive, &mut node.memory);
        posted.expect("room to receive");
        self.pump(at);
        buffer.0
    }

    /// The completion of what has this context.
    pub(crate) fn completion(&self, at: usize, context: u64) -> Option<(u64, Completion)> {
        let mut all = self.nodes[at].completions.iter();
        all.find(|(_, completion)| completion.context == context).copied()
    }

    /// Takes out of a machine what it has to say.
    pub(crate) fn pump(&mut self, at: usize) {
        if !self.nodes[at].is_running || self.nodes[at].busy_until_ns > self.now_ns {
            return;
        }
        while let Some(copy) = self.nodes[at].machine.poll_copy() {
            self.copy(at, &copy);
        }
        let mut packet = Vec::new();
        let mut payload = Vec::new();
        loop {
            let node = &mut self.nodes[at];
            let Some(mut transmit) = node.machine.poll_transmit(self.now_ns) else { break };
            payload.clear();
            match transmit.payload {
                Payload::None => {}
                Payload::Bytes(bytes) => payload.extend_from_slice(bytes),
                Payload::User { buffer, offset, length_bytes } => {
                    node.memory.read(buffer, offset, length_bytes, &mut payload);
                }
            }
            packet.clear();
            packet.extend_from_slice(transmit.header(&payload));
            packet.extend_from_slice(&payload);
            assert_eq!(packet.len(), transmit.packet_bytes());
            let to = self.by_address.get(&transmit.address).copied();
            let peer = transmit.peer;
            self.carry(at, to, &packet);
            let is_full = self.shared.is_some_and(|shared| self.random.chance(shared.filling));
            if let Some(peer) = peer.filter(|_| is_full) {
                self.nodes[at].machine.hold(peer);
                let at_ns = self.now_ns + self.random.below(100_000);
                self.put(at_ns, Happening::Emptied(at, peer.0));
            }
        }
        let now_ns = self.now_ns;
        let node = &mut self.nodes[at];
        while let Some(completion) = node.machine.poll_completion() {
            node.completions.push((now_ns, completion));
        }
        let mut probed = Vec::new();
        while let Some(event) = node.machine.poll_event() {
            if let Event::ProbeHost(peer) = event {
                probed.push(peer);
            }
            node.events.push(event);
        }
        for peer in probed {
            let address = self.nodes[at].machine.peer_address(peer).expect("it was named");
            if self.by_address.get(&address).is_some_and(|&to| self.nodes[to].is_host_up) {
                self.nodes[at].machine.host_answered(peer);
            }
        }
        if let Some(deadline_ns) = self.nodes[at].machine.poll_deadline_ns() {
            self.wake(at, deadline_ns.max(self.now_ns));
        }
    }

    /// Copies a message as its receiver would from the sender's memory, or not.
    fn copy(&mut self, at: usize, copy: &CopyRequest) {
        let address = self.nodes[at].machine.peer_address(copy.peer).expect("it was named");
        let from = &self.nodes[self.by_address[&address]];
        let buffer = BufferId(copy.place >> OFFSET_BITS);
        let offset = copy.place & ((1 << OFFSET_BITS) - 1);
        let is_there = from.is_running && from.memory.bytes.contains_key(&buffer.0);
        let mut bytes = Vec::new();
        if is_there {
            from.memory.read(buffer, offset, copy.length_bytes as usize, &mut bytes);
        }
        let refusal = self.shared.map_or(1.0, |shared| shared.refusal);
        let is_whole = is_there && !self.random.chance(refusal);
        let node = &mut self.nodes[at];
        if is_whole {
            node.memory.write(copy.buffer, copy.offset, &bytes);
        }
        node.machine.end_copy(self.now_ns, copy.id, is_whole);
    }

    fn wake(&mut self, at: usize, at_ns: u64) {
        if at_ns < self.nodes[at].wake_ns {
            self.nodes[at].wake_ns = at_ns;
            self.put(at_ns, Happening::Wake(at));
        }
    }

    fn put(&mut self, at_ns: u64, happening: Happening) {
        self.order += 1;
        self.queue.push(Reverse((at_ns, self.order, happening)));
    }

    /// Bytes on the wire take their time; 0 ns without a rate.
    fn serialisation_ns(&self, bytes: usize) -> u64 {
        let bits = (bytes as u64 + 66) * 8;
        (bits * 1_000_000_000).checked_div(self.path.rate_bits_per_s).unwrap_or(0)
    }

    /// Puts a packet on the way, as `from` sends it.
    pub(crate) fn carry(&mut self, from: usize, to: Option<usize>, packet: &[u8]) {
        self.sent_pkts += 1;
        let Some(to) = to else { return };
        if let Some(recorded) = &mut self.recorded {
            recorded.push((to, packet.to_vec()));
        }
        if from == to {
            return self.put(self.now_ns + 500, Happening::Arrives(to, packet.to_vec()));
        }
        let serialisation_ns = self.serialisation_ns(packet.len());
        let start_ns = self.nodes[from].up_free_ns.max(self.now_ns);
        let queued_bytes = (start_ns - self.now_ns) * self.path.rate_bits_per_s / 8_000_000_000;
        // A host's own queue pushes back rather than drop; here it is merely long.
        assert!(queued_bytes < 1 << 28, "the machine sends without end");
        self.nodes[from].up_free_ns = start_ns + serialisation_ns;
        if self.lose.contains(&self.sent_pkts) || self.random.chance(self.path.loss) {
            return;
        }
        let copies = if self.random.chance(self.path.doubling) { 2 } else { 1 };
        for _ in 0..copies {
            let mut packet = packet.to_vec();
            if self.random.chance(self.path.corruption) {
                let bit = self.random.below(packet.len() as u64 * 8) as usize;
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            let mut delay_ns = self.path.delay_ns + self.random.below(self.path.jitter_ns + 1);
            if self.random.chance(self.path.overtaking) {
                delay_ns += self.random.below(self.path.overtaking_ns + 1);
            }
            let at_ns = start_ns + serialisation_ns + delay_ns;
            self.put(at_ns, Happening::Switched(to, packet));
        }
    }

    /// Lets one thing happen; false: nothing is left.
    pub(crate) fn step(&mut self) -> bool {
        let Some(Reverse((at_ns, _, happening))) = self.queue.pop() else { return false };
        self.now_ns = self.now_ns.max(at_ns);
        match happening {
            Happening::Switched(to, packet) => {
                let serialisation_ns = self.serialisation_ns(packet.len());
                let start_ns = self.nodes[to].down_free_ns.max(self.now_ns);
                let queued_bytes =
                    (start_ns - self.now_ns) * self.path.rate_bits_per_s / 8_000_000_000;
                if queued_bytes > self.path.queue_bytes {
                    self.dropped_by_queue += 1;
                    return true;
                }
                self.nodes[to].down_free_ns = start_ns + serialisation_ns;
                self.put(start_ns + serialisation_ns, Happening::Arrives(to, packet));
            }
            Happening::Arrives(to, packet) => self.arrive(to, packet),
            Happening::Emptied(at, peer) => {
                self.nodes[at].machine.release(PeerId(peer));
                self.pump(at);
            }
            Happening::Wake(at) => {
                if self.nodes[at].wake_ns > at_ns {
                    return true;
                }
                self.nodes[at].wake_ns = u64::MAX;
                self.run_node(at);
            }
        }
        true
    }

    fn arrive(&mut self, to: usize, packet: Vec<u8>) {
        let now_ns = self.now_ns;
        let node = &mut self.nodes[to];
        if !node.is_running || node.busy_until_ns > now_ns {
            node.is_absent = true;
            if node.inbox.len() < INBOX_PKTS {
                node.inbox.push_back(packet);
            }
            return;
        }
        node.received_bytes += packet.len() as u64;
        node.begin_poll(now_ns);
        node.machine.handle_packet(now_ns, &packet, &mut node.memory);
        self.pump(to);
        self.nodes[to].machine.end_poll(now_ns, true);
    }

    /// The process of a node gets a turn.
    pub(crate) fn run_node(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let node = &mut self.nodes[at];
        if !node.is_running {
            return;
        }
        if node.busy_until_ns > now_ns {
            let until_ns = node.busy_until_ns;
            return self.wake(at, until_ns);
        }
        node.begin_poll(now_ns);
        while let Some(packet) = node.inbox.pop_front() {
            node.machine.handle_packet(now_ns, &packet, &mut node.memory);
        }
        node.machine.handle_timeouts(now_ns);
        self.pump(at);
        self.nodes[at].machine.end_poll(now_ns, true);
    }

    /// The process of a node computes until then.
    pub(crate) fn compute(&mut self, at: usize, until_ns: u64) {
        // It looked until now.
        self.nodes[at].begin_poll(self.now_ns);
        self.nodes[at].machine.end_poll(self.now_ns, true);
        self.nodes[at].is_absent = true;
        self.nodes[at].busy_until_ns = until_ns;
        self.nodes[at].wake_ns = u64::MAX;
        self.wake(at, until_ns);
    }

    /// A new process takes the place of the one at a node.
    pub(crate) fn restart(&mut self, at: usize, config: Config) {
        let node = &mut self.nodes[at];
        node.machine = Machine::new(config).expect("a sound configuration");
        node.memory = Buffers::default();
        node.inbox.clear();
        node.completions.clear();
        node.events.clear();
        node.is_running = true;
        node.wake_ns = u64::MAX;
    }

    /// Lets things happen until `is_done`, at most until `until_ns`. False: it never was.
    pub(crate) fn run_until(
        &mut self,
        until_ns: u64,
        mut is_done: impl FnMut(&Self) -> bool,
    ) -> bool {
        loop {
            if is_done(self) {
                return true;
            }
            let is_over = self.queue.peek().is_none_or(|Reverse((at_ns, ..))| *at_ns > until_ns);
            if is_over {
                self.now_ns = self.now_ns.max(until_ns);
                return is_done(self);
            }
            self.step();
        }
    }

    pub(crate) fn run_for(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        self.run_until(until_ns, |_| false);
    }
}
