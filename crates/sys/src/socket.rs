//! Socket options the standard library does not know, and the queues behind a socket.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::SyscallError;

/// `IPPROTO_MPTCP` (kernel `include/uapi/linux/in.h`).
const IPPROTO_MPTCP: c_int = 262;
/// `SOL_MPTCP` (kernel `include/linux/socket.h`).
const SOL_MPTCP: c_int = 284;
/// `MPTCP_INFO` (kernel `include/uapi/linux/mptcp.h`).
const MPTCP_INFO: c_int = 1;
/// `MPTCP_INFO_FLAG_FALLBACK` (kernel `include/uapi/linux/mptcp.h`).
const MPTCP_INFO_FLAG_FALLBACK: u32 = 1;
/// `SO_MEMINFO` (kernel `include/uapi/asm-generic/socket.h`).
const SO_MEMINFO: c_int = 55;
/// `SK_MEMINFO_DROPS` (kernel `include/uapi/linux/sock_diag.h`).
const SK_MEMINFO_DROPS: usize = 8;
/// `TCP_CA_NAME_MAX` (kernel `include/net/tcp.h`).
const TCP_CA_NAME_MAX: usize = 16;

/// Address family of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// RFC 791.
    Ipv4,
    /// RFC 8200.
    Ipv6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: &std::net::SocketAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    fn number(self) -> c_int {
        match self {
            Self::Ipv4 => libc::AF_INET,
            Self::Ipv6 => libc::AF_INET6,
        }
    }
}

/// Which transport a new socket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 8684; Linux 5.6.
    Mptcp,
    /// RFC 768.
    Udp,
}

/// A new socket, closed on exec.
///
/// # Errors
/// `socket(2)` failed: no such protocol in this kernel (MPTCP), too many open files.
pub fn new_socket(family: Family, transport: Transport) -> Result<OwnedFd, SyscallError> {
    let (kind, protocol, name) = match transport {
        Transport::Tcp => (libc::SOCK_STREAM, libc::IPPROTO_TCP, "TCP"),
        Transport::Mptcp => (libc::SOCK_STREAM, IPPROTO_MPTCP, "MPTCP"),
        Transport::Udp => (libc::SOCK_DGRAM, libc::IPPROTO_UDP, "UDP"),
    };
    // SAFETY: takes integers only.
    let fd = unsafe { libc::socket(family.number(), kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(SyscallError::last("socket", name));
    }
    // SAFETY: `fd` was just returned by the kernel and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks for a send buffer, beyond `net.core.wmem_max` where `CAP_NET_ADMIN` allows, and says what
/// the kernel gave: twice what was asked, unless it was clamped (`socket(7)`).
///
/// # Errors
/// `setsockopt` or `getsockopt` failed.
pub fn set_send_buffer(fd: impl AsFd, bytes: u64) -> Result<u64, SyscallError> {
    set_buffer(&fd, bytes, (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), "setsockopt(SO_SNDBUF)")?;
    send_buffer_bytes(fd)
}

/// Asks for a receive buffer, beyond `net.core.rmem_max` where `CAP_NET_ADMIN` allows, and says
/// what the kernel gave: twice what was asked, unless it was clamped (`socket(7)`).
///
/// # Errors
/// `setsockopt` or `getsockopt` failed.
pub fn set_receive_buffer(fd: impl AsFd, bytes: u64) -> Result<u64, SyscallError> {
    set_buffer(&fd, bytes, (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), "setsockopt(SO_RCVBUF)")?;
    receive_buffer_bytes(fd)
}

/// Lets the kernel tune both buffers again after they were set (`SO_BUF_LOCK`, Linux 5.14).
///
/// # Errors
/// `setsockopt` failed: an older kernel.
pub fn release_buffers(fd: impl AsFd) -> Result<(), SyscallError> {
    /// `include/uapi/asm-generic/socket.h`.
    const SO_BUF_LOCK: c_int = 72;
    set(fd.as_fd(), libc::SOL_SOCKET, SO_BUF_LOCK, &0, "setsockopt(SO_BUF_LOCK)")
}

fn set_buffer(
    fd: &impl AsFd,
    bytes: u64,
    (force, plain): (c_int, c_int),
    call: &'static str,
) -> Result<(), SyscallError> {
    // The kernel doubles the figure in an int.
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
    set(fd.as_fd(), libc::SOL_SOCKET, force, &bytes, call)
        .or_else(|_unprivileged| set(fd.as_fd(), libc::SOL_SOCKET, plain, &bytes, call))
}

/// The user id of the process at the other end of a UNIX socket; also where that process is of another
/// process-id namespace and so has no number here.
///
/// # Errors
/// Not a connected UNIX socket.
pub fn peer_user(fd: impl AsFd) -> Result<u32, SyscallError> {
    let [_, _, _, _, uid @ .., _, _, _, _] = peer_credentials(fd.as_fd())?;
    Ok(u32::from_ne_bytes(uid))
}

/// The process at the other end of a UNIX socket, which connected or listens; none where it is of another
/// process-id namespace and so has no number here. The process may have ended since, and its number be another's.
///
/// # Errors
/// Not a connected UNIX socket.
pub fn peer_process(fd: impl AsFd) -> Result<Option<u32>, SyscallError> {
    let [pid @ .., _, _, _, _, _, _, _, _] = peer_credentials(fd.as_fd())?;
    Ok(Some(u32::from_ne_bytes(pid)).filter(|&pid| pid != 0))
}

/// `struct ucred`: pid, uid, gid, 32 bits each.
fn peer_credentials(fd: BorrowedFd<'_>) -> Result<[u8; 12], SyscallError> {
    let call = "getsockopt(SO_PEERCRED)";
    get(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, [0_u8; 12], call).map(|(bytes, _length)| bytes)
}

/// `SO_SNDBUF` as the kernel has it, bytes (its doubled figure).
///
/// # Errors
/// `getsockopt` failed.
pub fn send_buffer_bytes(fd: impl AsFd) -> Result<u64, SyscallError> {
    int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, "getsockopt(SO_SNDBUF)")
}

/// `SO_RCVBUF` as the kernel has it, bytes (its doubled figure).
///
/// # Errors
/// `getsockopt` failed.
pub fn receive_buffer_bytes(fd: impl AsFd) -> Result<u64, SyscallError> {
    int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, "getsockopt(SO_RCVBUF)")
}

