//! A queue of a network device that is passed through to a guest. Needs root: each host is a network namespace of its own, the
//! device is an end of a veth pair. A boot may take a minute where others want the cores: nothing here is judged by time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::Output;

use serde_json::Value;
use testkit::root::is_root;
use testkit::switch_bed::{SwitchBed, complaint};

use crate::PROGRAM;
use crate::vhost_user_root::images;
use crate::vm_bed::{folder, kill, memory_of_port, pid, runs, wait_until};
use crate::xdp_root::{cable, program_on};

/// Bytes of a file that goes through.
const FILE_BYTES: usize = 1 << 20;

/// The host with the device (0), the host at the other end of its cable (1), and names that no other test has.
struct Testbed {
    hosts: SwitchBed,
    prefix: String,
}

impl Testbed {
    fn vm(&self, words: &str) -> Output {
        self.hosts.on(0, &format!("{PROGRAM} vm {words}")).output().unwrap()
    }

    fn name(&self, short: &str) -> String {
        format!("{}-{short}", self.prefix)
    }

    fn run(&self, short: &str, more: &str) -> Output {
        let (name, own, image) = (self.name(short), std::process::id(), images());
        self.vm(&format!("run {name} --while {own} --json --image {} {more}", image.display()))
    }

    /// What a shell command says in the guest, which must succeed.
    fn shell(&self, script: &str) -> String {
        let words = format!("{PROGRAM} vm exec {} -- sh -c", self.name("one"));
        let output = self.hosts.on(0, &words).arg(script).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn says(&self, file: &str) -> String {
        self.shell(&format!("cat /sys/class/net/eth0/{file}")).trim().to_owned()
    }

    fn carrier_becomes(&self, wanted: &str) {
        wait_until("the carrier follows the device", || self.says("carrier") == wanted);
    }

    /// What the list says of the guest.
    fn listed(&self) -> Value {
        let output = self.vm("list --json");
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (name, guests) = (self.name("one"), all["guests"].as_array().unwrap());
        guests.iter().find(|guest| guest["name"] == name.as_str()).cloned().unwrap_or_default()
    }

    fn network(&self) -> String {
        self.listed()["network"].as_str().unwrap_or_default().to_owned()
    }

    /// From the other end of the cable, until the guest answers.
    fn guest_answers(&self) {
        wait_until("the guest answers", || {
            self.hosts.on(1, "ping -c 1 -W 1 10.9.5.2").output().unwrap().status.success()
        });
    }

    /// A device for the guest; the far end leaves no checksum to be finished by hardware.
    fn cable(&self) {
        cable(&self.hosts, "near", "far", 1);
        self.hosts.must(1, "ethtool -K far tx off txvlan off");
        self.hosts.must(1, "ip addr add 10.9.5.1/24 dev far");
    }
}

/// Refused with one line.
fn refused(output: &Output) -> &str {
    let text = complaint(output);
    assert!(output.status.code() == Some(1) && text.lines().count() == 1, "{output:?}");
    text
}

/// How often a process has these bytes in memory that it writes, by what is mapped there.
fn found_in_memory(pid: i32, wanted: &[u8]) -> BTreeMap<String, usize> {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut found = BTreeMap::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (range, is_written) = (words[0].split_once('-').unwrap(), words[1].starts_with("rw"));
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let (begin, end) = (address(range.0), address(range.1));
        let mut bytes = vec![0; (end - begin) as usize];
        // Some of what a driver or the kernel maps cannot be read so.
        if !is_written || memory.read_exact_at(&mut bytes, begin).is_err() {
            continue;
        }
        let count = bytes.windows(wanted.len()).filter(|&window| window == wanted).count();
        if count > 0 {
            let name = words.get(5).copied().unwrap_or("anonymous");
            *found.entry(name.trim_start_matches("/memfd:").to_owned()).or_default() += count;
        }
    }
    found
}

/// A request and its answer lie in the queue's frames and in the guest's rings, and nowhere else in the keeper: each was
/// copied once.
fn frames_are_copied_once(bed: &Testbed, keeper: i32) {
    const PATTERN: [u8; 16] = *b"\x9d\x3c\xf1\x5e\x87\x60\xab\x14\xd2\x79\x0f\xe8\x43\xb6\x25\xca";
    let hex: String = PATTERN.iter().map(|byte| format!("{byte:02x}")).collect();
    // 16 bytes are the time, then the pattern comes once.
    let said = bed.hosts.must(1, &format!("ping -c 1 -W 60 -s 32 -p {hex} 10.9.5.2"));
    assert!(said.contains("1 received"), "{said}");
    let wanted =
        BTreeMap::from([("clearstream-ptnet".to_owned(), 2), ("clearstream-xdp".to_owned(), 2)]);
    assert_eq!(found_in_memory(keeper, &PATTERN), wanted);
}

