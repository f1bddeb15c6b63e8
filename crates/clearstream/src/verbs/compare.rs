//! `clearstream compare`: two results files, or folders of them, figure by figure.

mod show;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use compare::{Comparison, Run};
use serde::Serialize;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::{foreign, store};

/// Options of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream compare before.json after.json\n  \
    clearstream compare october/ november/ --report compare.html\n  \
    clearstream compare good.json new.json --gate        exit code 3 if a figure got worse\n\n\
    Figures are compared if they come from the same work, with the same settings, on hosts in the\n\
    same roles; the hosts themselves may differ. Where it is clear which tests belong together,\n\
    tests of the same kind whose settings differ are compared in a separate part that names the\n\
    settings; --gate does not judge these and is missed. The difference is the median of all\n\
    pairwise differences, with its 95% interval (Hodges-Lehmann); the rank-sum test decides whether\n\
    it is beyond the noise; at most 5% of reported differences are expected to be false. The\n\
    rank-sum test needs four repeats on both sides, or three and five, and more to detect one\n\
    difference among many figures; the text then says how many. Figures with two or three repeats,\n\
    as of --quick, are judged by their spread, which can only detect large differences.\n\
    In folders that hold enough files each run counts once. Otherwise each repeat counts, and what\n\
    differs from run to run is not part of the noise. Details: `clearstream help gates`.")]
pub(crate) struct CompareArgs {
    /// Baseline: a results file, or a folder of them.
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Results file or folder to compare with the baseline.
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Also list every figure that did not change.
    #[arg(long)]
    all: bool,
    /// Also write an HTML page that opens offline.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Exit with code 3 if a figure got worse beyond the noise, a test's settings differ, or no
    /// figure can be judged.
    #[arg(long)]
    gate: bool,
    /// With --gate, ignore differences up to this share of A's median: 2%.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = units::parse_percent, requires = "gate")]
    tolerance: f64,
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    comparison: &'a Comparison,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<GateTold<'a>>,
}

#[derive(Debug, Serialize)]
struct GateTold<'a> {
    is_met: bool,
    tolerance: f64,
    missed: &'a [String],
}

pub(crate) fn run(args: &CompareArgs, json: bool) -> VerbResult {
    store::check_outputs([args.report.as_deref()])?;
    let (a, b) = (runs(&args.a)?, runs(&args.b)?);
    let names = [&args.a, &args.b].map(|path| store::input_name(path));
    let comparison = compare::compare((&names[0], &a), (&names[1], &b));
    if comparison.figures.is_empty() {
        return Err(VerbError::failed(nothing_alike(&comparison)));
    }
    let missed = if args.gate { comparison.missed(args.tolerance) } else { Vec::new() };
    let mut out = crate::out::stdout();
    if json {
        let (is_met, tolerance) = (missed.is_empty(), args.tolerance);
        let gate = args.gate.then_some(GateTold { is_met, tolerance, missed: &missed });
        let told = Told { comparison: &comparison, gate };
        serde_json::to_writer_pretty(&mut out, &told).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", show::text(&comparison, args.all))?;
    }
    if let Some(page) = &args.report {
        store::replace(page, report::render_comparison(&comparison).as_bytes())?;
        if !json {
            writeln!(out, "\nWritten  {}", page.display())?;
        }
    }
    out.flush()?;
    for line in &missed {
        // A closed stderr does not change the exit code.
        writeln!(crate::out::stderr(), "clearstream: gate missed: {line}").ok();
    }
    Ok(if missed.is_empty() { Exit::Ok } else { Exit::GateFailed })
}

/// The runs of a file or of a folder's files, oldest first.
fn runs(path: &Path) -> Result<Vec<Run>, VerbError> {
    if !path.is_dir() {
        let run = read(path)?;
        return match run.is_empty() {
            true => Err(VerbError::failed(format!("{} holds no figures", store::input_name(path)))),
            false => Ok(vec![run]),
        };
    }
    let mut runs = Vec::new();
    for file in files(path)? {
        match read(&file) {
            Ok(run) if !run.is_empty() => runs.push(run),
            Ok(_) => skipped(&format!("{} holds no figures", file.display())),
            Err(error) => skipped(&error.to_string()),
        }
    }
    if runs.is_empty() {
        let name = path.display();
        return Err(VerbError::failed(format!("{name}: no file in this folder is a results file")));
    }
    runs.sort_by_key(Run::started_unix_ms);
    Ok(runs)
}

/// A folder's files that may be results, sorted by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, VerbError> {
    let unreadable = |error: io::Error| VerbError::unreadable(folder, &error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ending| ending == "json") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<Run, VerbError> {
    let results = foreign::load(path)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Ok(Run::of(&name, &results))
}

fn skipped(why: &str) {
    // Informational: a closed stderr does not affect the comparison.
    writeln!(crate::out::stderr(), "clearstream: skipped: {why}").ok();
}

/// The error for two sides without a common test.
fn nothing_alike(comparison: &Comparison) -> String {
    let settings = |side: &[compare::OneSided]| {
        let names: Vec<&str> = side.iter().take(3).map(|one| one.setting.as_str()).collect();
        let rest =
            if side.len() > 3 { format!(" and {} more", side.len() - 3) } else { String::new() };
        format!("{}{rest}", names.join("; "))
    };
    format!(
        "the two have no test in common: {} has {}, {} has {}",
        comparison.a.name,
        settings(&comparison.only_a),
        comparison.b.name,
        settings(&comparison.only_b)
    )
}
