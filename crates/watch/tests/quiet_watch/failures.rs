//! Failures planted in gateways are found in time.

use std::time::Instant;

use liveness::probe::RefusedProbeError;
use liveness::states::WatchConfig;
use serde_json::json;
use stats::Judgement;

use crate::rig::{Failure, Rig};
use crate::watched::{Watched, options, reflect, settle};

/// At 50 ms three times.
const BOUND_MS: u128 = 250;
/// Share of detections that a busy machine makes late.
const LATE_SHARE: f64 = 0.02;

/// How long each failure took to be steered away from, milliseconds; and repaired.
fn detections_ms(rig: &Rig, watched: &Watched, failures: &[Failure]) -> Vec<(Failure, u128)> {
    let mut found = Vec::new();
    for (turn, failure) in failures.iter().enumerate() {
        let gateway = turn % 3;
        let others: Vec<u16> = (0..3).filter(|one| usize::from(*one) != gateway).collect();
        let start = Instant::now();
        rig.fail(gateway, *failure);
        let at = watched.steered(&others);
        found.push((*failure, at.saturating_duration_since(start).as_millis()));
        rig.repair(gateway, *failure);
        watched.steered(&[0, 1, 2]);
    }
    found
}

fn judge(found: &[(Failure, u128)]) {
    let count = u32::try_from(found.len()).unwrap();
    let judgement = Judgement::strictest(count, LATE_SHARE, 1e-4);
    let late = found.iter().filter(|(_, ms)| *ms > BOUND_MS).count();
    println!("{found:?}");
    assert!(judgement.passes(u32::try_from(late).unwrap()), "{found:?}: {judgement}");
}

#[test]
fn root_a_hang_dead_forwarding_and_a_dead_far_port_are_found_within_a_quarter_second() {
    let Some(rig) = Rig::up() else { return };
    let reflecting = reflect(&rig, false);
    let watched = Watched::start(&rig, options(false));
    settle(&watched);
    let failures = [Failure::Forwarding, Failure::Hang, Failure::FarPort].repeat(2);
    let found = detections_ms(&rig, &watched, &failures);
    let states = watched.events.events();
    assert!(
        states.iter().any(|event| event["to"] == "down" && event["name"] == "g1"),
        "{states:?}"
    );
    drop(watched);
    let counters = reflecting.end();
    assert!(counters.accepted_count > 200);
    assert_eq!(counters.refused_count(RefusedProbeError::Forged), 0);
    judge(&found);
}

#[test]
fn root_the_same_is_found_over_ipv6() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, true);
    let watched = Watched::start(&rig, options(true));
    settle(&watched);
    let failures = [Failure::Forwarding, Failure::Hang].repeat(2);
    judge(&detections_ms(&rig, &watched, &failures));
}

#[test]
fn root_an_mtu_black_hole_is_named_and_found_within_a_quarter_second() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, false);
    let mut options = options(false);
    // With the default of 20 it takes a second more: until the next full-size probe is sent.
    options.timing = WatchConfig { full_every: 1, ..options.timing };
    let watched = Watched::start(&rig, options);
    settle(&watched);
    let found = detections_ms(&rig, &watched, &[Failure::MtuHole; 3]);
    let holes = watched.events.events();
    assert!(holes.iter().filter(|event| event["to"] == "mtu_hole").count() >= 3, "{holes:?}");
    assert!(!holes.iter().any(|event| event["to"] == "down" && event["cause"] == "probes"));
    judge(&found);
}

/// The gateway says so itself where it heeds that its far link is down.
#[test]
fn root_icmp_errors_of_a_gateway_are_heard() {
    let Some(rig) = Rig::up() else { return };
    let gateway = crate::rig::Place::Gateway(1);
    rig.sysctl(gateway, "ipv4/conf/all/ignore_routes_with_linkdown", "1");
    rig.sysctl(gateway, "ipv4/conf/ib0/ignore_routes_with_linkdown", "1");
    let _reflecting = reflect(&rig, false);
    let watched = Watched::start(&rig, options(false));
    settle(&watched);
    rig.fail(1, Failure::FarPort);
    watched.steered(&[0, 2]);
    let wanted = [("name", json!("g1")), ("cause", json!("unreachable"))];
    watched.events.wait(std::time::Duration::from_secs(1), &wanted);
}

#[test]
fn root_all_gateways_at_once_are_held() {
    let Some(rig) = Rig::up() else { return };
    let reflecting = reflect(&rig, false);
    let watched = Watched::start(&rig, options(false));
    settle(&watched);
    reflecting.end();
    let longest = std::time::Duration::from_secs(5);
    watched.events.wait(longest, &[("event", json!("all_failed")), ("held", json!([0, 1, 2]))]);
    assert!(watched.told.try_recv().is_err(), "nothing is steered: {:#?}", watched.events.events());
    let _reflecting = reflect(&rig, false);
    watched.events.wait(longest, &[("event", json!("all_failed_ended"))]);
    assert!(watched.told.try_recv().is_err(), "nothing is steered: {:#?}", watched.events.events());
}
