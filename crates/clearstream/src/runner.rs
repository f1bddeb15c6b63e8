//! The one loop that runs experiments, with any driver: point by point, each stored on disk before the
//! next begins, resumable after a kill, interruptible by a signal.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use results::{Point, PointOutcome, Results, TestOutcome};
use sweep::{Experiment, Plan, PlannedPoint};
use units::{Timestamp, show_bit_rate};

use crate::exit::VerbError;
use crate::far::Tests;
use crate::progress::Progress;
use crate::signals;
use crate::store::PointLog;

/// How a plan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Every point was run.
    Complete,
    /// A signal of this number came first.
    Interrupted(i32),
}

/// Does the work of an experiment: a far end, a lab, a switch, or a job of ranks.
pub(crate) trait Driver {
    /// Brings the hosts into the state that the next round requires, before the experiment is asked for that
    /// round; also when there is none.
    ///
    /// # Errors
    /// The hosts cannot be prepared, so the run cannot go on.
    fn prepare(&mut self, so_far: &Results) -> Result<(), VerbError> {
        let _ = so_far;
        Ok(())
    }

    /// Does one planned piece of work; `what` names it on the progress line.
    ///
    /// # Errors
    /// The run cannot go on at all (no lab, no program). Failed work is a point that records its reason.
    fn run(
        &mut self,
        planned: &PlannedPoint,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Done, VerbError>;
}

/// The outcome of one planned piece of work.
pub(crate) struct Done {
    pub(crate) point: Point,
    /// Further points of the same piece of work; they are stored before `point`, so that the work counts as
    /// done only once all are on disk.
    pub(crate) beside: Vec<Point>,
    /// Why the work failed, if it did; ends the run if the next pieces of work fail too.
    pub(crate) error: Option<VerbError>,
    /// Whether the error ended work that has results up to then. They are no measurement: a later run repeats it.
    pub(crate) is_cut_short: bool,
}

impl Done {
    /// Successful work, which began at `started_unix_ms` (milliseconds since 1970 UTC).
    pub(crate) fn measured(
        planned: &PlannedPoint,
        started_unix_ms: u64,
        outcome: TestOutcome,
    ) -> Self {
        let outcome = PointOutcome::Measured(Box::new(outcome.with_figures()));
        Self::of(planned.point(started_unix_ms, String::new(), outcome), None)
    }

    /// Failed work.
    pub(crate) fn failed(planned: &PlannedPoint, started_unix_ms: u64, error: VerbError) -> Self {
        let outcome = PointOutcome::Failed(error.to_string());
        Self::of(planned.point(started_unix_ms, String::new(), outcome), Some(error))
    }

    /// A single point, with the reason if the work failed.
    pub(crate) fn of(point: Point, error: Option<VerbError>) -> Self {
        Self { point, beside: Vec::new(), error, is_cut_short: false }
    }

    /// A point with what was measured before the work ended with this error.
    pub(crate) fn cut_short(point: Point, error: VerbError) -> Self {
        Self { is_cut_short: true, ..Self::of(point, Some(error)) }
    }
}

/// An experiment after its run, complete or not.
pub(crate) struct Conducted {
    /// How it ended, or why it could not go on (the driver's error, or the journal cannot be read or
    /// written). The document has the measured points in every case.
    pub(crate) ended: Result<Ended, VerbError>,
    /// The journal, to be discarded once the points are in the results file; `None` if the experiment
    /// requests nothing.
    pub(crate) log: Option<PointLog>,
}

impl Conducted {
    /// The outcome of a run that needed no measurement.
    pub(crate) const AT_ONCE: Self = Self { ended: Ok(Ended::Complete), log: None };
}

/// What a run stores, and how it responds to failures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeping<'a> {
    /// The results file, with the journal beside it. Without one there is no journal.
    pub(crate) output: Option<&'a Path>,
    /// Whether points that an earlier run left in the journal are used.
    pub(crate) resumes: bool,
    /// Whether the earlier run's facts about the hosts are used too: for runs that change the hosts.
    pub(crate) restores_hosts: bool,
    /// Whether work that a signal or the far end cut short becomes part of the document (it never enters the
    /// journal).
    pub(crate) keeps_cut_short: bool,
    /// Consecutive failures after which the run gives up.
    pub(crate) failures_in_a_row_max: u32,
}

impl<'a> Keeping<'a> {
    /// Keeps a journal beside this results file.
    pub(crate) fn beside(output: &'a Path) -> Self {
        Self { output: Some(output), ..Self::NOTHING }
    }

