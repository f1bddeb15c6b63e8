//! Two hosts on one machine, and programs run on them.
//!
//! A host is a network namespace held by a child of this process. Every child dies with its parent
//! (`PR_SET_PDEATHSIG`, through setpriv), and with the last process its namespace and veth go.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use thiserror::Error;

use crate::comparison::Medium;

/// The lab with the lightpath of the paper, and its hosts.
const LAB: &str = "glif2010";
const LAB_HOSTS: [&str; 2] = ["amsterdam", "geneva"];
/// Cores of the sending and the receiving program.
const CORES: [&str; 2] = ["0", "1"];

/// Why something could not be measured.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    /// No right to create namespaces.
    #[error("creating network namespaces needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run as root): {0}")]
    Privilege(String),
    /// A program is not installed.
    #[error("{0} is not installed")]
    NotInstalled(String),
    /// It went wrong.
    #[error("{0}")]
    Failed(String),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// What the programs run over.
pub(crate) enum Wire {
    /// Nothing.
    Nothing,
    /// Two hosts and a veth pair.
    Veth {
        /// Of the sending program.
        near: Host,
        /// Of the receiving one.
        far: Host,
    },
    /// A lab.
    Lab(Lab),
}

/// Which of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Sends.
    Near,
    /// Receives.
    Far,
}

impl Wire {
    /// Makes the hosts and the wire between them.
    pub(crate) fn lay(medium: Medium) -> Result<Self, BenchError> {
        match medium {
            Medium::Nothing => Ok(Self::Nothing),
            Medium::Lightpath => Ok(Self::Lab(Lab::up(LAB, LAB, LAB_HOSTS)?)),
            Medium::Veth | Medium::VethSplittingUdp => {
                let (near, far) = (Host::new("192.0.2.1")?, Host::new("192.0.2.2")?);
                join(&near, &far)?;
                if medium == Medium::VethSplittingUdp {
                    for host in [&near, &far] {
                        let off = ["-K", "veth0", "tx-udp-segmentation", "off"];
                        checked(host.enter("ethtool").args(off))?;
                    }
                }
                Ok(Self::Veth { near, far })
            }
        }
    }

    /// The address or name by which near reaches far.
    pub(crate) fn target(&self) -> String {
        match self {
            Self::Nothing => Ipv4Addr::LOCALHOST.to_string(),
            Self::Veth { far, .. } => far.address.to_owned(),
            Self::Lab(lab) => lab.hosts[Side::Far as usize].to_owned(),
        }
    }

    /// A command that runs `program` on one side, on that side's core, and dies with us.
    pub(crate) fn command(&self, side: Side, program: &str) -> Command {
        let mut line = ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned).to_vec();
        match self {
            Self::Nothing => {}
            Self::Veth { near, far } => {
                let host = if side == Side::Near { near } else { far };
                line.extend(["nsenter".to_owned(), host.namespace()]);
                line.extend(["taskset", "-c", CORES[side as usize]].map(str::to_owned));
            }
            Self::Lab(lab) => {
                let (name, host) = (lab.name, lab.hosts[side as usize]);
                line.extend(
                    [crate::ours::program(), "lab", "exec", name, host, "--"].map(str::to_owned),
                );
            }
        }
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).arg(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Whether somebody listens on `port` of the far side.
    fn listens(&self, port: u16, udp: bool) -> bool {
        let tables = if udp {
            ["/proc/net/udp", "/proc/net/udp6"]
        } else {
            ["/proc/net/tcp", "/proc/net/tcp6"]
        };
        let Ok(output) = self.command(Side::Far, "cat").args(tables).output() else { return false };
        let suffix = format!(":{port:04X}");
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().any(|line| {
            line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&suffix))
        })
    }
}

/// A network namespace.
pub(crate) struct Host {
    holder: Child,
    address: &'static str,
}

