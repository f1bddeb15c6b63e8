//! Descriptors of kinds that a program rarely has: for tests of what becomes of them elsewhere.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

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

/// Seconds until the events of a set are collected.
const PATIENCE_S: i64 = 5;

/// An epoll set that stays locked until this is dropped: a thread of this process collects its events into a page that
/// is never provided. The last close of each descriptor in the set waits for that lock.
#[derive(Debug)]
pub struct LockedEpoll {
    /// Told of the page's fault. Its end provides the page.
    faults: Option<OwnedFd>,
    collector: Option<JoinHandle<()>>,
    /// Unmapped last.
    _page: Page,
}

impl LockedEpoll {
    /// Locks a set of these descriptors, of which one must be readable.
    ///
    /// # Errors
    /// The kernel leaves its own faults to nobody (`userfaultfd`), or not to this user: root may; no descriptor is
    /// readable (`ETIMEDOUT`).
    pub fn around(fds: &[BorrowedFd<'_>]) -> Result<Self, SyscallError> {
        let failed = |call: &'static str| move |error: Errno| SyscallError::new(call, "", error);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create1"))?;
        for fd in fds {
            epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(failed("epoll_ctl"))?;
        }
        let page = Page::new()?;
        // SAFETY: takes flags only.
        let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let faults = adopt(faults, "userfaultfd")?;
        page.withhold(&faults)?;
        let place = page.start as usize;
        let collect = move || {
            let place = place as *mut libc::epoll_event;
            // SAFETY: the page is mapped, has room for so many events, is nobody else's, and is unmapped only after this
            // thread has ended.
            unsafe { libc::epoll_wait(set.as_raw_fd(), place, 1, -1) };
        };
        let collector = Some(std::thread::spawn(collect));
        // Dropped, it lets the thread go.
        let locked = Self { faults: Some(faults), collector, _page: page };
        if locked.is_waited_for()? {
            Ok(locked)
        } else {
            Err(failed("epoll_wait")(Errno::TIMEDOUT))
        }
    }

    /// Whether the page is wanted, at last.
    fn is_waited_for(&self) -> Result<bool, SyscallError> {
        let timeout = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
        let Some(faults) = &self.faults else { return Ok(false) };
        poll(&mut [PollFd::new(faults, PollFlags::IN)], Some(&timeout))
            .map(|count| count > 0)
            .map_err(|error| SyscallError::new("poll", "userfaultfd", error))
    }
}

impl Drop for LockedEpoll {
    fn drop(&mut self) {
        self.faults = None;
        if let Some(collector) = self.collector.take() {
            // Nothing in it panics.
            collector.join().ok();
        }
    }
}

/// A page of memory.
#[derive(Debug)]
struct Page {
    start: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: an address range that one value owns; which thread unmaps it makes no difference.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Result<Self, SyscallError> {
        let bytes = rustix::param::page_size();
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: asks for new memory anywhere.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(SyscallError::last("mmap", "a page"));
        }
        Ok(Self { start, bytes })
    }

    /// Has this descriptor told of the page's first use, which waits until the descriptor ends.
    fn withhold(&self, faults: &OwnedFd) -> Result<(), SyscallError> {
        /// `UFFDIO_API` and `UFFDIO_REGISTER` of `linux/userfaultfd.h`, the version, and for missing pages.
        const API: libc::c_ulong = 0xc018_aa3f;
        const REGISTER: libc::c_ulong = 0xc020_aa00;
        const VERSION: u64 = 0xaa;
        const MISSING: u64 = 1;
        let mut api = [VERSION, 0, 0];
        // SAFETY: `uffdio_api` is three words of 64 bits, which live through the call.
        let asked = unsafe { libc::ioctl(faults.as_raw_fd(), API, api.as_mut_ptr()) };
        if asked < 0 {
            return Err(SyscallError::last("ioctl", "userfaultfd"));
        }
        let mut range = [self.start as u64, self.bytes as u64, MISSING, 0];
        // SAFETY: `uffdio_register` is four words of 64 bits, which live through the call; the range is this page.
        let registered = unsafe { libc::ioctl(faults.as_raw_fd(), REGISTER, range.as_mut_ptr()) };
        if registered < 0 {
            return Err(SyscallError::last("ioctl", "userfaultfd"));
        }
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, of this length, and no thread uses it any more.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

fn adopt(fd: libc::c_long, call: &'static str) -> Result<OwnedFd, SyscallError> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made it, and nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(SyscallError::last(call, "")),
    }
}
