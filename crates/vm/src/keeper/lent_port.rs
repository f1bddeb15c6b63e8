//! A guest's port, lent to the switch and to each switch that is started after it, by a thread of its own.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use packet_switch::attachment::{Ask, DeviceKind, HEADER_BYTES, RefusalCode, Shape};
use packet_switch::client::{ClientError, Connection};
use packet_switch::{Name, PortName};
use ports::vm::Listener;

use super::guest_rings::{Attached, GuestRings, LOOK_EVERY, Seat};
use super::log;
use crate::VmError;
use crate::ivshmem;
use crate::line::{MachineConfig, PortType, mac_bytes, names};
use crate::ptnet::{self, MTU_MAX, PortMemory, Traits};
use crate::state::{MachineFolder, ProcessId};

pub(super) struct LentPort {
    switch: PathBuf,
    port: PortName,
    path: PathBuf,
    /// The guest that the port goes with; without one it goes with this process.
    guest: Option<Guest>,
    /// Of a guest that drives the port's rings itself.
    rings: Option<GuestRings>,
    /// The trust group in whose memory such rings are to be, and what the guest is told of its device: the rings come with
    /// the first connection to a switch.
    group: Option<(Name, Traits)>,
}

/// A guest that may end, and leave its name to another.
struct Guest {
    folder: sys::private::Folder,
    owner: Option<ProcessId>,
}

impl LentPort {
    /// The port of a keeper's guest. QEMU can connect to a guest's own rings from now on.
    pub(super) fn new(
        config: &MachineConfig,
        folder: &MachineFolder,
        owner: Option<ProcessId>,
    ) -> Result<Self, VmError> {
        let path = folder.file(names::PORT);
        let no_port = || VmError::Invalid("the guest has no port".to_owned());
        let (switch, port) = (config.switch.clone(), config.port.clone().ok_or_else(no_port)?);
        let mut lent = match config.port_type {
            PortType::Virtio | PortType::Tap => {
                Self { switch, port, path, guest: None, rings: None, group: None }
            }
            PortType::Ptnet => {
                let device = (config.mac.as_str(), config.queues);
                Self::with_rings(switch, port, path, device, config.trust.clone())?
            }
        };
        let folder = sys::private::Folder::at(folder.path())?;
        lent.guest = Some(Guest { folder, owner });
        Ok(lent)
    }

    /// A port whose rings are for whichever hypervisor connects to `path` from now on, or in a trust group once it is lent;
    /// for a device with that hardware address and so many queues.
    pub(super) fn with_rings(
        switch: PathBuf,
        port: PortName,
        path: PathBuf,
        (mac, queues): (&str, u32),
        trust: Option<Name>,
    ) -> Result<Self, VmError> {
        let (mac, header_bytes) = (mac_bytes(mac)?, HEADER_BYTES);
        let traits = Traits { mac, header_bytes, mtu_max: MTU_MAX, queues };
        if !(1..=PortType::Ptnet.queues_max(trust.is_some())).contains(&queues) {
            return Err(VmError::Invalid(format!("a port cannot have {queues} pairs of rings")));
        }
        let group = trust.map(|group| (group, traits));
        let mut lent = Self { switch, port, path, guest: None, rings: None, group };
        if lent.group.is_none() {
            lent.serve_rings(PortMemory::new(traits)?)?;
        }
        Ok(lent)
    }

    fn serve_rings(&mut self, memory: PortMemory) -> Result<(), VmError> {
        ivshmem::serve(&self.path, memory.descriptors()?)?;
        self.rings = Some(GuestRings::new(memory));
        Ok(())
    }

    /// Lends the port to the switch, and again to one that is started anew. Says how it went the first time.
    pub(super) fn serve(mut self) -> Result<Receiver<Result<(), VmError>>, VmError> {
        let (say, hear) = channel();
        thread::Builder::new()
            .name("port".to_owned())
            .spawn(move || self.lend_again(&say))
            .map_err(|error| sys::SyscallError::new("clone", "thread", error))?;
        Ok(hear)
    }

