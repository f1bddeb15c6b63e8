//! The errors of a client, each in one line.

use std::error::Error as StdError;
use std::io;

use results::{End, Finding, TestOutcome};
use thiserror::Error;

use super::Target;
use crate::control::{LinkError, Refusal, RefusalCode};
use crate::engine::EngineError;

/// Code of the finding in the outcome of a test that the far end cut short.
pub const CUT_SHORT: &str = "cut-short";

/// Why a client did not get what it requested.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The name has no address.
    #[error("unknown host '{host}' ({reason})")]
    UnknownHost {
        /// The name.
        host: String,
        /// The resolver's reason.
        reason: String,
    },
    /// A link-local address without an interface.
    #[error("{host} is the same on every link; add its interface: {host}%eth0")]
    NoInterface {
        /// The address.
        host: String,
    },
    /// Nothing listens at the address.
    #[error("nothing listens on {target}; start {start} there")]
    NothingListens {
        /// `host port N`.
        target: String,
        /// The commands that start a server, for a user to read.
        start: String,
    },
    /// The network does not permit a connection.
    #[error("no connection to {target}")]
    Unreachable {
        /// `host port N`.
        target: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// No answer arrived in time.
    #[error("{target} does not answer (a firewall, or no such host)")]
    Timeout {
        /// `host port N`.
        target: String,
    },
    /// The server accepts connections but sends nothing.
    #[error("{target} accepts connections but does not answer: {what}")]
    Mute {
        /// `host port N`.
        target: String,
        /// What it is not, for a user to read.
        what: String,
    },
    /// The server speaks an unknown protocol.
    #[error("what listens on {target} is {what}")]
    Foreign {
        /// `host port N`.
        target: String,
        /// What it is not, for a user to read.
        what: String,
    },
    /// The server speaks another major version of the protocol.
    #[error("{target} runs another version of clearstream's protocol: {reason}")]
    Version {
        /// `host port N`.
        target: String,
        /// Which versions the two ends speak.
        reason: String,
    },
    /// The server refuses the request.
    #[error("{target} refuses: {refusal}")]
    Refused {
        /// `host port N`.
        target: String,
        /// The server's reason.
        refusal: Refusal,
    },
    /// The interrupts or threads that receive this end's packets could not be moved.
    #[error(transparent)]
    Move(#[from] crate::interrupts::MoveError),
    /// The connection broke.
    #[error("lost {target}")]
    Lost {
        /// `host port N`.
        target: String,
        /// The error of the connection.
        source: LinkError,
    },
    /// The server no longer sends anything.
    #[error("{target} no longer responds")]
    Silent {
        /// `host port N`.
        target: String,
    },
    /// The server sent a message that is not valid at this point.
    #[error("{target} violates the protocol ({what})")]
    Unexpected {
        /// `host port N`.
        target: String,
        /// What it sent or did.
        what: String,
    },
    /// The far end failed.
    #[error("{target}: {reason}")]
    Far {
        /// `host port N`.
        target: String,
        /// The far end's reason.
        reason: String,
    },
    /// The test began, and the far end ended it or was lost before its time.
    #[error("the test ended early")]
    CutShort {
        /// Why.
        source: Box<ClientError>,
        /// What had been measured by then; without the far end's report if it did not come.
        measured: Box<TestOutcome>,
    },
    /// This end cannot run the test.
    #[error("this end cannot run the test")]
    Engine(#[from] EngineError),
    /// A system call failed at this end.
    #[error("{what}")]
    Socket {
        /// The object or operation that it was for.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A test in another protocol failed, or that protocol does not support it.
    #[error("the {protocol} server at {target}: {source}")]
    ForeignTest {
        /// The protocol's name.
        protocol: &'static str,
        /// `address:port`.
        target: String,
        /// The error of that protocol.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The server speaks another protocol, which does not offer the requested function.
    #[error(
        "{target} is a stock {protocol} server and cannot {what}; run `clearstream serve` there"
    )]
    Unsupported {
        /// `host port N`.
        target: String,
        /// The protocol's name.
        protocol: &'static str,
        /// The function that it lacks.
        what: &'static str,
    },
    /// Our own server, in a version without this extension.
    #[error("{target} runs clearstream {version}, which lacks the extension to {what}")]
    NoExtension {
        /// `host port N`.
        target: String,
        /// Version of the server's program.
        version: String,
        /// The function that it lacks.
        what: &'static str,
    },
    /// The user stopped the test before it began.
    #[error("stopped before the test began")]
    Stopped,
}

impl ClientError {
    pub(super) fn socket(what: impl Into<String>, source: io::Error) -> Self {
        Self::Socket { what: what.into(), source }
    }

    /// A test that ended early because of `why`. The outcome keeps the reason as a finding.
    pub(super) fn cut_short(why: Self, mut measured: TestOutcome) -> Self {
        measured.near_mut().findings.push(Finding {
            end: Some(End::Far),
            code: CUT_SHORT.to_owned(),
            text: format!("the test ended early: {why}"),
        });
        Self::CutShort { source: Box::new(why), measured: Box::new(measured) }
    }

    pub(super) fn refused(target: &Target, refusal: Refusal) -> Self {
        let target = target.to_string();
        if refusal.code == RefusalCode::Version {
            Self::Version { target, reason: refusal.reason }
        } else {
            Self::Refused { target, refusal }
        }
    }

    /// Whether the request itself was invalid.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.code == RefusalCode::BadRequest)
    }

    /// Whether this end lacked a privilege.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        match self {
            Self::Engine(EngineError::Syscall(error)) => error.is_privilege(),
            Self::Socket { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}
