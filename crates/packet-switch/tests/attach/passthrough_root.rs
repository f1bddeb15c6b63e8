//! A device's queue and one client's rings, without a switch. Needs root: the device is an end of a veth pair in a network
//! namespace that goes with the test.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use packet_switch::passthrough::{Passthrough, PassthroughError};
use ports::xdp::Port;
use ring::places::{CSB_ENTRY_BYTES, OWNER_CSB_OFFSET, USER_CSB_OFFSET};
use ring::{Bells, Geometry, Receiver, Sender, Slot, SlotFlags};
use sys::interface::{LinkSettings, RouteSocket};
use testkit::own_memory::{OwnMemory, SHAPE};
use testkit::root::is_root;
use testkit::serving::{SOON, wait_until};

const GEOMETRY: Geometry = Geometry {
    tx_rings: 1,
    rx_rings: 1,
    slots: SHAPE.slots,
    buffer_bytes: SHAPE.buffer_bytes,
    extra_buffers: 0,
};

/// An experiment's EtherType (RFC 5342): what the kernel itself says on a device is of others.
const OURS: [u8; 2] = [0x88, 0xb5];

/// The queue, the far end of its cable, and the client's memory and ends.
struct PassthroughPair {
    queue: Passthrough,
    far: Port,
    memory: OwnMemory,
    tx: Sender,
    rx: Receiver,
}

impl PassthroughPair {
    /// In a network namespace of this thread's own.
    fn new() -> Self {
        let namespace = sys::namespace::unshare_network().unwrap();
        let mut route = RouteSocket::open().unwrap();
        route.add_veth(["near", "far"], namespace.as_fd(), None).unwrap();
        for device in ["near", "far"] {
            route.set_link(device, LinkSettings { up: true, ..LinkSettings::default() }).unwrap();
        }
        let queue = Passthrough::open("near", 0).unwrap();
        let far = ports::xdp::open("far", 0).unwrap().try_into().unwrap();
        let memory = OwnMemory::new();
        let (tx, rx) = memory.ends();
        let mut pair = Self { queue, far, memory, tx, rx };
        pair.join(true);
        pair
    }

    fn join(&mut self, is_fresh: bool) {
        self.try_join(is_fresh).unwrap();
        if is_fresh {
            (self.tx, self.rx) = self.memory.ends();
        }
    }

    fn try_join(&mut self, is_fresh: bool) -> Result<(), PassthroughError> {
        let bells = self.memory.bells.each_ref().map(|[ours, theirs]| Bells {
            ours: ours.share().unwrap(),
            theirs: theirs.share().unwrap(),
        });
        self.queue.join(&self.memory.region, &GEOMETRY, bells, is_fresh)
    }

    fn client_sends(&mut self, frame: &[u8]) {
        assert!(self.tx.wait(SOON).unwrap() > 0 && self.tx.put(0, frame));
        self.tx.publish(1).unwrap();
    }

    fn far_sends(&mut self, frame: &[u8]) {
        assert!(self.far.room(1).unwrap() > 0 && self.far.chunk(0).unwrap().write(0, frame));
        self.far.put(0, frame.len() as u32, false);
        self.far.publish(1).unwrap();
    }

    /// The next frame of ours that the client has.
    fn client_has(&mut self) -> Vec<u8> {
        loop {
            assert!(self.rx.wait(SOON).unwrap() > 0, "a frame comes in");
            let mut frame = vec![0; 2048];
            let length = self.rx.copy(0, &mut frame).unwrap();
            self.rx.release(1).unwrap();
            frame.truncate(length);
            if frame[12..14] == OURS {
                return frame;
            }
        }
    }

    fn far_has(&mut self) -> Vec<u8> {
        loop {
            wait_until("a frame comes out", || self.far.peek().unwrap() > 0);
            let bytes = self.far.frame(0).unwrap().bytes;
            let mut frame = vec![0; bytes.length_bytes()];
            assert!(bytes.read(0, &mut frame));
            self.far.release(1).unwrap();
            if frame[12..14] == OURS {
                return frame;
            }
        }
    }

    fn both_ways(&mut self, number: u32) {
        for length_bytes in [60, 1000, 1514] {
            let (there, back) = (frame(length_bytes, number), frame(length_bytes, !number));
            self.client_sends(&there);
            assert_eq!(self.far_has(), there);
            self.far_sends(&back);
            assert_eq!(self.client_has(), back);
        }
    }
}

fn frame(length_bytes: usize, number: u32) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length_bytes).map(|at| (at as u8).wrapping_mul(31)).collect();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&OURS);
    frame[14..18].copy_from_slice(&number.to_le_bytes());
    frame
}

/// One that nobody looks at.
fn another() -> Vec<u8> {
    let mut frame = frame(60, 0);
    frame[12..14].copy_from_slice(&[0x88, 0xb6]);
    frame
}

/// In a thread of its own, whose network namespace goes with it.
fn in_a_thread(test: fn(PassthroughPair)) {
    if is_root() {
        std::thread::spawn(move || test(PassthroughPair::new())).join().unwrap();
    }
}

