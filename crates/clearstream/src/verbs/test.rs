//! `clearstream test`: one test, shown while it runs and accounted for at its end.

mod lines;
mod summary;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use results::{End, HostFacts, Placement, Point, PointOutcome, Results, RunKind, TestSpec, Work};
use traffic::client::{ClientError, IntervalPair};

use crate::VerbResult;
use crate::exit::{Exit, VerbError, chain};
use crate::far::{self, FarEnd};
use crate::progress::Progress;
use crate::runner::now_unix_ms;
use crate::verbs::options::{TargetOptions, TestOptions, command_line};
use crate::verbs::run as place_file;
use crate::{signals, store};
use lines::IntervalLines;

/// Options of `test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  clearstream test geneva -P 4 -t 30s -w 40M --latency\n  \
    clearstream test geneva -u -b 5G -l 8900 -R          UDP, the far end sends\n  \
    clearstream test geneva --rr                         TCP_RR, one byte each way\n  \
    clearstream test geneva --place placement.toml       on the cores `place` found\n\n\
    The figure to quote is the receiver's. Ctrl-C ends the test and prints what there is.")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    test: TestOptions,
    /// Run it so many times; the median and its confidence interval are printed.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Run both ends where this placement file says (see `clearstream place`).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cores", "far_cores"])]
    place: Option<PathBuf>,
    /// Also write the results document to FILE.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the verb.
pub(crate) fn run(args: &TestArgs, json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let (target, mut spec) = (args.target.target(), args.test.spec()?);
    let placement = args.place.as_ref().map(|path| place_near(path, &mut spec)).transpose()?;
    let mut far_end = FarEnd::connect(&target)?;
    let mut results = far_end.document(RunKind::Test, &mut Progress::new(1));
    if let (Some(path), Some(placement)) = (&args.place, placement) {
        place_far(path, &placement, results.far(), &mut spec)?;
    }
    if !json {
        writeln!(crate::out::stderr(), "{}", summary::heading(&target, &results, &spec)).ok();
    }
    let ended = run_all(&mut far_end, args, &spec, json, &mut results);
    results.finished_unix_ms = Some(now_unix_ms());
    results.summaries = sweep::summarise(&results.points);
    if let Some(number) = signals::caught() {
        results.partial = Some(format!("stopped by signal {number}"));
    }
    let nothing_measured = results.points.iter().all(|point| point.measured().is_none());
    if let (Err(error), true) = (&ended, nothing_measured) {
        return match signals::caught() {
            Some(number) => Ok(Exit::Signal(number)),
            None => Err(far::explain(error)),
        };
    }
    if let Some(path) = &args.output {
        store::save(path, &results)?;
    }
    print(&results, args.repeat, json)?;
    match (signals::caught(), ended) {
        (Some(number), _) => Ok(Exit::Signal(number)),
        (None, Ok(())) => Ok(Exit::Ok),
        (None, Err(error)) => Err(VerbError::partial(chain(&error))),
    }
}

/// The near end of a placement file, laid over the test.
fn place_near(path: &Path, spec: &mut TestSpec) -> Result<Placement, VerbError> {
    let placement = place_file::load(path)?;
    let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
    place_file::check(path, End::Near, &placement.near, &usable)?;
    spec.near_cores.clone_from(&placement.near.cores);
    spec.first_port = spec.first_port.or(placement.near.first_port);
    Ok(placement)
}

/// The far end of it; a peer that does not tell its cores may still refuse them.
fn place_far(
    path: &Path,
    placement: &Placement,
    host: Option<&HostFacts>,
    spec: &mut TestSpec,
) -> Result<(), VerbError> {
    if let Some(host) = host {
        place_file::check(path, End::Far, &placement.far, &host.usable_cores)?;
    }
    spec.far_cores.clone_from(&placement.far.cores);
    Ok(())
}

/// Runs every repeat; points so far are in `results` also when one fails.
fn run_all(
    far: &mut FarEnd,
    args: &TestArgs,
    spec: &TestSpec,
    json: bool,
    results: &mut Results,
) -> Result<(), ClientError> {
    for repeat in 0..args.repeat {
        if signals::caught().is_some() {
            break;
        }
        let started_unix_ms = now_unix_ms();
        let mut lines = IntervalLines::new(spec);
        let mut on_interval = |pair: &IntervalPair| {
            if !json {
                lines.print(pair);
            }
        };
        let answer = far.run_test(spec, &mut on_interval, &|| signals::caught().is_some());
        let (outcome, ended) = match answer {
            Ok(outcome) => (PointOutcome::Measured(Box::new(outcome)), Ok(())),
            Err(error) => (PointOutcome::Failed(chain(&error)), Err(error)),
        };
        let work = Work::from(spec.clone());
        results.points.push(Point {
            experiment: "test".to_owned(),
            varied: std::collections::BTreeMap::new(),
            repeat,
            started_unix_ms,
            command: command_line(far.target(), spec),
            by: work.workers(),
            work,
            outcome,
        });
        ended?;
    }
    Ok(())
}

fn print(results: &Results, repeats: u32, json: bool) -> Result<(), VerbError> {
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer(&mut out, results).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for point in &results.points {
            let Some((spec, outcome)) = point.tested() else { continue };
            let number = (repeats > 1).then_some(point.repeat + 1);
            out.write_all(summary::outcome(spec, outcome, number).as_bytes())?;
        }
        if repeats > 1 {
            out.write_all(summary::repeats(&results.summaries).as_bytes())?;
        }
    }
    out.flush()?;
    Ok(())
}
