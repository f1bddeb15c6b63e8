//! Making the sockets of a test.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::sockopt;
use sys::SyscallError;
use sys::socket::{Family as IpFamily, Transport as SocketTransport, new_socket};

use super::channel::{Interrupted, is_pause, wait};
use super::failure::{Iperf3Error, OptionKind, Refusal, os_text};
use super::options::{Family, KeepAlive, Options};
use super::sink::Buffers;
use super::wire::{Parameters, Transport, UDP_HELLO, UDP_WELCOME, UDP_WELCOME_LEGACY};

/// How long to try where the user set no limit: what the kernel takes for its SYN retries.
const CONNECT_PATIENCE: Duration = Duration::from_secs(130);

/// How long a UDP stream's greeting may take, as in iperf3.
const GREETING_PATIENCE: Duration = Duration::from_secs(30);

/// A greeting unanswered for this long is retransmitted; iperf3 waits in vain.
const GREETING_AGAIN: Duration = Duration::from_secs(2);

/// Addresses of a host, of the family that the user allows.
pub(super) fn resolve(host: &str, port: u16, family: Family) -> Result<Vec<SocketAddr>, String> {
    let found = (host, port).to_socket_addrs().map_err(|error| {
        // The resolver's own words, without the library's preface.
        let text = error.to_string();
        text.rsplit(": ").next().unwrap_or(&text).to_owned()
    })?;
    let allowed = |address: &SocketAddr| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    let addresses: Vec<_> = found.filter(allowed).collect();
    if addresses.is_empty() {
        return Err("Address family for hostname not supported".to_owned());
    }
    Ok(addresses)
}

/// The local end that the options ask for.
#[derive(Debug, Clone, Default)]
pub(super) struct LocalEnd {
    address: Option<IpAddr>,
    device: Option<String>,
}

impl LocalEnd {
    /// From `-B` and `--bind-dev`.
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        let address = match &options.bind_address {
            Some(text) => resolve(text, 0, options.family)?.first().map(SocketAddr::ip),
            None => None,
        };
        Ok(Self { address, device: options.bind_device.clone() })
    }

    /// Binds a socket that will talk to `remote`.
    fn bind(
        &self,
        socket: &OwnedFd,
        remote: SocketAddr,
        port: Option<u16>,
    ) -> Result<(), Iperf3Error> {
        if let Some(device) = &self.device {
            sys::binding::bind_to_device(socket, device)
                .map_err(refusal(OptionKind::BindDevice))?;
        }
        if self.address.is_none() && port.is_none() {
            return Ok(());
        }
        let any: IpAddr = if remote.is_ipv4() {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let local = SocketAddr::new(self.address.unwrap_or(any), port.unwrap_or(0));
        sockopt::set_socket_reuseaddr(socket, true)
            .and_then(|()| rustix::net::bind(socket, &local))
            .map_err(|error| Iperf3Error::StreamConnect(io::Error::from(error).to_string()))
    }
}

/// The control connection of a client.
pub(super) fn open_control(
    options: &Options,
    host: &str,
    local: &LocalEnd,
    interrupted: Interrupted<'_>,
) -> Result<TcpStream, Iperf3Error> {
    let patience =
        options.client.connect_timeout_ms.map_or(CONNECT_PATIENCE, Duration::from_millis);
    let addresses = resolve(host, options.port, options.family).map_err(Iperf3Error::Connect)?;
    let mut last = Iperf3Error::Connect("no address".to_owned());
    for remote in addresses {
        let connected = new_socket(IpFamily::of(&remote), SocketTransport::Tcp)
            .map_err(|error| Iperf3Error::Connect(error.source.to_string()))
            .and_then(|socket| {
                local.bind(&socket, remote, None)?;
                connect(&socket, remote, patience, interrupted).map_err(|error| match error {
                    ConnectError::Signal(signal) => Iperf3Error::Interrupted(signal),
                    ConnectError::Failed(error) => Iperf3Error::Connect(os_text(&error)),
                })?;
                Ok(TcpStream::from(socket))
            });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(signal @ Iperf3Error::Interrupted(_)) => return Err(signal),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Options of the control connection.
pub(super) fn prepare_control(stream: &TcpStream, options: &Options) -> Result<(), Iperf3Error> {
    if options.send_timeout_ms > 0 {
        sockopt::set_tcp_user_timeout(stream, options.send_timeout_ms)
            .map_err(|error| plain_refusal(OptionKind::UserTimeout, error))?;
    }
    if let Some(keep_alive) = options.keep_alive {
        set_keep_alive(stream, keep_alive)
            .map_err(|error| plain_refusal(OptionKind::KeepAlive, error))?;
    }
    Ok(())
}

fn set_keep_alive(stream: &TcpStream, keep_alive: KeepAlive) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    if keep_alive.idle_s > 0 {
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(keep_alive.idle_s.into()))?;
    }
    if keep_alive.interval_s > 0 {
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(keep_alive.interval_s.into()))?;
    }
    if keep_alive.probes_count > 0 {
        sockopt::set_tcp_keepcnt(stream, keep_alive.probes_count)?;
    }
    Ok(())
}

