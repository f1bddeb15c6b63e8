//! Stock Open MPI on two hosts of a lab, over links that lose packets, and with ranks that are killed or
//! stopped: results are right, and nothing hangs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit::lab_bed::LabBed;

use crate::PROGRAM;
use crate::mpi::built;
use sys::private::Scratch;

/// Two hosts, Open MPI's way to the far one, and a compiled job.
pub(crate) struct Hosts {
    pub(crate) lab: LabBed,
    holder: Child,
    scratch: Scratch,
    pub(crate) job: PathBuf,
}

/// Hosts share no memory.
const SHARED_MEMORY: &str = "mount -t tmpfs tmpfs /dev/shm";

impl Drop for Hosts {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

/// A program of the provider's tests, compiled into this folder.
fn compiled(name: &str, folder: &Path) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fabric-provider/tests/program");
    let (program, source) = (folder.join(name), sources.join(format!("{name}.c")));
    let outcome = Command::new("mpicc.openmpi")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .output()
        .expect("mpicc.openmpi is installed (tools/prepare test)");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    program
}

impl Hosts {
    pub(crate) fn up(name: &str, link: &str) -> Option<Self> {
        // Open MPI's launcher and its daemons talk over the second link: the first has the messages alone.
        let hosts = "[host.near]\n[host.far]\n";
        let between = "[[link]]\nbetween = [\"near\", \"far\"]\n";
        let sections = format!("{hosts}{between}{link}\n{between}wire = \"veth\"\n");
        let lab = LabBed::up_with(name, &sections)?;
        let scratch = Scratch::new(&format!("mpi-{name}")).expect("a folder");
        let job = compiled("job", scratch.path());
        for host in ["near", "far"] {
            std::fs::create_dir(scratch.path().join(host)).expect("a folder");
        }
        // A process of the far host, by whose number, as the lab's processes see it, others enter.
        let script = format!("hostname far && {SHARED_MEMORY} && echo $$ && exec sleep 1000");
        let mut holder = lab.spawn("far", &["unshare", "-u", "-m", "-i", "sh", "-c", &script]);
        let mut pid = String::new();
        let out = holder.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut pid).expect("a line");
        let agent = format!(
            "#!/bin/sh\nshift\nexec nsenter -t {} -n -u -m -i sh -c \"export TMPDIR={} && $*\"\n",
            pid.trim(),
            scratch.path().join("far").display(),
        );
        let path = scratch.path().join("agent");
        testkit::executable::script(&path, &agent);
        Some(Self { lab, holder, scratch, job })
    }

    /// The job on both hosts, one rank on each.
    fn command(&self, words: &str) -> Command {
        self.command_of("", &format!("--bind-to none --host near:1,far:1 -n 2 {words}"))
    }

    /// A job with these options of the verb, and these words for the launcher.
    pub(crate) fn command_of(&self, options: &str, words: &str) -> Command {
        let folder = self.scratch.path();
        let library = built("libclearstream_fi.so");
        let script = format!(
            "{SHARED_MEMORY} && export TMPDIR={} && exec timeout -k 5 200 '{PROGRAM}' mpi --interface eth0 \
             --library '{}' --report '{}' {options} -- mpirun.openmpi \
             --mca plm rsh --mca plm_rsh_agent '{}' --mca oob_tcp_if_include eth1 \
             -x FI_CLEARSTREAM_STOPPED_S {words}",
            folder.join("near").display(),
            library.display(),
            folder.join("report").display(),
            folder.join("agent").display(),
        );
        let mut command = self.on_near(&script);
        command
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("FI_CLEARSTREAM_STOPPED_S", "5")
            .stdin(Stdio::null());
        command
    }

    /// A script on the near host.
    pub(crate) fn on_near(&self, script: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        let script = format!("hostname near && {script}");
        command
            .args(["lab", "exec", &self.lab.name, "near", "--"])
            .args(["unshare", "-u", "-m", "-i", "sh", "-c", &script]);
        command
    }

    /// What each rank reported when it ended.
    pub(crate) fn reports(&self) -> Vec<serde_json::Value> {
        let report = std::fs::read_to_string(self.scratch.path().join("report")).expect("a report");
        report.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn counters(&self, name: &str) -> Vec<u64> {
        let report =
            std::fs::read_to_string(self.scratch.path().join("report")).unwrap_or_default();
        let value = |line: &str| {
            let rest = line.split(&format!("\"{name}\":")).nth(1)?;
            rest.split([',', '}']).next()?.parse().ok()
        };
        report.lines().filter_map(value).collect()
    }
}

