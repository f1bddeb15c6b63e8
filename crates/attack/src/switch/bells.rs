//! Bells that make whoever rings or empties them wait.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use packet_switch::attachment::{Answer, Ask, Shape};
use rustix::fs::OFlags;
use sys::descriptor::LockedEpoll;
use sys::eventfd::Signaller;

use super::{DWELL, Hostile, Raw, SMALL, broadcast};
use crate::arena::Arena;
use crate::case::{Case, Door, Need, Scene};
use crate::play::{STRANGER, as_user};
use crate::program::size_of;

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "a jammed bell", jam_one),
    Case::of(Door::Switch, "a jammed bell left behind", jam_and_leave),
    Case::of(Door::Switch, "a jammed bell of the ring that is sent on", jam_sender),
    Case::of(Door::Switch, "twenty jammed bells at once", jam_many),
    Case::of(Door::Switch, "jam, be cut off, attach again, twenty times", jam_again),
    Case::of(Door::Switch, "jam at two switches", jam_two_switches),
    Case::of(Door::Switch, "bells full and not blocking", full),
    Case::of(Door::Switch, "the switch's own bell: blocking and emptied", steal_rings),
    Case::of(Door::Switch, "the switch's own bell: full", fill_kick),
    Case::of(Door::Switch, "many bells in an epoll set that stays locked", locked)
        .needs(Need::Root),
    Case::of(Door::Switch, "jams where the host has no asynchronous requests left", jam_plain)
        .needs(Need::Root)
        .long(),
    Case::of(Door::Switch, "bells of any kind, any flags", any).generated(),
];

/// Whoever rings this one waits.
pub(crate) fn jam(bell: &OwnedFd) {
    // As full as an eventfd gets, however much was in it.
    rustix::io::read(bell, &mut [0; 8]).ok();
    rustix::io::write(bell, &(u64::MAX - 1).to_ne_bytes()).ok();
    rustix::fs::fcntl_setfl(bell, OFlags::empty()).ok();
}

/// Attaches, jams the bell of the ring that frames arrive on, and asks to be rung.
fn jammed(scene: &Scene, port: &str) -> Result<Hostile, String> {
    let hostile = Hostile::attach(&scene.socket, port, SMALL)?;
    jam(&hostile.bells[3]);
    hostile.set_user(1, 2, 7);
    Ok(hostile)
}

/// Something to be rung for.
fn provoke(scene: &Scene, switch: &str) -> Result<Hostile, String> {
    let hostile = Hostile::attach(&scene.socket, &format!("{switch}:provoker"), SMALL)?;
    let next = hostile.send(0, &broadcast(1, 60), 2112);
    hostile.publish(next);
    Ok(hostile)
}

fn jam_one(scene: &mut Scene) -> Result<(), String> {
    let _jam = jammed(scene, "vale0:jam")?;
    let _provoker = provoke(scene, "vale0")?;
    std::thread::sleep(DWELL);
    Ok(())
}

fn jam_and_leave(scene: &mut Scene) -> Result<(), String> {
    let jam = jammed(scene, "vale0:jam")?;
    let provoker = provoke(scene, "vale0")?;
    std::thread::sleep(Duration::from_millis(2));
    let bells: Vec<OwnedFd> =
        jam.bells.iter().filter_map(|bell| bell.as_fd().try_clone_to_owned().ok()).collect();
    drop((jam, provoker));
    std::thread::sleep(DWELL);
    drop(bells);
    Ok(())
}

fn jam_sender(scene: &mut Scene) -> Result<(), String> {
    let hostile = Hostile::attach(&scene.socket, "vale0:jam", SMALL)?;
    jam(&hostile.bells[1]);
    hostile.set_user(0, 2, 7);
    let next = hostile.send(0, &broadcast(2, 60), 2112);
    hostile.publish(next);
    std::thread::sleep(DWELL);
    Ok(())
}

fn jam_many(scene: &mut Scene) -> Result<(), String> {
    let jams: Result<Vec<Hostile>, String> =
        (0..20).map(|number| jammed(scene, &format!("vale0:jam{number}"))).collect();
    let _provoker = provoke(scene, "vale0")?;
    std::thread::sleep(DWELL);
    drop(jams?);
    Ok(())
}

