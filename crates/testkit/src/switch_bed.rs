//! A switch and hosts: network namespaces that go with the test, however it ends.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::listening;
use crate::program;
use crate::socket::socket_path;
use serde_json::Value;

/// A switch and hosts; all of it goes with the value, and with the process: the namespaces belong to
/// `unshare`d children that die with it.
pub struct SwitchBed {
    pub socket: PathBuf,
    pub daemon: Child,
    pub hosts: Vec<Child>,
}

impl SwitchBed {
    pub fn new(name: &str, hosts: usize) -> Self {
        Self::with(name, hosts, &[])
    }

    /// With more options of the switch.
    pub fn with(name: &str, hosts: usize, options: &[&str]) -> Self {
        let socket = socket_path(&format!("ports-{name}"));
        let mut run = dying(Command::new(program()));
        run.args(["switch", "run", "--socket"]).arg(&socket).args(options);
        let (daemon, _said) = listening(&mut run);
        let hosts = (0..hosts).map(|_| host()).collect();
        Self { socket, daemon, hosts }
    }

    /// A command on a host.
    pub fn on(&self, host: usize, words: &str) -> Command {
        let mut command = dying(Command::new("nsenter"));
        let pid = self.hosts[host].id().to_string();
        command.args(["--target", &pid, "--net", "--"]).args(words.split(' '));
        command.env("CLEARSTREAM_SWITCH", &self.socket);
        command
    }

    pub fn must(&self, host: usize, words: &str) -> String {
        let output = self.on(host, words).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn clearstream(&self, host: usize, words: &str) -> String {
        self.must(host, &format!("{} {words}", program()))
    }

    /// A TAP port with an address.
    pub fn tap(&self, host: usize, port: &str, dev: &str, address: &str) {
        self.clearstream(host, &format!("port add {port} type=tap dev={dev}"));
        self.must(host, &format!("ip addr add {address}/24 dev {dev}"));
    }

    /// What a stock iperf3 receives in `bytes` from one host to the other, in bit/s.
    pub fn iperf3(&self, from: usize, to: usize, address: &str, bytes: &str) -> f64 {
        let mut server = self.on(to, "iperf3 -s -1 --forceflush");
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let words = format!("iperf3 -c {address} -n {bytes} -J");
        let mut answer = None;
        // The server says nothing that tells when it listens, and a client that finds nobody may end as if
        // all were well.
        eventually("iperf3 answers", || {
            let output = self.on(from, &words).output().unwrap();
            let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            answer = value["end"]["sum_received"]["bits_per_second"].as_f64();
            answer.is_some()
        });
        server.kill().ok();
        server.wait().unwrap();
        answer.unwrap()
    }

    pub fn entry(&self, port: &str) -> Value {
        let text = self.clearstream(0, &format!("--json port stats {port}"));
        serde_json::from_str::<Value>(&text).unwrap()[0].clone()
    }
}

impl Drop for SwitchBed {
    fn drop(&mut self) {
        for child in self.hosts.iter_mut().chain([&mut self.daemon]) {
            child.kill().ok();
            child.wait().ok();
        }
        std::fs::remove_file(&self.socket).ok();
    }
}

/// A program that does not outlive this one, whatever ends it.
fn dying(command: Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
    wrapped
}

/// A network namespace, held by a process that does nothing.
fn host() -> Child {
    let mut command = dying(Command::new("unshare"));
    let script = "ip link set lo up && echo up && exec sleep 600";
    command.args(["--net", "sh", "-c", script]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "up\n", "a namespace of its own");
    child
}

pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn complaint(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}
