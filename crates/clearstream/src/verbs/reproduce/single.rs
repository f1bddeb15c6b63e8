//! Experiments whose work is a process of this host, or that have something around each of their tests.

use std::process::ExitStatus;
use std::time::Duration;

use sys::process::Owned;

use crate::exit::VerbError;
use crate::signals;

/// How often what watches a child looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// How a child ended; a signal that asks this program to end ends the child first.
///
/// # Errors
/// A signal came, or the kernel's.
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
