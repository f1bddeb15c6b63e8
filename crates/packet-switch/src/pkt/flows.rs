//! Whose frames are sent: ranges of addresses and ports, as pkt-gen takes them.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use thiserror::Error;

use super::frame::MacAddress;

/// RFC 863.
const DISCARD_PORT: u16 = 9;

/// Why a text is not a range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RangeError {
    /// Its parts are none.
    #[error("'{0}' is not {1}")]
    Form(String, &'static str),
    /// It runs backwards.
    #[error("'{0}' ends before it begins")]
    Backwards(String),
}

/// Ethernet addresses one after the other: `02:00:00:00:00:01` or
/// `02:00:00:00:00:01-02:00:00:00:00:ff`.
///
/// ```
/// use packet_switch::pkt::MacRange;
///
/// let range: MacRange = "02:00:00:00:00:fe-02:00:00:00:01:01".parse()?;
/// assert_eq!(range.count(), 4);
/// assert_eq!(range.at(2).to_string(), "02:00:00:00:01:00");
/// assert_eq!(range.at(4), range.at(0));
/// # Ok::<(), packet_switch::pkt::RangeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacRange {
    first: u64,
    count: u64,
}

impl MacRange {
    /// The range of one address.
    #[must_use]
    pub const fn one(address: MacAddress) -> Self {
        Self { first: number(address), count: 1 }
    }

    /// How many addresses, 1 to 2^48.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The address that the frame with that number has; after the last comes the first.
    #[must_use]
    pub const fn at(&self, frame: u64) -> MacAddress {
        // The first is below 2^48, and so is the count.
        let [_, _, bytes @ ..] = (self.first + frame % self.count).to_be_bytes();
        MacAddress(bytes)
    }
}

const fn number(MacAddress([a, b, c, d, e, f]): MacAddress) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl FromStr for MacRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let form = "an Ethernet address such as 02:00:00:00:00:01, or FIRST-LAST";
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let parse = |part: &str| part.parse().map(number).map_err(|_unread| bad(text, form));
        let (first, last): (u64, u64) = (parse(first)?, parse(last)?);
        let count = last.checked_sub(first).ok_or_else(|| RangeError::Backwards(shown(text)))? + 1;
        Ok(Self { first, count })
    }
}

impl fmt::Display for MacRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at(0).fmt(out)?;
        if self.count > 1 { write!(out, "-{}", self.at(self.count - 1)) } else { Ok(()) }
    }
}

/// IPv4 addresses and UDP ports: `192.0.2.1`, `192.0.2.1:9`, `10.0.0.1:2000-10.0.0.10:2020`. Its members
/// are all ports of the first address, then all of the second, and so on.
///
/// ```
/// use packet_switch::pkt::EndpointRange;
///
/// let range: EndpointRange = "10.0.0.1:7-10.0.0.2:9".parse()?;
/// assert_eq!(range.count(), 6);
/// assert_eq!(range.at(4), ([10, 0, 0, 2].into(), 8));
/// # Ok::<(), packet_switch::pkt::RangeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointRange {
    address: u32,
    addresses: u64,
    port: u16,
    ports: u64,
}

impl EndpointRange {
    /// One address, the discard port.
    #[must_use]
    pub const fn one(address: Ipv4Addr) -> Self {
        Self { address: address.to_bits(), addresses: 1, port: DISCARD_PORT, ports: 1 }
    }

    /// How many pairs of an address and a port, 1 to 2^48.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.addresses * self.ports
    }

    /// The pair that the frame with that number has; after the last comes the first.
    #[must_use]
    pub const fn at(&self, frame: u64) -> (Ipv4Addr, u16) {
        let address = frame / self.ports % self.addresses;
        // Within the range, whose ends were a u32 and a u16.
        let address = Ipv4Addr::from_bits(self.address + address as u32);
        (address, self.port + (frame % self.ports) as u16)
    }
}

impl FromStr for EndpointRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let form = "an IPv4 address such as 192.0.2.1 or 192.0.2.1:9, or FIRST-LAST";
        let end = |part: &str, port: u16| {
            let (address, port) = match part.split_once(':') {
                None => (part, port),
                Some((address, port)) => {
                    (address, port.parse().map_err(|_unread| bad(text, form))?)
                }
            };
            let address: Ipv4Addr = address.parse().map_err(|_unread| bad(text, form))?;
            Ok((address.to_bits(), port))
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (address, port) = end(first, DISCARD_PORT)?;
        let (address_last, port_last) = end(last, port)?;
        let backwards = || RangeError::Backwards(shown(text));
        let addresses = address_last.checked_sub(address).ok_or_else(backwards)?;
        let ports = port_last.checked_sub(port).ok_or_else(backwards)?;
        Ok(Self { address, addresses: u64::from(addresses) + 1, port, ports: u64::from(ports) + 1 })
    }
}

impl fmt::Display for EndpointRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, port) = self.at(0);
        write!(out, "{address}:{port}")?;
        if self.count() == 1 {
            return Ok(());
        }
        let (address, port) = self.at(self.count() - 1);
        write!(out, "-{address}:{port}")
    }
}

