//! Runs an experiment between two hosts of a lab: the same program, the same verb, inside.

use std::cell::OnceCell;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::Bed;
use results::DeviceCounters;
use rustix::process::Signal;
use sys::process::{Ending, Owned};

use super::ReproduceArgs;
use super::recipes::Recipe;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;

/// Longest wait for the server of a lab.
const LISTEN_MAX: Duration = Duration::from_secs(20);
/// Most that is kept of what the server says, bytes: enough for the line it ends with.
const SAID_BYTES_MAX: usize = 16 << 10;
/// How often it is looked whether a signal has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest that a run may take to keep what it has after a signal.
const KEEP_MAX: Duration = Duration::from_secs(20);

/// Brings the recipe's lab up (unless it is), serves in its second host, runs the verb in its
/// first, and takes down what it brought up.
pub(super) fn run(recipe: &Recipe, args: &ReproduceArgs, json: bool) -> VerbResult {
    let bed = TestBed::up(recipe.lab)?;
    bed.serve()?;
    if let Some(number) = signals::caught() {
        return Ok(Exit::Signal(number));
    }
    let mut inner = bed.program(bed.near(), json);
    inner.args(["reproduce", recipe.id, bed.far()]);
    inner.args(["--duration", &args.duration.as_secs_f64().to_string()]);
    inner.args(["--repeats", &args.repeats.to_string()]);
    inner.args(path_option("--output", args.output.as_ref()));
    inner.args(path_option("--report", args.report.as_ref()));
    bed.end_with(&mut inner)
}

/// A lab of two hosts at least, for as long as this lives.
#[derive(Debug)]
pub(in crate::verbs) struct TestBed {
    // Ends before the lab does.
    server: OnceCell<Owned>,
    bed: Bed,
    near: String,
    far: String,
}

impl TestBed {
    /// Brings a built-in lab up, unless it is. From here on a signal that asks this program to end is
    /// only noted, so that the lab goes down with the value.
    ///
    /// # Errors
    /// It has no two hosts, or cannot be brought up here.
    pub(in crate::verbs) fn up(name: &str) -> Result<Self, VerbError> {
        signals::watch().map_err(|error| VerbError::from_error(&error))?;
        let plan = lab::find_plan(name)?;
        let [near, far, ..] = plan.hosts.as_slice() else {
            return Err(VerbError::failed(format!("lab {name} has no two hosts")));
        };
        let (near, far) = (near.name.clone(), far.name.clone());
        let bed = Bed::up(&plan, std::env::current_exe()?)?;
        for note in bed.lab().notes() {
            writeln!(crate::out::stderr(), "clearstream: lab {name}: {note}")?;
        }
        Ok(Self { server: OnceCell::new(), bed, near, far })
    }

    /// Its first host.
    pub(in crate::verbs) fn near(&self) -> &str {
        &self.near
    }

    /// Its second host.
    pub(in crate::verbs) fn far(&self) -> &str {
        &self.far
    }

    /// Serves tests in its second host from now on.
    ///
    /// # Errors
    /// The server does not begin to listen; the line it ends with.
    pub(in crate::verbs) fn serve(&self) -> Result<(), VerbError> {
        let mut serve = self.bed.clearstream(&self.far);
        serve.arg("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // In a group of its own: Ctrl-C first lets the test end that it serves.
        let server = Owned::start(&mut serve, Ending::KILL.with_group())?;
        let mut server = server.capture(SAID_BYTES_MAX)?;
        let place = (self.far.as_str(), traffic::server::DEFAULT_PORT);
        match self.bed.wait_for_listener(place, &mut server, LISTEN_MAX) {
            Ok(()) => {
                // A second server could not have begun to listen.
                self.server.set(server).ok();
                Ok(())
            }
            Err(error) => {
                let said = server.ended_within(Duration::ZERO).map(|ended| ended.last_line());
                let said = said.unwrap_or_else(|error| error.to_string());
                Err(VerbError::failed(format!("{error}: {said}")))
            }
        }
    }

    /// The counters of a host's interfaces.
    ///
    /// # Errors
    /// No such host, or the lab has gone.
    pub(in crate::verbs) fn devices(&self, host: &str) -> Result<Vec<DeviceCounters>, VerbError> {
        Ok(self.bed.devices(host)?)
    }

    /// Anything on one of its hosts, ready for the program and its arguments.
    pub(in crate::verbs) fn command(&self, host: &str) -> Command {
        self.bed.command(host)
    }

    /// This program on one of its hosts, ready for a verb.
    pub(in crate::verbs) fn program(&self, host: &str, json: bool) -> Command {
        let mut command = self.bed.clearstream(host);
        if json {
            command.arg("--json");
        }
        command
    }

    /// Runs the last command of a run and ends as it does. A signal that comes here is handed on once, so
    /// that it keeps what it has measured; the lab goes when it has ended.
    pub(in crate::verbs) fn end_with(self, inner: &mut Command) -> VerbResult {
        // In a group of its own: what a terminal's Ctrl-C also sent there would come twice.
        let mut inner = Owned::start(inner, Ending::TERM.with_group())?;
        let mut until = None;
        let status = loop {
            if let Some(status) = inner.wait_within(LOOK_EVERY)? {
                break status;
            }
            match (signals::caught(), until) {
                (Some(number), None) => {
                    // Not to its group: `lab exec` passes it on to the program.
                    Signal::from_named_raw(number).map_or(Ok(()), |signal| inner.signal(signal))?;
                    until = Some(Instant::now() + KEEP_MAX);
                }
                (_, Some(until)) if Instant::now() > until => break inner.end()?,
                _ => {}
            }
        };
        drop(self);
        match (status.code().map(u8::try_from), signals::caught()) {
            (Some(Ok(code)), _) => Ok(Exit::Program(code)),
            (_, Some(number)) => Ok(Exit::Signal(number)),
            _ => Err(VerbError::failed(format!("the run in the lab ended: {status}"))),
        }
    }
}

/// An option with a path, where there is one.
pub(in crate::verbs) fn path_option(name: &str, path: Option<&PathBuf>) -> Vec<std::ffi::OsString> {
    path.map_or_else(Vec::new, |path| vec![name.into(), path.as_os_str().to_owned()])
}