/// A file from the guest to the other end, whole.
fn file_by_tcp(bed: &Testbed) {
    let namespace = File::open(format!("/proc/{}/ns/net", bed.hosts.hosts[1].id())).unwrap();
    let (listens, hears) = std::sync::mpsc::channel();
    let there = std::thread::spawn(move || {
        sys::namespace::enter_network(namespace.as_fd()).unwrap();
        let listener = TcpListener::bind("10.9.5.1:5002").unwrap();
        listens.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    });
    hears.recv().unwrap();
    bed.shell(&format!(
        "head -c {FILE_BYTES} /dev/urandom >/tmp/here; nc 10.9.5.1 5002 </tmp/here"
    ));
    let came = there.join().unwrap();
    let sum = bed.shell("md5sum </tmp/here");
    let copy = sys::private::Scratch::new("passthrough").unwrap();
    std::fs::write(copy.path().join("there"), &came).unwrap();
    let path = copy.path().join("there");
    let here = std::process::Command::new("md5sum").arg(path).output().unwrap();
    assert_eq!((came.len(), &here.stdout[..32]), (FILE_BYTES, &sum.as_bytes()[..32]));
}

/// The guest has what the device has.
fn guest_is_as_the_device(bed: &Testbed) {
    let device = bed.hosts.must(0, "ip link show dev near");
    assert!(device.contains(&format!("link/ether {} ", bed.says("address"))), "{device}");
    bed.shell("ip addr add 10.9.5.2/24 dev eth0; ip link set eth0 mtu 1900 up");
    let longer = bed.shell("ip link set eth0 mtu 1901 2>/dev/null || echo refused");
    assert_eq!(longer.trim(), "refused");
    bed.carrier_becomes("1");
    bed.guest_answers();
    bed.hosts.must(1, "ping -c 1 -W 60 -M do -s 1872 10.9.5.2");
}

fn nobody_else_gets_the_device(bed: &Testbed) {
    let name = bed.name("one");
    let second = bed.run("two", "--passthrough near:0");
    assert!(refused(&second).contains(&format!("near is passed through to guest '{name}'")));
    let add = format!("{PROGRAM} port add vale0:near --type xdp --device near");
    let port = bed.hosts.on(0, &add).output().unwrap();
    assert!(refused(&port).contains("near has an XDP program already"));
    bed.guest_answers();
}

/// What the guest writes where a cursor should be ends its rings, with a reason, and it gets new ones.
fn nonsense_ends_the_rings(bed: &Testbed, keeper: i32) {
    let memory = memory_of_port(keeper);
    memory.write_all_at(&9999_u32.to_le_bytes(), 4096 + 64).unwrap();
    bed.hosts.on(1, "ping -c 1 -W 1 10.9.5.2").output().unwrap();
    wait_until("the guest has new rings", || {
        let network = bed.network();
        network.starts_with("guest runs") && network.contains("cursor 9999")
    });
    bed.guest_answers();
}

/// The carrier is the device's, and a device that went is taken again when it is back.
fn guest_follows_the_device(bed: &Testbed) {
    bed.hosts.must(1, "ip link set far down");
    bed.carrier_becomes("0");
    assert!(bed.network().contains("no carrier"), "{}", bed.network());
    bed.hosts.must(1, "ip link set far up");
    bed.carrier_becomes("1");
    bed.guest_answers();
    bed.hosts.must(0, "ip link del near");
    let gone = "the device no longer exists, last fault: the device failed: Network is down";
    wait_until("the loss is told", || bed.network() == gone);
    bed.carrier_becomes("0");
    bed.cable();
    bed.carrier_becomes("1");
    bed.guest_answers();
}

#[test]
fn root_a_guest_has_a_queue_alone_by_one_copy_and_follows_its_device() {
    if !is_root() {
        return;
    }
    let bed = Testbed {
        hosts: SwitchBed::new("vm-queue", 2),
        prefix: format!("t{}-queue", std::process::id()),
    };
    assert!(refused(&bed.run("one", "--passthrough near")).contains("there is no device near"));
    bed.cable();
    bed.hosts.must(0, "ip link set near mtu 1900");
    bed.hosts.must(1, "ip link set far mtu 1900");
    let output = bed.run("one", "--passthrough near");
    assert!(output.status.success(), "{output:?}");
    let guest: Value = serde_json::from_slice(&output.stdout).unwrap();
    let keeper = pid(&guest, "pid");

    guest_is_as_the_device(&bed);
    frames_are_copied_once(&bed, keeper);
    file_by_tcp(&bed);
    wait_until("the list says how it stands", || bed.network() == "guest runs, copy");
    nobody_else_gets_the_device(&bed);
    nonsense_ends_the_rings(&bed, keeper);
    guest_follows_the_device(&bed);

    bed.shell("rmmod ptnet");
    wait_until("it is told", || bed.network().starts_with("guest without a driver"));
    bed.shell("insmod /modules/ptnet.ko; ip addr add 10.9.5.2/24 dev eth0; ip link set eth0 up");
    bed.guest_answers();

    // However the keeper ends, the device is the host's again.
    assert!(program_on(&bed.hosts, "near"));
    kill(keeper);
    wait_until("QEMU ends with it", || !runs(&guest, "qemu_pid"));
    wait_until("nothing is left on the device", || !program_on(&bed.hosts, "near"));
    assert_eq!(bed.listed(), Value::Null);
    assert!(!folder(&guest).exists());
    bed.hosts.must(0, "ip addr add 10.9.5.2/24 dev near");
    bed.hosts.must(1, "ip neigh flush dev far");
    bed.guest_answers();
}
