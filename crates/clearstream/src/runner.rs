//! The one loop that runs experiments: over any driver, one point after the other, each on disk
//! before the next, resumed after a kill and cut short by a signal.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use results::{Point, PointOutcome, Results, TestOutcome};
use sweep::{Experiment, Plan, PlannedPoint};
use traffic::client::IntervalPair;
use traffic::engine::IntervalReport;
use units::{Timestamp, show_bit_rate};

use crate::exit::VerbError;
use crate::far::{self, FarEnd};
use crate::progress::Progress;
use crate::signals;
use crate::store::PointLog;

/// How a plan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Every point was run.
    Complete,
    /// The user's signal came first.
    Interrupted(i32),
}

/// What does an experiment's work: a far end, a lab, a switch, a job of ranks.
pub(crate) trait Driver {
    /// Does one planned piece of work; `what` names it for the progress line.
    ///
    /// # Errors
    /// The run cannot go on at all (no lab, no program). Work that failed is a point that says so.
    fn run(
        &mut self,
        planned: &PlannedPoint,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Done, VerbError>;
}

/// What a driver made of one planned piece of work.
pub(crate) struct Done {
    pub(crate) point: Point,
    /// Why the work failed, if it did; the run ends with it when the next ones fail too.
    pub(crate) error: Option<VerbError>,
}

impl Done {
    /// Work that gave figures, begun at a time (milliseconds since 1970 UTC).
    pub(crate) fn measured(
        planned: &PlannedPoint,
        started_unix_ms: u64,
        outcome: TestOutcome,
    ) -> Self {
        let outcome = PointOutcome::Measured(Box::new(outcome.with_figures()));
        Self { point: planned.point(started_unix_ms, String::new(), outcome), error: None }
    }

    /// Work that failed.
    pub(crate) fn failed(planned: &PlannedPoint, started_unix_ms: u64, error: VerbError) -> Self {
        let outcome = PointOutcome::Failed(error.to_string());
        Self { point: planned.point(started_unix_ms, String::new(), outcome), error: Some(error) }
    }
}

/// An experiment that was run, as far as it went.
pub(crate) struct Conducted {
    /// How it ended, or why it could not go on (the driver says why, or the journal cannot be read or
    /// written). What it has is in the document either way.
    pub(crate) ended: Result<Ended, VerbError>,
    /// The journal, which its owner discards once the points are in the results file; there is none when
    /// the experiment asks for nothing.
    pub(crate) log: Option<PointLog>,
}

/// Where an experiment's points are kept while it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeping<'a> {
    /// The results file; the journal lies beside it.
    pub(crate) output: &'a Path,
    /// Whether points that an earlier run of it left in the journal count.
    pub(crate) resumes: bool,
}

/// Runs every round of an experiment and has it conclude, all into `results`.
pub(crate) fn conduct(
    experiment: &(impl Experiment + ?Sized),
    driver: &mut dyn Driver,
    keeping: Keeping<'_>,
    results: &mut Results,
    progress: &mut Progress,
) -> Conducted {
    let mut log = None;
    let ended = rounds(experiment, driver, keeping, results, &mut log, progress);
    experiment.conclude(results, matches!(ended, Ok(Ended::Complete)));
    results.finished_unix_ms = Some(now_unix_ms());
    results.partial = match &ended {
        Ok(Ended::Complete) => None,
        Ok(Ended::Interrupted(number)) => Some(format!("ended by signal {number}")),
        Err(error) => Some(error.to_string()),
    };
    Conducted { ended, log }
}

fn rounds(
    experiment: &(impl Experiment + ?Sized),
    driver: &mut dyn Driver,
    keeping: Keeping<'_>,
    results: &mut Results,
    log: &mut Option<PointLog>,
    progress: &mut Progress,
) -> Result<Ended, VerbError> {
    let Some(identity) = experiment.identity(results) else { return Ok(Ended::Complete) };
    let Keeping { output, resumes } = keeping;
    let (opened, earlier) = PointLog::open(output, &identity, resumes, &mut results.path)?;
    say_resumed(&opened, &earlier);
    results.points = earlier;
    let log = log.insert(opened);
    let mut number = 0;
    while let Some(plan) = experiment.round(number, results) {
        progress.extend(plan.remaining(&results.points).len());
        let ended = run(&plan, driver, &mut results.points, log, progress)?;
        if let Ended::Interrupted(_) = ended {
            return Ok(ended);
        }
        number += 1;
    }
    Ok(Ended::Complete)
}

