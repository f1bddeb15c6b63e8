//! Drivers that break the rules.

use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use super::driver::{Areas, Driver, INDIRECT, MEMORY_START, Memory, NEXT, WRITE};
use crate::queue::Fault;
use crate::{CHAIN_SEGMENTS_MAX, Chain, Options, Queue, Segment, Violation};

const SIZE: u16 = 8;
const ALL: Options = Options { event_index: true, indirect: true };

fn segment(address: u64, length_bytes: u32) -> Segment {
    Segment { address, length_bytes }
}

/// What comes of a queue that `make` has written, of which descriptor 0 is available.
fn taken(options: Options, make: impl FnOnce(&Areas, &Memory)) -> Result<bool, Violation> {
    let (driver, mut queue) = Driver::new(SIZE, options);
    driver.areas.available[1].store(1_u16.to_le(), SeqCst);
    make(&driver.areas, &driver.memory);
    let before = queue.taken();
    let outcome = queue.take(&driver.memory, &mut Chain::default());
    assert_eq!(outcome.is_err(), queue.taken() == before, "nothing is taken of a broken one");
    outcome
}

fn broken(make: impl FnOnce(&Areas, &Memory)) -> Violation {
    taken(ALL, make).unwrap_err()
}

#[test]
fn indexes_beyond_the_queue_are_refused() {
    let size = SIZE;
    let far = broken(|areas, _| areas.available[1].store((size + 1).to_le(), SeqCst));
    assert_eq!(far, Violation::IndexAhead { index: size + 1, taken: 0, size });
    let back = broken(|areas, _| areas.available[1].store(u16::MAX.to_le(), SeqCst));
    assert_eq!(back, Violation::IndexAhead { index: u16::MAX, taken: 0, size });
    for head in [size, size + 1, u16::MAX] {
        let wrong = broken(|areas, _| areas.available[2].store(head.to_le(), SeqCst));
        assert_eq!(wrong, Violation::Head { head, size });
    }
    for next in [size, u16::MAX] {
        let wrong = broken(|areas, _| areas.describe(0, segment(1, 1), NEXT, next));
        assert_eq!(wrong, Violation::Next { next, size: size.into() });
    }
    // What the check is there for.
    let (driver, mut queue) = Driver::new(SIZE, ALL);
    queue.fault = Some(Fault::HeadUnchecked);
    driver.areas.available[1].store(1_u16.to_le(), SeqCst);
    driver.areas.available[2].store(size.to_le(), SeqCst);
    let found = queue.take(&driver.memory, &mut Chain::default());
    assert_ne!(found, Err(Violation::Head { head: size, size }), "the fault is found");
}

#[test]
fn loops_and_endless_chains_are_refused() {
    let most = SIZE.into();
    for next in [0, 1] {
        let looped = broken(|areas, _| {
            areas.describe(0, segment(1, 1), NEXT, 1);
            areas.describe(1, segment(1, 1), NEXT, next);
        });
        assert_eq!(looped, Violation::TooManyDescriptors { most });
    }
    let in_table = broken(|areas, memory| {
        areas.describe(0, segment(MEMORY_START, 32), INDIRECT, 0);
        memory.describe(MEMORY_START, 0, segment(1, 1), (NEXT, 1));
        memory.describe(MEMORY_START, 1, segment(1, 1), (NEXT, 0));
    });
    assert_eq!(in_table, Violation::TooManyDescriptors { most: 2 });
    let memory = Memory::new(4096 * 16);
    for place in 0..4095 {
        memory.describe(MEMORY_START, place, segment(1, 1), (NEXT, place as u16 + 1));
    }
    memory.describe(MEMORY_START, 4095, segment(1, 1), (0, 0));
    let (driver, mut queue) = Driver::new(SIZE, ALL);
    driver.areas.describe(0, segment(MEMORY_START, 4096 * 16), INDIRECT, 0);
    driver.areas.available[1].store(1_u16.to_le(), SeqCst);
    let long = queue.take(&memory, &mut Chain::default());
    assert_eq!(long, Err(Violation::TooManyDescriptors { most: CHAIN_SEGMENTS_MAX }));
}

