//! What one end asks of the other end's settings over the control connection, and the answers. The
//! server runs [`handle`] only when it was started with permission to tune.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use settings::{Change, Key};

use crate::engine::{Outcome, Policy, RevertOutcome};
use crate::tuner::{StatusLine, TuneError, Tuner, Undo};

/// Most keys of one request.
const KEYS_MAX: usize = 256;
/// Most changes of one request: whoever waits for the journal waits that long.
const CHANGES_MAX: usize = 64;

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

/// Does what a client from `client` asks on this host. It sees and undoes only what clients from there
/// have changed, and changes only what nobody else has; files are neither written nor read for it.
#[must_use]
pub fn handle(tuner: &Tuner, client: IpAddr, request: &Request) -> Answer {
    let tuner = tuner.for_client(client);
    let is_file = |key: &Key| matches!(key, Key::File(_));
    let answer = match request {
        Request::Apply { changes, .. } if changes.len() > CHANGES_MAX => {
            return too_many(changes.len(), CHANGES_MAX);
        }
        Request::Apply { changes, .. } if changes.iter().any(|change| is_file(&change.key)) => {
            return failed("a remote client cannot write files");
        }
        Request::Apply { changes, policy } => tuner
            .apply(changes, *policy, false, &mut |_step| {})
            .map(|applied| Answer::Applied { outcomes: applied.outcomes, left: applied.left }),
        Request::Revert { keys, .. } | Request::Read { keys } if keys.len() > KEYS_MAX => {
            return too_many(keys.len(), KEYS_MAX);
        }
        Request::Revert { keys, .. } | Request::Read { keys } if keys.iter().any(is_file) => {
            return failed("a remote client cannot read or remove files");
        }
        Request::Revert { how: Undo::Force, .. } => {
            return failed(
                "a remote client cannot force a revert; on the far host itself: \
                 clearstream tune revert --force",
            );
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

fn failed(reason: &str) -> Answer {
    Answer::Failed { reason: reason.to_owned() }
}

fn too_many(count: usize, most: usize) -> Answer {
    failed(&format!("{count} settings in one request; at most {most} are allowed"))
}
