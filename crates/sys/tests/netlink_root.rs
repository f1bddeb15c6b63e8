//! Routes, rules, nexthops and neighbours in a real kernel, with iproute2 as the oracle in both directions.
//! Needs root and iproute2.

#[path = "netlink_root/support.rs"]
mod support;

#[path = "netlink_root/changes.rs"]
mod changes;

use netlink::{
    Action, Address, AddressFilter, Bucket, Family, Mark, Member, Mode, Neighbour, NeighbourFilter,
    Nexthop, NexthopFilter, NexthopKind, Path, Ports, Prefix, Resilience, Route, RouteFilter, Rule,
    Target, metric, protocol, route_kind,
};
use serde_json::json;

use support::{Bench, inside, ip, listed, prefix, row};

/// Routes of every form that gateways need.
fn routes(bench: &Bench) -> Vec<Route> {
    let via = |gateway: &str| Target::Paths(vec![bench.path(gateway)]);
    let plain = Route {
        priority: Some(7),
        preferred_source: Some("192.0.2.1".parse().unwrap()),
        ..Route::new(prefix("10.1.0.0/16"), via("192.0.2.2"))
    };
    let weighted = |gateway: &str, weight| Path { weight, ..bench.path(gateway) };
    let multipath = Route {
        table: 1000,
        ..Route::new(
            prefix("10.2.0.0/16"),
            Target::Paths(vec![weighted("192.0.2.2", 5), weighted("192.0.2.3", 256)]),
        )
    };
    let mut limited = Route::new(prefix("10.3.0.1/32"), via("192.0.2.3"));
    limited.metrics.values.extend([(metric::MTU, 1400), (metric::INITCWND, 20)]);
    limited.metrics.congestion_control = Some("reno".to_owned());
    let onlink = Path { is_onlink: true, ..bench.path("198.51.100.1") };
    let blackhole =
        Route { kind: route_kind::BLACKHOLE, ..Route::new(prefix("10.5.0.0/16"), Target::None) };
    let v6_paths = Target::Paths(vec![weighted("2001:db8::2", 1), weighted("2001:db8::3", 3)]);
    let v6 = |route: Route| Route { priority: Some(1024), ..route };
    vec![
        plain,
        multipath,
        limited,
        Route::new(prefix("10.4.0.0/16"), Target::Paths(vec![onlink])),
        blackhole,
        Route::new(prefix("10.6.0.0/16"), via("2001:db8::9")),
        Route::new(prefix("10.7.0.0/16"), Target::Nexthop(7701)),
        v6(Route::new(prefix("fd01::/16"), via("2001:db8::2"))),
        v6(Route::new(prefix("fd02::/16"), v6_paths)),
        v6(Route::new(prefix("fd03::1/128"), Target::Nexthop(7702))),
    ]
}

fn all_of_ours(bench: &mut Bench, family: Family) -> Vec<Route> {
    let protocol = Some(protocol::CLEARSTREAM);
    let filter = RouteFilter { protocol, ..RouteFilter::all(family) };
    let mut routes = bench.socket.routes(filter).unwrap();
    for route in &mut routes {
        // IPv6's router preference, which the kernel always lists.
        route.other.retain(|one| one.flagged_kind != 20);
    }
    routes
}

#[test]
fn root_created_routes_are_shown_by_ip_and_read_back_equal() {
    inside(|mut bench| {
        for hop in [(7701, "192.0.2.9"), (7702, "2001:db8::9")] {
            let hop = Nexthop::via(hop.0, hop.1.parse().unwrap(), bench.index);
            bench.socket.create(&hop, Mode::Create).unwrap();
        }
        let wanted = routes(&bench);
        for route in &wanted {
            let created = bench.socket.create(route, Mode::Create);
            created.unwrap_or_else(|error| panic!("{}: {error}", route.destination));
        }
        let mut found = all_of_ours(&mut bench, Family::V4);
        found.extend(all_of_ours(&mut bench, Family::V6));
        for route in &wanted {
            let destination = route.destination;
            let same = found.iter().find(|found| found.destination == destination);
            assert_eq!(same, Some(route));
        }
        assert_eq!(found.len(), wanted.len());

        let shown = listed("route show table all proto 77");
        let find = |destination: &str| row(&shown, "dst", destination);
        assert_eq!(find("10.1.0.0/16")["gateway"], "192.0.2.2");
        assert_eq!(find("10.1.0.0/16")["prefsrc"], "192.0.2.1");
        assert_eq!(find("10.1.0.0/16")["metric"], 7);
        let many = find("10.2.0.0/16");
        assert_eq!(many["table"], "1000");
        assert_eq!(many["nexthops"][0]["weight"], 5);
        assert_eq!(many["nexthops"][1]["weight"], 256);
        assert_eq!(find("10.3.0.1")["metrics"][0]["mtu"], 1400);
        assert_eq!(find("10.3.0.1")["metrics"][0]["congestion"], "reno");
        assert_eq!(find("10.4.0.0/16")["flags"], json!(["onlink"]));
        assert_eq!(find("10.5.0.0/16")["type"], "blackhole");
        assert_eq!(find("10.6.0.0/16")["via"]["host"], "2001:db8::9");
        assert_eq!(find("10.7.0.0/16")["nhid"], 7701);
        let shown = listed("-6 route show table all proto 77");
        assert_eq!(row(&shown, "dst", "fd03::1")["nhid"], 7702);
        assert_eq!(row(&shown, "dst", "fd02::/16")["nexthops"][1]["weight"], 3);

        for route in &wanted {
            bench.socket.delete(route).unwrap();
        }
        assert_eq!(listed("route show table all proto 77"), Vec::<serde_json::Value>::new());
        assert_eq!(all_of_ours(&mut bench, Family::V6), []);
    });
}

