//! Symptoms of the two hosts: threads, cores, queues and drops.

use results::{CoreUse, DeviceCounters};

use super::Symptom;
use super::definition::{Definition, SymptomUnit as Unit};
use super::names;
use super::tested::Tested;
use crate::numbers::{middle, positive, share};
use crate::observed::packet_bytes;

/// Cores of a host that are listed, the busiest first.
const CORES_MAX: usize = 4;
/// Share of the time, 0 to 1, from which a core counts as busy.
const BUSY_MIN: f64 = 0.1;

/// A symptom of a host and how it is computed in one repeat.
pub(super) struct HostRow {
    pub(super) definition: Definition,
    read: fn(&Tested<'_>) -> Option<f64>,
}

const fn row(
    name: &'static str,
    unit: Unit,
    source: &'static str,
    about: &'static str,
    read: fn(&Tested<'_>) -> Option<f64>,
) -> HostRow {
    HostRow { definition: Definition::new(name, unit, source, about), read }
}

const SOFTNET: &str = "/proc/net/softnet_stat";
const SCHEDSTAT: &str = "/proc/PID/schedstat";
const DEVICE: &str = "/proc/net/dev";

/// Every symptom of a host except those of its cores.
pub(super) static ROWS: &[HostRow] = &[
    row(
        names::THREAD_RUN,
        Unit::Share,
        "RUSAGE_THREAD",
        "part of the time in which the busiest stream's thread ran",
        |test| test.view.run_share.filter(|_| !test.view.is_process),
    ),
    row(
        "thread-user-share",
        Unit::Share,
        "RUSAGE_THREAD",
        "part of the time in which that thread ran in user mode",
        |test| test.view.thread.user_share,
    ),
    row(
        "thread-system-share",
        Unit::Share,
        "RUSAGE_THREAD",
        "part of the time in which that thread ran in the kernel",
        |test| test.view.thread.system_share,
    ),
    row(
        names::THREAD_WAIT,
        Unit::Share,
        SCHEDSTAT,
        "part of the time in which that thread was ready while another had its core",
        |test| test.view.wait_share,
    ),
    row(
        "thread-delay",
        Unit::S,
        SCHEDSTAT,
        "mean time of that thread from ready to running",
        |test| test.view.thread.delay_s,
    ),
    row(
        "thread-sleeps",
        Unit::PerS,
        "RUSAGE_THREAD ru_nvcsw",
        "times that thread went to sleep for data or space",
        |test| test.view.thread.sleeps_per_s,
    ),
    row(
        "thread-preemptions",
        Unit::PerS,
        "RUSAGE_THREAD ru_nivcsw",
        "times another thread took its core",
        |test| test.view.thread.preempted_per_s,
    ),
    row(
        "thread-migrations",
        Unit::PerS,
        "/proc/PID/sched",
        "times a stream's thread was moved to another core, all streams",
        |test| {
            let moved = test.streams.iter().filter_map(|one| one.thread_migrations_count);
            let moved = moved.map(|count| count as f64).reduce(|sum, one| sum + one)?;
            Some(moved / positive(test.view.duration_s)?)
        },
    ),
    row(
        names::PROCESS_CORES,
        Unit::Cores,
        "RUSAGE_SELF",
        "processor time of the testing process over the time",
        |test| test.view.process_cores,
    ),
    row(
        "processor-time-per-gbit",
        Unit::SPerGbit,
        "RUSAGE_SELF",
        "processor time of the testing process for 10^9 bits of payload",
        |test| Some(test.view.process_cores? * test.view.duration_s / test.delivered_gbit()?),
    ),
    row(
        names::IDLE,
        Unit::Share,
        "/proc/stat",
        "mean idle part of all cores of the host",
        |test| {
            let idle: Vec<f64> =
                test.view.cores.iter().map(|core| core.idle.clamp(0.0, 1.0)).collect();
            share(idle.iter().sum(), idle.len() as f64)
        },
    ),
    row(
        names::SOFTIRQ_MOST,
        Unit::Share,
        "/proc/stat",
        "part that a core spent in software interrupts, the one that spent most",
        |test| test.view.cores.iter().map(|core| core.softirq).max_by(f64::total_cmp),
    ),
    row(
        "steal-share",
        Unit::Share,
        "/proc/stat",
        "mean part of all cores that the hypervisor took",
        |test| {
            let cores = test.view.cores;
            share(cores.iter().map(|core| core.steal).sum(), cores.len() as f64)
        },
    ),
    row(
        names::STOLEN,
        Unit::Share,
        "/proc/stat",
        "part that the hypervisor took of the core of the thread or of its packets, the one that lost more",
        |test| Some(test.view.robbed_core()?.steal),
    ),
    row(names::STOLEN_IDLE, Unit::Share, "/proc/stat", "idle part of that core", |test| {
        Some(test.view.robbed_core()?.idle)
    }),
    row(
        names::STOLEN_SOFTIRQ,
        Unit::Share,
        "/proc/stat",
        "part that it spent in software interrupts",
        |test| Some(test.view.robbed_core()?.softirq),
    ),
    row(
        names::QUOTA_THROTTLED,
        Unit::Share,
        "cpu.stat",
        "part of the periods of its processor quota in which it was throttled",
        |test| {
            let quota = test.view.counters?.quota.as_ref()?;
            share(quota.throttled_count as f64, quota.periods_count as f64)
        },
    ),
    row(
        "quota-throttled-time",
        Unit::S,
        "cpu.stat",
        "time its threads were throttled, all cores together",
        |test| Some(test.view.counters?.quota.as_ref()?.throttled_s),
    ),
    row(
        names::QUOTA_STOPPED,
        Unit::Share,
        "cpu.stat",
        "the same over the measured time, at most 1",
        |test| share(test.view.counters?.quota.as_ref()?.throttled_s, test.view.duration_s),
    ),
    row(
        "clock-of-maximum",
        Unit::Share,
        "cpufreq",
        "clock of the cores over the processor's highest, when the test ended: median",
        |test| {
            let clocks = test.view.counters?.clocks.iter();
            middle(
                clocks
                    .filter_map(|core| share(core.last_khz as f64, core.hardware_max_khz? as f64)),
            )
        },
    ),
    row(
        names::THREAD_CLOCK,
        Unit::Share,
        "cpufreq",
        "clock of the thread's core over its highest, as the test began or ended, the higher one",
        |test| {
            let (clock_khz, most_khz) = test.view.clock_khz()?;
            share(clock_khz, most_khz)
        },
    ),
    row(
        names::IDLE_EXIT,
        Unit::Share,
        "cpuidle",
        "part of the time that leaving idle states takes, at most, on the core where the thread's packets come in, else on its own",
        idle_exit_share,
    ),
    row(
        "softirq-rounds",
        Unit::PerS,
        "/proc/softirqs",
        "rounds of receive work (NET_RX), all cores",
        |test| {
            let rounds = &test.view.counters?.softirqs;
            let sum: f64 = rounds.iter().map(|core| core.net_rx_count as f64).sum();
            per_s(test, (!rounds.is_empty()).then_some(sum))
        },
    ),
    row(
        "kernel-thread-run-share",
        Unit::Share,
        SCHEDSTAT,
        "part of the time in which the busiest ksoftirqd or NAPI thread ran",
        |test| {
            let threads = test.view.counters?.kernel_threads.iter();
            let busiest = threads.map(|thread| thread.run_s).reduce(f64::max)?;
            share(busiest, test.view.duration_s)
        },
    ),
    row(
        "softnet-busiest-share",
        Unit::Share,
        SOFTNET,
        "packets that the busiest core processed, of those of all cores",
        |test| {
            let cores = &test.view.counters?.softnet;
            let all = || cores.iter().map(|core| core.processed_pkts as f64);
            share(all().reduce(f64::max)?, all().sum())
        },
    ),
    row(
        "softnet-dropped",
        Unit::Count,
        SOFTNET,
        "packets dropped because the backlog was full",
        |test| softnet(test, |core| core.dropped_pkts),
    ),
    row(
        "softnet-flow-limited",
        Unit::Count,
        SOFTNET,
        "packets dropped because one flow filled half the backlog",
        |test| softnet(test, |core| core.flow_limited_pkts),
    ),
    row(
        "softnet-squeezed",
        Unit::Count,
        SOFTNET,
        "times that receive work ran out of its budget",
        |test| softnet(test, |core| core.squeezed_count),
    ),
    row(
        "device-packet-size",
        Unit::Bytes,
        DEVICE,
        "mean packet of the device in the test's direction; super-segments count once",
        |test| packet_bytes(&test.view, test.is_sender),
    ),
    row(
        "device-receive-drops",
        Unit::Count,
        DEVICE,
        "packets that the path's interface dropped on receipt",
        |test| device(test, |one| one.rx_drops_count),
    ),
    row("device-receive-errors", Unit::Count, DEVICE, "errors on receipt", |test| {
        device(test, |one| one.rx_errors_count)
    }),
    row(
        "device-ring-overruns",
        Unit::Count,
        "rtnl_link_stats64",
        "packets dropped because the receive ring was full",
        |test| Some(test.view.device()?.rx_ring_overruns_count? as f64),
    ),
    row(
        "device-send-drops",
        Unit::Count,
        DEVICE,
        "packets that the path's interface dropped on sending",
        |test| device(test, |one| one.tx_drops_count),
    ),
    row(
        "qdisc-drops",
        Unit::Count,
        "netlink TCA_STATS2",
        "packets that the root queueing discipline dropped",
        |test| qdisc(test, |one| one.dropped_pkts),
    ),
    row(
        "qdisc-requeues",
        Unit::Count,
        "netlink TCA_STATS2",
        "packets that the device refused and the discipline kept",
        |test| qdisc(test, |one| one.requeues_count),
    ),
    row(
        "qdisc-backlog",
        Unit::Bytes,
        "netlink TCA_STATS2",
        "bytes in the root queueing discipline when the test ended",
        |test| qdisc(test, |one| one.backlog_bytes),
    ),
    row(
        names::MEMORY_TRAFFIC,
        Unit::BytesPerS,
        "resctrl mbm_total_bytes",
        "bytes read from and written to memory, all nodes",
        |test| {
            let nodes = test.view.counters?.memory_traffic.iter();
            let sum = nodes.map(|node| node.bytes as f64).reduce(|sum, one| sum + one);
            per_s(test, sum)
        },
    ),
];

/// A kind of time of a core, and how it is read.
pub(super) struct CoreRow {
    pub(super) definition: Definition,
    read: fn(&CoreUse) -> f64,
}

const fn core(name: &'static str, about: &'static str, read: fn(&CoreUse) -> f64) -> CoreRow {
    CoreRow { definition: Definition::new(name, Unit::Share, "/proc/stat", about), read }
}

/// How each busy core spent the time; `N` is its number.
pub(super) static CORES: &[CoreRow] = &[
    core("core-N-user-share", "part of the time that core N spent in user mode", |core| core.user),
    core("core-N-system-share", "the same in the kernel for processes", |core| core.system),
    core(
        "core-N-softirq-share",
        "the same in software interrupts: most of the receive work",
        |core| core.softirq,
    ),
    core("core-N-irq-share", "the same in hardware interrupts", |core| core.irq),
    core("core-N-steal-share", "the same taken by the hypervisor", |core| core.steal),
    core("core-N-idle-share", "the same idle", |core| core.idle),
];

/// The symptoms of one host over the repeats.
pub(super) fn symptoms(tests: &[Tested<'_>], recorder: Option<&str>) -> Vec<Symptom> {
    let of_host = ROWS.iter().map(|row| {
        let values: Vec<f64> = tests.iter().filter_map(row.read).collect();
        row.definition.symptom(recorder, &values, &[])
    });
    let busy = busy_cores(tests);
    let of_core = |row: &CoreRow, number: u32| {
        let told = tests.iter().filter_map(|test| test.view.core_use(number));
        let values: Vec<f64> = told.map(row.read).collect();
        let symptom = row.definition.symptom(recorder, &values, &[]);
        Symptom { name: row.definition.name.replace('N', &number.to_string()), ..symptom }
    };
    let of_cores: Vec<Symptom> = if busy.is_empty() {
        CORES.iter().map(|row| row.definition.symptom(recorder, &[], &[])).collect()
    } else {
        let rows = |number: u32| CORES.iter().map(move |row| (row, number));
        busy.into_iter().flat_map(rows).map(|(row, number)| of_core(row, number)).collect()
    };
    of_host.chain(of_cores).collect()
}

/// The busiest cores by the median of the repeats, by number: those busy for a tenth of the time, at least one.
fn busy_cores(tests: &[Tested<'_>]) -> Vec<u32> {
    let mut numbers: Vec<u32> =
        tests.iter().flat_map(|test| test.view.cores).map(|core| core.core).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let busy = |number: u32| {
        let told = tests.iter().filter_map(|test| test.view.core_use(number));
        Some((1.0 - middle(told.map(|core| core.idle))?, number))
    };
    let mut cores: Vec<(f64, u32)> = numbers.into_iter().filter_map(busy).collect();
    cores.sort_by(|one, other| other.0.total_cmp(&one.0));
    let most = cores.iter().take_while(|(share, _)| *share >= BUSY_MIN).count().max(1);
    let mut listed: Vec<u32> =
        cores.into_iter().take(most.min(CORES_MAX)).map(|(_, number)| number).collect();
    listed.sort_unstable();
    listed
}

/// Time that the core of the busiest thread's packets needs to leave its idle states, over the measured time.
fn idle_exit_share(test: &Tested<'_>) -> Option<f64> {
    let core = test.view.thread.incoming_core.or(test.view.thread.core)?;
    let states = test.view.counters?.idle_states.iter().filter(|state| state.core == core);
    let left_s = states
        .map(|state| state.entered_count as f64 * state.exit_latency_us as f64 * 1e-6)
        .reduce(|sum, one| sum + one)?;
    share(left_s, test.view.duration_s)
}

fn per_s(test: &Tested<'_>, count: Option<f64>) -> Option<f64> {
    Some(count? / positive(test.view.duration_s)?)
}

fn softnet(test: &Tested<'_>, read: fn(&results::SoftnetCounters) -> u64) -> Option<f64> {
    let cores = test.view.counters?.softnet.iter();
    cores.map(|core| read(core) as f64).reduce(|sum, one| sum + one)
}

fn device(test: &Tested<'_>, read: fn(&DeviceCounters) -> u64) -> Option<f64> {
    test.view.device().map(|one| read(one) as f64)
}

/// Of the root, whose counters include those of all disciplines below it.
fn qdisc(test: &Tested<'_>, read: fn(&results::QdiscCounters) -> u64) -> Option<f64> {
    let roots = test.view.qdiscs().filter(|one| one.parent == "root");
    roots.map(|one| read(one) as f64).reduce(|sum, one| sum + one)
}
