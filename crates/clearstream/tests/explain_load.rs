//! `clearstream explain --after` on stored results of `io`: what a change did to each phase's rate.

use std::fs;
use std::process::{Command, Output};

use results::{
    Carried, CarriedHost, CarriedPort, DeviceCounters, Figure, FileIoWork, Point, Results, Role,
    RunKind, TestOutcome, Work,
};
use serde_json::Value;
use sys::private::Scratch;

use crate::PROGRAM;

const LOAD: u64 = 100_000_000;
const SLOW: [f64; 5] = [1.00e8, 1.01e8, 0.99e8, 1.02e8, 0.98e8];
const FAST: [f64; 5] = [2.00e8, 2.01e8, 1.99e8, 2.02e8, 1.98e8];

/// What one gateway carried of a read, and how many packets it dropped.
fn carried(drops: u64) -> Carried {
    let out = DeviceCounters {
        tx_bytes: LOAD,
        rx_pkts: LOAD / 8000,
        tx_pkts: LOAD / 8000,
        tx_drops_count: drops,
        ..DeviceCounters::default()
    };
    let inward = DeviceCounters { rx_bytes: LOAD, ..DeviceCounters::default() };
    let port =
        |is_client_side, counters| CarriedPort { network: String::new(), is_client_side, counters };
    let gateway = CarriedHost {
        host: "g0".to_owned(),
        role: Role::Gateway,
        ports: vec![port(true, out), port(false, inward)],
        retransmits_count: None,
        busiest_core: None,
    };
    Carried { plan: "planted".to_owned(), hosts: vec![gateway], ..Carried::default() }
}

/// Reads at these rates, over a gateway where `drops` are given.
fn load(rates: &[f64], transfer_bytes: u64, drops: Option<u64>) -> Results {
    let point = |(rate, repeat): (&f64, u32)| Point {
        repeat,
        ..Point::new(
            "read-0",
            Work::FileIo(FileIoWork {
                access: "read".to_owned(),
                path: "/pfs/f".to_owned(),
                has_file_per_rank: true,
                ranks_count: 1,
                block_bytes: LOAD,
                transfer_bytes,
                segments_count: 1,
                by: "pread".to_owned(),
                options: Some(Default::default()),
            }),
            TestOutcome {
                figures: vec![
                    Figure::new("moved_bytes_per_s", *rate),
                    Figure::new("moved_bytes", LOAD as f64),
                ],
                carried: drops.map(carried),
                ..TestOutcome::default()
            },
        )
    };
    let points = rates.iter().zip(0..).map(point).collect();
    Results { points, ..Results::begun(RunKind::Io, 0) }
}

/// What `explain BEFORE --after AFTER` says.
fn explain(before: &Results, after: &Results, more: &[&str]) -> Output {
    let folder = Scratch::new("explain-load").expect("a folder");
    let write = |name: &str, results: &Results| {
        let path = folder.path().join(name);
        fs::write(&path, serde_json::to_vec(results).expect("JSON")).expect("written");
        path
    };
    let (before, after) = (write("before.json", before), write("after.json", after));
    let mut command = Command::new(PROGRAM);
    command.arg("explain").arg(before).arg("--after").arg(after).args(more);
    command.output().expect("the program starts")
}

fn text(before: &Results, after: &Results) -> String {
    let told = explain(before, after, &[]);
    assert_eq!(told.status.code(), Some(0), "{}", String::from_utf8_lossy(&told.stderr));
    String::from_utf8(told.stdout).expect("text")
}

