//! `clearstream explain`: which link of the chain binds, from a stored result, anywhere.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use results::{Results, RunKind, Verdict};
use serde::Serialize;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::store;
use crate::verdict_text::{self, Detail};

/// Options of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  clearstream explain results.json\n\n\
    Nothing is measured: the verdict comes from what the file holds, experiments that were run\n\
    included. Also reads what a stock `iperf3 -J` wrote, and says what that cannot show.\n\
    docs/limits.md lists every limit with its evidence and the experiment that decides.")]
pub(crate) struct ExplainArgs {
    /// Results file of `path` or `test`, or the output of `iperf3 -J`; `-` reads standard input.
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// The same test after the change to a host that the verdict asked for: whether it confirms.
    #[arg(long, value_name = "RESULTS")]
    after: Option<PathBuf>,
    /// Also list every limit that was ruled out, and why.
    #[arg(short, long)]
    all: bool,
}

/// What `--json` prints: `.verdict` is where `path --json` has it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    schema_version: &'a str,
    kind: RunKind,
    target: &'a str,
    measured_bits_per_s: Option<f64>,
    verdict: &'a Verdict,
    /// The verdict the file was written with, where it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_verdict: Option<&'a Verdict>,
    absent: &'a [results::Absent],
}

/// Runs the verb.
pub(crate) fn run(args: &ExplainArgs, json: bool) -> VerbResult {
    let results = load(&args.results)?;
    let mut verdict = explain::explain(&results);
    if let Some(after) = &args.after {
        verdict = confirmed_by_host(&results, verdict, &load(after)?)?;
    }
    let measured = explain::diagnose(&results).measured;
    if measured.is_none() && results.points.is_empty() {
        let name = args.results.display();
        return Err(VerbError::failed(format!("{name} holds no test: nothing to explain")));
    }
    let is_other = |stored: &&Verdict| (stored.limit, stored.end) != (verdict.limit, verdict.end);
    let stored = results.verdict.as_ref().filter(is_other);
    let mut out = crate::out::stdout();
    if json {
        let told = Told {
            schema_version: &results.schema_version,
            kind: results.kind,
            target: &results.path.target,
            measured_bits_per_s: measured.map(|estimate| estimate.median),
            verdict: &verdict,
            stored_verdict: stored,
            absent: &results.absent,
        };
        serde_json::to_writer_pretty(&mut out, &told).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let detail = if args.all { Detail::All } else { Detail::Full };
        write!(out, "{}", verdict_text::show(&results, measured, &verdict, stored, detail))?;
    }
    Ok(Exit::Ok)
}

fn load(path: &Path) -> Result<Results, VerbError> {
    let bytes = store::read(path)?;
    match iperf3::stored::from_iperf3(&bytes) {
        Some(results) => Ok(results),
        None => store::parse(path, &bytes),
    }
}

/// Judges the same test before and after a change to a host.
fn confirmed_by_host(
    before: &Results,
    verdict: Verdict,
    after: &Results,
) -> Result<Verdict, VerbError> {
    if verdict.host_change.is_none() {
        return Err(VerbError::usage(
            "--after needs a verdict that asks for a change to a host, and this one does not",
        ));
    }
    explain::confirm_host_change(before, verdict, after).ok_or_else(|| {
        VerbError::failed("the two files have no test in common, so nothing can be compared")
    })
}
