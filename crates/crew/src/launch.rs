//! Starting a job on many hosts.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use mpi::Flavour;
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

/// How often the launcher is looked at, and how long it may take to end a job it was told to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const END_MAX: Duration = Duration::from_secs(15);

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
    #[error("{} is neither Open MPI's nor MPICH's launcher", program.display())]
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
        let flavour = flavour(&String::from_utf8_lossy(&text))
            .ok_or_else(|| LaunchError::Unknown { program: program.to_owned() })?;
        Ok(Self { program: program.to_owned(), flavour })
    }

    /// Whose it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The command that runs `ranks_count` ranks of a program on these hosts, as many on each; arguments
    /// of the program are to be added.
    #[must_use]
    pub fn command(
        &self,
        hosts: &[String],
        ranks_count: usize,
        program: impl AsRef<OsStr>,
    ) -> Command {
        let mut command = Command::new(&self.program);
        command.args(options(self.flavour, hosts, ranks_count)).arg(program);
        command
    }
}

/// Whose launcher describes itself so.
fn flavour(version: &str) -> Option<Flavour> {
    if version.contains("Open MPI") || version.contains("OpenRTE") {
        Some(Flavour::OpenMpi)
    } else if version.contains("HYDRA") || version.contains("MPICH") {
        Some(Flavour::Mpich)
    } else {
        None
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

/// Waits for a launcher, which should be in a process group of its own so that a terminal's Ctrl-C does
/// not reach it too. Once `is_cut`, it is sent SIGTERM, and SIGKILL after 15 s more.
///
/// # Errors
/// The system cannot wait for it or end it.
pub fn wait_or_end(mut launcher: Child, is_cut: impl Fn() -> bool) -> io::Result<ExitStatus> {
    let mut told: Option<Instant> = None;
    loop {
        if let Some(status) = launcher.try_wait()? {
            return Ok(status);
        }
        match told {
            None if is_cut() => {
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
    fn a_launcher_is_told_by_its_version() {
        assert_eq!(flavour("mpirun (Open MPI) 4.1.4"), Some(Flavour::OpenMpi));
        assert_eq!(flavour("HYDRA build details:\n    Version: 4.0.2"), Some(Flavour::Mpich));
        assert_eq!(flavour("GNU coreutils"), None);
        let missing = Launcher::detect(Path::new("no-such-launcher"));
        assert!(matches!(missing, Err(LaunchError::NotRun { .. })), "{missing:?}");
        let other = Launcher::detect(Path::new("true"));
        assert!(matches!(other, Err(LaunchError::Unknown { .. })), "{other:?}");
    }

    #[test]
    fn a_launcher_is_ended_once_cut() {
        let launcher = Command::new("sleep").arg("60").spawn().expect("a child");
        let status = wait_or_end(launcher, || true).expect("it ends");
        assert!(!status.success());
    }
}
