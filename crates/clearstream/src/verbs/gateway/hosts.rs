//! One verb on all hosts of a lab: the program itself, started on each of them at once.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use lab::Lab;
use route_plan::Plan;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// What is done on each host.
pub(super) struct Work<'a> {
    /// `apply`, `check` or `revert`.
    pub(super) verb: &'a str,
    /// The plan's file, and the plan; every host of the lab without one.
    pub(super) plan: Option<(&'a Path, &'a Plan)>,
    /// More options.
    pub(super) more: &'a [&'a str],
}

/// Exit codes from the best to the worst.
const CODES: [i32; 6] = [0, 3, 5, 4, 1, 2];

/// Does it on all hosts of a lab that the plan names, and prints what each of them printed.
pub(super) fn on_lab(name: &str, work: &Work<'_>, json: bool) -> VerbResult {
    let lab = Lab::open(name)?;
    let is_named = |host: &&str| work.plan.is_none_or(|(_, plan)| plan.find(host).is_some());
    let hosts: Vec<&str> =
        lab.plan().hosts.iter().map(|host| host.name.as_str()).filter(is_named).collect();
    if hosts.is_empty() {
        return Err(VerbError::usage(format!("the plan names no host of the lab '{name}'")));
    }
    let program = std::env::current_exe()?;
    let started: Result<Vec<_>, VerbError> = hosts
        .iter()
        .map(|host| {
            let mut command = Command::new(&program);
            command.args(["lab", "exec", name, host, "--"]).arg(&program);
            if json {
                command.arg("--json");
            }
            command.args(["gateway", work.verb]);
            if let Some((file, _)) = work.plan {
                // Programs on a host start where this one did.
                command.arg(
                    std::path::absolute(file)
                        .ok()
                        .filter(|file| file.exists())
                        .unwrap_or(file.to_owned()),
                );
            }
            command.args(["--host", host]).args(work.more);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().map_err(VerbError::failed)?;
            Ok((*host, child))
        })
        .collect();
    let mut worst = 0;
    let mut answers = Vec::new();
    for (host, child) in started? {
        let output = child.wait_with_output()?;
        worst = worst.max(rank(&output));
        if json {
            answers.push(answer(host, &output));
        } else {
            write!(crate::out::stdout(), "{}", String::from_utf8_lossy(&output.stdout))?;
            for line in String::from_utf8_lossy(&output.stderr).lines() {
                writeln!(crate::out::stderr(), "{host}: {line}")?;
            }
        }
    }
    if json {
        super::plan::print_json(&serde_json::Value::Array(answers))?;
    }
    match CODES.get(worst) {
        Some(0) => Ok(Exit::Ok),
        Some(3) => Ok(Exit::GateFailed),
        Some(5) => Ok(Exit::Partial),
        Some(4) => Err(VerbError::missing("not on every host of the lab: see above")),
        _failed => Err(VerbError::failed("not on every host of the lab: see above")),
    }
}

/// How bad an end is: the place of its code in [`CODES`].
fn rank(output: &Output) -> usize {
    let code = output.status.code().unwrap_or(1);
    CODES.iter().position(|known| *known == code).unwrap_or(CODES.len() - 1)
}

fn answer(host: &str, output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_no_json| {
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        serde_json::json!({ "host": host, "error": error })
    })
}
