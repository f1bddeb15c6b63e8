//! Routes (`struct rtmsg`), IPv4 and IPv6.

mod path;

use core::net::IpAddr;

pub use path::Path;

use crate::attribute::{RawAttribute, read};
use crate::encoder::Encoder;
use crate::message::Message;
use crate::metrics::Metrics;
use crate::object::{
    Configurable, MalformedError, Object, ask, list, protocol, scope, split, table,
};
use crate::prefix::{Family, Prefix};

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_MARK: u16 = 16;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;
const RTA_NH_ID: u16 = 30;

/// `RTNH_F_ONLINK`, in a route's flags and in a path's.
const ONLINK: u8 = 4;
/// `RTM_F_FIB_MATCH`: the route that was found, not the decision made from it.
const FIB_MATCH: u32 = 0x2000;
/// Stands for tables beyond 255, whose number only the attribute can hold (`RT_TABLE_COMPAT`).
const TABLE_IN_ATTRIBUTE: u8 = 252;
/// Length of `struct rtmsg`.
const HEADER_BYTES: usize = 12;

/// What a route does with packets (`RTN_…`).
pub mod route_kind {
    /// Packets are forwarded.
    pub const UNICAST: u8 = 1;
    /// Keeps them: an address of this host.
    pub const LOCAL: u8 = 2;
    /// Packets are dropped silently.
    pub const BLACKHOLE: u8 = 6;
    /// Drops them and says so to the sender.
    pub const UNREACHABLE: u8 = 7;
    /// Drops them and says that it is forbidden.
    pub const PROHIBIT: u8 = 8;
    /// Goes on with the next rule.
    pub const THROW: u8 = 9;
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// Nowhere: blackhole, unreachable, prohibit, throw.
    None,
    /// Over these paths; several share the flows by their weights.
    Paths(Vec<Path>),
    /// To a nexthop object or group.
    Nexthop(u32),
}

/// A route, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Packets to these addresses.
    pub destination: Prefix,
    /// Only packets from these addresses (IPv6).
    pub source: Option<Prefix>,
    /// Only packets of this type of service (IPv4).
    pub tos: u8,
    /// The table it stands in.
    pub table: u32,
    /// Who installed it: one of [`protocol`], or a daemon's number.
    pub protocol: u8,
    /// One of [`scope`]; IPv6 has only the first.
    pub scope: u8,
    /// One of [`route_kind`].
    pub kind: u8,
    /// The metric: of routes to one destination the least is used. `None` is 0 for IPv4 and 1024 for IPv6,
    /// as the kernel reads it.
    pub priority: Option<u32>,
    /// The address that this host's own packets get as their source.
    pub preferred_source: Option<IpAddr>,
    /// Where the route leads.
    pub target: Target,
    /// What connections start from.
    pub metrics: Metrics,
    /// Attributes that have no field here, as they were read: realms, encapsulation, IPv6 preference.
    pub other: Vec<RawAttribute>,
}

impl Route {
    /// A unicast route of this program in the main table.
    #[must_use]
    pub fn new(destination: Prefix, target: Target) -> Self {
        let is_on_link = match &target {
            Target::Paths(paths) => paths.iter().all(|path| path.gateway.is_none()),
            Target::None | Target::Nexthop(_) => false,
        };
        let is_near = is_on_link && destination.family() == Family::V4;
        Self {
            destination,
            source: None,
            tos: 0,
            table: table::MAIN,
            protocol: protocol::CLEARSTREAM,
            scope: if is_near { scope::LINK } else { scope::UNIVERSE },
            kind: route_kind::UNICAST,
            priority: None,
            preferred_source: None,
            target,
            metrics: Metrics::default(),
            other: Vec::new(),
        }
    }

    /// Lists routes. Kernels before 4.20 do not heed the filter; see [`RouteFilter::admits`].
    #[must_use]
    pub fn dump(filter: RouteFilter) -> Message {
        let mut encoder = Encoder::default();
        let mut header = [0; HEADER_BYTES];
        header[0] = filter.family.number();
        header[5] = filter.protocol.unwrap_or(0);
        encoder.fixed(&header);
        if let Some(table) = filter.table {
            encoder.u32(RTA_TABLE, table);
        }
        list::<Self>(encoder)
    }
}

