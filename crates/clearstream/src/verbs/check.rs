//! `clearstream check`: does a DVE model keep its promises?

mod checkpoint;
mod document;
mod fair;
mod lossy;
mod ranks;
mod refusals;
mod search;
mod show;
mod simulate;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dve::ltl::{Formula, LtlFile, with_property};
use dve::{At, Diagnostic, Model};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::runner;
use crate::signals;
use crate::verbs::options;
use checkpoint::Keep;
use ranks::Crew;
use search::{Bounds, Report, Verdict};

/// Options of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream check adding.3.dve                     deadlocks, assertions, run-time errors\n  \
    clearstream check phils.dve --ltl 'G F {P_0.eat}'  a formula over the model's expressions\n  \
    clearstream check phils.dve --ltl phils.ltl        every #property of a file\n  \
    clearstream check ring.mdve -D N=5                 a model with parameters\n  \
    clearstream check adding.3.dve --ranks 2           by two ranks, each a thread\n  \
    clearstream check adding.3.dve --hosts a,b         by two hosts, over MPI\n  \
    mpirun -n 8 clearstream check adding.3.dve         as a job of your own\n\n\
    A model with a property process of its own is checked for that one.\n\
    Exit codes: 0 holds, 10 violated, 11 undecided (memory, time, interrupted), 2 bad model.")]
pub(crate) struct CheckArgs {
    /// Model in the DVE language; a .mdve file is expanded first.
    #[arg(value_name = "MODEL.dve")]
    model: PathBuf,
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
    let ranks_count = args.ranks.map_or(args.hosts.len().max(1), usize::from);
    if !args.hosts.is_empty() {
        return ranks::launch(&args.mpirun, &args.hosts, ranks_count);
    }
    let mut crew = Crew::new(ranks_count, args.bind, args.messages)?;
    let result = match crew.leads() {
        Ok(true) => check(args, json, &mut crew),
        Ok(false) => Ok(Exit::Ok),
        Err(error) => Err(error),
    };
    crew.leave(result)
}

/// What rank 0 does.
fn check(args: &CheckArgs, json: bool, crew: &mut Crew) -> VerbResult {
    let (text, name) = model_text(args)?;
    let parse = |text: &str| {
        Model::parse(text).map_err(|error| VerbError::usage(format!("{name}:{error}")))
    };
    let model = parse(&text)?;
    for warning in model.warnings() {
        show::talk(&format!("{name}:{warning}"));
    }
    if args.simulate {
        return simulate::run(&model);
    }
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let started_unix_ms = runner::now_unix_ms();
    let bounds = Bounds { memory_bytes: args.memory, time: args.time, is_reduced: args.reduce };
    let mut reports = Vec::new();
    refusals::refuse(args, &model)?;
    let fairness = args.fairness.map(|kind| match kind {
        Fairness::Weak => statespace::Fairness::Weak,
        Fairness::Strong => statespace::Fairness::Strong,
    });
    let cycles =
        |crew: &mut Crew, model: &Model, what: &str| crew.cycles(model, what, fairness, bounds);
    match &args.ltl {
        None if let Some(kept) = refusals::kept(args) => {
            reports.extend(crew.lossy(&model, args.allow_deadlock, kept, bounds)?);
        }
        None if args.checkpoint.is_some() || args.resume.is_some() => {
            let files = (&args.checkpoint, &args.resume);
            let keep = Keep::new(files, &text, args.allow_deadlock, bounds);
            let (allow_deadlock, full) = (args.allow_deadlock, args.full);
            reports.extend(crew.states_kept(&model, allow_deadlock, full, bounds, keep)?);
        }
        None if model.has_property() => {
            reports.extend(cycles(crew, &model, "the model's property process")?);
        }
        None => reports.extend(crew.states(&model, args.allow_deadlock, args.full, bounds)?),
        Some(given) => {
            let (formulas, definitions) = formulas(given)?;
            for (label, formula) in formulas {
                for warning in formula.warnings() {
                    show::talk(&format!("{label}: {warning}"));
                }
                if args.reduce && formula.has_next() {
                    let text = format!("{label}: --reduce is for formulas without X");
                    return Err(VerbError::usage(text));
                }
                let product = with_property(&text, &formula, &definitions)
                    .map_err(|error| VerbError::usage(format!("{label}: {}", error.message)))?;
                let product = Model::parse(&product)
                    .map_err(|error| VerbError::usage(in_formula(&label, given, &error)))?;
                reports.extend(cycles(crew, &product, &label)?);
            }
        }
    }
    match show::reports(&args.model, &reports, json) {
        // Who stops reading after the first line is told the verdict all the same, by the exit code.
        Err(error) if error.is_broken_pipe() => {}
        shown => shown?,
    }
    if let Some(path) = &args.output {
        document::write(path, &args.model, started_unix_ms, &reports)?;
    }
    if let (Some(path), Some(drawing)) = (&args.svg, show::drawing(&reports)) {
        sys::private::create(path)
            .and_then(|mut file| file.write_all(drawing.as_bytes()))
            .map_err(|error| VerbError::failed(format!("{}: {error}", path.display())))?;
    }
    Ok(worst(&reports))
}

