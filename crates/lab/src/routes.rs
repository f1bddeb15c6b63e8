//! Routes between hosts that share no link: by the fewest links, through the hosts between.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use crate::plan::{EndPlan, LabPlan};

/// A route that a host needs beyond those of its own links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    /// Which of the plan's hosts.
    pub(crate) host_index: usize,
    /// The network behind the gateway.
    pub(crate) network: IpAddr,
    /// Length of the prefix.
    pub(crate) prefix_bits: u8,
    /// The next host's address on a link that both share.
    pub(crate) gateway: IpAddr,
}

/// Whether a host stands between others.
pub(crate) fn forwards(plan: &LabPlan, host: &str) -> bool {
    !plan.is_unrouted && plan.ends().filter(|end| end.host == host).count() > 1
}

/// All routes of a lab.
pub(crate) fn routes(plan: &LabPlan) -> Vec<Route> {
    let hosts = plan.hosts.iter().enumerate();
    hosts.flat_map(|(host_index, host)| routes_of(plan, &host.name, host_index)).collect()
}

/// The routes of a host or a guest.
pub(crate) fn routes_of(plan: &LabPlan, host: &str, host_index: usize) -> Vec<Route> {
    let mut routes = Vec::new();
    if plan.is_unrouted {
        return routes;
    }
    let mut known: BTreeSet<(IpAddr, u8)> =
        ends_of(plan, host).flat_map(|(own, _)| networks(own)).collect();
    let mut seen = BTreeSet::from([host]);
    let own_addresses: Vec<_> =
        plan.ends().filter(|end| end.host == host).flat_map(|end| &end.addresses).collect();
    // Hosts to look at, with the first gateway on the way there.
    let mut ahead: VecDeque<(&str, &EndPlan)> = VecDeque::new();
    for (_, next) in ends_of(plan, host) {
        if seen.insert(&next.host) {
            ahead.push_back((&next.host, next));
        }
    }
    while let Some((at, gateway)) = ahead.pop_front() {
        for (own, next) in ends_of(plan, at) {
            for (network, prefix_bits) in networks(own) {
                // One in a network of the host's own: the kernel takes no other.
                let gateway = gateway.addresses.iter().map(|known| known.address);
                let mut gateway = gateway.filter(|known| {
                    let is_alike = known.is_ipv4() == network.is_ipv4();
                    is_alike && own_addresses.iter().any(|own| own.contains(*known))
                });
                if let Some(gateway) = gateway.next()
                    && known.insert((network, prefix_bits))
                {
                    routes.push(Route { host_index, network, prefix_bits, gateway });
                }
            }
            if seen.insert(&next.host) {
                ahead.push_back((&next.host, gateway));
            }
        }
    }
    routes
}

/// A host's interfaces, each with every other that is on the same link or switch.
fn ends_of<'a>(
    plan: &'a LabPlan,
    host: &'a str,
) -> impl Iterator<Item = (&'a EndPlan, &'a EndPlan)> {
    let links = plan.links.iter().map(|link| &link.ends[..]);
    let shared = links.chain(plan.switches.iter().map(|switch| &switch.ends[..]));
    shared.flat_map(move |ends| {
        let own = ends.iter().filter(move |end| end.host == host);
        own.flat_map(move |own| {
            ends.iter().filter(move |end| end.host != host).map(move |other| (own, other))
        })
    })
}

