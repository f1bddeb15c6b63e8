//! Datagrams together with the TTL (hop limit) they arrived with and the interface they came by (`ip(7)`,
//! `ipv6(7)`): what the generalised TTL security mechanism asks for (RFC 5082).
//!
//! Called by `watch`, for BFD.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use crate::SyscallError;
use crate::socket::{self, Family};

/// Room for two control messages: a TTL (24 bytes) and an interface with an address (at most 40).
const CONTROL_BYTES: usize = 128;
const ADDRESS_BYTES: usize = 28;

/// A datagram that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Its length; what the buffer had no room for is lost.
    pub length: usize,
    /// Where it came from.
    pub source: SocketAddr,
    /// The TTL or hop limit it arrived with.
    pub hop_limit: u8,
    /// Index of the interface it came by.
    pub interface_index: u32,
}

/// Has a UDP socket report hop limits and interfaces to [`receive`].
///
/// # Errors
/// `setsockopt` failed.
pub fn report(fd: impl AsFd, family: Family) -> Result<(), SyscallError> {
    let options = match family {
        Family::Ipv4 => [
            (libc::IPPROTO_IP, libc::IP_RECVTTL, "setsockopt(IP_RECVTTL)"),
            (libc::IPPROTO_IP, libc::IP_PKTINFO, "setsockopt(IP_PKTINFO)"),
        ],
        Family::Ipv6 => [
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, "setsockopt(IPV6_RECVHOPLIMIT)"),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "setsockopt(IPV6_RECVPKTINFO)"),
        ],
    };
    options.iter().try_for_each(|(level, option, call)| {
        socket::set(fd.as_fd(), *level, *option, &c_int::from(true), call)
    })
}

/// From now on the socket sends with this TTL or hop limit.
///
/// # Errors
/// `setsockopt` failed.
pub fn set(fd: impl AsFd, family: Family, hop_limit: u8) -> Result<(), SyscallError> {
    let (level, option, call) = match family {
        Family::Ipv4 => (libc::IPPROTO_IP, libc::IP_TTL, "setsockopt(IP_TTL)"),
        Family::Ipv6 => {
            (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, "setsockopt(IPV6_UNICAST_HOPS)")
        }
    };
    socket::set(fd.as_fd(), level, option, &c_int::from(hop_limit), call)
}

#[repr(C, align(8))]
struct Aligned<const N: usize>([u8; N]);

/// Takes the next datagram of a socket that [`report`]s. Does not wait.
///
/// # Errors
/// There is none (`WouldBlock`); an earlier datagram met an ICMP error; or the kernel did not report the hop
/// limit (`InvalidData`).
pub fn receive(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<Arrived> {
    let mut address = Aligned([0_u8; ADDRESS_BYTES]);
    let mut control = Aligned([0_u8; CONTROL_BYTES]);
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid `msghdr`: null pointers with lengths of 0.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = address.0.as_mut_ptr().cast();
    header.msg_namelen = ADDRESS_BYTES as libc::socklen_t;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `header` leads to an address, a vector over `buffer` and control memory, each of the stated
    // length, aligned as the kernel writes them, and all alive through the call.
    let length = unsafe { libc::recvmsg(fd, &raw mut header, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_negative| io::Error::last_os_error())?;
    let controls = &control.0[..header.msg_controllen.min(CONTROL_BYTES)];
    let arrived = || {
        let (hop_limit, interface_index) = reported(controls);
        Some(Arrived {
            length,
            source: source(&address.0)?,
            hop_limit: hop_limit?,
            interface_index: interface_index?,
        })
    };
    arrived().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn source(address: &[u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([address[2], address[3]]);
    let ip: IpAddr = match c_int::from(u16::from_ne_bytes([address[0], address[1]])) {
        libc::AF_INET => Ipv4Addr::from(*address[4..].first_chunk::<4>()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(*address[8..].first_chunk::<16>()?).into(),
        _other => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The hop limit and the interface among control messages.
fn reported(mut controls: &[u8]) -> (Option<u8>, Option<u32>) {
    // `struct cmsghdr`: length with the header (size_t), level (int), type (int), then the data, padded
    // to the next multiple of 8.
    const HEADER_BYTES: usize = 16;
    let (mut hop_limit, mut interface_index) = (None, None);
    while let Some(header) = controls.first_chunk::<HEADER_BYTES>() {
        let [l0, l1, l2, l3, l4, l5, l6, l7, v0, v1, v2, v3, t0, t1, t2, t3] = *header;
        let length = usize::from_ne_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
        let Some(data) = controls.get(HEADER_BYTES..length) else { break };
        let word = |at: usize| Some(i32::from_ne_bytes(*data.get(at..)?.first_chunk::<4>()?));
        let level = i32::from_ne_bytes([v0, v1, v2, v3]);
        let kind = i32::from_ne_bytes([t0, t1, t2, t3]);
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                hop_limit = word(0).and_then(|limit| u8::try_from(limit).ok());
            }
            // `in_pktinfo` begins with the interface, `in6_pktinfo` with an address of 16 bytes.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                interface_index = word(0).map(i32::cast_unsigned);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                interface_index = word(16).map(i32::cast_unsigned);
            }
            _other => {}
        }
        controls = controls.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    (hop_limit, interface_index)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn hop_limit_interface_and_source_are_reported_in_both_families() {
        for (address, family) in [("127.0.0.1:0", Family::Ipv4), ("[::1]:0", Family::Ipv6)] {
            let far = UdpSocket::bind(address).unwrap();
            let near = UdpSocket::bind(address).unwrap();
            report(&far, family).unwrap();
            let mut buffer = [0; 64];
            let none = receive(&far, &mut buffer).unwrap_err();
            assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
            for hop_limit in [255, 1, 64] {
                set(&near, family, hop_limit).unwrap();
                near.send_to(b"hello", far.local_addr().unwrap()).unwrap();
                let source = near.local_addr().unwrap();
                let arrived = receive(&far, &mut buffer).unwrap();
                assert_eq!(arrived, Arrived { length: 5, source, hop_limit, interface_index: 1 });
                assert_eq!(buffer[..5], *b"hello");
            }
        }
    }

    #[test]
    fn a_socket_that_does_not_report_is_noticed() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", far.local_addr().unwrap()).unwrap();
        let error = receive(&far, &mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn control_messages_are_taken_apart_without_panic() {
        assert_eq!(reported(&[]), (None, None));
        assert_eq!(reported(&[255; 64]), (None, None));
        assert_eq!(reported(&[0; 64]), (None, None));
        let mut short = 17_usize.to_ne_bytes().to_vec();
        short.extend([0; 16]);
        assert_eq!(reported(&short), (None, None));
    }
}
