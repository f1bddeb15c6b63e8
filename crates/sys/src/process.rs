//! Child processes that end with their parent, and signals as things to read.

mod owned;

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::SyscallError;

pub use owned::{Ended, Ending, Owned};

/// From now on the kernel buries this process's children itself: no zombies, and nothing to wait
/// for. Meant for an init whose adopted orphans nobody asks about.
///
/// # Errors
/// `sigaction` failed.
pub fn bury_children() -> Result<(), SyscallError> {
    on_child(libc::SIG_IGN)
}

/// Takes back [`bury_children`], which a program started by such an init has inherited: children can be waited for.
///
/// # Errors
/// `sigaction` failed.
pub fn keep_children() -> Result<(), SyscallError> {
    on_child(libc::SIG_DFL)
}

fn on_child(disposition: libc::sighandler_t) -> Result<(), SyscallError> {
    // SAFETY: all-zero is a valid `sigaction`: empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = disposition;
    // SAFETY: `action` is initialised and lives through the call; the old action is not asked for.
    let answer = unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("sigaction", "SIGCHLD")) }
}

/// How a child starts beyond what [`Command`] offers.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChildStart {
    /// SIGKILL for the child when the thread that started it ends, also if it has ended before the
    /// child could ask for that. (A child in another process-id namespace cannot tell the latter.)
    pub dies_with_parent: bool,
}

/// Has `command`'s child start as `start` says, with no signal blocked.
pub fn start_child_as(command: &mut Command, start: ChildStart) -> &mut Command {
    start_child_of(command, start, rustix::process::getpid())
}

/// Has `command`'s child start in a session of its own, without a terminal or signals from one, with no signal
/// blocked, and with no descriptor but the standard ones and `inherited`: a lock or a pipe of whoever called
/// this program must not stay held for as long as the child lives. (It does with a kernel before 5.11.)
///
/// `inherited` are descriptors of this process that stay open until the child has started.
pub fn start_daemon(command: &mut Command, inherited: Vec<i32>) -> &mut Command {
    let prepare = move || {
        rustix::process::setsid()?;
        // SAFETY: what is marked is closed by exec only; a kernel that lacks the call or the flag refuses it.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        for number in &inherited {
            // SAFETY: sets a flag of a descriptor that the caller holds open.
            if unsafe { libc::fcntl(*number, libc::F_SETFD, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        set_mask(libc::SIG_SETMASK, &empty_set())
    };
    // SAFETY: `prepare` runs between fork and exec and makes only async-signal-safe system calls; it
    // allocates nothing and touches no lock (its errors hold a number).
    unsafe { command.pre_exec(prepare) }
}

fn start_child_of(command: &mut Command, start: ChildStart, parent: Pid) -> &mut Command {
    let prepare = move || {
        if start.dies_with_parent {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // A parent that ended before the line above sends nothing: somebody else has adopted us.
            if rustix::process::getppid().is_some_and(|now| now != parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        set_mask(libc::SIG_SETMASK, &empty_set())
    };
    // SAFETY: `prepare` runs between fork and exec and makes four async-signal-safe system calls;
    // it allocates nothing and touches no lock (its errors hold a number).
    unsafe { command.pre_exec(prepare) }
}

/// Signals that arrive as records to read instead of interrupting: SIGINT, SIGTERM, SIGHUP,
/// SIGQUIT, SIGUSR1, SIGUSR2 and SIGCHLD.
#[derive(Debug)]
pub struct SignalReader {
    fd: OwnedFd,
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedSignal {
    /// The kernel's number of the signal.
    pub number: i32,
    /// Sent by the kernel itself, as a terminal's Ctrl-C is, and thus to every process of the
    /// group.
    pub from_kernel: bool,
}

impl SignalReader {
    /// Blocks the signals for the calling thread and opens the reader. To be called before other
    /// threads start, which inherit the mask.
    ///
    /// # Errors
    /// `sigprocmask` or `signalfd` failed.
    pub fn open() -> Result<Self, SyscallError> {
        let mut set = empty_set();
        for number in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGCHLD,
        ] {
            // SAFETY: `set` is an initialised signal set and the number is a valid signal.
            unsafe { libc::sigaddset(&raw mut set, number) };
        }
        set_mask(libc::SIG_BLOCK, &set)
            .map_err(|error| SyscallError::new("sigprocmask", "block", error))?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: -1 asks for a new descriptor; `set` lives through the call.
        let fd = unsafe { libc::signalfd(-1, &raw const set, flags) };
        if fd < 0 {
            return Err(SyscallError::last("signalfd", ""));
        }
        // SAFETY: `fd` was just made and nobody else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The next signal, if one is waiting.
    ///
    /// # Errors
    /// `read` failed.
    pub fn next(&self) -> Result<Option<ArrivedSignal>, SyscallError> {
        let mut record = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `record` is writable for `size` bytes.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), record.as_mut_ptr().cast(), size) };
        if usize::try_from(got) != Ok(size) {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(SyscallError::new("read", "signalfd", error)),
            };
        }
        // SAFETY: plain integers, all-zero is valid, and the kernel wrote a whole record.
        let record = unsafe { record.assume_init() };
        Ok(Some(ArrivedSignal {
            number: i32::try_from(record.ssi_signo).unwrap_or(0),
            from_kernel: record.ssi_code == libc::SI_KERNEL,
        }))
    }
}

impl std::os::fd::AsFd for SignalReader {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: all-zero is a valid value of the plain-integer type and the empty set on Linux.
    unsafe { std::mem::zeroed() }
}

fn set_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is initialised; the old mask is not asked for.
    let answer = unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

/// Takes ownership of a descriptor that this process was started with, under its number, and keeps
/// it from programs started later. Meant for the first lines of a program that was told the number
/// by the one that started it; to be called once for each number.
///
/// # Errors
/// No such descriptor is open, or it is one of the standard three.
pub fn take_inherited(number: i32) -> Result<OwnedFd, SyscallError> {
    let refused = |error: io::Error| {
        SyscallError::new("fcntl(F_SETFD)", format!("descriptor {number}"), error)
    };
    if number < 3 {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    // SAFETY: F_SETFD takes its argument by value; an unknown descriptor is an error.
    let answer = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if answer != 0 {
        return Err(SyscallError::last("fcntl(F_SETFD)", format!("descriptor {number}")));
    }
    // SAFETY: it is open, as fcntl just said, and its owner until now was the process that started
    // this one: nothing here has made it or will close it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// What is open under each of these numbers, which somebody else has named, once more. Whoever owns
/// them keeps them. No copy gets one of the numbers itself: a number that names nothing stays so.
///
/// # Errors
/// Nothing is open under one of them, or there are too many descriptors.
pub fn duplicate_by_number(numbers: Range<i32>) -> Result<Vec<OwnedFd>, SyscallError> {
    let above = numbers.end;
    numbers.map(|number| duplicate_above(number, above)).collect()
}

fn duplicate_above(number: i32, above: i32) -> Result<OwnedFd, SyscallError> {
    // SAFETY: the call takes numbers only; one under which nothing is open is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, above) };
    if copy < 0 {
        let object = format!("descriptor {number}");
        return Err(SyscallError::last("fcntl(F_DUPFD_CLOEXEC)", object));
    }
    // SAFETY: the kernel has just made it, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Lets a child inherit `fd` under its number. Only for a process with one thread, or another
/// thread's children inherit it too.
///
/// # Errors
/// `fcntl` failed.
pub fn leave_open_for_children(fd: &impl std::os::fd::AsFd) -> Result<(), SyscallError> {
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())
        .map_err(|error| SyscallError::new("fcntl(F_SETFD)", "descriptor", error))
}

/// From now on the calling thread runs before every ordinary thread of its core (`SCHED_FIFO`,
/// lowest real-time priority): for work that stands for hardware and must not wait for programs.
///
/// # Errors
/// `CAP_SYS_NICE` is missing where the machine's root has it, and `RLIMIT_RTPRIO` is 0.
pub fn run_before_others() -> Result<(), SyscallError> {
    // SAFETY: all-zero is a valid `sched_param`.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // Threads and processes this one starts begin as ordinary ones again.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread; `parameters` is initialised and lives through the call.
    let answer = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("sched_setscheduler", "SCHED_FIFO")) }
}

/// When a process started, clock ticks since boot (field 22 of `/proc/PID/stat`, `proc_pid_stat(5)`): tells it from a
/// later process of the same number. `None` for one that is not there, or on its way out.
#[must_use]
pub fn started_ticks(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_name, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then_some(())?;
    // Fields 3, 9 and 22.
    let flags: u32 = fields.nth(9 - 4)?.parse().ok()?;
    (flags & PF_EXITING == 0).then_some(())?;
    fields.nth(22 - 10)?.parse().ok()
}

/// Processor time of a process, all its threads together, in the resolution of the kernel's clock ticks (fields 14 and 15
/// of `/proc/PID/stat`, `proc_pid_stat(5)`). `None` for one that is not there.
#[must_use]
pub fn cpu_time(pid: i32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_name, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace().skip(14 - 3);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let ticks = ticks()? + ticks()?;
    let per_s = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_secs_f64(ticks as f64 / per_s as f64))
}

