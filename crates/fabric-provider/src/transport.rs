//! UDP datagrams. Packets to one peer leave as one send that the kernel cuts (`UDP_SEGMENT`), and arrive joined
//! (`UDP_GRO`), as far as the kernel can; each packet has its length, by which joined ones are separated.
//!
//! One socket receives from all peers. A peer is sent to from a socket of its own that is connected to it:
//! the kernel then looks up neither route nor address for each send.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use messaging::{PeerId, wire};
use sys::datagram::{ReceiveBatch, set_joining, set_segment_bytes};
use sys::socket::set_receive_buffer;

use crate::interfaces::Place;

/// Datagrams of one send (the kernel's `UDP_MAX_SEGMENTS`, at least).
const SEGMENTS_MAX: usize = 64;
/// Bytes of one send.
const SEND_BYTES_MAX: usize = 65_000;
/// Datagrams of one receive, where each comes by itself.
const BATCH_COUNT: usize = 32;
/// Packets in a row that came by themselves, after which others probably follow.
const SINGLES_IN_A_ROW: u32 = 3;
/// Asked for as receive buffer; without privileges the kernel gives what `net.core.rmem_max` allows.
const RECEIVE_BUFFER_BYTES: u64 = 4 << 20;
/// Peers that have a socket of their own; packets to further ones leave from the one that receives.
const CONNECTED_MAX: usize = 64;

/// Where packets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Destination {
    peer: Option<PeerId>,
    address: SocketAddr,
}

/// A socket that sends.
#[derive(Debug)]
struct Sender {
    socket: UdpSocket,
    is_connected: bool,
    /// Length in bytes at which the kernel cuts a send; 0: it does not.
    segment_bytes: usize,
}

/// The socket from which packets to a peer leave.
#[derive(Debug)]
enum Way {
    Untried,
    Connected(Sender),
    /// The one that receives.
    Shared,
}

impl Sender {
    /// Has the kernel cut a send of so many bytes into packets of `segment_bytes`. It is told only when what it was told
    /// before does not do.
    fn cut_at(&mut self, segment_bytes: usize, bytes: usize) -> io::Result<()> {
        let is_good = if bytes > segment_bytes {
            self.segment_bytes == segment_bytes
        } else {
            self.segment_bytes >= bytes || self.segment_bytes == 0
        };
        if !is_good {
            set_segment_bytes(&self.socket, segment_bytes as u32).map_err(io::Error::other)?;
            self.segment_bytes = segment_bytes;
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8], to: Destination) -> io::Result<usize> {
        if self.is_connected {
            self.socket.send(bytes)
        } else {
            self.socket.send_to(bytes, to.address)
        }
    }
}

/// Packets for one send: each of `segment_bytes`, only the last may be shorter.
#[derive(Debug)]
struct Parcel {
    to: Destination,
    segment_bytes: usize,
    bytes: Vec<u8>,
}

/// The sockets of an endpoint, with packets that wait to be sent.
#[derive(Debug)]
pub(crate) struct Udp {
    shared: Sender,
    /// By peer.
    ways: Vec<Way>,
    connected_count: usize,
    /// One datagram, or several joined.
    received: Box<[u8]>,
    /// Several that the kernel did not join; made when the first come.
    batch: Option<ReceiveBatch>,
    /// The last datagrams were not joined, and as long as they may be or many: others probably follow, which one call takes in.
    are_single: bool,
    /// Receives in a row that each found one packet.
    singles_count: u32,
    /// The kernel cuts and joins.
    is_cutting: bool,
    packet_bytes_max: usize,
    /// Packets to one peer, one behind the other, as long as the first; only the last may be shorter.
    waiting: Vec<u8>,
    waiting_count: usize,
    segment_bytes: usize,
    waiting_to: Option<Destination>,
    /// What the socket had no room for.
    stalled: Option<Parcel>,
    receive_buffer_bytes: u64,
    pub(crate) sends_count: u64,
    pub(crate) receives_count: u64,
}

