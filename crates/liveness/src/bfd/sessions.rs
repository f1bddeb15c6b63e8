//! Many sessions, and which of them a packet is for (RFC 5880 section 6.3, RFC 5881 section 3).

use core::net::IpAddr;
use std::collections::BTreeMap;

use stats::Random;
use thiserror::Error;

use super::packet::{ControlPacket, MalformedControlPacketError, State};
use super::session::{Session, SessionConfig, SessionConfigError};
use super::{Hops, TTL_SENT};

/// Most sessions of one host.
const SESSIONS_COUNT_MAX: usize = 4096;

/// Which session, for as long as it exists.
pub type SessionId = usize;

/// Whom a session is with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The peer's address.
    pub address: IpAddr,
    /// Index of the interface that its packets must come by; `None`: any.
    pub interface_index: Option<u32>,
    /// How far it is.
    pub hops: Hops,
}

/// Where a packet came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Source address of the session.
    pub source: IpAddr,
    /// Index of the interface it came by.
    pub interface_index: u32,
    /// Its TTL or hop limit on arrival.
    pub ttl: u8,
    /// Whether it came to the port for several hops.
    pub is_multihop: bool,
}

/// Why a packet was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RefusedPacketError {
    /// It is no control packet.
    #[error(transparent)]
    Malformed(#[from] MalformedControlPacketError),
    /// It comes from farther away than the session allows.
    #[error("the packet arrived with TTL {came}; the session wants at least {least}")]
    Ttl {
        /// TTL of the packet.
        came: u8,
        /// What the session accepts.
        least: u8,
    },
    /// No session has this discriminator.
    #[error("no session has discriminator {0}")]
    UnknownDiscriminator(u32),
    /// No session is with this sender.
    #[error("no session is with {0}")]
    UnknownSource(IpAddr),
    /// The session that it names is with somebody else.
    #[error("the session that the packet names is not with {0}")]
    WrongSource(IpAddr),
    /// The session is administratively down.
    #[error("the session is administratively down")]
    AdminDown,
}

/// How many packets were discarded, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusalCounters {
    /// Packets that are not control packets.
    pub malformed_count: u64,
    /// From too far away.
    pub ttl_count: u64,
    /// Packets for no session.
    pub unknown_count: u64,
    /// For a session with somebody else.
    pub wrong_source_count: u64,
    /// For a session that is administratively down.
    pub admin_down_count: u64,
}

impl RefusalCounters {
    fn count(&mut self, refusal: &RefusedPacketError) {
        let counter = match refusal {
            RefusedPacketError::Malformed(_) => &mut self.malformed_count,
            RefusedPacketError::Ttl { .. } => &mut self.ttl_count,
            RefusedPacketError::UnknownDiscriminator(_) | RefusedPacketError::UnknownSource(_) => {
                &mut self.unknown_count
            }
            RefusedPacketError::WrongSource(_) => &mut self.wrong_source_count,
            RefusedPacketError::AdminDown => &mut self.admin_down_count,
        };
        *counter += 1;
    }
}

/// Why there is no such session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AddSessionError {
    /// Its configuration makes no sense.
    #[error(transparent)]
    Config(#[from] SessionConfigError),
    /// There is one with this peer.
    #[error("there is a BFD session with {0} already")]
    Taken(IpAddr),
    /// There are as many sessions as a host may have.
    #[error("this host has 4096 BFD sessions, the most it can have")]
    TooMany,
}

/// The sessions of a host.
#[derive(Debug, Clone)]
pub struct Sessions {
    sessions: Vec<(Peer, Session)>,
    by_discriminator: BTreeMap<u32, SessionId>,
    random: Random,
    counters: RefusalCounters,
}

