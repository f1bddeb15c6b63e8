//! A client that the plan does not know, in the lab `cumulus` with different seeds: its answers return by the gateway by
//! which it asked, and by another one when that fails. Needs root, iproute2 and tcpdump.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use netlink::Family;
use rustix::process::{Pid, Signal};
use sys::netlink_socket::NetlinkSocket;
use testkit::root::is_root;

use super::gateway_lab_root::{Files, Lab};
use super::gateway_watch_root::{Failure, Rig, Watcher, namespace_of, youngest};
use crate::PROGRAM;

const FLOWS_COUNT: usize = 24;
/// Questions of each flow.
const TURNS_COUNT: u32 = 4;
const SERVER: ([u8; 4], u16) = ([10, 10, 0, 21], 7000);
const GATEWAYS: [&str; 3] = ["g1", "g2", "g3"];
/// How long anything may take that has no bound of its own.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the kernel may take to show a capture the packets that have passed.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// A program on a host of the lab; it ends with the value.
pub(crate) struct Running {
    child: Child,
    pub(crate) program: Pid,
}

impl Running {
    pub(crate) fn start(lab: &Lab, host: &str, line: &str) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "exec", &lab.name, host, "--"]).args(line.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let mut running = Self { program: Pid::from_child(&child), child };
        let start = Instant::now();
        // Once it runs as what was asked for, no more processes follow.
        loop {
            running.program = youngest(running.child.id());
            let path = format!("/proc/{}/comm", running.program.as_raw_nonzero());
            let name = std::fs::read_to_string(path).unwrap_or_default();
            if line.starts_with(name.trim_end()) && !name.is_empty() {
                return running;
            }
            assert!(start.elapsed() < PATIENCE, "{line} does not start: {name}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        rustix::process::kill_process(self.program, Signal::KILL).ok();
        self.child.wait().ok();
    }
}

/// Packets by gateway.
type Counts = BTreeMap<&'static str, u32>;

/// The ways that flows take: by client port, the packets of requests and of answers.
type Ways = BTreeMap<u16, [Counts; 2]>;

/// Captures of what the gateways send: questions at their storage side, answers at the other.
struct Captures {
    ways: Arc<Mutex<Ways>>,
    _programs: Vec<Running>,
}

impl Captures {
    fn start(lab: &Lab) -> Self {
        let ways = Arc::new(Mutex::new(Ways::new()));
        let mut programs = Vec::new();
        let sides = [("eth0", "src"), ("eth1", "dst")];
        for (gateway, (side, end)) in
            GATEWAYS.iter().flat_map(|gateway| sides.map(|side| (*gateway, side)))
        {
            // Whole packets would leave room for a few in the kernel only. A switch that does not know where an address is
            // sends packets to every gateway, so what comes in says nothing.
            let line = format!(
                "tcpdump -Z root -n -l -q -s 128 --immediate-mode -Q out -i {side} {end} port 7000"
            );
            let mut running = Running::start(lab, gateway, &line);
            let mut said = BufReader::new(running.child.stderr.take().expect("piped"));
            let mut text = String::new();
            while !text.contains("istening on") {
                assert_ne!(said.read_line(&mut text).expect("a line"), 0, "tcpdump: {text}");
            }
            thread::spawn(move || said.read_to_string(&mut String::new()));
            let (output, ways) = (running.child.stdout.take().expect("piped"), Arc::clone(&ways));
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let Some((port, is_answer)) = flow_of(&line) else { continue };
                    let mut ways = ways.lock().expect("no panic");
                    let counts = &mut ways.entry(port).or_default()[usize::from(is_answer)];
                    *counts.entry(gateway).or_default() += 1;
                }
            });
            programs.push(running);
        }
        Self { ways, _programs: programs }
    }

    /// What has passed since the last time, once so many packets of each of these ports have passed each way.
    fn take_all(&self, ports: &[u16], packets_count: u32) -> Ways {
        let start = Instant::now();
        loop {
            let mut ways = self.ways.lock().expect("no panic");
            let is_whole = |counts: &Counts| counts.values().sum::<u32>() >= packets_count;
            let has_passed = |port| ways.get(port).is_some_and(|both| both.iter().all(is_whole));
            if ports.iter().all(has_passed) {
                return std::mem::take(&mut *ways);
            }
            assert!(start.elapsed() < PATIENCE, "of {ports:?} not all has passed: {ways:?}");
            drop(ways);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// What has passed since the last time.
    fn take(&self) -> Ways {
        thread::sleep(SHOWN_AFTER);
        std::mem::take(&mut *self.ways.lock().expect("no panic"))
    }
}

/// The client's port of a line of tcpdump, and whether it is an answer.
fn flow_of(line: &str) -> Option<(u16, bool)> {
    let mut words = line.split(' ').skip_while(|word| *word != "IP").skip(1);
    let (from, _arrow, to) = (words.next()?, words.next()?, words.next()?);
    let port = |word: &str| word.trim_end_matches(':').rsplit('.').next()?.parse::<u16>().ok();
    match (port(from)?, port(to)?) {
        (7000, client) => Some((client, true)),
        (client, 7000) => Some((client, false)),
        _other => None,
    }
}

fn in_network<T: Send>(network: &File, work: impl FnOnce() -> T + Send) -> T {
    let inside = || {
        sys::namespace::enter_network(network.as_fd()).expect("root");
        work()
    };
    thread::scope(|scope| scope.spawn(inside).join()).expect("no panic")
}

/// Flows of one client; each goes on as long as it is asked.
struct Flows(Vec<TcpStream>);

impl Flows {
    fn open(client: &File) -> Self {
        let open = || (0..FLOWS_COUNT).map(|_flow| connect()).collect();
        Self(in_network(client, open))
    }

    /// A question and an answer of each, several times.
    fn talk(&mut self) {
        for flow in &mut self.0 {
            for _turn in 0..TURNS_COUNT {
                flow.write_all(b"question").expect("no error reaches the application");
                let mut answer = [0; 8];
                flow.read_exact(&mut answer).expect("an answer");
            }
        }
    }

    fn ports(&self) -> Vec<u16> {
        self.0.iter().map(|flow| flow.local_addr().expect("bound").port()).collect()
    }
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(SocketAddr::from(SERVER)).expect("a way");
    stream.set_nodelay(true).expect("TCP");
    stream.set_read_timeout(Some(PATIENCE)).expect("TCP");
    stream
}

/// Answers every flow, in a thread each, until the test ends.
fn serve(server: &File) {
    let listener = in_network(server, || TcpListener::bind(SocketAddr::from(SERVER)));
    let listener = listener.expect("an address of the host");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let (mut from, mut to) = (&stream, &stream);
                std::io::copy(&mut from, &mut to).ok();
            });
        }
    });
}

