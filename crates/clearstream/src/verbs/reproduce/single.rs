//! Experiments whose tests need something around each of them: every test is a run of this program
//! of its own, in a lab or toward a host.

use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use results::{Point, Results};
use sweep::PlannedPoint;
use sys::private::Scratch;
use sys::process::{Ending, Owned};

use super::in_lab::TestBed;
use crate::exit::VerbError;
use crate::runner::{Done, now_unix_ms};
use crate::{signals, store};

/// How often what watches a child looks.
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

    /// Runs one test with these options of `clearstream test`, and calls `watch` while it runs. A signal
    /// that asks this program to end ends the test too.
    ///
    /// # Errors
    /// The program could not be started, or a signal came. A test that failed is a document with its reason.
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
        wait_unless_told(&mut child, watch)?;
        let ended = child.ended_within(Duration::ZERO)?;
        if ended.status.success() {
            return Ok(Ok(store::load(&file)?));
        }
        Ok(Err(ended.last_line().trim_start_matches("clearstream: ").to_owned()))
    }
}

/// How a child ended; a signal that asks this program to end ends the child first. `watch` is called
/// while it runs.
///
/// # Errors
/// A signal came, or the kernel's.
pub(super) fn wait_unless_told(
    child: &mut Owned,
    watch: &mut dyn FnMut(),
) -> Result<ExitStatus, VerbError> {
    loop {
        if let Some(status) = child.wait_within(WATCH_INTERVAL)? {
            return Ok(status);
        }
        if let Some(number) = signals::caught() {
            child.end()?;
            return Err(VerbError::failed(format!("ended by signal {number}")));
        }
        watch();
    }
}

/// Tests that are runs of this program of their own, and what they tell of hosts and path.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) ground: Ground,
    /// The document of the first test that finished, without its points.
    first: Option<Results>,
}

impl Runs {
    /// On this ground.
    pub(super) fn new(ground: Ground) -> Self {
        Self { ground, first: None }
    }

    /// Runs one planned test with these options of `clearstream test`; `watch` is called meanwhile.
    ///
    /// # Errors
    /// The program could not be started.
    pub(super) fn test(
        &mut self,
        planned: &PlannedPoint,
        options: &[String],
        watch: &mut dyn FnMut(),
    ) -> Result<Done, VerbError> {
        let started_unix_ms = now_unix_ms();
        let failed = |why: String| Done::failed(planned, started_unix_ms, VerbError::failed(why));
        let mut one = match self.ground.test(options, watch)? {
            Ok(one) => one,
            Err(why) => return Ok(failed(why)),
        };
        let Some(point) = one.points.pop() else { return Ok(failed("it measured nothing".into())) };
        one.points.clear();
        self.first.get_or_insert(one);
        let PlannedPoint { experiment, varied, repeat, .. } = planned.clone();
        Ok(Done { point: Point { experiment, varied, repeat, ..point }, error: None })
    }

    /// Takes what stands around the tests down; the experiment's document then has the hosts and the
    /// path of the first test, where one finished.
    pub(super) fn describe(self, results: &mut Results) {
        let Some(first) = self.first else { return };
        results.hosts = first.hosts;
        results.path = first.path;
        results.absent = first.absent;
        results.findings.extend(first.findings);
    }
}
