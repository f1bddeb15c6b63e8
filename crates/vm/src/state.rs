//! The folders in which guests that are up are found.
//!
//! A guest's folder is `vms/NAME` in this user's [runtime folder](private::runtime_folder), or a folder of a lab's. What stands
//! there names processes that are ended, so it is reached by descriptors of folders that nobody else could have prepared.
//! Names are taken and removed under an exclusive lock on the folder that holds them.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use sys::private::{self, Folder};
use sys::process::started_ticks;

use crate::VmError;
use crate::line::{MachineConfig, names};

/// What the folder of all guests is called in the runtime folder.
const VMS: &str = "vms";
pub(crate) const STATE_FILE: &str = "state.json";
pub(crate) const CONFIG_FILE: &str = "config.json";
/// What [`QueueState`] is kept in.
pub(crate) const QUEUE_FILE: &str = "queue.json";
/// Bytes after which a log begins anew: what a guest says on its console is up to the guest.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// What a keeper's own lines in the log begin with.
pub(crate) const KEEPER_SAYS: &str = "keeper: ";
/// What QEMU and the keeper say.
pub(crate) const LOG_FILE: &str = "log";

/// A process, and when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// Clock ticks since boot: tells it from a later process of the same number.
    pub started_ticks: u64,
}

impl ProcessId {
    /// The process of this number; `None` when there is none.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, started_ticks: started_ticks(pid)? })
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_running(self) -> bool {
        started_ticks(self.pid) == Some(self.started_ticks)
    }

    /// A descriptor of it, if it runs.
    pub(crate) fn open(self) -> Option<OwnedFd> {
        let fd = rustix::process::pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Looked at after it was opened: if this is the process, the descriptor is its.
        self.is_running().then_some(fd)
    }
}

/// What a guest's keeper writes about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineState {
    /// The keeper: ending it ends the guest.
    pub keeper: ProcessId,
    /// QEMU.
    pub qemu: ProcessId,
    /// The process it goes with.
    pub owner: Option<ProcessId>,
    /// What it is.
    pub config: MachineConfig,
    /// Whether it said that it has booted; one without a shell says nothing.
    pub is_ready: bool,
}

/// A device's queue that is passed through to a guest, as the guest's keeper saw it last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueState {
    /// How frames get to the device, as [`packet_switch::passthrough::Passthrough::mode`] says; none while it has gone.
    pub mode: Option<String>,
    /// Whether the guest's driver has the rings.
    pub has_client: bool,
    /// Whether the device has a carrier.
    pub has_link: bool,
    /// Frames of the guest's that the device did not take.
    pub refused: u64,
    /// Frames for the guest that the kernel had to drop.
    pub lost: u64,
    /// What the guest did wrong last, or why the device is not there.
    pub fault: Option<String>,
}

/// A folder that holds guests' folders.
#[derive(Debug)]
pub struct Place {
    folder: Folder,
}

impl Place {
    /// That of this user's guests; `None` where there has been none.
    pub(crate) fn find() -> Result<Option<Self>, VmError> {
        let Some(runtime) = private::runtime_folder_if_there()? else { return Ok(None) };
        Ok(runtime.folder(VMS)?.map(|folder| Self { folder }))
    }

    /// That of this user's guests, made if need be, once nobody else has its lock.
    pub(crate) fn lock() -> Result<Self, VmError> {
        loop {
            let runtime = private::runtime_folder()?;
            let folder = match runtime.folder_or_new(VMS) {
                // Whoever took the last guest away removed it meanwhile.
                Err(_) if !runtime.is_in_place() => continue,
                other => other?,
            };
            if let Some(place) = Self::locked(folder)? {
                return Ok(place);
            }
        }
    }

    /// Any other, by its path, once nobody else has its lock.
    ///
    /// # Errors
    /// It is not there, or not this user's.
    pub fn at(path: &Path) -> Result<Self, VmError> {
        let gone = || VmError::NotStarted(format!("{} no longer exists", path.display()));
        Self::locked(Folder::at(path)?)?.ok_or_else(gone)
    }

    /// `None` where the folder has been removed.
    fn locked(folder: Folder) -> Result<Option<Self>, VmError> {
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)
            .map_err(|error| VmError::file("lock", folder.path())(error.into()))?;
        Ok(folder.is_in_place().then_some(Self { folder }))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, VmError> {
        self.folder.names().map_err(VmError::file("read", self.path()))
    }