/// Gateways by which the answers of each flow came, after it is seen that all of its packets took one way each.
fn answered_by(ways: &Ways, flows: &Flows) -> Vec<[&'static str; 2]> {
    let only = |counts: &Counts, port: u16| {
        assert_eq!(counts.len(), 1, "port {port}: {ways:?}");
        counts.keys().next().copied().expect("one")
    };
    let of_port = |port| {
        let [asked, answered] = ways.get(&port).unwrap_or_else(|| panic!("port {port}: {ways:?}"));
        [only(asked, port), only(answered, port)]
    };
    flows.ports().into_iter().map(of_port).collect()
}

fn symmetric_count(taken: &[[&str; 2]]) -> usize {
    taken.iter().filter(|[asked, answered]| asked == answered).count()
}

/// Has the client that the plan does not know spread its flows over these gateways.
fn spread(lab: &Lab, gateways: &[&str]) {
    let mut line = "ip route replace 10.10.0.0/24".to_owned();
    for gateway in gateways {
        let last = gateway.replace('g', "9");
        line.push_str(&format!(" nexthop via 10.100.0.{last} dev eth0 weight 1"));
    }
    lab.exec("c4", &line);
}

fn table(server: &File) -> Option<netlink::FilterTable> {
    in_network(server, || {
        let mut socket = NetlinkSocket::open_filters().expect("nf_tables");
        socket.filter_tables(Family::V4, |name| name == "clearstream-77").expect("a list").pop()
    })
}

/// `c4` is not in the plan.
fn with_a_foreign_client(text: &str) -> String {
    text.replace("c[1-4]", "c[1-3]").replace("10.100.0.[1-4]", "10.100.0.[1-3]")
}