pub(crate) fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr];
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn check_with_loss(name: &str, link: &str, least_resent: u64) {
    let Some(hosts) = Hosts::up(name, link) else { return };
    let job = hosts.job.display().to_string();
    let output = hosts.command(&format!("{job} 1")).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("correct: 2 ranks"), "{}", said(&output));
    let resent = hosts.counters("resent_pkts").iter().sum::<u64>()
        + hosts.counters("reasked_pkts").iter().sum::<u64>();
    assert_eq!(hosts.counters("pid").len(), 2);
    assert!(resent >= least_resent, "{resent} packets retransmitted");
}

#[test]
fn two_hosts_exchange_every_kind_of_message_root() {
    check_with_loss("mpi-clean", "delay = \"20us\"", 0);
}

#[test]
fn one_percent_of_loss_changes_no_result_root() {
    check_with_loss("mpi-loss1", "delay = \"20us\"\nloss = \"1%\"", 10);
}

#[test]
fn ten_percent_of_loss_changes_no_result_root() {
    check_with_loss("mpi-loss10", "delay = \"20us\"\nloss = \"10%\"", 100);
}

/// Each fetch returns a higher sum than the one before, and the sum of all is exact: what is sent again is not executed
/// again.
#[test]
fn one_sided_operations_are_executed_once_each_at_ten_percent_of_loss_root() {
    let Some(hosts) = Hosts::up("mpi-memory", "delay = \"20us\"\nloss = \"10%\"") else { return };
    let program = compiled("window", hosts.scratch.path()).display().to_string();
    let words = format!("--bind-to none --host near:1,far:1 -n 2 {program}");
    let output = hosts.command_of("--one-sided memory", &words).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("correct: 2 ranks"), "{}", said(&output));
    let served = hosts.counters("served_requests").iter().sum::<u64>();
    let resent = hosts.counters("resent_pkts").iter().sum::<u64>();
    assert!(served >= 500, "{served} requests");
    assert!(resent >= 100, "{resent} packets sent again");
}

/// Ends or stops the rank on the far host while both exchange messages; the job must end by itself.
fn check_loss_of_a_rank(name: &str, signal: &str, limit: Duration) {
    let Some(hosts) = Hosts::up(name, "delay = \"20us\"") else { return };
    let job = hosts.job.display().to_string();
    let mut child = hosts
        .command(&format!("{job} 1000000"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let rank_1 = |pid: &u32| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let environment = read("environ");
        let mut words = environment.split(|&byte| byte == 0);
        read("cmdline").starts_with(job.as_bytes())
            && words.any(|word| word == b"OMPI_COMM_WORLD_RANK=1")
    };
    // The launcher's start is not what is tested.
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while !line.contains("began") {
        line.clear();
        assert_ne!(out.read_line(&mut line).expect("text"), 0, "the job ended at once");
    }
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pid = pids.find(rank_1).expect("the far rank runs");
    std::thread::sleep(Duration::from_millis(200));
    let kill = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
    assert!(kill.expect("kill is installed").success());
    let began = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    // Should it have stayed stopped.
    Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status().ok();
    assert!(!output.status.success(), "{}", said(&output));
    assert!(began.elapsed() < limit, "{:?}: {}", began.elapsed(), said(&output));
}

#[test]
fn a_job_whose_rank_is_killed_ends_with_an_error_root() {
    check_loss_of_a_rank("mpi-kill", "KILL", Duration::from_secs(60));
}

#[test]
fn a_job_whose_rank_is_stopped_ends_with_an_error_root() {
    check_loss_of_a_rank("mpi-stop", "STOP", Duration::from_secs(90));
}
