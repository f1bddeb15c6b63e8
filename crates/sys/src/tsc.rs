//! The processor's time stamp counter.
//!
//! Called by `vm`: QEMU without KVM passes the host's counter on to guests, whose kernels would have to measure its
//! frequency while QEMU waits for a core.

use std::time::Duration;

/// Its frequency, kHz, measured against `CLOCK_MONOTONIC` over about that time (10 ms: within 0.01%). None where the
/// processor has no such counter.
#[must_use]
pub fn frequency_khz(over: Duration) -> Option<u64> {
    let first = sample()?;
    std::thread::sleep(over);
    khz_between(first, sample()?)
}

/// The counter at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    ticks: u64,
    time_ns: u64,
}

fn khz_between(first: Sample, last: Sample) -> Option<u64> {
    let ticks = u128::from(last.ticks.checked_sub(first.ticks)?);
    let time_ns = u128::from(last.time_ns.checked_sub(first.time_ns)?);
    u64::try_from((ticks * 1_000_000).checked_div(time_ns)?).ok()
}

/// Of several readings the one that took the fewest ticks: it was not interrupted.
#[cfg(target_arch = "x86_64")]
fn sample() -> Option<Sample> {
    const READINGS_COUNT: u32 = 32;
    let reading = |_| {
        let (before, time_ns, after) = (ticks(), monotonic_ns(), ticks());
        (after.wrapping_sub(before), Sample { ticks: before / 2 + after / 2, time_ns })
    };
    (0..READINGS_COUNT).map(reading).min_by_key(|(took, _)| *took).map(|(_, sample)| sample)
}

#[cfg(not(target_arch = "x86_64"))]
fn sample() -> Option<Sample> {
    None
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the instruction, and this program never asks the kernel to forbid
    // it (`PR_SET_TSC`).
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_time_are_a_frequency() {
        let at = |ticks, time_ns| Sample { ticks, time_ns };
        assert_eq!(khz_between(at(5, 7), at(24_000_005, 10_000_007)), Some(2_400_000));
        assert_eq!(khz_between(at(5, 7), at(5, 7)), None, "no time has passed");
        assert_eq!(khz_between(at(5, 7), at(4, 8)), None, "it went back");
        assert_eq!(khz_between(at(0, 0), at(u64::MAX, 1)), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn two_measurements_agree() {
        let measure = || frequency_khz(Duration::from_millis(10)).unwrap() as f64;
        let (first, second) = (measure(), measure());
        assert!((first / second - 1.0).abs() < 0.01, "{first} and {second} kHz");
    }
}
