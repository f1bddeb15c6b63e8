//! Descriptors of kinds that a program rarely has: for tests of what becomes of them elsewhere.

use std::os::fd::{FromRawFd, OwnedFd};

use crate::SyscallError;

/// One that reads `SIGUSR2` of whoever asks, when it is blocked; which it need not be to exist.
///
/// # Errors
/// `signalfd` failed.
pub fn signal() -> Result<OwnedFd, SyscallError> {
    // SAFETY: all-zero is a valid signal set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable and the number is a signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGUSR2) };
    // SAFETY: -1 asks for a new descriptor; `set` is initialised and lives through the call.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
    adopt(fd.into(), "signalfd")
}

/// An `io_uring` of two entries.
///
/// # Errors
/// The kernel has none, or not for this user.
pub fn ring() -> Result<OwnedFd, SyscallError> {
    let mut parameters = [0_u8; 256];
    // SAFETY: `io_uring_params` is 120 bytes, all of which may be zero; the kernel writes no more than that.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, parameters.as_mut_ptr()) };
    adopt(fd, "io_uring_setup")
}

/// One that is told of page faults of this process, as far as any user may have it.
///
/// # Errors
/// The kernel has none, or not for this user.
pub fn page_faults() -> Result<OwnedFd, SyscallError> {
    const USER_MODE_ONLY: libc::c_int = 1;
    // SAFETY: takes flags only.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    adopt(fd, "userfaultfd")
}

fn adopt(fd: libc::c_long, call: &'static str) -> Result<OwnedFd, SyscallError> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made it, and nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(SyscallError::last(call, "")),
    }
}
