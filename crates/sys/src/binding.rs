//! Binding a socket to a device, and flow labels.

use std::ffi::c_int;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd};

use crate::SyscallError;
use crate::socket::set;

/// `IFNAMSIZ` (kernel `include/uapi/linux/if.h`).
const NAME_BYTES: usize = 16;
/// `IPV6_FLOWLABEL_MGR` (kernel `include/uapi/linux/in6.h`).
const IPV6_FLOWLABEL_MGR: c_int = 32;
/// `IPV6_FLOWINFO_SEND` (kernel `include/uapi/linux/in6.h`).
const IPV6_FLOWINFO_SEND: c_int = 33;
/// `struct in6_flowlabel_req` (kernel `include/uapi/linux/in6.h`) has 32 bytes.
const REQUEST_BYTES: usize = 32;
/// `IPV6_FL_A_GET`, at byte 20 of the request.
const ACTION_GET: u8 = 0;
/// `IPV6_FL_S_ANY`, at byte 21.
const SHARE_ANY: u8 = 255;
/// `IPV6_FL_F_CREATE`, at byte 22, in the host's byte order.
const FLAG_CREATE: u16 = 1;

/// The socket sends and receives through this device only (`SO_BINDTODEVICE`).
///
/// # Errors
/// No such device, or (before Linux 5.7) no `CAP_NET_RAW`.
pub fn bind_to_device(fd: impl AsFd, device: &str) -> Result<(), SyscallError> {
    let call = "setsockopt(SO_BINDTODEVICE)";
    let mut name = [0_u8; NAME_BYTES];
    if device.is_empty() || device.len() >= NAME_BYTES {
        return Err(SyscallError::new(call, device, io::Error::from_raw_os_error(libc::ENODEV)));
    }
    name[..device.len()].copy_from_slice(device.as_bytes());
    set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name, call)
        .map_err(|error| SyscallError { object: device.to_owned(), ..error })
}

/// Leases a flow label (20 bits, RFC 6437) towards `destination` and lets the socket send it. The
/// label then goes into the `flowinfo` of the address connected to; in network byte order it is
/// what this returns.
///
/// # Errors
/// Not an IPv6 socket, or the label is taken exclusively.
pub fn lease_flow_label(
    fd: impl AsFd,
    destination: Ipv6Addr,
    label: u32,
) -> Result<u32, SyscallError> {
    let wire_label = (label & 0xf_ffff).to_be();
    let mut request = [0_u8; REQUEST_BYTES];
    request[..16].copy_from_slice(&destination.octets());
    request[16..20].copy_from_slice(&wire_label.to_ne_bytes());
    request[20] = ACTION_GET;
    request[21] = SHARE_ANY;
    request[22..24].copy_from_slice(&FLAG_CREATE.to_ne_bytes());
    let fd = fd.as_fd();
    let level = libc::IPPROTO_IPV6;
    set(fd, level, IPV6_FLOWLABEL_MGR, &request, "setsockopt(IPV6_FLOWLABEL_MGR)")
        .map_err(|error| SyscallError { object: format!("socket {}", fd.as_raw_fd()), ..error })?;
    set(fd, level, IPV6_FLOWINFO_SEND, &1, "setsockopt(IPV6_FLOWINFO_SEND)")?;
    Ok(wire_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Family, Transport, new_socket};

    #[test]
    fn loopback_is_a_device_and_nonsense_is_none() {
        let socket = new_socket(Family::Ipv4, Transport::Udp).unwrap();
        bind_to_device(&socket, "lo").unwrap();
        for device in ["", "no-such-device", "a-name-that-is-far-too-long"] {
            let error = bind_to_device(&socket, device).unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(libc::ENODEV), "{device:?}");
        }
    }

    #[test]
    fn a_label_is_leased_on_ipv6_only() {
        let socket = new_socket(Family::Ipv6, Transport::Udp).unwrap();
        assert_eq!(
            lease_flow_label(&socket, Ipv6Addr::LOCALHOST, 0x12345).unwrap(),
            0x12345u32.to_be()
        );
        let socket = new_socket(Family::Ipv4, Transport::Udp).unwrap();
        assert!(lease_flow_label(&socket, Ipv6Addr::LOCALHOST, 0x12345).is_err());
    }
}
