//! Ctrl-C, SIGTERM and SIGHUP as a flag that long verbs look at.

use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);

/// From now on SIGINT, SIGTERM and SIGHUP set the flag; a second one, half a second later or more, ends the process.
pub(crate) fn watch() -> Result<(), sys::SyscallError> {
    sys::signal::on_termination_signal(&CAUGHT)
}

/// The signal that asked us to end, if any.
pub(crate) fn caught() -> Option<i32> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => None,
        number => Some(number),
    }
}
