//! The rows: a table on the terminal, `target/bench.json` for machines.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::comparison::{Better, Comparison, Measured, RowPlan};
use crate::host::{BenchError, facts};
use crate::judgement::{self, GateLevel, Judged, Missing, Standing};
use crate::record::{Record, Run};

/// One figure beside a peer's.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// Median of our rounds.
    pub(crate) ours: f64,
    /// Which of our settings gave it.
    ours_name: String,
    /// Median of the best peer's rounds; absent for a row that only has a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<f64>,
    peer_name: String,
    /// Ours over the peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    /// Half the width of our median's interval, as a share of the median.
    spread: f64,
    /// The same for the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_spread: Option<f64>,
    /// Rounds.
    pub(crate) n: usize,
    /// Which way is better.
    better: &'static str,
    /// What is required, in words; absent when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<String>,
    /// Whether it is met.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<bool>,
    /// Why nobody can say whether it is: no peer ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<String>,
    /// Rounds that gave nothing, and why; the others are `n`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed_rounds: Vec<String>,
    /// What a reader must know.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

/// A row that could not be filled.
#[derive(Debug, Serialize)]
struct AbsentRow {
    name: String,
    why: String,
}

/// What is written to `target/bench.json`.
#[derive(Debug, Serialize)]
struct Document {
    host: std::collections::BTreeMap<&'static str, String>,
    notes: Vec<&'static str>,
    rows: Vec<Row>,
    /// What these rows need is not on this machine.
    absent: Vec<AbsentRow>,
    /// Contenders of ours that should have run, by row: requirements missed.
    failed: Vec<AbsentRow>,
}

/// All rows so far.
pub(crate) struct Sheet {
    document: Document,
    path: PathBuf,
}

impl Sheet {
    /// An empty sheet, to be saved at `path`; in the build folder without one.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let notes = vec![
            "ours and peer are medians; contenders took turns, round by round",
            "cpu: user and system time of both programs; the kernel does much of the receive work in software \
             interrupts, charged to whoever was running or to nobody, so host-cpu counts all cores' busy time",
            "iperf2's figure is its client's: bytes handed to the socket, a little more than what arrived",
        ];
        let document = Document {
            host: facts(),
            notes,
            rows: Vec::new(),
            absent: Vec::new(),
            failed: Vec::new(),
        };
        Self { document, path: path.unwrap_or_else(output_path) }
    }

    /// Adds a comparison's rows.
    pub(crate) fn add(&mut self, comparison: &Comparison, measured: &Measured) {
        for plan in &comparison.rows {
            let entry = |why| AbsentRow { name: plan.name.clone(), why };
            match judgement::judge(measured, plan) {
                Ok(judged) => self.document.rows.push(row(plan, judged)),
                Err(Missing::Absent(why)) => self.document.absent.push(entry(why)),
                // It is among the failures.
                Err(Missing::Failed(_)) => {}
            }
            let failures = judgement::failures(measured, plan).into_iter();
            self.document.failed.extend(failures.map(entry));
        }
    }

    /// Writes what there is; an interrupted run leaves its finished rows.
    pub(crate) fn save(&self) -> Result<(), BenchError> {
        let mut text =
            serde_json::to_string_pretty(&self.document).map_err(std::io::Error::other)?;
        text.push('\n');
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let replaced = sys::durable::replace(&self.path, text.as_bytes());
        replaced.map_err(|error| BenchError::Failed(format!("{error}: {}", error.source)))
    }

    /// What is missed at this level, a line each.
    pub(crate) fn missed(&self, level: GateLevel) -> Vec<String> {
        let failed = self.document.failed.iter().map(|row| format!("{}: {}", row.name, row.why));
        let rows = self.document.rows.iter();
        let figures = rows.filter(|row| level == GateLevel::Figures && row.holds == Some(false));
        failed.chain(figures.map(|row| line(row).trim().to_owned())).collect()
    }

    /// This run for the record; `None` when no row has rounds enough.
    pub(crate) fn as_run(&self) -> Option<Run> {
        Run::of(&self.document.rows, self.machine())
    }

    fn machine(&self) -> String {
        let fact = |name| self.document.host.get(name).map_or("", String::as_str);
        format!("{}, {} cores, {}", fact("cpu"), fact("cores"), fact("kernel"))
    }

    /// Prints the table, each figure beside what this machine's earlier runs found.
    pub(crate) fn print(&self, record: &Record) {
        let facts = self.document.host.iter().map(|(name, value)| format!("{name} {value}"));
        println!("\n{}\n\n{HEAD}", facts.collect::<Vec<_>>().join(", "));
        let machine = self.machine();
        for row in &self.document.rows {
            println!("{}", line(row));
            if let Some((median, count)) = record.median(&machine, &row.name) {
                println!("    {:.2} x the median of {count} recorded runs", row.ours / median);
            }
        }
        let Document { rows, absent, failed, notes, .. } = &self.document;
        absent.iter().for_each(|row| println!("{:<26} absent: {}", row.name, row.why));
        failed.iter().for_each(|row| println!("{:<26} FAILED: {}", row.name, row.why));
        println!();
        notes.iter().for_each(|note| println!("{note}"));
        let count = |which: fn(&Row) -> bool| rows.iter().filter(|row| which(row)).count();
        println!(
            "\n{} of {} requirements met, {} not judged, {} rows absent, {} failures of ours; rows in {}",
            count(|row| row.holds == Some(true)),
            count(|row| row.holds.is_some()) + failed.len(),
            count(|row| row.not_judged.is_some()),
            absent.len(),
            failed.len(),
            self.path.display()
        );
    }
}

