//! A guest's port, lent to the switch and to each switch that is started after it, by a thread of its own.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use packet_switch::PortName;
use packet_switch::attachment::{Ask, DeviceKind, HEADER_BYTES, RefusalCode, Shape};
use packet_switch::client::{ClientError, Connection};
use ports::vm::Listener;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::log;
use crate::VmError;
use crate::ivshmem;
use crate::line::{MachineConfig, PortType, mac_bytes, names};
use crate::ptnet::{self, PortMemory};
use crate::state::{MachineFolder, ProcessId};

/// How often a switch that has gone is looked for, and whether one goes.
const SWITCH_EVERY: Duration = Duration::from_millis(100);
/// How often rings that could not be attached are tried again, and how often a guest may have new ones.
const RESET_EVERY: Duration = Duration::from_millis(200);

pub(super) struct LentPort {
    switch: PathBuf,
    port: PortName,
    path: PathBuf,
    /// The guest that the port goes with; without one it goes with this process.
    guest: Option<Guest>,
    /// Of a guest that drives the port's rings itself.
    rings: Option<GuestRings>,
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
        let (switch, port) = (config.switch.clone(), config.port.clone());
        let mut lent = match config.port_type {
            PortType::Virtio | PortType::Tap => {
                Self { switch, port, path, guest: None, rings: None }
            }
            PortType::Ptnet => Self::with_rings(switch, port, path, &config.mac)?,
        };
        let folder = sys::private::Folder::at(folder.path())?;
        lent.guest = Some(Guest { folder, owner });
        Ok(lent)
    }

    /// A port whose rings are for whichever hypervisor connects to `path` from now on.
    pub(super) fn with_rings(
        switch: PathBuf,
        port: PortName,
        path: PathBuf,
        mac: &str,
    ) -> Result<Self, VmError> {
        let memory = PortMemory::new(mac_bytes(mac)?)?;
        ivshmem::serve(&path, memory.descriptors()?)?;
        Ok(Self { switch, port, path, guest: None, rings: Some(GuestRings::new(memory)) })
    }

    /// Lends the port to the switch, and again to one that is started anew. Says how it went the first time.
    pub(super) fn serve(mut self) -> Result<Receiver<Result<(), ClientError>>, VmError> {
        let (say, hear) = channel();
        thread::Builder::new()
            .name("port".to_owned())
            .spawn(move || self.lend_again(&say))
            .map_err(|error| sys::SyscallError::new("clone", "thread", error))?;
        Ok(hear)
    }

    fn lend_again(&mut self, say: &Sender<Result<(), ClientError>>) {
        let mut is_first = true;
        while is_first || self.is_wanted() {
            match self.lend() {
                Ok(connection) => {
                    if is_first {
                        // Whoever waits for it may have given up; then this process ends.
                        say.send(Ok(())).ok();
                    } else {
                        log("the switch is there again");
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
            thread::sleep(SWITCH_EVERY);
        }
    }

    /// Whether the guest is to go on: another one may have its name, folder and port by now.
    fn is_wanted(&self) -> bool {
        self.guest.as_ref().is_none_or(|guest| {
            guest.folder.is_in_place() && guest.owner.is_none_or(ProcessId::is_running)
        })
    }

    /// The port is there as long as the connection.
    fn lend(&mut self) -> Result<Connection, ClientError> {
        let mut connection = Connection::open(&self.switch)?;
        let port = self.port.clone();
        if self.rings.is_some() {
            connection.ask(Ask::LendPort { port: port.clone(), shape: ptnet::shape() })?;
            connection.ask(Ask::SetHeader { port, header_bytes: HEADER_BYTES })?;
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
                thread::sleep(SWITCH_EVERY);
            }
            return;
        };
        let mut seat = SwitchSeat { port: &self.port, connection };
        let ended = rings.attend(&mut seat);
        if let ClientError::Syscall(error) = &ended {
            log(&error.to_string());
        }
        rings.lose_switch();
    }
}

/// Where a guest's rings are attached.
struct SwitchSeat<'a> {
    port: &'a PortName,
    connection: Connection,
}

/// The rings that a guest drives itself.
struct GuestRings {
    memory: PortMemory,
    /// The reset that they are of; 0 when they are nobody's.
    generation: u32,
    /// Number of their attachment to the switch.
    attachment: Option<u32>,
    /// When they were last attached, or should have been.
    tried: Option<Instant>,
    /// Why they could not be, as the log has it already.
    complaint: Option<String>,
}

impl GuestRings {
    fn new(memory: PortMemory) -> Self {
        Self { memory, generation: 0, attachment: None, tried: None, complaint: None }
    }

    /// Keeps the rings as the guest wants them, until the switch ends: why.
    fn attend(&mut self, seat: &mut SwitchSeat<'_>) -> ClientError {
        // A guest that had rings before this switch began goes on with them.
        let mut outcome =
            if self.generation == 0 { Ok(()) } else { self.attach(seat, self.generation, false) };
        loop {
            if let Err(error) = outcome {
                return error;
            }
            outcome = self.turn(seat);
        }
    }

    fn turn(&mut self, seat: &mut SwitchSeat<'_>) -> Result<(), ClientError> {
        let waits = PollFd::new(self.memory.control(), PollFlags::IN);
        let mut fds = [waits, PollFd::new(&seat.connection, PollFlags::IN)];
        let most = Timespec::try_from(SWITCH_EVERY).ok();
        // Interrupted or not, everything is looked at again.
        rustix::event::poll(&mut fds, most.as_ref()).ok();
        while let Some((attachment, why)) = seat.connection.poll_cut_off()? {
            if self.attachment == Some(attachment) {
                log(&format!("the switch has cut the guest off: {why}"));
                self.attachment = None;
                self.end()?;
            }
        }
        self.memory.control().clear()?;
        let wanted = self.memory.reset();
        let is_early = self.tried.is_some_and(|then| then.elapsed() < RESET_EVERY);
        if wanted == self.generation || is_early {
            return Ok(());
        }
        self.end()?;
        if let Some(attachment) = self.attachment.take() {
            seat.connection.ask(Ask::Detach { attachment })?;
        }
        if wanted == 0 { Ok(()) } else { self.attach(seat, wanted, true) }
    }

    /// The guest has no rings any more.
    fn end(&mut self) -> Result<(), ClientError> {
        self.generation = 0;
        Ok(self.memory.tell(0, false)?)
    }

    fn attach(
        &mut self,
        seat: &mut SwitchSeat<'_>,
        generation: u32,
        is_fresh: bool,
    ) -> Result<(), ClientError> {
        let (memory, connection) = (&self.memory, &mut seat.connection);
        self.tried = Some(Instant::now());
        memory.describe();
        match connection.attach_memory(seat.port, is_fresh, memory.fd(), memory.bells()) {
            Ok(attachment) => {
                (self.attachment, self.generation) = (Some(attachment), generation);
                self.complaint = None;
                Ok(memory.tell(generation, true)?)
            }
            Err(ClientError::Refused { code, why }) => {
                // The switch is about to let go of them.
                if code != RefusalCode::Taken && self.complaint.as_ref() != Some(&why) {
                    log(&format!("the switch refuses the guest: {why}"));
                    self.complaint = Some(why);
                }
                self.end()
            }
            Err(error) => Err(error),
        }
    }

    /// The switch has ended; the rings stay as they are, for the next one.
    fn lose_switch(&mut self) {
        self.attachment = None;
        if let Err(error) = self.memory.tell(self.generation, false) {
            log(&error.to_string());
        }
    }
}
