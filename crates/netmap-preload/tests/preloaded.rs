//! The library in front of programs: one written for netmap's interface alone, against a real switch, and
//! some that have nothing to do with netmap.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use packet_switch::daemon::{Config, Daemon};
use testkit::socket::socket_path;

#[path = "preloaded/features.rs"]
mod features;
#[path = "preloaded/refusals.rs"]
mod refusals;
#[path = "preloaded/restart.rs"]
mod restart;
/// What a build leaves beside the tests.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("and a folder").join(name)
}

fn library() -> PathBuf {
    let library = built("libclearstream_netmap.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    library
}

/// The netmap program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("program"))
}

/// A C program beside these tests.
fn compiled(name: &str) -> PathBuf {
    let program = built(&format!("netmap-{name}-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/program/{name}.c"));
    let outcome = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_FORTIFY_SOURCE=2"])
        .args(["-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("a C compiler");
    assert!(outcome.success());
    program
}

/// A switch in this process.
struct Switch {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    fn run(name: &str) -> Self {
        let socket = socket_path(&format!("netmap-{name}"));
        let daemon = Daemon::bind(Config::new(socket.clone())).expect("a switch");
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            daemon.run(&mut |_| {}, &|| asked.load(Ordering::Relaxed)).expect("it runs");
        });
        Self { socket, stop, thread: Some(thread) }
    }

    /// A program with the library in front of it.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("CLEARSTREAM_SWITCH", &self.socket);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The netmap program, once it is attached.
    fn start(&self, words: &str) -> Running {
        self.start_program(program(), words)
    }

    fn start_program(&self, program: &Path, words: &str) -> Running {
        let mut command = self.command(program);
        command.args(words.split(' '));
        self.start_command(command, words)
    }

    /// A program that says when it is attached.
    fn start_command(&self, mut command: Command, words: &str) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it speaks");
        let mut running = Running { words: words.to_owned(), child, out };
        if line != "attached\n" {
            running.child.kill().ok();
            panic!("{words}: {line:?} {}", running.complaint());
        }
        running
    }

    fn exchange(&self, receiver: &str, sender: &str) {
        let receiving = self.start(receiver);
        self.start(sender).finish();
        receiving.finish();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || !matches!(ended, Some(Err(_))));
    }
}

struct Running {
    words: String,
    child: Child,
    /// Kept open: the program says when it is done.
    out: BufReader<ChildStdout>,
}

