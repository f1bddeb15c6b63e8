use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use super::*;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(script: &str, ending: Ending) -> Owned {
    Owned::start(&mut shell(script), ending).unwrap().capture(1 << 10).unwrap()
}

/// The letter of a process's state; `None` when nothing of it is left.
fn state(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

fn eventually(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < until, "not within 10 s: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The next line of a child whose output is not captured, as a number.
fn told(child: &mut Owned) -> u32 {
    let mut line = String::new();
    let mut out = io::BufReader::new(child.take_stdout().unwrap());
    io::BufRead::read_line(&mut out, &mut line).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn a_dropped_child_is_gone_and_no_zombie_stays() {
    let child = start("exec sleep 600", Ending::KILL);
    let pid = child.id();
    assert!(state(pid).is_some());
    drop(child);
    assert_eq!(state(pid), None);
    // One that has ended by itself, unseen.
    let child = start("true", Ending::KILL);
    let pid = child.id();
    eventually("it has ended", || state(pid) == Some('Z'));
    drop(child);
    assert_eq!(state(pid), None);
}

#[test]
fn a_child_that_has_ended_keeps_its_entry_in_proc_until_it_is_waited_for() {
    let mut child = start("exit 3", Ending::KILL);
    assert!(child.has_ended_within(Duration::from_secs(10)).unwrap());
    assert_eq!(state(child.id()), Some('Z'));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(state(child.id()), None);
}

#[test]
fn a_child_is_asked_first_and_killed_after_its_grace() {
    let ending = Ending { grace: Duration::from_secs(10), ..Ending::TERM };
    let mut child = Owned::start(
        &mut shell("trap 'exit 7' TERM; echo 1; while :; do sleep 0.01; done"),
        ending,
    )
    .unwrap();
    told(&mut child);
    assert_eq!(child.end().unwrap().code(), Some(7));
    assert_eq!(child.end().unwrap().code(), Some(7), "once");
    let ending = Ending { grace: Duration::from_millis(50), ..Ending::TERM };
    let mut child =
        Owned::start(&mut shell("trap '' TERM; echo 1; while :; do sleep 0.01; done"), ending)
            .unwrap();
    told(&mut child);
    assert_eq!(child.end().unwrap().signal(), Some(9));
}

#[test]
fn a_group_ends_with_its_child() {
    let both = "sleep 600 & echo $!; exec sleep 600";
    let mut child = Owned::start(&mut shell(both), Ending::KILL.with_group()).unwrap();
    let other = told(&mut child);
    assert!(state(other).is_some());
    drop(child);
    eventually("the group has ended", || state(other).is_none_or(|state| state == 'Z'));
    // Also where the child ends first and by itself.
    let first = "sleep 600 & echo $!";
    let mut child = Owned::start(&mut shell(first), Ending::KILL.with_group()).unwrap();
    let other = told(&mut child);
    assert!(child.wait().unwrap().success());
    eventually("the group has ended", || state(other).is_none_or(|state| state == 'Z'));
}

#[test]
fn output_is_captured_up_to_its_bound_and_never_blocks_the_child() {
    let lots = "head -c 300000 /dev/zero | tr '\\0' x; echo end >&2; exit 3";
    let ended = start(lots, Ending::KILL).ended_within(Duration::from_secs(20)).unwrap();
    assert_eq!(ended.status.code(), Some(3));
    assert_eq!(ended.stdout, [b'x'; 1 << 10]);
    assert_eq!(ended.last_line(), "end");
}

#[test]
fn who_holds_the_pipe_open_does_not_keep_a_child_from_having_ended() {
    let began = Instant::now();
    let child = start("sleep 600 & echo $!; echo said", Ending::KILL);
    let ended = child.ended_within(Duration::from_secs(20)).unwrap();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let said = String::from_utf8(ended.stdout).unwrap();
    let (pid, rest) = said.split_once('\n').unwrap();
    assert_eq!(rest, "said\n");
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn a_child_that_does_not_end_in_time_is_ended_and_told() {
    let child = start("exec sleep 600", Ending::KILL);
    let pid = child.id();
    let late = child.ended_within(Duration::from_millis(20)).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    assert_eq!(state(pid), None);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let refused = Owned::start(&mut Command::new("/no/such"), Ending::KILL).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    assert!(refused.to_string().starts_with("cannot start /no/such: "), "{refused}");
}

#[test]
fn a_child_ends_with_the_thread_that_started_it() {
    let child = thread::spawn(|| start("exec sleep 600", Ending::KILL)).join().unwrap();
    let pid = child.id();
    eventually("the kernel has ended it", || state(pid) == Some('Z'));
}

#[test]
fn a_child_whose_parent_ended_before_it_asked_does_not_start() {
    let start = ChildStart { dies_with_parent: true };
    let (mut own, mut other) = (shell("true"), shell("true"));
    let parent = rustix::process::getpid();
    assert!(super::super::start_child_of(&mut own, start, parent).status().unwrap().success());
    // As the child sees it when process 1 has adopted it since.
    let gone = Pid::from_raw(i32::MAX).unwrap();
    super::super::start_child_of(&mut other, start, gone).status().unwrap_err();
}

/// Tells the second process of the next test that it is to be killed.
const PARENT: &str = "CLEARSTREAM_TEST_PARENT";

#[test]
fn a_child_ends_when_its_parent_is_killed() {
    if std::env::var_os(PARENT).is_some() {
        let child = start("exec sleep 600", Ending::KILL);
        println!("\nchild {}", child.id());
        thread::sleep(Duration::from_secs(600));
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process::owned::tests::a_child_ends_when_its_parent_is_killed"]);
    command.arg("--nocapture").env(PARENT, "1").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut parent = Owned::start(&mut command, Ending::KILL).unwrap();
    let lines = io::BufRead::lines(io::BufReader::new(parent.take_stdout().unwrap()));
    let pid =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("child ")?.parse().ok());
    let pid: u32 = pid.expect("it says which");
    assert!(state(pid).is_some());
    drop(parent);
    eventually("the kernel has ended it", || state(pid).is_none_or(|state| state == 'Z'));
}
