//! `clearstream tune cc compare`: the same path with one congestion control after the other, then
//! two flows beside each other, in an order drawn anew each round.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use results::{Point, PointOutcome, Results, RunKind, TestLimit, TestSpec};
use sweep::{Plan, PlannedPoint, Setting};
use traffic::client::Target;

use super::figures::{self, Comparison};
use super::{AVAILABLE, pairs, setting};
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::far::FarEnd;
use crate::progress::Progress;
use crate::runner::{self, Ended};
use crate::signals;
use crate::store::{self, PointLog};
use crate::verbs::options::{ServerOptions, duration};
use crate::verbs::reproduce::in_lab::{TestBed, path_option};

/// Where the comparison runs when no host is named.
const LAB: &str = "shared";
/// The order of every round depends on this only.
const SEED: u64 = 0x6874_6370;
/// Samples a test: enough to see the ramp.
const INTERVALS_MAX: f64 = 100.0;
/// Share of a test in pairs that does not count: the flows find each other.
const SETTLING: f64 = 0.25;

/// Options of `tune cc compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream tune cc compare                          all there are, in the lab\n  \
    clearstream tune cc compare htcp,cubic far.example   to a host that serves\n\n\
    Only the sending side's congestion control matters, and this host sends.")]
pub(super) struct CompareArgs {
    /// Congestion controls; `all`, or left out: those that are available.
    #[arg(value_name = "A,B,...", default_value = "all")]
    names: String,
    /// Far host; without it both hosts are those of a lab on this machine.
    host: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
    /// Time each test runs.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Repeats of every setting.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Leave out the tests of two flows beside each other.
    #[arg(long)]
    no_pairs: bool,
    /// Results file.
    #[arg(short, long, value_name = "FILE", default_value = "cc.json")]
    output: PathBuf,
    /// Report page; none when absent.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the verb.
pub(super) fn run(args: &CompareArgs, json: bool) -> VerbResult {
    let names = names(args)?;
    match &args.host {
        Some(host) => measure(&args.server.at(host), &names, args, json),
        None => in_lab(&names, args, json),
    }
}

/// The asked-for congestion controls, each of which this host has.
fn names(args: &CompareArgs) -> Result<Vec<String>, VerbError> {
    let available = setting(AVAILABLE);
    let available: Vec<&str> = available.split_whitespace().collect();
    let mut names: Vec<String> = Vec::new();
    let asked = args.names.split(',').filter(|_| args.names != "all");
    for name in asked {
        if !available.contains(&name) {
            let help =
                if name == "htcp" { "; `clearstream tune cc htcp` registers it" } else { "" };
            let known = available.join(", ");
            return Err(VerbError::missing(format!(
                "no congestion control is called {name} here{help} (there are: {known})"
            )));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    if args.names == "all" {
        names = available.iter().map(|name| (*name).to_owned()).collect();
    }
    if names.is_empty() {
        return Err(VerbError::missing("this host does not tell its congestion controls"));
    }
    Ok(names)
}

fn in_lab(names: &[String], args: &CompareArgs, json: bool) -> VerbResult {
    let bed = TestBed::up(LAB)?;
    bed.serve()?;
    let mut inner = bed.program(bed.near(), json);
    inner.args(["tune", "cc", "compare", &names.join(","), bed.far()]);
    inner.args(["--duration", &args.duration.as_secs_f64().to_string()]);
    inner.args(["--repeats", &args.repeats.to_string()]);
    inner.args(args.no_pairs.then_some("--no-pairs"));
    inner.arg("--output").arg(&args.output);
    inner.args(path_option("--report", args.report.as_ref()));
    bed.end_with(&mut inner)
}

fn measure(target: &Target, names: &[String], args: &CompareArgs, json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let mut far = FarEnd::connect(target)?;
    let mut beside = if args.no_pairs { None } else { Some(FarEnd::connect(target)?) };
    let mut progress = Progress::new(1);
    let mut results = far.document(RunKind::Tune, &mut progress);
    let plan = plan(names, args);
    let (mut log, earlier) = PointLog::open(&args.output, &plan, true, &mut results.path)?;
    results.points = figures::whole(earlier);
    let remaining = plan.remaining(&results.points);
    progress.extend(remaining.len());
    let mut ended = Ended::Complete;
    for planned in &remaining {
        let Some(spec) = planned.spec() else { continue };
        let points = match (pairs::of(&planned.experiment), &mut beside) {
            (Some((_, other)), Some(beside)) => {
                pairs::measure(planned, spec, &other, [&mut far, beside], &mut progress)
            }
            _ => vec![alone(planned, spec, &mut far, &mut progress)],
        };
        if let Some(number) = signals::caught() {
            ended = Ended::Interrupted(number);
            break;
        }
        for point in points {
            log.append(&point)?;
            results.points.push(point);
        }
    }
    drop(progress);
    results.finished_unix_ms = Some(runner::now_unix_ms());
    if let Ended::Interrupted(number) = ended {
        results.partial = Some(format!("ended by signal {number}"));
    }
    results.summaries = sweep::summarise(&results.points);
    let comparison = Comparison::of(&results, names);
    results.summaries.extend(comparison.summaries());
    finish(&results, &comparison, args, json)?;
    match ended {
        Ended::Interrupted(number) => Ok(Exit::Signal(number)),
        Ended::Complete => {
            log.discard()?;
            let failed = figures::failures(&results.points);
            Ok(if failed == 0 { Exit::Ok } else { Exit::Partial })
        }
    }
}

fn plan(names: &[String], args: &CompareArgs) -> Plan {
    let duration_s = args.duration.as_secs_f64();
    let spec = |name: &str, omit_s: f64| TestSpec {
        congestion_control: Some(name.to_owned()),
        limit: TestLimit::DurationS(duration_s - omit_s),
        omit_s,
        interval_s: (duration_s / INTERVALS_MAX).clamp(0.05, 1.0),
        ..TestSpec::tcp()
    };
    let mut settings: Vec<Setting> =
        names.iter().map(|name| Setting::new(figures::alone(name), spec(name, 0.0))).collect();
    if !args.no_pairs {
        for (first, name) in names.iter().enumerate() {
            for other in &names[first..] {
                settings.push(Setting::new(
                    pairs::experiment(name, other),
                    spec(name, duration_s * SETTLING),
                ));
            }
        }
    }
    Plan::new(settings, args.repeats, SEED)
}

/// One flow that has the path for itself.
fn alone(
    planned: &PlannedPoint,
    spec: &TestSpec,
    far: &mut FarEnd,
    progress: &mut Progress,
) -> Point {
    progress.begin(&format!("{} (repeat {})", planned.experiment, planned.repeat + 1));
    let started_unix_ms = runner::now_unix_ms();
    let run = far.run_test(spec, &mut |_| {}, &|| signals::caught().is_some());
    let outcome = figures::checked(spec, run);
    point(planned, &planned.experiment, spec, started_unix_ms, far, outcome)
}

/// A point as it is stored.
pub(super) fn point(
    planned: &PlannedPoint,
    experiment: &str,
    spec: &TestSpec,
    started_unix_ms: u64,
    far: &FarEnd,
    outcome: PointOutcome,
) -> Point {
    let planned = PlannedPoint {
        experiment: experiment.to_owned(),
        work: spec.clone().into(),
        ..planned.clone()
    };
    let command = crate::verbs::options::command_line(far.target(), spec);
    planned.point(started_unix_ms, command, outcome)
}

fn finish(
    results: &Results,
    comparison: &Comparison,
    args: &CompareArgs,
    json: bool,
) -> Result<(), VerbError> {
    store::save(&args.output, results)?;
    if let Some(page) = &args.report {
        let html = report::render(results, &report::RenderOptions::default());
        store::replace(page, html.as_bytes())?;
    }
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer(&mut out, results).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    print(&mut out, comparison, &args.output)
}

fn print(out: &mut impl Write, comparison: &Comparison, output: &Path) -> Result<(), VerbError> {
    writeln!(
        out,
        "{:<12} {:<40} {:>11} {:>11}   round trip",
        "one flow", "throughput", "retransmits", "ramp to 90%"
    )?;
    for row in &comparison.alone {
        writeln!(out, "{row}")?;
    }
    if !comparison.pairs.is_empty() {
        writeln!(
            out,
            "\n{:<16} {:<15} {:<26} together",
            "two flows", "share of each", "Jain's index"
        )?;
    }
    for row in &comparison.pairs {
        writeln!(out, "{row}")?;
    }
    for note in &comparison.notes {
        writeln!(crate::out::stderr(), "clearstream: {note}")?;
    }
    writeln!(out, "\nWritten  {}", output.display())?;
    Ok(())
}
