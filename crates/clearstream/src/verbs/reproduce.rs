//! `clearstream reproduce`: repeats a paper's figure or table and compares it with the paper's.

mod cumulus;
mod divine;
mod energy;
mod guests;
mod idle;
mod local;
mod messages;
mod packets;
mod ratios;
mod recipes;
mod single;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use results::{Finding, LawCheck, PaperFigure, Reproduction, Results, RunKind};

use crate::VerbResult;
use crate::bed::TestBed;
use crate::catalogue::{self, ENTRIES, Entry};
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::far::{FarEnd, Tests};
use crate::progress::Progress;
use crate::runner::{self, Conducted, Driver, Keeping, Tested};
use crate::signals;
use crate::store;
use crate::verbs::options::{ServerOptions, duration};
use recipes::Recipe;
use sweep::Experiment;

/// Options of `reproduce`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream reproduce --list\n  \
    clearstream reproduce G-flock             native and projected file system, in the lab cumulus\n  \
    clearstream reproduce C-fig6              in the lab, on this machine\n  \
    clearstream reproduce C-fig6 far.example  between this host and far.example\n  \
    clearstream reproduce P-fig3              between guests, on ptnet and on virtio-net\n  \
    clearstream reproduce M-tab1 --imb ~/IMB-MPI1   messages of stock Open MPI, in a lab\n\n\
    Exit code 3: the experiment ran, and the paper's law does not hold here.")]
pub(crate) struct ReproduceArgs {
    /// The figure or table, for example C-fig6.
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Far host; without it, both hosts are in a lab on this machine.
    host: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
    /// List the figures and tables that can be reproduced.
    #[arg(long)]
    list: bool,
    /// Results file [default: ID.json].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report page [default: none].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Time for which each test measures (the papers: 5m).
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = duration)]
    duration: Duration,
    /// Repeats of every setting.
    #[arg(long, alias = "repeat", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    #[command(flatten)]
    jobs: messages::JobOptions,
}

pub(crate) fn run(args: &ReproduceArgs, json: bool) -> VerbResult {
    if args.list {
        return list(json);
    }
    let Some(id) = args.id.as_deref() else {
        return Err(VerbError::usage(format!(
            "name a figure or table: {}; `clearstream reproduce --list` lists what each shows",
            catalogue::ids().collect::<Vec<_>>().join(", ")
        )));
    };
    let entry = catalogue::find(id).ok_or_else(|| {
        VerbError::usage(format!(
            "no figure or table is called '{id}'; `clearstream reproduce --list` shows all"
        ))
    })?;
    store::check_outputs([Some(&*args.output_of(entry)), args.report.as_deref()])?;
    match entry.id {
        "C-ceiling" | "C-fig10" | "G-tune" => return local::run(entry, args, json),
        "C-energy" => return energy::run(entry, args, json),
        "C-divine" | "C-mix" => return divine::run(entry, args, json),
        "M-divine" => return messages::searching::run(entry, args, json),
        "M-idle" => return idle::run(entry, args, json),
        "P-pipe" | "P-vale" => return packets::run(entry, args, json),
        id if guests::is_one(id) => return guests::run(entry, args, json),
        id if cumulus::is_one(id) => return cumulus::run(entry, args, json),
        id if messages::is_one(id) => return messages::run(entry, args, json),
        _ => {}
    }
    let recipe = recipes::find(entry.id)
        .ok_or_else(|| VerbError::failed(format!("{} has no recipe", entry.id)))?;
    let ground = match &args.host {
        None => Ground::lab(recipe.lab)?,
        Some(host) => Ground::host(args, host)?,
    };
    between_hosts(entry, recipe, ground, args, json)
}