#[test]
fn segments_that_may_not_be_are_refused() {
    let empty = broken(|areas, _| areas.describe(0, segment(1, 0), 0, 0));
    assert_eq!(empty, Violation::EmptySegment);
    let order = broken(|areas, _| {
        areas.describe(0, segment(1, 1), WRITE | NEXT, 1);
        areas.describe(1, segment(1, 1), 0, 0);
    });
    assert_eq!(order, Violation::Order);
    let long = broken(|areas, _| {
        areas.describe(0, segment(1, u32::MAX), NEXT, 1);
        areas.describe(1, segment(1, 1), 0, 0);
    });
    assert_eq!(long, Violation::TooLong);
}

#[test]
fn tables_that_may_not_be_are_refused() {
    let without = Options { indirect: false, ..ALL };
    let table = segment(MEMORY_START, 16);
    let refused = taken(without, |areas, _| areas.describe(0, table, INDIRECT, 0));
    assert_eq!(refused, Err(Violation::Indirect));
    let and_more = broken(|areas, _| areas.describe(0, table, INDIRECT | NEXT, 1));
    assert_eq!(and_more, Violation::Indirect);
    let behind = broken(|areas, _| {
        areas.describe(0, segment(1, 1), NEXT, 1);
        areas.describe(1, table, INDIRECT, 0);
    });
    assert_eq!(behind, Violation::Indirect);
    let nested = broken(|areas, memory| {
        areas.describe(0, table, INDIRECT, 0);
        memory.describe(MEMORY_START, 0, table, (INDIRECT, 0));
    });
    assert_eq!(nested, Violation::Indirect);
    for bytes in [0, 1, 15, 17, u32::MAX] {
        let odd = broken(|areas, _| areas.describe(0, segment(MEMORY_START, bytes), INDIRECT, 0));
        assert_eq!(odd, Violation::IndirectLength { bytes });
    }
    for address in [0, MEMORY_START - 1, MEMORY_START + u64::from(SIZE) * 128 - 8, u64::MAX - 8] {
        let outside = broken(|areas, _| areas.describe(0, segment(address, 16), INDIRECT, 0));
        assert_eq!(outside, Violation::IndirectAddress { address });
    }
}

#[test]
fn queues_of_impossible_sizes_are_refused() {
    for size in [0, 3, 12, 65_535, 65_536, u32::MAX] {
        let queue = Queue::new(Areas::new(16), size, ALL, 0);
        assert_eq!(queue.unwrap_err(), Violation::Size { size });
    }
    assert!(Queue::new(Areas::new(8), 16, ALL, 0).is_err(), "areas of another size");
    assert!(Queue::new(Areas::new(16), 16, ALL, 0).is_ok());
}

/// Whatever the guest writes wherever: no panic, no endless loop, and no chain that breaks the rules.
#[test]
fn any_bytes_are_a_sound_chain_or_a_violation() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let areas = Areas::new(SIZE);
        let memory = Memory::new(256);
        let mut queue = Queue::new(Rc::clone(&areas), SIZE.into(), ALL, 0).unwrap();
        let mut chain = Chain::default();
        for piece in bytes.chunks(11) {
            let mut eleven = [0; 11];
            eleven[..piece.len()].copy_from_slice(piece);
            let [kind, place, rest @ ..] = eleven;
            let value = u64::from_le_bytes(rest[..8].try_into().unwrap());
            let place = usize::from(place);
            match kind % 5 {
                0 => areas.descriptors[place % areas.descriptors.len()].store(value, SeqCst),
                1 => areas.available[place % areas.available.len()].store(value as u16, SeqCst),
                2 => {
                    let at = place % 248;
                    memory.0.borrow_mut()[at..at + 8].copy_from_slice(&rest[..8]);
                }
                3 => {
                    let next = areas.available[1].load(SeqCst).wrapping_add(1);
                    areas.available[1].store(next, SeqCst);
                }
                _ => {
                    if queue.take(&memory, &mut chain) == Ok(true) {
                        let all = chain.readable().len() + chain.writable().len();
                        assert!((1..=CHAIN_SEGMENTS_MAX as usize).contains(&all));
                        assert!(chain.head() < SIZE);
                        queue.give_back(chain.head(), 0);
                        // Either answer will do.
                        let _told = queue.publish();
                    }
                }
            }
        }
    });
}
