//! BFD's sockets: one a kind of peer to receive, one a session to send.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use liveness::bfd::{
    Arrival, Hops, PACKET_BYTES_MAX, Peer, SOURCE_PORT_MIN, SessionId, Sessions, TTL_SENT,
};
use liveness::states::BfdInput;
use sys::hop_limit;

use crate::link::{WatchError, family, monotonic_ns, unguessable};
use crate::options::WatchOptions;

/// Differentiated services code point of network control.
const CLASS_SELECTOR_6: u8 = 48;
/// Most packets received in a row.
const PACKETS_COUNT_MAX: usize = 256;

/// BFD with the gateways that speak it.
#[derive(Debug)]
pub(crate) struct BfdSockets {
    sessions: Sessions,
    /// Whether for several hops, and the socket.
    receivers: Vec<(bool, UdpSocket)>,
    /// Of each session: the gateway's index, where its packets go, and the socket.
    ways: Vec<(u16, (IpAddr, u16), UdpSocket)>,
}

impl BfdSockets {
    pub(crate) fn open(options: &WatchOptions, interface_index: u32) -> Result<Self, WatchError> {
        // Discriminators must not be guessable.
        let seed = unguessable();
        let mut all =
            Self { sessions: Sessions::new(seed), receivers: Vec::new(), ways: Vec::new() };
        for (index, gateway) in options.gateways.iter().enumerate() {
            let Some(hops) = gateway.bfd else { continue };
            let address = gateway.address;
            let near_only = matches!(hops, Hops::One).then_some(interface_index);
            let peer = Peer { address, interface_index: near_only, hops };
            all.sessions.add(peer, options.bfd)?;
            let is_multihop = matches!(hops, Hops::Several { .. });
            if !all.receivers.iter().any(|(other, _)| *other == is_multihop) {
                all.receivers.push((is_multihop, receiver(options.near, hops)?));
            }
            let sender = sender(options.near, seed ^ index as u64)?;
            all.ways.push((index as u16, (address, hops.port()), sender));
        }
        Ok(all)
    }

    /// What becomes readable.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.receivers.iter().map(|(_, socket)| socket.as_fd())
    }

    pub(crate) fn wakes_at(&self) -> Option<u64> {
        self.sessions.wakes_at()
    }

    /// Takes all packets that are there, sends those that are due and hands over what has changed: the
    /// gateway's index and what BFD says of it.
    pub(crate) fn turn(&mut self, mut each: impl FnMut(u16, BfdInput)) {
        let mut buffer = [0; PACKET_BYTES_MAX];
        for (is_multihop, socket) in &self.receivers {
            for _packet in 0..PACKETS_COUNT_MAX {
                let Ok(came) = hop_limit::receive(socket, &mut buffer) else { break };
                let arrival = Arrival {
                    source: came.source.ip(),
                    interface_index: came.interface_index,
                    ttl: came.hop_limit,
                    is_multihop: *is_multihop,
                };
                let bytes = &buffer[..came.length.min(PACKET_BYTES_MAX)];
                // What is refused is counted there.
                self.sessions.handle(monotonic_ns(), &arrival, bytes).ok();
            }
        }
        let now_ns = monotonic_ns();
        for (id, _, session) in self.sessions.iter_mut() {
            let (gateway, to, socket) = &self.ways[id];
            while let Some(packet) = session.poll(now_ns) {
                // Lost, as on a wire, if it cannot be sent: the peer will notice.
                socket.send_to(&packet.encode(), *to).ok();
            }
            while session.poll_change().is_some() {
                each(*gateway, BfdInput::of(session.state(), session.remote_state()));
            }
        }
    }

    /// Takes all sessions down, and tells the peers.
    pub(crate) fn leave(&mut self) {
        let now_ns = monotonic_ns();
        for (id, _, session) in self.sessions.iter_mut() {
            let id: SessionId = id;
            session.take_down(now_ns);
            let (_, to, socket) = &self.ways[id];
            while let Some(packet) = session.poll(now_ns) {
                socket.send_to(&packet.encode(), *to).ok();
            }
        }
    }
}

fn receiver(near: IpAddr, hops: Hops) -> Result<UdpSocket, WatchError> {
    let port = hops.port();
    let taken = |source| WatchError::Port { port, address: near, source };
    let socket = UdpSocket::bind((near, port)).map_err(taken)?;
    socket.set_nonblocking(true).map_err(taken)?;
    hop_limit::report(&socket, family(near))?;
    Ok(socket)
}

/// A socket whose source port is one of those that BFD may use.
fn sender(near: IpAddr, seed: u64) -> Result<UdpSocket, WatchError> {
    let ports_count = u64::from(u16::MAX - SOURCE_PORT_MIN) + 1;
    let mut last = None;
    for attempt in 0..64 {
        let port = SOURCE_PORT_MIN + (seed.wrapping_add(attempt * 251) % ports_count) as u16;
        match UdpSocket::bind((near, port)) {
            Ok(socket) => {
                hop_limit::set(&socket, family(near), TTL_SENT)?;
                sys::socket::set_dscp(&socket, CLASS_SELECTOR_6)?;
                socket.set_nonblocking(true).ok();
                return Ok(socket);
            }
            Err(source) => last = Some(WatchError::Port { port, address: near, source }),
        }
    }
    Err(last.unwrap_or_else(|| WatchError::Addresses("no port for BFD".to_owned())))
}
