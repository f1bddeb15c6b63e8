//! What somebody else does to a host on which a plan is applied: found by `check`, never taken along by `revert`; and
//! failures of gateways moved around by few messages.

#[path = "support/bed.rs"]
mod bed;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use bed::{Bench, PLAN, assert_same, dump, furnish, in_namespace, ipv6, must};
use gateway::{
    DrainError, DriftKind, Network, Options, apply, check, drain, move_flows, off_link, read_host,
    undrained,
};
use route_plan::{Plan, Role, parse_plan};
use sys::netlink_socket::NetlinkSocket;
use tuning::Reverted;

/// Drains the gateway of this index, or puts it back.
fn set_drained(bench: &Bench, gateway: usize, is_drained: bool) -> Result<usize, DrainError> {
    let Role::Host(host) = bench.role() else { panic!("s1 is a host") };
    drain(&bench.plan, host, &bench.options.state, gateway, is_drained)
}

fn drifts_of(bench: &Bench) -> Vec<DriftKind> {
    let up = undrained(&bench.plan, &bench.options.state).expect("a list");
    let drifts = check(&bench.plan, bench.role(), &up).expect("it can be read");
    drifts.into_iter().map(|drift| drift.kind).collect()
}

#[test]
fn each_of_sixteen_drifts_is_found_and_named_root() {
    use DriftKind as D;
    let hash = PLAN.replace("\"pairs\"", "\"hash\"");
    let resilient = PLAN.replace("\"pairs\"", "\"resilient\"");
    let drifts: [(&str, &str, D); 16] = [
        (PLAN, "sysctl -qw net.ipv4.fib_multipath_hash_policy=0", D::Setting),
        (&hash, "sysctl -qw net.ipv4.fib_multipath_hash_seed=54321", D::Setting),
        (PLAN, "ip nexthop del id 7701", D::Missing),
        (PLAN, "ip nexthop replace id 7701 via 10.10.0.99 dev ib0 protocol 77", D::Changed),
        (PLAN, "ip nexthop replace id 7957 group 7702 protocol 77", D::Changed),
        (&hash, "ip nexthop replace id 73492 group 7702/7701/7700 protocol 77", D::Changed),
        (PLAN, "ip route del 10.100.0.3/32", D::Missing),
        (PLAN, "ip route replace 10.100.0.3/32 via 10.10.0.11 dev ib0 proto static", D::Foreign),
        (
            PLAN,
            "ip route replace 10.100.0.0/16 via 10.10.0.11 dev ib0 proto 77 metric 4096",
            D::Changed,
        ),
        (PLAN, "ip rule add to 10.100.0.1 table 9 pref 5", D::Diverted),
        (PLAN, "ip route add 192.0.2.0/24 via 10.10.0.12 dev ib0 proto 77", D::Surplus),
        (PLAN, "ip nexthop add id 7800 via 10.10.0.12 dev ib0 protocol bird", D::Foreign),
        (PLAN, "ip link set far down", D::Interface),
        (
            &resilient,
            "ip nexthop replace id 73492 group 7700,9/7701/7702 type resilient buckets 128 idle_timer 1 unbalanced_timer 1 protocol 77",
            D::Changed,
        ),
        (PLAN, "ip neigh replace 10.10.0.12 dev ib0 nud failed", D::Neighbour),
        (PLAN, "ip addr flush dev ib0", D::Diverted),
    ];
    for (plan, drift, kind) in drifts {
        in_namespace("drift", plan, |bench| {
            bench.apply().expect("applied");
            assert_eq!(drifts_of(bench), [], "before: {drift}");
            if drift.contains("table 9") {
                must("ip route add 10.100.0.1/32 via 10.10.0.12 dev ib0 table 9");
            }
            must(drift);
            assert!(drifts_of(bench).contains(&kind), "{drift}: {:?}", drifts_of(bench));
        });
    }
}

#[test]
fn drifts_of_our_own_objects_are_mended_by_applying_again_root() {
    in_namespace("mend", PLAN, |bench| {
        furnish();
        // It leads elsewhere, which `check` says.
        must("ip rule del pref 5000");
        let before = dump();
        bench.apply().expect("applied");
        // The kernel takes every nexthop object, group and route over them along.
        must("ip link set far down");
        must("ip link set far up");
        assert!(drifts_of(bench).contains(&DriftKind::Missing));
        bench.apply().expect("applied again");
        assert_eq!(drifts_of(bench), []);
        let left: Vec<_> =
            bench.revert().into_iter().filter(|one| !one.result.is_settled()).collect();
        assert!(left.is_empty(), "{left:?}");
        // What others lost by the carrier is not ours to bring back; nothing of ours is left.
        let after = dump();
        assert!(!after.contains("proto 77") && after.len() < before.len(), "{after}");
    });
}

