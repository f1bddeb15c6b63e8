//! Ranks as threads of this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use dve::Model;
use statespace::partition::Outcome;

use super::{DriveError, Exchange, ExchangeError, ModelRank, Task, bind, drive, keep};

/// Messages as they are, from hand to hand.
struct Channels<'a> {
    me: usize,
    senders: Vec<Sender<(usize, Vec<u8>)>>,
    receiver: Receiver<(usize, Vec<u8>)>,
    /// Some rank has failed.
    has_failed: &'a AtomicBool,
}

impl Exchange for Channels<'_> {
    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), ExchangeError> {
        // A rank that has ended hears no more; whether it failed is told by the flag.
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
        if message.is_none() && self.has_failed.load(Ordering::Relaxed) {
            return Err(ExchangeError::Lost("a rank failed".to_owned()));
        }
        Ok(message)
    }

    fn stay(&mut self) -> Result<(), ExchangeError> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(ExchangeError::Lost("a rank failed".to_owned()));
        }
        Ok(())
    }
}

/// Raises the flag when its thread ends in any way but a good one.
struct Alarm<'a>(Option<&'a AtomicBool>);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(flag) = self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

/// Searches a model by so many threads, bound to these cores if there are any; `look` belongs to rank 0, which is the caller's thread.
pub(super) fn search(
    model: &Model,
    task: &Task<'_>,
    ranks_count: usize,
    cores: &[u32],
    look: impl FnMut(&mut ModelRank<'_>) -> Result<(), ExchangeError>,
) -> Result<Outcome, DriveError> {
    let has_failed = AtomicBool::new(false);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..ranks_count).map(|_| channel()).unzip();
    let mut all: Vec<Channels<'_>> = receivers
        .into_iter()
        .enumerate()
        .map(|(me, receiver)| Channels {
            me,
            senders: senders.clone(),
            receiver,
            has_failed: &has_failed,
        })
        .collect();
    let run = |mut exchange: Channels<'_>| {
        let mut alarm = Alarm(Some(&has_failed));
        if let Some(&core) = cores.get(exchange.me) {
            bind::bind_thread(core);
        }
        let me = exchange.me;
        let mut rank = keep::begin(model, task, (me, ranks_count), &mut exchange)?;
        drive(&mut rank, &mut exchange, (task.files, me), |_| Ok(()))?;
        alarm.0 = None;
        Ok(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = all.drain(1..).map(|exchange| scope.spawn(|| run(exchange))).collect();
        let lead = all.remove(0);
        if let Some(&core) = cores.first() {
            bind::bind_thread(core);
        }
        let outcome = lead_search(model, task, ranks_count, lead, look);
        if outcome.is_err() {
            has_failed.store(true, Ordering::Relaxed);
        }
        for other in others {
            // Why a rank failed says more than that it is gone.
            match other.join() {
                Ok(Err(error @ DriveError::Rank(_))) => return Err(error),
                Ok(_) => {}
                Err(_panic) => return Err(ExchangeError::Lost("a rank panicked".to_owned()).into()),
            }
        }
        outcome
    })
}

fn lead_search(
    model: &Model,
    task: &Task<'_>,
    ranks_count: usize,
    mut exchange: Channels<'_>,
    look: impl FnMut(&mut ModelRank<'_>) -> Result<(), ExchangeError>,
) -> Result<Outcome, DriveError> {
    let mut rank = keep::begin(model, task, (0, ranks_count), &mut exchange)?;
    drive(&mut rank, &mut exchange, (task.files, 0), look)?;
    rank.outcome().ok_or_else(|| ExchangeError::Lost("rank 0 has no outcome".to_owned()).into())
}
