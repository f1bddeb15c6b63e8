//! `clearstream test`: runs one test, with output while it runs and a summary at its end.

mod export;
mod lines;
mod summary;

use std::io::Write;
use std::path::{Path, PathBuf};

use compare::GatedVerb;
use results::{End, HostFacts, Placement, Results, RunKind, TestSpec};
use sweep::{Plan, PlannedPoint, Setting};
use traffic::client::{ClientError, IntervalPair};

use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::far::{self, FarEnd};
use crate::gates::{self, GateOptions};
use crate::granted;
use crate::placement;
use crate::progress::Progress;
use crate::runner::{self, Conducted, Done, Driver, Keeping};
use crate::signals;
use crate::store;
use crate::verbs::options::{TargetOptions, TestOptions, command_line};
use lines::IntervalLines;

/// Options of `test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream test geneva -P 4 -t 30s -w 40M --latency\n  \
    clearstream test geneva -u -b 5G -l 8900 -R          UDP, the far end sends\n  \
    clearstream test geneva --rr                         TCP_RR, one byte each way\n  \
    clearstream test geneva --place placement.toml       on the cores that `place` found\n  \
    clearstream test geneva --repeat 5 --fail-below 1G   exit code 3 if the median is lower\n  \
    clearstream test geneva --repeat 5 --csv > runs.csv  one row per run\n\n\
    Gates: --fail-below and --fail-above compare the median of the repeats with a value; what\n\
    --require names must hold in each repeat. A figure that was not measured misses its gate. Figures:\n\
    throughput (of each direction), loss, reordering, jitter, retransmissions, transactions, rtt_p50,\n\
    rtt_p99, rtt_p99.9 (of --rr, otherwise of the idle path), loaded_rtt_p50, loaded_rtt_p99,\n\
    loaded_rtt_p99.9 (--latency), cpu, near_cpu, far_cpu (processor time per 10^9 bits). jitter is the\n\
    largest value that RFC 3550's estimate had at the end of an interval (-i).\n\
    Requirements: no-loss, no-reordering, no-retransmissions, complete.\n\n\
    The rate to quote is the receiver's. If a kernel does not grant an option (-C, -M, -m, --cores,\n\
    zero copy), the test ends with exit code 4; a smaller window is reported beside the rate. Ctrl-C\n\
    ends the test and prints what was measured. If the server ends the test or is lost, what was\n\
    measured is printed, then the reason, and the exit code is 5. With --repeat and --output, the same\n\
    command resumes an interrupted series.")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    test: TestOptions,
    /// Number of runs; the median and its confidence interval are printed.
    #[arg(long, alias = "repeats", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Run both ends on the cores that this placement file names (see `clearstream place`).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cores", "far_cores"])]
    place: Option<PathBuf>,
    /// Also list every stream, busy core and note, one per line.
    #[arg(long)]
    verbose: bool,
    /// Print the figures as comma-separated values: a header, then one row per run.
    #[arg(long, conflicts_with = "openmetrics")]
    csv: bool,
    /// Print the figures as OpenMetrics text, for Prometheus and similar systems.
    #[arg(long)]
    openmetrics: bool,
    /// Also write the results document to FILE.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Start over even if the same repeats were interrupted.
    #[arg(long, requires = "output")]
    fresh: bool,
    #[command(flatten)]
    gates: GateOptions,
}

/// Name of the experiment that a test's points belong to.
const EXPERIMENT: &str = "test";

pub(crate) fn run(args: &TestArgs, json: bool) -> VerbResult {
    if json && (args.csv || args.openmetrics) {
        return Err(VerbError::usage("write one of --json, --csv and --openmetrics"));
    }
    let prints = !(json || args.csv || args.openmetrics);
    store::check_outputs([args.output.as_deref()])?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let (target, mut spec) = (args.target.target(), args.test.spec()?);
    let gates = args.gates.gates(GatedVerb::Test)?;
    gates.iter().try_for_each(|gate| gate.check(&spec)).map_err(VerbError::usage)?;
    let placement = args.place.as_ref().map(|path| place_near(path, &mut spec)).transpose()?;
    let mut far_end = FarEnd::connect(&target)?;
    far_end.measure_for(&gates);
    let mut results = far_end.describe(RunKind::Test, &mut Progress::new(1));
    if let (Some(path), Some(placement)) = (&args.place, placement) {
        place_far(path, &placement, results.far(), &mut spec)?;
    }
    granted::check(&spec, &results)?;
    if prints {
        writeln!(crate::out::stderr(), "{}", summary::heading(&target, &results, &spec)).ok();
    }
    // The seed has no effect with a single setting.
    let plan = Plan::new(vec![Setting::new(EXPERIMENT, spec.clone())], args.repeat, 0);
    let mut driver = Watched { far: far_end, prints, numbers: args.repeat > 1 };
    let conducted =
        runner::conduct(&plan, &mut driver, args.keeping(), &mut results, Progress::new(0));
    gates::judge_run(&gates, &mut results);
    let ended = gates::settle(&results.gates, end(args, json, &results, conducted))?;
    granted::check_points(&spec, &results).map(|()| ended)
}

