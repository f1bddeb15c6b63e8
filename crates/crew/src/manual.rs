//! A job whose parts somebody else starts on its hosts: where no remote shell reaches them.
//!
//! MPICH's launcher can leave the start to others (`-launcher manual`): it prints the command that starts
//! each host's part and waits until the parts call back.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use mpi::Flavour;
use sys::process::{Ending, Owned};
use thiserror::Error;

use crate::Launcher;
use crate::vendor::{self, ManualLine};

/// The name of MPICH's launcher on this machine, if it is installed.
#[must_use]
pub fn manual_launcher() -> Option<&'static str> {
    let is_mpich = |name: &&&str| {
        let launcher = Launcher::detect(Path::new(name));
        launcher.is_ok_and(|launcher| launcher.flavour() == Flavour::Mpich)
    };
    vendor::MPICH_NAMES.iter().find(is_mpich).copied()
}

/// Why a job came to nothing.
#[derive(Debug, Error)]
pub enum ManualJobError {
    /// A process could not be started or waited for.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A host's part ended before the launcher did.
    #[error("a host's part of it failed")]
    Part,
}

/// A job under way. Its processes are killed when it is dropped.
#[derive(Debug)]
pub struct ManualJob {
    launcher: Owned,
    parts: Vec<Owned>,
    lines: Receiver<String>,
    hosts: std::vec::IntoIter<String>,
    said: String,
}

impl ManualJob {
    /// The options of [`manual_launcher`] for one rank on each of these hosts; the program and its
    /// arguments follow them.
    #[must_use]
    pub fn options(hosts: &[&str]) -> Vec<String> {
        let list: Vec<String> = hosts.iter().map(|host| format!("{host}:1")).collect();
        let count = hosts.len().to_string();
        ["-launcher", "manual", "-hosts", &list.join(","), "-n", &count].map(str::to_owned).into()
    }

    /// Starts the launcher: its name, [`Self::options`], the program and its arguments.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn begin(mut launcher: Command, hosts: &[&str]) -> io::Result<Self> {
        launcher.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut launcher = Owned::start(&mut launcher, Ending::KILL)?;
        let lines = lines_of(launcher.take_stdout());
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let (parts, hosts) = (Vec::new(), hosts.into_iter());
        Ok(Self { launcher, parts, lines, hosts, said: String::new() })
    }

    /// Starts parts that the launcher asks for, and looks whether the job has ended. `part` makes the
    /// command that runs the given words on a host. To be called some times a second.
    ///
    /// # Errors
    /// A part cannot be started or has failed.
    pub fn advance(
        &mut self,
        mut part: impl FnMut(&str, &mut dyn Iterator<Item = &str>) -> Command,
    ) -> Result<Option<ExitStatus>, ManualJobError> {
        while let Ok(line) = self.lines.try_recv() {
            if let Some(words) = self.take_in(&line)
                && let Some(host) = self.hosts.next()
            {
                let mut command = part(&host, &mut words.split_whitespace());
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                self.parts.push(Owned::start(&mut command, Ending::KILL)?);
            }
        }
        if let Some(status) = self.launcher.try_wait()? {
            return Ok(Some(status));
        }
        for part in &mut self.parts {
            if part.try_wait()?.is_some_and(|status| !status.success()) {
                return Err(ManualJobError::Part);
            }
        }
        Ok(None)
    }

    /// What the ranks wrote on standard output, once the job has ended; line ends are left out.
    #[must_use]
    pub fn said(mut self) -> String {
        while let Ok(line) = self.lines.recv() {
            self.take_in(&line);
        }
        self.said
    }

    /// The command that starts a host's part, where the line says it.
    fn take_in<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        match ManualLine::of(line) {
            ManualLine::Start(words) => return Some(words),
            ManualLine::End => {}
            ManualLine::Output(text) => self.said.push_str(text),
        }
        None
    }
}

/// A child's lines as they come; a thread waits for them.
fn lines_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(pipe) = pipe {
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Runs a shell script as the launcher, and each part as what the launcher says.
    fn run(script: &str) -> (Result<ExitStatus, ManualJobError>, Vec<String>, String) {
        let mut launcher = Command::new("sh");
        launcher.args(["-c", script]);
        let mut job = ManualJob::begin(launcher, &["a", "b"]).expect("a shell");
        let mut begun = Vec::new();
        loop {
            let part = |host: &str, words: &mut dyn Iterator<Item = &str>| {
                begun.push(host.to_owned());
                let mut command = Command::new("env");
                command.args(words);
                command
            };
            match job.advance(part) {
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                Ok(Some(status)) => return (Ok(status), begun, job.said()),
                Err(error) => return (Err(error), begun, job.said()),
            }
        }
    }

    #[test]
    fn each_host_gets_one_part_and_the_rest_is_output() {
        let script = "echo 'HYDRA_LAUNCH: sleep 60'; echo 'HYDRA_LAUNCH: sleep 60'; \
                      echo HYDRA_LAUNCH_END; echo one; sleep 0.2; echo two";
        let (status, begun, said) = run(script);
        assert!(status.expect("an end").success());
        assert_eq!((begun.join(" ").as_str(), said.as_str()), ("a b", "onetwo"));
    }

    #[test]
    fn a_part_that_fails_ends_the_job() {
        let (status, ..) = run("echo 'HYDRA_LAUNCH: false'; exec 1>&-; sleep 60");
        assert!(matches!(status, Err(ManualJobError::Part)), "{status:?}");
    }

    #[test]
    fn one_rank_is_asked_for_on_each_host() {
        let options = ManualJob::options(&["a", "b"]);
        assert_eq!(options, ["-launcher", "manual", "-hosts", "a:1,b:1", "-n", "2"]);
    }
}
