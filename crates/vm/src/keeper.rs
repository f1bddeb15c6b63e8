//! The process that a guest is: it owns QEMU and lends the guest's port to the switch, or has a queue of a device for it.
//!
//! It ends when QEMU does, when it is told to (SIGTERM), when the process that the guest goes with has ended, and when its
//! folder is no longer in its place: nobody could find the guest any more. QEMU ends with it in any case
//! (`PR_SET_PDEATHSIG`), and so does the port. The switch is spoken to by a thread of its own, so that one that hangs
//! keeps nothing else waiting.

mod guest_rings;
mod lent_port;
mod passthrough;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sys::process::{Ending, Owned, SignalReader, keep_children};

use lent_port::LentPort;
use packet_switch::{Name, PortName};
pub use passthrough::mac_of_device;

use crate::VmError;
use crate::accelerator::KVM_GAVE_UP;
use crate::line::{self, MachineConfig, PortType, names};
use crate::serial::Greeting;
use crate::state::{
    CONFIG_FILE, KEEPER_SAYS, LOG_FILE, MachineFolder, MachineState, Place, ProcessId, STATE_FILE,
};

/// Longest until the switch has answered for the first time.
const PORT_MAX: Duration = Duration::from_secs(30);
/// Longest until QEMU has its sockets.
const QEMU_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether the folder is in its place and the owner runs.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a guest is asked whether its shell is there.
const GREET_EVERY: Duration = Duration::from_millis(500);

/// What the keeper tells whoever started it, in one line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Up,
    Refused { why: String, is_missing: bool },
}

/// What the file of this name in a guest's folder tells its keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) config: MachineConfig,
    pub(crate) owner: Option<ProcessId>,
}

/// Keeps the guest `name` of the place at `parent` until it ends; the code to exit with.
#[must_use]
pub fn run(parent: &Path, name: &str) -> u8 {
    let started = Keeper::start(parent, name);
    let answer = match &started {
        Ok(_) => Answer::Up,
        Err(error) => {
            let mut why = error.to_string();
            if let Some(source) = std::error::Error::source(error) {
                why = format!("{why}: {source}");
            }
            Answer::Refused { why, is_missing: error.is_missing() }
        }
    };
    let told = tell(&answer);
    let Ok(mut keeper) = started else { return 1 };
    if let Err(error) = told {
        // Nobody knows of the guest.
        log(&format!("no process waits for the guest: {error}"));
    } else {
        keeper.keep();
    }
    keeper.end(parent, name);
    0
}

/// Says how it went, and lets go of the pipe.
fn tell(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_string(answer).unwrap_or_default();
    line.push('\n');
    let told = io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush());
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    told
}

/// Standard error is the log file in the guest's folder.
fn log(line: &str) {
    writeln!(io::stderr(), "{KEEPER_SAYS}{line}").ok();
}

struct Keeper {
    signals: SignalReader,
    folder: MachineFolder,
    state: MachineState,
    qemu: Owned,
    /// QEMU's, until that closes it.
    monitor: Option<UnixStream>,
    /// The guest's shell, until it has answered for the first time.
    shell: Option<UnixStream>,
    greeting: Greeting,
    greeted: Option<Instant>,
}

impl Keeper {
    fn start(parent: &Path, name: &str) -> Result<Self, VmError> {
        // A parent that buries nobody may have started this process.
        keep_children()?;
        let signals = SignalReader::open()?;
        rustix::process::chdir("/").map_err(|error| sys::SyscallError::new("chdir", "/", error))?;
        let place = sys::private::Folder::at(parent)?;
        let gone = || VmError::NotStarted(format!("{name}: no such guest's folder"));
        let folder = MachineFolder { folder: place.folder(name)?.ok_or_else(gone)? };
        let Orders { config, owner } = folder.read(CONFIG_FILE).ok_or_else(gone)?;
        match (&config.passthrough, config.port_type) {
            (Some(queue), _) => passthrough::hold(queue, &config.mac, &folder)?,
            (None, PortType::Tap) => {}
            (None, _) => lend_port(&config, &folder, owner)?,
        }
        let qemu = start_qemu(&config, &folder)?;
        let ids = i32::try_from(qemu.id()).ok().and_then(ProcessId::of);
        let keeper = i32::try_from(std::process::id()).ok().and_then(ProcessId::of);
        let (Some(id), Some(keeper)) = (ids, keeper) else { return Err(ended(&folder)) };
        let monitor = Some(await_start(&qemu, &folder)?);
        let shell = config.has_shell.then(|| connect(&qemu, &folder, names::SHELL)).transpose()?;
        let state = MachineState { keeper, qemu: id, owner, config, is_ready: false };
        folder.write(STATE_FILE, &state)?;
        let greeting = Greeting::new(id.started_ticks);
        Ok(Self { signals, folder, state, qemu, monitor, shell, greeting, greeted: None })
    }

