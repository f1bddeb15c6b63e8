//! Deferred drops of what takes long to drop: memory of gigabytes, sockets of devices, bells of clients.
//!
//! Unmapping a region whose other users have gone gives its pages back one by one. The end of an
//! `AF_XDP` socket or a TAP device waits for every core (`synchronize_net`). The last close of a bell waits
//! for the lock of every epoll set that it is in, and a client may hold that for as long as it likes. None of
//! that is for a thread on which others wait, so threads of their own do it: one, and another beside it
//! for whatever the first has not ended in [`PATIENCE`]. The users take turns, and what of one user's takes long has a
//! limit of its own: beyond it only that user's things wait.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::panics;

type Item = Box<dyn Any + Send>;

/// The user whose the daemon's own things are.
pub(crate) const DAEMON: u32 = 0;

/// Most drops that take long at once, of all users; with more, the others wait.
const SLOW_MAX: usize = 64;
/// Most of one user.
const SLOW_OF_USER_MAX: usize = 8;
/// After so long the next drop begins beside one that has not ended.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 30 } else { 300 });
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Passes objects to the threads that drop them; without those they are dropped at once.
#[derive(Debug, Default, Clone)]
pub(crate) struct DeferredDrop {
    sender: Option<Sender<(u32, Item)>>,
}

impl DeferredDrop {
    /// Begins its threads, which may do what the calling one may, and end with the last handle.
    pub(crate) fn begin() -> Self {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("letting go".to_owned())
            .spawn(move || supervise(&receiver));
        Self { sender: thread.is_ok().then_some(sender) }
    }

    /// One whose every drop hangs until the test takes it out of the queue.
    #[cfg(test)]
    pub(crate) fn held() -> (Self, Receiver<(u32, Item)>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender: Some(sender) }, receiver)
    }

    /// Lets go, soon, of what a user can make take long.
    pub(crate) fn drop_later(&self, user: u32, what: Item) {
        if let Some(sender) = &self.sender {
            // The thread ends only with the last sender.
            sender.send((user, what)).ok();
        }
    }
}

fn supervise(items: &Receiver<(u32, Item)>) {
    let mut queues = Queues::default();
    // One is there from the beginning: a daemon at rest has as many threads before its first drop as after.
    let mut worker = Worker::begin();
    while queues.take_in(items) {
        for (user, item) in queues.next_of_each() {
            let Some(at_work) = worker.take().or_else(Worker::begin) else {
                // No thread to be had: it goes here.
                panics::caught(|| drop(item)).ok();
                continue;
            };
            match at_work.drop_in_time(item) {
                Ok(free) => worker = Some(free),
                Err(thread) => queues.of_users.entry(user).or_default().slow.push(thread),
            }
        }
    }
}

/// What is to be dropped, by user.
#[derive(Default)]
struct Queues {
    of_users: BTreeMap<u32, Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Item>,
    /// At work on what takes long.
    slow: Vec<JoinHandle<()>>,
}

impl Queues {
    /// Takes what has come, and waits for it where nothing else is to be done; false when nothing can come any more.
    fn take_in(&mut self, items: &Receiver<(u32, Item)>) -> bool {
        for queue in self.of_users.values_mut() {
            queue.slow.retain(|thread| !thread.is_finished());
        }
        self.of_users.retain(|_, queue| !queue.waiting.is_empty() || !queue.slow.is_empty());
        let first = if self.of_users.values().all(|queue| queue.waiting.is_empty()) {
            items.recv().map_err(RecvTimeoutError::from)
        } else {
            items.recv_timeout(if self.has_turns() { Duration::ZERO } else { LOOK_EVERY })
        };
        if matches!(first, Err(RecvTimeoutError::Disconnected)) {
            return false;
        }
        for (user, item) in first.into_iter().chain(items.try_iter()) {
            self.of_users.entry(user).or_default().waiting.push_back(item);
        }
        true
    }