#[test]
fn root_routes_that_ip_created_are_read_as_they_are() {
    inside(|mut bench| {
        ip("route add 10.1.0.0/16 via 192.0.2.2 table 1000 metric 5 proto 99");
        ip(
            "route add 10.2.0.0/16 proto static nexthop via 192.0.2.2 weight 3 nexthop via 192.0.2.3",
        );
        ip("-6 route add fd01::/16 via 2001:db8::2 dev a0 mtu 1300 proto 99");
        ip("route add prohibit 10.3.0.0/16");
        let all = |bench: &mut Bench, table| {
            let filter = RouteFilter { table: Some(table), ..RouteFilter::all(Family::V4) };
            bench.socket.routes(filter).unwrap()
        };
        let path = |gateway: &str, weight| Path { weight, ..bench.path(gateway) };
        let (first, three, one) =
            (bench.path("192.0.2.2"), path("192.0.2.2", 3), path("192.0.2.3", 1));
        let via = Target::Paths(vec![first]);
        let expected = Route {
            table: 1000,
            priority: Some(5),
            protocol: 99,
            ..Route::new(prefix("10.1.0.0/16"), via)
        };
        assert_eq!(all(&mut bench, 1000), [expected]);
        assert_eq!(all(&mut bench, 1001), []);
        let main = all(&mut bench, 254);
        let find =
            |text: &str| main.iter().find(|route| route.destination == prefix(text)).unwrap();
        assert_eq!(find("10.2.0.0/16").target, Target::Paths(vec![three, one]));
        assert_eq!(find("10.2.0.0/16").protocol, protocol::STATIC);
        assert_eq!((find("10.3.0.0/16").kind, &find("10.3.0.0/16").target), (8, &Target::None));
        assert_eq!(find("192.0.2.0/24").protocol, protocol::KERNEL);
        let v6 = bench.socket.routes(RouteFilter::all(Family::V6)).unwrap();
        let limited = v6.iter().find(|route| route.destination == prefix("fd01::/16")).unwrap();
        assert_eq!(limited.metrics.get(metric::MTU), Some(1300));
        assert_eq!(limited.priority, Some(1024));
    });
}

/// Rules with every selector, one of each family.
fn rules() -> Vec<Rule> {
    let full = Rule {
        source: Some(prefix("10.0.0.0/8")),
        destination: Some(prefix("192.0.2.0/24")),
        tos: 0x10,
        input_interface: Some("a0".to_owned()),
        mark: Some(Mark { value: 3, mask: 0xff }),
        users: Some((1000, 1999)),
        ip_protocol: Some(6),
        source_ports: Some(Ports { first: 1000, last: 2000 }),
        destination_ports: Some(Ports { first: 80, last: 80 }),
        ..Rule::new(Family::V4, 1000, Action::Table(1000))
    };
    let suppressed = Rule {
        is_inverted: true,
        output_interface: Some("a1".to_owned()),
        suppress_prefix_bits: Some(0),
        suppress_group: Some(4),
        ..Rule::new(Family::V6, 1001, Action::Table(254))
    };
    vec![
        full,
        suppressed,
        Rule::new(Family::V4, 1002, Action::Goto(32766)),
        Rule::new(Family::V4, 1003, Action::Nop),
        Rule { source: Some(prefix("fd01::/16")), ..Rule::new(Family::V6, 1004, Action::Prohibit) },
        Rule { is_l3mdev: true, ..Rule::new(Family::V4, 1005, Action::Table(0)) },
        Rule { tunnel_id: Some(9), ..Rule::new(Family::V4, 1006, Action::Blackhole) },
    ]
}

