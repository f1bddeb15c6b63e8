//! The counters of an endpoint while its program runs: a file of its own, written anew each second, for `clearstream
//! live --messages`.

use std::path::PathBuf;

/// Names the folder.
const FOLDER_VARIABLE: &str = "FI_CLEARSTREAM_LIVE";
/// Between two versions of the file; only calls of the program write it.
const EVERY_NS: u64 = 1_000_000_000;

/// An endpoint's file. It goes with the value; that of a killed process remains.
#[derive(Debug)]
pub(super) struct Live {
    folder: PathBuf,
    name: String,
    next_ns: u64,
}

impl Live {
    /// Of the endpoint at this UDP port; `None` where no folder is named.
    pub(super) fn of_port(host: &str, port: u16) -> Option<Self> {
        let folder = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty())?;
        let name = format!("{host}.{}.{port}.json", std::process::id());
        Some(Self { folder: folder.into(), name, next_ns: 0 })
    }

    /// Whether it is time to write; then the next time is a second later.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.next_ns;
        if is_due {
            self.next_ns = now_ns + EVERY_NS;
        }
        is_due
    }

    /// Replaces the file, so that a reader sees the old or the new line.
    pub(super) fn write(&self, line: &str) {
        let next = self.folder.join(format!(".{}", self.name));
        // The program is not disturbed where the folder has gone or is full.
        if std::fs::write(&next, line).is_ok() {
            std::fs::rename(next, self.folder.join(&self.name)).ok();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        std::fs::remove_file(self.folder.join(&self.name)).ok();
        std::fs::remove_file(self.folder.join(format!(".{}", self.name))).ok();
    }
}