impl Host {
    pub(crate) fn new(address: &'static str) -> Result<Self, BenchError> {
        let mut holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let entered = wait_until(Duration::from_secs(5), || {
            let name =
                fs::read_to_string(format!("/proc/{}/comm", holder.id())).unwrap_or_default();
            name.trim() == "sleep" || matches!(holder.try_wait(), Ok(Some(_)))
        });
        if !entered || holder.try_wait()?.is_some() {
            holder.kill().ok(); // it may be gone already
            let said = holder.wait_with_output()?.stderr;
            return Err(BenchError::Privilege(String::from_utf8_lossy(&said).trim().to_owned()));
        }
        Ok(Self { holder, address })
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<String, BenchError> {
        checked(self.enter("ip").args(arguments))
    }

    /// A command inside the namespace.
    fn enter(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.namespace()).arg(program);
        command
    }

    /// The same on these cores, and dying with us.
    pub(crate) fn enter_on(&self, cores: &str, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter", &self.namespace(), "taskset", "-c", cores]);
        command.arg(program);
        command
    }

    /// A veth pair with one end here and the other there, both up, without addresses.
    pub(crate) fn cable(&self, here: &str, other: &Self, there: &str) -> Result<(), BenchError> {
        let pid = other.holder.id().to_string();
        self.ip(&["link", "add", here, "type", "veth", "peer", "name", there, "netns", &pid])?;
        self.ip(&["link", "set", here, "up"])?;
        other.ip(&["link", "set", there, "up"]).map(drop)
    }

    /// As nsenter names it.
    fn namespace(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.holder.id())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.holder.kill().ok(); // it may be gone already
        self.holder.wait().ok(); // reaped or not ours: nothing to do either way
    }
}

fn join(near: &Host, far: &Host) -> Result<(), BenchError> {
    let far_pid = far.holder.id().to_string();
    near.ip(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", &far_pid])?;
    for host in [near, far] {
        host.ip(&["link", "set", "lo", "up"])?;
        host.ip(&["address", "add", &format!("{}/24", host.address), "dev", "veth0"])?;
        host.ip(&["link", "set", "veth0", "up"])?;
    }
    Ok(())
}

/// The lab. A guard outside our process group takes it down when its standard input ends: at the
/// end of this value, or of this process, whatever ended it.
pub(crate) struct Lab {
    guard: Child,
    name: &'static str,
    hosts: [&'static str; 2],
}

impl Lab {
    /// From a file or one that comes with the program; `hosts` send and receive.
    pub(crate) fn up(
        file: &str,
        name: &'static str,
        hosts: [&'static str; 2],
    ) -> Result<Self, BenchError> {
        let program = crate::ours::program();
        let said = checked(Command::new(program).args(["lab", "up", file, "--json"]))?;
        if said.contains("\"already_up\":true") {
            return Err(BenchError::Failed(format!(
                "the lab {name} is in use; take it down first"
            )));
        }
        let script = format!("cat >/dev/null; exec '{program}' lab down {name} >/dev/null");
        let guard = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()?;
        Ok(Self { guard, name, hosts })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        if !self.guard.wait().is_ok_and(|status| status.success()) {
            eprintln!("bench: the lab {} may still be up", self.name);
        }
    }
}

/// Runs a command that must succeed; what it printed.
fn checked(command: &mut Command) -> Result<String, BenchError> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BenchError::Failed(format!("{:?}: {said}", command.get_program())))
}

/// A server, ended with its value.
pub(crate) struct Server(Child);

impl Server {
    /// Starts it and waits until somebody listens on `port` there.
    pub(crate) fn start(
        wire: &Wire,
        mut command: Command,
        port: u16,
        udp: bool,
    ) -> Result<Self, BenchError> {
        let child = command.stdout(Stdio::null()).spawn()?;
        let mut server = Self(child);
        let ready = wait_until(Duration::from_secs(5), || {
            wire.listens(port, udp) || matches!(server.0.try_wait(), Ok(Some(_)))
        });
        if let Some(status) = server.0.try_wait()? {
            let mut said = String::new();
            if let Some(stderr) = server.0.stderr.as_mut() {
                stderr.read_to_string(&mut said)?;
            }
            return Err(BenchError::Failed(format!(
                "server ended ({status}): {}",
                last_line(&said)
            )));
        }
        if !ready {
            return Err(BenchError::Failed(format!(
                "nobody listens on port {port} of {}",
                wire.target()
            )));
        }
        Ok(server)
    }

    /// Processor time it has had, user and system, seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        cpu_s(self.0.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok(); // it may be gone already
        self.0.wait().ok(); // reaped or not ours: nothing to do either way
    }
}

