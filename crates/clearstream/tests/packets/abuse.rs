//! A client that wants too much work or memory of the switch's process, as it runs for users: confined.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet_switch::attachment::{Ask, LinkConfig, Shape};
use packet_switch::client::{Attached, Connection};
use ring::Patience;

use super::{PROGRAM, Switch};
use testkit::effort;
use testkit::socket::socket_path;

fn attach(connection: &mut Connection, port: &str, shape: Shape) -> Attached {
    connection.attach_port_as(&port.parse().unwrap(), shape).unwrap()
}

fn ethernet(from: u8, to: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[..6].copy_from_slice(&if to == 0xff { [0xff; 6] } else { [2, 0, 0, 0, 0, to] });
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    frame
}

/// 64 KiB of TCP for everybody, behind a virtio-net header, in segments of that size.
fn super_segment(segment_bytes: u16) -> Vec<u8> {
    let [low, high] = segment_bytes.to_le_bytes();
    // Needs its checksum; TCP over IPv4; 54 bytes of headers; the checksum at 16 from 34 on.
    let header = [1, 1, 54, 0, low, high, 34, 0, 16, 0];
    let mut frame = ethernet(99, 0xff, 65_000);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&(65_000_u16 - 14).to_be_bytes());
    frame[34 + 12] = 0x50;
    [&header[..], &frame].concat()
}

/// As many of a packet as there is room for.
fn fill(port: &mut Attached, packet: &[u8]) {
    let free = port.sender.reserve(u32::MAX).unwrap();
    let each = if free == 0 { return } else { port.sender.buffer(0).unwrap().length_bytes() };
    let slots = packet.len().div_ceil(each) as u32;
    let filled = free / slots * slots;
    for first in (0..filled).step_by(slots as usize) {
        for (slot, piece) in (first..).zip(packet.chunks(each)) {
            assert!(port.sender.buffer(slot).unwrap().write(0, piece));
            let more = slot + 1 < first + slots;
            assert!(port.sender.put_part(slot, piece.len() as u16, more));
        }
    }
    port.sender.publish(filled).unwrap();
}

fn drain(port: &mut Attached) {
    let arrived = port.receiver.peek(u32::MAX).unwrap();
    port.receiver.release(arrived).unwrap();
}

/// Has the switch do what it can be made to do by one port and 20 others that take all in.
fn flood(socket: &std::path::Path, stop: &AtomicBool) -> u32 {
    let mut connection = Connection::open(socket).unwrap();
    let mut source = attach(&mut connection, "vale0:flood", Shape::default());
    let port = "vale0:flood".parse().unwrap();
    connection.ask(Ask::SetHeader { port, header_bytes: 10 }).unwrap();
    let mut sinks: Vec<Attached> = (0..20)
        .map(|number| attach(&mut connection, &format!("vale0:s{number}"), Shape::default()))
        .collect();
    let packets = [1, 2, 64, 500].map(super_segment);
    let mut turns = 0;
    while !stop.load(Ordering::Relaxed) {
        for packet in &packets {
            fill(&mut source, packet);
            sinks.iter_mut().for_each(drain);
            std::thread::sleep(Duration::from_micros(200));
        }
        turns += 1;
    }
    turns
}

/// Frames of one look, one a millisecond.
const FRAMES: u64 = 250;

/// Looks at a flood, all taken before they are judged: a machine that stalls spoils one or two.
const LOOKS: u32 = 9;

/// Two ports, the second of which the switch knows; rings that hold what comes while a core stands still.
fn pair(socket: &std::path::Path) -> (Connection, Attached, Attached) {
    let mut connection = Connection::open(socket).unwrap();
    let shape = Shape { slots: 4096, ..Shape::default() };
    let a = attach(&mut connection, "vale0:a", shape);
    let mut b = attach(&mut connection, "vale0:b", shape);
    let room = b.sender.reserve(u32::MAX).unwrap();
    assert!(b.sender.put(0, &ethernet(2, 1, 60)));
    b.sender.publish(1).unwrap();
    // Until the switch has taken it, it does not know who `b` is: a frame to `b` would go to all.
    let until = Instant::now() + Duration::from_secs(20);
    while b.sender.reserve(u32::MAX).unwrap() < room {
        assert!(Instant::now() < until, "the switch takes no frame");
        std::thread::sleep(Duration::from_millis(1));
    }
    (connection, a, b)
}

