//! Operations in any order, of a driver and a device, against what must come of them.

use std::collections::VecDeque;

use stats::Random;

use super::driver::{Driver, Posted};
use crate::queue::Fault;
use crate::{Chain, Options, Segment};

/// What was found wrong, if anything.
type Verdict = Result<(), String>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Verdict {
    if is == should { Ok(()) } else { Err(format!("{what}: {is:?}, not {should:?}")) }
}

fn segments(random: &mut Random, most: u64) -> Vec<Segment> {
    let one = |random: &mut Random| Segment {
        address: random.bits(),
        length_bytes: 1 + random.below(70_000) as u32,
    };
    (0..random.below(most + 1)).map(|_| one(random)).collect()
}

/// So many operations from a seed, over a queue with a fault or without.
fn run(size: u16, options: Options, seed: u64, count: u32, fault: Option<Fault>) -> Verdict {
    let mut random = Random::from_seed(seed);
    let (mut driver, mut queue) = Driver::new(size, options);
    queue.fault = fault;
    let mut chain = Chain::default();
    let mut taken: VecDeque<Posted> = VecDeque::new();
    let mut given: VecDeque<(Posted, u32)> = VecDeque::new();
    // Who sleeps, and of the driver, whether it was signalled since.
    let (mut device_sleeps, mut driver_sleeps, mut signalled) = (false, false, false);
    for _ in 0..count {
        match random.below(8) {
            0 | 1 => {
                let (reads, writes) = (segments(&mut random, 3), segments(&mut random, 3));
                let flat = !options.indirect || random.chance(0.5);
                if let Some(notified) = driver.post(&reads, &writes, flat)
                    && std::mem::take(&mut device_sleeps)
                {
                    same("a sleeping device is notified", notified, true)?;
                }
            }
            2 | 3 => {
                let before = taken.len();
                for _ in 0..=random.below(4) {
                    if !queue.take(&driver.memory, &mut chain).map_err(|why| why.to_string())? {
                        same("all are taken", driver.order.len(), 0)?;
                        break;
                    }
                    let posted = driver.order.pop_front().ok_or("one that was not posted")?;
                    same("its head", chain.head(), posted.head)?;
                    same("what is to be read", chain.readable(), &posted.readable[..])?;
                    same("what is to be written", chain.writable(), &posted.writable[..])?;
                    taken.push_back(posted);
                }
                if random.chance(0.2) {
                    // There was no room for them.
                    let back = taken.len() - before;
                    queue.untake(back as u16);
                    taken.drain(before..).rev().for_each(|one| driver.order.push_front(one));
                }
            }
            4 => {
                for _ in 0..random.below(4) {
                    let Some(one) = taken.pop_front() else { break };
                    let written = random.bits() as u32;
                    queue.give_back(one.head, written);
                    given.push_back((one, written));
                }
                if queue.publish() {
                    signalled = true;
                }
            }
            5 => {
                let asleep = driver_sleeps && !signalled;
                if let Some((posted, written)) = driver.harvest() {
                    same("a sleeping driver is signalled", asleep, false)?;
                    (driver_sleeps, signalled) = (false, false);
                    driver.disarm();
                    same("used", Some((posted, written)), given.pop_front())?;
                }
            }
            6 => {
                signalled = false;
                driver_sleeps = driver.arm();
            }
            _ => {
                queue.disarm();
                device_sleeps = queue.arm().map_err(|why| why.to_string())?;
                same("it sleeps if there is none", device_sleeps, driver.order.is_empty())?;
            }
        }
    }
    Ok(())
}

fn all_options() -> [Options; 4] {
    [(false, false), (false, true), (true, false), (true, true)]
        .map(|(event_index, indirect)| Options { event_index, indirect })
}

#[test]
fn chains_are_taken_as_posted_and_nobody_sleeps_for_ever() {
    for options in all_options() {
        for (size, seed) in [1, 2, 4, 16, 256].into_iter().zip(1..) {
            // The indexes wrap.
            run(size, options, seed, 300_000, None).unwrap();
        }
    }
}

#[test]
fn planted_faults_are_found() {
    let faults =
        [Fault::SignalOnePast, Fault::ArmedBehind, Fault::UsedEntryKept, Fault::TakenTwice];
    let options = Options { event_index: true, indirect: true };
    for fault in faults {
        let found = run(16, options, 7, 100_000, Some(fault));
        assert!(found.is_err(), "{fault:?} was not found");
    }
}

#[test]
fn any_order_of_operations_is_sound() {
    bolero::check!().with_type::<(u64, u8)>().for_each(|(seed, kind)| {
        let options = all_options()[usize::from(kind % 4)];
        run(1 << (kind % 7), options, *seed, 300, None).unwrap();
    });
}
