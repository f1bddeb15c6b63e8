//! IOR's tables, column by column: people's scripts read them.

use std::fmt::Write as _;

use crate::io::layout::Placement;
use crate::io::options::IoOptions;
use crate::io::summary::{Measured, Summary};
use crate::size::binary_size;

const MIB: f64 = 1_048_576.0;

/// What the head of the output says of the run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// When it began: `Sun Nov 22 20:35:47 2026`.
    pub began: String,
    /// The command line.
    pub command: String,
    /// Kernel and host: `Linux node1`.
    pub machine: String,
}

/// The file system under test.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Capacity {
    /// Bytes in all.
    pub bytes: f64,
    /// Bytes that are free.
    pub free_bytes: f64,
    /// Files that it can hold.
    pub inodes: f64,
    /// Of those, free ones.
    pub free_inodes: f64,
}

impl Capacity {
    /// `23.5 GiB`.
    #[must_use]
    pub fn size(&self) -> String {
        let gib = self.bytes / (1_u64 << 30) as f64;
        if gib > 1024.0 { format!("{:.1} TiB", gib / 1024.0) } else { format!("{gib:.1} GiB") }
    }

    /// Hundredths of the bytes that are in use.
    #[must_use]
    pub fn used_percent(&self) -> f64 {
        used(self.free_bytes, self.bytes)
    }

    /// Millions (2²⁰) of files that it can hold.
    #[must_use]
    pub fn inodes_mi(&self) -> f64 {
        self.inodes / MIB
    }

    /// Hundredths of the files that are in use.
    #[must_use]
    pub fn used_inodes_percent(&self) -> f64 {
        used(self.free_inodes, self.inodes)
    }

    /// The line of IOR and mdtest.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{:<20}: {}   Used FS: {:.1}%   Inodes: {:.1} Mi   Used Inodes: {:.1}%",
            "FS",
            self.size(),
            self.used_percent(),
            self.inodes_mi(),
            self.used_inodes_percent()
        )
    }
}

/// Hundredths of `whole` that are in use; 0 of a file system without room, such as `/proc`, where IOR prints NaN.
fn used(free: f64, whole: f64) -> f64 {
    if whole > 0.0 { (1.0 - free / whole) * 100.0 } else { 0.0 }
}

/// `name                : value`
#[must_use]
pub fn line(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name:<20}: {value}\n")
}

/// The first lines of the output.
#[must_use]
pub fn head(head: &Head, version: &str) -> String {
    format!("IOR-{version}: MPI Coordinated Test of Parallel I/O\n")
        + &line("Began", &head.began)
        + &line("Command line", &head.command)
        + &line("Machine", &head.machine)
}

/// What stands before the results of one test.
#[must_use]
pub fn test_start(
    number: usize,
    started: &str,
    (path, capacity): (&str, Option<&Capacity>),
) -> String {
    let mut text = line("TestID", number) + &line("StartTime", started);
    if let Some(capacity) = capacity {
        text += &line("Path", path);
        text += &capacity.line();
        text.push('\n');
    }
    text
}

