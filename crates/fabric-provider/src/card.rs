//! A receive queue of the network card for this endpoint alone, past the kernel's network stack (`AF_XDP`).
//!
//! On the wire packets are UDP datagrams over IPv4 as those of the sockets are, so the other end need not do the same, and what comes by another
//! queue comes to the socket. Peers are sent to in this way where the kernel knows their hardware address, and, on a
//! veth pair, where they receive by the queue of the same number; all others by UDP.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};

use messaging::{Machine, PeerId};
use ports::xdp::{Flush, Port, Steered, open_steered};
use sys::interface::RouteSocket;

use crate::buffers::Buffers;
use crate::held::Users;
use crate::interfaces::{Place, complain, complain_of};
use crate::transport::for_each_packet;

/// Names what carries packets between hosts: `udp` or `xdp`.
const TRANSPORT_VARIABLE: &str = "FI_CLEARSTREAM_TRANSPORT";

const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const HEADERS_BYTES: usize = ETHERNET_BYTES + IP_BYTES + 8;
/// Most bytes of a frame that fits where it arrives.
const FRAME_BYTES_MAX: usize = 4096 - 256;
/// Most packets taken in a row.
const PACKETS_IN_A_ROW: u32 = 64;
/// How often it is asked whether the device is still there, where nothing comes.
const CHECK_NS: u64 = 100_000_000;
/// For so long a neighbour is where it was.
const NEIGHBOUR_NS: u64 = 1_000_000_000;
/// How often the kernel is asked for a neighbour that it does not know.
const UNKNOWN_NS: u64 = 20_000_000;

/// Whether this endpoint is to have a queue: the first of a process, where it is asked for.
pub(crate) fn is_wanted() -> bool {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    match std::env::var(TRANSPORT_VARIABLE).as_deref() {
        Ok("xdp") => !TAKEN.swap(true, Ordering::Relaxed),
        Err(_) | Ok("" | "udp") => false,
        Ok(other) => {
            complain(&format!("{TRANSPORT_VARIABLE}={other}: it is neither udp nor xdp"));
            false
        }
    }
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    hardware: [u8; 6],
    to: SocketAddrV4,
}

/// An endpoint's queue.
#[derive(Debug)]
pub(crate) struct Card {
    port: Port,
    at: SocketAddrV4,
    hardware: [u8; 6],
    pub(crate) queue: u32,
    queues_count: u32,
    keeps_queues: bool,
    neighbours: Neighbours,
    frame: Box<[u8]>,
    /// Frames that are written and not yet handed over.
    filled: u32,
    /// The frame before goes on in the next one: it is none of ours.
    goes_on: bool,
    /// The kernel has yet to take frames that were handed over.
    is_behind: bool,
    users: Users,
    next_check_ns: u64,
    pub(crate) sends_count: u64,
    pub(crate) receives_count: u64,
}

impl Card {
    /// The queue of the endpoint at this address; where it cannot be had, the user is told why.
    pub(crate) fn try_open(place: &Place, at: SocketAddr) -> Option<Self> {
        let told = |line| complain_of(&format!("messages go over UDP, not by AF_XDP: {line}"));
        Self::open(place, at).map_err(told).ok()
    }

    fn open(place: &Place, at: SocketAddr) -> Result<Self, String> {
        let SocketAddr::V4(at) = at else { return Err(format!("{at} is not of IPv4")) };
        let frame_bytes = usize::from(place.packet_bytes_max()) + HEADERS_BYTES;
        let device = &place.interface;
        if frame_bytes > FRAME_BYTES_MAX {
            let most = FRAME_BYTES_MAX - ETHERNET_BYTES;
            return Err(format!("the MTU of {device} is more than {most}"));
        }
        let opened = open_steered(device, *at.ip(), at.port());
        let Steered { opened, queue, queues_count, keeps_queues, hardware_address } =
            opened.map_err(|error| error.to_string())?;
        let port = Port::try_from(opened).map_err(|error| error.to_string())?;
        Ok(Self {
            port,
            at,
            hardware: hardware_address,
            queue,
            queues_count,
            keeps_queues,
            neighbours: Neighbours { device: device.clone(), known: HashMap::new() },
            frame: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            filled: 0,
            goes_on: false,
            is_behind: false,
            users: Users::default(),
            next_check_ns: 0,
            sends_count: 0,
            receives_count: 0,
        })
    }

