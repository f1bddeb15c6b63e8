//! Ranks in one process that send each other messages as the ranks of an MPI job do: for tests of
//! what runs over a [`Job`](crate::Job).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::exchange::{ExchangeError, Transport};

/// Sender, tag, bytes.
type Message = (usize, i32, Vec<u8>);

/// One rank's end of a job in memory.
#[derive(Debug)]
pub struct MemoryTransport {
    rank: usize,
    senders: Vec<Sender<Message>>,
    receiver: Receiver<Message>,
    is_aborted: Arc<AtomicBool>,
}

impl MemoryTransport {
    /// The ends of a job of `count` ranks, one to be moved to each rank's thread.
    #[must_use]
    pub fn job(count: usize) -> Vec<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
        let is_aborted = Arc::new(AtomicBool::new(false));
        let end = |(rank, receiver)| Self {
            rank,
            senders: senders.clone(),
            receiver,
            is_aborted: is_aborted.clone(),
        };
        receivers.into_iter().enumerate().map(end).collect()
    }
}

impl Transport for MemoryTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.senders.len()
    }

    fn send(&mut self, to: usize, tag: i32, message: Vec<u8>) -> Result<(), ExchangeError> {
        // A rank that has ended receives nothing; its silence is noticed as that of a process is.
        self.senders[to].send((self.rank, tag, message)).ok();
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Message>, ExchangeError> {
        if self.is_aborted.load(Ordering::Relaxed) {
            return Err(ExchangeError::Ended);
        }
        Ok(self.receiver.try_recv().ok())
    }

    fn finish(self, _code: u8) {}

    fn abort(self, _code: u8) {
        self.is_aborted.store(true, Ordering::Relaxed);
    }

    fn is_end_taken_for_success(&self) -> bool {
        false
    }

    fn end_launcher_soon(&self) {}
}
