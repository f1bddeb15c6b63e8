//! Counters of other hosts, requested at the begin and end of each phase. A lab's hosts are read from outside; on
//! other machines, this program reports them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lab::Lab;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use sys::process::{Ending, Owned};
use topology::HostReading;

/// Longest time for the hosts' answers.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Longest time for their first answers, for which programs have to be started.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(20);
/// Longest line accepted as an answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How to end the program on another machine, which ends when its standard input does.
const ENDING: Ending = Ending { signal: Signal::TERM, grace: Duration::from_secs(1), group: false };

/// A host's counters, or why they are missing.
pub(crate) type Answer = Result<HostReading, String>;

/// The source of the counters.
pub(crate) enum Gauges {
    /// The hosts of a lab.
    Lab(Box<Lab>),
    /// Machines, each with a running program that answers.
    Ssh(Vec<Agent>),
}

impl Gauges {
    /// Starts this program on each of these machines, with `command` before the machine's name. For this machine
    /// itself, none is started.
    pub(crate) fn by_ssh(command: &str, program: &str, hosts: &[String]) -> Self {
        let own = rustix::system::uname();
        let is_own = |host: &str| own.nodename().to_string_lossy() == host;
        let start = |host: &String| {
            let link = if is_own(host) { Link::Own } else { begin(command, program, host) };
            Agent { host: host.clone(), link, has_answered: false }
        };
        Self::Ssh(hosts.iter().map(start).collect())
    }

    /// Reads the counters of all hosts at about the same moment.
    pub(crate) fn read(&mut self, hosts: &[String]) -> BTreeMap<String, Answer> {
        match self {
            Self::Lab(lab) => {
                // All hosts of a lab run on this machine's cores.
                let cores = HostReading::read().cores;
                let one = |host: &String| {
                    let files = lab.host_files(host).map_err(|error| error.to_string())?;
                    let reading = HostReading::read_from(&files);
                    // A host that exists has at least the device `lo`.
                    match reading.devices.is_empty() {
                        true => Err("the lab has ended".to_owned()),
                        false => Ok(HostReading { cores: cores.clone(), ..reading }),
                    }
                };
                hosts.iter().map(|host| (host.clone(), one(host))).collect()
            }
            Self::Ssh(agents) => {
                for agent in agents.iter_mut() {
                    agent.ask();
                }
                let began = Instant::now();
                agents.iter_mut().map(|agent| (agent.host.clone(), agent.answer(began))).collect()
            }
        }
    }
}

/// A connection to one machine.
pub(crate) struct Agent {
    host: String,
    link: Link,
    has_answered: bool,
}

/// How a machine is read.
enum Link {
    /// Directly: it is this machine.
    Own,
    /// Through a program on that machine.
    There { stdin: ChildStdin, stdout: ChildStdout, heard: Vec<u8>, _child: Box<Owned> },
    /// No longer; the reason.
    Lost(String),
}

fn begin(command: &str, program: &str, host: &str) -> Link {
    let mut words = command.split_ascii_whitespace();
    let mut start = Command::new(words.next().unwrap_or("ssh"));
    // The remote shell takes one line.
    let line = [program, "gateway", "count"].map(settings::word).join(" ");
    start.args(words).arg(host).arg(line);
    start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match Owned::start(&mut start, ENDING) {
        Ok(child) => child,
        Err(error) => return Link::Lost(error.to_string()),
    };
    match (child.take_stdin(), child.take_stdout()) {
        (Some(stdin), Some(stdout)) => {
            Link::There { stdin, stdout, heard: Vec::new(), _child: Box::new(child) }
        }
        _no_pipe => Link::Lost("it has no pipes".to_owned()),
    }
}

impl Agent {
    fn ask(&mut self) {
        if let Link::There { stdin, .. } = &mut self.link
            && let Err(error) = stdin.write_all(b"\n")
        {
            self.link = Link::Lost(format!("it does not answer: {error}"));
        }
    }

    /// Waits for the machine's answer. After a timeout it is not asked again, because its answers would be late.
    fn answer(&mut self, asked: Instant) -> Answer {
        let limit = if self.has_answered { ANSWER_MAX } else { FIRST_ANSWER_MAX };
        let answer = match &mut self.link {
            Link::Own => return Ok(HostReading::read()),
            Link::Lost(why) => return Err(why.clone()),
            Link::There { stdout, heard, .. } => line_of(stdout, heard, asked + limit),
        };
        let answer = answer.and_then(|line| Ok(serde_json::from_slice(&line)?));
        self.has_answered = true;
        answer.map_err(|error| {
            let why = format!("it does not answer: {error}");
            self.link = Link::Lost(why.clone());
            why
        })
    }
}

/// Reads one line, without its end.
fn line_of(pipe: &mut ChildStdout, heard: &mut Vec<u8>, until: Instant) -> io::Result<Vec<u8>> {
    loop {
        if let Some(end) = heard.iter().position(|&byte| byte == b'\n') {
            let rest = heard.split_off(end + 1);
            let mut line = std::mem::replace(heard, rest);
            line.pop();
            return Ok(line);
        }
        if heard.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("its answer is too long"));
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&*pipe, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Err(io::Error::other("not in time")),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut chunk = [0; 16 << 10];
        match pipe.read(&mut chunk)? {
            0 => return Err(io::Error::other("it has ended")),
            length => heard.extend_from_slice(&chunk[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_be_reached_says_why_and_is_asked_no_more() {
        let hosts = ["a".to_owned()];
        let mut gauges = Gauges::by_ssh("false", "clearstream", &hosts);
        for _ in 0..2 {
            let answer = gauges.read(&hosts).remove("a").expect("a");
            assert!(answer.is_err_and(|why| why.starts_with("it does not answer")));
        }
        let mut none = Gauges::by_ssh("/no/such/program", "clearstream", &hosts);
        assert!(none.read(&hosts)["a"].is_err());
    }

    #[test]
    fn answers_are_read_line_by_line() {
        let reading = serde_json::to_string(&HostReading::read()).expect("JSON");
        // What stands for ssh: a shell that answers twice.
        let file = std::env::temp_dir().join(format!("gauges-{}", std::process::id()));
        let script = format!("read a; printf '%s\\n' '{reading}'; read a; echo no JSON");
        std::fs::write(&file, script).expect("written");
        let hosts = ["a".to_owned()];
        let command = format!("sh {}", file.display());
        let mut gauges = Gauges::by_ssh(&command, "clearstream", &hosts);
        assert!(gauges.read(&hosts)["a"].is_ok());
        assert!(gauges.read(&hosts)["a"].is_err());
        std::fs::remove_file(&file).ok();
    }
}
