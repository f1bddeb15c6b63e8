//! A guest with Debian's own kernel and its own virtio-net driver, under stock QEMU, at a port of the switch. Needs root:
//! the other host is a network namespace. What boots is made by `tools/guest` and kept.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::PROGRAM;
use testkit::switch_bed::{SwitchBed, eventually};

const MIB: usize = 1 << 20;

/// What a guest boots, made once.
pub(crate) fn images() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = Path::new(PROGRAM).parent().unwrap().join("../guest");
    // Built with the tests; a guest whose device has /dev/netmap uses them.
    let examples = Path::new(PROGRAM).with_file_name("examples");
    let mut command = Command::new(source.join("tools/guest"));
    command
        .arg(&folder)
        .args(["frames", "nonsense"].map(|one| examples.join(format!("netmap_{one}"))));
    let ethtool = ["/usr/sbin/ethtool", "/sbin/ethtool"].map(Path::new);
    command.args(ethtool.iter().find(|path| path.exists()));
    let made = command.status().unwrap();
    assert!(made.success(), "tools/guest: {made}");
    folder
}

/// A guest under QEMU, and the shell on its second serial port. QEMU ends with the test.
struct Machine {
    qemu: Child,
    shell: BufReader<UnixStream>,
    folder: PathBuf,
}

impl Machine {
    fn boot(vhost: &Path, cores: u32) -> Self {
        let images = images();
        let folder = vhost.with_extension("machine");
        std::fs::create_dir_all(&folder).unwrap();
        let serial = folder.join("serial");
        std::fs::remove_file(&serial).ok();
        let mut qemu = Command::new("setpriv");
        qemu.args(
            "--pdeathsig KILL -- qemu-system-x86_64 -nodefaults -display none -m 256M".split(' '),
        );
        qemu.args("-machine q35,memory-backend=mem -accel tcg,thread=multi".split(' '));
        qemu.args("-cpu max,-erms,-fsrm -object".split(' '));
        qemu.arg("memory-backend-memfd,id=mem,size=256M,share=on");
        qemu.args(["-smp", &cores.to_string(), "-append"]);
        qemu.arg("console=ttyS0 quiet mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on");
        qemu.arg("-kernel").arg(images.join("vmlinux"));
        qemu.arg("-initrd").arg(images.join("initrd.gz"));
        qemu.arg("-serial").arg(format!("file:{}", folder.join("console").display()));
        let chardev = format!("socket,id=shell,server=on,wait=off,path={}", serial.display());
        qemu.arg("-chardev").arg(chardev).args(["-serial", "chardev:shell"]);
        qemu.arg("-chardev").arg(format!("socket,id=port,path={}", vhost.display()));
        qemu.args(["-netdev", &format!("vhost-user,id=net,chardev=port,queues={cores}")]);
        // QEMU 7.2 crashes with MSI-X under TCG.
        let queues = if cores > 1 { ",mq=on" } else { "" };
        qemu.args(["-device", &format!("virtio-net-pci,netdev=net,vectors=0{queues}")]);
        let qemu = qemu.stdin(Stdio::null()).spawn().unwrap();
        let mut socket = None;
        eventually("QEMU begins", || {
            socket = UnixStream::connect(&serial).ok();
            socket.is_some()
        });
        let socket = socket.unwrap();
        // A boot may take minutes where others want the cores, and says nothing for most of them.
        socket.set_read_timeout(Some(Duration::from_secs(240))).unwrap();
        let mut machine = Self { qemu, shell: BufReader::new(socket), folder };
        machine.until("@@READY@@");
        machine
    }

    /// What the shell says until a line begins with `mark`, and that line.
    fn until(&mut self, mark: &str) -> (String, String) {
        let mut text = String::new();
        loop {
            let mut line = Vec::new();
            let count = self.shell.read_until(b'\n', &mut line).unwrap();
            assert!(count > 0, "the guest is gone after {text}");
            let line = String::from_utf8_lossy(&line).into_owned();
            match line.find(mark) {
                Some(at) => return (text + &line[..at], line[at..].trim().to_owned()),
                None => text += &line,
            }
        }
    }

    /// What a command says in the guest, which must succeed.
    fn must(&mut self, words: &str) -> String {
        writeln!(self.shell.get_mut(), "{words}").unwrap();
        let (text, end) = self.until("@@RC=");
        assert_eq!(end, "@@RC=0@@", "{words}: {text}");
        text
    }

