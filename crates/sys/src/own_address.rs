//! The addresses of this host, and which of them endpoints use that talk to other hosts.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// An address of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAddress {
    /// The interface that has it.
    pub interface: String,
    /// The address; none of a link alone, which needs the link's number.
    pub ip: IpAddr,
    /// The interface is up.
    pub is_up: bool,
}

/// Why an address was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It, or its interface, was asked for.
    Asked,
    /// Packets to far hosts leave from it.
    Routed,
    /// There is no such route; its interface is up.
    Up,
    /// No other interface is up.
    Loopback,
}

/// The address that endpoints use: the one asked for (by interface or address), else the one that packets to far
/// hosts leave from, else one of an interface that is up, else the loopback's. `None`: there is none.
#[must_use]
pub fn choose(wanted: Option<&str>) -> Option<(OwnAddress, Reason)> {
    select(&all(), wanted, routed)
}

fn select(
    places: &[OwnAddress],
    wanted: Option<&str>,
    routed: impl Fn() -> Option<IpAddr>,
) -> Option<(OwnAddress, Reason)> {
    let found = |reason, fits: &dyn Fn(&OwnAddress) -> bool| {
        let place = places.iter().find(|place| fits(place))?;
        Some((place.clone(), reason))
    };
    if let Some(wanted) = wanted {
        let ip: Option<IpAddr> = wanted.parse().ok();
        return found(Reason::Asked, &|place| place.interface == wanted || Some(place.ip) == ip);
    }
    let routed = routed();
    found(Reason::Routed, &|place| Some(place.ip) == routed)
        .or_else(|| {
            let is_it =
                |place: &OwnAddress| place.is_up && place.ip.is_ipv4() && !place.ip.is_loopback();
            found(Reason::Up, &is_it)
        })
        .or_else(|| found(Reason::Loopback, &|place| place.ip == Ipv4Addr::LOCALHOST))
}

/// The source of packets to hosts that no interface is next to.
fn routed() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // RFC 5737; nothing is sent.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// All addresses of this host, in the kernel's order.
#[must_use]
pub fn all() -> Vec<OwnAddress> {
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
            places.push(OwnAddress { interface, ip, is_up });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn place(interface: &str, ip: &str, is_up: bool) -> OwnAddress {
        OwnAddress { interface: interface.to_owned(), ip: ip.parse().expect("an address"), is_up }
    }

    #[test]
    fn the_loopback_is_found() {
        assert!(all().iter().any(|place| place.ip == Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn the_address_asked_for_is_before_the_routed_one_and_that_before_any_other() {
        let places = [
            place("lo", "127.0.0.1", true),
            place("eth0", "10.0.0.1", false),
            place("eth1", "10.1.0.1", true),
            place("eth2", "10.2.0.1", true),
        ];
        let chosen = |wanted: Option<&str>, routed: Option<&str>| {
            let routed = routed.map(|ip| ip.parse().expect("an address"));
            let (place, reason) = select(&places, wanted, || routed)?;
            Some((place.interface, reason))
        };
        let found = |interface: &str, reason| Some((interface.to_owned(), reason));
        assert_eq!(chosen(Some("eth0"), Some("10.2.0.1")), found("eth0", Reason::Asked));
        assert_eq!(chosen(Some("10.1.0.1"), None), found("eth1", Reason::Asked));
        assert_eq!(chosen(Some("eth9"), Some("10.2.0.1")), None);
        assert_eq!(chosen(None, Some("10.2.0.1")), found("eth2", Reason::Routed));
        assert_eq!(chosen(None, None), found("eth1", Reason::Up));
        let (only, reason) = select(&places[..2], None, || None).expect("the loopback");
        assert_eq!((only.interface.as_str(), reason), ("lo", Reason::Loopback));
    }
}
