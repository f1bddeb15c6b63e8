//! What this machine itself did not do: on each core a thread that asks to be woken each millisecond, before
//! all others where it may, and writes down when it was not.
//!
//! A virtual machine stops as a whole or core by core for as long as its host likes. That is nobody's attack.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::spans::{Span, covered_ns, now_ns, union};

/// How often each core is looked at.
const TICK: Duration = Duration::from_millis(1);
/// Lateness that is written down.
const LATE_NS: u64 = 3_000_000;

#[derive(Debug)]
pub struct Machine {
    stop: Arc<AtomicBool>,
    stalls: Vec<Arc<Mutex<Vec<Span>>>>,
    threads: Vec<JoinHandle<()>>,
    /// The threads run before all others, so that what makes them late is no program.
    pub is_exact: bool,
}

impl Machine {
    pub fn watch() -> Self {
        let cores = sys::thread::usable_cores().unwrap_or_default();
        let stop = Arc::new(AtomicBool::new(false));
        let may = || sys::process::run_before_others().is_ok();
        let is_exact = std::thread::spawn(may).join().unwrap_or(false);
        let stalls: Vec<_> = cores.iter().map(|_| Arc::default()).collect();
        let tick = |(core, stalls): (&u32, &Arc<Mutex<Vec<Span>>>)| {
            let (core, stalls, stop) = (*core, Arc::clone(stalls), Arc::clone(&stop));
            std::thread::spawn(move || tick(core, &stalls, &stop))
        };
        let threads = cores.iter().zip(&stalls).map(tick).collect();
        Self { stop, stalls, threads, is_exact }
    }

    /// Share of the time since `from_ns` ([`now_ns`]) in which a core stood still, and forgets the stalls; none
    /// where that cannot be told from programs that run before these threads.
    pub fn stalled_share(&self, from_ns: u64) -> Option<f64> {
        let whole = Span { from_ns, to_ns: now_ns() };
        let stalled_ns = covered_ns(whole, &union(self.take_stalls()));
        self.is_exact.then(|| stalled_ns as f64 / whole.length_ns().max(1) as f64)
    }

    /// All stalls since the last call.
    pub fn take_stalls(&self) -> Vec<Span> {
        self.stalls.iter().flat_map(|stalls| std::mem::take(&mut *lock(stalls))).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

fn tick(core: u32, stalls: &Mutex<Vec<Span>>, stop: &AtomicBool) {
    // Without either a core's stall is seen by luck only: the control pair is still there.
    sys::thread::pin_current(&[core]).ok();
    sys::process::run_before_others().ok();
    sys::thread::timer_slack_ns(1).ok();
    while !stop.load(Ordering::Relaxed) {
        let from_ns = now_ns();
        std::thread::sleep(TICK);
        let to_ns = now_ns();
        if to_ns - from_ns > LATE_NS {
            lock(stalls).push(Span { from_ns, to_ns });
        }
    }
}

/// A thread that panicked leaves data that is as good as before.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