    fn address(&mut self, address: &str) {
        self.must(&format!("ip addr add {address}/24 dev eth0; ip link set eth0 up"));
    }

    fn kill(mut self) {
        self.qemu.kill().unwrap();
        self.qemu.wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.qemu.kill().ok();
        self.qemu.wait().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// A switch with a TAP port on a host, and a port for a guest.
fn bed(name: &str) -> (SwitchBed, PathBuf) {
    let bed = SwitchBed::new(name, 1);
    bed.tap(0, "vale0:host", "tap0", "10.9.0.1");
    let socket = bed.socket.with_extension("vm");
    bed.clearstream(0, &format!("port add vale0:vm --type vhost-user --path {}", socket.display()));
    assert_eq!(device(&bed, "mode"), "no guest");
    (bed, socket)
}

fn device(bed: &SwitchBed, key: &str) -> String {
    bed.entry("vale0:vm")["device"][key].as_str().unwrap_or_default().to_owned()
}

/// No call was refused by the sandbox, and nothing failed.
fn is_well(bed: &SwitchBed) {
    let health = packet_switch::client::Connection::open(&bed.socket).and_then(|mut connection| {
        connection.list()?;
        Ok(connection.health())
    });
    let health = health.unwrap();
    assert_eq!((health.refused_calls, health.faults), (0, 0));
}

/// Sums of bytes, as `md5sum` prints them.
fn sum_of(bytes: &[u8]) -> String {
    let mut child =
        Command::new("md5sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..32].to_owned()
}

/// TCP both ways, with what arrives compared by its sum.
fn tcp_both_ways(bed: &SwitchBed, guest: &mut Machine) {
    let mut random = stats::Random::from_seed(5);
    let bytes: Vec<u8> = (0..8 * MIB / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
    let listener = listen(bed);
    let counted = || {
        let count = &bed.entry("vale0:vm")["count"]["outgoing"];
        (count["bytes"].as_f64().unwrap(), count["frames"].as_f64().unwrap())
    };
    let before = counted();
    let sum = std::thread::scope(|scope| {
        let sending = scope.spawn(|| listener.accept().unwrap().0.write_all(&bytes).unwrap());
        let text = guest.must("nc 10.9.0.1 5001 </dev/null | tee /tmp/file | md5sum");
        sending.join().unwrap();
        text
    });
    assert_eq!(sum[..32], sum_of(&bytes), "to the guest");
    // Only on the way to the guest: on the way back its frames are acknowledgements.
    let after = counted();
    let mean = (after.0 - before.0) / (after.1 - before.1);
    assert!(mean > 2000.0, "super-segments stay whole: {mean} bytes per frame");
    let back = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut back = vec![0; bytes.len()];
            listener.accept().unwrap().0.read_exact(&mut back).unwrap();
            back
        });
        guest.must("nc 10.9.0.1 5001 </tmp/file");
        receiving.join().unwrap()
    });
    assert!(back == bytes, "from the guest");
    // The guest's own count of segments whose checksum was wrong.
    let counts = guest.must("grep ^Tcp: /proc/net/snmp | tail -n 1");
    assert!(counts.trim().ends_with(" 0"), "{counts}");
}

/// A listener in the host's namespace.
fn listen(bed: &SwitchBed) -> std::net::TcpListener {
    let namespace = std::fs::File::open(format!("/proc/{}/ns/net", bed.hosts[0].id())).unwrap();
    let listening = std::thread::spawn(move || {
        use std::os::fd::AsFd;
        sys::namespace::enter_network(namespace.as_fd()).unwrap();
        std::net::TcpListener::bind("10.9.0.1:5001").unwrap()
    });
    listening.join().unwrap()
}

