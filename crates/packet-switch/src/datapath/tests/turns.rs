//! Ports take turns: the work of a turn and of a round is bounded, whatever the frames are, and nobody starves.

use ring::{Shared, Word};

use super::*;

const GEOMETRY_LONG: Geometry =
    Geometry { tx_rings: 1, rx_rings: 1, slots: 2048, buffer_bytes: 2112, extra_buffers: 0 };

/// A super-segment of so many bytes of payload behind a virtio-net header of 10 bytes, by TCP over IPv4.
fn super_segment(from: usize, to: u8, payload: usize, segment_bytes: u16) -> Vec<u8> {
    let header = VnetHeader {
        flags: 1,
        gso_type: 1,
        header_len_bytes: 54,
        gso_size_bytes: segment_bytes,
        checksum_start: 34,
        checksum_offset: 16,
    };
    let mut packet = header.encode().to_vec();
    packet.extend([to, if to == 0xff { 0xff } else { 0 }, 0, 0, 0, to]);
    packet.extend([2, 0, 0, 0, 0, from as u8, 8, 0, 0x45, 0]);
    packet.extend(u16::try_from(40 + payload).unwrap_or(u16::MAX).to_be_bytes());
    packet.resize(10 + 54 + payload, 0);
    packet[10 + 34 + 12] = 0x50;
    packet
}

impl Bench {
    /// Puts a packet into as many slots as it takes.
    fn put_long(&mut self, from: usize, packet: &[u8]) {
        let tx = &mut self.clients[from].tx;
        let slots = packet.len().div_ceil(GEOMETRY_LONG.buffer_bytes as usize) as u32;
        assert!(tx.reserve(slots).unwrap() >= slots);
        for (slot, piece) in (0..).zip(packet.chunks(GEOMETRY_LONG.buffer_bytes as usize)) {
            assert!(tx.buffer(slot).unwrap().write(0, piece));
            assert!(tx.put_part(slot, piece.len() as u16, slot + 1 < slots));
        }
        tx.publish(slots).unwrap();
    }

    /// Frames and bytes that the ports were given or had no room for.
    fn done(&self) -> (u64, u64) {
        let counts = self.clients.iter().map(|client| self.counters(client.number).outgoing);
        counts.fold((0, 0), |(frames, bytes), count| {
            (frames + count.frames + count.dropped_total(), bytes + count.bytes)
        })
    }

    fn set_header(&mut self, number: usize, header_bytes: u8) {
        let id = PortId::new(number).unwrap();
        self.switch.link.send(Command::SetHeader { id, header_bytes }).unwrap();
        self.switch.obey();
    }

    fn drain(&mut self, number: usize) {
        let rx = &mut self.clients[number].rx;
        let count = rx.peek(u32::MAX).unwrap();
        rx.release(count).unwrap();
    }
}

#[test]
fn a_full_turn_leaves_the_rest_for_the_next() {
    let (mut tx, mut inlet, mut marks) = way_in(1024);
    assert_eq!(tx.reserve(1023).unwrap(), 1023);
    assert!((0..1000).all(|offset| tx.put_length(offset, 60)));
    tx.publish(1000).unwrap();
    let mut taken = Taken::default();
    for expected in [256, 256, 256, 232, 0] {
        inlet.look();
        inlet.take(&mut marks, &mut taken).unwrap();
        assert_eq!(taken.slots.len(), expected, "one port's turn is bounded");
        inlet.release(&mut marks, &taken.slots);
    }
}

