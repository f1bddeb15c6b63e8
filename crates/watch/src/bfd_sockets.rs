//! BFD's sockets: one a kind of peer to receive, one a session to send.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use liveness::bfd::{
    Arrival, ControlPacket, Hops, PACKET_BYTES, PACKET_BYTES_MAX, Peer, SOURCE_PORT_MIN, SessionId,
    Sessions, TTL_SENT,
};
use liveness::probe::MacAddress;
use liveness::probe::datagram::{header_bytes, write_headers_with};
use liveness::states::BfdInput;
use sys::hop_limit;
use sys::packet::SendPackets;

use crate::filter;
use crate::link::{WatchError, family, monotonic_ns, unguessable};
use crate::options::WatchOptions;

/// Differentiated services code point of network control.
const CLASS_SELECTOR_6: u8 = 48;
/// Most packets received in a row.
const PACKETS_COUNT_MAX: usize = 256;

/// BFD with the gateways that speak it, or with systems behind them.
#[derive(Debug)]
pub(crate) struct BfdSockets {
    sessions: Sessions,
    /// Whether for several hops, and the socket.
    receivers: Vec<(bool, UdpSocket)>,
    /// Of each session.
    ways: Vec<Way>,
    /// What sends packets through a certain gateway; where a session is over several hops.
    frames: Option<Frames>,
}

/// How the packets of a session are sent.
#[derive(Debug)]
struct Way {
    /// The gateway's index.
    gateway: u16,
    /// Whether they are to go through the gateway and not to it.
    is_through: bool,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    /// Keeps the source port taken, too.
    socket: UdpSocket,
}

/// Packets to Ethernet addresses: the host's routes may lead to a peer over another gateway.
#[derive(Debug)]
struct Frames {
    socket: OwnedFd,
    packets: SendPackets,
}

impl Frames {
    fn open(near: IpAddr, interface_index: u32) -> Result<Self, WatchError> {
        let family = family(near);
        let socket = sys::packet::open(interface_index, family, &filter::nothing(), 0)?;
        let packet_bytes = header_bytes(near.is_ipv6()) + PACKET_BYTES;
        Ok(Self { socket, packets: SendPackets::new(1, packet_bytes, interface_index, family) })
    }

    fn send(&mut self, way: &Way, mac: MacAddress, packet: &ControlPacket) {
        let length = header_bytes(way.from.0.is_ipv6()) + PACKET_BYTES;
        let into = &mut self.packets.next_mut()[..length];
        into[length - PACKET_BYTES..].copy_from_slice(&packet.encode());
        write_headers_with(TTL_SENT, into, way.from, way.to, PACKET_BYTES);
        self.packets.push(length, mac);
        self.packets.send(&self.socket).ok();
    }
}

impl BfdSockets {
    pub(crate) fn open(options: &WatchOptions, interface_index: u32) -> Result<Self, WatchError> {
        // Discriminators must not be guessable.
        let seed = unguessable();
        let mut all = Self {
            sessions: Sessions::new(seed),
            receivers: Vec::new(),
            ways: Vec::new(),
            frames: None,
        };
        let near = options.near;
        for (index, gateway) in options.gateways.iter().enumerate() {
            let Some(peer) = gateway.bfd else { continue };
            let (address, hops) = (peer.address, peer.hops);
            let near_only = matches!(hops, Hops::One).then_some(interface_index);
            all.sessions.add(Peer { address, interface_index: near_only, hops }, options.bfd)?;
            let is_through = matches!(hops, Hops::Several { .. });
            if !all.receivers.iter().any(|(other, _)| *other == is_through) {
                all.receivers.push((is_through, receiver(near, hops)?));
            }
            if is_through && all.frames.is_none() {
                all.frames = Some(Frames::open(near, interface_index)?);
            }
            let (port, socket) = sender(near, seed ^ index as u64)?;
            all.ways.push(Way {
                gateway: index as u16,
                is_through,
                from: (near, port),
                to: (address, hops.port()),
                socket,
            });
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
    /// gateway's index and what BFD says of it. `mac` knows the gateways' Ethernet addresses.
    pub(crate) fn turn(
        &mut self,
        mac: impl Fn(u16) -> Option<MacAddress>,
        mut each: impl FnMut(u16, BfdInput),
    ) {
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
            let way = &self.ways[id];
            while let Some(packet) = session.poll(now_ns) {
                way.send(&mut self.frames, &mac, &packet);
            }
            while session.poll_change().is_some() {
                each(way.gateway, BfdInput::of(session.state(), session.remote_state()));
            }
        }
    }

    /// Takes all sessions down, and tells the peers.
    pub(crate) fn leave(&mut self, mac: impl Fn(u16) -> Option<MacAddress>) {
        let now_ns = monotonic_ns();
        for (id, _, session) in self.sessions.iter_mut() {
            let id: SessionId = id;
            session.take_down(now_ns);
            while let Some(packet) = session.poll(now_ns) {
                self.ways[id].send(&mut self.frames, &mac, &packet);
            }
        }
    }
}

impl Way {
    /// Lost, as on a wire, if it cannot be sent: the peer will notice.
    fn send(
        &self,
        frames: &mut Option<Frames>,
        mac: &impl Fn(u16) -> Option<MacAddress>,
        packet: &ControlPacket,
    ) {
        match frames {
            Some(frames) if self.is_through => {
                if let Some(mac) = mac(self.gateway) {
                    frames.send(self, mac, packet);
                }
            }
            _to_the_gateway => {
                self.socket.send_to(&packet.encode(), self.to).ok();
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

/// A socket whose source port is one of those that BFD may use, and the port.
fn sender(near: IpAddr, seed: u64) -> Result<(u16, UdpSocket), WatchError> {
    let ports_count = u64::from(u16::MAX - SOURCE_PORT_MIN) + 1;
    let mut last = None;
    for attempt in 0..64 {
        let port = SOURCE_PORT_MIN + (seed.wrapping_add(attempt * 251) % ports_count) as u16;
        match UdpSocket::bind((near, port)) {
            Ok(socket) => {
                hop_limit::set(&socket, family(near), TTL_SENT)?;
                sys::socket::set_dscp(&socket, CLASS_SELECTOR_6)?;
                socket.set_nonblocking(true).ok();
                return Ok((port, socket));
            }
            Err(source) => last = Some(WatchError::Port { port, address: near, source }),
        }
    }
    Err(last.unwrap_or_else(|| WatchError::Addresses("no port for BFD".to_owned())))
}
