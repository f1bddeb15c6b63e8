//! The cores that kernel threads of threaded NAPI may run on.

use std::fs;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use settings::Key;

use super::{Host, read_text};
use crate::world::WorldError;

/// Processes looked at; `pid_max` may be four million, hosts run some thousands.
const PROCESSES_MAX: usize = 1 << 16;

/// The kernel's parent of its own threads: no program can be a child of it.
const KTHREADD: &str = "2";

impl Host {
    pub(super) fn read_thread(&self, key: &Key, name: &str) -> Result<String, WorldError> {
        let thread = self.thread_named(key, name)?;
        let set = sched_getaffinity(Pid::from_raw(thread))
            .map_err(|error| WorldError::of_io(key, &error.into(), false))?;
        let cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
        let cores: Vec<u32> = cores.filter_map(|core| u32::try_from(core).ok()).collect();
        Ok(settings::list_of(&cores))
    }

    pub(super) fn write_thread(&self, key: &Key, name: &str, to: &str) -> Result<(), WorldError> {
        let cores = settings::cores_of(to)
            .ok_or_else(|| WorldError::refused(key, format!("'{to}' is not a list of cores")))?;
        let thread = self.thread_named(key, name)?;
        sys::thread::pin_thread(thread, &cores)
            .map_err(|error| WorldError::of_io(key, &error.source, false))
    }

    /// The process id of the one kernel thread of this name.
    fn thread_named(&self, key: &Key, name: &str) -> Result<i32, WorldError> {
        let processes = fs::read_dir(&self.proc)
            .map_err(|error| WorldError::of_io(key, &error, false))?
            .flatten()
            .take(PROCESSES_MAX);
        let mut found = processes.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
            is_kernel_thread(&entry.path(), name).then_some(pid)
        });
        match (found.next(), found.next()) {
            (Some(thread), None) => Ok(thread),
            (None, _) => Err(WorldError::absent(key, "no such kernel thread is visible here")),
            (Some(_), Some(_)) => {
                Err(WorldError::refused(key, "several kernel threads have that name"))
            }
        }
    }
}

fn is_kernel_thread(folder: &Path, name: &str) -> bool {
    if !read_text(&folder.join("comm")).is_ok_and(|comm| comm.trim_end() == name) {
        return false;
    }
    // The parent is the second word after the name, which may hold blanks and parentheses.
    let stat = read_text(&folder.join("stat")).unwrap_or_default();
    let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1));
    parent == Some(KTHREADD)
}
