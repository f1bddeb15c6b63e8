//! Byte-range locks of files, and closing a file with what the file system says about it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

/// What a lock keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Others may read under a lock of their own, but not write.
    Shared,
    /// Others may do neither.
    Exclusive,
    /// No lock: an earlier one of this process is given up.
    None,
}

/// Bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte of the range.
    pub start: u64,
    /// How many; 0: all from there on.
    pub length: u64,
}

/// Locks bytes of a file for this process (`fcntl(2)`, `F_SETLK` and `F_SETLKW`), or unlocks them. With
/// `waits` it returns once no other process holds a conflicting lock.
///
/// # Errors
/// `EAGAIN` or `EACCES`: another process holds a conflicting lock, and `waits` is false. `EINTR`: a signal
/// came while it waited. Anything else: the file system has no such locks, or its service failed.
pub fn lock_range(
    file: impl AsFd,
    kind: LockKind,
    range: ByteRange,
    waits: bool,
) -> io::Result<()> {
    let too_far = |_large| io::Error::from(io::ErrorKind::InvalidInput);
    let lock_type = match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
        LockKind::None => libc::F_UNLCK,
    };
    let lock = libc::flock {
        l_type: lock_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: i64::try_from(range.start).map_err(too_far)?,
        l_len: i64::try_from(range.length).map_err(too_far)?,
        l_pid: 0,
    };
    let command = if waits { libc::F_SETLKW } else { libc::F_SETLK };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: `fd` is open through the call, because `file` is borrowed; `lock` is initialised and lives
    // through the call, which only reads it for these commands.
    let answer = unsafe { libc::fcntl(fd, command, &raw const lock) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes a file. Some file systems report only here that data was lost on its way to the server.
///
/// # Errors
/// The system's reason; the file is closed all the same.
pub fn close(file: OwnedFd) -> io::Result<()> {
    let fd = file.into_raw_fd();
    // SAFETY: `fd` was owned here alone and is not used again, whatever the answer.
    let answer = unsafe { libc::close(fd) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_locked_and_unlocked_by_its_process() {
        let fd = rustix::fs::memfd_create("lock", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        let range = ByteRange { start: 10, length: 5 };
        for kind in [LockKind::Exclusive, LockKind::Shared, LockKind::None] {
            lock_range(&fd, kind, range, false).expect("nobody else is there");
        }
        let far = ByteRange { start: u64::MAX, length: 1 };
        let refused = lock_range(&fd, LockKind::Exclusive, far, false);
        assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::InvalidInput));
        let reader = rustix::fs::open(
            "/proc/self/status",
            rustix::fs::OFlags::RDONLY,
            rustix::fs::Mode::empty(),
        )
        .expect("readable");
        assert!(
            lock_range(&reader, LockKind::Exclusive, range, false).is_err(),
            "not open to write"
        );
        close(fd).expect("closed");
    }
}
