//! Caches and who shares them (kernel `Documentation/ABI/testing/sysfs-devices-system-cpu`).

use results::{Absent, Cache};

use super::{core_list, note, number};
use crate::HostFiles;

/// Caches of a core that are read; processors have four or five.
const INDEXES_MAX: u32 = 16;

/// Reads every cache once.
pub(super) fn read(files: &HostFiles, online: &[u32], absent: &mut Vec<Absent>) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    for &core in online {
        for index in 0..INDEXES_MAX {
            let folder = format!("devices/system/cpu/cpu{core}/cache/index{index}");
            let Some(level) = number(files, &format!("{folder}/level")) else { break };
            let Some(kind) = files.sys_line(&format!("{folder}/type")) else { break };
            let is_known = caches.iter().rev().any(|known| {
                known.level == level && known.kind == kind && known.cores.contains(&core)
            });
            if is_known {
                continue;
            }
            let size = files.sys_line(&format!("{folder}/size"));
            let sharers = core_list(files, &format!("{folder}/shared_cpu_list"));
            // A core shares its cache with itself, whatever a damaged list says.
            let cores = sharers.filter(|cores| cores.contains(&core)).unwrap_or(vec![core]);
            let size_bytes = size.and_then(|text| size_bytes(&text));
            caches.push(Cache { level, kind, size_bytes, cores });
        }
    }
    caches.sort_by(|a, b| (a.level, &a.cores, &a.kind).cmp(&(b.level, &b.cores, &b.kind)));
    if caches.is_empty() {
        note(absent, "caches", "the kernel does not describe them");
    }
    caches
}

/// `32K`, `8192K`, `2M`.
fn size_bytes(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _other => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&size| size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_in_kibibytes() {
        assert_eq!(size_bytes("32K"), Some(32 << 10));
        assert_eq!(size_bytes("36864K"), Some(36 << 20));
        assert_eq!(size_bytes("2M"), Some(2 << 20));
        for broken in ["", "K", "0K", "12", "12Q", "99999999999999999999K", "18446744073709551615G"]
        {
            assert_eq!(size_bytes(broken), None, "{broken}");
        }
    }
}
