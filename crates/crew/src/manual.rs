//! A job whose parts somebody else starts on its hosts: where no remote shell reaches them.
//!
//! MPICH's launcher can leave the start to others (`-launcher manual`): it prints the command that starts
//! each host's part and waits until the parts call back.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use thiserror::Error;

/// Names of MPICH's launcher, Debian's first.
const LAUNCHERS: [&str; 3] = ["mpiexec.mpich", "mpiexec.hydra", "mpiexec"];

/// The name of MPICH's launcher on this machine, if it is installed.
#[must_use]
pub fn manual_launcher() -> Option<&'static str> {
    let is_hydra = |name: &&&str| {
        let output = Command::new(name).arg("--version").stdin(Stdio::null()).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("HYDRA"))
    };
    LAUNCHERS.iter().find(is_hydra).copied()
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
    children: Vec<Child>,
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
        let mut child = launcher.spawn()?;
        let lines = lines_of(child.stdout.take());
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        Ok(Self { children: vec![child], lines, hosts: hosts.into_iter(), said: String::new() })
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
                self.children.push(command.spawn()?);
            }
        }
        if let Some(status) = self.children[0].try_wait()? {
            return Ok(Some(status));
        }
        for part in &mut self.children[1..] {
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
        std::mem::take(&mut self.said)
    }

    /// The command that starts a host's part, where the line says it.
    fn take_in<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        if let Some(words) = line.strip_prefix("HYDRA_LAUNCH: ") {
            return Some(words);
        }
        if !line.starts_with("HYDRA_LAUNCH_END") {
            self.said.push_str(line);
        }
        None
    }
}

impl Drop for ManualJob {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Whatever has ended already needs no signal.
            child.kill().ok();
            child.wait().ok();
        }
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
