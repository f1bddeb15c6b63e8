//! Address families and prefixes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// `AF_INET`.
pub(crate) const AF_INET: u8 = 2;
/// `AF_INET6`.
pub(crate) const AF_INET6: u8 = 10;

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv6() { Self::V6 } else { Self::V4 }
    }

    /// The kernel's number of the family.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::V4 => AF_INET,
            Self::V6 => AF_INET6,
        }
    }

    /// From the kernel's number; `None` for every other family.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            AF_INET => Some(Self::V4),
            AF_INET6 => Some(Self::V6),
            _other => None,
        }
    }

    /// Bits of an address: 32 or 128.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    pub(crate) fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

/// A network: an address and how many of its leading bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

/// A prefix that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PrefixError {
    /// More bits than an address has.
    #[error("{address}/{bits}: an address of this family has fewer bits")]
    TooManyBits {
        /// The address.
        address: IpAddr,
        /// The bits asked for.
        bits: u8,
    },
    /// Bits behind the prefix are set; the kernel refuses such destinations.
    #[error("{address}/{bits}: the address has bits set behind the prefix")]
    HostBits {
        /// The address.
        address: IpAddr,
        /// The bits asked for.
        bits: u8,
    },
}

impl Prefix {
    /// A network.
    ///
    /// # Errors
    /// More bits than the address has, or bits set behind the prefix.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self, PrefixError> {
        if bits > Family::of(address).bits() {
            return Err(PrefixError::TooManyBits { address, bits });
        }
        let behind_is_zero = match address {
            IpAddr::V4(v4) => v4.to_bits().checked_shl(bits.into()).unwrap_or(0) == 0,
            IpAddr::V6(v6) => v6.to_bits().checked_shl(bits.into()).unwrap_or(0) == 0,
        };
        behind_is_zero
            .then_some(Self { address, bits })
            .ok_or(PrefixError::HostBits { address, bits })
    }

    /// A network of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, bits: Family::of(address).bits() }
    }

    /// All addresses of a family: the destination of a default route.
    #[must_use]
    pub fn all(family: Family) -> Self {
        Self { address: family.unspecified(), bits: 0 }
    }

    /// The first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Length of the prefix.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// The family of the address.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }

    /// As a message says it; host bits are taken as they are, because the kernel has its own opinion
    /// of what it accepted.
    pub(crate) fn told(family: Family, address: Option<IpAddr>, bits: u8) -> Option<Self> {
        // What an address says behind a prefix of no bits is not sent back.
        let address = address.filter(|_| bits > 0).unwrap_or(family.unspecified());
        (Family::of(address) == family && bits <= family.bits()).then_some(Self { address, bits })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// An address as it goes over the wire: 4 or 16 bytes.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_no_host_bits() {
        let prefix = |text: &str, bits| Prefix::new(text.parse().unwrap(), bits);
        assert_eq!(prefix("10.1.0.0", 16).unwrap().to_string(), "10.1.0.0/16");
        assert_eq!(prefix("fd00::", 8).unwrap().family(), Family::V6);
        assert!(matches!(prefix("10.1.0.1", 16), Err(PrefixError::HostBits { .. })));
        assert!(matches!(prefix("10.1.0.0", 33), Err(PrefixError::TooManyBits { .. })));
        assert!(matches!(prefix("::1", 0), Err(PrefixError::HostBits { .. })));
        assert_eq!(prefix("0.0.0.0", 0).unwrap(), Prefix::all(Family::V4));
        assert_eq!(prefix("::1", 128).unwrap(), Prefix::host("::1".parse().unwrap()));
    }
}
