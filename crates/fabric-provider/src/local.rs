//! Ranks of the same host: their packets go through rings in shared memory, and long messages are read from
//! the sender's memory. Where that cannot be had they go over UDP like those of other hosts.
//!
//! The machine does not know the difference: rings are a path that loses nothing, takes larger packets, and
//! may be full. A peer's packets may also come by UDP at any time.

mod direct;
mod handshake;
mod rings;

use std::collections::HashMap;
use std::sync::mpsc;

use messaging::{Address, CopyRequest, Machine, Path, PeerId};

pub(crate) use self::direct::Process;
use self::handshake::{Door, Link, LinkError, connect};
use self::rings::{PACKET_BYTES_MAX, Packet};
use crate::buffers::Buffers;
use crate::interfaces::complain;
use crate::name::Name;

/// Says how ranks of one host exchange messages: `direct`, `rings` or `off`.
const MEMORY_VARIABLE: &str = "FI_CLEARSTREAM_SHM";

/// What of this host's memory is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Rings, and long messages read from the sender's memory.
    Direct,
    /// Rings alone.
    Rings,
    /// Neither.
    Off,
}

impl Use {
    fn asked() -> Self {
        match std::env::var(MEMORY_VARIABLE).as_deref() {
            Err(_) | Ok("" | "direct") => Self::Direct,
            Ok("rings") => Self::Rings,
            Ok("off") => Self::Off,
            Ok(other) => {
                complain(&format!("{MEMORY_VARIABLE}={other}: expected direct, rings or off"));
                Self::Direct
            }
        }
    }
}

/// A link in use.
#[derive(Debug)]
struct Used {
    link: Link,
    /// None until the program names the peer.
    peer: Option<PeerId>,
    is_full: bool,
}

/// How packets to a peer go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Untried,
    Udp,
    /// Through the link with this index.
    Link(usize),
}

/// What an endpoint shares with others of its host.
#[derive(Debug)]
pub(crate) struct Local {
    uses: Use,
    name: Name,
    door: Option<(Door, mpsc::Receiver<Link>)>,
    links: Vec<Option<Used>>,
    /// A packet of any link while it is taken in.
    packet: Box<Packet>,
    /// By peer.
    ways: Vec<Way>,
    /// The link over which packets to an address go.
    by_address: HashMap<Address, usize>,
    /// Peers that were ever reached through memory, and packets that left that way.
    pub(crate) peers_count: u64,
    pub(crate) sends_count: u64,
}

impl Local {
    /// For the endpoint with this name.
    pub(crate) fn open(name: &Name) -> Self {
        let uses = Use::asked();
        let mut local = Self {
            uses,
            name: *name,
            door: None,
            links: Vec::new(),
            packet: Box::new([0; PACKET_BYTES_MAX as usize]),
            ways: Vec::new(),
            by_address: HashMap::new(),
            peers_count: 0,
            sends_count: 0,
        };
        if uses == Use::Off {
            return local;
        }
        // A rank that can make no memory would only be offered some by others.
        let opened = rings::Rings::create().map_err(|error| error.to_string()).and_then(|_| {
            Door::open(*name, uses == Use::Direct).map_err(|error| error.to_string())
        });
        match opened {
            Ok(door) => local.door = Some(door),
            Err(line) => say_why_not(&line),
        }
        local
    }

    pub(crate) fn has_links(&self) -> bool {
        !self.by_address.is_empty()
    }

    /// Tries to share memory with a peer, once: before the first operation on it.
    pub(crate) fn reach(
        &mut self,
        peer: PeerId,
        name: impl FnOnce() -> Option<Name>,
        machine: &mut Machine,
    ) {
        let index = peer.0 as usize;
        if self.ways.len() <= index {
            self.ways.resize(index + 1, Way::Untried);
        }
        if self.ways[index] != Way::Untried || self.door.is_none() {
            return;
        }
        self.admit(machine);
        let Some(name) = name().filter(|name| name.address != self.name.address) else { return };
        if self.ways[index] != Way::Untried {
            return;
        }
        self.ways[index] = Way::Udp;
        match connect(&self.name.address, &name, self.uses == Use::Direct) {
            Ok(link) => {
                let is_confirmed = link.is_confirmed;
                let link = self.keep(link);
                if is_confirmed {
                    self.assign(link, peer, machine);
                } else if let Some(used) = &mut self.links[link] {
                    used.peer = Some(peer);
                }
            }
            Err(LinkError::Absent) => {}
            Err(LinkError::Refused(line)) => say_why_not(&line),
        }
    }

    /// The next operation on a peer tries to share memory with it again.
    pub(crate) fn retry(&mut self, peer: PeerId) {
        if let Some(way) = self.ways.get_mut(peer.0 as usize).filter(|way| **way == Way::Udp) {
            *way = Way::Untried;
        }
    }

    /// Uses the link that a peer has made already, if it has.
    pub(crate) fn introduce(&mut self, peer: PeerId, address: &Address, machine: &mut Machine) {
        if let Some(&link) = self.by_address.get(address) {
            self.assign(link, peer, machine);
        }
    }