impl Udp {
    /// A socket at a port of an address; 0: at any free port.
    pub(crate) fn open(place: &Place, port: u16) -> io::Result<Self> {
        let socket = UdpSocket::bind((place.ip, port))?;
        socket.set_nonblocking(true)?;
        let receive_buffer_bytes =
            set_receive_buffer(&socket, RECEIVE_BUFFER_BYTES).map_err(io::Error::other)?;
        let packet_bytes_max = place.packet_bytes_max();
        let joins = set_joining(&socket, true).is_ok();
        let cuts = set_segment_bytes(&socket, 0).is_ok();
        let packet_bytes_max = packet_bytes_max.into();
        Ok(Self {
            shared: Sender { socket, is_connected: false, segment_bytes: 0 },
            ways: Vec::new(),
            connected_count: 0,
            received: vec![0; usize::from(u16::MAX)].into_boxed_slice(),
            batch: None,
            are_single: false,
            singles_count: 0,
            is_cutting: joins && cuts,
            packet_bytes_max,
            waiting: Vec::with_capacity(SEND_BYTES_MAX),
            waiting_count: 0,
            segment_bytes: packet_bytes_max,
            waiting_to: None,
            stalled: None,
            receive_buffer_bytes,
            sends_count: 0,
            receives_count: 0,
        })
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    /// What the kernel keeps of packets that nobody read yet, with its own overhead.
    pub(crate) fn receive_buffer_bytes(&self) -> u64 {
        self.receive_buffer_bytes
    }

    /// Length limit of a packet, in bytes.
    pub(crate) fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    /// Whether a further packet may be pushed.
    pub(crate) fn has_room(&mut self) -> bool {
        if let Some(parcel) = self.stalled.take() {
            self.send(parcel);
        }
        self.stalled.is_none()
    }

    /// Adds a packet, header and payload, to those that leave with the next [`flush`](Self::flush) at the latest. A
    /// peer has one address.
    pub(crate) fn push(
        &mut self,
        peer: Option<PeerId>,
        address: SocketAddr,
        header: &[u8],
        payload: &[u8],
    ) {
        let to = Destination { peer, address };
        let bytes = header.len() + payload.len();
        let is_full = self.waiting.len() + bytes > SEND_BYTES_MAX
            || self.waiting_count >= SEGMENTS_MAX
            || self.waiting.len() != self.waiting_count * self.segment_bytes
            || bytes > self.segment_bytes;
        if self.waiting_to != Some(to) || is_full || !self.is_cutting {
            self.flush();
            self.waiting_to = Some(to);
            self.segment_bytes = bytes;
        }
        self.waiting.extend_from_slice(header);
        self.waiting.extend_from_slice(payload);
        self.waiting_count += 1;
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(to) = self.waiting_to else { return };
        self.waiting_count = 0;
        let bytes = std::mem::take(&mut self.waiting);
        if self.stalled.is_some() {
            // Lost, as on any full path; callers ask for room first.
            return;
        }
        self.waiting = self.send(Parcel { to, segment_bytes: self.segment_bytes, bytes });
    }

    /// Sends; gives the vector back, empty. Failures other than a full socket are losses.
    fn send(&mut self, parcel: Parcel) -> Vec<u8> {
        self.sends_count += 1;
        self.connect(parcel.to);
        // A connected socket reports by one failed send what came back for an earlier one.
        let outcome = self.try_send(&parcel).or_else(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Err(error),
            _ => self.try_send(&parcel),
        });
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.stalled = Some(parcel);
                return Vec::with_capacity(SEND_BYTES_MAX);
            }
            // This path or device does not cut, or its MTU has become too small to cut at this length: from now on every
            // packet goes by itself, in fragments where it is too long.
            Err(error) if self.is_cutting && is_uncuttable(&error, &parcel) => {
                self.stop_cutting();
                for packet in parcel.bytes.chunks(parcel.segment_bytes) {
                    self.sender(parcel.to).send(packet, parcel.to).ok();
                }
            }
            _ => {}
        }
        let mut bytes = parcel.bytes;
        bytes.clear();
        bytes
    }

    fn try_send(&mut self, parcel: &Parcel) -> io::Result<usize> {
        let is_cutting = self.is_cutting;
        let sender = self.sender(parcel.to);
        if is_cutting {
            sender.cut_at(parcel.segment_bytes, parcel.bytes.len())?;
        }
        sender.send(&parcel.bytes, parcel.to)
    }

    fn sender(&mut self, to: Destination) -> &mut Sender {
        match to.peer.and_then(|peer| self.ways.get_mut(peer.0 as usize)) {
            Some(Way::Connected(sender)) => sender,
            _ => &mut self.shared,
        }
    }

    fn stop_cutting(&mut self) {
        self.is_cutting = false;
        let connected = self.ways.iter().filter_map(|way| match way {
            Way::Connected(sender) => Some(sender),
            _ => None,
        });
        for sender in connected.chain([&self.shared]) {
            set_segment_bytes(&sender.socket, 0).ok();
        }
    }

    /// Gives a peer a socket of its own, before the first send to it.
    fn connect(&mut self, to: Destination) {
        let Some(index) = to.peer.map(|peer| peer.0 as usize) else { return };
        if self.ways.len() <= index {
            self.ways.resize_with(index + 1, || Way::Untried);
        }
        if !matches!(self.ways[index], Way::Untried) {
            return;
        }
        self.ways[index] = Way::Shared;
        if self.connected_count < CONNECTED_MAX
            && let Ok(sender) = self.connected(to.address)
        {
            self.connected_count += 1;
            self.ways[index] = Way::Connected(sender);
        }
    }

    fn connected(&self, to: SocketAddr) -> io::Result<Sender> {
        let socket = UdpSocket::bind((self.shared.socket.local_addr()?.ip(), 0))?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        // Nobody reads from it.
        set_receive_buffer(&socket, 0).map_err(io::Error::other)?;
        Ok(Sender { socket, is_connected: true, segment_bytes: 0 })
    }

    /// Receives a datagram, several joined, or several that come one by one, with one system call, and hands over each
    /// packet. The number of bytes, or none where nothing waits.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(&[u8])) -> Option<usize> {
        if std::mem::take(&mut self.are_single) {
            return self.receive_batch(each);
        }
        let Ok(length_bytes) = self.shared.socket.recv(&mut self.received) else {
            self.singles_count = 0;
            return None;
        };
        self.receives_count += 1;
        let joined = &self.received[..length_bytes];
        let is_single = wire::first_packet_bytes(joined) == length_bytes;
        self.singles_count = if is_single { self.singles_count.saturating_add(1) } else { 0 };
        self.are_single =
            length_bytes == self.packet_bytes_max || self.singles_count >= SINGLES_IN_A_ROW;
        for_each_packet(joined, &mut each);
        Some(length_bytes)
    }

    fn receive_batch(&mut self, mut each: impl FnMut(&[u8])) -> Option<usize> {
        let new = || ReceiveBatch::new(BATCH_COUNT, u16::MAX.into());
        let batch = self.batch.get_or_insert_with(new);
        let count = batch.receive(&self.shared.socket).ok()?;
        self.receives_count += 1;
        self.are_single = count > 1;
        let mut length_bytes = 0;
        for index in 0..count {
            let joined = batch.message(index).payload;
            self.are_single &= joined.len() <= self.packet_bytes_max;
            length_bytes += joined.len();
            for_each_packet(joined, &mut each);
        }
        Some(length_bytes)
    }
}

