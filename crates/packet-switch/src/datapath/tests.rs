//! A client that breaks the protocol is disconnected with the reason, and no other client is affected.

use std::sync::mpsc;

use ring::{Bells, Geometry, Layout, Receiver, Seat, Sender, Violation, Word};
use ring::{Shared, Slot, SlotFlags};
use shm::Region;

use super::queues::QueueFault;
use super::*;

mod queues;
mod trust;

const GEOMETRY: Geometry =
    Geometry { tx_rings: 1, rx_rings: 1, slots: 64, buffer_bytes: 256, extra_buffers: 0 };

/// A switch whose rounds a test runs by hand, and the clients at its ports.
struct Bench {
    switch: Datapath,
    trouble: mpsc::Receiver<Trouble>,
    clients: Vec<Client>,
}

struct Client {
    tx: Sender,
    rx: Receiver,
    number: usize,
}

fn bench(clients: usize) -> Bench {
    bench_of(clients, &GEOMETRY)
}

fn bench_of(clients: usize, geometry: &Geometry) -> Bench {
    let (sender, trouble) = mpsc::channel();
    let link = Arc::new(Link::new().unwrap());
    let bell = Bell::new().unwrap();
    let mut switch = Datapath::new(link, sender, bell, Duration::ZERO, 1).unwrap();
    let clients = (0..clients).map(|number| plug(&mut switch, number, geometry)).collect();
    switch.obey();
    Bench { switch, trouble, clients }
}

fn plug(switch: &mut Datapath, number: usize, geometry: &Geometry) -> Client {
    let (port, client) = ends(number, geometry);
    switch.link.send(Command::Add(Box::new(port))).unwrap();
    client
}

fn ends(number: usize, geometry: &Geometry) -> (PortEnds, Client) {
    let region = Region::private(geometry.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, geometry).unwrap();
    let end = |ring, seat| layout.end(&region, ring, seat, 1).unwrap();
    let buffers = || layout.buffers(&region).unwrap();
    let (tx_near, tx_far) = Bells::pair().unwrap();
    let (rx_near, rx_far) = Bells::pair().unwrap();
    let port = PortEnds {
        id: PortId::new(number).unwrap(),
        serial: number as u64 + 1,
        user: 0,
        inlets: Inlets::of([Inlet::new(end(0, Seat::TxOwner), buffers(), tx_far.theirs)]).unwrap(),
        outlets: Outlets::of([Outlet::new(end(1, Seat::RxOwner), buffers(), rx_far.theirs)])
            .unwrap(),
        header_bytes: 0,
        marks: Marks::new(&buffers()),
        kicks: vec![tx_far.ours],
        counters: Arc::default(),
        credit: Credit::default(),
        rest: None,
    };
    let client = Client {
        tx: Sender::join(end(0, Seat::User), buffers(), tx_near),
        rx: Receiver::join(end(1, Seat::User), buffers(), rx_near),
        number,
    };
    (port, client)
}

fn frame(from: usize, to: usize, fill: u8) -> [u8; 60] {
    let mut frame = [fill; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to as u8]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from as u8]);
    frame
}

impl Bench {
    fn round(&mut self) -> usize {
        let ports = *self.switch.forwarder.ports();
        self.switch.round(&ports)
    }

    /// Everybody says to everybody who it is, so that the switch knows.
    fn introduce(&mut self) {
        self.introduce_to(|_| 0xff);
    }

    /// Everybody says who it is, to nobody but itself.
    fn introduce_quietly(&mut self) {
        self.introduce_to(|number| number);
    }

    fn introduce_to(&mut self, whom: fn(usize) -> usize) {
        for client in &mut self.clients {
            client.tx.reserve(1).unwrap();
            assert!(client.tx.put(0, &frame(client.number, whom(client.number), 0)));
            client.tx.publish(1).unwrap();
        }
        assert_eq!(self.round(), self.clients.len());
        self.clients.iter_mut().for_each(|client| {
            let count = client.rx.peek(u32::MAX).unwrap();
            client.rx.release(count).unwrap();
        });
    }

