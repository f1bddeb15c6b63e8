//! What becomes of a process that catches signals.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Set in the process that the tests send signals to: this program, run again.
const CATCHES: &str = "CLEARSTREAM_TEST_CATCHES_SIGNALS";

/// Not a test of its own: what the others start. It says when it is ready and when it sees the flag, and ends with code
/// 7 soon after it.
#[test]
fn catching() {
    static FLAG: AtomicI32 = AtomicI32::new(0);
    let Ok(lingers) = std::env::var(CATCHES) else { return };
    sys::signal::on_termination_signal(&FLAG).expect("handlers");
    eprintln!("ready");
    while FLAG.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    eprintln!("caught");
    std::thread::sleep(Duration::from_millis(lingers.parse().expect("milliseconds")));
    let code = if FLAG.load(Ordering::Relaxed) == Signal::INT.as_raw() { 7 } else { 8 };
    #[expect(clippy::exit, reason = "the code is what the parent asks for")]
    std::process::exit(code);
}

/// The process, its number, and what it says.
fn started(lingers_ms: &str) -> (Child, Pid, BufReader<ChildStderr>) {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["catching", "--exact", "--nocapture"]).env(CATCHES, lingers_ms);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    assert_eq!(line(&mut said), "ready\n");
    let pid = Pid::from_child(&child);
    (child, pid, said)
}

fn line(said: &mut BufReader<ChildStderr>) -> String {
    let mut line = String::new();
    said.read_line(&mut line).expect("reads");
    line
}

#[test]
fn signals_that_come_together_are_one_wish() {
    let (mut child, pid, mut said) = started("300");
    let began = Instant::now();
    kill_process(pid, Signal::INT).expect("there");
    assert_eq!(line(&mut said), "caught\n");
    kill_process(pid, Signal::INT).expect("there");
    kill_process(pid, Signal::TERM).expect("there");
    let ended = child.wait().expect("ends");
    // Where the machine stood still for half a second they have not come together.
    assert!(ended.code() == Some(7) || began.elapsed() > Duration::from_millis(500), "{ended}");
}

#[test]
fn a_second_signal_after_half_a_second_ends_the_process_at_once() {
    let (mut child, pid, mut said) = started("60000");
    kill_process(pid, Signal::INT).expect("there");
    assert_eq!(line(&mut said), "caught\n");
    std::thread::sleep(Duration::from_millis(700));
    kill_process(pid, Signal::TERM).expect("there");
    assert_eq!(child.wait().expect("ends").signal(), Some(Signal::TERM.as_raw()));
}
