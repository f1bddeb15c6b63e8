//! Short messages of a burst wait for further ones. A program that then makes no call would leave them waiting, so
//! a thread sends them soon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::endpoint::Looked;
use crate::fence::Shared;
use crate::presence::without_signals;

/// How often the thread looks while messages wait now and then.
const TICK: Duration = Duration::from_micros(100);
/// Looks in a row that found none, after which it sleeps until one waits.
const IDLE_TICKS: u32 = 50;

/// What the endpoint and its thread share.
#[derive(Debug, Default)]
struct Signal {
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

/// The thread of an endpoint, which runs from the first message that waits.
#[derive(Debug)]
pub(crate) struct Backstop {
    shared: Weak<Shared>,
    index: usize,
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
    has_failed: bool,
}

impl Backstop {
    /// For the endpoint of this number.
    pub(crate) fn new(shared: &Arc<Shared>, index: usize) -> Self {
        let signal = Arc::default();
        Self { shared: Arc::downgrade(shared), index, signal, thread: None, has_failed: false }
    }

    /// A message waits. False: no thread can be had, so it must not.
    pub(crate) fn watch(&mut self) -> bool {
        if let Some(thread) = &self.thread {
            if self.signal.is_asleep.load(Ordering::SeqCst) {
                self.signal.is_asleep.store(false, Ordering::SeqCst);
                thread.thread().unpark();
            }
            return true;
        }
        if self.has_failed {
            return false;
        }
        let (shared, index, signal) = (self.shared.clone(), self.index, Arc::clone(&self.signal));
        let builder = std::thread::Builder::new().name("clearstream-fi".to_owned());
        self.thread = without_signals(|| builder.spawn(move || run(&shared, index, &signal))).ok();
        self.has_failed = self.thread.is_none();
        !self.has_failed
    }
}

impl Drop for Backstop {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.signal.is_over.store(true, Ordering::SeqCst);
        thread.thread().unpark();
        if thread.thread().id() != std::thread::current().id() {
            thread.join().ok();
        }
    }
}

fn run(shared: &Weak<Shared>, index: usize, signal: &Signal) {
    let mut idle_ticks = 0;
    while !signal.is_over.load(Ordering::SeqCst)
        && let Some(shared) = shared.upgrade()
    {
        let looked = look(&shared, index);
        drop(shared);
        if looked == Looked::Busy {
            idle_ticks = 0;
            signal.is_asleep.store(false, Ordering::SeqCst);
        } else {
            idle_ticks += 1;
        }
        if idle_ticks < IDLE_TICKS {
            std::thread::park_timeout(TICK);
        } else if !signal.is_asleep.swap(true, Ordering::SeqCst) {
            // A message that began to wait before this is found by one more look; a later one wakes the thread.
        } else {
            std::thread::park();
            idle_ticks = 0;
        }
    }
}

/// The program is in a call that may send: it counts as busy, and nothing is done.
fn look(shared: &Shared, index: usize) -> Looked {
    let Some(mut state) = shared.try_lock() else { return Looked::Busy };
    let endpoint = state.endpoints.get_mut(index).and_then(Option::as_mut);
    endpoint.map_or(Looked::Idle, |endpoint| endpoint.look_after_waiting())
}
