//! Runs programs in guests, for `vm exec` and `lab exec`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use sys::process::SignalReader;
use vm::{Machine, ShellEnd, VmError};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Longest time a guest's shell may take to accept a command.
const READY_MAX: Duration = Duration::from_secs(300);

/// Runs a program in a guest; its output goes to standard output, unaltered unless that is a terminal.
pub(crate) fn run(machine: &Machine, program: &[OsString]) -> VerbResult {
    let mut shell = machine.shell(READY_MAX)?;
    let signals = SignalReader::open().map_err(|error| VerbError::from_error(&error))?;
    let words: Vec<&[u8]> = program.iter().map(|word| word.as_bytes()).collect();
    match shell.run(&words, &mut *crate::out::foreign_stdout(), Some(&signals)) {
        Ok(ShellEnd::Status(status)) => Ok(Exit::Program(status)),
        Ok(ShellEnd::Signal(number)) => Ok(Exit::Signal(number)),
        Err(VmError::Output(error)) => Err(error.into()),
        Err(error) => Err(error.into()),
    }
}
