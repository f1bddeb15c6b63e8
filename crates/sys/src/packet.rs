//! Packet sockets that exchange IP packets with stations of a link by their Ethernet addresses (`packet(7)`,
//! `SOCK_DGRAM`): no route decides where a packet goes. Many per system call.
//!
//! Called by `watch`. Batches own their memory and the kernel's descriptors of it, so that what the
//! kernel is told about addresses and lengths is true by construction.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::SyscallError;
use crate::datagram::BATCH_COUNT_MAX;
use crate::socket::{self, Family};

mod ring;

pub use ring::{Captured, KEPT_BYTES, ReceiveRing};

/// An Ethernet address.
pub type MacAddress = [u8; 6];

const PACKET_IGNORE_OUTGOING: c_int = 23;
/// `TC_PRIO_CONTROL`: before all other packets of this host where its queue has bands.
const PRIORITY_CONTROL: c_int = 7;

/// One instruction of a classic BPF filter (kernel `Documentation/networking/filter.rst`). Offsets count
/// from the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Instruction code.
    pub code: u16,
    /// Instructions to skip where a comparison holds.
    pub if_true: u8,
    /// Instructions to skip where it does not.
    pub if_false: u8,
    /// Operand.
    pub operand: u32,
}

/// Opens a non-blocking socket for packets of one family on one interface of the calling thread's network
/// namespace. It never sees a packet that the filter refuses or that this host sent.
///
/// # Errors
/// No `CAP_NET_RAW`, no such interface, or the kernel refuses the filter.
pub fn open(
    interface_index: u32,
    family: Family,
    filter: &[Instruction],
    buffer_bytes: u64,
) -> Result<OwnedFd, SyscallError> {
    let fd = unbound(filter)?;
    socket::set_receive_buffer(&fd, buffer_bytes)?;
    bind(&fd, interface_index, family)?;
    Ok(fd)
}

/// Of no protocol: nothing arrives before it is bound, when the filter is in place.
fn unbound(filter: &[Instruction]) -> Result<OwnedFd, SyscallError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)
        .map_err(|error| SyscallError::new("socket", "AF_PACKET", error))?;
    attach_filter(&fd, filter)?;
    let call = "setsockopt(PACKET_IGNORE_OUTGOING)";
    socket::set(fd.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1, call)?;
    let call = "setsockopt(SO_PRIORITY)";
    socket::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, &PRIORITY_CONTROL, call)?;
    Ok(fd)
}

fn bind(fd: &OwnedFd, interface_index: u32, family: Family) -> Result<(), SyscallError> {
    let address = address(interface_index, family, [0; 6]);
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let pointer = (&raw const address).cast();
    // SAFETY: `address` is initialised, `length` is its size, and both live through the call.
    let answer = unsafe { libc::bind(fd.as_raw_fd(), pointer, length) };
    let object = || format!("interface {interface_index}");
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("bind(AF_PACKET)", object())) }
}

/// Has a socket, of any kind, receive only what the filter admits.
///
/// # Errors
/// The kernel refuses the filter.
pub fn attach_filter(fd: impl AsFd, filter: &[Instruction]) -> Result<(), SyscallError> {
    let copy = |one: &Instruction| libc::sock_filter {
        code: one.code,
        jt: one.if_true,
        jf: one.if_false,
        k: one.operand,
    };
    let mut instructions: Vec<libc::sock_filter> = filter.iter().map(copy).collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).unwrap_or(u16::MAX),
        filter: instructions.as_mut_ptr(),
    };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    let (fd, pointer) = (fd.as_fd().as_raw_fd(), (&raw const program).cast());
    // SAFETY: `program` is a `sock_fprog` of `length` bytes; it leads to `len` instructions that live through
    // the call, of which the kernel makes a copy.
    let answer = unsafe { libc::setsockopt(fd, level, option, pointer, length) };
    if answer == 0 {
        return Ok(());
    }
    Err(SyscallError::last("setsockopt(SO_ATTACH_FILTER)", format!("socket {fd}")))
}

fn address(interface_index: u32, family: Family, mac: MacAddress) -> libc::sockaddr_ll {
    let protocol = match family {
        Family::Ipv4 => libc::ETH_P_IP,
        Family::Ipv6 => libc::ETH_P_IPV6,
    };
    let [a, b, c, d, e, f] = mac;
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: interface_index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [a, b, c, d, e, f, 0, 0],
    }
}

/// Memory for packets and for what the kernel is told about them: of packet `i` its bytes, address and
/// header are element `i`.
struct Batch {
    storage: Vec<u8>,
    packet_bytes: usize,
    addresses: Vec<libc::sockaddr_ll>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `vectors` and `headers` lead into memory that this value owns.
unsafe impl Send for Batch {}

impl Batch {
    fn new(count: usize, packet_bytes: usize, address: libc::sockaddr_ll) -> Self {
        let count = count.clamp(1, BATCH_COUNT_MAX);
        let packet_bytes = packet_bytes.max(1);
        let mut storage = vec![0; count * packet_bytes];
        let mut addresses = vec![address; count];
        let mut vectors: Vec<libc::iovec> = storage
            .chunks_exact_mut(packet_bytes)
            .map(|packet| libc::iovec {
                iov_base: packet.as_mut_ptr().cast(),
                iov_len: packet_bytes,
            })
            .collect();
        let header = |(vector, address): (&mut libc::iovec, &mut libc::sockaddr_ll)| {
            // SAFETY: all-zero is a valid `mmsghdr`: null pointers with lengths of 0.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = vectors.iter_mut().zip(&mut addresses).map(header).collect();
        Self { storage, packet_bytes, addresses, vectors, headers }
    }

    fn packet_mut(&mut self, index: usize, length: usize) -> &mut [u8] {
        let start = index * self.packet_bytes;
        &mut self.storage[start..start + length.min(self.packet_bytes)]
    }
}

/// Packets to be sent, each to an Ethernet address of its own.
pub struct SendPackets {
    batch: Batch,
    count: usize,
}

impl SendPackets {
    /// An empty batch for at most `count_max` packets of at most `packet_bytes` each.
    #[must_use]
    pub fn new(
        count_max: usize,
        packet_bytes: usize,
        interface_index: u32,
        family: Family,
    ) -> Self {
        let address = address(interface_index, family, [0; 6]);
        Self { batch: Batch::new(count_max, packet_bytes, address), count: 0 }
    }

