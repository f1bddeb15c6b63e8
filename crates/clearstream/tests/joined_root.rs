//! `io` and `meta` joined with gateways: in the lab `cumulus` with its file system, over many hosts as by ssh, and the
//! verdicts and pages made from that. Needs root or user namespaces, and MooseFS.

use std::process::Command;

use results::{CarriedFlow, LoadWay, Results, Role};

use crate::PROGRAM;
use crate::filesystem_root::{Lab, run};

const BYTES: u64 = 4 << 20;

fn told(arguments: &[&str]) -> String {
    let done = run(arguments);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(done.stdout).expect("text")
}

fn results_of(text: &str) -> Results {
    results::read_results(text.as_bytes()).expect("a results document")
}

fn ready() -> Lab {
    let lab = Lab::up();
    told(&["gateway", "apply", "cumulus", "--lab", &lab.name]);
    lab
}

#[test]
fn what_gateways_carry_is_joined_with_each_phase_root() {
    let lab = ready();
    let name = lab.name.as_str();
    let joined = ["--lab", name, "--gateways", "cumulus", "--json"];
    let load = "--hosts c1,c2 --ranks 2 -- -w -r -C -e -F -b 4m -t 1m -o /mnt/pfs/f";
    let words: Vec<&str> = ["io"].into_iter().chain(joined).chain(load.split(' ')).collect();
    let results = results_of(&told(&words));
    assert_eq!(results.points.len(), 2);
    for point in &results.points {
        let (carried, seen) = point.crossing().expect("joined");
        assert_eq!((seen.load, carried.absent.len()), (2 * BYTES, 0));
        // Each rank wrote as its host, and read what the other wrote: no cache of one client holds it.
        assert_eq!(seen.cached, None, "{carried:#?}");
        let times = seen.amplification.expect("bytes");
        assert!((0.95..2.0).contains(&times), "{times}: {carried:#?}");
        let shares: f64 = seen.gateways.iter().map(|gateway| gateway.share).sum();
        assert!((shares - 1.0).abs() < 1e-9 && seen.gateways.len() == 3);
        assert_eq!(carried.of_role(Role::Storage).count(), 2);
        assert_eq!(carried.of_role(Role::Client).count(), 2);
        // Servers got what the gateways sent them.
        if seen.way == LoadWay::Written {
            let ports = carried.of_role(Role::Storage).flat_map(|host| &host.ports);
            let received: u64 = ports.map(|port| port.counters.rx_bytes).sum();
            let sent: u64 = seen.gateways.iter().map(|gateway| gateway.server_side_bytes).sum();
            assert!(received >= 2 * BYTES && sent >= 2 * BYTES, "{received} {sent}");
        }
        // Both ends of each connection counted it, and the plan says what carries it.
        let moved = carried.connections.iter().map(|one| match seen.way {
            LoadWay::Written => one.written_bytes,
            _ => one.read_bytes,
        });
        assert!(moved.sum::<u64>() >= 2 * BYTES, "{:#?}", carried.connections);
        for one in &carried.connections {
            let pair = |flow: &&CarriedFlow| flow.client == one.client && flow.server == one.server;
            let planned = carried.flows.iter().find(pair).map(|flow| flow.gateway.as_str());
            assert_eq!(one.gateway.as_deref(), planned, "{one:?}");
        }
        let mut trips = carried.connections.iter().filter_map(|one| one.round_trip_s).peekable();
        assert!(trips.peek().is_some() && trips.all(|trip_s| trip_s > 0.0 && trip_s < 10.0));
        assert!(carried.shares_cores, "all hosts of a lab have the cores of this machine");
        // 2 clients, 2 servers; the plan says by which gateway.
        assert_eq!(carried.flows.len(), 4);
        assert!(carried.flows.iter().any(|flow| flow.client == "c2" && flow.server == "s1"));
    }
    // What the file gives: a verdict, and a page with a figure of the gateways.
    let file = lab.folder.join("joined.json");
    std::fs::write(&file, serde_json::to_string(&results).expect("JSON")).expect("written");
    let file = file.to_str().expect("text");
    assert!(told(&["explain", file]).contains("Verdict"));
    let page = lab.folder.join("page.html");
    told(&["report", file, "-o", page.to_str().expect("text")]);
    let page = std::fs::read_to_string(&page).expect("a page");
    assert!(page.contains("gateways-0") && page.contains("busiest gateway"));
}

