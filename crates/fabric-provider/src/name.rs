//! An endpoint's name as programs exchange it: where it is reached, and the key that greetings to it
//! carry. Whoever has the name may talk to the endpoint: it is as secret as the program keeps it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;

use messaging::Address;

/// Bytes of a name: what `fi_getname` gives.
pub const NAME_BYTES: usize = 48;
const VERSION: u8 = 1;

/// A name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// What the protocol calls the endpoint: version, address family, port, IP address, the network of switches that it
    /// has a port in, and eight bytes that no other endpoint has, also a later one at the same port.
    pub address: Address,
    /// The endpoint's key.
    pub key: [u8; 16],
}

impl Name {
    /// The name of an endpoint at a UDP port, and at a port of a switch if it has one in a `network`.
    #[must_use]
    pub fn new(
        at: SocketAddr,
        network: Option<NonZeroU32>,
        unique: [u8; 8],
        key: [u8; 16],
    ) -> Self {
        let mut bytes = [0; 32];
        bytes[0] = VERSION;
        bytes[2..4].copy_from_slice(&at.port().to_le_bytes());
        match at.ip() {
            IpAddr::V4(ip) => {
                bytes[1] = 4;
                bytes[4..8].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes[1] = 6;
                bytes[4..20].copy_from_slice(&ip.octets());
            }
        }
        bytes[20..24].copy_from_slice(&network.map_or(0, NonZeroU32::get).to_le_bytes());
        bytes[24..].copy_from_slice(&unique);
        Self { address: Address(bytes), key }
    }

    /// The name as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; NAME_BYTES] {
        let mut bytes = [0; NAME_BYTES];
        bytes[..32].copy_from_slice(&self.address.0);
        bytes[32..].copy_from_slice(&self.key);
        bytes
    }

    /// The name that these bytes are; none where they are no name.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (address, key) = bytes.split_first_chunk::<32>()?;
        let name = Self { address: Address(*address), key: *key.first_chunk::<16>()? };
        socket_address(&name.address).map(|_place| name)
    }
}

/// Where packets to an address go; none where it is none of ours.
#[must_use]
pub fn socket_address(address: &Address) -> Option<SocketAddr> {
    let bytes = &address.0;
    let port = u16::from_le_bytes([bytes[2], bytes[3]]);
    let ip = match bytes[1] {
        4 => IpAddr::V4(Ipv4Addr::from(*bytes[4..].first_chunk::<4>()?)),
        6 => IpAddr::V6(Ipv6Addr::from(*bytes[4..].first_chunk::<16>()?)),
        _ => return None,
    };
    (bytes[0] == VERSION && port != 0 && !ip.is_unspecified() && !ip.is_multicast())
        .then_some(SocketAddr::new(ip, port))
}

/// The network of switches that an endpoint has a port in, if any.
#[must_use]
pub fn network(address: &Address) -> Option<NonZeroU32> {
    address.0[20..].first_chunk().and_then(|bytes| NonZeroU32::new(u32::from_le_bytes(*bytes)))
}

/// The hardware address of an endpoint's port: locally administered, of one station, and as good as no other's.
#[must_use]
pub fn hardware_address(address: &Address) -> [u8; 6] {
    let unique = &address.0[24..];
    [2, unique[0], unique[1], unique[2], unique[3], unique[4]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_their_bytes() {
        for at in ["10.1.2.3:4567", "[fd00::17]:65535"] {
            let at: SocketAddr = at.parse().expect("an address");
            for number in [None, NonZeroU32::new(0x0102_0304)] {
                let name = Name::new(at, number, [7; 8], [9; 16]);
                let parsed = Name::parse(&name.to_bytes()).expect("a name");
                assert_eq!(parsed, name);
                assert_eq!(socket_address(&parsed.address), Some(at));
                assert_eq!(network(&parsed.address), number);
                assert_eq!(hardware_address(&parsed.address), [2, 7, 7, 7, 7, 7]);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_name_or_none() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Some(name) = Name::parse(bytes) {
                assert_eq!(name.to_bytes()[..], bytes[..NAME_BYTES]);
            }
        });
    }
}
