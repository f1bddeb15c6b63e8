//! Guests in a lab, under stock QEMU. Needs root, or user namespaces. A boot may take a minute where others want the cores:
//! nothing here is judged by time.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use packet_switch::client::Connection;
use serde_json::Value;
use sys::private::Scratch;

use crate::PROGRAM;
use crate::vhost_user_root::images;
use crate::vm_bed::{kill, wait_until};

/// A lab under a name that no other test has; it goes with this process.
struct Testbed {
    name: String,
    _files: Scratch,
}

impl Testbed {
    /// From the file of a built-in lab, as `change` changes it.
    fn up(builtin: &str, change: fn(&str) -> String) -> Self {
        let files = Scratch::new("vm-lab").unwrap();
        let name = format!("t{}-{builtin}", std::process::id());
        let text = clearstream(&["lab", "show", builtin]);
        assert!(text.status.success(), "{text:?}");
        let text = String::from_utf8(text.stdout).unwrap();
        let given = format!("name = \"{builtin}\"");
        assert!(text.contains(&given), "{text}");
        let file = files.path().join("lab.toml");
        std::fs::write(&file, change(&text).replace(&given, &format!("name = \"{name}\"")))
            .unwrap();
        let own = std::process::id().to_string();
        let up = clearstream(&["lab", "up", file.to_str().unwrap(), "--while", &own]);
        assert!(up.status.success(), "{up:?}");
        Self { name, _files: files }
    }

    fn exec(&self, host: &str, words: &str) -> Output {
        let mut line = vec!["lab", "exec", &self.name, host, "--"];
        line.extend(["sh", "-c", words]);
        clearstream(&line)
    }

    fn must(&self, host: &str, words: &str) -> String {
        let output = self.exec(host, words);
        assert!(output.status.success(), "{host}: {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn folder(&self) -> PathBuf {
        let status = clearstream(&["lab", "status", &self.name, "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        let anchor = status["labs"][0]["pid"].as_i64().unwrap();
        // The anchor's log is in it.
        let log = std::fs::read_link(format!("/proc/{anchor}/fd/2")).unwrap();
        assert_eq!(std::fs::metadata(&log).unwrap().uid(), rustix::process::geteuid().as_raw());
        log.parent().unwrap().to_owned()
    }

    /// Keeper and QEMU of a guest.
    fn pids(&self, guest: &str) -> [i32; 2] {
        let text = std::fs::read(self.folder().join(guest).join("state.json")).unwrap();
        let state: Value = serde_json::from_slice(&text).unwrap();
        ["keeper", "qemu"].map(|key| state[key]["pid"].as_i64().unwrap().try_into().unwrap())
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        clearstream(&["lab", "down", &self.name]);
    }
}

fn clearstream(words: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(words).env("CLEARSTREAM_GUEST", images()).stdin(Stdio::null()).output().unwrap()
}

fn runs(pid: i32) -> bool {
    sys::process::started_ticks(pid).is_some()
}

/// A file from one guest to another, whole; the port is one that no other transfer uses. The input of nc stays open, at
/// whose end the stock one would leave before all has come.
fn file_by_tcp(bed: &Testbed, from: &str, to: &str, port: u16) {
    let there = format!("/tmp/there-{port}");
    bed.must(to, &format!("(sleep 1000 | nc -l -p {port} >{there}) >/dev/null 2>&1 &"));
    let listens = format!("grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6");
    wait_until("the receiving guest listens", || bed.exec(to, &listens).status.success());
    let make = "dd if=/dev/urandom of=/tmp/here bs=64k count=16 2>/dev/null; md5sum </tmp/here";
    let sent = bed.must(from, &format!("{make}; nc {to} {port} </tmp/here"));
    wait_until("all has come", || bed.must(to, &format!("md5sum <{there}"))[..32] == sent[..32]);
}

/// As the comment in the lab's file says.
#[test]
fn root_two_guests_of_a_lab_are_a_trust_group_and_their_frames_change_hands() {
    let bed = Testbed::up("vm-pair", |text| {
        let keys = |wanted: &str| {
            text.lines().find_map(|line| line.strip_prefix("#   ")?.strip_prefix(wanted))
        };
        let both = format!("type{}\ntrust{}\n", keys("type").unwrap(), keys("trust").unwrap());
        ["one", "two"].iter().fold(text.to_owned(), |text, guest| {
            text.replace(&format!("[guest.{guest}]\n"), &format!("[guest.{guest}]\n{both}"))
        })
    });
    bed.must("one", "ping -c 3 -W 60 two");
    file_by_tcp(&bed, "one", "two", 5002);
    let status = clearstream(&["lab", "status", &bed.name, "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let socket = status["labs"][0]["switches"][0]["socket"].as_str().unwrap();
    let mut connection = Connection::open(socket.as_ref()).unwrap();
    let entries = connection.list().unwrap();
    let handed_over = |name: &str| {
        let entry = entries.iter().find(|entry| entry.name == name).expect(name);
        let group = entry.trust.as_ref().map(ToString::to_string);
        assert_eq!(group.as_deref(), Some("pair"), "{name}");
        entry.count.as_ref().expect("counters").handed_over
    };
    // The file alone is 16 super-segments, and is acknowledged.
    let (to_one, to_two) = (handed_over("desk:one"), handed_over("desk:two"));
    assert!(to_one > 3 && to_two > 16, "{to_one} and {to_two} frames");
}

#[test]
fn root_a_lab_of_guests_and_a_host_is_one_network_and_leaves_nothing_when_killed() {
    let bed = Testbed::up("vm-mixed", str::to_owned);
    assert_eq!(bed.must("one", "hostname").trim(), "one");
    assert_eq!(bed.exec("two", "exit 7").status.code(), Some(7));
    // Each reaches the others by name.
    bed.must("one", "ping -c 1 -W 60 two && ping -c 1 -W 60 three && ping -c 1 -W 60 box");
    bed.must("box", "ping -c 1 -W 60 one && ping -c 1 -W 60 two && ping -c 1 -W 60 three");
    // The second has two cores, and so two pairs of queues.
    assert_eq!(bed.must("two", "ls /sys/class/net/eth0/queues | grep -c rx-").trim(), "2");
    // Between two guests that drive their ports' rings, and to one of them from a guest with a stock driver.
    assert_eq!(bed.must("two", "[ -e /sys/module/ptnet ] && echo has it").trim(), "has it");
    file_by_tcp(&bed, "one", "two", 5002);
    file_by_tcp(&bed, "three", "two", 5003);
    // A guest that is killed is gone, and says so; the lab goes on.
    let (one, two) = (bed.pids("one"), bed.pids("two"));
    kill(one[1]);
    wait_until("its keeper ends", || !runs(one[0]));
    let gone = bed.exec("one", "true");
    let complaint = String::from_utf8(gone.stderr).unwrap();
    assert!(complaint.contains("guest 'one'") && complaint.contains("has ended"), "{complaint}");
    bed.must("two", "ping -c 1 -W 60 box");
    // Whatever ends the anchor ends the guests.
    let folder = bed.folder();
    let status = clearstream(&["lab", "status", &bed.name, "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    kill(status["labs"][0]["pid"].as_i64().unwrap().try_into().unwrap());
    wait_until("nothing of the lab runs", || !two.into_iter().any(runs));
    clearstream(&["lab", "down", &bed.name]);
    assert!(!folder.exists(), "{}", folder.display());
}
