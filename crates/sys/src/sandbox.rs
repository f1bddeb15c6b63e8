//! A thread that gives up every system call it has no need of, for good: seccomp filters
//! (kernel `Documentation/userspace-api/seccomp_filter.rst`).
//!
//! A call that is not on the list fails with `EPERM` and does nothing; its caller says so as it says any
//! other error, and [`refused()`] counts it, whether its caller says so or not. The filter holds for the calling thread and all threads and processes it begins from then
//! on. What a list allows without a look at arguments costs nothing but one bit's test (Linux 5.11).

mod refused;

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Is,
    SeccompCondition as Condition, SeccompFilter, SeccompRule, apply_filter,
};

pub use refused::{RefusedCall, refused};

use crate::SyscallError;

/// Which calls a thread keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Carrying frames between memory and descriptors that are there already.
    Carry,
    /// That, and hearing a guest's hypervisor: accepting it, its messages and descriptors, mapping its memory.
    Guest,
    /// Carrying, and accepting clients, making memory and bells for them, threads, and reading files. No new
    /// sockets, no programs, no other process, nothing that may be run.
    Serve,
}

/// Gives up all calls but those of `calls`, and every privilege that a program started later could bring
/// (`no_new_privs`).
///
/// # Errors
/// The kernel has no seccomp filters (`CONFIG_SECCOMP_FILTER`), or not on this machine.
pub fn enter(calls: Calls) -> Result<(), SyscallError> {
    let failed = |error: io::Error| SyscallError::new("seccomp", format!("{calls:?}"), error);
    refused::count()?;
    // The last may forbid to make another.
    for filter in [without_new_clone(), without_uncounted(calls), program(calls)] {
        let filter = filter.map_err(|error| failed(io::Error::other(error)))?;
        apply_filter(&filter).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => failed(error),
            other => failed(io::Error::other(other)),
        })?;
    }
    Ok(())
}

/// `clone3`, whose arguments no filter can see, is a call that this kernel does not know: then the C library
/// begins threads by `clone`.
fn without_new_clone() -> Result<BpfProgram, Refused> {
    refuse_only(BTreeMap::from([(libc::SYS_clone3, vec![])]), libc::ENOSYS)
}

/// What begins processes, and threads where there are to be none, fails without being counted: the C library
/// makes these calls with all signals blocked, and one that [`refused()`] would count ends the process then. So does
/// [`reading`] a file in a thread that carries frames: the C library does that too, and it is no sign of a fault.
fn without_uncounted(calls: Calls) -> Result<BpfProgram, Refused> {
    let thread = unsigned(libc::CLONE_THREAD);
    let processes = match calls {
        Calls::Carry | Calls::Guest => vec![],
        Calls::Serve => bits(0, thread, 0)?,
    };
    let mut rules = BTreeMap::from([(libc::SYS_clone, processes)]);
    rules.extend(of_machine::FORK.map(|number| (number, vec![])));
    if calls != Calls::Serve {
        rules.insert(libc::SYS_openat, reading()?);
    }
    refuse_only(rules, libc::EPERM)
}

/// Opening a file to read, as the C library's allocator does once a process when a thread's arena shrinks: it asks
/// `/proc/sys/vm/overcommit_memory` how to give memory back, and manages without an answer.
fn reading() -> Result<Vec<SeccompRule>, Refused> {
    one_of(2, &[unsigned(libc::O_RDONLY | libc::O_CLOEXEC)])
}

/// Refuses these calls and allows all others. Of what several filters say, the kernel takes the strictest, and
/// to count a call is stricter than to refuse it: so [`program`] allows these.
fn refuse_only(
    rules: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    error: libc::c_int,
) -> Result<BpfProgram, Refused> {
    let machine = std::env::consts::ARCH.try_into()?;
    let refused = SeccompAction::Errno(error.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, machine)?.try_into()
}

fn program(calls: Calls) -> Result<BpfProgram, Refused> {
    let mut rules = BTreeMap::new();
    let mut allow =
        |numbers: &[libc::c_long]| rules.extend(numbers.iter().map(|&one| (one, vec![])));
    allow(CARRY);
    allow(&of_machine::CARRY);
    // See `without_uncounted`.
    allow(&[libc::SYS_clone, libc::SYS_clone3]);
    allow(&of_machine::FORK);
    if calls == Calls::Serve {
        allow(SERVE);
        allow(&of_machine::SERVE);
        rules.extend(look_at_arguments()?);
    } else {
        // See `without_uncounted`.
        rules.insert(libc::SYS_openat, reading()?);
        // Builds with debug assertions ask before they close; a guest's memory is asked for its seals.
        let seals = (calls == Calls::Guest).then(|| unsigned(libc::F_GET_SEALS));
        let may: Vec<u64> = seals.into_iter().chain([unsigned(libc::F_GETFD)]).collect();
        rules.insert(libc::SYS_fcntl, one_of(1, &may)?);
        if calls == Calls::Guest {
            rules.extend(GUEST.iter().map(|&one| (one, vec![])));
        }
    }
    rules.extend(memory_that_does_not_run()?);
    rules.insert(libc::SYS_ioctl, of_devices()?);
    rules.insert(libc::SYS_tgkill, own_process()?);
    let machine = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused::ACTION, SeccompAction::Allow, machine)?.try_into()
}

