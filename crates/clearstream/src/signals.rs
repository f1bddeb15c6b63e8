//! Ctrl-C, SIGTERM and SIGHUP as a flag that long-running verbs poll.

use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);

/// Makes SIGINT, SIGTERM and SIGHUP set the flag; a second one, at least half a second later, ends the process.
pub(crate) fn watch() -> Result<(), sys::SyscallError> {
    sys::signal::on_termination_signal(&CAUGHT)
}

/// Number of the signal received, if any.
pub(crate) fn caught() -> Option<i32> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => None,
        number => Some(number),
    }
}
