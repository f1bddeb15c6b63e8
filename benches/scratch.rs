//! The folder of this run: of a name that nobody could know and closed to others, as programs are built
//! and started there.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sys::private::Scratch;

use crate::host::BenchError;

static FOLDER: Mutex<Option<Scratch>> = Mutex::new(None);

/// A path in it; the folder is made with the first.
pub(crate) fn path(name: &str) -> Result<PathBuf, BenchError> {
    let mut folder = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    if folder.is_none() {
        let made = Scratch::new("bench").map_err(|error| BenchError::Failed(error.to_string()))?;
        *folder = Some(made);
    }
    let folder = folder.as_ref().map(|folder| folder.path().join(name));
    folder.ok_or_else(|| BenchError::Failed("no folder for this run".to_owned()))
}

/// Takes it away with all that is in it.
pub(crate) fn clean() {
    FOLDER.lock().unwrap_or_else(PoisonError::into_inner).take();
}
