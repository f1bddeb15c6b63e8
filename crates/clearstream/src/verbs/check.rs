//! `clearstream check`: does a DVE model keep its promises?

mod document;
mod launch;
mod model;
mod show;
mod simulate;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use checker::{Bounds, CheckError, Formulas, Options, Ranks, Report, Verdict};
use crew::MpiError;
use dve::Model;
use results::{NEAR, Point, Worker};
use statespace::Kept;
use sweep::{Plan, PlannedPoint, Setting};

use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{self, Exit, VerbError};
use crate::progress::Progress;
use crate::runner::{self, Conducted, Done, Driver, Ended, Keeping};
use crate::signals;
use crate::verbs::options;
use model::{Given, read};
use show::Terminal;

/// Options of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream check adding.3.dve                     deadlocks, assertions, run-time errors\n  \
    clearstream check phils.dve --ltl 'G F {P_0.eat}'  a formula over the model's expressions\n  \
    clearstream check phils.dve --ltl phils.ltl        every #property of a file\n  \
    clearstream check ring.mdve -D N=5                 a model with parameters\n  \
    clearstream check --example                        lists the models that come with the program\n  \
    clearstream check --example peterson --print       one of them, its text\n  \
    clearstream check adding.3.dve --ranks 2           by two ranks, each a thread\n  \
    clearstream check adding.3.dve --hosts a,b         by two hosts, over MPI\n  \
    mpirun -n 8 clearstream check adding.3.dve         as a job of your own\n\n\
    A model with a property process of its own is checked for that one.\n\
    Exit codes: 0 holds, 10 violated, 11 undecided (memory, time, interrupted), 2 bad model.")]
pub(crate) struct CheckArgs {
    /// Model in the DVE language; a .mdve file is expanded first.
    #[arg(value_name = "MODEL.dve", required_unless_present = "example")]
    model: Option<PathBuf>,
    /// A model that comes with the program; without a name they are listed.
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with = "model")]
    #[allow(clippy::option_option, reason = "absent, without a name, with one")]
    example: Option<Option<String>>,
    /// Print the example's text instead of searching it.
    #[arg(long, requires = "example")]
    print: bool,
    /// A parameter of the .mdve file; may be given more than once.
    #[arg(short = 'D', long, value_name = "NAME=VALUE", value_parser = parameter)]
    define: Vec<(String, String)>,
    /// Formula, or a .ltl file of #define and #property lines.
    #[arg(long, value_name = "FORMULA|FILE")]
    ltl: Option<String>,
    /// Only runs that leave no process out for ever: weak, no process that could always move; strong,
    /// none that could move again and again.
    #[arg(long, value_name = "KIND", value_enum)]
    fairness: Option<Fairness>,
    /// A state without a step is no violation.
    #[arg(long)]
    allow_deadlock: bool,
    /// Search on after a violation, for the whole state space and its unreachable code.
    #[arg(long, conflicts_with = "ltl")]
    full: bool,
    /// Leave out interleavings that make no difference, by partial-order reduction (no X in
    /// formulas).
    #[arg(long, conflicts_with_all = ["full", "fairness"])]
    reduce: bool,
    /// Keep 64 bits of a state: a third less memory with one rank, may miss errors.
    #[arg(long, conflicts_with_all = ["ltl", "full", "fairness", "bitstate"])]
    hash_compaction: bool,
    /// Keep three bits of a state in a table of this size, which ranks share out: may miss errors.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_byte_size, conflicts_with_all = ["ltl", "full", "fairness"])]
    bitstate: Option<u64>,
    /// Write an undecided search here, and a long one every 10 minutes (no formula). With many ranks
    /// each writes a part of its own beside it, FILE.a0, FILE.a1 … or FILE.b0 …, on its own host.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Go on with the search in this file, of the same model, options and number of ranks.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// End undecided when the states take more memory than this.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_byte_size)]
    memory: Option<u64>,
    /// End undecided after this long.
    #[arg(long, value_name = "TIME", value_parser = options::duration)]
    time: Option<Duration>,
    /// Search with so many ranks. Without --hosts they are threads of this process, over one set of
    /// states (for formulas, each with its share of them); with --hosts, processes of an MPI job.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: Option<u16>,
    /// Search on these hosts, by default with one rank each: starts itself there with mpirun (Open MPI
    /// or MPICH). Under a launcher of your own neither this nor --ranks is needed.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Bind each rank to a core: a physical core of its own while they last, packages in turn. With
    /// --hosts that is so anyway; in a job of your own your launcher's binding comes first.
    #[arg(long)]
    bind: bool,
    /// Ranks that are threads keep their states apart and send each other messages, as a job's do.
    #[arg(long, conflicts_with = "hosts")]
    messages: bool,
    /// The launcher for --hosts.
    #[arg(long, value_name = "PROGRAM", default_value = "mpirun", requires = "hosts")]
    mpirun: PathBuf,
    /// Write the results here, for `clearstream report`: verdict, run, figures, progress over time.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw a violation's run here, a line for each process (SVG).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Step through the model by hand.
    #[arg(long, conflicts_with_all = ["full", "ltl", "memory", "time", "ranks", "hosts"])]
    simulate: bool,
}

