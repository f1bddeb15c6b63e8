//! What a thread used, where it ran, and where it may run.
//!
//! Called by the traffic engine (at the ends of a stream's thread, and from the sampler beside it)
//! and by `topology`. Processor time comes in two qualities: *how much* is exact to the nanosecond
//! (the scheduler's own sum), *in which mode* is estimated by the kernel from the timer tick (4 ms
//! at 250 Hz, 10 ms at 100 Hz), so the split of a short run between user and system is rough.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::time::Duration;

use rustix::thread::CpuSet;

use crate::SyscallError;

/// The scheduler's account of one thread (kernel `Documentation/scheduler/sched-stats.rst`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a core, nanoseconds.
    pub run_ns: u64,
    /// Time ready to run while another thread had the core, nanoseconds.
    pub wait_ns: u64,
    /// Times it was put on a core.
    pub slices_count: u64,
}

/// Processor time and context switches (`getrusage(2)`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Times it slept for data, space or a lock.
    pub voluntary_switches_count: u64,
    /// Times another thread took its core.
    pub involuntary_switches_count: u64,
}

/// The calling thread's id, as `/proc/PID/task` lists it.
#[must_use]
pub fn current_thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The scheduler's account of a thread of this process.
///
/// # Errors
/// The thread has ended, or the kernel keeps no account (no `CONFIG_SCHED_INFO`).
pub fn schedstat(thread_id: i32) -> Result<SchedStat, SyscallError> {
    let path = format!("/proc/self/task/{thread_id}/schedstat");
    let text =
        fs::read_to_string(&path).map_err(|error| SyscallError::new("read", &path, error))?;
    parse_schedstat(&text)
        .ok_or_else(|| SyscallError::new("read", path, io::Error::from(io::ErrorKind::InvalidData)))
}

/// The core a thread of this process was last seen on; `None` when the thread has ended.
#[must_use]
pub fn last_core(thread_id: i32) -> Option<u32> {
    parse_last_core(&fs::read_to_string(format!("/proc/self/task/{thread_id}/stat")).ok()?)
}

/// Times a thread of this process was moved to another core; `None` when the thread has ended or the
/// kernel does not tell (no `CONFIG_SCHED_DEBUG`).
#[must_use]
pub fn migrations_count(thread_id: i32) -> Option<u64> {
    parse_migrations(&fs::read_to_string(format!("/proc/self/task/{thread_id}/sched")).ok()?)
}

/// How a thread of this process is scheduled, when it is not as any other (`SCHED_OTHER`, nice 0):
/// `nice 10`, `batch`, `idle`, `fifo`, `round-robin`, `deadline`.
#[must_use]
pub fn special_policy(thread_id: i32) -> Option<String> {
    parse_policy(&fs::read_to_string(format!("/proc/self/task/{thread_id}/stat")).ok()?)
}

/// Processor time of the calling thread, exact to the nanosecond (`CLOCK_THREAD_CPUTIME_ID`).
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// The core the calling thread runs on at this moment.
#[must_use]
pub fn current_core() -> u32 {
    u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX)
}

/// Cores the calling thread may run on, in order; up to the first 1024.
///
/// # Errors
/// `sched_getaffinity` failed.
pub fn usable_cores() -> Result<Vec<u32>, SyscallError> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(|error| SyscallError::new("sched_getaffinity", "this thread", error))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .filter_map(|core| u32::try_from(core).ok())
        .collect())
}

/// From now on the calling thread runs on these cores only.
///
/// # Errors
/// The list is empty, names a core beyond 1023, or no core of it is online and allowed.
pub fn pin_current(cores: &[u32]) -> Result<(), SyscallError> {
    pin(None, cores)
}

/// The first of these cores on which this process cannot run: tried on a thread of its own.
#[must_use]
pub fn first_unusable(cores: &[u32]) -> Option<u32> {
    let is_bad = |core: &&u32| pin_current(&[**core]).is_err();
    std::thread::scope(|scope| {
        let first_bad = || cores.iter().find(is_bad).copied();
        // Where no thread can be had, the threads for which it is asked cannot be had either.
        let trial = std::thread::Builder::new().spawn_scoped(scope, first_bad);
        trial.ok()?.join().ok().flatten()
    })
}