/// A finished client.
pub(crate) struct Finished {
    /// What it printed.
    pub(crate) stdout: String,
    /// Processor time it had, user and system, seconds.
    pub(crate) cpu_s: f64,
}

/// Runs a client to its end, at most `limit`.
pub(crate) fn finish(mut command: Command, limit: Duration) -> Result<Finished, BenchError> {
    let mut child = command.spawn()?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let reading = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = Vec::new();
            let read = stream.map(|mut stream| stream.read_to_end(&mut text));
            read.transpose().map(|_| String::from_utf8_lossy(&text).into_owned())
        })
    };
    let stdout = reading(out.take().map(|one| Box::new(one) as Box<dyn Read + Send>));
    let stderr = reading(err.take().map(|one| Box::new(one) as Box<dyn Read + Send>));
    let ended = ends_within(&child, limit)?;
    let cpu_s = cpu_s(child.id());
    if !ended {
        child.kill()?;
    }
    let status = child.wait()?;
    let text = |thread: thread::JoinHandle<std::io::Result<String>>| {
        thread.join().unwrap_or(Ok(String::new()))
    };
    let (stdout, stderr) = (text(stdout)?, text(stderr)?);
    if !ended {
        return Err(BenchError::Failed(format!("it had not ended after {} s", limit.as_secs())));
    }
    if !status.success() {
        let said = if stderr.trim().is_empty() { &stdout } else { &stderr };
        return Err(BenchError::Failed(format!("{status}: {}", last_line(said))));
    }
    Ok(Finished { stdout, cpu_s })
}

/// Waits for the end without reaping, so that `/proc` still tells the times.
fn ends_within(child: &Child, limit: Duration) -> Result<bool, BenchError> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| BenchError::Failed("no such process".to_owned()))?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let mut failure = None;
    let ended = wait_until(limit, || match waitid(WaitId::Pid(pid), options) {
        Ok(status) => status.is_some(),
        Err(error) => {
            failure = Some(error);
            true
        }
    });
    failure.map_or(Ok(ended), |error| Err(BenchError::Io(error.into())))
}

/// User and system time of a process and of its reaped children, seconds (`proc_pid_stat(5)`).
fn cpu_s(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in parentheses and may hold anything; fields 3 and on follow it.
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Seconds all cores have been busy, software interrupts included (`proc_stat(5)`).
pub(crate) fn host_busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> =
        first.split_whitespace().skip(1).filter_map(|one| one.parse().ok()).collect();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    let all: u64 = fields.iter().take(8).sum();
    (all - idle) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Whether a program is on the path.
pub(crate) fn installed(program: &str) -> Result<(), BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A path is a program that lies there.
    let found = program.contains('/') && Path::new(program).is_file()
        || std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file());
    if found { Ok(()) } else { Err(BenchError::NotInstalled(program.to_owned())) }
}

fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if done() {
            return true;
        }
        if began.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn last_line(text: &str) -> &str {
    text.trim().lines().next_back().unwrap_or("it said nothing")
}

/// This machine in a few words: what every figure depends on.
pub(crate) fn facts() -> BTreeMap<&'static str, String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    BTreeMap::from([
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("cpu", model.trim_start_matches([':', ' ', '\t']).to_owned()),
        ("cores", cores.to_string()),
        ("iperf3", crate::iperf::iperf3_version()),
        ("congestion_control", crate::plan::CONGESTION_CONTROL.to_owned()),
    ])
}
