//! A plan: networks, the gateways between them, the hosts on them, and how hosts choose gateways.

use core::net::IpAddr;
use core::time::Duration;

use netlink::{Family, Prefix};

use crate::hash::HashPolicy;
use crate::marks::HardwareAddress;

/// Most gateways: next hops of a plain multipath route and iproute2 count to 256.
pub const GATEWAYS_COUNT_MAX: usize = 256;
/// Largest weight of a gateway, for the same reason.
pub const WEIGHT_MAX: u16 = 256;

/// A plan that has been checked: every address lies in its network, every name and address is there once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the plan.
    pub name: String,
    /// Of all its addresses.
    pub family: Family,
    /// At least two, in the order of the file.
    pub networks: Vec<Network>,
    /// At least one, each on every network.
    pub gateways: Vec<Gateway>,
    /// In the order of the file.
    pub hosts: Vec<Host>,
    /// How hosts choose gateways.
    pub routing: Routing,
    /// How gateways are watched.
    pub watch: Watch,
    /// What is allowed and probably not meant, one line each.
    pub remarks: Vec<String>,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Name of the network.
    pub name: String,
    /// Prefix of its addresses.
    pub prefix: Prefix,
}

/// An interface with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The address.
    pub address: IpAddr,
    /// The interface.
    pub interface: String,
}

/// A host that forwards between the networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Its name.
    pub name: String,
    /// Its share beside the others, 1 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// On each network, in the order of [`Plan::networks`].
    pub ports: Vec<Port>,
    /// Hardware addresses that the plan gives, in the same order.
    pub hardware_addresses: Vec<Option<HardwareAddress>>,
    /// Systems behind it that the hosts of a network speak BFD with through it, in the same order.
    pub bfd_peers: Vec<Option<IpAddr>>,
}

/// A host on one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Index of its network.
    pub network: usize,
    /// Which of its network's hosts it is, from 0.
    pub number: usize,
    /// Where it is attached.
    pub port: Port,
}

/// How a host chooses the gateway of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Each pair of hosts has its gateway, by the plan alone.
    Pairs,
    /// The kernel hashes flows to the members of a group.
    Hash,
    /// As [`Hash`](Self::Hash), over buckets, so that few flows move when members change.
    Resilient(Buckets),
}

/// A resilient group's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    /// Number of buckets.
    pub count: u16,
    /// A bucket idle for so long may move.
    pub idle: Duration,
    /// A group out of balance for so long is balanced by force; zero: never.
    pub unbalanced: Duration,
}

/// How hosts choose gateways, and which numbers of the kernel the plan may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// How a host chooses.
    pub mode: Mode,
    /// Index of the network whose hosts answer by the gateway that asked.
    pub follow: Option<usize>,
    /// Whether UDP servers of these hosts do so too.
    pub follow_udp: bool,
    /// Hash policy of the hosts.
    pub policy: HashPolicy,
    /// The seed of the hosts' hash; `None`: the kernel's own, which is unknown.
    pub seed: Option<u32>,
    /// The seed of the gateways' hash, which their own multipath routes use.
    pub gateway_seed: Option<u32>,
    /// Table `tables + 1 + g` belongs to gateway `g`.
    pub tables: u32,
    /// Rule priority `rule_priority + g` belongs to gateway `g`.
    pub rule_priority: u32,
    /// What the plan installs has this protocol number, and nothing else has.
    pub protocol: u8,
    /// First of the nexthop ids.
    pub nexthop_ids: u32,
    /// Where the plan's file has the numbers that others may use too.
    pub lines: RoutingLines,
}

/// Lines of a plan's file, from 1; `None` where it leaves a key out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingLines {
    /// Of [`Routing::tables`].
    pub tables: Option<usize>,
    /// Of [`Routing::rule_priority`].
    pub rule_priority: Option<usize>,
    /// Of [`Routing::nexthop_ids`].
    pub nexthop_ids: Option<usize>,
}

