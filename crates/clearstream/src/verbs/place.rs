//! `clearstream place`: sweeps the cores of a flow's two threads and recommends a placement.

mod advice;
mod heat;
mod screen;

use std::path::PathBuf;
use std::time::Duration;

use results::{Direction, Protocol, Results, RunKind, TestLimit, TestSpec};
use sweep::placement::{Effort, EndView, ROUNDS_COUNT, Survey, conclude};
use sweep::{Experiment, Plan, Setting};

use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::far::FarEnd;
use crate::placement::{cores_text, shares_machine};
use crate::progress::Progress;
use crate::runner::{self, Conducted, Keeping, Tested};
use crate::signals;
use crate::store;
use crate::verbs::options::{ApplicationOptions, TargetOptions, duration};

/// Default source port of the flow. It is always the same, below the range of ports that the kernel
/// assigns, so that the flow's hash and hence its queue do not change.
const PORT_DEFAULT: u16 = 25_201;

/// Most cores on which an end's interrupts are tried.
const INTERRUPT_CORES_MAX: usize = 4;

/// Options of `place`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream place geneva\n  \
    clearstream place geneva -R --cores 0-7 --far-cores 0,8,16\n  \
    clearstream test geneva --place placement.toml\n  \
    clearstream run --place placement.toml -- ./sender\n\n\
    Runs one flow, always from the same source port, with its threads on one pair of cores after\n\
    another, and unpinned in between. --cores and --far-cores name the cores to choose from. Of each\n\
    group of cores at equal distances from the flow's queue and the network card, one is measured\n\
    first; the best groups are then measured again. Ctrl-C ends the sweep; the same command resumes\n\
    it. A placement is advised only if it beats unpinned by more than the noise; otherwise the advice\n\
    is not to pin.")]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    application: ApplicationOptions,
    /// The far end sends.
    #[arg(short = 'R', long, conflicts_with = "rr")]
    reverse: bool,
    /// Compare round trips of one byte instead of throughput.
    #[arg(long)]
    rr: bool,
    /// Time for which each test measures.
    #[arg(short = 't', long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    duration: Duration,
    /// Time at the start of each test that is left out of its result.
    #[arg(short = 'O', long, value_name = "TIME", default_value = "300ms", value_parser = duration)]
    omit: Duration,
    /// Repeats of every placement in the first round.
    #[arg(long, alias = "repeat", value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Maximum number of tests.
    #[arg(long, value_name = "N", default_value_t = 120,
          value_parser = clap::value_parser!(u32).range(8..=100_000))]
    budget: u32,
    /// Test every pair of cores, regardless of --budget.
    #[arg(long)]
    all: bool,
    /// Tests of half a second, three repeats, no second round.
    #[arg(long, conflicts_with_all = ["duration", "repeats", "all"])]
    quick: bool,
    /// Also vary the core that receives the packets: that end's receive interrupts or NAPI threads
    /// are moved for each test and moved back after it; the far end must run `clearstream serve
    /// --allow-interrupt-moves`.
    #[arg(long, value_enum, value_name = "END")]
    move_interrupts: Option<EndsOption>,
    /// Results file; an interrupted sweep is resumed from the journal beside this file.
    #[arg(short, long, value_name = "FILE", default_value = "placement.json")]
    output: PathBuf,
    /// Placement file for `test --place` and `run --place`.
    #[arg(long, value_name = "FILE", default_value = "placement.toml")]
    save: PathBuf,
    /// Report page with the heat map [default: none].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Start over even if the same sweep was interrupted.
    #[arg(long)]
    fresh: bool,
}