#[test]
fn routes_of_others_stand_in_the_way_until_they_are_named_and_come_back_byte_for_byte_root() {
    in_namespace("foreign", PLAN, |bench| {
        must(
            "ip route add 10.100.0.2/32 via 10.10.0.250 dev ib0 proto static realm 9 mtu lock 1300",
        );
        let before = dump();
        let error = bench.apply().expect_err("in the way").to_string();
        assert!(error.contains("10.100.0.2") && error.contains("--replace"), "{error}");
        assert_same(&dump(), &before, "nothing was touched");
        let options = Options { replaces_foreign: true, ..bench.options.clone() };
        apply(&bench.plan, bench.role(), &options, &mut Network::default(), &mut |_step| {})
            .expect("applied");
        assert_ne!(dump(), before);
        bench.revert();
        assert_same(&dump(), &before, "after the revert");
    });
}

#[test]
fn a_nexthop_that_others_use_by_now_is_left_with_its_users_named_root() {
    in_namespace("used", PLAN, |bench| {
        bench.apply().expect("applied");
        must("ip route add 192.0.2.0/24 nhid 7701 proto static");
        let outcomes = bench.revert();
        let refused = outcomes.iter().find_map(|one| match &one.result {
            Reverted::Failed { reason, .. } => Some(reason.clone()),
            _settled => None,
        });
        let reason = refused.expect("it is in use");
        assert!(
            reason.contains("nexthop:7701: the route to 192.0.2.0/24 of protocol 4 uses it"),
            "{reason}"
        );
        assert!(dump().contains("192.0.2.0/24"));
        must("ip route del 192.0.2.0/24");
        bench.revert();
        assert!(!dump().contains("proto 77"));
    });
}

#[test]
fn an_object_that_somebody_changed_since_is_left_root() {
    in_namespace("theirs", PLAN, |bench| {
        bench.apply().expect("applied");
        must("ip route replace 10.100.0.3/32 via 10.10.0.250 dev ib0 proto static");
        let outcomes = bench.revert();
        let foreign: Vec<_> =
            outcomes.iter().filter(|one| matches!(one.result, Reverted::Foreign { .. })).collect();
        assert_eq!(foreign.len(), 1, "{outcomes:?}");
        assert!(dump().contains("10.100.0.3"));
    });
}

#[test]
fn settings_of_an_interface_that_was_renamed_are_restored_root() {
    in_namespace("named", PLAN, |bench| {
        must("sysctl -qw net.ipv4.conf.ib0.accept_redirects=1");
        let before = dump();
        bench.apply().expect("applied");
        must("ip link set ib0 name lan0");
        let left: Vec<_> =
            bench.revert().into_iter().filter(|one| !one.result.is_settled()).collect();
        assert!(left.is_empty(), "{left:?}");
        must("ip link set lan0 name ib0");
        assert_same(&dump(), &before, "after the revert");
    });
}

#[test]
fn gateways_that_are_not_on_the_link_are_named_root() {
    in_namespace("link", PLAN, |bench| {
        let said = || off_link(&bench.plan, bench.role());
        assert_eq!(said(), None);
        for line in ["ip addr del 10.10.0.21/24 dev ib0", "ip addr add 10.10.0.21/32 dev ib0"] {
            must(line);
        }
        let why = said().expect("they are not");
        assert_eq!(
            why,
            "not reachable on the link of ib0: g1 (10.10.0.11) and 2 more; the interface needs the address 10.10.0.21/24 of the network \
             'storage'"
        );
        assert!(drifts_of(bench).contains(&DriftKind::Interface));
        // One gateway alone may have a route of its own.
        for last in 11..=13 {
            must(&format!("ip route add 10.10.0.{last}/32 dev ib0"));
        }
        assert_eq!(said(), None);
        bench.apply().expect("applied");
    });
}

/// Plans of both families share a journal: nexthops of one lie between routes of the other.
#[test]
fn plans_of_both_families_stand_side_by_side_and_go_with_one_revert_root() {
    let numbers = "protocol = 79\nnexthop_ids = 107700\ntables = 400\n";
    let other = ipv6(PLAN).replace("\"small\"", "\"other\"") + numbers;
    in_namespace("both", PLAN, |bench| {
        furnish();
        must("ip rule del pref 5000");
        must("ip -6 rule del pref 5000");
        let before = dump();
        bench.apply().expect("applied");
        let other = parse_plan("other", &other).expect("right");
        let role = other.find("s1").expect("there");
        apply(&other, role, &bench.options, &mut Network::default(), &mut |_step| {})
            .expect("applied beside it");
        assert_eq!(drifts_of(bench), []);
        assert_eq!(bench.apply().expect("applied").commands, [] as [String; 0]);
        let left: Vec<_> =
            bench.revert().into_iter().filter(|one| !one.result.is_settled()).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_same(&dump(), &before, "after the revert");
    });
}

