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
use crate::attachment::{DeviceKind, PAIRS_MAX, TrustSeat};
use crate::device::{Adopted, DeviceError};
use crate::name::PortName;

/// Bells of a pair of rings: of each ring that of the switch and that of the client.
const PAIR_BELLS: usize = 4;

/// Memory and bells that a client sent, checked.
#[derive(Debug)]
pub(crate) struct LentMemory {
    pub(crate) region: Arc<Region>,
    /// Of each pair of rings those of the transmit ring and of the receive ring, seen by the switch.
    pub(crate) bells: Vec<[Bells; 2]>,
    /// Device and number.
    pub(super) identity: (u64, u64),
}

/// Why it cannot be used.
#[derive(Debug, Error)]
pub(crate) enum LentMemoryError {
    #[error(
        "memory for a port needs 1 descriptor and {PAIR_BELLS} for each of 1 to {PAIRS_MAX} pairs of rings; {given} came"
    )]
    Descriptors { given: usize },
    #[error("a doorbell is not an eventfd")]
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
        let given = fds.len();
        let counts = (1..=PAIRS_MAX as usize).map(|pairs| 1 + pairs * PAIR_BELLS);
        if !counts.into_iter().any(|count| count == given) {
            return (Err(LentMemoryError::Descriptors { given }), fds);
        }
        match fds[1..].iter().try_for_each(check_eventfd) {
            Ok(()) => (Self::of_checked(fds), Vec::new()),
            Err(why) => (Err(why), fds),
        }
    }

    fn of_checked(fds: Vec<OwnedFd>) -> Result<Self, LentMemoryError> {
        let given = fds.len();
        let mut fds = fds.into_iter();
        let memory = fds.next().ok_or(LentMemoryError::Descriptors { given })?;
        let region = Region::attach(memory)?;
        let identity = region.file()?.unwrap_or_default();
        let mut bells = fds.map(Bell::from_fd);
        let mut ring = || Some(Bells { ours: bells.next()?, theirs: bells.next()? });
        let pairs = std::iter::from_fn(|| Some([ring()?, ring()?]));
        Ok(Self { region, bells: pairs.collect(), identity })
    }

    /// Pairs of rings that it is for.
    fn pairs(&self) -> u32 {
        u32::try_from(self.bells.len()).unwrap_or(u32::MAX)
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
        let pairs = memory.pairs();
        if trust.is_some() && pairs > 1 {
            return Err(Refusal::Limit { what: "pairs of rings of a group's member", max: 1 });
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
        let bytes_for = |rings| {
            let bytes = self.port(name).map(|port| make::region_bytes(port.shape, rings));
            bytes.transpose().map_err(MakeError::from)
        };
        let needed = bytes_for(2)?.unwrap_or(0);
        let all = bytes_for(2 * pairs)?.unwrap_or(0).max(memory.region.length_bytes() as u64);
        let more = all.saturating_sub(needed);
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
        let handout = Handout { fds: Vec::new(), rings: make::port_rings(pairs, seat) };
        Ok(attached(attachment, handout, header_bytes))
    }
}