const HEAD: &str =
    "name                             ours       peer   ratio  spread  n  unit          peer";

fn line(row: &Row) -> String {
    let number =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| significant(value, 4));
    let judged = match (row.holds, &row.required) {
        (Some(true), Some(required)) => format!("  ok ({required})"),
        (Some(false), Some(required)) => format!("  MISSED ({required})"),
        (None, Some(required)) => {
            let why = row.not_judged.as_deref().unwrap_or_default();
            format!("  not judged ({required}): {why}")
        }
        (_, None) => String::new(),
    };
    let more = row.failed_rounds.iter().map(|why| format!("\n    without {why}"));
    let more: String =
        row.note.map(|note| format!("\n    {note}")).into_iter().chain(more).collect();
    format!(
        "{:<26} {:>10} {:>10} {:>7} {:>6.1}% {:>2}  {:<13} {}{judged}{more}",
        row.name,
        number(Some(row.ours)),
        number(row.peer),
        row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
        row.spread * 100.0,
        row.n,
        row.unit,
        row.peer_name,
    )
}

/// A number with so many significant digits, without exponent.
pub(crate) fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from(digits - 1 - magnitude).unwrap_or(0);
    format!("{value:.decimals$}")
}

fn row(plan: &RowPlan, judged: Judged) -> Row {
    let Judged { ours: (ours_name, ours), peer, standing, failed_rounds } = judged;
    let spread = |values: &[f64]| {
        stats::median_interval(values).map_or(0.0, |interval| stats::relative_spread(&interval))
    };
    let median = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
    let figure = median(&ours);
    let (required, holds, not_judged) = match standing {
        Standing::Reported => (None, None, None),
        Standing::Judged(required, holds) => (Some(required), Some(holds), None),
        Standing::NotJudged(required, why) => (Some(required), None, Some(why)),
    };
    let peer_name = match &peer {
        Some((name, _)) => name.clone(),
        None if plan.peers.is_empty() => "(limit)".to_owned(),
        None => "(none)".to_owned(),
    };
    Row {
        name: plan.name.clone(),
        unit: plan.unit,
        ours: figure,
        ours_name,
        peer: peer.as_ref().map(|(_, values)| median(values)),
        peer_name,
        ratio: peer.as_ref().map(|(_, values)| figure / median(values)),
        spread: spread(&ours),
        peer_spread: peer.as_ref().map(|(_, values)| spread(values)),
        n: ours.len(),
        better: if plan.better == Better::Higher { "higher" } else { "lower" },
        required,
        holds,
        not_judged,
        failed_rounds,
        note: plan.note,
    }
}

/// `bench.json` in the build folder, above the profile's that this program lies in.
fn output_path() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(2).map_or_else(PathBuf::new, Path::to_owned);
    target.join("bench.json")
}
