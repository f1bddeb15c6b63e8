//! Namespaces: making them, mapping the caller into one, entering those of another process.
//!
//! Called by `lab` only. Nothing here leaves a trace in the file system: a namespace lives as long
//! as a process is in it or a descriptor of it is open, and goes with them.

use std::fs;
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags};

use crate::SyscallError;

/// Moves the calling process into a new user namespace in which it is root.
///
/// The namespace maps one user: root inside is the caller's effective user outside, so files it
/// makes belong to that user. To be called while the process has one thread.
///
/// # Errors
/// The kernel or its administrator forbids user namespaces to this user
/// (`user.max_user_namespaces`, an LSM), or the process has several threads.
pub fn unshare_user() -> Result<(), SyscallError> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(UnshareFlags::NEWUSER, "user")?;
    // A group map may only be written once setgroups is off (user_namespaces(7)).
    write_map("/proc/self/setgroups", "deny")?;
    write_map("/proc/self/uid_map", &format!("0 {user} 1\n"))?;
    write_map("/proc/self/gid_map", &format!("0 {group} 1\n"))
}

/// Children of the calling thread start in a new process-id namespace; the first is its init, and
/// when that one ends the kernel ends all others.
///
/// # Errors
/// `CAP_SYS_ADMIN` is missing.
pub fn unshare_process_ids() -> Result<(), SyscallError> {
    unshare(UnshareFlags::NEWPID, "process ids")
}

/// Moves the calling thread into a new network namespace and returns a descriptor that keeps it.
///
/// # Errors
/// `CAP_SYS_ADMIN` is missing, or the kernel is out of namespaces.
pub fn unshare_network() -> Result<OwnedFd, SyscallError> {
    unshare(UnshareFlags::NEWNET, "network")?;
    let path = "/proc/thread-self/ns/net";
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| SyscallError::new("open", path, error))
}

/// Moves the calling process into its own mount and host-name namespaces, with copies of what it
/// sees now. To be called while the process has one thread.
///
/// # Errors
/// `CAP_SYS_ADMIN` is missing.
pub fn unshare_mounts_and_host_name() -> Result<(), SyscallError> {
    unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUTS, "mounts and host name")
}

/// Moves the calling thread into the network namespace behind `namespace`.
///
/// # Errors
/// No such namespace, or no `CAP_SYS_ADMIN` in its owner.
pub fn enter_network(namespace: BorrowedFd<'_>) -> Result<(), SyscallError> {
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
        .map_err(|error| SyscallError::new("setns", "network namespace", error))
}

/// Moves the calling process into the mount namespace behind `namespace`; its working directory becomes that
/// namespace's root. To be called while the process has one thread.
///
/// # Errors
/// No such namespace, or no `CAP_SYS_ADMIN` in its owner.
pub fn enter_mounts(namespace: BorrowedFd<'_>) -> Result<(), SyscallError> {
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Mount))
        .map_err(|error| SyscallError::new("setns", "mount namespace", error))
}

/// Moves the calling process into the user namespace of the process behind `pidfd` and its later
/// children into that process's process-id namespace. To be called while the process has one
/// thread. `with_user` is off when both already share a user namespace.
///
/// # Errors
/// The process has ended, or belongs to another user.
pub fn enter_user_and_process_ids(
    pidfd: BorrowedFd<'_>,
    with_user: bool,
) -> Result<(), SyscallError> {
    let mut kinds = ThreadNameSpaceType::PROCESS_ID;
    if with_user {
        kinds |= ThreadNameSpaceType::USER;
    }
    rustix::thread::move_into_thread_name_spaces(pidfd, kinds)
        .map_err(|error| SyscallError::new("setns", "namespaces of the lab", error))
}

/// Moves the calling process into the user namespace of the process behind `pidfd`. To be called while the process has one
/// thread, which may start others afterwards.
///
/// # Errors
/// The process has ended, or belongs to another user.
pub fn enter_user(pidfd: BorrowedFd<'_>) -> Result<(), SyscallError> {
    rustix::thread::move_into_thread_name_spaces(pidfd, ThreadNameSpaceType::USER)
        .map_err(|error| SyscallError::new("setns", "user namespace of the lab", error))
}

/// Whether this process is in a chroot: its root directory is not its mount namespace's. The kernel
/// gives user namespaces to nobody there, and where `/` is no mount point, mounts cannot be kept from
/// the rest of the machine. Of a chroot to a mount point only root can tell.
#[must_use]
pub fn is_chroot() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Field 5 is the mount point, seen from this process's root (`proc_pid_mountinfo(5)`).
    let has_root = mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"));
    let place = |path: &str| rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let other_than_first = match (place("/proc/1/root"), place("/")) {
        (Some(first), Some(ours)) => first != ours && same_mounts_as_first(),
        _ => false,
    };
    (!mounts.is_empty() && !has_root) || other_than_first
}

/// Whether process 1 has this process's mount namespace, so that its root should be ours.
fn same_mounts_as_first() -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    of("1").is_some_and(|first| of("self") == Some(first))
}

fn unshare(kinds: UnshareFlags, object: &str) -> Result<(), SyscallError> {
    // SAFETY: unsafe for CLONE_FILES only, which no caller in this module passes.
    unsafe { rustix::thread::unshare_unsafe(kinds) }
        .map_err(|error| SyscallError::new("unshare", object, error))
}

fn write_map(path: &str, text: &str) -> Result<(), SyscallError> {
    // One write(2) each: the kernel takes a map in a single call.
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| SyscallError::new("write", path, error))
}
