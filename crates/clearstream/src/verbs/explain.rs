//! `clearstream explain`: identifies the bottleneck from stored results, on any machine.

mod load;
mod messages;
mod network;
mod symptoms;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use results::{Finding, Point, Results, RunKind, Verdict, Work};
use serde::Serialize;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::foreign;
use crate::store;
use crate::verdict_text::{self, Detail};

/// Options of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream explain results.json\n  \
    clearstream explain results.json --all\n  \
    clearstream explain results.json --symptoms           what the figures show, without a verdict\n  \
    clearstream explain before.json --after after.json    does the change confirm the verdict?\n  \
    clearstream explain io.json --after io-later.json     did it make the file system faster?\n  \
    clearstream explain flow.pcap\n  clearstream explain udp-at-100m.json udp-at-50m.json\n  \
    clearstream explain requests-loaded.json requests-idle.json\n  \
    iperf3 -c geneva -J | clearstream explain -\n\n\
    Nothing is measured: the verdict rests on the file, including experiments recorded in it.\n\
    Recordings of other programs are read too, with a note on what they cannot show: `iperf3 -J`, a\n\
    packet capture (pcap, pcapng: its largest TCP flow), and samples of `ss -tin`;\n\
    `clearstream help recordings` says how to take them. Of the reports of an MPI job\n\
    (`mpi --report`) it says which rank the others wait for, and whether packets were lost.\n\n\
    `clearstream help limits` describes every limit, its evidence and the experiment that decides;\n\
    `clearstream help symptoms` describes every symptom.")]
pub(crate) struct ExplainArgs {
    /// Results file, output of `iperf3 -J` or `ss -tin`, or a packet capture; `-`
    /// reads standard input.
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// UDP tests of the same path at other rates: two rates distinguish a rate limit from random
    /// loss. Or request/response tests of the same path with less load: a round trip that is longer
    /// under load waits in a queue.
    #[arg(value_name = "MORE", conflicts_with = "after")]
    more: Vec<PathBuf>,
    /// The same test after the change that the verdict advises: what changed between the files, and
    /// `confirmed`, `refuted` or, if the files record no change, `inconclusive`. The same tests and
    /// an earlier run are refused. For `io` and `meta`: whether each phase's rate changed beyond
    /// the noise of its repeats, and whether that confirms the verdict.
    #[arg(long, value_name = "RESULTS")]
    after: Option<PathBuf>,
    /// Also list every limit that was ruled out, and why.
    #[arg(short, long)]
    all: bool,
    /// Print what the figures show instead of the verdict: each symptom with its spread, unit and
    /// the counter it comes from; symptoms that the file does not hold are named.
    #[arg(long, conflicts_with_all = ["all", "after"])]
    symptoms: bool,
}

/// Output of `--json`: `.verdict` is where `path --json` has it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    schema_version: &'a str,
    kind: RunKind,
    target: &'a str,
    measured_bits_per_s: Option<f64>,
    verdict: &'a Verdict,
    /// The verdict stored in the file, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_verdict: Option<&'a Verdict>,
    /// Findings taken from another program's recording.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recorded: Vec<&'a Finding>,
    absent: &'a [results::Absent],
    /// The changes that `tune apply --measure` tried, with the outcome of each.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    changes: &'a [results::AppliedChange],
    /// What the results of `--after` say of file-system load, or of a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<After<'a>>,
}

