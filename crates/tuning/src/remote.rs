//! What one end asks of the other end's settings over the control connection, and the answers. The
//! server runs [`handle`] only when it was started with permission to tune.

use serde::{Deserialize, Serialize};

use crate::engine::{Change, Outcome, Policy, RevertOutcome};
use crate::key::Key;
use crate::tuner::{StatusLine, TuneError, Tuner, Undo};

/// Most changes or keys of one request.
const COUNT_MAX: usize = 256;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// Make changes.
    Apply {
        /// The changes; files are refused: a far host keeps nothing across its boots.
        changes: Vec<Change>,
        /// What to do when one fails.
        #[serde(default)]
        policy: Policy,
    },
    /// Undo changes.
    Revert {
        /// Of these settings; empty: all.
        #[serde(default)]
        keys: Vec<Key>,
        /// How.
        #[serde(default)]
        how: Undo,
    },
    /// How the changes stand.
    Status,
    /// Values of settings.
    Read {
        /// Of these.
        keys: Vec<Key>,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// What became of the changes.
    Applied {
        /// Each.
        outcomes: Vec<Outcome>,
        /// What rolling back left behind.
        #[serde(default)]
        left: Vec<RevertOutcome>,
    },
    /// What became of undoing.
    Reverted {
        /// Each.
        outcomes: Vec<RevertOutcome>,
    },
    /// How the changes stand.
    Status {
        /// Each.
        lines: Vec<StatusLine>,
    },
    /// Values; those the host does not have are left out.
    Values {
        /// Each.
        values: Vec<(Key, String)>,
    },
    /// Nothing could be done.
    Failed {
        /// One line.
        reason: String,
    },
}

/// Does what is asked on this host.
#[must_use]
pub fn handle(tuner: &Tuner, request: &Request) -> Answer {
    let answer = match request {
        Request::Apply { changes, .. } if changes.len() > COUNT_MAX => {
            return too_many(changes.len());
        }
        Request::Apply { changes, .. }
            if changes.iter().any(|change| matches!(change.key, Key::File(_))) =>
        {
            return Answer::Failed { reason: "files are not written for another host".to_owned() };
        }
        Request::Apply { changes, policy } => tuner
            .apply(changes, *policy, false, &mut |_step| {})
            .map(|applied| Answer::Applied { outcomes: applied.outcomes, left: applied.left }),
        Request::Revert { keys, .. } | Request::Read { keys } if keys.len() > COUNT_MAX => {
            return too_many(keys.len());
        }
        Request::Revert { keys, how } => {
            tuner.revert(keys, *how, &mut |_step| {}).map(|outcomes| Answer::Reverted { outcomes })
        }
        Request::Status => tuner.status().map(|lines| Answer::Status { lines }),
        Request::Read { keys } => {
            Ok(Answer::Values { values: tuner.read(keys).into_iter().collect() })
        }
    };
    answer.unwrap_or_else(|error: TuneError| Answer::Failed { reason: error.to_string() })
}

fn too_many(count: usize) -> Answer {
    Answer::Failed { reason: format!("{count} settings at once are more than {COUNT_MAX}") }
}
