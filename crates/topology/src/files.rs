//! Where the kernel's text files are, and how much of them is read.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Longest file read; `/proc/net/dev` of thousands of interfaces is shorter.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Longest file read below `/sys`: a list or mask of thousands of cores is shorter.
const SYS_BYTES_MAX: u64 = 64 << 10;

/// The roots of the kernel's file trees.
#[derive(Debug, Clone)]
pub struct HostFiles {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// Holds a mount that `sys` leads through.
    _mount: Option<Arc<OwnedFd>>,
}

impl Default for HostFiles {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys"), _mount: None }
    }
}

impl HostFiles {
    /// A recorded tree with `proc` and `sys` below `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { proc: root.join("proc"), sys: root.join("sys"), _mount: None }
    }

    /// `/proc`, and a `/sys` that shows the devices of the calling thread's network namespace: a
    /// mount of its own that no path leads to and that goes with the value. `None` without
    /// `CAP_SYS_ADMIN`, or before Linux 5.2.
    #[must_use]
    pub fn of_this_namespace() -> Option<Self> {
        let context = mount::fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
        mount::fsconfig_create(&context).ok()?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let root = mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).ok()?;
        let sys = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        Some(Self { proc: PathBuf::from("/proc"), sys, _mount: Some(Arc::new(root)) })
    }

    /// A file below `/proc`; `None` when it is not there or may not be read.
    pub(crate) fn proc(&self, path: &str) -> Option<String> {
        read(&self.proc.join(path), FILE_BYTES_MAX)
    }

    /// The beginning of a file below `/proc`: of one that says the same for each core, and is slow.
    pub(crate) fn proc_head(&self, path: &str, bytes_max: u64) -> Option<String> {
        read(&self.proc.join(path), bytes_max)
    }

    /// A counter file of the calling thread's network namespace. (`/proc/net` would be that of the
    /// process's first thread.)
    pub(crate) fn proc_net(&self, name: &str) -> Option<String> {
        self.proc(&format!("thread-self/net/{name}")).or_else(|| self.proc(&format!("net/{name}")))
    }

    /// A one-line file below `/sys`, trimmed.
    pub(crate) fn sys_line(&self, path: &str) -> Option<String> {
        let text = read(&self.sys.join(path), 4096)?;
        Some(text.trim().to_owned()).filter(|line| !line.is_empty())
    }

    /// A file of bytes below `/sys`.
    pub(crate) fn sys_bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.sys.join(path)).ok()?;
        file.take(SYS_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A file below `/sys` of any number of lines.
    pub(crate) fn sys_text(&self, path: &str) -> Option<String> {
        read(&self.sys.join(path), SYS_BYTES_MAX)
    }

    /// The last name of what a link below `/sys` points to.
    pub(crate) fn sys_link_name(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.sys.join(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Names in a folder below `/proc`.
    pub(crate) fn proc_names(&self, path: &str) -> Vec<String> {
        names(&self.proc.join(path))
    }

    /// Names in a folder below `/sys`.
    pub(crate) fn sys_names(&self, path: &str) -> Vec<String> {
        names(&self.sys.join(path))
    }
}

fn names(path: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn read(path: &Path, bytes_max: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A list of cores or nodes as the kernel writes it: `0-3,8,10-11` (`cpuset(7)`). What cannot be
/// read is left out, and a range ends after 65 536 members.
pub(crate) fn parse_list(text: &str) -> Vec<u32> {
    const MEMBERS_MAX: u32 = 1 << 16;
    let mut members = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            members.extend(first..=last.min(first.saturating_add(MEMBERS_MAX)));
        }
        if members.len() > MEMBERS_MAX as usize {
            break;
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_of_cores() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("0"), [0]);
        assert_eq!(parse_list(""), Vec::<u32>::new());
        assert_eq!(parse_list("5-3,x,1-y,7"), [7]);
    }

    #[test]
    fn any_list_is_bounded() {
        assert!(parse_list("0-4294967295,0-4294967295").len() < 200_000);
        bolero::check!().with_type::<String>().for_each(|text| {
            assert!(parse_list(text).len() < 200_000);
        });
    }
}
