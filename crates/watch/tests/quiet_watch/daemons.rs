//! BFD with stock daemons: BIRD and FRR's bfdd, over one hop and over several.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use liveness::bfd::Hops;
use serde_json::json;
use testkit::stalls::Machine;
use watch::BfdPeer;

use crate::rig::{Daemon, Failure, Place, Rig};
use crate::watched::{Watched, address, options};

/// Between packets of both ends: slow enough for a machine whose cores stop for 100 ms and more.
const INTERVAL_MS: u32 = 200;
/// A stop of this machine that may cost a session: detection takes three intervals, of which packets leave two.
const STOP_MAX_NS: u64 = 2 * INTERVAL_MS as u64 * 1_000_000;

/// A folder of this test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("clearstream-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn name(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn is_missing(program: &str, package: &str) -> bool {
    let is_missing = !Path::new(program).exists();
    if is_missing {
        eprintln!("skipped: needs {package}");
    }
    is_missing
}

/// The host speaks BFD with gateway 0 over one hop and with the far host over several, through gateway 1, though its own
/// route to the far host is by gateway 0. The far host's route back is by gateway 1.
fn watch_with_bfd(rig: &Rig, ttl_min: u8) -> Watched {
    let mut options = options(false);
    options.bfd.desired_min_tx_us = INTERVAL_MS * 1000;
    options.bfd.required_min_rx_us = INTERVAL_MS * 1000;
    for gateway in &mut options.gateways {
        gateway.is_probed = false;
    }
    let peer = |place, hops| Some(BfdPeer { address: address(false, place), hops });
    options.gateways[0].bfd = peer(Place::Gateway(0), Hops::One);
    options.gateways[1].bfd = peer(Place::Far, Hops::Several { ttl_min });
    rig.ip(Place::Host, "route add 10.10.0.0/24 via 10.100.0.91");
    rig.ip(Place::Far, "route add 10.100.0.0/16 via 10.10.0.12");
    Watched::start(rig, options)
}

/// Up; down when its gateway hangs and no other one, up again when that is back; and no flapping.
fn fails_and_comes_back(rig: &Rig, watched: &Watched) {
    let machine = Machine::watch();
    if !is_steady(rig, watched, &machine) {
        println!("skipped: this machine stands still too long for BFD");
    }
}

/// False where a session was lost because neither end's processor ran.
fn is_steady(rig: &Rig, watched: &Watched, machine: &Machine) -> bool {
    let longest = Duration::from_secs(10);
    let longest_stop_ns =
        || machine.take_stalls().iter().map(|stop| stop.length_ns()).max().unwrap_or(0);
    let are_all = |of_bfd: usize| {
        let events = watched.events.events();
        let is_bfd = |event: &&serde_json::Value| event["event"] == "bfd";
        let is_steady =
            of_bfd == events.iter().filter(is_bfd).count() && (of_bfd > 0 || events.is_empty());
        let stop_ns = longest_stop_ns();
        assert!(
            is_steady || stop_ns > STOP_MAX_NS,
            "flapping, and no core stopped for more than {stop_ns} ns: {events:#?}"
        );
        is_steady
    };
    let come = |names: &[&str], what: &str| {
        for name in names {
            let wanted = [("event", json!("bfd")), ("name", json!(name)), ("says", json!(what))];
            println!("{name} {what} after {:?}", watched.events.wait(longest, &wanted));
        }
        let is_as_said = are_all(names.len());
        watched.events.clear();
        is_as_said
    };
    // What is steered can be heard before the state for which it is steered is written.
    let counts_as_up = |name: &str| {
        let wanted = [("event", json!("state")), ("name", json!(name)), ("to", json!("up"))];
        watched.events.wait(longest, &wanted);
    };
    let stays_up = || {
        std::thread::sleep(Duration::from_millis(8 * u64::from(INTERVAL_MS)));
        are_all(0)
    };
    if !(come(&["g0", "g1"], "up") && stays_up()) {
        return false;
    }
    for (gateway, name, others) in [(0, "g0", [1, 2]), (1, "g1", [0, 2])] {
        rig.fail(gateway, Failure::Hang);
        if !come(&[name], "down") {
            return false;
        }
        watched.steered(&others);
        rig.repair(gateway, Failure::Hang);
        counts_as_up(name);
        if !come(&[name], "up") {
            return false;
        }
        watched.steered(&[0, 1, 2]);
        watched.events.clear();
        if !stays_up() {
            return false;
        }
    }
    true
}

