//! Why a lab is refused.

use std::io;
use std::path::PathBuf;

use sys::SyscallError;
use thiserror::Error;

use crate::file::LabFileError;

/// Why a lab could not be brought up, entered, asked or taken down.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The lab file is wrong.
    #[error(transparent)]
    File(#[from] LabFileError),
    /// There is no such file.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Neither a file nor a lab that comes with the program.
    #[error("no lab '{name}'; built in: {known}; or give a file, NAME.toml")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A lab of that name is up, made from something else.
    #[error(
        "lab '{name}' is up with another plan; take it down first: clearstream lab down {name}"
    )]
    OtherPlan {
        /// Its name.
        name: String,
    },
    /// It goes with a process, and so serves nobody else.
    #[error(
        "lab '{name}' belongs to process {pid} and goes with it; wait for its end, or: \
         clearstream lab down {name}"
    )]
    Owned {
        /// Its name.
        name: String,
        /// The process.
        pid: i32,
    },
    /// Something of it is to run where nothing can.
    #[error("{whose}: core {core}: this machine has none, or this process may not run there")]
    NoCore {
        /// What: `host near`, `link near-far`, `switch lan`.
        whose: String,
        /// Where.
        core: u32,
    },
    /// The process that a lab is to go with does not run.
    #[error("no process {0} for the lab to go with")]
    NoOwner(i32),
    /// It is not up.
    #[error("lab '{name}' is not up; bring it up with: clearstream lab up {name}")]
    NotUp {
        /// Its name.
        name: String,
    },
    /// No lab was named and not exactly one is up.
    #[error("which lab? {up}")]
    Ambiguous {
        /// Those that are up.
        up: String,
    },
    /// The lab has no such host.
    #[error("lab '{lab}' has no host '{host}'; it has {known}")]
    UnknownHost {
        /// The lab.
        lab: String,
        /// What was asked for.
        host: String,
        /// Those there are.
        known: String,
    },
    /// A host has no such port, or it cannot fail so.
    #[error("{host}: {why}")]
    Port {
        /// The host.
        host: String,
        /// What is wrong.
        why: String,
    },
    /// It fails already.
    #[error("{what} already; end that first: clearstream lab mend")]
    Fails {
        /// The host and how.
        what: String,
    },
    /// There is nothing to mend.
    #[error("host {host} does not fail{how}: nothing to mend")]
    FailsNot {
        /// The host.
        host: String,
        /// ` by hang`, or nothing.
        how: String,
    },
    /// The kernel or its administrator does not let this user do it.
    #[error("{what}; {advice}")]
    NotPermitted {
        /// What failed.
        what: String,
        /// What to do about it.
        advice: String,
    },
    /// The lab's process said why it could not come up.
    #[error("lab did not come up: {0}")]
    NotStarted(String),
    /// A server did not begin to listen.
    #[error("nobody listens on port {port} of host {host}: {why}")]
    NoListener {
        /// The host.
        host: String,
        /// The TCP port.
        port: u16,
        /// What became of the server.
        why: String,
    },
    /// A file of the lab's state could not be read or written.
    #[error("{action} {path}")]
    State {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Somebody else has, or may have, prepared this user's runtime folder.
    #[error(transparent)]
    Folder(#[from] sys::private::PrivateError),
    /// A system call failed.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// Another process could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// Which.
        program: String,
        /// Why.
        source: io::Error,
    },
}

impl LabError {
    /// Whether what is missing is a privilege or a kernel feature (exit code 4).
    #[must_use]
    pub fn is_missing_privilege(&self) -> bool {
        match self {
            Self::NotPermitted { .. } => true,
            // A limit of 0 on namespaces is a way to forbid them: ENOSPC (namespaces(7)).
            Self::Syscall(error) => error.is_privilege() || error.call == "unshare",
            _ => false,
        }
    }

    /// Whether the request itself is wrong (exit code 2).
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::File(_)
                | Self::Unknown { .. }
                | Self::Unreadable { .. }
                | Self::UnknownHost { .. }
                | Self::Port { .. }
                | Self::Ambiguous { .. }
                | Self::NoOwner(_)
                | Self::NoCore { .. }
        )
    }

    pub(crate) fn state(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::State { action, path, source }
    }
}
