//! Experiments whose tests need something around each of them: every test is a run of this program
//! of its own, in a lab or toward a host.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use results::{Point, PointOutcome, Results, RunKind};
use sweep::PlannedPoint;
use sys::private::Scratch;

use super::in_lab::TestBed;
use crate::exit::VerbError;
use crate::{signals, store};

/// How often what watches a test looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Where tests run.
#[derive(Debug)]
pub(super) enum Ground {
    /// From this host to a server elsewhere, with more options that say where.
    Host(String),
    /// Between two hosts of a lab.
    Lab(TestBed),
}

impl Ground {
    /// A lab of this name, serving.
    pub(super) fn lab(name: &'static str) -> Result<Self, VerbError> {
        let bed = TestBed::up(name)?;
        bed.serve()?;
        Ok(Self::Lab(bed))
    }

    fn program(&self) -> Result<(Command, &str), VerbError> {
        match self {
            Self::Host(host) => Ok((Command::new(std::env::current_exe()?), host)),
            Self::Lab(bed) => Ok((bed.program(bed.near(), false), bed.far())),
        }
    }

    /// Runs one test with these options of `clearstream test`, and calls `watch` while it runs.
    ///
    /// # Errors
    /// The program could not be started. A test that failed is a document with its reason.
    pub(super) fn test(
        &self,
        options: &[String],
        watch: &mut dyn FnMut(),
    ) -> Result<Result<Results, String>, VerbError> {
        let scratch = Scratch::new("test").map_err(|error| VerbError::from_error(&error))?;
        let file = scratch.path().join("results.json");
        let (mut command, host) = self.program()?;
        command.args(["test", host]).args(options).arg("--output").arg(&file);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut complaints = child.stderr.take();
        let status = loop {
            watch();
            if let Some(status) = child.try_wait()? {
                break status;
            }
            thread::sleep(WATCH_INTERVAL);
        };
        if status.success() {
            return Ok(Ok(store::load(&file)?));
        }
        let mut said = String::new();
        if let Some(pipe) = &mut complaints {
            pipe.take(4096).read_to_string(&mut said)?;
        }
        let why = said.lines().last().unwrap_or("it said nothing");
        Ok(Err(why.trim_start_matches("clearstream: ").to_owned()))
    }
}

/// Adds one test's document to the experiment's: the first also brings hosts and path.
pub(super) fn collect(
    whole: &mut Option<Results>,
    planned: &PlannedPoint,
    one: Result<Results, String>,
) {
    let point = |point: Point| Point {
        experiment: planned.experiment.clone(),
        varied: planned.varied.clone(),
        repeat: planned.repeat,
        ..point
    };
    match one {
        Ok(mut one) => {
            let points: Vec<Point> = one.points.drain(..).map(point).collect();
            let whole = whole.get_or_insert_with(|| Results {
                kind: RunKind::Reproduce,
                command: std::env::args().collect(),
                ..one
            });
            whole.points.extend(points);
        }
        Err(why) => {
            // Without any document yet there is nothing to add it to; the law stays undecided.
            let Some(whole) = whole else { return };
            whole.points.push(point(Point {
                experiment: String::new(),
                varied: BTreeMap::new(),
                repeat: 0,
                started_unix_ms: crate::runner::now_unix_ms(),
                command: String::new(),
                by: planned.work.workers(),
                work: planned.work.clone(),
                outcome: PointOutcome::Failed(why),
            }));
        }
    }
}

/// Whether the user wants it to end.
pub(super) fn interrupted() -> Option<i32> {
    signals::caught()
}