/// Without a look at arguments.
const CARRY: &[libc::c_long] = &[
    // Frames, bells, sleep.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    // The same, never waiting, whatever others do with a descriptor that they hold too.
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_ctl,
    libc::SYS_close,
    libc::SYS_getsockopt,
    // Threads: their locks, their cores, their end.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
];

/// What a guest's hypervisor is heard by, and its memory looked at.
const GUEST: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
];

const SERVE: &[libc::c_long] = &[
    // Clients.
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_getsockname,
    libc::SYS_shutdown,
    libc::SYS_fcntl,
    libc::SYS_dup3,
    // Memory and bells for them.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    // Files to read, the socket's name to take away.
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_unlinkat,
    libc::SYS_uname,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_prlimit64,
];

/// Older calls that only some machines have.
#[cfg(target_arch = "x86_64")]
mod of_machine {
    pub(super) const CARRY: [libc::c_long; 2] = [libc::SYS_poll, libc::SYS_epoll_wait];
    pub(super) const SERVE: [libc::c_long; 3] =
        [libc::SYS_unlink, libc::SYS_stat, libc::SYS_readlink];
    pub(super) const FORK: [libc::c_long; 2] = [libc::SYS_fork, libc::SYS_vfork];
}
#[cfg(not(target_arch = "x86_64"))]
mod of_machine {
    pub(super) const CARRY: [libc::c_long; 0] = [];
    pub(super) const SERVE: [libc::c_long; 0] = [];
    pub(super) const FORK: [libc::c_long; 0] = [];
}

type Rules = [(libc::c_long, Vec<SeccompRule>)];
type Refused = seccompiler::BackendError;

/// Calls with one of these values as an argument.
fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, Refused> {
    let rule =
        |&value| SeccompRule::new(vec![Condition::new(argument, Length::Dword, Is::Eq, value)?]);
    values.iter().map(rule).collect()
}

