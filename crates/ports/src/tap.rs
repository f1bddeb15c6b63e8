//! A host's interface seen from outside, as a port: frames come and go whole, each behind a
//! virtio-net header, up to 64 KiB of TCP in one.
//!
//! A port is a TAP device, or, for a user who may not open `/dev/net/tun`, a packet socket on the
//! far end of a veth pair; both read and write alike.
//!
//! Reading and writing never wait; the owner polls the descriptor. One reader and one writer may use
//! a port at the same time.

use std::borrow::Borrow;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use shm::{Buffer, transfer};
use switch::flow;
use sys::SyscallError;

use crate::end::{EndError, Fill, Filled, Moved, PACKET_BYTES_MAX, Parts, Sink, Source};

const _: () = assert!(sys::tap::VNET_HEADER_BYTES == switch::frame::VNET_HEADER_BYTES);

/// What the host sends is read here; what is written here the host receives.
#[derive(Debug)]
pub struct Port {
    name: String,
    fd: OwnedFd,
    /// UDP datagrams of one `UDP_SEGMENT` send come and go whole too.
    udp_segments: bool,
}

/// What a packet socket may hold in each direction, bytes, where the host allows it.
const SOCKET_BUFFER_BYTES: u32 = 64 << 20;

impl Port {
    /// Creates the TAP device `name` in the calling thread's network namespace; it goes with the
    /// port.
    ///
    /// # Errors
    /// No `/dev/net/tun`, no permission, or the name is taken.
    pub fn tap(name: &str) -> Result<Self, SyscallError> {
        let (fd, offloads) = sys::tap::open_tap(name)?;
        Ok(Self { name: name.to_owned(), fd, udp_segments: offloads.udp_segments })
    }

    /// The same with several queues, a port each; it goes with the last of them. Frames of a flow stay
    /// on one queue as long as what is written for the flow is written there too.
    ///
    /// # Errors
    /// As [`tap`](Self::tap); the kernel gives a device 256 queues at most.
    pub fn tap_queues(name: &str, count: u32) -> Result<Vec<Self>, SyscallError> {
        let (fds, offloads) = sys::tap::open_tap_queues(name, count)?;
        let port = |fd| Self { name: name.to_owned(), fd, udp_segments: offloads.udp_segments };
        Ok(fds.into_iter().map(port).collect())
    }

    /// Takes over a TAP device's queue that somebody else opened as [`Port::tap`] does.
    ///
    /// # Errors
    /// The descriptor is no TAP device's, or one without virtio-net headers of 10 bytes.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, SyscallError> {
        let name = sys::tap::adopt_tap(&fd)?;
        Ok(Self { name, fd, udp_segments: false })
    }

    /// Opens a packet socket on the veth end `name` of the calling thread's network namespace: the
    /// host is at the other end.
    ///
    /// # Errors
    /// No `CAP_NET_RAW`, or no such interface.
    pub fn packet(name: &str) -> Result<Self, SyscallError> {
        let fd = sys::tap::open_packet_socket(name, SOCKET_BUFFER_BYTES)?;
        Ok(Self { name: name.to_owned(), fd, udp_segments: true })
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether datagrams of one `UDP_SEGMENT` send come and go whole.
    #[must_use]
    pub fn udp_segments(&self) -> bool {
        self.udp_segments
    }

    /// Reads the next packet into `space`; its length, or `None` when there is none.
    ///
    /// # Errors
    /// The device was removed.
    pub fn recv(&self, space: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, space) {
            Ok(len) => Ok(Some(len)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands a packet, given in parts, to the host.
    ///
    /// # Errors
    /// The host's interface is down, its buffers are full, or the packet is malformed.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.fd, parts)?;
        Ok(())
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The queues of a device, or its only one, as an end. They are read in turn; what goes to the host is written
/// to the queue of its flow, so frames of a flow stay in order, and so do the answers: the kernel sends them
/// to the queue that the flow came from.
#[derive(Debug)]
pub struct Queues<P> {
    queues: Vec<P>,
    /// Which is read next.
    next: usize,
    /// For packets that come out of another kernel's queue.
    scratch: Vec<u8>,
}

impl<P: Borrow<Port>> Queues<P> {
    /// At least one, all of the same device.
    #[must_use]
    pub fn new(queues: Vec<P>) -> Self {
        Self { queues, next: 0, scratch: Vec::new() }
    }

    fn write<'a>(&self, parts: impl Parts<'a>) -> Moved {
        let queue = match &self.queues[..] {
            [] => return Moved::Refused,
            [only] => only,
            several => &several[flow_of(parts.clone()) as usize % several.len()],
        };
        // A host whose interface is down, or has no memory, loses frames as from any wire.
        match transfer::write_from(queue.borrow(), parts) {
            Ok(true) => Moved::Given,
            _ => Moved::Refused,
        }
    }
}

impl<P: Borrow<Port>> Source for Queues<P> {
    fn pass(&mut self, to: &mut impl Sink) -> Result<Moved, EndError> {
        to.fill(self)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.borrow().as_fd()).collect()
    }
}

impl<P: Borrow<Port>> Fill for Queues<P> {
    fn fill<'a>(
        &mut self,
        space: impl Iterator<Item = Buffer<'a>> + Clone,
    ) -> Result<Filled, EndError> {
        for _ in 0..self.queues.len() {
            let queue = self.queues[self.next].borrow();
            self.next = (self.next + 1) % self.queues.len();
            if let Some(bytes) = transfer::read_into(queue, space.clone())? {
                return Ok(Filled::Bytes(bytes));
            }
        }
        Ok(Filled::Nothing)
    }
}

impl<P: Borrow<Port>> Sink for Queues<P> {
    fn put<'a>(&mut self, _bytes: usize, parts: impl Parts<'a>) -> Result<Moved, EndError> {
        Ok(self.write(parts))
    }

    fn fill(&mut self, from: &mut impl Fill) -> Result<Moved, EndError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(PACKET_BYTES_MAX, 0);
        let space = Buffer::from(&mut scratch[..]);
        let filled = from.fill(std::iter::once(space))?;
        let moved = match filled {
            Filled::Bytes(bytes) => self.write(std::iter::once(space.first(bytes))),
            Filled::Dropped => Moved::Dropped,
            Filled::Nothing => Moved::Nothing,
        };
        self.scratch = scratch;
        Ok(moved)
    }

    fn flush(&mut self) -> Result<(), EndError> {
        Ok(())
    }
}

/// The flow of a packet.
fn flow_of<'a>(mut parts: impl Parts<'a>) -> u32 {
    const HEADER: usize = switch::frame::VNET_HEADER_BYTES;
    let mut head = [0; flow::HEAD_BYTES];
    // Behind the header, which has no slot of its own: the switch's translation puts the two together, and
    // so does the kernel. What a client sends otherwise is a flow too.
    let there = parts.next().and_then(|first| {
        let bytes = first.length_bytes().checked_sub(HEADER)?.min(head.len());
        first.read(HEADER, &mut head[..bytes]).then_some(bytes)
    });
    flow::number(&head[..there.unwrap_or(0)])
}