    /// Keeps no journal.
    pub(crate) const NOTHING: Self = Self {
        output: None,
        resumes: true,
        restores_hosts: false,
        keeps_cut_short: false,
        failures_in_a_row_max: FAILURES_IN_A_ROW_MAX,
    };
}

/// Runs every round of an experiment and lets it conclude, all into `results`. Points already present
/// stay.
pub(crate) fn conduct(
    experiment: &(impl Experiment + ?Sized),
    driver: &mut dyn Driver,
    keeping: Keeping<'_>,
    results: &mut Results,
    progress: Progress,
) -> Conducted {
    let mut running =
        Loop { driver, keeping, log: None, is_logging: true, progress, failures: Vec::new() };
    let ended = running.rounds(experiment, results);
    let Loop { log, .. } = running;
    experiment.conclude(results, matches!(ended, Ok(Ended::Complete)));
    results.finished_unix_ms = Some(now_unix_ms());
    results.partial = match &ended {
        Ok(Ended::Complete) => None,
        Ok(Ended::Interrupted(number)) => Some(format!("ended by signal {number}")),
        Err(error) => Some(error.to_string()),
    };
    Conducted { ended, log }
}

/// A run in progress.
struct Loop<'a> {
    driver: &'a mut dyn Driver,
    keeping: Keeping<'a>,
    log: Option<PointLog>,
    /// Whether the journal takes further points: it could be written so far.
    is_logging: bool,
    progress: Progress,
    /// The latest failures, none of which a success followed.
    failures: Vec<VerbError>,
}

impl Loop<'_> {
    fn rounds(
        &mut self,
        experiment: &(impl Experiment + ?Sized),
        results: &mut Results,
    ) -> Result<Ended, VerbError> {
        let Some(identity) = experiment.identity(results) else { return Ok(Ended::Complete) };
        if let Some(output) = self.keeping.output {
            let (log, earlier) = PointLog::open(output, &identity, self.keeping, results)?;
            let earlier = experiment.taken_up(earlier);
            say_resumed(&log, &earlier);
            results.points.extend(earlier);
            self.log = Some(log);
        }
        let mut number = 0;
        loop {
            self.driver.prepare(results)?;
            let Some(plan) = experiment.round(number, results) else {
                return Ok(Ended::Complete);
            };
            self.progress.extend(plan.remaining(&results.points).len());
            let ended = self.run(&plan, &mut results.points)?;
            if let Ended::Interrupted(_) = ended {
                return Ok(ended);
            }
            number += 1;
        }
    }

    /// Runs every point of `plan` that is not yet in `points`, and adds it there.
    ///
    /// A point that fails is recorded with its reason and the run goes on; several failures in a row
    /// indicate that the peer is gone, and end the run.
    fn run(&mut self, plan: &Plan, points: &mut Vec<Point>) -> Result<Ended, VerbError> {
        for planned in plan.remaining(points) {
            if let Some(number) = signals::caught() {
                return Ok(Ended::Interrupted(number));
            }
            let what = describe(&planned);
            self.progress.begin(&what);
            let done = self.driver.run(&planned, &what, &mut self.progress);
            if let Some(number) = signals::caught() {
                // Interrupted work is not a measurement; the next run repeats it.
                if let (true, Ok(done)) = (self.keeping.keeps_cut_short, done) {
                    points.extend(done.beside);
                    points.push(done.point);
                }
                return Ok(Ended::Interrupted(number));
            }
            let Done { point, beside, error, is_cut_short } = done?;
            if is_cut_short && self.keeping.keeps_cut_short {
                points.extend(beside);
                points.push(point);
            } else {
                for point in beside.into_iter().chain([point]) {
                    self.keep(&point);
                    points.push(point);
                }
            }
            let Some(error) = error else {
                self.failures.clear();
                continue;
            };
            if self.failures.len() + 1 >= self.keeping.failures_in_a_row_max as usize {
                // The first is usually the cause; the last tells how things are.
                return Err(match self.failures.first() {
                    Some(first) if first.to_string() != error.to_string() => error.after(first),
                    _alike => error,
                });
            }
            self.failures.push(error);
        }
        Ok(Ended::Complete)
    }

    /// Appends a point to the journal. One that cannot be written does not end the run: its points are still shown.
    fn keep(&mut self, point: &Point) {
        let Some(log) = self.log.as_mut().filter(|_| self.is_logging) else { return };
        if let Err(error) = log.append(point) {
            self.is_logging = false;
            // Informational: a closed stderr does not affect the run.
            writeln!(
                crate::out::stderr(),
                "clearstream: {error}; the run continues without its journal and cannot be \
                 resumed from here"
            )
            .ok();
        }
    }
}

