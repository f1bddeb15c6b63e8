//! Changes and objects in the words of iproute2 and `nft`.

use core::fmt::Write as _;

use netlink::{Action, Family, Nexthop, NexthopKind, Path, Route, Rule, Target, route_kind, table};

use crate::change::{Change, Object};
use crate::interfaces::Interfaces;
use crate::marks::{describe_table, nft_command};

/// The command a person would type as root to make a change.
#[must_use]
pub fn command(change: &Change, interfaces: &Interfaces) -> String {
    let (verb, object) = match change {
        Change::Set { key, to, .. } => return settings::command(key, to),
        Change::Add(object) => ("add", object),
        Change::Replace { to, .. } => ("replace", to),
        Change::Remove(object) => ("del", object),
    };
    let family = match family_of(object) {
        Some(Family::V6) => "ip -6",
        Some(Family::V4) | None => "ip",
    };
    let words = describe(object, interfaces);
    match object {
        Object::Nexthop(nexthop) if verb == "del" => format!("ip nexthop del id {}", nexthop.id),
        Object::Nexthop(_) => format!("{family} nexthop {verb} {words}"),
        Object::Route(_) => format!("{family} route {verb} {words}"),
        Object::Rule(_) => format!("{family} rule {verb} {words}"),
        Object::FilterTable(table) => nft_command(verb, table),
    }
}

fn family_of(object: &Object) -> Option<Family> {
    match object {
        Object::Nexthop(nexthop) => match &nexthop.kind {
            NexthopKind::Blackhole(family) => Some(*family),
            NexthopKind::Hop(hop) => Some(hop.family),
            NexthopKind::Group { .. } => None,
        },
        Object::Route(route) => Some(route.destination.family()),
        Object::Rule(rule) => Some(rule.family),
        Object::FilterTable(table) => Some(table.family),
    }
}

/// An object as iproute2 lists it.
#[must_use]
pub fn describe(object: &Object, interfaces: &Interfaces) -> String {
    match object {
        Object::Nexthop(nexthop) => describe_nexthop(nexthop, interfaces),
        Object::Route(route) => describe_route(route, interfaces),
        Object::Rule(rule) => describe_rule(rule),
        Object::FilterTable(table) => describe_table(table),
    }
}

fn device(index: Option<u32>, interfaces: &Interfaces) -> String {
    match index {
        None => String::new(),
        Some(index) => match interfaces.name(index) {
            Some(name) => format!(" dev {name}"),
            None => format!(" dev if{index}"),
        },
    }
}

fn describe_nexthop(nexthop: &Nexthop, interfaces: &Interfaces) -> String {
    let mut words = format!("id {}", nexthop.id);
    match &nexthop.kind {
        NexthopKind::Blackhole(_) => words.push_str(" blackhole"),
        NexthopKind::Hop(hop) => {
            add(&mut words, "via", hop.gateway.map(|gateway| gateway.to_string()));
            words.push_str(&device(hop.interface_index, interfaces));
            words.push_str(if hop.is_onlink { " onlink" } else { "" });
        }
        NexthopKind::Group { members, resilience } => {
            let member = |member: &netlink::Member| match member.weight {
                1 => member.id.to_string(),
                weight => format!("{},{weight}", member.id),
            };
            let members: Vec<String> = members.iter().map(member).collect();
            add(&mut words, "group", Some(members.join("/")));
            if let Some(resilience) = resilience {
                // In a String writing never fails.
                write!(
                    words,
                    " type resilient buckets {} idle_timer {} unbalanced_timer {}",
                    resilience.buckets_count,
                    seconds(resilience.idle_hundredths),
                    seconds(resilience.unbalanced_hundredths)
                )
                .ok();
            }
        }
    }
    add(&mut words, "protocol", Some(nexthop.protocol.to_string()));
    words
}

fn seconds(hundredths: u32) -> String {
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => whole.to_string(),
        (whole, part) => format!("{whole}.{part:02}"),
    }
}

fn describe_route(route: &Route, interfaces: &Interfaces) -> String {
    let kind = match route.kind {
        route_kind::BLACKHOLE => "blackhole ",
        route_kind::UNREACHABLE => "unreachable ",
        route_kind::PROHIBIT => "prohibit ",
        route_kind::THROW => "throw ",
        route_kind::LOCAL => "local ",
        _unicast => "",
    };
    let destination = match route.destination.bits() {
        0 => "default".to_owned(),
        bits if bits == route.destination.family().bits() => {
            route.destination.address().to_string()
        }
        _network => route.destination.to_string(),
    };
    let mut words = format!("{kind}{destination}");
    add(&mut words, "from", route.source.map(|source| source.to_string()));
    add(&mut words, "tos", (route.tos != 0).then(|| route.tos.to_string()));
    add(&mut words, "table", (route.table != table::MAIN).then(|| route.table.to_string()));
    add(&mut words, "proto", Some(route.protocol.to_string()));
    add(&mut words, "metric", route.priority.map(|metric| metric.to_string()));
    add(&mut words, "src", route.preferred_source.map(|source| source.to_string()));
    match &route.target {
        Target::None => {}
        Target::Nexthop(id) => add(&mut words, "nhid", Some(id.to_string())),
        Target::Paths(paths) => match &paths[..] {
            [path] => words.push_str(&describe_path(path, interfaces)),
            paths => {
                for path in paths {
                    let path_words = describe_path(path, interfaces);
                    write!(words, " nexthop{path_words} weight {}", path.weight).ok();
                }
            }
        },
    }
    words
}