#[test]
fn the_rates_of_io_confirm_its_verdict_or_say_that_they_do_not() {
    let (before, after) = (load(&SLOW, 1 << 20, Some(500)), load(&FAST, 1 << 20, Some(0)));
    let out = text(&before, &after);
    for words in [
        "Verdict  gateway, confirmed by experiment",
        "After    gateway confirmed by the change: faster beyond the noise: read",
        "read: throughput 95.4 MiB/s -> 191 MiB/s (+100%",
        "n 5, 5): risen",
        "Then     none-found",
    ] {
        assert!(out.contains(words), "no '{words}' in {out}");
    }
    let told = explain(&before, &after, &["--json"]);
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(
        (&told["verdict"]["confirmed"], &told["after"]["trial"]),
        (&true.into(), &"confirmed".into())
    );
    assert_eq!(told["after"]["rates"][0]["outcome"], "better", "{told}");
    assert!(told["verdict"].get("confirmation").is_none(), "no rate was predicted: {told}");

    let mut again = before.clone();
    again.points.iter_mut().for_each(|point| point.started_unix_ms = 1);
    let vain = text(&before, &again);
    assert!(vain.contains("Verdict  gateway, not confirmed"), "{vain}");
    assert!(vain.contains("gateway not confirmed by the change: no rate changed"), "{vain}");
    assert!(vain.contains("Changed  no recorded fact"), "{vain}");
    let few = text(&load(&SLOW[..2], 1 << 20, Some(500)), &after);
    assert!(few.contains("too few repeats to tell any difference"), "{few}");
    // A load with other transfers may be faster for that.
    let other = text(&before, &load(&FAST, 4 << 20, Some(0)));
    assert!(other.contains("gateway neither confirmed nor refuted: the settings"), "{other}");
    assert!(other.contains("settings differ: transfer 1.00 MiB -> 4.00 MiB"), "{other}");
}

#[test]
fn a_load_is_told_by_its_rates_and_has_no_symptoms_of_a_path() {
    let folder = Scratch::new("explain-load-rates").expect("a folder");
    let path = folder.path().join("io.json");
    let results = load(&SLOW, 1 << 20, None);
    fs::write(&path, serde_json::to_vec(&results).expect("JSON")).expect("written");
    let told = Command::new(PROGRAM).arg("explain").arg(&path).output().expect("it starts");
    let out = String::from_utf8_lossy(&told.stdout);
    assert!(out.contains("\n         read 95.4 MiB/s ("), "{out}");
    let refused = Command::new(PROGRAM)
        .arg("explain")
        .arg(&path)
        .arg("--symptoms")
        .output()
        .expect("it starts");
    let line = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{line}");
    assert!(line.contains("symptoms exist only for network tests"), "{line}");
}

#[test]
fn io_without_a_verdict_has_its_rates_compared_and_nothing_confirmed() {
    let (before, after) = (load(&SLOW, 1 << 20, None), load(&FAST, 1 << 20, None));
    let out = text(&before, &after);
    for words in
        ["none-found", "faster beyond the noise: read", "nothing is confirmed", "--gateways"]
    {
        assert!(out.contains(words), "no '{words}' in {out}");
    }
    let told = explain(&before, &Results::begun(RunKind::Io, 0), &[]);
    let line = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!((told.status.code(), line.lines().count()), (Some(1), 1), "{line}");
    assert!(line.contains("no file-system phase in common"), "{line}");
}

#[test]
fn a_load_without_gateways_is_called_one_and_an_incomplete_run_incomplete() {
    let folder = Scratch::new("explain-load").expect("a folder");
    let path = folder.path().join("cut.json");
    let told = |results: &Results| {
        fs::write(&path, serde_json::to_vec(results).expect("JSON")).expect("written");
        let mut command = Command::new(PROGRAM);
        command.arg("explain").arg(&path).output().expect("the program starts")
    };
    let partial = Some("interrupted by signal 2".to_owned());
    let cut = Results { partial, ..load(&SLOW, 1 << 20, None) };
    let out = String::from_utf8(told(&cut).stdout).expect("text");
    for words in [
        "Load     of a file system",
        "not complete: interrupted by signal 2",
        "no counters of gateways and servers were",
        "--gateways PLAN",
    ] {
        assert!(out.contains(words), "no '{words}' in {out}");
    }
    assert!(!out.contains("TCP") && !out.contains("unnamed host"), "{out}");
    let nothing = told(&Results { points: Vec::new(), ..cut });
    let line = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert_eq!((nothing.status.code(), line.lines().count()), (Some(1), 1), "{line}");
    assert!(line.contains("nothing to explain; the run is not complete: interrupted"), "{line}");
}
