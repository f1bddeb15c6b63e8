//! A queue of one of the host's network devices as a guest's only network device. The keeper has the guest's rings and the
//! queue, and joins the two: no switch is there, and nobody else can reach either.
//!
//! The guest follows the device: it has the hardware address that the device had at the start, an MTU that the device takes,
//! and a carrier when the device has one. A device that goes leaves the guest without a carrier until one of that name is there
//! again.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use packet_switch::passthrough::{Passthrough, PassthroughError};
use ports::xdp::OpenError;
use sys::SyscallError;
use sys::interface::RouteSocket;

use super::guest_rings::{Attached, GuestRings, Seat};
use super::log;
use crate::VmError;
use crate::ivshmem;
use crate::line::{DeviceQueue, mac_bytes, names};
use crate::ptnet::{self, MTU_MAX, PortMemory, Traits};
use crate::state::{MachineFolder, QUEUE_FILE, QueueState};

/// How often a device that has gone is looked for.
const DEVICE_EVERY: Duration = Duration::from_millis(500);
/// Longest frame in one piece, and what of it is no payload: addresses, type and two tags.
const CHUNK_BYTES: u32 = 4096;
const FRAME_OVERHEAD_BYTES: u32 = 22;

/// The hardware address of a device in this network namespace, as a guest is given it.
///
/// # Errors
/// There is no such device, or it has no Ethernet address.
pub fn mac_of_device(device: &str) -> Result<String, VmError> {
    let link = RouteSocket::open()?.link(device).map_err(|_unknown| no_device(device))?;
    match link.hardware_address[..] {
        [a, b, c, d, e, f] if a & 1 == 0 && link.hardware_address != [0; 6] => {
            Ok(format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
        }
        _ => Err(VmError::Invalid(format!("{device} is not an Ethernet device"))),
    }
}

fn no_device(device: &str) -> PassthroughError {
    OpenError::NoDevice(device.to_owned()).into()
}

/// Opens the queue for the guest of this folder, to whose rings QEMU can connect from now on. A thread serves it until this
/// process ends.
///
/// # Errors
/// The queue cannot be had.
pub(super) fn hold(queue: &DeviceQueue, mac: &str, folder: &MachineFolder) -> Result<(), VmError> {
    let mut route = RouteSocket::open()?;
    let link = route.link(&queue.device).map_err(|_unknown| no_device(&queue.device))?;
    let opened = Passthrough::open(&queue.device, queue.queue)?;
    let most = if opened.takes_parts() { MTU_MAX } else { CHUNK_BYTES - FRAME_OVERHEAD_BYTES };
    // Nobody behind the queue finishes checksums and segments.
    let mtu_max = link.mtu_bytes.unwrap_or(MTU_MAX).min(most);
    let traits = Traits { mac: mac_bytes(mac)?, header_bytes: 0, mtu_max, queues: 1 };
    let memory = PortMemory::new(traits)?;
    ivshmem::serve(&folder.file(names::PORT), memory.descriptors()?)?;
    let folder = MachineFolder { folder: sys::private::Folder::at(folder.path())? };
    let state = QueueState::default();
    let mut keeper = QueueKeeper { queue: queue.clone(), route, folder, state };
    let mut rings = GuestRings::new(memory);
    thread::Builder::new()
        .name("queue".to_owned())
        .spawn(move || keeper.serve(&mut rings, opened))
        .map_err(|error| SyscallError::new("clone", "thread", error))?;
    Ok(())
}

struct QueueKeeper {
    queue: DeviceQueue,
    route: RouteSocket,
    folder: MachineFolder,
    /// As the file in the folder says it.
    state: QueueState,
}

impl QueueKeeper {
    fn serve(&mut self, rings: &mut GuestRings, first: Passthrough) {
        let mut opened = Some(first);
        loop {
            if let Some(opened) = opened.take() {
                let mut seat = QueueSeat { keeper: self, opened };
                let gone = rings.attend(&mut seat).to_string();
                drop(seat);
                rings.lose_seat();
                log(&format!("{}: {gone}", self.queue));
                self.note(QueueState { fault: Some(gone), ..QueueState::default() });
            }
            thread::sleep(DEVICE_EVERY);
            opened = Passthrough::open(&self.queue.device, self.queue.queue).ok();
            if opened.is_some() {
                log(&format!("{} is back", self.queue));
            }
        }
    }

    /// Writes what has changed for those who ask.
    fn note(&mut self, state: QueueState) {
        if state == self.state {
            return;
        }
        self.state = state;
        if let Err(error) = self.folder.write(QUEUE_FILE, &self.state) {
            log(&error.to_string());
        }
    }
}

/// An open queue that the rings can be joined to.
struct QueueSeat<'a> {
    keeper: &'a mut QueueKeeper,
    opened: Passthrough,
}

impl Seat for QueueSeat<'_> {
    type Gone = PassthroughError;

    const NAME: &'static str = "the queue";

    fn news(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_cut_off(&mut self) -> Result<Option<String>, PassthroughError> {
        let why = self.opened.poll_end()?;
        if why.is_some() {
            let fault = why.clone();
            self.keeper.note(QueueState { fault, ..self.keeper.state.clone() });
        }
        Ok(why)
    }

    fn attach(
        &mut self,
        memory: &PortMemory,
        is_fresh: bool,
    ) -> Result<Attached, PassthroughError> {
        let (region, geometry) = (memory.region(), ptnet::geometry(1));
        match self.opened.join(region, &geometry, memory.owner_bells()?, is_fresh) {
            Ok(()) => Ok(Attached::Yes),
            // A cursor that the guest wrote where it has nothing to write.
            Err(PassthroughError::Layout(why)) => Ok(Attached::Refused(why.to_string())),
            Err(error) => Err(error),
        }
    }

    fn detach(&mut self) -> Result<(), PassthroughError> {
        self.opened.part()
    }

    fn has_link(&mut self) -> bool {
        let link = self.keeper.route.link(&self.keeper.queue.device);
        let has_link = link.is_ok_and(|link| link.is_up() && link.has_carrier());
        self.keeper.note(QueueState {
            mode: Some(self.opened.mode().to_owned()),
            has_client: self.opened.has_client(),
            has_link,
            refused: self.opened.refused_frames(),
            lost: self.opened.lost_frames(),
            fault: self.keeper.state.fault.clone(),
        });
        has_link
    }
}
