//! `clearstream check`: checks whether a DVE model satisfies its properties.

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
use statespace::LossyStorage;
use sweep::{Plan, PlannedPoint, Setting};

use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{self, Exit, VerbError, complain};
use crate::progress::Progress;
use crate::runner::{self, Conducted, Done, Driver, Ended, Keeping};
use crate::signals;
use crate::store;
use crate::typed;
use crate::verbs::options;
use model::{Given, read};
use show::Terminal;

/// Headings of the options in the help.
const PROPERTIES: &str = "Properties";
const SEARCH: &str = "Search";
const RANKS: &str = "Many ranks";
const OUTPUT: &str = "Output";

/// Options of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream check mutex.dve                        deadlocks, assertions, run-time errors\n  \
    clearstream check mutex.dve --ltl 'G F {P_0.critical}'\n  \
    clearstream check mutex.dve --ltl mutex.ltl        every #property line of a file\n  \
    clearstream check ring.mdve -D N=5                 a model with a parameter\n  \
    clearstream check --example                        list the models that come with the program\n  \
    clearstream check --example peterson --print       print one of them\n  \
    clearstream check --example peterson               check it\n  \
    clearstream check mutex.dve --simulate             choose the transitions yourself\n  \
    clearstream check mutex.dve --ranks 2              search with two threads\n  \
    clearstream check mutex.dve --hosts a,b            search with two hosts, over MPI\n  \
    mpirun -n 8 clearstream check mutex.dve            search with an MPI job of your own\n\n\
    Formulas: propositions are expressions of the model in braces, {x == 1} or {PROCESS.STATE};\n\
    operators are G F X U W R ! && || -> <->, or SPIN's [] <> V and words (always, until, ...).\n\
    If a model has a property process, that property is checked.\n\n\
    More: `clearstream help dve` (the language), `clearstream help checking` (searches, formulas),\n\
    `clearstream help checking-tutorial`.\n\n\
    Exit codes: 0 holds, 10 violated, 11 undecided (memory, time, interrupted),\n\
    2 invalid model, formula or options.")]
