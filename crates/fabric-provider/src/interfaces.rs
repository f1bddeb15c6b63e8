//! Where this host is reached: the address of its endpoints.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Once;

use sys::interface::RouteSocket;
use sys::own_address;

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
}

impl Place {
    /// Most bytes of a packet that leaves here without being cut.
    pub(crate) fn packet_bytes_max(&self) -> u16 {
        // Not read from /sys, which may show the interfaces of another network namespace.
        let mtu_bytes = RouteSocket::open()
            .and_then(|mut socket| socket.mtu_and_queue(&self.interface))
            .ok()
            .map(|(mtu_bytes, _)| mtu_bytes);
        let headers_bytes = HEADERS_BYTES + if self.ip.is_ipv6() { IPV6_MORE_BYTES } else { 0 };
        let bytes = mtu_bytes.unwrap_or(USUAL_MTU_BYTES).saturating_sub(headers_bytes);
        bytes.clamp(256, DATAGRAM_BYTES_MAX) as u16
    }
}

/// The address that endpoints use ([`own_address::choose`]).
///
/// # Errors
/// A line: no such interface or address.
pub(crate) fn choose() -> Result<Place, String> {
    let wanted = std::env::var_os(INTERFACE_VARIABLE).filter(|value| !value.is_empty());
    let wanted = wanted.map(|value| value.to_string_lossy().into_owned());
    match (own_address::choose(wanted.as_deref()), wanted) {
        (Some((place, _)), _) => Ok(Place { interface: place.interface, ip: place.ip }),
        (None, Some(wanted)) => {
            Err(format!("{INTERFACE_VARIABLE}={wanted}: no interface and no address of this host"))
        }
        (None, None) => Err("this host has no address".to_owned()),
    }
}

/// Tells the user, once, what is wrong with the interface asked for: libfabric passes over a provider
/// without a word.
pub(crate) fn complain(line: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| complain_of(line));
}

/// Tells the user what is done otherwise than planned.
pub(crate) fn complain_of(line: &str) {
    // Where nobody listens nothing is said.
    writeln!(std::io::stderr(), "libclearstream_fi: {line}").ok();
}

/// The loopback's address.
#[cfg(test)]
pub(crate) fn loopback() -> Place {
    Place { interface: "lo".to_owned(), ip: std::net::Ipv4Addr::LOCALHOST.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_the_mtu_of_its_interface() {
        assert!(loopback().packet_bytes_max() >= 1472);
        assert!(choose().is_ok());
    }
}
