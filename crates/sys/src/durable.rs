//! Files that are replaced whole, and stay replaced when the machine stops right afterwards.
//!
//! The new contents are written beside the name, synced, renamed onto it, and then the folder is
//! synced, without which a power cut may bring the old file back (`fsync(2)`). Until the rename the old
//! file is untouched; after it a reader sees only the new one. Whoever writes holds a lock on the
//! file beside the name (`flock(2)`), so two writers of one name take turns, and what a killed writer
//! left is told from what a running one is still writing.
//!
//! As for all files that a user names ([`crate::private`]): a link or another user's file that stands
//! where the new file is to be written is neither followed nor removed.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use thiserror::Error;

use crate::private::{FILE, is_ours, not_ours};

/// What is appended to a name to get that of the file beside it.
const BESIDE: &str = ".new";

/// Longest wait for another writer of the same name.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked at whether the other writer has finished.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A file could not be replaced, or not be made to last.
#[derive(Debug, Error)]
#[error("{}: {step}", .path.display())]
pub struct DurableError {
    /// The step that failed.
    pub step: Step,
    /// The file or folder concerned.
    pub path: PathBuf,
    /// The kernel's error.
    pub source: io::Error,
}

/// The steps of replacing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The folder is opened.
    OpenFolder,
    /// A file beside the name is made.
    Create,
    /// The contents are written to it.
    Write,
    /// The contents are put on disk.
    Sync,
    /// The file takes the name.
    Rename,
    /// The name is removed.
    Remove,
    /// The names in the folder are put on disk.
    SyncFolder,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::OpenFolder => "cannot open its folder",
            Self::Create => "cannot create it",
            Self::Write => "cannot write it",
            Self::Sync => "cannot put its contents on disk",
            Self::Rename => "cannot rename the new file to it",
            Self::Remove => "cannot remove it",
            Self::SyncFolder => "cannot put its name on disk",
        })
    }
}

impl DurableError {
    /// Whether the old file is untouched. After [`Step::SyncFolder`] readers see the new one, which a
    /// power cut may take back.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.step != Step::SyncFolder
    }
}

/// Replaces the file at `path` by one that holds `bytes`; with mode 0666 less the umask.
///
/// # Errors
/// [`DurableError`]; the file beside the name is removed.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    replace_with(path, |file| file.write_all(bytes)).map(drop)
}

/// The same with contents that `write` produces. Returns the new file, open for writing at its end.
///
/// # Errors
/// As [`replace`]; an error of `write` is one of [`Step::Write`].
pub fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<File, DurableError> {
    let place = Place::of(path)?;
    let mut file = place.create()?;
    let written = write(&mut file)
        .map_err(|error| place.failed(Step::Write, error))
        .and_then(|()| file.sync_all().map_err(|error| place.failed(Step::Sync, error)));
    place.take_the_name(written)?;
    place.sync(Some(&file))?;
    // The lock was for the time of writing; a file system without locks has none to release.
    file.unlock().ok();
    Ok(file)
}

/// Replaces whatever file or link is at `path` by a symbolic link to `target`.
///
/// # Errors
/// [`DurableError`]; the link beside the name is removed.
pub fn replace_by_link(path: &Path, target: &str) -> Result<(), DurableError> {
    let place = Place::of(path)?;
    place.remove_stale_link()?;
    let made = rustix::fs::symlinkat(target, &place.folder, &place.beside);
    place.take_the_name(made.map_err(|error| place.failed(Step::Create, error.into())))?;
    place.sync(None)
}

/// Removes the file or link at `path` for good; that there is none is fine.
///
/// # Errors
/// [`DurableError`].
pub fn remove(path: &Path) -> Result<(), DurableError> {
    let place = Place::of(path)?;
    match rustix::fs::unlinkat(&place.folder, &place.name, AtFlags::empty()) {
        Ok(()) => place.sync(None),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(place.failed(Step::Remove, error.into())),
    }
}

/// Puts on disk which names are in `folder`: what was made, renamed or removed there before lasts.
///
/// # Errors
/// [`DurableError`] of [`Step::OpenFolder`] or [`Step::SyncFolder`].
pub fn sync_folder(folder: &Path) -> Result<(), DurableError> {
    let failed = |step, source: io::Error| DurableError { step, path: folder.to_owned(), source };
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let opened = open_folder(place).map_err(|error| failed(Step::OpenFolder, error.into()))?;
    sync_names(&opened, None).map_err(|error| failed(Step::SyncFolder, error.into()))
}

/// Puts the name of the open `file` at `path` on disk, which syncing the file itself does not.
///
/// # Errors
/// As [`sync_folder`].
pub fn sync_name(path: &Path, file: &File) -> Result<(), DurableError> {
    Place::of(path)?.sync(Some(file))
}

/// A name in a folder, and the one beside it.
struct Place {
    folder: Opened,
    path: PathBuf,
    name: OsString,
    beside: OsString,
}

/// A folder by its descriptor.
struct Opened {
    fd: OwnedFd,
    /// Others may use the folder without reading it. Such a one cannot be synced by itself.
    is_readable: bool,
}

impl AsFd for Opened {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Place {
    fn of(path: &Path) -> Result<Self, DurableError> {
        let failed =
            |source: io::Error| DurableError { step: Step::OpenFolder, path: path.into(), source };
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = open_folder(folder.unwrap_or(Path::new(".")));
        let mut beside = name.to_owned();
        beside.push(BESIDE);
        Ok(Self {
            folder: folder.map_err(|error| failed(error.into()))?,
            path: path.to_owned(),
            name: name.to_owned(),
            beside,
        })
    }

