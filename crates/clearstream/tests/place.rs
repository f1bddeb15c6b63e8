//! `place`, `test --place` and `run --place`: over loopback, in a lab, and with everything wrong.
//!
//! One at a time: every sweep wants the cores for itself.

use crate::PROGRAM;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::effort;
use testkit::kernel_threads;

use results::{End, Placement, PlacementFindings, Results, RunKind, read_placement, read_results};
use testkit::port::free_port;

use stats::Judgement;
use testkit::server::Server;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sweeps of each arrangement in `make test-all`, one after the other, before it judges.
const REPEATS: u32 = 9;

/// Share of the sweeps that find another placement by chance, where other machines share the cores.
const MISPLACED: f64 = 0.1;

/// Two hosts on two cores, joined by a pair of interfaces that carries packets of 1500 bytes, each
/// end's packets taken in by a kernel thread pinned to core K. That thread has most of the work, so
/// a sender on K halves everything: it belongs on the other core. The receiver belongs on K, where
/// its packets are already in the cache and its wake-up crosses no core. Whichever way the bytes go
/// and whichever core K is, the sweep must find exactly that.
///
/// What it finds is a matter of the machine too: `make test-all` sweeps each arrangement nine times
/// and judges it once, by most of the sweeps. `make test` sweeps each once, and every sweep must be whole:
/// every pair measured, and the best of them the one advised about.
#[test]
fn root_placement_of_four_arrangements() {
    let _alone = alone();
    if !kernel_threads::are_visible() {
        return;
    }
    let judgement = Judgement::majority(REPEATS, MISPLACED);
    let mut misplaced = Vec::new();
    for napi_core in [0, 1] {
        let Some(bed) = Testbed::up(napi_core) else { return };
        for reverse in [false, true] {
            let other = 1 - napi_core;
            // Sender on the other core, receiver on the kernel thread's.
            let expected = if reverse { (napi_core, other) } else { (other, napi_core) };
            if !effort::is_all() {
                bed.sweep(napi_core, reverse);
                continue;
            }
            let is_wrong = |_: &u32| bed.sweep(napi_core, reverse) != expected;
            let wrong = (0..REPEATS).filter(is_wrong).count() as u32;
            if !judgement.passes(wrong) {
                misplaced.push((napi_core, reverse, wrong));
            }
        }
    }
    if effort::is_all() {
        assert!(misplaced.is_empty(), "(core, reverse, sweeps) {misplaced:?}; {judgement}");
    } else {
        effort::left_to_test_all("whether most of nine sweeps find the better placement");
    }
}

/// A test that moves the far end's kernel thread: on the asked core while it runs, back after it,
/// and back when the server is killed in the middle. Not in a lab, whose hosts see no kernel
/// threads.
#[test]
fn root_moved_kernel_threads_go_back_also_after_a_kill() {
    let _alone = alone();
    if !kernel_threads::are_visible() {
        return;
    }
    let Some(wire) = Wire::new() else { return };
    let before = wire.thread_cores();
    let mut server = wire.serve(&["--allow-interrupt-moves", "--allow", "10.98.7.0/24"]);
    let asked = ["test", "10.98.7.2", "--far-interrupt-core", "1"];
    let done = wire.near(&[&["--json"], &asked[..], &["-t", "300ms"]].concat()).output();
    let done = done.expect("runs");
    assert_eq!(done.status.code(), Some(0), "{}", complaint(&done));
    let results = read_results(&done.stdout).expect("a document");
    let far = results.points[0].measured().and_then(|outcome| outcome.far().cloned());
    let far = far.expect("the far end's account");
    assert_eq!(far.streams[0].incoming_core, Some(1), "the kernel says so too");
    let moved = far.findings.iter().find(|finding| finding.code == "interrupt-moved");
    assert!(moved.is_some_and(|finding| finding.text.contains("ran on core 1")), "{far:?}");
    let change = far.changes.first().expect("the same as a record");
    assert!(change.key.starts_with("thread:napi/") && change.key.ends_with("/affinity"), "{far:?}");
    assert_eq!((change.end, change.to.as_str()), (End::Far, "1"));
    assert_eq!(change.from.as_deref().and_then(settings::cores_of), settings::cores_of(&before));
    assert_eq!(wire.thread_cores(), before, "it went back");

    let mut running = wire.near(&[&asked[..], &["-t", "30s"]].concat()).spawn().expect("starts");
    wait_until("the thread is moved", || wire.thread_cores() == "1");
    server.kill().expect("it runs");
    server.wait().expect("ends");
    wait_until("the thread is back", || wire.thread_cores() == before);
    running.kill().expect("ours");
    running.wait().expect("ends");

    overlapping_tests_take_turns(&wire, &asked, &before);

    let mut server = wire.serve(&[]);
    let done = wire.near(&[&asked[..], &["-t", "1s"]].concat()).output().expect("runs");
    server.kill().expect("it runs");
    server.wait().expect("ends");
    assert_eq!(done.status.code(), Some(1));
    assert!(complaint(&done).contains("--allow-interrupt-moves"), "{}", complaint(&done));
    assert_eq!(wire.thread_cores(), before);
}

