//! `clearstream path`: the main job. Measure the path, name what binds it, prove it, show it.

mod battery;
mod confirm;
mod screen;

use std::path::PathBuf;
use std::time::Duration;

use results::{Direction, RunKind};

use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::far::FarEnd;
use crate::progress::Progress;
use crate::runner::{self, Keeping, Tested};
use crate::signals;
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
    let mut far = FarEnd::connect(&args.target.target())?;
    let mut progress = Progress::new(1);
    let mut results = far.describe(RunKind::Path, &mut progress);
    let keeping = Keeping { resumes: !args.fresh, ..Keeping::beside(&args.output) };
    let (battery, mut driver) = (args.battery(), Tested(&mut far));
    let conducted = runner::conduct(&battery, &mut driver, keeping, &mut results, progress);
    let text = format!("{}\n", screen::show(&results));
    let said = Said { text, json: None, exit: Exit::Ok };
    ending::end(args.outputs(json), &results, conducted, &said)
}

impl PathArgs {
    fn outputs(&self, json: bool) -> Outputs<'_> {
        let report = (!self.no_report).then_some(self.report.as_path());
        Outputs { results: Some(&self.output), report, also: None, json }
    }

    fn battery(&self) -> battery::Battery {
        let effort = self.effort();
        // The judgement weighs the spread of an experiment's repeats.
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
