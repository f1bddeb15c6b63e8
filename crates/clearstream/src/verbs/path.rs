//! `clearstream path`: measures a path, identifies its bottleneck, confirms it, and reports it.

mod battery;
mod confirm;
mod screen;

use std::path::PathBuf;
use std::time::Duration;

use compare::GatedVerb;
use results::{Direction, RunKind};

use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::far::FarEnd;
use crate::gates::{self, GateOptions};
use crate::granted;
use crate::progress::Progress;
use crate::runner::{self, Keeping, Tested};
use crate::signals;
use crate::store;
use crate::verbs::options::{ApplicationOptions, TargetOptions, duration};

/// Names of the results file and of the report page without -o and --report.
const RESULTS: &str = "results.json";
const REPORT: &str = "report.html";

/// Options of `path`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clearstream path geneva -o geneva.json --report geneva.html\n  \
    clearstream path geneva --quick -R            one second per test; geneva sends\n  \
    clearstream path geneva -w 4M --cores 2       the verdict for an application like this\n  \
    clearstream path geneva --fail-below 9G --require confirmed   exit code 3 if not\n\n\
    Options that describe an application (--window, --cores, --offered-rate, …) apply to every\n\
    TCP test, so that the verdict holds for that application on this path. `clearstream help limits`\n\
    describes every limit that a verdict can name.\n\n\
    Gates (--fail-below, --fail-above, --require) compare the median of a test's repeats with a\n\
    value; a figure that was not measured misses its gate. Figures: of the single stream throughput,\n\
    retransmissions, loaded_rtt_p50, loaded_rtt_p99, loaded_rtt_p99.9, cpu, near_cpu, far_cpu; of\n\
    the UDP test, which offers a fifth more than TCP reached, loss, reordering, jitter; of the idle\n\
    path rtt_p50, rtt_p99, rtt_p99.9. TEST:FIGURE=VALUE judges another test, for example\n\
    multi-stream:throughput=10G. Requirements: no-loss, no-reordering, no-retransmissions,\n\
    confirmed (the verdict, by its experiment), complete."
)]
pub(crate) struct PathArgs {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    application: ApplicationOptions,
    /// Results file; an interrupted run is resumed from the journal beside this file.
    #[arg(short, long, value_name = "FILE", default_value = RESULTS)]
    output: PathBuf,
    /// Report page [default: report.html; with -o, that name with .html].
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write no report page.
    #[arg(long)]
    no_report: bool,
    /// Time for which each test measures.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    duration: Duration,
    /// Repeats of the single-stream test, on which the verdict is based; other tests are repeated 3/5 as often.
    #[arg(long, alias = "repeat", value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// One second per test, three repeats, no window sweep.
    #[arg(long)]
    quick: bool,
    /// No window sweep.
    #[arg(long)]
    no_sweep: bool,
    /// Judge the reverse direction: the far end sends.
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Test only the direction that is judged: neither the other one nor both at once.
    #[arg(long)]
    one_way: bool,
    /// Do not confirm the verdict by an experiment.
    #[arg(long)]
    no_confirm: bool,
    /// Start over instead of resuming an interrupted run.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    gates: GateOptions,
}

pub(crate) fn run(args: &PathArgs, json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let gates = args.gates.gates(GatedVerb::Path)?;
    let page = args.page();
    let outputs =
        Outputs { results: Some(&args.output), report: page.as_deref(), also: None, json };
    store::check_outputs([outputs.results, outputs.report])?;
    let mut far = FarEnd::connect(&args.target.target())?;
    let mut progress = Progress::new(1);
    far.measure_for(&gates);
    let mut results = far.describe(RunKind::Path, &mut progress);
    let asked = args.application.spec();
    granted::check(&asked, &results)?;
    let keeping = Keeping { resumes: !args.fresh, ..Keeping::beside(&args.output) };
    let (battery, mut driver) = (args.battery(), Tested(&mut far));
    let conducted = runner::conduct(&battery, &mut driver, keeping, &mut results, progress);
    gates::judge_run(&gates, &mut results);
    let shown = screen::show(&results, battery.effort.way);
    let text = format!("{shown}\n{}", gates::line("Gates    ", &results.gates));
    let said = Said { text, json: None, exit: Exit::Ok };
    let ended = ending::end(outputs, &results, conducted, &said);
    let ended = gates::settle(&results.gates, ended)?;
    granted::check_points(&asked, &results).map(|()| ended)
}

impl PathArgs {
    /// The report page; `None`: none is written.
    fn page(&self) -> Option<PathBuf> {
        if self.no_report {
            return None;
        }
        let beside = || match self.output.extension() {
            // The results file itself has that name.
            Some(extension) if extension == "html" => PathBuf::from(REPORT),
            _ if self.output.as_os_str() == RESULTS => PathBuf::from(REPORT),
            _other => self.output.with_extension("html"),
        };
        Some(self.report.clone().unwrap_or_else(beside))
    }

    fn battery(&self) -> battery::Battery {
        let effort = self.effort();
        // The judgement needs several repeats of an experiment to know their spread.
        let trial_repeats = if self.no_confirm { 0 } else { effort.baseline_repeats.min(3) };
        battery::Battery { application: self.application.spec(), effort, trial_repeats }
    }

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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        path: PathArgs,
    }

    /// A second run to another file must not replace the first one's page.
    #[test]
    fn the_page_is_named_after_the_results_file() {
        let page = |words: &str| {
            let line = Line::try_parse_from(format!("path far {words}").split_whitespace());
            line.expect("options").path.page().map(|page| page.display().to_string())
        };
        for (words, name) in [
            ("", Some("report.html")),
            ("-o runs/r2.json", Some("runs/r2.html")),
            ("-o r2", Some("r2.html")),
            ("-o r2.html", Some("report.html")),
            ("-o r2.json --report page.html", Some("page.html")),
            ("-o r2.json --no-report", None),
        ] {
            assert_eq!(page(words).as_deref(), name, "{words}");
        }
    }
}
