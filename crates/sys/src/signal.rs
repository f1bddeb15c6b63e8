//! Signals as flags.

use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use crate::SyscallError;

/// Where the handler writes; set once before the handler is installed.
static TARGET: AtomicPtr<AtomicI32> = AtomicPtr::new(std::ptr::null_mut());

/// From now on SIGINT, SIGTERM and SIGHUP store their number in `flag`. Each is caught once: the
/// second one of a kind ends the process, so that nothing can hang beyond the user's patience.
///
/// # Errors
/// `sigaction` failed for one of them.
pub fn on_termination_signal(flag: &'static AtomicI32) -> Result<(), SyscallError> {
    TARGET.store(std::ptr::from_ref(flag).cast_mut(), Ordering::Release);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        install(number)?;
    }
    Ok(())
}

fn install(number: libc::c_int) -> Result<(), SyscallError> {
    // SAFETY: all-zero is a valid `sigaction`: default handler, empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = remember;
    action.sa_sigaction = handler as libc::sighandler_t;
    // No SA_RESTART: a sleeping call returns with EINTR and its loop sees the flag.
    action.sa_flags = libc::SA_RESETHAND;
    // SAFETY: `action` is initialised and lives through the call; the old action is not asked for;
    // `remember` is async-signal-safe (two atomic operations).
    let answer = unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("sigaction", number.to_string())) }
}

extern "C" fn remember(number: libc::c_int) {
    let target = TARGET.load(Ordering::Acquire);
    // SAFETY: `target` is null or was made from a `&'static AtomicI32`.
    if let Some(flag) = unsafe { target.as_ref() } {
        flag.store(number, Ordering::Relaxed);
    }
}