#[test]
fn root_rules_with_every_selector_are_shown_by_ip_and_read_back_equal() {
    inside(|mut bench| {
        for rule in &rules() {
            let created = bench.socket.create(rule, Mode::Create);
            created.unwrap_or_else(|error| panic!("{:?}: {error}", rule.priority));
            let again = bench.socket.create(rule, Mode::Create).unwrap_err();
            assert_eq!(again.errno(), Some(libc_eexist()), "a second rule of {:?}", rule.priority);
        }
        let mut found = Vec::new();
        for family in [Family::V4, Family::V6] {
            found.extend(bench.socket.list::<Rule>(&Rule::dump(family)).unwrap());
        }
        let ours: Vec<_> = rules().into_iter().collect();
        for rule in &ours {
            let same = found.iter().find(|found| found.priority == rule.priority);
            assert_eq!(same, Some(rule));
        }
        let shown = listed("rule show");
        let full = row(&shown, "priority", 1000);
        for (field, value) in [
            ("src", json!("10.0.0.0")),
            ("srclen", json!(8)),
            ("dst", json!("192.0.2.0")),
            ("iif", json!("a0")),
            ("fwmark", json!("0x3")),
            ("fwmask", json!("0xff")),
            ("uid_start", json!(1000)),
            ("uid_end", json!(1999)),
            ("sport_start", json!(1000)),
            ("sport_end", json!(2000)),
            ("dport", json!(80)),
            ("table", json!("1000")),
            ("protocol", json!("77")),
        ] {
            assert_eq!(full[field], value, "{field}: {full:#}");
        }
        let shown = listed("-6 rule show");
        assert_eq!(row(&shown, "priority", 1001)["suppress_prefixlen"], 0);
        assert_eq!(row(&shown, "priority", 1001)["oif"], "a1");
        for rule in &ours {
            bench.socket.delete(rule).unwrap();
        }
        assert_eq!(listed("rule show").len(), 3, "the kernel's own are left");

        ip("rule add from 10.9.0.0/16 fwmark 0x1/0xf table 100 priority 900 proto 99");
        let expected = Rule {
            source: Some(prefix("10.9.0.0/16")),
            mark: Some(Mark { value: 1, mask: 15 }),
            protocol: 99,
            ..Rule::new(Family::V4, 900, Action::Table(100))
        };
        let found = bench.socket.list::<Rule>(&Rule::dump(Family::V4)).unwrap();
        assert!(found.contains(&expected), "{found:#?}");
    });
}

fn libc_eexist() -> i32 {
    rustix::io::Errno::EXIST.raw_os_error()
}

#[test]
fn root_nexthops_and_groups_are_shown_by_ip_and_read_back_equal() {
    inside(|mut bench| {
        let resilience =
            Resilience { buckets_count: 64, idle_hundredths: 1500, unbalanced_hundredths: 3000 };
        let members = vec![Member { id: 2, weight: 1 }, Member { id: 1, weight: 3 }];
        let resilient =
            NexthopKind::Group { members: members.clone(), resilience: Some(resilience) };
        let wanted = [
            Nexthop::via(1, "192.0.2.2".parse().unwrap(), bench.index),
            Nexthop::via(2, "192.0.2.3".parse().unwrap(), bench.index),
            Nexthop::via(3, "2001:db8::2".parse().unwrap(), bench.index),
            Nexthop::new(4, NexthopKind::Blackhole(Family::V4)),
            Nexthop::group(10, members),
            Nexthop::new(11, resilient),
        ];
        for nexthop in &wanted {
            bench.socket.create(nexthop, Mode::Create).unwrap();
        }
        let found = bench.socket.list::<Nexthop>(&Nexthop::dump(NexthopFilter::default())).unwrap();
        assert_eq!(found, wanted);
        let filter = NexthopFilter { groups_only: true, ..NexthopFilter::default() };
        let groups = bench.socket.list::<Nexthop>(&Nexthop::dump(filter)).unwrap();
        assert_eq!(groups, wanted[4..]);
        assert_eq!(bench.socket.find::<Nexthop>(&Nexthop::get(2)).unwrap(), wanted[1]);

        let shown = listed("nexthop show");
        assert_eq!(row(&shown, "id", 2)["gateway"], "192.0.2.3");
        assert_eq!(row(&shown, "id", 2)["protocol"], "77");
        assert_eq!(row(&shown, "id", 4)["blackhole"], json!(null));
        // The order is part of the plan: the hash counts members in it.
        assert_eq!(row(&shown, "id", 10)["group"], json!([{"id": 2}, {"id": 1, "weight": 3}]));
        let resilient = row(&shown, "id", 11);
        assert_eq!(resilient["type"], "resilient");
        assert_eq!(resilient["resilient_args"]["buckets"], 64);
        assert_eq!(resilient["resilient_args"]["idle_timer"], 15);
        assert_eq!(resilient["resilient_args"]["unbalanced_timer"], 30);

        let buckets = bench.socket.list::<Bucket>(&Bucket::dump(11)).unwrap();
        let theirs = buckets.iter().filter(|bucket| bucket.nexthop == 1).count();
        assert_eq!((buckets.len(), theirs, buckets[5].group, buckets[5].index), (64, 48, 11, 5));
        let shown = listed("nexthop bucket show id 11");
        for (bucket, shown) in buckets.iter().zip(&shown) {
            assert_eq!(shown["bucket"]["index"], bucket.index);
            assert_eq!(shown["bucket"]["nhid"], bucket.nexthop);
        }

        for id in [11, 10, 4, 3, 2, 1] {
            let gone = wanted.iter().find(|nexthop| nexthop.id == id).unwrap();
            bench.socket.delete(gone).unwrap();
        }
        ip("nexthop add id 21 via 192.0.2.2 dev a0 proto 99");
        ip("nexthop add id 22 group 21,7 type resilient buckets 8 idle_timer 2 proto 99");
        let found = bench.socket.list::<Nexthop>(&Nexthop::dump(NexthopFilter::default())).unwrap();
        let hop = Nexthop::via(21, "192.0.2.2".parse().unwrap(), bench.index);
        let resilience =
            Resilience { buckets_count: 8, idle_hundredths: 200, unbalanced_hundredths: 0 };
        let members = vec![Member { id: 21, weight: 7 }];
        let group = NexthopKind::Group { members, resilience: Some(resilience) };
        let expected = [hop, Nexthop::new(22, group)].map(|one| Nexthop { protocol: 99, ..one });
        assert_eq!(found, expected);
    });
}

