//! Devices as ports of the switch, with stock programs on either side. Needs root: each host is a
//! network namespace of its own.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::Duration;

use packet_switch::client::Connection;
use ring::Patience;

use crate::PROGRAM;
use testkit::switch_bed::{SwitchBed, complaint, eventually};

#[test]
fn root_taps_carry_tcp_through_the_switch() {
    let bed = SwitchBed::new("taps", 2);
    bed.tap(0, "vale0:a", "a0", "10.9.0.1");
    bed.tap(1, "vale0:b", "b0", "10.9.0.2");
    bed.must(0, "ping -c 2 -i 0.02 -W 5 10.9.0.2");
    // Slow in a debug build on a busy machine, but it must arrive.
    assert!(bed.iperf3(0, 1, "10.9.0.2", "64M") > 10e6);
    let entry = bed.entry("vale0:b");
    let (frames, bytes) =
        (&entry["count"]["outgoing"]["frames"], &entry["count"]["outgoing"]["bytes"]);
    let mean = bytes.as_f64().unwrap() / frames.as_f64().unwrap();
    assert!(mean > 3000.0, "super-segments stay whole: {mean} bytes per frame");
    assert_eq!((&entry["device"]["kind"], &entry["device"]["name"]), (&"tap".into(), &"b0".into()));
    let text = bed.clearstream(0, "port stats --openmetrics");
    let line = "clearstream_port_frames_total{port=\"vale0:b\",direction=\"outgoing\"} ";
    assert!(text.contains(line) && text.ends_with("# EOF\n"), "{text}");
    capture(&bed);
    // A name is taken once, and a device goes with its port.
    let again = bed.on(0, &format!("{PROGRAM} port add vale0:a type=tap dev=a1")).output().unwrap();
    assert!(complaint(&again).contains("vale0:a already exists"), "{again:?}");
    bed.clearstream(0, "port del vale0:a");
    let mut gone = bed.on(0, "ip link show a0");
    eventually("the device goes", || !gone.output().unwrap().status.success());
}

/// Pings, seen on their way by a capture that a stock tcpdump reads. The end of an earlier connection may be seen too.
fn capture(bed: &SwitchBed) {
    let file = bed.socket.with_extension("pcap");
    let words = format!("{PROGRAM} port capture vale0:b --count 40 -o {}", file.display());
    let mut capture = bed.on(0, &words).spawn().unwrap();
    eventually("the capture begins", || std::fs::metadata(&file).is_ok_and(|it| it.len() >= 24));
    bed.must(0, "ping -c 40 -i 0.01 -W 5 10.9.0.2");
    assert!(capture.wait().unwrap().success());
    let read = bed.must(0, &format!("tcpdump --nano -n -tt -r {}", file.display()));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(read.lines().count(), 40, "{read}");
    assert!(read.contains("10.9.0.1 > 10.9.0.2: ICMP echo request"), "{read}");
    assert!(read.contains("10.9.0.2 > 10.9.0.1: ICMP echo reply"), "{read}");
    let stamps: Vec<f64> =
        read.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(stamps.is_sorted(), "{stamps:?}");
}

/// A tagged frame that the host sends reaches a process as it is, and the other way.
#[test]
fn root_vlan_tags_pass_untouched() {
    let bed = SwitchBed::new("vlan", 1);
    bed.clearstream(0, "port add vale0:a type=tap dev=a0");
    let mut connection = Connection::open(&bed.socket).unwrap();
    let mut port = connection.attach_port(&"vale0:process".parse().unwrap()).unwrap();
    let namespace = std::fs::File::open(format!("/proc/{}/ns/net", bed.hosts[0].id())).unwrap();
    let wire = std::thread::spawn(move || {
        sys::namespace::enter_network(namespace.as_fd()).unwrap();
        ports::tap::Port::packet("a0").unwrap()
    });
    let wire = wire.join().unwrap();
    let mut frame = [7; 80];
    frame[..18].copy_from_slice(&[
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x81, 0x00, 0x60, 42, 0x88, 0xb5,
    ]);
    wire.send(&[IoSlice::new(&[0; 10]), IoSlice::new(&frame)]).unwrap();
    let patience = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(20) };
    let mut seen = Vec::new();
    eventually("the frame comes", || {
        let arrived = port.receiver.wait(patience).unwrap();
        let mut space = [0; 2048];
        for offset in 0..arrived {
            let length = port.receiver.copy(offset, &mut space).unwrap();
            seen.push(space[..length].to_vec());
        }
        port.receiver.release(arrived).unwrap();
        seen.iter().any(|one| one == &frame)
    });
    // Back, to the address it came from; what the host gets is what its driver was handed.
    frame[..12].rotate_left(6);
    frame[0] = 2;
    assert_eq!(port.sender.wait(patience).unwrap() > 0, port.sender.put(0, &frame));
    port.sender.publish(1).unwrap();
    // The kernel keeps a received tag beside the frame, so the host's side shows that one came.
    let mut space = [0; 2048];
    eventually("the host receives it", || {
        let untagged = [&frame[..12], &frame[16..]].concat();
        let length = wire.recv(&mut space).unwrap().unwrap_or(0);
        length == 10 + 76 && space[10..length] == untagged
    });
    // It is counted once it has been handed over.
    eventually("the frame is counted", || {
        bed.entry("vale0:a")["count"]["outgoing"]["bytes"].as_u64() >= Some(80)
    });
    let entry = bed.entry("vale0:a");
    assert_eq!(
        (&entry["count"]["outgoing"]["bytes"], &entry["device"]["refused"]),
        (&80.into(), &0.into())
    );
}