pub(crate) struct CheckArgs {
    /// The model, in the DVE language; a .mdve file is expanded first; `-` reads standard input.
    #[arg(value_name = "MODEL.dve")]
    model: Option<PathBuf>,
    /// Use a model that comes with the program; without a name, list them.
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with = "model")]
    #[allow(clippy::option_option, reason = "absent, without a name, with one")]
    example: Option<Option<String>>,
    /// Print the example instead of checking it.
    #[arg(long, requires = "example")]
    print: bool,
    /// Set a parameter of the .mdve file; may be repeated.
    #[arg(short = 'D', long, value_name = "NAME=VALUE", value_parser = parameter)]
    define: Vec<(String, String)>,
    /// Step through the model interactively.
    #[arg(long, conflicts_with_all = ["full", "ltl", "memory", "time", "ranks", "hosts"])]
    simulate: bool,
    /// Check an LTL formula, or the #property lines of a .ltl file.
    #[arg(long, value_name = "FORMULA|FILE", help_heading = PROPERTIES)]
    ltl: Option<String>,
    /// Check the formula on fair runs only. weak: no process is enabled forever without moving; strong: no
    /// process is enabled infinitely often without moving.
    #[arg(long, value_name = "KIND", value_enum, help_heading = PROPERTIES)]
    fairness: Option<Fairness>,
    /// Do not report deadlocks.
    #[arg(long, help_heading = PROPERTIES)]
    allow_deadlock: bool,
    /// Search all states, even after a violation, and list unreachable code.
    #[arg(long, conflicts_with = "ltl", help_heading = PROPERTIES)]
    full: bool,
    /// Skip interleavings that cannot change the verdict (partial-order reduction; formulas without X).
    #[arg(long, conflicts_with_all = ["full", "fairness"], help_heading = SEARCH)]
    reduce: bool,
    /// Store a 64-bit hash of each state: with one rank, a third less memory; may miss errors.
    #[arg(long, conflicts_with_all = ["ltl", "full", "fairness", "bitstate"], help_heading = SEARCH)]
    hash_compaction: bool,
    /// Store three bits of each state in a table of this size, divided among ranks; may miss
    /// errors.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_byte_size, conflicts_with_all = ["ltl", "full", "fairness"], help_heading = SEARCH)]
    bitstate: Option<u64>,
    /// Save an undecided search to this file, and a running one every 10 minutes (not for formulas). With
    /// many ranks, each saves its part on its own host, as FILE.a0, FILE.a1 ... or FILE.b0 ...
    #[arg(long, value_name = "FILE", help_heading = SEARCH)]
    checkpoint: Option<PathBuf>,
    /// Continue the search saved in this file, with the same model, options and number of ranks.
    #[arg(long, value_name = "FILE", help_heading = SEARCH)]
    resume: Option<PathBuf>,
    /// Stop, undecided, before states and tables take more memory than this, for example 4G. Formulas,
    /// --hash-compaction and --messages notice it after the step that exceeds it.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_byte_size, help_heading = SEARCH)]
    memory: Option<u64>,
    /// Stop, undecided, after this time, for example 90s or 10m.
    #[arg(long, value_name = "TIME", value_parser = options::duration, help_heading = SEARCH)]
    time: Option<Duration>,
    /// Search with this many ranks. Without --hosts they are threads that share one set of states (for
    /// formulas, each has its own part); with --hosts, the same threads on each host, which exchange messages
    /// between hosts (for formulas, processes of an MPI job).
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = RANKS)]
    ranks: Option<u16>,
    /// Search on these hosts, by default with one rank on each: mpirun starts this program there
    /// (Open MPI or MPICH). Under a launcher of your own, neither this option nor --ranks is
    /// needed.
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = RANKS)]
    hosts: Vec<String>,
    /// Threads of each process of an MPI job (--hosts, or a launcher of your own). They share one set of states; messages go
    /// between processes only. For searches that partition the states (see --messages), start more processes instead.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = RANKS)]
    threads: Option<u16>,
    /// Bind each rank to its own physical core as long as there are enough, alternating between
    /// packages. --hosts implies it; in a job of your own, the launcher's binding takes precedence.
    #[arg(long, help_heading = RANKS)]
    bind: bool,
    /// The command line that the user typed, from the program that started the ranks.
    #[arg(long, hide = true, value_name = "WORDS")]
    typed: Option<String>,
    /// Let ranks keep separate sets of states and exchange messages, threads too, as they do for formulas.
    #[arg(long, help_heading = RANKS)]
    messages: bool,
    /// The launcher for --hosts.
    #[arg(long, value_name = "PROGRAM", default_value = "mpirun", requires = "hosts", help_heading = RANKS)]
    mpirun: PathBuf,
    /// Write the results (verdict, counterexample, progress) to this file, for `clearstream report`.
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Draw the counterexample, if there is one, as a sequence chart (SVG).
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    svg: Option<PathBuf>,
}

/// Which runs are fair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Fairness {
    Weak,
    Strong,
}

pub(crate) fn run(args: &CheckArgs, json: bool) -> VerbResult {
    if args.model.is_none() && args.example.is_none() {
        return Err(VerbError::usage(
            "no model: name a file, or a built-in model with --example NAME (`clearstream check \
             --example` lists them)",
        ));
    }
    let (ranks, threads) = (args.ranks.map(usize::from), args.threads.map(usize::from));
    if !args.hosts.is_empty() {
        let shape = launch::Shape::of(args.hosts.len(), ranks, threads, || can_share(args));
        return launch::run(&args.mpirun, &args.hosts, shape);
    }
    let (ranks_count, threads_count) = (ranks_count(args), threads.unwrap_or(1));
    let machine = args.bind.then(topology::machine);
    let ranks = Ranks::new((ranks_count, threads_count), machine.as_ref(), args.messages);
    let mut ranks = ranks.map_err(|error| match error {
        MpiError::NoLibrary { .. } => VerbError::missing(error),
        _ => VerbError::from_error(&error),
    })?;
    let result = if ranks.leads() { check(args, json, &mut ranks) } else { serve(&mut ranks) };
    if !ranks.is_job() {
        return result;
    }
    // All ranks must have printed by now: MPI may not return control to them.
    let code = exit::settle(result);
    ranks.leave(code, || signals::caught().is_some());
    Ok(Exit::Program(code))
}

/// The work of every rank but rank 0.
fn serve(ranks: &mut Ranks) -> VerbResult {
    // Launchers send a signal to all ranks; rank 0 ends the search, and all agree on that.
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    ranks.serve()?;
    Ok(Exit::Ok)
}

