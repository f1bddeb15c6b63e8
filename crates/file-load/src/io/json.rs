//! IOR's JSON: the same keys, each once, and always valid.

use serde_json::{Map, Value, json};

use crate::io::layout::Placement;
use crate::io::options::{IoOptions, Memory};
use crate::io::summary::{Measured, Spread, Summary};
use crate::io::text::{Capacity, Head, option_lines};

const MIB: f64 = 1_048_576.0;

/// One test with its results.
#[derive(Debug, Clone)]
pub struct TestJson<'a> {
    /// Its number.
    pub number: usize,
    /// When it began: `Sun Nov 22 20:35:47 2026`.
    pub started: &'a str,
    /// Its options.
    pub options: &'a IoOptions,
    /// How the tasks lie on hosts.
    pub place: &'a Placement,
    /// The file of rank 0, and the file system it lies in.
    pub path: &'a str,
    /// The file system, where it could be asked.
    pub capacity: Option<Capacity>,
    /// `node(Linux)`: the host's name without its number.
    pub platform: &'a str,
    /// Its rows.
    pub results: &'a [Measured],
    /// Summaries, each with `write` or `read`.
    pub summaries: &'a [(&'static str, Summary)],
}

/// The whole document.
#[must_use]
pub fn document(head: &Head, version: &str, tests: &[TestJson<'_>], finished: &str) -> Value {
    let summaries = tests.iter().flat_map(|test| {
        test.summaries.iter().map(|(operation, summary)| summary_object(test, operation, summary))
    });
    json!({
        "Version": version,
        "Began": head.began,
        "Command line": head.command,
        "Machine": head.machine,
        "tests": tests.iter().map(test_object).collect::<Vec<_>>(),
        "summary": summaries.collect::<Vec<_>>(),
        "Finished": finished,
    })
}

/// A number with IOR's four decimals; what is no number is left out by JSON's own word.
fn four(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

fn test_object(test: &TestJson<'_>) -> Value {
    let mut object = Map::new();
    let mut set = |key: &str, value: Value| object.insert(key.to_owned(), value);
    set("TestID", json!(test.number));
    set("StartTime", json!(test.started));
    if let Some(capacity) = &test.capacity {
        set("Path", json!(test.path));
        set("Capacity", json!(capacity.size()));
        set("Used Capacity", json!(format!("{:.1}%", capacity.used_percent())));
        set("Inodes", json!(format!("{:.1} Mi", capacity.inodes_mi())));
        set("Used Inodes", json!(format!("{:.1}%", capacity.used_inodes_percent())));
    }
    set("Parameters", parameters(test));
    let lines = option_lines(test.options, test.place);
    let option = |(name, value): (&str, String)| (name.to_owned(), as_number(name, value));
    set("Options", Value::Object(lines.into_iter().map(option).collect()));
    set("Results", test.results.iter().map(|one| result(test.options, one)).collect());
    if test.options.verbosity > 0 {
        set("max", maxima(test));
    }
    Value::Object(object)
}

/// IOR prints counts as numbers and everything else as text.
fn as_number(name: &str, value: String) -> Value {
    const NUMBERS: [&str; 10] = [
        "segments",
        "task offset",
        "reorder random seed",
        "nodes",
        "tasks",
        "clients per node",
        "repetitions",
        "dryRun",
        "verbose",
        "stonewallingTime",
    ];
    let is_number = NUMBERS.contains(&name) || name == "stoneWallingWearOut";
    match value.parse::<i64>() {
        Ok(number) if is_number => json!(number),
        _ => json!(value),
    }
}

fn parameters(test: &TestJson<'_>) -> Value {
    let options = test.options;
    let flag = u8::from;
    let memory = match options.memory_per_node_bytes {
        Memory::Bytes(bytes) => bytes,
        Memory::Percent(_) => 0,
    };
    let pattern = options.pattern.number();
    let mut object = json!({
        "testID": test.number,
        "refnum": options.reference_number,
        "api": "POSIX",
        "platform": options.platform.as_deref().unwrap_or(test.platform),
        "testFileName": options.test_file,
        "deadlineForStonewall": options.stonewall_s,
        "stoneWallingWearOut": flag(options.wears_out),
        "maxTimeDuration": options.time_max_min,
        "outlierThreshold": options.outlier_s,
        "options": "(null)",
        "dryRun": flag(options.is_dry),
        "nodes": test.place.nodes,
        "memoryPerTask": options.memory_per_task_bytes,
        "memoryPerNode": memory,
        "tasksPerNode": test.place.tasks_on_first_node,
        "repetitions": options.repetitions,
        "multiFile": flag(options.file_per_repetition),
        "interTestDelay": options.delay_s,
        "fsync": flag(options.fsyncs),
        "fsyncperwrite": flag(options.fsyncs_each_write),
        "useExistingTestFile": flag(options.keeps_existing_file),
        "uniqueDir": flag(options.directory_per_task),
        "singleXferAttempt": flag(options.single_attempt),
        "readFile": flag(options.reads),
        "writeFile": flag(options.writes),
        "filePerProc": flag(options.file_per_task),
    });
    let more = json!({
        "reorderTasks": flag(options.reorders_tasks),
        "reorderTasksRandom": options.random_reorder,
        "reorderTasksRandomSeed": options.reorder_seed,
        "randomOffset": options.random_offset,
        "checkWrite": flag(options.checks_write),
        "checkRead": flag(options.checks_read),
        "dataPacketType": pattern,
        "keepFile": flag(options.keeps_file),
        "keepFileWithError": flag(options.keeps_file_with_errors),
        "warningAsErrors": flag(options.warnings_are_errors),
        "verbose": options.verbosity,
        "data packet type": (["g", "t", "o", "i"])[pattern as usize],
        "setTimeStampSignature/incompressibleSeed": options.seed.unwrap_or(0),
        "collective": flag(options.is_collective),
        "segmentCount": options.segment_count,
        "transferSize": options.transfer_bytes,
        "blockSize": options.block_bytes,
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

fn result(options: &IoOptions, one: &Measured) -> Value {
    json!({
        "access": one.access.name(),
        "bwMiB": four(one.bytes_per_s() / MIB),
        "blockKiB": four(options.block_bytes as f64 / 1024.0),
        "xferKiB": four(options.transfer_bytes as f64 / 1024.0),
        "iops": four(one.iops),
        "latency": four(one.best_mean_latency_s),
        "openTime": four(one.open_s),
        "wrRdTime": four(one.transfer_s),
        "closeTime": four(one.close_s),
        "totalTime": four(one.total_s),
    })
}

fn maxima(test: &TestJson<'_>) -> Value {
    let mut object = Map::new();
    for (name, summary) in test.summaries {
        let rate = summary.bytes_per_s.max;
        object.insert(format!("{name}MiB"), four(rate / MIB));
        object.insert(format!("{name}MB"), four(rate / 1e6));
    }
    Value::Object(object)
}

fn summary_object(test: &TestJson<'_>, operation: &str, summary: &Summary) -> Value {
    let options = test.options;
    let mut object = json!({
        "operation": operation,
        "API": "POSIX",
        "TestID": test.number,
        "ReferenceNumber": options.reference_number,
        "segmentCount": options.segment_count,
        "blockSize": options.block_bytes,
        "transferSize": options.transfer_bytes,
        "numTasks": test.place.tasks,
        "tasksPerNode": test.place.tasks_on_first_node,
        "repetitions": options.repetitions,
        "filePerProc": u8::from(options.file_per_task),
        "reorderTasks": u8::from(options.reorders_tasks),
        "taskPerNodeOffset": options.task_offset,
        "reorderTasksRandom": options.random_reorder,
        "reorderTasksRandomSeed": options.reorder_seed,
        "MeanTime": four(summary.mean_s),
        "xsizeMiB": four(summary.first_bytes as f64 / MIB),
    });
    let mut set = |key: &str, value: f64| object[key] = four(value);
    let Spread { max, min, mean, deviation } = summary.bytes_per_s;
    let rates = [("Max", max), ("Min", min), ("Mean", mean), ("Std", deviation)];
    rates.into_iter().for_each(|(name, value)| set(&format!("bw{name}MIB"), value / MIB));
    let Spread { max, min, mean, deviation } = summary.transfers_per_s;
    let counts = [("Max", max), ("Min", min), ("Mean", mean), ("SD", deviation)];
    counts.into_iter().for_each(|(name, value)| set(&format!("OPs{name}"), value));
    if let Some((time_s, rate)) = summary.stonewall {
        set("StoneWallTime", time_s);
        set("StoneWallbwMeanMIB", rate / MIB);
    }
    object
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::io::options::CommandLine;
    use crate::io::summary::{Access, RankTimes};

    /// Every path of keys in a document, array places left out, with what kind of value is there.
    fn keys(value: &Value, at: &str, all: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                object.iter().for_each(|(key, value)| keys(value, &format!("{at}/{key}"), all));
            }
            Value::Array(array) => array.iter().for_each(|value| keys(value, at, all)),
            Value::Number(_) => drop(all.insert(format!("{at} number"))),
            _ => drop(all.insert(format!("{at} text"))),
        }
    }

    #[test]
    fn keys_are_those_of_the_reference() {
        let reference: Value =
            serde_json::from_str(include_str!("../../tests/data/ior.json")).expect("JSON");
        let words =
            "-i 2 -b 4m -t 1m -w -r -R -W -G 7 -s 2 -o /dev/shm/io-ref/g -O summaryFormat=JSON";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let mut line = CommandLine::parse(&words).expect("options");
        line.settle().expect("a test");
        let rank = RankTimes { close: (1.0, 2.0), transfers: 1, ..RankTimes::default() };
        let one = Measured::reduce((Access::Write, 0), &[rank], 1 << 20, false);
        let summary = Summary::of(&[&one], 1 << 20).expect("one");
        let test = TestJson {
            number: 0,
            started: "Sun Nov 22 20:35:48 2026",
            options: &line.tests[0],
            place: &Placement { tasks: 2, nodes: 1, tasks_on_first_node: 2, is_by_slot: true },
            path: "/dev/shm/io-ref/g",
            capacity: Some(Capacity { bytes: 1.0, free_bytes: 1.0, inodes: 1.0, free_inodes: 1.0 }),
            platform: "node(Linux)",
            results: &[one],
            summaries: &[("write", summary)],
        };
        let ours = document(&Head::default(), "4.1.0+dev", &[test], "");
        let (mut expected, mut found) = (BTreeSet::new(), BTreeSet::new());
        keys(&reference, "", &mut expected);
        keys(&ours, "", &mut found);
        // A rate of nothing in no time is no number.
        found = found.into_iter().map(|key| key.replace("/iops text", "/iops number")).collect();
        assert_eq!(found, expected);
        let of = |document: &Value, part: &str| document["tests"][0][part].clone();
        assert_eq!(of(&ours, "Parameters"), of(&reference, "Parameters"));
        assert_eq!(of(&ours, "Options"), of(&reference, "Options"));
    }
}