fn networks(end: &EndPlan) -> impl Iterator<Item = (IpAddr, u8)> {
    end.addresses.iter().map(|address| (address.network(), address.prefix_bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::parse_lab;

    fn lab(links: &[[&str; 2]]) -> LabPlan {
        let mut text = "name = \"x\"\n[host.a]\n[host.r]\n[host.s]\n[host.b]\n".to_owned();
        for [first, second] in links {
            text.push_str(&format!("[[link]]\nbetween = [\"{first}\", \"{second}\"]\n"));
        }
        parse_lab("x", &text).expect("a lab")
    }

    #[test]
    fn a_switch_is_one_network_and_its_hosts_lead_to_others() {
        let text = "name = \"x\"\n[host.a]\n[host.b]\n[host.r]\n[host.far]\n\
                    [[switch]]\nname = \"lan\"\nhosts = [\"a\", \"b\", \"r\"]\n\
                    [[link]]\nbetween = [\"r\", \"far\"]\n";
        let plan = parse_lab("x", text).expect("a lab");
        assert_eq!(of(&plan, "a"), ["10.77.0.0/24 10.78.0.3"]);
        assert_eq!(of(&plan, "far"), ["10.78.0.0/24 10.77.0.1"]);
        assert_eq!(of(&plan, "r"), [""; 0]);
        let forwarding = ["a", "b", "r", "far"].map(|host| forwards(&plan, host));
        assert_eq!(forwarding, [false, false, true, false]);
    }

    #[test]
    fn a_lab_without_routes_has_none_and_forwards_nothing() {
        let text = "name = \"x\"\nroutes = false\n[host.a]\n[host.r]\n[host.b]\n\
                    [[link]]\nbetween = [\"a\", \"r\"]\n[[link]]\nbetween = [\"r\", \"b\"]\n";
        let plan = parse_lab("x", text).expect("a lab");
        assert_eq!(routes(&plan), []);
        assert!(!forwards(&plan, "r"));
    }

    fn of(plan: &LabPlan, host: &str) -> Vec<String> {
        let index = plan.hosts.iter().position(|known| known.name == host);
        routes(plan)
            .into_iter()
            .filter(|route| Some(route.host_index) == index && route.network.is_ipv4())
            .map(|route| format!("{}/{} {}", route.network, route.prefix_bits, route.gateway))
            .collect()
    }

    #[test]
    fn a_chain_is_routed_end_to_end() {
        let plan = lab(&[["a", "r"], ["r", "s"], ["s", "b"]]);
        assert_eq!(of(&plan, "a"), ["10.77.1.0/24 10.77.0.2", "10.77.2.0/24 10.77.0.2"]);
        assert_eq!(of(&plan, "b"), ["10.77.1.0/24 10.77.2.1", "10.77.0.0/24 10.77.2.1"]);
        assert_eq!(of(&plan, "r"), ["10.77.2.0/24 10.77.1.2"]);
        assert!(forwards(&plan, "r") && !forwards(&plan, "a"));
        let v6 = routes(&plan).into_iter().filter(|route| route.network.is_ipv6()).count();
        assert_eq!(v6 * 2, routes(&plan).len());
    }

    #[test]
    fn a_gateway_is_an_address_in_a_network_of_the_host_s_own() {
        let link = |hosts: &str, addresses: &str| {
            format!("[[link]]\nbetween = [{hosts}]\naddresses = {{ {addresses} }}\n")
        };
        let text = format!(
            "name = \"x\"\n[host.a]\n[host.r]\n[host.b]\n{}{}",
            link(
                "\"a\", \"r\"",
                "a = [\"10.1.0.1/24\"], r = [\"10.2.0.2/24\", \"10.1.0.2/24\", \"fd01::2/64\"]"
            ),
            link("\"r\", \"b\"", "r = [\"10.3.0.1/24\"], b = [\"10.3.0.2/24\"]"),
        );
        let plan = parse_lab("x", &text).expect("a lab");
        assert_eq!(of(&plan, "a"), ["10.2.0.0/24 10.1.0.2", "10.3.0.0/24 10.1.0.2"]);
        let v6 = routes(&plan).into_iter().filter(|route| route.network.is_ipv6()).count();
        assert_eq!(v6, 0, "the others have no IPv6");
    }

    #[test]
    fn the_shorter_way_is_taken_and_own_links_need_none() {
        let plan = lab(&[["a", "r"], ["r", "b"], ["a", "s"], ["s", "r"], ["a", "b"]]);
        assert_eq!(of(&plan, "a"), ["10.77.1.0/24 10.77.0.2", "10.77.3.0/24 10.77.0.2"]);
        assert_eq!(of(&lab(&[["a", "b"]]), "a"), [""; 0]);
    }
}
