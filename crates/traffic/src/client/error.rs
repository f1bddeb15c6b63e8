//! What can be in the way of a client, each in one line.

use std::error::Error as StdError;
use std::io;

use thiserror::Error;

use super::Target;
use crate::control::{LinkError, Refusal, RefusalCode};
use crate::engine::EngineError;

/// Why a client did not get what it asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The name has no address.
    #[error("unknown host '{host}' ({reason})")]
    UnknownHost {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// A link-local address without the interface it is meant for.
    #[error("{host} is the same on every link; add its interface: {host}%eth0")]
    NoInterface {
        /// The address.
        host: String,
    },
    /// Nothing listens there.
    #[error("nothing listens on {target}; start {start} there")]
    NothingListens {
        /// `host port N`.
        target: String,
        /// The commands that start a server, for a user to read.
        start: String,
    },
    /// The network gives no connection.
    #[error("no connection to {target}")]
    Unreachable {
        /// `host port N`.
        target: String,
        /// Why.
        source: io::Error,
    },
    /// No answer in time.
    #[error("{target} does not answer (a firewall, or no such host)")]
    Timeout {
        /// `host port N`.
        target: String,
    },
    /// It accepts connections and never says what it is.
    #[error("{target} accepts connections and says nothing: {what}")]
    Mute {
        /// `host port N`.
        target: String,
        /// What it is not, for a user to read.
        what: String,
    },
    /// Something else listens there.
    #[error("what listens on {target} is {what}")]
    Foreign {
        /// `host port N`.
        target: String,
        /// What it is not, for a user to read.
        what: String,
    },
    /// Another major version.
    #[error("{target} runs another version of clearstream's protocol: {reason}")]
    Version {
        /// `host port N`.
        target: String,
        /// Which.
        reason: String,
    },
    /// The server turns the request down.
    #[error("{target} refuses: {refusal}")]
    Refused {
        /// `host port N`.
        target: String,
        /// Why.
        refusal: Refusal,
    },
    /// What takes this end's packets in could not be moved.
    #[error(transparent)]
    Move(#[from] crate::interrupts::MoveError),
    /// The connection broke.
    #[error("lost {target}")]
    Lost {
        /// `host port N`.
        target: String,
        /// How.
        source: LinkError,
    },
    /// Nothing comes any more.
    #[error("{target} has gone silent")]
    Silent {
        /// `host port N`.
        target: String,
    },
    /// It says what makes no sense here.
    #[error("{target} does not keep to the protocol ({what})")]
    Unexpected {
        /// `host port N`.
        target: String,
        /// What.
        what: String,
    },
    /// The far end could not do it.
    #[error("{target}: {reason}")]
    Far {
        /// `host port N`.
        target: String,
        /// Why.
        reason: String,
    },
    /// This end could not do it.
    #[error("this end cannot run the test")]
    Engine(#[from] EngineError),
    /// A system call here failed.
    #[error("{what}")]
    Socket {
        /// For what.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A test in another protocol failed, or that protocol cannot do it.
    #[error("the {protocol} server at {target}: {source}")]
    ForeignTest {
        /// The protocol's name.
        protocol: &'static str,
        /// `address:port`.
        target: String,
        /// In that protocol's words.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The server speaks another protocol, which has nothing of the kind.
    #[error(
        "{target} is a stock {protocol} server and cannot {what}; run `clearstream serve` there"
    )]
    Unsupported {
        /// `host port N`.
        target: String,
        /// The protocol's name.
        protocol: &'static str,
        /// What it cannot do.
        what: &'static str,
    },
    /// Our own server, of a version without this extension.
    #[error("{target} runs clearstream {version}, which lacks the extension to {what}")]
    NoExtension {
        /// `host port N`.
        target: String,
        /// Its version.
        version: String,
        /// What it cannot do.
        what: &'static str,
    },
    /// The user stopped it before it had begun.
    #[error("stopped before the test began")]
    Stopped,
}

impl ClientError {
    pub(super) fn socket(what: impl Into<String>, source: io::Error) -> Self {
        Self::Socket { what: what.into(), source }
    }

    pub(super) fn refused(target: &Target, refusal: Refusal) -> Self {
        let target = target.to_string();
        if refusal.code == RefusalCode::Version {
            Self::Version { target, reason: refusal.reason }
        } else {
            Self::Refused { target, refusal }
        }
    }

    /// Whether the request itself was at fault.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.code == RefusalCode::BadRequest)
    }

    /// Whether a privilege was missing at this end.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        match self {
            Self::Engine(EngineError::Syscall(error)) => error.is_privilege(),
            Self::Socket { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}