impl Sessions {
    /// None yet. `seed` decides discriminators and jitter; it should come from the system's random
    /// numbers, so that nobody can guess a discriminator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            sessions: Vec::new(),
            by_discriminator: BTreeMap::new(),
            random: Random::from_seed(seed),
            counters: RefusalCounters::default(),
        }
    }

    /// Adds a session.
    ///
    /// # Errors
    /// See [`AddSessionError`].
    pub fn add(&mut self, peer: Peer, config: SessionConfig) -> Result<SessionId, AddSessionError> {
        if self.sessions.len() >= SESSIONS_COUNT_MAX {
            return Err(AddSessionError::TooMany);
        }
        let is_same = |other: &Peer| {
            other.address == peer.address
                && other.hops.port() == peer.hops.port()
                && (other.interface_index == peer.interface_index
                    || other.interface_index.is_none()
                    || peer.interface_index.is_none())
        };
        if self.sessions.iter().any(|(other, _)| is_same(other)) {
            return Err(AddSessionError::Taken(peer.address));
        }
        let discriminator = self.free_discriminator();
        let session = Session::new(config, discriminator, self.random.bits())?;
        let id = self.sessions.len();
        self.sessions.push((peer, session));
        self.by_discriminator.insert(discriminator, id);
        Ok(id)
    }

    fn free_discriminator(&mut self) -> u32 {
        loop {
            let number = (self.random.bits() >> 32) as u32;
            if number != 0 && !self.by_discriminator.contains_key(&number) {
                return number;
            }
        }
    }

    /// A session and whom it is with.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<&(Peer, Session)> {
        self.sessions.get(id)
    }

    /// All sessions, to be polled.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SessionId, &Peer, &mut Session)> {
        self.sessions.iter_mut().enumerate().map(|(id, (peer, session))| (id, &*peer, session))
    }

    /// What was discarded so far.
    #[must_use]
    pub fn counters(&self) -> RefusalCounters {
        self.counters
    }

    /// When one of the sessions has something to do next.
    #[must_use]
    pub fn wakes_at(&self) -> Option<u64> {
        self.sessions.iter().filter_map(|(_, session)| session.wakes_at()).min()
    }

    /// Takes a packet; says which session it was for.
    ///
    /// A packet that names a session is for that session; one that names none is for the session with its
    /// sender. RFC 5880 lets a packet of the first kind come from any address. Sessions here have no
    /// authentication, so it must come from the session's peer.
    ///
    /// # Errors
    /// The packet was discarded and counted.
    pub fn handle(
        &mut self,
        now_ns: u64,
        arrival: &Arrival,
        bytes: &[u8],
    ) -> Result<SessionId, RefusedPacketError> {
        let found = self.find(arrival, bytes);
        match found {
            Ok((id, packet)) => {
                self.sessions[id].1.handle_packet(now_ns, &packet);
                Ok(id)
            }
            Err(refusal) => {
                self.counters.count(&refusal);
                Err(refusal)
            }
        }
    }

    fn find(
        &self,
        arrival: &Arrival,
        bytes: &[u8],
    ) -> Result<(SessionId, ControlPacket), RefusedPacketError> {
        // Nothing that came over a router is looked into where only neighbours may speak.
        if !arrival.is_multihop && arrival.ttl != TTL_SENT {
            return Err(RefusedPacketError::Ttl { came: arrival.ttl, least: TTL_SENT });
        }
        let packet = ControlPacket::parse(bytes)?;
        let is_from = |peer: &Peer| {
            peer.address == arrival.source
                && matches!(peer.hops, Hops::Several { .. }) == arrival.is_multihop
                && peer.interface_index.is_none_or(|index| index == arrival.interface_index)
        };
        let id = if packet.your_discriminator == 0 {
            let id = self.sessions.iter().position(|(peer, _)| is_from(peer));
            id.ok_or(RefusedPacketError::UnknownSource(arrival.source))?
        } else {
            let named = packet.your_discriminator;
            let id = self.by_discriminator.get(&named);
            *id.ok_or(RefusedPacketError::UnknownDiscriminator(named))?
        };
        let (peer, session) = &self.sessions[id];
        if !is_from(peer) {
            return Err(RefusedPacketError::WrongSource(arrival.source));
        }
        let least = peer.hops.ttl_min();
        if arrival.ttl < least {
            return Err(RefusedPacketError::Ttl { came: arrival.ttl, least });
        }
        if session.state() == State::AdminDown {
            return Err(RefusedPacketError::AdminDown);
        }
        Ok((id, packet))
    }
}
