//! Something borrowed from the host that goes back even if this process is killed.
//!
//! A [`Guard`] is a small process of its own: it holds what there was before, waits until the pipe
//! to this process closes, whoever closes it, puts everything back and ends. Undoing and dying take
//! the same way, so the way that matters is the one that is always used.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::SyscallError;

/// What to put back.
#[derive(Debug, Default)]
pub struct Before {
    /// Files to be written to, from their start, and with what.
    pub files: Vec<(File, Vec<u8>)>,
    /// Threads of this process-id namespace and the cores they may run on, below 1024.
    pub threads: Vec<(i32, Vec<u32>)>,
    /// Files to be emptied once everything is back. The guard holds them open until then, and with them
    /// any lock (`flock(2)`) that this process has on them.
    pub emptied: Vec<File>,
}

/// Puts things back when it goes, or when this process does.
#[derive(Debug)]
pub struct Guard {
    /// Its other end is the guard's; closing ours tells it.
    pipe: Option<OwnedFd>,
    child: libc::pid_t,
}

/// 1024 cores, as the kernel takes them.
type Mask = [u64; 16];

impl Guard {
    /// Starts a guard. To be called before the first change.
    ///
    /// # Errors
    /// No process or pipe is to be had.
    pub fn start(before: &Before) -> Result<Self, SyscallError> {
        let refused = |error| SyscallError::new("pipe2", "guard", error);
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(refused)?;
        // Everything the child needs is made here: after the fork it may not allocate.
        let files: Vec<(i32, &[u8])> =
            before.files.iter().map(|(file, text)| (file.as_raw_fd(), text.as_slice())).collect();
        let threads: Vec<(libc::pid_t, Mask)> =
            before.threads.iter().map(|(pid, cores)| (*pid, mask_of(cores))).collect();
        let emptied: Vec<i32> = before.emptied.iter().map(AsRawFd::as_raw_fd).collect();
        let theirs = reader.as_raw_fd();
        let needed = files.iter().map(|(file, _)| *file).chain(emptied.iter().copied());
        let others = all_but(needed.chain([theirs]));
        // SAFETY: the child makes only async-signal-safe calls on memory prepared above, and ends
        // with `_exit`; it never returns from `watch`.
        let child = unsafe { libc::fork() };
        match child {
            0 => watch(theirs, &others, &files, &threads, &emptied),
            -1 => Err(SyscallError::last("fork", "guard")),
            child => Ok(Self { pipe: Some(writer), child }),
        }
    }

    /// Puts everything back now.
    ///
    /// # Errors
    /// Something would not go back; the rest has.
    pub fn undo(mut self) -> Result<(), SyscallError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), SyscallError> {
        if self.pipe.take().is_none() {
            return Ok(());
        }
        let mut status = 0;
        loop {
            // SAFETY: `status` is writable; the child is ours and nobody else waits for it.
            let answer = unsafe { libc::waitpid(self.child, &raw mut status, 0) };
            if answer == self.child {
                break;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The kernel buries this process's children unasked: it has ended.
                Some(libc::ECHILD) => return Ok(()),
                _ => return Err(SyscallError::new("waitpid", "guard", error)),
            }
        }
        if status == 0 {
            return Ok(());
        }
        let source = io::Error::other("not everything could be restored");
        Err(SyscallError::new("guard", "restore", source))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Who wants to know calls `undo`.
        self.end().ok();
    }
}

fn mask_of(cores: &[u32]) -> Mask {
    let mut mask = [0; 16];
    for core in cores {
        if let Some(word) = mask.get_mut((*core / 64) as usize) {
            *word |= 1 << (*core % 64);
        }
    }
    mask
}

/// The descriptors between and beyond those that are needed; the standard three stay.
fn all_but(needed: impl Iterator<Item = i32>) -> Vec<(u32, u32)> {
    let mut needed: Vec<u32> = needed.filter_map(|fd| u32::try_from(fd).ok()).collect();
    needed.sort_unstable();
    let mut ranges = Vec::new();
    let mut first = 3;
    for fd in needed {
        if fd > first {
            ranges.push((first, fd - 1));
        }
        first = first.max(fd + 1);
    }
    ranges.push((first, u32::MAX));
    ranges
}

/// The child's whole life.
fn watch(
    pipe: i32,
    others: &[(u32, u32)],
    files: &[(i32, &[u8])],
    threads: &[(libc::pid_t, Mask)],
    emptied: &[i32],
) -> ! {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a valid signal, and ignoring it needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: no argument; refused only to a group's leader, which a new process is not.
    unsafe { libc::setsid() };
    for (first, last) in others {
        // SAFETY: these are this process's copies; the parent's sockets and files stay open. A
        // kernel before 5.9 refuses, and then they only close later.
        unsafe { libc::syscall(libc::SYS_close_range, *first, *last, 0) };
    }
    let mut byte = 0_u8;
    loop {
        // SAFETY: `byte` is writable for one byte.
        let got = unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) };
        // Nobody writes: this is the end of the pipe, or a signal.
        if got >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            break;
        }
    }
    let mut failed = false;
    for (file, text) in files {
        // SAFETY: `text` is readable for its length.
        let put = unsafe { libc::pwrite(*file, text.as_ptr().cast(), text.len(), 0) };
        failed |= usize::try_from(put) != Ok(text.len());
    }
    for (thread, mask) in threads {
        // SAFETY: `mask` is readable for its size.
        let answer =
            unsafe { libc::sched_setaffinity(*thread, size_of::<Mask>(), mask.as_ptr().cast()) };
        failed |= answer != 0;
    }
    for file in emptied.iter().filter(|_| !failed) {
        // SAFETY: no memory is passed; a file that cannot be emptied only says that all is to be put
        // back once more.
        unsafe { libc::ftruncate(*file, 0) };
    }
    for file in emptied {
        // SAFETY: no memory is passed. Ending would not unlock while another process being forked still
        // has a copy.
        unsafe { libc::flock(*file, libc::LOCK_UN) };
    }
    // SAFETY: ends this process at once, running nothing of the parent's.
    unsafe { libc::_exit(i32::from(failed)) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_changed_goes_back() {
        let path = std::env::temp_dir().join(format!("guard-{}", std::process::id()));
        fs::write(&path, "before").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let before = Before { files: vec![(file, b"before".to_vec())], ..Before::default() };
        let guard = Guard::start(&before).unwrap();
        fs::write(&path, "after!").unwrap();
        guard.undo().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        let guard = Guard::start(&before).unwrap();
        fs::write(&path, "after!").unwrap();
        drop(guard);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn descriptors_nobody_needs_are_closed() {
        assert_eq!(all_but([7, 4].into_iter()), [(3, 3), (5, 6), (8, u32::MAX)]);
        assert_eq!(all_but([3].into_iter()), [(4, u32::MAX)]);
        assert_eq!(all_but([].into_iter()), [(3, u32::MAX)]);
    }

    #[test]
    fn what_cannot_go_back_is_said() {
        let gone = Before { threads: vec![(i32::MAX, vec![0])], ..Before::default() };
        assert!(Guard::start(&gone).unwrap().undo().is_err());
    }
}
