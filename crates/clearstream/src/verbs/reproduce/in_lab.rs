//! Runs an experiment between two hosts of a lab: the same program, the same verb, inside.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::ReproduceArgs;
use super::recipes::Recipe;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;

/// How often a run in the lab is looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

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

/// A lab that goes when this does, if it came with it.
#[derive(Debug)]
pub(in crate::verbs) struct TestBed {
    program: PathBuf,
    name: &'static str,
    near: String,
    far: String,
    ours: bool,
}

impl TestBed {
    /// Brings a built-in lab up, unless it is. From here on a signal that asks this program to end is
    /// only noted, so that the lab goes down with the value.
    ///
    /// # Errors
    /// It has no two hosts, or cannot be brought up here.
    pub(in crate::verbs) fn up(name: &'static str) -> Result<Self, VerbError> {
        signals::watch().map_err(|error| VerbError::from_error(&error))?;
        let program = std::env::current_exe()?;
        let plan = lab::find_plan(name).map_err(|error| VerbError::from_error(&error))?;
        let [near, far, ..] = plan.hosts.as_slice() else {
            return Err(VerbError::failed(format!("lab {name} has no two hosts")));
        };
        let (near, far) = (near.name.clone(), far.name.clone());
        let is_up = Command::new(&program)
            .args(["lab", "status", name])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?
            .success();
        if !is_up {
            step(Command::new(&program).args(["lab", "up", name]))?;
        }
        Ok(Self { program, name, near, far, ours: !is_up })
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
    /// The server could not be started.
    pub(in crate::verbs) fn serve(&self) -> Result<(), VerbError> {
        let serve = ["lab", "exec", "--detach", self.name, &self.far, "--"];
        step(Command::new(&self.program).args(serve).arg(&self.program).arg("serve"))
    }

    /// Anything on one of its hosts, ready for the program and its arguments.
    pub(in crate::verbs) fn command(&self, host: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["lab", "exec", self.name, host, "--"]);
        command
    }

    /// This program on one of its hosts, ready for a verb.
    pub(in crate::verbs) fn program(&self, host: &str, json: bool) -> Command {
        let mut command = self.command(host);
        command.arg(&self.program);
        if json {
            command.arg("--json");
        }
        command
    }

    /// Runs the last command of a run and ends as it does.
    ///
    /// A signal that asks this program to end is passed on once, and the lab goes down after the run
    /// has kept what it has. The run has a process group of its own, so that a terminal's Ctrl-C does
    /// not reach it a second time.
    pub(in crate::verbs) fn end_with(self, inner: &mut Command) -> VerbResult {
        let mut child = inner.stdin(Stdio::null()).process_group(0).spawn()?;
        let mut told = None;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if let (None, Some(number)) = (told, signals::caught()) {
                pass_on(&child, number);
                told = Some(number);
            }
            thread::sleep(WATCH_INTERVAL);
        };
        drop(self);
        match status.code().map(u8::try_from) {
            Some(Ok(code)) => Ok(Exit::Program(code)),
            _ => Err(VerbError::failed(format!("the run in the lab ended: {status}"))),
        }
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        if self.ours {
            // It says itself what went wrong; the result is not changed by it.
            step(Command::new(&self.program).args(["lab", "down", self.name])).ok();
        }
    }
}

/// Passes a signal on to a child that runs.
fn pass_on(child: &Child, number: i32) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = Signal::from_named_raw(number);
    if let Some((pid, signal)) = pid.zip(signal) {
        // It may have ended by itself meanwhile; its own status says how.
        kill_process(pid, signal).ok();
    }
}

/// Runs a step of the set-up; its complaint is on stderr already, so its code is passed on.
fn step(command: &mut Command) -> Result<(), VerbError> {
    let status = command.stdout(Stdio::null()).status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(4) => Err(VerbError::missing("the lab cannot be brought up here")),
        _ => Err(VerbError::failed(format!("the lab could not be set up: {status}"))),
    }
}

/// An option with a path, where there is one.
pub(in crate::verbs) fn path_option(name: &str, path: Option<&PathBuf>) -> Vec<std::ffi::OsString> {
    path.map_or_else(Vec::new, |path| vec![name.into(), path.as_os_str().to_owned()])
}