/// What a process sends and receives of numbered UDP datagrams.
fn datagram(port: u16, number: u32, to: [u8; 6]) -> Vec<u8> {
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, 9], &[0x08, 0x00]].concat();
    frame.extend([0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 4, 2, 10, 9, 4, 1]);
    let port = port.to_be_bytes();
    frame.extend([port[0], port[1], 0, 9, 0, 12, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame
}

/// Source port and number of such a datagram.
fn numbered(frame: &[u8]) -> Option<(u16, u32)> {
    let is_udp = frame.len() >= 46 && frame[12..14] == [0x08, 0x00] && frame[23] == 17;
    let port = u16::from_be_bytes([*frame.get(34)?, *frame.get(35)?]);
    let number = u32::from_be_bytes(*frame.get(42..)?.first_chunk()?);
    is_udp.then_some((port, number))
}

/// How many came of each flow; panics when one came out of turn.
#[derive(Default)]
struct InTurn(std::collections::BTreeMap<u16, u32>);

impl InTurn {
    fn see(&mut self, frame: &[u8]) {
        if let Some((port, number)) = numbered(frame) {
            let next = self.0.entry(port).or_default();
            assert_eq!(number, *next, "of port {port}");
            *next += 1;
        }
    }

    fn total(&self) -> u32 {
        self.0.values().sum()
    }
}

#[test]
fn root_flows_of_a_tap_with_many_queues_stay_in_order() {
    const FLOWS: u16 = 32;
    const EACH: u32 = 20;
    let bed = SwitchBed::new("queues", 1);
    for (words, why) in [
        ("queues=65", "65 queues; a TAP port has 1 to 64"),
        ("queue=1", "--queue needs --type xdp; a TAP device has --queues"),
    ] {
        let add = format!("{PROGRAM} port add vale0:a type=tap dev=a0 {words}");
        let refused = bed.on(0, &add).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(complaint(&refused).contains(why), "{refused:?}");
    }
    bed.clearstream(0, "port add vale0:a type=tap dev=a0 queues=4");
    assert_eq!(bed.entry("vale0:a")["device"]["queues"], 4);
    let link = bed.must(0, "ip -d link show a0");
    assert!(link.contains("multi_queue numqueues 4"), "{link}");
    bed.must(0, "ip addr add 10.9.4.1/24 dev a0");
    bed.must(0, "ip neigh add 10.9.4.2 lladdr 02:00:00:00:00:09 dev a0");
    let mut connection = Connection::open(&bed.socket).unwrap();
    let mut port = connection.attach_port(&"vale0:process".parse().unwrap()).unwrap();
    let namespace = std::fs::File::open(format!("/proc/{}/ns/net", bed.hosts[0].id())).unwrap();
    let host = std::thread::spawn(move || {
        sys::namespace::enter_network(namespace.as_fd()).unwrap();
        let wire = ports::tap::Port::packet("a0").unwrap();
        let sockets: Vec<_> =
            (0..FLOWS).map(|_| std::net::UdpSocket::bind("10.9.4.1:0").unwrap()).collect();
        for number in 0..EACH {
            for socket in &sockets {
                socket.send_to(&number.to_be_bytes(), "10.9.4.2:9").unwrap();
            }
        }
        wire
    });
    let wire = host.join().unwrap();
    // Whichever queue the kernel put a flow into, all of it comes, in order.
    let patience = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(20) };
    let mut came = InTurn::default();
    let mut space = [0; 2048];
    eventually("every datagram comes", || {
        let arrived = port.receiver.wait(patience).unwrap();
        for offset in 0..arrived {
            let length = port.receiver.copy(offset, &mut space).unwrap();
            came.see(&space[..length]);
        }
        port.receiver.release(arrived).unwrap();
        came.total() == u32::from(FLOWS) * EACH
    });
    let link = bed.must(0, "ip -br link show a0");
    let address = link.split_whitespace().nth(2).unwrap();
    let mut host = [0; 6];
    for (byte, text) in host.iter_mut().zip(address.split(':')) {
        *byte = u8::from_str_radix(text, 16).unwrap();
    }
    for number in 0..EACH {
        for flow in 0..FLOWS {
            port.sender.wait(patience).unwrap();
            assert!(port.sender.put(0, &datagram(5000 + flow, number, host)));
            port.sender.publish(1).unwrap();
        }
    }
    let mut back = InTurn::default();
    eventually("every answer reaches the host", || {
        while let Some(length) = wire.recv(&mut space).unwrap() {
            back.see(&space[10..length]);
        }
        back.total() == u32::from(FLOWS) * EACH
    });
}

#[test]
fn root_a_link_delays_and_loses_as_it_says() {
    let bed = SwitchBed::new("link", 2);
    bed.tap(0, "vale0:a", "a0", "10.9.2.1");
    bed.tap(1, "vale1:b", "b0", "10.9.2.2");
    bed.clearstream(0, "link add vale0:up vale1:down --delay 20ms --rate 200M --loss 20% --seed 7");
    let text = bed.clearstream(0, "link list");
    assert!(
        text.contains("vale0:up to vale1:down")
            && text.contains("delay 20.0 ms, 200 Mbit/s, loss 20.0%"),
        "{text}"
    );
    let output = bed.on(0, "ping -c 50 -i 0.02 -W 1 10.9.2.2").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let least = text.split(" = ").nth(1).and_then(|times| times.split('/').next()).unwrap();
    let least: f64 = least.parse().unwrap();
    assert!((40.0..200.0).contains(&least), "there and back is 40 ms: {text}");
    let lost = bed.entry("vale0:up")["device"]["lost"].as_u64().unwrap();
    // A fifth of about a hundred frames, by a fixed seed.
    assert!((5..60).contains(&lost), "{lost} lost");
    bed.clearstream(0, "link del vale1:down");
    assert_eq!(bed.clearstream(0, "link list"), "");
}
