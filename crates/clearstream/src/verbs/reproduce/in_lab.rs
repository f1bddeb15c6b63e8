//! Runs a recipe between two hosts of a lab: the same program, the same verb, inside.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ReproduceArgs;
use super::recipes::Recipe;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Brings the recipe's lab up (unless it is), serves in its second host, runs the verb in its
/// first, and takes down what it brought up.
pub(super) fn run(recipe: &Recipe, args: &ReproduceArgs, json: bool) -> VerbResult {
    let program = std::env::current_exe()?;
    let plan = lab::find_plan(recipe.lab).map_err(|error| VerbError::from_error(&error))?;
    let [near, far, ..] = plan.hosts.as_slice() else {
        return Err(VerbError::failed(format!("lab {} has no two hosts", recipe.lab)));
    };
    let bed = TestBed::up(&program, recipe.lab)?;
    let serve = ["lab", "exec", "--detach", recipe.lab, &far.name, "--"];
    step(Command::new(&program).args(serve).arg(&program).arg("serve"))?;
    let mut inner = Command::new(&program);
    inner.args(["lab", "exec", recipe.lab, &near.name, "--"]).arg(&program);
    if json {
        inner.arg("--json");
    }
    inner.args(["reproduce", recipe.id, &far.name]);
    inner.args(["--duration", &args.duration.as_secs_f64().to_string()]);
    inner.args(["--repeats", &args.repeats.to_string()]);
    inner.args(path_option("--output", args.output.as_ref()));
    inner.args(path_option("--report", args.report.as_ref()));
    let status = inner.status()?;
    drop(bed);
    match status.code().map(u8::try_from) {
        Some(Ok(code)) => Ok(Exit::Program(code)),
        _ => Err(VerbError::failed(format!("the run in the lab ended: {status}"))),
    }
}

/// A lab that goes when this does, if it came with it; SIGKILL included.
#[derive(Debug)]
struct TestBed<'a> {
    program: &'a Path,
    name: &'static str,
    ours: bool,
}

impl<'a> TestBed<'a> {
    fn up(program: &'a Path, name: &'static str) -> Result<Self, VerbError> {
        let is_up = Command::new(program)
            .args(["lab", "status", name])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?
            .success();
        let own_pid = std::process::id().to_string();
        step(Command::new(program).args(["lab", "up", name, "--while", &own_pid]))?;
        Ok(Self { program, name, ours: !is_up })
    }
}

impl Drop for TestBed<'_> {
    fn drop(&mut self) {
        if self.ours {
            // It says itself what went wrong; the result is not changed by it.
            step(Command::new(self.program).args(["lab", "down", self.name])).ok();
        }
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

fn path_option(name: &str, path: Option<&PathBuf>) -> Vec<std::ffi::OsString> {
    path.map_or_else(Vec::new, |path| vec![name.into(), path.as_os_str().to_owned()])
}