    /// Whether packets have gone or come through it.
    pub(crate) fn is_used(&self) -> bool {
        self.users.are_any() || self.receives_count > 0
    }

    /// How packets to an address go; `None`: by UDP.
    pub(crate) fn way(&mut self, now_ns: u64, to: SocketAddr) -> Option<Way> {
        let SocketAddr::V4(to) = to else { return None };
        if self.keeps_queues && u32::from(to.port()) % self.queues_count != self.queue {
            return None;
        }
        let hardware = self.neighbours.find(now_ns, *to.ip())?;
        Some(Way { hardware, to })
    }

    /// Adds a packet to those that leave with the next [`flush`](Self::flush); one without room is lost, as on any path.
    /// True: there is no room for another, and [`hold`](Self::hold) is due.
    ///
    /// # Errors
    /// The device is gone.
    pub(crate) fn push(
        &mut self,
        peer: Option<PeerId>,
        way: Way,
        [header, payload]: [&[u8]; 2],
    ) -> io::Result<bool> {
        if let Some(peer) = peer {
            self.users.add(peer);
        }
        if self.port.room(self.filled + 1)? <= self.filled {
            return Ok(true);
        }
        let head = head(self.hardware, self.at, way, header.len() + payload.len());
        let Some(chunk) = self.port.chunk(self.filled) else { return Ok(true) };
        let mut at = 0;
        for part in [&head[..], header, payload] {
            if !chunk.write(at, part) {
                return Ok(false);
            }
            at += part.len();
        }
        self.port.put(self.filled, at as u32, false);
        self.filled += 1;
        self.sends_count += 1;
        Ok(self.port.room(self.filled + 1)? <= self.filled)
    }

    /// Holds packets back until there is room.
    pub(crate) fn hold(&mut self, machine: &mut Machine) {
        self.users.hold(machine);
    }

    /// Lets the packets go that were held back.
    pub(crate) fn release(&mut self, machine: &mut Machine) {
        self.users.release(machine);
    }

    /// Hands over what was pushed.
    ///
    /// # Errors
    /// The device is gone.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let filled = std::mem::take(&mut self.filled);
        if filled > 0 {
            self.is_behind = self.port.publish(filled)? != Flush::Done;
        }
        Ok(())
    }

    /// Takes packets in; true: some came.
    ///
    /// # Errors
    /// The device is gone.
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        machine: &mut Machine,
        buffers: &mut Buffers,
    ) -> io::Result<bool> {
        if self.is_behind {
            self.is_behind = self.port.flush()? != Flush::Done;
        }
        if self.users.are_held() && self.port.room(1)? > 0 {
            self.release(machine);
        }
        let count = self.port.peek()?.min(PACKETS_IN_A_ROW);
        for slot in 0..count {
            let is_rest = std::mem::replace(&mut self.goes_on, self.port.goes_on(slot));
            let Some(arrived) = self.port.frame(slot) else { continue };
            // Copied once: the kernel may write the memory.
            let Some(frame) = self.frame.get_mut(..arrived.bytes.length_bytes()) else { continue };
            if is_rest || self.goes_on || !arrived.bytes.read(0, frame) {
                continue;
            }
            if let Some(datagram) = datagram_in(frame, self.at) {
                self.receives_count += 1;
                for_each_packet(datagram, &mut |packet| {
                    machine.handle_packet(now_ns, packet, buffers);
                });
            }
        }
        if count > 0 {
            self.port.release(count)?;
        } else if now_ns >= self.next_check_ns {
            self.next_check_ns = now_ns + CHECK_NS;
            self.port.check()?;
        }
        if self.port.wants_poll() {
            self.port.poll_now()?;
        }
        Ok(count > 0)
    }
}

/// Where other hosts of the link are, as the kernel knows.
#[derive(Debug)]
struct Neighbours {
    device: String,
    /// With the time until which it holds.
    known: HashMap<Ipv4Addr, (Option<[u8; 6]>, u64)>,
}

impl Neighbours {
    fn find(&mut self, now_ns: u64, ip: Ipv4Addr) -> Option<[u8; 6]> {
        if let Some((known, until_ns)) = self.known.get(&ip)
            && now_ns < *until_ns
        {
            return *known;
        }
        let found = RouteSocket::open().and_then(|mut socket| socket.neighbour(&self.device, ip));
        let found = found.unwrap_or_default();
        let holds_ns = if found.is_some() { NEIGHBOUR_NS } else { UNKNOWN_NS };
        self.known.insert(ip, (found, now_ns + holds_ns));
        found
    }
}