/// What the results of `--after` say.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum After<'a> {
    Load(&'a load::After),
    Network(&'a network::After),
}

fn tell_messages(args: &ExplainArgs, told: &messages::Told, json: bool) -> VerbResult {
    if args.symptoms || args.after.is_some() || !args.more.is_empty() {
        let text = "--symptoms and --after do not apply to the reports of an MPI job's ranks";
        return Err(VerbError::usage(text));
    }
    let mut out = crate::out::stdout();
    if json {
        writeln!(out, "{}", serde_json::to_string(told).map_err(io::Error::from)?)?;
    } else {
        write!(out, "{}", messages::show(told))?;
    }
    Ok(Exit::Ok)
}

pub(crate) fn run(args: &ExplainArgs, json: bool) -> VerbResult {
    let bytes = store::read(&args.results)?;
    match messages::read(&args.results, &bytes) {
        Some(told) => tell_messages(args, &told?, json),
        None => explain_results(args, foreign::parse(&args.results, &bytes)?, json),
    }
}

fn explain_results(args: &ExplainArgs, results: Results, json: bool) -> VerbResult {
    let results = with_more(args, results)?;
    check_work(&args.results, &results)?;
    if args.symptoms {
        return symptoms::run(&args.results, &results, json);
    }
    let mut verdict = explain::explain(&results);
    let (mut load_after, mut network_after) = (None, None);
    if let Some(path) = &args.after {
        let after = foreign::load(path)?;
        explain::check_later(&results, &after)
            .map_err(|error| VerbError::usage(format!("--after {}: {error}", path.display())))?;
        if verdict_text::is_file_load(&results) {
            let judged = load::judge(verdict, &results, &after).ok_or_else(no_common_phase)?;
            (verdict, load_after) = (judged.0, Some(judged.1));
        } else {
            // The stored verdict is used if this version cannot derive advice from the figures.
            let stored = results.verdict.clone().filter(|_| verdict.advice.is_empty());
            let judged = network::judge(stored.unwrap_or(verdict), &results, &after)
                .map_err(|error| VerbError::failed(format!("--after: {error}")))?;
            (verdict, network_after) = (judged.0, Some(judged.1));
        }
    }
    let measured = explain::diagnose(&results).measured;
    if measured.is_none() && results.points.is_empty() {
        let name = store::input_name(&args.results);
        let why = results.partial.as_ref().map_or_else(String::new, |why| {
            format!("; the run is not complete: {}", why.lines().next().unwrap_or(""))
        });
        return Err(VerbError::failed(format!("{name} holds no test: nothing to explain{why}")));
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
            recorded: foreign::recorded(&results).collect(),
            absent: &results.absent,
            changes: &results.changes,
            after: load_after
                .as_ref()
                .map(After::Load)
                .or(network_after.as_ref().map(After::Network)),
        };
        serde_json::to_writer_pretty(&mut out, &told).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let detail = if args.all { Detail::All } else { Detail::Full };
        write!(out, "{}", verdict_text::show(&results, measured, &verdict, stored, detail))?;
        if let Some(after) = &load_after {
            write!(out, "{}", load::show(after))?;
        }
        if let Some(after) = &network_after {
            write!(out, "{}", network::show(after))?;
        }
    }
    Ok(Exit::Ok)
}

/// Refuses a file that holds nothing that a limit could explain.
fn check_work(path: &Path, results: &Results) -> Result<(), VerbError> {
    let Some(what) = other_work(results) else { return Ok(()) };
    let name = store::input_name(path);
    Err(VerbError::usage(format!(
        "{name} holds neither a network test nor file-system load, only {what}: nothing to \
         explain"
    )))
}

/// What a file holds, in words, if that is the case.
fn other_work(results: &Results) -> Option<&'static str> {
    let what = |point: &Point| match point.work {
        Work::Search(_) => Some("searches of the model checker (`clearstream check`)"),
        Work::Frames(_) => Some("frames between the ports of one host"),
        _ => None,
    };
    let first = what(results.points.first()?)?;
    results.points.iter().all(|point| what(point).is_some()).then_some(first)
}

fn no_common_phase() -> VerbError {
    VerbError::failed(
        "--after: the two files have no file-system phase in common, so nothing can be compared",
    )
}

/// The points of a further file: of UDP at another rate, or of requests and answers under another load.
fn more_of(
    path: &Path,
    results: &Results,
    more: &Path,
    number: u32,
) -> Result<Vec<Point>, VerbError> {
    let added = foreign::load(more)?;
    let is_round_trip = |point: &Point| matches!(point.work, Work::RoundTrips(_));
    let both = || results.points.iter().chain(&added.points);
    if !added.points.is_empty() && both().all(is_round_trip) {
        let mut points = added.points;
        for point in &mut points {
            point.varied.insert(explain::FILE.to_owned(), f64::from(number));
        }
        return Ok(points);
    }
    rates_of(path, results, more, added)
}

/// The results with the points of all further files.
fn with_more(args: &ExplainArgs, mut results: Results) -> Result<Results, VerbError> {
    for (more, number) in args.more.iter().zip(1_u32..) {
        results.points.extend(more_of(&args.results, &results, more, number)?);
    }
    if !args.more.is_empty() {
        check_rates(&results)?;
    }
    Ok(results)
}

/// Refuses UDP tests of several files that all offer one rate.
fn check_rates(results: &Results) -> Result<(), VerbError> {
    let offered = |point: &Point| point.work.test()?.offered_bits_per_s;
    let rates: Vec<f64> = results.points.iter().filter_map(offered).collect();
    if rates.len() == results.points.len() && rates.iter().all(|rate| rates.first() == Some(rate)) {
        let line = "all files offer the same rate; a comparison needs a second rate";
        return Err(VerbError::usage(line));
    }
    Ok(())
}

/// The points of a further file, if both files hold UDP tests only.
fn rates_of(
    path: &Path,
    results: &Results,
    more: &Path,
    added: Results,
) -> Result<Vec<Point>, VerbError> {
    let is_udp = |point: &Point| matches!(point.work, Work::Datagrams(_));
    for (path, points) in [(path, &results.points), (more, &added.points)] {
        if points.is_empty() || !points.iter().all(is_udp) {
            let name = store::input_name(path);
            let line = format!(
                "{name} holds tests other than UDP; only UDP tests at different rates can be \
                 compared"
            );
            return Err(VerbError::usage(line));
        }
    }
    Ok(added.points)
}
