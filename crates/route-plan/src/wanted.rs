//! From a plan to what one host is to have: settings, nexthops, groups, routes and rules, as the values that
//! are sent to the kernel and read from it.

mod sysctls;

pub use sysctls::first_kernel_with;

use std::collections::BTreeSet;

use netlink::{
    Action, Family, Mark, Member, Nexthop, NexthopKind, Path, Prefix, RawAttribute, Resilience,
    Route, Rule, Target,
};
use settings::Key;
use thiserror::Error;

use crate::assign::{Assignment, Choice};
use crate::interfaces::Interfaces;
use crate::marks::HardwareAddress;
use crate::plan::{GATEWAYS_COUNT_MAX, Host, Mode, Plan, Role};

/// Metric of the plain multipath routes beneath those that use nexthop objects. A carrier that goes for
/// a moment takes every nexthop object of its interface along, and every route that uses one; plain
/// routes stay.
pub const NET_METRIC: u32 = 4096;
/// What the kernel gives an IPv6 route without a metric.
const IPV6_METRIC: u32 = 1024;
/// Nexthop ids that a plan may use: one for each gateway, one for each ordered pair of them, one for the
/// group of all.
pub const NEXTHOP_IDS_COUNT: u32 = 256 + 256 * 256 + 1;
/// `RTA_PREF`, which the kernel lists with every IPv6 route; 0 is "medium".
const RTA_PREF: u16 = 20;

/// What a host is to have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostState {
    /// Kernel settings with their values, in the order they are set.
    pub sysctls: Vec<(Key, String)>,
    /// Nexthops, and behind them the groups of them.
    pub nexthops: Vec<Nexthop>,
    /// Plain routes, and behind them those that use nexthops.
    pub routes: Vec<Route>,
    /// Rules in the order of their priorities.
    pub rules: Vec<Rule>,
    /// Marks for packets by the gateway they came from.
    pub steering: Vec<Steering>,
}

/// Packets that came from this gateway get this mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// Index of the gateway.
    pub gateway: usize,
    /// Its address on the host's network.
    pub address: core::net::IpAddr,
    /// Its hardware address there, if the plan gives it.
    pub hardware_address: Option<HardwareAddress>,
    /// The host's interface.
    pub interface: String,
    /// Mark of its packets.
    pub mark: u32,
}

/// Why there is no such state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WantedError {
    /// An interface that the plan names is not there.
    #[error("{host}: the plan names the interface '{interface}', which does not exist")]
    NoInterface {
        /// Name of the host.
        host: String,
        /// Name of the interface.
        interface: String,
    },
}

/// What a host of the plan is to have while those gateways that are not `up` have failed. Gateways beyond
/// the end of `up` have not.
///
/// # Errors
/// The host has not the interface that the plan names.
pub fn wanted(
    plan: &Plan,
    role: Role<'_>,
    interfaces: &Interfaces,
    up: &[bool],
) -> Result<HostState, WantedError> {
    let (name, ports) = match role {
        Role::Gateway(_, gateway) => (&gateway.name, &gateway.ports[..]),
        Role::Host(host) => (&host.name, core::slice::from_ref(&host.port)),
    };
    if let Some(port) = ports.iter().find(|port| interfaces.index(&port.interface).is_none()) {
        let interface = port.interface.clone();
        return Err(WantedError::NoInterface { host: name.clone(), interface });
    }
    match role {
        Role::Gateway(..) => {
            Ok(HostState { sysctls: sysctls::of_role(plan, role), ..HostState::default() })
        }
        Role::Host(host) => {
            let interface_index = interfaces.index(&host.port.interface).unwrap_or(0);
            let up = crate::plan::live(plan, up);
            let builder = Builder { plan, host, interface_index, up: &up };
            let mut state = builder.state();
            state.sysctls = sysctls::of_role(plan, role);
            Ok(state)
        }
    }
}

/// Makes the state of one host.
struct Builder<'a> {
    plan: &'a Plan,
    host: &'a Host,
    interface_index: u32,
    /// For every gateway of the plan, at least one of them true.
    up: &'a [bool],
}

