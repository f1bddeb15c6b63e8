//! Tests run from a host of a lab: a process of this program there runs them and reports the outcomes, one
//! line of JSON each.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use results::{Results, RunKind, TestOutcome, TestSpec};
use serde::{Deserialize, Serialize};
use sys::process::{Ending, Owned};
use traffic::client::Target;

use crate::exit::VerbError;
use crate::far::{FarEnd, Tests};
use crate::progress::Progress;
use crate::signals;

/// Interval of polling for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A request to the process in the lab, or in a guest.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    Document(RunKind),
    Test(Box<TestSpec>),
}

/// Its answer.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Document(Box<Results>),
    /// Payload rate of an interval, bit/s, while the test goes on.
    Rate(f64),
    Outcome(Box<TestOutcome>),
    Failed {
        code: u8,
        why: String,
    },
}

/// The process in the lab; dropping this value ends it.
#[derive(Debug)]
pub(crate) struct Tester {
    target: Target,
    requests: ChildStdin,
    answers: Receiver<String>,
    // Declared last, so dropped last: until then the pipes have another end.
    child: Owned,
}

impl Tester {
    /// Starts the process: `command` runs this program on the client host, `host` is the serving host. The
    /// calling thread must outlive it.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start(mut command: Command, host: &str) -> Result<Self, VerbError> {
        command.args(["tester", host]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // In its own process group: Ctrl-C goes to this process only, which then ends the other.
        let mut child = Owned::start(&mut command, Ending::TERM.with_group())?;
        let (Some(requests), Some(answers)) = (child.take_stdin(), child.take_stdout()) else {
            return Err(VerbError::failed("the process in the lab has no pipes"));
        };
        let (say, hear) = channel();
        thread::Builder::new().name("tester".to_owned()).spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { target: Target::new(host), requests, answers: hear, child })
    }

    /// Begins a test; [`Self::outcome`] waits for its end.
    ///
    /// # Errors
    /// The process is no longer running.
    pub(crate) fn begin(&mut self, spec: &TestSpec) -> Result<(), VerbError> {
        self.ask(&Request::Test(Box::new(spec.clone())))
    }

    /// Waits for the test that was begun; `on_rate` is called with each interval's payload rate, bit/s.
    ///
    /// # Errors
    /// The test failed, or a signal came.
    pub(crate) fn outcome(
        &mut self,
        on_rate: &mut dyn FnMut(f64),
    ) -> Result<TestOutcome, VerbError> {
        loop {
            match self.answer()? {
                Answer::Rate(bits_per_s) => on_rate(bits_per_s),
                Answer::Outcome(outcome) => return Ok(*outcome),
                Answer::Failed { code, why } => return Err(VerbError::of_code(code, why)),
                Answer::Document(_) => return Err(VerbError::failed("a document is no outcome")),
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Result<(), VerbError> {
        let mut line =
            serde_json::to_vec(request).map_err(|error| VerbError::from_error(&error))?;
        line.push(b'\n');
        self.requests.write_all(&line).map_err(|error| self.lost(&error.to_string()))
    }

    fn answer(&mut self) -> Result<Answer, VerbError> {
        loop {
            if let Some(number) = signals::caught() {
                return Err(VerbError::failed(format!("ended by signal {number}")));
            }
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(line) => {
                    return serde_json::from_str(&line)
                        .map_err(|error| self.lost(&error.to_string()));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost("it has ended")),
            }
        }
    }

    fn lost(&self, why: &str) -> VerbError {
        let id = self.child.id();
        VerbError::failed(format!("the process in the lab that makes the tests ({id}): {why}"))
    }
}

impl Tests for Tester {
    fn target(&self) -> &Target {
        &self.target
    }

    fn document(&mut self, kind: RunKind, progress: &mut Progress) -> Result<Results, VerbError> {
        progress.begin("idle round trips");
        self.ask(&Request::Document(kind))?;
        match self.answer()? {
            Answer::Document(document) => {
                Ok(Results { command: std::env::args().collect(), ..*document })
            }
            Answer::Failed { code, why } => Err(VerbError::of_code(code, why)),
            Answer::Rate(_) | Answer::Outcome(_) => {
                Err(VerbError::failed("an outcome is no document"))
            }
        }
    }

    fn run_test(
        &mut self,
        spec: &TestSpec,
        on_rate: &mut dyn FnMut(f64),
    ) -> Result<TestOutcome, VerbError> {
        self.begin(spec)?;
        self.outcome(on_rate)
    }
}

/// The loop of the process in the lab: answers requests until its input ends.
///
/// # Errors
/// A pipe is closed or cannot be written.
pub(crate) fn answer_all(host: &str) -> Result<(), VerbError> {
    let mut far = None;
    for line in io::stdin().lock().lines() {
        let request =
            serde_json::from_str(&line?).map_err(|error| VerbError::from_error(&error))?;
        let answer = match connected(&mut far, host) {
            Ok(far) => answer(request, far)?,
            Err(error) => failed(&error),
        };
        say(&answer)?;
    }
    Ok(())
}

/// The far end; connects to it on the first request.
fn connected<'a>(far: &'a mut Option<FarEnd>, host: &str) -> Result<&'a mut FarEnd, VerbError> {
    if far.is_none() {
        *far = Some(FarEnd::connect(&Target::new(host))?);
    }
    far.as_mut().ok_or_else(|| VerbError::failed("there is no far end"))
}

fn answer(request: Request, far: &mut FarEnd) -> Result<Answer, VerbError> {
    match request {
        Request::Document(kind) => {
            let document = far.describe(kind, &mut Progress::new(0));
            Ok(Answer::Document(Box::new(document)))
        }
        Request::Test(spec) => {
            let mut heard = Ok(());
            let mut on_rate = |bits_per_s| heard = say(&Answer::Rate(bits_per_s));
            let run = far.run_test(&spec, &mut on_rate);
            heard?;
            Ok(match run {
                Ok(outcome) => Answer::Outcome(Box::new(outcome)),
                Err(error) => failed(&error),
            })
        }
    }
}

fn failed(error: &VerbError) -> Answer {
    Answer::Failed { code: error.code(), why: error.to_string() }
}

/// Writes an answer to the pipe. Its reader is a process that parses JSON, so nothing needs escaping.
fn say(answer: &Answer) -> Result<(), VerbError> {
    let mut line = serde_json::to_vec(answer).map_err(|error| VerbError::from_error(&error))?;
    line.push(b'\n');
    let mut out = crate::out::raw_stdout();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}
