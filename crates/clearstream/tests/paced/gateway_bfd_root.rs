//! BFD over two hops (RFC 5883) in the lab `cumulus`: BIRD on the storage servers, each behind one gateway. Needs root,
//! iproute2 and BIRD 2.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testkit::root::is_root;

use super::gateway_follow_root::Running;
use super::gateway_lab_root::Files;
use super::gateway_watch_root::{Rig, Watcher};

/// Ten times what a session needs to come up.
const NEVER: Duration = Duration::from_secs(5);

/// Nobody is at the third address: `g3` is judged by probes alone.
fn with_peers(text: &str, ttl_min: u8) -> String {
    let peers = "bfd_peers = { compute = \"10.10.0.[21-23]\" }";
    let text = text.replacen("interfaces =", &format!("{peers}\ninterfaces ="), 1);
    format!("{text}\n[watch]\nbfd_ttl_min = {ttl_min}\nbfd = \"multihop\"")
}

fn bird(rig: &Rig, host: &str, address: &str) -> Running {
    let folder = &rig.lab.folder;
    let (config, control) =
        (folder.join(format!("{host}.conf")), folder.join(format!("{host}.ctl")));
    let text = format!(
        "router id {address};\nprotocol device {{ scan time 1; }}\nprotocol bfd b {{\n\
         multihop {{ min rx interval 50 ms; min tx interval 50 ms; multiplier 3; }};\n\
         neighbor 10.100.0.1 local {address} multihop;\n}}\n"
    );
    fs::write(&config, text).expect("written");
    let line = format!("bird -f -c {} -s {}", config.display(), control.display());
    Running::start(&rig.lab, host, &line)
}

fn send(bird: &Running, signal: Signal) {
    rustix::process::kill_process(bird.program, signal).expect("it runs");
}

#[test]
fn bfd_over_two_hops_takes_a_gateway_out_of_use_and_brings_it_back_root() {
    if !is_root() {
        return;
    }
    if !Path::new("/usr/sbin/bird").exists() {
        println!("skipped: needs bird2");
        return;
    }
    // BIRD sends with a TTL of 64, of which the gateway takes one.
    let rig = Rig::up_with("bfd", Files::Without, |text| with_peers(text, 63));
    let birds = [bird(&rig, "s1", "10.10.0.21"), bird(&rig, "s2", "10.10.0.22")];
    // The plan names nobody for the hosts of its network: it speaks no BFD.
    let reflector = Watcher::start(&rig, "s1", &["--far", "c1", "--no-steer"]);
    let watcher = Watcher::start(&rig, "c1", &["--far", "s1"]);
    for name in ["g1", "g2"] {
        watcher.bfd_says(name, "up");
    }
    // Probes are answered all the time: what takes a gateway out of use is its session.
    for (bird, name, others) in [(&birds[0], "g1", ["g2", "g3"]), (&birds[1], "g2", ["g1", "g3"])] {
        send(bird, Signal::STOP);
        watcher.bfd_says(name, "down");
        watcher.leads_over(&others);
        send(bird, Signal::CONT);
        watcher.bfd_says(name, "up");
        watcher.leads_over(&["g1", "g2", "g3"]);
    }
    drop(watcher);

    // What comes from farther away than the plan allows is not heard.
    rig.apply(&|text| with_peers(text, 64));
    let watcher = Watcher::start(&rig, "c1", &["--far", "s1", "--no-steer"]);
    thread::sleep(NEVER);
    let heard = watcher.events().into_iter().filter(|event| event["says"] == "up").count();
    assert_eq!(heard, 0, "{:#?}", watcher.events());
    drop((watcher, reflector));

    let refused =
        rig.command("s2", &["--far", "c1", "--bfd=multihop"]).output().expect("the program starts");
    let told = String::from_utf8_lossy(&refused.stderr);
    let reason = "no [[gateway]] of the plan has `bfd_peers` for 'storage', the network of s2";
    assert!(told.contains(reason) && told.lines().count() == 1, "{told}");
    assert_eq!(refused.status.code(), Some(2), "{told}");
}