/// Calls with these bits of an argument as in `value`.
fn bits(argument: u8, mask: u64, value: u64) -> Result<Vec<SeccompRule>, Refused> {
    let condition = Condition::new(argument, Length::Qword, Is::MaskedEq(mask), value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

fn unsigned(number: libc::c_int) -> u64 {
    number.cast_unsigned().into()
}

fn look_at_arguments() -> Result<Box<Rules>, Refused> {
    let writes = unsigned(libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC);
    let named = [libc::PR_SET_NAME, libc::PR_SET_NO_NEW_PRIVS].map(unsigned);
    Ok(Box::new([
        (libc::SYS_openat, bits(2, writes, unsigned(libc::O_RDONLY))?),
        (libc::SYS_prctl, one_of(0, &[named[0], named[1], PR_SET_VMA])?),
        // A second, narrower filter.
        (libc::SYS_seccomp, one_of(0, &[libc::SECCOMP_SET_MODE_FILTER.into()])?),
    ]))
}

/// `TUN…` requests, whose numbers begin at 0xc8 (`TUNSETNOCSUM`): those of a terminal, into which somebody
/// could type, are below.
fn of_devices() -> Result<Vec<SeccompRule>, Refused> {
    let above = [0xc8, 0xd0, 0xe0].map(|bit| bits(1, 0xff00 | bit, 0x5400 | bit));
    let mut rules = one_of(1, &[libc::TCGETS, libc::FIONREAD])?;
    for above in above {
        rules.extend(above?);
    }
    Ok(rules)
}

/// The memory allocator names its memory, where it does.
const PR_SET_VMA: u64 = 0x5356_4d41;

fn memory_that_does_not_run() -> Result<[(libc::c_long, Vec<SeccompRule>); 2], Refused> {
    let runs = unsigned(libc::PROT_EXEC);
    Ok([(libc::SYS_mmap, bits(2, runs, 0)?), (libc::SYS_mprotect, bits(2, runs, 0)?)])
}

/// What a thread may send signals to: an abort ends this process.
fn own_process() -> Result<Vec<SeccompRule>, Refused> {
    one_of(0, &[std::process::id().into()])
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::{fs, thread};

    use super::*;

    /// On a thread of its own, which goes with its filter.
    fn within<T: Send + 'static>(calls: Calls, work: impl FnOnce() -> T + Send + 'static) -> T {
        let confined = move || {
            enter(calls).unwrap();
            let status = fs::read_to_string("/proc/thread-self/status");
            (work(), status)
        };
        let (value, status) = thread::spawn(confined).join().unwrap();
        if let Ok(status) = status {
            assert!(
                status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"),
                "{status}"
            );
        } else {
            assert_ne!(calls, Calls::Serve, "who serves may read");
        }
        value
    }

    fn is_refused<T>(outcome: io::Result<T>) -> bool {
        outcome.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
    }

    #[test]
    fn who_serves_has_threads_and_files_but_no_sockets_and_programs() {
        let path = std::env::temp_dir().join(format!("clearstream-sandbox-{}", std::process::id()));
        let made = path.clone();
        within(Calls::Serve, move || {
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            assert!(File::open("/proc/self/stat").is_ok());
            assert!(is_refused(OpenOptions::new().write(true).open("/dev/null")));
            assert!(is_refused(File::create(made)));
            assert!(is_refused(UdpSocket::bind("127.0.0.1:0")));
            assert!(is_refused(Command::new("/bin/true").status()));
        });
        assert!(!path.exists());
    }

    #[test]
    fn who_carries_reads_and_writes_what_is_open_and_no_more() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        within(Calls::Carry, move || {
            io::Write::write_all(&mut near, b"frame").unwrap();
            let mut space = [0; 5];
            io::Read::read_exact(&mut far, &mut space).unwrap();
            assert_eq!(&space, b"frame");
            // Memory comes and goes: 64 MiB are mapped.
            assert_eq!(vec![1_u8; 64 << 20].iter().filter(|&&byte| byte == 1).count(), 64 << 20);
            assert!(is_refused(File::open("/proc/self/stat")));
            assert!(is_refused(UnixStream::pair()));
            assert!(is_refused(thread::Builder::new().spawn(|| ())));
        });
    }

    #[test]
    fn who_hears_a_guest_maps_its_memory_and_opens_nothing() {
        let memory =
            rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&memory, 4096).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        within(Calls::Guest, move || {
            assert!(rustix::fs::fcntl_get_seals(&memory).is_ok());
            assert!(rustix::fs::fcntl_setfl(&memory, rustix::fs::OFlags::empty()).is_err());
            assert!(rustix::fs::fstat(&memory).is_ok() && rustix::fs::fstatfs(&memory).is_ok());
            assert!(rustix::net::send(&near, b"x", rustix::net::SendFlags::empty()).is_ok());
            let mut into = [0; 1];
            let parts = &mut [io::IoSliceMut::new(&mut into)];
            let mut none = rustix::net::RecvAncillaryBuffer::default();
            let flags = rustix::net::RecvFlags::empty();
            assert!(rustix::net::recvmsg(&far, parts, &mut none, flags).is_ok());
            assert!(is_refused(File::open("/proc/self/stat")));
            assert!(is_refused(UnixStream::pair()));
            assert!(is_refused(thread::Builder::new().spawn(|| ())));
        });
    }

    /// Which call it was, and how often, is said however the caller takes it.
    #[test]
    fn what_is_refused_is_counted_also_where_the_error_is_dropped() {
        let count = || {
            let all = refused();
            all.iter().find(|one| one.number == libc::SYS_getcwd).map_or(0, |one| one.count)
        };
        let before = count();
        within(Calls::Carry, || (0..3).for_each(|_| drop(std::env::current_dir())));
        assert_eq!(count(), before + 3);
        // The thread asks with all signals blocked: refused, and nobody dies of it.
        within(Calls::Carry, || assert!(is_refused(thread::Builder::new().spawn(|| ()))));
        // A parent that blocked the signal would have its children end by it.
        let mut set = empty_set();
        // SAFETY: `set` is an initialised signal set and the number a valid signal.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGSYS) };
        thread::spawn(move || {
            // SAFETY: `set` is initialised; the old mask is not asked for.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
            enter(Calls::Carry).unwrap();
            assert!(is_refused(std::env::current_dir()));
        })
        .join()
        .unwrap();
        assert_eq!(count(), before + 4);
    }

    fn empty_set() -> libc::sigset_t {
        // SAFETY: all-zero is a valid value and the empty set on Linux.
        unsafe { std::mem::zeroed() }
    }
}
