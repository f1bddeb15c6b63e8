//! Where this host is reached: its interfaces' addresses.

use std::ffi::CStr;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Once;

/// Names the interface, or one of this host's addresses, that endpoints use.
pub(crate) const INTERFACE_VARIABLE: &str = "FI_CLEARSTREAM_IFACE";

/// Bytes of IP and UDP headers before a packet.
const HEADERS_BYTES: u32 = 28;
const IPV6_MORE_BYTES: u32 = 20;
/// Most bytes of a datagram.
const DATAGRAM_BYTES_MAX: u32 = 65_507;
/// Ethernet's.
const USUAL_MTU_BYTES: u32 = 1500;

/// An address of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) interface: String,
    pub(crate) ip: IpAddr,
    is_up: bool,
}

impl Place {
    /// Most bytes of a packet that leaves here without being cut.
    pub(crate) fn packet_bytes_max(&self) -> u16 {
        let path = format!("/sys/class/net/{}/mtu", self.interface);
        let mtu_bytes =
            std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        let headers_bytes = HEADERS_BYTES + if self.ip.is_ipv6() { IPV6_MORE_BYTES } else { 0 };
        let bytes = mtu_bytes.unwrap_or(USUAL_MTU_BYTES).saturating_sub(headers_bytes);
        bytes.clamp(256, DATAGRAM_BYTES_MAX) as u16
    }
}

/// The address that endpoints use: the one asked for, else the one that packets to far hosts leave
/// from, else one of an interface that is up, else the loopback's.
///
/// # Errors
/// A line: no such interface or address.
pub(crate) fn choose() -> Result<Place, String> {
    let places = all();
    if let Some(wanted) = std::env::var_os(INTERFACE_VARIABLE).filter(|value| !value.is_empty()) {
        let wanted = wanted.to_string_lossy().into_owned();
        let ip: Option<IpAddr> = wanted.parse().ok();
        let fits = |place: &&Place| place.interface == wanted || Some(place.ip) == ip;
        let found = places.iter().find(fits).cloned();
        return found.ok_or_else(|| {
            format!("{INTERFACE_VARIABLE}={wanted}: no interface and no address of this host")
        });
    }
    let routed = routed();
    let by_route = places.iter().find(|place| Some(place.ip) == routed);
    let by_state =
        || places.iter().find(|place| place.is_up && place.ip.is_ipv4() && !place.ip.is_loopback());
    let loopback = || places.iter().find(|place| place.ip == Ipv4Addr::LOCALHOST);
    let found = by_route.or_else(by_state).or_else(loopback).cloned();
    found.ok_or_else(|| "this host has no address".to_owned())
}

/// Tells the user, once, what is wrong with the interface asked for: libfabric passes over a provider
/// without a word.
pub(crate) fn complain(line: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Where nobody listens nothing is said.
        writeln!(std::io::stderr(), "libclearstream_fi: {line}").ok();
    });
}

/// The source of packets to hosts that no interface is next to.
fn routed() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // RFC 5737; nothing is sent.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// All addresses of this host.
fn all() -> Vec<Place> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: a place for the list's address.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut places = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list, which is freed below.
        let entry = unsafe { &*next };
        // SAFETY: the kernel's name of the interface, which ends in 0 and lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: the entry's own socket address, or null.
        if let Some(ip) = unsafe { ip_of(entry.ifa_addr) } {
            let interface = name.to_string_lossy().into_owned();
            let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
            places.push(Place { interface, ip, is_up });
        }
        next = entry.ifa_next;
    }
    // SAFETY: from `getifaddrs`, freed once.
    unsafe { libc::freeifaddrs(list) };
    places
}

/// # Safety
/// Null, or a socket address of the family it names.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says so.
            let address = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says so.
            let address = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            // One of a link alone needs the link's number, which a name has no room for.
            (!ip.is_unicast_link_local()).then_some(IpAddr::V6(ip))
        }
        _ => None,
    }
}

/// The loopback's address.
#[cfg(test)]
pub(crate) fn loopback() -> Place {
    Place { interface: "lo".to_owned(), ip: Ipv4Addr::LOCALHOST.into(), is_up: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_found_with_its_mtu() {
        let places = all();
        let loopback = places.iter().find(|place| place.ip == Ipv4Addr::LOCALHOST);
        let loopback = loopback.expect("every host has one");
        assert!(loopback.packet_bytes_max() >= 1472);
        assert!(choose().is_ok());
    }
}
