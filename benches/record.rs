//! The dated record: `benches/record.jsonl`, a line for each run of `make bench`, so that a slow month
//! is seen.
//!
//! A run is recorded when it measured the program of this repository, with the rows that had at least
//! [`ROUNDS_MIN`] rounds. Later runs on the same machine are shown beside the median of what stands there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::host::BenchError;
use crate::table::Row;

/// Fewer rounds say nothing about a month.
pub(crate) const ROUNDS_MIN: u32 = 3;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// When it ended, RFC 3339, UTC.
    pub(crate) date: String,
    /// What was measured: the commit, with `+` where the work tree had changes.
    pub(crate) commit: String,
    /// Processor, cores and kernel: runs are compared on one machine only.
    pub(crate) machine: String,
    /// By row name.
    pub(crate) figures: BTreeMap<String, Figure>,
}

/// One row of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Median of our rounds, in `unit`.
    pub(crate) ours: f64,
    /// `Gbit/s`, `Mpkt/s`, `ms`.
    pub(crate) unit: String,
    /// Ours over the best peer's; absent for a row without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ratio: Option<f64>,
    /// Rounds.
    pub(crate) n: usize,
}

/// All runs so far, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Record {
    runs: Vec<Run>,
}

impl Record {
    /// Reads the record; one that is not there is empty.
    ///
    /// # Errors
    /// A line is not a run: its number is named.
    pub(crate) fn read(path: &Path) -> Result<Self, BenchError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let run = |(at, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                BenchError::Failed(format!("{}, line {}: {error}", path.display(), at + 1))
            })
        };
        let runs: Result<Vec<Run>, BenchError> = text.lines().enumerate().map(run).collect();
        Ok(Self { runs: runs? })
    }

    /// The median of a row over the recorded runs of a machine, and how many those are.
    pub(crate) fn median(&self, machine: &str, name: &str) -> Option<(f64, usize)> {
        let of_machine = self.runs.iter().filter(|run| run.machine == machine);
        let values: Vec<f64> =
            of_machine.filter_map(|run| Some(run.figures.get(name)?.ours)).collect();
        Some((stats::median(&values)?, values.len()))
    }

    /// The table of `--history`: a block for each row, a line for each run.
    pub(crate) fn show(&self) -> String {
        let mut by_row: BTreeMap<&str, Vec<(&Run, &Figure)>> = BTreeMap::new();
        for run in &self.runs {
            for (name, figure) in &run.figures {
                by_row.entry(name).or_default().push((run, figure));
            }
        }
        let mut text = String::new();
        for (name, lines) in by_row {
            writeln!(text, "{name}").expect("into a String");
            for (run, figure) in lines {
                let ratio =
                    figure.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
                writeln!(
                    text,
                    "  {}  {:<10} {:>10} {:<10} {ratio:>7} x peer  n={}  {}",
                    run.date.get(..10).unwrap_or(&run.date),
                    run.commit,
                    crate::table::significant(figure.ours, 4),
                    figure.unit,
                    figure.n,
                    run.machine
                )
                .expect("into a String");
            }
        }
        text
    }
}

impl Run {
    /// This run, of the rows that have rounds enough; `None` without any.
    pub(crate) fn of(rows: &[Row], machine: String) -> Option<Self> {
        let enough = rows.iter().filter(|row| row.n >= ROUNDS_MIN as usize && row.ours.is_finite());
        let figure = |row: &Row| Figure {
            ours: row.ours,
            unit: row.unit.to_owned(),
            ratio: row.ratio.filter(|ratio| ratio.is_finite()),
            n: row.n,
        };
        let figures: BTreeMap<String, Figure> =
            enough.map(|row| (row.name.clone(), figure(row))).collect();
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        (!figures.is_empty()).then(|| Self {
            date: units::Timestamp::from_unix(since_epoch).to_string(),
            commit: commit(),
            machine,
            figures,
        })
    }

    /// Appends it, durably, as one line.
    pub(crate) fn append_to(&self, path: &Path) -> Result<(), BenchError> {
        let mut line = serde_json::to_string(self).map_err(std::io::Error::other)?;
        line.push('\n');
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(line.as_bytes())?;
        Ok(file.sync_all()?)
    }
}

/// Where the record lies: beside this program's source, if that is still there.
pub(crate) fn path() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.join("peers.rs").is_file().then(|| folder.join("record.jsonl"))
}

/// `1b498c7`, `1b498c7+` with uncommitted changes, `unknown` outside a repository.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .args(arguments)
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    // The record itself changes with every run.
    let changed = git(&["status", "--porcelain", "--", "..", ":!record.jsonl"]);
    let is_changed = changed.is_none_or(|list| !list.is_empty());
    if is_changed { format!("{head}+") } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(machine: &str, ours: f64) -> Run {
        let figure = Figure { ours, unit: "Gbit/s".to_owned(), ratio: Some(1.2), n: 5 };
        Run {
            date: "2026-11-22T17:00:00Z".to_owned(),
            commit: "1b498c7".to_owned(),
            machine: machine.to_owned(),
            figures: BTreeMap::from([("tcp-1-stream".to_owned(), figure)]),
        }
    }

    #[test]
    fn what_is_appended_is_read_and_compared_on_its_machine_only() {
        let path = std::env::temp_dir().join(format!("record-{}.jsonl", std::process::id()));
        assert!(Record::read(&path).expect("none is empty").median("a", "tcp-1-stream").is_none());
        for (machine, ours) in [("a", 10.0), ("b", 99.0), ("a", 20.0), ("a", 12.0)] {
            run(machine, ours).append_to(&path).expect("written");
        }
        let record = Record::read(&path).expect("readable");
        assert_eq!(record.runs[1], run("b", 99.0));
        assert_eq!(record.median("a", "tcp-1-stream"), Some((12.0, 3)));
        assert_eq!(record.median("c", "tcp-1-stream"), None);
        assert_eq!(record.show().lines().count(), 5);
        fs::write(&path, "{}\n").expect("ours");
        let error = Record::read(&path).expect_err("not a run").to_string();
        assert!(error.contains("line 1: missing field"), "{error}");
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn what_is_in_the_repository_is_readable() {
        let path = path().expect("the source is here");
        Record::read(&path).expect("every line is a run");
    }
}