pub(crate) fn run(args: &PlaceArgs, json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    store::check_outputs([Some(&*args.output), Some(&*args.save), args.report.as_deref()])?;
    let (spec, wanted) = args.spec();
    let mut far = FarEnd::connect(&args.target.target())?;
    if far.is_iperf3() {
        return Err(VerbError::failed(format!(
            "{}: an iperf3 server reports neither its cores nor the core that receives a flow; run \
             `clearstream serve` there",
            far.target()
        )));
    }
    let mut progress = Progress::new(1);
    let mut results = far.describe(RunKind::Place, &mut progress);
    let cores = Candidates::of(&results, &wanted)?;
    crate::granted::check(&spec, &results)?;
    let placements = Placements { args, cores, spec };
    let keeping = Keeping { resumes: !args.fresh, ..Keeping::beside(&args.output) };
    let mut driver = Tested(&mut far);
    let conducted = runner::conduct(&placements, &mut driver, keeping, &mut results, progress);
    conclude_run(args, json, results, conducted, &far)
}

/// The experiment of `place`: tests pairs of cores.
struct Placements<'a> {
    args: &'a PlaceArgs,
    cores: Candidates,
    spec: TestSpec,
}

impl Experiment for Placements<'_> {
    fn round(&self, number: u32, so_far: &Results) -> Option<Plan> {
        // An intermediate round may have nothing to measure.
        let plan = |survey: Survey<'_>| survey.round(number, &so_far.points);
        let none = || Plan::new(Vec::new(), 1, 0);
        (number < ROUNDS_COUNT).then(|| plan(self.survey(so_far)).unwrap_or_else(none))
    }

    fn identity(&self, so_far: &Results) -> Option<Plan> {
        let (cores, survey) = (&self.cores, self.survey(so_far));
        let identity = Setting::new(sweep::placement::EXPERIMENT, survey.spec.clone())
            .varying("near_cores_count", cores.near.len() as f64)
            .varying("far_cores_count", cores.far.len() as f64)
            .varying("near_interrupt_cores_count", survey.near_interrupt_cores.len() as f64)
            .varying("far_interrupt_cores_count", survey.far_interrupt_cores.len() as f64);
        Some(Plan::new(vec![identity], survey.effort.repeats, u64::from(self.args.budget)))
    }

    fn conclude(&self, results: &mut Results, _is_complete: bool) {
        results.placement = conclude(&self.survey(results), &results.points);
        results.summaries = sweep::summarise(&results.points);
        results.changes = advice::changes(&results.points);
    }
}

impl Placements<'_> {
    fn survey<'a>(&'a self, results: &'a Results) -> Survey<'a> {
        self.args.survey(results, &self.cores, self.spec.clone())
    }
}

/// Writes the files, prints the result, and decides the exit code.
fn conclude_run(
    args: &PlaceArgs,
    json: bool,
    mut results: Results,
    conducted: Conducted,
    far: &FarEnd,
) -> VerbResult {
    let Some(found) = &results.placement else {
        return ending::nothing(conducted, &nothing_measured(&results));
    };
    // An interrupted sweep has tested only some placements: it recommends nothing, and the placement file
    // of an earlier sweep is kept.
    let is_whole = results.partial.is_none();
    let lines = if is_whole {
        let placement = advice::placement(&results, found);
        store::replace(&args.save, placement.to_text().as_bytes())?;
        advice::lines(&results, found, far.target(), &args.save)
    } else {
        vec!["none: the sweep was cut short".to_owned()]
    };
    results.placement.iter_mut().for_each(|found| found.advice.clone_from(&lines));
    let outputs = Outputs {
        results: Some(&args.output),
        also: is_whole.then_some(args.save.as_path()),
        report: args.report.as_deref(),
        json,
    };
    let text = format!("{}\n", screen::show(&results));
    ending::end(outputs, &results, conducted, &Said { text, json: None, exit: Exit::Ok })
}

/// Why there is no figure: the reason the last failed test gave.
fn nothing_measured(results: &Results) -> String {
    let last = results.points.iter().rev().find_map(|point| match &point.outcome {
        results::PointOutcome::Failed(reason) => Some(reason.as_str()),
        _ => None,
    });
    format!("no placement could be measured: {}", last.unwrap_or("no test was run"))
}

