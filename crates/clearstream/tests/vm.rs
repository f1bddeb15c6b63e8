//! `clearstream vm`: guests come, run commands, and end with what they are to end with. No privilege is needed. What boots is
//! made by `tools/guest` and kept.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::vhost_user_root::images;
use crate::vm_bed::{Testbed, file_by_tcp, folder, kill, pid, runs, wait_until};

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
    let clocks = ["one", "two"].map(|short| (short, Clock::read(&bed, short)));
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
    clocks.iter().for_each(|(short, first)| first.has_kept_time(&Clock::read(&bed, short)));
    // Whatever is killed, nothing of that guest is left, and the other goes on.
    kill(pid(&one, "qemu_pid"));
    bed.is_gone("one", &one);
    assert_eq!(bed.shell("two", "echo goes on"), "goes on\n");
    kill(pid(&two, "pid"));
    wait_until("QEMU ends with its keeper", || !runs(&two, "qemu_pid"));
    bed.is_gone("two", &two);
}

/// A guest's clock, read between two times of this machine's.
struct Clock {
    before: Instant,
    uptime_s: f64,
    after: Instant,
}

impl Clock {
    fn read(bed: &Testbed, short: &str) -> Self {
        let before = Instant::now();
        let uptime = bed.shell(short, "cut -d ' ' -f 1 /proc/uptime");
        Self { before, uptime_s: uptime.trim().parse().unwrap(), after: Instant::now() }
    }

    /// However long the commands took: as much time has passed in the guest as outside, within 1% and two ticks of 10 ms.
    fn has_kept_time(&self, later: &Self) {
        let passed_s = later.uptime_s - self.uptime_s;
        let least_s = later.before.duration_since(self.after).as_secs_f64() * 0.99 - 0.02;
        let most_s = later.after.duration_since(self.before).as_secs_f64() * 1.01 + 0.02;
        assert!(
            (least_s..=most_s).contains(&passed_s),
            "{passed_s} s, not {least_s} to {most_s} s"
        );
    }
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
    assert_eq!(bed.must(&format!("down {name} --if-up")), format!("guest {name} was not up\n"));
    let output = bed.vm(&format!("down {name}")).output().unwrap();
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains(&format!("guest '{name}' is not up")), "{line}");
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
