//! Files beside the test: what there is before it, what is removed after it, where results go.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::Run;
use crate::error::LoadError;
use crate::io::layout::{file_name, task_directory};
use crate::io::text::Capacity;
use crate::posix;

/// Writes a small file that is not under test.
pub(crate) fn replace(path: &str, text: &str) -> Result<(), LoadError> {
    sys::private::create(Path::new(path))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| LoadError::File { path: path.to_owned(), source })
}

/// Adds to a file that is not under test.
pub(crate) fn append(path: &str, text: &str) -> Result<(), LoadError> {
    sys::private::append_to(Path::new(path))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| LoadError::File { path: path.to_owned(), source })
}

/// The file system that a file lies or will lie in.
#[must_use]
pub fn capacity(path: &str) -> Option<Capacity> {
    let parent = Path::new(path).parent().map(|parent| parent.to_owned());
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| ".".into());
    let stat = rustix::fs::statvfs(path).or_else(|_absent| rustix::fs::statvfs(&parent)).ok()?;
    let block = stat.f_frsize as f64;
    Some(Capacity {
        bytes: stat.f_blocks as f64 * block,
        free_bytes: stat.f_bfree as f64 * block,
        inodes: stat.f_files as f64,
        free_inodes: stat.f_ffree as f64,
    })
}

/// Bytes of this host's memory.
pub(super) fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// The number in a stonewall status file.
pub(crate) fn status(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

impl Run<'_> {
    pub(super) fn warn_of_existing_file(&mut self) -> Result<(), LoadError> {
        let options = self.options;
        let is_mine = options.file_per_task || self.team.leads();
        if !(options.writes || options.checks_write) || !is_mine || options.is_dry {
            return Ok(());
        }
        let path = file_name(options, self.rank(), 0);
        if self.team.activity.during("access", &path, || posix::exists(&path)) {
            let end = if options.keeps_existing_file { "overwritten" } else { "deleted" };
            self.warn(&format!("The file \"{path}\" exists already and will be {end}"))?;
        }
        Ok(())
    }

    /// Removes the files of a repetition: each rank its own, or rank 0 the shared one.
    pub(super) fn remove(&mut self, repetition: u32) -> Result<(), LoadError> {
        let options = self.options;
        if options.is_dry || !(options.file_per_task || self.team.leads()) {
            return Ok(());
        }
        let path = file_name(options, self.rank(), repetition);
        let activity = &self.team.activity;
        let found = activity.during("lstat", &path, || fs::symlink_metadata(&path));
        let Ok(found) = found else { return Ok(()) };
        if !(found.is_file() || found.is_symlink()) {
            let line = format!(
                "{path} is neither a file nor a link to one, and is not removed: -E writes into it, -k \
                 leaves it"
            );
            return Err(LoadError::Usage(line));
        }
        if let Err(source) = activity.during("unlink", &path, || fs::remove_file(&path)) {
            self.warn(&format!("cannot remove {path}: {source}"))?;
        }
        Ok(())
    }

    /// Makes the directory of this rank's file (`-u`), where it is missing.
    pub(super) fn make_directory(&self) -> Result<(), LoadError> {
        let Some(path) = task_directory(self.options, self.rank()) else { return Ok(()) };
        match self.team.activity.during("mkdir", &path, || fs::create_dir(&path)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(self.call("mkdir", &path, String::new(), error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn call(
        &self,
        operation: &'static str,
        path: &str,
        place: String,
        source: std::io::Error,
    ) -> LoadError {
        let (rank, host) = (self.team.me(), self.team.host().to_owned());
        LoadError::Call { rank, host, operation, path: path.to_owned(), place, source }
    }
}