#[test]
fn a_turn_does_no_more_than_its_work_whatever_the_frames_are() {
    let ports = 24;
    // What a turn may cause beyond its share is one frame, for one port.
    let most = work::TURN_WORK + work::STEP_WORK_MAX;
    for (header_bytes, segment_bytes) in [(10, 64), (10, 1), (10, 1448), (0, 0)] {
        let mut bench = bench_of(ports, &GEOMETRY_LONG);
        bench.introduce();
        bench.set_header(0, header_bytes);
        let packet = super_segment(0, 0xff, 65_000, segment_bytes);
        let sent = 20;
        (0..sent).for_each(|_| bench.put_long(0, &packet[10 - usize::from(header_bytes)..]));
        let mut turns = 0;
        let packets = match segment_bytes {
            0 => 1,
            1 => 0,
            size => 65_000_usize.div_ceil(size.into()),
        };
        let (mut before, mut quiet) = (bench.done(), 0);
        while quiet < 100 {
            bench.round();
            let now = bench.done();
            let work = (now.1 - before.1).max(work::WRITE_WORK * (now.0 - before.0));
            assert!(work <= most, "{segment_bytes} bytes a segment: {work} in one turn");
            turns += u32::from(now != before);
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            (1..ports).for_each(|port| bench.drain(port));
        }
        let outgoing = bench.counters(7).outgoing;
        let delivered = outgoing.frames + outgoing.dropped.get("ring_full").unwrap_or(&0);
        assert_eq!(delivered, 23 + (sent * packets) as u64, "each frame reaches each port once");
        assert_eq!(bench.counters(0).incoming.frames, 1 + sent as u64);
        if packets == 0 {
            assert_eq!(outgoing.dropped["malformed"], sent as u64, "no sender makes such frames");
        } else {
            assert!(turns > 5, "{turns} turns");
        }
    }
}

#[test]
fn whoever_causes_much_waits_and_others_have_their_turns() {
    let mut bench = bench_of(8, &GEOMETRY_LONG);
    bench.introduce();
    bench.set_header(0, 10);
    let packet = super_segment(0, 0xff, 65_000, 64);
    (0..20).for_each(|_| bench.put_long(0, &packet));
    for number in 0..20 {
        bench.send(1, 2, 10);
        bench.round();
        let received = bench.receive(2);
        let ours = received.iter().filter(|one| one[6..12] == [2, 0, 0, 0, 0, 1]).count();
        assert_eq!(ours, 10, "in round {number}");
        (3..8).for_each(|port| bench.drain(port));
    }
    assert!(bench.counters(0).incoming.frames < 20, "its frames wait in its own ring");
}

/// Each frame costs several shares: all ports together would make a round of a hundred million.
#[test]
fn a_round_does_no_more_than_its_work_however_many_ports_send_super_segments() {
    let geometry = Geometry { slots: 128, ..GEOMETRY_LONG };
    let (innocent, receiver, senders) = (1, 2, 3..140);
    let mut bench = bench_of(senders.end, &geometry);
    bench.introduce_quietly();
    for sender in senders.clone() {
        bench.set_header(sender, 10);
        let packet = super_segment(sender, receiver, 63_000, 63);
        (0..3).for_each(|_| bench.put_long(sender, &packet));
    }
    let cost = work::making(63_064, 1000) + work::copying_parts(63_064, 1000);
    let most = work::ROUND_WORK + work::STEPS_WORK + work::STEP_WORK_MAX;
    let sent = |bench: &Bench| -> Vec<u64> {
        senders.clone().map(|port| bench.counters(port).incoming.frames - 1).collect()
    };
    let (mut before, mut rounds) = (0, 0);
    while before < 3 * senders.len() as u64 {
        bench.send(innocent, 0, 10);
        bench.round();
        assert_eq!(bench.receive(0).len(), 10, "an innocent port has its turn in round {rounds}");
        let each = sent(&bench);
        let now: u64 = each.iter().sum();
        assert!((now - before) * cost <= most, "{} segments in round {rounds}", now - before);
        let (least, greatest) = (each.iter().min().unwrap(), each.iter().max().unwrap());
        assert!(greatest - least <= 1, "they take turns: {each:?}");
        assert!(rounds < 1000, "{each:?}");
        (before, rounds) = (now, rounds + 1);
        bench.drain(receiver.into());
    }
    assert_eq!(sent(&bench), vec![3; senders.len()]);
}

#[test]
fn frames_to_everybody_leave_room_for_those_to_one() {
    let mut bench = bench(3);
    bench.introduce();
    for _ in 0..3 {
        bench.send(0, 0xff, 40);
        bench.round();
    }
    bench.send(1, 2, 10);
    bench.round();
    let received = bench.receive(2);
    assert_eq!(received.len(), 63 - 16 + 10);
    assert!(received[47..].iter().all(|one| one[6..12] == [2, 0, 0, 0, 0, 1]));
    assert_eq!(bench.counters(2).outgoing.dropped["ring_full"], 120 - 47);
}

