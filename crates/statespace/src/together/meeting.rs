//! Where threads wait for each other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Looks at the round before a thread sleeps: some 50 µs, so that short levels cost no system calls.
const SPINS: usize = 500;

/// A thread of the search panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a thread of the search failed")]
pub struct ThreadFailed;

/// All threads arrive; the last one decides what comes next and opens it for the others.
#[derive(Debug)]
pub(super) struct Meeting {
    threads_count: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    is_broken: AtomicBool,
    sleeping: Mutex<usize>,
    bell: Condvar,
}

impl Meeting {
    pub(super) fn new(threads_count: usize) -> Self {
        Self {
            threads_count,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
            sleeping: Mutex::new(0),
            bell: Condvar::new(),
        }
    }

    /// True for the last one at once, who must [`Self::open`]; false for the others when that is done.
    pub(super) fn arrive(&self) -> Result<bool, ThreadFailed> {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads_count {
            self.arrived.store(0, Ordering::Relaxed);
            return self.unless_broken(true);
        }
        let is_over = || self.round.load(Ordering::Acquire) != round || self.is_broken();
        for _ in 0..SPINS {
            if is_over() {
                return self.unless_broken(false);
            }
            (0..8).for_each(|_| std::hint::spin_loop());
        }
        let mut sleeping = self.sleeping();
        *sleeping += 1;
        while !is_over() {
            sleeping = self.bell.wait(sleeping).unwrap_or_else(PoisonError::into_inner);
        }
        *sleeping -= 1;
        self.unless_broken(false)
    }

    /// Lets all go on.
    pub(super) fn open(&self) {
        self.round.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Who waits, waits in vain.
    pub(super) fn break_up(&self) {
        self.is_broken.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // Whoever is about to sleep looks once more with the lock in hand.
        if *self.sleeping() > 0 {
            self.bell.notify_all();
        }
    }

    fn sleeping(&self) -> MutexGuard<'_, usize> {
        self.sleeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread is gone.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn unless_broken(&self, is_last: bool) -> Result<bool, ThreadFailed> {
        if self.is_broken() { Err(ThreadFailed) } else { Ok(is_last) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn none_goes_on_before_all_are_there() {
        const ROUNDS: usize = 300;
        for threads_count in 1..=4 {
            let meeting = Meeting::new(threads_count);
            let (steps, led) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let run = || {
                for round in 1..=ROUNDS {
                    steps.fetch_add(1, Ordering::Relaxed);
                    let is_last = meeting.arrive().unwrap();
                    assert!(steps.load(Ordering::Relaxed) >= round * threads_count);
                    if is_last {
                        led.fetch_add(1, Ordering::Relaxed);
                        meeting.open();
                    }
                }
            };
            thread::scope(|scope| (0..threads_count).for_each(|_| drop(scope.spawn(run))));
            assert_eq!(led.into_inner(), ROUNDS);
        }
    }

    #[test]
    fn who_waits_for_one_that_is_gone_is_told() {
        let meeting = Meeting::new(2);
        thread::scope(|scope| {
            let waits = scope.spawn(|| meeting.arrive());
            meeting.break_up();
            assert_eq!(waits.join().unwrap(), Err(ThreadFailed));
        });
    }
}
