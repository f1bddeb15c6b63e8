//! Folders for a while, also where their owner was killed.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::runtime::{TrustedPath, temporary_place};
use super::{FILE, Folder, PrivateError, make_folder, open_folder, tree};
use crate::SyscallError;

/// A file in the folder that its owner holds locked. The folder itself may be locked by whoever works in it.
const OWNER: &str = ".owner";

/// A folder of this user's for a while: of a name that nobody could know, mode 0700, gone with the value.
/// What a killed process left goes when the next folder for the same purpose is made.
#[derive(Debug)]
pub struct Scratch {
    parent: TrustedPath,
    name: String,
    folder: Folder,
    /// Locked for as long as this value, or a child that was forked and has not called `exec`, is there.
    _owner: OwnedFd,
}

impl Scratch {
    /// Makes one in the place for temporary files; `purpose` is part of its name.
    ///
    /// # Errors
    /// That place lets others rename there, or the kernel refuses.
    pub fn new(purpose: &str) -> Result<Self, PrivateError> {
        let parent = temporary_place()?;
        remove_ownerless(&parent, purpose);
        loop {
            let mut random = [0; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
                .map_err(|error| SyscallError::new("getrandom", purpose, error))?;
            let name = format!("{}{:016x}", prefix(purpose), u64::from_ne_bytes(random));
            let path = parent.path.join(&name);
            match rustix::fs::mkdirat(&parent.fd, &name, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(error) => {
                    return Err(
                        SyscallError::new("mkdir", path.display().to_string(), error).into()
                    );
                }
            }
            let folder = make_folder(parent.fd.as_fd(), OsStr::new(&name), &path)?;
            let owned = own(&folder)
                .map_err(|error| SyscallError::new("flock", path.display().to_string(), error))?;
            // Without one another process took it for left over before it was locked.
            if let Some(owner) = owned {
                return Ok(Self { parent, name, folder, _owner: owner });
            }
        }
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in nobody's way.
        tree::remove(self.parent.fd.as_fd(), OsStr::new(&self.name)).ok();
    }
}

fn prefix(purpose: &str) -> String {
    format!("clearstream-{purpose}-")
}

/// Locks a folder's file, which is made if it is not there; nothing where somebody else has it or has
/// removed the folder.
fn own(folder: &Folder) -> Result<Option<OwnedFd>, Errno> {
    let flags = FILE | OFlags::RDWR | OFlags::CREATE;
    let owner = match rustix::fs::openat(folder, OWNER, flags, Mode::RUSR | Mode::WUSR) {
        Ok(owner) => owner,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    match rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok((rustix::fs::fstat(&owner)?.st_nlink > 0).then_some(owner))
}

/// Removes what killed processes of this user left of the same purpose. What it cannot look at or remove
/// stays, as it would if nobody looked.
fn remove_ownerless(parent: &TrustedPath, purpose: &str) {
    let Ok(readable) = rustix::fs::openat(&parent.fd, ".", super::FOLDER, Mode::empty()) else {
        return;
    };
    let Ok(entries) = Dir::read_from(&readable) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let random = name.strip_prefix(&prefix(purpose));
        if !random.is_some_and(|text| text.len() == 16 && u64::from_str_radix(text, 16).is_ok()) {
            continue;
        }
        let name = OsStr::new(name);
        let path = parent.path.join(name);
        let Ok(Some(folder)) = open_folder(parent.fd.as_fd(), name, &path) else { continue };
        // Made a moment ago by somebody who has not come to locking it, or left at that very moment.
        if rustix::fs::accessat(&folder, OWNER, rustix::fs::Access::EXISTS, AtFlags::empty())
            .is_err()
        {
            rustix::fs::unlinkat(&parent.fd, name, AtFlags::REMOVEDIR).ok();
            continue;
        }
        if let Ok(Some(_owner)) = own(&folder) {
            tree::remove(parent.fd.as_fd(), name).ok();
        }
    }
}
