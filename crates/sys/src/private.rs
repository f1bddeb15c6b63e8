//! Folders and files that no other user of this machine can have prepared.
//!
//! Whatever stands in a folder that others may write to may be a trap: a symbolic link to somebody's
//! files, a folder made beforehand, a hard link, a program to be run. What this program keeps there is
//! reached through a [`Folder`]: a descriptor of a folder that was looked at *after* it was opened, is
//! this user's and closed to others, below folders in which nobody else can rename. Names in it are
//! opened one at a time, relative to the descriptor, and never followed. The kernel's own help
//! (`fs.protected_symlinks` and its like) is not relied upon.

mod output;
mod runtime;
mod scratch;
mod tree;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use thiserror::Error;

use crate::SyscallError;

pub use output::{append_to, create, create_new, open_existing};
pub(crate) use output::{is_ours, not_ours};
pub use runtime::{check_trusted, runtime_folder, runtime_folder_if_there, runtime_variable};
pub use scratch::Scratch;

/// Longest file that is read from such a folder, bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Why a folder is not used.
#[derive(Debug, Error)]
pub enum PrivateError {
    /// Somebody else has, or may have, prepared what is there. It is left as it is.
    #[error("{} {what}; it is neither used nor changed: {advice}", .path.display())]
    NotOurs {
        /// What was looked at.
        path: PathBuf,
        /// What is wrong with it: `belongs to user 65534`.
        what: String,
        /// What the user can do about it.
        advice: &'static str,
    },
    /// The kernel refused.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

/// What to do about a name that somebody else holds.
const ADVICE: &str =
    "have its owner remove it, or set XDG_RUNTIME_DIR to a folder of your own with mode 0700";

/// A folder of this user that others cannot write to, by its descriptor.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// What may be there.
const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A name may be a pipe, whose opening waits, or a terminal, which would become ours.
pub(crate) const FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

impl Folder {
    /// The folder at `path`, which must be there: this user's, closed to others' writing, no symbolic
    /// link. How one gets there is not looked at: that is for paths this program made up itself, see
    /// [`Folder::reached`] for others.
    ///
    /// # Errors
    /// [`PrivateError`].
    pub fn at(path: &Path) -> Result<Self, PrivateError> {
        open_folder(CWD, path.as_os_str(), path)?.ok_or_else(|| {
            SyscallError::new("open", path.display().to_string(), Errno::NOENT).into()
        })
    }

    /// The same, with all the folders on the way to it: none of them may let others rename in it.
    ///
    /// # Errors
    /// [`PrivateError`].
    pub fn reached(path: &Path) -> Result<Self, PrivateError> {
        // Before it is resolved, or a link would be taken for what it names.
        let folder = Self::at(path)?;
        runtime::open_trusted_path(path.parent().unwrap_or(path))?;
        Ok(folder)
    }

    /// Its path. No other user can replace it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in it, if it is there.
    ///
    /// # Errors
    /// [`PrivateError`].
    pub fn folder(&self, name: &str) -> Result<Option<Self>, PrivateError> {
        let path = self.path.join(name);
        one_name(name)
            .map_err(|error| SyscallError::new("open", path.display().to_string(), error))?;
        open_folder(self.fd.as_fd(), OsStr::new(name), &path)
    }

    /// A folder in it, made with mode 0700 where it is not there.
    ///
    /// # Errors
    /// [`PrivateError`].
    pub fn folder_or_new(&self, name: &str) -> Result<Self, PrivateError> {
        let path = self.path.join(name);
        one_name(name)
            .map_err(|error| SyscallError::new("mkdir", path.display().to_string(), error))?;
        make_folder(self.fd.as_fd(), OsStr::new(name), &path)
    }

    /// What is in it, in order; names that are not UTF-8 are not ours and left out.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if !matches!(name, "" | "." | "..") {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// What a file in it holds; only a file of this user's, and of at most 16 MiB.
    ///
    /// # Errors
    /// There is none, it is no plain file or another's, it is too long or no text.
    pub fn read(&self, name: &str) -> io::Result<String> {
        let file = self.open(name, OFlags::RDONLY)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        Ok(text)
    }

