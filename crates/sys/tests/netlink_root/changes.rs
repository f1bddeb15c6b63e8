//! Changing, batching, undoing, listening.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use netlink::{
    Configurable, Family, Link, Member, Message, Mode, Nexthop, NexthopFilter, Notification,
    Notified, Object, Prefix, Route, RouteFilter, RouteQuestion, Rule, Target, create, delete,
    group, protocol,
};
use sys::netlink_socket::{NetlinkError, NetlinkSocket};

use super::support::{Bench, inside, ip, listed, prefix};

/// Ten thousand hosts.
fn hosts(target: &Target) -> Vec<Route> {
    let route = |low: u32| {
        let address = std::net::Ipv4Addr::from_bits(0x0a64_0000 + low).into();
        Route { table: 100, ..Route::new(Prefix::host(address), target.clone()) }
    };
    (0..10_000).map(route).collect()
}

#[test]
fn root_ten_thousand_routes_go_in_one_batch_and_move_with_one_message() {
    inside(|mut bench| {
        for (id, gateway) in [(1, "192.0.2.2"), (2, "192.0.2.3")] {
            let hop = Nexthop::via(id, gateway.parse().unwrap(), bench.index);
            bench.socket.create(&hop, Mode::Create).unwrap();
        }
        let over = |id| Nexthop::group(10, vec![Member { id, weight: 1 }]);
        bench.socket.create(&over(1), Mode::Create).unwrap();
        let messages: Vec<Message> = hosts(&Target::Nexthop(10))
            .iter()
            .map(|route| create(route, Mode::Create).unwrap())
            .collect();
        let begun = Instant::now();
        let outcomes = bench.socket.batch(&messages).unwrap();
        let applied = begun.elapsed();
        assert_eq!(outcomes.len(), 10_000);
        assert!(outcomes.iter().all(Result::is_ok));

        let filter = RouteFilter { table: Some(100), ..RouteFilter::all(Family::V4) };
        let begun = Instant::now();
        let found = bench.socket.routes(filter).unwrap();
        let read = begun.elapsed();
        assert_eq!(found, hosts(&Target::Nexthop(10)));
        assert_eq!(listed("route show table 100").len(), 10_000);

        let begun = Instant::now();
        bench.socket.create(&over(2), Mode::Replace).unwrap();
        println!(
            "10000 routes: applied in {applied:?}, listed in {read:?}, moved in {:?}",
            begun.elapsed()
        );
        let way = ip("route get 10.100.7.7 from 192.0.2.1 oif a0");
        assert!(!way.contains("192.0.2.3"), "table 100 is not looked into without a rule: {way}");
        ip("rule add to 10.100.0.0/16 table 100");
        assert!(ip("route get 10.100.7.7").contains("192.0.2.3"), "the group leads elsewhere now");
    });
}

#[test]
fn root_a_batch_says_of_each_message_what_became_of_it() {
    inside(|mut bench| {
        let route = |text: &str| {
            let target = Target::Paths(vec![bench.path("192.0.2.2")]);
            create(&Route::new(prefix(text), target), Mode::Create).unwrap()
        };
        let nowhere = Route::new(prefix("10.9.0.0/16"), Target::Nexthop(99));
        let batch = [
            route("10.1.0.0/16"),
            create(&nowhere, Mode::Create).unwrap(),
            route("10.1.0.0/16"),
            route("10.2.0.0/16"),
        ];
        let outcomes = bench.socket.batch(&batch).unwrap();
        let numbers: Vec<_> = outcomes
            .iter()
            .map(|outcome| outcome.as_ref().err().map(|error| error.errno))
            .collect();
        let (invalid, exists) = (rustix::io::Errno::INVAL, rustix::io::Errno::EXIST);
        let expected = [None, Some(invalid), Some(exists), None];
        assert_eq!(numbers, expected.map(|error| error.map(|error| error.raw_os_error())));
        let text = outcomes[1].as_ref().unwrap_err().text.clone();
        assert_eq!(text.as_deref(), Some("Nexthop id does not exist"));
        let error = bench.socket.create(&nowhere, Mode::Create).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kernel refuses: Invalid argument (os error 22): Nexthop id does not exist"
        );
    });
}

