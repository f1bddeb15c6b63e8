//! Clocks, idle states and memory traffic: counters of the processors themselves.

use std::collections::BTreeMap;

use results::{CoreClock, IdleStateUse, MemoryTraffic};

use super::gain;
use crate::HostFiles;
use crate::files::parse_list;

/// Cores and states read at most.
const CORES_MAX: usize = 4096;
const STATES_MAX: u32 = 16;

/// Everything at one moment; empty where the kernel steers none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Power {
    clocks: BTreeMap<u32, Clock>,
    idle: BTreeMap<(u32, u32), Idle>,
    memory: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Clock {
    now_khz: u64,
    governor_max_khz: Option<u64>,
    hardware_max_khz: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Idle {
    name: String,
    exit_latency_us: u64,
    entered_count: u64,
    time_us: u64,
}

impl Power {
    pub(super) fn read_from(files: &HostFiles) -> Self {
        let online = files.sys_line("devices/system/cpu/online").unwrap_or_default();
        let mut cores = parse_list(&online);
        cores.truncate(CORES_MAX);
        let mut power = Self { memory: memory(files), ..Self::default() };
        let has = |part: &str| {
            let first = cores.first().copied().unwrap_or(0);
            !files.sys_names(&format!("devices/system/cpu/cpu{first}/{part}")).is_empty()
        };
        let (has_clock, has_idle) = (has("cpufreq"), has("cpuidle"));
        for core in cores {
            if has_clock && let Some(clock) = clock(files, core) {
                power.clocks.insert(core, clock);
            }
            if has_idle {
                let states =
                    (0..STATES_MAX).map_while(|state| Some((state, idle(files, core, state)?)));
                power.idle.extend(states.map(|(state, idle)| ((core, state), idle)));
            }
        }
        power
    }

    pub(super) fn clocks_since(&self, earlier: &Self) -> Vec<CoreClock> {
        let row = |(&core, now): (&u32, &Clock)| {
            let then = earlier.clocks.get(&core)?;
            Some(CoreClock {
                core,
                first_khz: then.now_khz,
                last_khz: now.now_khz,
                governor_max_khz: now.governor_max_khz,
                hardware_max_khz: now.hardware_max_khz,
            })
        };
        self.clocks.iter().filter_map(row).collect()
    }

    pub(super) fn idle_since(&self, earlier: &Self) -> Vec<IdleStateUse> {
        let row = |(place, now): (&(u32, u32), &Idle)| {
            let then = earlier.idle.get(place)?;
            let entered_count = gain(now.entered_count, then.entered_count);
            (entered_count > 0).then(|| IdleStateUse {
                core: place.0,
                state: now.name.clone(),
                exit_latency_us: now.exit_latency_us,
                entered_count,
                time_s: gain(now.time_us, then.time_us) as f64 * 1e-6,
            })
        };
        self.idle.iter().filter_map(row).collect()
    }

    pub(super) fn memory_since(&self, earlier: &Self) -> Vec<MemoryTraffic> {
        let row = |(&domain, &now): (&u32, &u64)| {
            let bytes = gain(now, *earlier.memory.get(&domain)?);
            (bytes > 0).then_some(MemoryTraffic { domain, bytes })
        };
        self.memory.iter().filter_map(row).collect()
    }
}

/// `cpufreq` (kernel `Documentation/admin-guide/pm/cpufreq.rst`).
fn clock(files: &HostFiles, core: u32) -> Option<Clock> {
    let figure = |name: &str| {
        files.sys_line(&format!("devices/system/cpu/cpu{core}/cpufreq/{name}"))?.parse().ok()
    };
    Some(Clock {
        now_khz: figure("scaling_cur_freq")?,
        governor_max_khz: figure("scaling_max_freq"),
        hardware_max_khz: figure("cpuinfo_max_freq"),
    })
}

/// `cpuidle` (kernel `Documentation/admin-guide/pm/cpuidle.rst`).
fn idle(files: &HostFiles, core: u32, state: u32) -> Option<Idle> {
    let line = |name: &str| {
        files.sys_line(&format!("devices/system/cpu/cpu{core}/cpuidle/state{state}/{name}"))
    };
    Some(Idle {
        name: line("name")?,
        exit_latency_us: line("latency").and_then(|text| text.parse().ok()).unwrap_or(0),
        entered_count: line("usage")?.parse().ok()?,
        time_us: line("time")?.parse().ok()?,
    })
}

/// `resctrl`, where somebody mounted it (kernel `Documentation/filesystems/resctrl.rst`): domains
/// `mon_L3_00`, `mon_L3_01`.
fn memory(files: &HostFiles) -> BTreeMap<u32, u64> {
    const FOLDER: &str = "fs/resctrl/mon_data";
    let bytes = |name: String| {
        let domain = name.strip_prefix("mon_L3_")?.parse().ok()?;
        let bytes = files.sys_line(&format!("{FOLDER}/{name}/mbm_total_bytes"))?.parse().ok()?;
        Some((domain, bytes))
    };
    files.sys_names(FOLDER).into_iter().filter_map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join("sys").join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn what_the_processors_say_of_themselves() {
        let root = std::env::temp_dir().join(format!("clearstream-power-{}", std::process::id()));
        write(&root, "devices/system/cpu/online", "0,2\n");
        for core in [0, 2] {
            let cpu = format!("devices/system/cpu/cpu{core}");
            write(&root, &format!("{cpu}/cpufreq/scaling_cur_freq"), "1200000\n");
            write(&root, &format!("{cpu}/cpufreq/cpuinfo_max_freq"), "3500000\n");
            for (name, text) in
                [("name", "C6"), ("latency", "133"), ("usage", "5"), ("time", "900")]
            {
                write(&root, &format!("{cpu}/cpuidle/state0/{name}"), text);
            }
        }
        write(&root, "fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "1000\n");
        let files = HostFiles::at(&root);
        let before = Power::read_from(&files);
        write(&root, "devices/system/cpu/cpu2/cpuidle/state0/usage", "105");
        write(&root, "devices/system/cpu/cpu2/cpuidle/state0/time", "1000900");
        write(&root, "fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "51000\n");
        let after = Power::read_from(&files);
        fs::remove_dir_all(&root).unwrap();
        let clocks = after.clocks_since(&before);
        assert_eq!(clocks.len(), 2);
        assert_eq!((clocks[1].last_khz, clocks[1].hardware_max_khz), (1_200_000, Some(3_500_000)));
        let idle = after.idle_since(&before);
        let [state] = &idle[..] else { panic!("{idle:?}") };
        assert_eq!((state.core, state.state.as_str(), state.exit_latency_us), (2, "C6", 133));
        assert!((state.time_s - 1.0).abs() < 1e-9 && state.entered_count == 100);
        assert_eq!(after.memory_since(&before), [MemoryTraffic { domain: 0, bytes: 50_000 }]);
        assert_eq!(Power::default().clocks_since(&before), []);
    }
}
