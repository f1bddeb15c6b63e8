//! `clearstream reproduce`: a paper's figure or table here, side by side with the paper's.

mod catalogue;
mod divine;
mod energy;
mod idle;
pub(in crate::verbs) mod in_lab;
mod local;
mod packets;
mod recipes;
mod single;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use results::{LawCheck, PaperFigure, Reproduction, Results, RunKind};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::far::FarEnd;
use crate::progress::Progress;
use crate::runner::{self, Driver, Ended, Keeping};
use crate::signals;
use crate::store::{self, PointLog};
use crate::verbs::options::{ServerOptions, duration};
use catalogue::{ENTRIES, Entry};
use recipes::Recipe;
use sweep::Experiment;

/// Options of `reproduce`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream reproduce --list\n  \
    clearstream reproduce C-fig6              in the lab, on this machine\n  \
    clearstream reproduce C-fig6 far.example  between this host and far.example\n\n\
    Exit code 3: it ran, and the paper's law does not hold here.")]
pub(crate) struct ReproduceArgs {
    /// Which figure or table, e.g. C-fig6.
    #[arg(required_unless_present = "list")]
    id: Option<String>,
    /// Far host; without it both hosts are those of a lab on this machine.
    host: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
    /// Show every figure and table of the papers, and what is missing for those not built yet.
    #[arg(long)]
    list: bool,
    /// Results file; ID.json when absent.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report page; none when absent.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Time each test measures (the papers: 5m).
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = duration)]
    duration: Duration,
    /// Repeats of every setting.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
}

/// Runs the verb.
pub(crate) fn run(args: &ReproduceArgs, json: bool) -> VerbResult {
    if args.list {
        return list(json);
    }
    let id = args.id.as_deref().unwrap_or_default();
    let entry = catalogue::find(id).ok_or_else(|| {
        VerbError::usage(format!(
            "no figure or table is called '{id}'; `clearstream reproduce --list` shows all"
        ))
    })?;
    match entry.id {
        "C-ceiling" | "C-fig10" | "G-tune" => return local::run(entry, args, json),
        "C-energy" => return energy::run(entry, args, json),
        "C-divine" | "C-mix" => return divine::run(entry, args, json),
        "M-idle" => return idle::run(entry, args, json),
        "P-pipe" | "P-vale" => return packets::run(entry, args, json),
        _ => {}
    }
    let Some(recipe) = recipes::find(entry.id) else {
        let missing = entry.missing.unwrap_or("its recipe");
        return Err(VerbError::missing(format!("{} cannot run yet: it needs {missing}", entry.id)));
    };
    match &args.host {
        None => in_lab::run(recipe, args, json),
        Some(host) => between_hosts(entry, recipe, host, args, json),
    }
}

fn list(json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    for entry in &ENTRIES {
        if json {
            let line = serde_json::json!({
                "id": entry.id, "title": entry.title, "source": entry.source,
                "law": entry.law, "ready": entry.missing.is_none(), "missing": entry.missing,
            });
            writeln!(out, "{line}")?;
        } else {
            let state =
                entry.missing.map_or_else(|| "ready".to_owned(), |lack| format!("needs {lack}"));
            writeln!(out, "{:<10} {:<48} {state}", entry.id, entry.title)?;
        }
    }
    Ok(Exit::Ok)
}

fn between_hosts(
    entry: &'static Entry,
    recipe: &Recipe,
    host: &str,
    args: &ReproduceArgs,
    json: bool,
) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let mut far = FarEnd::connect(&args.server.at(host))?;
    let mut progress = Progress::new(1);
    let results = far.document(RunKind::Reproduce, &mut progress);
    let experiment = recipes::RecipeRun::new(recipe, args);
    let conducted = conduct(entry, &experiment, &mut far, results, progress, args)?;
    publish(entry, conducted, |results| (recipe.judge)(results), args, json)
}

/// An experiment that was run, and its document.
struct Conducted {
    results: Results,
    ended: Ended,
    log: Option<PointLog>,
}

impl Conducted {
    /// A document to which nothing was to be measured.
    fn at_once(results: Results) -> Self {
        let finished_unix_ms = Some(runner::now_unix_ms());
        let results = Results { finished_unix_ms, ..results };
        Self { results, ended: Ended::Complete, log: None }
    }
}

/// Runs an experiment; its points go to `results`. The journal stays when it cannot go on.
fn conduct(
    entry: &Entry,
    experiment: &(impl Experiment + ?Sized),
    driver: &mut dyn Driver,
    mut results: Results,
    mut progress: Progress,
    args: &ReproduceArgs,
) -> Result<Conducted, VerbError> {
    let output = args.output_of(entry);
    let keeping = Keeping { output: &output, resumes: true };
    let runner::Conducted { ended, log } =
        runner::conduct(experiment, driver, keeping, &mut results, &mut progress);
    Ok(Conducted { results, ended: ended?, log })
}

impl ReproduceArgs {
    fn output_of(&self, entry: &Entry) -> PathBuf {
        self.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.json", entry.id)))
    }
}

/// Judges what was measured, writes and shows it, and ends as it deserves. What was cut short is not
/// judged.
fn publish(
    entry: &'static Entry,
    conducted: Conducted,
    judge: impl FnOnce(&Results) -> (Vec<PaperFigure>, LawCheck),
    args: &ReproduceArgs,
    json: bool,
) -> VerbResult {
    let Conducted { mut results, ended, log } = conducted;
    let (figures, mut law) = judge(&results);
    if let Some(why) = &results.partial {
        law = recipes::undecided(&law.law, &format!("{why} before all was measured"));
    }
    let (id, title, source) =
        (entry.id.to_owned(), entry.title.to_owned(), entry.source.to_owned());
    results.reproduction = Some(Reproduction { id, title, source, figures, law });
    let output = args.output_of(entry);
    store::save(&output, &results)?;
    if let Some(page) = &args.report {
        let html = report::render(&results, &report::RenderOptions::default());
        store::replace(page, html.as_bytes())?;
    }
    print(&results, &output, json)?;
    match (ended, log) {
        (Ended::Complete, log) => log.map_or(Ok(()), PointLog::discard)?,
        (Ended::Interrupted(number), log) => {
            log.iter().for_each(runner::say_cut_short);
            return Ok(Exit::Signal(number));
        }
    }
    match results.reproduction.as_ref().and_then(|reproduction| reproduction.law.holds) {
        Some(true) => Ok(Exit::Ok),
        Some(false) => Ok(Exit::GateFailed),
        None => Ok(Exit::Partial),
    }
}

fn print(results: &Results, output: &std::path::Path, json: bool) -> Result<(), VerbError> {
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer(&mut out, results).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    let Some(reproduction) = &results.reproduction else { return Ok(()) };
    writeln!(out, "{}  {} ({})\n", reproduction.id, reproduction.title, reproduction.source)?;
    writeln!(out, "{:<46} {:<28} here", "", "paper")?;
    for figure in &reproduction.figures {
        let here = figure.here.as_deref().unwrap_or("not measured");
        writeln!(out, "{:<46} {:<28} {here}", figure.name, figure.paper)?;
    }
    let answer = match reproduction.law.holds {
        Some(true) => "holds",
        Some(false) => "does not hold here",
        None => "undecided",
    };
    writeln!(
        out,
        "\nLaw      {}\n         {answer}: {}",
        reproduction.law.law, reproduction.law.judged
    )?;
    writeln!(out, "Written  {}", output.display())?;
    Ok(())
}