/// The work of rank 0.
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
    let model = Model::parse_or_errors(&text).map_err(|mut errors| {
        let last = errors.pop();
        for error in errors {
            complain(&format!("{name}:{error}"));
        }
        VerbError::usage(last.map_or_else(String::new, |last| format!("{name}:{last}")))
    })?;
    for warning in model.warnings() {
        show::talk(&format!("{name}:{warning}"));
    }
    if args.simulate {
        if path.as_os_str() == "-" {
            let text = "--simulate reads steps from standard input, so the model must be a file";
            return Err(VerbError::usage(text));
        }
        return simulate::run(&model);
    }
    let [output, svg] = [args.output.as_deref(), args.svg.as_deref()];
    store::check_outputs([output, svg, args.checkpoint.as_deref()])?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let typed = args.typed.as_deref().map(typed::words).transpose().map_err(VerbError::usage)?;
    let mut results = document::begun(typed.as_deref());
    let options = asked(args);
    options.validate(&model, args.ltl.is_some())?;
    let formulas = args.ltl.as_deref().map(formulas).transpose()?;
    let work = document::work(&path, None, ranks_count(args));
    let plan = Plan::new(vec![Setting::new(EXPERIMENT, work)], 1, 0);
    let mut search =
        Search { path: &path, model: &model, formulas, options, ranks, reports: Vec::new() };
    // A search has its own checkpoints; after a signal its verdict is `undecided`, which is stored.
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
    let also = args.svg.as_deref().filter(|_| matches!(drawn, Ok(true)));
    let outputs = Outputs { results: results_file, report: None, also, json };
    let ended = ending::end(outputs, &results, conducted, &said)?;
    drawn.map(|_is_drawn| ended)
}

/// Name of the experiment that a check's points belong to.
const EXPERIMENT: &str = "check";

fn ranks_count(args: &CheckArgs) -> usize {
    args.ranks.map_or(args.hosts.len().max(1), usize::from)
}

/// Whether the threads of a process can share one set of states: not for formulas, lossy storage and checkpoints. A model
/// that cannot be read is for rank 0 to complain about.
fn can_share(args: &CheckArgs) -> bool {
    let is_partitioned = args.messages
        || args.ltl.is_some()
        || args.hash_compaction
        || args.bitstate.is_some()
        || args.checkpoint.is_some()
        || args.resume.is_some();
    let has_property = || {
        let text = Given::new(args).and_then(|given| given.expanded(&args.define)).ok();
        let model = text.and_then(|(text, _)| Model::parse(&text).ok());
        model.is_none_or(|model| model.has_property())
    };
    !is_partitioned && !has_property()
}

/// One search by all ranks; it gives one report per checked property.
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

/// Draws the first violation's run, if requested; says so if there is none. Whether it was drawn.
fn draw(args: &CheckArgs, reports: &[Report]) -> Result<bool, VerbError> {
    let Some(path) = &args.svg else { return Ok(false) };
    let Some(drawing) = show::drawing(reports) else {
        let path = path.display();
        show::talk(&format!("{path} is not written: there is no counterexample to draw"));
        return Ok(false);
    };
    sys::private::create(path)
        .and_then(|mut file| file.write_all(drawing.as_bytes()))
        .map_err(|error| VerbError::failed(format!("{}: {error}", path.display())))?;
    Ok(true)
}

/// The options in the checker's form.
fn asked(args: &CheckArgs) -> Options {
    let kept = match args.bitstate {
        Some(bytes) => Some(LossyStorage::Bitstate {
            table_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        }),
        None => args.hash_compaction.then_some(LossyStorage::HashCompaction),
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

/// Parses a file of formulas or, if there is no such file, a formula.
fn formulas(given: &str) -> Result<Formulas, VerbError> {
    let path = Path::new(given);
    // No formula ends in `.ltl`, so a missing file gets a proper error.
    if !path.is_file() && !given.ends_with(".ltl") {
        return Ok(Formulas::parse(given)?);
    }
    Ok(Formulas::parse_file(given, &read(path)?)?)
}

/// Parses `NAME=VALUE`.
fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, as in N=5")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// The worst verdict: violated, then undecided, then holds.
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
