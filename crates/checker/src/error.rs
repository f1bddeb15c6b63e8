//! Why a model could not be checked.

use std::path::PathBuf;

use crew::ExchangeError;
use statespace::ThreadFailed;
use statespace::partition::RankError;
use sys::durable::DurableError;
use thiserror::Error;

use crate::checkpoint::why;

/// Why a model could not be checked. The messages name the options of `clearstream check`.
#[derive(Debug, Error)]
pub enum CheckError {
    /// Options that do not go together, or do not fit the model.
    #[error("{0}")]
    Options(&'static str),
    /// A formula cannot be read, or does not fit the model.
    #[error("{0}")]
    Formula(String),
    /// The checkpoint to go on with cannot be read, or is of another search.
    #[error("--resume {}: {why}", path.display())]
    Resume {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A rank cannot go on with its part of a checkpoint.
    #[error("--resume, rank {rank}: {why}")]
    ResumePart {
        /// The rank.
        rank: usize,
        /// Its file, and what is wrong with it.
        why: String,
    },
    /// The checkpoint cannot be written.
    #[error("--checkpoint {}", why(.0))]
    Checkpoint(DurableError),
    /// Some rank cannot write its part of the checkpoint.
    #[error("--checkpoint {0}")]
    CheckpointPart(String),
    /// There are more states than one search can number.
    #[error("the model has more than 4 294 967 295 states: one search cannot number more")]
    TooManyStates,
    /// There are more states than threads over one set of states can number.
    #[error(
        "the model has more than 2.08e9 states, the limit of threads over one set; --messages gives each rank its own set"
    )]
    SetFull,
    /// The trace that a search by ranks found shows no violation: an error of this program.
    #[error("internal error: the trace shows no violation")]
    NoViolation,
    /// A thread's rank panicked.
    #[error("a rank panicked")]
    Panicked,
    /// A thread that searched with others panicked.
    #[error(transparent)]
    ThreadFailed(ThreadFailed),
    /// A rank met a failure of its own.
    #[error(transparent)]
    Rank(DriveError),
    /// This rank of a job cannot do what rank 0 asks.
    #[error("rank {me}: {error}")]
    Served {
        /// Its number.
        me: usize,
        /// What failed.
        error: DriveError,
    },
}

impl CheckError {
    /// Whether the request is wrong, and not what it was tried on.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Options(_) | Self::Formula(_) | Self::Resume { .. } | Self::ResumePart { .. }
        )
    }
}

/// Why a rank could not go on.
#[derive(Debug, Error)]
pub enum DriveError {
    /// The ranks can no longer reach each other.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The search was stopped, and the other ranks did not stop in time: why it was stopped.
    #[error("{0}")]
    NotStopped(String),
    /// The search ended without an outcome: an error of this program.
    #[error("internal error: rank 0 has no outcome")]
    NoOutcome,
    /// Rank 0 sent an order that this rank cannot read.
    #[error("rank 0 sent an unknown order: do all hosts run the same version?")]
    UnknownOrder,
    /// A thread of the rank panicked.
    #[error("a rank panicked")]
    Panicked,
    /// A thread of the rank could not go on, because another panicked.
    #[error(transparent)]
    ThreadFailed(ThreadFailed),
    /// The rank itself cannot go on.
    #[error("{}", show_rank_error(*.0))]
    Rank(RankError),
}

impl From<RankError> for DriveError {
    fn from(error: RankError) -> Self {
        Self::Rank(error)
    }
}

fn show_rank_error(error: RankError) -> String {
    match error {
        RankError::StoreFull => CheckError::TooManyStates.to_string(),
        RankError::MalformedMessage { from } => {
            format!("rank {from} sent a malformed message: do all hosts run the same version?")
        }
    }
}
