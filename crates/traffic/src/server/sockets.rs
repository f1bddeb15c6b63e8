//! The server's sockets: one port, TCP and UDP, with separate sockets for IPv4 and IPv6.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, connect, ipproto, listen,
    recv, socket_with, sockopt,
};

use super::{ServerConfig, ServerError};

/// Connections that the kernel queues until they are accepted.
const BACKLOG_COUNT: i32 = 1024;
/// Attempts to find a port that is free in both protocols and families, when any will do.
const ANY_PORT_TRIES: u32 = 32;

/// Windows up to this size, in bytes, fit the scale that every connection gets anyway
/// (`tcp_select_initial_window` scales for `net.ipv4.tcp_rmem[2]`, usually 4 MiB or more).
const WINDOW_BYTES_USUAL: u64 = 4 << 20;

/// All sockets that a server listens on.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    pub(super) tcp: Arc<Listeners>,
    pub(super) udp: Vec<UdpSocket>,
}

/// The TCP listeners, shared with sessions that need large windows.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub(super) sockets: Vec<TcpListener>,
    /// Whether the listeners' buffers can be set temporarily and returned to the kernel's control.
    can_offer: bool,
    /// Window sizes, in bytes, that tests about to connect have requested.
    windows: Mutex<Vec<u64>>,
}

impl Listeners {
    /// While the guard lives, new connections are offered a window scale that fits `window_bytes`.
    /// The kernel derives the scale from the listener's own buffer when the connection is made.
    /// `None` if the usual scale suffices or the buffers cannot be returned to the kernel's
    /// control.
    pub(super) fn offer_window(self: &Arc<Self>, window_bytes: u64) -> Option<OfferedWindow> {
        if !self.can_offer || window_bytes <= WINDOW_BYTES_USUAL {
            return None;
        }
        self.change_windows(|windows| windows.push(window_bytes));
        Some(OfferedWindow { listeners: Arc::clone(self), window_bytes })
    }

    fn change_windows(&self, change: impl FnOnce(&mut Vec<u64>)) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut windows);
        for listener in &self.sockets {
            // Without the privilege the kernel clamps the buffer, which the stream's own buffer
            // then shows.
            match windows.iter().max() {
                Some(&bytes) => drop(sys::socket::set_receive_buffer(listener, bytes)),
                None => restore_buffer(listener),
            }
        }
    }
}

/// Whether the kernel can take back control of the buffers: since Linux 5.14, except for MPTCP,
/// whose first subflow keeps the lock (seen on 6.18).
fn can_be_released(listener: &TcpListener) -> bool {
    let mptcp = sockopt::socket_protocol(listener).is_ok_and(|known| known == Some(ipproto::MPTCP));
    !mptcp && sys::socket::release_buffers(listener).is_ok()
}

/// Restores the kernel's default receive buffer and its automatic tuning.
fn restore_buffer(listener: &TcpListener) {
    /// `net.ipv4.tcp_rmem[1]` as every kernel since 2.6.17 has it, halved because `SO_RCVBUF`
    /// doubles.
    const USUAL_BYTES: u64 = 131_072 / 2;
    let defaults = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").ok();
    let default_bytes = defaults.and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
    let asked_bytes = default_bytes.map_or(USUAL_BYTES, |bytes: u64| bytes / 2);
    // Best effort: a connection with a fixed buffer still works.
    sys::socket::set_receive_buffer(listener, asked_bytes).ok();
    sys::socket::release_buffers(listener).ok();
}

/// A larger window is offered as long as this lives.
#[derive(Debug)]
pub(super) struct OfferedWindow {
    listeners: Arc<Listeners>,
    window_bytes: u64,
}

impl Drop for OfferedWindow {
    fn drop(&mut self) {
        self.listeners.change_windows(|windows| {
            if let Some(position) = windows.iter().position(|bytes| *bytes == self.window_bytes) {
                windows.swap_remove(position);
            }
        });
    }
}

impl Sockets {
    /// Binds the port (0: any free one) on one address, or on all addresses of both families.
    pub(super) fn bind(config: &ServerConfig) -> Result<Self, ServerError> {
        let mut answer = Self::bind_once(config);
        for _ in 1..ANY_PORT_TRIES {
            let taken = |error: &ServerError| error.is_address_in_use();
            if config.port != 0 || !answer.as_ref().is_err_and(taken) {
                break;
            }
            answer = Self::bind_once(config);
        }
        answer
    }

