//! A daemon that says on standard error when it serves, and what it has said altogether.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;

/// What a daemon says on standard error. It is read all the time, so that the pipe never fills.
#[derive(Debug)]
pub struct Said {
    until_ready: String,
    since: JoinHandle<String>,
}

impl Said {
    /// All of it, once the daemon has ended.
    pub fn whole(self) -> String {
        self.until_ready + &self.since.join().expect("it is read to its end")
    }
}

/// Starts a daemon and waits for the line of its log that says that it listens: only then has it done what it does
/// before it serves. Its socket is there earlier.
pub fn listening(command: &mut Command) -> (Child, Said) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut until_ready = String::new();
    loop {
        let known = until_ready.len();
        let count = log.read_line(&mut until_ready).expect("UTF-8");
        if until_ready[known..].contains(" listening ") {
            break;
        }
        if count == 0 {
            child.kill().ok();
            panic!("{:?} before it listens: {until_ready}", child.wait());
        }
    }
    let since = std::thread::spawn(move || rest(log));
    (child, Said { until_ready, since })
}

fn rest(mut log: BufReader<ChildStderr>) -> String {
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes).expect("read");
    String::from_utf8_lossy(&bytes).into_owned()
}