    pub(crate) fn machine(&self, name: &str) -> Result<Option<MachineFolder>, VmError> {
        Ok(self.folder.folder(name)?.map(|folder| MachineFolder { folder }))
    }

    pub(crate) fn create(&self, name: &str) -> Result<MachineFolder, VmError> {
        Ok(MachineFolder { folder: self.folder.folder_or_new(name)? })
    }

    /// Removes a guest's folder; to be called with the lock held.
    pub(crate) fn remove(&self, name: &str) -> Result<(), VmError> {
        self.folder.remove(name).map_err(VmError::file("remove", self.path().join(name)))
    }

    /// Removes the folder of this user's guests if it is empty, and the one above; with the lock held.
    pub(crate) fn remove_if_empty(&self) {
        if self.path().file_name() == Some(VMS.as_ref()) && rustix::fs::rmdir(self.path()).is_ok() {
            self.path().parent().map(rustix::fs::rmdir);
        }
    }
}

/// One guest's folder.
#[derive(Debug)]
pub(crate) struct MachineFolder {
    pub(crate) folder: Folder,
}

impl MachineFolder {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, value: &impl Serialize) -> Result<(), VmError> {
        let text = serde_json::to_string(value).unwrap_or_default();
        let written = self.folder.write(name, text.as_bytes());
        written.map_err(VmError::file("write", self.file(name)))
    }

    pub(crate) fn read<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(&self.folder.read(name).ok()?).ok()
    }

    /// The guest, if it is up: its keeper has written so and still runs.
    pub(crate) fn state_if_up(&self) -> Option<(MachineState, OwnedFd)> {
        let state: MachineState = self.read(STATE_FILE)?;
        let keeper = state.keeper.open()?;
        Some((state, keeper))
    }

    /// Empties a log that has become long.
    pub(crate) fn bound(&self, log: &str) {
        let is_long = |file: &File| file.metadata().is_ok_and(|known| known.len() > LOG_BYTES_MAX);
        if let Ok(file) = self.folder.append(log)
            && is_long(&file)
        {
            // A full file system has other victims first.
            file.set_len(0).ok();
        }
    }

    /// Its logs, to be read also when the folder has gone.
    pub(crate) fn logs(&self) -> Logs {
        let open = |name| File::open(self.file(name)).ok();
        Logs { processes: open(LOG_FILE), console: open(names::CONSOLE_LOG) }
    }

    /// The last line of the log with text on it that is not the keeper's.
    pub(crate) fn last_line(&self) -> Option<String> {
        last_line(self.logs().processes.as_ref()?)
    }
}

/// What a guest's processes and its console have said.
#[derive(Debug)]
pub(crate) struct Logs {
    /// QEMU and the keeper.
    processes: Option<File>,
    console: Option<File>,
}

impl Logs {
    /// `: why`, as far as they tell why a guest has ended: what QEMU says, else what the guest said last, else the keeper's
    /// reason.
    pub(crate) fn why_ended(&self) -> String {
        let last = [&self.processes, &self.console].into_iter().flatten().find_map(last_line);
        let reason = || keeper_line(self.processes.as_ref()?);
        last.or_else(reason).map(|line| format!(": {line}")).unwrap_or_default()
    }
}

/// The last line with text on it that is not the keeper's.
fn last_line(log: &File) -> Option<String> {
    line(log, |line| (!line.starts_with(KEEPER_SAYS)).then_some(line))
}

/// The keeper's last line, without its name.
fn keeper_line(log: &File) -> Option<String> {
    line(log, |line| line.strip_prefix(KEEPER_SAYS).map(str::trim))
}

/// What `wanted` takes of the last line with text on it of which it takes anything.
fn line(log: &File, wanted: impl Fn(&str) -> Option<&str>) -> Option<String> {
    // A console's log may be long, and hold anything.
    let mut tail = [0; 4096];
    let begin = log.metadata().ok()?.len().saturating_sub(tail.len() as u64);
    let count = log.read_at(&mut tail, begin).ok()?;
    let text = String::from_utf8_lossy(&tail[..count]);
    let mut lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    Some(units::printable(lines.find_map(wanted)?).into_owned())
}
