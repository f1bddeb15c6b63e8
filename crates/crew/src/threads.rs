//! Ranks as threads of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use crate::bind::bind_thread;
use crate::exchange::{Exchange, ExchangeError};

/// One thread's end of the channels between all ranks. Messages are moved, not copied.
#[derive(Debug)]
pub struct Channels {
    me: usize,
    senders: Vec<Sender<(usize, Vec<u8>)>>,
    receiver: Receiver<(usize, Vec<u8>)>,
    /// Some rank has failed.
    has_failed: Arc<AtomicBool>,
}

impl Channels {
    /// The ends of `count` ranks.
    fn ends(count: usize) -> Vec<Self> {
        let has_failed = Arc::new(AtomicBool::new(false));
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
        let end = |(me, receiver)| Self {
            me,
            senders: senders.clone(),
            receiver,
            has_failed: has_failed.clone(),
        };
        receivers.into_iter().enumerate().map(end).collect()
    }

    /// This rank's number.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks_count(&self) -> usize {
        self.senders.len()
    }
}

impl Exchange for Channels {
    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), ExchangeError> {
        // A rank that has ended receives nothing; whether it failed is told by the flag.
        self.senders[to].send((self.me, message)).ok();
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Vec<u8>)>, ExchangeError> {
        let message = match self.receiver.try_recv() {
            Err(TryRecvError::Empty) if !wait.is_zero() => match self.receiver.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => None,
                other => other.ok(),
            },
            other => other.ok(),
        };
        if message.is_none() {
            self.keep_alive()?;
        }
        Ok(message)
    }

    fn keep_alive(&mut self) -> Result<(), ExchangeError> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(ExchangeError::Failed);
        }
        Ok(())
    }
}

/// Raises the flag when its thread ends in any way but a good one.
struct Alarm(Option<Arc<AtomicBool>>);

impl Alarm {
    fn watch<T, E>(exchange: Channels, run: impl FnOnce(Channels) -> Result<T, E>) -> Result<T, E> {
        let mut alarm = Self(Some(exchange.has_failed.clone()));
        let done = run(exchange)?;
        alarm.0 = None;
        Ok(done)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(flag) = &self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

/// How ranks that were threads ended.
#[derive(Debug)]
pub struct ThreadsEnd<R, E> {
    /// Rank 0.
    pub lead: Result<R, E>,
    /// The other ranks, from 1 on; a panic is [`ExchangeError::Panicked`].
    pub others: Vec<Result<(), E>>,
}

/// Runs `count` ranks: `lead`, rank 0, on the caller's thread, `other` on threads of their own. They are
/// bound to `cores` where there are any. When a rank fails or panics, the others are told by their
/// [`Channels`].
///
/// # Panics
/// When `count` is 0; when `lead` panics, after the others have ended.
pub fn run_threads<R, E: From<ExchangeError> + Send>(
    count: usize,
    cores: &[u32],
    lead: impl FnOnce(Channels) -> Result<R, E>,
    other: impl Fn(Channels) -> Result<(), E> + Sync,
) -> ThreadsEnd<R, E> {
    assert!(count > 0, "no rank to run");
    let mut all = Channels::ends(count);
    let run = |exchange: Channels| {
        if let Some(&core) = cores.get(exchange.me) {
            bind_thread(core);
        }
        Alarm::watch(exchange, &other)
    };
    thread::scope(|scope| {
        let run = &run;
        let others: Vec<_> =
            all.drain(1..).map(|exchange| scope.spawn(move || run(exchange))).collect();
        if let Some(&core) = cores.first() {
            bind_thread(core);
        }
        let lead = Alarm::watch(all.remove(0), lead);
        let panicked = |_panic| E::from(ExchangeError::Panicked);
        let others = others.into_iter().map(|one| one.join().map_err(panicked).flatten()).collect();
        ThreadsEnd { lead, others }
    })
}