fn bird(rig: &Rig, folder: &Folder, place: Place, id: &str, neighbour: &str) -> Daemon {
    let timers = format!(
        "min rx interval {INTERVAL_MS} ms; min tx interval {INTERVAL_MS} ms; multiplier 3;"
    );
    let text = format!(
        "router id {id};\nprotocol device {{ scan time 1; }}\nprotocol bfd b {{\n\
         interface \"*\" {{ {timers} }};\nmultihop {{ {timers} }};\nneighbor {neighbour};\n}}\n"
    );
    let config = folder.file("bird.conf", &text);
    let socket = folder.name("bird.ctl");
    rig.daemon(place, "/usr/sbin/bird", &["-f", "-c", &config, "-s", &socket])
}

#[test]
fn root_bird_comes_up_over_one_hop_and_several_goes_down_and_comes_up_again() {
    let Some(rig) = Rig::up() else { return };
    if is_missing("/usr/sbin/bird", "bird2") {
        return;
    }
    let folders = [Folder::new("bird-1"), Folder::new("bird-2")];
    let near = "10.100.0.1 dev \"hsn0\" local 10.100.0.91";
    let _near = bird(&rig, &folders[0], Place::Gateway(0), "10.100.0.91", near);
    let far = "10.100.0.1 local 10.10.0.21 multihop";
    let _far = bird(&rig, &folders[1], Place::Far, "10.10.0.21", far);
    // Over several hops BIRD sends with the system's TTL of 64.
    let watched = watch_with_bfd(&rig, 63);
    fails_and_comes_back(&rig, &watched);
}

/// bfdd learns interfaces from zebra.
fn frr(rig: &Rig, folder: &Folder, place: Place, peer: &str) -> [Daemon; 2] {
    let text = format!(
        "bfd\n peer {peer}\n  receive-interval {INTERVAL_MS}\n  transmit-interval {INTERVAL_MS}\n  \
         detect-multiplier 3\n  no shutdown\n exit\nexit\n"
    );
    let config = folder.file("bfdd.conf", &text);
    let empty = folder.file("zebra.conf", "");
    let (api, vty) = (folder.name("zserv.api"), folder.0.display().to_string());
    let (control, pid) = (folder.name("bfdd.sock"), folder.name("bfdd.pid"));
    let zebra_pid = folder.name("zebra.pid");
    // The daemons give up root.
    let owned = std::process::Command::new("chown").args(["-R", "frr:frr", &vty]).status();
    assert!(owned.unwrap().success());
    let zebra = ["-f", &empty, "-z", &api, "-i", &zebra_pid, "--vty_socket", &vty, "-P", "0"];
    let zebra = rig.daemon(place, "/usr/lib/frr/zebra", &zebra);
    let start = std::time::Instant::now();
    while !Path::new(&api).exists() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let bfdd = [
        "-f",
        &config,
        "-z",
        &api,
        "-i",
        &pid,
        "--vty_socket",
        &vty,
        "-P",
        "0",
        "--bfdctl",
        &control,
    ];
    [zebra, rig.daemon(place, "/usr/lib/frr/bfdd", &bfdd)]
}

#[test]
fn root_bfdd_comes_up_over_one_hop_and_several_goes_down_and_comes_up_again() {
    let Some(rig) = Rig::up() else { return };
    if is_missing("/usr/lib/frr/bfdd", "frr") {
        return;
    }
    let folders = [Folder::new("frr-1"), Folder::new("frr-2")];
    let near = "10.100.0.1 local-address 10.100.0.91 interface hsn0";
    let _near = frr(&rig, &folders[0], Place::Gateway(0), near);
    let far = "10.100.0.1 multihop local-address 10.10.0.21";
    let _far = frr(&rig, &folders[1], Place::Far, far);
    let watched = watch_with_bfd(&rig, 254);
    fails_and_comes_back(&rig, &watched);
}