    fn bind_once(config: &ServerConfig) -> Result<Self, ServerError> {
        let mut port = config.port;
        let addresses = match config.bind {
            Some(address) => vec![address],
            None => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        };
        let optional = config.bind.is_none();
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for address in addresses {
            let at = SocketAddr::new(address, port);
            let failed = |source| ServerError::Bind { address: at, source };
            let listener = match listener(at, config.mptcp) {
                // A host that lacks one of the families still has the other.
                Err(error) if optional && is_family_missing(&error) => continue,
                other => other.map_err(failed)?,
            };
            let at = listener.local_addr().map_err(failed)?;
            port = at.port();
            tcp.push(listener);
            udp.push(udp_socket(at, Sharing::SameUser).map_err(failed)?.into());
        }
        Self::of(tcp, udp)
    }

    /// Adopts sockets that a service manager has bound.
    pub(super) fn adopt(inherited: Vec<OwnedFd>) -> Result<Self, ServerError> {
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for fd in inherited {
            let kind = sockopt::socket_type(&fd).map_err(|error| adopting(&error.into()))?;
            if kind == SocketType::STREAM {
                tcp.push(fd.into());
            } else {
                // Streams get their own sockets on the same port. The manager bound this one as
                // another user, so `SO_REUSEPORT` does not permit sharing it.
                sockopt::set_socket_reuseaddr(&fd, true)
                    .map_err(|error| adopting(&error.into()))?;
                udp.push(fd.into());
            }
        }
        Self::of(tcp, udp)
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.tcp.sockets.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    fn of(tcp: Vec<TcpListener>, udp: Vec<UdpSocket>) -> Result<Self, ServerError> {
        if tcp.is_empty() {
            return Err(ServerError::NoSockets);
        }
        let set = || -> io::Result<()> {
            tcp.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
            udp.iter().try_for_each(|socket| socket.set_nonblocking(true))
        };
        set().map_err(|error| adopting(&error))?;
        let can_offer = tcp.iter().all(can_be_released);
        let tcp = Arc::new(Listeners { sockets: tcp, can_offer, windows: Mutex::default() });
        Ok(Self { tcp, udp })
    }
}

/// How a UDP port is shared between its listening socket and those of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// `SO_REUSEPORT`: shared only with sockets of the same user; for sockets that the server binds
    /// itself.
    SameUser,
    /// `SO_REUSEADDR`: for sockets that a service manager bound as another user.
    AnyUser,
}

impl Sharing {
    /// How `socket` can be shared.
    pub(super) fn of(socket: &UdpSocket) -> Self {
        if sockopt::socket_reuseport(socket).unwrap_or(false) {
            Self::SameUser
        } else {
            Self::AnyUser
        }
    }
}

/// A socket at the server's own `local` address and port, connected to `peer`, so that the kernel
/// delivers datagrams from there to it (connected sockets win the lookup: `net/ipv4/udp.c`,
/// `compute_score`).
pub(super) fn udp_stream(
    local: SocketAddr,
    peer: SocketAddr,
    sharing: Sharing,
) -> io::Result<UdpSocket> {
    let fd = udp_socket(local, sharing)?;
    connect(&fd, &peer)?;
    // About as many as its buffer can hold: a flood must not block the thread that creates all
    // sockets.
    drain(&fd, 1000);
    Ok(fd.into())
}

/// Discards what is queued in a socket: repeated greetings, or datagrams that arrived for another
/// stream between `bind` and `connect` (whose greeting is repeated).
pub(super) fn drain(socket: &impl std::os::fd::AsFd, datagrams_max: usize) {
    let mut scratch = [0_u8; 64];
    // Bounded: a peer that floods its own stream must not block the caller.
    for _ in 0..datagrams_max {
        if recv(socket, &mut scratch, RecvFlags::DONTWAIT).is_err() {
            return;
        }
    }
}

fn listener(at: SocketAddr, mptcp: bool) -> io::Result<TcpListener> {
    // An MPTCP listener also accepts plain TCP and returns plain TCP sockets for it (RFC 8684
    // section 3.7).
    let fd = socket(at, SocketType::STREAM, mptcp.then_some(ipproto::MPTCP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    bind(&fd, &at)?;
    listen(&fd, BACKLOG_COUNT)?;
    Ok(fd.into())
}

fn udp_socket(at: SocketAddr, sharing: Sharing) -> io::Result<OwnedFd> {
    let fd = socket(at, SocketType::DGRAM, None)?;
    match sharing {
        Sharing::SameUser => sockopt::set_socket_reuseport(&fd, true)?,
        Sharing::AnyUser => sockopt::set_socket_reuseaddr(&fd, true)?,
    }
    bind(&fd, &at)?;
    Ok(fd)
}

fn socket(at: SocketAddr, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

fn is_family_missing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let missing = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|errno| missing.contains(&errno))
}

fn adopting(error: &io::Error) -> ServerError {
    ServerError::Inherited(error.to_string())
}
