//! Making what a client is given: memory, rings in it, and bells.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use ports::{FromRing, ToRing};
use ring::{Bells, Geometry, Layout, LayoutError, Receiver, Seat, Sender};
use shm::{Region, RegionError};
use switch::vale::PortId;
use sys::SyscallError;
use thiserror::Error;

use super::lent_memory::LentMemory;
use super::switches::random_seed;
use crate::attachment::{PipeEnd, RingSeat, Shape, TRUST_SEATS};
use crate::counters::PortCounters;
use crate::datapath::{Credit, Holders, Inlet, Inlets, Marks, Monitor, Outlet, Outlets, PortEnds};
use crate::device::Plug;

/// Why it could not be made.
#[derive(Debug, Error)]
pub(crate) enum MakeError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

/// What goes to the client: descriptors in the order the protocol says, and what the rings are.
#[derive(Debug)]
pub(crate) struct Handout {
    pub(crate) fds: Vec<OwnedFd>,
    pub(crate) rings: Vec<RingSeat>,
}

/// What a region for `rings` rings of that shape takes, half of them to transmit: all of it, as it is made, and
/// what the daemon keeps of it.
pub(crate) fn region_bytes(shape: Shape, rings: u32) -> Result<u64, LayoutError> {
    let region = geometry(shape, rings / 2, rings / 2).region_bytes()?;
    // A mark a buffer, and the number of one a slot.
    let buffers = rings * shape.slots + SPARE_SHARE * shape.slots;
    let kept = u64::from(buffers) + 4 * u64::from(rings * shape.slots);
    Ok(region.next_multiple_of(shm::REGION_BYTES_MULTIPLE) + kept + ENTRY_BYTES)
}

/// What an attachment takes besides: its entry, four bells, and of a watcher a frame.
const ENTRY_BYTES: u64 = 128 << 10;

/// Buffers that no slot holds at first, as a multiple of the slots of a ring: a client may keep frames in
/// them, and put them into slots. The kernel gives memory only to those that are used.
const SPARE_SHARE: u32 = 4;

fn geometry(shape: Shape, tx_rings: u32, rx_rings: u32) -> Geometry {
    let Shape { slots, buffer_bytes } = shape;
    Geometry { tx_rings, rx_rings, slots, buffer_bytes, extra_buffers: SPARE_SHARE * slots }
}

pub(super) fn dup(fd: impl std::os::fd::AsFd) -> Result<OwnedFd, SyscallError> {
    fd.as_fd().try_clone_to_owned().map_err(|error| SyscallError::new("dup", "handout", error))
}

pub(super) fn memory_of(region: &Region) -> Result<OwnedFd, SyscallError> {
    let none = || SyscallError::new("memfd", "region", std::io::ErrorKind::NotFound);
    dup(region.fd().ok_or_else(none)?)
}

/// Which port of its switch, and what for.
#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) id: PortId,
    pub(crate) serial: u64,
    /// Whose client it is.
    pub(crate) user: u32,
    /// Bytes of virtio-net header before each frame.
    pub(crate) header_bytes: u8,
    pub(crate) counters: Arc<PortCounters>,
}

/// The pairs of rings of a port that has its memory to itself: first all that transmit.
fn alone(pairs: u32) -> Vec<[u32; 2]> {
    (0..pairs).map(|pair| [pair, pairs + pair]).collect()
}

/// A new port's memory, and the bells of its user.
struct Made {
    ends: PortEnds,
    region: Arc<Region>,
    layout: Layout,
    tx: Bells,
    rx: Bells,
}

fn make(role: Role, shape: Shape) -> Result<Made, MakeError> {
    let geometry = geometry(shape, 1, 1);
    let region = Region::create("clearstream-port", geometry.region_bytes()?)?;
    let layout = Layout::format(&region, &geometry)?;
    let (tx, tx_switch) = Bells::pair()?;
    let (rx, rx_switch) = Bells::pair()?;
    let seed = role.serial as u32;
    let seated = (alone(1), Marks::new(&layout.buffers(&region)?));
    let ends = port_ends(role, (&region, &layout), seated, vec![[tx_switch, rx_switch]], seed)?;
    Ok(Made { ends, region, layout, tx, rx })
}

