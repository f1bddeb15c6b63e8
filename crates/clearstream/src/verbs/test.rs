//! `clearstream test`: one test, shown while it runs and accounted for at its end.

mod lines;
mod summary;

use std::io::Write;
use std::path::{Path, PathBuf};

use results::{End, HostFacts, Placement, Results, RunKind, TestSpec};
use sweep::{Plan, PlannedPoint, Setting};
use traffic::client::IntervalPair;

use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::far::{self, FarEnd};
use crate::placement;
use crate::progress::Progress;
use crate::runner::{self, Conducted, Done, Driver, Keeping};
use crate::signals;
use crate::verbs::options::{TargetOptions, TestOptions, command_line};
use lines::IntervalLines;

/// Options of `test`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  clearstream test geneva -P 4 -t 30s -w 40M --latency\n  \
    clearstream test geneva -u -b 5G -l 8900 -R          UDP, the far end sends\n  \
    clearstream test geneva --rr                         TCP_RR, one byte each way\n  \
    clearstream test geneva --place placement.toml       on the cores `place` found\n\n\
    The figure to quote is the receiver's. Ctrl-C ends the test and prints what there is; of several\n\
    repeats with --output the same command then makes those that are left.")]
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
    /// Begin anew even if the same repeats were cut short.
    #[arg(long, requires = "output")]
    fresh: bool,
}

/// What the points of a test are called.
const EXPERIMENT: &str = "test";

/// Runs the verb.
pub(crate) fn run(args: &TestArgs, json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let (target, mut spec) = (args.target.target(), args.test.spec()?);
    let placement = args.place.as_ref().map(|path| place_near(path, &mut spec)).transpose()?;
    let mut far_end = FarEnd::connect(&target)?;
    let mut results = far_end.describe(RunKind::Test, &mut Progress::new(1));
    if let (Some(path), Some(placement)) = (&args.place, placement) {
        place_far(path, &placement, results.far(), &mut spec)?;
    }
    if !json {
        writeln!(crate::out::stderr(), "{}", summary::heading(&target, &results, &spec)).ok();
    }
    // In an order of one setting nothing is shuffled.
    let plan = Plan::new(vec![Setting::new(EXPERIMENT, spec)], args.repeat, 0);
    let mut driver = Watched { far: far_end, prints: !json };
    let conducted =
        runner::conduct(&plan, &mut driver, args.keeping(), &mut results, Progress::new(0));
    end(args, json, &results, conducted)
}

impl TestArgs {
    /// A single test is over when it is on disk; several are journalled where there is a file.
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

/// Tests whose intervals are printed as they come.
struct Watched {
    far: FarEnd,
    prints: bool,
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
            let error = VerbError::failed("this work is no test between two hosts");
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
        let ended = ended.map_err(|error| far::explain(&error));
        Ok(runner::tested(planned, started_unix_ms, command, ended))
    }
}

/// Prints what there is; without a measured test only why.
fn end(args: &TestArgs, json: bool, results: &Results, conducted: Conducted) -> VerbResult {
    if results.points.iter().all(|point| point.measured().is_none()) {
        return ending::nothing(conducted, "nothing was measured");
    }
    let Conducted { ended, log } = conducted;
    // Some of it was done.
    let conducted = Conducted { ended: ended.map_err(VerbError::partial), log };
    let text = shown(results, args.repeat);
    let outputs = Outputs { results: args.output.as_deref(), report: None, also: None, json };
    ending::end(outputs, results, conducted, &Said { text, json: None, exit: Exit::Ok })
}

/// The near end of a placement file, laid over the test.
fn place_near(path: &Path, spec: &mut TestSpec) -> Result<Placement, VerbError> {
    let placement = placement::load(path)?;
    let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
    placement::check(path, End::Near, &placement.near, &usable)?;
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
        placement::check(path, End::Far, &placement.far, &host.usable_cores)?;
    }
    spec.far_cores.clone_from(&placement.far.cores);
    Ok(())
}

fn shown(results: &Results, repeats: u32) -> String {
    let mut text = String::new();
    for point in &results.points {
        let Some((spec, outcome)) = point.tested() else { continue };
        let number = (repeats > 1).then_some(point.repeat + 1);
        text.push_str(&summary::outcome(spec, outcome, number));
    }
    if repeats > 1 {
        text.push_str(&summary::repeats(&results.summaries));
    }
    text
}
