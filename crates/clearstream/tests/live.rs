//! `clearstream live` against the kernel's own counters, and as a well-behaved part of a pipe.

use crate::PROGRAM;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcsetwinsize};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use testkit::effort;
use testkit::root::is_root;
use traffic::server::ServerConfig;

/// A network namespace that goes away with the value.
struct Namespace {
    name: String,
}

impl Namespace {
    fn new(label: &str) -> Self {
        let space = Self { name: format!("live-{label}-{}", std::process::id()) };
        ip(&format!("netns add {}", space.name));
        space.ip("link set lo up");
        space
    }

    fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.name));
    }

    /// Runs in a thread of its own inside the namespace.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.name)).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    fn live(&self, arguments: &[&str]) -> Child {
        Command::new("ip")
            .args(["netns", "exec", &self.name, PROGRAM, "live"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Bytes an interface has received and sent, as `/proc/net/dev` has them.
    fn bytes(&self, interface: &str) -> (u64, u64) {
        let text = self.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
        let line =
            text.lines().find(|line| line.trim_start().starts_with(&format!("{interface}:")));
        let figures: Vec<u64> = line
            .unwrap()
            .split_once(':')
            .unwrap()
            .1
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        (figures[0], figures[8])
    }
}

/// A server inside a namespace.
struct Server {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Server {
    fn start(space: &Namespace) -> Self {
        let ending = Arc::new(AtomicBool::new(false));
        let thread = space.run(|| {
            let server = traffic::server::Server::bind(ServerConfig::default()).unwrap();
            let ending = Arc::clone(&ending);
            // The new thread stays in the namespace of the one that starts it.
            std::thread::spawn(move || {
                server.run(Arc::new(|_notice| {}), &|| ending.load(Ordering::Relaxed)).unwrap();
            })
        });
        Self { ending, thread }
    }

    fn stop(self) {
        self.ending.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        Command::new("ip").args(["netns", "del", &self.name]).status().ok();
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Sends so many datagrams of 1000 bytes from inside the calling thread's namespace.
fn send_datagrams(count: u32, to: IpAddr) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    for _datagram in 0..count {
        // Nobody listens: an earlier datagram's "port unreachable" may come back as an error here.
        socket.send_to(&[0; 1000], (to, 9)).ok();
    }
}

/// The objects of a run of `live --json`; `traffic` runs once the first interval has been shown. The view is ended when
/// an interval has been shown that began after the traffic, and `is_whole` says that all of it was seen: however late
/// the machine lets either be.
fn objects(
    mut live: Child,
    traffic: impl FnOnce(),
    is_whole: impl Fn(&[Value]) -> bool,
) -> Vec<Value> {
    let lines = BufReader::new(live.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut objects = vec![lines.next().expect("a first line")];
    traffic();
    let sent_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    // What the first later line tells may have been read before.
    let mut later = 0;
    let until = Instant::now() + Duration::from_secs(20);
    while later < 2 || !is_whole(&objects) {
        assert!(Instant::now() < until, "not seen within 20 s: {objects:#?}");
        let object = lines.next().expect("an interval after the traffic");
        later += u32::from(object["unix_ms"].as_u64().unwrap() > sent_unix_ms);
        objects.push(object);
    }
    kill_process(Pid::from_child(&live), Signal::INT).unwrap();
    objects.extend(lines);
    let mut complaint = String::new();
    live.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(live.wait().unwrap().success(), "{complaint}");
    assert_eq!(complaint, "");
    objects
}

/// Bytes that the intervals of one end tell of, one way.
fn told_bytes(intervals: &[Value], end: &str, way: &str) -> f64 {
    let told = |object: &Value| {
        let rates = &object[end][0];
        let bits_per_s = rates[format!("{way}_bits_per_s")].as_f64();
        // An interval may have no reading; the next one tells of both.
        bits_per_s.unwrap_or(0.0) * rates["interval_s"].as_f64().unwrap_or(0.0) / 8.0
    };
    intervals.iter().map(told).sum()
}

#[test]
fn root_the_view_agrees_with_the_kernel() {
    if !is_root() {
        return;
    }
    let space = Namespace::new("one");
    let before = space.bytes("lo");
    let live = space.live(&["lo", "--json", "--interval", "200ms"]);
    let traffic = || space.run(|| send_datagrams(300, IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let objects = objects(live, traffic, |_| true);
    let after = space.bytes("lo");
    let (whole, intervals) = objects.split_last().unwrap();
    assert_eq!(whole["event"], "summary");
    let summary = &whole["near"][0];
    assert!(after.0 - before.0 >= 300 * 1028);
    assert_eq!(summary["in_bytes"], after.0 - before.0);
    assert_eq!(summary["out_bytes"], after.1 - before.1);
    let told = told_bytes(intervals, "near", "in");
    assert!((told - summary["in_bytes"].as_f64().unwrap()).abs() < 1.0);
}

#[test]
fn root_what_one_end_sends_the_other_receives() {
    if !is_root() {
        return;
    }
    let (here, there) = (Namespace::new("here"), Namespace::new("there"));
    here.ip(&format!("link add ends type veth peer name ends netns {}", there.name));
    here.ip("addr add 10.98.1.1/24 dev ends");
    there.ip("addr add 10.98.1.2/24 dev ends");
    here.ip("link set ends up");
    there.ip("link set ends up");
    let server = Server::start(&there);
    let (forth, back) = (2000.0 * 1042.0, 1000.0 * 1042.0);
    let live = here.live(&["--far", "10.98.1.2", "--json", "--interval", "200ms"]);
    let traffic = || {
        here.run(|| send_datagrams(2000, IpAddr::V4(Ipv4Addr::new(10, 98, 1, 2))));
        there.run(|| send_datagrams(1000, IpAddr::V4(Ipv4Addr::new(10, 98, 1, 1))));
    };
    // The far end reads its counters when it does.
    let is_whole = |seen: &[Value]| {
        told_bytes(seen, "far", "in") >= forth - 1.0 && told_bytes(seen, "far", "out") >= back - 1.0
    };
    let objects = objects(live, traffic, is_whole);
    server.stop();
    let summary = objects.last().unwrap();
    let (near, far) = (&summary["near"][0], &summary["far"][0]);
    assert_eq!((&near["interface"], &far["interface"]), (&"ends".into(), &"ends".into()));
    let figure = |value: &Value| value.as_f64().unwrap();
    for (sent, received, least) in [
        (&near["out_bytes"], &far["in_bytes"], forth),
        (&far["out_bytes"], &near["in_bytes"], back),
    ] {
        let (sent, received) = (figure(sent), figure(received));
        assert!(sent >= least && received >= least, "{summary}");
        // The two ends are not read at the same instant: the readings themselves travel between.
        assert!((sent - received).abs() < 20_000.0, "{summary}");
    }
}

/// Of a line of a view of both ends: its time, and whether it has figures of the near one and of the far one.
fn both_ends(line: &str) -> Option<(f64, [bool; 2])> {
    let words: Vec<_> = line.split_whitespace().take(5).collect();
    // No headings.
    let at_s = words.first()?.parse().ok()?;
    let has = |words: &[&str]| words.iter().all(|word| *word != "-");
    Some((at_s, [has(words.get(1..3)?), has(words.get(3..5)?)]))
}

#[test]
fn root_a_far_end_that_goes_away_is_told_and_the_near_end_stays() {
    if !is_root() {
        return;
    }
    let space = Namespace::new("lost");
    let server = Server::start(&space);
    let began = Instant::now();
    let mut live = space.live(&["--far", "127.0.0.1", "--interval", "100ms"]);
    let lines = BufReader::new(live.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut lines = lines.filter_map(|line| both_ends(&line));
    lines.find(|(_, has)| *has == [true, true]).expect("figures of both ends");
    server.stop();
    let mut stderr = BufReader::new(live.stderr.take().unwrap());
    let mut complaint = String::new();
    stderr.read_line(&mut complaint).unwrap();
    assert!(complaint.contains("the far end no longer sends counters"), "{complaint}");
    // The view began later than this test counts: its line of that time was read after the loss was told.
    let told_s = began.elapsed().as_secs_f64();
    let after = lines.find(|(at_s, _)| *at_s > told_s).expect("it goes on");
    assert_eq!(after.1, [true, false]);
    kill_process(Pid::from_child(&live), Signal::INT).unwrap();
    lines.for_each(drop);
    stderr.read_to_string(&mut complaint).unwrap();
    assert_eq!(live.wait().unwrap().code(), Some(5), "{complaint}");
    assert_eq!(complaint.lines().count(), 2, "when it happens and at the end: {complaint}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut live = live(&["lo", "--interval", "50ms"]);
    let mut reader = BufReader::new(live.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("in Mbit/s"), "{line}");
    drop(reader);
    let output = live.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn an_interrupt_ends_it_with_a_summary_and_success() {
    let mut live = live(&["lo", "--interval", "50ms"]);
    let mut reader = BufReader::new(live.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&live), Signal::INT).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(live.wait().unwrap().success());
    let last: Vec<_> = rest.lines().rev().take(2).collect();
    assert!(last[1].starts_with("near lo in ") && last[1].contains("mean"), "{rest}");
    assert!(last[0].starts_with("near lo out ") && last[0].contains("peak"), "{rest}");
}

#[test]
fn the_full_screen_view_gives_the_terminal_back() {
    for key in ["q", "\x03"] {
        let (mut master, terminal) = terminal();
        let mut live = Command::new(PROGRAM)
            .args(["live", "--tui", "--interval", "50ms", "lo"])
            .env("TERM", "xterm")
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal.try_clone().unwrap())
            .spawn()
            .unwrap();
        let drawn = read_until(&mut master, "quit");
        assert!(drawn.starts_with("\x1b[?1049h"), "the alternate screen: {drawn:?}");
        master.write_all(key.as_bytes()).unwrap();
        let rest = read_until(&mut master, "near lo out ");
        assert!(live.wait().unwrap().success(), "{rest}");
        let left = rest.find("\x1b[?1049l").expect("leaves the alternate screen");
        assert!(left < rest.find("near lo in ").unwrap(), "the summary comes after it");
        let modes = rustix::termios::tcgetattr(&terminal).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
    }
}

fn read_until(terminal: &mut File, wanted: &str) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.contains(wanted) {
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&patience)).unwrap();
        assert_ne!(ready, 0, "{wanted:?} does not come: {text:?}");
        let length = terminal.read(&mut bytes).unwrap();
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    text
}

/// A terminal of 80 by 24: the end a user types at and the end a program is given.
fn terminal() -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    (File::from(master), terminal)
}

#[test]
fn lines_come_at_their_time() {
    let started = Instant::now();
    let view = live(&["lo", "--json", "--interval", "100ms", "--count", "10"]);
    let output = view.wait_with_output().unwrap();
    let took = started.elapsed();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let objects = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let times_s: Vec<f64> =
        objects.map(|object| object["elapsed_s"].as_f64().unwrap()).take(10).collect();
    assert_eq!(text.lines().count(), 10 + 1);
    // None before its time. One that the machine lets come late makes no later one late.
    for (number, at_s) in (1..).zip(&times_s) {
        assert!(*at_s >= f64::from(number) * 0.1 - 0.001, "{times_s:?}");
    }
    assert!(times_s.is_sorted_by(|one, next| one < next), "{times_s:?}");
    if effort::is_all() {
        assert!(took < Duration::from_secs(3), "{took:?}");
    } else {
        effort::left_to_test_all("whether ten lines take little more than their time");
    }
}

#[test]
fn what_cannot_be_shown_is_said_in_one_line() {
    for (arguments, code, word) in [
        (&["no-such-dev0"][..], 2, "no-such-dev0"),
        (&["--tui"], 2, "terminal"),
        (&["--tui", "--json"], 2, "--json"),
        (&["--interval", "1ms"], 2, "50ms"),
        (&["--count", "0"], 2, "--count"),
        (&["--far", "a", "lo", "lo"], 2, "--far"),
        (&["--far", "a", "--interval", "50ms"], 2, "100ms"),
        (&["--far", "127.0.0.1:0"], 2, "port"),
        (&["--far", "127.0.0.1:1"], 1, "127.0.0.1"),
    ] {
        let output = live(arguments).wait_with_output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.contains(word), "{complaint}");
        assert!(output.stdout.is_empty());
    }
}

fn live(arguments: &[&str]) -> Child {
    Command::new(PROGRAM)
        .arg("live")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