/// The owner's seats at pairs of rings of a region; `seed` as of [`ring::End::join`].
fn port_ends(
    role: Role,
    (region, layout): (&Arc<Region>, &Layout),
    (pairs, marks): (Vec<[u32; 2]>, Marks),
    bells: Vec<[Bells; 2]>,
    seed: u32,
) -> Result<PortEnds, MakeError> {
    let Role { id, serial, user, header_bytes, counters } = role;
    let buffers = || layout.buffers(region);
    let (mut inlets, mut outlets, mut kicks) = (Vec::new(), Vec::new(), Vec::new());
    for ([tx_ring, rx_ring], [tx, rx]) in pairs.into_iter().zip(bells) {
        let inlet_end = layout.end(region, tx_ring, Seat::TxOwner, seed)?;
        let outlet_end = layout.end(region, rx_ring, Seat::RxOwner, seed)?;
        inlets.push(Inlet::new(inlet_end, buffers()?, tx.theirs));
        outlets.push(Outlet::new(outlet_end, buffers()?, rx.theirs));
        kicks.push(tx.ours);
    }
    let none = LayoutError::NoRing(0);
    let inlets = Inlets::of(inlets).ok_or(none)?;
    Ok(PortEnds {
        id,
        serial,
        user,
        inlets,
        outlets: Outlets::of(outlets).ok_or(none)?,
        marks,
        header_bytes,
        kicks,
        counters,
        credit: Credit::default(),
        rest: None,
    })
}

/// The rings of a port in memory that its client has brought, and may have used.
pub(crate) fn lent_port(
    role: Role,
    shape: Shape,
    memory: LentMemory,
    is_fresh: bool,
) -> Result<(PortEnds, Weak<Region>), MakeError> {
    let LentMemory { region, bells, .. } = memory;
    let pairs = u32::try_from(bells.len()).unwrap_or(u32::MAX);
    let geometry = Geometry { extra_buffers: 0, ..geometry(shape, pairs, pairs) };
    let layout = if is_fresh {
        Layout::format(&region, &geometry)?
    } else {
        Layout::resume(&region, &geometry)?
    };
    let seated = (alone(pairs), Marks::new(&layout.buffers(&region)?));
    // What an earlier attachment began with is not known here.
    let ends = port_ends(role, (&region, &layout), seated, bells, random_seed() as u32)?;
    Ok((ends, Arc::downgrade(&region)))
}

/// The rings of a trust group's member, made anew with the buffers that are its seat's.
pub(crate) fn member_port(
    role: Role,
    shape: Shape,
    memory: LentMemory,
    (seat, holders): (u8, &Holders),
) -> Result<(PortEnds, Weak<Region>), MakeError> {
    let LentMemory { region, bells, .. } = memory;
    let layout = Layout::resume(&region, &group_geometry(shape))?;
    let rings = member_rings(seat);
    layout.format_rings(&region, rings, holders.take_back(seat))?;
    let seated = (vec![rings], Marks::of_seat(holders.clone(), seat));
    let ends = port_ends(role, (&region, &layout), seated, bells, random_seed() as u32)?;
    Ok((ends, Arc::downgrade(&region)))
}

/// The rings of a seat of a trust group's memory.
fn member_rings(seat: u8) -> [u32; 2] {
    [seat.into(), u32::from(TRUST_SEATS) + u32::from(seat)]
}

fn group_geometry(shape: Shape) -> Geometry {
    let seats = TRUST_SEATS.into();
    Geometry { extra_buffers: 0, ..geometry(shape, seats, seats) }
}

/// Bytes of a trust group's memory: the length of a guest's device is a power of two.
pub(crate) fn group_bytes(shape: Shape) -> Result<u64, LayoutError> {
    Ok(group_geometry(shape).region_bytes()?.next_power_of_two())
}

/// A new one.
pub(crate) fn group_memory(shape: Shape, bytes: u64) -> Result<Arc<Region>, MakeError> {
    let region = Region::create("clearstream-trust", bytes)?;
    Layout::format(&region, &group_geometry(shape))?;
    Ok(region)
}