/// A file of formulas, else the formula itself.
type Formulas = (Vec<(String, Formula)>, std::collections::BTreeMap<String, String>);

fn formulas(given: &str) -> Result<Formulas, VerbError> {
    let path = Path::new(given);
    // No formula ends like that: a file that is not there says so.
    if !path.is_file() && !given.ends_with(".ltl") {
        let formula =
            Formula::parse(given).map_err(|error| VerbError::usage(format!("--ltl:{error}")))?;
        return Ok((vec![(given.to_owned(), formula)], std::collections::BTreeMap::new()));
    }
    let file = LtlFile::parse(&read(path)?)
        .map_err(|error| VerbError::usage(format!("{given}:{error}")))?;
    if file.formulas.is_empty() {
        return Err(VerbError::usage(format!("{given} has no #property line")));
    }
    let label = |number: usize| format!("{given} property {}", number + 1);
    let formulas = file.formulas.into_iter().enumerate().map(|(number, one)| (label(number), one));
    Ok((formulas.collect(), file.definitions))
}

/// What is wrong with a proposition: the model's parser met it in the property process that was made of
/// the formula, where nobody has written it.
fn in_formula(label: &str, given: &str, error: &Diagnostic) -> String {
    let from = error.text.chars().skip(error.column as usize - 1);
    let word: String = from.take_while(|&one| one.is_alphanumeric() || one == '_').collect();
    let is_part = |one: char| one.is_alphanumeric() || one == '_';
    let mut places = given.match_indices(&word).map(|(at, _)| at).filter(|&at| {
        !given[..at].ends_with(is_part) && !given[at + word.len()..].starts_with(is_part)
    });
    match places.next() {
        Some(at) if !word.is_empty() && label == given => {
            let at = At(u32::try_from(at).unwrap_or(u32::MAX));
            format!("--ltl:{}", Diagnostic::new(given, at, error.message.clone()))
        }
        _ => format!("{label}: {}", error.message),
    }
}

/// `NAME=VALUE`
fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// The model's text, parameters expanded, and what to call it where something is wrong with it.
fn model_text(args: &CheckArgs) -> Result<(String, String), VerbError> {
    let text = read(&args.model)?;
    let name = args.model.display().to_string();
    if args.model.extension().is_none_or(|extension| extension != "mdve") {
        if args.define.is_empty() {
            return Ok((text, name));
        }
        return Err(VerbError::usage("--define is for .mdve files"));
    }
    let expanded = dve::expand_parameters(&text, &args.define)
        .map_err(|error| VerbError::usage(format!("{name}:{error}")))?;
    Ok((expanded, format!("{name} (expanded)")))
}

/// Longest model or file of formulas, as [`Model::parse`] takes it: a device may never end.
const TEXT_BYTES_MAX: u64 = 16 << 20;

fn read(path: &Path) -> Result<String, VerbError> {
    let at = |what: &dyn std::fmt::Display| VerbError::usage(format!("{}: {what}", path.display()));
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| at(&error))?;
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| at(&error))?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(at(&"longer than 16 MiB"));
    }
    String::from_utf8(bytes).map_err(|_no_text| at(&"this is not text"))
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
