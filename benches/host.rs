//! Two hosts on one machine, and programs run on them.
//!
//! A host is a network namespace held by a child of this process. Every child ends with its value and with
//! this process ([`Owned`]), and with the last process its namespace and veth go.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sys::process::{Ended, Ending, Owned};
use thiserror::Error;
use topology::HostFiles;

use crate::comparison::Medium;

/// The lab with the lightpath of the paper, and its hosts.
const LAB: &str = "glif2010";
const LAB_HOSTS: [&str; 2] = ["amsterdam", "geneva"];
/// Longest wait for a host or a server to be there.
const START_MAX: Duration = Duration::from_secs(5);
/// Longest run of a command that does no measurement.
const SAID_MAX: Duration = Duration::from_secs(120);
/// Most that is kept of what a child writes, bytes: more than any peer's account of a run.
const SAID_BYTES_MAX: usize = 64 << 20;
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
        near: Box<Host>,
        /// Of the receiving one.
        far: Box<Host>,
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
            Medium::Veth | Medium::VethSplittingUdp | Medium::VethSplittingAll => {
                let (near, far) = (Host::new("192.0.2.1")?, Host::new("192.0.2.2")?);
                join(&near, &far)?;
                let off: &[&str] = match medium {
                    Medium::VethSplittingUdp => &["tx-udp-segmentation"],
                    Medium::VethSplittingAll => &["tx-udp-segmentation", "tso"],
                    _ => &[],
                };
                for (host, offload) in [&near, &far]
                    .into_iter()
                    .flat_map(|host| off.iter().map(move |offload| (host, offload)))
                {
                    checked(host.enter("ethtool").args(["-K", "veth0", offload, "off"]))?;
                }
                Ok(Self::veth(near, far))
            }
        }
    }

    /// Two hosts that a wire joins.
    pub(crate) fn veth(near: Host, far: Host) -> Self {
        Self::Veth { near: Box::new(near), far: Box::new(far) }
    }

    /// The address or name by which near reaches far.
    pub(crate) fn target(&self) -> String {
        match self {
            Self::Nothing => Ipv4Addr::LOCALHOST.to_string(),
            Self::Veth { far, .. } => far.address.to_owned(),
            Self::Lab(lab) => lab.hosts[Side::Far as usize].to_owned(),
        }
    }

    /// A command that runs `program` on one side, on that side's core.
    pub(crate) fn command(&self, side: Side, program: &str) -> Command {
        let mut command = match self {
            Self::Nothing => Command::new(program),
            Self::Veth { near, far } => {
                let host = if side == Side::Near { near } else { far };
                host.enter_on(CORES[side as usize], program)
            }
            Self::Lab(lab) => {
                let mut command = Command::new(crate::ours::program());
                command.args(["lab", "exec", lab.name, lab.hosts[side as usize], "--", program]);
                command
            }
        };
        speak_to_us(&mut command);
        command
    }

    /// The same on any core.
    pub(crate) fn unbound(&self, side: Side, program: &str) -> Command {
        match self {
            Self::Veth { near, far } => {
                let host = if side == Side::Near { near } else { far };
                host.enter(program)
            }
            Self::Nothing | Self::Lab(_) => self.command(side, program),
        }
    }

    /// Whether somebody listens on `port` of the far side.
    fn listens(&self, port: u16, udp: bool) -> bool {
        let tables = if udp {
            ["/proc/net/udp", "/proc/net/udp6"]
        } else {
            ["/proc/net/tcp", "/proc/net/tcp6"]
        };
        let Ok(told) = said(self.command(Side::Far, "cat").args(tables)) else { return false };
        let suffix = format!(":{port:04X}");
        let text = String::from_utf8_lossy(&told.stdout);
        text.lines().any(|line| {
            line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&suffix))
        })
    }
}

/// A network namespace.
pub(crate) struct Host {
    holder: Owned,
    address: &'static str,
}

