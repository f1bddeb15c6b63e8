//! One thread, both sides: any sequence of operations agrees with a queue, and nothing that a
//! hostile side writes does more than break its own ring.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ring::{Bells, End, Fence, Geometry, Layout, Receiver, Seat, Sender, Shared, Word};
use shm::Region;

#[derive(Debug, Clone)]
struct Words(Rc<[AtomicU32; 6]>);

impl Words {
    fn new(transmit: bool, slots: u32) -> Self {
        let words = Self(Rc::new(std::array::from_fn(|_| AtomicU32::new(0))));
        End::format(&words, transmit, slots);
        words
    }
}

impl Shared for Words {
    fn load(&self, word: Word) -> u32 {
        self.0[word as usize].load(word.load_order())
    }

    fn store(&self, word: Word, value: u32) {
        self.0[word as usize].store(value, word.store_order());
    }

    fn fence(&self, _place: Fence) {}
}

const SEATS: [(Seat, Seat); 2] = [(Seat::User, Seat::TxOwner), (Seat::RxOwner, Seat::User)];

#[test]
fn any_sequence_agrees_with_a_queue() {
    bolero::check!().with_type::<(u8, Vec<(bool, u8)>)>().for_each(|(slots, steps)| {
        let slots = u32::from(*slots).max(2);
        for (sending, receiving) in SEATS {
            let words = Words::new(sending == Seat::User, slots);
            let mut sender = End::join(words.clone(), sending, slots, 1).unwrap();
            let mut receiver = End::join(words, receiving, slots, 1).unwrap();
            let mut queue = VecDeque::new();
            for &(send, count) in steps {
                let free = slots - 1 - u32::try_from(queue.len()).unwrap();
                if send {
                    assert_eq!(sender.observe().unwrap(), free);
                    let count = u32::from(count).min(free);
                    queue.extend((0..count).map(|offset| sender.index(offset)));
                    sender.advance(count);
                } else {
                    assert_eq!(receiver.observe().unwrap(), slots - 1 - free);
                    let count = u32::from(count).min(slots - 1 - free);
                    for offset in 0..count {
                        assert_eq!(queue.pop_front(), Some(receiver.index(offset)));
                    }
                    receiver.advance(count);
                }
            }
        }
    });
}

#[test]
fn a_hostile_side_breaks_only_its_own_ring() {
    bolero::check!().with_type::<Vec<(u8, u32, u8)>>().for_each(|steps| {
        for slots in [2, 3, 64] {
            for seat in [Seat::User, Seat::TxOwner, Seat::RxOwner] {
                let words = Words::new(seat != Seat::RxOwner, slots);
                let mut end = End::join(words.clone(), seat, slots, 1).unwrap();
                for &(word, value, count) in steps {
                    // Mostly near the ring's size, where it matters.
                    let value = if value % 4 == 0 { value } else { value % (slots + 1) };
                    words.0[usize::from(word) % 6].store(value, Ordering::Relaxed);
                    let Ok(available) = end.observe() else { break };
                    assert!(available < slots);
                    assert!(end.index(available) < slots);
                    end.advance(u32::from(count));
                    assert!(end.position() < slots && end.available() <= available);
                    let asked = words.0.iter().any(|word| word.load(Ordering::Relaxed) > 0);
                    assert!(!end.must_ring() || asked, "nobody asked");
                }
            }
        }
    });
}

#[test]
fn cursors_that_run_backwards_are_seen() {
    let words = Words::new(true, 8);
    let mut owner = End::join(words.clone(), Seat::TxOwner, 8, 1).unwrap();
    words.store(Word::Head, 5);
    assert_eq!(owner.observe(), Ok(5));
    for backwards in [0, 3, 4] {
        words.store(Word::Head, backwards);
        assert!(owner.observe().is_err(), "{backwards}");
    }
    words.store(Word::Head, 8);
    assert!(owner.observe().is_err(), "outside");
    words.store(Word::Head, 7);
    assert_eq!(owner.observe(), Ok(7), "as far as a ring of 8 goes");
}