    fn is_full(&self) -> bool {
        self.of_users.values().map(|queue| queue.slow.len()).sum::<usize>() >= SLOW_MAX
    }

    fn has_turns(&self) -> bool {
        !self.is_full() && self.of_users.values().any(Queue::has_turn)
    }

    /// The next thing of each user who may drop one now.
    fn next_of_each(&mut self) -> Vec<(u32, Item)> {
        if self.is_full() {
            return Vec::new();
        }
        let have_turns = self.of_users.iter_mut().filter(|(_, queue)| queue.has_turn());
        have_turns.filter_map(|(user, queue)| Some((*user, queue.waiting.pop_front()?))).collect()
    }
}

impl Queue {
    fn has_turn(&self) -> bool {
        !self.waiting.is_empty() && self.slow.len() < SLOW_OF_USER_MAX
    }
}

/// A thread that drops one thing after the other.
struct Worker {
    items: Sender<Item>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn begin() -> Option<Self> {
        let (items, todo) = mpsc::channel::<Item>();
        let (tell, done) = mpsc::channel();
        let work = move || {
            while let Ok(item) = todo.recv() {
                // What cannot even go in order is gone all the same.
                panics::caught(|| drop(item)).ok();
                // Nobody listens any more where it took too long.
                tell.send(()).ok();
            }
        };
        let thread = std::thread::Builder::new().name("letting go".to_owned()).spawn(work).ok()?;
        Some(Self { items, done, thread })
    }

    /// Drops it; the thread alone where that goes on: it ends with what it does.
    fn drop_in_time(self, item: Item) -> Result<Self, JoinHandle<()>> {
        // The thread is there as long as its sender.
        self.items.send(item).ok();
        match self.done.recv_timeout(PATIENCE) {
            Ok(()) => Ok(self),
            Err(_) => Err(self.thread),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tells(Sender<u32>, u32, Option<Receiver<()>>);

    impl Drop for Tells {
        fn drop(&mut self) {
            if let Some(until) = &self.2 {
                until.recv().ok();
            }
            self.0.send(self.1).ok();
        }
    }

    #[test]
    fn a_drop_that_never_ends_stops_no_other() {
        let later = DeferredDrop::begin();
        let (tell, told) = mpsc::channel();
        let (release, until) = mpsc::channel();
        later.drop_later(1, Box::new(Tells(tell.clone(), 1, Some(until))));
        later.drop_later(1, Box::new(Tells(tell.clone(), 2, None)));
        later.drop_later(2, Box::new(Tells(tell, 3, None)));
        let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
        let mut soon = [next(), next()];
        soon.sort_unstable();
        assert_eq!(soon, [2, 3]);
        release.send(()).unwrap();
        assert_eq!(next(), 1);
    }

    /// One user has more that never ends than there are threads for all; another's goes all the same, and what is
    /// left of the first one's goes when the others have ended.
    #[test]
    fn one_users_drops_that_never_end_stop_no_other_users() {
        let later = DeferredDrop::begin();
        let (tell, told) = mpsc::channel();
        let (many, last) = (SLOW_OF_USER_MAX as u32 + 4, 1000);
        let releases: Vec<_> = (0..many)
            .map(|number| {
                let (release, until) = mpsc::channel();
                later.drop_later(1, Box::new(Tells(tell.clone(), number, Some(until))));
                release
            })
            .collect();
        later.drop_later(1, Box::new(Tells(tell.clone(), last, None)));
        later.drop_later(2, Box::new(Tells(tell, last + 1, None)));
        let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(next(), last + 1);
        // Long enough for all of the first one's to have their turn, had it no limit.
        std::thread::sleep(PATIENCE * (many + 2));
        assert!(told.try_recv().is_err(), "behind those that never end");
        releases.iter().for_each(|release| release.send(()).unwrap());
        let mut rest: Vec<u32> = (0..=many).map(|_| next()).collect();
        rest.sort_unstable();
        assert_eq!(rest, (0..many).chain([last]).collect::<Vec<_>>());
    }
}