    fn send(&mut self, from: usize, to: usize, count: u32) {
        let tx = &mut self.clients[from].tx;
        assert!(tx.reserve(count).unwrap() >= count);
        for offset in 0..count {
            assert!(tx.put(offset, &frame(from, to, offset as u8)));
        }
        tx.publish(count).unwrap();
    }

    fn receive(&mut self, at: usize) -> Vec<Vec<u8>> {
        let rx = &mut self.clients[at].rx;
        let count = rx.peek(u32::MAX).unwrap();
        let frames = (0..count)
            .map(|offset| {
                let mut out = [0; 256];
                let length = rx.copy(offset, &mut out).unwrap();
                out[..length].to_vec()
            })
            .collect();
        rx.release(count).unwrap();
        frames
    }

    fn counters(&self, port: usize) -> crate::counters::PortCount {
        self.switch.ports[port].as_ref().unwrap().counters.read()
    }

    fn slot_of_next_frame(&mut self, client: usize) -> Slot {
        let end = self.clients[client].tx.end();
        end.memory().slot(end.position())
    }
}

#[test]
fn frames_arrive_whole_in_order_and_only_where_they_belong() {
    let mut bench = bench(3);
    bench.introduce();
    for round in 0..200 {
        bench.send(0, 1, 50);
        assert_eq!(bench.round(), 50);
        let expected: Vec<_> = (0..50).map(|fill| frame(0, 1, fill).to_vec()).collect();
        assert_eq!(bench.receive(1), expected, "{round}");
        assert!(bench.receive(2).is_empty() && bench.receive(0).is_empty());
    }
    bench.send(2, 0xff, 1);
    bench.round();
    assert_eq!((bench.receive(0).len(), bench.receive(1).len()), (1, 1), "unknown: to all others");
}

#[test]
fn headers_come_and_go_between_ports_that_differ() {
    let mut bench = bench(3);
    bench.introduce();
    let ids: Vec<_> = (0..3).map(|number| PortId::new(number).unwrap()).collect();
    for (id, header_bytes) in ids.into_iter().zip([12, 10, 0]) {
        bench.switch.link.send(Command::SetHeader { id, header_bytes }).unwrap();
    }
    bench.switch.obey();
    let lengths = [12, 10, 0];
    for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        // Nothing in the header but, in the longer one, a count of buffers.
        let mut sent = vec![0; lengths[from]];
        sent.iter_mut().skip(10).for_each(|byte| *byte = 1);
        sent.extend(frame(from, to, 7));
        let tx = &mut bench.clients[from].tx;
        tx.reserve(1).unwrap();
        assert!(tx.put(0, &sent));
        tx.publish(1).unwrap();
        bench.round();
        let mut expected = vec![0; lengths[to]];
        expected.extend(frame(from, to, 7));
        assert_eq!(bench.receive(to), [expected], "{from} to {to}");
    }
    assert_eq!(bench.counters(2).outgoing.bytes, 2 * 60 + 2 * 60, "headers are not counted");
    // A header in a slot of its own, and one that is cut off.
    let tx = &mut bench.clients[0].tx;
    tx.reserve(3).unwrap();
    assert!(tx.put(0, &[0; 12]) && tx.put_part(0, 12, true));
    assert!(tx.put(1, &frame(0, 2, 9)) && tx.put(2, &[0; 7]));
    tx.publish(3).unwrap();
    bench.round();
    assert_eq!(bench.receive(2), [frame(0, 2, 9).to_vec()]);
    assert_eq!(bench.counters(0).incoming.dropped["too_short"], 1);
}