impl Running {
    fn complaint(&mut self) -> String {
        let mut text = String::new();
        let stderr = self.child.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut text).expect("UTF-8");
        text
    }

    fn finish(self) {
        assert_eq!(self.said(), "done\n");
    }

    /// What it said after it was attached.
    fn said(mut self) -> String {
        let complaint = self.complaint();
        let mut last = String::new();
        self.out.read_to_string(&mut last).expect("UTF-8");
        let outcome = self.child.wait().expect("it ends");
        assert!(outcome.success(), "{}: {outcome} {complaint}", self.words);
        last
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing to do when it has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Fewer than a ring has slots: a switch does not push back, and none may be lost.
const SOME: u32 = 1000;
const MANY: u32 = 20_000;

#[test]
fn frames_go_through_the_switch_however_a_program_waits() {
    let switch = Switch::run("switch");
    for how in ["poll", "ppoll", "select", "pselect", "epoll", "epoll-pwait", "old", "swap"] {
        switch.exchange(
            &format!("receive vale0:b {SOME} {how}"),
            &format!("send vale0:a {SOME} {how}"),
        );
    }
    switch.exchange("receive vale0:b 900 poll", "send-and-exit vale0:a 900 poll");
    switch.exchange("receive-parts vale0:b 0 poll", "send-parts vale0:a 0 poll");
}

#[test]
fn pipes_push_back_and_lose_nothing() {
    let switch = Switch::run("pipe");
    for how in ["poll", "epoll", "swap"] {
        switch.exchange(
            &format!("receive pipe}}1 {MANY} {how}"),
            &format!("send pipe{{1 {MANY} {how}"),
        );
    }
    switch
        .exchange(&format!("receive pipe}}1 {MANY} poll"), &format!("send-csb pipe{{1 {MANY} csb"));
    // What was sent before the other end is there waits for it.
    let sending = switch.start("send vale0:a{x 2000 poll");
    switch.start("receive vale0:a}x 2000 poll").finish();
    sending.finish();
}

#[test]
fn a_program_that_misbehaves_is_told_as_netmap_does() {
    let switch = Switch::run("misbehave");
    switch.start("misbehave vale0:a 0 poll").finish();
    switch.start("copies vale0:a 0 poll").finish();
    switch.start("mixed vale0:a 0 poll").finish();
}

#[test]
fn a_port_is_one_process_at_a_time() {
    let switch = Switch::run("busy");
    let first = switch.start("receive vale0:a 1 poll");
    let words = "receive vale0:a 1 poll".split(' ');
    let second = switch.command(program()).args(words).output().expect("it runs");
    let complaint = text(&second.stderr);
    assert!(!second.status.success());
    assert!(complaint.contains("vale0:a is already in use"), "{complaint}");
    switch.start("send vale0:b 1 poll").finish();
    first.finish();
}

#[test]
fn without_a_switch_there_is_no_device_and_one_line_says_why() {
    let switch = Switch::run("gone");
    let mut command = switch.command(program());
    command.args(["send", "vale0:a", "1", "poll"]).env("CLEARSTREAM_SWITCH", "/nonexistent");
    let output = command.output().expect("it runs");
    let complaint = text(&output.stderr);
    assert!(complaint.starts_with("clearstream netmap: /dev/netmap: no switch at"), "{complaint}");
    assert!(complaint.contains("No such file or directory"), "{complaint}");
}

/// `libclearstream_netmap` was also the library for programs in C; now that is `libclearstream_user`.
#[test]
fn a_c_program_linked_with_this_library_still_runs() {
    let program = built(&format!("forward-{}", std::process::id()));
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c-api");
    let lies = library().parent().expect("a folder").to_owned();
    let outcome = Command::new("cc")
        .args([&api.join("examples/forward.c"), Path::new("-o"), &program, Path::new("-I")])
        .args([&api.join("include"), Path::new("-L"), &lies])
        .arg("-lclearstream_netmap")
        .arg(format!("-Wl,-z,now,-rpath,{}", lies.display()))
        .output()
        .expect("a C compiler");
    assert!(outcome.status.success(), "{}", text(&outcome.stderr));
    let mut command = Command::new(&program);
    command.args(["vale0:a", "vale0:b", "1"]).env_remove("LD_LIBRARY_PATH");
    let output = command.env("CLEARSTREAM_SWITCH", "/nonexistent").output().expect("it runs");
    let complaint = text(&output.stderr);
    assert!(complaint.starts_with("forward: no switch at /nonexistent"), "{complaint}");
    std::fs::remove_file(&program).expect("it was there");
}

#[test]
fn programs_without_netmap_are_not_disturbed() {
    let switch = Switch::run("others");
    let with = |words: &[&str]| -> Output {
        switch.command(words[0]).args(&words[1..]).output().expect("it runs")
    };
    let folder = env!("CARGO_MANIFEST_DIR");
    let plain = Command::new("/bin/ls").args(["-l", folder]).output().expect("it runs");
    let listed = with(&["/bin/ls", "-l", folder]);
    assert_eq!((text(&listed.stdout), text(&listed.stderr)), (text(&plain.stdout), String::new()));
    let file = built(&format!("plain-{}", std::process::id()));
    let file = file.to_str().expect("UTF-8");
    let plain = with(&[program().to_str().expect("UTF-8"), "plain", file, "0", "0"]);
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    let script = "exec 3<Cargo.toml; read -r line <&3; exec 4<&3 3<&-; echo \"$line\" | cat; cat <&4 | wc -l";
    let shell = with(&["/bin/sh", "-c", &format!("cd '{folder}' && {script}")]);
    let manifest =
        std::fs::read_to_string(Path::new(folder).join("Cargo.toml")).expect("it is there");
    let expected = format!("[package]\n{}\n", manifest.lines().count() - 1);
    assert_eq!((text(&shell.stdout), text(&shell.stderr)), (expected, String::new()));
}

#[test]
fn threads_and_processes_of_a_stock_program_are_not_disturbed() {
    let switch = Switch::run("stock");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/stock.py");
    let plain = Command::new("python3").arg(&script).output().expect("python3");
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    let with = switch.command("python3").arg(&script).output().expect("it runs");
    assert_eq!((text(&with.stdout), text(&with.stderr)), (text(&plain.stdout), String::new()));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
