use std::collections::BTreeMap;

use super::*;
use crate::change::RouteKey;
use crate::example::cumulus;

fn state(plan: &Plan, name: &str, up: &[bool]) -> HostState {
    let interfaces = Interfaces::invented(["lo", "ipogif0", "ib0", "ib1"]);
    wanted(plan, plan.find(name).unwrap(), &interfaces, up).unwrap()
}

/// The gateway that a host's routes lead to an address by, with the gateways that are up.
fn carrier(plan: &Plan, state: &HostState, to: core::net::IpAddr) -> usize {
    let route = state.routes.iter().find(|route| route.destination == Prefix::host(to)).unwrap();
    let Target::Nexthop(id) = route.target else { panic!("{route:?}") };
    let group = state.nexthops.iter().find(|nexthop| nexthop.id == id).unwrap();
    let NexthopKind::Group { members, .. } = &group.kind else { panic!("{group:?}") };
    assert_eq!(members.len(), 1);
    (members[0].id - plan.routing.nexthop_ids) as usize
}

#[test]
fn both_ends_lead_every_pair_by_the_same_gateway_also_after_failures() {
    let plan = cumulus("pairs");
    for up in [
        vec![],
        vec![true, false, true, true, true, true],
        vec![false, false, true, true, true, true],
    ] {
        let states: BTreeMap<&str, HostState> = plan
            .hosts
            .iter()
            .map(|host| (host.name.as_str(), state(&plan, &host.name, &up)))
            .collect();
        for client in plan.hosts_of(0) {
            for server in plan.hosts_of(1) {
                let there = carrier(&plan, &states[client.name.as_str()], server.port.address);
                let back = carrier(&plan, &states[server.name.as_str()], client.port.address);
                assert_eq!(there, back, "{} {}", client.name, server.name);
                assert!(up.get(there).copied().unwrap_or(true));
            }
        }
    }
}

#[test]
fn a_failure_changes_groups_and_nets_and_no_other_route() {
    for mode in ["pairs", "hash", "resilient"] {
        let plan = cumulus(mode);
        let before = state(&plan, "wolf01", &[]);
        let after = state(&plan, "wolf01", &[true, true, false]);
        let changed: Vec<&Route> = before
            .routes
            .iter()
            .zip(&after.routes)
            .filter(|(a, b)| a != b)
            .map(|(a, _)| a)
            .collect();
        assert_eq!(changed.len(), 1, "{mode}");
        assert_eq!(changed[0].priority, Some(NET_METRIC));
        let groups = before.nexthops.iter().zip(&after.nexthops).filter(|(a, b)| a != b).count();
        assert_eq!(groups, if mode == "pairs" { 5 } else { 1 });
        assert_eq!(before.nexthops.len(), after.nexthops.len());
    }
}

#[test]
fn the_last_gateways_are_never_taken_away() {
    for mode in ["pairs", "hash"] {
        let plan = cumulus(mode);
        assert_eq!(state(&plan, "nid0001", &[false; 6]), state(&plan, "nid0001", &[]));
    }
}

#[test]
fn ids_are_the_plan_s_and_unique() {
    let mut plan = cumulus("pairs");
    plan.routing.follow = Some(1);
    let state = state(&plan, "wolf03", &[]);
    let ids: BTreeSet<u32> = state.nexthops.iter().map(|nexthop| nexthop.id).collect();
    assert_eq!(ids.len(), state.nexthops.len());
    assert!(ids.iter().all(|id| (7700..7700 + NEXTHOP_IDS_COUNT).contains(id)));
    let keys: BTreeSet<RouteKey> = state.routes.iter().map(RouteKey::of).collect();
    assert_eq!(keys.len(), state.routes.len());
    assert_eq!(state.routes.len(), 1 + 6 + 112);
    assert_eq!((state.rules.len(), state.steering.len()), (6, 6));
    assert!(state.routes.iter().all(|route| route.protocol == 77));
}

#[test]
fn a_gateway_has_settings_only_and_an_unknown_interface_is_named() {
    let plan = cumulus("pairs");
    let gateway = state(&plan, "sn4", &[]);
    assert!(gateway.routes.is_empty() && gateway.nexthops.is_empty());
    assert_eq!(gateway.sysctls[0].0.to_string(), "net.ipv4.ip_forward");
    for (key, value) in &gateway.sysctls {
        assert_eq!(key.check(value).as_ref(), Ok(value), "{key}");
    }
    let none = Interfaces::invented(["eth0"]);
    let error = wanted(&plan, plan.find("wolf01").unwrap(), &none, &[]).unwrap_err();
    assert!(error.to_string().contains("'ib1', which does not exist"));
}
