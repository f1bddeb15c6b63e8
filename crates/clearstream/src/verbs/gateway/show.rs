//! Plans, hosts and findings as text and JSON.

use std::fmt::Write as _;

use route_plan::{
    Balance, Difference, Finding, Found, HostState, Mode, Plan, Role, command, describe,
};
use serde_json::{Value, json};
use units::count_of;

/// Most gateways listed individually.
const GATEWAYS_SHOWN_MAX: usize = 32;

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Pairs => "pairs",
        Mode::Hash => "hash",
        Mode::Resilient(_) => "resilient",
    }
}

/// A plan's contents, and how its flows spread.
pub(super) fn overview(plan: &Plan, balance: &Result<Balance, String>) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail; `ok` keeps the lines readable.
    let mode = mode_name(plan.routing.mode);
    let (gateways, hosts) = (plan.gateways.len(), plan.hosts.len());
    let (these, those) = (count_of(gateways as u64, "gateway"), count_of(hosts as u64, "host"));
    writeln!(out, "Plan      {}: {these}, {those}, mode {mode}", plan.name).ok();
    for (index, network) in plan.networks.iter().enumerate() {
        let hosts = count_of(plan.hosts_of(index).count() as u64, "host");
        writeln!(out, "Network   {:<12} {:<18} {hosts}", network.name, network.prefix.to_string())
            .ok();
    }
    for (index, gateway) in plan.gateways.iter().enumerate().take(GATEWAYS_SHOWN_MAX) {
        let ports: Vec<String> = gateway
            .ports
            .iter()
            .map(|port| format!("{} ({})", port.address, port.interface))
            .collect();
        let load = match balance {
            Ok(balance) => format!("  {}", count_of(balance.loads[index], "flow")),
            Err(_) => String::new(),
        };
        writeln!(
            out,
            "Gateway   {:<12} weight {:<3} {}{load}",
            gateway.name,
            gateway.weight,
            ports.join("  ")
        )
        .ok();
    }
    if gateways > GATEWAYS_SHOWN_MAX {
        writeln!(out, "          and {} more", gateways - GATEWAYS_SHOWN_MAX).ok();
    }
    match balance {
        Ok(balance) => balance_lines(&mut out, plan, balance),
        Err(reason) => {
            writeln!(out, "Balance   not computed: {reason}").ok();
        }
    }
    for remark in &plan.remarks {
        writeln!(out, "Remark    {remark}").ok();
    }
    out
}

fn balance_lines(out: &mut String, plan: &Plan, balance: &Balance) {
    writeln!(
        out,
        "Balance   {}, one per pair of hosts: the busiest gateway carries {:.2} x its share",
        count_of(balance.flows_count, "flow"),
        balance.busiest
    )
    .ok();
    for side in &balance.sides {
        writeln!(
            out,
            "          each host of '{}' alone: median {:.2} x, worst {:.2} x ({}); {} of them use {} of {} gateways",
            plan.networks[side.network].name,
            side.median,
            side.worst,
            side.worst_host,
            side.hosts_with_fewest,
            side.fewest_gateways,
            plan.gateways.len()
        )
        .ok();
    }
}

/// [`overview`] as JSON.
pub(super) fn overview_json(plan: &Plan, balance: Option<&Balance>) -> Value {
    let gateways: Vec<Value> = plan
        .gateways
        .iter()
        .enumerate()
        .map(|(index, gateway)| {
            json!({
                "name": gateway.name,
                "weight": gateway.weight,
                "addresses": gateway.ports.iter().map(|port| port.address).collect::<Vec<_>>(),
                "flows": balance.map(|balance| balance.loads[index]),
            })
        })
        .collect();
    let sides: Option<Vec<Value>> = balance.map(|balance| {
        let side = |side: &route_plan::Side| {
            json!({
                "network": plan.networks[side.network].name,
                "busiest_over_share_median": side.median,
                "busiest_over_share_worst": side.worst,
                "worst_host": side.worst_host,
                "fewest_gateways": side.fewest_gateways,
            })
        };
        balance.sides.iter().map(side).collect()
    });
    json!({
        "plan": plan.name,
        "mode": mode_name(plan.routing.mode),
        "hosts": plan.hosts.len(),
        "gateways": gateways,
        "flows": balance.map(|balance| balance.flows_count),
        "busiest_over_share": balance.map(|balance| balance.busiest),
        "sides": sides,
        "remarks": plan.remarks,
    })
}