/// A second test is refused while the first has the thread, whichever ends first; a guard that was
/// killed with its server leaves it to the next start.
fn overlapping_tests_take_turns(wire: &Wire, asked: &[&str], before: &str) {
    let options = ["--allow-interrupt-moves", "--allow", "10.98.7.0/24"];
    let mut server = wire.serve(&options);
    let begin = |time: &str| wire.near(&[asked, &["-t", time]].concat()).spawn().expect("starts");
    // Long enough for the second to come to its refusal on a slow machine.
    let mut first = begin("8s");
    wait_until("the thread is moved", || wire.thread_cores() == "1");
    let second = wire.near(&[asked, &["-t", "10s"]].concat()).output().expect("runs");
    assert!(complaint(&second).contains("is in use by another test"), "{}", complaint(&second));
    assert!(first.wait().expect("ends").success());
    assert_eq!(wire.thread_cores(), before, "the second test has changed nothing");

    let mut running = begin("30s");
    wait_until("the thread is moved", || wire.thread_cores() == "1");
    let guards = children_of(server.id());
    assert_eq!(guards.len(), 1, "one guard: {guards:?}");
    wire.shell(&format!("kill -KILL {} {}", guards[0], server.id()));
    server.wait().expect("ends");
    running.kill().expect("ours");
    running.wait().expect("ends");
    assert_eq!(wire.thread_cores(), "1", "nobody is left to put it back");
    let mut server = wire.serve(&options);
    wait_until("the next start has put it back", || wire.thread_cores() == before);
    server.kill().expect("it runs");
    server.wait().expect("ends");
}

fn children_of(parent: u32) -> Vec<String> {
    let is_child = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let words = stat.rsplit_once(')').map_or("", |(_, words)| words);
        words.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    let all = fs::read_dir("/proc").expect("mounted").flatten();
    all.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(is_child).collect()
}

/// Two network namespaces and a veth pair whose far end is polled by a kernel thread.
struct Wire {
    near: String,
    far: String,
    /// The far interface; its name tells its thread from others'.
    interface: String,
}

impl Wire {
    /// `None` after saying why it cannot be here.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: not root");
            return None;
        }
        let id = std::process::id();
        let wire = Self {
            near: format!("csn{id}"),
            far: format!("csf{id}"),
            interface: format!("cs{id}"),
        };
        let Self { near, far, interface } = &wire;
        wire.shell(&format!(
            "set -e; ip netns add {near}; ip netns add {far}
             ip -n {near} link add eth0 type veth peer name {interface} netns {far}
             ip netns exec {near} ethtool -K eth0 tso off; ip netns exec {far} ethtool -K {interface} gro on
             ip -n {near} addr add 10.98.7.1/24 dev eth0; ip -n {near} link set eth0 up
             ip -n {far} addr add 10.98.7.2/24 dev {interface}; ip -n {far} link set {interface} up
             ip netns exec {far} sh -c 'echo 1 > /sys/class/net/{interface}/threaded'"
        ));
        Some(wire)
    }

    fn shell(&self, script: &str) {
        let done = Command::new("sh").args(["-c", script]).output().expect("a shell");
        assert!(done.status.success(), "{}: {}", self.near, complaint(&done));
    }

    fn near(&self, line: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.near, PROGRAM]).args(line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn serve(&self, options: &[&str]) -> Child {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.far, PROGRAM, "serve", "--bind", "10.98.7.2"])
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        said.read_line(&mut String::new()).expect("it says that it listens");
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        child
    }

    /// Where the far interface's kernel thread may run.
    fn thread_cores(&self) -> String {
        let wanted = format!("napi/{}-", self.interface);
        let pids = fs::read_dir("/proc").expect("procfs").filter_map(|entry| entry.ok());
        let thread = pids.map(|entry| entry.path()).find(|path| {
            fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with(&wanted))
        });
        let status = fs::read_to_string(thread.expect("a thread").join("status"));
        let status = status.expect("its status");
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        cores.expect("its cores").trim().to_owned()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            Command::new("ip").args(["netns", "del", name]).status().ok();
        }
    }
}

