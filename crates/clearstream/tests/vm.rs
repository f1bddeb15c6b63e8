//! `clearstream vm`: guests under stock QEMU, at ports of a switch. No privilege is needed. What boots is made by
//! `tools/guest` and kept. A boot may take a minute where others want the cores: nothing here is judged by time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
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
}

impl Testbed {
    pub(crate) fn new(name: &str) -> Self {
        let prefix = format!("t{}-{name}", std::process::id());
        Self { switch: SwitchBed::new(&format!("vm-{name}"), 0), prefix }
    }

    pub(crate) fn name(&self, short: &str) -> String {
        format!("{}-{short}", self.prefix)
    }

    pub(crate) fn vm(&self, words: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("vm").args(words.split(' ')).env("CLEARSTREAM_SWITCH", &self.switch.socket);
        command
    }

    fn must(&self, words: &str) -> String {
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
        serde_json::from_slice(&output.stdout).unwrap()
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
    fn handed_over_to(&self, short: &str) -> u64 {
        let name = format!("vale0:{short}");
        let connection = packet_switch::client::Connection::open(&self.switch.socket);
        let entries = connection.and_then(|mut connection| connection.list()).unwrap();
        let entry = entries.iter().find(|entry| entry.name == name).expect("the port");
        entry.count.as_ref().expect("counters").handed_over
    }

    fn kill_switch(&mut self) {
        self.switch.daemon.kill().unwrap();
        self.switch.daemon.wait().unwrap();
    }

    fn start_switch(&mut self) {
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
    fn is_gone(&self, short: &str, guest: &Value) {
        let folder = folder(guest);
        wait_until("its processes end", || !runs(guest, "pid") && !runs(guest, "qemu_pid"));
        wait_until("its port goes", || !self.has_port(short));
        assert_eq!(self.listed(short), Value::Null);
        assert!(!folder.exists(), "{}", folder.display());
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

fn kill_child(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn two_guests_run_commands_talk_by_tcp_and_outlive_their_switch() {
    let mut bed = Testbed::new("pair");
    let (one, two) = std::thread::scope(|scope| {
        let two = scope.spawn(|| bed.run("two", " --cores 2"));
        (bed.run("one", ""), two.join().unwrap())
    });
    assert!(one["ready"] == true && two["ready"] == true, "{one} {two}");
    commands_come_and_go(&bed);
    for (short, last) in [("one", 1), ("two", 2)] {
        let mac = bed.shell(short, "cat /sys/class/net/eth0/address");
        assert_eq!(mac.trim(), bed.listed(short)["mac"].as_str().unwrap());
        bed.shell(short, &format!("ip addr add 10.0.0.{last}/24 dev eth0; ip link set eth0 up"));
    }
    assert_eq!(bed.shell("two", "grep -c ^processor /proc/cpuinfo").trim(), "2");
    wait_until("both pairs of queues run", || {
        bed.listed("two")["network"] == "guest runs, 2 pairs of queues"
    });
    file_by_tcp(&bed, "one", "two");
    // The switch is killed and started anew: the guests find their ports again, and what they say arrives.
    bed.kill_switch();
    assert_eq!(bed.listed("one")["network"], "the switch has ended");
    bed.start_switch();
    ["one", "two"].into_iter().for_each(|short| bed.runs_at_its_port(short));
    file_by_tcp(&bed, "one", "two");
    // Whatever is killed, nothing of that guest is left, and the other goes on.
    kill(pid(&one, "qemu_pid"));
    bed.is_gone("one", &one);
    assert_eq!(bed.shell("two", "echo goes on"), "goes on\n");
    kill(pid(&two, "pid"));
    wait_until("QEMU ends with its keeper", || !runs(&two, "qemu_pid"));
    bed.is_gone("two", &two);
}

/// Commands reach a guest as they are, and what they say and end with comes back, also after a client was killed.
fn commands_come_and_go(bed: &Testbed) {
    let output =
        bed.exec("one", &["printf", "%s|", "two words", "it's \\ $HOME", "a\nb", "@@RC=0@@"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "two words|it's \\ $HOME|a\nb|@@RC=0@@|");
    assert_eq!(bed.exec("one", &["sh", "-c", "echo said >&2; exit 3"]).status.code(), Some(3));
    assert_eq!(bed.exec("one", &["exit", "4"]).status.code(), Some(4));
    let missing = bed.exec("one", &["no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    // What a command leaves in the background goes on, whoever comes next and however soon.
    for number in 0..20 {
        bed.shell("one", &format!("(sleep 100000; echo {number}) >/dev/null 2>&1 &"));
    }
    assert_eq!(bed.shell("one", "ps | grep -c '[s]leep 100000$'; killall sleep").trim(), "20");
    // Two clients take turns.
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| bed.shell("one", "echo a; sleep 1; echo b"));
        (bed.shell("one", "echo c; sleep 1; echo d"), first.join().unwrap())
    });
    assert_eq!((first.as_str(), second.as_str()), ("c\nd\n", "a\nb\n"));
    let begin = || {
        let mut client = bed.vm(&format!("exec {} --", bed.name("one")));
        client.args(["sh", "-c", "echo begun; sleep 100000"]);
        let mut client = client.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        client
    };
    kill_child(begin());
    assert_eq!(bed.shell("one", "ps | grep -c '[s]leep 100000'; true").trim(), "0");
    let mut client = begin();
    let id = rustix::process::Pid::from_raw(client.id().cast_signed()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let ended = client.wait().unwrap();
    assert_eq!(ended.code(), Some(128 + 15));
    assert_eq!(bed.shell("one", "ps | grep -c '[s]leep 100000'; true").trim(), "0");
    let twice =
        bed.vm(&format!("run {} --port vale0:x --image", bed.name("one"))).arg(images()).output();
    let complaint = String::from_utf8(twice.unwrap().stderr).unwrap();
    assert!(complaint.contains("is up; end it first"), "{complaint}");
}

/// A file from one guest to another, whole.
fn file_by_tcp(bed: &Testbed, from: &str, to: &str) {
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

fn carrier_becomes(bed: &Testbed, wanted: &str) {
    wait_until("the carrier follows the switch", || {
        bed.shell("one", "cat /sys/class/net/eth0/carrier").trim() == wanted
    });
}

/// A program in the guest takes the rings of its interface, and gives them back, also when it is killed.
fn netmap_between(bed: &Testbed, ptnet: &str, virtio: &str) {
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

/// What `ethtool -S` says in a guest.
fn statistics(bed: &Testbed, short: &str) -> HashMap<String, u64> {
    let said = bed.shell(short, "ethtool -S eth0");
    let pairs = said.lines().filter_map(|line| line.trim().split_once(": "));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Flows to a guest with three pairs of queues come in all of its receive rings, each with its interrupt, and leave by
/// the queues of its processors.
fn flows_are_spread(bed: &Testbed) {
    let channels = bed.shell("one", "ethtool -l eth0; ls /sys/class/net/eth0/queues");
    assert_eq!(channels.matches("Combined:\t3").count(), 2, "{channels}");
    assert_eq!((channels.matches("rx-").count(), channels.matches("tx-").count()), (3, 3));
    flows_reach_all_rings(bed);
    let all = statistics(bed, "one");
    let sum =
        |kind: &str| (0..3).map(|queue| all[&format!("rx_queue_{queue}_{kind}")]).sum::<u64>();
    assert_eq!(all["rx_bytes"], sum("bytes"));
}

/// Connections from the other guest come in all three rings, and are answered.
fn flows_reach_all_rings(bed: &Testbed) {
    let before = statistics(bed, "one");
    // Nobody listens: each is refused. That one of the queues is left out by chance is less likely than 1 in a million.
    bed.shell("two", "for port in $(seq 6001 6040); do nc -w 9 10.0.0.1 $port; done 2>&1; true");
    let grown = |wanted: &str| {
        let after = statistics(bed, "one");
        let of_queue = |queue: usize| {
            let name = wanted.replace('#', &queue.to_string());
            after[&name].checked_sub(before[&name]).expect("counters only grow")
        };
        [0, 1, 2].map(of_queue)
    };
    wait_until("all queues have received", || {
        grown("rx_queue_#_packets").iter().all(|&count| count > 0)
    });
    assert!(
        grown("rx_queue_#_irqs").iter().all(|&count| count > 0),
        "{:?}",
        grown("rx_queue_#_irqs")
    );
    let sent = grown("tx_queue_#_packets");
    assert!(sent.iter().sum::<u64>() > 0, "{sent:?}");
}

/// Each queue of an interface can have a program of its own; one that is killed leaves the others their rings.
fn programs_have_queues_of_their_own(bed: &Testbed) {
    const COUNT: u64 = 5000;
    let busy = |interface: &str| {
        let refused = bed.exec("one", &["netmap_frames", "receive", interface, "1"]);
        refused.status.code() == Some(1)
            && String::from_utf8_lossy(&refused.stdout).contains("busy")
    };
    let runs = |queue: u32| {
        let found = bed.shell("one", &format!("ps | grep -c '[r]eceive eth0-{queue} '; true"));
        found.trim() == "1"
    };
    for queue in [0, 2] {
        bed.shell(
            "one",
            &format!("netmap_frames receive eth0-{queue} 1000000 >/tmp/{queue} 2>&1 &"),
        );
        let pid = format!("$(ps | grep '[r]eceive eth0-{queue} ' | awk '{{ print $1 }}')");
        wait_until("the program has its queue", || {
            let found = format!("grep -c /dev/netmap /proc/{pid}/maps 2>/dev/null; true");
            bed.shell("one", &found).trim().parse().is_ok_and(|count: u32| count > 0)
        });
        assert!(busy(&format!("eth0-{queue}")));
    }
    assert!(busy("eth0"), "whoever wants all queues finds some taken");
    assert!(bed.exec("one", &["ethtool", "-L", "eth0", "combined", "1"]).status.code() != Some(0));
    let none = bed.exec("one", &["netmap_frames", "receive", "eth0-3", "1"]);
    assert!(String::from_utf8_lossy(&none.stdout).contains("Invalid argument"), "{none:?}");
    let address = bed.shell("two", "cat /sys/class/net/eth0/address").trim().replace(':', "");
    let resets = statistics(bed, "one")["resets"];
    let send = || {
        let arrived = bed.arrived_at("two");
        let sent = bed.shell("one", &format!("netmap_frames send eth0-1 {COUNT} {address}"));
        assert_eq!(sent.trim().parse(), Ok(COUNT));
        wait_until("the switch has had every frame", || bed.arrived_at("two") >= arrived + COUNT);
    };
    send();
    bed.shell("one", "kill -9 $(ps | grep '[r]eceive eth0-0 ' | awk '{ print $1 }')");
    wait_until("the killed one's queue is free", || !runs(0));
    assert!(runs(2) && busy("eth0-2") && !bed.shell("one", "cat /tmp/2").contains("error"));
    // What both have left stays where it was, for whoever comes next.
    send();
    assert_eq!(statistics(bed, "one")["resets"], resets, "the others kept their rings");
    bed.shell("one", "killall -9 netmap_frames");
    carrier_becomes(bed, "1");
    assert!(statistics(bed, "one")["resets"] > resets, "the interface has new rings");
    file_by_tcp(bed, "one", "two");
}

/// With fewer channels than rings each channel serves several, and no frame stays in a ring.
fn channels_follow_ethtool(bed: &Testbed) {
    let queues = || bed.shell("one", "ls /sys/class/net/eth0/queues | wc -l");
    for channels in [1, 2, 3] {
        bed.shell("one", &format!("ethtool -L eth0 combined {channels}"));
        assert_eq!(queues().trim(), (2 * channels).to_string());
        carrier_becomes(bed, "1");
        flows_reach_all_rings(bed);
        let sent = statistics(bed, "one");
        file_by_tcp(bed, "one", "two");
        let after = statistics(bed, "one");
        let grows = |queue: usize| {
            let name = format!("tx_queue_{queue}_packets");
            after[&name] > sent[&name]
        };
        assert!((channels..3).all(|queue| !grows(queue)), "{sent:?} {after:?}");
        assert!((0..channels).any(grows));
    }
    for refused in ["0", "4"] {
        let refused = bed.exec("one", &["ethtool", "-L", "eth0", "combined", refused]);
        assert!(refused.status.code() != Some(0), "{refused:?}");
    }
}

/// A program in the guest writes nonsense into the rings that it was given: the guest's kernel refuses what it can see, the
/// switch the rest, and afterwards all is as before.
fn nonsense_harms_nobody(bed: &Testbed) {
    let daemon = bed.switch.daemon.id();
    for seed in 1..=3 {
        let said = bed.shell("one", &format!("netmap_nonsense eth0 2000 {seed}"));
        let counts: Vec<u64> = said.split_whitespace().map(|one| one.parse().unwrap()).collect();
        assert!(counts.len() == 2 && !counts.contains(&0), "refused and not: {said}");
    }
    wait_until("the guest has its interface again", || {
        bed.shell("one", "cat /sys/class/net/eth0/carrier").trim() == "1"
    });
    assert_eq!(bed.switch.daemon.id(), daemon);
    let fault = bed.listed("two")["network"].as_str().unwrap().to_owned();
    assert!(fault.starts_with("guest runs") && !fault.contains("fault"), "{fault}");
    file_by_tcp(bed, "one", "two");
    file_by_tcp(bed, "two", "one");
}

/// A driver that finds another layout makes no interface, and the kernel's log has the reason.
fn driver_refuses_what_it_does_not_know(bed: &Testbed, memory: &File) {
    const GUEST_PART: u64 = 2048;
    let wrong = [
        (0, "it is no port of a ClearStream switch"),
        (GUEST_PART, "it is no port of a ClearStream switch"),
        (GUEST_PART + 8, "it is of another version"),
        (GUEST_PART + 12, "its frames have a header of an unknown length"),
        (GUEST_PART + 36, "it has an impossible number of queues"),
    ];
    for (offset, why) in wrong {
        let mut right = [0; 4];
        memory.read_exact_at(&mut right, offset).unwrap();
        memory.write_all_at(&7_u32.to_le_bytes(), offset).unwrap();
        let said =
            bed.shell("one", "insmod /modules/ptnet.ko; dmesg | tail -n 1; ls /sys/class/net");
        assert!(said.contains(&format!("refused: {why}")), "{said}");
        assert!(!said.contains("eth0"), "{said}");
        memory.write_all_at(&right, offset).unwrap();
        bed.shell("one", "rmmod ptnet");
    }
}

/// A guest that drives its port's rings itself, with several queues, beside one with a stock virtio-net driver.
#[test]
fn a_ptnet_guest_speaks_with_a_virtio_guest_and_outlives_its_switch_its_driver_and_its_faults() {
    let mut bed = Testbed::new("ptnet");
    let (one, _two) = std::thread::scope(|scope| {
        let two = scope.spawn(|| bed.run("two", ""));
        (bed.run("one", " --type ptnet --cores 2 --queues 3"), two.join().unwrap())
    });
    let listed = bed.listed("one");
    assert_eq!((&listed["type"], &bed.listed("two")["type"]), (&"ptnet".into(), &"virtio".into()));
    let mac = bed.shell("one", "cat /sys/class/net/eth0/address");
    assert_eq!(mac.trim(), listed["mac"].as_str().unwrap());
    for (short, last) in [("one", 1), ("two", 2)] {
        bed.shell(short, &format!("ip addr add 10.0.0.{last}/24 dev eth0; ip link set eth0 up"));
        bed.runs_at_its_port(short);
    }
    bed.shell("one", "ping -c 3 -W 60 10.0.0.2");
    bed.shell("two", "ping -c 3 -W 60 -s 1400 10.0.0.1");
    file_by_tcp(&bed, "one", "two");
    file_by_tcp(&bed, "two", "one");
    flows_are_spread(&bed);
    channels_follow_ethtool(&bed);
    netmap_between(&bed, "one", "two");
    programs_have_queues_of_their_own(&bed);
    nonsense_harms_nobody(&bed);
    // The switch is killed: the guest has no carrier until another serves the same rings.
    carrier_becomes(&bed, "1");
    bed.kill_switch();
    carrier_becomes(&bed, "0");
    bed.start_switch();
    ["one", "two"].into_iter().for_each(|short| bed.runs_at_its_port(short));
    file_by_tcp(&bed, "one", "two");
    // A cursor of the last receive ring that is no slot, as the guest could write it: the switch ends the rings and says
    // why, and the driver gets new ones.
    let memory = memory_of_port(pid(&one, "pid"));
    memory.write_all_at(&9999_u32.to_le_bytes(), 4096 + 5 * 64).unwrap();
    bed.exec("one", &["ping", "-c", "1", "-W", "1", "10.0.0.2"]);
    wait_until("the guest has new rings", || {
        let network = bed.listed("one")["network"].as_str().unwrap().to_owned();
        network.starts_with("guest runs") && network.contains("cursor 9999")
    });
    file_by_tcp(&bed, "one", "two");
    // The driver goes, and comes again.
    bed.shell("one", "rmmod ptnet");
    wait_until("the switch hears that it has gone", || {
        let network = bed.listed("one")["network"].as_str().unwrap().to_owned();
        network.starts_with("guest without a driver")
    });
    driver_refuses_what_it_does_not_know(&bed, &memory);
    bed.shell(
        "one",
        "insmod /modules/ptnet.ko; ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up",
    );
    bed.runs_at_its_port("one");
    file_by_tcp(&bed, "two", "one");
    kill(pid(&one, "pid"));
    bed.is_gone("one", &one);
}

#[test]
fn guests_of_a_trust_group_hand_their_frames_over_and_find_each_other_at_the_next_switch() {
    let mut bed = Testbed::new("trust");
    let more = " --type ptnet --trust twins";
    std::thread::scope(|scope| {
        let two = scope.spawn(|| bed.run("two", more));
        bed.run("one", more);
        two.join().unwrap();
    });
    for (short, last) in [("one", 1), ("two", 2)] {
        bed.shell(short, &format!("ip addr add 10.0.0.{last}/24 dev eth0; ip link set eth0 up"));
        bed.runs_at_its_port(short);
    }
    bed.shell("one", "ping -c 3 -W 60 -s 8000 10.0.0.2");
    file_by_tcp(&bed, "one", "two");
    file_by_tcp(&bed, "two", "one");
    let handed_over = |bed: &Testbed| ["one", "two"].map(|short| bed.handed_over_to(short));
    let [to_one, to_two] = handed_over(&bed);
    assert!(to_one > 3 && to_two > 3, "{to_one} and {to_two} frames");
    // A program that fills the port's buffers itself: the slots that come back have others.
    let (before, copied) = (to_two, bed.arrived_at("two") - to_two);
    netmap_between(&bed, "one", "two");
    let (arrived, to_two) = (bed.arrived_at("two"), bed.handed_over_to("two"));
    assert!(to_two > before + 500, "{to_two} of {arrived}, {copied} copied before");
    bed.kill_switch();
    carrier_becomes(&bed, "0");
    bed.start_switch();
    ["one", "two"].into_iter().for_each(|short| bed.runs_at_its_port(short));
    file_by_tcp(&bed, "one", "two");
    file_by_tcp(&bed, "two", "one");
    assert!(handed_over(&bed).iter().all(|&frames| frames > 3), "{:?}", handed_over(&bed));
}

#[test]
fn a_guest_goes_with_its_folder_its_owner_and_when_told_to() {
    let bed = Testbed::new("ends");
    let more = " --no-wait";
    // Nobody could find a guest whose folder has gone.
    let guest = bed.run("folder", more);
    assert!(runs(&guest, "pid") && runs(&guest, "qemu_pid") && bed.has_port("folder"));
    std::fs::remove_dir_all(folder(&guest)).unwrap();
    bed.is_gone("folder", &guest);
    // Its owner here is another process than the test.
    let owner = Command::new("sleep").arg("100000").spawn().unwrap();
    let words = format!(
        "run {} --port vale0:owner --while {} --json --no-wait --image",
        bed.name("owner"),
        owner.id()
    );
    let output = bed.vm(&words).arg(images()).output().unwrap();
    let guest: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(runs(&guest, "qemu_pid"));
    kill_child(owner);
    bed.is_gone("owner", &guest);
    // A keeper that stands still is no reason to stay.
    let guest = bed.run("down", more);
    let keeper = rustix::process::Pid::from_raw(pid(&guest, "pid")).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::STOP).unwrap();
    let name = bed.name("down");
    assert_eq!(bed.must(&format!("down {name}")), format!("guest {name} is down\n"));
    bed.is_gone("down", &guest);
    assert_eq!(bed.must(&format!("down {name}")), format!("guest {name} was not up\n"));
}

#[test]
fn a_guest_that_cannot_start_leaves_nothing_and_says_why() {
    let bed = Testbed::new("fails");
    let fails = |more: &str| {
        let words = format!(
            "run {} --port vale0:fails --while {}{more}",
            bed.name("fails"),
            std::process::id()
        );
        let output = bed.vm(&words).output().unwrap();
        assert_eq!(bed.listed("fails"), Value::Null);
        assert!(!bed.has_port("fails"));
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        (output.status.code(), complaint)
    };
    let (code, complaint) = fails(" --image /nonexistent");
    assert!(code == Some(1) && complaint.contains("clearstream vm image"), "{complaint}");
    let (code, complaint) = fails(" --qemu /nonexistent/qemu");
    assert!(code == Some(4) && complaint.contains("qemu-system-x86"), "{complaint}");
    let (code, complaint) = fails(" --kernel /nonexistent/kernel");
    assert!(code == Some(2) && complaint.contains("/nonexistent/kernel"), "{complaint}");
    // QEMU itself says no, and its reason is told.
    let (code, complaint) = fails(" --kernel /etc/hostname --accelerator tcg");
    assert!(code == Some(1) && complaint.contains("guest did not start: qemu"), "{complaint}");
    let (code, complaint) = fails(" --kernel /etc/hostname --socket /nonexistent/switch");
    assert!(code == Some(1) && complaint.contains("no switch at"), "{complaint}");
}

/// A port for a QEMU that somebody else starts: held by the command, also while the switch is restarted.
#[test]
fn a_held_port_waits_for_any_hypervisor_and_goes_with_its_command() {
    let mut bed = Testbed::new("held");
    let path = bed.switch.socket.with_extension("rings");
    let words = format!("port vale0:held --type ptnet --path {}", path.display());
    let refused = bed.vm(&format!("{words} --socket /nonexistent/switch")).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(!path.exists(), "a port that is not held leaves nothing");
    let hold = || {
        let mut held = bed.vm(&words).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(held.stdout.take().unwrap()).lines();
        let first = said.next().unwrap().unwrap();
        assert_eq!(first, format!("port vale0:held waits for a guest at {}", path.display()));
        (held, said)
    };
    let (mut killed, _) = hold();
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_until("the port goes", || !bed.has_port("held"));
    // What a killed command left is replaced.
    let (mut held, mut said) = hold();
    assert!(said.any(|line| line.unwrap().contains("ivshmem-doorbell,chardev=port")));
    // As QEMU hears it: the protocol's version, then its own number.
    let hear = || {
        let mut numbers = [0; 16];
        UnixStream::connect(&path).unwrap().read_exact(&mut numbers).unwrap();
        numbers
    };
    let greeting = [[0; 8], 1_u64.to_le_bytes()].concat();
    assert_eq!(hear()[..], greeting);
    let again = bed.vm(&words).output().unwrap();
    let complaint = String::from_utf8(again.stderr).unwrap();
    assert_eq!((again.status.code(), complaint.lines().count()), (Some(1), 1), "{complaint}");
    assert!(path.exists(), "the other's socket stays");
    bed.kill_switch();
    bed.start_switch();
    wait_until("the next switch has the port", || {
        packet_switch::client::Connection::open(&bed.switch.socket).is_ok() && bed.has_port("held")
    });
    assert_eq!(hear()[..], greeting);
    let pid = rustix::process::Pid::from_child(&held);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(held.wait().unwrap().success());
    wait_until("the port goes", || !bed.has_port("held"));
    assert!(!path.exists());
}

#[test]
fn printed_lines_start_nothing() {
    let bed = Testbed::new("print");
    let words =
        format!("run {} --port vale0:print --accelerator tcg --print --image", bed.name("print"));
    let output = bed.vm(&words).arg(images()).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && line.starts_with("qemu-system-x86_64 -name "), "{line}");
    assert!(line.contains(" -netdev vhost-user,id=net,chardev=port,queues=1 "), "{line}");
    let output = bed.vm(&words.replace("--print", "--type ptnet --print")).arg(images()).output();
    let line = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(line.contains(" ivshmem-doorbell,chardev=port,bus=root,vectors=3"), "{line}");
    let two = words.replace("--print", "--type ptnet --queues 2 --print");
    let line = String::from_utf8(bed.vm(&two).arg(images()).output().unwrap().stdout).unwrap();
    assert!(line.contains(" ivshmem-doorbell,chardev=port,bus=root,vectors=5"), "{line}");
    for more in ["--type ptnet --queues 9", "--type ptnet --trust group --queues 2"] {
        let many = words.replace("--print", &format!("{more} --print"));
        let refused = bed.vm(&many).arg(images()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    assert_eq!(bed.listed("print"), Value::Null);
    let path = bed.switch.socket.with_extension("vm");
    let said = bed.must(&format!("port vale0:theirs --path {} --memory 512M", path.display()));
    for hypervisor in ["QEMU", "Cloud Hypervisor", "Firecracker"] {
        assert!(said.contains(&format!("\n{hypervisor}: ")), "{said}");
    }
    assert!(said.contains(&format!("socket,id=port,path={}", path.display())), "{said}");
    assert!(path.exists() && bed.has_port("theirs"));
    std::fs::remove_file(path).unwrap();
}
