//! A guest seen from outside its keeper: started, found, waited for, ended.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use sys::process::start_daemon;

use crate::VmError;
use crate::keeper::{Answer, Orders};
use crate::line::{self, MachineConfig, names};
use crate::state::{
    CONFIG_FILE, LOG_FILE, MachineFolder, MachineState, Place, ProcessId, QUEUE_FILE, QueueState,
    STATE_FILE,
};

/// Longest that a keeper may take to say whether QEMU runs.
const START_MAX: Duration = Duration::from_secs(120);
/// How long a keeper that is asked to end has.
const END_MAX: Duration = Duration::from_secs(10);
/// How long the kernel has to end a process.
const KILL_MAX: Duration = Duration::from_secs(60);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest path of a UNIX socket, without the byte that ends it.
const SOCKET_PATH_MAX: usize = 107;

/// The program that runs a keeper: this one, started again with hidden arguments.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// `path` started with `arguments`, the path of a place and a guest's name must call [`crate::keeper::run`] with these.
    pub fn new(
        path: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self { path: path.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }
}

/// How a guest is started.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// What it is.
    pub config: &'a MachineConfig,
    /// The program of its keeper.
    pub program: &'a Program,
    /// A process with which it goes.
    pub owner: Option<i32>,
}

/// A guest that is up.
#[derive(Debug)]
pub struct Machine {
    pub(crate) folder: MachineFolder,
    state: MachineState,
    keeper: OwnedFd,
}

impl Machine {
    /// Where a guest of this name of this user's has its sockets.
    ///
    /// # Errors
    /// Somebody else has this user's runtime folder.
    pub fn folder_of(name: &str) -> Result<PathBuf, VmError> {
        check_name(name)?;
        let folder = Place::lock()?;
        let path = folder.path().join(name);
        folder.remove_if_empty();
        Ok(path)
    }

    /// Starts one of this user's guests.
    ///
    /// # Errors
    /// One of that name is up, the switch refuses its port, or QEMU refuses its line; nothing is left behind.
    pub fn start(start: Start<'_>) -> Result<Self, VmError> {
        check_name(&start.config.name)?;
        Self::start_in(&Place::lock()?, start)
    }

