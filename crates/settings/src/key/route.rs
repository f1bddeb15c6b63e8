//! What the kernel knows a route by: a second one with the same name takes the place of the first.

use core::fmt;
use core::net::IpAddr;

use super::plain_number;

/// A route's name: `254,4096,0,10.10.0.0/24`, with a fifth part for an IPv6 route from certain addresses only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteName {
    /// Number of the table.
    pub table: u32,
    /// Metric of the route.
    pub metric: u32,
    /// Of this type of service only (IPv4).
    pub tos: u8,
    /// Its destination, address and bits.
    pub destination: (IpAddr, u8),
    /// From these addresses only (IPv6).
    pub source: Option<(IpAddr, u8)>,
}

impl RouteName {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let mut number = || plain_number(parts.next()?);
        let (table, metric, tos) = (number()?, number()?, number()?);
        let destination = prefix(parts.next()?)?;
        let source = match parts.next() {
            Some(source) => Some(prefix(source)?),
            None => None,
        };
        let name = Self { table, metric, tos: u8::try_from(tos).ok()?, destination, source };
        // One name for one route.
        (parts.next().is_none() && name.to_string() == text).then_some(name)
    }
}

fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits = u8::try_from(plain_number(bits)?).ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

impl fmt::Display for RouteName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, bits) = self.destination;
        write!(out, "{},{},{},{address}/{bits}", self.table, self.metric, self.tos)?;
        match self.source {
            Some((address, bits)) => write!(out, ",{address}/{bits}"),
            None => Ok(()),
        }
    }
}