#[test]
fn answers_to_a_foreign_client_return_by_the_gateway_that_asked_and_move_when_it_fails_root() {
    if !is_root() {
        return;
    }
    let rig = Rig::up_with("follow", Files::Without, with_a_foreign_client);
    let lab = &rig.lab;
    lab.exec("c4", "sysctl -qw net.ipv4.fib_multipath_hash_policy=1");
    spread(lab, &GATEWAYS);
    let stays = ["c4", "s1"].map(|host| Running::start(lab, host, "sleep 600"));
    let [client, server] = stays.each_ref().map(|one| namespace_of(one.program, "net"));
    let captures = Captures::start(lab);
    serve(&server);

    // Without marks each side chooses by its own hash.
    let mut unmarked = Flows::open(&client);
    unmarked.talk();
    let taken = answered_by(&captures.take(), &unmarked);
    let by_chance = symmetric_count(&taken);
    assert!(by_chance < FLOWS_COUNT, "different seeds agree by chance only: {taken:?}");

    let bare = lab.routing("s1");
    rig.apply(&|text| format!("{}follow = \"storage\"\n", with_a_foreign_client(text)));
    assert_eq!(table(&server).map(|table| table.chains[0].rules.len()), Some(3));
    let mut flows = Flows::open(&client);
    flows.talk();
    let taken = answered_by(&captures.take(), &flows);
    assert_eq!(symmetric_count(&taken), FLOWS_COUNT, "{taken:?}");
    let used: BTreeSet<&str> = taken.iter().map(|[asked, _]| *asked).collect();
    assert!(used.len() > 1, "{taken:?}");
    println!(
        "symmetric: {by_chance} of {FLOWS_COUNT} unmarked, {FLOWS_COUNT} of {FLOWS_COUNT} marked"
    );

    // Answers of flows by the gateway that fails move with its table; their marks stay.
    let watcher = Watcher::start(&rig, "s1", &["--far", "c1"]);
    let reflector = Watcher::start(&rig, "c1", &["--far", "s1"]);
    rig.set(Failure::Forwarding, true);
    watcher.leads_over(&["g2", "g3"]);
    spread(lab, &["g2", "g3"]);
    captures.take();
    flows.talk();
    for ([_, answered], [before, _]) in
        answered_by(&captures.take(), &flows).into_iter().zip(&taken)
    {
        let expected = if *before == "g1" { "g2" } else { *before };
        assert_eq!(answered, expected, "a flow that came by {before}");
    }
    rig.set(Failure::Forwarding, false);
    watcher.leads_over(&GATEWAYS);
    spread(lab, &GATEWAYS);

    // Somebody flushes the ruleset: the watcher makes the table again.
    let planned = table(&server);
    in_network(&server, || {
        let mut socket = NetlinkSocket::open_filters().expect("nf_tables");
        socket.set_filter_table(Family::V4, "clearstream-77", None).expect("it goes");
    });
    let start = Instant::now();
    while table(&server) != planned {
        assert!(start.elapsed() < PATIENCE, "the marks are not put back");
        thread::sleep(Duration::from_millis(10));
    }
    // A gateway comes back with another hardware address: its mark is made for that one.
    for change in ["down", "address 02:00:00:00:07:02", "up"] {
        lab.exec("g2", &format!("ip link set eth1 {change}"));
    }
    let start = Instant::now();
    while table(&server).is_none_or(|now| Some(now) == planned) {
        assert!(start.elapsed() < PATIENCE, "the mark is of the old address");
        thread::sleep(Duration::from_millis(10));
    }
    watcher.leads_over(&GATEWAYS);
    let mut again = Flows::open(&client);
    captures.take();
    again.talk();
    let taken = answered_by(&captures.take(), &again);
    assert_eq!(symmetric_count(&taken), FLOWS_COUNT, "after everything: {taken:?}");
    drop((watcher, reflector));
    let checked = lab.gateway(&["check", rig.plan()]);
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(told.contains("s1  matches the plan"), "{told}");
    // Nobody watches there.
    assert!(!told.contains("s2  matches the plan"), "{told}");
    assert_eq!(checked.status.code(), Some(3), "{told}");
    rig.apply(&with_a_foreign_client);
    assert_eq!((table(&server), lab.routing("s1")), (None, bare));
}

/// Sockets of one client that are not connected, and that ask one server.
struct Askers(Vec<UdpSocket>);

impl Askers {
    fn open(client: &File) -> Self {
        let bind = || {
            let socket = UdpSocket::bind("10.100.0.4:0").expect("an address of the host");
            socket.set_read_timeout(Some(PATIENCE)).expect("UDP");
            socket
        };
        Self(in_network(client, || (0..FLOWS_COUNT).map(|_socket| bind()).collect()))
    }