#[test]
fn a_cache_is_named_and_calls_cross_root() {
    let lab = ready();
    let name = lab.name.as_str();
    let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    let tell = |line: &str| {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        told(&words)
    };
    let joined = format!("--lab {name} --gateways cumulus");
    // Reading nothing from the file system at all: the file is in the client's memory.
    let local = lab.folder.join("local");
    let text = tell(&format!("io {joined} -w -r -b 4m -t 1m -o {}", local.display()));
    assert!(text.contains("cached at the client"), "{text}");
    let server = text.lines().find(|line| line.contains(" server ")).expect("servers are shown");
    assert!(server.contains("0 dropped") && server.contains("retransmissions"), "{server}");
    // Of a gateway whose interface has another name nothing is known: that is not nothing.
    let plan =
        include_str!("../../../labs/gateways/cumulus.toml").replacen("\"eth1\"", "\"ib9\"", 1);
    let other = lab.folder.join("other.toml");
    std::fs::write(&other, plan).expect("written");
    let text = tell(&format!(
        "io --lab {name} --gateways {} -w -b 4m -t 1m -o {}",
        other.display(),
        local.display()
    ));
    assert!(text.contains("no counters: it has no interface ib9, which the plan names"), "{text}");
    assert!(!text.contains("cached at"), "{text}");
    let text = tell(&format!("meta {joined} --json -n 100 -F -d /mnt/pfs/d"));
    let results = results_of(&text);
    let created = results.points.iter().find(|point| point.experiment == "file-creation");
    let (_, seen) = created.and_then(|point| point.crossing()).expect("joined");
    assert_eq!((seen.way, seen.load, seen.cached), (LoadWay::Calls, 100, None), "{seen:?}");
}

#[test]
fn hosts_are_asked_as_by_ssh_root() {
    let lab = ready();
    let shell = lab.folder.join("shell");
    // What stands for ssh; nobody can reach g3.
    let text = format!(
        "#!/bin/sh\nhost=$1; shift\n[ $host = g3 ] && exit 1\n\
         exec {PROGRAM} lab exec {} \"$host\" -- sh -c \"$*\"\n",
        lab.name
    );
    std::fs::write(&shell, text).expect("written");
    let ssh = format!("sh {}", shell.display());
    // Of this host the plan says nothing.
    let words = format!(
        "io --gateways cumulus --there {PROGRAM} --json -w -e -b 1m -t 1m -o {}",
        lab.folder.join("file").display()
    );
    let load = |host: &str| {
        let line = format!("hostname {host} && exec {PROGRAM} {words} --ssh '{ssh}'");
        Command::new("unshare").args(["-u", "sh", "-c", &line]).output().expect("unshare")
    };
    let done = load("stranger");
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{errors}");
    assert!(errors.contains("the ranks run on stranger"), "{errors}");
    let done = load("c1");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let results = results_of(&String::from_utf8(done.stdout).expect("text"));
    let (carried, seen) = results.points[0].crossing().expect("joined");
    assert_eq!(carried.of_role(Role::Gateway).count(), 2);
    let absent: Vec<&str> = carried.absent.iter().map(|one| one.host.as_str()).collect();
    assert_eq!(absent, ["g3"]);
    assert!(carried.absent[0].why.contains("does not answer"), "{carried:?}");
    assert_eq!((seen.cached, seen.amplification), (None, None), "nobody knows what g3 carried");
}
