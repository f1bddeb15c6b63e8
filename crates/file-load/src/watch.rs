//! What a rank is doing at this moment, for whoever watches it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock;

/// The call under way. Written by the rank's thread for every call, read a few times a second.
#[derive(Debug, Default)]
pub struct Activity {
    /// When the call began, ns of the monotonic clock; 0: none is under way.
    since_ns: AtomicU64,
    /// Where in the file, bytes, or the number at the end of the item's name.
    place: AtomicU64,
    /// Name of the call, and the file, the directory or the beginning of the items' names.
    what: Mutex<(&'static str, String)>,
    /// Places are numbers of items.
    is_of_items: AtomicBool,
}

impl Activity {
    /// Names the calls to come: an operation and the file or directory it works on.
    pub fn name(&self, operation: &'static str, path: &str) {
        // A thread that panicked while it held the name left a name all the same.
        let mut what = self.what.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        what.0 = operation;
        path.clone_into(&mut what.1);
        self.is_of_items.store(false, Ordering::Relaxed);
    }

    /// The same for calls on many files or directories, whose names begin with `prefix` and end with the place.
    pub fn name_items(&self, operation: &'static str, prefix: &str) {
        self.name(operation, prefix);
        self.is_of_items.store(true, Ordering::Relaxed);
    }

    /// A call begins at this moment of the monotonic clock, ns.
    pub fn begin(&self, place: u64, now_ns: u64) {
        self.place.store(place, Ordering::Relaxed);
        self.since_ns.store(now_ns, Ordering::Release);
    }

    /// No call is under way.
    pub fn end(&self) {
        self.since_ns.store(0, Ordering::Release);
    }

    /// Runs a single call on a file or directory.
    pub fn during<T>(&self, operation: &'static str, path: &str, call: impl FnOnce() -> T) -> T {
        self.name(operation, path);
        self.begin(NOWHERE, clock::now_ns());
        let done = call();
        self.end();
        done
    }

    /// The call under way and for how long, seconds, where it is longer than `limit_s`.
    #[must_use]
    pub fn stalled(&self, limit_s: f64, now_ns: u64) -> Option<(String, f64)> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let waited_s = now_ns.saturating_sub(since_ns) as f64 * 1e-9;
        if since_ns == 0 || waited_s <= limit_s {
            return None;
        }
        let place = self.place.load(Ordering::Relaxed);
        let what = self.what.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let place = match self.is_of_items.load(Ordering::Relaxed) {
            _ if place == NOWHERE => String::new(),
            true => place.to_string(),
            false => format!(" at byte {place}"),
        };
        Some((format!("{} {}{place}", what.0, what.1), waited_s))
    }
}

/// A place that is none.
pub const NOWHERE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_takes_too_long_is_named() {
        let activity = Activity::default();
        activity.name("write", "/pfs/f");
        assert_eq!(activity.stalled(1.0, 9_000_000_000), None, "none is under way");
        activity.begin(4096, 1_000_000_000);
        assert_eq!(activity.stalled(10.0, 9_000_000_000), None);
        let (what, seconds) = activity.stalled(5.0, 9_000_000_000).expect("it takes 8 s");
        assert_eq!((what.as_str(), seconds), ("write /pfs/f at byte 4096", 8.0));
        activity.name_items("stat", "/pfs/d/file.mdtest.0.");
        activity.begin(12, 1_000_000_000);
        let (what, _seconds) = activity.stalled(5.0, 9_000_000_000).expect("it takes 8 s");
        assert_eq!(what, "stat /pfs/d/file.mdtest.0.12");
        activity.end();
        assert_eq!(activity.stalled(5.0, 9_000_000_000), None);
        activity.during("unlink", "/pfs/f", || {
            let later_ns = clock::now_ns() + 8_000_000_000;
            let stalled = activity.stalled(5.0, later_ns).expect("it takes 8 s");
            assert_eq!(stalled.0, "unlink /pfs/f");
        });
        assert_eq!(activity.stalled(5.0, u64::MAX), None);
    }
}