/// Says that an earlier run's points count.
pub(crate) fn say_resumed(log: &PointLog, earlier: &[Point]) {
    if !earlier.is_empty() {
        let (count, path) = (earlier.len(), log.path().display());
        // Only talk: a closed stderr takes nothing from the run.
        writeln!(crate::out::stderr(), "clearstream: resuming after {count} tests from {path}")
            .ok();
    }
}

/// Says how a run that was cut short goes on.
pub(crate) fn say_cut_short(log: &PointLog) {
    let path = log.path().display();
    let how = "the same command takes it up again";
    writeln!(crate::out::stderr(), "clearstream: cut short; {how} from {path}").ok();
}

/// Points tried in a row without an answer before the run gives up on the peer.
const FAILURES_IN_A_ROW_MAX: u32 = 3;

/// Runs every point of `plan` that is not in `points` yet and adds them there.
///
/// A point that fails is recorded with its reason and the run goes on; three failures in a row
/// mean that the peer is gone, and that ends it.
///
/// # Errors
/// The peer is gone, or the journal cannot be written.
pub(crate) fn run(
    plan: &Plan,
    driver: &mut dyn Driver,
    points: &mut Vec<Point>,
    log: &mut PointLog,
    progress: &mut Progress,
) -> Result<Ended, VerbError> {
    let mut failures_in_a_row = 0;
    for planned in plan.remaining(points) {
        if let Some(number) = signals::caught() {
            return Ok(Ended::Interrupted(number));
        }
        let what = describe(&planned);
        progress.begin(&what);
        let done = driver.run(&planned, &what, progress);
        if let Some(number) = signals::caught() {
            // Cut short: not a measurement. The next run takes it up again.
            return Ok(Ended::Interrupted(number));
        }
        let Done { point, error } = done?;
        log.append(&point)?;
        points.push(point);
        failures_in_a_row = if error.is_some() { failures_in_a_row + 1 } else { 0 };
        match error {
            Some(error) if failures_in_a_row == FAILURES_IN_A_ROW_MAX => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(Ended::Complete)
}

/// Now, for a results file.
pub(crate) fn now_unix_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix(since_epoch).unix_ms
}

impl Driver for FarEnd {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        Ok(measure(planned, what, self, progress))
    }
}

fn measure(planned: &PlannedPoint, what: &str, far: &mut FarEnd, progress: &mut Progress) -> Done {
    let started_unix_ms = now_unix_ms();
    let mut on_interval = |pair: &IntervalPair| {
        progress.show(&format!("{what}  {}", show_bit_rate(bits_per_s(&pair.near))));
    };
    let Some(spec) = planned.spec() else {
        let error = VerbError::failed("this work is no test between two hosts");
        return Done::failed(planned, started_unix_ms, error);
    };
    let run = far.run_test(spec, &mut on_interval, &|| signals::caught().is_some());
    let (outcome, error) = match run {
        Ok(outcome) => (PointOutcome::Measured(Box::new(outcome)), None),
        Err(error) => {
            (PointOutcome::Failed(crate::exit::chain(&error)), Some(far::explain(&error)))
        }
    };
    let command = crate::verbs::options::command_line(far.target(), spec);
    Done { point: planned.point(started_unix_ms, command, outcome), error }
}

/// Payload rate over the streams of one interval, bit/s.
fn bits_per_s(interval: &IntervalReport) -> f64 {
    let bytes: u64 = interval.streams.iter().map(|(_, _, sample)| sample.bytes).sum();
    bytes as f64 * 8.0 / (interval.end_s - interval.start_s).max(f64::MIN_POSITIVE)
}