impl Host {
    pub(crate) fn new(address: &'static str) -> Result<Self, BenchError> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sleep", "infinity"]);
        let mut holder = start(speak_to_us(&mut unshare))?;
        let entered = wait_until(START_MAX, || {
            let name =
                fs::read_to_string(format!("/proc/{}/comm", holder.id())).unwrap_or_default();
            name.trim() == "sleep" || matches!(holder.try_wait(), Ok(Some(_)))
        });
        if !entered || holder.try_wait()?.is_some() {
            let why = match holder.ended_within(Duration::ZERO) {
                Ok(ended) => ended.last_line(),
                Err(error) => error.to_string(),
            };
            return Err(BenchError::Privilege(why));
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

    /// The same on these cores.
    pub(crate) fn enter_on(&self, cores: &str, program: &str) -> Command {
        let mut command = self.enter("taskset");
        command.args(["-c", cores, program]);
        command
    }

    /// The files that tell about the namespace.
    pub(crate) fn files(&self) -> HostFiles {
        let mut files = HostFiles::default();
        files.proc = format!("/proc/{}", self.holder.id()).into();
        files
    }

    /// A veth pair with one end here and the other there, both up, without addresses.
    pub(crate) fn cable(&self, here: &str, other: &Self, there: &str) -> Result<(), BenchError> {
        let pid = other.holder.id().to_string();
        self.ip(&["link", "add", here, "type", "veth", "peer", "name", there, "netns", &pid])?;
        self.ip(&["link", "set", here, "up"])?;
        other.ip(&["link", "set", there, "up"]).map(drop)
    }

    /// As nsenter names it.
    pub(crate) fn namespace(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.holder.id())
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
/// end of this value, or of this process, whatever ended it. The guard outlives this process, which no
/// [`Owned`] child does; and a lab is brought up by the program under test, of whatever version, not by
/// the `lab` of this one.
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
        let told = checked(Command::new(program).args(["lab", "up", file, "--json"]))?;
        let told: Value = serde_json::from_str(&told)
            .map_err(|error| BenchError::Failed(format!("lab up --json: {error}")))?;
        if told["already_up"] == true {
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
    let program = command.get_program().to_owned();
    let ended = said(speak_to_us(command))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    Err(BenchError::Failed(format!("{}: {}", program.display(), ended.last_line())))
}

/// Has a command's child read nothing and write into pipes.
pub(crate) fn speak_to_us(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// Starts a child that ends with the value and with this thread. What it writes into pipes is kept.
pub(crate) fn start(command: &mut Command) -> Result<Owned, BenchError> {
    Ok(Owned::start(command, Ending::KILL)?.capture(SAID_BYTES_MAX)?)
}

/// Runs a command that ends by itself; how it ended and what it wrote into pipes.
pub(crate) fn said(command: &mut Command) -> Result<Ended, BenchError> {
    Ok(start(command)?.ended_within(SAID_MAX)?)
}

/// A server, ended with its value.
pub(crate) struct Server(Owned);

impl Server {
    /// Starts it and waits until somebody listens on `port` there.
    pub(crate) fn start(
        wire: &Wire,
        mut command: Command,
        port: u16,
        udp: bool,
    ) -> Result<Self, BenchError> {
        let mut child = start(command.stdout(Stdio::null()))?;
        let ready = wait_until(START_MAX, || {
            wire.listens(port, udp) || matches!(child.try_wait(), Ok(Some(_)))
        });
        if child.try_wait()?.is_some() {
            let ended = child.ended_within(Duration::ZERO)?;
            let (status, why) = (ended.status, ended.last_line());
            return Err(BenchError::Failed(format!("server ended ({status}): {why}")));
        }
        if !ready {
            return Err(BenchError::Failed(format!(
                "nobody listens on port {port} of {}",
                wire.target()
            )));
        }
        Ok(Self(child))
    }

    /// Processor time it has had, user and system, seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        cpu_s(self.0.id())
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
    let child = start(&mut command)?;
    if !child.has_ended_within(limit)? {
        return Err(BenchError::Failed(format!("it had not ended after {} s", limit.as_secs())));
    }
    // Until it is waited for, `/proc` tells its times.
    let cpu_s = cpu_s(child.id());
    let ended = child.ended_within(Duration::ZERO)?;
    if !ended.status.success() {
        return Err(BenchError::Failed(format!("{}: {}", ended.status, ended.last_line())));
    }
    Ok(Finished { stdout: String::from_utf8_lossy(&ended.stdout).into_owned(), cpu_s })
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