/// The options of a test as IOR names them, in its order.
#[must_use]
pub fn option_lines(options: &IoOptions, place: &Placement) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("api", "POSIX".to_owned()),
        ("apiVersion", String::new()),
        ("test filename", options.test_file.clone()),
        (
            "access",
            if options.file_per_task { "file-per-process" } else { "single-shared-file" }
                .to_owned(),
        ),
        ("type", if options.is_collective { "collective" } else { "independent" }.to_owned()),
        ("segments", options.segment_count.to_string()),
        (
            "ordering in a file",
            if options.random_offset > 0 { "random" } else { "sequential" }.to_owned(),
        ),
    ];
    let (reorders, randomly) = (options.reorders_tasks, options.random_reorder > 0);
    let order = match (reorders, randomly) {
        (true, _) => "constant task offset",
        (false, true) => "random task offset",
        (false, false) => "no tasks offsets",
    };
    lines.push(("ordering inter file", order.to_owned()));
    if reorders || randomly {
        lines.push(("task offset", options.task_offset.to_string()));
    }
    if randomly {
        lines.push(("reorder random seed", options.reorder_seed.to_string()));
    }
    lines.extend([
        ("nodes", place.nodes.to_string()),
        ("tasks", place.tasks.to_string()),
        ("clients per node", place.tasks_on_first_node.to_string()),
    ]);
    if options.memory_per_task_bytes > 0 {
        lines.push(("memoryPerTask", binary_size(options.memory_per_task_bytes)));
    }
    if let crate::io::options::Memory::Bytes(bytes @ 1..) = options.memory_per_node_bytes {
        lines.push(("memoryPerNode", binary_size(bytes)));
    }
    lines.extend([
        ("memoryBuffer", "CPU".to_owned()),
        ("dataAccess", "CPU".to_owned()),
        ("GPUDirect", "0".to_owned()),
        ("repetitions", options.repetitions.to_string()),
        ("xfersize", binary_size(options.transfer_bytes)),
        ("blocksize", binary_size(options.block_bytes)),
        ("aggregate filesize", binary_size(expected_bytes(options, place))),
    ]);
    if options.is_dry {
        lines.push(("dryRun", "1".to_owned()));
    }
    if options.verbosity > 0 {
        lines.push(("verbose", options.verbosity.to_string()));
    }
    if options.stonewall_s > 0 {
        lines.push(("stonewallingTime", options.stonewall_s.to_string()));
        lines.push(("stoneWallingWearOut", u8::from(options.wears_out).to_string()));
    }
    lines
}

/// Bytes that a whole test moves, all tasks together.
#[must_use]
pub fn expected_bytes(options: &IoOptions, place: &Placement) -> u64 {
    (options.block_bytes * options.segment_count).saturating_mul(place.tasks)
}

/// The options, and the head of the results.
#[must_use]
pub fn setup(options: &IoOptions, place: &Placement) -> String {
    let mut text = "\nOptions: \n".to_owned();
    for (name, value) in option_lines(options, place) {
        text += &line(name, value);
    }
    text + "\nResults: \n"
}

/// The head of the table.
pub const TABLE_HEAD: &str = "
access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
";

/// A number in ten columns: six decimals below 1, two below 3600, else none.
fn number(value: f64, after: &str) -> String {
    if value < 0.0 {
        return format!("   -      {after}");
    }
    let decimals = if value < 1.0 {
        6
    } else if value < 3600.0 {
        2
    } else {
        0
    };
    format!("{value:<10.decimals$}{after}")
}

/// A row of the table.
#[must_use]
pub fn row(options: &IoOptions, one: &Measured) -> String {
    let mut text = format!("{:<10}", one.access.name());
    let columns = [
        (one.bytes_per_s() / MIB, " "),
        (one.iops, " "),
        (one.best_mean_latency_s, "  "),
        (options.block_bytes as f64 / 1024.0, " "),
        (options.transfer_bytes as f64 / 1024.0, " "),
        (one.open_s, " "),
        (one.transfer_s, " "),
        (one.close_s, " "),
        (one.total_s, " "),
    ];
    for (value, after) in columns {
        text += &number(value, after);
    }
    text + &format!("{:<4}\n", one.repetition)
}

/// The row of a removal.
#[must_use]
pub fn removal_row(seconds: f64, repetition: u32) -> String {
    let columns = [11, 11, 12, 11, 11, 11, 11, 11].map(|width| format!("{:<width$}", "-"));
    format!("{:<10}{}{}{repetition:<4}\n", "remove", columns.concat(), number(seconds, " "))
}

