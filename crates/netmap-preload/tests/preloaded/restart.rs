//! The switch's daemon is killed and started again under programs that know nothing of it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use packet_switch::client::Connection;
use packet_switch::daemon::{Config, Daemon};

use super::features::program;
use super::{Running, Switch, socket_path};

const SOCKET: &str = "CLEARSTREAM_TEST_SWITCH";

/// This program again, as a daemon; without a socket to serve it checks that none is served.
#[test]
fn serves_as_a_daemon_of_its_own() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        assert!(Connection::open(Path::new("/nonexistent/switch")).is_err());
        return;
    };
    let daemon = Daemon::bind(Config::new(socket.into())).expect("a switch");
    daemon.run(&mut |_| {}, &|| false).expect("it runs");
}

/// A daemon that may be killed.
struct Killable(Child, PathBuf);

impl Killable {
    fn start(socket: &Path) -> Self {
        let child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "restart::serves_as_a_daemon_of_its_own", "--nocapture"])
            .env(SOCKET, socket)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let until = Instant::now() + Duration::from_secs(20);
        while Connection::open(socket).is_err() {
            assert!(Instant::now() < until, "the switch serves");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child, socket.to_owned())
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        // SIGKILL: it leaves its socket's path behind, which the next would take over.
        self.0.kill().ok();
        self.0.wait().ok();
        std::fs::remove_file(&self.1).ok();
    }
}

fn wait_for_ports(socket: &Path, count: usize) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let ports = Connection::open(socket).ok().and_then(|mut one| one.list().ok());
        if ports.is_some_and(|ports| ports.len() == count) {
            return;
        }
        assert!(Instant::now() < until, "{count} ports");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a stream said on stdout after it was attached, and on stderr.
fn ended(mut stream: Running) -> (String, String) {
    let complaint = stream.complaint();
    let mut said = String::new();
    stream.out.read_to_string(&mut said).expect("UTF-8");
    let outcome = stream.child.wait().expect("it ends");
    assert!(outcome.success(), "{outcome} {complaint}");
    (said, complaint)
}

#[test]
fn a_new_daemon_is_found_and_frames_go_on() {
    let socket = socket_path("netmap-restart");
    let daemon = Killable::start(&socket);
    let switch =
        Switch { socket: socket.clone(), stop: AtomicBool::new(false).into(), thread: None };
    // Two seconds' worth at the most, in which there are two daemons.
    let count = 1500;
    let receiving = switch.start_program(program(), &format!("stream-in vale0:b {count} 0"));
    let sending = switch.start_program(program(), &format!("stream-out vale0:a {count} 0"));
    std::thread::sleep(Duration::from_millis(200));
    drop(daemon);
    std::thread::sleep(Duration::from_millis(200));
    let _next = Killable::start(&socket);
    wait_for_ports(&socket, 2);
    let (_, sender_said) = ended(sending);
    let (got, receiver_said) = ended(receiving);
    let got: u32 = got.trim().parse().expect("a number");
    assert!((count / 3..=count).contains(&got), "{got} of {count}");
    for said in [sender_said, receiver_said] {
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2, "once each: {said}");
        assert!(lines[0].ends_with("the switch has ended; waiting for the next one"), "{said}");
        assert!(lines[1].contains("the switch is back; "), "{said}");
    }
}

#[test]
fn a_pipe_goes_on_without_the_daemon() {
    let socket = socket_path("netmap-orphans");
    let daemon = Killable::start(&socket);
    let switch = Switch { socket, stop: AtomicBool::new(false).into(), thread: None };
    let receiving = switch.start_program(program(), "stream-in pipe}1 3000 0");
    // Takes three seconds at the least: it is in the midst of that when the daemon is killed.
    let sending = switch.start_program(program(), "stream-out pipe{1 3000 0");
    drop(daemon);
    let (_, said) = ended(sending);
    assert!(said.contains("the pipe still works"), "{said}");
    assert_eq!(ended(receiving).0, "3000\n", "nothing is lost");
}