/// Which routes are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteFilter {
    /// Address family to list.
    pub family: Family,
    /// Only of this table.
    pub table: Option<u32>,
    /// Only of this protocol.
    pub protocol: Option<u8>,
}

impl RouteFilter {
    /// All routes of a family.
    #[must_use]
    pub fn all(family: Family) -> Self {
        Self { family, table: None, protocol: None }
    }

    /// Whether a route is asked for.
    #[must_use]
    pub fn admits(&self, route: &Route) -> bool {
        route.destination.family() == self.family
            && self.table.is_none_or(|table| table == route.table)
            && self.protocol.is_none_or(|protocol| protocol == route.protocol)
    }
}

/// Which way the kernel would send a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteQuestion {
    /// Destination of the packet.
    pub destination: IpAddr,
    /// Source of the packet.
    pub source: Option<IpAddr>,
    /// Protocol number and ports, as a multipath hash takes them in.
    pub flow: Option<(u8, u16, u16)>,
    /// Mark of the packet.
    pub mark: Option<u32>,
    /// Received by this interface.
    pub input_index: Option<u32>,
    /// Sent by this interface.
    pub output_index: Option<u32>,
    /// Answer with the route as configured, not with the path chosen.
    pub wants_route: bool,
}

impl RouteQuestion {
    /// A packet of this host to an address.
    #[must_use]
    pub fn to(destination: IpAddr) -> Self {
        Self {
            destination,
            source: None,
            flow: None,
            mark: None,
            input_index: None,
            output_index: None,
            wants_route: false,
        }
    }

    /// The request; the answer is a [`Route`].
    #[must_use]
    pub fn message(&self) -> Message {
        let family = Family::of(self.destination);
        let mut header = [0; HEADER_BYTES];
        header[0] = family.number();
        header[1] = family.bits();
        header[2] = if self.source.is_some() { family.bits() } else { 0 };
        let flags = if self.wants_route { FIB_MATCH } else { 0 };
        header[8..].copy_from_slice(&flags.to_ne_bytes());
        let mut encoder = Encoder::default();
        encoder.fixed(&header);
        encoder.address(RTA_DST, self.destination);
        if let Some(source) = self.source {
            encoder.address(RTA_SRC, source);
        }
        let numbers =
            [(RTA_MARK, self.mark), (RTA_IIF, self.input_index), (RTA_OIF, self.output_index)];
        for (kind, value) in numbers {
            value.into_iter().for_each(|value| encoder.u32(kind, value));
        }
        if let Some((protocol, source_port, destination_port)) = self.flow {
            encoder.u8(RTA_IP_PROTO, protocol);
            // Ports are in network order.
            encoder.attribute(RTA_SPORT, &source_port.to_be_bytes());
            encoder.attribute(RTA_DPORT, &destination_port.to_be_bytes());
        }
        ask::<Route>(encoder)
    }
}

/// Attributes whose meaning depends on others.
#[derive(Default)]
struct Parts {
    destination: Option<IpAddr>,
    source: Option<IpAddr>,
    single: Path,
    paths: Option<Vec<Path>>,
    nexthop: Option<u32>,
}

