//! Rings in memory of a client's own: it keeps memory and bells, so both outlive the daemon. A guest's are of this
//! kind, because its hypervisor maps them once.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Instant;

use ring::Bells;
use shm::{Bell, Region, RegionError};
use sys::SyscallError;
use thiserror::Error;

use super::descriptor_threads::Brought;
use super::make::{self, Handout, MakeError};
use super::registry::{Answered, Refusal, Registry, attached};
use super::session::SessionId;
use crate::attachment::{DeviceKind, TrustSeat};
use crate::device::{Adopted, DeviceError};
use crate::name::PortName;

/// Descriptors of a lent memory: its own, and two bells for each of two rings.
const FDS: usize = 5;

/// Memory and bells that a client sent, checked.
#[derive(Debug)]
pub(crate) struct LentMemory {
    pub(crate) region: Arc<Region>,
    /// Of the transmit ring and of the receive ring, seen by the switch.
    pub(crate) bells: [Bells; 2],
    /// Device and number.
    pub(super) identity: (u64, u64),
}

/// Why it cannot be used.
#[derive(Debug, Error)]
pub(crate) enum LentMemoryError {
    #[error("memory for a port needs {FDS} descriptors; {given} came")]
    Descriptors { given: usize },
    #[error("a doorbell is no eventfd")]
    NoEventfd,
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

/// Memory that is attached, or was.
#[derive(Debug)]
pub(super) struct Lent {
    /// Its device and number.
    identity: (u64, u64),
    /// The seat, of a trust group's.
    seat: Option<u8>,
    /// Whether it is still in use.
    region: Weak<Region>,
}

impl Lent {
    /// Whether the other would write to the same rings.
    fn collides(&self, identity: (u64, u64), seat: Option<u8>) -> bool {
        self.identity == identity && (self.seat.is_none() || seat.is_none() || self.seat == seat)
    }
}

impl LentMemory {
    /// Looks at descriptors that anybody may have sent. Those that are of no use come back.
    pub(super) fn open(fds: Vec<OwnedFd>) -> (Result<Self, LentMemoryError>, Vec<OwnedFd>) {
        let fds = match <[OwnedFd; FDS]>::try_from(fds) {
            Ok(fds) => fds,
            Err(fds) => return (Err(LentMemoryError::Descriptors { given: fds.len() }), fds),
        };
        match fds[1..].iter().try_for_each(check_eventfd) {
            Ok(()) => (Self::of_checked(fds), Vec::new()),
            Err(why) => (Err(why), fds.into()),
        }
    }

    fn of_checked(
        [memory, tx_ours, tx_theirs, rx_ours, rx_theirs]: [OwnedFd; FDS],
    ) -> Result<Self, LentMemoryError> {
        let region = Region::attach(memory)?;
        let identity = region.file()?.unwrap_or_default();
        let bells =
            |ours, theirs| Bells { theirs: Bell::from_fd(theirs), ours: Bell::from_fd(ours) };
        let bells = [bells(tx_ours, tx_theirs), bells(rx_ours, rx_theirs)];
        Ok(Self { region, bells, identity })
    }
}

/// What is no eventfd may block whoever waits for it: a file on a FUSE file system asks its server.
fn check_eventfd(fd: &OwnedFd) -> Result<(), LentMemoryError> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let target = rustix::fs::readlink(&path, Vec::new())
        .map_err(|error| SyscallError::new("readlink", path, error))?;
    let is_eventfd = target.as_bytes().starts_with(b"anon_inode:[eventfd");
    if is_eventfd { Ok(()) } else { Err(LentMemoryError::NoEventfd) }
}

impl Brought {
    /// What came as a device of that kind.
    pub(super) fn device(self, kind: &DeviceKind) -> Result<Adopted, DeviceError> {
        match self {
            Self::Device(device) => device,
            // As if no descriptors had come.
            _ => Adopted::open(kind, Vec::new()).0,
        }
    }

    /// What came as memory.
    pub(super) fn memory(self) -> Result<LentMemory, LentMemoryError> {
        match self {
            Self::Memory(memory) => memory,
            _ => Err(LentMemoryError::Descriptors { given: 0 }),
        }
    }
}

impl Registry {
    /// Gives a free port to a client with memory of its own. Refused as long as any thread has that memory from an
    /// earlier attachment: it would write to rings that are another's by then.
    pub(super) fn attach_memory(
        &mut self,
        session: SessionId,
        user: u32,
        name: &PortName,
        memory: LentMemory,
        (is_fresh, trust): (bool, Option<TrustSeat>),
    ) -> Answered {
        self.check_pause(user, Instant::now())?;
        self.check_attachments(session)?;
        if trust.is_some() && !is_fresh {
            return Err(Refusal::Resumed);
        }
        let member = self.membership(user, name, &memory, trust)?;
        let seat = member.as_ref().map(|member| member.seat);
        self.lent.retain(|lent| lent.region.strong_count() > 0);
        // What the threads that had it have written is seen from here on: each dropped its hold after that.
        fence(Ordering::Acquire);
        let identity = memory.identity;
        if self.lent.iter().any(|lent| lent.collides(identity, seat)) {
            return Err(Refusal::Taken(format!("the memory for {name}")));
        }
        // Its whole length counts, whatever the port needs of it: all of it is mapped.
        let needed = self.port(name).map(|port| make::region_bytes(port.shape, 2)).transpose();
        let needed = needed.map_err(MakeError::from)?.unwrap_or(0);
        let more = (memory.region.length_bytes() as u64).saturating_sub(needed);
        let (role, shape) = self.free_port(user, name, more)?;
        let attachment = self.next_attachment();
        let header_bytes = role.header_bytes;
        let (ends, region) = match &member {
            Some(member) => {
                make::member_port(role, shape, memory, (member.seat, member.holders()))?
            }
            None => make::lent_port(role, shape, memory, is_fresh)?,
        };
        self.lent.push(Lent { identity, seat, region: region.clone() });
        self.join(name, (session, attachment), ends, (region, more))?;
        let handout = Handout { fds: Vec::new(), rings: make::port_rings(seat) };
        Ok(attached(attachment, handout, header_bytes))
    }
}