#[test]
fn a_plan_applied_at_every_boot_keeps_one_journal_root() {
    in_namespace("boot", PLAN, |bench| {
        furnish();
        let before = dump();
        let journal = bench.options.state.join("journal");
        let mut lengths = Vec::new();
        for boot in 0..3 {
            bench.apply().expect("applied");
            let text = std::fs::read_to_string(&journal).expect("a journal");
            lengths.push(text.len());
            // What a boot leaves: another name of the boot, settings at their defaults, none of the objects.
            let own = text.split('"').nth(9).expect("the boot").to_owned();
            std::fs::write(&journal, text.replacen(&own, &format!("boot-{boot}"), 1))
                .expect("written");
            for line in [
                "ip nexthop flush proto 77",
                "ip route del 10.100.0.0/16 metric 4096",
                "sysctl -qw net.ipv4.fib_multipath_hash_policy=2 net.ipv4.fib_multipath_hash_seed=99",
            ] {
                must(line);
            }
        }
        bench.apply().expect("applied");
        assert!(lengths.iter().all(|length| length.abs_diff(lengths[0]) < 32), "{lengths:?}");
        bench.revert();
        assert_same(&dump(), &before, "after the revert");
    });
}

#[test]
fn a_drained_gateway_stays_drained_until_it_is_put_back_root() {
    for kind in ["\"pairs\"", "\"hash\"", "\"resilient\""] {
        in_namespace("drained", &PLAN.replace("\"pairs\"", kind), |bench| {
            let before = dump();
            assert!(
                matches!(set_drained(bench, 1, true), Err(DrainError::NotApplied(_))),
                "{kind}"
            );
            bench.apply().expect("applied");
            let applied = dump();
            assert!(set_drained(bench, 1, true).expect("drained") >= 2, "{kind}");
            assert_eq!(set_drained(bench, 1, true).expect("drained already"), 0);
            let is_over_it = |last: u8| {
                must(&format!("ip route get 10.100.0.{last}")).contains("via 10.10.0.12 ")
            };
            assert!(!(1..=40).any(is_over_it), "{kind}: {}", dump());
            assert!(
                bench.apply().expect("applied").commands.is_empty(),
                "{kind}: it stays drained"
            );
            assert_eq!(drifts_of(bench), [], "{kind}");
            set_drained(bench, 0, true).expect("drained");
            assert!(matches!(set_drained(bench, 2, true), Err(DrainError::Last { .. })), "{kind}");
            set_drained(bench, 0, false).expect("put back");
            set_drained(bench, 1, false).expect("put back");
            // Buckets of a resilient group return as they fall idle.
            if !kind.contains("resilient") {
                assert_same(&dump(), &applied, kind);
            }
            set_drained(bench, 2, true).expect("drained");
            bench.revert();
            assert_same(&dump(), &before, kind);
            assert!(!bench.options.state.join("drained").exists());
        });
    }
}

/// What a watcher has found is not undone by draining another gateway.
#[test]
fn a_failed_gateway_gets_no_flows_back_by_draining_another_root() {
    in_namespace("failed", PLAN, |bench| {
        bench.apply().expect("applied");
        let found = read_host(bench.plan.family, []).expect("read");
        let mut socket = NetlinkSocket::open().expect("a socket");
        let failed: (&[bool], &[bool]) = (&[], &[false, true, true]);
        move_flows(&bench.plan, bench.role(), &found.interfaces, &mut socket, failed)
            .expect("moved");
        set_drained(bench, 1, true).expect("drained");
        for last in 1..=4 {
            let way = must(&format!("ip route get 10.100.0.{last}"));
            assert!(way.contains("via 10.10.0.13 "), "{way}");
        }
        assert!(matches!(set_drained(bench, 2, true), Err(DrainError::Last { .. })));
    });
}

#[test]
fn a_plan_that_the_kernel_refuses_in_the_middle_leaves_nothing_behind_root() {
    in_namespace("refused", PLAN, |bench| {
        furnish();
        // The gateways are no longer on the link: routes and nexthops are refused, settings are not.
        must("ip addr del 10.10.0.21/24 dev ib0");
        let before = dump();
        let made = bench.apply().expect("it is undone");
        let failed = made.applied.outcomes.iter().any(|one| {
            matches!(&one.result, tuning::ChangeResult::Failed { reason, .. } if reason.contains("nexthop:77"))
        });
        assert!(failed && made.applied.left.is_empty(), "{:?}", made.applied);
        assert_same(&dump(), &before, "after the refusal");
        assert!(!bench.options.state.join("journal").exists());
    });
}