/// Largest segment to send and to announce (`TCP_MAXSEG`); to be set before connecting.
///
/// # Errors
/// Outside what the kernel takes, 88 to 32767.
pub fn set_mss(fd: impl AsFd, mss_bytes: u32) -> Result<(), SyscallError> {
    let value = c_int::try_from(mss_bytes).unwrap_or(c_int::MAX);
    set(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, &value, "setsockopt(TCP_MAXSEG)")
}

/// `TCP_MAXSEG`, bytes.
///
/// # Errors
/// Not a TCP socket.
pub fn mss_bytes(fd: impl AsFd) -> Result<u64, SyscallError> {
    int(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, "getsockopt(TCP_MAXSEG)")
}

/// Most the receive window may be, whatever the buffer (`TCP_WINDOW_CLAMP`), bytes.
///
/// # Errors
/// Not a TCP socket.
pub fn window_clamp_bytes(fd: impl AsFd) -> Result<u64, SyscallError> {
    let call = "getsockopt(TCP_WINDOW_CLAMP)";
    int(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, call)
}

/// Chooses the congestion control algorithm.
///
/// # Errors
/// No such algorithm, or not one an unprivileged process may choose.
pub fn set_congestion_control(fd: impl AsFd, name: &str) -> Result<(), SyscallError> {
    let call = "setsockopt(TCP_CONGESTION)";
    let mut value = [0_u8; TCP_CA_NAME_MAX];
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= TCP_CA_NAME_MAX {
        return Err(SyscallError::new(call, name, io::Error::from_raw_os_error(libc::ENOENT)));
    }
    value[..bytes.len()].copy_from_slice(bytes);
    set(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, &value, call)
        .map_err(|error| SyscallError { object: name.to_owned(), ..error })
}

/// The congestion control algorithm in use.
///
/// # Errors
/// Not a TCP socket.
pub fn congestion_control(fd: impl AsFd) -> Result<String, SyscallError> {
    let call = "getsockopt(TCP_CONGESTION)";
    let (value, length) =
        get(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, [0_u8; TCP_CA_NAME_MAX], call)?;
    let name = value[..length].split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Marks what is sent with a differentiated services code point, 0 to 63 (RFC 2474), for IPv4 and
/// IPv6 alike.
///
/// # Errors
/// `setsockopt` failed.
pub fn set_dscp(fd: impl AsFd, dscp: u8) -> Result<(), SyscallError> {
    let class = c_int::from(dscp.min(63)) << 2;
    let call = "setsockopt(IP_TOS)";
    let fd = fd.as_fd();
    if int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, call)? == 10 {
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class, "setsockopt(IPV6_TCLASS)")?;
        // A dual-stack socket carries IPv4 too; one bound to IPv6 only refuses, which is fine.
        set(fd, libc::IPPROTO_IP, libc::IP_TOS, &class, call).ok();
        return Ok(());
    }
    set(fd, libc::IPPROTO_IP, libc::IP_TOS, &class, call)
}