fn jam_again(scene: &mut Scene) -> Result<(), String> {
    for _ in 0..20 {
        let _jam = jammed(scene, "vale0:jam")?;
        let _provoker = provoke(scene, "vale0")?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn jam_two_switches(scene: &mut Scene) -> Result<(), String> {
    let _jams = (jammed(scene, "vale0:jam")?, jammed(scene, "vale1:jam")?);
    let _provokers = (provoke(scene, "vale0")?, provoke(scene, "vale1")?);
    std::thread::sleep(DWELL);
    Ok(())
}

fn full(scene: &mut Scene) -> Result<(), String> {
    let hostile = Hostile::attach(&scene.socket, "vale0:full", SMALL)?;
    for bell in &hostile.bells {
        rustix::io::write(bell, &(u64::MAX - 1).to_ne_bytes()).ok();
    }
    hostile.set_user(0, 2, 1);
    hostile.set_user(1, 2, 1);
    let _provoker = provoke(scene, "vale0")?;
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

/// Whoever empties a bell after it has been told that it rings may find it empty, and block.
fn steal_rings(scene: &mut Scene) -> Result<(), String> {
    let hostile = Hostile::attach(&scene.socket, "vale0:thief", SMALL)?;
    rustix::fs::fcntl_setfl(&hostile.bells[0], OFlags::empty()).ok();
    for _ in 0..20_000 {
        hostile.ring();
        rustix::io::read(&hostile.bells[0], &mut [0; 8]).ok();
    }
    Ok(())
}

fn fill_kick(scene: &mut Scene) -> Result<(), String> {
    let hostile = Hostile::attach(&scene.socket, "vale0:kick", SMALL)?;
    jam(&hostile.bells[0]);
    std::thread::sleep(Duration::from_millis(100));
    // Going away with it.
    Ok(())
}

/// Whoever closes one of these bells last waits until the set is unlocked. What others leave behind is freed all the
/// same.
fn locked(scene: &mut Scene) -> Result<(), String> {
    const LARGE: Shape = Shape { slots: 4096, buffer_bytes: 2112 };
    const FREED_WITHIN: Duration = Duration::from_secs(5);
    let mut attached = as_user(STRANGER, || {
        let attach = |number| {
            Hostile::attach(&scene.socket, &format!("vale{}:l{number}", number % 4), SMALL)
        };
        (0..120).map(attach).collect::<Result<Vec<Hostile>, String>>()
    })?;
    let bells = attached.iter().flat_map(|one| [&one.bells[0], &one.bells[1], &one.bells[3]]);
    let bells: Vec<BorrowedFd<'_>> = bells.map(AsFd::as_fd).collect();
    rustix::io::write(bells[1], &1_u64.to_ne_bytes()).map_err(|error| error.to_string())?;
    let lock = LockedEpoll::around(&bells).map_err(|error| error.to_string())?;
    let held_bytes = size_of(scene.pid)?.shared_bytes;
    // The switch is to be the last that has them.
    attached.iter_mut().for_each(|one| one.bells.clear());
    drop(attached);
    for _ in 0..20 {
        drop(Hostile::attach(&scene.socket, "vale0:honest", LARGE)?);
    }
    let until = Instant::now() + FREED_WITHIN;
    loop {
        let left_bytes = size_of(scene.pid)?.shared_bytes.saturating_sub(held_bytes);
        if left_bytes == 0 {
            break;
        }
        if Instant::now() > until {
            let left = left_bytes >> 20;
            return Err(format!("{left} MiB of another user's are there after {FREED_WITHIN:?}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(lock);
    Ok(())
}

/// Whoever had taken all asynchronous requests (`fs.aio-max-nr`) before a switch started lets its bells make that switch
/// wait: by at most 200 ms each time, and after each for a longer time not again.
fn jam_plain(scene: &mut Scene) -> Result<(), String> {
    const ROUNDS: usize = 8;
    let folder = scene.folder.with_file_name("plain");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    // Another user is to reach the socket in it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(&folder, mode).map_err(|error| error.to_string())?;
    let taken: Vec<Signaller> =
        std::iter::repeat_with(Signaller::new).map_while(Result::ok).collect();
    let mut arena = Arena::open(&scene.program, &folder)?;
    drop(taken);
    let log = std::fs::read_to_string(folder.join("attacked.log")).unwrap_or_default();
    if !log.contains("without asynchronous requests") {
        return Err("the switch has asynchronous requests all the same".to_owned());
    }
    let socket = arena.socket().to_owned();
    let mut slow = Vec::new();
    for _ in 0..ROUNDS {
        let judgement = arena.round(false, || {
            as_user(STRANGER, || {
                let until = Instant::now() + Duration::from_millis(300);
                while Instant::now() < until {
                    jam_if_let_in(&socket)?;
                }
                Ok(())
            })
        });
        if let Some(why) = judgement.broken {
            return Err(why);
        }
        slow.extend(judgement.slow);
    }
    if 2 * slow.len() > ROUNDS {
        return Err(format!("{} in {} of {ROUNDS} rounds", slow[0], slow.len()));
    }
    Ok(())
}

/// As [`jam_one`], by somebody who may be refused.
fn jam_if_let_in(socket: &Path) -> Result<(), String> {
    let raw = Raw::connect(socket)?;
    let port = "vale0:jam".parse().map_err(|error| format!("{error}"))?;
    let (answer, fds) = raw.ask(Ask::AttachPort { port, shape: SMALL }, &[])?;
    if matches!(answer, Answer::Attached { .. }) {
        let jammed = Hostile::of(raw, fds, SMALL.slots)?;
        jam(&jammed.bells[3]);
        jammed.set_user(1, 2, 7);
        // A frame of its own rings its own bell for room, too.
        jam(&jammed.bells[1]);
        jammed.set_user(0, 2, 7);
        let next = jammed.send(0, &broadcast(1, 60), 2112);
        jammed.publish(next);
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(10));
    Ok(())
}

fn any(scene: &mut Scene) -> Result<(), String> {
    while !scene.is_over() {
        let switch = scene.pick(&["vale0", "vale1"]);
        let hostile = Hostile::attach(&scene.socket, &format!("{switch}:bells"), SMALL)?;
        for bell in &hostile.bells {
            if scene.random.chance(0.6) {
                rustix::io::write(bell, &scene.random.bits().to_ne_bytes()).ok();
            }
            if scene.random.chance(0.6) {
                rustix::io::write(bell, &(u64::MAX - 1).to_ne_bytes()).ok();
            }
            let flags = OFlags::from_bits_retain(scene.random.bits() as u32);
            // What would make this very thread wait is for the others.
            if scene.random.chance(0.6) {
                rustix::fs::fcntl_setfl(bell, flags & (OFlags::APPEND | OFlags::NOATIME)).ok();
            }
        }
        for ring in 0..2 {
            hostile.set_user(ring, 2, scene.nasty() as u32);
        }
        let _provoker = provoke(scene, switch);
        std::thread::sleep(Duration::from_millis(scene.random.below(40)));
    }
    Ok(())
}
