//! Runs a verb on many hosts: starts this program on each host of a lab, or on each machine over ssh.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use lab::Lab;
use route_plan::Plan;
use serde_json::Value;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Most machines contacted at once.
const AT_ONCE_COUNT: usize = 32;

/// How to reach the hosts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hosts<'a> {
    /// As hosts of this lab.
    Lab(&'a str),
    /// As machines with the names that the plan gives them.
    Ssh {
        /// Command that starts a program there, without the host's name, which is appended.
        command: &'a str,
        /// Path of this program there.
        program: &'a str,
    },
}

/// The command to run on each host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    /// `apply`, `check`, `revert`, `drain` or `undrain`.
    pub(super) verb: &'a str,
    /// The plan's file, and the plan; `None`: every host of the lab.
    pub(super) plan: Option<(&'a Path, &'a Plan)>,
    /// Arguments after the plan, then options.
    pub(super) more: &'a [&'a str],
}

/// Exit codes from best to worst.
const CODES: [i32; 6] = [0, 3, 5, 4, 1, 2];

/// The answers of the hosts.
#[derive(Default)]
pub(super) struct Answers {
    /// Index of the worst exit code in [`CODES`].
    worst: usize,
    values: Vec<Value>,
}

/// Names of the hosts that the plan names, in their order; without a plan, of all hosts of the lab.
pub(super) fn names(place: Hosts<'_>, plan: Option<&Plan>) -> Result<Vec<String>, VerbError> {
    match (place, plan) {
        (Hosts::Lab(lab), plan) => {
            let is_named = |host: &str| plan.is_none_or(|plan| plan.find(host).is_some());
            let opened = Lab::open(lab)?;
            let names = opened.plan().hosts.iter().map(|host| host.name.clone());
            let names: Vec<String> = names.filter(|name| is_named(name)).collect();
            if names.is_empty() {
                return Err(VerbError::usage(format!("the plan names no host of the lab '{lab}'")));
            }
            Ok(names)
        }
        (Hosts::Ssh { .. }, Some(plan)) => {
            if let Some(name) = plan.names().find(|name| name.starts_with('-')) {
                return Err(VerbError::usage(format!(
                    "host '{name}': ssh would read a name that begins with - as an option"
                )));
            }
            Ok(plan.names().map(str::to_owned).collect())
        }
        (Hosts::Ssh { .. }, None) => {
            Err(VerbError::usage("--ssh needs --plan PLAN: it names the machines"))
        }
    }
}

/// Runs the command on all hosts that the plan names, and prints the output of each.
pub(super) fn on_all(place: Hosts<'_>, work: Work<'_>, json: bool) -> VerbResult {
    let names = names(place, work.plan.map(|(_, plan)| plan))?;
    let mut answers = Answers::default();
    answers.ask(place, &names, work, json)?;
    answers.end(json)
}

