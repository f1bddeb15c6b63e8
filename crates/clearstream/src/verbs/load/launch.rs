//! Restarts this program as an MPI job.

use std::env;
use std::process::Stdio;

use crew::{LaunchError, Launcher};

use super::call::{Call, Launch};
use super::{Kind, may_be_left_by};
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;
use crate::typed;

/// Runs this command line as the ranks of a job, and ends as rank 0 did. Ctrl-C and SIGTERM are forwarded
/// to the launcher, which has its own process group so that it gets them only once.
pub(super) fn run(kind: Kind, launch: &Launch, call: &Call) -> VerbResult {
    let launcher = Launcher::detect(&launch.mpirun).map_err(|error| match error {
        LaunchError::NotRun { .. } => {
            VerbError::missing(format!("{error}; --ranks needs Open MPI or MPICH, on every host"))
        }
        LaunchError::Unknown { .. } => VerbError::missing(error),
    })?;
    let program = env::current_exe().map_err(|error| VerbError::from_error(&error))?;
    let local = ["localhost".to_owned()];
    // A lab's hosts are on this machine, so their ranks are started here.
    let hosts = if launch.hosts.is_empty() { &local[..] } else { &launch.hosts };
    let mut command = launcher.command(hosts, launch.ranks, false, program);
    command.arg(kind.name()).args(own_words(call)).arg("--").args(&call.words);
    let name = launch.mpirun.display();
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    command.stdin(Stdio::null());
    let failed = |error: std::io::Error| VerbError::failed(format!("{name}: {error}"));
    let is_cut = || signals::caught().is_some();
    let status = crew::run_launcher(&mut command, is_cut).map_err(failed)?;
    match (status.code(), signals::caught()) {
        (_, Some(number)) => Ok(Exit::Signal(number)),
        (Some(0), None) => Ok(Exit::Ok),
        // Rank 0 has reported the reason.
        (Some(code @ 1..=5), None) => Ok(Exit::Program(code as u8)),
        _ => Err(VerbError::failed(format!(
            "{name} ended with {status} (ranks could not be started, or a rank or a host was lost){}",
            may_be_left_by(kind, call)
        ))),
    }
}

/// Our own options, as passed to each rank.
fn own_words(call: &Call) -> Vec<String> {
    let mut words = vec![typed::option(), format!("--stall-limit={}ms", call.stall.as_millis())];
    if call.is_json {
        words.push("--json".to_owned());
    }
    if call.ring_depth > 0 {
        words.push(format!("--uring={}", call.ring_depth));
    }
    if let Some(directories) = &call.locks {
        words.push(format!("--locks={directories}"));
    }
    if let Some(seats) = &call.seats {
        words.push(format!("--lab-seats={}", seats.text()));
    }
    if let Some(gateways) = &call.gateways {
        words.push(format!("--gateways={}", gateways.plan.display()));
        words.push(format!("--ssh={}", gateways.ssh));
        words.push(format!("--there={}", gateways.there));
    }
    words.extend(call.gates.words());
    if let Some(output) = &call.output {
        words.push(format!("--output={}", output.display()));
    }
    words
}
