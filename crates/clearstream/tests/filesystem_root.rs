//! The labs `cumulus` and `cumulus-gluster` have a parallel file system, MooseFS or GlusterFS, that their clients mount:
//! over gateways, in the lab alone, gone with it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::PROGRAM;

/// Longest wait for a client to mount what it can reach, beside other tests.
const MOUNT_MAX: Duration = Duration::from_secs(60);

/// A copy of the lab under a name of the test's own; it goes with the value.
pub(crate) struct Lab {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

impl Lab {
    pub(crate) fn up() -> Self {
        Self::up_from("cumulus", include_str!("../../../labs/cumulus.toml"))
    }

    /// From the text of a lab file and the lab's name in it.
    fn up_from(name_there: &str, text: &str) -> Self {
        // Tests of one program run side by side.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("files{}n{number}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).expect("a folder of our own");
        let file = folder.join("lab.toml");
        let quoted = [name_there, &name].map(|name| format!("\"{name}\""));
        std::fs::write(&file, text.replace(&quoted[0], &quoted[1])).expect("written");
        let lab = Self { name, folder };
        let own = std::process::id().to_string();
        let up = run(&["lab", "up", file.to_str().expect("text"), "--while", &own]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(up.status.success(), "{}", text(&up.stderr));
        assert_eq!(text(&up.stderr), "", "nothing is missing");
        lab
    }

    fn shell(&self, host: &str, line: &str) -> Output {
        run(&["lab", "exec", &self.name, host, "--", "sh", "-c", line])
    }

    fn says(&self, host: &str, line: &str) -> String {
        let output = self.shell(host, line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{host}: {line}: {errors}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    pub(crate) fn wait_until_mounted(&self, host: &str) {
        let began = Instant::now();
        while !self.shell(host, "grep -q ' /mnt/pfs ' /proc/self/mountinfo").status.success() {
            assert!(began.elapsed() < MOUNT_MAX, "{host} has not mounted it");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The anchor's process id, outside.
    fn anchor(&self) -> i32 {
        let status = run(&["--json", "lab", "status"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
        let labs = status["labs"].as_array().expect("a list");
        let own = labs.iter().find(|lab| lab["name"] == self.name.as_str()).expect("it is up");
        let pid = own["pid"].as_i64().expect("a process id");
        i32::try_from(pid).expect("in range")
    }

    /// The anchor's process-id namespace.
    fn namespace(&self) -> PathBuf {
        std::fs::read_link(format!("/proc/{}/ns/pid", self.anchor())).expect("it runs")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        run(&["lab", "down", &self.name]);
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

/// Process-id namespaces of processes with such a name.
fn namespaces_with(name: &str) -> Vec<PathBuf> {
    programs(name).into_iter().map(|(_pid, namespace)| namespace).collect()
}

/// Processes with such a name, and their process-id namespaces.
fn programs(name: &str) -> Vec<(Pid, PathBuf)> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let is_it = |path: &PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let found = entries.map(|entry| entry.path()).filter(is_it);
    let with_namespace = |path: PathBuf| {
        let pid = path.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
        Some((pid, std::fs::read_link(path.join("ns/pid")).ok()?))
    };
    found.filter_map(with_namespace).collect()
}

#[test]
fn clients_mount_it_once_there_is_a_way_and_it_goes_with_the_lab_root() {
    let machines_own = std::fs::read_dir("/mnt").map_or(0, Iterator::count);
    let lab = Lab::up();
    // No gateway is planned yet: nobody may write to what is not the file system.
    assert!(!lab.shell("c1", "echo lost > /mnt/pfs/file").status.success());
    let applied = run(&["gateway", "apply", "cumulus", "--lab", &lab.name]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    for client in ["c1", "c3"] {
        lab.wait_until_mounted(client);
    }
    lab.says("c1", "dd if=/dev/urandom of=/mnt/pfs/file bs=1M count=4 conv=fsync");
    let sums = ["c1", "c3"].map(|client| lab.says(client, "cksum < /mnt/pfs/file"));
    assert_eq!(sums[0], sums[1]);
    // The data crossed the network.
    let carried = |gateway: &str| -> u64 {
        let path = "/sys/class/net/eth1/statistics/tx_bytes";
        lab.says(gateway, &format!("cat {path}")).parse().expect("a count")
    };
    let storage_bytes: u64 = ["g1", "g2", "g3"].map(carried).iter().sum();
    assert!(storage_bytes > 4 << 20, "{storage_bytes}");
    assert!(!lab.shell("g1", "test -e /mnt/pfs").status.success(), "gateways do not mount it");
    assert_eq!(std::fs::read_dir("/mnt").map_or(0, Iterator::count), machines_own);
    // A client that ends comes back, also for programs that run already.
    let before = Command::new(PROGRAM)
        .args(["lab", "exec", &lab.name, "c1", "--", "sh", "-c"])
        .arg("while ! cksum < /mnt/pfs/back 2>/dev/null; do sleep 0.05; done")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let own = "for pid in $(pgrep -x mfsmount); do \
               [ $(readlink /proc/$pid/ns/net) != $(readlink /proc/self/ns/net) ] || kill $pid; done";
    lab.says("c1", own);
    lab.says("c3", "cp /mnt/pfs/file /mnt/pfs/back.new && mv /mnt/pfs/back.new /mnt/pfs/back");
    let seen = before.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), sums[0]);
    goes_with_its_anchor(&lab, &["mfsmaster", "mfschunkserver", "mfsmount"]);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc");
    assert!(!mounts.contains(" /mnt/pfs "), "{mounts}");
}

#[test]
fn glusterfs_is_mounted_over_the_gateways_and_goes_with_its_lab_root() {
    let lab = Lab::up_from("cumulus-gluster", include_str!("../../../labs/cumulus-gluster.toml"));
    assert!(!lab.shell("c1", "echo lost > /mnt/pfs/file").status.success());
    let applied = run(&["gateway", "apply", "cumulus", "--lab", &lab.name]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    for client in ["c1", "c3"] {
        lab.wait_until_mounted(client);
    }
    let kind = lab.says("c1", "stat -f -c %T /mnt/pfs; grep ' /mnt/pfs ' /proc/self/mountinfo");
    assert!(kind.contains("fuse.glusterfs"), "{kind}");
    // Files are distributed by their names: both servers keep some, and each has one place.
    lab.says("c1", "mkdir /mnt/pfs/d; for n in $(seq 16); do echo $n > /mnt/pfs/d/$n; done");
    let kept = ["s1", "s2"].map(|server| kept_by(&lab, server));
    assert!(kept.iter().all(|count| *count > 0) && kept[0] + kept[1] == 16, "{kept:?}");
    assert_eq!(lab.says("c3", "cat /mnt/pfs/d/* | sort -n | tail -n 1"), "16");
    let held = "exec 9> /mnt/pfs/lock; flock -n 9 || exit 1; echo held; cat";
    let mut holder = Command::new(PROGRAM)
        .args(["lab", "exec", &lab.name, "c1", "--", "sh", "-c", held])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(holder.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("a line");
    assert_eq!(line, "held\n");
    let second = lab.shell("c3", "flock -n /mnt/pfs/lock true");
    assert!(!second.status.success(), "locks hold between clients");
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    goes_with_its_anchor(&lab, &["glusterfsd", "glusterfs"]);
}

/// The servers' programs do not run for a while: the file system answers no call.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn stop(lab: &Lab, name: &str) -> Self {
        let namespace = lab.namespace();
        let own = programs(name).into_iter().filter(|(_pid, its)| *its == namespace);
        let stopped = Self(own.map(|(pid, _its)| pid).collect());
        assert!(!stopped.0.is_empty(), "{name}");
        stopped.tell(Signal::STOP);
        stopped
    }

    fn tell(&self, signal: Signal) {
        // One that has ended is missed by what the test looks at.
        self.0.iter().for_each(|pid| kill_process(*pid, signal).unwrap_or_default());
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.tell(Signal::CONT);
    }
}

/// The servers stop in the middle of a phase, and the test ends while they stand: no call of its own can be ended, not even
/// by SIGKILL.
#[test]
fn io_and_meta_end_while_the_file_system_does_not_answer_root() {
    let lab = Lab::up();
    let applied = run(&["gateway", "apply", "cumulus", "--lab", &lab.name]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    lab.wait_until_mounted("c1");
    for (what, begun, server) in [
        ("io -w -F -e -i 1000 -t 1m -b 8m -o /mnt/pfs/f", "f.00000001", "mfschunkserver"),
        ("meta -F -u -w 4k -i 1000 -n 200 -d /mnt/pfs/d", "d/test-dir.0-0", "mfsmaster"),
    ] {
        let output = lab.folder.join("results.json");
        let (verb, options) = what.split_once(' ').expect("a verb");
        let line = format!("--stall-limit 3s --threads 2 --output {} {options}", output.display());
        let began = Instant::now();
        let child = Command::new(PROGRAM)
            .args(["lab", "exec", &lab.name, "c1", "--", PROGRAM, verb])
            .args(line.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        while !lab.shell("c1", &format!("test -e /mnt/pfs/{begun}")).status.success() {
            assert!(began.elapsed() < MOUNT_MAX, "{what}: it does not begin");
            thread::sleep(Duration::from_millis(20));
        }
        let stopped = Stopped::stop(&lab, server);
        let began = Instant::now();
        let ended = child.wait_with_output().expect("its output");
        // MooseFS gives a call up after some two minutes.
        let waited = began.elapsed();
        drop(stopped);
        assert!(waited < MOUNT_MAX, "{what}: ended after {waited:?}");
        let [out, err] =
            [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert_eq!(ended.status.code(), Some(1), "{what}: {out}{err}");
        assert!(err.contains("the test is incomplete: rank ") && err.contains(" on c1: "), "{err}");
        assert!(
            err.contains(" has not returned for ") && err.contains("the file system hangs"),
            "{err}"
        );
        assert!(!out.contains("Summary of all tests") && !out.contains("SUMMARY rate"), "{out}");
        let results = results::read_results(&std::fs::read(&output).expect("written"));
        let partial = results.expect("a document").partial;
        assert!(partial.is_some_and(|why| why.contains("the file system hangs")), "{what}");
        std::fs::remove_file(&output).expect("ours");
    }
}

/// Files of the folder `d` that a server keeps: seen in the mounts of its brick.
fn kept_by(lab: &Lab, server: &str) -> usize {
    let script = "for pid in $(pgrep -x glusterfsd); do \
                  [ $(readlink /proc/$pid/ns/net) != $(readlink /proc/self/ns/net) ] || \
                  nsenter -t $pid -m find /mnt/pfs/brick/d -type f -size +0 | wc -l; done";
    lab.says(server, script).parse().expect("a count")
}

/// The anchor is killed; nothing that runs these programs outlives it.
fn goes_with_its_anchor(lab: &Lab, programs: &[&str]) {
    let (anchor, namespace) = (lab.anchor(), lab.namespace());
    assert!(namespaces_with(programs[0]).contains(&namespace));
    kill_process(Pid::from_raw(anchor).expect("a process id"), Signal::KILL).expect("it runs");
    let began = Instant::now();
    while programs.iter().any(|name| namespaces_with(name).contains(&namespace)) {
        assert!(began.elapsed() < MOUNT_MAX, "programs of the file system outlive the lab");
        thread::sleep(Duration::from_millis(20));
    }
}