fn describe_path(path: &Path, interfaces: &Interfaces) -> String {
    let mut words = String::new();
    add(&mut words, "via", path.gateway.map(|gateway| gateway.to_string()));
    words.push_str(&device(path.interface_index, interfaces));
    words.push_str(if path.is_onlink { " onlink" } else { "" });
    words
}

fn describe_rule(rule: &Rule) -> String {
    let mut words = format!("pref {}", rule.priority.unwrap_or(0));
    words.push_str(if rule.is_inverted { " not" } else { "" });
    add(&mut words, "from", rule.source.map(|source| source.to_string()));
    add(&mut words, "to", rule.destination.map(|destination| destination.to_string()));
    let mark = rule.mark.map(|mark| match mark.mask {
        u32::MAX => format!("{:#x}", mark.value),
        mask => format!("{:#x}/{mask:#x}", mark.value),
    });
    add(&mut words, "fwmark", mark);
    add(&mut words, "iif", rule.input_interface.clone());
    add(&mut words, "oif", rule.output_interface.clone());
    match rule.action {
        Action::Table(table) => add(&mut words, "table", Some(table.to_string())),
        Action::Goto(priority) => add(&mut words, "goto", Some(priority.to_string())),
        Action::Nop => words.push_str(" nop"),
        Action::Blackhole => words.push_str(" blackhole"),
        Action::Unreachable => words.push_str(" unreachable"),
        Action::Prohibit => words.push_str(" prohibit"),
        Action::Other(number, _) => add(&mut words, "action", Some(number.to_string())),
    }
    add(&mut words, "protocol", Some(rule.protocol.to_string()));
    words
}

fn add(words: &mut String, word: &str, value: Option<String>) {
    if let Some(value) = value {
        write!(words, " {word} {value}").ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Found, difference};
    use crate::example::cumulus;
    use crate::wanted::wanted;

    #[test]
    fn a_host_s_first_plan_reads_as_a_person_would_type_it() {
        let mut plan = cumulus("pairs");
        plan.hosts.truncate(1);
        plan.gateways.truncate(2);
        plan.gateways[0].weight = 4;
        plan.routing.follow = Some(0);
        let server = crate::plan::Host {
            name: "wolf01".to_owned(),
            network: 1,
            number: 0,
            port: crate::plan::Port {
                address: "10.10.0.21".parse().unwrap(),
                interface: "ib1".to_owned(),
            },
        };
        plan.hosts.push(server);
        let interfaces = Interfaces::invented(["lo", "ipogif0"]);
        let role = plan.find("nid0001").unwrap();
        let state = wanted(&plan, role, &interfaces, &[]).unwrap();
        let changes = difference(&plan, &state, &Found::default()).changes;
        let commands: Vec<String> =
            changes.iter().map(|change| command(change, &interfaces)).collect();
        assert_eq!(
            commands,
            [
                "sysctl -w net.ipv4.fib_multipath_hash_policy=1",
                "sysctl -w net.ipv4.fib_multipath_hash_seed=12345",
                "sysctl -w net.ipv4.conf.all.accept_redirects=0",
                "sysctl -w net/ipv4/conf/ipogif0/accept_redirects=0",
                "sysctl -w net.ipv4.tcp_mtu_probing=1",
                "sysctl -w net.ipv4.tcp_fwmark_accept=1",
                "sysctl -w net.ipv4.fwmark_reflect=1",
                "sysctl -w net.ipv4.conf.all.src_valid_mark=1",
                "ip route add 10.10.0.0/24 proto 77 metric 4096 nexthop via 10.100.0.91 dev ipogif0 \
                 weight 4 nexthop via 10.100.0.92 dev ipogif0 weight 1",
                "ip route add 10.10.0.0/24 table 101 proto 77 via 10.100.0.91 dev ipogif0",
                "ip route add 10.10.0.0/24 table 102 proto 77 via 10.100.0.92 dev ipogif0",
                "ip nexthop add id 7700 via 10.100.0.91 dev ipogif0 protocol 77",
                "ip nexthop add id 7701 via 10.100.0.92 dev ipogif0 protocol 77",
                "ip nexthop add id 7957 group 7700 protocol 77",
                "ip route add 10.10.0.21 proto 77 nhid 7957",
                "ip rule add pref 1000 fwmark 0x1 table 101 protocol 77",
                "ip rule add pref 1001 fwmark 0x2 table 102 protocol 77",
            ]
        );
    }
}
