//! Too much of what would be fine once.

use std::time::{Duration, Instant};

use packet_switch::attachment::{Ask, Request};

use super::{Hostile, Raw, SMALL};
use crate::case::{Case, Door, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "thousands of requests, no answer read", deaf),
    Case::of(Door::Switch, "attach and detach without a pause", attach_storm),
    Case::of(Door::Switch, "connect and leave without a word", connect_storm),
    Case::of(Door::Switch, "more connections than are served", crowd),
    Case::of(Door::Switch, "gone at each step", leave_early),
    Case::of(Door::Switch, "gone at any moment", vanish).generated(),
];

fn deaf(scene: &mut Scene) -> Result<(), String> {
    let all: Result<Vec<Raw>, String> = (0..20).map(|_| Raw::connect(&scene.socket)).collect();
    let all = all?;
    let port = "vale0:deaf".parse().map_err(|error| format!("{error}"))?;
    let asks = [
        Request::encode(Ask::List { after: None }),
        Request::encode(Ask::AttachPort { port, shape: SMALL }),
        vec![b'x'; 60_000],
    ];
    for number in 0..5_000 {
        for raw in &all {
            raw.say(&asks[number % asks.len()], &[]);
        }
    }
    Ok(())
}

fn attach_storm(scene: &mut Scene) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    let until = Instant::now() + Duration::from_millis(300);
    let mut number = 0_u32;
    while Instant::now() < until {
        number += 1;
        let port = format!("vale0:s{}", number % 50).parse().map_err(|error| format!("{error}"))?;
        let (answer, _fds) = raw.ask(Ask::AttachPort { port, shape: SMALL }, &[])?;
        if let packet_switch::attachment::Answer::Attached { attachment, .. } = answer {
            raw.ask(Ask::Detach { attachment }, &[])?;
        }
    }
    Ok(())
}

fn connect_storm(scene: &mut Scene) -> Result<(), String> {
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        // One that is refused for want of room is a part of it.
        Raw::connect(&scene.socket).ok();
    }
    Ok(())
}

fn crowd(scene: &mut Scene) -> Result<(), String> {
    let mut all = Vec::new();
    let until = Instant::now() + Duration::from_secs(2);
    // A listener's queue is full for a moment now and then.
    while all.len() < 1100 && Instant::now() < until {
        all.extend(Raw::connect(&scene.socket));
    }
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

fn leave_early(scene: &mut Scene) -> Result<(), String> {
    for _ in 0..20 {
        let port = || "vale0:early".parse().map_err(|error| format!("{error}"));
        drop(Raw::connect(&scene.socket)?);
        // Asked, and gone before the answer.
        let raw = Raw::connect(&scene.socket)?;
        raw.say(&Request::encode(Ask::AttachPort { port: port()?, shape: SMALL }), &[]);
        drop(raw);
        // Answered, and gone before it is read.
        let raw = Raw::connect(&scene.socket)?;
        raw.say(&Request::encode(Ask::AttachPort { port: port()?, shape: SMALL }), &[]);
        std::thread::sleep(Duration::from_millis(1));
        drop(raw);
        // Attached; with frames given and not given back; with the memory kept.
        let hostile = Hostile::attach(&scene.socket, "vale0:early", SMALL)?;
        let next = hostile.send(0, &super::broadcast(15, 60), 2112);
        hostile.set_user(0, 0, next);
        let memory = std::sync::Arc::clone(&hostile.region);
        drop(hostile);
        drop(memory);
    }
    Ok(())
}

fn vanish(scene: &mut Scene) -> Result<(), String> {
    let mut held: Vec<Hostile> = Vec::new();
    while !scene.is_over() {
        let port = format!("vale{}:v{}", scene.random.below(4), scene.random.below(20));
        if !held.is_empty() && scene.random.chance(0.5) {
            held.swap_remove(scene.random.below(held.len() as u64) as usize);
        } else if held.len() < 40 {
            let raw = Raw::connect(&scene.socket)?;
            let port = port.parse().map_err(|error| format!("{error}"))?;
            let (answer, fds) = raw.ask(Ask::AttachPort { port, shape: SMALL }, &[])?;
            if matches!(answer, packet_switch::attachment::Answer::Attached { .. }) {
                let hostile = Hostile::of(raw, fds, SMALL.slots)?;
                let next = hostile.send(0, &super::broadcast(16, 60), 2112);
                hostile.publish(next);
                held.push(hostile);
            }
        }
    }
    Ok(())
}
