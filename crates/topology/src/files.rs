//! Where the kernel's text files are, and how much of them is read.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file read; `/proc/net/dev` of thousands of interfaces is shorter.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Longest file read below `/sys`: a list or mask of thousands of cores is shorter.
const SYS_BYTES_MAX: u64 = 64 << 10;

/// The roots of the kernel's file trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFiles {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
}

impl Default for HostFiles {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys") }
    }
}

impl HostFiles {
    /// A recorded tree with `proc` and `sys` below `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { proc: root.join("proc"), sys: root.join("sys") }
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
