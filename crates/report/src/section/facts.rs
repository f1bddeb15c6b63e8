//! The two hosts side by side, and the path between them.

use std::collections::BTreeSet;

use results::{HostFacts, InterfaceFacts};

use super::Section;
use crate::digest::Digest;
use crate::machine_drawing;
use crate::markup::Element;
use crate::show::{self, DASH};
use crate::table::Table;

/// Kernel settings listed at most.
const SYSCTLS_MAX: usize = 80;

/// Facts that no two hosts need to share.
const OWN: [&str; 1] = ["interface"];

/// Both hosts and the path.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    let parts = [hosts(digest), path(digest)].into_iter().chain(drawings(digest));
    Section::new("hosts", "Hosts", parts)
}

/// What the hosts are made of; once where one machine is both.
fn drawings(digest: &Digest<'_>) -> Vec<Element> {
    let near = digest.results.near().machine.as_ref();
    let far = digest.results.far().and_then(|far| far.machine.as_ref());
    let same_cores =
        near.zip(far).is_some_and(|(near, far)| near.cores == far.cores && near.nics == far.nics);
    let near_name = match same_cores {
        true => format!("{} and {}", digest.near_name, digest.far_name),
        false => digest.near_name.clone(),
    };
    let near = near.map(|machine| (machine, near_name));
    let far = far.filter(|_| !same_cores).map(|machine| (machine, digest.far_name.clone()));
    let drawn = near.into_iter().chain(far);
    drawn.filter_map(|(machine, name)| machine_drawing::on_page(machine, &name)).collect()
}

fn hosts(digest: &Digest<'_>) -> Element {
    let near = digest.results.near();
    let far = digest.results.far();
    let mut table = Table::new(
        "Both hosts",
        4,
        &[
            "fact",
            &format!("{} (near)", digest.near_name),
            &format!("{} (far)", digest.far_name),
            "alike",
        ],
    );
    let mut fact = |name: &str, read: &dyn Fn(&HostFacts) -> Option<String>| {
        let shown =
            |facts: Option<&HostFacts>| facts.and_then(read).filter(|text| !text.is_empty());
        let (near, far) = (shown(Some(near)), shown(far));
        if near.is_some() || far.is_some() {
            let differ = near.is_some() && far.is_some() && near != far && !OWN.contains(&name);
            let mark = match (&near, &far) {
                (Some(_), Some(_)) if differ => "≠ differ",
                (Some(_), Some(_)) => "=",
                _ => "",
            };
            table.row([name.to_owned(), or_dash(near), or_dash(far), mark.to_owned()]);
        }
    };
    let with_interface = |read: fn(&InterfaceFacts) -> Option<String>| {
        move |host: &HostFacts| host.interface.as_ref().and_then(read)
    };
    fact("kernel", &|host| Some(host.kernel.clone()));
    fact("processor", &|host| host.processor.clone());
    fact("cores online", &|host| Some(host.online_cores_count.to_string()));
    fact("cores usable", &|host| Some(core_list(&host.usable_cores)));
    fact("memory nodes", &|host| host.memory_nodes_count.map(|count| count.to_string()));
    fact("memory", &|host| host.memory_bytes.map(|bytes| show::size(bytes as f64)));
    fact("hypervisor", &|host| host.hypervisor.clone());
    fact("interface", &with_interface(|interface| Some(interface.name.clone())));
    fact("driver", &with_interface(|interface| interface.driver.clone()));
    fact("link speed", &with_interface(|interface| interface.speed_bits_per_s.map(show::rate)));
    fact("MTU", &with_interface(|interface| Some(format!("{} B", interface.mtu_bytes))));
    fact(
        "queues, rx + tx",
        &with_interface(|interface| interface.queues_count.map(|(rx, tx)| format!("{rx} + {tx}"))),
    );
    fact("queueing discipline", &with_interface(|interface| interface.qdisc.clone()));
    fact("shaped to", &with_interface(|interface| interface.qdisc_rate_bits_per_s.map(show::rate)));
    fact("offloads on", &with_interface(|interface| Some(interface.offloads.join(", "))));
    fact(
        "memory node of the device",
        &with_interface(|interface| interface.memory_node.map(|node| node.to_string())),
    );
    fact("clearstream", &|host| host.tool_version.clone());
    let names: BTreeSet<&String> =
        near.sysctls.keys().chain(far.iter().flat_map(|far| far.sysctls.keys())).collect();
    for name in names.into_iter().take(SYSCTLS_MAX) {
        fact(name, &|host| host.sysctls.get(name).cloned());
    }
    table.into_element()
}

fn path(digest: &Digest<'_>) -> Element {
    let facts = &digest.results.path;
    let mut table = Table::new("The path between them", 2, &["fact", "value"]);
    let rows = [
        ("far host as named", Some(facts.target.clone())),
        ("address", facts.address.clone()),
        ("control port", facts.port.map(|port| port.to_string())),
        ("server at the far host", facts.peer.clone()),
        ("idle round-trip time, median", digest.idle_rtt_s().map(show::seconds)),
        ("path MTU", facts.path_mtu_bytes.map(|bytes| format!("{bytes} B"))),
        (
            "bandwidth-delay product",
            facts.bandwidth_delay_product_bytes.map(|bytes| show::size(bytes as f64)),
        ),
        ("emulated by lab", facts.lab.clone()),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            table.row([name.to_owned(), value]);
        }
    }
    table.into_element()
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| DASH.to_owned())
}

/// `0-3, 8`.
fn core_list(cores: &[u32]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|one, other| one.checked_add(1) == Some(*other));
    let shown: Vec<String> = runs
        .filter_map(|run| match run {
            [] => None,
            [one] => Some(one.to_string()),
            [first, .., last] => Some(format!("{first}-{last}")),
        })
        .collect();
    show::clip(&shown.join(", "), 200)
}

#[cfg(test)]
mod tests {
    #[test]
    fn cores_in_runs() {
        assert_eq!(super::core_list(&[8, 0, 1, 2, 3, 3]), "0-3, 8");
        assert_eq!(super::core_list(&[]), "");
        assert_eq!(super::core_list(&[u32::MAX, 0]), "0, 4294967295");
    }
}
