//! Waiting for descriptors of netmap and others together.
//!
//! A descriptor of netmap is an epoll set of the bells that the switch rings. Before the kernel is asked to
//! sleep each is synchronised, and asks to be rung for; afterwards it is synchronised again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::pollfd;

use crate::descriptor::Descriptor;
use crate::user::UserMemory;

/// How long an empty ring is looked at before the process sleeps: about what going to sleep and being woken
/// costs.
const LINGER: Duration = Duration::from_micros(20);

/// How to ask the kernel: entries, and for how long (`None`: as long as it takes). Negative as `poll` is.
pub type Sleep<'a> = &'a mut dyn FnMut(&mut [pollfd], Option<Duration>) -> i32;

/// Those entries that are netmap's, by their place.
pub type Watched = [(usize, Arc<Descriptor>)];

/// `poll` over entries some of which are netmap's. Answers as `poll` does, and fills in what happened.
pub fn poll(
    watched: &Watched,
    entries: &mut [pollfd],
    timeout: Option<Duration>,
    user: &dyn UserMemory,
    sleep: Sleep<'_>,
) -> i32 {
    let began = Instant::now();
    let mut lingered = watched.len() < entries.len();
    loop {
        let passed = began.elapsed();
        let left = timeout.map(|timeout| timeout.saturating_sub(passed));
        let ours = examine(watched, entries, user);
        if ours > 0 || left == Some(Duration::ZERO) {
            return ours + others(watched, entries, sleep);
        }
        if !lingered && passed < LINGER {
            std::hint::spin_loop();
            continue;
        }
        lingered = true;
        let armed = watched.iter().filter(|(at, one)| one.arm(entries[*at].events)).count();
        if armed < watched.len() {
            disarm(watched);
            continue;
        }
        let most = watched.iter().filter_map(|(_, one)| one.nap()).min();
        let nap = most.map_or(left, |most| Some(left.map_or(most, |left| left.min(most))));
        let mut asked = entries.to_vec();
        watched.iter().for_each(|(at, _)| asked[*at].events = libc::POLLIN);
        let answer = sleep(&mut asked, nap);
        disarm(watched);
        if answer < 0 {
            return answer;
        }
        let is_ours = |at: usize| watched.iter().any(|(one, _)| *one == at);
        if asked.iter().enumerate().any(|(at, one)| one.revents != 0 && !is_ours(at)) {
            let ours = examine(watched, entries, user);
            return ours + others(watched, entries, sleep);
        }
    }
}

/// Synchronises, and says how many are ready.
fn examine(watched: &Watched, entries: &mut [pollfd], user: &dyn UserMemory) -> i32 {
    let mut ready = 0;
    for (at, one) in watched {
        let entry = &mut entries[*at];
        entry.revents = one.examine(entry.events, user);
        ready += i32::from(entry.revents != 0);
    }
    ready
}

/// Asks the kernel about the rest without waiting, and says how many are ready.
fn others(watched: &Watched, entries: &mut [pollfd], sleep: Sleep<'_>) -> i32 {
    if watched.len() == entries.len() {
        return 0;
    }
    let mut asked = entries.to_vec();
    // The kernel passes over what is negative.
    watched.iter().for_each(|(at, _)| asked[*at].fd = -1);
    let answer = sleep(&mut asked, Some(Duration::ZERO)).max(0);
    for (at, entry) in entries.iter_mut().enumerate() {
        if !watched.iter().any(|(one, _)| *one == at) {
            entry.revents = asked[at].revents;
        }
    }
    answer
}

fn disarm(watched: &Watched) {
    watched.iter().for_each(|(_, one)| one.disarm());
}
