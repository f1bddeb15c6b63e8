//! Signals as flags.

use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use crate::SyscallError;

/// Where the handler writes; set once before the handler is installed.
static TARGET: AtomicPtr<AtomicI32> = AtomicPtr::new(std::ptr::null_mut());

/// When the first signal came, milliseconds of the monotonic clock; 0: none came yet.
static FIRST_CAME_MS: AtomicU64 = AtomicU64::new(0);

/// Signals that come within so many milliseconds of the first are the same wish: `timeout(1)` signals its
/// child and then the child's whole group, systemd sends SIGHUP right after SIGTERM.
const SAME_WISH_MS: u64 = 500;

/// From now on SIGINT, SIGTERM and SIGHUP store their number in `flag`. A second signal, half a second or more
/// after the first, ends the process, so that nothing can hang beyond the user's patience.
///
/// # Errors
/// `sigaction` failed for one of them.
pub fn on_termination_signal(flag: &'static AtomicI32) -> Result<(), SyscallError> {
    TARGET.store(std::ptr::from_ref(flag).cast_mut(), Ordering::Release);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // No SA_RESTART: a sleeping call returns with EINTR and its loop sees the flag.
        install(number, remember, 0)?;
    }
    Ok(())
}

/// A signal as a message names it: `signal 2 (SIGINT)`.
#[must_use]
pub fn named(number: i32) -> String {
    match number {
        libc::SIGINT => format!("signal {number} (SIGINT)"),
        libc::SIGTERM => format!("signal {number} (SIGTERM)"),
        libc::SIGHUP => format!("signal {number} (SIGHUP)"),
        _ => format!("signal {number}"),
    }
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
    // handlers of this module are async-signal-safe: atomic operations, `clock_gettime`, `sigaction` and `raise`.
    let answer = unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("sigaction", number.to_string())) }
}

extern "C" fn do_nothing(_number: libc::c_int) {}

extern "C" fn remember(number: libc::c_int) {
    let now_ms = monotonic_ms();
    let first = FIRST_CAME_MS.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|first_ms| now_ms.saturating_sub(first_ms) >= SAME_WISH_MS) {
        end_by(number);
        return;
    }
    let target = TARGET.load(Ordering::Acquire);
    // SAFETY: `target` is null or was made from a `&'static AtomicI32`.
    if let Some(flag) = unsafe { target.as_ref() } {
        // The first one's number becomes the exit code.
        flag.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).ok();
    }
}

/// Ends this process by the signal, as if it had never been caught, once the handler has returned.
fn end_by(number: libc::c_int) {
    // SAFETY: all-zero is a valid `sigaction`: the default action (`SIG_DFL` is 0).
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` lives through the call and the old action is not asked for.
    unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
    // SAFETY: async-signal-safe, and it takes any number that `sigaction` took.
    unsafe { libc::raise(number) };
}

/// The monotonic clock, milliseconds; at least 1.
fn monotonic_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a `timespec` that the call fills; the clock exists in every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    (seconds * 1000 + nanoseconds / 1_000_000).max(1)
}
