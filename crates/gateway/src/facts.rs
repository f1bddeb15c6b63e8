//! What each host says of itself and of its gateways, compared over all hosts: what no host can see alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use netlink::{Link, Neighbour, NeighbourFilter};
use route_plan::{Mode, Plan, Port, Role, live};
use serde::{Deserialize, Serialize};
use sys::netlink_socket::NetlinkSocket;

use crate::check::{Asker, CheckError, Drift, DriftKind};
use crate::read::read_host;

/// What a host or gateway says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Its interfaces in the plan.
    pub ports: Vec<PortFacts>,
    /// Hardware addresses at which it takes its gateways to be.
    pub neighbours: BTreeMap<IpAddr, String>,
    /// By which gateway its kernel sends to each host of the plan that is elsewhere; in the mode `pairs` only.
    pub ways: BTreeMap<String, String>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFacts {
    /// Name of the interface.
    pub interface: String,
    /// The plan's address of it.
    pub address: IpAddr,
    /// Hardware address of the interface.
    pub hardware_address: String,
    /// Its largest packet, bytes.
    pub mtu_bytes: u32,
}

/// Looks at the host that the thread is on.
///
/// # Errors
/// The kernel does not answer.
pub fn facts(plan: &Plan, role: Role<'_>) -> Result<Facts, CheckError> {
    let mut socket = NetlinkSocket::open()?;
    let links = socket.list::<Link>(&Link::dump())?;
    let port = |port: &Port| {
        let link = links.iter().find(|link| link.name == port.interface)?;
        Some(PortFacts {
            interface: port.interface.clone(),
            address: port.address,
            hardware_address: written(&link.hardware_address),
            mtu_bytes: link.mtu_bytes?,
        })
    };
    let host = match role {
        Role::Gateway(_, gateway) => {
            let ports = gateway.ports.iter().filter_map(port).collect();
            return Ok(Facts { ports, ..Facts::default() });
        }
        Role::Host(host) => host,
    };
    let filter = NeighbourFilter { family: plan.family, interface_index: None };
    let known = socket.list::<Neighbour>(&Neighbour::dump(filter))?;
    let is_gateway = |one: &&Neighbour| {
        let mut gateways = plan.gateways.iter();
        !one.hardware_address.is_empty()
            && gateways.any(|gateway| gateway.ports[host.network].address == one.address)
    };
    let neighbours = known.iter().filter(is_gateway);
    let neighbours = neighbours.map(|one| (one.address, written(&one.hardware_address))).collect();
    let mut ways = BTreeMap::new();
    if plan.routing.mode == Mode::Pairs {
        let found = read_host(plan.family, [])?;
        let mut asker =
            Asker { plan, host, interfaces: &found.interfaces, socket, up: live(plan, &[]) };
        for other in plan.hosts.iter().filter(|other| other.network != host.network) {
            if let Ok(by) = asker.gateway_to(other.port.address) {
                ways.insert(other.name.clone(), plan.gateways[by].name.clone());
            }
        }
    }
    Ok(Facts { ports: port(&host.port).into_iter().collect(), neighbours, ways })
}

fn written(hardware_address: &[u8]) -> String {
    let mut text = String::with_capacity(3 * hardware_address.len());
    for (at, byte) in hardware_address.iter().enumerate() {
        let colon = if at == 0 { "" } else { ":" };
        // Writing to a string does not fail.
        write!(text, "{colon}{byte:02x}").ok();
    }
    text
}

