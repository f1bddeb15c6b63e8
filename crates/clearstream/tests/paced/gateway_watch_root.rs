//! Watchers at both ends of the lab `cumulus`: a flow goes on whatever its gateway fails by, and what the watchers
//! leave behind is undone exactly. Needs root and iproute2.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use stats::Judgement;
use testkit::effort;
use testkit::root::is_root;

use super::gateway_lab_root::{Files, Lab, run};
use crate::PROGRAM;

/// Longest stall of a paced flow, at 50 ms three times.
const STALL_MAX: Duration = Duration::from_millis(500);
/// Share of stalls that a busy machine makes longer.
const LATE_SHARE: f64 = 0.02;
/// How long anything may take that has no bound of its own.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lab with its plan applied, and what the watchers read.
pub(crate) struct Rig {
    pub(crate) lab: Lab,
    plan: PathBuf,
    key: PathBuf,
    /// What was routed on `c1` and `s1` before the plan.
    bare: [String; 2],
}

impl Rig {
    pub(crate) fn up(name: &str, files: Files) -> Self {
        Self::up_with(name, files, str::to_owned)
    }

    /// With the plan as `edit` has it.
    pub(crate) fn up_with(name: &str, files: Files, edit: impl Fn(&str) -> String) -> Self {
        let lab = Lab::up_in_real_time(name, files);
        let (plan, key) = (lab.folder.join("plan.toml"), lab.folder.join("key"));
        fs::write(&key, "000102030405060708090a0b0c0d0e0f\n").expect("written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("ours");
        let bare = ["c1", "s1"].map(|host| lab.routing(host));
        let rig = Self { lab, plan, key, bare };
        rig.apply(&edit);
        rig
    }

    /// Applies the plan as `edit` has it, in place of the one before.
    pub(crate) fn apply(&self, edit: &dyn Fn(&str) -> String) {
        let text = edit(include_str!("../../../../labs/gateways/cumulus.toml"));
        let watch = if text.contains("[watch]") { "" } else { "[watch]" };
        let text = format!("{text}\n{watch}\nhold_down = \"0s\"\n");
        fs::write(&self.plan, text).expect("written");
        let applied = self.lab.gateway(&["apply", self.plan()]);
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    }

    /// The plan's file.
    pub(crate) fn plan(&self) -> &str {
        self.plan.to_str().expect("text")
    }

    pub(crate) fn command(&self, host: &str, more: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "exec", &self.lab.name, host, "--", PROGRAM, "--json"]);
        command.args(["gateway", "watch"]).arg(&self.plan).args(["--host", host, "--key-file"]);
        command.arg(&self.key).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The flow's gateway fails or is repaired.
    pub(crate) fn set(&self, failure: Failure, is_failed: bool) {
        let how = match failure {
            Failure::Forwarding => &["g1", "forward"][..],
            Failure::Hang => &["g1", "hang"],
            Failure::NearPort => &["g1", "port", "compute"],
            Failure::FarPort => &["g1", "port", "storage"],
            Failure::FarCarrier => &["g1", "carrier", "storage"],
            Failure::MtuHole if is_failed => {
                // A bucket that holds no larger packet drops it without a word.
                let line = "tc qdisc add dev eth1 root tbf rate 10gbit burst 1600 limit 1mb";
                self.lab.exec("g1", line);
                return;
            }
            Failure::MtuHole => {
                self.lab.exec("g1", "tc qdisc del dev eth1 root");
                return;
            }
        };
        let verb = if is_failed { "fail" } else { "mend" };
        let done = run(&[&["lab", verb], how, &["--lab", &self.lab.name]].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It forwards no more.
    Forwarding,
    /// It takes and sends nothing.
    Hang,
    /// Its port to the compute network is dead.
    NearPort,
    /// Its port to the storage network is dead.
    FarPort,
    /// Its port to the storage network has no carrier.
    FarCarrier,
    /// It loses large packets.
    MtuHole,
}

/// A watcher on a host of the lab; it ends with the value.
pub(crate) struct Watcher {
    child: Child,
    /// The program itself, on its host.
    program: Pid,
    events: Arc<Mutex<Vec<Value>>>,
}

impl Watcher {
    pub(crate) fn start(rig: &Rig, host: &str, more: &[&str]) -> Self {
        let mut child = rig.command(host, more).spawn().expect("the program starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        let begins = format!("{host} watches 3 gateways: a probe every 50ms, 3 missed rounds");
        assert!(line.starts_with(&begins), "{line}");
        thread::spawn(move || said.read_to_string(&mut String::new()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let (output, its_events) = (child.stdout.take().expect("piped"), Arc::clone(&events));
        thread::spawn(move || collect(output, &its_events));
        let program = youngest(child.id());
        Self { child, program, events }
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        self.events.lock().expect("no panic").clone()
    }

    /// Events that say that routes were moved.
    fn moves(&self) -> Vec<Value> {
        let is_move = |event: &Value| event["event"] == "use";
        self.events().into_iter().filter(is_move).collect()
    }

    /// Waits until routes lead over these gateways.
    pub(crate) fn leads_over(&self, names: &[&str]) {
        let start = Instant::now();
        while self.moves().last().is_none_or(|event| event["names"] != serde_json::json!(names)) {
            assert!(start.elapsed() < PATIENCE, "not {names:?}: {:#?}", self.events());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for an event of this kind.
    fn says(&self, kind: &str) {
        let start = Instant::now();
        while !self.events().iter().any(|event| event["event"] == kind) {
            assert!(start.elapsed() < PATIENCE, "no {kind}: {:#?}", self.events());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until BFD has said this of a gateway last, and forgets what it said.
    pub(crate) fn bfd_says(&self, name: &str, what: &str) {
        let start = Instant::now();
        let is_last = |events: &[Value]| {
            let mut of_bfd = events.iter().rev();
            let last = of_bfd.find(|event| event["event"] == "bfd" && event["name"] == name);
            last.is_some_and(|event| event["says"] == what)
        };
        while !is_last(&self.events()) {
            assert!(start.elapsed() < PATIENCE, "{name} not {what}: {:#?}", self.events());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has said that something is not as it should be, with these words.
    fn complains_of(&self, what: &str) {
        let start = Instant::now();
        let is_it = |event: &Value| {
            event["event"] == "complaint"
                && event["text"].as_str().is_some_and(|text| text.contains(what))
        };
        while !self.events().iter().any(is_it) {
            assert!(start.elapsed() < PATIENCE, "no complaint of {what}: {:#?}", self.events());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A namespace of its host: `net`, `mnt`.
    pub(crate) fn namespace(&self, kind: &str) -> File {
        namespace_of(self.program, kind)
    }

    /// Ends it in order; its exit code.
    fn end(mut self) -> Option<i32> {
        rustix::process::kill_process(self.program, Signal::TERM).expect("it runs");
        self.child.wait().expect("ours").code()
    }

    fn kill(mut self) {
        rustix::process::kill_process(self.program, Signal::KILL).expect("it runs");
        self.child.wait().expect("ours");
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It may have ended.
        rustix::process::kill_process(self.program, Signal::KILL).ok();
        self.child.wait().ok();
    }
}

/// A namespace of a process: `net`, `mnt`.
pub(crate) fn namespace_of(program: Pid, kind: &str) -> File {
    File::open(format!("/proc/{}/ns/{kind}", program.as_raw_nonzero())).expect("it runs")
}

fn collect(output: ChildStdout, events: &Mutex<Vec<Value>>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        events.lock().expect("no panic").push(serde_json::from_str(&line).expect("JSON"));
    }
}

/// The last of a line of processes, each of which has started the next.
pub(crate) fn youngest(mut id: u32) -> Pid {
    loop {
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let child = children.expect("it runs").split_whitespace().next().map(str::to_owned);
        let Some(child) = child else { break };
        id = child.parse().expect("a number");
    }
    Pid::from_raw(id.cast_signed()).expect("not 0")
}

/// So many bytes every 10 ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace(usize);

impl Pace {
    /// 6.4 Mbit/s.
    pub(crate) const PACED: Self = Self(8000);
    /// 210 Mbit/s, in bursts of many segments.
    pub(crate) const BULK: Self = Self(256 << 10);
}

/// A TCP flow between the hosts of two watchers.
pub(crate) struct Flow {
    /// When bytes came last, and the longest time without.
    came: Arc<Mutex<(Instant, Duration)>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Flow {
    pub(crate) fn start(pace: Pace, ends: [&Watcher; 2], address: SocketAddr) -> Self {
        let [from, to] = ends.map(|end| end.namespace("net"));
        let came = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
        let is_over = Arc::new(AtomicBool::new(false));
        let (arrived, over) = (Arc::clone(&came), Arc::clone(&is_over));
        let enter = |namespace: &File| {
            sys::namespace::enter_network(namespace.as_fd()).expect("root");
            // What is measured is the way, not this machine. Without the privilege it is both.
            sys::thread::run_in_real_time(5).ok();
        };
        let (ready, is_ready) = std::sync::mpsc::channel();
        let receiver = thread::spawn(move || {
            enter(&to);
            let listener = TcpListener::bind(address).expect("an address of the host");
            ready.send(()).expect("awaited");
            let (mut stream, _) = listener.accept().expect("the sender");
            let mut buffer = [0; 65_536];
            while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
                let mut came = arrived.lock().expect("no panic");
                *came = (Instant::now(), came.1.max(came.0.elapsed()));
            }
        });
        is_ready.recv().expect("a listener");
        let sender = thread::spawn(move || {
            enter(&from);
            let mut stream = TcpStream::connect(address).expect("a way");
            stream.set_nodelay(true).expect("TCP");
            let bytes = vec![0; pace.0];
            while !over.load(Ordering::Relaxed) {
                stream.write_all(&bytes).expect("no error reaches the application");
                thread::sleep(Duration::from_millis(10));
            }
        });
        Self { came, is_over, threads: vec![receiver, sender] }
    }

    pub(crate) fn forget(&self) {
        self.came.lock().expect("no panic").1 = Duration::ZERO;
    }

    pub(crate) fn longest_stall(&self) -> Duration {
        let came = self.came.lock().expect("no panic");
        came.1.max(came.0.elapsed())
    }

    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a flow without errors");
        }
    }
}

/// Keeps all processors busy for a while.
fn keep_busy(time: Duration) {
    let count = 2 * thread::available_parallelism().map_or(2, usize::from);
    let until = Instant::now() + time;
    thread::scope(|scope| {
        for _thread in 0..count {
            scope.spawn(|| while Instant::now() < until {});
        }
    });
}

#[test]
fn a_paced_flow_stalls_half_a_second_at_most_whatever_its_gateway_fails_by_root() {
    if !is_root() {
        return;
    }
    let rig = Rig::up("stalls", Files::Without);
    let client = Watcher::start(&rig, "c1", &["--far", "s1", "--full-every", "1"]);
    let server = Watcher::start(&rig, "s1", &["--far", "c1", "--full-every", "1"]);
    let address = SocketAddr::from(([10, 10, 0, 21], 7000));
    let flow = Flow::start(Pace::PACED, [&client, &server], address);
    let (idle, busy) = if effort::is_all() { (600_u64, 300_u64) } else { (2, 2) };
    for _minute in 0..idle.div_ceil(60) {
        effort::say("watching gateways that are well");
        thread::sleep(Duration::from_secs(idle.min(60)));
    }
    for _minute in 0..busy.div_ceil(60) {
        effort::say("watching gateways that are well on a busy machine");
        keep_busy(Duration::from_secs(busy.min(60)));
    }
    for watcher in [&client, &server] {
        assert_eq!(watcher.moves(), [] as [Value; 0], "no false alarm: {:#?}", watcher.events());
    }
    let kinds = [
        Failure::Forwarding,
        Failure::Hang,
        Failure::NearPort,
        Failure::FarPort,
        Failure::FarCarrier,
        Failure::MtuHole,
    ];
    let failures = kinds.repeat(if effort::is_all() { 5 } else { 1 });
    let stalls: Vec<(Failure, u128)> = failures
        .iter()
        .map(|failure| {
            flow.forget();
            rig.set(*failure, true);
            client.leads_over(&["g2", "g3"]);
            server.leads_over(&["g2", "g3"]);
            thread::sleep(STALL_MAX);
            let stall = flow.longest_stall();
            moved_flows_are_no_drift(&rig);
            rig.set(*failure, false);
            client.leads_over(&["g1", "g2", "g3"]);
            server.leads_over(&["g1", "g2", "g3"]);
            (*failure, stall.as_millis())
        })
        .collect();
    println!("stalls in ms: {stalls:?}");
    let named = client.events();
    assert!(named.iter().any(|event| event["name"] == "g1" && event["to"] == "mtu_hole"));
    flow.end();
    let count = u32::try_from(stalls.len()).expect("few");
    let judgement = Judgement::strictest(count, LATE_SHARE, effort::CHANCE_MAX);
    let late = stalls.iter().filter(|(_, ms)| *ms > STALL_MAX.as_millis()).count();
    assert!(judgement.passes(u32::try_from(late).expect("few")), "{stalls:?}: {judgement}");
}

/// `check` names what the watchers of both hosts have moved, and finds no route of theirs that has drifted.
fn moved_flows_are_no_drift(rig: &Rig) {
    let checked = rig.lab.gateway(&["check", rig.plan()]);
    let told = String::from_utf8_lossy(&checked.stdout);
    for host in ["c1", "s1"] {
        let moved = format!("{host}  moved off  g1, by `clearstream gateway watch`, which found ");
        assert!(told.contains(&moved), "{told}");
        for drift in ["missing", "changed", "surplus", "diverted"] {
            assert!(!told.contains(&format!("{host}  {drift}")), "{told}");
        }
    }
}

#[test]
fn a_watcher_repairs_leaves_the_last_good_state_and_is_undone_exactly_root() {
    if !is_root() {
        return;
    }
    let rig = Rig::up("lasting", Files::Without);
    let planned = rig.lab.routing("c1");
    let metrics = rig.lab.folder.join("c1.prom");
    let metrics_option = ["--far", "s1", "--metrics", metrics.to_str().expect("text")];
    let watcher = Watcher::start(&rig, "c1", &metrics_option);
    let server = Watcher::start(&rig, "s1", &["--far", "c1"]);
    second_is_refused(&rig);
    stopped_blames_nobody(&watcher, &server);
    // The kernel deletes nexthop objects, and routes over them, with the carrier of their interface.
    for line in ["ip link set eth0 down", "ip link set eth0 up"] {
        rig.lab.exec("c1", line);
    }
    becomes(&rig, &planned);
    let group = planned
        .lines()
        .find(|line| line.starts_with("id ") && line.contains(" group "))
        .expect("groups");
    let id = group.split(' ').nth(1).expect("id NUMBER");
    rig.lab.exec("c1", &format!("ip nexthop del id {id}"));
    becomes(&rig, &planned);
    rig.lab.exec("c1", "ip route replace 10.10.0.21/32 via 10.100.0.93 dev eth0 proto static");
    watcher.complains_of("10.10.0.21");
    let foreign = rig.lab.exec("c1", "ip route show 10.10.0.21/32");
    assert!(foreign.contains("proto static"), "what others put there stays: {foreign}");
    rig.lab.exec("c1", "ip route del 10.10.0.21/32 proto static");
    becomes(&rig, &planned);

    drained_stays_drained(&rig, &watcher, &planned);
    others_change_links(&rig, &watcher, &planned);

    rig.set(Failure::Forwarding, true);
    watcher.leads_over(&["g2", "g3"]);
    server.leads_over(&["g2", "g3"]);
    let moved = rig.lab.routing("c1");
    assert_ne!(moved, planned);
    assert!(
        !moved
            .lines()
            .any(|line| line.contains("proto 77") && line.contains("10.100.0.91 dev eth0 weight"))
    );
    let start = Instant::now();
    let is_down = "clearstream_gateway_state{plan=\"cumulus\",gateway=\"g1\",clearstream_gateway_state=\"down\"} 1";
    while !fs::read_to_string(&metrics).is_ok_and(|text| text.contains(is_down)) {
        assert!(start.elapsed() < PATIENCE, "the metrics say what is down");
        thread::sleep(Duration::from_millis(20));
    }
    watcher.kill();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(rig.lab.routing("c1"), moved, "a killed watcher leaves the last good state");
    let watcher = Watcher::start(&rig, "c1", &["--far", "s1"]);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(watcher.moves(), [] as [Value; 0], "the next one knows what was down");
    assert_eq!(rig.lab.routing("c1"), moved);
    rig.set(Failure::Forwarding, false);
    watcher.leads_over(&["g1", "g2", "g3"]);
    becomes(&rig, &planned);
    rig.set(Failure::Forwarding, true);
    watcher.leads_over(&["g2", "g3"]);
    assert_eq!(watcher.end(), Some(0));
    let reverted = rig.lab.gateway(&["revert"]);
    assert!(reverted.status.success(), "{}", String::from_utf8_lossy(&reverted.stdout));
    assert_eq!(rig.lab.routing("c1"), rig.bare[0]);
    // The other end still watches: it says so, and brings nothing back.
    server.complains_of("");
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(rig.lab.routing("s1"), rig.bare[1]);
    assert_eq!(server.end(), Some(0));
}

fn second_is_refused(rig: &Rig) {
    let second = rig.command("c1", &[]).output().expect("the program starts");
    assert_eq!(second.status.code(), Some(1));
    let line = String::from_utf8(second.stderr).expect("text");
    assert!(line.contains("is another watcher running?") && line.lines().count() == 1, "{line}");
}

/// A program that does not run for a while moves no routes afterwards, and as it reflects no probes either, the other end
/// sees all gateways fail at once, which is no gateway's fault.
fn stopped_blames_nobody(watcher: &Watcher, server: &Watcher) {
    let tell = |signal| rustix::process::kill_process(watcher.program, signal).expect("it runs");
    tell(Signal::STOP);
    server.says("all_failed");
    tell(Signal::CONT);
    watcher.says("overslept");
    server.says("all_failed_ended");
    // What would follow from the rounds meanwhile has followed.
    thread::sleep(Duration::from_millis(300));
    for watcher in [watcher, server] {
        assert_eq!(watcher.moves(), [] as [Value; 0], "{:#?}", watcher.events());
    }
}

/// A gateway that somebody drains is left drained by the watcher, and taken back with `undrain`.
fn drained_stays_drained(rig: &Rig, watcher: &Watcher, planned: &str) {
    let plan = rig.plan.to_str().expect("text");
    let drained = rig.lab.gateway(&["drain", plan, "g2"]);
    let said = String::from_utf8_lossy(&drained.stdout);
    assert!(drained.status.success(), "{said}{}", String::from_utf8_lossy(&drained.stderr));
    watcher.leads_over(&["g1", "g3"]);
    thread::sleep(Duration::from_millis(500));
    let routing = rig.lab.routing("c1");
    assert!(!routing.contains("10.100.0.92 dev eth0 weight"), "{routing}");
    assert_ne!(routing, planned);
    assert!(rig.lab.gateway(&["undrain", plan, "g2"]).status.success());
    watcher.leads_over(&["g1", "g2", "g3"]);
    becomes(rig, planned);
}

/// The host's interface gets another name for a while, and a gateway other hardware addresses for good.
fn others_change_links(rig: &Rig, watcher: &Watcher, planned: &str) {
    for (from, to) in [("eth0", "other"), ("other", "eth0")] {
        rig.lab.exec("c1", &format!("ip link set {from} down"));
        rig.lab.exec("c1", &format!("ip link set {from} name {to}"));
        rig.lab.exec("c1", &format!("ip link set {to} up"));
        if to == "other" {
            watcher.complains_of("interface eth0");
        }
    }
    becomes(rig, planned);
    for (interface, address) in [("eth0", "02:00:00:00:07:01"), ("eth1", "02:00:00:00:07:02")] {
        rig.lab.exec("g2", &format!("ip link set {interface} down"));
        rig.lab.exec("g2", &format!("ip link set {interface} address {address}"));
        rig.lab.exec("g2", &format!("ip link set {interface} up"));
    }
    let start = Instant::now();
    loop {
        let checked = rig.lab.gateway(&["check", rig.plan()]);
        let is_in_use = watcher
            .moves()
            .last()
            .is_none_or(|event| event["names"] == serde_json::json!(["g1", "g2", "g3"]));
        if checked.status.success() && is_in_use && rig.lab.routing("c1") == planned {
            return;
        }
        let told = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(start.elapsed() < PATIENCE, "{told}{:#?}", watcher.events());
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until everything is routed on `c1` as it was.
fn becomes(rig: &Rig, planned: &str) {
    let start = Instant::now();
    loop {
        let routing = rig.lab.routing("c1");
        if routing == planned {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{routing}\nnot\n{planned}");
        thread::sleep(Duration::from_millis(50));
    }
}