    /// A new file in it, open for writing; one of that name goes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(&self, name: &str) -> io::Result<File> {
        one_name(name)?;
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        self.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    /// A file in it, made if need be, to be written to at its end.
    ///
    /// # Errors
    /// It is no plain file of this user's, or the kernel's.
    pub fn append(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)
    }

    /// Replaces a file at once: readers see the old or the new one. It is not synced: what stands here
    /// need not survive the machine; for what must, see [`crate::durable`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let part = format!("{name}.part");
        self.create(&part)?.write_all(bytes)?;
        Ok(rustix::fs::renameat(&self.fd, &part, &self.fd, name)?)
    }

    /// Removes a name and, where it is a folder, all that is in it. Links are removed, not followed;
    /// what is mounted there is left. None of that name is fine.
    ///
    /// # Errors
    /// The kernel's; folders deeper than 64 are not ours.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        one_name(name)?;
        tree::remove(self.fd.as_fd(), OsStr::new(name))
    }

    /// Removes a folder in it if that is empty; whether it was.
    #[must_use]
    pub fn remove_if_empty(&self, name: &str) -> bool {
        one_name(name).is_ok() && rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR).is_ok()
    }

    /// Whether this is still what stands at its path.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let same =
            |here: Stat, there: Stat| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino);
        let both =
            rustix::fs::fstat(&self.fd).and_then(|here| Ok((here, rustix::fs::lstat(&self.path)?)));
        both.is_ok_and(|(here, there)| same(here, there))
    }

    fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        one_name(name)?;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(&self.fd, name, flags | FILE, mode)?;
        check_file(fd.as_fd())?;
        Ok(File::from(fd))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One name, not a way.
fn one_name(name: &str) -> Result<(), Errno> {
    if matches!(name, "" | "." | "..") || name.contains('/') { Err(Errno::INVAL) } else { Ok(()) }
}

/// That an open file is a plain one of this user's, with no other name somewhere else.
fn check_file(file: BorrowedFd<'_>) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("belongs to user {}", stat.st_uid)));
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink > 1 => {
            Err(io::Error::other("has more than one hard link"))
        }
        FileType::RegularFile => Ok(()),
        _ => Err(io::Error::other("is not a regular file")),
    }
}

/// Opens a folder and only then looks whose it is; `None` where there is nothing.
fn open_folder(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
) -> Result<Option<Folder>, PrivateError> {
    let refused =
        |what: String| Err(PrivateError::NotOurs { path: path.to_owned(), what, advice: ADVICE });
    let fd = match rustix::fs::openat(parent, name, FOLDER, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => {
            // The reason is for the message alone.
            let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else {
                return Err(SyscallError::new("open", path.display().to_string(), error).into());
            };
            let user = stat.st_uid;
            return match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => refused(format!("is a symbolic link, made by user {user}")),
                FileType::Directory if user == rustix::process::geteuid().as_raw() => {
                    Err(SyscallError::new("open", path.display().to_string(), error).into())
                }
                FileType::Directory => refused(format!("belongs to user {user}")),
                _ => refused(format!("is not a folder, made by user {user}")),
            };
        }
    };
    let failed = |call, error| SyscallError::new(call, path.display().to_string(), error);
    let stat = rustix::fs::fstat(&fd).map_err(|error| failed("fstat", error))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return refused(format!("belongs to user {}", stat.st_uid));
    }
    if stat.st_mode & OTHERS_WRITE != 0 {
        return Err(PrivateError::NotOurs {
            path: path.to_owned(),
            what: "is writable by others".to_owned(),
            advice: "inspect its contents, then remove that permission (chmod go-w)",
        });
    }
    Ok(Some(Folder { fd, path: path.to_owned() }))
}

/// Makes it where it is not there, and opens it as [`open_folder`] does.
fn make_folder(parent: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<Folder, PrivateError> {
    let failed = |call, error| SyscallError::new(call, path.display().to_string(), error);
    // It may go between the two calls when another command tidies up.
    for _ in 0..100 {
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed("mkdir", error).into()),
        }
        if let Some(folder) = open_folder(parent, name, path)? {
            return Ok(folder);
        }
    }
    Err(failed("mkdir", Errno::NOENT).into())
}

/// Group and others.
const OTHERS_WRITE: u32 = 0o022;

#[cfg(test)]
mod tests;