/// The cores to choose from.
struct Candidates {
    near: Vec<u32>,
    far: Vec<u32>,
}

impl Candidates {
    fn of(results: &Results, wanted: &TestSpec) -> Result<Self, VerbError> {
        let far_host = results.far();
        let choose = |wanted: &[u32], usable: &[u32], end: &str| -> Result<Vec<u32>, VerbError> {
            if usable.is_empty() {
                return Err(VerbError::failed(format!("the {end} end does not report its cores")));
            }
            if let Some(core) = wanted.iter().find(|core| !usable.contains(core)) {
                let usable = cores_text(usable);
                return Err(VerbError::usage(format!(
                    "core {core} is not usable at the {end} end; usable cores: {usable}"
                )));
            }
            Ok(if wanted.is_empty() { usable.to_vec() } else { wanted.to_vec() })
        };
        let far_usable = far_host.map_or(&[][..], |host| &host.usable_cores);
        Ok(Self {
            near: choose(&wanted.near_cores, &results.near().usable_cores, "near")?,
            far: choose(&wanted.far_cores, far_usable, "far")?,
        })
    }
}

impl PlaceArgs {
    /// The sweep's test without cores, and the user's test with the cores named in it.
    fn spec(&self) -> (TestSpec, TestSpec) {
        let wanted = self.application.spec();
        let duration_s = if self.quick { 0.5 } else { self.duration.as_secs_f64() };
        let base = if self.rr {
            TestSpec {
                nodelay: true,
                request_response: TestSpec::request_response(Protocol::Tcp, 1, 1).request_response,
                ..wanted.clone()
            }
        } else {
            wanted.clone()
        };
        let spec = TestSpec {
            direction: if self.reverse { Direction::Reverse } else { Direction::Forward },
            limit: TestLimit::DurationS(duration_s),
            omit_s: if self.quick { 0.2 } else { self.omit.as_secs_f64() },
            interval_s: (duration_s / 4.0).clamp(0.05, 1.0),
            near_cores: Vec::new(),
            far_cores: Vec::new(),
            near_interrupt_core: None,
            far_interrupt_core: None,
            first_port: wanted.first_port.or(Some(PORT_DEFAULT)),
            ..base
        };
        (spec, wanted)
    }

    fn effort(&self) -> Effort {
        Effort {
            repeats: if self.quick { 3 } else { self.repeats },
            points_max: self.budget,
            is_exhaustive: self.all,
            refines: !self.quick,
        }
    }

    fn survey<'a>(
        &self,
        results: &'a Results,
        cores: &'a Candidates,
        spec: TestSpec,
    ) -> Survey<'a> {
        let view = |host: &'a results::HostFacts, usable_cores: &'a [u32]| EndView {
            machine: host.machine.as_ref(),
            usable_cores,
            interface: host.interface.as_ref().map(|interface| interface.name.as_str()),
        };
        let far = results.far().unwrap_or(results.near());
        Survey {
            near: view(results.near(), &cores.near),
            far: view(far, &cores.far),
            shares_machine: shares_machine(results),
            spec,
            effort: self.effort(),
            near_interrupt_cores: self.interrupt_cores(EndsOption::Near, &cores.near),
            far_interrupt_cores: self.interrupt_cores(EndsOption::Far, &cores.far),
        }
    }

    /// Cores on which to try an end's interrupts: a few, spread over all of its cores.
    fn interrupt_cores(&self, end: EndsOption, cores: &[u32]) -> Vec<u32> {
        let both = EndsOption::Both;
        let wanted = self.move_interrupts.is_some_and(|ends| ends == both || ends == end);
        let step = cores.len().div_ceil(INTERRUPT_CORES_MAX).max(1);
        if wanted { cores.iter().copied().step_by(step).collect() } else { Vec::new() }
    }
}

/// Ends whose interrupts are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum EndsOption {
    /// This end's.
    Near,
    /// The far end's.
    Far,
    /// Both.
    Both,
}
