//! Hostile guests that drive their port's rings themselves: they write what they like into the memory of a port.

use std::sync::atomic::{AtomicU32, Ordering};

use packet_switch::PortName;
use packet_switch::attachment::{Ask, RefusalCode};
use packet_switch::client::{ClientError, Connection};
use testkit::own_memory::{OwnMemory, SHAPE};
use testkit::serving::{SOON, frame, wait_until};

use crate::confined::{Confined, Innocents};

/// Words of the users' CSB: of the transmit ring's entry, and of the receive ring's.
const TX_HEAD: usize = 4096 / 4;
const RX_HEAD: usize = TX_HEAD + 64 / 4;
/// The first slot of each ring: its buffer; its length and flags follow.
const TX_SLOT: usize = (16384 + 256) / 4;
const RX_SLOT: usize = TX_SLOT + 4096 / 4;
/// Headers, both CSBs and both rings.
const WORDS: usize = (16384 + 2 * 4096) / 4;

fn name() -> PortName {
    "vale1:own".parse().unwrap()
}

/// What the guest writes.
fn put(memory: &OwnMemory, word: usize, value: u32) {
    memory.region.view::<AtomicU32>(0, WORDS).unwrap()[word].store(value, Ordering::Release);
}

/// Attaches as soon as the switch has let go of what was before.
fn attach(memory: &OwnMemory, connection: &mut Connection) -> u32 {
    let mut attachment = None;
    wait_until("the memory is attached", || {
        attachment = match memory.attach(connection, &name(), true) {
            Ok(number) => Some(number),
            Err(ClientError::Refused { code: RefusalCode::Taken, .. }) => None,
            Err(error) => panic!("{error}"),
        };
        attachment.is_some()
    });
    attachment.unwrap()
}

fn last_cut_off(daemon: &Confined) -> Option<String> {
    let entries = daemon.connect().list().unwrap();
    entries.into_iter().find(|entry| entry.name == name().to_string())?.last_cut_off
}

#[test]
fn rubbish_in_a_ports_memory_harms_that_port_only_and_is_named() {
    let daemon = Confined::start("own-memory");
    let innocents = Innocents::start(daemon.path());
    let mut connection = daemon.connect();
    let mut neighbour = connection.attach_port(&"vale1:neighbour".parse().unwrap()).unwrap();
    connection.ask(Ask::LendPort { port: name(), shape: SHAPE }).unwrap();
    let memory = OwnMemory::new();
    let mut shout = || {
        assert!(neighbour.sender.wait(SOON).unwrap() > 0);
        assert!(neighbour.sender.put(0, &frame(9, 0xff, 0)));
        neighbour.sender.publish(1).unwrap();
    };
    let breaks: [(&[(usize, u32)], &str); 7] = [
        (&[(TX_HEAD, 9999)], "9999"),
        (&[(TX_SLOT, 1), (TX_HEAD, 1)], "a slot names buffer 1"),
        (&[(TX_SLOT, u32::MAX), (TX_HEAD, 1)], "a slot names buffer 4294967295"),
        (&[(TX_SLOT + 1, 0xffff), (TX_HEAD, 1)], "a slot holds 65535 bytes"),
        (&[(TX_SLOT, 7), (TX_SLOT + 4, 7), (TX_HEAD, 2)], "buffer 7 is in two slots"),
        (&[(RX_HEAD, SHAPE.slots)], "64"),
        (&[(RX_SLOT, 0)], "a slot names buffer 0"),
    ];
    for (writes, reason) in breaks {
        attach(&memory, &mut connection);
        writes.iter().for_each(|&(word, value)| put(&memory, word, value));
        memory.bells[0][0].ring().unwrap();
        shout();
        wait_until(reason, || last_cut_off(&daemon).is_some_and(|why| why.contains(reason)));
    }
    // Anything anywhere, at any time: the switch's own cursors too, which it never believes again.
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as u32
    };
    let mut attachment = attach(&memory, &mut connection);
    for _ in 0..300 {
        for _ in 0..20 {
            let word = next() as usize % WORDS;
            let value = if next() % 2 == 0 { next() } else { next() % SHAPE.slots };
            put(&memory, word, value);
        }
        for head in [TX_HEAD, RX_HEAD] {
            put(&memory, head, next() % SHAPE.slots);
        }
        memory.bells[0][0].ring().unwrap();
        shout();
        if let Some((ended, _)) = connection.poll_cut_off().unwrap()
            && ended == attachment
        {
            attachment = attach(&memory, &mut connection);
        }
    }
    // Made anew, they are as good as ever.
    connection.ask(Ask::Detach { attachment }).ok();
    attach(&memory, &mut connection);
    let (mut sender, _) = memory.ends();
    assert!(sender.wait(SOON).unwrap() > 0 && sender.put(0, &frame(1, 9, 5)));
    sender.publish(1).unwrap();
    let mut copy = [0; 60];
    while copy != frame(1, 9, 5) {
        assert!(neighbour.receiver.wait(SOON).unwrap() > 0);
        assert!(neighbour.receiver.copy(0, &mut copy).is_some());
        neighbour.receiver.release(1).unwrap();
    }
    innocents.end();
    daemon.end();
}
