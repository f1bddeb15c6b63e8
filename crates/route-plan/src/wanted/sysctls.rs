//! Kernel settings of hosts and gateways, and the kernels that have them.

use netlink::Family;
use settings::{InterfaceKey, Key};

use crate::plan::{Plan, Port, Role};

/// Settings and the kernels that have them first; what is not listed every kernel has.
const SINCE: &[(&str, &str)] = &[
    ("net.ipv4.fib_multipath_hash_seed", "6.11"),
    ("net.ipv4.fib_multipath_hash_policy", "4.12"),
    ("net.ipv6.fib_multipath_hash_policy", "4.17"),
    ("net.ipv4.tcp_fwmark_accept", "3.16"),
    ("net.ipv6.conf.all.ignore_routes_with_linkdown", "4.3"),
    ("net.ipv4.conf.all.ignore_routes_with_linkdown", "4.3"),
];

/// The first kernel that has a setting; `None` where all have it.
#[must_use]
pub fn first_kernel_with(key: &Key) -> Option<&'static str> {
    let Key::Sysctl(name) = key else { return None };
    SINCE.iter().find(|(known, _)| known == name).map(|(_, version)| *version)
}

pub(super) fn of_role(plan: &Plan, role: Role<'_>) -> Vec<(Key, String)> {
    match role {
        Role::Gateway(_, gateway) => of_gateway(plan, &gateway.ports),
        Role::Host(host) => {
            let follows = plan.routing.follow == Some(host.network);
            of_host(plan, &host.port, follows)
        }
    }
}

fn of_host(plan: &Plan, port: &Port, follows: bool) -> Vec<(Key, String)> {
    let mut list = hashing(plan, plan.routing.seed);
    match plan.family {
        Family::V4 => {
            list.extend([
                global("net.ipv4.conf.all.accept_redirects", 0),
                ipv4(port, "accept_redirects", 0),
            ]);
        }
        Family::V6 => list.push(ipv6(port, "accept_redirects", 0)),
    }
    // For IPv6 too.
    list.push(global("net.ipv4.tcp_mtu_probing", 1));
    if follows {
        list.push(global("net.ipv4.tcp_fwmark_accept", 1));
        match plan.family {
            Family::V4 => list.extend([
                global("net.ipv4.fwmark_reflect", 1),
                // Where the reverse path is checked, it is checked with the mark.
                global("net.ipv4.conf.all.src_valid_mark", 1),
            ]),
            Family::V6 => list.push(global("net.ipv6.fwmark_reflect", 1)),
        }
    }
    list
}

fn of_gateway(plan: &Plan, ports: &[Port]) -> Vec<(Key, String)> {
    // Forwarding first: turning it on sets others anew.
    let mut list = match plan.family {
        Family::V4 => vec![
            global("net.ipv4.ip_forward", 1),
            global("net.ipv4.conf.all.accept_redirects", 0),
            global("net.ipv4.conf.all.send_redirects", 0),
            global("net.ipv4.conf.all.ignore_routes_with_linkdown", 1),
            // The greater of this and the interface's counts: 2 is "loose" wherever it was strict.
            global("net.ipv4.conf.all.rp_filter", 2),
            // Both networks may be one Ethernet: each interface speaks for its own address.
            global("net.ipv4.conf.all.arp_ignore", 1),
            global("net.ipv4.conf.all.arp_announce", 2),
        ],
        Family::V6 => vec![
            global("net.ipv6.conf.all.forwarding", 1),
            global("net.ipv6.conf.all.ignore_routes_with_linkdown", 1),
        ],
    };
    for (index, port) in ports.iter().enumerate() {
        if ports[..index].iter().any(|earlier| earlier.interface == port.interface) {
            continue;
        }
        match plan.family {
            Family::V4 => {
                list.extend([ipv4(port, "send_redirects", 0), ipv4(port, "accept_redirects", 0)])
            }
            Family::V6 => list.push(ipv6(port, "accept_redirects", 0)),
        }
    }
    list.extend(hashing(plan, plan.routing.gateway_seed));
    list
}

fn hashing(plan: &Plan, seed: Option<u32>) -> Vec<(Key, String)> {
    let policy = match plan.family {
        Family::V4 => "net.ipv4.fib_multipath_hash_policy",
        Family::V6 => "net.ipv6.fib_multipath_hash_policy",
    };
    let mut list = vec![global(policy, plan.routing.policy.number().into())];
    list.extend(seed.map(|seed| global("net.ipv4.fib_multipath_hash_seed", seed)));
    list
}

fn global(name: &str, value: u32) -> (Key, String) {
    (Key::Sysctl(name.to_owned()), value.to_string())
}

fn ipv4(port: &Port, setting: &'static str, value: u32) -> (Key, String) {
    let what = InterfaceKey::Ipv4(setting);
    (Key::Interface { name: port.interface.clone(), what }, value.to_string())
}

fn ipv6(port: &Port, setting: &'static str, value: u32) -> (Key, String) {
    let what = InterfaceKey::Ipv6(setting);
    (Key::Interface { name: port.interface.clone(), what }, value.to_string())
}