impl TestArgs {
    /// A journal only for several runs with an output file: a single test is stored once it is complete.
    fn keeping(&self) -> Keeping<'_> {
        Keeping {
            output: self.output.as_deref().filter(|_| self.repeat > 1),
            resumes: !self.fresh,
            keeps_cut_short: true,
            failures_in_a_row_max: 1,
            ..Keeping::NOTHING
        }
    }
}

/// Tests whose intervals are printed as they arrive.
struct Watched {
    far: FarEnd,
    prints: bool,
    /// Whether each run is followed by its number and figures, because there are several.
    numbers: bool,
}

impl Driver for Watched {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let Some(spec) = planned.spec() else {
            let error = VerbError::failed("this work is not a test between two hosts");
            return Ok(Done::failed(planned, started_unix_ms, error));
        };
        let mut lines = IntervalLines::new(spec);
        let mut on_interval = |pair: &IntervalPair| {
            if self.prints {
                lines.print(pair);
            }
        };
        let ended = self.far.watch_test(spec, &mut on_interval, &|| signals::caught().is_some());
        let command = command_line(self.far.target(), spec);
        let why = ended.as_ref().err().map(far::explain);
        let (ended, cut_short) = match ended {
            Ok(outcome) => (Ok(outcome), None),
            Err(ClientError::CutShort { measured, .. }) => (Ok(*measured), why),
            Err(error) => (Err(far::explain(&error)), None),
        };
        if let (Ok(outcome), true) = (&ended, self.prints && self.numbers) {
            let text = summary::run(planned.repeat + 1, spec, outcome);
            crate::out::stdout().write_all(text.as_bytes()).ok();
        }
        let done = runner::tested(planned, started_unix_ms, command, ended);
        Ok(match cut_short {
            Some(error) => Done::cut_short(done.point, error),
            None => done,
        })
    }
}

/// Prints the results; without a measured test, only the reason.
fn end(args: &TestArgs, json: bool, results: &Results, conducted: Conducted) -> VerbResult {
    if results.points.iter().all(|point| point.measured().is_none()) {
        return ending::nothing(conducted, "nothing was measured");
    }
    let Conducted { ended, log } = conducted;
    // Some tests succeeded, so an error makes the result partial.
    let conducted = Conducted { ended: ended.map_err(VerbError::partial), log };
    let data = match (args.csv, args.openmetrics) {
        (true, _) => Some(export::csv(results)),
        (_, true) => Some(export::openmetrics(results)),
        _ => None,
    };
    let json = json || data.is_some();
    let outputs = Outputs { results: args.output.as_deref(), report: None, also: None, json };
    let text = shown(results, args) + &gates::line("gates      ", &results.gates);
    let said = Said { text, json: data.as_deref(), exit: Exit::Ok };
    ending::end(outputs, results, conducted, &said)
}

/// Applies the near end of a placement file to the test.
fn place_near(path: &Path, spec: &mut TestSpec) -> Result<Placement, VerbError> {
    let placement = placement::load(path)?;
    let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
    placement::check(path, End::Near, &placement.near, &usable)?;
    spec.near_cores.clone_from(&placement.near.cores);
    spec.first_port = spec.first_port.or(placement.near.first_port);
    Ok(placement)
}

/// Applies the far end of a placement file; a peer that does not report its cores may still refuse them.
fn place_far(
    path: &Path,
    placement: &Placement,
    host: Option<&HostFacts>,
    spec: &mut TestSpec,
) -> Result<(), VerbError> {
    if let Some(host) = host {
        placement::check(path, End::Far, &placement.far, &host.usable_cores)?;
    }
    spec.far_cores.clone_from(&placement.far.cores);
    Ok(())
}

fn shown(results: &Results, args: &TestArgs) -> String {
    let mut text = String::new();
    for point in &results.points {
        let Some((spec, outcome)) = point.tested() else { continue };
        if args.repeat == 1 {
            text.push_str(&summary::outcome(spec, outcome));
        }
        if args.verbose {
            text.push_str(&summary::details(spec, outcome, args.repeat == 1));
        }
    }
    if args.repeat > 1 {
        text.push_str(&summary::repeats(&results.summaries));
    }
    text
}