fn describe(planned: &PlannedPoint) -> String {
    let settings: Vec<String> =
        planned.varied.iter().map(|(name, value)| show_setting(name, *value)).collect();
    format!("{} {} (repeat {})", planned.experiment, settings.join(" "), planned.repeat + 1)
}

/// A varied parameter as people read it: its unit comes from its name.
pub(crate) fn show_setting(name: &str, value: f64) -> String {
    if let Some(stem) = name.strip_suffix("_bytes") {
        format!("{stem} {}", units::show_byte_size(units::saturating_u64(value)))
    } else if let Some(stem) = name.strip_suffix("_bits_per_s") {
        format!("{stem} {}", show_bit_rate(value))
    } else {
        format!("{name} {value}")
    }
}

#[cfg(test)]
mod tests {
    use results::{PathFacts, RunKind, TestSpec};
    use sweep::Setting;
    use sys::private::Scratch;

    use super::*;

    /// One test, then one that follows from the path.
    struct OfThePath;

    impl Experiment for OfThePath {
        fn round(&self, number: u32, so_far: &Results) -> Option<Plan> {
            let mtu_bytes = f64::from(so_far.path.path_mtu_bytes?);
            let setting = match number {
                0 => Setting::new("first", TestSpec::tcp()),
                1 => Setting::new("second", TestSpec::tcp()).varying("mtu_bytes", mtu_bytes),
                _ => return None,
            };
            Some(Plan::new(vec![setting], 2, 0))
        }
    }

    /// Does so many pieces of work and then cannot go on.
    struct Until(usize);

    impl Driver for Until {
        fn run(
            &mut self,
            planned: &PlannedPoint,
            _what: &str,
            _progress: &mut Progress,
        ) -> Result<Done, VerbError> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| VerbError::failed("no more"))?;
            Ok(Done::measured(planned, 0, TestOutcome::default()))
        }
    }

    /// What a run to a target over a path of an MTU makes: how it ended and its document.
    fn run_of(output: &Path, target: &str, mtu: u32, most: usize) -> (Conducted, Results) {
        let path = PathFacts {
            target: target.to_owned(),
            path_mtu_bytes: Some(mtu),
            ..PathFacts::default()
        };
        let mut results = Results { path, ..Results::begun(RunKind::Path, 0) };
        let keeping = Keeping { output, resumes: true };
        let (mut driver, mut progress) = (Until(most), Progress::new(0));
        let conducted = conduct(&OfThePath, &mut driver, keeping, &mut results, &mut progress);
        (conducted, results)
    }

    fn asked(results: &Results) -> Vec<(&str, Option<f64>)> {
        let asked = |point: &Point| point.varied.get("mtu_bytes").copied();
        results.points.iter().map(|point| (point.experiment.as_str(), asked(point))).collect()
    }

    #[test]
    fn a_run_taken_up_again_asks_the_same_questions_of_a_changed_path() {
        let scratch = Scratch::new("runner").expect("a scratch folder");
        let output = scratch.path().join("results.json");
        let (cut, results) = run_of(&output, "far", 9000, 3);
        assert_eq!(results.partial.as_deref(), Some("no more"));
        assert!(cut.ended.is_err() && cut.log.is_some(), "the journal stays");
        drop(cut);
        let (whole, results) = run_of(&output, "far", 1500, 1);
        assert!(matches!(whole.ended, Ok(Ended::Complete)));
        let second = ("second", Some(9000.0));
        assert_eq!(asked(&results), [("first", None), ("first", None), second, second]);
        assert_eq!(results.path.path_mtu_bytes, Some(9000));
    }

    #[test]
    fn points_of_another_target_are_not_taken_up() {
        let scratch = Scratch::new("runner").expect("a scratch folder");
        let output = scratch.path().join("results.json");
        drop(run_of(&output, "far", 9000, 3));
        let (_, results) = run_of(&output, "farther", 1500, 4);
        assert_eq!(asked(&results).last(), Some(&("second", Some(1500.0))));
        assert_eq!(results.points.len(), 4);
    }
}
