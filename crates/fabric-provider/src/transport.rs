//! UDP datagrams, many a system call: packets to one peer go as one send that the kernel cuts
//! (`UDP_SEGMENT`), and come in joined (`UDP_GRO`), as far as the kernel can.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use sys::datagram::{ReceiveBatch, set_joining, set_segment_bytes};
use sys::socket::set_receive_buffer;

use crate::interfaces::Place;

/// Datagrams of one send (the kernel's `UDP_MAX_SEGMENTS`, at least).
const SEGMENTS_MAX: usize = 64;
/// Bytes of one send.
const SEND_BYTES_MAX: usize = 65_000;
/// Receives a system call.
const RECEIVES_COUNT: usize = 8;
/// Asked for as receive buffer; without privileges the kernel gives what `net.core.rmem_max` allows.
const RECEIVE_BUFFER_BYTES: u64 = 4 << 20;

/// A socket with packets that wait to be sent.
#[derive(Debug)]
pub(crate) struct Udp {
    socket: UdpSocket,
    receives: ReceiveBatch,
    /// The kernel cuts and joins.
    is_cutting: bool,
    packet_bytes_max: usize,
    /// Packets to one peer, one behind the other; all but the last of `packet_bytes_max`.
    waiting: Vec<u8>,
    waiting_count: usize,
    waiting_to: Option<SocketAddr>,
    /// What the socket had no room for.
    stalled: Option<(SocketAddr, Vec<u8>)>,
    receive_buffer_bytes: u64,
    pub(crate) sends_count: u64,
    pub(crate) receives_count: u64,
}

impl Udp {
    /// A socket at any free port of an address.
    pub(crate) fn open(place: &Place) -> io::Result<Self> {
        let socket = UdpSocket::bind((place.ip, 0))?;
        socket.set_nonblocking(true)?;
        let receive_buffer_bytes =
            set_receive_buffer(&socket, RECEIVE_BUFFER_BYTES).map_err(io::Error::other)?;
        let packet_bytes_max = place.packet_bytes_max();
        let joins = set_joining(&socket, true).is_ok();
        let cuts = set_segment_bytes(&socket, u32::from(packet_bytes_max)).is_ok();
        Ok(Self {
            socket,
            receives: ReceiveBatch::new(RECEIVES_COUNT, usize::from(u16::MAX)),
            is_cutting: joins && cuts,
            packet_bytes_max: packet_bytes_max.into(),
            waiting: Vec::with_capacity(SEND_BYTES_MAX),
            waiting_count: 0,
            waiting_to: None,
            stalled: None,
            receive_buffer_bytes,
            sends_count: 0,
            receives_count: 0,
        })
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What the kernel keeps of packets that nobody read yet, with its own overhead.
    pub(crate) fn receive_buffer_bytes(&self) -> u64 {
        self.receive_buffer_bytes
    }

    /// Whether a further packet may be pushed.
    pub(crate) fn has_room(&mut self) -> bool {
        if let Some((to, bytes)) = self.stalled.take() {
            self.send(to, bytes);
        }
        self.stalled.is_none()
    }

    /// A packet to send, soon: header and payload.
    pub(crate) fn push(&mut self, to: SocketAddr, header: &[u8], payload: &[u8]) {
        let bytes = header.len() + payload.len();
        let is_full = self.waiting.len() + bytes > SEND_BYTES_MAX
            || self.waiting_count >= SEGMENTS_MAX
            || self.waiting.len() != self.waiting_count * self.packet_bytes_max;
        if self.waiting_to != Some(to) || is_full || !self.is_cutting {
            self.flush();
            self.waiting_to = Some(to);
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
        let waiting = std::mem::take(&mut self.waiting);
        if self.stalled.is_some() {
            // Lost, as on any full path; callers ask for room first.
            return;
        }
        self.waiting = self.send(to, waiting);
    }

    /// Sends; gives the vector back, empty. Failures other than a full socket are losses.
    fn send(&mut self, to: SocketAddr, mut bytes: Vec<u8>) -> Vec<u8> {
        self.sends_count += 1;
        match self.socket.send_to(&bytes, to) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.stalled = Some((to, bytes));
                return Vec::with_capacity(SEND_BYTES_MAX);
            }
            // This path or device does not cut: from now on every packet goes by itself.
            Err(_error) if self.is_cutting && bytes.len() > self.packet_bytes_max => {
                self.is_cutting = set_segment_bytes(&self.socket, 0).is_err();
                for packet in bytes.chunks(self.packet_bytes_max) {
                    self.socket.send_to(packet, to).ok();
                }
            }
            _ => {}
        }
        bytes.clear();
        bytes
    }

    /// Takes packets in, at most one system call's; true: there may be more.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(&[u8])) -> bool {
        let count = self.receives.receive(&self.socket).unwrap_or(0);
        for index in 0..count {
            let message = self.receives.message(index);
            self.receives_count += 1;
            message.payload.chunks(message.segment_bytes).for_each(&mut each);
        }
        count == RECEIVES_COUNT
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn packets_arrive_as_they_were_pushed_alone_or_in_one_send() {
        let place = crate::interfaces::loopback();
        let (mut from, mut to) = (Udp::open(&place).unwrap(), Udp::open(&place).unwrap());
        from.packet_bytes_max = 1000;
        set_segment_bytes(&from.socket, 1000).unwrap();
        let address = to.local_address().unwrap();
        assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
        let lengths = [1000, 1000, 1000, 300, 40, 1000, 999, 1000, 1000];
        for (number, length) in lengths.into_iter().enumerate() {
            assert!(from.has_room());
            from.push(address, &[number as u8; 20], &vec![number as u8; length - 20]);
        }
        from.flush();
        assert!(from.sends_count < lengths.len() as u64, "{} sends", from.sends_count);
        let mut came = Vec::new();
        let began = Instant::now();
        while came.len() < lengths.len() && began.elapsed() < Duration::from_secs(10) {
            to.receive(|packet| came.push((packet[0], packet.len())));
        }
        let expected: Vec<(u8, usize)> = lengths
            .into_iter()
            .enumerate()
            .map(|(number, length)| (number as u8, length))
            .collect();
        assert_eq!(came, expected);
    }
}