/// Whose its buffers are at first: each seat has those of its own rings' slots.
pub(crate) fn holders(shape: Shape) -> Holders {
    Holders::dealt(TRUST_SEATS, 2 * shape.slots)
}

/// A port of a switch: the owner's seats for the switch, the user's for the client. Its region, to see when it goes.
pub(crate) fn port(
    role: Role,
    shape: Shape,
) -> Result<(PortEnds, Weak<Region>, Handout), MakeError> {
    let made = make(role, shape)?;
    let mut fds = vec![memory_of(&made.region)?];
    for bells in [&made.tx, &made.rx] {
        fds.extend([dup(&bells.theirs)?, dup(&bells.ours)?]);
    }
    Ok((made.ends, Arc::downgrade(&made.region), Handout { fds, rings: port_rings(1, None) }))
}

/// The rings of a port's client, in pairs; in a trust group those of its seat.
pub(crate) fn port_rings(pairs: u32, seat: Option<u8>) -> Vec<RingSeat> {
    let pairs = seat.map_or_else(|| alone(pairs), |seat| vec![member_rings(seat)]);
    let seats = pairs.into_iter().map(|[sends_on, receives_on]| {
        [
            RingSeat { ring: sends_on, sends: true, user: true },
            RingSeat { ring: receives_on, sends: false, user: true },
        ]
    });
    seats.flatten().collect()
}

/// The owner's seat for copies of what passes a port, and what a watcher gets.
pub(crate) fn monitor(
    id: PortId,
    (serial, user): (u64, u32),
    shape: Shape,
) -> Result<(Monitor, Weak<Region>, Handout), MakeError> {
    let role = Role { id, serial, user, header_bytes: 0, counters: Arc::default() };
    let (ends, region, handout) = port(role, shape)?;
    Ok((Monitor::new(serial, user, ends.outlets.into_first(), ends.marks), region, handout))
}

/// A port of a switch whose user is within the daemon.
pub(crate) fn inner_port(
    role: Role,
    shape: Shape,
) -> Result<(PortEnds, Weak<Region>, Plug), MakeError> {
    let seed = role.serial as u32;
    let Made { ends, region, layout, tx, rx } = make(role, shape)?;
    let sender =
        Sender::join(layout.end(&region, 0, Seat::User, seed)?, layout.buffers(&region)?, tx);
    let receiver =
        Receiver::join(layout.end(&region, 1, Seat::User, seed)?, layout.buffers(&region)?, rx);
    let plug = Plug { to: ToRing::new(sender), from: FromRing::new(receiver) };
    Ok((ends, Arc::downgrade(&region), plug))
}

/// Pipes in one region: for each, a ring from master to slave and one back.
#[derive(Debug)]
pub(crate) struct PipeGroup {
    region: Arc<Region>,
    /// A ring's sender's bells, and its receiver's.
    bells: Vec<(Bells, Bells)>,
}

impl PipeGroup {
    pub(crate) fn new(shape: Shape, pipes: u32) -> Result<Self, MakeError> {
        let geometry = geometry(shape, 2 * pipes, 0);
        let region = Region::create("clearstream-pipes", geometry.region_bytes()?)?;
        Layout::format(&region, &geometry)?;
        let bells = (0..2 * pipes).map(|_| Bells::pair()).collect::<Result<_, _>>()?;
        Ok(Self { region, bells })
    }

    /// What one end of a pipe gets: first the ring it sends on.
    pub(crate) fn handout(&self, pipe: u32, end: PipeEnd) -> Result<Handout, SyscallError> {
        let (sends_on, receives_on) = match end {
            PipeEnd::Master => (2 * pipe, 2 * pipe + 1),
            PipeEnd::Slave => (2 * pipe + 1, 2 * pipe),
        };
        let (sender, _) = &self.bells[sends_on as usize];
        let (_, receiver) = &self.bells[receives_on as usize];
        let mut fds = vec![memory_of(&self.region)?];
        for bells in [sender, receiver] {
            fds.extend([dup(&bells.theirs)?, dup(&bells.ours)?]);
        }
        let rings = vec![
            RingSeat { ring: sends_on, sends: true, user: true },
            RingSeat { ring: receives_on, sends: false, user: false },
        ];
        Ok(Handout { fds, rings })
    }
}
