//! Counters of the processor's performance monitoring unit (PMU), for whole cores (`perf_event_open(2)`).

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::SyscallError;

/// `PERF_TYPE_HARDWARE` and two of its events (kernel `include/uapi/linux/perf_event.h`).
const HARDWARE: u32 = 0;
const CACHE_REFERENCES: u64 = 2;
const CACHE_MISSES: u64 = 3;

/// Bits after `read_format`: what is not counted.
const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: c_ulong = 8;

/// `struct perf_event_attr` as of its first version, which every kernel takes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// Accesses of the last-level cache and those that missed it, by programs and by the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Accesses in user mode.
    pub user_accesses_count: u64,
    /// Those of them that missed.
    pub user_misses_count: u64,
    /// Accesses in the kernel.
    pub kernel_accesses_count: u64,
    /// Those of them that missed.
    pub kernel_misses_count: u64,
}

impl CacheCounts {
    /// The counts since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let gain = u64::saturating_sub;
        Self {
            user_accesses_count: gain(self.user_accesses_count, earlier.user_accesses_count),
            user_misses_count: gain(self.user_misses_count, earlier.user_misses_count),
            kernel_accesses_count: gain(self.kernel_accesses_count, earlier.kernel_accesses_count),
            kernel_misses_count: gain(self.kernel_misses_count, earlier.kernel_misses_count),
        }
    }
}

/// Counters of the caches of some cores, from when it is opened.
#[derive(Debug)]
pub struct CacheCounters {
    /// In the order of [`CacheCounts`], the cores of each together.
    counters: [Vec<OwnedFd>; 4],
}

impl CacheCounters {
    /// Counts on these cores, whatever runs there.
    ///
    /// # Errors
    /// There is no PMU (`ENOENT`, `EOPNOTSUPP`), as in most virtual machines, or this process may not count on whole
    /// cores (`EACCES`, `EPERM`: `CAP_PERFMON`, or `kernel.perf_event_paranoid` at most 0).
    pub fn open(cores: &[u32]) -> Result<Self, SyscallError> {
        let of = |config, excluded| -> Result<Vec<OwnedFd>, SyscallError> {
            cores.iter().map(|core| open(HARDWARE, config, excluded, *core)).collect()
        };
        let counters = [
            of(CACHE_REFERENCES, EXCLUDE_KERNEL)?,
            of(CACHE_MISSES, EXCLUDE_KERNEL)?,
            of(CACHE_REFERENCES, EXCLUDE_USER)?,
            of(CACHE_MISSES, EXCLUDE_USER)?,
        ];
        Ok(Self { counters })
    }

    /// The counts so far, all cores together.
    ///
    /// # Errors
    /// A counter cannot be read.
    pub fn read(&self) -> io::Result<CacheCounts> {
        let [user_accesses, user_misses, kernel_accesses, kernel_misses] = &self.counters;
        let sum = |counters: &[OwnedFd]| counters.iter().map(read).sum::<io::Result<u64>>();
        Ok(CacheCounts {
            user_accesses_count: sum(user_accesses)?,
            user_misses_count: sum(user_misses)?,
            kernel_accesses_count: sum(kernel_accesses)?,
            kernel_misses_count: sum(kernel_misses)?,
        })
    }
}

/// Counts an event on a core; begins at once.
fn open(kind: u32, config: u64, excluded: u64, core: u32) -> Result<OwnedFd, SyscallError> {
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        flags: excluded | EXCLUDE_HYPERVISOR,
        ..Attributes::default()
    };
    let every_process: c_int = -1;
    let no_group: c_int = -1;
    // SAFETY: the attributes are initialised, have the size that they name, and live through the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            c_int::try_from(core).unwrap_or(c_int::MAX),
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    match c_int::try_from(answer) {
        // SAFETY: a descriptor that the kernel has just given, which nobody else has.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(SyscallError::last("perf_event_open", format!("core {core}"))),
    }
}

fn read(counter: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    let length = rustix::io::read(counter, &mut bytes)?;
    let is_whole = length == bytes.len();
    if is_whole { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_CPU_CLOCK`: counts nanoseconds, where there is no PMU as well.
    const SOFTWARE: u32 = 1;
    const CPU_CLOCK: u64 = 0;

    /// Why a counter may be refused.
    const REFUSALS: [i32; 6] =
        [libc::ENOENT, libc::EOPNOTSUPP, libc::EACCES, libc::EPERM, libc::ENOSYS, libc::ENODEV];

    fn check_refusal(error: &SyscallError) {
        let code = error.source.raw_os_error().expect("of the kernel");
        assert!(REFUSALS.contains(&code), "{error}");
    }

    #[test]
    fn a_counter_of_a_core_counts_up_or_is_refused_with_the_reason() {
        match open(SOFTWARE, CPU_CLOCK, 0, 0) {
            Err(error) => check_refusal(&error),
            Ok(counter) => {
                let first = read(&counter).expect("readable");
                std::thread::sleep(std::time::Duration::from_millis(5));
                assert!(read(&counter).expect("readable") > first);
            }
        }
    }

    #[test]
    fn without_a_pmu_or_permission_the_reason_is_told() {
        match CacheCounters::open(&[0]) {
            Err(error) => check_refusal(&error),
            Ok(counters) => {
                let first = counters.read().expect("readable");
                assert_ne!(counters.read().expect("readable").since(first), first);
            }
        }
        assert!(CacheCounters::open(&[u32::MAX]).is_err());
    }
}