/// Kernel `include/linux/sched.h`: it has begun to exit.
const PF_EXITING: u32 = 0x4;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn copies_do_not_fill_the_gap_they_are_asked_about() {
        let open = TcpListener::bind("127.0.0.1:0").expect("a port");
        let number = open.as_raw_fd();
        let copies = duplicate_by_number(number..number + 1).expect("it is open");
        assert!(copies[0].as_raw_fd() > number);
        // Far above what other tests of this process open, with the gap right behind the socket.
        let far = duplicate_above(number, 900).expect("a copy");
        let number = far.as_raw_fd();
        duplicate_by_number(number..number + 2).expect_err("only one is open");
    }

    #[test]
    fn the_time_that_a_process_uses_is_counted() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = cpu_time(own).unwrap();
        let used = crate::thread::thread_cpu_time;
        let began = used();
        while used() - began < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        // Two ticks of 100 Hz may be missing.
        assert!(cpu_time(own).unwrap() - before >= Duration::from_millis(30));
        assert_eq!(cpu_time(i32::MAX), None);
    }

    #[test]
    fn this_process_has_started_and_a_dead_one_has_not() {
        let own = i32::try_from(std::process::id()).unwrap();
        let ticks = started_ticks(own).unwrap();
        assert!(ticks > 0);
        let text = std::fs::read_to_string(format!("/proc/{own}/stat")).unwrap();
        let after = text.rsplit_once(')').unwrap().1;
        assert_eq!(after.split_ascii_whitespace().nth(22 - 3).unwrap(), ticks.to_string());
        let mut child = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while started_ticks(pid).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(started_ticks(i32::MAX), None);
    }
}