/// Make before break: while plans of every kind follow each other, every look-up of the way to a host finds one.
#[test]
fn packets_find_a_way_while_plans_change_root() {
    let kinds = ["\"pairs\"", "\"hash\"", "\"resilient\""];
    let plans: Vec<Plan> = kinds
        .iter()
        .map(|kind| parse_plan("plan", &PLAN.replace("\"pairs\"", kind)).expect("right"))
        .collect();
    in_namespace("change", PLAN, |bench| {
        bench.apply().expect("applied");
        let is_over = AtomicBool::new(false);
        let (changes_count, (asked_count, lost)) = thread::scope(|scope| {
            let asker = scope.spawn(|| {
                let mut socket = NetlinkSocket::open().expect("a socket");
                let (mut asked_count, mut lost) = (0, Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    for last in 1..=4 {
                        let to = std::net::Ipv4Addr::new(10, 100, 0, last).into();
                        let question = netlink::RouteQuestion::to(to).message();
                        asked_count += 1;
                        lost.extend(socket.find::<netlink::Route>(&question).err());
                    }
                }
                (asked_count, lost)
            });
            let mut changes_count = 0;
            for plan in (0..60).map(|round| &plans[round % 3]) {
                let role = plan.find("s1").expect("there");
                let mut world = Network::default();
                let made = apply(plan, role, &bench.options, &mut world, &mut |_step| {});
                changes_count += made.expect("applied").commands.len();
            }
            is_over.store(true, Ordering::Relaxed);
            (changes_count, asker.join().expect("the asker"))
        });
        assert!(lost.is_empty(), "{} of {asked_count} look-ups: {:?}", lost.len(), lost.first());
        assert!(changes_count > 200 && asked_count > 1000, "{changes_count} {asked_count}");
    });
}

/// What ten thousand clients need of a storage host, and what a failure of a gateway costs it.
#[test]
fn ten_thousand_routes_are_applied_and_a_third_of_them_moved_by_few_messages_root() {
    let plan =
        PLAN.replace("c[1-4]", "c[1-10000]").replace("10.100.0.[1-4]", "10.100.[64-103].[1-250]");
    in_namespace("many", &plan, |bench| {
        let before = dump();
        let began = Instant::now();
        let made = bench.apply().expect("applied");
        let applied_s = began.elapsed().as_secs_f64();
        assert_eq!(made.commands.iter().filter(|one| one.contains("nhid")).count(), 10_000);
        let found = read_host(bench.plan.family, []).expect("read");
        let mut socket = NetlinkSocket::open().expect("a socket");
        let began = Instant::now();
        let moved = move_flows(
            &bench.plan,
            bench.role(),
            &found.interfaces,
            &mut socket,
            (&[], &[true, false, true]),
        )
        .expect("moved");
        let moved_s = began.elapsed().as_secs_f64();
        // Two groups of pairs and the plain route beneath.
        assert_eq!(moved, 3);
        let way = must("ip route get 10.100.64.2");
        assert!(!way.contains("10.10.0.12"), "{way}");
        let began = Instant::now();
        bench.revert();
        let reverted_s = began.elapsed().as_secs_f64();
        assert_same(&dump(), &before, "after the revert");
        println!("applied {applied_s:.3} s, moved {moved_s:.4} s, reverted {reverted_s:.3} s");
    });
}

/// All look at a bare host, and one after the other changes it.
#[test]
fn of_several_applies_at_once_each_change_is_made_by_one_root() {
    in_namespace("atonce", PLAN, |bench| {
        let before = dump();
        let alone = bench.apply().expect("applied").commands.len();
        bench.revert();
        assert_same(&dump(), &before, "after the first revert");
        let made: Vec<usize> = thread::scope(|scope| {
            let apply = || bench.apply().expect("applied").commands.len();
            let appliers: Vec<_> = (0..4).map(|_one| scope.spawn(apply)).collect();
            appliers.into_iter().map(|one| one.join().expect("no panic")).collect()
        });
        assert_eq!(made.iter().sum::<usize>(), alone, "{made:?}");
        assert!(check(&bench.plan, bench.role(), &[]).expect("it can be read").is_empty());
        bench.revert();
        assert_same(&dump(), &before, "after the last revert");
    });
}