/// How gateways are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Time between two probes.
    pub interval: Duration,
    /// A gateway is down after so many probes without an answer.
    pub multiplier: u8,
    /// It is up again after so many answers in a row.
    pub up_after: u8,
    /// It stays down for at least so long.
    pub hold_down: Duration,
    /// Which hosts probe.
    pub mode: WatchMode,
    /// Whom BFD sessions are kept with.
    pub bfd: Bfd,
    /// Smallest TTL of BFD packets that are accepted over several hops; 1: any.
    pub bfd_ttl_min: u8,
    /// File with the key that authenticates probes.
    pub key_file: Option<String>,
}

/// Whom a host speaks BFD with about its gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bfd {
    /// Nobody.
    #[default]
    Off,
    /// The gateways, over one hop (RFC 5881).
    OneHop,
    /// [`Gateway::bfd_peers`], each through its gateway (RFC 5883).
    Multihop,
}

/// Who probes the gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// Every host for itself.
    SelfProbing,
    /// A few hosts of each network for all.
    Sentinel,
}

/// What a host of the plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'a> {
    /// A gateway, with its index.
    Gateway(usize, &'a Gateway),
    /// A host on one network.
    Host(&'a Host),
}

impl Plan {
    /// The host or gateway of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Role<'_>> {
        let host = || self.hosts.iter().find(|host| host.name == name).map(Role::Host);
        let mut gateways = self.gateways.iter().enumerate();
        gateways
            .find(|(_, gateway)| gateway.name == name)
            .map(|(index, gateway)| Role::Gateway(index, gateway))
            .or_else(host)
    }

    /// Names of all hosts and gateways.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let gateways = self.gateways.iter().map(|gateway| gateway.name.as_str());
        gateways.chain(self.hosts.iter().map(|host| host.name.as_str()))
    }

    /// The host that has this address.
    #[must_use]
    pub fn host_at(&self, address: IpAddr) -> Option<&Host> {
        self.hosts.iter().find(|host| host.port.address == address)
    }

    /// The hosts of a network, in order.
    pub fn hosts_of(&self, network: usize) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(move |host| host.network == network)
    }

    /// The weights of the gateways, in order.
    #[must_use]
    pub fn weights(&self) -> Vec<u16> {
        self.gateways.iter().map(|gateway| gateway.weight).collect()
    }

    /// Index of the network that an address lies in.
    #[must_use]
    pub fn network_at(&self, address: IpAddr) -> Option<usize> {
        self.networks.iter().position(|network| contains(network.prefix, address))
    }
}

/// Which gateways carry packets: those that are `up`, or all of them when none is, because the last ones are
/// never taken away. Gateways beyond the end of `up` are up.
#[must_use]
pub fn live(plan: &Plan, up: &[bool]) -> Vec<bool> {
    let mut live: Vec<bool> =
        (0..plan.gateways.len()).map(|gateway| up.get(gateway).copied().unwrap_or(true)).collect();
    if !live.contains(&true) {
        live.fill(true);
    }
    live
}

/// Whether an address lies in a prefix.
#[must_use]
pub fn contains(prefix: Prefix, address: IpAddr) -> bool {
    let kept = u32::from(prefix.family().bits() - prefix.bits());
    match (prefix.address(), address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let differing = network.to_bits() ^ address.to_bits();
            differing.checked_shr(kept).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differing = network.to_bits() ^ address.to_bits();
            differing.checked_shr(kept).unwrap_or(0) == 0
        }
        _other_family => false,
    }
}

/// Whether two prefixes share an address.
#[must_use]
pub fn overlap(one: Prefix, other: Prefix) -> bool {
    contains(one, other.address()) || contains(other, one.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_contain_their_addresses_only() {
        let prefix = |text: &str, bits| Prefix::new(text.parse().unwrap(), bits).unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(contains(prefix("10.10.0.0", 24), address("10.10.0.255")));
        assert!(!contains(prefix("10.10.0.0", 24), address("10.10.1.0")));
        assert!(contains(prefix("0.0.0.0", 0), address("255.1.1.1")));
        assert!(contains(prefix("fd00::", 8), address("fdff::1")));
        assert!(!contains(prefix("fd00::", 8), address("10.0.0.1")));
        assert!(overlap(prefix("10.0.0.0", 8), prefix("10.10.0.0", 24)));
        assert!(!overlap(prefix("10.10.0.0", 24), prefix("10.10.1.0", 24)));
    }
}