/// Hands over the packets of a datagram, or of several joined.
pub(crate) fn for_each_packet(joined: &[u8], each: &mut impl FnMut(&[u8])) {
    joined.chunks(wire::first_packet_bytes(joined).max(1)).for_each(each);
}

/// Whether a send may have failed because the kernel was to cut it.
fn is_uncuttable(error: &io::Error, parcel: &Parcel) -> bool {
    parcel.bytes.len() > parcel.segment_bytes
        || matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    use sys::interface::{LinkSettings, RouteSocket};

    use super::*;

    /// The beginning of a packet of so many bytes, of a kind that says how long it is.
    fn header(number: usize, length: usize) -> [u8; wire::HEADER_BYTES] {
        let mut header = [number as u8; wire::HEADER_BYTES];
        (header[0], header[1]) = (wire::MAGIC, wire::Kind::More as u8);
        header[38..].copy_from_slice(&(length as u16).to_le_bytes());
        header
    }

    fn pair() -> (Udp, Udp, SocketAddr) {
        let place = crate::interfaces::loopback();
        let (mut from, to) = (Udp::open(&place, 0).unwrap(), Udp::open(&place, 0).unwrap());
        from.packet_bytes_max = 1000;
        let address = to.local_address().unwrap();
        assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
        (from, to, address)
    }

    /// What comes until there are so many packets: their numbers and lengths.
    fn came(to: &mut Udp, count: usize) -> Vec<(u8, usize)> {
        let mut came = Vec::new();
        let began = Instant::now();
        while came.len() < count && began.elapsed() < Duration::from_secs(10) {
            to.receive(|packet| came.push((packet[2], packet.len())));
        }
        came
    }

    #[test]
    fn packets_arrive_as_they_were_pushed_alone_or_in_one_send() {
        for peer in [None, Some(PeerId(3))] {
            let (mut from, mut to, address) = pair();
            let lengths = [1000, 1000, 1000, 300, 40, 40, 40, 1000, 999, 1000, 1000, 84, 1000];
            for (number, length) in lengths.into_iter().enumerate() {
                assert!(from.has_room());
                let payload = vec![number as u8; length - wire::HEADER_BYTES];
                from.push(peer, address, &header(number, length), &payload);
            }
            from.flush();
            assert_eq!(from.sends_count, 5, "those of one length, and a shorter last one");
            assert_eq!(from.connected_count, usize::from(peer.is_some()));
            let expected = lengths.into_iter().enumerate();
            let expected: Vec<_> =
                expected.map(|(number, length)| (number as u8, length)).collect();
            assert_eq!(came(&mut to, lengths.len()), expected);
        }
    }

    #[test]
    fn packets_that_are_not_joined_are_taken_in_many_at_a_time() {
        let (mut from, mut to, address) = pair();
        from.is_cutting = false;
        to.packet_bytes_max = 1000;
        // The loopback delivers them before the sends return.
        let lengths = [1000; 70].into_iter().chain([300, 1000, 1000, 40]);
        let expected: Vec<_> =
            lengths.enumerate().map(|(number, length)| (number as u8, length)).collect();
        for &(number, length) in &expected {
            let payload = vec![number; length - wire::HEADER_BYTES];
            from.push(Some(PeerId(0)), address, &header(number.into(), length), &payload);
        }
        from.flush();
        assert_eq!(came(&mut to, expected.len()), expected);
        assert_eq!(to.receives_count, 4, "one alone, twice 32, and the rest");
        from.push(Some(PeerId(0)), address, &header(7, 40), &[]);
        from.flush();
        assert_eq!(came(&mut to, 1), [(7, 40)]);
    }

    #[test]
    fn a_closed_port_costs_no_later_packet() {
        let (mut from, to, address) = pair();
        let push = |from: &mut Udp, number| {
            from.push(Some(PeerId(0)), address, &header(number, 1000), &[0; 960]);
            from.push(Some(PeerId(0)), address, &header(number, 1000), &[0; 960]);
            from.flush();
        };
        drop(to);
        // The loopback reports the closed port before the send returns; the next send fails with that report.
        push(&mut from, 1);
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let shared = Sender { socket, is_connected: false, segment_bytes: 0 };
        let mut to = Udp { shared, ..Udp::open(&crate::interfaces::loopback(), 0).unwrap() };
        push(&mut from, 2);
        assert_eq!(came(&mut to, 2), [(2, 1000), (2, 1000)]);
        assert!(from.is_cutting);
    }

    #[test]
    fn root_packets_arrive_after_the_mtu_was_lowered() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can change an interface");
            return;
        }
        let check = || {
            let _namespace = sys::namespace::unshare_network().expect("a network namespace");
            let mut loopback = RouteSocket::open().expect("netlink");
            let up = LinkSettings { up: true, ..LinkSettings::default() };
            loopback.set_link("lo", up).expect("up");
            loopback.set_mtu("lo", 1500).expect("an MTU");
            // That of this namespace, which /sys does not show.
            assert_eq!(crate::interfaces::loopback().packet_bytes_max(), 1472);
            let (mut from, mut to, address) = pair();
            let mut push = |number: usize, count: usize| {
                for _ in 0..count {
                    from.push(Some(PeerId(0)), address, &header(number, 1000), &[0; 960]);
                }
                from.flush();
            };
            push(1, 3);
            loopback.set_mtu("lo", 800).expect("an MTU");
            push(2, 1);
            push(3, 3);
            let expected = [1, 1, 1, 2, 3, 3, 3].map(|number| (number, 1000));
            assert_eq!(came(&mut to, expected.len()), expected);
            assert!(!from.is_cutting);
        };
        // The namespace is the thread's.
        std::thread::spawn(check).join().expect("no panic");
    }

    #[test]
    fn peers_beyond_the_limit_are_sent_to_from_the_shared_socket() {
        let (mut from, mut to, address) = pair();
        let count = CONNECTED_MAX + 2;
        for number in 0..count {
            from.push(Some(PeerId(number as u32)), address, &header(number, 40), &[]);
        }
        from.flush();
        assert_eq!(from.connected_count, CONNECTED_MAX);
        assert_eq!(came(&mut to, count).len(), count);
    }
}