#[test]
fn root_frames_pass_a_queue_whole_in_order_and_wait_for_a_slow_client() {
    in_a_thread(|mut pair| {
        pair.both_ways(1);
        // More than the client's ring has room for: the rest waits at the device.
        for number in 0..300 {
            pair.far_sends(&frame(60, number));
        }
        for number in 0..300 {
            assert_eq!(pair.client_has(), frame(60, number));
        }
        for number in 0..300 {
            pair.client_sends(&frame(60, number));
        }
        for number in 0..300 {
            assert_eq!(pair.far_has(), frame(60, number));
        }
        assert_eq!((pair.queue.refused_frames(), pair.queue.lost_frames()), (0, 0));
        // What is no frame goes nowhere, and is counted.
        pair.client_sends(&[0; 13]);
        pair.both_ways(2);
        assert_eq!(pair.queue.refused_frames(), 1);
        // The rings outlive their owner: the next one goes on where it was.
        pair.queue.part().unwrap();
        assert!(!pair.queue.has_client());
        pair.client_sends(&frame(60, 3));
        pair.join(false);
        assert_eq!(pair.far_has(), frame(60, 3));
        pair.both_ways(4);
    });
}

#[test]
fn root_a_queue_has_one_owner() {
    in_a_thread(|pair| {
        let refused = Passthrough::open("near", 0).unwrap_err().to_string();
        assert!(refused.contains("near has an XDP program already"), "{refused}");
        drop(pair);
        // It is free as soon as nobody has its descriptors.
        wait_until("it is free", || Passthrough::open("near", 0).is_ok());
        let none = Passthrough::open("none", 0).unwrap_err().to_string();
        assert!(none.contains("there is no device none"), "{none}");
    });
}

/// What a client may write where it likes, and what is said of it.
type Nonsense = (&'static str, fn(&mut PassthroughPair), &'static str);

fn slot(pair: &mut PassthroughPair, buffer: Option<u32>, length_bytes: u16, flags: u16) {
    assert!(pair.tx.wait(SOON).unwrap() > 0);
    let index = pair.tx.end().index(0);
    let memory = pair.tx.end().memory();
    let buffer = buffer.unwrap_or(memory.slot(index).buffer);
    memory.set_slot(index, Slot { buffer, length_bytes, flags: SlotFlags(flags) });
    pair.tx.publish(1).unwrap();
}

fn cursor(pair: &PassthroughPair, offset: usize, value: u32) {
    let word = pair.memory.region.view::<AtomicU32>(offset, 1).unwrap();
    word[0].store(value, Ordering::Release);
    // The owner may sleep.
    pair.memory.bells.iter().for_each(|[ours, _]| ours.ring().unwrap());
}

const NONSENSE: [Nonsense; 7] = [
    ("a buffer that is none", |pair| slot(pair, Some(9999), 60, 0), "names buffer 9999"),
    ("a buffer of nobody", |pair| slot(pair, Some(0), 60, 0), "names buffer 0"),
    (
        // Of the first slot of the receive ring, which the owner has.
        "another ring's buffer",
        |pair| slot(pair, Some(ring::FIRST_BUFFER + SHAPE.slots), 60, 0),
        "in two slots",
    ),
    ("more than a buffer holds", |pair| slot(pair, None, 2049, 0), "holds 2049 bytes"),
    ("a transmit cursor", |pair| cursor(pair, USER_CSB_OFFSET, 64), "cursor 64"),
    (
        "a receive cursor",
        |pair| cursor(pair, USER_CSB_OFFSET + CSB_ENTRY_BYTES, u32::MAX),
        "cursor 4294967295",
    ),
    (
        "a receive buffer that is none",
        |pair| {
            pair.far_sends(&another());
            assert!(pair.rx.wait(SOON).unwrap() > 0);
            let index = pair.rx.end().index(0);
            let nowhere = Slot { buffer: 1 << 31, length_bytes: 0, flags: SlotFlags(0) };
            pair.rx.end().memory().set_slot(index, nowhere);
            pair.rx.release(1).unwrap();
            // One slot always stays with the client: the next takes its place.
            pair.far_sends(&another());
            assert!(pair.rx.wait(SOON).unwrap() > 0);
            pair.rx.release(1).unwrap();
        },
        "names buffer 2147483648",
    ),
];

#[test]
fn root_nonsense_in_a_clients_rings_ends_them_with_a_reason_and_the_queue_serves_new_ones() {
    in_a_thread(|mut pair| {
        for (number, (what, write, wanted)) in (0..).zip(NONSENSE) {
            pair.both_ways(number);
            write(&mut pair);
            let mut why = None;
            wait_until(what, || {
                why = pair.queue.poll_end().unwrap();
                why.is_some()
            });
            let why = why.unwrap();
            assert!(why.contains(wanted), "{what}: {why}");
            assert!(!pair.queue.has_client());
            pair.join(true);
        }
        pair.both_ways(98);
        // A cursor of the owner's own, which it finds when it comes again.
        pair.queue.part().unwrap();
        cursor(&pair, OWNER_CSB_OFFSET + 4, 9999);
        let refused = pair.try_join(false).unwrap_err().to_string();
        assert!(refused.contains("cursor 9999"), "{refused}");
        pair.join(true);
        pair.both_ways(99);
    });
}