/// Reports that an earlier run's points are used.
fn say_resumed(log: &PointLog, earlier: &[Point]) {
    if !earlier.is_empty() {
        let (tests, path) = (units::count_of(earlier.len() as u64, "test"), log.path().display());
        // Informational: a closed stderr does not affect the run.
        writeln!(crate::out::stderr(), "clearstream: resuming after {tests} from {path}").ok();
    }
}

/// Consecutive failed points after which the run gives up on the peer.
const FAILURES_IN_A_ROW_MAX: u32 = 3;

/// The current time, milliseconds since 1970 UTC.
pub(crate) fn now_unix_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix(since_epoch).unix_ms
}

/// A driver for tests between two hosts.
pub(crate) struct Tested<'a>(pub(crate) &'a mut dyn Tests);

impl Driver for Tested<'_> {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        Ok(test(planned, self.0, &mut |bits_per_s| {
            progress.show(&format!("{what}  {}", show_bit_rate(bits_per_s)));
        }))
    }
}

/// Runs one planned test; `on_rate` is called with each interval's payload rate, bit/s.
pub(crate) fn test(
    planned: &PlannedPoint,
    tests: &mut dyn Tests,
    on_rate: &mut dyn FnMut(f64),
) -> Done {
    let started_unix_ms = now_unix_ms();
    let Some(spec) = planned.spec() else {
        let error = VerbError::failed("this work is not a test between two hosts");
        return Done::failed(planned, started_unix_ms, error);
    };
    let run = tests.run_test(spec, on_rate);
    let command = crate::verbs::options::command_line(tests.target(), spec);
    tested(planned, started_unix_ms, command, run)
}

/// The outcome of a planned test.
pub(crate) fn tested(
    planned: &PlannedPoint,
    started_unix_ms: u64,
    command: String,
    run: Result<TestOutcome, VerbError>,
) -> Done {
    let (outcome, error) = match run {
        Ok(outcome) => (PointOutcome::Measured(Box::new(outcome)), None),
        Err(error) => (PointOutcome::Failed(error.to_string()), Some(error)),
    };
    Done::of(planned.point(started_unix_ms, command, outcome), error)
}

fn describe(planned: &PlannedPoint) -> String {
    let settings: Vec<String> =
        planned.varied.iter().map(|(name, value)| show_setting(name, *value)).collect();
    format!("{} {} (repeat {})", planned.experiment, settings.join(" "), planned.repeat + 1)
}

/// A varied parameter as text, with the unit that its name implies.
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
        let (keeping, mut driver) = (Keeping::beside(output), Until(most));
        let conducted = conduct(&OfThePath, &mut driver, keeping, &mut results, Progress::new(0));
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

    /// Fails with these reasons after so many measured points.
    struct Losing(usize, Vec<&'static str>);

    impl Driver for Losing {
        fn run(
            &mut self,
            planned: &PlannedPoint,
            _what: &str,
            _progress: &mut Progress,
        ) -> Result<Done, VerbError> {
            if self.0 > 0 {
                self.0 -= 1;
                return Ok(Done::measured(planned, 0, TestOutcome::default()));
            }
            Ok(Done::failed(planned, 0, VerbError::failed(self.1.remove(0))))
        }
    }

    #[test]
    fn a_run_that_gives_up_names_the_first_failure_and_the_last() {
        let path = PathFacts { path_mtu_bytes: Some(1500), ..PathFacts::default() };
        let mut results = Results { path, ..Results::begun(RunKind::Path, 0) };
        let mut driver = Losing(1, vec!["lost b", "nothing listens", "nothing listens"]);
        let keeping = Keeping { failures_in_a_row_max: 3, ..Keeping::NOTHING };
        let plan = Plan::new(vec![Setting::new("first", TestSpec::tcp())], 4, 0);
        let done = conduct(&plan, &mut driver, keeping, &mut results, Progress::new(0));
        let error = done.ended.expect_err("it gave up");
        assert_eq!(error.to_string(), "lost b; then nothing listens");
        assert_eq!((error.code(), error.with_part_done().code()), (1, 5));
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