    /// Asks from each socket, several times; the gateways of each socket's questions and of their answers.
    fn ask(&self, captures: &Captures) -> Vec<[BTreeSet<&'static str>; 2]> {
        for socket in &self.0 {
            for _turn in 0..TURNS_COUNT {
                socket.send_to(b"question", SocketAddr::from(SERVER)).expect("sent");
                let (_, from) = socket.recv_from(&mut [0; 8]).expect("an answer");
                assert_eq!(from, SocketAddr::from(SERVER));
            }
        }
        let port = |socket: &UdpSocket| socket.local_addr().expect("bound").port();
        let ports: Vec<u16> = self.0.iter().map(port).collect();
        let ways = captures.take_all(&ports, TURNS_COUNT);
        let names = |counts: &Counts| counts.keys().copied().collect();
        ports.iter().map(|port| ways[port].each_ref().map(names)).collect()
    }
}

/// One socket that answers everybody, in a thread, until the test ends.
fn serve_udp(server: &File) {
    let socket = in_network(server, || UdpSocket::bind(("0.0.0.0", SERVER.1))).expect("a port");
    thread::spawn(move || {
        let mut question = [0; 8];
        while let Ok((length, client)) = socket.recv_from(&mut question) {
            socket.send_to(&question[..length], client).ok();
        }
    });
}

fn udp_symmetric_count(taken: &[[BTreeSet<&'static str>; 2]]) -> usize {
    let is_symmetric =
        |[asked, answered]: &&[BTreeSet<&str>; 2]| asked == answered && asked.len() == 1;
    taken.iter().filter(is_symmetric).count()
}

#[test]
fn answers_of_a_udp_server_return_by_the_gateway_that_asked_last_root() {
    if !is_root() {
        return;
    }
    let rig = Rig::up_with("followudp", Files::Without, |text| {
        format!("{}follow = \"storage\"\n", with_a_foreign_client(text))
    });
    let lab = &rig.lab;
    lab.exec("c4", "sysctl -qw net.ipv4.fib_multipath_hash_policy=1");
    spread(lab, &GATEWAYS);
    let stays = ["c4", "s1"].map(|host| Running::start(lab, host, "sleep 600"));
    let [client, server] = stays.each_ref().map(|one| namespace_of(one.program, "net"));
    let captures = Captures::start(lab);
    serve_udp(&server);
    serve(&server);

    // The marks of `follow` are kept by TCP sockets only.
    let askers = Askers::open(&client);
    let taken = askers.ask(&captures);
    let by_chance = udp_symmetric_count(&taken);
    assert!(by_chance < FLOWS_COUNT, "different seeds agree by chance only: {taken:?}");

    let with_udp = |text: &str| {
        format!("{}follow = \"storage\"\nfollow_udp = true\n", with_a_foreign_client(text))
    };
    rig.apply(&with_udp);
    let (asked, mut tcp) = (Askers::open(&client), Flows::open(&client));
    for askers in [&askers, &asked] {
        let taken = askers.ask(&captures);
        assert_eq!(udp_symmetric_count(&taken), FLOWS_COUNT, "{taken:?}");
    }
    // TCP follows as before.
    tcp.talk();
    let ways = answered_by(&captures.take_all(&tcp.ports(), TURNS_COUNT), &tcp);
    assert_eq!(symmetric_count(&ways), FLOWS_COUNT, "{ways:?}");

    // The same sockets ask by one gateway after the other: each answer goes by the one of its question.
    for gateway in GATEWAYS {
        spread(lab, &[gateway]);
        for [question, answer] in asked.ask(&captures) {
            assert_eq!((question, answer), (BTreeSet::from([gateway]), BTreeSet::from([gateway])));
        }
    }
    println!(
        "UDP: {by_chance} of {FLOWS_COUNT} without follow_udp, {FLOWS_COUNT} of {FLOWS_COUNT} with it"
    );

    // A gateway that has failed and is back.
    let watcher = Watcher::start(&rig, "s1", &["--far", "c1"]);
    let _reflector = Watcher::start(&rig, "c1", &["--far", "s1"]);
    spread(lab, &["g1"]);
    rig.set(Failure::NearPort, true);
    watcher.leads_over(&["g2", "g3"]);
    rig.set(Failure::NearPort, false);
    watcher.leads_over(&GATEWAYS);
    assert_eq!(udp_symmetric_count(&asked.ask(&captures)), FLOWS_COUNT);
    drop(watcher);

    let bare = table(&server).expect("marks");
    assert_eq!((bare.chains.len(), bare.maps.len()), (2, 1));
    rig.apply(&|text| format!("{}follow = \"storage\"\n", with_a_foreign_client(text)));
    let left = table(&server).expect("marks");
    assert_eq!((left.chains.len(), left.maps.len()), (1, 0));
    rig.apply(&with_a_foreign_client);
    assert_eq!(table(&server), None);
}
