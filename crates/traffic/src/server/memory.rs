//! The default memory limit of a server's tests.

use std::fs;

/// The default is one part in this many of the available memory.
const SHARE: u64 = 4;
/// Minimum on small machines, in bytes, up to half of their memory: ordinary tests need this much.
const SMALL_BYTES: u64 = 1 << 30;
/// Assumed memory if the kernel does not report it, in bytes.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// A quarter of this machine's memory, or of the limit of this process's control group if that is
/// lower, in bytes; at least 1 GiB, but never more than half of it.
#[must_use]
pub fn default_memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    budget_bytes(machine.into_iter().chain(group_bytes()).min().unwrap_or(UNKNOWN_BYTES))
}

fn budget_bytes(all_bytes: u64) -> u64 {
    (all_bytes / SHARE).max(SMALL_BYTES.min(all_bytes / 2))
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest `memory.max` between this process's control group and the root (cgroup version 2), in
/// bytes.
fn group_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folders = std::path::Path::new(own).ancestors();
    let limit = |folder: &std::path::Path| {
        let path = format!("/sys/fs/cgroup{}/memory.max", folder.display());
        fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    folders.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_give_half_and_large_ones_a_quarter() {
        const GIB: u64 = 1 << 30;
        for (all, budget) in [(GIB, GIB / 2), (2 * GIB, GIB), (3 * GIB, GIB), (16 * GIB, 4 * GIB)] {
            assert_eq!(budget_bytes(all), budget);
        }
    }

    #[test]
    fn the_kernels_figure_is_read() {
        let text = "MemTotal:       24556608 kB\nMemFree:        1 kB\n";
        assert_eq!(total_bytes(text), Some(24_556_608 * 1024));
        assert_eq!(total_bytes("MemTotal: 99999999999999999999 kB"), None);
        assert_eq!(total_bytes(""), None);
        assert!(default_memory_bytes() >= 16 << 20);
    }
}
