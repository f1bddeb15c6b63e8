use netlink::{FilterRule, FilterTable};

use super::*;
use crate::change::{Change, Difference, Object, difference};
use crate::command::command;
use crate::example::cumulus;
use crate::interfaces::Interfaces;
use crate::wanted::{HostState, wanted};

fn plan() -> Plan {
    let mut plan = cumulus("pairs");
    plan.gateways.truncate(2);
    plan.routing.follow = Some(1);
    plan
}

fn state(plan: &Plan) -> HostState {
    let interfaces = Interfaces::invented(["ib1"]);
    wanted(plan, plan.find("wolf01").unwrap(), &interfaces, &[]).unwrap()
}

/// A host that has what the state wants, and whose neighbours are known.
fn found(state: &HostState) -> Found {
    let neighbours = state.steering.iter().zip(1..);
    let neighbours =
        neighbours.map(|(one, last)| (one.address, HardwareAddress([2, 0, 0, 0, 0, last])));
    Found {
        interfaces: Interfaces::invented(["ib1"]),
        sysctls: state.sysctls.iter().cloned().collect(),
        nexthops: state.nexthops.clone(),
        routes: state.routes.clone(),
        rules: state.rules.clone(),
        neighbours: neighbours.collect(),
        ..Found::default()
    }
}

#[test]
fn a_table_with_rules_of_others_is_in_the_way_until_it_may_be_replaced() {
    let plan = plan();
    let mut found = found(&state(&plan));
    let mut table = made(&plan, &found);
    table.chains[0].rules.push(FilterRule::with_comment(Vec::new(), "theirs"));
    found.filter_tables.push(table);
    let Difference { changes, conflicts, .. } = difference(&plan, &state(&plan), &found);
    assert!(matches!(&changes[..], [Change::Replace { .. }]), "{changes:?}");
    assert!(conflicts.len() == 1 && conflicts[0].is_replaceable, "{conflicts:?}");
}