impl Builder<'_> {
    fn state(&self) -> HostState {
        let plan = self.plan;
        let mut state = HostState::default();
        let others = plan.networks.iter().enumerate().filter(|(at, _)| *at != self.host.network);
        let others: Vec<(usize, Prefix)> =
            others.map(|(at, network)| (at, network.prefix)).collect();
        for (_, prefix) in &others {
            state.routes.push(self.net(*prefix));
        }
        self.follow(&others, &mut state);
        let hops = (0..plan.gateways.len()).map(|gateway| {
            let address = plan.gateways[gateway].ports[self.host.network].address;
            self.owned(Nexthop::via(self.hop_id(gateway), address, self.interface_index))
        });
        state.nexthops.extend(hops);
        match plan.routing.mode {
            Mode::Pairs => {
                let assignment = Assignment::new(&plan.weights());
                let mut groups = BTreeSet::new();
                for other in plan.hosts.iter().filter(|other| other.network != self.host.network) {
                    let Some(choice) = choice(&assignment, self.host, other) else { continue };
                    groups.insert(choice);
                    let to = Prefix::host(other.port.address);
                    let target = Target::Nexthop(pair_id(plan, choice));
                    state.routes.push(self.route(to, target, None));
                }
                state.nexthops.extend(groups.into_iter().map(|choice| self.pair_group(choice)));
            }
            Mode::Hash | Mode::Resilient(_) => {
                state.nexthops.push(self.group_of_all());
                for (_, prefix) in others {
                    let target = Target::Nexthop(group_id(plan));
                    state.routes.push(self.route(prefix, target, None));
                }
            }
        }
        state
    }

    /// The safety net: a plain multipath route.
    fn net(&self, prefix: Prefix) -> Route {
        self.route(prefix, Target::Paths(self.paths()), Some(NET_METRIC))
    }

    fn paths(&self) -> Vec<Path> {
        let live = self.live().collect::<Vec<_>>();
        let path = |&gateway: &usize| self.path(gateway, self.plan.gateways[gateway].weight);
        match &live[..] {
            // The kernel keeps no weight of a path that is alone.
            [only] => vec![self.path(*only, 1)],
            several => several.iter().map(path).collect(),
        }
    }

    fn path(&self, gateway: usize, weight: u16) -> Path {
        let address = self.plan.gateways[gateway].ports[self.host.network].address;
        Path { interface_index: Some(self.interface_index), weight, ..Path::via(address) }
    }

    /// Gateways that are up.
    fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.plan.gateways.len()).filter(|&gateway| self.up[gateway])
    }

    /// A table and a rule for each gateway, on hosts that answer by the gateway that asked.
    fn follow(&self, others: &[(usize, Prefix)], state: &mut HostState) {
        let plan = self.plan;
        if plan.routing.follow != Some(self.host.network) {
            return;
        }
        for (gateway, number) in (0..plan.gateways.len()).zip(0_u32..) {
            let carrier = self.live().find(|&one| one >= gateway).or(self.live().next());
            let table = plan.routing.tables + 1 + number;
            for (_, prefix) in others {
                let target = Target::Paths(vec![self.path(carrier.unwrap_or(gateway), 1)]);
                state.routes.push(Route { table, ..self.route(*prefix, target, None) });
            }
            let priority = plan.routing.rule_priority + number;
            let mut rule = Rule::new(plan.family, priority, Action::Table(table));
            rule.mark = Some(Mark { value: number + 1, mask: u32::MAX });
            rule.protocol = plan.routing.protocol;
            state.rules.push(rule);
            let network = self.host.network;
            state.steering.push(Steering {
                gateway,
                address: plan.gateways[gateway].ports[network].address,
                hardware_address: plan.gateways[gateway].hardware_addresses[network],
                interface: self.host.port.interface.clone(),
                mark: number + 1,
            });
        }
    }

    fn route(&self, destination: Prefix, target: Target, metric: Option<u32>) -> Route {
        let is_v6 = self.plan.family == Family::V6;
        let default = is_v6.then_some(IPV6_METRIC);
        let preference = RawAttribute { flagged_kind: RTA_PREF, value: vec![0] };
        Route {
            protocol: self.plan.routing.protocol,
            priority: metric.or(default),
            other: if is_v6 { vec![preference] } else { Vec::new() },
            ..Route::new(destination, target)
        }
    }

    fn pair_group(&self, choice: Choice) -> Nexthop {
        let id = self.hop_id(choice.carrier(self.up));
        let group = Nexthop::group(pair_id(self.plan, choice), vec![Member { id, weight: 1 }]);
        self.owned(group)
    }

    fn group_of_all(&self) -> Nexthop {
        let members = self.live().map(|gateway| Member {
            id: self.hop_id(gateway),
            weight: self.plan.gateways[gateway].weight,
        });
        let resilience = match self.plan.routing.mode {
            Mode::Resilient(buckets) => Some(Resilience {
                buckets_count: buckets.count,
                idle_hundredths: hundredths(buckets.idle),
                unbalanced_hundredths: hundredths(buckets.unbalanced),
            }),
            Mode::Pairs | Mode::Hash => None,
        };
        let kind = NexthopKind::Group { members: members.collect(), resilience };
        self.owned(Nexthop::new(group_id(self.plan), kind))
    }

    fn owned(&self, nexthop: Nexthop) -> Nexthop {
        Nexthop { protocol: self.plan.routing.protocol, ..nexthop }
    }

    fn hop_id(&self, gateway: usize) -> u32 {
        hop_id(self.plan, gateway)
    }
}

/// The gateway and the backup of a pair of hosts of different networks, in either order. `None` for hosts
/// of one network.
#[must_use]
pub fn choice(assignment: &Assignment, one: &Host, other: &Host) -> Option<Choice> {
    match one.network.cmp(&other.network) {
        core::cmp::Ordering::Less => assignment.choice(one.number, other.number),
        core::cmp::Ordering::Greater => assignment.choice(other.number, one.number),
        core::cmp::Ordering::Equal => None,
    }
}

/// The nexthop id of a gateway.
#[must_use]
pub fn hop_id(plan: &Plan, gateway: usize) -> u32 {
    plan.routing.nexthop_ids + number(gateway)
}

/// The id of the group of pairs with this gateway and backup.
#[must_use]
pub fn pair_id(plan: &Plan, choice: Choice) -> u32 {
    let row = number(GATEWAYS_COUNT_MAX) * (1 + number(choice.primary));
    plan.routing.nexthop_ids + row + number(choice.backup)
}

/// The id of the group of all gateways.
#[must_use]
pub fn group_id(plan: &Plan) -> u32 {
    plan.routing.nexthop_ids + NEXTHOP_IDS_COUNT - 1
}

/// Indices of gateways are below 256.
fn number(gateway: usize) -> u32 {
    u32::try_from(gateway).unwrap_or(u32::MAX)
}

fn hundredths(time: core::time::Duration) -> u32 {
    u32::try_from(time.as_millis() / 10).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