impl Answers {
    /// Runs the command on these hosts, several at a time, and prints their output in the order of their names.
    pub(super) fn ask(
        &mut self,
        place: Hosts<'_>,
        names: &[String],
        work: Work<'_>,
        json: bool,
    ) -> Result<(), VerbError> {
        let next = AtomicUsize::new(0);
        let outputs: Vec<Mutex<Option<io::Result<Output>>>> =
            names.iter().map(|_| Mutex::new(None)).collect();
        let plan = match (place, work.plan) {
            (Hosts::Ssh { .. }, Some((file, _))) => super::plan_text(file)?,
            _lab => String::new(),
        };
        thread::scope(|scope| {
            for _ in 0..names.len().min(AT_ONCE_COUNT) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(name), Some(slot)) = (names.get(at), outputs.get(at)) else {
                            break;
                        };
                        let output = run(place, name, work, &plan, json);
                        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
                    }
                });
            }
        });
        for (name, output) in names.iter().zip(outputs) {
            match output.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(output) => self.take(name, &output?, json)?,
                None => return Err(VerbError::failed(format!("{name}: not reached"))),
            }
        }
        Ok(())
    }

    fn take(&mut self, host: &str, output: &Output, json: bool) -> Result<(), VerbError> {
        self.worst = self.worst.max(rank(output));
        if json {
            self.values.push(answer(host, output));
            return Ok(());
        }
        write!(crate::out::stdout(), "{}", String::from_utf8_lossy(&output.stdout))?;
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            writeln!(crate::out::stderr(), "{host}: {line}")?;
        }
        Ok(())
    }

    /// The hosts' JSON answers, in the order of their names; empty without `json`.
    pub(super) fn values(&self) -> &[Value] {
        &self.values
    }

    /// The answers, for changes.
    pub(super) fn values_mut(&mut self) -> &mut [Value] {
        &mut self.values
    }

    /// Records a mismatch between hosts: exit code 3 or worse.
    pub(super) fn has_drifted(&mut self) {
        self.worst = self.worst.max(1);
    }

    /// Whether any host ended with another code than 0.
    pub(super) fn has_failed(&self) -> bool {
        self.worst > 0
    }

    /// Prints the collected JSON, and returns the worst host's exit code.
    pub(super) fn end(self, json: bool) -> VerbResult {
        if json {
            super::plan::print_json(&Value::Array(self.values))?;
        }
        match CODES.get(self.worst) {
            Some(0) => Ok(Exit::Ok),
            Some(3) => Ok(Exit::GateFailed),
            Some(5) => Ok(Exit::Partial),
            Some(4) => Err(VerbError::missing("failed on some hosts: see above")),
            _failed => Err(VerbError::failed("failed on some hosts: see above")),
        }
    }
}

/// Runs the command on one host, and waits for its end.
fn run(place: Hosts<'_>, host: &str, work: Work<'_>, plan: &str, json: bool) -> io::Result<Output> {
    let mut words: Vec<String> = Vec::new();
    words.extend(json.then(|| "--json".to_owned()));
    words.extend(["gateway".to_owned(), work.verb.to_owned()]);
    if work.verb == "revert" && work.plan.is_some() {
        words.push("--plan".to_owned());
    }
    match (place, work.plan) {
        // On a lab's host the program starts in another directory, so the path must be absolute.
        (Hosts::Lab(_), Some((file, _))) => {
            let absolute = std::path::absolute(file).ok().filter(|file| file.exists());
            words.push(absolute.unwrap_or(file.to_owned()).display().to_string());
        }
        // The plan is sent on standard input, because its file may not exist there.
        (Hosts::Ssh { .. }, Some(_)) => words.push("-".to_owned()),
        _none => {}
    }
    words.extend(work.more.iter().map(|&word| word.to_owned()));
    words.extend(["--host".to_owned(), host.to_owned()]);
    let mut command = match place {
        Hosts::Lab(lab) => {
            let program = std::env::current_exe()?;
            let mut command = Command::new(&program);
            command.args(["lab", "exec", lab, host, "--"]).arg(&program).args(words);
            command
        }
        Hosts::Ssh { command: start, program } => {
            let mut start = start.split_ascii_whitespace();
            let mut command = Command::new(start.next().unwrap_or("ssh"));
            // The remote shell takes one line.
            let line = std::iter::once(program).chain(words.iter().map(String::as_str));
            let line: Vec<_> = line.map(settings::word).collect();
            command.args(start).arg(host).arg(line.join(" "));
            command
        }
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        let program = command.get_program().display().to_string();
        io::Error::new(error.kind(), format!("{program} cannot be started: {error}"))
    })?;
    if let Some(mut input) = child.stdin.take() {
        // A program that ends without reading its input reports the reason itself.
        input.write_all(plan.as_bytes()).ok();
    }
    child.wait_with_output()
}

/// Severity of an exit: the index of its code in [`CODES`].
fn rank(output: &Output) -> usize {
    let code = output.status.code().unwrap_or(1);
    CODES.iter().position(|known| *known == code).unwrap_or(CODES.len() - 1)
}

fn answer(host: &str, output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_no_json| {
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        serde_json::json!({ "host": host, "error": error })
    })
}