    fn failed(&self, step: Step, source: io::Error) -> DurableError {
        DurableError { step, path: self.path.clone(), source }
    }

    /// Something that no writer leaves stands beside the name: only here it is the file beside that the
    /// user has to look at.
    fn blocked(&self, source: io::Error) -> DurableError {
        let path = self.path.with_file_name(&self.beside);
        DurableError { step: Step::Create, path, source }
    }

    /// A new, locked file beside the name. One that a killed writer left goes.
    fn create(&self) -> Result<File, DurableError> {
        let failed = |error: io::Error| self.failed(Step::Create, error);
        let until = Instant::now() + PATIENCE;
        loop {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            match self.open_beside(flags) {
                // The next writer may take it for a left one before it is locked.
                Ok(file) if lock(&file) && self.is_beside(&file) => return Ok(file),
                Ok(_) => {}
                Err(Errno::EXIST) => {
                    let done = self.remove_stale()?;
                    if !done {
                        thread::sleep(LOOK_EVERY);
                    }
                }
                Err(error) => return Err(failed(error.into())),
            }
            if Instant::now() > until {
                let held = "another program is writing it; wait for it to end";
                return Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, held)));
            }
        }
    }

    /// Removes what a killed writer left beside the name; false where a running one holds it.
    fn remove_stale(&self) -> Result<bool, DurableError> {
        self.check_beside(|kind| kind == FileType::RegularFile)
            .map_err(|error| self.blocked(error))?;
        let file = match self.open_beside(OFlags::WRONLY) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(true),
            Err(error) => return Err(self.blocked(error.into())),
        };
        if !lock(&file) {
            return Ok(false);
        }
        // Only who holds its lock removes or renames it, so it is still this file if it is now.
        if self.is_beside(&file) {
            self.remove_beside();
        }
        Ok(true)
    }

    fn remove_stale_link(&self) -> Result<(), DurableError> {
        let fits = |kind| matches!(kind, FileType::RegularFile | FileType::Symlink);
        self.check_beside(fits).map_err(|error| self.blocked(error))?;
        self.remove_beside();
        Ok(())
    }

    /// Refuses what somebody else has put beside the name, or what no writer leaves.
    fn check_beside(&self, fits: impl Fn(FileType) -> bool) -> io::Result<()> {
        match self.stat_beside() {
            Ok(stat) if is_ours(&stat) && fits(FileType::from_raw_mode(stat.st_mode)) => Ok(()),
            Ok(stat) => Err(not_ours(&stat)),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn open_beside(&self, flags: OFlags) -> Result<File, Errno> {
        // As the standard library does: the umask takes away what the user likes.
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::openat(&self.folder, &self.beside, flags | FILE, mode).map(File::from)
    }

    fn stat_beside(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.folder, &self.beside, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn is_beside(&self, file: &File) -> bool {
        let inode = |stat: Stat| (stat.st_dev, stat.st_ino);
        match (rustix::fs::fstat(file), self.stat_beside()) {
            (Ok(file), Ok(beside)) => inode(file) == inode(beside),
            _ => false,
        }
    }

    fn remove_beside(&self) {
        // What is left is removed by the next writer of this name.
        rustix::fs::unlinkat(&self.folder, &self.beside, AtFlags::empty()).ok();
    }

    /// Renames what was written; takes it away where that, or the writing, failed.
    fn take_the_name(&self, written: Result<(), DurableError>) -> Result<(), DurableError> {
        let rename = || {
            rustix::fs::renameat(&self.folder, &self.beside, &self.folder, &self.name)
                .map_err(|error| self.failed(Step::Rename, error.into()))
        };
        written.and_then(|()| rename()).inspect_err(|_| self.remove_beside())
    }

    fn sync(&self, file: Option<&File>) -> Result<(), DurableError> {
        sync_names(&self.folder, file).map_err(|error| self.failed(Step::SyncFolder, error.into()))
    }
}

/// Whether no other process holds the file. On a file system without locks this is true of every file.
fn lock(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn open_folder(folder: &Path) -> Result<Opened, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, folder, flags | OFlags::RDONLY, Mode::empty()) {
        Ok(fd) => Ok(Opened { fd, is_readable: true }),
        // One may write to it, and not list it.
        Err(Errno::ACCESS) => {
            let fd = rustix::fs::openat(CWD, folder, flags | OFlags::PATH, Mode::empty())?;
            Ok(Opened { fd, is_readable: false })
        }
        Err(error) => Err(error),
    }
}

/// Syncs a folder; or the file system of `file`, which is in it, where a folder cannot be synced by
/// itself: it may not be read, or its file system syncs no folders (EINVAL: VirtualBox, old 9P).
fn sync_names(folder: &Opened, file: Option<&File>) -> Result<(), Errno> {
    let refused = if folder.is_readable {
        match rustix::fs::fsync(folder) {
            Err(error @ (Errno::INVAL | Errno::NOTSUP)) => error,
            other => return other,
        }
    } else {
        Errno::ACCESS
    };
    match file {
        Some(file) => rustix::fs::syncfs(file),
        None if folder.is_readable => rustix::fs::syncfs(folder),
        None => Err(refused),
    }
}

#[cfg(test)]
mod tests;