/// `Max Write: 345.07 MiB/sec (361.83 MB/sec)`
#[must_use]
pub fn maxima(options: &IoOptions, write: Option<&Summary>, read: Option<&Summary>) -> String {
    let mut text = String::new();
    let both = [(options.writes, "Max Write: ", write), (options.reads, "Max Read:  ", read)];
    for (is_wanted, name, summary) in both {
        if let (true, Some(summary)) = (is_wanted, summary) {
            let rate = summary.bytes_per_s.max;
            // A text never fails to be written to.
            writeln!(text, "{name}{:.2} MiB/sec ({:.2} MB/sec)", rate / MIB, rate / 1e6).ok();
        }
    }
    text
}

/// The head of the summary.
#[must_use]
pub fn summary_head() -> String {
    let names = [
        "Max(MiB)",
        "Min(MiB)",
        "Mean(MiB)",
        "StdDev",
        "Max(OPs)",
        "Min(OPs)",
        "Mean(OPs)",
        "StdDev",
        "Mean(s)",
        "Stonewall(s)",
    ];
    let mut text = format!("\n{:<9}", "Operation");
    for name in names {
        text += &format!(" {name:>10}");
    }
    text + " Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt \
            \u{20} blksiz    xsize aggs(MiB)   API RefNum\n"
}

/// One line of the summary.
#[must_use]
pub fn summary_row(
    name: &str,
    (number, options, place): (usize, &IoOptions, &Placement),
    summary: &Summary,
) -> String {
    let (rate, count) = (&summary.bytes_per_s, &summary.transfers_per_s);
    let mut text = format!("{name:<9} ");
    for value in [rate.max, rate.min, rate.mean, rate.deviation] {
        text += &format!("{:10.2} ", value / MIB);
    }
    for value in [count.max, count.min, count.mean, count.deviation] {
        text += &format!("{value:10.2} ");
    }
    text += &format!("{:10.5} ", summary.mean_s);
    text += &match summary.stonewall {
        Some((time_s, rate)) => format!("{time_s:10.2} {:13.2} ", rate / MIB),
        None => format!("{:>10} {:>13} ", "NA", "NA"),
    };
    let of = u8::from;
    text += &format!("{number:5} {:6} {:3} ", place.tasks, place.tasks_on_first_node);
    text += &format!("{:4} {:3} ", options.repetitions, of(options.file_per_task));
    text += &format!("{:5} {:8} ", of(options.reorders_tasks), options.task_offset);
    text += &format!("{:9} {:4} ", options.random_reorder, options.reorder_seed);
    text += &format!("{:6} {:8} ", options.segment_count, options.block_bytes);
    text += &format!("{:8} {:9.1} ", options.transfer_bytes, summary.first_bytes as f64 / MIB);
    text + &format!("POSIX {:6}\n", options.reference_number)
}

/// The distribution of one row's transfer times. It begins with no word that a reader of IOR's tables
/// looks for.
#[must_use]
pub fn latency_line(one: &Measured) -> String {
    let times = &one.latencies;
    let text = format!(
        "Latency of {:<5} iter {}: {} transfers",
        one.access.name(),
        one.repetition,
        times.count()
    );
    let points = [
        ("min", times.min_s()),
        ("mean", times.mean_s()),
        ("p50", times.known_percentile_s(50.0)),
        ("p90", times.known_percentile_s(90.0)),
        ("p99", times.known_percentile_s(99.0)),
        ("p99.9", times.known_percentile_s(99.9)),
        ("max", times.max_s()),
    ];
    text + &call_times(&points) + "\n"
}

/// `, p50 12.0 us`; a percentile that the number of calls cannot give is left out.
pub(crate) fn call_times(points: &[(&str, Option<f64>)]) -> String {
    let known = points.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    known.map(|(name, value)| format!(", {name} {}", units::show_seconds(value))).collect()
}

