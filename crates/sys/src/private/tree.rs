//! Removing a tree, by descriptors.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, Mode, StatxFlags};
use rustix::io::Errno;

use super::FOLDER;

/// Nothing of ours is deeper; each level holds a descriptor.
const DEPTH_MAX: u32 = 64;

/// Removes a name of `folder` with all below it.
pub(super) fn remove(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    remove_at(folder, name, mount_of(folder)?, DEPTH_MAX)
}

/// Where a descriptor's file lies: device and, from Linux 5.8, mount, which tells a bind mount from a
/// folder of the same device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mount {
    device: (u32, u32),
    id: Option<u64>,
}

fn mount_of(folder: BorrowedFd<'_>) -> io::Result<Mount> {
    let told = rustix::fs::statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let is_told = told.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Mount {
        device: (told.stx_dev_major, told.stx_dev_minor),
        id: is_told.then_some(told.stx_mnt_id),
    })
}

fn remove_at(folder: BorrowedFd<'_>, name: &OsStr, mount: Mount, depth: u32) -> io::Result<()> {
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
    if mount_of(inner.as_fd())? != mount {
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
            remove_at(inner.as_fd(), name, mount, depth - 1)?;
        }
    }
    match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
