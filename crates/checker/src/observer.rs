//! Who watches a search.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use statespace::Progress;

use crate::report::Traffic;

/// What a search tells its caller while it runs, and what it asks. All calls come from the caller's
/// thread. `()` is an observer that hears nothing and never stops the search.
pub trait Observer: fmt::Debug {
    /// A warning about a formula, one line and perhaps an excerpt.
    fn warn(&mut self, _text: &str) {}

    /// How far the search is, about once a second.
    fn progress(&mut self, _progress: &Progress, _ranks: Option<&Traffic>, _elapsed: Duration) {}

    /// A checkpoint is complete on disk: of the search of one rank, or of so many.
    fn checkpoint_written(&mut self, _path: &Path, _ranks_count: Option<usize>) {}

    /// Why the search should end now, if it should. Asked some times a second; once there is a reason
    /// it must stay.
    fn stop(&self) -> Option<String> {
        None
    }
}

impl Observer for () {}
