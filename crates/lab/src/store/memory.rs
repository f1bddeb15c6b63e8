//! Whether this machine has the memory that a file system may take.

use std::fs;

use units::show_byte_size;

/// One line if the machine has less memory left than the file system may keep; it is taken as files grow, so the lab comes
/// up all the same.
pub(super) fn lacking(wanted_bytes: u64) -> Option<String> {
    let left_bytes = available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    (left_bytes < wanted_bytes).then(|| {
        format!(
            "the file system may keep {} in memory, and this machine has {} left: lower \
             `capacity` in the lab file, or the kernel may kill programs as it fills",
            show_byte_size(wanted_bytes),
            show_byte_size(left_bytes)
        )
    })
}

/// `MemAvailable` of `/proc/meminfo`, bytes.
fn available(text: &str) -> Option<u64> {
    let figure = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = figure.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_that_is_left_is_read() {
        let text = "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\nBuffers: 3 kB\n";
        assert_eq!(available(text), Some(2 << 20));
        for none in ["", "MemAvailable: kB\n", "MemAvailable: 5 MB\n", "MemAvailable: 1"] {
            assert_eq!(available(none), None, "{none}");
        }
        assert_eq!(lacking(0), None);
        assert!(lacking(u64::MAX).is_some_and(|line| line.lines().count() == 1));
    }
}
