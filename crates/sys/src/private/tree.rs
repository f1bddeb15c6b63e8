//! Removing a tree, by descriptors.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, Mode};
use rustix::io::Errno;

use super::FOLDER;

/// Nothing of ours is deeper; each level holds a descriptor.
const DEPTH_MAX: u32 = 64;

/// Removes a name of `folder` with all below it.
pub(super) fn remove(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let device = rustix::fs::fstat(folder)?.st_dev;
    remove_at(folder, name, device, DEPTH_MAX)
}

fn remove_at(folder: BorrowedFd<'_>, name: &OsStr, device: u64, depth: u32) -> io::Result<()> {
    // As what it is not is refused: nobody can put something else there in between and be followed.
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // Linux says EISDIR, POSIX allows EPERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let inner = match rustix::fs::openat(folder, name, FOLDER, Mode::empty()) {
        Ok(inner) => inner,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if rustix::fs::fstat(&inner)?.st_dev != device {
        return Err(io::Error::other(format!("{}: something is mounted there", name.display())));
    }
    if depth == 0 {
        return Err(io::Error::other(format!("{}: too deep", name.display())));
    }
    for entry in Dir::read_from(&inner)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            let name = std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes());
            remove_at(std::os::fd::AsFd::as_fd(&inner), name, device, depth - 1)?;
        }
    }
    match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