#[test]
fn every_frame_is_counted_once() {
    let mut bench = bench(2);
    bench.introduce();
    // Port 1 holds 63 frames and does not take them.
    for _ in 0..3 {
        bench.send(0, 1, 50);
        bench.round();
    }
    let (from, to) = (bench.counters(0), bench.counters(1));
    assert_eq!(from.incoming.frames, 1 + 150);
    assert_eq!(from.incoming.bytes, 151 * 60);
    assert_eq!(to.outgoing.dropped["ring_full"] + to.outgoing.frames, 151);
    assert_eq!(to.outgoing.frames, 1 + 63);
    assert_eq!(bench.receive(1).len(), 63);
    bench.send(0, 0, 2);
    bench.send(1, 1, 0);
    bench.round();
    assert_eq!(bench.counters(0).incoming.dropped["same_port"], 2);
}

#[test]
fn packets_of_several_slots_stay_together() {
    let mut bench = bench(2);
    bench.introduce();
    let tx = &mut bench.clients[0].tx;
    tx.reserve(3).unwrap();
    for offset in 0..3 {
        assert!(tx.put(offset, &frame(0, 1, offset as u8)));
        let (end, more) = (tx.end(), SlotFlags(SlotFlags::MORE_FRAGMENTS));
        let index = end.index(offset);
        let slot = end.memory().slot(index);
        end.memory().set_slot(index, Slot { flags: more, ..slot });
    }
    tx.publish(3).unwrap();
    assert_eq!(bench.round(), 0, "its end is not there");
    bench.send(0, 1, 1);
    assert_eq!(bench.round(), 4);
    let end = bench.clients[1].rx.end();
    assert_eq!(end.observe().unwrap(), 4);
    let flags: Vec<u16> =
        (0..4).map(|offset| end.memory().slot(end.index(offset)).flags.0).collect();
    assert_eq!(flags, [0x420, 0x420, 0x420, 0x400], "fragments of the packet, and whether more");
    assert_eq!(bench.counters(1).outgoing.frames, 2, "the introduction, and one packet");
}

/// Client 0 does something to its rings; it must be cut off for that, and 1 and 2 must go on.
fn cut_off(what: &str, misdeed: impl FnOnce(&mut Bench)) -> CutOff {
    let mut bench = bench(3);
    bench.introduce();
    misdeed(&mut bench);
    // A receive ring is looked at when a frame is for it.
    bench.send(1, 0, 1);
    bench.round();
    let trouble = bench.trouble.try_recv().unwrap_or_else(|_| panic!("{what}: not cut off"));
    assert_eq!(trouble.serial, 1, "{what}");
    bench.send(1, 2, 50);
    bench.round();
    let expected: Vec<_> = (0..50).map(|fill| frame(1, 2, fill).to_vec()).collect();
    let got = bench.receive(2);
    assert_eq!(got[got.len() - 50..], expected, "{what}: the others go on");
    assert!(bench.trouble.try_recv().is_err(), "{what}: only the culprit");
    trouble.why
}

#[test]
fn each_misdeed_is_named() {
    let put = |bench: &mut Bench, slot: Slot| {
        let tx = &mut bench.clients[0].tx;
        tx.reserve(1).unwrap();
        let end = tx.end();
        end.memory().set_slot(end.position(), slot);
        tx.publish(1).unwrap();
    };
    for buffer in [0, 1, 130, u32::MAX] {
        let why = cut_off("no buffer", |bench| put(bench, Slot { buffer, ..Slot::default() }));
        assert_eq!(why, CutOff::NoBuffer { buffer, last: 129 });
    }
    let why = cut_off("too long", |bench| {
        let slot = bench.slot_of_next_frame(0);
        put(bench, Slot { length_bytes: 257, ..slot });
    });
    assert_eq!(why, CutOff::TooLong { length_bytes: 257, buffer_bytes: 256 });
    let why = cut_off("two transmit slots", |bench| {
        let slot = bench.slot_of_next_frame(0);
        put(bench, slot);
        put(bench, slot);
    });
    assert!(matches!(why, CutOff::SharedTwice { .. }));
    let why = cut_off("a transmit and a receive slot", |bench| {
        // Buffers 2 to 65 began in the transmit ring, the others in the receive ring; those of its
        // slots that the switch has looked at are in the switch's hands.
        put(bench, Slot { buffer: 100, ..Slot::default() });
    });
    assert_eq!(why, CutOff::SharedTwice { buffer: 100 });
    let why = cut_off("two receive slots", |bench| {
        let end = bench.clients[0].rx.end();
        // Slot 0 was given back after the introduction; 5 is still in the switch's hands.
        let held = end.memory().slot(5);
        end.memory().set_slot(0, held);
    });
    assert!(matches!(why, CutOff::SharedTwice { .. }), "{why:?}");
    let why = cut_off("a receive slot without a buffer", |bench| {
        bench.clients[0].rx.end().memory().set_slot(0, Slot::default());
    });
    assert_eq!(why, CutOff::NoBuffer { buffer: 0, last: 129 });
}

