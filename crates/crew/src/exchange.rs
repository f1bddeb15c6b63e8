//! What carries messages between ranks.

use std::fmt;
use std::time::Duration;

use mpi::{MpiError, World};
use thiserror::Error;

use crate::collective::CollectiveError;

/// Carries messages between ranks. Messages from one rank to another arrive in the order in which they
/// were sent.
pub trait Exchange {
    /// Sends a message; does not wait until it has arrived.
    ///
    /// # Errors
    /// The ranks can no longer reach each other.
    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), ExchangeError>;

    /// The next message and the rank that sent it; waits for one at most so long.
    ///
    /// # Errors
    /// The ranks can no longer reach each other.
    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Vec<u8>)>, ExchangeError>;

    /// Tells the other ranks that this one is alive, and looks whether they are, while this rank does
    /// something else. To be called a few times a second. Messages that arrive are kept.
    ///
    /// # Errors
    /// The ranks can no longer reach each other.
    fn keep_alive(&mut self) -> Result<(), ExchangeError>;
}

/// Why ranks can no longer reach each other.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ExchangeError {
    /// No sign of life came from a rank in time.
    #[error("rank {rank} sent nothing for {seconds} s and is considered lost")]
    Silent {
        /// Its number.
        rank: usize,
        /// How long it was waited for, seconds.
        seconds: u64,
    },
    /// A rank did not confirm that the job is over.
    #[error("a rank did not confirm the end of the job")]
    NoLeave,
    /// Another thread's rank failed.
    #[error("a rank failed")]
    Failed,
    /// Another thread's rank panicked.
    #[error("a rank panicked")]
    Panicked,
    /// Another rank ended the job.
    #[error("another rank has ended the job")]
    Ended,
    /// Rank 0 sent an order that is no order of a job.
    #[error("rank 0 sent an unknown order: do all hosts run the same version?")]
    UnknownOrder,
    /// A collective operation failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// MPI failed.
    #[error(transparent)]
    Mpi(#[from] MpiError),
}

/// What a [`Job`](crate::Job) sends its messages over: messages with tags, those from one rank to another
/// in order.
pub trait Transport: fmt::Debug {
    /// This rank's number.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Sends a message; does not wait until it has arrived. Tags are 0 to 32 767.
    ///
    /// # Errors
    /// The transport failed.
    fn send(&mut self, to: usize, tag: i32, message: Vec<u8>) -> Result<(), ExchangeError>;

    /// A message that has arrived, if any: sender, tag, bytes. Never waits.
    ///
    /// # Errors
    /// The transport failed.
    fn receive(&mut self) -> Result<Option<(usize, i32, Vec<u8>)>, ExchangeError>;

    /// Leaves the job in good order. May end the process with `code` where the transport cannot be left;
    /// all output must have been written.
    fn finish(self, code: u8);

    /// Ends all ranks of the job with `code`; ends the process where a rank is one.
    fn abort(self, code: u8);

    /// Whether a launcher that was told to end the job reports success unless a rank ends the job
    /// before it does.
    fn is_end_taken_for_success(&self) -> bool;

    /// Makes sure that the launcher ends soon, after the job lost a rank.
    fn end_launcher_soon(&self);
}

impl Transport for World {
    fn rank(&self) -> usize {
        self.rank()
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn send(&mut self, to: usize, tag: i32, message: Vec<u8>) -> Result<(), ExchangeError> {
        Ok(self.send(to, tag, message)?)
    }

    fn receive(&mut self) -> Result<Option<(usize, i32, Vec<u8>)>, ExchangeError> {
        self.reap()?;
        Ok(self.receive()?)
    }

    fn finish(self, code: u8) {
        // The job's result has been reported; an error of MPI's end does not change it.
        self.finish(code).ok();
    }

    fn abort(self, code: u8) {
        self.abort(code);
    }

    fn is_end_taken_for_success(&self) -> bool {
        self.flavour() == mpi::Flavour::Mpich
    }

    fn end_launcher_soon(&self) {
        crate::orphan::end_launcher_soon(self.flavour());
    }
}