    /// The same in a place whose lock is held.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_in(place: &Place, start: Start<'_>) -> Result<Self, VmError> {
        let name = &start.config.name;
        let owner = start.owner.map(|pid| ProcessId::of(pid).ok_or(VmError::NoOwner(pid)));
        let owner = owner.transpose()?;
        if place.machine(name)?.and_then(|known| known.state_if_up()).is_some() {
            return Err(VmError::IsUp { name: name.clone() });
        }
        check_queue(place, start.config)?;
        place.remove(name)?;
        let folder = place.create(name)?;
        let started = check_sockets(folder.path()).and_then(|()| {
            folder.write(CONFIG_FILE, &Orders { config: start.config.clone(), owner })?;
            start_keeper(&folder, place.path(), start)
        });
        match started.and_then(|()| Self::opened(folder)) {
            Ok(machine) => Ok(machine),
            Err(error) => {
                place.remove(name)?;
                place.remove_if_empty();
                Err(error)
            }
        }
    }

    fn opened(folder: MachineFolder) -> Result<Self, VmError> {
        match folder.state_if_up() {
            Some((state, keeper)) => Ok(Self { folder, state, keeper }),
            None => {
                let last = folder.last_line().unwrap_or_else(|| "it ended at once".into());
                Err(VmError::NotStarted(last))
            }
        }
    }

    /// One of this user's guests, which must be up.
    ///
    /// # Errors
    /// It is not up, or somebody else has this user's runtime folder.
    pub fn open(name: &str) -> Result<Self, VmError> {
        check_name(name)?;
        let place = Place::find()?;
        let found = place.as_ref().map(|place| Self::find_in(place, name)).transpose()?.flatten();
        if let Some(machine) = found {
            return Ok(machine);
        }
        let up: Vec<String> =
            Self::all()?.into_iter().map(|machine| machine.state.config.name).collect();
        let known = match &up[..] {
            [] => ": no guest is up; boot one with: clearstream vm run".to_owned(),
            up => format!("; running: {}", up.join(", ")),
        };
        Err(VmError::NotUp { name: name.to_owned(), known })
    }

    /// A guest of a place, if it is up.
    ///
    /// # Errors
    /// The folder is somebody else's.
    pub fn find_in(place: &Place, name: &str) -> Result<Option<Self>, VmError> {
        let Some(folder) = place.machine(name)? else { return Ok(None) };
        Ok(folder.state_if_up().map(|(state, keeper)| Self { folder, state, keeper }))
    }

    /// All guests of this user that are up; what others left is removed.
    ///
    /// # Errors
    /// That could not be removed, or somebody else has this user's runtime folder.
    pub fn all() -> Result<Vec<Self>, VmError> {
        let Some(place) = Place::find()? else { return Ok(Vec::new()) };
        let names = place.names()?;
        let found = |name: &String| Self::find_in(&place, name).ok().flatten();
        let up: Vec<Self> = names.iter().filter_map(found).collect();
        if up.len() < names.len() || names.is_empty() {
            let place = Place::lock()?;
            for name in &names {
                if Self::find_in(&place, name).ok().flatten().is_none() {
                    place.remove(name)?;
                }
            }
            place.remove_if_empty();
        }
        Ok(up)
    }

    /// Ends a guest of this user's; false when it was not up.
    ///
    /// # Errors
    /// It does not end.
    pub fn down(name: &str) -> Result<bool, VmError> {
        check_name(name)?;
        let Some(place) = Place::find()? else { return Ok(false) };
        let found = Self::find_in(&place, name)?;
        let was_up = found.is_some();
        found.map_or(Ok(()), |machine| machine.end())?;
        // What a killed keeper left.
        Self::all()?;
        Ok(was_up)
    }

    /// Ends it; its folder goes with its keeper.
    ///
    /// # Errors
    /// It does not end.
    pub fn end(self) -> Result<(), VmError> {
        let send = |signal| match rustix::process::pidfd_send_signal(&self.keeper, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => {
                Err(sys::SyscallError::new("pidfd_send_signal", &self.state.config.name, error))
            }
        };
        send(Signal::TERM)?;
        if !self.ends_within(END_MAX) {
            // One that hangs; the kernel ends QEMU with it.
            send(Signal::KILL)?;
        }
        if self.ends_within(KILL_MAX) {
            return Ok(());
        }
        let pid = self.state.keeper.pid;
        let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
        Err(sys::SyscallError::new("kill", format!("process {pid}"), source).into())
    }

    /// Whether keeper and QEMU have ended within that time.
    fn ends_within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.state.keeper.is_running() || self.state.qemu.is_running() {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        true
    }

    /// What its keeper said of it last.
    #[must_use]
    pub fn state(&self) -> MachineState {
        self.folder.read(STATE_FILE).unwrap_or_else(|| self.state.clone())
    }

    /// What its keeper said last of the queue that is passed through to it, if one is.
    #[must_use]
    pub fn queue_state(&self) -> Option<QueueState> {
        self.folder.read(QUEUE_FILE)
    }

    /// QEMU's command line.
    #[must_use]
    pub fn line(&self) -> Vec<String> {
        line::qemu(&self.state.config, self.folder.path())
    }

    /// Whether its keeper runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state.keeper.is_running()
    }

    /// What its console has said of late.
    #[must_use]
    pub fn console_log(&self) -> Vec<u8> {
        std::fs::read(self.folder.file(names::CONSOLE_LOG)).unwrap_or_default()
    }

    /// Waits until the guest has said that it is ready.
    ///
    /// # Errors
    /// It has no shell that could say so, it ended, or is not ready in time.
    pub fn wait_until_ready(&self, limit: Duration) -> Result<(), VmError> {
        let name = || self.state.config.name.clone();
        if !self.state.config.has_shell {
            return Err(VmError::NoShell(name()));
        }
        let until = Instant::now() + limit;
        // Its folder goes with it.
        let logs = self.folder.logs();
        while !self.state().is_ready {
            if !self.is_up() {
                return Err(VmError::Ended { name: name(), why: logs.why_ended() });
            }
            if Instant::now() > until {
                return Err(VmError::NotReady { name: name(), limit_s: limit.as_secs() });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// Whether another guest of the place has the device that is to be passed through; nobody else is known here.
fn check_queue(place: &Place, config: &MachineConfig) -> Result<(), VmError> {
    let Some(wanted) = &config.passthrough else { return Ok(()) };
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = namespace("self");
    for name in place.names()? {
        let Some(machine) = Machine::find_in(place, &name).ok().flatten() else { continue };
        let MachineState { config, keeper, .. } = machine.state;
        let is_same = config.passthrough.is_some_and(|queue| queue.device == wanted.device);
        if is_same && namespace(&keeper.pid.to_string()) == own {
            return Err(VmError::DeviceTaken { device: wanted.device.clone(), name });
        }
    }
    Ok(())
}

/// A guest's name is that of a folder.
fn check_name(name: &str) -> Result<(), VmError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=63).contains(&name.len()) && !name.starts_with(['.', '-']) && name.chars().all(is_plain)
    {
        return Ok(());
    }
    let name = units::printable(name);
    Err(VmError::Invalid(format!(
        "'{name}' cannot be a guest's name: 1 to 63 letters, digits, '-', '_' and '.', and not \
         '-' or '.' at the beginning"
    )))
}

fn check_sockets(folder: &Path) -> Result<(), VmError> {
    let longest = folder.join(names::CONSOLE);
    if longest.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(VmError::LongPath { path: longest, most: SOCKET_PATH_MAX });
    }
    Ok(())
}

