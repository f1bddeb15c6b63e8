//! What becomes of a process that catches signals.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Set in the process that the tests send signals to: this program, run again.
const CATCHES: &str = "CLEARSTREAM_TEST_CATCHES_SIGNALS";

/// Not a test of its own: what the others start. It says when it is ready, and ends with code 7 soon after the flag.
#[test]
fn catching() {
    static FLAG: AtomicI32 = AtomicI32::new(0);
    let Ok(lingers) = std::env::var(CATCHES) else { return };
    sys::signal::on_termination_signal(&FLAG).expect("handlers");
    eprintln!("ready");
    while FLAG.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(lingers.parse().expect("milliseconds")));
    let code = if FLAG.load(Ordering::Relaxed) == Signal::INT.as_raw() { 7 } else { 8 };
    #[expect(clippy::exit, reason = "the code is what the parent asks for")]
    std::process::exit(code);
}

fn started(lingers_ms: &str) -> (Child, Pid) {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["catching", "--exact", "--nocapture"]).env(CATCHES, lingers_ms);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut said = String::new();
    let stderr = child.stderr.take().expect("piped");
    BufReader::new(stderr).read_line(&mut said).expect("reads");
    assert_eq!(said, "ready\n");
    let pid = Pid::from_child(&child);
    (child, pid)
}

#[test]
fn signals_that_come_together_are_one_wish() {
    let (mut child, pid) = started("300");
    kill_process(pid, Signal::INT).expect("there");
    // Once it is certainly caught, and well before half a second is over.
    std::thread::sleep(Duration::from_millis(50));
    kill_process(pid, Signal::INT).expect("there");
    kill_process(pid, Signal::TERM).expect("there");
    assert_eq!(child.wait().expect("ends").code(), Some(7));
}

#[test]
fn a_second_signal_after_half_a_second_ends_the_process_at_once() {
    let (mut child, pid) = started("60000");
    kill_process(pid, Signal::INT).expect("there");
    std::thread::sleep(Duration::from_millis(700));
    kill_process(pid, Signal::TERM).expect("there");
    assert_eq!(child.wait().expect("ends").signal(), Some(Signal::TERM.as_raw()));
}