#[test]
fn cursors_and_fragments_are_checked() {
    let why = cut_off("head outside", |bench| {
        bench.clients[0].tx.end().memory().store(Word::Head, 64);
    });
    assert!(matches!(why, CutOff::Cursor(Violation::OutsideRing { cursor: 64, slots: 64 })));
    let why = cut_off("receive head outside", |bench| {
        bench.clients[0].rx.end().memory().store(Word::Head, u32::MAX);
    });
    assert!(matches!(why, CutOff::Cursor(Violation::OutsideRing { .. })));
    let why = cut_off("receive head backwards", |bench| {
        let end = bench.clients[0].rx.end();
        // The switch saw 0, then the client moved on to 2; 63 is before either.
        let behind = 63;
        end.memory().store(Word::Head, behind);
    });
    assert!(matches!(why, CutOff::Cursor(Violation::RanBackwards { .. })), "{why:?}");
}

/// A client that writes anything anywhere into its rings, over and over; two others exchange frames
/// all the while, and each arrives once, in order and as it was sent.
#[test]
fn scribbling_harms_nobody_else() {
    bolero::check!().with_type::<Vec<(u8, u32, u64)>>().for_each(|scribbles| {
        let mut bench = bench(3);
        // Or the scribbler would have frames of the others in its buffers, and could send them again.
        bench.introduce_quietly();
        for &(place, index, value) in scribbles {
            let client = &mut bench.clients[0];
            let end = if place % 2 == 0 { client.tx.end() } else { client.rx.end() };
            match place / 2 % 5 {
                0 => end.memory().store(Word::Head, value as u32 % 66),
                1 => end.memory().store(Word::HwTail, value as u32 % 66),
                2 => end.memory().store(Word::UserSleeps, value as u32),
                _ => {
                    // Mostly plausible slots, so that the checks behind the first are reached too.
                    let buffer = index % 132;
                    let flags = SlotFlags((value >> 16) as u16 & 0x21);
                    let length_bytes = value as u16 % 260;
                    end.memory().set_slot(index % 64, Slot { buffer, length_bytes, flags });
                }
            }
            bench.send(1, 2, 5);
            bench.round();
            let got = bench.receive(2);
            let from_1: Vec<_> = got.iter().filter(|frame| frame.get(11) == Some(&1)).collect();
            let expected: Vec<_> = (0..5).map(|fill| frame(1, 2, fill).to_vec()).collect();
            assert!(from_1.into_iter().eq(expected.iter()));
            assert!(bench.switch.ports[1].is_some() && bench.switch.ports[2].is_some());
            bench.receive(1);
        }
    });
}

/// Clients are told that they are attached as soon as the command is on its way, which may be in the middle of a round.
#[test]
fn a_frame_reaches_whoever_was_attached_before_it_was_sent() {
    let mut bench = bench(1);
    let late = plug(&mut bench.switch, 1, &GEOMETRY);
    bench.clients.push(late);
    bench.send(0, 0xff, 1);
    assert_eq!(bench.round(), 1);
    assert_eq!(bench.receive(1), [frame(0, 0xff, 0)]);
}

