//! Sleeping until any of many bells rings.
//!
//! Edge-triggered: a ring is an event, whatever the counter says. So bells are never read, and there is
//! no call that a client could make block by emptying its bell first.

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use shm::Bell;
use sys::SyscallError;

use super::Datapath;

#[derive(Debug)]
pub(crate) struct WakeSet {
    fd: OwnedFd,
}

impl WakeSet {
    pub(crate) fn new(command_bell: &Bell) -> Result<Self, SyscallError> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| SyscallError::new("epoll_create1", "switch", error))?;
        let wake_set = Self { fd };
        wake_set.add(command_bell)?;
        Ok(wake_set)
    }

    pub(crate) fn add(&self, bell: &Bell) -> Result<(), SyscallError> {
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.fd, bell, epoll::EventData::new_u64(0), events)
            .map_err(|error| SyscallError::new("epoll_ctl", "bell", error))
    }

    pub(crate) fn remove(&self, bell: &Bell) {
        // One that is not there any more need not be removed.
        epoll::delete(&self.fd, bell).ok();
    }

    /// Until a bell rings that has not been slept through already, one of the others is readable, or that
    /// long. The others are not part of the set: the kernel would search it at each frame that they send.
    pub(crate) fn sleep(
        &self,
        others: &[BorrowedFd<'_>],
        longest: Option<Duration>,
    ) -> Result<(), SyscallError> {
        if others.is_empty() {
            return self.hear(longest);
        }
        let mut set = vec![PollFd::new(&self.fd, PollFlags::IN)];
        set.extend(others.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match rustix::event::poll(&mut set, longest.map(timespec).as_ref()) {
            Ok(_) if set[0].revents().is_empty() => Ok(()),
            Ok(_) => self.hear(Some(Duration::ZERO)),
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(SyscallError::new("poll", "switch", error)),
        }
    }

    fn hear(&self, longest: Option<Duration>) -> Result<(), SyscallError> {
        let longest = longest.map(timespec);
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        match epoll::wait(&self.fd, &mut space, longest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(SyscallError::new("epoll_wait", "switch", error)),
        }
    }
}

impl Datapath {
    /// Asks every client to ring, and sleeps if none has sent anything meanwhile.
    pub(super) fn sleep(&mut self) -> Result<(), SyscallError> {
        let ports = *self.forwarder.ports();
        let mut quiet = true;
        for id in ports.iter() {
            let Some(port) = &mut self.ports[id.index()] else { continue };
            match port.inlets.arm() {
                Ok(nothing_new) => quiet &= nothing_new,
                // The next turn sees it again and cuts the client off.
                Err(_) => quiet = false,
            }
        }
        let longest = self.residents.rest();
        if quiet && !self.link.has_commands() && longest != Some(Duration::ZERO) {
            self.link.wake_set().sleep(&self.residents.fds(), longest)?;
        }
        for id in ports.iter() {
            if let Some(port) = &mut self.ports[id.index()] {
                port.inlets.disarm();
            }
        }
        Ok(())
    }
}

fn timespec(time: Duration) -> Timespec {
    let tv_sec = time.as_secs().try_into().unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: time.subsec_nanos().into() }
}
