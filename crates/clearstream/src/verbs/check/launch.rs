//! Restarts this program as an MPI job on many hosts.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use crew::{LaunchError, Launcher};

use super::show;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;
use crate::typed;

/// Options for the launcher, not for the ranks; each has a value.
const OURS: [&str; 3] = ["--hosts", "--ranks", "--mpirun"];

/// The option without a value; every rank gets it exactly once, from this module.
const BIND: &str = "--bind";

/// Runs the same command line as `ranks_count` ranks on these hosts, and ends as rank 0 did. Ctrl-C and
/// SIGTERM are forwarded to the launcher, which has its own process group so that it gets them only once.
pub(super) fn run(mpirun: &Path, hosts: &[String], ranks_count: usize) -> VerbResult {
    let launcher = Launcher::detect(mpirun).map_err(|error| match error {
        LaunchError::NotRun { .. } => {
            VerbError::missing(format!("{error}; --hosts needs Open MPI or MPICH, on every host"))
        }
        LaunchError::Unknown { .. } => VerbError::missing(error),
    })?;
    let program = env::current_exe().map_err(|error| VerbError::from_error(&error))?;
    let mut command = launcher.command(hosts, ranks_count, program);
    command.args(without_ours(env::args_os().skip(1))).arg("--bind").arg(typed::option());
    let name = mpirun.display();
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    command.stdin(Stdio::null());
    let failed = |error: std::io::Error| VerbError::failed(format!("{name}: {error}"));
    let is_cut = || signals::caught().is_some();
    let status = crew::run_launcher(&mut command, is_cut).map_err(failed)?;
    let signal = signals::caught();
    match (status.code(), signal) {
        (Some(0), None) => Ok(Exit::Ok),
        (Some(10), _) => Ok(Exit::Violated),
        (Some(11), _) => Ok(Exit::Undecided),
        // Rank 0 has reported what is wrong with the model or the machine.
        (Some(code @ (2 | 4)), None) => Ok(Exit::Program(code as u8)),
        (_, Some(number)) => {
            show::talk(&format!("undecided: interrupted by signal {number}"));
            Ok(Exit::Undecided)
        }
        _ => {
            show::talk(&format!(
                "undecided: {name} ended with {status} (ranks could not be started, or a rank or a host was lost)"
            ));
            Ok(Exit::Undecided)
        }
    }
}

/// The command line for the ranks: without the options of the launcher.
fn without_ours(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for arg in args {
        if is_value {
            is_value = false;
            continue;
        }
        let text = arg.to_string_lossy();
        is_value = OURS.contains(&&*text);
        if text == BIND {
            continue;
        }
        let is_joined = text.split_once('=').is_some_and(|(name, _)| OURS.contains(&name));
        if !is_value && !is_joined {
            kept.push(arg);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_get_the_command_line_without_the_launchers_part() {
        let args =
            ["check", "--hosts", "a,b", "m.dve", "--ranks=4", "--bind", "--full", "--mpirun", "x"];
        let kept = without_ours(args.iter().map(OsString::from));
        assert_eq!(kept, ["check", "m.dve", "--full"]);
    }
}
