//! What is known of a host, as named facts that two runs can differ in.

use std::collections::BTreeSet;

use results::{HostFacts, Machine};
use serde_json::{Map, Value};

use crate::words;

/// Longest value of a fact, characters.
const VALUE_CHARACTERS_MAX: usize = 160;

/// What of an interface's own account can differ between two runs without saying anything new.
const NIC_FACTS: [&str; 8] = [
    "pcie",
    "is_napi_threaded",
    "defer_hard_irqs_count",
    "gro_flush_timeout_ns",
    "channels",
    "rings",
    "coalescing",
    "rss_spread",
];

/// The facts of a host: name and value, in the order of a reader's interest.
pub(crate) fn of_host(host: &HostFacts) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        let value = value.filter(|value| !value.is_empty());
        facts.extend(value.map(|value| (name.to_owned(), clipped(&value))));
    };
    add("host name", Some(host.name.clone()));
    add("kernel", Some(host.kernel.clone()));
    add("clearstream", host.tool_version.clone());
    add("processor", host.processor.clone());
    add("cores online", Some(host.online_cores_count.to_string()).filter(|count| count != "0"));
    add("cores usable", Some(numbers(&host.usable_cores)));
    add("memory nodes", host.memory_nodes_count.map(|count| count.to_string()));
    add("memory", host.memory_bytes.map(units::show_byte_size));
    add("hypervisor", host.hypervisor.clone());
    if let Some(machine) = &host.machine {
        add("governor", governors(machine));
        add("isolated cores", Some(isolated(machine)));
        add("irqbalance", machine.irqbalance_runs.then(|| "runs".to_owned()));
    }
    for (name, value) in interface(host) {
        add(&name, Some(value));
    }
    for (name, value) in &host.sysctls {
        add(name, Some(value.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    facts
}

/// The interface that carries the path, and the device behind it.
fn interface(host: &HostFacts) -> Vec<(String, String)> {
    let Some(interface) = &host.interface else { return Vec::new() };
    let fields = |value: Result<Value, serde_json::Error>| match value {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let mut own = fields(serde_json::to_value(interface));
    let metrics = match own.remove("route_metrics") {
        Some(Value::Object(metrics)) => metrics,
        _ => Map::new(),
    };
    let nics = host.machine.iter().flat_map(|machine| &machine.nics);
    let device = nics.into_iter().find(|nic| nic.name == interface.name);
    let mut device = fields(device.map_or(Ok(Value::Null), serde_json::to_value));
    device.retain(|name, _| NIC_FACTS.contains(&name.as_str()));
    let named = |prefix: &'static str| {
        move |(name, value): (String, Value)| {
            let (key, value) = words::field(&name, &value);
            (format!("{prefix} {key}"), value)
        }
    };
    let own = own.into_iter().chain(device).map(named("interface"));
    own.chain(metrics.into_iter().map(named("route"))).collect()
}

fn governors(machine: &Machine) -> Option<String> {
    let all =
        machine.cores.iter().filter_map(|core| Some(core.frequency.as_ref()?.governor.as_str()));
    let distinct: BTreeSet<&str> = all.collect();
    (!distinct.is_empty()).then(|| distinct.into_iter().collect::<Vec<_>>().join(", "))
}

fn isolated(machine: &Machine) -> String {
    let cores = machine.cores.iter().filter(|core| core.is_isolated).map(|core| core.core);
    numbers(&cores.collect::<Vec<_>>())
}

/// `0-3, 8`.
fn numbers(cores: &[u32]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|one, other| one.checked_add(1) == Some(*other));
    let shown = runs.filter_map(|run| match run {
        [] => None,
        [one] => Some(one.to_string()),
        [first, .., last] => Some(format!("{first}-{last}")),
    });
    shown.collect::<Vec<_>>().join(", ")
}

pub(crate) fn clipped(text: &str) -> String {
    if text.chars().count() <= VALUE_CHARACTERS_MAX {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(VALUE_CHARACTERS_MAX - 1).collect();
    cut.push('…');
    cut
}