fn bad(text: &str, form: &'static str) -> RangeError {
    RangeError::Form(shown(text), form)
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The addresses of a stream. Ethernet addresses go round by themselves, a frame each; IPv4 sources go
/// through all of theirs before the next destination, as with pkt-gen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flows {
    /// Ethernet source addresses.
    pub source_macs: MacRange,
    /// Ethernet destination addresses.
    pub destination_macs: MacRange,
    /// IPv4 sources.
    pub sources: EndpointRange,
    /// IPv4 destinations.
    pub destinations: EndpointRange,
}

impl Flows {
    /// One flow between documentation addresses (RFC 5737).
    #[must_use]
    pub const fn between(source: MacAddress, destination: MacAddress) -> Self {
        Self {
            source_macs: MacRange::one(source),
            destination_macs: MacRange::one(destination),
            sources: EndpointRange::one(Ipv4Addr::new(192, 0, 2, 1)),
            destinations: EndpointRange::one(Ipv4Addr::new(192, 0, 2, 2)),
        }
    }

    /// Whether all frames are alike.
    #[must_use]
    pub const fn are_one(&self) -> bool {
        let macs = self.source_macs.count() * self.destination_macs.count();
        macs == 1 && self.sources.count() == 1 && self.destinations.count() == 1
    }

    /// What the frame with that number says of where from and where to.
    #[must_use]
    pub(super) const fn at(&self, frame: u64) -> Ends {
        Ends {
            macs: [self.destination_macs.at(frame), self.source_macs.at(frame)],
            source: self.sources.at(frame),
            destination: self.destinations.at(frame / self.sources.count()),
        }
    }
}

/// Where one frame comes from and goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    /// The destination's, then the source's, as on the wire.
    pub(super) macs: [MacAddress; 2],
    pub(super) source: (Ipv4Addr, u16),
    pub(super) destination: (Ipv4Addr, u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_written_as_usual() {
        for (text, count) in [
            ("02:00:00:00:00:01", 1),
            ("02:00:00:00:00:01-02:00:00:00:00:0a", 10),
            ("00:00:00:00:00:00-ff:ff:ff:ff:ff:ff", 1 << 48),
        ] {
            let range: MacRange = text.parse().unwrap();
            assert_eq!((range.count(), range.to_string().as_str()), (count, text));
        }
        for (text, count, shown) in [
            ("10.0.0.1", 1, "10.0.0.1:9"),
            ("10.0.0.1-10.0.1.0", 256, "10.0.0.1:9-10.0.1.0:9"),
            ("10.0.0.1:5", 1, "10.0.0.1:5"),
            ("10.0.0.1:5-10.0.0.1:7", 3, "10.0.0.1:5-10.0.0.1:7"),
            ("0.0.0.0:0-255.255.255.255:65535", 1 << 48, "0.0.0.0:0-255.255.255.255:65535"),
        ] {
            let range: EndpointRange = text.parse().unwrap();
            assert_eq!((range.count(), range.to_string().as_str()), (count, shown));
        }
        for bad in
            ["", "-", "02:00:00:00:00:01-", "02:00:00:00:00:02-02:00:00:00:00:01", "10.0.0.1"]
        {
            assert!(bad.parse::<MacRange>().is_err(), "{bad}");
        }
        for bad in [
            "",
            "-",
            "10.0.0.1-",
            "10.0.0.2-10.0.0.1",
            "10.0.0.1:8-10.0.0.2:7",
            "10.0.0.1:70000",
            "::1",
        ] {
            assert!(bad.parse::<EndpointRange>().is_err(), "{bad}");
        }
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(range) = text.parse::<EndpointRange>() {
                assert_eq!(range.to_string().parse(), Ok(range));
            }
            if let Ok(range) = text.parse::<MacRange>() {
                assert_eq!(range.to_string().parse(), Ok(range));
            }
        });
    }

    #[test]
    fn sources_go_round_before_the_next_destination() {
        let flows = Flows {
            source_macs: "02:00:00:00:00:01-02:00:00:00:00:03".parse().unwrap(),
            sources: "10.0.0.1:7-10.0.0.2:8".parse().unwrap(),
            destinations: "10.1.0.1-10.1.0.2".parse().unwrap(),
            ..Flows::between(MacAddress([2; 6]), MacAddress([4; 6]))
        };
        assert!(!flows.are_one());
        assert!(Flows::between(MacAddress([2; 6]), MacAddress([4; 6])).are_one());
        let seen: Vec<String> = (0..9)
            .map(|frame| {
                let Ends { macs: [_, mac], source, destination } = flows.at(frame);
                format!("{} {}:{} {}", mac.0[5], source.0, source.1, destination.0)
            })
            .collect();
        assert_eq!(
            seen[..3],
            ["1 10.0.0.1:7 10.1.0.1", "2 10.0.0.1:8 10.1.0.1", "3 10.0.0.2:7 10.1.0.1"]
        );
        assert_eq!(seen[3..5], ["1 10.0.0.2:8 10.1.0.1", "2 10.0.0.1:7 10.1.0.2"]);
        assert_eq!(seen[8], "3 10.0.0.1:7 10.1.0.1");
    }
}
