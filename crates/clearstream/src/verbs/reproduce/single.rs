//! Experiments whose tests need something around each of them: every test is a run of this program
//! of its own, in a lab or toward a host.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use results::{Point, PointOutcome, Results, RunKind};
use sweep::PlannedPoint;
use sys::private::Scratch;
use sys::process::{Ending, Owned};

use super::in_lab::TestBed;
use crate::exit::VerbError;
use crate::{signals, store};

/// How often what watches a test looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Most that is kept of what a test says, bytes: enough for the line it ends with.
const SAID_BYTES_MAX: usize = 16 << 10;

/// Where tests run.
#[derive(Debug)]
pub(super) enum Ground {
    /// From this host to a server elsewhere, with more options that say where.
    Host(String),
    /// Between two hosts of a lab.
    Lab(Box<TestBed>),
}

impl Ground {
    /// A lab of this name, serving.
    pub(super) fn lab(name: &'static str) -> Result<Self, VerbError> {
        let bed = TestBed::up(name)?;
        bed.serve()?;
        Ok(Self::Lab(Box::new(bed)))
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
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Owned::start(&mut command, Ending::TERM)?.capture(SAID_BYTES_MAX)?;
        watch();
        while child.wait_within(WATCH_INTERVAL)?.is_none() {
            watch();
        }
        let ended = child.ended_within(Duration::ZERO)?;
        if ended.status.success() {
            return Ok(Ok(store::load(&file)?));
        }
        Ok(Err(ended.last_line().trim_start_matches("clearstream: ").to_owned()))
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
                spec: planned.spec.clone(),
                outcome: PointOutcome::Failed(why),
            }));
        }
    }
}

/// Whether the user wants it to end.
pub(super) fn interrupted() -> Option<i32> {
    signals::caught()
}
