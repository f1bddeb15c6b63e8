use std::io;

use thiserror::Error;

/// A system call that failed: which one, for what, and the kernel's answer as the source.
#[derive(Debug, Error)]
#[error("{call} {object}{}", .detail.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
pub struct SyscallError {
    /// The call, as its manual page is named: `setsockopt(SO_RCVBUFFORCE)`.
    pub call: &'static str,
    /// What it was for: an interface, a path, a number.
    pub object: String,
    /// What the kernel says about its answer, where it says anything: netlink does.
    pub detail: Option<String>,
    /// The kernel's error.
    pub source: io::Error,
}

impl SyscallError {
    /// From the thread's `errno`, to be called right after the failing call.
    pub fn last(call: &'static str, object: impl Into<String>) -> Self {
        Self::new(call, object, io::Error::last_os_error())
    }

    /// From an error already in hand.
    pub fn new(
        call: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self { call, object: object.into(), detail: None, source: source.into() }
    }

    /// Whether the kernel refused for want of a privilege.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EPERM | libc::EACCES))
    }
}
