//! A host's interface seen from outside, as a port: frames come and go whole, each behind a
//! virtio-net header, up to 64 KiB of TCP in one.
//!
//! A port is a TAP device, or, for a user who may not open `/dev/net/tun`, a packet socket on the
//! far end of a veth pair; both read and write alike.
//!
//! Reading and writing never wait; the owner polls the descriptor. One reader and one writer may use
//! a port at the same time.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use sys::SyscallError;

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
    /// The device is gone.
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
