//! `clearstream path`: the main job. Measure the path, name what binds it, prove it, show it.

mod battery;
mod confirm;
mod screen;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use results::{Direction, Point, Results, RunKind};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::far::FarEnd;
use crate::progress::Progress;
use crate::runner::{self, Ended};
use crate::signals;
use crate::store::{self, PointLog};
use crate::verbs::options::{ApplicationOptions, TargetOptions, duration};

/// Options of `path`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  clearstream path geneva -o geneva.json --report geneva.html\n\n\
    Options that describe an application (--window, --cores, --offered-rate, …) apply to every\n\
    TCP test, so that the verdict is about that application on this path."
)]
pub(crate) struct PathArgs {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    application: ApplicationOptions,
    /// Results file; a run cut short is taken up again from its journal beside it.
    #[arg(short, long, value_name = "FILE", default_value = "results.json")]
    output: PathBuf,
    /// Report page.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    report: PathBuf,
    /// Write no report page.
    #[arg(long)]
    no_report: bool,
    /// Time each test measures.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    duration: Duration,
    /// Repeats of the single-stream test, which the verdict rests on; the others get 3 fifths.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// One second a test, three repeats, no window sweep.
    #[arg(long)]
    quick: bool,
    /// No window sweep.
    #[arg(long)]
    no_sweep: bool,
    /// Judge the way back: the far end sends.
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Only the way that is judged: no tests of the other and of both at once.
    #[arg(long)]
    one_way: bool,
    /// Do not confirm the verdict by an experiment.
    #[arg(long)]
    no_confirm: bool,
    /// Begin anew even if a run of the same tests was cut short.
    #[arg(long)]
    fresh: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &PathArgs, json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let application = args.application.spec();
    let effort = args.effort();

    let mut far = FarEnd::connect(&args.target.target())?;
    let mut progress = Progress::new(1);
    let mut results = far.document(RunKind::Path, &mut progress);
    let first = battery::first_round(&application, &effort);
    let (mut log, mut points) = PointLog::open(&args.output, &first, !args.fresh)?;
    runner::say_resumed(&log, &points);
    let ended = measure(args, &mut far, &mut results, &mut points, &mut log, &mut progress);
    results.points = points;
    results.summaries = sweep::summarise(&results.points);
    results.finished_unix_ms = Some(runner::now_unix_ms());
    drop(progress);
    conclude(args, json, &mut results, ended, log)
}

impl PathArgs {
    fn effort(&self) -> battery::Effort {
        let (duration_s, baseline_repeats) =
            if self.quick { (1.0, 3) } else { (self.duration.as_secs_f64(), self.repeats) };
        battery::Effort {
            duration_s,
            omit_s: 0.5,
            baseline_repeats,
            repeats: ((baseline_repeats * 3 + 2) / 5).max(1),
            sweep: !(self.quick || self.no_sweep),
            way: if self.reverse { Direction::Reverse } else { Direction::Forward },
            one_way: self.one_way,
        }
    }
}

/// Both rounds of tests and the experiment that decides the verdict.
fn measure(
    args: &PathArgs,
    far: &mut FarEnd,
    results: &mut Results,
    points: &mut Vec<Point>,
    log: &mut PointLog,
    progress: &mut Progress,
) -> Result<Ended, VerbError> {
    let application = args.application.spec();
    let effort = args.effort();
    let first = battery::first_round(&application, &effort);
    progress.extend(first.remaining(points).len());
    if let interrupted @ Ended::Interrupted(_) = runner::run(&first, far, points, log, progress)? {
        return Ok(interrupted);
    }
    let rtt_s = results.path.idle_rtt.as_ref().and_then(|rtt| rtt.percentile_s(50.0));
    let mtu = results.path.path_mtu_bytes;
    let second = battery::second_round(&application, &effort, mtu, rtt_s, points);
    progress.extend(second.remaining(points).len());
    if let interrupted @ Ended::Interrupted(_) = runner::run(&second, far, points, log, progress)? {
        return Ok(interrupted);
    }
    results.points.clone_from(points);
    results.summaries = sweep::summarise(points);
    let best = battery::best_tcp(points, effort.way);
    results.path.bandwidth_delay_product_bytes =
        best.zip(rtt_s).map(|(best, rtt_s)| units::bandwidth_delay_product_bytes(best, rtt_s));
    collect_findings(results);
    // The judgement weighs the spread of an experiment's repeats.
    let repeats = if args.no_confirm { 0 } else { effort.baseline_repeats.min(3) };
    let (verdict, ended) = confirm::verdict(results, far, repeats, points, log, progress)?;
    results.verdict = Some(verdict);
    Ok(ended)
}

/// Writes the files and the screen; decides the exit.
fn conclude(
    args: &PathArgs,
    json: bool,
    results: &mut Results,
    ended: Result<Ended, VerbError>,
    log: PointLog,
) -> VerbResult {
    results.partial = match &ended {
        Ok(Ended::Complete) => None,
        Ok(Ended::Interrupted(number)) => Some(format!("ended by signal {number}")),
        Err(error) => Some(error.to_string()),
    };
    if results.points.is_empty() && results.partial.is_some() {
        return ended.map(|_| Exit::Ok).and(Err(VerbError::failed("ended before the first test")));
    }
    store::save(&args.output, results)?;
    if !args.no_report {
        store::replace(
            &args.report,
            report::render(results, &report::RenderOptions::default()).as_bytes(),
        )?;
    }
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer(&mut out, results).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", screen::show(results))?;
        writeln!(out, "\nWritten  {}{}", args.output.display(), args.report_note())?;
    }
    match ended? {
        Ended::Complete => log.discard().map(|()| Exit::Ok),
        Ended::Interrupted(number) => {
            runner::say_cut_short(&log);
            Ok(Exit::Signal(number))
        }
    }
}

impl PathArgs {
    fn report_note(&self) -> String {
        if self.no_report { String::new() } else { format!(", {}", self.report.display()) }
    }
}

/// What any test noticed, once.
fn collect_findings(results: &mut Results) {
    for point in &results.points {
        let Some(outcome) = point.measured() else { continue };
        let ends = [Some(outcome.near()), outcome.far()];
        for finding in ends.into_iter().flatten().flat_map(|end| &end.findings) {
            let known =
                |other: &results::Finding| other.code == finding.code && other.end == finding.end;
            // The sweep asks for windows on purpose; what it was refused shows in its own figures.
            if point.experiment != "window-sweep" && !results.findings.iter().any(known) {
                results.findings.push(finding.clone());
            }
        }
    }
}
