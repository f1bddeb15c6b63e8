//! Generated plans with given numbers of clients, servers and gateways, to see how flows would spread.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use netlink::{Family, Prefix};
use thiserror::Error;

use crate::hash::HashPolicy;
use crate::plan::{
    Bfd, GATEWAYS_COUNT_MAX, Gateway, Host, Mode, Network, Plan, Port, Routing, RoutingLines,
    Watch, WatchMode,
};

/// Most hosts on each side.
const HOSTS_COUNT_MAX: usize = 1 << 20;
/// Where the networks begin, each with its gateways' addresses behind it: 10.0.0.0/9 and 10.128.0.0/9.
const NETWORKS: [u32; 2] = [0x0a00_0000, 0x0a80_0000];

/// Size and mode of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Hosts on the one side.
    pub clients_count: usize,
    /// Hosts on the other.
    pub servers_count: usize,
    /// Gateways of equal weight.
    pub gateways_count: usize,
    /// How hosts choose gateways.
    pub mode: Mode,
    /// What hosts hash.
    pub policy: HashPolicy,
    /// Hash seed.
    pub seed: Option<u32>,
}

/// A scale that cannot be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "1 to {HOSTS_COUNT_MAX} clients and servers and 1 to {GATEWAYS_COUNT_MAX} gateways can be simulated"
)]
pub struct ScaleError;

/// A plan of that scale.
///
/// # Errors
/// A number is 0 or too large.
pub fn plan_of(scale: &Scale) -> Result<Plan, ScaleError> {
    let hosts = 1..=HOSTS_COUNT_MAX;
    let is_possible = hosts.contains(&scale.clients_count)
        && hosts.contains(&scale.servers_count)
        && (1..=GATEWAYS_COUNT_MAX).contains(&scale.gateways_count);
    if !is_possible {
        return Err(ScaleError);
    }
    let counts = [scale.clients_count, scale.servers_count];
    let network = |side: usize| {
        let name = ["clients", "servers"][side].to_owned();
        let prefix = Prefix::new(address(side, 0), 9).map_err(|_unreachable| ScaleError)?;
        Ok(Network { name, prefix })
    };
    let host = |side: usize, number: usize| {
        let name = format!("{}{number}", ["client", "server"][side]);
        Host { name, network: side, number, port: port(side, 1 + number) }
    };
    let gateway = |index: usize| Gateway {
        name: format!("gateway{index}"),
        weight: 1,
        ports: (0..2).map(|side| port(side, 1 + counts[side] + index)).collect(),
        hardware_addresses: vec![None; 2],
        bfd_peers: vec![None; 2],
    };
    Ok(Plan {
        name: "simulated".to_owned(),
        family: Family::V4,
        networks: vec![network(0)?, network(1)?],
        gateways: (0..scale.gateways_count).map(gateway).collect(),
        hosts: (0..2)
            .flat_map(|side| (0..counts[side]).map(move |number| host(side, number)))
            .collect(),
        routing: Routing {
            mode: scale.mode,
            follow: None,
            follow_udp: false,
            policy: scale.policy,
            seed: scale.seed,
            gateway_seed: None,
            tables: 100,
            rule_priority: 1000,
            protocol: netlink::protocol::CLEARSTREAM,
            nexthop_ids: 7700,
            lines: RoutingLines::default(),
        },
        watch: Watch {
            interval: Duration::from_millis(50),
            multiplier: 3,
            up_after: 5,
            hold_down: Duration::from_secs(2),
            mode: WatchMode::SelfProbing,
            bfd: Bfd::Off,
            bfd_ttl_min: 1,
            key_file: None,
        },
        remarks: Vec::new(),
    })
}

fn port(side: usize, number: usize) -> Port {
    Port { address: address(side, number), interface: "eth0".to_owned() }
}

fn address(side: usize, number: usize) -> IpAddr {
    // At most 2^20 hosts and 256 gateways, in networks of 2^23 addresses.
    let number = u32::try_from(number).unwrap_or(0);
    Ipv4Addr::from_bits(NETWORKS[side] + number).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::{Counting, balance};

    /// The figures were measured with another program over the kernel's hash: 1.06 for 20 seeds.
    #[test]
    fn ten_thousand_clients_spread_over_a_hundred_gateways() {
        let mut scale = Scale {
            clients_count: 10_000,
            servers_count: 20,
            gateways_count: 100,
            mode: Mode::Hash,
            policy: HashPolicy::Addresses,
            seed: Some(1),
        };
        let hashed = balance(&plan_of(&scale).unwrap(), &Counting::default()).unwrap();
        assert!((1.02..1.12).contains(&hashed.busiest), "{}", hashed.busiest);
        scale.mode = Mode::Pairs;
        let paired = balance(&plan_of(&scale).unwrap(), &Counting::default()).unwrap();
        assert_eq!(paired.busiest, 1.0);
        assert_eq!(paired.flows_count, 200_000);
    }

    #[test]
    fn impossible_scales_are_refused() {
        let scale = Scale {
            clients_count: 1,
            servers_count: 1,
            gateways_count: 257,
            mode: Mode::Pairs,
            policy: HashPolicy::Ports,
            seed: None,
        };
        assert_eq!(plan_of(&scale), Err(ScaleError));
    }
}
