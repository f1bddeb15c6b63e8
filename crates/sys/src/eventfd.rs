//! Eventfds that other processes hold too, counted up without ever waiting for them.
//!
//! Whether `write(2)` to an eventfd may wait is a flag of its open file, which everybody shares who holds
//! it: a hostile holder clears `O_NONBLOCK`, fills the counter, and the next who writes sleeps for as long
//! as that holder likes. No call of the kernel's writes to one with a flag of its own (`RWF_NOWAIT` is
//! refused, Linux 6.18). But the kernel itself counts eventfds up when an asynchronous request completes
//! (`IOCB_FLAG_RESFD`), and the kernel never waits: a counter that is full stays full. So a [`Signaller`]
//! makes a request that completes at once and does nothing, and names the eventfd to be told of it.
//!
//! Called by `shm`, for the bells of the packet switch's clients.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::SyscallError;

/// `struct iocb` of `include/uapi/linux/aio_abi.h`.
#[repr(C)]
struct Request {
    data: u64,
    /// Two words whose order depends on the machine's; both are 0 here.
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length_bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    /// The eventfd that is told.
    told: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    data: u64,
    request: u64,
    outcome: i64,
    more: i64,
}

const _: () = assert!(size_of::<Request>() == 64 && size_of::<Completion>() == 32);

/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;
/// `IOCB_FLAG_RESFD`.
const TELL: u32 = 1;
/// Completions that may lie in the kernel's ring before they are thrown away.
const RING: usize = 64;
/// How often a full ring is emptied for one signal. Other threads may fill it in between, if this one is kept from
/// its core just then.
const TRIES: usize = 64;

/// Counts eventfds up by one each. Any thread of the process may use it.
#[derive(Debug)]
pub struct Signaller {
    /// The kernel's number for the ring of completions.
    context: libc::c_ulong,
    /// An eventfd of our own that is always empty: to read from it ends at once, with nothing.
    empty: OwnedFd,
}

fn own_eventfd() -> Result<OwnedFd, SyscallError> {
    // SAFETY: takes integers only.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(SyscallError::last("eventfd", "signaller"));
    }
    // SAFETY: the kernel has just made it, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Signaller {
    /// A new one, with a ring of its own.
    ///
    /// # Errors
    /// The kernel has no asynchronous requests (`CONFIG_AIO`, `ENOSYS`), something that confines this
    /// process forbids them (`EPERM`), or the host's are used up (`fs.aio-max-nr`, `EAGAIN`).
    pub fn new() -> Result<Self, SyscallError> {
        let (empty, told) = (own_eventfd()?, own_eventfd()?);
        let mut context: libc::c_ulong = 0;
        // SAFETY: `context` is writable and 0, as the call asks for.
        let answer = unsafe { libc::syscall(libc::SYS_io_setup, RING, &raw mut context) };
        if answer != 0 {
            return Err(SyscallError::last("io_setup", "signaller"));
        }
        let signaller = Self { context, empty };
        // Kernels before 5.8 make a ring and refuse such requests.
        let refused = |error| SyscallError::new("io_submit", "signaller", error);
        signaller.signal(told.as_fd()).map_err(refused)?;
        Ok(signaller)
    }

    /// Counts `eventfd` up by one, or leaves it full; whoever waits for it wakes. Returns at once, whatever
    /// others do with it.
    ///
    /// # Errors
    /// The descriptor is not an eventfd, or the kernel has no memory.
    pub fn signal(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        for _ in 0..TRIES {
            match self.submit(eventfd) {
                // The ring is full of completions that nobody needs.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => self.forget(),
                answer => return answer,
            }
        }
        self.submit(eventfd)
    }

    fn submit(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        let number = |fd: i32| fd.cast_unsigned();
        let mut counter = 0_u64;
        let mut request = Request {
            data: 0,
            key_and_flags: 0,
            opcode: READ,
            priority: 0,
            file: number(self.empty.as_raw_fd()),
            buffer: (&raw mut counter).addr() as u64,
            length_bytes: size_of::<u64>() as u64,
            offset: 0,
            reserved: 0,
            flags: TELL,
            told: number(eventfd.as_raw_fd()),
        };
        let requests = [&raw mut request];
        // SAFETY: `requests` is an array of one pointer to a whole request, which the kernel reads and whose
        // `key` it writes before it returns. The read of a non-blocking eventfd completes within the call,
        // so nothing refers to `request` or `counter` afterwards.
        let answer =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1_usize, requests.as_ptr()) };
        if answer == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Reads and discards the completions.
    fn forget(&self) {
        let mut space = [Completion { data: 0, request: 0, outcome: 0, more: 0 }; RING];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            // SAFETY: `space` has room for as many completions as are asked for, and the time is readable.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    0_usize,
                    space.len(),
                    space.as_mut_ptr(),
                    &raw const at_once,
                )
            };
            if got < RING as libc::c_long {
                return;
            }
        }
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        // SAFETY: takes a number that is ours; no request is under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eventfd(count: u64, flags: libc::c_int) -> OwnedFd {
        // SAFETY: takes integers only.
        let fd = unsafe { libc::eventfd(0, flags) };
        assert!(fd >= 0);
        // SAFETY: just made, nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::write(&fd, &count.to_ne_bytes()).unwrap();
        fd
    }

    fn count(fd: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(fd, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn a_full_one_that_blocks_makes_nobody_wait() {
        let signaller = Signaller::new().unwrap();
        let full = eventfd(u64::MAX - 1, 0);
        // More often than the ring of completions is long.
        for _ in 0..10_000 {
            signaller.signal(full.as_fd()).unwrap();
        }
        assert_eq!(count(&full), u64::MAX);
    }

    #[test]
    fn each_signal_counts_one() {
        let signaller = Signaller::new().unwrap();
        let fd = eventfd(1, libc::EFD_NONBLOCK);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| signaller.signal(fd.as_fd()).unwrap()));
            }
        });
        assert_eq!(count(&fd), 2001);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(signaller.signal(file.as_fd()).is_err(), "no eventfd");
    }
}
