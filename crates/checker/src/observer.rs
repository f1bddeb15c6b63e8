//! The caller's view of a running search.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use statespace::Progress;

use crate::report::Traffic;

/// Receives progress and warnings of a running search, and may stop it. All calls come from the caller's
/// thread. `()` ignores everything and never stops the search.
pub trait Observer: fmt::Debug {
    /// A warning about a formula, one line and perhaps an excerpt.
    fn warn(&mut self, _text: &str) {}

    /// The progress of the search, about once a second.
    fn progress(&mut self, _progress: &Progress, _ranks: Option<&Traffic>, _elapsed: Duration) {}

    /// A checkpoint is complete on disk; `ranks_count` is `None` for the search of a single rank.
    fn checkpoint_written(&mut self, _path: &Path, _ranks_count: Option<usize>) {}

    /// The reason to stop the search, if there is one. Called several times a second; once it returns a
    /// reason, it must keep returning one.
    fn stop(&self) -> Option<String> {
        None
    }
}

impl Observer for () {}
