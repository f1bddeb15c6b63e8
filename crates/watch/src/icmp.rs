use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, ipproto};
use sys::SyscallError;

/// Longest ICMP error that is looked at; what follows is cut off. Linux quotes up to 576 or 1280 bytes.
const MESSAGE_BYTES_MAX: usize = 2048;
/// Most messages received in a row, so that a flood of ICMP does not keep the watcher busy.
const MESSAGES_COUNT_MAX: usize = 64;

/// Listens to ICMP errors about this host's packets.
#[derive(Debug)]
pub(crate) struct IcmpListener {
    socket: OwnedFd,
    is_v6: bool,
    buffer: Box<[u8; MESSAGE_BYTES_MAX]>,
}

impl AsFd for IcmpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl IcmpListener {
    /// For errors that are sent to `address`.
    pub(crate) fn open(address: IpAddr) -> Result<Self, SyscallError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, protocol) = match address {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol))
            .map_err(|error| SyscallError::new("socket", "raw ICMP", error))?;
        let local = SocketAddrAny::from(std::net::SocketAddr::new(address, 0));
        rustix::net::bind(&socket, &local)
            .map_err(|error| SyscallError::new("bind", address.to_string(), error))?;
        Ok(Self { socket, is_v6: address.is_ipv6(), buffer: Box::new([0; MESSAGE_BYTES_MAX]) })
    }

    /// Hands over the messages that are there, from their type on.
    pub(crate) fn take(&mut self, mut each: impl FnMut(&[u8])) {
        for _message in 0..MESSAGES_COUNT_MAX {
            let into = &mut self.buffer[..];
            let Ok((length, _)) = rustix::net::recv(&self.socket, into, RecvFlags::DONTWAIT) else {
                return;
            };
            let packet = &self.buffer[..length.min(MESSAGE_BYTES_MAX)];
            // A raw IPv4 socket hands over the IP header as well.
            let header = match packet.first() {
                Some(first) if !self.is_v6 => usize::from(first & 0x0f) * 4,
                _none => 0,
            };
            each(packet.get(header..).unwrap_or_default());
        }
    }
}