/// `TCP_NODELAY`: small writes are sent at once.
///
/// # Errors
/// Not a TCP socket.
pub fn set_nodelay(fd: impl AsFd, on: bool) -> Result<(), SyscallError> {
    let call = "setsockopt(TCP_NODELAY)";
    set(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, &c_int::from(on), call)
}

/// `SO_MAX_PACING_RATE`, bytes a second: the kernel spaces what is sent.
///
/// # Errors
/// `setsockopt` failed.
pub fn set_max_pacing_rate(fd: impl AsFd, bytes_per_s: u64) -> Result<(), SyscallError> {
    let call = "setsockopt(SO_MAX_PACING_RATE)";
    set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_s, call)
}

/// How long a blocking send or receive sleeps before it returns `EAGAIN`.
///
/// # Errors
/// `setsockopt` failed.
pub fn set_timeouts(fd: impl AsFd, timeout: Duration) -> Result<(), SyscallError> {
    let value = libc::timeval {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::from(timeout.subsec_micros()),
    };
    let fd = fd.as_fd();
    set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value, "setsockopt(SO_RCVTIMEO)")?;
    set(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &value, "setsockopt(SO_SNDTIMEO)")
}

/// From now on closing the socket drops what is still queued and resets the connection.
///
/// # Errors
/// `setsockopt` failed.
pub fn reset_on_close(fd: impl AsFd) -> Result<(), SyscallError> {
    let value = libc::linger { l_onoff: 1, l_linger: 0 };
    set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &value, "setsockopt(SO_LINGER)")
}

/// A receive is woken only when this many bytes wait (`SO_RCVLOWAT`).
///
/// # Errors
/// `setsockopt` failed.
pub fn set_receive_low_water(fd: impl AsFd, bytes: u32) -> Result<(), SyscallError> {
    let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, &value, "setsockopt(SO_RCVLOWAT)")
}

/// Bytes waiting in the receive queue (`SIOCINQ`; of UDP the next datagram only).
///
/// # Errors
/// Not a connected socket.
pub fn receive_queue_bytes(fd: impl AsFd) -> Result<u64, SyscallError> {
    queue_bytes(fd.as_fd(), libc::FIONREAD, "ioctl(SIOCINQ)")
}

/// Bytes in the send queue, sent and not acknowledged included (`SIOCOUTQ`).
///
/// # Errors
/// Not a connected socket.
pub fn send_queue_bytes(fd: impl AsFd) -> Result<u64, SyscallError> {
    queue_bytes(fd.as_fd(), libc::TIOCOUTQ, "ioctl(SIOCOUTQ)")
}

