//! The directory in which labs that are up are found.
//!
//! `labs/NAME` in this user's [runtime folder](private::runtime_folder): what stands there names
//! processes that are ended and folders that are removed, so it is reached by descriptors of folders
//! that nobody else could have prepared, and by no path. A lab's directory is made before its anchor
//! and removed after it; one whose anchor is gone is removed by whoever finds it. Changes are made under
//! an exclusive lock on the directory of all labs, so there is no lock file to leave behind.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use sys::private::{self, Folder};
use sys::process::started_ticks;

use crate::LabError;
use crate::plan::LabPlan;
use crate::veth::PinnedThread;

/// Where `lab up` notes whom the lab goes with.
pub(crate) const OWNER_FILE: &str = "owner.json";

/// What a lab's anchor wrote about itself once everything stood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabState {
    /// The anchor's process id, outside.
    pub pid: i32,
    /// When it started, clock ticks since boot: tells it from a later process of the same number.
    pub started_ticks: u64,
    /// It lives in a user namespace of its own.
    pub own_user_namespace: bool,
    /// What it is made of.
    pub plan: LabPlan,
    /// Per host of the plan, the anchor's descriptor of its network namespace.
    pub network_fds: Vec<i32>,
    /// Per host of the plan, a thread of the anchor in its network namespace, by its id outside.
    #[serde(default)]
    pub host_threads: Vec<i32>,
    /// What could not be had, one line each.
    pub notes: Vec<String>,
    /// Kernel threads of the lab's interfaces that have a core of their own.
    #[serde(default)]
    pub threads: Vec<PinnedThread>,
    /// The process it goes with; absent when it stays until taken down.
    pub owner: Option<LabOwner>,
}

/// A process outside with which a lab goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabOwner {
    /// Its process id.
    pub pid: i32,
    /// When it started, clock ticks since boot.
    pub started_ticks: u64,
}

impl LabOwner {
    /// The process of this id; `None` when there is none.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, started_ticks: started_ticks(pid)? })
    }

    pub(crate) fn is_running(self) -> bool {
        started_ticks(self.pid) == Some(self.started_ticks)
    }
}

/// The directory of all labs of this user.
#[derive(Debug)]
pub(crate) struct LabsDir {
    runtime: Folder,
    labs: Folder,
}

/// What it is called in the runtime folder.
const LABS: &str = "labs";

impl LabsDir {
    /// As it is now; `None` where no lab has been up.
    pub(crate) fn find() -> Result<Option<Self>, LabError> {
        let Some(runtime) = private::runtime_folder_if_there()? else { return Ok(None) };
        Ok(runtime.folder(LABS)?.map(|labs| Self { runtime, labs }))
    }

    /// Makes the directory if need be and waits for its lock: while the result lives nobody else brings
    /// labs up or down.
    pub(crate) fn lock() -> Result<Self, LabError> {
        loop {
            let runtime = private::runtime_folder()?;
            let labs = match runtime.folder_or_new(LABS) {
                // The last `down` removed the one above it meanwhile.
                Err(_) if !runtime.is_in_place() => continue,
                other => other?,
            };
            rustix::fs::flock(&labs, FlockOperation::LockExclusive)
                .map_err(|error| LabError::state("lock", labs.path())(error.into()))?;
            // The last `down` removes the directory: what we locked must still be the one in place.
            if labs.is_in_place() {
                return Ok(Self { runtime, labs });
            }
        }
    }

    /// Names of the labs that have a directory, in order.
    pub(crate) fn names(&self) -> Result<Vec<String>, LabError> {
        self.labs.names().map_err(LabError::state("read", self.labs.path()))
    }

    /// A lab's directory, if it is there.
    pub(crate) fn lab(&self, name: &str) -> Result<Option<LabDir>, LabError> {
        Ok(self.labs.folder(name)?.map(|folder| LabDir { folder }))
    }

    /// Makes a lab's directory; to be called with the lock held.
    pub(crate) fn create(&self, name: &str) -> Result<LabDir, LabError> {
        Ok(LabDir { folder: self.labs.folder_or_new(name)? })
    }

    /// Removes a lab's directory, whatever is in its place; to be called with the lock held.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LabError> {
        self.labs.remove(name).map_err(LabError::state("remove", self.labs.path().join(name)))
    }

    /// Removes the directory if it is empty; to be called with the lock held.
    pub(crate) fn remove_if_empty(&self) {
        // Not empty is fine. The folder above may hold other things, or be somebody else's to remove.
        if self.runtime.remove_if_empty(LABS) {
            rustix::fs::rmdir(self.runtime.path()).ok();
        }
    }
}

/// One lab's directory.
#[derive(Debug)]
pub(crate) struct LabDir {
    folder: Folder,
}

impl LabDir {
    /// The one that whoever started this process named.
    pub(crate) fn at(path: &Path) -> Result<Self, LabError> {
        Ok(Self { folder: Folder::at(path)? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where a switch of the lab listens.
    pub(crate) fn switch_socket(&self, switch: &str) -> PathBuf {
        self.path().join(format!("{switch}.sock"))
    }

    pub(crate) fn read(&self, file: &str) -> Result<String, LabError> {
        self.folder.read(file).map_err(LabError::state("read", self.path().join(file)))
    }

    /// Whether it has a file of this name.
    pub(crate) fn has(&self, file: &str) -> Result<bool, LabError> {
        let names = self.folder.names().map_err(LabError::state("read", self.path()))?;
        Ok(names.iter().any(|name| name == file))
    }

    /// A new file.
    pub(crate) fn create(&self, file: &str) -> Result<File, LabError> {
        self.folder.create(file).map_err(LabError::state("create", self.path().join(file)))
    }

    /// A file to be written to at its end.
    pub(crate) fn append(&self, file: &str) -> Result<File, LabError> {
        self.folder.append(file).map_err(LabError::state("open", self.path().join(file)))
    }

    /// The owner that `lab up` noted, if any.
    pub(crate) fn owner(&self) -> Option<LabOwner> {
        serde_json::from_str(&self.read(OWNER_FILE).ok()?).ok()
    }

    /// Replaces a file at once: readers see the old or the new one.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), LabError> {
        let written = self.folder.write(file, text.as_bytes());
        written.map_err(LabError::state("write", self.path().join(file)))
    }

    /// The state, if the lab is up: its anchor has written it and still runs.
    pub(crate) fn state_if_up(&self) -> Option<(LabState, OwnedFd)> {
        let state: LabState = serde_json::from_str(&self.read("state.json").ok()?).ok()?;
        let pidfd =
            rustix::process::pidfd_open(Pid::from_raw(state.pid)?, PidfdFlags::empty()).ok()?;
        // Looked at after the descriptor was opened: if this is the anchor, the descriptor is its.
        (started_ticks(state.pid) == Some(state.started_ticks)).then_some((state, pidfd))
    }
}
