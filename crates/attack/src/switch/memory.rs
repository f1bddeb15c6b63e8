//! Every field of the shared memory: cursors, sleeps, slots, the header, the memory itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use packet_switch::attachment::{PipeEnd, Shape};
use rustix::fs::FallocateFlags;

use super::{Hostile, SLOT_WORDS, SMALL, broadcast};
use crate::case::{Case, Door, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "every cursor at its extremes", cursors),
    Case::of(Door::Switch, "every field of a slot at its extremes", slots),
    Case::of(Door::Switch, "the same buffer in all slots", same_buffer),
    Case::of(Door::Switch, "packets of too many and of endless fragments", fragments),
    Case::of(Door::Switch, "the header overwritten", header),
    Case::of(Door::Switch, "ring headers and slots' pointers overwritten", ring_headers),
    Case::of(Door::Switch, "holes punched into the memory", holes),
    Case::of(Door::Switch, "cursors that never stand still", restless),
    Case::of(Door::Switch, "the memory of a pipe scribbled over", pipe),
    Case::of(Door::Switch, "random numbers all over the memory", scribble).generated(),
    Case::of(Door::Switch, "plausible cursors and slots", plausible).generated(),
];

const EDGES: [u32; 9] = [0, 1, 62, 63, 64, 65, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// Long enough for the switch to look.
const LOOK: Duration = Duration::from_micros(500);

fn cursors(scene: &mut Scene) -> Result<(), String> {
    for ring in 0..2 {
        for word in 0..6 {
            for edge in EDGES {
                let hostile = Hostile::attach(&scene.socket, "vale0:cursor", SMALL)?;
                match word {
                    0..3 => hostile.set_user(ring, word, edge),
                    _ => hostile.set_owner(ring, word - 3, edge),
                }
                hostile.ring();
                std::thread::sleep(LOOK);
                let next = hostile.send(0, &broadcast(5, 60), 2112);
                hostile.publish(next);
            }
        }
    }
    Ok(())
}

fn slots(scene: &mut Scene) -> Result<(), String> {
    let lengths = [0, 1, 9, 10, 12, 13, 14, 59, 60, 2112, 2113, 0x7fff, 0xffff];
    let flags = [0, 1, 2, 0x20, 0x21, 0x40, 0x100, 0xff00, 0xffff];
    let buffers = [0, 1, 2, 63, 64, 65, 639, 640, 1000, 0x7fff_ffff, u32::MAX];
    let all = buffers
        .iter()
        .map(|&buffer| (Some(buffer), 60, 0))
        .chain(lengths.iter().map(|&length| (None, length, 0)))
        .chain(flags.iter().map(|&flags| (None, 60, flags)));
    for (buffer, length, flags) in all {
        let hostile = Hostile::attach(&scene.socket, "vale0:slot", SMALL)?;
        for index in 0..4 {
            hostile.fill(index, &broadcast(6, 60));
            let own = hostile.slot(0, index) as u32;
            hostile.set_slot(0, index, buffer.unwrap_or(own), length, flags);
            // Those that frames arrive in.
            hostile.set_slot(1, index, buffer.unwrap_or(own), length, flags);
        }
        hostile.publish(4);
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn same_buffer(scene: &mut Scene) -> Result<(), String> {
    for ring in 0..2 {
        let hostile = Hostile::attach(&scene.socket, "vale0:same", SMALL)?;
        for index in 0..SMALL.slots {
            hostile.set_slot(ring, index, hostile.slot(ring, 0) as u32, 60, 1);
        }
        hostile.fill(0, &broadcast(7, 60));
        hostile.publish(SMALL.slots - 1);
        std::thread::sleep(LOOK * 4);
    }
    Ok(())
}

fn fragments(scene: &mut Scene) -> Result<(), String> {
    for (count, ends) in [(63, true), (63, false), (1, false), (255, true), (255, false)] {
        let shape = Shape { slots: 256, buffer_bytes: 2112 };
        let hostile = Hostile::attach(&scene.socket, "vale0:parts", shape)?;
        for index in 0..count {
            hostile.fill(index, &broadcast(8, 60));
            let more = if ends && index + 1 == count { 0 } else { 0x20 };
            hostile.set_slot(0, index, hostile.slot(0, index) as u32, 2112, more);
        }
        hostile.publish(count);
        std::thread::sleep(LOOK * 4);
    }
    Ok(())
}

fn header(scene: &mut Scene) -> Result<(), String> {
    for edge in EDGES {
        let hostile = Hostile::attach(&scene.socket, "vale0:header", SMALL)?;
        let next = hostile.send(0, &broadcast(9, 60), 2112);
        for word in 0..1024 {
            hostile.words[word].store(edge, Ordering::Relaxed);
        }
        hostile.publish(next);
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Word by word, while frames pass: fields that the switch has written and should have no need to read.
fn ring_headers(scene: &mut Scene) -> Result<(), String> {
    for ring in 0..2 {
        for edge in EDGES {
            let hostile = Hostile::attach(&scene.socket, "vale0:ring", SMALL)?;
            let (header, slots) = hostile.ring_words(ring);
            // Of each slot the pointer.
            let pointers = slots.skip(2).step_by(SLOT_WORDS).flat_map(|at| [at, at + 1]);
            let mut next = 0;
            for word in header.chain(pointers) {
                hostile.words[word].store(edge, Ordering::Relaxed);
                next = hostile.send(next, &broadcast(9, 60), 2112);
                hostile.publish(next);
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

fn holes(scene: &mut Scene) -> Result<(), String> {
    let hostile = Hostile::attach(&scene.socket, "vale0:holes", SMALL)?;
    let Some(memory) = hostile.region.fd() else { return Err("no memory".to_owned()) };
    let bytes = hostile.region.length_bytes() as u64;
    for _ in 0..50 {
        let next = hostile.send(0, &broadcast(10, 60), 2112);
        hostile.publish(next);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Sealed against its end, not against this.
        rustix::fs::fallocate(memory, punch, 0, bytes).ok();
        hostile.ring();
        std::thread::sleep(LOOK);
    }
    if rustix::fs::ftruncate(memory, 0).is_ok() || rustix::fs::ftruncate(memory, bytes * 2).is_ok()
    {
        return Err("the memory could be cut off".to_owned());
    }
    Ok(())
}

fn restless(scene: &mut Scene) -> Result<(), String> {
    let mut cut_off = 0;
    for _ in 0..20 {
        let hostile = Hostile::attach(&scene.socket, "vale0:restless", SMALL)?;
        for round in 0..5_000_u32 {
            hostile.set_user(0, 0, round % SMALL.slots);
            hostile.set_user(1, 0, round.wrapping_mul(7) % SMALL.slots);
            hostile.set_slot(
                0,
                round % SMALL.slots,
                round % 700,
                (round % 4000) as u16,
                (round % 64) as u16,
            );
            if round % 64 == 0 {
                hostile.ring();
            }
        }
        cut_off += 1;
    }
    if cut_off == 20 { Ok(()) } else { Err("it cannot attach any more".to_owned()) }
}

fn pipe(scene: &mut Scene) -> Result<(), String> {
    for end in [PipeEnd::Master, PipeEnd::Slave] {
        let hostile = Hostile::open_pipe(&scene.socket, "bad-pipe", end)?;
        for word in 0..4096 {
            hostile.words[word].store(scene.random.bits() as u32, Ordering::Relaxed);
        }
        hostile.bells.iter().for_each(super::bells::jam);
    }
    Ok(())
}

fn scribble(scene: &mut Scene) -> Result<(), String> {
    while !scene.is_over() {
        let hostile = if scene.random.chance(0.25) {
            let end = scene.pick(&[PipeEnd::Master, PipeEnd::Slave]);
            Hostile::open_pipe(&scene.socket, "bad-scribble", end)?
        } else {
            let port = scene.pick(&["vale0:bad", "vale1:bad", "vale3:bad"]);
            Hostile::attach(&scene.socket, port, SMALL)?
        };
        let gentle = scene.random.chance(0.5);
        let all = hostile.doubles.len() as u64;
        for step in 0..5_000_u32 {
            // Half the blows go where it hurts: the cursors and slots.
            let place = if scene.random.chance(0.5) {
                scene.random.below(4096)
            } else {
                scene.random.below(all)
            };
            let bits = scene.random.bits();
            let small = scene.random.below(130) | scene.random.below(64) << 32;
            hostile.doubles[place as usize]
                .store(if gentle { small } else { bits }, Ordering::Relaxed);
            if step % 64 == 0 {
                hostile.ring();
            }
        }
    }
    Ok(())
}

fn plausible(scene: &mut Scene) -> Result<(), String> {
    while !scene.is_over() {
        let slots = scene.pick(&[2_u32, 3, 16, 64, 1024]);
        let shape = Shape { slots, buffer_bytes: scene.pick(&[64, 128, 2112, 9216]) };
        let hostile = Hostile::attach(&scene.socket, "vale0:plausible", shape)?;
        let mut head = 0;
        for _ in 0..scene.random.below(400) {
            let count = scene.random.below(u64::from(slots)) as u32;
            for number in 0..count {
                let index = (head + number) % slots;
                let length = scene.pick(&[0, 13, 14, 60, 64, shape.buffer_bytes as u16, 65_535]);
                let flags = scene.pick(&[0, 0, 0, 1, 0x20, 0x21]);
                let own = hostile.slot(0, index) as u32;
                let buffer = if scene.random.chance(0.01) { scene.nasty() as u32 } else { own };
                hostile.fill(index, &broadcast(11, 60));
                hostile.set_slot(0, index, buffer, length, flags);
            }
            head = (head + count) % slots;
            hostile.publish(head);
            let taken = hostile.owner(1, 1);
            hostile.set_user(
                1,
                0,
                if scene.random.chance(0.9) { taken } else { scene.nasty() as u32 },
            );
            if scene.random.chance(0.2) {
                std::thread::sleep(Duration::from_micros(scene.random.below(200)));
            }
        }
    }
    Ok(())
}