fn queue_bytes(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    call: &'static str,
) -> Result<u64, SyscallError> {
    let mut bytes: c_int = 0;
    // SAFETY: both requests write one int to the address given, which is valid and writable.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut bytes) };
    if answer < 0 {
        return Err(SyscallError::last(call, object(fd)));
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Datagrams this socket dropped for want of buffer space (`SK_MEMINFO_DROPS`, Linux 4.12).
///
/// # Errors
/// `getsockopt` failed, or the kernel does not know the figure.
pub fn socket_drops_count(fd: impl AsFd) -> Result<u64, SyscallError> {
    let call = "getsockopt(SO_MEMINFO)";
    let fd = fd.as_fd();
    let (values, length) = get(fd, libc::SOL_SOCKET, SO_MEMINFO, [0_u32; 9], call)?;
    if length < size_of_val(&values) {
        return Err(SyscallError::new(call, object(fd), io::ErrorKind::Unsupported));
    }
    Ok(u64::from(values[SK_MEMINFO_DROPS]))
}

/// Whether a connected MPTCP socket still speaks MPTCP; `false` after a fallback to TCP and for a
/// plain TCP socket.
#[must_use]
pub fn mptcp_established(fd: impl AsFd) -> bool {
    // `struct mptcp_info`: seven bytes of counts, one of padding, then `mptcpi_flags`.
    match get(fd.as_fd(), SOL_MPTCP, MPTCP_INFO, [0_u32; 24], "getsockopt(MPTCP_INFO)") {
        Ok((words, length)) => length >= 12 && words[2] & MPTCP_INFO_FLAG_FALLBACK == 0,
        Err(_not_mptcp) => false,
    }
}

/// The core that last processed a packet of this socket's (`SO_INCOMING_CPU`, Linux 3.19): the one
/// its receive queue is served by. `None` before the first packet.
///
/// # Errors
/// `getsockopt` failed.
pub fn incoming_core(fd: impl AsFd) -> Result<Option<u32>, SyscallError> {
    let call = "getsockopt(SO_INCOMING_CPU)";
    let (core, _length) = get(fd.as_fd(), libc::SOL_SOCKET, libc::SO_INCOMING_CPU, -1, call)?;
    // -1 until the kernel knows.
    Ok(u32::try_from(core).ok())
}

fn int(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    call: &'static str,
) -> Result<u64, SyscallError> {
    let (value, _length) = get(fd, level, name, 0 as c_int, call)?;
    Ok(u64::try_from(value).unwrap_or(0))
}

fn object(fd: BorrowedFd<'_>) -> String {
    format!("socket {}", fd.as_raw_fd())
}

/// Values that are plain bytes to the kernel: no padding it could read uninitialised, no bit
/// pattern it could write that is invalid.
pub(crate) trait Plain: Copy {}

impl Plain for c_int {}
impl Plain for u64 {}
impl Plain for libc::timeval {}
impl Plain for libc::linger {}
impl<const N: usize> Plain for [u8; N] {}
impl<const N: usize> Plain for [u32; N] {}

pub(crate) fn set<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
    call: &'static str,
) -> Result<(), SyscallError> {
    let length = libc::socklen_t::try_from(size_of::<T>()).expect("option values are small");
    let pointer = std::ptr::from_ref(value).cast();
    // SAFETY: `pointer` is valid for `length` initialised bytes through the call.
    let answer = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, pointer, length) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last(call, object(fd))) }
}

/// The option's value over `zero`, and how many bytes of it the kernel wrote.
pub(crate) fn get<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    zero: T,
    call: &'static str,
) -> Result<(T, usize), SyscallError> {
    let mut value = MaybeUninit::new(zero);
    let mut length = libc::socklen_t::try_from(size_of::<T>()).expect("option values are small");
    let pointer = value.as_mut_ptr().cast();
    // SAFETY: `pointer` is writable for `length` bytes; the kernel writes no more than that.
    let answer = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, pointer, &raw mut length) };
    if answer != 0 {
        return Err(SyscallError::last(call, object(fd)));
    }
    // SAFETY: `value` was initialised with `zero`, and any bytes are a valid `T` (`Plain`).
    let value = unsafe { value.assume_init() };
    Ok((value, (length as usize).min(size_of::<T>())))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn buffers_are_doubled_and_read_back() {
        let socket = new_socket(Family::Ipv4, Transport::Tcp).unwrap();
        assert_eq!(set_send_buffer(&socket, 100_000).unwrap(), 200_000);
        assert_eq!(set_receive_buffer(&socket, 100_000).unwrap(), 200_000);
        assert!(set_send_buffer(&socket, u64::MAX).unwrap() > 200_000);
    }

    #[test]
    fn congestion_control_by_name() {
        let socket = new_socket(Family::Ipv6, Transport::Tcp).unwrap();
        set_congestion_control(&socket, "reno").unwrap();
        assert_eq!(congestion_control(&socket).unwrap(), "reno");
        for name in ["", "no-such-one", "a-name-that-is-far-too-long"] {
            let error = set_congestion_control(&socket, name).unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(libc::ENOENT), "{name:?}");
        }
    }

    #[test]
    fn queues_show_what_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        io::Write::write_all(&mut &near, &[1; 777]).unwrap();
        far.peek(&mut [0]).unwrap();
        assert_eq!(receive_queue_bytes(&far).unwrap(), 777);
        assert_eq!(send_queue_bytes(&near).unwrap(), 0);
        assert!(!mptcp_established(&near));
        let core = incoming_core(&far).unwrap().expect("packets came");
        assert!(core < 1024, "{core}");
        for option in [set_nodelay(&near, true), set_dscp(&near, 46), reset_on_close(&near)] {
            option.unwrap();
        }
    }

    #[test]
    fn datagrams_without_a_reader_are_counted_as_drops() {
        let reader = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_receive_buffer(&reader, 4096).unwrap();
        let writer = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            writer.send_to(&[0; 1000], reader.local_addr().unwrap()).unwrap();
        }
        assert!(socket_drops_count(&reader).unwrap() > 50);
    }
}
