//! Queues of network devices as ports of the switch. Needs root: each host is a network namespace of its
//! own, the devices are ends of veth pairs.

use std::os::fd::AsFd;
use std::time::Duration;

use packet_switch::client::Connection;
use ports::xdp::Port;
use ring::Patience;

use crate::PROGRAM;
use testkit::switch_bed::{SwitchBed, complaint, eventually};

/// A veth pair: `near` on the switch's host (0), `far` on another.
pub(crate) fn cable(bed: &SwitchBed, near: &str, far: &str, host: usize) {
    let pid = bed.hosts[host].id();
    bed.must(0, &format!("ip link add {near} type veth peer name {far} netns {pid}"));
    bed.must(0, &format!("ip link set {near} up"));
    bed.must(host, &format!("ip link set {far} up"));
}

/// The far end of a cable, without the kernel's stack behind it.
fn wire(bed: &SwitchBed, host: usize, device: &'static str) -> Port {
    let namespace = std::fs::File::open(format!("/proc/{}/ns/net", bed.hosts[host].id())).unwrap();
    let opened = std::thread::spawn(move || {
        sys::namespace::enter_network(namespace.as_fd()).unwrap();
        ports::xdp::open(device, 0).unwrap()
    });
    opened.join().unwrap().try_into().unwrap()
}

fn send(wire: &mut Port, frame: &[u8]) {
    assert!(wire.room(1).unwrap() >= 1 && wire.chunk(0).unwrap().write(0, frame));
    wire.put(0, frame.len() as u32, false);
    wire.publish(1).unwrap();
}

/// Takes what has arrived, looking for this frame.
fn has(wire: &mut Port, frame: &[u8]) -> bool {
    let arrived = wire.peek().unwrap();
    let mut seen = false;
    for offset in 0..arrived {
        let bytes = wire.frame(offset).unwrap().bytes;
        let mut copy = vec![0; bytes.length_bytes()];
        assert!(bytes.read(0, &mut copy));
        seen |= copy == frame;
    }
    wire.release(arrived).unwrap();
    seen
}

pub(crate) fn program_on(bed: &SwitchBed, device: &str) -> bool {
    bed.must(0, &format!("ip link show dev {device}")).contains("xdp")
}

/// A tagged frame, from `source` to everybody.
fn tagged(source: u8, length_bytes: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length_bytes).map(|at| at as u8).collect();
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
    frame[12..18].copy_from_slice(&[0x81, 0x00, 0x60, 42, 0x88, 0xb5]);
    frame
}

#[test]
fn root_frames_cross_a_queue_to_the_last_byte() {
    frames_cross(&SwitchBed::new("xdp-bytes", 2), true);
}

/// On one core the switch's own thread drives the queues.
#[test]
fn root_frames_cross_a_queue_on_one_core() {
    let bed = SwitchBed::with("xdp-one-core", 2, &["--cores", "0"]);
    frames_cross(&bed, false);
}

/// The names of the daemon's threads.
fn thread_names(bed: &SwitchBed) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", bed.daemon.id())).unwrap();
    // A thread may end meanwhile.
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
    };
    tasks.filter_map(name).collect()
}

fn frames_cross(bed: &SwitchBed, has_own_thread: bool) {
    cable(bed, "near", "far", 1);
    bed.clearstream(0, "port add vale0:q --type xdp --device near");
    let list = bed.clearstream(0, "port list");
    assert!(list.contains("xdp near queue 0, copy"), "veth has no zero-copy: {list}");
    let mut wire = wire(bed, 1, "far");
    let mut connection = Connection::open(&bed.socket).unwrap();
    let mut port = connection.attach_port(&"vale0:process".parse().unwrap()).unwrap();
    let patience = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(20) };
    for length_bytes in [60, 64, 1000, 1518] {
        let there = tagged(9, length_bytes);
        send(&mut wire, &there);
        let mut seen = false;
        eventually("the frame comes in", || {
            let arrived = port.receiver.wait(patience).unwrap();
            let mut space = [0; 2112];
            for offset in 0..arrived {
                let length = port.receiver.copy(offset, &mut space).unwrap();
                seen |= space[..length] == there;
            }
            port.receiver.release(arrived).unwrap();
            seen
        });
        let back = tagged(7, length_bytes);
        assert!(port.sender.wait(patience).unwrap() > 0 && port.sender.put(0, &back));
        port.sender.publish(1).unwrap();
        eventually("the frame goes out", || has(&mut wire, &back));
    }
    let entry = bed.entry("vale0:q");
    assert_eq!((&entry["device"]["refused"], &entry["device"]["lost"]), (&0.into(), &0.into()));

    let names = thread_names(bed);
    let is_the_devices = |name: &String| name.contains("near");
    assert_eq!(names.iter().any(is_the_devices), has_own_thread, "{names:?}");

    bed.clearstream(0, "port del vale0:q");
    eventually("the program goes with the port", || !program_on(bed, "near"));
}

#[test]
fn root_stock_programs_talk_over_queues_and_devices_may_go() {
    stock_programs_talk(SwitchBed::new("xdp-hosts", 3));
}

#[test]
fn root_the_same_on_one_core() {
    stock_programs_talk(SwitchBed::with("xdp-hosts-one-core", 3, &["--cores", "0"]));
}

fn stock_programs_talk(mut bed: SwitchBed) {
    for (near, far, host) in [("n1", "f1", 1), ("n2", "f2", 2)] {
        cable(&bed, near, far, host);
        bed.must(host, &format!("ip addr add 10.9.3.{host}/24 dev {far}"));
        bed.clearstream(0, &format!("port add vale0:{near} type=xdp dev={near} queue=0"));
    }
    bed.must(1, "ping -c 3 -i 0.02 -W 5 10.9.3.2");

    let refused = |words: &str, code: i32| {
        let output = bed.on(0, &format!("{PROGRAM} port add vale0:x {words}")).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words}: {output:?}");
        let text = complaint(&output).to_owned();
        assert_eq!(text.lines().count(), 1, "{words}: {text}");
        text
    };
    assert!(refused("--type xdp --device n1", 1).contains("n1 has an XDP program already"));
    assert!(refused("--type xdp --device none", 1).contains("there is no device none"));
    assert!(refused("--type xdp --device lo --queue 9", 1).contains("lo has no queue 9"));
    assert!(refused("--type xdp", 2).contains("--device"));
    assert!(!bed.clearstream(0, "port list").contains("vale0:x"));
    let command = format!("{PROGRAM} port add vale0:x --type xdp --device n1");
    let weak = format!("setpriv --bounding-set=-net_raw --inh-caps=-net_raw {command}");
    let weak = bed.on(0, &weak).output().unwrap();
    assert_eq!(weak.status.code(), Some(4), "{weak:?}");
    assert!(complaint(&weak).contains("CAP_NET_RAW"), "{weak:?}");

    bed.must(0, "ip link del n2");
    eventually("the loss is noticed", || {
        bed.clearstream(0, "port list").contains("n2 queue 0, copy, ENDED: the device failed")
    });
    assert!(program_on(&bed, "n1"));
    bed.daemon.kill().unwrap();
    bed.daemon.wait().unwrap();
    eventually("a killed switch leaves nothing", || !program_on(&bed, "n1"));
}