/// A host's present state, its planned state, and the commands that lead there.
pub(super) fn host(
    plan: &Plan,
    role: Role<'_>,
    is_here: bool,
    state: &HostState,
    found: &Found,
    difference: &Difference,
) -> String {
    let mut out = String::new();
    match role {
        Role::Gateway(_, gateway) => {
            writeln!(out, "Host      {}, a gateway of weight {}", gateway.name, gateway.weight)
                .ok();
        }
        Role::Host(host) => {
            let network = &plan.networks[host.network].name;
            let port = &host.port;
            writeln!(
                out,
                "Host      {}, {} on '{network}' ({})",
                host.name, port.address, port.interface
            )
            .ok();
        }
    }
    let ours = |protocol: u8| protocol == plan.routing.protocol;
    if is_here {
        let nexthops = found.nexthops.iter().filter(|one| ours(one.protocol)).count();
        let routes = found.routes.iter().filter(|one| ours(one.protocol)).count();
        let rules = found.rules.iter().filter(|one| ours(one.protocol)).count();
        writeln!(
            out,
            "Found     {nexthops} nexthops, {routes} routes, {rules} rules of the plan's protocol {}",
            plan.routing.protocol
        )
        .ok();
    } else {
        writeln!(out, "Found     not read: this machine is not that host (--here overrides this)")
            .ok();
    }
    writeln!(
        out,
        "Wanted    {} settings, {} nexthops, {} routes, {} rules, {} marks",
        state.sysctls.len(),
        state.nexthops.len(),
        state.routes.len(),
        state.rules.len(),
        state.steering.len()
    )
    .ok();
    writeln!(out, "Changes   {}", difference.changes.len()).ok();
    for change in &difference.changes {
        writeln!(out, "  {}", command(change, &found.interfaces)).ok();
    }
    if !difference.unknown.is_empty() {
        let names = unknown_names(plan, difference).join(", ");
        writeln!(
            out,
            "Unknown   hardware addresses of {names}: these changes lack the marks of their \
             packets; `apply` looks them up on the link, or set `hardware_addresses` in the plan"
        )
        .ok();
    }
    for conflict in &difference.conflicts {
        let there = describe(&conflict.found, &found.interfaces);
        writeln!(out, "Conflict  {there}: {}", conflict.reason).ok();
    }
    out
}

fn unknown_names<'a>(plan: &'a Plan, difference: &Difference) -> Vec<&'a str> {
    difference.unknown.iter().map(|&gateway| plan.gateways[gateway].name.as_str()).collect()
}

/// [`host`] as JSON.
pub(super) fn host_json(
    plan: &Plan,
    name: &str,
    is_here: bool,
    state: &HostState,
    found: &Found,
    difference: &Difference,
) -> Value {
    let commands: Vec<String> =
        difference.changes.iter().map(|change| command(change, &found.interfaces)).collect();
    let conflicts: Vec<Value> = difference
        .conflicts
        .iter()
        .map(|conflict| {
            json!({
                "found": describe(&conflict.found, &found.interfaces),
                "reason": conflict.reason,
            })
        })
        .collect();
    json!({
        "host": name,
        "was_read": is_here,
        "wanted": {
            "settings": state.sysctls.len(),
            "nexthops": state.nexthops.len(),
            "routes": state.routes.len(),
            "rules": state.rules.len(),
            "marks": state.steering.len(),
        },
        "unknown_hardware_addresses": unknown_names(plan, difference),
        "commands": commands,
        "conflicts": conflicts,
    })
}

/// The contradictions between a reviewed file and the plan.
pub(super) fn findings(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let lines: Vec<String> = finding.lines.iter().map(usize::to_string).collect();
        let word = if lines.len() == 1 { "line" } else { "lines" };
        writeln!(out, "{word} {}: {}", lines.join(", "), finding.reason).ok();
    }
    if findings.is_empty() {
        out.push_str("Nothing in it contradicts the plan.\n");
    }
    out
}
