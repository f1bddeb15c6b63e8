//! Cores: where each sits, who may use it, how its clock and its sleep are steered.

use std::time::{Duration, Instant};

use results::{Absent, Core, CoreFrequency, IdleState, MemoryNode};

use super::{core_list, note, number};
use crate::files::parse_list;
use crate::{CoreTimes, HostFiles};

/// Idle states of a core that are read; the kernel has at most 10 (`CPUIDLE_STATE_MAX`).
const IDLE_STATES_MAX: u32 = 10;

/// Time given to reading the clocks of all cores: kernels before 5.18 sleep up to 10 ms a core for
/// it (`arch_freq_get_on_cpu`).
const CLOCKS_TIME_MAX: Duration = Duration::from_millis(15);

/// The cores the kernel runs programs on.
pub(super) fn online(files: &HostFiles) -> Vec<u32> {
    core_list(files, "devices/system/cpu/online")
        .filter(|cores| !cores.is_empty())
        .unwrap_or_else(|| CoreTimes::read_from(files).numbers().collect())
}

/// All cores that are there, offline ones too.
pub(super) fn read(
    files: &HostFiles,
    online: &[u32],
    nodes: &[MemoryNode],
    absent: &mut Vec<Absent>,
) -> Vec<Core> {
    let present = core_list(files, "devices/system/cpu/present").unwrap_or_default();
    let isolated = core_list(files, "devices/system/cpu/isolated").unwrap_or_default();
    let usable = usable(files);
    if usable.is_none() {
        note(absent, "usable cores", "the process's affinity could not be read; all are assumed");
    }
    let mut numbers: Vec<u32> = present.iter().chain(online).copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut clocks = Clocks { spent: Duration::ZERO, has_given_up: false };
    let mut cores = Vec::with_capacity(numbers.len());
    for core in numbers {
        let is_online = online.contains(&core);
        let may_use = usable.as_ref().is_none_or(|usable| usable.contains(&core));
        let folder = format!("devices/system/cpu/cpu{core}");
        let place = |file: &str| number(files, &format!("{folder}/topology/{file}"));
        let node = nodes.iter().find(|node| node.cores.contains(&core)).map(|node| node.node);
        cores.push(Core {
            core,
            package: place("physical_package_id"),
            die: place("die_id"),
            physical_core: place("core_id"),
            node: node.or_else(|| if is_online { None } else { linked_node(files, &folder) }),
            is_online,
            is_usable: is_online && may_use,
            is_isolated: isolated.contains(&core),
            frequency: frequency(files, &folder, &mut clocks),
            idle_states: idle_states(files, &folder),
        });
    }
    note_absences(&cores, &clocks, absent);
    cores
}

fn note_absences(cores: &[Core], clocks: &Clocks, absent: &mut Vec<Absent>) {
    let running = || cores.iter().filter(|core| core.is_online);
    if cores.is_empty() {
        note(absent, "cores", "neither /sys/devices/system/cpu nor /proc/stat names one");
    } else if running().all(|core| core.package.is_none()) {
        note(absent, "packages", "the kernel does not report which core is in which package");
    }
    if !cores.is_empty() && running().all(|core| core.frequency.is_none()) {
        note(absent, "clock and governor", "no cpufreq: controlled by the hypervisor or firmware");
    }
    if !cores.is_empty() && running().all(|core| core.idle_states.is_empty()) {
        note(absent, "idle states", "no cpuidle driver: the kernel halts, the host decides");
    }
    if clocks.has_given_up {
        note(absent, "current clock of some cores", "reading it takes too long on this kernel");
    }
}

/// The cores the calling thread may run on (`Cpus_allowed_list`, `proc_pid_status(5)`).
fn usable(files: &HostFiles) -> Option<Vec<u32>> {
    let status = files.proc("thread-self/status").or_else(|| files.proc("self/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(parse_list(list)).filter(|cores| !cores.is_empty())
}

/// The node of an offline core, whom no node's list names: its folder keeps the link.
fn linked_node(files: &HostFiles, folder: &str) -> Option<u32> {
    files.sys_names(folder).iter().find_map(|name| name.strip_prefix("node")?.parse().ok())
}

#[derive(Debug)]
struct Clocks {
    spent: Duration,
    has_given_up: bool,
}

impl Clocks {
    fn current(&mut self, files: &HostFiles, folder: &str) -> Option<u64> {
        if self.spent > CLOCKS_TIME_MAX {
            self.has_given_up = true;
            return None;
        }
        let start = Instant::now();
        let clock_khz = number(files, &format!("{folder}/cpufreq/scaling_cur_freq"));
        self.spent += start.elapsed();
        clock_khz
    }
}

fn frequency(files: &HostFiles, folder: &str, clocks: &mut Clocks) -> Option<CoreFrequency> {
    let governor = files.sys_line(&format!("{folder}/cpufreq/scaling_governor"))?;
    let khz = |file: &str| number(files, &format!("{folder}/cpufreq/{file}"));
    Some(CoreFrequency {
        governor,
        driver: files.sys_line(&format!("{folder}/cpufreq/scaling_driver")),
        min_khz: khz("scaling_min_freq"),
        max_khz: khz("scaling_max_freq"),
        hardware_max_khz: khz("cpuinfo_max_freq"),
        current_khz: clocks.current(files, folder),
    })
}

fn idle_states(files: &HostFiles, folder: &str) -> Vec<IdleState> {
    let state = |index: u32| {
        let state = format!("{folder}/cpuidle/state{index}");
        Some(IdleState {
            name: files.sys_line(&format!("{state}/name"))?,
            exit_latency_us: number(files, &format!("{state}/latency")).unwrap_or(0),
            is_disabled: number(files, &format!("{state}/disable")).is_some_and(|off: u64| off > 0),
        })
    };
    (0..IDLE_STATES_MAX).map_while(state).collect()
}