    /// Packets in the batch.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// No other packet fits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count == self.batch.headers.len()
    }

    /// Memory for the next packet, to be written to before it is [`push`](Self::push)ed; empty when the
    /// batch is full.
    pub fn next_mut(&mut self) -> &mut [u8] {
        if self.is_full() {
            return &mut [];
        }
        self.batch.packet_mut(self.count, usize::MAX)
    }

    /// Adds what was written to [`next_mut`](Self::next_mut): so many bytes, to that address. A full batch
    /// stays as it is.
    pub fn push(&mut self, length: usize, to: MacAddress) {
        if !self.is_full() {
            self.batch.vectors[self.count].iov_len = length.min(self.batch.packet_bytes);
            self.batch.addresses[self.count].sll_addr[..6].copy_from_slice(&to);
            self.count += 1;
        }
    }

    /// Sends the batch, which is empty afterwards; says how many went. A packet that the device has no room
    /// for, or cannot carry, is dropped, as on a wire, and those behind it are sent.
    ///
    /// # Errors
    /// The interface is down or was removed (`sendmmsg(2)`).
    pub fn send(&mut self, fd: impl AsFd) -> io::Result<usize> {
        let count = std::mem::take(&mut self.count);
        let fd = fd.as_fd().as_raw_fd();
        let (mut at, mut sent_count) = (0, 0);
        while at < count {
            let headers = &mut self.batch.headers[at..count];
            let (pointer, length) = (headers.as_mut_ptr(), headers.len() as libc::c_uint);
            // SAFETY: `headers` are `length` valid message headers; each leads to one address and one vector of
            // the batch, and that to at most `packet_bytes` of `storage`, none of which moves or is freed
            // while `self` is borrowed. The kernel writes `msg_len` only.
            let sent = unsafe { libc::sendmmsg(fd, pointer, length, libc::MSG_DONTWAIT) };
            // The kernel stops at a packet that it refuses, and says why when that is the first.
            match usize::try_from(sent) {
                Ok(sent) => {
                    at += sent;
                    sent_count += sent;
                }
                Err(_negative) => {
                    let error = io::Error::last_os_error();
                    let gone = [libc::ENETDOWN, libc::ENODEV, libc::ENXIO];
                    if error.raw_os_error().is_some_and(|number| gone.contains(&number)) {
                        return Err(error);
                    }
                    at += 1;
                }
            }
        }
        Ok(sent_count)
    }
}

impl fmt::Debug for SendPackets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SendPackets({} of {})", self.count, self.batch.headers.len())
    }
}

/// Room for packets from a socket, with the Ethernet addresses they came from.
pub struct ReceivePackets {
    batch: Batch,
}

impl ReceivePackets {
    /// Room for `count` packets of at most `packet_bytes`; longer ones are cut off.
    #[must_use]
    pub fn new(count: usize, packet_bytes: usize) -> Self {
        Self { batch: Batch::new(count, packet_bytes, address(0, Family::Ipv4, [0; 6])) }
    }

    /// Takes the packets that are there; says how many. Does not wait.
    ///
    /// # Errors
    /// There are none (`WouldBlock`), or the socket failed: its interface is down or was removed.
    pub fn receive(&mut self, fd: impl AsFd) -> io::Result<usize> {
        for header in &mut self.batch.headers {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        }
        let (fd, count) = (fd.as_fd().as_raw_fd(), self.batch.headers.len() as libc::c_uint);
        let pointer = self.batch.headers.as_mut_ptr();
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: `pointer` leads to `count` valid message headers, each with one address and one vector over
        // `packet_bytes` of `storage`; none of it moves or is freed while `self` is borrowed. No timeout is given.
        let came = unsafe { libc::recvmmsg(fd, pointer, count, flags, std::ptr::null_mut()) };
        usize::try_from(came).map_err(|_negative| io::Error::last_os_error())
    }

    /// A packet of the last [`receive`](Self::receive), and the Ethernet address it came from.
    ///
    /// # Panics
    /// There is no such packet.
    pub fn packet(&mut self, index: usize) -> (MacAddress, &mut [u8]) {
        let length = self.batch.headers[index].msg_len as usize;
        let [a, b, c, d, e, f, _, _] = self.batch.addresses[index].sll_addr;
        ([a, b, c, d, e, f], self.batch.packet_mut(index, length))
    }
}

impl fmt::Debug for ReceivePackets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ReceivePackets({})", self.batch.headers.len())
    }
}
