//! Wall-clock time as people of this place write it.

use std::ffi::CString;
use std::mem::MaybeUninit;

/// Longest text written; iperf3 has 100.
const TEXT_BYTES_MAX: usize = 256;

/// A moment in the local time zone, by `strftime(3)`'s format. Empty when the format holds a NUL or
/// its text would be longer than 255 bytes.
#[must_use]
pub fn local_time(format: &str, unix_s: i64) -> String {
    let Ok(format) = CString::new(format) else { return String::new() };
    let moment: libc::time_t = unix_s;
    let mut fields = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid through the call; all-zero is a valid `tm` (null zone name).
    let answer = unsafe { libc::localtime_r(&raw const moment, fields.as_mut_ptr()) };
    if answer.is_null() {
        return String::new();
    }
    let mut text = [0_u8; TEXT_BYTES_MAX];
    let start = text.as_mut_ptr().cast();
    let fields = fields.as_ptr();
    // SAFETY: `start` is writable for the length given; `format` ends in NUL; `fields` was zeroed
    // and then filled by `localtime_r`, and its zone name points into the C library's own memory.
    let length = unsafe { libc::strftime(start, text.len(), format.as_ptr(), fields) };
    String::from_utf8_lossy(&text[..length.min(TEXT_BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::local_time;

    #[test]
    fn formats_and_refuses() {
        // Whatever the zone, noon UTC on the 15th is the 14th, 15th or 16th.
        assert!(["14", "15", "16"].contains(&local_time("%d", 1_287_144_000).as_str()));
        assert_eq!(local_time("%Y-%%", 1_287_144_000), "2010-%");
        assert_eq!(local_time("", 0), "");
        assert_eq!(local_time("a\0b", 0), "");
        assert_eq!(local_time(&"x".repeat(1000), 0), "");
        assert_eq!(local_time("%Y", i64::MAX), "");
    }
}