/// What arrives of paced frames from `a` to `b`, and how long the one that waited longest did.
fn paced(a: &mut Attached, b: &mut Attached) -> (u64, Duration) {
    let patience = Patience { linger: Duration::ZERO, timeout: Duration::from_millis(100) };
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..FRAMES {
                let due = began + Duration::from_millis(number);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                drain(a);
                let mut frame = ethernet(1, 2, 60);
                frame[14..22].copy_from_slice(&(began.elapsed().as_nanos() as u64).to_le_bytes());
                assert!(a.sender.wait(patience).unwrap() > 0, "it gets room within its patience");
                assert!(a.sender.put(0, &frame));
                a.sender.publish(1).unwrap();
            }
        });
        let (mut received, mut longest, mut quiet) = (0, Duration::ZERO, 0);
        while received < FRAMES && quiet < 10 {
            let arrived = b.receiver.wait(patience).unwrap();
            let mut frame = [0; 60];
            let mut ours = 0;
            for offset in 0..arrived {
                let length = b.receiver.copy(offset, &mut frame);
                if length == Some(60) && frame[..12] == ethernet(1, 2, 12) {
                    let sent = u64::from_le_bytes(frame[14..22].try_into().unwrap());
                    longest =
                        longest.max(began.elapsed().saturating_sub(Duration::from_nanos(sent)));
                    ours += 1;
                }
            }
            b.receiver.release(arrived).unwrap();
            received += ours;
            quiet = if ours > 0 { 0 } else { quiet + 1 };
        }
        (received, longest)
    })
}

#[test]
fn super_segments_for_everybody_make_nobody_else_wait() {
    let switch = Switch::run("flood");
    let stop = AtomicBool::new(false);
    let (turns, looks) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&switch.socket, &stop));
        std::thread::sleep(Duration::from_millis(300));
        let (_connection, mut a, mut b) = pair(&switch.socket);
        let looks: Vec<_> = (0..LOOKS).map(|_| paced(&mut a, &mut b)).collect();
        stop.store(true, Ordering::Relaxed);
        (flood.join().unwrap(), looks)
    });
    println!("{turns} turns of the flood");
    effort::judge_runs(
        "none of the innocent frames is lost or waits 50 ms",
        LOOKS,
        |look| looks[look as usize],
        |&(received, longest)| received == FRAMES && longest < Duration::from_millis(50),
    );
    assert!(turns > 10, "{turns} turns are no flood");
}

/// Memory of a process that is there, bytes.
fn resident_bytes(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line =
        text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a running process");
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Program, tables of switches, stacks.
const PROGRAM_BYTES: u64 = 32 << 20;

#[test]
fn links_hold_no_more_than_the_memory_there_may_be() {
    const MEMORY: u64 = 100_000_000;
    let mut command = std::process::Command::new(PROGRAM);
    command.args(["switch", "run", "--memory", "100M", "--socket"]);
    let switch = Switch::of(command, socket_path("cli-hold"));
    let mut connection = Connection::open(&switch.socket).unwrap();
    let mut source = attach(&mut connection, "vale0:a", Shape { slots: 256, ..Shape::default() });
    let add = |connection: &mut Connection, number: u32| {
        let end = |letter| format!("vale0:{letter}{number}").parse().unwrap();
        let link = LinkConfig { delay_ns: 10_000_000_000, ..LinkConfig::default() };
        connection.ask(Ask::AddLink { one: end('x'), other: end('y'), link })
    };
    let links = (0..100).take_while(|number| add(&mut connection, *number).is_ok()).count();
    assert!((1..50).contains(&links), "{links} links");
    let why = add(&mut connection, 100).unwrap_err().to_string();
    assert!(why.contains("bytes of all regions, links and devices"), "{why}");
    let lost = || {
        let ports = switch.json("port list");
        let lost =
            ports.as_array().unwrap().iter().filter_map(|one| one["device"]["lost"].as_u64());
        lost.max().unwrap_or(0)
    };
    let mut most = 0;
    // Frames of one length fill what those of another have left; a full link loses some.
    for bytes in [2000, 60] {
        let (before, until) = (lost(), Instant::now() + Duration::from_secs(60));
        while lost() == before {
            assert!(
                Instant::now() < until,
                "{links} links never fill with frames of {bytes} bytes"
            );
            for _ in 0..1000 {
                fill(&mut source, &ethernet(1, 0xff, bytes));
                most = most.max(resident_bytes(switch.daemon.id()));
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
    println!("{links} links, {most} bytes");
    assert!(most < MEMORY + PROGRAM_BYTES, "{most} bytes with {links} links");
}