/// From now on this thread, a kernel thread perhaps, runs on these cores only. `thread_id` is one
/// of the calling process's process-id namespace.
///
/// # Errors
/// As [`pin_current`]; also when there is no such thread, or it is another user's and this process
/// has no `CAP_SYS_NICE`.
pub fn pin_thread(thread_id: i32, cores: &[u32]) -> Result<(), SyscallError> {
    // The conversion would panic on a negative number.
    let thread = (thread_id > 0).then(|| rustix::thread::Pid::from_raw(thread_id)).flatten();
    let Some(thread) = thread else {
        let source = io::Error::from_raw_os_error(libc::ESRCH);
        return Err(SyscallError::new("sched_setaffinity", format!("thread {thread_id}"), source));
    };
    pin(Some(thread), cores)
}

fn pin(thread: Option<rustix::thread::Pid>, cores: &[u32]) -> Result<(), SyscallError> {
    let refused = |source: io::Error| {
        SyscallError::new("sched_setaffinity", format!("cores {cores:?}"), source)
    };
    let mut set = CpuSet::new();
    for &core in cores {
        // The set would panic; a list from a peer must not.
        if core as usize >= CpuSet::MAX_CPU {
            return Err(refused(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        set.set(core as usize);
    }
    rustix::thread::sched_setaffinity(thread, &set).map_err(|error| refused(error.into()))
}

/// From now on the calling thread runs only when nothing else wants its core (`SCHED_IDLE`).
///
/// # Errors
/// `sched_setscheduler` failed.
pub fn run_only_when_idle() -> Result<(), SyscallError> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is a whole sched_param, outlives the call and is only read; 0 is the
    // calling thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    if answer == 0 {
        return Ok(());
    }
    Err(SyscallError::last("sched_setscheduler(SCHED_IDLE)", "this thread"))
}

/// From now on the calling thread runs before all threads of ordinary priority (`SCHED_FIFO`), 1 being the
/// lowest priority and 99 the highest. Threads and processes it starts are ordinary again.
///
/// # Errors
/// `sched_setscheduler` failed: no `CAP_SYS_NICE` and no `RLIMIT_RTPRIO`, or no share of real time for its
/// control group.
pub fn run_in_real_time(priority: u8) -> Result<(), SyscallError> {
    /// `include/uapi/linux/sched.h`.
    const SCHED_RESET_ON_FORK: libc::c_int = 0x4000_0000;
    let parameters = libc::sched_param { sched_priority: priority.into() };
    let policy = libc::SCHED_FIFO | SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` is a whole sched_param, outlives the call and is only read; 0 is the
    // calling thread.
    let answer = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if answer == 0 {
        return Ok(());
    }
    Err(SyscallError::last("sched_setscheduler(SCHED_FIFO)", "this thread"))
}

/// What the calling thread has used since it began (`RUSAGE_THREAD`).
///
/// # Errors
/// `getrusage` failed (Linux before 2.6.26).
pub fn thread_usage() -> Result<Usage, SyscallError> {
    usage_of(libc::RUSAGE_THREAD, "this thread")
}

/// What the process, all its threads together, has used since it began (`RUSAGE_SELF`).
///
/// # Errors
/// `getrusage` failed.
pub fn process_usage() -> Result<Usage, SyscallError> {
    usage_of(libc::RUSAGE_SELF, "this process")
}

/// Lets the kernel delay the calling thread's timers by at most `slack_ns` to group wake-ups
/// (default 50 000); pacing and ping-pong loops ask for 1. Zero is taken as 1, because the kernel
/// reads 0 as "the default".
///
/// # Errors
/// `prctl` failed.
pub fn timer_slack_ns(slack_ns: u64) -> Result<(), SyscallError> {
    let slack = NonZeroU64::new(slack_ns).unwrap_or(NonZeroU64::MIN);
    rustix::thread::set_current_timer_slack(Some(slack))
        .map_err(|error| SyscallError::new("prctl(PR_SET_TIMERSLACK)", slack.to_string(), error))
}

fn usage_of(who: libc::c_int, object: &str) -> Result<Usage, SyscallError> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable and of the size the kernel writes.
    let answer = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    if answer != 0 {
        return Err(SyscallError::last("getrusage", object));
    }
    // SAFETY: all-zero is a valid `rusage` and the kernel wrote plain integers over it.
    let usage = unsafe { usage.assume_init() };
    Ok(Usage {
        user: duration_of(usage.ru_utime),
        system: duration_of(usage.ru_stime),
        voluntary_switches_count: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
        involuntary_switches_count: u64::try_from(usage.ru_nivcsw).unwrap_or(0),
    })
}

fn duration_of(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

fn parse_schedstat(text: &str) -> Option<SchedStat> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some(SchedStat {
        run_ns: words.next()??,
        wait_ns: words.next()??,
        slices_count: words.next()??,
    })
}

/// Field 39 of `/proc/PID/stat` (`proc_pid_stat(5)`). Field 2 is the name in parentheses, which may
/// itself hold blanks and parentheses: counting starts after the last one.
fn parse_last_core(text: &str) -> Option<u32> {
    let (_name, after) = text.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

/// `se.nr_migrations   :   4` (kernel `kernel/sched/debug.c`).
fn parse_migrations(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

/// Fields 19 (nice) and 41 (policy) of `/proc/PID/stat`; the numbers are those of kernel
/// `include/uapi/linux/sched.h`.
fn parse_policy(text: &str) -> Option<String> {
    let (_name, after) = text.rsplit_once(')')?;
    let field = |number: usize| after.split_ascii_whitespace().nth(number - 3);
    let nice: i32 = field(19)?.parse().ok()?;
    let named = |name: &str| Some(name.to_owned());
    match field(41)? {
        "0" if nice == 0 => None,
        "0" => Some(format!("nice {nice}")),
        "1" => named("fifo"),
        "2" => named("round-robin"),
        "3" => named("batch"),
        "5" => named("idle"),
        "6" => named("deadline"),
        _newer => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_shows_in_every_account() {
        std::thread::spawn(|| {
            let before = thread_cpu_time();
            let mut word = 1u64;
            while thread_cpu_time() - before < Duration::from_millis(30) {
                word = std::hint::black_box(word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            let usage = thread_usage().unwrap();
            assert!(usage.user + usage.system >= Duration::from_millis(25), "{usage:?}");
            let stat = schedstat(current_thread_id()).unwrap();
            assert!(stat.run_ns >= 25_000_000, "{stat:?}");
            assert!(stat.slices_count >= 1);
            assert!(process_usage().unwrap().user + process_usage().unwrap().system >= usage.user);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_pinned_thread_stays() {
        std::thread::spawn(|| {
            let core = *usable_cores().unwrap().last().unwrap();
            pin_current(&[core]).unwrap();
            assert_eq!(current_core(), core);
            assert_eq!(last_core(current_thread_id()), Some(core));
            assert_eq!(usable_cores().unwrap(), vec![core]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn another_thread_is_pinned_by_its_id() {
        let (say, hear) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            say.send(current_thread_id()).unwrap();
            ended.recv().unwrap();
            usable_cores().unwrap()
        });
        let core = *usable_cores().unwrap().last().unwrap();
        pin_thread(hear.recv().unwrap(), &[core]).unwrap();
        end.send(()).unwrap();
        assert_eq!(other.join().unwrap(), [core]);
        for nobody in [0, -1, i32::MAX] {
            let error = pin_thread(nobody, &[core]).unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(libc::ESRCH));
        }
    }

    #[test]
    fn absurd_cores_are_refused() {
        for cores in [&[][..], &[u32::MAX], &[1024], &[1023]] {
            let error = pin_current(cores).unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(libc::EINVAL), "{cores:?}");
        }
    }

    #[test]
    fn slack_is_set() {
        std::thread::spawn(|| {
            timer_slack_ns(0).unwrap();
            assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn reads_what_proc_writes() {
        assert_eq!(
            parse_schedstat("144415 65978 2\n"),
            Some(SchedStat { run_ns: 144_415, wait_ns: 65_978, slices_count: 2 })
        );
        assert_eq!(parse_schedstat("1 2"), None);
        assert_eq!(parse_schedstat("a b c"), None);
        let stat = "31 (a) b (c)) R 1 31 31 0 -1 4194304 95 0 0 0 0 0 0 0 20 0 1 0 5 3141632 \
                    428 18446744073709551615 1 1 1 1 1 0 0 0 0 0 0 0 17 7 0 0 0 0 0";
        assert_eq!(parse_last_core(stat), Some(7));
        assert_eq!(parse_last_core("31 (a"), None);
        assert_eq!(
            parse_migrations("se.vruntime : 1.5\nse.nr_migrations      :        4\n"),
            Some(4)
        );
        assert_eq!(parse_policy(stat), None);
        let policy = |nice: &str, policy: &str| {
            parse_policy(
                &stat
                    .replace(" 20 0 1 ", &format!(" 20 {nice} 1 "))
                    .replace(" 17 7 0 0 ", &format!(" 17 7 0 {policy} ")),
            )
        };
        assert_eq!(policy("10", "0").as_deref(), Some("nice 10"));
        assert_eq!(policy("0", "5").as_deref(), Some("idle"));
    }

    #[test]
    fn a_thread_that_is_gone_is_an_error() {
        assert!(schedstat(i32::MAX).is_err());
        assert_eq!(last_core(-1), None);
    }
}