fn start_keeper(folder: &MachineFolder, parent: &Path, start: Start<'_>) -> Result<(), VmError> {
    let log =
        folder.folder.append(LOG_FILE).map_err(VmError::file("open", folder.file(LOG_FILE)))?;
    let mut command = Command::new(&start.program.path);
    // For `ps`, whatever the path is: /proc/self/exe survives an upgrade while a guest is up.
    command.arg0("clearstream").args(&start.program.arguments);
    command.arg(parent).arg(&start.config.name);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    start_daemon(&mut command, Vec::new());
    let mut keeper = command.spawn().map_err(VmError::file("start", start.program.path.clone()))?;
    let answer = keeper.stdout.take().map(read_line).unwrap_or_default();
    match serde_json::from_slice(&answer) {
        Ok(Answer::Up) => Ok(()),
        Ok(Answer::Refused { why, is_missing }) => {
            keeper.wait().ok();
            Err(if is_missing { VmError::Missing(why) } else { VmError::Refused(why) })
        }
        Err(_) => {
            keeper.kill().ok();
            keeper.wait().ok();
            let last = folder.last_line();
            Err(VmError::NotStarted(
                last.unwrap_or_else(|| "its keeper does not answer".to_owned()),
            ))
        }
    }
}

/// What comes within [`START_MAX`], up to the end of a line.
fn read_line(mut pipe: impl Read + AsFd) -> Vec<u8> {
    let mut line = Vec::new();
    let until = Instant::now() + START_MAX;
    while !line.ends_with(b"\n") {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) => return line,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return line,
        }
        let mut chunk = [0; 1024];
        match pipe.read(&mut chunk) {
            Ok(0) | Err(_) => return line,
            Ok(count) => line.extend_from_slice(&chunk[..count]),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_folders_and_nothing_else() {
        for name in ["a", "web-1", "x_y.z", &"n".repeat(63)] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "ä", &"n".repeat(64)] {
            let error = check_name(name).unwrap_err();
            assert!(error.is_usage() && !error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_folder_too_deep_for_sockets_is_told_before_anything_starts() {
        check_sockets(Path::new("/run/clearstream/vms/a")).unwrap();
        let error = check_sockets(Path::new(&format!("/{}", "d".repeat(100)))).unwrap_err();
        assert!(error.to_string().contains("at most 107"), "{error}");
    }
}
