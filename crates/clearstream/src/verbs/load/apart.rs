//! Runs `io` or `meta` in a process of its own. A call that a file system does not answer keeps its process from ending,
//! even when it is killed; the process that the user started ends all the same, as the other one told it to.

use std::env;
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use sys::process::{ChildStart, leave_open_for_children, start_child_as, take_inherited};

use super::call::Call;
use super::{Kind, may_be_left_by};
use crate::VerbResult;
use crate::exit::{self, Exit, VerbError};
use crate::signals;
use crate::typed;

/// The option by which the other process learns where to tell its exit code: the number of a descriptor.
pub(super) const OPTION: &str = "--outcome-to";

/// Interval of polling for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long a process that has told its exit code may take to end.
const LEAVING: Duration = Duration::from_secs(1);

/// Runs a command line in another process and ends as that one does.
pub(super) fn run(kind: Kind, call: &Call, words: &[String], json: bool) -> VerbResult {
    let failed =
        |error: std::io::Error| VerbError::failed(format!("a process of its own: {error}"));
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let (mut near, far) = UnixStream::pair().map_err(failed)?;
    leave_open_for_children(&far).map_err(|error| VerbError::from_error(&error))?;
    let mut command = Command::new(env::current_exe().map_err(failed)?);
    command.arg(kind.name()).arg(format!("{OPTION}={}", far.as_raw_fd()));
    command.arg(typed::option()).args(json.then_some("--json")).args(words);
    let start = ChildStart { dies_with_parent: true };
    let mut child = start_child_as(&mut command, start).spawn().map_err(failed)?;
    drop(far);
    near.set_read_timeout(Some(LOOK_EVERY)).map_err(failed)?;
    let mut code = [0];
    let mut is_signalled = false;
    loop {
        match near.read(&mut code) {
            Ok(0) => return ended(kind, call, child.wait().map_err(failed)?),
            Ok(_) => break,
            Err(error) if is_no_news(&error) => {}
            Err(error) => return Err(failed(error)),
        }
        if let Some(number) = signals::caught()
            && !std::mem::replace(&mut is_signalled, true)
            && let Some(signal) = Signal::from_named_raw(number)
        {
            // It may have ended meanwhile. A terminal has told it as well: it takes both for the same wish.
            rustix::process::kill_process(Pid::from_child(&child), signal).ok();
        }
    }
    let until = Instant::now() + LEAVING;
    while child.try_wait().map_err(failed)?.is_none() && Instant::now() < until {
        thread::sleep(LEAVING / 1000);
    }
    Ok(Exit::Program(code[0]))
}

fn is_no_news(error: &std::io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted].contains(&error.kind())
}

/// The end of a process that has not told its exit code.
fn ended(kind: Kind, call: &Call, status: ExitStatus) -> VerbResult {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(Exit::Program(u8::try_from(code).unwrap_or(1))),
        (None, Some(number)) => {
            let named = sys::signal::named(number);
            let left = may_be_left_by(kind, call);
            exit::complain(&format!(
                "the test is incomplete: its process was ended by {named}{left}"
            ));
            Ok(Exit::Signal(number))
        }
        (None, None) => Err(VerbError::failed(status)),
    }
}

/// Where this process tells its exit code.
#[derive(Debug)]
pub(super) struct Outcome(OwnedFd);

impl Outcome {
    /// From the value of [`OPTION`].
    pub(super) fn open(number: i32) -> Result<Self, VerbError> {
        take_inherited(number).map(Self).map_err(|error| VerbError::from_error(&error))
    }

    /// Says how the verb ended: the error on one line, then the exit code. Readers of this process's output do not wait any
    /// longer, even if it cannot end.
    pub(super) fn tell(&self, result: VerbResult) -> VerbResult {
        let code = exit::settle(result);
        if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
            // If one fails, a reader of it waits for the file system too.
            rustix::stdio::dup2_stdin(&null).ok();
            rustix::stdio::dup2_stdout(&null).ok();
            rustix::stdio::dup2_stderr(&null).ok();
        }
        // Whoever listened may be gone.
        rustix::io::write(&self.0, &[code]).ok();
        Ok(Exit::Program(code))
    }
}
