//! `clearstream tune cc compare`: tests a path with one congestion control after another, then with two
//! concurrent flows, in an order that is shuffled for each round.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use results::{Point, Results, RunKind, TestLimit, TestSpec};
use sweep::{Experiment, Plan, PlannedPoint, Setting};

use super::figures::{self, Comparison};
use super::{AVAILABLE, pairs, setting};
use crate::VerbResult;
use crate::bed::TestBed;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::far::{FarEnd, Tests};
use crate::progress::Progress;
use crate::runner::{self, Done, Driver, Keeping};
use crate::signals;
use crate::store;
use crate::verbs::options::{ServerOptions, duration};

/// The lab to use if no host is named.
const LAB: &str = "shared";
/// Seed of the order of every round.
const SEED: u64 = 0x6874_6370;
/// Samples per test: enough to show the ramp.
const INTERVALS_MAX: f64 = 100.0;
/// Share of a paired test that is not measured, in which the flows converge.
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
    #[arg(long, alias = "repeat", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Leave out the tests of two flows beside each other.
    #[arg(long)]
    no_pairs: bool,
    /// Results file.
    #[arg(short, long, value_name = "FILE", default_value = "cc.json")]
    output: PathBuf,
    /// Report page [default: none].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(super) fn run(args: &CompareArgs, json: bool) -> VerbResult {
    let names = names(args)?;
    store::check_outputs([Some(&*args.output), args.report.as_deref()])?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let Some(host) = &args.host else {
        let bed = TestBed::up(LAB)?;
        bed.serve()?;
        let second = if args.no_pairs { None } else { Some(bed.tester()?) };
        return measure(&mut Flows::between(bed.tester()?, second), names, args, json);
    };
    let target = args.server.at(host);
    let second = if args.no_pairs { None } else { Some(FarEnd::connect(&target)?) };
    measure(&mut Flows::between(FarEnd::connect(&target)?, second), names, args, json)
}

/// The requested congestion controls; fails if this host lacks one.
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
        return Err(VerbError::missing("this host does not list its congestion controls"));
    }
    Ok(names)
}

fn measure(flows: &mut Flows, names: Vec<String>, args: &CompareArgs, json: bool) -> VerbResult {
    let mut progress = Progress::new(1);
    let mut results = flows.first.document(RunKind::Tune, &mut progress)?;
    let compared = Compared { plan: plan(&names, args), names };
    let keeping = Keeping::beside(&args.output);
    let conducted = runner::conduct(&compared, flows, keeping, &mut results, progress);
    let comparison = Comparison::of(&results, &compared.names);
    for note in &comparison.notes {
        writeln!(crate::out::stderr(), "clearstream: {note}").ok();
    }
    let failed = figures::failures(&results.points);
    let exit = if failed == 0 { Exit::Ok } else { Exit::Partial };
    let report = args.report.as_deref();
    let outputs = Outputs { results: Some(&args.output), report, also: None, json };
    let said = Said { text: shown(&comparison), json: None, exit };
    ending::end(outputs, &results, conducted, &said)
}

/// The experiment of `compare`: one congestion control after another, then pairs.
struct Compared {
    plan: Plan,
    names: Vec<String>,
}

impl Experiment for Compared {
    fn round(&self, number: u32, so_far: &Results) -> Option<Plan> {
        self.plan.round(number, so_far)
    }

    fn taken_up(&self, earlier: Vec<Point>) -> Vec<Point> {
        figures::whole(earlier)
    }

    fn conclude(&self, results: &mut Results, _is_complete: bool) {
        results.summaries = sweep::summarise(&results.points);
        let own = Comparison::of(results, &self.names).summaries();
        results.summaries.extend(own);
    }
}

/// The test client of a flow, and that of a second flow for the paired tests.
struct Flows {
    first: Box<dyn Tests>,
    second: Option<Box<dyn Tests>>,
}

impl Flows {
    fn between<T: Tests + 'static>(first: T, second: Option<T>) -> Self {
        let boxed = |tests: T| Box::new(tests) as Box<dyn Tests>;
        Self { first: boxed(first), second: second.map(boxed) }
    }
}

impl Driver for Flows {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let first = &mut *self.first;
        Ok(match (pairs::of(&planned.experiment), &mut self.second) {
            (Some((_, other)), Some(second)) => {
                pairs::measure(planned, &other, [first, &mut **second])
            }
            _ => figures::checked(runner::test(planned, first, &mut |_| {})),
        })
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

fn shown(comparison: &Comparison) -> String {
    let fit = |heading: String, rows: Vec<String>| {
        crate::tables::fit(&format!("{heading}\n{}", rows.concat()))
    };
    let heading = format!(
        "{:<12} {:<40} {:>11} {:>11}   round trip",
        "one flow", "throughput", "retransmits", "ramp to 90%"
    );
    let mut text = fit(heading, comparison.alone.iter().map(|row| format!("{row}\n")).collect());
    if !comparison.pairs.is_empty() {
        let heading =
            format!("{:<16} {:<15} {:<26} together", "two flows", "share of each", "Jain's index");
        text.push('\n');
        text += &fit(heading, comparison.pairs.iter().map(|row| format!("{row}\n")).collect());
    }
    text.push('\n');
    text
}
