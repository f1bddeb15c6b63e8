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
        // No SA_RESTART: a sleeping call returns with EINTR and its loop sees the flag.
        install(number, remember, libc::SA_RESETHAND)?;
    }
    Ok(())
}

/// From now on what would grow a file beyond `RLIMIT_FSIZE`, shared memory too, fails with `EFBIG` instead
/// of ending the process. By a handler: programs that are started meet the limit as they always do.
///
/// # Errors
/// `sigaction` failed.
pub fn survive_file_size_limit() -> Result<(), SyscallError> {
    install(libc::SIGXFSZ, do_nothing, libc::SA_RESTART)
}

fn install(
    number: libc::c_int,
    handler: extern "C" fn(libc::c_int),
    flags: libc::c_int,
) -> Result<(), SyscallError> {
    // SAFETY: all-zero is a valid `sigaction`: default handler, empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = flags;
    // SAFETY: `action` is initialised and lives through the call; the old action is not asked for; both
    // handlers of this module are async-signal-safe (at most two atomic operations).
    let answer = unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("sigaction", number.to_string())) }
}

extern "C" fn do_nothing(_number: libc::c_int) {}

extern "C" fn remember(number: libc::c_int) {
    let target = TARGET.load(Ordering::Acquire);
    // SAFETY: `target` is null or was made from a `&'static AtomicI32`.
    if let Some(flag) = unsafe { target.as_ref() } {
        flag.store(number, Ordering::Relaxed);
    }
}
