//! Whether gateways are on the link of a host's interface, without which no route leads over them.

use netlink::{Route, Target};
use route_plan::{Found, Plan, Role, contains};

use crate::read::read_host;

/// Why no route of the plan can lead over the gateways of the host that the thread is on: they are not on the link of its
/// interface. `None` where they are, or where that cannot be told.
#[must_use]
pub fn off_link(plan: &Plan, role: Role<'_>) -> Option<String> {
    off_link_of(plan, role, &read_host(plan.family, []).ok()?)
}

/// The same for a host that was read.
pub(crate) fn off_link_of(plan: &Plan, role: Role<'_>, found: &Found) -> Option<String> {
    let Role::Host(host) = role else { return None };
    let index = found.interfaces.index(&host.port.interface)?;
    let address_of = |gateway: &route_plan::Gateway| gateway.ports[host.network].address;
    let leads_to = |route: &Route, address| {
        let Target::Paths(paths) = &route.target else { return false };
        let [path] = &paths[..] else { return false };
        let is_link = path.gateway.is_none() && path.interface_index == Some(index);
        is_link && contains(route.destination, address)
    };
    let is_off = |gateway: &&route_plan::Gateway| {
        !found.routes.iter().any(|route| leads_to(route, address_of(gateway)))
    };
    let off: Vec<&route_plan::Gateway> = plan.gateways.iter().filter(is_off).collect();
    let first = off.first()?;
    let more = match off.len() - 1 {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let (interface, network) = (&host.port.interface, &plan.networks[host.network]);
    Some(format!(
        "not reachable on the link of {interface}: {} ({}){more}; the interface needs the \
         address {}/{} of the network '{}'",
        first.name,
        address_of(first),
        host.port.address,
        network.prefix.bits(),
        network.name
    ))
}
