//! What a program on a host sees: the host's network, its name, `/etc/hosts`, `/sys`, `/proc`, and where the host
//! mounts the lab's file system, that mount.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
    mount_change, move_mount, open_tree,
};
use sys::SyscallError;

use crate::store;

/// Puts this process, which has one thread, into a host. Whether `/proc` shows the lab's processes only.
pub(crate) fn enter(network: OwnedFd, dir: &Path, host: &str) -> Result<bool, SyscallError> {
    sys::namespace::enter_network(network.as_fd())?;
    drop(network);
    let has_filesystem = match store::mounts_of(dir, host)? {
        Some(mounts) => {
            let here = std::env::current_dir();
            sys::namespace::enter_mounts(mounts.as_fd())?;
            // A directory that is not there either stays `/`.
            here.and_then(std::env::set_current_dir).ok();
            true
        }
        None => false,
    };
    sys::namespace::unshare_mounts_and_host_name()?;
    // A file system that comes back after its client has ended reaches programs that run already.
    let kind = match has_filesystem {
        true => MountPropagationFlags::DOWNSTREAM,
        false => MountPropagationFlags::PRIVATE,
    };
    mount_change("/", kind | MountPropagationFlags::REC).map_err(|error| match error {
        // What follows would be seen by the whole machine.
        Errno::INVAL if sys::namespace::is_chroot() => {
            let why = "/: this runs in a chroot, where / is not a mount point; enter that root with \
                       pivot_root (as containers do), or run outside";
            SyscallError::new("mount", why, error)
        }
        Errno::INVAL => SyscallError::new("mount", "/, which is not a mount point", error),
        _ => SyscallError::new("mount", "/", error),
    })?;
    if !Path::new("/etc/hosts").exists() {
        // Without a place for the names programs need addresses.
        make_room_in_etc().ok();
    }
    mount_bind(dir.join("hosts"), "/etc/hosts").ok();
    let sees_own_processes = mount_own_views();
    rustix::system::sethostname(host.as_bytes())
        .map_err(|error| SyscallError::new("sethostname", host, error))?;
    Ok(sees_own_processes)
}

/// Lets this process, which has one thread, see the files that programs on a host see, and its name. Network and
/// processes stay those of outside.
pub(crate) fn visit(mounts: OwnedFd, host: &str) -> Result<(), SyscallError> {
    let here = std::env::current_dir();
    sys::namespace::enter_mounts(mounts.as_fd())?;
    drop(mounts);
    // A directory that is not there either stays `/`.
    here.and_then(std::env::set_current_dir).ok();
    sys::namespace::unshare_mounts_and_host_name()?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|error| SyscallError::new("mount", "/", error))?;
    // That of the host knows the lab's processes only, and this one is none.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)
        .map_err(|error| SyscallError::new("mount", "/proc", error))?;
    rustix::system::sethostname(host.as_bytes())
        .map_err(|error| SyscallError::new("sethostname", host, error))
}

/// An `/etc` of our own with everything that is in the system's and an empty `hosts`.
fn make_room_in_etc() -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let system = open_tree(CWD, "/etc", flags | OpenTreeFlags::AT_RECURSIVE)?;
    let entries: Vec<OsString> =
        fs::read_dir("/etc")?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    mount("tmpfs", "/etc", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
    fs::create_dir("/etc/.system")?;
    move_mount(&system, "", CWD, "/etc/.system", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    for name in entries {
        symlink(Path::new(".system").join(&name), Path::new("/etc").join(&name))?;
    }
    File::create("/etc/hosts").map(drop)
}

/// `/sys` of the host's network namespace, with the control groups of before, and `/proc` of the
/// lab's processes. Where the kernel does not allow them (it hides parts of them from this user),
/// those of outside remain. Whether `/proc` is the lab's.
fn mount_own_views() -> bool {
    let cgroups = open_tree(
        CWD,
        "/sys/fs/cgroup",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE,
    );
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if mount("sysfs", "/sys", "sysfs", flags, None).is_ok()
        && let Ok(cgroups) = cgroups
    {
        let from_fd = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        // Without it only the control groups are missing.
        move_mount(&cgroups, "", CWD, "/sys/fs/cgroup", from_fd).ok();
    }
    mount("proc", "/proc", "proc", flags, None).is_ok()
}
