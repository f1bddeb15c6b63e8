//! Starting this program again as a job on many hosts.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mpi::Flavour;
use rustix::process::{Pid, Signal, kill_process};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;
use crate::verbs::check::show;

/// Options that are for the launcher and not for the ranks; each has a value.
const OURS: [&str; 3] = ["--hosts", "--ranks", "--mpirun"];

/// Of ours, the one without a value: ranks get it once, from us.
const BIND: &str = "--bind";

/// How often the launcher is looked at, and how long it may take to end a job it was told to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const END_MAX: Duration = Duration::from_secs(15);

/// Runs this very command line as `ranks_count` ranks on these hosts, and ends as rank 0 did. Ctrl-C
/// and SIGTERM are handed to the launcher, who has a process group of its own so as to get them once.
pub(in crate::verbs::check) fn launch(
    mpirun: &Path,
    hosts: &[String],
    ranks_count: usize,
) -> VerbResult {
    let flavour = flavour(mpirun)?;
    let program = env::current_exe().map_err(|error| VerbError::from_error(&error))?;
    let mut command = Command::new(mpirun);
    command.args(options(flavour, hosts, ranks_count)).arg(program);
    command.args(without_ours(env::args_os().skip(1))).arg("--bind");
    let name = mpirun.display();
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    command.stdin(Stdio::null()).process_group(0);
    let failed = |error: std::io::Error| VerbError::failed(format!("{name}: {error}"));
    let status = wait(command.spawn().map_err(failed)?).map_err(failed)?;
    let signal = signals::caught();
    match (status.code(), signal) {
        (Some(0), None) => Ok(Exit::Ok),
        (Some(10), _) => Ok(Exit::Violated),
        (Some(11), _) => Ok(Exit::Undecided),
        // Rank 0 has said what is wrong with the model or the machine.
        (Some(code @ (2 | 4)), None) => Ok(Exit::Program(code as u8)),
        (_, Some(number)) => {
            show::talk(&format!("undecided: interrupted by signal {number}"));
            Ok(Exit::Undecided)
        }
        _ => {
            show::talk(&format!(
                "undecided: {name} ended with {status}, a rank or a host was lost"
            ));
            Ok(Exit::Undecided)
        }
    }
}

/// Waits for the launcher; hands on a signal that came here, and does not wait for ever after it.
fn wait(mut launcher: Child) -> std::io::Result<ExitStatus> {
    let mut told: Option<Instant> = None;
    loop {
        if let Some(status) = launcher.try_wait()? {
            return Ok(status);
        }
        match told {
            None if signals::caught().is_some() => {
                told = Some(Instant::now());
                if let Ok(number) = i32::try_from(launcher.id())
                    && let Some(pid) = Pid::from_raw(number)
                {
                    // Gone already: the next look finds out.
                    kill_process(pid, Signal::TERM).ok();
                }
            }
            Some(since) if since.elapsed() > END_MAX => {
                launcher.kill()?;
                return launcher.wait();
            }
            _ => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Whose launcher it is.
fn flavour(mpirun: &Path) -> Result<Flavour, VerbError> {
    let name = mpirun.display();
    let done = Command::new(mpirun).arg("--version").output().map_err(|error| {
        VerbError::missing(format!(
            "{name}: {error}; --hosts needs Open MPI or MPICH, on every host"
        ))
    })?;
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if text.contains("Open MPI") || text.contains("OpenRTE") {
        Ok(Flavour::OpenMpi)
    } else if text.contains("HYDRA") || text.contains("MPICH") {
        Ok(Flavour::Mpich)
    } else {
        Err(VerbError::missing(format!("{name} is neither Open MPI's nor MPICH's launcher")))
    }
}

fn options(flavour: Flavour, hosts: &[String], ranks_count: usize) -> Vec<String> {
    let slots = ranks_count.div_ceil(hosts.len().max(1));
    let list: Vec<String> = hosts.iter().map(|host| format!("{host}:{slots}")).collect();
    let (list, count) = (list.join(","), ranks_count.to_string());
    let words: &[&str] = match flavour {
        Flavour::OpenMpi if rustix::process::geteuid().is_root() => {
            &["--allow-run-as-root", "--oversubscribe", "--host", &list, "-n", &count]
        }
        Flavour::OpenMpi => &["--oversubscribe", "--host", &list, "-n", &count],
        Flavour::Mpich => &["-hosts", &list, "-n", &count],
    };
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The command line as the ranks get it.
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

    #[test]
    fn each_launcher_is_spoken_to_in_its_own_words() {
        let hosts = ["a".to_owned(), "b".to_owned()];
        assert_eq!(options(Flavour::Mpich, &hosts, 3), ["-hosts", "a:2,b:2", "-n", "3"]);
        let words = options(Flavour::OpenMpi, &hosts, 2);
        assert!(words.ends_with(&["--host", "a:1,b:1", "-n", "2"].map(str::to_owned)));
    }
}