#[test]
fn frames_to_everybody_fill_the_ring_of_the_only_other_port() {
    let mut bench = bench(2);
    bench.introduce();
    for _ in 0..3 {
        bench.send(0, 0xff, 40);
        bench.round();
    }
    assert_eq!(bench.receive(1).len(), 63);
}

#[test]
fn a_round_delivers_what_its_work_pays_for_however_many_ports_flood() {
    let ports = 80;
    let mut bench = bench(ports);
    bench.introduce_quietly();
    (0..ports).for_each(|from| bench.send(from, 0xff, 50));
    let each = work::delivering(ports as u32) + work::copying(60, 1);
    // Each port may go beyond its share by one delivery.
    let most = work::ROUND_WORK / each + ports as u64;
    let (began, mut rounds) = (bench.done().0, 0);
    loop {
        let before = bench.done().0;
        if bench.round() == 0 {
            break;
        }
        let delivered = bench.done().0 - before;
        assert!(delivered <= most, "{delivered} deliveries in a round");
        rounds += 1;
    }
    assert_eq!(bench.done().0 - began, (50 * ports * (ports - 1)) as u64);
    assert!(rounds > 5, "{rounds} rounds");
}

/// As guests with ptnet ask to be woken: at each delivery.
#[test]
fn a_round_wakes_a_port_at_most_twice_however_often_it_asks() {
    let ports = 12;
    let mut bench = bench_of(ports, &GEOMETRY_LONG);
    bench.introduce();
    for client in &mut bench.clients {
        client.rx.end().memory().store(Word::UserSleeps, 1);
    }
    for round in 1..10 {
        (0..ports).for_each(|from| bench.send(from, 0xff, 3));
        bench.round();
        for port in 0..ports {
            assert_eq!(bench.counters(port).wakeups, 2 * round);
            assert_eq!(bench.receive(port).len(), 3 * (ports - 1));
        }
    }
    // One that is asked for by a number is answered once, and again when it is another.
    let flag = |bench: &mut Bench, number| {
        bench.clients[1].rx.end().memory().store(Word::UserSleeps, number);
    };
    for (number, expected) in [(7, 1), (7, 0), (8, 1), (0, 0)] {
        flag(&mut bench, number);
        let before = bench.counters(1).wakeups;
        bench.send(0, 1, 1);
        bench.send(2, 1, 1);
        bench.round();
        assert_eq!(bench.counters(1).wakeups - before, expected, "asked by {number}");
        bench.drain(1);
    }
}

#[test]
fn watchers_take_no_more_than_their_share() {
    let mut bench = bench_of(2, &GEOMETRY_LONG);
    bench.introduce_quietly();
    let id = PortId::new(0).unwrap();
    let watchers: Vec<Client> = (0..8)
        .map(|number| {
            let (port, client) = ends(100 + number, &Geometry { slots: 4096, ..GEOMETRY_LONG });
            let monitor =
                Monitor::new(port.serial, port.user, port.outlets.into_first(), port.marks);
            bench.switch.link.send(Command::Watch { id, monitor: Box::new(monitor) }).unwrap();
            client
        })
        .collect();
    bench.switch.obey();
    let frames = work::WATCH_WORK / 8 / 2 / 2000 + 20;
    for _ in 0..frames {
        let mut long = vec![0; 2000];
        long[..12].copy_from_slice(&frame(0, 1, 0)[..12]);
        bench.put_long(0, &long);
    }
    // All of them are of one round: nothing else goes by rounds here.
    let share = work::share(2);
    while bench.switch.turn(id, 0, share) > 0 {
        bench.drain(1);
    }
    assert_eq!(bench.switch.rounds, 1);
    for mut client in watchers {
        let copied = client.rx.peek(u32::MAX).unwrap();
        assert!((200..frames as u32).contains(&copied), "{copied} of {frames}");
    }
}