#[test]
fn a_sleeper_is_rung_for_once_each_time() {
    let words = Words::new(true, 4);
    let mut user = End::join(words.clone(), Seat::User, 4, 7).unwrap();
    let mut owner = End::join(words.clone(), Seat::TxOwner, 4, 7).unwrap();
    assert!(!user.must_ring(), "nobody sleeps");
    assert!(owner.arm().unwrap(), "nothing there: sleep");
    assert!(user.must_ring());
    assert!(!user.must_ring(), "already rung for");
    owner.disarm();
    assert!(owner.arm().unwrap());
    assert!(user.must_ring(), "asleep again");
    user.observe().unwrap();
    user.advance(1);
    assert!(!owner.arm().unwrap(), "something came meanwhile: stay awake");
    // A ptnet guest writes 1 and wants to be woken each time.
    words.store(Word::OwnerSleeps, 1);
    assert!(user.must_ring() && user.must_ring());
}

#[test]
fn a_seat_is_taken_where_it_was_left() {
    let words = Words::new(true, 4);
    let mut user = End::join(words.clone(), Seat::User, 4, 1).unwrap();
    let mut owner = End::join(words.clone(), Seat::TxOwner, 4, 1).unwrap();
    user.observe().unwrap();
    user.advance(3);
    owner.observe().unwrap();
    owner.advance(1);
    let mut user = End::join(words.clone(), Seat::User, 4, 9).unwrap();
    let mut owner = End::join(words.clone(), Seat::TxOwner, 4, 9).unwrap();
    assert_eq!((user.observe(), owner.observe()), (Ok(1), Ok(2)));
    words.store(Word::Head, 4);
    assert!(End::join(words, Seat::User, 4, 1).is_err());
}

const GEOMETRY: Geometry =
    Geometry { tx_rings: 2, rx_rings: 0, slots: 16, buffer_bytes: 128, extra_buffers: 0 };

/// Both ends of a ring of the region.
fn channel(region: &Arc<Region>, layout: &Layout, ring: u32) -> (Sender, Receiver) {
    let (near, far) = Bells::pair().unwrap();
    let end = |seat| layout.end(region, ring, seat, 1).unwrap();
    let buffers = || layout.buffers(region).unwrap();
    let sender = Sender::join(end(Seat::User), buffers(), near);
    (sender, Receiver::join(end(Seat::TxOwner), buffers(), far))
}

/// A chain of two rings in one region: frames pass the middle without being copied.
#[test]
fn swapped_frames_arrive_as_they_left() {
    let region = Region::private(GEOMETRY.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &GEOMETRY).unwrap();
    let (mut first, mut inlet) = channel(&region, &layout, 0);
    let (mut outlet, mut last) = channel(&region, &layout, 1);
    for round in 0..100_u8 {
        assert!(first.reserve(7).unwrap() >= 7);
        (0..7).for_each(|offset| assert!(first.put(offset, &[round; 100])));
        first.publish(7).unwrap();
        assert_eq!((inlet.peek(1).unwrap(), outlet.reserve(15).unwrap()), (7, 15));
        assert!((0..7).all(|offset| ring::swap(&mut inlet, offset, &mut outlet, offset)));
        outlet.publish(7).unwrap();
        inlet.release(7).unwrap();
        assert_eq!(last.peek(1).unwrap(), 7);
        for offset in 0..7 {
            let mut out = [0; 128];
            assert_eq!(last.copy(offset, &mut out), Some(100));
            assert_eq!(out[..100], [round; 100]);
        }
        last.release(7).unwrap();
    }
    assert!(!ring::swap(&mut inlet, 0, &mut outlet, 0), "nothing there");
}

#[test]
fn slots_that_name_no_buffer_hold_no_frame() {
    let region = Region::private(GEOMETRY.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &GEOMETRY).unwrap();
    let (mut sender, mut receiver) = channel(&region, &layout, 0);
    sender.reserve(15).unwrap();
    assert!(sender.put(0, &[1; 128]) && !sender.put(1, &[1; 129]) && !sender.put(15, &[1]));
    assert!(!sender.put_length(1, 129) && sender.put_length(1, 60));
    let wild = ring::Slot { buffer: 34, length_bytes: 60, ..ring::Slot::default() };
    sender.end().memory().set_slot(2, wild);
    let long = ring::Slot { buffer: 5, length_bytes: u16::MAX, ..ring::Slot::default() };
    sender.end().memory().set_slot(3, long);
    sender.publish(4).unwrap();
    assert_eq!(receiver.peek(1), Ok(4));
    let lengths: Vec<_> = (0..5).map(|offset| receiver.length_bytes(offset)).collect();
    assert_eq!(lengths, [Some(128), Some(60), None, Some(128), None]);
}
