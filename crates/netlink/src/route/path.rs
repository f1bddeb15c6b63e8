//! Paths of a route (`struct rtnexthop`).

use core::net::IpAddr;

use super::{ONLINK, RTA_GATEWAY, RTA_OIF, RTA_VIA, Route};
use crate::attribute::{Attribute, RawAttribute, read};
use crate::bytes::{u16_of, u32_of};
use crate::encoder::Encoder;
use crate::object::{MalformedError, Object};
use crate::prefix::{AF_INET, AF_INET6, Family, octets};

/// Length of `struct rtnexthop`.
const HEADER_BYTES: usize = 8;

/// One way a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// The next hop; `None` where the destination is on the link. It may be of the other family.
    pub gateway: Option<IpAddr>,
    /// The interface; `None` in a request lets the kernel find it by the gateway.
    pub interface_index: Option<u32>,
    /// Share of the flows beside other paths, 1 to 256.
    pub weight: u16,
    /// The gateway is taken to be on the link, whatever the interface's addresses say.
    pub is_onlink: bool,
    /// Attributes of one of several paths that have no field here, as they were read. A single path's
    /// stand with the route.
    pub other: Vec<RawAttribute>,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            gateway: None,
            interface_index: None,
            weight: 1,
            is_onlink: false,
            other: Vec::new(),
        }
    }
}

impl Path {
    /// A path through a gateway.
    #[must_use]
    pub fn via(gateway: IpAddr) -> Self {
        Self { gateway: Some(gateway), ..Self::default() }
    }

    pub(super) fn is_told(&self) -> bool {
        self.gateway.is_some() || self.interface_index.is_some()
    }

    /// Whether the kernel would list it without `RTA_MULTIPATH` when it is the only one.
    pub(super) fn is_plain(&self) -> bool {
        self.weight == 1 && self.other.is_empty() && self.is_told()
    }

    /// The attributes of the path.
    pub(super) fn encode(&self, family: Family, to: &mut Encoder) {
        if let Some(index) = self.interface_index {
            to.u32(RTA_OIF, index);
        }
        self.encode_gateway(family, to);
    }

    fn encode_gateway(&self, family: Family, to: &mut Encoder) {
        match self.gateway {
            Some(gateway) if Family::of(gateway) == family => to.address(RTA_GATEWAY, gateway),
            Some(gateway) => {
                let number = u16::from(Family::of(gateway).number());
                to.attribute(RTA_VIA, &[&number.to_ne_bytes()[..], &octets(gateway)].concat());
            }
            None => {}
        }
    }
}

/// `struct rtvia`.
pub(super) fn via(attribute: &Attribute<'_>) -> Result<IpAddr, MalformedError> {
    let malformed = || attribute.malformed(Route::NAME);
    let family = u16_of(attribute.value).ok_or_else(malformed)?;
    let address =
        crate::address_of(attribute.value.get(2..).unwrap_or(&[])).ok_or_else(malformed)?;
    let expected = if address.is_ipv6() { AF_INET6 } else { AF_INET };
    (family == u16::from(expected)).then_some(address).ok_or_else(malformed)
}

/// The value of `RTA_MULTIPATH`.
pub(super) fn parse(mut bytes: &[u8]) -> Result<Vec<Path>, MalformedError> {
    const CUT: MalformedError = MalformedError::Cut { object: Route::NAME };
    let mut paths = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(u16_of(bytes).ok_or(CUT)?);
        let attributes = bytes.get(HEADER_BYTES..length).ok_or(CUT)?;
        let &[_, _, flags, hops, ..] = bytes else { return Err(CUT) };
        let index = u32_of(bytes.get(4..).unwrap_or(&[])).ok_or(CUT)?;
        let mut path = Path {
            interface_index: (index != 0).then_some(index),
            weight: u16::from(hops) + 1,
            is_onlink: flags & ONLINK != 0,
            ..Path::default()
        };
        read(Route::NAME, attributes, |attribute| {
            match attribute.kind() {
                RTA_GATEWAY => path.gateway = Some(attribute.address(Route::NAME)?),
                RTA_VIA => path.gateway = Some(via(&attribute)?),
                _other => path.other.push(attribute.keep()),
            }
            Ok(())
        })?;
        paths.push(path);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(paths)
}

/// The value of `RTA_MULTIPATH`; weights are held to 1 to 256.
pub(super) fn encode(paths: &[Path], family: Family, to: &mut Encoder) {
    for path in paths {
        let mut inner = Encoder::default();
        path.encode_gateway(family, &mut inner);
        inner.raw(&path.other);
        let hops = u8::try_from(path.weight.saturating_sub(1)).unwrap_or(u8::MAX);
        let flags = if path.is_onlink { ONLINK } else { 0 };
        to.headed([flags, hops], path.interface_index.unwrap_or(0), inner);
    }
}
