//! Sleeping until any of many bells rings.
//!
//! Edge-triggered: a ring is an event, whatever the counter says. So bells are never read, and there is
//! no call that a client could make block by emptying its bell first.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use shm::Bell;
use sys::SyscallError;

#[derive(Debug)]
pub(crate) struct Bed {
    fd: OwnedFd,
}

impl Bed {
    pub(crate) fn new(command_bell: &Bell) -> Result<Self, SyscallError> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| SyscallError::new("epoll_create1", "switch", error))?;
        let bed = Self { fd };
        bed.add(command_bell)?;
        Ok(bed)
    }

    pub(crate) fn add(&self, bell: impl AsFd) -> Result<(), SyscallError> {
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.fd, bell.as_fd(), epoll::EventData::new_u64(0), events)
            .map_err(|error| SyscallError::new("epoll_ctl", "bell", error))
    }

    pub(crate) fn remove(&self, bell: impl AsFd) {
        // One that is not there any more need not be removed.
        epoll::delete(&self.fd, bell.as_fd()).ok();
    }

    /// Until a bell rings that has not been slept through already, or that long.
    pub(crate) fn sleep(&self, longest: Option<Duration>) -> Result<(), SyscallError> {
        let longest = longest.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        match epoll::wait(&self.fd, &mut space, longest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(SyscallError::new("epoll_wait", "switch", error)),
        }
    }
}