/// The port whose turn it is goes in the middle of a round, and another comes to its place.
#[test]
fn a_port_that_is_taken_away_in_a_round_sends_no_more() {
    let mut bench = bench(2);
    bench.send(0, 1, 1);
    bench.switch.link.send(Command::Remove { id: PortId::new(0).unwrap(), serial: 1 }).unwrap();
    let next = plug(&mut bench.switch, 0, &GEOMETRY);
    bench.clients.push(next);
    assert_eq!(bench.round(), 0);
    assert!(bench.receive(1).is_empty());
    bench.send(2, 1, 1);
    assert_eq!(bench.round(), 1);
    assert_eq!(bench.receive(1), [frame(2, 1, 0)]);
}

#[test]
fn a_full_turn_leaves_the_rest_for_the_next() {
    let geometry = Geometry { slots: 1024, ..GEOMETRY };
    let region = Region::private(geometry.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &geometry).unwrap();
    let buffers = || layout.buffers(&region).unwrap();
    let (near, far) = Bells::pair().unwrap();
    let mut tx = Sender::join(layout.end(&region, 0, Seat::User, 1).unwrap(), buffers(), near);
    let end = layout.end(&region, 0, Seat::TxOwner, 1).unwrap();
    let mut inlet = Inlet::new(end, buffers(), far.theirs);
    assert_eq!(tx.reserve(1023).unwrap(), 1023);
    assert!((0..1000).all(|offset| tx.put_length(offset, 60)));
    tx.publish(1000).unwrap();
    let (mut marks, mut taken) = (Marks::new(&buffers()), Taken::default());
    for expected in [256, 256, 256, 232, 0] {
        inlet.look();
        inlet.take(&mut marks, &mut taken).unwrap();
        assert_eq!(taken.slots.len(), expected, "one port's turn is bounded");
        inlet.release(&mut marks, &taken.slots);
    }
}

#[test]
fn endless_packets_are_refused() {
    let geometry = Geometry { slots: 256, ..GEOMETRY };
    let region = Region::private(geometry.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &geometry).unwrap();
    let buffers = || layout.buffers(&region).unwrap();
    let (near, far) = Bells::pair().unwrap();
    let mut tx = Sender::join(layout.end(&region, 0, Seat::User, 1).unwrap(), buffers(), near);
    let end = layout.end(&region, 0, Seat::TxOwner, 1).unwrap();
    let mut inlet = Inlet::new(end, buffers(), far.theirs);
    tx.reserve(255).unwrap();
    for offset in 0..65 {
        let index = tx.end().index(offset);
        let slot = tx.end().memory().slot(index);
        let flags = SlotFlags(SlotFlags::MORE_FRAGMENTS);
        tx.end().memory().set_slot(index, Slot { flags, ..slot });
    }
    tx.publish(65).unwrap();
    let (mut marks, mut taken) = (Marks::new(&buffers()), Taken::default());
    assert!(inlet.look());
    assert_eq!(inlet.take(&mut marks, &mut taken), Err(CutOff::Fragments(64)));
}

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

const GEOMETRY_LONG: Geometry =
    Geometry { tx_rings: 1, rx_rings: 1, slots: 2048, buffer_bytes: 2112, extra_buffers: 0 };

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

/// A fault of the program in one port's turn takes that port away; the others' frames go on.
#[test]
fn a_panic_takes_one_port_away() {
    let mut bench = bench(3);
    bench.introduce();
    bench.switch.fault = Some(PortId::new(2).unwrap());
    bench.send(0, 1, 1);
    bench.round();
    assert_eq!(bench.receive(1).len(), 1);
    let trouble = bench.trouble.try_recv().unwrap();
    assert!(matches!(&trouble.why, CutOff::Fault(why) if why.contains("asked for")), "{trouble:?}");
    bench.send(1, 0, 3);
    bench.round();
    assert_eq!(bench.receive(0).len(), 3);
    assert!(bench.trouble.try_recv().is_err(), "nobody else is cut off");
}
