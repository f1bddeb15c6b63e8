use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::answer::Answer;
use crate::{LabError, anchor, guest, store};

/// The program that runs a lab's processes: this one, started again with hidden arguments.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// `path` started with `arguments` followed by a role and its arguments must call
    /// [`run_role`] with the latter.
    pub fn new(path: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(OsString::from).collect();
        Self { path: path.into(), arguments }
    }

    /// What keeps a guest of the lab.
    pub(crate) fn keeper(&self) -> vm::Program {
        let role = [OsString::from("keeper")];
        vm::Program::new(&self.path, self.arguments.iter().chain(&role).cloned())
    }

    pub(crate) fn command(&self, role: &str) -> Command {
        let mut command = Command::new(&self.path);
        // For `ps`, whatever the path is: /proc/self/exe survives an upgrade while a lab is up.
        command.arg0("clearstream");
        command.args(&self.arguments).arg(role);
        command
    }
}

/// Runs one of the lab's processes to its end; the code to exit with. `program` must be what
/// started it.
#[must_use]
pub fn run_role(program: &Program, arguments: &[OsString]) -> u8 {
    let text: Vec<String> =
        arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let role: Vec<&str> = text.iter().map(String::as_str).collect();
    let ended = match &role[..] {
        ["starter", _] => anchor::run_starter(program, Path::new(&arguments[1])),
        ["init", _, own] => anchor::run_init(program, Path::new(&arguments[1]), *own == "true"),
        ["guest", _, _, _, _, _, "--", _, ..] => return guest::run(arguments),
        ["keeper", _, name] => return vm::keeper::run(Path::new(&arguments[1]), name),
        ["store", _, _, _] => return store::run(arguments),
        _ => Err(LabError::NotStarted("this is started by the lab itself".to_owned())),
    };
    match ended {
        Ok(()) => 0,
        Err(error) => tell(&error),
    }
}

/// Says why on standard output, which `lab up` reads.
fn tell(error: &LabError) -> u8 {
    // Nobody to tell when the reader is gone.
    Answer::refusal(error).say().ok();
    if error.is_missing_privilege() { 4 } else { 1 }
}
