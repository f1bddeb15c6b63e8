//! Counters of other hosts, requested at the begin and end of each phase: this program, running there, reports them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

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

/// The verb that reports counters.
const COUNT: [&str; 2] = ["gateway", "count"];

/// A host's counters, or why they are missing.
pub(crate) type Answer = Result<HostReading, String>;

/// The sources of the counters: one program on each machine.
pub(crate) struct Gauges {
    agents: Vec<Agent>,
    /// How machines are reached that are not yet: a command before the machine's name, and the program's name there.
    ssh: Option<(String, String)>,
}

impl Gauges {
    /// Of machines: this program is started on each when it is first asked, with `command` before the machine's name.
    pub(crate) fn by_ssh(command: &str, program: &str) -> Self {
        Self { agents: Vec::new(), ssh: Some((command.to_owned(), program.to_owned())) }
    }

    /// Of these hosts of a lab: this program is started on each of them now.
    pub(crate) fn in_lab(lab: &str, hosts: &[String]) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let start = |host: &String| {
            let mut start = Command::new(&program);
            start.args(["lab", "exec", lab, host, "--"]).arg(&program).args(COUNT);
            Agent { host: host.clone(), link: begin(start), has_answered: false }
        };
        Ok(Self { agents: hosts.iter().map(start).collect(), ssh: None })
    }

    /// Reads the counters of the named hosts at about the same moment.
    pub(crate) fn read(&mut self, hosts: &[String]) -> BTreeMap<String, Answer> {
        if let Some((command, program)) = &self.ssh {
            let is_new = |host: &&String| self.agents.iter().all(|agent| agent.host != **host);
            let new: Vec<&String> = hosts.iter().filter(is_new).collect();
            let start = |host: &String| Agent::by_ssh(command, program, host);
            self.agents.extend(new.into_iter().map(start));
        }
        let is_asked = |agent: &&mut Agent| hosts.contains(&agent.host);
        self.agents.iter_mut().filter(is_asked).for_each(Agent::ask);
        let began = Instant::now();
        let answer = |agent: &mut Agent| (agent.host.clone(), agent.answer(began));
        self.agents.iter_mut().filter(is_asked).map(answer).collect()
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

fn over_ssh(command: &str, program: &str, host: &str) -> Command {
    let mut words = command.split_ascii_whitespace();
    let mut start = Command::new(words.next().unwrap_or("ssh"));
    // The remote shell takes one line.
    let line: Vec<_> = [program].into_iter().chain(COUNT).map(settings::word).collect();
    start.args(words).arg(host).arg(line.join(" "));
    start
}

fn begin(mut start: Command) -> Link {
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
    /// For this machine itself, no program is started.
    fn by_ssh(command: &str, program: &str, host: &str) -> Self {
        let own = rustix::system::uname();
        let is_own = own.nodename().to_string_lossy() == host;
        let link = if is_own { Link::Own } else { begin(over_ssh(command, program, host)) };
        Self { host: host.to_owned(), link, has_answered: false }
    }

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
        let mut gauges = Gauges::by_ssh("false", "clearstream");
        for _ in 0..2 {
            let answer = gauges.read(&hosts).remove("a").expect("a");
            assert!(answer.is_err_and(|why| why.starts_with("it does not answer")));
        }
        let mut none = Gauges::by_ssh("/no/such/program", "clearstream");
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
        let mut gauges = Gauges::by_ssh(&command, "clearstream");
        assert!(gauges.read(&hosts)["a"].is_ok());
        assert!(gauges.read(&hosts)["a"].is_err());
        std::fs::remove_file(&file).ok();
    }
}
