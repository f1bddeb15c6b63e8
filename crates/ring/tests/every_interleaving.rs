//! The ring protocol under loom: every interleaving of two sides, every stale value that the memory
//! orders permit. The same code that runs on mapped memory runs here on loom's.
//!
//! Each order in `ring::memory` is then weakened by itself, and loom must find what goes wrong: a slot
//! touched by both sides at once, or two sides asleep for ever.

#![cfg(not(miri))]

use std::rc::Rc;
use std::sync::atomic::Ordering;

use loom::cell::Cell;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, fence};
use ring::{End, Fence, Seat, Shared, Word};

/// A fault planted into the memory, one order each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    Nothing,
    StoreOf(Word),
    LoadOf(Word),
    Without(Fence),
}

/// The words of a ring, and what its slots hold: loom tracks who touches a cell when.
#[derive(Debug)]
struct Model {
    words: [AtomicU32; 6],
    slots: Vec<Cell<u32>>,
    /// Rung for the user, and for the owner.
    bells: [Notify; 2],
    planted: Planted,
}

#[derive(Debug, Clone)]
struct Memory(Rc<Model>);

impl Shared for Memory {
    fn load(&self, word: Word) -> u32 {
        let planted = self.0.planted == Planted::LoadOf(word);
        let order = if planted { Ordering::Relaxed } else { word.load_order() };
        self.0.words[word as usize].load(order)
    }

    fn store(&self, word: Word, value: u32) {
        let planted = self.0.planted == Planted::StoreOf(word);
        let order = if planted { Ordering::Relaxed } else { word.store_order() };
        self.0.words[word as usize].store(value, order);
    }

    fn fence(&self, place: Fence) {
        if self.0.planted != Planted::Without(place) {
            fence(place.order());
        }
    }
}

/// One slot in use at a time, so that each side has to wait for the other.
const SLOTS: u32 = 2;
const FRAMES: u32 = 2;

#[derive(Clone, Copy)]
struct Seats {
    sender: Seat,
    receiver: Seat,
}

const TRANSMIT: Seats = Seats { sender: Seat::User, receiver: Seat::TxOwner };
const RECEIVE: Seats = Seats { sender: Seat::RxOwner, receiver: Seat::User };

struct Side {
    end: End<Memory>,
    model: Rc<Model>,
    seat: Seat,
}

impl Side {
    fn new(model: &Rc<Model>, seat: Seat) -> Self {
        let end = End::join(Memory(Rc::clone(model)), seat, SLOTS, 1).expect("a new ring");
        Self { end, model: Rc::clone(model), seat }
    }

    /// As `Sender::wait` and `Receiver::wait` do, without lingering.
    fn wait(&mut self) {
        let own_bell = usize::from(self.seat != Seat::User);
        while self.end.observe().expect("an honest peer") == 0 {
            if self.end.arm().expect("an honest peer") {
                self.model.bells[own_bell].wait();
            }
            self.end.disarm();
        }
    }

    fn hand_over(&mut self) {
        let their_bell = usize::from(self.seat == Seat::User);
        self.end.advance(1);
        if self.end.must_ring() {
            self.model.bells[their_bell].notify();
        }
    }

    fn slot(&self) -> &Cell<u32> {
        &self.model.slots[self.end.position() as usize]
    }
}

/// A sender and a receiver of a ring, each sleeping whenever it must.
fn exchange(seats: Seats, planted: Planted) {
    let mut builder = loom::model::Builder::new();
    // `LOOM_MAX_PREEMPTIONS` asks for more (`make test-all`).
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(move || {
        let model = Rc::new(Model {
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            slots: (0..SLOTS).map(|_| Cell::new(0)).collect(),
            bells: [Notify::new(), Notify::new()],
            planted,
        });
        End::format(&Memory(Rc::clone(&model)), seats.sender == Seat::User, SLOTS);
        let mut sender = Side::new(&model, seats.sender);
        let mut receiver = Side::new(&model, seats.receiver);
        let sending = loom::thread::spawn(move || {
            for frame in 1..=FRAMES {
                sender.wait();
                sender.slot().set(frame);
                sender.hand_over();
            }
        });
        for frame in 1..=FRAMES {
            receiver.wait();
            assert_eq!(receiver.slot().get(), frame);
            receiver.hand_over();
        }
        sending.join().expect("the sender ends");
    });
}

#[test]
fn transmit_rings_lose_nothing_and_nobody_oversleeps() {
    exchange(TRANSMIT, Planted::Nothing);
}

#[test]
fn receive_rings_lose_nothing_and_nobody_oversleeps() {
    exchange(RECEIVE, Planted::Nothing);
}

/// What loom says of a planted fault.
fn found(planted: Planted) -> String {
    let fault = |seats| {
        let run = std::panic::catch_unwind(move || exchange(seats, planted));
        run.err().map(|panic| match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().map_or("a panic", |text| text).to_owned(),
        })
    };
    let faults: Vec<String> = [TRANSMIT, RECEIVE].into_iter().filter_map(fault).collect();
    assert!(!faults.is_empty(), "nothing found: {planted:?} would be there for decoration");
    faults.join("; ")
}

#[test]
fn every_weaker_cursor_lets_both_sides_into_a_slot() {
    for word in [Word::Head, Word::HwTail] {
        for planted in [Planted::StoreOf(word), Planted::LoadOf(word)] {
            let said = found(planted);
            assert!(said.contains("ausality violation"), "{planted:?}: {said}");
        }
    }
}

#[test]
fn without_either_fence_both_sides_sleep_for_ever() {
    for fence in [Fence::BeforeSleep, Fence::BeforeLook] {
        let said = found(Planted::Without(fence));
        assert!(said.contains("deadlock"), "{fence:?}: {said}");
    }
}