/// Compares what the hosts say, by their names: both ends of every pair are to use the same gateway, each gateway is to be
/// at the hardware address where its hosts take it to be, and both ends of a link are to take packets of the same
/// size. Each drift comes with the host that it was seen on.
#[must_use]
pub fn compare(plan: &Plan, all: &BTreeMap<String, Facts>) -> Vec<(String, Drift)> {
    let mut drifts = Vec::new();
    for (name, facts) in all {
        let Some(Role::Host(host)) = plan.find(name) else { continue };
        for gateway in &plan.gateways {
            let address = gateway.ports[host.network].address;
            let theirs = all.get(&gateway.name).map_or(&[][..], |facts| &facts.ports);
            let Some(their) = theirs.iter().find(|port| port.address == address) else { continue };
            if let Some(taken) = facts.neighbours.get(&address)
                && *taken != their.hardware_address
            {
                let own = &their.hardware_address;
                let what = format!(
                    "the neighbour entry of {} ({address}) says {taken}, but its hardware \
                     address is {own}",
                    gateway.name
                );
                drifts.push((name.clone(), Drift { kind: DriftKind::Neighbour, what }));
            }
            for own in facts.ports.iter().filter(|own| own.mtu_bytes != their.mtu_bytes) {
                let what = format!(
                    "MTU mismatch: {} has {} bytes, {}'s {} has {}",
                    own.interface, own.mtu_bytes, gateway.name, their.interface, their.mtu_bytes
                );
                drifts.push((name.clone(), Drift { kind: DriftKind::Mtu, what }));
            }
        }
        for (other, there) in &facts.ways {
            let back = all.get(other).and_then(|facts| facts.ways.get(name));
            // Each pair once.
            if let Some(back) = back.filter(|back| *back != there && name < other) {
                let what = format!(
                    "{name} reaches {other} through {there}, but {other} answers through {back}"
                );
                drifts.push((name.clone(), Drift { kind: DriftKind::Asymmetric, what }));
            }
        }
    }
    drifts
}

#[cfg(test)]
mod tests {
    use route_plan::parse_plan;

    use super::*;

    const PLAN: &str = r#"
name = "small"
[network.a]
prefix = "10.100.0.0/16"
[network.b]
prefix = "10.10.0.0/24"
[[gateway]]
names = "g[1-2]"
addresses = { a = "10.100.0.[91-92]", b = "10.10.0.[11-12]" }
interfaces = { a = "hsn0", b = "ib0" }
[hosts.c]
network = "a"
names = "c1"
addresses = "10.100.0.1"
interface = "hsn0"
[hosts.s]
network = "b"
names = "s1"
addresses = "10.10.0.21"
interface = "ib0"
[routing]
mode = "pairs"
"#;

    fn port(interface: &str, address: &str, hardware_address: &str) -> PortFacts {
        PortFacts {
            interface: interface.to_owned(),
            address: address.parse().unwrap(),
            hardware_address: hardware_address.to_owned(),
            mtu_bytes: 9000,
        }
    }

    fn all() -> BTreeMap<String, Facts> {
        let host = |own: PortFacts, gateway: &str, other: &str| Facts {
            ports: vec![own],
            neighbours: [(gateway.parse().unwrap(), "02:01".to_owned())].into(),
            ways: [(other.to_owned(), "g1".to_owned())].into(),
        };
        let gateway = Facts {
            ports: vec![port("hsn0", "10.100.0.91", "02:01"), port("ib0", "10.10.0.11", "02:01")],
            ..Facts::default()
        };
        [
            ("c1".to_owned(), host(port("hsn0", "10.100.0.1", "02:0a"), "10.100.0.91", "s1")),
            ("s1".to_owned(), host(port("ib0", "10.10.0.21", "02:0b"), "10.10.0.11", "c1")),
            ("g1".to_owned(), gateway),
        ]
        .into()
    }

    #[test]
    fn hosts_that_agree_have_not_drifted_and_each_disagreement_is_told_once() {
        let plan = parse_plan("plan", PLAN).unwrap();
        assert_eq!(compare(&plan, &all()), []);
        let told = |spoil: &dyn Fn(&mut BTreeMap<String, Facts>)| {
            let mut all = all();
            spoil(&mut all);
            let drifts = compare(&plan, &all);
            let told: Vec<_> = drifts.into_iter().map(|(host, drift)| (host, drift.kind)).collect();
            told
        };
        let asymmetric = told(&|all| {
            all.get_mut("s1").unwrap().ways.insert("c1".to_owned(), "g2".to_owned());
        });
        assert_eq!(asymmetric, [("c1".to_owned(), DriftKind::Asymmetric)]);
        let elsewhere = told(&|all| all.get_mut("g1").unwrap().ports[1].hardware_address.push('0'));
        assert_eq!(elsewhere, [("s1".to_owned(), DriftKind::Neighbour)]);
        let narrow = told(&|all| all.get_mut("c1").unwrap().ports[0].mtu_bytes = 1500);
        assert_eq!(narrow, [("c1".to_owned(), DriftKind::Mtu)]);
        // A gateway that did not answer is told elsewhere.
        let silent = told(&|all| drop(all.remove("g1")));
        assert_eq!(silent, []);
    }
}