fn list(json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    let width = ENTRIES.iter().map(|entry| entry.title.chars().count()).max().unwrap_or(0);
    let mut table = String::new();
    for entry in &ENTRIES {
        if json {
            let line = serde_json::json!({
                "id": entry.id, "title": entry.title, "source": entry.source,
                "law": entry.law,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(table, "{:<10} {:<width$}  {}", entry.id, entry.title, entry.source).ok();
        }
    }
    write!(out, "{}", crate::tables::fit(&table))?;
    if !json {
        writeln!(out, "\nThe letter of an ID names the paper:")?;
        let papers: String = catalogue::PAPERS
            .iter()
            .map(|(letter, paper)| format!("  {letter}-  {paper}\n"))
            .collect();
        write!(out, "{}", crate::tables::fit(&papers))?;
    }
    Ok(Exit::Ok)
}

fn between_hosts(
    entry: &'static Entry,
    recipe: &Recipe,
    mut ground: Ground,
    args: &ReproduceArgs,
    json: bool,
) -> VerbResult {
    let mut progress = Progress::new(1);
    let results = ground.document(&mut progress)?;
    let experiment = recipes::RecipeRun::new(recipe, args);
    let mut driver = Tested(&mut *ground.tests);
    let conducted = conduct(entry, &experiment, &mut driver, results, progress, args);
    drop(ground);
    publish(entry, conducted, |results| (recipe.judge)(results), args, json)
}

/// Where tests run: from this host, or between two hosts of a lab.
struct Ground {
    // Declared before the lab, so dropped first.
    tests: Box<dyn Tests>,
    bed: Option<TestBed>,
}

impl Ground {
    /// Tests from this host to a remote server. From here on a signal that asks this program to end only sets
    /// a flag.
    fn host(args: &ReproduceArgs, host: &str) -> Result<Self, VerbError> {
        signals::watch().map_err(|error| VerbError::from_error(&error))?;
        let far = FarEnd::connect(&args.server.at(host))?;
        Ok(Self { tests: Box::new(far), bed: None })
    }

    /// Tests between the first two hosts of a lab, which is brought up if necessary and taken down on drop.
    fn lab(name: &str) -> Result<Self, VerbError> {
        let bed = TestBed::up(name)?;
        bed.serve()?;
        Ok(Self { tests: Box::new(bed.tester()?), bed: Some(bed) })
    }

    fn document(&mut self, progress: &mut Progress) -> Result<Results, VerbError> {
        self.tests.document(RunKind::Reproduce, progress)
    }
}

/// An experiment after its run, with its document.
struct Reproduced {
    results: Results,
    conducted: Conducted,
}

impl Reproduced {
    /// A document that needed no measurement.
    fn at_once(results: Results) -> Self {
        let finished_unix_ms = Some(runner::now_unix_ms());
        let results = Results { finished_unix_ms, ..results };
        Self { results, conducted: Conducted::AT_ONCE }
    }
}

/// Runs an experiment and stores its points in `results`.
fn conduct(
    entry: &Entry,
    experiment: &(impl Experiment + ?Sized),
    driver: &mut dyn Driver,
    mut results: Results,
    progress: Progress,
    args: &ReproduceArgs,
) -> Reproduced {
    let output = args.output_of(entry);
    let keeping = Keeping::beside(&output);
    let conducted = runner::conduct(experiment, driver, keeping, &mut results, progress);
    Reproduced { results, conducted }
}

impl ReproduceArgs {
    fn output_of(&self, entry: &Entry) -> PathBuf {
        self.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.json", entry.id)))
    }
}

/// Judges the measurements, writes and shows them, and decides the exit code. An interrupted run is not
/// judged.
fn publish(
    entry: &'static Entry,
    Reproduced { mut results, conducted }: Reproduced,
    judge: impl FnOnce(&Results) -> (Vec<PaperFigure>, LawCheck),
    args: &ReproduceArgs,
    json: bool,
) -> VerbResult {
    let (figures, mut law) = judge(&results);
    if let Some(why) = &results.partial {
        law = recipes::undecided(&law.law, &format!("{why} before all was measured"));
    }
    let exit = match law.holds {
        Some(true) => Exit::Ok,
        Some(false) => Exit::GateFailed,
        None => Exit::Partial,
    };
    let (id, title, source) =
        (entry.id.to_owned(), entry.title.to_owned(), entry.source.to_owned());
    let reproduction = Reproduction { id, title, source, figures, law };
    let said = Said { text: shown(&reproduction), json: None, exit };
    results.reproduction = Some(reproduction);
    let output = args.output_of(entry);
    let report = args.report.as_deref();
    let outputs = Outputs { results: Some(&output), report, also: None, json };
    ending::end(outputs, &results, conducted, &said)
}

/// A finding about the run.
fn finding(code: &str, text: impl Into<String>) -> Finding {
    Finding { end: None, code: code.to_owned(), text: text.into() }
}

fn shown(reproduction: &Reproduction) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        writeln!(text, "{line}").ok();
    };
    let Reproduction { id, title, source, figures, law } = reproduction;
    line(format_args!("{id}  {title} ({source})\n"));
    let widest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0).min(60);
    let name = widest(&mut figures.iter().map(|figure| figure.name.chars().count()));
    let paper = widest(&mut figures.iter().map(|figure| figure.paper.chars().count())).max(5);
    let mut table = format!("{:<name$}  {:<paper$}  here\n", "", "paper");
    for figure in figures {
        let here = figure.here.as_deref().unwrap_or("not measured");
        table += &format!("{:<name$}  {:<paper$}  {here}\n", figure.name, figure.paper);
    }
    line(format_args!("{}", crate::tables::fit(&table).trim_end()));
    let answer = match law.holds {
        Some(true) => "holds",
        Some(false) => "does not hold here",
        None => "undecided",
    };
    line(format_args!("\nLaw      {}\n         {answer}: {}", law.law, law.judged));
    text
}