/// A data connection of a client to `remote`, ready for the engine; TCP's still owes its cookie.
pub(super) fn open_stream(
    asked: &Parameters,
    local: &LocalEnd,
    remote: SocketAddr,
    port: Option<u16>,
    send_timeout_ms: u32,
    interrupted: Interrupted<'_>,
) -> Result<OwnedFd, Iperf3Error> {
    let transport = match asked.transport {
        Transport::Udp => SocketTransport::Udp,
        _ if asked.mptcp => SocketTransport::Mptcp,
        _ => SocketTransport::Tcp,
    };
    let failed = |error: &io::Error| Iperf3Error::StreamConnect(os_text(error));
    let socket =
        new_socket(IpFamily::of(&remote), transport).map_err(|error| failed(&error.source))?;
    local.bind(&socket, remote, port)?;
    prepare(&socket, asked)?;
    if asked.transport == Transport::Tcp && send_timeout_ms > 0 {
        sockopt::set_tcp_user_timeout(&socket, send_timeout_ms)
            .map_err(|error| plain_refusal(OptionKind::UserTimeout, error))?;
    }
    let remote = labelled(&socket, remote, asked.flow_label)?;
    connect(&socket, remote, CONNECT_PATIENCE, interrupted).map_err(|error| match error {
        ConnectError::Signal(signal) => Iperf3Error::Interrupted(signal),
        ConnectError::Failed(error) => failed(&error),
    })?;
    Ok(socket)
}

/// What the client asked for its data connections, at either end, before connecting.
pub(super) fn prepare(socket: impl AsFd, asked: &Parameters) -> Result<(), Iperf3Error> {
    let socket = socket.as_fd();
    let positive = |value: i64| u64::try_from(value).ok().filter(|&value| value > 0);
    if asked.transport == Transport::Tcp {
        if asked.nodelay {
            sys::socket::set_nodelay(socket, true).map_err(refusal(OptionKind::NoDelay))?;
        }
        if let Some(mss_bytes) = positive(asked.mss_bytes) {
            let mss_bytes = u32::try_from(mss_bytes).unwrap_or(u32::MAX);
            sys::socket::set_mss(socket, mss_bytes).map_err(refusal(OptionKind::Mss))?;
        }
    }
    match positive(asked.window_bytes) {
        Some(bytes) => {
            sys::socket::set_send_buffer(socket, bytes).map_err(refusal(OptionKind::Buffer))?;
            sys::socket::set_receive_buffer(socket, bytes).map_err(refusal(OptionKind::Buffer))?;
        }
        None if asked.transport == Transport::Udp => enlarge_for_datagrams(socket, asked),
        None => {}
    }
    if let Some(bits_per_s) = positive(asked.pacing_bits_per_s) {
        // A kernel without it sends unpaced; iperf3 warns and goes on too.
        sys::socket::set_max_pacing_rate(socket, bits_per_s / 8).ok();
    }
    set_type_of_service(socket, asked.type_of_service)?;
    let is_ipv4 = sockopt::socket_domain(socket)
        .is_ok_and(|family| family == rustix::net::AddressFamily::INET);
    if asked.dont_fragment && asked.transport == Transport::Udp && is_ipv4 {
        sockopt::set_ip_mtu_discover(socket, sockopt::Ipv4PathMtuDiscovery::DO)
            .map_err(|error| plain_refusal(OptionKind::DontFragment, error))?;
    }
    Ok(())
}

/// The congestion control asked for.
pub(super) fn set_congestion(socket: impl AsFd, asked: &Parameters) -> Result<(), Iperf3Error> {
    match &asked.congestion {
        Some(name) if asked.transport == Transport::Tcp => {
            sys::socket::set_congestion_control(socket, name)
                .map_err(refusal(OptionKind::Congestion))
        }
        _ => Ok(()),
    }
}

/// The socket's buffers, as the kernel has them.
pub(super) fn buffers(socket: impl AsFd, asked: &Parameters) -> Buffers {
    let socket = socket.as_fd();
    Buffers {
        asked_bytes: u64::try_from(asked.window_bytes).unwrap_or(0),
        send_bytes: sys::socket::send_buffer_bytes(socket).unwrap_or(0),
        receive_bytes: sys::socket::receive_buffer_bytes(socket).unwrap_or(0),
    }
}

/// Both addresses of a connected socket.
pub(super) fn addresses(socket: impl AsFd) -> io::Result<(SocketAddr, SocketAddr)> {
    let socket = socket.as_fd();
    let local = rustix::net::getsockname(socket)?;
    let remote = rustix::net::getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    let address = |address: rustix::net::SocketAddrAny| {
        SocketAddr::try_from(address).map_err(|_other_family| io::ErrorKind::Unsupported.into())
    };
    address(local).and_then(|local| Ok((local, address(remote)?)))
}

