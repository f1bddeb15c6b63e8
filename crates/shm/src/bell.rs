//! Waking a sleeper.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::{Errno, ReadWriteFlags};
use sys::SyscallError;
use sys::eventfd::Signaller;

/// An eventfd that one side rings and the other waits for. Ringing twice wakes once.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
}

impl Bell {
    /// A new one.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> Result<Self, SyscallError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = rustix::event::eventfd(0, flags)
            .map_err(|error| SyscallError::new("eventfd", "bell", error))?;
        Ok(Self { fd })
    }

    /// One that another process made. Whatever descriptor it really is, ringing and waiting do no
    /// harm here beyond an error.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Another handle to the same bell.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn share(&self) -> Result<Self, SyscallError> {
        let fd = self.fd.try_clone().map_err(|error| SyscallError::new("dup", "bell", error))?;
        Ok(Self { fd })
    }

    /// Wakes the waiting process, or the next one to wait.
    ///
    /// # Errors
    /// The descriptor is not an eventfd. A bell that was rung too often to count is rung.
    pub fn ring(&self) -> Result<(), SyscallError> {
        match rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(SyscallError::new("write", "bell", error)),
        }
    }

    /// As [`ring`](Self::ring), and never waits, whatever whoever shares the descriptor has made of it.
    ///
    /// # Errors
    /// The descriptor is not an eventfd, or the kernel has no memory.
    pub fn ring_by(&self, signaller: &Signaller) -> Result<(), SyscallError> {
        let failed = |error| SyscallError::new("io_submit", "bell", error);
        signaller.signal(self.fd.as_fd()).map_err(failed)
    }

    /// Forgets that it was rung.
    ///
    /// # Errors
    /// The descriptor is not an eventfd.
    pub fn clear(&self) -> Result<(), SyscallError> {
        match rustix::io::read(&self.fd, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(SyscallError::new("read", "bell", error)),
        }
    }

    /// As [`clear`](Self::clear), and does not block even when somebody who shares the descriptor has
    /// made it a blocking one.
    ///
    /// # Errors
    /// The descriptor is not an eventfd.
    pub fn clear_now(&self) -> Result<(), SyscallError> {
        let mut counter = [0; 8];
        let mut into = [IoSliceMut::new(&mut counter)];
        // An eventfd has no position: the kernel takes minus one for "none".
        match rustix::io::preadv2(&self.fd, &mut into, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(SyscallError::new("preadv2", "bell", error)),
        }
    }

    /// Whether a plain write to it would wait: somebody who shares the descriptor has filled it to the brim.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let mut set = [PollFd::new(&self.fd, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut set, Some(&now)).is_ok()
            && !set[0].revents().contains(PollFlags::OUT)
    }

    /// Sleeps until it rings, and forgets that it did; false when `timeout` passed first. A signal
    /// ends the sleep as a ring does.
    ///
    /// # Errors
    /// The descriptor is not an eventfd.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, SyscallError> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut set = [PollFd::new(&self.fd, PollFlags::IN)];
        match rustix::event::poll(&mut set, timeout.as_ref()) {
            Ok(0) => Ok(false),
            Ok(_) => self.clear().map(|()| true),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(SyscallError::new("poll", "bell", error)),
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    #[test]
    fn rings_add_up_to_one() {
        let bell = Bell::new().unwrap();
        assert!(!bell.wait(Some(Duration::ZERO)).unwrap());
        bell.ring().unwrap();
        bell.share().unwrap().ring().unwrap();
        assert!(bell.wait(None).unwrap());
        assert!(!bell.wait(Some(Duration::from_millis(1))).unwrap());
    }

    /// A blocking eventfd whose counter is full: `ring` would hang, so somebody else must empty it.
    #[test]
    fn a_jammed_bell_is_freed_from_outside() {
        let bell = Bell::new().unwrap();
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(&bell, rustix::fs::OFlags::empty()).unwrap();
        let ringer = bell.share().unwrap();
        let ringing = std::thread::spawn(move || ringer.ring());
        while !ringing.is_finished() {
            bell.clear_now().unwrap();
        }
        ringing.join().unwrap().unwrap();
        bell.clear_now().unwrap();
        bell.clear_now().expect("an empty one does not block either");
    }

    /// The same, rung by a signaller: it needs nobody to free it.
    #[test]
    fn a_jammed_bell_makes_no_signaller_wait() {
        let bell = Bell::new().unwrap();
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(&bell, rustix::fs::OFlags::empty()).unwrap();
        let signaller = Signaller::new().unwrap();
        (0..1000).for_each(|_| bell.ring_by(&signaller).unwrap());
        assert!(bell.wait(Some(Duration::ZERO)).unwrap(), "it is rung");
        assert!(!bell.wait(Some(Duration::ZERO)).unwrap());
        bell.ring_by(&signaller).unwrap();
        assert!(bell.wait(None).unwrap());
    }

    #[test]
    fn a_bell_rung_beyond_counting_still_rings() {
        let bell = Bell::new().unwrap();
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        bell.ring().unwrap();
        assert!(bell.wait(None).unwrap());
    }
}
