//! This host's interface and clock.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use netlink::Link;
use rustix::time::{ClockId, clock_gettime};
use sys::SyscallError;
use sys::netlink_socket::{NetlinkError, NetlinkSocket};
use sys::socket::Family;
use thiserror::Error;

use crate::filter;

/// Why a host cannot be watched from, or not be reflected on.
#[derive(Debug, Error)]
pub enum WatchError {
    /// A system call failed; often a privilege is missing.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// rtnetlink failed.
    #[error("cannot ask the kernel about {what}")]
    Netlink {
        /// What was asked about.
        what: String,
        /// The reason.
        source: NetlinkError,
    },
    /// There is no such interface.
    #[error("there is no interface {0}: check its name in the plan")]
    NoInterface(String),
    /// The port is taken.
    #[error("cannot take UDP port {port} of {address}: is another watcher running?")]
    Port {
        /// The port.
        port: u16,
        /// The address.
        address: IpAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The addresses of the plan do not fit together.
    #[error("{0}")]
    Addresses(String),
    /// The timing makes no sense.
    #[error(transparent)]
    Timing(#[from] liveness::states::WatchConfigError),
    /// A BFD session cannot be had.
    #[error(transparent)]
    Bfd(#[from] liveness::bfd::AddSessionError),
}

impl WatchError {
    pub(crate) fn netlink(what: &str) -> impl FnOnce(NetlinkError) -> Self {
        let what = what.to_owned();
        |source| Self::Netlink { what, source }
    }

    /// Whether a privilege is missing: `CAP_NET_RAW` or `CAP_NET_ADMIN`.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        matches!(self, Self::Syscall(error) if error.is_privilege())
    }
}

/// The interface of this name.
pub(crate) fn interface(socket: &mut NetlinkSocket, name: &str) -> Result<Link, WatchError> {
    let links = socket.list::<Link>(&Link::dump()).map_err(WatchError::netlink("interfaces"))?;
    let found = links.into_iter().find(|link| link.name == name);
    found.ok_or_else(|| WatchError::NoInterface(name.to_owned()))
}

/// An MTU as probes can have it.
pub(crate) fn mtu(link: &Link) -> u16 {
    u16::try_from(link.mtu_bytes.unwrap_or(1500)).unwrap_or(u16::MAX)
}

pub(crate) fn family(address: IpAddr) -> Family {
    Family::of(&SocketAddr::new(address, 0))
}

/// A socket that keeps a port taken and receives nothing.
pub(crate) fn hold_port(address: IpAddr, port: u16) -> Result<UdpSocket, WatchError> {
    let socket = UdpSocket::bind((address, port)).map_err(|source| match source.kind() {
        io::ErrorKind::AddrNotAvailable => WatchError::Addresses(format!(
            "{address} is not an address of this host: check the plan and --host"
        )),
        _other => WatchError::Port { port, address, source },
    })?;
    sys::packet::attach_filter(&socket, &filter::nothing())?;
    Ok(socket)
}

/// Nanoseconds of the system's monotonic clock.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanoseconds) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Time since 1970 on the system's clock.
pub(crate) fn since_1970() -> Duration {
    let time = clock_gettime(ClockId::Realtime);
    Duration::try_from(time).unwrap_or_default()
}

/// Microseconds since 1970, for sequence numbers that grow from start to start.
pub(crate) fn unix_us() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

/// A random number.
pub(crate) fn unguessable() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _none => unix_us(),
    }
}

/// Takes what a packet socket has to say of its interface, which is that it went down; until then `poll(2)` and the next
/// call fail. It is announced as well.
pub(crate) fn forget_error(socket: impl AsFd) {
    rustix::net::sockopt::socket_error(socket).ok();
}
