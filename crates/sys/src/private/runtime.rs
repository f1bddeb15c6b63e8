//! Where this user's folder is, and which way to it is trusted.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};

use super::{Folder, OTHERS_WRITE, PrivateError, make_folder, open_folder};
use crate::SyscallError;

/// Set by the system for each user that is logged in.
const VARIABLE: &str = "XDG_RUNTIME_DIR";

/// What this program keeps while it runs: `/run/clearstream` for root, `$XDG_RUNTIME_DIR/clearstream`
/// for others where [that is fit](runtime_variable), and `/tmp/clearstream-UID` elsewhere (below
/// `$TMPDIR`, if that is set and fit). It is made where it is not there.
///
/// # Errors
/// Somebody else holds the name, or may rename on the way to it; the kernel refuses.
pub fn runtime_folder() -> Result<Folder, PrivateError> {
    let (parent, name) = place()?;
    let path = parent.path.join(&name);
    let folder = make_folder(parent.fd.as_fd(), &name, &path)?;
    close_to_readers(&folder)?;
    Ok(folder)
}

/// The same, if it is there; nothing is made.
///
/// # Errors
/// As [`runtime_folder`].
pub fn runtime_folder_if_there() -> Result<Option<Folder>, PrivateError> {
    let (parent, name) = place()?;
    let path = parent.path.join(&name);
    let folder = open_folder(parent.fd.as_fd(), &name, &path)?;
    folder.as_ref().map_or(Ok(()), close_to_readers)?;
    Ok(folder)
}

/// `$XDG_RUNTIME_DIR`, where it is as its specification demands: this user's, of mode 0700, no symbolic
/// link, and in a place where nobody else can rename. One that is not is as good as none.
#[must_use]
pub fn runtime_variable() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(VARIABLE)?);
    let known = std::fs::symlink_metadata(&path).ok()?;
    let is_fit = path.is_absolute()
        && known.is_dir()
        && known.uid() == rustix::process::geteuid().as_raw()
        && known.permissions().mode() & 0o077 == 0
        && Folder::reached(&path).is_ok();
    is_fit.then_some(path)
}

/// A folder on the way to which, and in which, nobody else can rename what is this user's.
#[derive(Debug)]
pub(super) struct TrustedPath {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
}

/// Goes from the root to `path`, whose links are resolved before, and looks at every folder after it
/// was opened: each is root's or this user's, and where others may write it is sticky.
pub(super) fn open_trusted_path(path: &Path) -> Result<TrustedPath, PrivateError> {
    let failed =
        |call, error: std::io::Error| SyscallError::new(call, path.display().to_string(), error);
    let resolved = path.canonicalize().map_err(|error| failed("realpath", error))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut walked = PathBuf::from("/");
    let mut fd = rustix::fs::openat(CWD, "/", flags, Mode::empty())
        .map_err(|error| failed("open", error.into()))?;
    // In a user namespace root outside has another number; whoever owns `/` is trusted as root is.
    let root = rustix::fs::fstat(&fd).map_err(|error| failed("fstat", error.into()))?.st_uid;
    let mut names = resolved.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    loop {
        let stat = rustix::fs::fstat(&fd).map_err(|error| failed("fstat", error.into()))?;
        if let Some(what) = objection(&stat, root) {
            let advice = "name another place (XDG_RUNTIME_DIR, TMPDIR) that only you can write to";
            return Err(PrivateError::NotOurs { path: walked, what, advice });
        }
        let Some(name) = names.next() else { break };
        walked.push(name);
        fd = rustix::fs::openat(&fd, name, flags, Mode::empty())
            .map_err(|error| failed("open", error.into()))?;
    }
    Ok(TrustedPath { fd, path: resolved })
}

/// What is wrong with a folder on the way.
fn objection(stat: &Stat, root: u32) -> Option<String> {
    const STICKY: u32 = 0o1000;
    let ours = rustix::process::geteuid().as_raw();
    if ![0, root, ours].contains(&stat.st_uid) {
        return Some(format!("belongs to user {}", stat.st_uid));
    }
    // Root's group is root.
    let writers = if stat.st_gid == 0 { OTHERS_WRITE & 0o007 } else { OTHERS_WRITE };
    let open_to_all = stat.st_mode & writers != 0 && stat.st_mode & STICKY == 0;
    open_to_all.then(|| "is writable by others and not sticky".to_owned())
}

/// That a folder which is there is root's or this user's, closed to others' writing, no symbolic link,
/// and in a place where nobody else can rename: what stands in it may be believed.
///
/// # Errors
/// [`PrivateError`].
pub fn check_trusted(path: &Path) -> Result<(), PrivateError> {
    let failed =
        |call, error: std::io::Error| SyscallError::new(call, path.display().to_string(), error);
    let stat = rustix::fs::lstat(path).map_err(|error| failed("lstat", error.into()))?;
    let refused = |what: String| {
        let advice = "remove the others' permission to write (chmod go-w), or name a folder that only you \
             can write to";
        Err(PrivateError::NotOurs { path: path.to_owned(), what, advice })
    };
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        return refused(format!("is a symbolic link, made by user {}", stat.st_uid));
    }
    // The same folder, by its way; what was there a moment before does not count.
    let way = open_trusted_path(path)?;
    let stat = rustix::fs::fstat(&way.fd).map_err(|error| failed("fstat", error.into()))?;
    if stat.st_mode & OTHERS_WRITE != 0 {
        return refused("is writable by others".to_owned());
    }
    Ok(())
}

/// The folder in which the runtime folder is, and its name there.
fn place() -> Result<(TrustedPath, OsString), PrivateError> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Ok((open_trusted_path(Path::new("/run"))?, "clearstream".into()));
    }
    if let Some(folder) = runtime_variable() {
        return Ok((open_trusted_path(&folder)?, "clearstream".into()));
    }
    let name = format!("clearstream-{}", user.as_raw());
    Ok((temporary_place()?, name.into()))
}

/// Where temporary files are, or `/tmp` where that is no place for this user: `sudo -E` leaves the
/// variable of somebody else.
pub(super) fn temporary_place() -> Result<TrustedPath, PrivateError> {
    open_trusted_path(&std::env::temp_dir()).or_else(|_| open_trusted_path(Path::new("/tmp")))
}

/// One that an earlier version made may be read by others.
fn close_to_readers(folder: &Folder) -> Result<(), PrivateError> {
    let failed = |error| SyscallError::new("fchmod", folder.path().display().to_string(), error);
    let mode = rustix::fs::fstat(folder).map_err(failed)?.st_mode;
    if mode & 0o077 != 0 {
        rustix::fs::fchmod(folder, Mode::RWXU).map_err(failed)?;
    }
    Ok(())
}
