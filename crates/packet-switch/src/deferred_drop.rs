//! Deferred drops of what takes long to drop: memory of gigabytes, sockets of devices, bells of clients.
//!
//! Unmapping a region whose other users have gone gives its pages back one by one. The end of an
//! `AF_XDP` socket or a TAP device waits for every core (`synchronize_net`). The last close of a bell waits
//! for the lock of every epoll set that it is in, and a client may hold that for as long as it likes. None of
//! that is for a thread on which others wait, so threads of their own do it: one, and another beside it
//! for whatever the first has not ended in [`PATIENCE`].

use std::any::Any;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::panics;

type Item = Box<dyn Any + Send>;

/// Most drops that take long at once; with more, the others wait.
const SLOW_MAX: usize = 64;
/// After so long the next drop begins beside one that has not ended.
const PATIENCE: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Passes objects to the threads that drop them; without those they are dropped at once.
#[derive(Debug, Default, Clone)]
pub(crate) struct DeferredDrop {
    sender: Option<Sender<Item>>,
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
    pub(crate) fn held() -> (Self, Receiver<Item>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender: Some(sender) }, receiver)
    }

    /// Lets go of it, soon.
    pub(crate) fn drop_later(&self, what: Item) {
        if let Some(sender) = &self.sender {
            // The thread ends only with the last sender.
            sender.send(what).ok();
        }
    }
}

fn supervise(items: &Receiver<Item>) {
    let mut slow: Vec<JoinHandle<()>> = Vec::new();
    // One is there from the beginning: a daemon at rest has as many threads before its first drop as after.
    let mut worker = Worker::begin();
    while let Ok(item) = items.recv() {
        let Some(at_work) = worker.take().or_else(Worker::begin) else {
            // No thread to be had: it goes here.
            panics::caught(|| drop(item)).ok();
            continue;
        };
        match at_work.drop_in_time(item) {
            Ok(free) => worker = Some(free),
            Err(thread) => slow.push(thread),
        }
        while slow.len() >= SLOW_MAX {
            std::thread::sleep(LOOK_EVERY);
            slow.retain(|thread| !thread.is_finished());
        }
        slow.retain(|thread| !thread.is_finished());
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
        later.drop_later(Box::new(Tells(tell.clone(), 1, Some(until))));
        later.drop_later(Box::new(Tells(tell.clone(), 2, None)));
        later.drop_later(Box::new(Tells(tell, 3, None)));
        let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!([next(), next()], [2, 3]);
        release.send(()).unwrap();
        assert_eq!(next(), 1);
    }
}
