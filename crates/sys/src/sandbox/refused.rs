//! Which calls the filters refused, and how often.
//!
//! A refused call raises `SIGSYS` in its own thread (`SECCOMP_RET_TRAP`); the handler counts it and lets it
//! fail with `EPERM`. So the count is complete whatever the caller makes of the error.

use std::sync::atomic::{AtomicU64, Ordering};

use seccompiler::SeccompAction;

use crate::SyscallError;

/// A call that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedCall {
    /// The kernel's number of it on this machine; that of all beyond the last known ones is 1023.
    pub number: libc::c_long,
    /// How often, by all threads since the process began.
    pub count: u64,
}

impl RefusedCall {
    /// What the call is named, where this program might make it.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.number).map(|(_, name)| *name)
    }
}

/// `preadv2`, or `system call 327` where the name is not known here.
impl std::fmt::Display for RefusedCall {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => out.write_str(name),
            None => write!(out, "system call {}", self.number),
        }
    }
}

/// All calls that were refused so far, by their numbers.
#[must_use]
pub fn refused() -> Vec<RefusedCall> {
    let counts = COUNTS.iter().map(|count| count.load(Ordering::Relaxed));
    (0..)
        .zip(counts)
        .filter(|(_, n)| *n > 0)
        .map(|(number, count)| RefusedCall { number, count })
        .collect()
}

const NUMBERS: usize = 1024;

static COUNTS: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];

const NAMES: &[(libc::c_long, &str)] = &[
    (libc::SYS_openat, "openat"),
    (libc::SYS_socket, "socket"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_bind, "bind"),
    (libc::SYS_setsockopt, "setsockopt"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_prctl, "prctl"),
    (libc::SYS_seccomp, "seccomp"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_preadv2, "preadv2"),
    (libc::SYS_pwritev2, "pwritev2"),
    (libc::SYS_io_submit, "io_submit"),
    (libc::SYS_kill, "kill"),
    (libc::SYS_tgkill, "tgkill"),
    (libc::SYS_getcwd, "getcwd"),
    (libc::SYS_sched_setscheduler, "sched_setscheduler"),
];

/// What a filter says of a call that is not on its list.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const ACTION: SeccompAction = SeccompAction::Trap;
/// Where the registers are not known here, it fails uncounted.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) const ACTION: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// Counts from now on, for all threads. The calling thread no longer blocks the signal, nor do those that it
/// begins: a refused call would end the process.
pub(super) fn count() -> Result<(), SyscallError> {
    install()?;
    // SAFETY: all-zero is a valid value and the empty set on Linux.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is an initialised signal set and the number a valid signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGSYS) };
    // SAFETY: `set` is initialised; the old mask is not asked for.
    let answer =
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
    if answer == 0 {
        return Ok(());
    }
    Err(SyscallError::new("pthread_sigmask", "SIGSYS", std::io::Error::from_raw_os_error(answer)))
}

fn install() -> Result<(), SyscallError> {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let handler: Handler = on_refusal;
    // SAFETY: all-zero is a valid `sigaction`: default handler, empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: `action` is initialised and lives through the call; the old action is not asked for; the
    // handler is async-signal-safe: atomic operations and writes to its own frame.
    let answer = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("sigaction", "SIGSYS")) }
}

/// `SYS_SECCOMP` of `include/uapi/asm-generic/siginfo.h`.
const FROM_FILTER: libc::c_int = 1;

extern "C" fn on_refusal(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO a whole `siginfo_t`.
    let code = unsafe { (*info).si_code };
    // Anybody of this user may send the signal; that is no refused call.
    if code != FROM_FILTER {
        return;
    }
    // SAFETY: the kernel hands such a handler the interrupted thread's `ucontext_t`, its alone meanwhile.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let number = refuse(registers);
    let place = usize::try_from(number).map_or(NUMBERS - 1, |number| number.min(NUMBERS - 1));
    COUNTS[place].fetch_add(1, Ordering::Relaxed);
}

/// Has the call fail with `EPERM` once the handler returns; which one it is. The kernel has put the number
/// back where the caller had it.
#[cfg(target_arch = "x86_64")]
fn refuse(registers: &mut libc::mcontext_t) -> i64 {
    let answer = &mut registers.gregs[libc::REG_RAX as usize];
    std::mem::replace(answer, -i64::from(libc::EPERM))
}

#[cfg(target_arch = "aarch64")]
fn refuse(registers: &mut libc::mcontext_t) -> i64 {
    registers.regs[0] = (-i64::from(libc::EPERM)).cast_unsigned();
    registers.regs[8].cast_signed()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn refuse(_registers: &mut libc::mcontext_t) -> i64 {
    // No filter here raises the signal.
    -1
}
