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

/// `readv(2)`, without waiting, whatever the flags of the open file: somebody else may hold it too and change
/// them (`RWF_NOWAIT`; files that do not know that, and kernels before 5.8, go by their flags).
///
/// # Errors
/// As the kernel says; `WouldBlock` when nothing is there.
///
/// # Safety
/// Every part is mapped and may be written by this process throughout the call.
pub unsafe fn read(fd: BorrowedFd<'_>, parts: &[Part]) -> io::Result<usize> {
    let count = libc::c_int::try_from(parts.len()).unwrap_or(libc::c_int::MAX);
    let (fd, start) = (fd.as_raw_fd(), parts.as_ptr().cast());
    // SAFETY: `parts` is an array of `count` iovecs; where they point is the caller's promise.
    let answer = unsafe { libc::preadv2(fd, start, count, NO_POSITION, libc::RWF_NOWAIT) };
    if is_unknown(answer) {
        // SAFETY: as above.
        return outcome(unsafe { libc::readv(fd, start, count) });
    }
    outcome(answer)
}

/// `writev(2)`, without waiting, as [`read`].
///
/// # Errors
/// As the kernel says; `WouldBlock` when there is no room.
///
/// # Safety
/// Every part is mapped and may be read by this process throughout the call.
pub unsafe fn write(fd: BorrowedFd<'_>, parts: &[Part]) -> io::Result<usize> {
    let count = libc::c_int::try_from(parts.len()).unwrap_or(libc::c_int::MAX);
    let (fd, start) = (fd.as_raw_fd(), parts.as_ptr().cast());
    // SAFETY: `parts` is an array of `count` iovecs; where they point is the caller's promise.
    let answer = unsafe { libc::pwritev2(fd, start, count, NO_POSITION, libc::RWF_NOWAIT) };
    if is_unknown(answer) {
        // SAFETY: as above.
        return outcome(unsafe { libc::writev(fd, start, count) });
    }
    outcome(answer)
}

/// What the kernel takes for a file without a position, or for where it is.
const NO_POSITION: libc::off_t = -1;

fn outcome(answer: isize) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_negative| io::Error::last_os_error())
}

/// Whether the kernel, or this kind of file, does not know how not to wait.
fn is_unknown(answer: isize) -> bool {
    let unknown = [libc::EOPNOTSUPP, libc::ENOSYS];
    answer < 0
        && io::Error::last_os_error().raw_os_error().is_some_and(|one| unknown.contains(&one))
}