#[test]
fn root_neighbours_and_addresses_go_both_ways() {
    inside(|mut bench| {
        let mac = vec![2, 0, 0, 0, 0, 7];
        let ours = ["192.0.2.7", "2001:db8::7"].map(|address| {
            Neighbour::permanent(bench.index, address.parse().unwrap(), mac.clone())
        });
        for neighbour in &ours {
            bench.socket.create(neighbour, Mode::Replace).unwrap();
            let family = Family::of(neighbour.address);
            let filter = NeighbourFilter { family, interface_index: Some(bench.index) };
            let found = bench.socket.list::<Neighbour>(&Neighbour::dump(filter)).unwrap();
            assert!(found.contains(neighbour), "{found:#?}");
        }
        let shown = listed("neigh show dev a0");
        assert_eq!(row(&shown, "dst", "192.0.2.7")["lladdr"], "02:00:00:00:00:07");
        bench.socket.delete(&ours[0]).unwrap();
        ip("neigh add 192.0.2.8 lladdr 02:00:00:00:00:08 dev a0 nud permanent");
        let filter = NeighbourFilter { family: Family::V4, interface_index: None };
        let found = bench.socket.list::<Neighbour>(&Neighbour::dump(filter)).unwrap();
        assert!(
            found.iter().any(|one| one.address == "192.0.2.8".parse::<std::net::IpAddr>().unwrap()
                && one.hardware_address == [2, 0, 0, 0, 0, 8])
        );

        let address = Address {
            label: Some("a0:x".to_owned()),
            broadcast: Some("203.0.113.255".parse().unwrap()),
            ..Address::new(bench.index, "203.0.113.1".parse().unwrap(), 24)
        };
        let point = Address {
            peer: Some("2001:db8:1::2".parse().unwrap()),
            ..Address::new(bench.index, "2001:db8:1::1".parse().unwrap(), 128)
        };
        for address in [&address, &point] {
            bench.socket.create(address, Mode::Create).unwrap();
            let family = Family::of(address.address);
            let filter = AddressFilter { family, interface_index: Some(bench.index) };
            let found = bench.socket.list::<Address>(&Address::dump(filter)).unwrap();
            assert!(found.contains(address), "{found:#?}");
        }
        let shown = listed("addr show dev a0");
        let infos = shown[0]["addr_info"].as_array().unwrap();
        assert_eq!(row(infos, "local", "203.0.113.1")["label"], "a0:x");
        assert_eq!(row(infos, "local", "2001:db8:1::1")["address"], "2001:db8:1::2");
        bench.socket.delete(&address).unwrap();
    });
}

/// `Prefix::all` and metrics that only `ip` would know otherwise.
#[test]
fn root_default_routes_have_no_destination() {
    inside(|mut bench| {
        for (family, gateway) in [(Family::V4, "192.0.2.2"), (Family::V6, "2001:db8::2")] {
            let route = Route::new(Prefix::all(family), Target::Paths(vec![bench.path(gateway)]));
            bench.socket.create(&route, Mode::Create).unwrap();
        }
        assert_eq!(row(&listed("route show"), "dst", "default")["gateway"], "192.0.2.2");
        assert_eq!(row(&listed("-6 route show"), "dst", "default")["gateway"], "2001:db8::2");
    });
}
