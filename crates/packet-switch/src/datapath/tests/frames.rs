//! Frames arrive whole, once, in order and only where they belong.

use ring::SlotFlags;

use super::*;

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
