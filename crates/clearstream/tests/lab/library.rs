//! The library's bed: a lab as a value.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lab::{Lab, LabError, ScopedLab};
use rustix::fs::{FlockOperation, flock};
use sys::process::{Ending, Owned};

use crate::PROGRAM;

const LINK: &str =
    "[host.near]\n[host.far]\n[[link]]\nbetween = [\"near\", \"far\"]\ndelay = \"1ms\"\n";

fn name(purpose: &str) -> String {
    format!("bed-{purpose}-{}", std::process::id())
}

/// `None` after saying why it cannot be here.
fn up(purpose: &str) -> Option<ScopedLab> {
    match ScopedLab::inline(&format!("name = \"{}\"\n{LINK}", name(purpose)), PROGRAM) {
        Ok(bed) => Some(bed),
        Err(error) if error.is_missing_privilege() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Bytes that a host's link has sent.
fn sent_bytes(bed: &ScopedLab, host: &str) -> u64 {
    let devices = bed.devices(host).expect("its counters");
    devices.iter().find(|device| device.interface == "eth0").expect("its link").tx_bytes
}

#[test]
fn root_counters_of_a_host_are_read_in_its_own_network_and_without_a_program_there() {
    let Some(bed) = up("counters") else { return };
    let before = (sent_bytes(&bed, "near"), sent_bytes(&bed, "far"));
    let mut ping = bed.command("near");
    ping.args(["ping", "-c", "5", "-i", "0.2", "-s", "1000", "-q", "far"]).stdin(Stdio::null());
    let ping = Owned::start(ping.stdout(Stdio::null()), Ending::KILL).expect("ping");
    assert!(ping.ended_within(Duration::from_secs(20)).expect("in time").status.success());
    let after = (sent_bytes(&bed, "near"), sent_bytes(&bed, "far"));
    assert!(after.0 - before.0 >= 5000 && after.1 - before.1 >= 5000, "{before:?} {after:?}");
    assert!(after.0 - before.0 < 20_000, "of nobody else: {before:?} {after:?}");
    let unknown = bed.devices("nowhere").expect_err("no such host");
    assert!(matches!(unknown, LabError::UnknownHost { .. }), "{unknown}");
    let name = bed.name().to_owned();
    drop(bed);
    assert!(matches!(Lab::open(&name), Err(LabError::NotUp { .. })));
}

#[test]
fn root_a_server_is_waited_for_and_one_that_ends_is_told() {
    let Some(bed) = up("server") else { return };
    let far = bed.host(1).expect("two hosts");
    let quiet = |mut command: Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Owned::start(&mut command, Ending::KILL).expect("it starts")
    };
    assert!(!bed.has_listener(far, 5201).expect("it is up"));
    let mut serve = bed.clearstream(far);
    serve.arg("serve");
    let mut server = quiet(serve);
    bed.wait_for_listener((far, 5201), &mut server, Duration::from_secs(20)).expect("it listens");
    assert!(!bed.has_listener("near", 5201).expect("it is up"), "not on the other host");
    drop(server);
    let mut ends = bed.command(far);
    ends.arg("true");
    let (mut server, began) = (quiet(ends), Instant::now());
    let refused = bed.wait_for_listener((far, 5202), &mut server, Duration::from_secs(60));
    let refused = refused.expect_err("nobody listens").to_string();
    assert!(refused.contains("port 5202 of host far: the server ended"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn root_a_bed_that_was_up_before_stays() {
    let Some(first) = up("before") else { return };
    let second = up("before").expect("it is up");
    drop(second);
    Lab::open(first.name()).expect("it stays with the first");
}

/// Tells the second process of the next test that it is to be killed.
const KILLED: &str = "CLEARSTREAM_TEST_KILLED";

#[test]
fn root_a_bed_goes_when_its_process_is_killed() {
    if std::env::var_os(KILLED).is_some() {
        if let Some(bed) = up("killed") {
            println!("\nup {}", bed.name());
            std::thread::sleep(Duration::from_secs(600));
        }
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("a test"));
    command.args([
        "--exact",
        "lab::library::root_a_bed_goes_when_its_process_is_killed",
        "--nocapture",
    ]);
    command.env(KILLED, "1").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Owned::start(&mut command, Ending::KILL).expect("it starts");
    let said = BufReader::new(process.take_stdout().expect("piped")).lines();
    let mut lines = said.map_while(Result::ok).inspect(|line| println!("{line}"));
    let Some(name) = lines.find_map(|line| line.strip_prefix("up ").map(str::to_owned)) else {
        return;
    };
    Lab::open(&name).expect("it is up");
    drop(process);
    let until = Instant::now() + Duration::from_secs(10);
    while Lab::open(&name).is_ok() {
        assert!(Instant::now() < until, "the lab did not go with its process");
        std::thread::sleep(Duration::from_millis(20));
    }
    // What is left of it is removed by whoever looks.
    assert!(Lab::all().expect("looked").iter().all(|lab| lab.plan().name != name));
}

/// Whoever brings a lab up holds the lock of all labs for as long as that takes, and the lab's folder has no state yet.
#[test]
fn root_labs_are_known_while_another_comes_up() {
    let Some(bed) = up("listed") else { return };
    let lab = bed.name().to_owned();
    let runtime = sys::private::runtime_folder().expect("this user's");
    let labs = runtime.folder("labs").expect("read").expect("a lab is up");
    flock(&labs, FlockOperation::LockExclusive).expect("locked");
    let coming = format!("{lab}-coming");
    labs.folder_or_new(&coming).expect("made");
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(Lab::all_now()));
    let listed = receive.recv_timeout(Duration::from_secs(10));
    let kept = labs.folder(&coming).expect("read").is_some();
    labs.remove(&coming).expect("removed");
    drop(labs);
    let listed = listed.expect("it waits for the lock").expect("looked");
    assert!(listed.iter().any(|listed| listed.plan().name == lab));
    assert!(kept, "the folder of the lab that comes up is removed");
}
