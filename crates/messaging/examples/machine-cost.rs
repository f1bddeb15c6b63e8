//! Measures the CPU time of the machine itself, in ns: two machines in one thread, with packets
//! passed from one to the other. Run it on an idle core, built with `--release`.
//!
//! A round trip of a ping-pong of short messages takes four passes through a machine: send and
//! transmit, then receive and match, on each side. The printed time is half a round trip.

use std::hint::black_box;
use std::time::Instant;

use messaging::{
    Address, BufferId, Channel, Config, Machine, Memory, Payload, PeerId, Receive, Send, SendMode,
};

/// One buffer that serves all buffer ids.
struct Buffer(Vec<u8>);

impl Memory for Buffer {
    fn write(&mut self, _: BufferId, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, _: BufferId, offset: u64, bytes_count: usize, into: &mut Vec<u8>) {
        let at = offset as usize;
        into.extend_from_slice(&self.0[at..at + bytes_count]);
    }
}

struct End {
    machine: Machine,
    memory: Buffer,
    packet: Vec<u8>,
}

fn end(number: u8, packet_bytes_max: u16, tags_payloads: bool) -> End {
    let secret = [number; 16];
    let config = Config {
        packet_bytes_max,
        tags_payloads,
        peers_max: 16,
        ..Config::new(Address([number; 32]), number.into(), [9; 16], secret)
    };
    let machine = Machine::new(config).expect("a sound configuration");
    End { machine, memory: Buffer(vec![0; 8 << 20]), packet: Vec::new() }
}

/// Passes all packets that one end has to send to the other. Returns their number.
fn carry(now_ns: u64, from: &mut End, to: &mut End) -> u64 {
    let mut packets = 0;
    while let Some(mut transmit) = from.machine.poll_transmit(now_ns) {
        from.packet.clear();
        match transmit.payload {
            Payload::None => {
                from.packet.extend_from_slice(transmit.header(&[]));
            }
            Payload::Bytes(bytes) => {
                from.packet.extend_from_slice(transmit.header(bytes));
                from.packet.extend_from_slice(bytes);
            }
            Payload::User { offset, length_bytes, .. } => {
                let at = offset as usize;
                let bytes = &from.memory.0[at..at + length_bytes];
                from.packet.extend_from_slice(transmit.header(bytes));
                from.packet.extend_from_slice(bytes);
            }
        }
        to.machine.handle_packet(now_ns, &from.packet, &mut to.memory);
        packets += 1;
    }
    packets
}

fn settle(now_ns: &mut u64, a: &mut End, b: &mut End) {
    while carry(*now_ns, a, b) + carry(*now_ns, b, a) > 0 {
        *now_ns += 10_000;
        a.machine.handle_timeouts(*now_ns);
        b.machine.handle_timeouts(*now_ns);
    }
}

fn send(now_ns: u64, from: &mut End, length_bytes: u64) {
    let send = Send {
        peer: PeerId(0),
        channel: Channel::Tagged,
        match_bits: 5,
        data: None,
        buffer: BufferId(1),
        offset: 0,
        length_bytes,
        mode: SendMode::Standard,
        context: 1,
    };
    from.machine.send(now_ns, &send, &from.memory).expect("room");
}

fn post(now_ns: u64, at: &mut End, length_bytes: u64) {
    let receive = Receive {
        source: Some(PeerId(0)),
        channel: Channel::Tagged,
        match_bits: 5,
        ignore_bits: 0,
        buffer: BufferId(1),
        offset: 4 << 20,
        length_bytes,
        multi: None,
        context: 2,
    };
    at.machine.receive(now_ns, &receive, &mut at.memory).expect("room");
}

fn drain(end: &mut End) {
    while let Some(completion) = end.machine.poll_completion() {
        black_box(completion);
    }
}

fn pair(packet_bytes_max: u16, tags_payloads: bool) -> (End, End) {
    let (mut a, mut b) =
        (end(1, packet_bytes_max, tags_payloads), end(2, packet_bytes_max, tags_payloads));
    a.machine.insert_peer(Address([2; 32])).expect("room");
    b.machine.insert_peer(Address([1; 32])).expect("room");
    (a, b)
}

/// Half a round trip of messages of this length, in ns.
fn ping_pong(length_bytes: u64, tags_payloads: bool) -> f64 {
    let (mut a, mut b) = pair(1472, tags_payloads);
    let mut now_ns = 1_000;
    let rounds = 200_000;
    let mut began = Instant::now();
    for round in 0..rounds + 1_000 {
        if round == 1_000 {
            began = Instant::now();
        }
        post(now_ns, &mut b, length_bytes);
        send(now_ns, &mut a, length_bytes);
        if round < 10 {
            settle(&mut now_ns, &mut a, &mut b);
        }
        now_ns += 1_000;
        carry(now_ns, &mut a, &mut b);
        post(now_ns, &mut a, length_bytes);
        send(now_ns, &mut b, length_bytes);
        now_ns += 1_000;
        carry(now_ns, &mut b, &mut a);
        a.machine.handle_timeouts(now_ns);
        b.machine.handle_timeouts(now_ns);
        drain(&mut a);
        drain(&mut b);
    }
    began.elapsed().as_nanos() as f64 / f64::from(2 * rounds)
}

/// Time per message in a stream of short messages, 64 of them in flight, in ns.
fn stream(length_bytes: u64) -> f64 {
    let (mut a, mut b) = pair(1472, true);
    let mut now_ns = 1_000;
    let rounds = 5_000;
    let mut began = Instant::now();
    for round in 0..rounds + 100 {
        if round == 100 {
            began = Instant::now();
        }
        for _ in 0..64 {
            post(now_ns, &mut b, length_bytes);
        }
        for _ in 0..64 {
            send(now_ns, &mut a, length_bytes);
        }
        settle(&mut now_ns, &mut a, &mut b);
        drain(&mut a);
        drain(&mut b);
    }
    began.elapsed().as_nanos() as f64 / f64::from(64 * rounds)
}

/// Bytes per second of announced messages: machine, tags, and one copy per side.
fn bulk(packet_bytes_max: u16, tags_payloads: bool) -> f64 {
    let (mut a, mut b) = pair(packet_bytes_max, tags_payloads);
    let mut now_ns = 1_000;
    let length_bytes = 4 << 20;
    let mut began = Instant::now();
    let rounds = 100;
    for round in 0..rounds + 5 {
        if round == 5 {
            began = Instant::now();
        }
        post(now_ns, &mut b, length_bytes);
        send(now_ns, &mut a, length_bytes);
        settle(&mut now_ns, &mut a, &mut b);
        drain(&mut a);
        drain(&mut b);
    }
    (rounds * length_bytes) as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    for length_bytes in [0, 8, 64, 1024, 4096] {
        let covered = ping_pong(length_bytes, true);
        let bare = ping_pong(length_bytes, false);
        println!(
            "half round trip, {length_bytes} B: {covered:.0} ns; payload not tagged: {bare:.0} ns"
        );
    }
    println!("stream of 8 B, 64 under way: {:.0} ns a message", stream(8));
    for packet_bytes_max in [1472, 8972, 65_000] {
        let [covered, bare] = [true, false].map(|tags| bulk(packet_bytes_max, tags) / 1e9);
        println!(
            "4 MiB in packets of {packet_bytes_max} B: {covered:.2} GB/s; not tagged: {bare:.2} GB/s"
        );
    }
}