fn wait_until(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !met() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn best_of(found: &PlacementFindings) -> (u32, u32) {
    (found.best.near_core, found.best.far_core)
}

#[test]
fn a_sweep_gives_results_a_report_and_a_file_that_others_obey() {
    let _alone = alone();
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let files = Files::new("whole");
    let done = place(&server, &files, &["--quick", "--cores", "0", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", complaint(&done));
    let results = read_results(&done.stdout).expect("--json prints the document");
    check_results(&results);
    let page = fs::read_to_string(files.path("p.html")).expect("written");
    assert!(page.contains("Placement") && page.contains("</html>"));
    assert!(!files.path("p.json.journal").exists(), "a finished sweep leaves no journal");

    let text = fs::read_to_string(files.path("p.toml")).expect("written");
    let mut placement = read_placement(&text).expect("our own file");
    assert_eq!(placement.near.first_port, Some(25_201));
    placement.near.cores = vec![0];
    placement.far.cores = vec![0];
    let file = files.write("pinned.toml", &placement);
    let port = server.port.to_string();
    let test = run(&["--json", "test", "127.0.0.1", "-p", &port, "-t", "200ms", "--place", &file]);
    assert_eq!(test.status.code(), Some(0), "{}", complaint(&test));
    let tested = read_results(&test.stdout).expect("a document");
    let spec = tested.points[0].spec().expect("a test");
    assert_eq!((&spec.near_cores[..], &spec.far_cores[..]), (&[0][..], &[0][..]));
    assert_eq!(spec.first_port, Some(25_201));
    let outcome = tested.points[0].measured().expect("measured");
    assert_eq!(outcome.near().streams[0].cores, [0]);
    let incoming = outcome.far().and_then(|far| far.streams[0].incoming_core);
    assert!(incoming.is_some(), "the kernel says where the packets come in");
}

fn check_results(results: &Results) {
    assert_eq!(results.kind, RunKind::Place);
    let found = results.placement.as_ref().expect("placements were measured");
    assert_eq!(found.best.near_core, 0, "only core 0 was to be chosen from");
    assert_eq!(found.pairs_count, found.measured_pairs_count);
    assert!(!found.advice.is_empty());
    let unpinned = found.unpinned.as_ref().expect("no pinning is always part of it");
    assert_eq!(unpinned.count, 3);
    // Interleaved: between the first and the last unpinned run there are pinned ones.
    let kinds: Vec<bool> = results
        .points
        .iter()
        .filter(|point| point.experiment == "placement")
        .map(|point| point.varied.is_empty())
        .collect();
    let first = kinds.iter().position(|unpinned| *unpinned).expect("unpinned");
    let last = kinds.iter().rposition(|unpinned| *unpinned).expect("unpinned");
    assert!(kinds[first..last].contains(&false), "{kinds:?}");
}

#[test]
fn a_killed_sweep_is_taken_up_again() {
    let _alone = alone();
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let files = Files::new("resume");
    let journal = files.path("p.json.journal");
    let points = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    let mut first = place_command(&server, &files, &["--quick"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while points() < 4 {
        assert!(Instant::now() < deadline, "the journal does not grow");
        std::thread::sleep(Duration::from_millis(20));
    }
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    let kept = points() - 1;
    let second = place(&server, &files, &["--quick"]);
    assert_eq!(second.status.code(), Some(0), "{}", complaint(&second));
    let said = complaint(&second);
    assert!(said.contains("resuming after ") && !said.contains("after 0 "), "{said}");
    let saved = fs::read(files.path("p.json")).expect("written");
    let results = read_results(&saved).expect("whole");
    assert!(results.points.len() > kept, "{} points, {kept} kept", results.points.len());
    let mut keys: Vec<String> = results
        .points
        .iter()
        .map(|point| format!("{} {:?} {}", point.experiment, point.varied, point.repeat))
        .collect();
    keys.sort();
    let count = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), count, "nothing is measured twice");
}

#[test]
fn a_sweep_cut_short_advises_nothing_and_leaves_the_saved_placement() {
    let _alone = alone();
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let files = Files::new("short");
    let saved = files.write("p.toml", &Placement { version: 1, ..Placement::default() });
    let before = fs::read(&saved).expect("written");
    let mut sweep = place_command(&server, &files, &["--quick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let journal = files.path("p.json.journal");
    wait_until("three tests are on disk", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > 3)
    });
    let pid = rustix::process::Pid::from_child(&sweep);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(sweep.wait().expect("ends").code(), Some(130));
    let mut said = String::new();
    sweep.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("Advice   none: the sweep was cut short"), "{said}");
    assert_eq!(fs::read(&saved).expect("there"), before);
    let results = read_results(&fs::read(files.path("p.json")).expect("written")).expect("whole");
    assert_eq!(results.partial.as_deref(), Some("ended by signal 2"));
}

#[test]
fn a_program_runs_where_the_file_says_with_its_own_exit_code() {
    let files = Files::new("run");
    let mut placement = Placement { version: 1, ..Placement::default() };
    placement.near.cores = vec![0];
    placement.near.memory_node = Some(0);
    let file = files.write("near.toml", &placement);
    let allowed = "grep Cpus_allowed_list /proc/self/status; exit 7";
    let done = run(&["run", "--place", &file, "--", "sh", "-c", allowed]);
    assert_eq!(done.status.code(), Some(7), "{}", complaint(&done));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "Cpus_allowed_list:\t0\n");
    // The far end of this file is not pinned.
    let far = run(&["run", "--place", &file, "--end", "far", "--", "true"]);
    assert_eq!(far.status.code(), Some(0), "{}", complaint(&far));
    let none = run(&["run", "--place", &file, "--", "no-such-program"]);
    assert_eq!(none.status.code(), Some(127));
    let no_program = run(&["run", "--place", &file, "--", "/etc/passwd"]);
    assert_eq!(no_program.status.code(), Some(126));
}

#[test]
fn wrong_files_cores_and_peers_get_one_line() {
    let _alone = alone();
    let files = Files::new("wrong");
    let write = |name: &str, text: &str| {
        fs::write(files.path(name), text).expect("written");
        files.path(name).to_str().expect("plain").to_owned()
    };
    let newer = write("newer.toml", "version = 2\n[near]\nlayout = \"new\"\n");
    let typo = write("typo.toml", "version = 1\n[near]\ncoers = [0]\n");
    let absent = write("absent.toml", "version = 1\n[near]\ncores = [1000]\n");
    let far = write("far.toml", "version = 1\n[far]\ncores = [1000]\n");
    for (file, says) in [
        (newer.as_str(), "version 2; this program reads version 1"),
        (typo.as_str(), "line 3: unknown field `coers`"),
        (absent.as_str(), "core 1000 is not usable at the near end; usable cores: "),
        ("/nonexistent.toml", "/nonexistent.toml: "),
    ] {
        refused(&run(&["run", "--place", file, "--", "true"]), 2, says);
        refused(&run(&["test", "127.0.0.1", "--place", file]), 2, says);
    }
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let port = server.port.to_string();
    let says = "core 1000 is not usable at the far end";
    refused(&run(&["test", "127.0.0.1", "-p", &port, "--place", &far]), 2, says);
    let cores = ["place", "127.0.0.1", "-p", &port, "--far-cores", "1000"];
    refused(&run(&cores), 2, says);
    drop(server);
    let port = free_port().to_string();
    refused(&run(&["place", "127.0.0.1", "-p", &port]), 1, "");
    let mut foreign = Command::new("iperf3")
        .args(["-s", "-1", "-p", &port])
        .stdout(Stdio::null())
        .spawn()
        .expect("iperf3 is there");
    wait_for_port(&port);
    let done = run(&["place", "127.0.0.1", "-p", &port]);
    foreign.kill().expect("ours");
    foreign.wait().expect("ends");
    refused(&done, 1, "an iperf3 server reports neither its cores");
}

/// Waits for a listener without connecting to it: an iperf3 server would take that for a client.
fn wait_for_port(port: &str) {
    let number: u16 = port.parse().expect("a number");
    let wanted = format!(":{number:04X} ");
    let deadline = Instant::now() + Duration::from_secs(10);
    let listens = |file: &str| {
        let table = fs::read_to_string(file).unwrap_or_default();
        table.lines().any(|line| line.contains(&wanted) && line.contains(" 0A "))
    };
    while !listens("/proc/net/tcp") && !listens("/proc/net/tcp6") {
        assert!(Instant::now() < deadline, "nothing listens on {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A lab of two hosts whose packets are taken in on one core; gone when dropped.
struct Testbed {
    name: String,
    files: Files,
}

impl Testbed {
    /// `None` after saying why it cannot be here.
    fn up(napi_core: u32) -> Option<Self> {
        let name = format!("place{napi_core}-{}", std::process::id());
        let files = Files::new(&name);
        let lab = format!(
            "name = \"{name}\"\n[host.near]\n[host.far]\n[[link]]\nbetween = [\"near\", \"far\"]\n\
             wire = \"veth\"\ntso = false\nnapi_core = {napi_core}\n"
        );
        fs::write(files.path("lab.toml"), lab).expect("written");
        let bed = Self { name, files };
        let (file, own_pid) = (bed.files.path("lab.toml"), std::process::id().to_string());
        let file = file.to_str().expect("plain");
        let up = run(&["--json", "lab", "up", file, "--while", &own_pid]);
        match up.status.code() {
            Some(0) => {}
            Some(4) => {
                println!("skipped: {}", complaint(&up).trim_end());
                return None;
            }
            other => panic!("lab up: {other:?}: {}", complaint(&up)),
        }
        let said = String::from_utf8_lossy(&up.stdout).into_owned();
        assert!(said.contains("\"notes\":[]"), "the kernel threads are pinned: {said}");
        let serve = run(&["lab", "exec", "--detach", &bed.name, "far", "--", PROGRAM, "serve"]);
        assert!(serve.status.success(), "{}", complaint(&serve));
        Some(bed)
    }

    /// One sweep, whole and consistent: the cores of what it found best.
    fn sweep(&self, napi_core: u32, reverse: bool) -> (u32, u32) {
        let way = if reverse { &["-R"][..] } else { &[] };
        let found = self.place(&[way, &["--quick", "--fresh"]].concat());
        let unpinned = found.unpinned.as_ref().map(|unpinned| unpinned.median / 1e9);
        let best = best_of(&found);
        effort::say(&format!(
            "kernel thread on core {napi_core}, reverse {reverse}: best {best:?} {:.1} Gbit/s, \
             unpinned {unpinned:.1?}, advised {}",
            found.best.estimate.median / 1e9,
            found.beats_unpinned
        ));
        let queue = [found.near_incoming_core, found.far_incoming_core];
        assert_eq!(queue, [Some(napi_core); 2], "the kernel says which core serves the flow");
        assert_eq!(found.measured_pairs_count, 4);
        assert!(found.best.estimate.median > 0.0 && unpinned.is_some(), "{found:?}");
        assert!([best.0, best.1].iter().all(|core| *core < 2), "{found:?}");
        best
    }

    fn place(&self, options: &[&str]) -> PlacementFindings {
        let [json, toml] = ["p.json", "p.toml"].map(|name| self.files.path(name));
        let done = Command::new(PROGRAM)
            .args(["lab", "exec", &self.name, "near", "--", PROGRAM, "--json", "place", "far"])
            .arg("-o")
            .arg(json)
            .arg("--save")
            .arg(toml)
            .args(options)
            .output()
            .expect("runs");
        assert_eq!(done.status.code(), Some(0), "{}", complaint(&done));
        let results = read_results(&done.stdout).expect("a document");
        results.placement.expect("placements were measured")
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        run(&["lab", "down", &self.name]);
    }
}

/// A directory of its own; removed when dropped.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let place =
            std::env::temp_dir().join(format!("clearstream-place-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        Self(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, placement: &Placement) -> String {
        fs::write(self.path(name), placement.to_text()).expect("written");
        self.path(name).to_str().expect("plain").to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removable");
    }
}

fn place_command(server: &Server, files: &Files, options: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["place", "127.0.0.1", "-p", &server.port.to_string()]);
    for (option, file) in [("-o", "p.json"), ("--save", "p.toml"), ("--report", "p.html")] {
        command.arg(option).arg(files.path(file));
    }
    command.args(options).stdin(Stdio::null());
    command
}

fn place(server: &Server, files: &Files, options: &[&str]) -> Output {
    place_command(server, files, options).output().expect("runs")
}

fn run(line: &[&str]) -> Output {
    Command::new(PROGRAM).args(line).stdin(Stdio::null()).output().expect("runs")
}

fn complaint(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

fn refused(done: &Output, code: i32, says: &str) {
    let line = complaint(done);
    assert_eq!(done.status.code(), Some(code), "{line}");
    assert!(line.contains(says) && line.lines().count() == 1, "{line}");
    assert!(done.stdout.is_empty());
}
