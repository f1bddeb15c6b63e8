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

/// Options for the launcher, not for the ranks; each has a value. The ranks get their threads from this module.
const OURS: [&str; 4] = ["--hosts", "--ranks", "--mpirun", "--threads"];

/// The option without a value; every rank gets it exactly once, from this module.
const BIND: &str = "--bind";

/// The processes of a job, and the threads of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) processes_count: usize,
    pub(super) threads_count: usize,
}

impl Shape {
    /// For so many ranks on so many hosts. Where ranks of a host can share one set of states they are threads of one
    /// process, unless the command line says how many threads a process has.
    pub(super) fn of(
        hosts_count: usize,
        ranks: Option<usize>,
        threads: Option<usize>,
        can_share: impl FnOnce() -> bool,
    ) -> Self {
        let hosts_count = hosts_count.max(1);
        let ranks_count = ranks.unwrap_or(hosts_count);
        if let Some(threads_count) = threads {
            return Self { processes_count: ranks_count, threads_count };
        }
        let threads_count = ranks_count / hosts_count;
        if threads_count > 1 && ranks_count.is_multiple_of(hosts_count) && can_share() {
            return Self { processes_count: hosts_count, threads_count };
        }
        Self { processes_count: ranks_count, threads_count: 1 }
    }
}

/// Runs the same command line as the processes of a job on these hosts, and ends as rank 0 did. Ctrl-C and
/// SIGTERM are forwarded to the launcher, which has its own process group so that it gets them only once.
pub(super) fn run(mpirun: &Path, hosts: &[String], shape: Shape) -> VerbResult {
    let launcher = Launcher::detect(mpirun).map_err(|error| match error {
        LaunchError::NotRun { .. } => {
            VerbError::missing(format!("{error}; --hosts needs Open MPI or MPICH, on every host"))
        }
        LaunchError::Unknown { .. } => VerbError::missing(error),
    })?;
    let program = env::current_exe().map_err(|error| VerbError::from_error(&error))?;
    let Shape { processes_count, threads_count } = shape;
    let mut command = launcher.command(hosts, processes_count, threads_count > 1, program);
    command.args(without_ours(env::args_os().skip(1))).arg("--bind").arg(typed::option());
    command.args(["--threads", &threads_count.to_string()]);
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
    fn ranks_of_a_host_are_threads_of_one_process_where_they_can_share() {
        let shape = |ranks, threads, can_share: bool| {
            let Shape { processes_count, threads_count } =
                Shape::of(2, ranks, threads, || can_share);
            (processes_count, threads_count)
        };
        assert_eq!(shape(Some(8), None, true), (2, 4));
        assert_eq!(shape(Some(8), None, false), (8, 1));
        assert_eq!(shape(Some(7), None, true), (7, 1), "hosts have different numbers of them");
        assert_eq!(shape(None, None, true), (2, 1));
        assert_eq!(shape(Some(4), Some(3), true), (4, 3));
        assert_eq!(shape(None, Some(3), true), (2, 3));
    }

    #[test]
    fn ranks_get_the_command_line_without_the_launchers_part() {
        let args =
            ["check", "--hosts", "a,b", "m.dve", "--ranks=4", "--bind", "--full", "--mpirun", "x"];
        let kept = without_ours(args.iter().map(OsString::from));
        assert_eq!(kept, ["check", "m.dve", "--full"]);
    }
}
