//! Networks from which clients are admitted.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// A network in CIDR notation, IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// The text that is not a valid network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{0}' is not a network; write for example 192.0.2.0/24, 2001:db8::/32 or one address")]
pub struct NetworkError(String);

impl Network {
    /// Whether the network contains `address`. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_ipv4() != self.address.is_ipv4() {
            return false;
        }
        let width_bits = if address.is_ipv4() { 32 } else { 128 };
        let differing = widened(address) ^ widened(self.address);
        differing.checked_shr(u32::from(width_bits - self.prefix_bits)).unwrap_or(0) == 0
    }
}

fn widened(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NetworkError(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_unreadable| wrong())?;
        let width_bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            Some(prefix) => prefix.trim().parse().map_err(|_unreadable| wrong())?,
            None => width_bits,
        };
        if prefix_bits > width_bits {
            return Err(wrong());
        }
        Ok(Self { address, prefix_bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(network: &str, address: &str) -> bool {
        let network: Network = network.parse().expect("a network");
        network.contains(address.parse().expect("an address"))
    }

    #[test]
    fn prefixes_of_both_families() {
        assert!(holds("192.0.2.0/24", "192.0.2.255"));
        assert!(!holds("192.0.2.0/24", "192.0.3.0"));
        assert!(holds("0.0.0.0/0", "203.0.113.9"));
        assert!(!holds("0.0.0.0/0", "::1"));
        assert!(holds("::/0", "2001:db8::1"));
        assert!(holds("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!holds("2001:db8::/33", "2001:db8:8000::1"));
        assert!(holds("192.0.2.7", "192.0.2.7"));
        assert!(holds("192.0.2.0/24", "::ffff:192.0.2.1"));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "/", "192.0.2.0/33", "::/129", "host/8", "192.0.2.0/-1", "192.0.2.0/2 4"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
