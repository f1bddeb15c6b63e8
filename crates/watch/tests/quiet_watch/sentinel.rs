//! A sentinel tells another host, which probes once a second only.

use std::time::Duration;

use serde_json::json;
use watch::{AnnounceOptions, ReflectOptions, Reflecting, SentinelOptions};

use crate::rig::{Failure, Place, Rig};
use crate::watched::{Running, Watched, key, options, settle};
use std::os::fd::AsFd;

#[test]
fn root_a_host_believes_its_sentinel_and_watches_by_itself_once_it_is_silent() {
    let Some(rig) = Rig::up() else { return };
    // Another address of the same host stands for the host that is told.
    rig.ip(Place::Host, "addr add 10.100.0.2/16 dev hsn0");
    let reflected = ReflectOptions {
        plan_id: 7,
        key: key(),
        ports: Default::default(),
        interface: "ib0".to_owned(),
        address: "10.10.0.21".parse().unwrap(),
        sources: ["10.100.0.1", "10.100.0.2"].map(|one| one.parse().unwrap()).to_vec(),
        rate_per_s: 10_000,
        burst_count: 1000,
    };
    let _reflecting = Running::start(rig.door(Place::Far), move |stop| {
        Reflecting::open(&reflected).unwrap().run(stop.as_fd()).unwrap();
    });
    let mut sentinel = options(false);
    sentinel.announce = Some(AnnounceOptions {
        number: 5,
        interval_ms: 100,
        hosts: vec!["10.100.0.2:3997".parse().unwrap()],
    });
    let mut told = options(false);
    told.near = "10.100.0.2".parse().unwrap();
    let relaxed_ns = 1_000_000_000;
    told.sentinels = Some(SentinelOptions { port: 3997, numbers: vec![5], relaxed_ns });
    let sentinel = Watched::start(&rig, sentinel);
    let told = Watched::start(&rig, told);
    settle(&sentinel);
    settle(&told);
    rig.fail(1, Failure::Hang);
    let (seen, heard) = (sentinel.steered(&[0, 2]), told.steered(&[0, 2]));
    let later = heard.saturating_duration_since(seen);
    assert!(
        later < Duration::from_millis(500),
        "told at once, not after the next probe: {later:?}"
    );
    let longest = Duration::from_secs(2);
    told.events.wait(longest, &[("name", json!("g1")), ("cause", json!("reported"))]);
    drop(sentinel);
    rig.repair(1, Failure::Hang);
    told.steered(&[0, 1, 2]);
    told.events.clear();
    std::thread::sleep(Duration::from_millis(500));
    rig.fail(2, Failure::Forwarding);
    told.steered(&[0, 1]);
    told.events.wait(longest, &[("name", json!("g2")), ("cause", json!("probes"))]);
}
