//! A guest that drives its port's rings, disturbed in the middle of traffic, and its neighbours at the switch. A boot may take
//! a minute where others want the cores: nothing here is judged by time.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::PROGRAM;
use crate::vm_bed::{Testbed, pid, wait_until};

/// Frames that two local processes exchange meanwhile, at a rate at which the ring of a port holds those of several seconds.
const FRAMES: u64 = 3000;
const PER_SECOND: u64 = 200;
/// How long QEMU is stopped.
const STOPPED: Duration = Duration::from_secs(10);

/// Two processes at ports of their own. The sender ends by itself; the receiver says at SIGINT what has come.
fn neighbours(bed: &Testbed) -> (Child, Child) {
    let pkt = |words: &str| {
        let mut command = Command::new("setpriv");
        command.args("--pdeathsig KILL --".split(' ')).arg(PROGRAM).args(["pkt", "--json"]);
        command.args(words.split(' ')).env("CLEARSTREAM_SWITCH", &bed.switch.socket);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let sink = pkt("sink vale0:b --announce 02:00:00:00:00:0b --check");
    wait_until("the receiver is there", || bed.has_port("b"));
    let addresses = "--src 02:00:00:00:00:0a --dst 02:00:00:00:00:0b";
    (pkt(&format!("gen vale0:a {addresses} --rate {PER_SECOND} --count {FRAMES}")), sink)
}

/// Descriptors and threads of the switch, without those of ports that are gone.
fn open_at_switch(bed: &Testbed) -> [usize; 2] {
    let daemon = bed.switch.daemon.id();
    ["fd", "task"].map(|of| std::fs::read_dir(format!("/proc/{daemon}/{of}")).unwrap().count())
}

fn signal(guest: &Value, signal: Signal) {
    kill_process(Pid::from_raw(pid(guest, "qemu_pid")).unwrap(), signal).unwrap();
}

/// Its interface is configured, and the other guest answers.
fn one_is_well(bed: &Testbed) {
    bed.shell("one", "ip addr replace 10.0.0.1/24 dev eth0; ip link set eth0 up");
    bed.runs_at_its_port("one");
    bed.shell("one", "ping -c 2 -W 60 10.0.0.2");
}

/// The guest boots again, after `how`.
fn reboots(bed: &Testbed, how: &str) {
    let boot = || bed.shell("one", "cat /proc/sys/kernel/random/boot_id");
    let before = boot();
    let mut exec = bed.vm(&format!("exec {} --", bed.name("one")));
    let mut asked = exec.args(["sh", "-c", how]).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the command ends with the guest", || asked.try_wait().unwrap().is_some());
    assert!(!asked.wait().unwrap().success());
    wait_until("it has booted again", || {
        let said = bed.exec("one", &["cat", "/proc/sys/kernel/random/boot_id"]);
        said.status.success() && said.stdout != before.as_bytes()
    });
    one_is_well(bed);
}

#[test]
fn a_ptnet_guest_stops_loses_its_driver_and_reboots_in_traffic_and_no_neighbour_loses_a_frame() {
    let bed = Testbed::new("disturbed");
    let more = " --type ptnet --cores 2 --queues 2";
    let one = std::thread::scope(|scope| {
        let two = scope.spawn(|| bed.run("two", " --type ptnet"));
        let one = bed.run("one", more);
        two.join().unwrap();
        one
    });
    bed.shell("two", "ip addr add 10.0.0.2/24 dev eth0; ip link set eth0 up");
    one_is_well(&bed);
    let open = open_at_switch(&bed);
    // As fast as to fill its ring while it is stopped.
    bed.shell("two", "ping -i 0.005 10.0.0.1 >/dev/null 2>&1 &");

    // A second guest finds the port taken.
    let second = format!("run {} --port vale0:one --image", bed.name("late"));
    let refused = bed.vm(&second).arg(crate::vhost_user_root::images()).output().unwrap();
    let complaint = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), complaint.lines().count()), (Some(1), 1), "{complaint}");
    assert!(complaint.contains("vale0:one"), "{complaint}");

    let (mut sender, sink) = neighbours(&bed);
    let arrived = bed.arrived_at("one");
    signal(&one, Signal::STOP);
    std::thread::sleep(STOPPED);
    assert!(bed.arrived_at("one") > arrived, "frames came for it meanwhile");
    signal(&one, Signal::CONT);
    one_is_well(&bed);
    for _ in 0..3 {
        bed.shell("one", "(while :; do ping -c 1 -W 1 10.0.0.2; done) >/dev/null 2>&1 & sleep 1");
        bed.shell("one", "rmmod ptnet && insmod /modules/ptnet.ko; kill %1; true");
        one_is_well(&bed);
    }
    // With and without a word to the driver.
    reboots(&bed, "reboot -f; sleep 1000");
    reboots(&bed, "echo b >/proc/sysrq-trigger; sleep 1000");

    assert!(sender.wait().unwrap().success());
    wait_until("none is under way", || bed.arrived_at("b") >= FRAMES);
    kill_process(Pid::from_child(&sink), Signal::INT).unwrap();
    let said = sink.wait_with_output().unwrap();
    let received: Value = serde_json::from_slice(&said.stdout).unwrap();
    let count = |key: &str| received[key].as_u64().unwrap();
    // Frames of the guests come too, while the switch does not know where one of them is.
    assert_eq!((count("missing"), count("frames") - count("foreign")), (0, FRAMES), "{received}");
    wait_until("the switch has what it had", || open_at_switch(&bed) <= open);
    // Nobody says that the guest had done wrong.
    let network = bed.listed("one")["network"].as_str().unwrap().to_owned();
    assert!(network.starts_with("guest runs") && !network.contains("fault"), "{network}");
}