/// The table that a host gets which has none.
fn made(plan: &Plan, found: &Found) -> FilterTable {
    match &difference(plan, &state(plan), found).changes[..] {
        [Change::Add(Object::FilterTable(table))] => table.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn marks_are_made_last_and_read_as_a_person_would_type_them() {
    let plan = plan();
    let found = found(&state(&plan));
    let changes = difference(&plan, &state(&plan), &Found { rules: Vec::new(), ..found }).changes;
    let commands: Vec<String> =
        changes.iter().map(|one| command(one, &Interfaces::default())).collect();
    assert_eq!(
        commands,
        [
            "ip rule add pref 1000 fwmark 0x1 table 101 protocol 77",
            "ip rule add pref 1001 fwmark 0x2 table 102 protocol 77",
            "nft 'add table ip clearstream-77; add chain ip clearstream-77 follow { type filter hook prerouting \
             priority -150; policy accept; }; add rule ip clearstream-77 follow iifname \"ib1\" ether saddr \
             02:00:00:00:00:01 meta mark set 1 comment \"sn1\"; add rule ip clearstream-77 follow iifname \"ib1\" \
             ether saddr 02:00:00:00:00:02 meta mark set 2 comment \"sn2\"'",
        ]
    );
}

#[test]
fn addresses_come_from_the_plan_then_the_neighbours_then_the_table_that_is_there() {
    let mut plan = plan();
    let mut found = found(&state(&plan));
    let table = made(&plan, &found);
    found.neighbours.clear();
    let unknown = difference(&plan, &state(&plan), &found);
    assert_eq!((unknown.unknown, unknown.changes.len()), (vec![0, 1], 0));
    found.filter_tables.push(table);
    assert_eq!(difference(&plan, &state(&plan), &found), Difference::default());
    plan.gateways[1].hardware_addresses[1] = Some(HardwareAddress([2, 9, 9, 9, 9, 9]));
    let changes = difference(&plan, &state(&plan), &found).changes;
    assert!(matches!(&changes[..], [Change::Replace { .. }]), "{changes:?}");
    assert!(command(&changes[0], &Interfaces::default()).contains("02:09:09:09:09:09"));
    // Gateways of another order have other marks: an address is not kept for the wrong one.
    plan.gateways.swap(0, 1);
    plan.gateways[0].hardware_addresses[1] = None;
    assert_eq!(difference(&plan, &state(&plan), &found).unknown, [0, 1]);
}

#[test]
fn a_plan_that_no_longer_follows_takes_its_marks_away_before_its_rules() {
    let mut plan = plan();
    let mut found = found(&state(&plan));
    found.filter_tables.push(made(&plan, &found));
    plan.routing.follow = None;
    let state = state(&plan);
    found.sysctls = state.sysctls.iter().cloned().collect();
    let changes = difference(&plan, &state, &found).changes;
    let commands: Vec<String> =
        changes.iter().map(|one| command(one, &Interfaces::default())).collect();
    assert_eq!(commands[0], "nft delete table ip clearstream-77");
    assert!(commands[1].starts_with("ip rule del pref 1000"), "{commands:?}");
}

#[test]
fn what_is_remembered_of_udp_reads_as_a_person_would_type_it() {
    let mut plan = plan();
    plan.routing.follow_udp = true;
    let found = found(&state(&plan));
    let table = made(&plan, &found);
    assert!(is_mark_table(&table));
    assert_eq!(describe_table(&table), "packet filter table ip clearstream-77 (2 marks, UDP too)");
    let rule = |mark: u32| {
        let from = format!("iifname \"ib1\" ether saddr 02:00:00:00:00:{mark:02x}");
        let key = "ip saddr . udp sport . udp dport";
        format!(
            "add rule ip clearstream-77 follow {from} meta l4proto udp meta mark set {key} map @asked meta mark != {mark} \
             delete @asked {{ {key} : meta mark }} comment \"sn{mark}\"; add rule ip clearstream-77 follow {from} meta \
             mark set {mark} meta l4proto udp update @asked {{ {key} : meta mark }} comment \"sn{mark}\"; "
        )
    };
    assert_eq!(
        nft_command("add", &table),
        [
            "nft 'add table ip clearstream-77; add map ip clearstream-77 asked { type ipv4_addr . inet_service . \
             inet_service : mark; flags dynamic,timeout; timeout 180s; size 65536; }; add chain ip clearstream-77 follow \
             { type filter hook prerouting priority -150; policy accept; }; ",
            &rule(1),
            &rule(2),
            "add chain ip clearstream-77 answer { type route hook output priority -150; policy accept; }; add rule ip \
             clearstream-77 answer meta mark 0 meta l4proto udp meta mark set ip daddr . udp dport . udp sport map @asked'",
        ]
        .concat()
    );
    // An older version's may be replaced; what others have put into it may not.
    let mut older = table.clone();
    older.maps[0].timeout_ms = 1;
    assert!(is_mark_table(&older) && mark_differences(&older, &table).len() == 1);
    let mut foreign = table.clone();
    foreign.maps[0].key_bytes = 4;
    assert!(!is_mark_table(&foreign));
    let mut foreign = table.clone();
    foreign.chains[1].rules.push(FilterRule::with_comment(Vec::new(), "theirs"));
    assert!(!is_mark_table(&foreign));
}

#[test]
fn every_difference_of_a_table_is_named() {
    use MarkDifference as D;
    let plan = plan();
    let wanted = made(&plan, &found(&state(&plan)));
    assert!(is_mark_table(&wanted));
    let told = |spoil: &dyn Fn(&mut FilterTable)| {
        let mut table = wanted.clone();
        spoil(&mut table);
        let differences = mark_differences(&table, &wanted);
        (differences, is_mark_table(&table))
    };
    let (gone, is_ours) = told(&|table| table.chains.clear());
    assert!(matches!(&gone[..], [D::Missing(what)] if what.contains("chain follow")), "{gone:?}");
    assert!(is_ours);
    let (rule, is_ours) = told(&|table| drop(table.chains[0].rules.remove(0)));
    assert!(matches!(&rule[..], [D::Missing(what)] if what.contains("from sn1")), "{rule:?}");
    assert!(is_ours);
    let (order, _) = told(&|table| table.chains[0].rules.swap(0, 1));
    assert!(matches!(&order[..], [D::Changed(_)]), "{order:?}");
    let (foreign, is_ours) = told(&|table| {
        table.chains[0].rules.push(FilterRule::with_comment(Vec::new(), "x"));
    });
    assert!(
        matches!(&foreign[..], [D::Surplus(what)] if what.starts_with("1 rules")),
        "{foreign:?}"
    );
    assert!(!is_ours);
    let (hook, is_ours) = told(&|table| table.chains[0].hook = None);
    assert!(matches!(&hook[..], [D::Changed(_)]), "{hook:?}");
    assert!(!is_ours);
    let (moved, _) = told(&|table| {
        let mut marking = Marking::of(&table.chains[0].rules[1]).unwrap();
        marking.hardware_address = HardwareAddress([2, 0, 0, 0, 0, 99]);
        table.chains[0].rules[1] = marking.rule();
    });
    let D::Changed(what) = &moved[0] else { panic!("{moved:?}") };
    assert!(what.contains("02:00:00:00:00:63") && what.contains("02:00:00:00:00:02"), "{what}");
}

#[test]
fn hardware_addresses_are_six_bytes() {
    let address: HardwareAddress = "02:00:0a:00:00:Fe".parse().unwrap();
    assert_eq!(address.to_string(), "02:00:0a:00:00:fe");
    for text in ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "02:00:00:00:00:+1"] {
        assert!(text.parse::<HardwareAddress>().is_err(), "{text}");
    }
}
