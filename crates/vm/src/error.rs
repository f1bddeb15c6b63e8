//! Why a guest is refused.

use std::io;
use std::path::PathBuf;

use packet_switch::client::ClientError;
use packet_switch::passthrough::PassthroughError;
use ports::xdp::OpenError;
use sys::SyscallError;
use thiserror::Error;

/// Why a guest could not be started, found, asked or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VmError {
    /// The request itself makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A program that guests need is not installed.
    #[error("{program} is missing ({what}; Debian package {package})")]
    NoProgram {
        /// Which.
        program: String,
        /// What for.
        what: &'static str,
        /// Where it comes from.
        package: &'static str,
    },
    /// There is nothing to boot.
    #[error("no guest image in {}: make one with `clearstream vm image`", .0.display())]
    NoImage(PathBuf),
    /// The guest could not drive its port's rings.
    #[error(
        "the guest image has no ptnet driver: {0}; make it again with `clearstream vm image`, or use --type virtio"
    )]
    NoDriver(String),
    /// The image could not be made.
    #[error("the guest image was not made: {0}")]
    ImageNotMade(String),
    /// A guest of that name is up.
    #[error("guest '{name}' is up; end it first: clearstream vm down {name}")]
    IsUp {
        /// Its name.
        name: String,
    },
    /// No guest of that name is up.
    #[error("guest '{name}' is not up{known}")]
    NotUp {
        /// Its name.
        name: String,
        /// `; up are a, b`, or nothing.
        known: String,
    },
    /// Another guest has the device.
    #[error(
        "{device} is passed through to guest '{name}'; end it first: clearstream vm down {name}"
    )]
    DeviceTaken {
        /// The interface.
        device: String,
        /// That guest's name.
        name: String,
    },
    /// The process that a guest is to go with does not run.
    #[error("there is no process {0}, with which the guest was to end")]
    NoOwner(i32),
    /// Its keeper refuses to start it: a privilege or a kernel feature is missing.
    #[error("{0}")]
    Missing(String),
    /// Its keeper refuses to start it.
    #[error("{0}")]
    Refused(String),
    /// What a command says could not be written.
    #[error("output")]
    Output(#[source] io::Error),
    /// It did not start.
    #[error("guest did not start: {0}")]
    NotStarted(String),
    /// It did not become ready, and keeps running.
    #[error(
        "guest '{name}' is not ready after {limit_s} s; it keeps running; see: clearstream vm console {name}"
    )]
    NotReady {
        /// Its name.
        name: String,
        /// How long that was.
        limit_s: u64,
    },
    /// It ended while it was asked.
    #[error("guest '{name}' has ended{why}")]
    Ended {
        /// Its name.
        name: String,
        /// `: why`, or nothing.
        why: String,
    },
    /// It rebooted under a command.
    #[error("guest '{0}' rebooted before the command ended")]
    Rebooted(String),
    /// Its shell does not answer.
    #[error(
        "the shell of guest '{name}' does not answer within {limit_s} s; see: clearstream vm console {name}"
    )]
    Silent {
        /// Its name.
        name: String,
        /// How long that was.
        limit_s: u64,
    },
    /// It has no shell on its second serial port.
    #[error(
        "guest '{0}' has no shell on its second serial port: it does not boot the image of \
         `clearstream vm image` (docs/guests.md)"
    )]
    NoShell(String),
    /// Somebody else is at its console.
    #[error("another process has the console of guest '{0}'")]
    ConsoleTaken(String),
    /// The path of a socket is longer than the kernel takes.
    #[error("{} is {} bytes long; a socket's path has at most {most}: set XDG_RUNTIME_DIR to a shorter one", .path.display(), .path.as_os_str().len())]
    LongPath {
        /// The socket.
        path: PathBuf,
        /// Most bytes.
        most: usize,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The switch refuses, or is not there.
    #[error(transparent)]
    Switch(#[from] ClientError),
    /// A device's queue cannot be passed through.
    #[error(transparent)]
    Queue(#[from] PassthroughError),
    /// Somebody else has, or may have, prepared this user's runtime folder.
    #[error(transparent)]
    Folder(#[from] sys::private::PrivateError),
    /// A system call failed.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

impl VmError {
    /// Whether the request itself is wrong (exit code 2).
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Invalid(_) | Self::NoOwner(_))
    }

    /// Whether a program, a privilege or a kernel feature is missing (exit code 4).
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::NoProgram { .. }
            | Self::Missing(_)
            | Self::Queue(PassthroughError::Open(
                OpenError::Privilege(_) | OpenError::Kernel(_) | OpenError::Memory(_),
            )) => true,
            Self::Syscall(error) | Self::Switch(ClientError::Syscall(error)) => {
                error.is_privilege()
            }
            _ => false,
        }
    }

    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