/// What stands before a packet of so many bytes.
fn head(
    from_hardware: [u8; 6],
    from: SocketAddrV4,
    Way { hardware, to }: Way,
    packet_bytes: usize,
) -> [u8; HEADERS_BYTES] {
    let mut head = [0; HEADERS_BYTES];
    let (ethernet, rest) = head.split_at_mut(ETHERNET_BYTES);
    let (ip, udp) = rest.split_at_mut(IP_BYTES);
    ethernet[..6].copy_from_slice(&hardware);
    ethernet[6..12].copy_from_slice(&from_hardware);
    ethernet[12..].copy_from_slice(&[0x08, 0x00]);
    // A frame's length was checked when the queue was opened.
    let udp_bytes = (udp.len() + packet_bytes) as u16;
    ip[..2].copy_from_slice(&[0x45, 0]);
    ip[2..4].copy_from_slice(&(udp_bytes + IP_BYTES as u16).to_be_bytes());
    // Not to be cut, 64 hops, UDP.
    ip[6..10].copy_from_slice(&[0x40, 0, 64, 17]);
    ip[12..16].copy_from_slice(&from.ip().octets());
    ip[16..].copy_from_slice(&to.ip().octets());
    let sum: u32 = ip.chunks_exact(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    // Without a checksum of UDP's: packets have a tag.
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    head
}

/// The content of a datagram to this address; none in any other frame. Checksums are not looked at: packets have a tag.
fn datagram_in(frame: &[u8], at: SocketAddrV4) -> Option<&[u8]> {
    let (head, rest) = frame.split_first_chunk::<HEADERS_BYTES>()?;
    let half = |offset: usize| u16::from_be_bytes([head[offset], head[offset + 1]]);
    let is_whole = half(20) & 0x3fff == 0;
    let is_ours = head[12..15] == [0x08, 0x00, 0x45]
        && head[23] == 17
        && is_whole
        && head[30..34] == at.ip().octets()
        && half(36) == at.port();
    rest.get(..usize::from(half(38)).checked_sub(8)?).filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 61_009);
    const AT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 250), 61_008);

    fn frame(packet: &[u8]) -> Vec<u8> {
        let way = Way { hardware: [2, 1, 2, 3, 4, 5], to: AT };
        [&head([2, 9, 9, 9, 9, 9], FROM, way, packet.len())[..], packet].concat()
    }

    #[test]
    fn a_frame_is_a_datagram_as_the_kernel_would_send_it() {
        let packet: Vec<u8> = (0..100).collect();
        let mut frame = frame(&packet);
        assert_eq!(datagram_in(&frame, AT), Some(&packet[..]));
        let words = frame[14..34].chunks_exact(2);
        let sum: u32 = words.map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the header's checksum");
        assert_eq!(frame[16..18], 128_u16.to_be_bytes());
        assert_eq!(
            (&frame[..6], &frame[6..12]),
            (&[2, 1, 2, 3, 4, 5][..], &[2, 9, 9, 9, 9, 9][..])
        );
        frame.resize(200, 7);
        assert_eq!(datagram_in(&frame, AT), Some(&packet[..]), "as a device fills it up");
    }

    #[test]
    fn only_whole_datagrams_to_this_endpoint_are_taken() {
        let whole = frame(&[0xc1; 60]);
        for (offset, value, what) in [
            (12, 0x86, "another protocol"),
            (14, 0x46, "options"),
            (20, 0x20, "more fragments"),
            (21, 1, "a later fragment"),
            (23, 6, "TCP"),
            (33, 251, "another host"),
            (37, 0, "another port"),
            (38, 1, "longer than the frame"),
        ] {
            let mut frame = whole.clone();
            frame[offset] = value;
            assert_eq!(datagram_in(&frame, AT), None, "{what}");
        }
        assert_eq!(datagram_in(&whole[..41], AT), None);
        bolero::check!().for_each(|bytes: &[u8]| {
            // As in the kernel's memory, behind a head that is ours.
            let mut frame = frame(&[]);
            frame[38..40].copy_from_slice(bytes.first_chunk::<2>().unwrap_or(&[0; 2]));
            frame.extend_from_slice(bytes);
            for frame in [bytes, &frame] {
                if let Some(datagram) = datagram_in(frame, AT) {
                    for_each_packet(datagram, &mut |packet| {
                        assert!(packet.len() <= datagram.len())
                    });
                }
            }
        });
    }
}
