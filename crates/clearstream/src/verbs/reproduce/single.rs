//! Helpers of experiments that run child processes on this host, or act before and after each test.

use std::process::ExitStatus;
use std::time::Duration;

use sys::process::Owned;

use crate::exit::VerbError;
use crate::signals;

/// Interval of polling a child.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a child's end; a signal that asks this program to end ends the child first.
///
/// # Errors
/// A signal came, or the kernel reported an error.
pub(super) fn wait_unless_told(child: &mut Owned) -> Result<ExitStatus, VerbError> {
    loop {
        if let Some(status) = child.wait_within(WATCH_INTERVAL)? {
            return Ok(status);
        }
        if let Some(number) = signals::caught() {
            child.end()?;
            return Err(VerbError::failed(format!("ended by signal {number}")));
        }
    }
}