/// Whom a run must not leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Fairness {
    Weak,
    Strong,
}

/// Runs the verb.
pub(crate) fn run(args: &CheckArgs, json: bool) -> VerbResult {
    let ranks_count = ranks_count(args);
    if !args.hosts.is_empty() {
        return launch::run(&args.mpirun, &args.hosts, ranks_count);
    }
    let machine = args.bind.then(topology::machine);
    let ranks = Ranks::new(ranks_count, machine.as_ref(), args.messages);
    let mut ranks = ranks.map_err(|error| match error {
        MpiError::NoLibrary { .. } => VerbError::missing(error),
        _ => VerbError::from_error(&error),
    })?;
    let result = if ranks.leads() { check(args, json, &mut ranks) } else { serve(&mut ranks) };
    if !ranks.is_job() {
        return result;
    }
    // All must have been said by then: MPI may not let go of its processes.
    let code = exit::settle(result);
    ranks.leave(code, || signals::caught().is_some());
    Ok(Exit::Program(code))
}

/// What ranks other than 0 do.
fn serve(ranks: &mut Ranks) -> VerbResult {
    // Launchers signal all ranks; rank 0 ends the search, in which all have their say.
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    ranks.serve()?;
    Ok(Exit::Ok)
}

/// What rank 0 does.
fn check(args: &CheckArgs, json: bool, ranks: &mut Ranks) -> VerbResult {
    if let Some(None) = args.example {
        return model::list_examples(json);
    }
    let given = Given::new(args)?;
    if args.print {
        write!(crate::out::stdout(), "{}", given.text)?;
        return Ok(Exit::Ok);
    }
    let (text, name) = given.expanded(&args.define)?;
    let path = given.path;
    let model = Model::parse(&text).map_err(|error| VerbError::usage(format!("{name}:{error}")))?;
    for warning in model.warnings() {
        show::talk(&format!("{name}:{warning}"));
    }
    if args.simulate {
        return simulate::run(&model);
    }
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let mut results = document::begun();
    let options = asked(args);
    options.validate(&model, args.ltl.is_some())?;
    let formulas = args.ltl.as_deref().map(formulas).transpose()?;
    let work = document::work(&path, None, ranks_count(args));
    let plan = Plan::new(vec![Setting::new(EXPERIMENT, work)], 1, 0);
    let mut search =
        Search { path: &path, model: &model, formulas, options, ranks, reports: Vec::new() };
    // A search has checkpoints of its own; what a signal leaves of it is an undecided verdict.
    let keeping = Keeping { keeps_cut_short: true, ..Keeping::NOTHING };
    let progress = Progress::new(0);
    let conducted = runner::conduct(&plan, &mut search, keeping, &mut results, progress);
    let reports = search.reports;
    if reports.is_empty() {
        return ending::nothing(conducted, "nothing was checked");
    }
    let conducted = Conducted { ended: conducted.ended.map(|_any| Ended::Complete), log: None };
    results.check = Some(document::found(&path, &reports));
    let drawn = draw(args, &reports);
    let told = show::json(&path, &reports);
    let exit = worst(&reports);
    let said = Said { text: show::reports(&path, &reports), json: Some(&told), exit };
    let results_file = args.output.as_deref();
    let outputs = Outputs { results: results_file, report: None, also: None, json };
    let ended = ending::end(outputs, &results, conducted, &said)?;
    drawn.map(|()| ended)
}