    /// Packets to this peer go through this link from now on.
    fn assign(&mut self, link: usize, peer: PeerId, machine: &mut Machine) {
        if let Some(used) = self.links.get_mut(link).and_then(Option::as_mut) {
            used.peer = Some(peer);
            let index = peer.0 as usize;
            if self.ways.len() <= index {
                self.ways.resize(index + 1, Way::Untried);
            }
            self.ways[index] = Way::Link(link);
            self.peers_count += 1;
            let is_direct = self.uses == Use::Direct;
            machine.set_path(peer, Path { packet_bytes_max: PACKET_BYTES_MAX, is_direct });
        }
    }

    fn keep(&mut self, link: Link) -> usize {
        let (address, is_confirmed) = (link.address, link.is_confirmed);
        let index = crate::fence::keep(&mut self.links, Used { link, peer: None, is_full: false });
        // Both ends may connect at the same time; then each sends over its own link.
        if is_confirmed {
            self.by_address.entry(address).or_insert(index);
        }
        index
    }

    /// Takes over the links that others made.
    fn admit(&mut self, machine: &mut Machine) {
        while let Some(link) = self.door.as_ref().and_then(|(_, links)| links.try_recv().ok()) {
            let address = link.address;
            let link = self.keep(link);
            let peer = machine.find_peer(&address);
            if self.by_address.get(&address) == Some(&link) {
                if let Some(peer) = peer {
                    self.assign(link, peer, machine);
                }
            } else if let Some(used) = &mut self.links[link] {
                used.peer = peer;
            }
        }
    }

    /// Takes packets in; true: some came.
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        machine: &mut Machine,
        buffers: &mut Buffers,
    ) -> bool {
        if self.door.is_none() {
            return false;
        }
        self.admit(machine);
        let mut has_received = false;
        for index in 0..self.links.len() {
            let Some(used) = &mut self.links[index] else { continue };
            let each = |packet: &[u8]| machine.handle_packet(now_ns, packet, buffers);
            let outcome = used.link.rings.receive(&mut self.packet, each).and_then(|came| {
                has_received |= came;
                Ok(used.is_full && used.link.rings.has_room()?)
            });
            let peer = used.peer;
            match (outcome, peer) {
                (Ok(true), Some(peer)) => {
                    used.is_full = false;
                    machine.release(peer);
                }
                (Ok(_), _) => {}
                (Err(_violation), peer) => self.give_up(index, peer, now_ns, machine),
            }
        }
        has_received
    }

    /// A peer that breaks the rules of its rings is no peer.
    fn give_up(&mut self, index: usize, peer: Option<PeerId>, now_ns: u64, machine: &mut Machine) {
        if let Some(peer) = peer {
            machine.reject(now_ns, peer);
        }
        self.remove(index);
    }

    /// Where a packet goes: the link of its peer, or none.
    pub(crate) fn way(&self, peer: Option<PeerId>, address: &Address) -> Option<usize> {
        match peer {
            Some(peer) => match self.ways.get(peer.0 as usize) {
                Some(Way::Link(index)) => Some(*index),
                _ => None,
            },
            // The answer to a greeting.
            None => self.by_address.get(address).copied(),
        }
    }

    /// Sends a packet over a link. True: there is no room for another.
    pub(crate) fn push(&mut self, way: usize, header: &[u8], payload: &[u8]) -> bool {
        let Some(used) = &mut self.links[way] else { return false };
        self.sends_count += 1;
        used.link.rings.push(header, payload);
        // What it broke is found when packets are taken in.
        used.is_full = !used.link.rings.has_room().unwrap_or(false);
        used.is_full
    }

    /// Copies a message from its sender's memory. False: not all of it, or it is no longer the message's.
    pub(crate) fn copy(&self, copy: &CopyRequest, buffers: &mut Buffers) -> bool {
        let mut links = self.links.iter().flatten();
        let process = links
            .find_map(|used| used.link.process.as_ref().filter(|_| used.peer == Some(copy.peer)));
        process.is_some_and(|process| buffers.fill_from(process, copy))
    }

    /// The session with a peer is over: nothing it reads from this process's memory counts any more.
    pub(crate) fn forget(&mut self, peer: PeerId, machine: &mut Machine) {
        for index in 0..self.links.len() {
            if self.links[index].as_ref().is_some_and(|used| used.peer == Some(peer)) {
                self.remove(index);
            }
        }
        machine.release(peer);
    }

    fn remove(&mut self, index: usize) {
        let Some(used) = self.links[index].take() else { return };
        if self.by_address.get(&used.link.address) == Some(&index) {
            self.by_address.remove(&used.link.address);
        }
        let way = used.peer.and_then(|peer| self.ways.get_mut(peer.0 as usize));
        if let Some(way) = way.filter(|way| **way == Way::Link(index)) {
            *way = Way::Udp;
        }
    }
}

fn say_why_not(line: &str) {
    complain(&format!("messages to ranks of this host go over UDP, without shared memory: {line}"));
}
