//! Why a test ended before it was whole.

use std::io;

use crew::ExchangeError;
use thiserror::Error;

/// Why a test ended before it was whole.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A call on a file failed.
    #[error("rank {rank} on {host}: {operation} {path}{place}: {source}")]
    Call {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// What was called: `write`, `open`.
        operation: &'static str,
        /// The file.
        path: String,
        /// ` at byte 4096`, or nothing.
        place: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A transfer moved less than it should.
    #[error(
        "rank {rank} on {host}: {operation} {path} at byte {offset}: {moved} of {wanted} bytes"
    )]
    Short {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// What was called.
        operation: &'static str,
        /// The file.
        path: String,
        /// Where the transfer began, bytes.
        offset: u64,
        /// Bytes moved.
        moved: u64,
        /// Bytes to be moved.
        wanted: u64,
    },
    /// A call has not returned for too long.
    #[error(
        "rank {rank} on {host}: {what} has not returned for {seconds:.1} s: the file system \
         hangs (limit: --stall-limit)"
    )]
    Stalled {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// The call and the file.
        what: String,
        /// How long it has been waited for, seconds.
        seconds: f64,
    },
    /// Another rank failed.
    #[error("{0}")]
    Other(String),
    /// A signal ended the test.
    #[error("interrupted by {}", sys::signal::named(*.0))]
    Interrupted(i32),
    /// A rank did not finish in an orderly way.
    #[error("rank {rank} panicked")]
    Panicked {
        /// The rank.
        rank: usize,
    },
    /// The ranks do not understand each other.
    #[error("rank {rank} sent a malformed message")]
    Malformed {
        /// Its sender.
        rank: usize,
    },
    /// A file that is not under test: a status file, a summary.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The options make no test on these ranks.
    #[error("{0}")]
    Usage(String),
    /// The ranks can no longer reach each other.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}
