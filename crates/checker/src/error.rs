//! Why a model could not be checked.

use std::path::PathBuf;

use crew::ExchangeError;
use statespace::Gone;
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
    #[error("more than 4 294 967 295 states: no number is left for another")]
    TooManyStates,
    /// There are more states than threads over one set of states can number.
    #[error("more states than one set has numbers for: --messages gives each rank its own")]
    SetFull,
    /// The run that a search by ranks found shows nothing: an error of this program.
    #[error("the run shows no broken promise")]
    NoViolation,
    /// A thread's rank panicked.
    #[error("a rank panicked")]
    Panicked,
    /// A thread that searched with others is gone.
    #[error(transparent)]
    Gone(Gone),
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
    #[error("rank 0 has no outcome")]
    NoOutcome,
    /// Rank 0 sent an order that this rank cannot read.
    #[error("rank 0 asks for what this rank does not know")]
    UnknownOrder,
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
        RankError::Full => CheckError::TooManyStates.to_string(),
        RankError::NoMessage { from } => format!("rank {from} sent what no rank of ours sends"),
    }
}
