//! Ends of a line: a host's device, a ring of a port.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use ports::tap::Port;
use ring::{Receiver, Sender};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Sink, Source};
use crate::device::Stop;

impl Source for Arc<Port> {
    fn take(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
        self.recv(space)
    }

    fn wait(&mut self, timeout: Option<&Timespec>) -> io::Result<()> {
        poll(&mut [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)], timeout)
    }
}

impl Sink for Arc<Port> {
    fn put(&mut self, parts: &[IoSlice<'_>]) -> bool {
        self.send(parts).is_ok()
    }
}

fn poll(set: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> io::Result<()> {
    match rustix::event::poll(set, timeout) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What a switch delivers to a port.
#[derive(Debug)]
pub struct FromRing {
    receiver: Receiver,
    /// Slots that are known to hold frames, and how many of them have been copied out.
    arrived: u32,
    taken: u32,
    stop: Option<Arc<Stop>>,
}

/// Slots copied out before the switch gets them back.
const RELEASE_SLOTS: u32 = 64;

impl FromRing {
    /// Until the switch is gone.
    #[must_use]
    pub fn new(receiver: Receiver) -> Self {
        Self { receiver, arrived: 0, taken: 0, stop: None }
    }

    pub(crate) fn until(receiver: Receiver, stop: Arc<Stop>) -> Self {
        Self { stop: Some(stop), ..Self::new(receiver) }
    }

    fn release(&mut self) -> io::Result<()> {
        let taken = std::mem::take(&mut self.taken);
        self.arrived -= taken;
        self.receiver.release(taken).map_err(io::Error::other)
    }
}

impl Source for FromRing {
    fn take(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
        if self.taken == self.arrived || self.taken >= RELEASE_SLOTS {
            self.release()?;
            self.arrived = self.receiver.peek(1).map_err(io::Error::other)?;
        }
        let mut bytes = 0;
        let began = self.taken;
        while self.taken < self.arrived {
            let left = &mut space[bytes..];
            let length = self.receiver.copy(self.taken, left).unwrap_or(0);
            bytes += length.min(left.len());
            self.taken += 1;
            if !self.receiver.goes_on(self.taken - 1) {
                break;
            }
        }
        Ok((self.taken > began).then_some(bytes))
    }

    fn wait(&mut self, timeout: Option<&Timespec>) -> io::Result<()> {
        self.release()?;
        if self.receiver.arm().map_err(io::Error::other)? {
            let receiver = self.receiver.as_fd();
            let stop = self.stop.as_ref().map_or(receiver, |stop| stop.bell().as_fd());
            let fds = [stop, receiver];
            poll(&mut fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)), timeout)?;
        }
        self.receiver.disarm().map_err(io::Error::other)
    }

    fn is_over(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.is_asked())
    }
}

/// What goes into a switch by a port.
#[derive(Debug)]
pub struct ToRing {
    sender: Sender,
    filled: u32,
}

impl ToRing {
    /// At a client's seat.
    #[must_use]
    pub fn new(sender: Sender) -> Self {
        Self { sender, filled: 0 }
    }
}

impl Sink for ToRing {
    /// In as many slots as it takes, all or none of them.
    fn put(&mut self, parts: &[IoSlice<'_>]) -> bool {
        let all: usize = parts.iter().map(|part| part.len()).sum();
        let mut each = self.sender.buffer(self.filled).map_or(0, |buffer| buffer.length_bytes());
        if each == 0 && self.sender.reserve(self.filled + 1).is_ok() {
            each = self.sender.buffer(self.filled).map_or(0, |buffer| buffer.length_bytes());
        }
        if each == 0 {
            return false;
        }
        // A packet has at most 64 KiB, and a buffer at least 64 bytes.
        let slots = all.div_ceil(each).max(1) as u32;
        let wanted = self.filled + slots;
        if !self.sender.reserve(wanted).is_ok_and(|there| there >= wanted) {
            return false;
        }
        let mut parts = parts.iter().map(|part| &part[..]);
        let mut part = parts.next().unwrap_or(&[]);
        for number in 0..slots {
            let slot = self.filled + number;
            let mut used = 0;
            while used < each && !(part.is_empty() && parts.len() == 0) {
                if part.is_empty() {
                    part = parts.next().unwrap_or(&[]);
                }
                let (now, later) = part.split_at(part.len().min(each - used));
                let wrote = self.sender.buffer(slot).is_some_and(|buffer| buffer.write(used, now));
                debug_assert!(wrote, "a reserved slot has a buffer of that length");
                (used, part) = (used + now.len(), later);
            }
            // No longer than a buffer.
            let put = self.sender.put_part(slot, used as u16, number + 1 < slots);
            debug_assert!(put, "a reserved slot takes what its buffer holds");
        }
        self.filled = wanted;
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.filled) {
            0 => Ok(()),
            filled => self.sender.publish(filled).map_err(io::Error::other),
        }
    }
}