/// The greeting of a UDP stream, from the client.
pub(super) fn greet(socket: &OwnedFd, interrupted: Interrupted<'_>) -> Result<(), Iperf3Error> {
    let socket = UdpSocket::from(socket.try_clone().map_err(Iperf3Error::StreamRead)?);
    socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(Iperf3Error::StreamRead)?;
    let start = Instant::now();
    let mut again = start;
    let mut answer = [0; 4];
    loop {
        if let Some(signal) = interrupted() {
            return Err(Iperf3Error::Interrupted(signal));
        }
        let now = Instant::now();
        if now >= again {
            socket.send(&UDP_HELLO).map_err(Iperf3Error::StreamRead)?;
            again = now + GREETING_AGAIN;
        }
        match socket.recv(&mut answer) {
            Ok(4) if answer == UDP_WELCOME || answer == UDP_WELCOME_LEGACY => return Ok(()),
            // Data may overtake the answer when the server sends.
            Ok(_) => {}
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(Iperf3Error::StreamRead(error)),
        }
        if now.duration_since(start) > GREETING_PATIENCE {
            let late = io::Error::from_raw_os_error(rustix::io::Errno::TIMEDOUT.raw_os_error());
            return Err(Iperf3Error::StreamRead(late));
        }
    }
}

/// Datagrams larger than the default buffer would never go out.
fn enlarge_for_datagrams(socket: impl AsFd, asked: &Parameters) {
    const EXTRA_BYTES: u64 = 1024;
    let socket = socket.as_fd();
    let block_bytes = u64::try_from(asked.block_bytes).unwrap_or(0);
    // Refused only where the default is already larger.
    if sys::socket::send_buffer_bytes(socket).is_ok_and(|bytes| bytes < block_bytes) {
        sys::socket::set_send_buffer(socket, block_bytes + EXTRA_BYTES).ok();
    }
    if sys::socket::receive_buffer_bytes(socket).is_ok_and(|bytes| bytes < block_bytes) {
        sys::socket::set_receive_buffer(socket, block_bytes + EXTRA_BYTES).ok();
    }
}

fn set_type_of_service(socket: impl AsFd, value: i64) -> Result<(), Iperf3Error> {
    let socket = socket.as_fd();
    let Some(value) = u8::try_from(value).ok().filter(|&value| value > 0) else { return Ok(()) };
    let family = sockopt::socket_domain(socket);
    if family.is_ok_and(|family| family == rustix::net::AddressFamily::INET6) {
        // A socket of both families marks IPv4 too; one of IPv6 only refuses, which is fine.
        sockopt::set_ip_tos(socket, value).ok();
        return sockopt::set_ipv6_tclass(socket, u32::from(value))
            .map_err(|error| plain_refusal(OptionKind::TrafficClass, error));
    }
    sockopt::set_ip_tos(socket, value)
        .map_err(|error| plain_refusal(OptionKind::TypeOfService, error))
}

/// The address with its flow label, leased.
fn labelled(
    socket: &OwnedFd,
    remote: SocketAddr,
    flow_label: i64,
) -> Result<SocketAddr, Iperf3Error> {
    let Some(label) = u32::try_from(flow_label).ok().filter(|&label| label > 0) else {
        return Ok(remote);
    };
    match remote {
        SocketAddr::V6(mut address) => {
            let wire_label = sys::binding::lease_flow_label(socket, *address.ip(), label)
                .map_err(refusal(OptionKind::FlowLabel))?;
            address.set_flowinfo(wire_label);
            Ok(address.into())
        }
        SocketAddr::V4(_) => {
            let source = io::ErrorKind::Unsupported.into();
            Err(Iperf3Error::Option(Refusal::new(OptionKind::FlowLabel, source)))
        }
    }
}

enum ConnectError {
    Signal(i32),
    Failed(io::Error),
}

/// `connect(2)` with a deadline that a signal can cut short.
fn connect(
    socket: &OwnedFd,
    remote: SocketAddr,
    patience: Duration,
    interrupted: Interrupted<'_>,
) -> Result<(), ConnectError> {
    let failed = |error: rustix::io::Errno| ConnectError::Failed(error.into());
    rustix::io::ioctl_fionbio(socket, true).map_err(failed)?;
    let deadline = Instant::now() + patience;
    match rustix::net::connect(socket, &remote) {
        Ok(()) => {}
        Err(rustix::io::Errno::INPROGRESS) => loop {
            if let Some(signal) = interrupted() {
                return Err(ConnectError::Signal(signal));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if wait(socket.as_fd(), PollFlags::OUT, left.min(Duration::from_millis(100))) {
                sockopt::socket_error(socket).and_then(|state| state).map_err(failed)?;
                break;
            }
            if left.is_zero() {
                return Err(failed(rustix::io::Errno::TIMEDOUT));
            }
        },
        Err(error) => return Err(failed(error)),
    }
    rustix::io::ioctl_fionbio(socket, false).map_err(failed)
}

fn refusal(what: OptionKind) -> impl Fn(SyscallError) -> Iperf3Error {
    move |error| Iperf3Error::Option(Refusal::new(what, error.source))
}

fn plain_refusal(what: OptionKind, error: rustix::io::Errno) -> Iperf3Error {
    Iperf3Error::Option(Refusal::new(what, error.into()))
}
