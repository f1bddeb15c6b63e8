//! A client that breaks the protocol is disconnected with the reason, and no other client is affected.

use ring::{Shared, SlotFlags, Violation, Word};

use super::*;

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

#[test]
fn endless_packets_are_refused() {
    let (mut tx, mut inlet, mut marks) = way_in(256);
    tx.reserve(255).unwrap();
    for offset in 0..65 {
        let index = tx.end().index(offset);
        let slot = tx.end().memory().slot(index);
        let flags = SlotFlags(SlotFlags::MORE_FRAGMENTS);
        tx.end().memory().set_slot(index, Slot { flags, ..slot });
    }
    tx.publish(65).unwrap();
    assert!(inlet.look());
    assert_eq!(inlet.take(&mut marks, &mut Taken::default()), Err(CutOff::Fragments(64)));
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