/// What the points of a check are called.
const EXPERIMENT: &str = "check";

fn ranks_count(args: &CheckArgs) -> usize {
    args.ranks.map_or(args.hosts.len().max(1), usize::from)
}

/// One search by all ranks, of which a report comes for each of what is checked.
struct Search<'a> {
    path: &'a Path,
    model: &'a Model,
    formulas: Option<Formulas>,
    options: Options,
    ranks: &'a mut Ranks,
    reports: Vec<Report>,
}

impl Driver for Search<'_> {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let Self { path, model, formulas, options, ranks, .. } = self;
        let mut terminal = Terminal(progress);
        self.reports = checker::check(model, formulas.as_ref(), options, ranks, &mut terminal)?;
        let point = |report: &Report| {
            let ranks_count = report.ranks.map_or(1, |traffic| traffic.ranks_count);
            let planned = PlannedPoint {
                experiment: format!("{EXPERIMENT}: {}", report.what),
                work: document::work(path, Some(&report.what), ranks_count),
                ..planned.clone()
            };
            let outcome = document::outcome(report);
            let mut point = Done::measured(&planned, started_unix_ms, outcome).point;
            let (host, part) = (NEAR.to_owned(), "search".to_owned());
            point.by = vec![Worker { host, part, cores: Vec::new() }];
            point
        };
        let mut points: Vec<Point> = self.reports.iter().map(point).collect();
        let none = || VerbError::failed("the search reports nothing");
        let last = points.pop().ok_or_else(none)?;
        Ok(Done { beside: points, ..Done::of(last, None) })
    }
}

/// Draws the first violation's run, where that is asked for.
fn draw(args: &CheckArgs, reports: &[Report]) -> Result<(), VerbError> {
    let (Some(path), Some(drawing)) = (&args.svg, show::drawing(reports)) else { return Ok(()) };
    sys::private::create(path)
        .and_then(|mut file| file.write_all(drawing.as_bytes()))
        .map_err(|error| VerbError::failed(format!("{}: {error}", path.display())))
}

/// The options as the checker takes them.
fn asked(args: &CheckArgs) -> Options {
    let kept = match args.bitstate {
        Some(bytes) => {
            Some(Kept::Bits { table_bytes: usize::try_from(bytes).unwrap_or(usize::MAX) })
        }
        None => args.hash_compaction.then_some(Kept::Hash),
    };
    let fairness = args.fairness.map(|kind| match kind {
        Fairness::Weak => statespace::Fairness::Weak,
        Fairness::Strong => statespace::Fairness::Strong,
    });
    Options {
        fairness,
        allow_deadlock: args.allow_deadlock,
        is_full: args.full,
        kept,
        checkpoint: args.checkpoint.clone(),
        resume: args.resume.clone(),
        bounds: Bounds { memory_bytes: args.memory, time: args.time, is_reduced: args.reduce },
    }
}

impl From<CheckError> for VerbError {
    fn from(error: CheckError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::from_error(&error) }
    }
}

/// A file of formulas, else the formula itself.
fn formulas(given: &str) -> Result<Formulas, VerbError> {
    let path = Path::new(given);
    // No formula ends like that: a file that is not there says so.
    if !path.is_file() && !given.ends_with(".ltl") {
        return Ok(Formulas::parse(given)?);
    }
    Ok(Formulas::parse_file(given, &read(path)?)?)
}

/// `NAME=VALUE`
fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// Violated before undecided before holds.
fn worst(reports: &[Report]) -> Exit {
    let is = |wanted: fn(&Verdict) -> bool| reports.iter().any(|report| wanted(&report.verdict));
    if is(|verdict| matches!(verdict, Verdict::Violated { .. })) {
        Exit::Violated
    } else if is(|verdict| matches!(verdict, Verdict::Undecided(_))) {
        Exit::Undecided
    } else {
        Exit::Ok
    }
}
