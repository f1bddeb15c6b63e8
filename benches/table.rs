//! The rows: a table on the terminal, `target/bench.json` for machines.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use crate::comparison::{Better, Comparison, Gate, Measured, RowPlan};
use crate::host::{BenchError, facts};

/// One figure beside a peer's.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    unit: &'static str,
    /// Median of our rounds.
    ours: f64,
    /// Which of our settings gave it.
    ours_name: String,
    /// Median of the best peer's rounds; absent for a row that only has a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<f64>,
    peer_name: String,
    /// Ours over the peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// Half the width of our median's interval, as a share of the median.
    spread: f64,
    /// The same for the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_spread: Option<f64>,
    /// Rounds.
    n: usize,
    /// Which way is better.
    better: &'static str,
    /// What is required, in words; absent when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<String>,
    /// Whether it is met.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<bool>,
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
    absent: Vec<AbsentRow>,
}

/// All rows so far.
pub(crate) struct Sheet {
    document: Document,
    path: PathBuf,
}

impl Sheet {
    /// An empty sheet.
    pub(crate) fn new() -> Self {
        let notes = vec![
            "ours and peer are medians; contenders took turns, round by round",
            "cpu: user and system time of both programs; the kernel does much of the receive work in software \
             interrupts, charged to whoever was running or to nobody, so host-cpu counts all cores' busy time",
            "iperf2's figure is its client's: bytes handed to the socket, a little more than what arrived",
        ];
        let document = Document { host: facts(), notes, rows: Vec::new(), absent: Vec::new() };
        Self { document, path: output_path() }
    }

    /// Adds a comparison's rows.
    pub(crate) fn add(&mut self, comparison: &Comparison, measured: &Measured) {
        for plan in &comparison.rows {
            match row(plan, measured) {
                Ok(row) => self.document.rows.push(row),
                Err(why) => self.document.absent.push(AbsentRow { name: plan.name.clone(), why }),
            }
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
        let unfinished = self.path.with_extension("json.new");
        fs::write(&unfinished, text)?;
        Ok(fs::rename(&unfinished, &self.path)?)
    }

    /// Required rows that are not met.
    pub(crate) fn missed(&self) -> usize {
        self.document.rows.iter().filter(|row| row.holds == Some(false)).count()
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        let facts = self.document.host.iter().map(|(name, value)| format!("{name} {value}"));
        println!("\n{}\n\n{HEAD}", facts.collect::<Vec<_>>().join(", "));
        self.document.rows.iter().for_each(|row| println!("{}", line(row)));
        self.document
            .absent
            .iter()
            .for_each(|row| println!("{:<26} absent: {}", row.name, row.why));
        println!();
        self.document.notes.iter().for_each(|note| println!("{note}"));
        let judged = self.document.rows.iter().filter(|row| row.holds.is_some()).count();
        println!(
            "\n{} of {judged} requirements met, {} rows absent; rows in {}",
            judged - self.missed(),
            self.document.absent.len(),
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
        _ => String::new(),
    };
    format!(
        "{:<26} {:>10} {:>10} {:>7} {:>6.1}% {:>2}  {:<13} {}{judged}",
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
fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from(digits - 1 - magnitude).unwrap_or(0);
    format!("{value:.decimals$}")
}

fn row(plan: &RowPlan, measured: &Measured) -> Result<Row, String> {
    let (ours_name, ours) =
        measured.best(&plan.ours, plan).ok_or_else(|| measured.reason(&plan.ours))?;
    let peer = measured.best(&plan.peers, plan);
    if peer.is_none() && !plan.peers.is_empty() {
        return Err(measured.reason(&plan.peers));
    }
    let spread = |values: &[f64]| {
        stats::median_interval(values).map_or(0.0, |interval| stats::relative_spread(&interval))
    };
    let median = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
    let figure = median(&ours);
    let ratio = peer.as_ref().map(|(_, values)| figure / median(values));
    let (required, holds) = judge(plan, figure, ratio);
    Ok(Row {
        name: plan.name.clone(),
        unit: plan.unit,
        ours: figure,
        ours_name,
        peer: peer.as_ref().map(|(_, values)| median(values)),
        peer_name: peer.as_ref().map_or_else(|| "(limit)".to_owned(), |(name, _)| name.clone()),
        ratio,
        spread: spread(&ours),
        peer_spread: peer.as_ref().map(|(_, values)| spread(values)),
        n: ours.len(),
        better: if plan.better == Better::Higher { "higher" } else { "lower" },
        required,
        holds,
    })
}

fn judge(plan: &RowPlan, figure: f64, ratio: Option<f64>) -> (Option<String>, Option<bool>) {
    let (word, meets): (_, fn(f64, f64) -> bool) = match plan.better {
        Better::Higher => ("at least", |value, limit| value >= limit),
        Better::Lower => ("at most", |value, limit| value <= limit),
    };
    match (plan.gate, ratio) {
        (Gate::Ratio(limit), Some(ratio)) => {
            (Some(format!("{word} {limit} x")), Some(meets(ratio, limit)))
        }
        (Gate::Figure(limit), _) => {
            (Some(format!("{word} {limit} {}", plan.unit)), Some(meets(figure, limit)))
        }
        (Gate::Ratio(_), None) | (Gate::None, _) => (None, None),
    }
}

/// `target/bench.json`, wherever the build directory is.
fn output_path() -> PathBuf {
    let program = PathBuf::from(crate::ours::PROGRAM);
    // target/release/clearstream
    program
        .ancestors()
        .nth(2)
        .map_or_else(|| "bench.json".into(), |target| target.join("bench.json"))
}