/// How far the clocks of the ranks' hosts are apart; times are corrected for it.
#[must_use]
pub fn clock_lines(members: &[crate::team::Member]) -> String {
    let mut hosts: Vec<&crate::team::Member> = Vec::new();
    for member in members.iter().skip(1) {
        let is_known = hosts.iter().any(|other| other.host == member.host);
        if member.clock.uncertainty_s > 0.0 && !is_known {
            hosts.push(member);
        }
    }
    if hosts.is_empty() {
        return line("Clock", "all ranks share one clock");
    }
    let one = |member: &&crate::team::Member| {
        let [apart, uncertainty] =
            [member.clock.wall_s.abs(), member.clock.uncertainty_s].map(units::show_seconds);
        let way = if member.clock.wall_s < 0.0 { "behind" } else { "ahead of" };
        let host = &member.host;
        line(
            "Clock",
            format!(
                "{host} is {apart} \u{b1} {uncertainty} {way} rank 0's host; times are corrected"
            ),
        )
    };
    hosts.iter().map(one).collect()
}

/// What is said when the stonewall was hit and the ranks go on to where the fastest is.
#[must_use]
pub fn stonewall_line(stonewall: &crate::io::summary::Stonewall) -> String {
    let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
    format!(
        "stonewalling pairs accessed min: {} max: {} -- min data: {:.1} GiB mean data: {:.1} GiB \
         time: {:.1}s\n",
        stonewall.transfers_min,
        stonewall.transfers_max,
        gib(stonewall.bytes_min),
        gib(stonewall.bytes_mean),
        stonewall.time_s
    )
}

/// The file of each transfer's start and duration, seconds (`-O savePerOpDataCSV`).
#[must_use]
pub fn transfers(log: &[(f64, f64)], transfer_bytes: u64) -> String {
    let mut text = "time,runtime,tp\n".to_owned();
    for &(start, taken) in log {
        let rate = transfer_bytes as f64 / taken;
        let line = [exponent(start, 8), exponent(taken, 8), exponent(rate, 6)].join(",");
        text += &line;
        text.push('\n');
    }
    text
}

/// The head of IOR's CSV.
pub const CSV_HEAD: &str = "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),\
                            close(s),total(s),numTasks,iter\n";

/// A row of IOR's CSV.
#[must_use]
pub fn csv_row(options: &IoOptions, place: &Placement, one: &Measured) -> String {
    let columns = [
        one.bytes_per_s() / MIB,
        one.iops,
        one.best_mean_latency_s,
        options.block_bytes as f64 / 1024.0,
        options.transfer_bytes as f64 / 1024.0,
        one.open_s,
        one.transfer_s,
        one.close_s,
        one.total_s,
    ];
    let mut text = one.access.name().to_owned();
    for value in columns {
        text += &format!(",{value:.4}");
    }
    text + &format!(",{},{}\n", place.tasks, one.repetition)
}

/// The head of the file of ranks' times (`-O saveRankPerformanceDetailsCSV`).
pub const RANKS_HEAD: &str = "access,rank,runtime-with-openclose,runtime,\
                              throughput-withopenclose,throughput\n";

/// The rows of one access in the file of ranks' times.
#[must_use]
pub fn rank_rows(one: &Measured) -> String {
    let mut text = String::new();
    let bytes = one.moved_bytes as f64 / one.ranks.len() as f64;
    for (rank, times) in one.ranks.iter().enumerate() {
        let (total, transfer) = (times.total_s(), times.transfer_s());
        let columns = [total, transfer, bytes / total, bytes / transfer].map(scientific);
        text += &format!("{},{rank},{}\n", one.access.name(), columns.join(","));
    }
    text
}

/// A number as C's `%.10e` prints it.
#[must_use]
pub fn scientific(value: f64) -> String {
    exponent(value, 10)
}

/// A number as C's `%e` prints it with so many decimals.
#[must_use]
pub fn exponent(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    match text.split_once('e') {
        Some((digits, power)) => {
            let (sign, power) = match power.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', power),
            };
            format!("{digits}e{sign}{power:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests;
