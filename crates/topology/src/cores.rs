//! How the cores spend their time (`/proc/stat`, kernel `Documentation/filesystems/proc.rst` 1.7).

use std::collections::BTreeMap;

use results::CoreUse;

use crate::HostFiles;

/// Time spent so far by each core the host shows this process.
///
/// The file counts in hundredths of a second, and most kernels charge a whole tick (4 ms at 250 Hz,
/// 10 ms at 100 Hz) to whatever runs when it ends: over one second a share is good to about 1%,
/// over 100 ms to 10%.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreTimes {
    cores: BTreeMap<u32, Ticks>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    user: u64,
    system: u64,
    idle: u64,
    irq: u64,
    softirq: u64,
    steal: u64,
}

impl CoreTimes {
    /// Reads the counters of this host.
    #[must_use]
    pub fn read() -> Self {
        Self::read_from(&HostFiles::default())
    }

    /// Reads a recorded tree's.
    #[must_use]
    pub fn read_from(files: &HostFiles) -> Self {
        files.proc("stat").map_or_else(Self::default, |text| Self::parse(&text))
    }

    /// Shares of the time since an earlier reading; cores that came or went in between, or whose
    /// counters did not move, are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Vec<CoreUse> {
        self.cores
            .iter()
            .filter_map(|(&core, now)| Some(now.since(*earlier.cores.get(&core)?)?.shares(core)))
            .collect()
    }

    /// Parses `/proc/stat`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self { cores: text.lines().filter_map(parse_line).collect() }
    }

    /// The cores the reading holds.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.cores.keys().copied()
    }

    /// How many cores the reading holds.
    pub(crate) fn cores_count(&self) -> usize {
        self.cores.len()
    }
}

impl Ticks {
    /// `None` when no time passed.
    fn since(self, earlier: Self) -> Option<Self> {
        // Idle and I/O wait may step back by a tick (`get_cpu_iowait_time_us` is an estimate).
        let gain = Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        };
        (gain.total() > 0.0).then_some(gain)
    }

    fn total(self) -> f64 {
        [self.user, self.system, self.idle, self.irq, self.softirq, self.steal]
            .into_iter()
            .map(|ticks| ticks as f64)
            .sum()
    }

    fn shares(self, core: u32) -> CoreUse {
        let share = |ticks: u64| ticks as f64 / self.total();
        CoreUse {
            core,
            user: share(self.user),
            system: share(self.system),
            softirq: share(self.softirq),
            irq: share(self.irq),
            idle: share(self.idle),
            steal: share(self.steal),
        }
    }
}

/// `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`; guest time is already
/// in user and nice, and old kernels write fewer columns.
fn parse_line(line: &str) -> Option<(u32, Ticks)> {
    let mut words = line.split_ascii_whitespace();
    let core = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let mut ticks = [0u64; 8];
    for (to, word) in ticks.iter_mut().zip(words) {
        *to = word.parse().ok()?;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
    let (user, idle) = (user.saturating_add(nice), idle.saturating_add(iowait));
    Some((core, Ticks { user, system, idle, irq, softirq, steal }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  200 0 100 1700 0 0 0 0 0 0\ncpu0 100 0 50 850 0 0 0 0 0 0\n\
                          cpu1 100 0 50 850 10 0 0 0 0 0\nintr 5 0\nctxt 1\n";
    const AFTER: &str = "cpu  0\ncpu0 110 10 70 880 0 0 30 0 0 0\ncpu1 100 0 50 850 9 0 0 0 0 0\n\
                         cpu2 1 1 1 1\nintr 6 0\n";

    #[test]
    fn shares_add_up_to_the_time_passed() {
        let cores = CoreTimes::parse(AFTER).since(&CoreTimes::parse(BEFORE));
        assert_eq!(
            cores,
            [CoreUse {
                core: 0,
                user: 0.2,
                system: 0.2,
                softirq: 0.3,
                irq: 0.0,
                idle: 0.3,
                steal: 0.0
            }],
            "cpu1 did not move (its I/O wait stepped back), cpu2 is new"
        );
    }

    #[test]
    fn a_core_that_restarted_is_not_negative() {
        let cores = CoreTimes::parse(BEFORE).since(&CoreTimes::parse(AFTER));
        assert!(cores.iter().all(|core| core.idle >= 0.0 && core.user >= 0.0), "{cores:?}");
    }

    #[test]
    fn any_text_gives_shares_between_0_and_1() {
        bolero::check!().with_type::<(String, String)>().for_each(|(before, after)| {
            let times = (CoreTimes::parse(before), CoreTimes::parse(after));
            for core in times.1.since(&times.0) {
                assert!((0.0..=1.0).contains(&core.user), "{core:?}");
            }
        });
        let huge = format!("cpu0 {0} {0} {0} {0} {0} {0} {0} {0}", u64::MAX);
        for core in CoreTimes::parse(&huge).since(&CoreTimes::parse("cpu0 0")) {
            assert!((0.0..=1.0).contains(&core.idle), "{core:?}");
        }
    }

    #[test]
    fn this_host_has_cores_and_their_shares_sum_to_one() {
        let before = CoreTimes::read();
        assert!(before.cores_count() >= 1);
        std::thread::sleep(std::time::Duration::from_millis(60));
        let cores = CoreTimes::read().since(&before);
        assert!(!cores.is_empty());
        for core in cores {
            let sum = core.user + core.system + core.softirq + core.irq + core.idle + core.steal;
            assert!((sum - 1.0).abs() < 1e-9, "{core:?}");
        }
    }
}