#[test]
fn root_a_stock_guest_speaks_through_the_switch_and_is_replaced_when_killed() {
    let (bed, socket) = bed("vhost");
    let mut guest = Machine::boot(&socket, 1);
    eventually("its driver runs", || device(&bed, "mode") == "guest runs, 1 pair of queues");
    guest.address("10.9.0.2");
    guest.must("ping -c 2 -W 10 10.9.0.1");
    bed.must(0, "ping -c 2 -i 0.1 -W 10 10.9.0.2");
    tcp_both_ways(&bed, &mut guest);
    // A second guest finds the port taken, and says so.
    let late = UnixStream::connect(&socket).unwrap();
    assert_eq!((&late).read(&mut [0; 1]).unwrap(), 0);
    eventually("it is said", || device(&bed, "trouble") == "a second hypervisor was turned away");
    // Killed in traffic: the port waits for the next.
    let mut flood =
        bed.on(0, "ping -f -q -w 30 -s 1400 10.9.0.2").stdout(Stdio::null()).spawn().unwrap();
    guest.kill();
    eventually("the guest is gone", || device(&bed, "mode") == "no guest");
    let mut next = Machine::boot(&socket, 1);
    next.address("10.9.0.2");
    // Not from the guest, whose ping would have to read the whole flood to find its answers.
    bed.must(0, "ping -c 2 -W 10 10.9.0.2");
    // The driver leaves its device and takes it again, in traffic.
    for _ in 0..5 {
        next.must(
            "cd /sys/bus/virtio/drivers/virtio_net; echo virtio0 >unbind; echo virtio0 >bind",
        );
        next.address("10.9.0.2");
    }
    bed.must(0, "ping -c 2 -W 10 10.9.0.2");
    flood.kill().unwrap();
    flood.wait().unwrap();
    // It reboots.
    writeln!(next.shell.get_mut(), "reboot -f").unwrap();
    next.until("@@READY@@");
    next.address("10.9.0.2");
    next.must("ping -c 2 -W 10 10.9.0.1");
    is_well(&bed);
    std::fs::remove_file(&socket).ok();
}

#[test]
fn root_a_guest_of_two_cores_has_two_pairs_of_queues() {
    let (bed, socket) = bed("vhost-queues");
    let mut guest = Machine::boot(&socket, 2);
    guest.address("10.9.0.2");
    eventually("both pairs run", || device(&bed, "mode") == "guest runs, 2 pairs of queues");
    guest.must("ping -c 2 -W 10 10.9.0.1");
    tcp_both_ways(&bed, &mut guest);
    // Its control queue: another address; and frames of another length.
    guest.must("ip link set eth0 address 52:54:00:00:00:99 && ip link set eth0 mtu 9000");
    bed.must(0, "ip link set tap0 mtu 9000");
    guest.must("ping -c 2 -W 10 -s 8900 10.9.0.1");
    // A guest that stands still harms itself only, and goes on where it was.
    let before = Instant::now();
    let pid = guest.qemu.id().to_string();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    let mut lost = bed.on(0, "ping -f -q -w 2 -s 1400 10.9.0.2");
    lost.stdout(Stdio::null()).status().unwrap();
    signal("-CONT");
    assert!(before.elapsed() < Duration::from_secs(30));
    guest.must("ping -c 2 -W 10 10.9.0.1");
    is_well(&bed);
    std::fs::remove_file(&socket).ok();
}

#[test]
fn root_two_guests_speak_with_each_other_and_with_a_host() {
    let (bed, socket) = bed("vhost-two");
    let other = bed.socket.with_extension("vm2");
    bed.clearstream(0, &format!("port add vale0:vm2 --type vhost-user --path {}", other.display()));
    let (mut one, mut two) = (Machine::boot(&socket, 1), Machine::boot(&other, 1));
    for (guest, last) in [(&mut one, "2"), (&mut two, "3")] {
        guest.must(&format!("ip link set eth0 address 52:54:00:00:00:0{last}"));
        guest.address(&format!("10.9.0.{last}"));
        guest.must("ping -c 2 -W 10 10.9.0.1");
    }
    two.must("ping -c 2 -W 10 10.9.0.2");
    // Its input stays open: at its end the stock nc would leave before all has come.
    one.must("(sleep 1000 | nc -l -p 5002 >/tmp/there) &");
    one.must("until grep -q ':138A .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 1; done");
    two.must(
        "dd if=/dev/urandom of=/tmp/here bs=1M count=8 2>/dev/null; nc 10.9.0.2 5002 </tmp/here",
    );
    let sent = two.must("md5sum </tmp/here");
    // What has been sent is not yet written there.
    eventually("all has come", || one.must("md5sum </tmp/there")[..32] == sent[..32]);
    // What one says to the other the host does not get.
    let before = bed.entry("vale0:host")["count"]["outgoing"]["bytes"].as_u64().unwrap();
    assert!(before < MIB as u64, "{before} bytes went to the host");
    is_well(&bed);
    for path in [socket, other] {
        std::fs::remove_file(path).ok();
    }
}
