//! The directory in which labs that are up are found.
//!
//! `/run/clearstream/labs/NAME` for root, `$XDG_RUNTIME_DIR/clearstream/labs/NAME` for others. A
//! lab's directory is made before its anchor and removed after it; one whose anchor is gone is
//! removed by whoever finds it. Changes are made under an exclusive lock on the directory of all
//! labs, so there is no lock file to leave behind.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone)]
pub(crate) struct LabsDir {
    path: PathBuf,
}

/// While it lives nobody else brings labs up or down.
#[derive(Debug)]
pub(crate) struct LabsLock {
    _directory: File,
}

impl LabsDir {
    pub(crate) fn of_this_user() -> Self {
        let user = rustix::process::geteuid();
        let base = if user.is_root() {
            PathBuf::from("/run/clearstream")
        } else {
            match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_dir()) {
                Some(dir) => Path::new(&dir).join("clearstream"),
                None => std::env::temp_dir().join(format!("clearstream-{}", user.as_raw())),
            }
        };
        Self { path: base.join("labs") }
    }

    pub(crate) fn lab(&self, name: &str) -> LabDir {
        LabDir { path: self.path.join(name) }
    }

    /// Names of the labs that have a directory, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Makes the directory if need be and waits for the lock.
    pub(crate) fn lock(&self) -> Result<LabsLock, LabError> {
        loop {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(&self.path)
                .map_err(LabError::state("create", &self.path))?;
            self.check_owner()?;
            let directory = match File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(LabError::state("open", &self.path))?,
            };
            rustix::fs::flock(&directory, FlockOperation::LockExclusive)
                .map_err(|error| LabError::state("lock", &self.path)(error.into()))?;
            // The last `down` removes the directory: what we locked must still be the one in place.
            let locked = directory.metadata().map_err(LabError::state("stat", &self.path))?;
            match fs::metadata(&self.path) {
                Ok(now) if now.ino() == locked.ino() => {
                    return Ok(LabsLock { _directory: directory });
                }
                _ => {}
            }
        }
    }

    /// Removes the directory if it is empty; to be called with the lock held.
    pub(crate) fn remove_if_empty(&self, _lock: &LabsLock) {
        // Not empty, or somebody else's to remove: both are fine.
        if fs::remove_dir(&self.path).is_ok() {
            self.path.parent().map(fs::remove_dir).transpose().ok();
        }
    }

    /// In a directory everybody may write to, somebody else may have been first.
    fn check_owner(&self) -> Result<(), LabError> {
        let owner = fs::metadata(&self.path).map_err(LabError::state("stat", &self.path))?.uid();
        if owner == rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        Err(LabError::NotPermitted {
            what: format!("{} belongs to user {owner}", self.path.display()),
            advice: "remove it or set XDG_RUNTIME_DIR".to_owned(),
        })
    }
}

/// One lab's directory.
#[derive(Debug, Clone)]
pub(crate) struct LabDir {
    path: PathBuf,
}

impl LabDir {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a switch of the lab listens.
    pub(crate) fn switch_socket(&self, switch: &str) -> PathBuf {
        self.path.join(format!("{switch}.sock"))
    }

    pub(crate) fn create(&self) -> Result<(), LabError> {
        fs::create_dir(&self.path).map_err(LabError::state("create", &self.path))
    }

    pub(crate) fn remove(&self) -> Result<(), LabError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::state("remove", &self.path)(error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn read(&self, file: &str) -> Result<String, LabError> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(LabError::state("read", path))
    }

    /// The owner that `lab up` noted, if any.
    pub(crate) fn owner(&self) -> Option<LabOwner> {
        serde_json::from_str(&self.read(OWNER_FILE).ok()?).ok()
    }

    /// Replaces a file at once: readers see the old or the new one.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), LabError> {
        let path = self.path.join(file);
        let partial = self.path.join(format!("{file}.part"));
        File::create(&partial)
            .and_then(|mut out| out.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(LabError::state("write", path))
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

/// Field 22 of `/proc/PID/stat` (`proc_pid_stat(5)`), for a process that is not on its way out.
pub(crate) fn started_ticks(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_name, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then_some(())?;
    // Fields 3, 9 and 22.
    let flags: u32 = fields.nth(9 - 4)?.parse().ok()?;
    (flags & PF_EXITING == 0).then_some(())?;
    fields.nth(22 - 10)?.parse().ok()
}

/// Kernel `include/linux/sched.h`: it has begun to exit.
const PF_EXITING: u32 = 0x4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_started_and_a_dead_one_has_not() {
        let own = i32::try_from(std::process::id()).unwrap();
        let ticks = started_ticks(own).unwrap();
        assert!(ticks > 0);
        let text = fs::read_to_string(format!("/proc/{own}/stat")).unwrap();
        let after = text.rsplit_once(')').unwrap().1;
        assert_eq!(after.split_ascii_whitespace().nth(22 - 3).unwrap(), ticks.to_string());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while started_ticks(pid).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(started_ticks(i32::MAX), None);
    }
}
