//! systemd-networkd, and netplan, which writes for it.

use core::fmt::Write as _;

use netlink::{Action, NexthopKind, Target, table};

use super::{Emission, HEAD, Source};
use crate::plan::Mode;

/// Largest weight that networkd takes.
const WEIGHT_MAX: u16 = 255;

pub(super) fn emit(source: &Source<'_>, emission: &mut Emission) {
    let interface = &source.port.interface;
    let head =
        format!("{HEAD}[Match]\nName={interface}\n\n[Network]\nAddress={}\n", source.address());
    let path = format!("etc/systemd/network/80-clearstream-gateway-{interface}.network");
    emission.files.push((path, head + &sections(source)));
    emission.files.push(keep_foreign());
    lacks(source, emission);
}

/// netplan has no multipath routes and no nexthops: they stand in a drop-in beside what it generates.
pub(super) fn emit_netplan(source: &Source<'_>, emission: &mut Emission) {
    let interface = &source.port.interface;
    let yaml = format!(
        "{HEAD}network:\n  version: 2\n  renderer: networkd\n  ethernets:\n    {interface}:\n      \
         addresses: [\"{}\"]\n",
        source.address()
    );
    emission.files.push(("etc/netplan/80-clearstream-gateway.yaml".to_owned(), yaml));
    let path =
        format!("etc/systemd/network/10-netplan-{interface}.network.d/80-clearstream-gateway.conf");
    emission.files.push((path, HEAD.to_owned() + &sections(source)));
    emission.files.push(keep_foreign());
    lacks(source, emission);
}

/// Routes and rules of others stay, whatever networkd is told.
fn keep_foreign() -> (String, String) {
    let text =
        format!("{HEAD}[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n");
    ("etc/systemd/networkd.conf.d/80-clearstream-gateway.conf".to_owned(), text)
}

fn lacks(source: &Source<'_>, emission: &mut Emission) {
    match source.plan.routing.mode {
        Mode::Pairs => {}
        Mode::Hash => emission.lacks.push(
            "networkd chooses the order of a group's members, and the hash depends on that \
             order: the two ends of a flow may choose different gateways"
                .to_owned(),
        ),
        Mode::Resilient(_) => emission.lacks.push(
            "networkd has no resilient groups: the group hashes to its members directly".to_owned(),
        ),
    }
    if source.plan.gateways.iter().any(|gateway| gateway.weight > WEIGHT_MAX) {
        emission.lacks.push(format!(
            "networkd accepts weights up to {WEIGHT_MAX}; larger ones are reduced to that"
        ));
    }
    emission.lacks.push(
        "networkd gives nexthops the protocol `static`: `clearstream gateway check` reports them \
         as foreign, and `apply` refuses to run while they exist"
            .to_owned(),
    );
}

fn sections(source: &Source<'_>) -> String {
    let mut text = String::new();
    let protocol = source.plan.routing.protocol;
    for nexthop in &source.state.nexthops {
        write!(text, "\n[NextHop]\nId={}\n", nexthop.id).ok();
        match &nexthop.kind {
            NexthopKind::Hop(hop) => {
                let gateway = hop.gateway.map_or_else(String::new, |gateway| gateway.to_string());
                writeln!(text, "Gateway={gateway}").ok();
            }
            NexthopKind::Group { members, .. } => {
                let member = |member: &netlink::Member| {
                    format!("{}:{}", member.id, member.weight.min(WEIGHT_MAX))
                };
                let members: Vec<String> = members.iter().map(member).collect();
                writeln!(text, "Group={}", members.join(" ")).ok();
            }
            NexthopKind::Blackhole(_) => text.push_str("Blackhole=yes\n"),
        }
    }
    for route in &source.state.routes {
        write!(text, "\n[Route]\nDestination={}\nProtocol={protocol}\n", route.destination).ok();
        if let Some(metric) = route.priority {
            writeln!(text, "Metric={metric}").ok();
        }
        if route.table != table::MAIN {
            writeln!(text, "Table={}", route.table).ok();
        }
        match &route.target {
            Target::Nexthop(id) => {
                writeln!(text, "NextHop={id}").ok();
            }
            Target::Paths(paths) => match &paths[..] {
                [path] => {
                    let gateway = path.gateway.map_or_else(String::new, |one| one.to_string());
                    writeln!(text, "Gateway={gateway}").ok();
                }
                paths => {
                    for path in paths {
                        let gateway = path.gateway.map_or_else(String::new, |one| one.to_string());
                        let interface = &source.port.interface;
                        writeln!(text, "MultiPathRoute={gateway}@{interface} {}", path.weight).ok();
                    }
                }
            },
            Target::None => {}
        }
    }
    for rule in &source.state.rules {
        let (Some(mark), Action::Table(table)) = (rule.mark, rule.action) else { continue };
        let priority = rule.priority.unwrap_or(0);
        write!(
            text,
            "\n[RoutingPolicyRule]\nFirewallMark={}\nTable={table}\nPriority={priority}\nFamily={}\n",
            mark.value,
            super::family_word(source.plan.family)
        )
        .ok();
    }
    text
}