impl Object for Route {
    const NAME: &'static str = "route";
    const NEW_KIND: u16 = 24;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        let (header, attributes) = split::<HEADER_BYTES>(Self::NAME, body)?;
        let [family, destination_bits, source_bits, tos, table, protocol, scope, kind, flags @ ..] =
            *header;
        let wrong_family = MalformedError::Family { object: Self::NAME, family };
        let family = Family::from_number(family).ok_or(wrong_family)?;
        let mut route = Self {
            tos,
            table: table.into(),
            protocol,
            scope,
            kind,
            ..Self::new(Prefix::all(family), Target::None)
        };
        let mut parts = Parts::default();
        read(Self::NAME, attributes, |attribute| route.take(attribute, &mut parts))?;
        route.destination =
            Prefix::told(family, parts.destination, destination_bits).ok_or(wrong_family)?;
        if source_bits > 0 {
            route.source =
                Some(Prefix::told(family, parts.source, source_bits).ok_or(wrong_family)?);
        }
        parts.single.is_onlink = u32::from_ne_bytes(flags) & u32::from(ONLINK) != 0;
        route.target = match parts {
            // The kernel lists what the object leads to as well, and refuses to be told both.
            Parts { nexthop: Some(id), .. } => {
                route
                    .other
                    .retain(|one| !matches!(one.flagged_kind & 0x3fff, RTA_ENCAP_TYPE | RTA_ENCAP));
                Target::Nexthop(id)
            }
            Parts { paths: Some(paths), .. } => Target::Paths(paths),
            Parts { single, .. } if single.is_told() => Target::Paths(vec![single]),
            _nowhere => Target::None,
        };
        Ok(route)
    }
}

impl Route {
    fn take(
        &mut self,
        attribute: crate::Attribute<'_>,
        parts: &mut Parts,
    ) -> Result<(), MalformedError> {
        const NAME: &str = Route::NAME;
        match attribute.kind() {
            RTA_DST => parts.destination = Some(attribute.address(NAME)?),
            RTA_SRC => parts.source = Some(attribute.address(NAME)?),
            RTA_OIF => parts.single.interface_index = Some(attribute.u32(NAME)?),
            RTA_GATEWAY => parts.single.gateway = Some(attribute.address(NAME)?),
            RTA_VIA => parts.single.gateway = Some(path::via(&attribute)?),
            RTA_PRIORITY => self.priority = Some(attribute.u32(NAME)?),
            RTA_PREFSRC => self.preferred_source = Some(attribute.address(NAME)?),
            RTA_METRICS => self.metrics = Metrics::parse(NAME, attribute.value)?,
            RTA_MULTIPATH => parts.paths = Some(path::parse(attribute.value)?),
            // Ages and use counts: state.
            RTA_CACHEINFO => {}
            RTA_TABLE => self.table = attribute.u32(NAME)?,
            RTA_NH_ID => parts.nexthop = Some(attribute.u32(NAME)?),
            _other => self.other.push(attribute.keep()),
        }
        Ok(())
    }

    fn encode_target(&self, to: &mut Encoder) {
        let family = self.destination.family();
        match &self.target {
            Target::None => {}
            Target::Nexthop(id) => to.u32(RTA_NH_ID, *id),
            Target::Paths(paths) => match &paths[..] {
                [path] if path.is_plain() => path.encode(family, to),
                paths => to.container(RTA_MULTIPATH, |inner| path::encode(paths, family, inner)),
            },
        }
    }

    fn is_onlink(&self) -> bool {
        matches!(&self.target, Target::Paths(paths)
            if matches!(&paths[..], [path] if path.is_onlink))
    }
}

impl Configurable for Route {
    fn encode(&self, to: &mut Encoder) {
        let family = self.destination.family();
        let flags = if self.is_onlink() { u32::from(ONLINK) } else { 0 };
        to.fixed(&[
            family.number(),
            self.destination.bits(),
            self.source.map_or(0, |source| source.bits()),
            self.tos,
            u8::try_from(self.table).unwrap_or(TABLE_IN_ATTRIBUTE),
            self.protocol,
            self.scope,
            self.kind,
        ]);
        to.fixed(&flags.to_ne_bytes());
        to.u32(RTA_TABLE, self.table);
        if self.destination.bits() > 0 {
            to.address(RTA_DST, self.destination.address());
        }
        if let Some(source) = self.source {
            to.address(RTA_SRC, source.address());
        }
        if let Some(priority) = self.priority {
            to.u32(RTA_PRIORITY, priority);
        }
        if let Some(address) = self.preferred_source {
            to.address(RTA_PREFSRC, address);
        }
        self.metrics.encode(RTA_METRICS, to);
        to.raw(&self.other);
        self.encode_target(to);
    }
}

#[cfg(test)]
mod tests;
