use netlink::{Member, Path};

use super::*;
use crate::example::cumulus;
use crate::wanted::wanted;

fn interfaces() -> Interfaces {
    Interfaces::invented(["lo", "ipogif0", "ib1"])
}

fn state(plan: &Plan) -> HostState {
    wanted(plan, plan.find("wolf01").unwrap(), &interfaces(), &[]).unwrap()
}

/// The host after everything in the state was made.
fn made(state: &HostState) -> Found {
    Found {
        interfaces: interfaces(),
        sysctls: state.sysctls.iter().cloned().collect(),
        nexthops: state.nexthops.clone(),
        routes: state.routes.clone(),
        rules: state.rules.clone(),
        neighbours: neighbours(),
        ..Found::default()
    }
}

/// Every gateway is at a hardware address.
fn neighbours() -> BTreeMap<IpAddr, HardwareAddress> {
    let addresses = (11..=16).map(|last| std::net::Ipv4Addr::new(10, 10, 0, last).into());
    addresses
        .zip(1..)
        .map(|(address, last)| (address, HardwareAddress([2, 0, 0, 0, 0, last])))
        .collect()
}

/// What the kernel would have after the changes, with its own rules: a deleted nexthop takes its routes along,
/// a route needs its nexthop, a group its members.
fn apply(found: &Found, changes: &[Change]) -> Found {
    let mut host = found.clone();
    for change in changes {
        match change {
            Change::Set { key, to, .. } => {
                host.sysctls.insert(key.clone(), to.clone());
            }
            Change::Add(Object::Nexthop(one)) => {
                assert!(host.nexthops.iter().all(|other| other.id != one.id), "{one:?}");
                if let NexthopKind::Group { members, .. } = &one.kind {
                    for member in members {
                        assert!(host.nexthops.iter().any(|hop| hop.id == member.id), "{one:?}");
                    }
                }
                host.nexthops.push(one.clone());
            }
            Change::Replace { to: Object::Nexthop(one), .. } => {
                let there = host.nexthops.iter_mut().find(|other| other.id == one.id).unwrap();
                assert!(is_changeable(&there.kind, &one.kind));
                *there = one.clone();
            }
            Change::Remove(Object::Nexthop(one)) => {
                let used = |route: &Route| route.target == Target::Nexthop(one.id);
                assert!(!host.routes.iter().any(used), "{one:?} is in use");
                let before = host.nexthops.len();
                host.nexthops.retain(|other| other.id != one.id);
                assert_eq!(host.nexthops.len() + 1, before, "{one:?}");
            }
            Change::Add(Object::Route(route))
            | Change::Replace { to: Object::Route(route), .. } => {
                let key = RouteKey::of(route);
                let before = host.routes.len();
                host.routes.retain(|other| RouteKey::of(other) != key);
                let is_new = host.routes.len() == before;
                assert_eq!(is_new, matches!(change, Change::Add(_)), "{route:?}");
                if let Target::Nexthop(id) = route.target {
                    assert!(host.nexthops.iter().any(|one| one.id == id), "{route:?}");
                }
                host.routes.push(route.clone());
            }
            Change::Remove(Object::Route(route)) => {
                let before = host.routes.len();
                host.routes.retain(|other| other != route);
                assert_eq!(host.routes.len() + 1, before, "{route:?}");
            }
            Change::Add(Object::Rule(rule)) => host.rules.push(rule.clone()),
            Change::Remove(Object::Rule(rule)) => host.rules.retain(|other| other != rule),
            Change::Replace { to: Object::Rule(_), .. } => panic!("the kernel replaces no rules"),
            Change::Add(Object::FilterTable(table)) => {
                assert!(host.filter_tables.is_empty(), "{table:?}");
                host.filter_tables.push(table.clone());
            }
            Change::Replace { to: Object::FilterTable(table), .. } => {
                assert_eq!(host.filter_tables.len(), 1);
                host.filter_tables = vec![table.clone()];
            }
            Change::Remove(Object::FilterTable(_)) => host.filter_tables.clear(),
        }
    }
    host
}

