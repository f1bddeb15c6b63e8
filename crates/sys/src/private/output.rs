//! Files that the user named, in a folder that may be anybody's.
//!
//! In a folder of root's or this user's that others cannot write to, they are what they seem, links
//! included. Elsewhere no link is followed, and nothing is written to or believed that is not this
//! user's: a file that somebody put there beforehand might be another name of one that matters.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};

use super::{FILE, OTHERS_WRITE};

const PLAIN: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY);

/// Opens a file for writing from its start, made if need be.
///
/// # Errors
/// The kernel's; somebody else's file, or a link, in a folder that others write to.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE;
    if !is_exposed(path) {
        return open(path, flags | OFlags::TRUNC | PLAIN);
    }
    // Looked at before it is emptied.
    let file = guarded(path, flags)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file for reading and for writing at its end, made if need be.
///
/// # Errors
/// As [`create`].
pub fn append_to(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
    if is_exposed(path) { guarded(path, flags) } else { open(path, flags | PLAIN) }
}

/// Opens a file that is believed: one that this program wrote earlier.
///
/// # Errors
/// As [`create`]; none is there.
pub fn open_existing(path: &Path) -> io::Result<File> {
    if is_exposed(path) { guarded(path, OFlags::RDONLY) } else { File::open(path) }
}

/// A file that was not there before, open for writing; a plain one of this user's that is in its place
/// is what an earlier run left, and goes.
///
/// # Errors
/// The kernel's; somebody else's is in its place.
pub fn create_new(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | FILE;
    match open(path, flags) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let stat = rustix::fs::lstat(path)?;
            if !is_ours(&stat) || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(not_ours(&stat));
            }
            rustix::fs::unlink(path)?;
            open(path, flags)
        }
        other => other,
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    // As the standard library does: the user's mask takes away what he likes.
    let mode = Mode::from_raw_mode(0o666);
    Ok(File::from(rustix::fs::openat(CWD, path, flags, mode)?))
}

fn guarded(path: &Path, flags: OFlags) -> io::Result<File> {
    let refused = |error: io::Error| match rustix::fs::lstat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => not_ours(&stat),
        Ok(stat) if !is_ours(&stat) => not_ours(&stat),
        _ => error,
    };
    let file = open(path, flags | FILE).map_err(refused)?;
    let stat = rustix::fs::fstat(&file)?;
    let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_ours(&stat) || (is_plain && stat.st_nlink > 1) {
        return Err(not_ours(&stat));
    }
    // It was only to be opened without waiting.
    let flags = rustix::fs::fcntl_getfl(file.as_fd())?;
    rustix::fs::fcntl_setfl(file.as_fd(), flags - OFlags::NONBLOCK)?;
    Ok(file)
}

pub(crate) fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

pub(crate) fn not_ours(stat: &Stat) -> io::Error {
    let user = stat.st_uid;
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => format!("a symbolic link, made by user {user}"),
        FileType::RegularFile if is_ours(stat) => "a file with more than one hard link".to_owned(),
        _ => format!("there already and belongs to user {user}"),
    };
    io::Error::other(format!(
        "it is {what}, in a folder that others can write to; it is left alone"
    ))
}

/// Whether others than root and this user can put something where `path` is.
fn is_exposed(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(stat) = rustix::fs::stat(folder.unwrap_or(Path::new("."))) else { return false };
    let ours = rustix::process::geteuid().as_raw();
    let root = rustix::fs::stat("/").map_or(0, |stat| stat.st_uid);
    let writers = if stat.st_gid == 0 { OTHERS_WRITE & 0o007 } else { OTHERS_WRITE };
    ![0, root, ours].contains(&stat.st_uid) || stat.st_mode & writers != 0
}
