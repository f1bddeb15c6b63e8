//! Starting a job on many hosts.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use mpi::Flavour;
use rustix::process::Signal;
use sys::process::{Ending, Owned};
use thiserror::Error;

use crate::vendor;

/// How often it is looked whether the job is to be cut short.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How the launcher is told to end a job, and how long it may take. Its group is not told: the launcher
/// tells the ranks.
const ENDING: Ending =
    Ending { signal: Signal::TERM, grace: Duration::from_secs(15), group: false };

/// Why there is no launcher.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// It cannot be run.
    #[error("{}: {source}", program.display())]
    NotRun {
        /// Its path or name.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is some other program.
    #[error("{} is neither the launcher of Open MPI nor that of MPICH", program.display())]
    Unknown {
        /// Its path or name.
        program: PathBuf,
    },
}

/// A launcher of MPI jobs, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    program: PathBuf,
    flavour: Flavour,
}

impl Launcher {
    /// Asks a program whose launcher it is.
    ///
    /// # Errors
    /// It cannot be run, or is neither Open MPI's nor MPICH's.
    pub fn detect(program: &Path) -> Result<Self, LaunchError> {
        let not_run = |source| LaunchError::NotRun { program: program.to_owned(), source };
        let done = Command::new(program).arg("--version").output().map_err(not_run)?;
        let text = [done.stdout, done.stderr].concat();
        let flavour = vendor::flavour(&String::from_utf8_lossy(&text))
            .ok_or_else(|| LaunchError::Unknown { program: program.to_owned() })?;
        Ok(Self { program: program.to_owned(), flavour })
    }

    /// Whose it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The command that runs `ranks_count` processes of a program on these hosts, as many on each; arguments
    /// of the program are to be added. Processes that `bind_themselves` are not bound by the launcher, which gives each
    /// one core.
    #[must_use]
    pub fn command(
        &self,
        hosts: &[String],
        ranks_count: usize,
        bind_themselves: bool,
        program: impl AsRef<OsStr>,
    ) -> Command {
        let mut command = Command::new(&self.program);
        command.args(options(self.flavour, hosts, ranks_count));
        if bind_themselves && self.flavour == Flavour::OpenMpi {
            command.args(["--bind-to", "none"]);
        }
        command.arg(program);
        command
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

/// Runs a launcher to its end, in a process group of its own so that a terminal's Ctrl-C does not reach
/// it too. Once `is_cut`, it is sent SIGTERM, and SIGKILL after 15 s more. It ends with this process,
/// however that ends.
///
/// # Errors
/// It cannot be started; the system cannot wait for it or end it.
pub fn run_launcher(command: &mut Command, is_cut: impl Fn() -> bool) -> io::Result<ExitStatus> {
    let mut launcher = Owned::start(command.process_group(0), ENDING)?;
    loop {
        if let Some(status) = launcher.wait_within(LOOK_EVERY)? {
            return Ok(status);
        }
        if is_cut() {
            return launcher.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_launcher_is_spoken_to_in_its_own_words() {
        let hosts = ["a".to_owned(), "b".to_owned()];
        assert_eq!(options(Flavour::Mpich, &hosts, 3), ["-hosts", "a:2,b:2", "-n", "3"]);
        let words = options(Flavour::OpenMpi, &hosts, 2);
        assert!(words.ends_with(&["--host", "a:1,b:1", "-n", "2"].map(str::to_owned)));
    }

    #[test]
    fn what_is_no_launcher_is_refused() {
        let missing = Launcher::detect(Path::new("no-such-launcher"));
        assert!(matches!(missing, Err(LaunchError::NotRun { .. })), "{missing:?}");
        let other = Launcher::detect(Path::new("true"));
        assert!(matches!(other, Err(LaunchError::Unknown { .. })), "{other:?}");
    }

    #[test]
    fn a_launcher_is_ended_once_cut() {
        let status = run_launcher(Command::new("sleep").arg("60"), || true).expect("it ends");
        assert!(!status.success());
    }
}
