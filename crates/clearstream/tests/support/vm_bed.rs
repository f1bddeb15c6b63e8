//! Guests under stock QEMU at a switch of their own, for tests. A boot may take a minute where others want the cores: nothing
//! here is judged by time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::switch_bed::SwitchBed;

use crate::PROGRAM;
use crate::vhost_user_root::images;

/// Longest that anything may take which happens at all.
const LIMIT: Duration = Duration::from_secs(240);

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A switch, and names for guests that no other test has.
pub(crate) struct Testbed {
    pub(crate) switch: SwitchBed,
    prefix: String,
    /// What each guest answered that was started here.
    started: Mutex<Vec<Value>>,
}

impl Testbed {
    pub(crate) fn new(name: &str) -> Self {
        let prefix = format!("t{}-{name}", std::process::id());
        let switch = SwitchBed::new(&format!("vm-{name}"), 0);
        Self { switch, prefix, started: Mutex::default() }
    }

    pub(crate) fn name(&self, short: &str) -> String {
        format!("{}-{short}", self.prefix)
    }

    pub(crate) fn vm(&self, words: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("vm").args(words.split(' ')).env("CLEARSTREAM_SWITCH", &self.switch.socket);
        command
    }

    pub(crate) fn must(&self, words: &str) -> String {
        let output = self.vm(words).output().unwrap();
        assert!(output.status.success(), "vm {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Boots a guest that goes with this process.
    pub(crate) fn run(&self, short: &str, more: &str) -> Value {
        let (name, own, image) = (self.name(short), std::process::id(), images());
        let words = format!("run {name} --port vale0:{short} --while {own} --json{more} --image");
        let output = self.vm(&words).arg(image).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let guest: Value = serde_json::from_slice(&output.stdout).unwrap();
        self.started.lock().unwrap().push(guest.clone());
        guest
    }

    pub(crate) fn exec(&self, short: &str, program: &[&str]) -> Output {
        let mut command = self.vm(&format!("exec {} --", self.name(short)));
        command.args(program).stdin(Stdio::null()).output().unwrap()
    }

    /// What a shell command says in the guest, which must succeed.
    pub(crate) fn shell(&self, short: &str, script: &str) -> String {
        let output = self.exec(short, &["sh", "-c", script]);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the list says of a guest; nothing of one that is not up.
    pub(crate) fn listed(&self, short: &str) -> Value {
        let all: Value = serde_json::from_str(&self.must("list --json")).unwrap();
        let name = self.name(short);
        let guests = all["guests"].as_array().unwrap();
        guests.iter().find(|guest| guest["name"] == name.as_str()).cloned().unwrap_or_default()
    }

    pub(crate) fn has_port(&self, short: &str) -> bool {
        let name = format!("vale0:{short}");
        let connection = packet_switch::client::Connection::open(&self.switch.socket);
        let entries = connection.and_then(|mut connection| connection.list()).unwrap();
        entries.iter().any(|entry| entry.name == name)
    }

    /// Frames that came for a guest, also those that its ring had no room for.
    pub(crate) fn arrived_at(&self, short: &str) -> u64 {
        let name = format!("vale0:{short}");
        let connection = packet_switch::client::Connection::open(&self.switch.socket);
        let entries = connection.and_then(|mut connection| connection.list()).unwrap();
        let entry = entries.iter().find(|entry| entry.name == name).expect("the port");
        let count = &entry.count.as_ref().expect("counters").outgoing;
        count.frames + count.dropped_total()
    }

    /// Frames that came for a guest without a copy.
    pub(crate) fn handed_over_to(&self, short: &str) -> u64 {
        let name = format!("vale0:{short}");
        let connection = packet_switch::client::Connection::open(&self.switch.socket);
        let entries = connection.and_then(|mut connection| connection.list()).unwrap();
        let entry = entries.iter().find(|entry| entry.name == name).expect("the port");
        entry.count.as_ref().expect("counters").handed_over
    }

    pub(crate) fn kill_switch(&mut self) {
        self.switch.daemon.kill().unwrap();
        self.switch.daemon.wait().unwrap();
    }

    pub(crate) fn start_switch(&mut self) {
        let mut switch = Command::new("setpriv");
        switch.args("--pdeathsig KILL --".split(' ')).arg(PROGRAM);
        switch.args(["switch", "run", "--socket"]).arg(&self.switch.socket);
        self.switch.daemon = switch.stderr(Stdio::null()).spawn().unwrap();
    }

    pub(crate) fn runs_at_its_port(&self, short: &str) {
        wait_until("the guest runs at its port", || {
            let listed = self.listed(short);
            listed["network"].as_str().is_some_and(|said| said.starts_with("guest runs"))
        });
    }

    /// Nothing is left of a guest: no process, no port, no folder.
    pub(crate) fn is_gone(&self, short: &str, guest: &Value) {
        let folder = folder(guest);
        wait_until("its processes end", || !runs(guest, "pid") && !runs(guest, "qemu_pid"));
        wait_until("its port goes", || !self.has_port(short));
        assert_eq!(self.listed(short), Value::Null);
        assert!(!folder.exists(), "{}", folder.display());
    }
}

impl Drop for Testbed {
    /// A test that fails says what its guests said last, and what their processes and the switch were doing.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let listed = self.vm("list --json").output();
        eprintln!("{}", listed.map_or_else(|error| error.to_string(), |one| text(&one.stdout)));
        // A guest that holds the lock of a poisoned list is as good as any.
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        for guest in started.iter() {
            for name in ["console.log", "log"] {
                let said = std::fs::read(folder(guest).join(name)).unwrap_or_default();
                let last = &said[said.len().saturating_sub(8192)..];
                eprintln!("== {} of {}:\n{}", name, guest["name"], text(last));
            }
            tell_threads("keeper", pid(guest, "pid"));
            tell_threads("QEMU", pid(guest, "qemu_pid"));
        }
        tell_threads("switch", self.switch.daemon.id().cast_signed());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Name, state, times in ticks and, where that may be read, the kernel's stack of each thread of a process.
fn tell_threads(what: &str, pid: i32) {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return eprintln!("== {what} {pid} has ended");
    };
    for thread in threads.flatten() {
        let read = |name| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        let at = |index: usize| words.get(index).copied().unwrap_or_default();
        let name = read("comm");
        eprintln!("== {what} {pid} {} {} {} {}", name.trim(), at(1), at(12), at(13));
        eprint!("{}", read("stack"));
    }
}

/// Its state folder, as its command line has it.
pub(crate) fn folder(guest: &Value) -> PathBuf {
    let words = guest["line"].as_array().unwrap();
    let words = words.iter().filter_map(Value::as_str);
    let shell = words.filter_map(|word| word.split_once("path=")).map(|(_, path)| path);
    let path = shell.filter_map(|path| path.strip_suffix("/shell.sock")).next();
    Path::new(path.expect("a shell's socket")).to_owned()
}

pub(crate) fn pid(guest: &Value, key: &str) -> i32 {
    guest[key].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap()
}

pub(crate) fn runs(guest: &Value, key: &str) -> bool {
    sys::process::started_ticks(pid(guest, key)).is_some()
}

pub(crate) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A file from one guest to another, whole.
pub(crate) fn file_by_tcp(bed: &Testbed, from: &str, to: &str) {
    // A port that no earlier transfer has used. Its input stays open: at its end the stock nc would leave early.
    bed.shell(to, "rm -f /tmp/there; (sleep 1000 | nc -l -p 5002 >/tmp/there) >/dev/null 2>&1 &");
    let listens = "grep -q ':138A .* 0A ' /proc/net/tcp /proc/net/tcp6";
    wait_until("the receiving guest listens", || {
        bed.exec(to, &["sh", "-c", listens]).status.success()
    });
    bed.shell(from, "dd if=/dev/urandom of=/tmp/here bs=64k count=16 2>/dev/null");
    let last = if to == "two" { 2 } else { 1 };
    let sent = bed.shell(from, &format!("md5sum </tmp/here; nc 10.0.0.{last} 5002 </tmp/here"));
    wait_until("all has come", || bed.shell(to, "md5sum </tmp/there")[..32] == sent[..32]);
    // The next transfer's listener needs its port.
    bed.shell(to, "killall nc sleep; while ps | grep -q '[n]c -l'; do sleep 1; done");
}

/// The memory of a guest's port, which its keeper has open.
pub(crate) fn memory_of_port(keeper: i32) -> File {
    let fds = std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
    let is_memory = |path: &PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().contains("clearstream-ptnet")
    };
    let path = fds.map(|entry| entry.unwrap().path()).find(is_memory).expect("the memory");
    File::options().read(true).write(true).open(path).unwrap()
}

pub(crate) fn carrier_becomes(bed: &Testbed, wanted: &str) {
    wait_until("the carrier follows the switch", || {
        bed.shell("one", "cat /sys/class/net/eth0/carrier").trim() == wanted
    });
}

/// A program in the guest takes the rings of its interface, and gives them back, also when it is killed.
pub(crate) fn netmap_between(bed: &Testbed, ptnet: &str, virtio: &str) {
    const COUNT: u64 = 5000;
    let received = || {
        let count = bed.shell(virtio, "cat /sys/class/net/eth0/statistics/rx_packets");
        count.trim().parse::<u64>().unwrap()
    };
    let address = bed.shell(virtio, "cat /sys/class/net/eth0/address").trim().replace(':', "");
    let (before, arrived) = (received(), bed.arrived_at(virtio));
    let sent = bed.shell(ptnet, &format!("netmap_frames send eth0 {COUNT} {address}"));
    assert_eq!(sent.trim().parse(), Ok(COUNT));
    wait_until("the switch has had every frame", || bed.arrived_at(virtio) >= arrived + COUNT);
    wait_until("the other guest has had some", || received() > before);
    // In the other direction, beside another program that wants the same rings.
    carrier_becomes(bed, "1");
    bed.shell(ptnet, "netmap_frames receive eth0 3 >/tmp/received 2>&1 &");
    carrier_becomes(bed, "0");
    let refused = bed.exec(ptnet, &["netmap_frames", "receive", "eth0", "1"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("busy"), "{refused:?}");
    // Nobody has that address: the guest asks everybody for it.
    bed.exec(virtio, &["ping", "-c", "3", "-W", "1", "10.0.0.77"]);
    wait_until("three frames have come", || {
        bed.shell(ptnet, "cat /tmp/received").trim().parse().is_ok_and(|count: u64| count >= 3)
    });
    // One that is killed leaves the rings to the interface.
    carrier_becomes(bed, "1");
    bed.shell(ptnet, "netmap_frames receive eth0 1000000 >/dev/null 2>&1 &");
    carrier_becomes(bed, "0");
    bed.shell(ptnet, "killall -9 netmap_frames");
    carrier_becomes(bed, "1");
    file_by_tcp(bed, virtio, ptnet);
}