/// Every host of every kind of plan gets from every other to this one, and then nothing is left to do.
#[test]
fn changes_lead_from_any_plan_to_any_other_and_then_end() {
    let plans: Vec<Plan> = ["pairs", "hash", "resilient"]
        .into_iter()
        .flat_map(|mode| {
            let mut fewer = cumulus(mode);
            fewer.gateways.remove(2);
            fewer.routing.follow = Some(1);
            let mut moved = cumulus(mode);
            moved.routing.nexthop_ids = 7700 + 256;
            moved.gateways[0].weight = 3;
            [cumulus(mode), fewer, moved]
        })
        .collect();
    for from in &plans {
        for to in &plans {
            let found = made(&state(from));
            let wanted = state(to);
            let first = difference(to, &wanted, &found);
            assert_eq!(first.conflicts, []);
            let after = apply(&found, &first.changes);
            let second = difference(to, &wanted, &after);
            assert_eq!(second, Difference::default());
        }
    }
}

#[test]
fn a_plan_that_is_in_force_needs_no_change() {
    let plan = cumulus("pairs");
    let state = state(&plan);
    assert_eq!(difference(&plan, &state, &made(&state)), Difference::default());
}

#[test]
fn a_conflict_says_where_the_plan_gets_another_number() {
    let text = crate::example::CUMULUS;
    let parsed = |text: &str| {
        let mut plan = crate::parse_plan("cumulus.toml", text).unwrap();
        // Rules and tables of their own are what hosts that follow have.
        plan.routing.follow = Some(1);
        plan
    };
    let plan = parsed(text);
    let mut found = made(&state(&plan));
    found.nexthops.iter_mut().for_each(|one| one.protocol = 12);
    found.rules.iter_mut().for_each(|one| one.protocol = 12);
    let in_table = found.routes.iter_mut().find(|one| one.table != table::MAIN).unwrap();
    (in_table.protocol, in_table.destination) = (4, Prefix::host("192.0.2.1".parse().unwrap()));
    let conflicts = difference(&plan, &state(&plan), &found).conflicts;
    for key in ["tables", "nexthop_ids", "rule_priority"] {
        let line = text.lines().position(|line| line.starts_with(key)).unwrap() + 1;
        let place = format!("change `{key}` in line {line} of the plan");
        assert!(
            conflicts.iter().any(|conflict| conflict.reason.ends_with(&place)),
            "{conflicts:?}"
        );
    }
    // A plan that leaves the number out.
    let plan =
        crate::parse_plan("cumulus.toml", &text.replace("nexthop_ids = 7700\n", "")).unwrap();
    let conflicts = difference(&plan, &state(&plan), &found).conflicts;
    let place = "set `nexthop_ids` in [routing] of the plan";
    assert!(conflicts.iter().any(|conflict| conflict.reason.ends_with(place)), "{conflicts:?}");
}

#[test]
fn what_belongs_to_others_is_a_conflict_and_stays() {
    let plan = cumulus("pairs");
    let wanted = state(&plan);
    let foreign_route =
        |destination: Prefix, target| Route { protocol: 4, ..Route::new(destination, target) };
    let via = Path { interface_index: Some(3), ..Path::via("10.10.0.9".parse().unwrap()) };
    let mut found = made(&wanted);
    let client = plan.hosts[0].port.address;
    // A route of ours was replaced by somebody's, one of our ids is another's, and another's route uses a
    // nexthop of ours that is no longer wanted.
    found.routes.retain(|route| route.destination != Prefix::host(client));
    found.routes.push(foreign_route(Prefix::host(client), Target::Paths(vec![via])));
    let hop = found.nexthops.iter_mut().find(|one| one.id == 7701).unwrap();
    hop.protocol = 12;
    found.nexthops.push(Nexthop::group(9999, vec![Member { id: 7702, weight: 1 }]));
    let elsewhere = Prefix::new("192.0.2.0".parse().unwrap(), 24).unwrap();
    found.routes.push(foreign_route(elsewhere, Target::Nexthop(9999)));
    let difference = difference(&plan, &wanted, &found);
    let reasons: Vec<&str> =
        difference.conflicts.iter().map(|conflict| conflict.reason.as_str()).collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("route to 10.100.1.1/32 in table 254")));
    assert!(reasons.iter().any(|reason| reason.contains("nexthop_ids include 7701")));
    assert!(reasons.iter().any(|reason| reason.contains("uses the plan's nexthop 9999")));
    let touches_foreign = difference.changes.iter().any(
        |change| matches!(change, Change::Remove(Object::Route(route)) if route.protocol != 77),
    );
    assert!(!touches_foreign);
}