    /// Stays until the guest is to end.
    fn keep(&mut self) {
        loop {
            self.sleep();
            while let Ok(Some(signal)) = self.signals.next() {
                let number = Signal::from_named_raw(signal.number);
                if matches!(number, Some(Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT)) {
                    log(&format!("signal {} ended it (`vm down` sends 15)", signal.number));
                    return;
                }
            }
            // Who cannot be watched is taken for gone.
            if self.qemu.has_ended_within(Duration::ZERO).unwrap_or(true) {
                log("QEMU has ended");
                return;
            }
            if !self.folder.folder.is_in_place() {
                log("its folder no longer exists");
                return;
            }
            if self.state.owner.is_some_and(|owner| !owner.is_running()) {
                log("the process that it belongs to has ended");
                return;
            }
            if self.has_stopped() && self.tell_if_kvm_gave_up() {
                return;
            }
            self.greet();
            self.folder.bound(names::CONSOLE_LOG);
            self.folder.bound(LOG_FILE);
        }
    }

    fn sleep(&self) {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let others = [&self.monitor, &self.shell].into_iter().flatten();
        fds.extend(others.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let most = Timespec::try_from(LOOK_EVERY).ok();
        // Interrupted or not, everything is looked at again.
        rustix::event::poll(&mut fds, most.as_ref()).ok();
    }

    /// Whether QEMU says that it has stopped the guest.
    fn has_stopped(&mut self) -> bool {
        let Some(monitor) = self.monitor.as_mut() else { return false };
        let mut bytes = [0; 4096];
        match monitor.read(&mut bytes) {
            // An event torn in two halves would be missed, and the guest stay as it is.
            Ok(count) if count > 0 => bytes[..count].windows(6).any(|window| window == b"\"STOP\""),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            _ => {
                self.monitor = None;
                false
            }
        }
    }

    /// Whether KVM is why, which the log is told in words for people.
    fn tell_if_kvm_gave_up(&self) -> bool {
        let said = self.folder.folder.read(LOG_FILE).unwrap_or_default();
        let why = said.lines().find(|line| line.contains(KVM_GAVE_UP)).map(str::trim);
        if let Some(why) = why {
            let line = format!("KVM cannot run this guest, --accelerator tcg can ({why})\n");
            io::stderr().write_all(line.as_bytes()).ok();
        }
        why.is_some()
    }

    /// Asks whether the guest is there, and hears whether it is; then its shell is left to others.
    fn greet(&mut self) {
        let Some(shell) = self.shell.as_mut() else { return };
        if self.greeted.is_none_or(|then| then.elapsed() >= GREET_EVERY) {
            self.greeted = Some(Instant::now());
            // What finds no room is sent the next time.
            shell.write_all(self.greeting.line()).ok();
        }
        let mut bytes = [0; 1024];
        let count = match shell.read(&mut bytes) {
            Ok(count) if count > 0 => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // QEMU closes it when it ends.
            _ => {
                self.shell = None;
                return;
            }
        };
        if self.greeting.hear(&bytes[..count]) {
            self.shell = None;
            self.state.is_ready = true;
            if let Err(error) = self.folder.write(STATE_FILE, &self.state) {
                log(&error.to_string());
            }
        }
    }

    fn end(mut self, parent: &Path, name: &str) {
        if let Err(error) = self.qemu.end() {
            log(&format!("QEMU: {error}"));
        }
        // Another guest may have the name by now: the folder goes if it is still this one's.
        match Place::at(parent) {
            Ok(place) if self.folder.folder.is_in_place() => {
                if let Err(error) = place.remove(name) {
                    log(&error.to_string());
                }
                place.remove_if_empty();
            }
            _ => {}
        }
    }
}

fn lend_port(
    config: &MachineConfig,
    folder: &MachineFolder,
    owner: Option<ProcessId>,
) -> Result<(), VmError> {
    is_lent(LentPort::new(config, folder, owner)?, &config.switch)
}

/// Holds a port whose rings a guest drives itself, in a trust group if one is named, for whichever hypervisor connects to the
/// socket `path`; its device has the hardware address and so many pairs of queues. Lends it to the switch and to each that follows it, as long as this process runs. Returns when the
/// switch has it.
///
/// # Errors
/// Somebody serves the socket already, there is no switch, or it refuses.
pub fn hold_port(
    switch: &Path,
    port: &PortName,
    (mac, queues): (&str, u32),
    path: &Path,
    trust: Option<Name>,
) -> Result<PortSocket, VmError> {
    let (switch_path, path_of, device) = (switch.to_owned(), path.to_owned(), (mac, queues));
    let lent = LentPort::with_rings(switch_path, port.clone(), path_of, device, trust)?;
    let socket = PortSocket(path.to_owned());
    is_lent(lent, switch)?;
    Ok(socket)
}

/// The socket of a port that this process holds; its file goes with it.
#[derive(Debug)]
pub struct PortSocket(PathBuf);

impl Drop for PortSocket {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn is_lent(port: LentPort, switch: &Path) -> Result<(), VmError> {
    port.serve()?.recv_timeout(PORT_MAX).map_err(|_silent| {
        VmError::NotStarted(format!("the switch at {} does not answer", switch.display()))
    })??;
    Ok(())
}

fn start_qemu(config: &MachineConfig, folder: &MachineFolder) -> Result<Owned, VmError> {
    let words = line::qemu(config, folder.path());
    let log =
        || folder.folder.append(LOG_FILE).map_err(VmError::file("open", folder.file(LOG_FILE)));
    let mut command = Command::new(&config.qemu);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(log()?).stderr(log()?);
    Owned::start(&mut command, Ending::KILL).map_err(|error| VmError::NotStarted(error.to_string()))
}

fn ended(folder: &MachineFolder) -> VmError {
    let last = folder.last_line().unwrap_or_else(|| "QEMU gives no reason".to_owned());
    VmError::NotStarted(last)
}

/// Waits until QEMU has made the whole machine: then its monitor answers, which is returned.
fn await_start(qemu: &Owned, folder: &MachineFolder) -> Result<UnixStream, VmError> {
    const ASK: &[u8] = b"{\"execute\":\"qmp_capabilities\"}\n";
    let mut monitor = connect(qemu, folder, names::MONITOR)?;
    let failed = || VmError::file("ask", folder.file(names::MONITOR));
    monitor.write_all(ASK).map_err(failed())?;
    let until = Instant::now() + QEMU_MAX;
    let (mut said, mut bytes) = (Vec::new(), [0; 1024]);
    // A greeting comes first.
    while !said.windows(8).any(|window| window == b"\"return\"") {
        match monitor.read(&mut bytes) {
            Ok(count) if count > 0 => said.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if qemu.has_ended_within(Duration::from_millis(10)).unwrap_or(true) {
                    return Err(ended(folder));
                }
                if Instant::now() > until {
                    return Err(failed()(io::ErrorKind::TimedOut.into()));
                }
            }
            // It closes the socket when it ends.
            _ if qemu.has_ended_within(QEMU_MAX).unwrap_or(true) => return Err(ended(folder)),
            Ok(_) => return Err(failed()(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => return Err(failed()(error)),
        }
    }
    Ok(monitor)
}

/// QEMU makes its sockets before the machine.
fn connect(qemu: &Owned, folder: &MachineFolder, name: &str) -> Result<UnixStream, VmError> {
    let path = folder.file(name);
    let until = Instant::now() + QEMU_MAX;
    loop {
        match UnixStream::connect(&path) {
            Ok(socket) => {
                socket.set_nonblocking(true).map_err(VmError::file("use", &path))?;
                return Ok(socket);
            }
            Err(_) if qemu.has_ended_within(Duration::from_millis(20)).unwrap_or(true) => {
                return Err(ended(folder));
            }
            Err(error) if Instant::now() > until => {
                return Err(VmError::file("connect to", &path)(error));
            }
            Err(_) => {}
        }
    }
}