/// Looks a destination up all the while its route is replaced: there is a way at every moment. Both go on
/// until each was done often enough, whichever the machine lets run first.
#[test]
fn root_replacing_leaves_no_moment_without_a_way() {
    const REPLACEMENTS_MIN: u32 = 2000;
    const LOOK_UPS_MIN: u32 = 1000;
    inside(|mut bench| {
        let address = "10.1.2.3".parse().unwrap();
        let via = |bench: &Bench, gateway: &str| {
            Route::new(prefix("10.1.0.0/16"), Target::Paths(vec![bench.path(gateway)]))
        };
        bench.socket.create(&via(&bench, "192.0.2.2"), Mode::Create).unwrap();
        let namespace = bench.namespace.try_clone().unwrap();
        let (replaced, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let replacing = scope.spawn(|| {
                // Even, so that the last one is the first one's route.
                while !is_over.load(Ordering::Relaxed) {
                    for gateway in ["192.0.2.3", "192.0.2.2"] {
                        bench.socket.create(&via(&bench, gateway), Mode::Replace).unwrap();
                        replaced.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let mut looked_up = 0;
            let mut socket = NetlinkSocket::open_in(namespace.as_fd()).unwrap();
            let ended = loop {
                let enough = looked_up >= LOOK_UPS_MIN
                    && replaced.load(Ordering::Relaxed) >= REPLACEMENTS_MIN;
                if enough || replacing.is_finished() {
                    break Ok(());
                }
                match socket.find::<Route>(&RouteQuestion::to(address).message()) {
                    Ok(_) => looked_up += 1,
                    Err(error) => break Err(error),
                }
            };
            is_over.store(true, Ordering::Relaxed);
            ended.unwrap();
        });
        let filter =
            RouteFilter { protocol: Some(protocol::CLEARSTREAM), ..RouteFilter::all(Family::V4) };
        assert_eq!(bench.socket.routes(filter).unwrap(), [via(&bench, "192.0.2.2")]);
    });
}

/// Two nexthops take turns, one at each end of a list that takes many answers: a list that shows both
/// would mix two moments. How often a list is read again depends on the machine; what it shows does not.
#[test]
fn root_a_list_never_mixes_two_moments() {
    inside(|mut bench| {
        let hop = |id| Nexthop::via(id, "192.0.2.2".parse().unwrap(), bench.index);
        let batch: Vec<_> = (1..=3000).map(|id| create(&hop(id), Mode::Create).unwrap()).collect();
        assert!(bench.socket.batch(&batch).unwrap().iter().all(Result::is_ok));
        let (first, last) = (hop(1), hop(9999));
        let (over, namespace) = (AtomicBool::new(false), bench.namespace.try_clone().unwrap());
        let (over, socket) = (&over, &mut bench.socket);
        let question = Nexthop::dump(NexthopFilter::default());
        let lists: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut writer = NetlinkSocket::open_in(namespace.as_fd()).unwrap();
                let (mut here, mut there) = (&first, &last);
                while !over.load(Ordering::Relaxed) {
                    writer.delete(here).unwrap();
                    writer.create(there, Mode::Create).unwrap();
                    (here, there) = (there, here);
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
            let lists = (0..20).map(|_| socket.list::<Nexthop>(&question)).collect();
            over.store(true, Ordering::Relaxed);
            lists
        });
        let mut given_up = 0;
        for list in lists {
            match list {
                Ok(list) => {
                    let ends = list.iter().filter(|one| matches!(one.id, 1 | 9999)).count();
                    assert!(ends <= 1 && list.len() - ends == 2999, "{} objects", list.len());
                }
                Err(NetlinkError::Changing) => given_up += 1,
                Err(error) => panic!("{error}"),
            }
        }
        println!("of 20 lists {given_up} were given up");
        let list = socket.list::<Nexthop>(&question).unwrap();
        assert_eq!(list.len(), 3000);
    });
}

/// Everything that somebody configured: bodies as the kernel lists them.
fn dump(bench: &mut Bench) -> Vec<Vec<Vec<u8>>> {
    let mut lists = vec![Nexthop::dump(NexthopFilter::default())];
    for family in [Family::V4, Family::V6] {
        lists.push(Route::dump(RouteFilter::all(family)));
        lists.push(Rule::dump(family));
    }
    lists.iter().map(|question| bench.socket.dump(question).unwrap()).collect()
}

fn send_back<O: Configurable>(
    bench: &mut Bench,
    bodies: &[Vec<u8>],
    is_ours: impl Fn(&O) -> bool,
    make: impl Fn(&O) -> Message,
) {
    for body in bodies {
        let object = O::parse(body).unwrap();
        if is_ours(&object) {
            let done = bench.socket.request(&make(&object));
            done.unwrap_or_else(|error| panic!("{}: {error}: {body:?}", O::NAME));
        }
    }
}

/// What others configured, read, deleted and sent back, is the same byte for byte.
#[test]
fn root_foreign_objects_are_restored_byte_for_byte() {
    inside(|mut bench| {
        for command in [
            "nexthop add id 1 via 192.0.2.2 dev a0 proto 99",
            "nexthop add id 2 via 192.0.2.3 dev a0",
            "nexthop add id 3 via 2001:db8::2 dev a0",
            "nexthop add id 4 blackhole",
            "nexthop add id 10 group 2,3/1,1",
            "nexthop add id 11 group 1/2 type resilient buckets 16 idle_timer 5 unbalanced_timer 9",
            "route add default via 192.0.2.2",
            "route add 10.1.0.0/16 nhid 10 metric 4 proto 99",
            "route add 10.2.0.0/16 nhid 11 table 700",
            "route add 10.3.0.0/16 nexthop via 192.0.2.2 weight 9 nexthop via 192.0.2.4 weight 1",
            "route add 10.4.0.0/16 via inet6 2001:db8::3 dev a0 mtu lock 1300 initcwnd 9",
            "route add 10.4.0.0/16 dev a1 metric 3 src 192.0.2.1 realm 5",
            "route add unreachable 10.5.0.0/16 tos 0x10",
            "route add throw 10.6.0.0/16 table 800",
            "route add 10.7.0.0/16 encap ip6 dst 2001:db8::7 via 192.0.2.2 dev a0",
            "-6 route add default via 2001:db8::2 dev a0 metric 3 pref high",
            "-6 route add fd01::/16 nhid 3 congctl reno",
            "-6 route add fd02::/16 nexthop via 2001:db8::2 dev a0 nexthop via 2001:db8::3 dev a0",
            "-6 route add fd03::/16 from fd04::/16 dev a1",
            "rule add from 10.0.0.0/8 fwmark 3/7 table 700 priority 100",
            "rule add not to 10.9.0.0/16 iif a1 ipproto 17 dport 53 table 800 priority 101",
            "rule add uidrange 5-9 sport 1-9 goto 32766 priority 102 proto 99",
            "-6 rule add from fd01::/16 lookup main suppress_prefixlength 0 priority 103",
            "-6 rule add oif a1 tos 0x10 prohibit priority 104",
        ] {
            ip(command);
        }
        let before = dump(&mut bench);
        let [nexthops, v4_routes, v4_rules, v6_routes, v6_rules] = &before[..] else { panic!() };
        assert!(nexthops.len() == 6 && v4_routes.len() > 9 && v6_routes.len() > 4);

        let set_by_hand = |route: &Route| route.protocol != protocol::KERNEL;
        let rule_by_hand = |rule: &Rule| rule.protocol != protocol::KERNEL;
        let gone = |rule: &Rule| delete(rule).unwrap();
        for rules in [v4_rules, v6_rules] {
            send_back(&mut bench, rules, rule_by_hand, gone);
        }
        for routes in [v4_routes, v6_routes] {
            send_back(&mut bench, routes, set_by_hand, |route: &Route| delete(route).unwrap());
        }
        let backwards: Vec<_> = nexthops.iter().rev().cloned().collect();
        send_back(&mut bench, &backwards, |_| true, |one: &Nexthop| delete(one).unwrap());
        let bare = dump(&mut bench);
        assert_eq!((bare[0].len(), bare[2].len(), bare[4].len()), (0, 3, 2));

        let again = |one: &Nexthop| create(one, Mode::Create).unwrap();
        send_back(&mut bench, nexthops, |_| true, again);
        for routes in [v4_routes, v6_routes] {
            send_back(&mut bench, routes, set_by_hand, |route: &Route| {
                create(route, Mode::Create).unwrap()
            });
        }
        for rules in [v4_rules, v6_rules] {
            send_back(&mut bench, rules, rule_by_hand, |rule| create(rule, Mode::Create).unwrap());
        }
        let after = dump(&mut bench);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(after, before);
        }
    });
}

#[test]
fn root_a_subscriber_hears_what_changes() {
    inside(|mut bench| {
        let mut ears = NetlinkSocket::open().unwrap();
        ears.subscribe(&[group::ROUTE_V4, group::NEXTHOP, group::RULE_V4, group::LINK]).unwrap();
        let hop = Nexthop::via(7, "192.0.2.2".parse().unwrap(), bench.index);
        let route = Route::new(prefix("10.1.0.0/16"), Target::Nexthop(7));
        bench.socket.create(&hop, Mode::Create).unwrap();
        bench.socket.create(&route, Mode::Create).unwrap();
        bench.socket.delete(&route).unwrap();
        bench.socket.create(&route, Mode::Create).unwrap();
        ip("link set a1 down");
        let mut heard: Vec<Notification> = Vec::new();
        let lost_carrier = |one: &Notification| {
            matches!(&one.object, Notified::Link(Link { name, flags, .. })
                if name == "a0" && flags & (1 << 16) == 0)
        };
        while !heard.iter().any(lost_carrier) {
            let more = ears.notifications().unwrap();
            assert!(!more.is_empty(), "nothing more is heard: {heard:#?}");
            heard.extend(more);
        }
        let of = |is_gone, object| Notification { is_gone, object };
        let at = |wanted: Notification| heard.iter().position(|one| *one == wanted);
        let created = at(of(false, Notified::Nexthop(hop))).unwrap();
        let routed = at(of(false, Notified::Route(route.clone()))).unwrap();
        let deleted = at(of(true, Notified::Route(route))).unwrap();
        assert!(created < routed && routed < deleted, "{heard:#?}");
        // Nexthop objects on a link without carrier go, and their routes with them.
        let left = bench.socket.list::<Nexthop>(&Nexthop::dump(NexthopFilter::default()));
        assert_eq!(left.unwrap(), []);
    });
}

#[test]
fn root_a_socket_stays_in_the_namespace_it_was_opened_in() {
    let found = inside(|bench| {
        let outside = std::thread::scope(|scope| {
            // A thread of yet another namespace opens a socket in this one.
            let open = || {
                let _elsewhere = sys::namespace::unshare_network().unwrap();
                let mut inside = NetlinkSocket::open_in(bench.namespace.as_fd()).unwrap();
                let mut here = NetlinkSocket::open().unwrap();
                let names = |socket: &mut NetlinkSocket| -> Vec<String> {
                    let links = socket.list::<Link>(&Link::dump()).unwrap();
                    links.into_iter().map(|link| link.name).collect()
                };
                (names(&mut inside), names(&mut here))
            };
            scope.spawn(open).join().unwrap()
        });
        let (inside, here) = outside;
        assert!(inside.iter().any(|name| name == "a0"), "{inside:?}");
        assert!(here.iter().all(|name| name != "a0"), "{here:?}");
        Link::parse(&[]).unwrap_err();
        true
    });
    assert!(found.unwrap_or(true));
}
