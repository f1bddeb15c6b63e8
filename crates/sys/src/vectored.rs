//! Reading and writing at addresses that are nobody's Rust memory: parts of mappings that other
//! processes may write at any time, which a reference must not point to.
//!
//! Called by `shm`, which knows that the addresses are mapped.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// An address and a length (`struct iovec`).
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Part(libc::iovec);

impl Part {
    /// `length_bytes` bytes from `start` on.
    #[must_use]
    pub fn new(start: *mut u8, length_bytes: usize) -> Self {
        Self(libc::iovec { iov_base: start.cast(), iov_len: length_bytes })
    }
}

/// `readv(2)`.
///
/// # Errors
/// As the kernel says; `WouldBlock` when nothing is there.
///
/// # Safety
/// Every part is mapped and may be written by this process throughout the call.
pub unsafe fn read(fd: BorrowedFd<'_>, parts: &[Part]) -> io::Result<usize> {
    let count = libc::c_int::try_from(parts.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `parts` is an array of `count` iovecs; where they point is the caller's promise.
    let answer = unsafe { libc::readv(fd.as_raw_fd(), parts.as_ptr().cast(), count) };
    usize::try_from(answer).map_err(|_negative| io::Error::last_os_error())
}

/// `writev(2)`.
///
/// # Errors
/// As the kernel says; `WouldBlock` when there is no room.
///
/// # Safety
/// Every part is mapped and may be read by this process throughout the call.
pub unsafe fn write(fd: BorrowedFd<'_>, parts: &[Part]) -> io::Result<usize> {
    let count = libc::c_int::try_from(parts.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `parts` is an array of `count` iovecs; where they point is the caller's promise.
    let answer = unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr().cast(), count) };
    usize::try_from(answer).map_err(|_negative| io::Error::last_os_error())
}