    fn lend_again(&mut self, say: &Sender<Result<(), VmError>>) {
        let mut is_first = true;
        while is_first || self.is_wanted() {
            match self.lend() {
                Ok(connection) => {
                    if is_first {
                        // Whoever waits for it may have given up; then this process ends.
                        say.send(Ok(())).ok();
                    } else {
                        log("the switch is back");
                    }
                    self.watch(connection);
                    log("the switch has ended");
                }
                Err(error) if is_first => {
                    say.send(Err(error)).ok();
                    return;
                }
                Err(_) => {}
            }
            is_first = false;
            // Until somebody starts the switch, QEMU is to find nobody: a connection would make it wait.
            if self.rings.is_none() && self.is_wanted() {
                std::fs::remove_file(&self.path).ok();
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether the guest is to go on: another one may have its name, folder and port by now.
    fn is_wanted(&self) -> bool {
        self.guest.as_ref().is_none_or(|guest| {
            guest.folder.is_in_place() && guest.owner.is_none_or(ProcessId::is_running)
        })
    }

    /// The port is there as long as the connection.
    fn lend(&mut self) -> Result<Connection, VmError> {
        let mut connection = Connection::open(&self.switch)?;
        let port = self.port.clone();
        if self.rings.is_some() || self.group.is_some() {
            connection.ask(Ask::LendPort { port: port.clone(), shape: ptnet::shape() })?;
            let header_bytes = HEADER_BYTES;
            connection.ask(Ask::SetHeader { port: port.clone(), header_bytes })?;
            if let (Some((group, traits)), None) = (&self.group, &self.rings) {
                let (seat, memory) = connection.join_group(&port, group)?;
                let memory = PortMemory::of_group(memory, *traits, seat)?;
                self.serve_rings(memory)?;
            }
        } else {
            let listener = Listener::bind(&self.path)?;
            let device = DeviceKind::VhostUser { path: self.path.display().to_string() };
            let ask = Ask::LendDevice { port, device, shape: Shape::of_device() };
            connection.ask_with(ask, &[listener.as_fd()])?;
        }
        Ok(connection)
    }

    /// Returns when the switch has ended.
    fn watch(&mut self, mut connection: Connection) {
        let Some(rings) = &mut self.rings else {
            while !connection.has_news() || connection.poll_cut_off().is_ok() {
                thread::sleep(LOOK_EVERY);
            }
            return;
        };
        let mut seat = SwitchSeat { port: &self.port, connection, attachment: None };
        let ended = rings.attend(&mut seat);
        if let ClientError::Syscall(error) = &ended {
            log(&error.to_string());
        }
        rings.lose_seat();
    }
}

/// The switch, as a guest's rings are attached there.
struct SwitchSeat<'a> {
    port: &'a PortName,
    connection: Connection,
    /// Number of the attachment.
    attachment: Option<u32>,
}

impl Seat for SwitchSeat<'_> {
    type Gone = ClientError;

    const NAME: &'static str = "the switch";

    fn news(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.as_fd())
    }

    fn poll_cut_off(&mut self) -> Result<Option<String>, ClientError> {
        while let Some((attachment, why)) = self.connection.poll_cut_off()? {
            if self.attachment.take_if(|own| *own == attachment).is_some() {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    fn attach(&mut self, memory: &PortMemory, is_fresh: bool) -> Result<Attached, ClientError> {
        let (fd, bells) = (memory.fd(), memory.bells());
        let attached = match memory.seat() {
            // Where the buffers of a group were is known to nobody but the switch that has ended.
            Some(_) if !is_fresh => return Ok(Attached::NotYet),
            Some(seat) => self.connection.attach_member(self.port, seat, fd, bells[0]),
            None => self.connection.attach_memory(self.port, is_fresh, fd, &bells),
        };
        match attached {
            Ok(attachment) => {
                self.attachment = Some(attachment);
                Ok(Attached::Yes)
            }
            Err(ClientError::Refused { code: RefusalCode::Taken, .. }) => Ok(Attached::NotYet),
            Err(ClientError::Refused { why, .. }) => Ok(Attached::Refused(why)),
            Err(error) => Err(error),
        }
    }

    fn detach(&mut self) -> Result<(), ClientError> {
        let Some(attachment) = self.attachment.take() else { return Ok(()) };
        self.connection.ask(Ask::Detach { attachment })?;
        Ok(())
    }

    fn has_link(&mut self) -> bool {
        true
    }
}
