//! `serve` and `path` as processes over loopback: the whole job, cut short and taken up again,
//! and every way to get it wrong answered in one line.

use crate::PROGRAM;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use results::{Limit, RunKind, read_results};
use testkit::port::free_port;

use testkit::server::Server;

#[test]
fn path_writes_results_report_and_verdict() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let place = Place::new("whole");
    let done = path(&server, &place, "127.0.0.1", &["--quick", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", complaint(&done));
    let results = read_results(&done.stdout).expect("--json prints the document");
    assert_eq!(results.kind, RunKind::Path);
    let verdict = results.verdict.as_ref().expect("a verdict");
    assert!(Limit::ALL.contains(&verdict.limit));
    for experiment in ["single-stream", "multi-stream", "reverse", "bidirectional", "udp"] {
        let measured =
            |point: &&results::Point| point.experiment == experiment && point.measured().is_some();
        assert!(results.points.iter().any(|point| measured(&point)), "{experiment}");
    }
    assert!(results.far().is_some() && results.path.idle_rtt.is_some());
    assert_eq!(
        read_results(&fs::read(place.file("r.json")).expect("written")).expect("whole"),
        results
    );
    let page = fs::read_to_string(place.file("r.html")).expect("written");
    assert!(page.contains(verdict.limit.name()) || page.contains("</html>"));
    assert!(!place.file("r.json.journal").exists(), "a finished run leaves no journal");
}

#[test]
fn path_works_over_ipv6() {
    let server = Server::start(&["--bind", "::1"]);
    let place = Place::new("ipv6");
    let done = path(&server, &place, "::1", &["--quick", "--no-confirm", "--no-report", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", complaint(&done));
    let results = read_results(&done.stdout).expect("a document");
    assert_eq!(results.path.address.as_deref(), Some("::1"));
    assert!(!place.file("r.html").exists());
}

/// As a service manager does it (`sd_listen_fds(3)`), through a shell: the program must find itself
/// named in `LISTEN_PID`.
#[test]
fn serve_takes_over_the_sockets_of_a_service_manager() {
    let bound = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = bound.local_addr().expect("bound").port().to_string();
    // Whatever this process inherited, the program gets descriptor 3 and nothing right behind it.
    let script = "exec 3<&0 4<&- 5<&- 6<&- 7<&- 8<&- 9<&- </dev/null;
        LISTEN_FDS=$1 LISTEN_PID=$$ exec \"$0\" serve";
    let serve = |sockets: &str, bound: TcpListener| {
        let mut command = Command::new("sh");
        command.args(["-c", script, PROGRAM, sockets]).stdin(std::os::fd::OwnedFd::from(bound));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sh")
    };
    let mut server = serve("1", bound.try_clone().expect("once more"));
    let done = Command::new(PROGRAM)
        .args(["test", "127.0.0.1", "-p", &port, "-t", "200ms", "--json"])
        .output()
        .expect("starts");
    server.kill().expect("ours");
    server.wait().expect("ends");
    assert_eq!(done.status.code(), Some(0), "{}", complaint(&done));

    // More than there are.
    let refused = serve("60", bound).wait_with_output().expect("ends");
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("sockets from the service manager"));
}

#[test]
fn a_killed_run_is_taken_up_again() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let place = Place::new("resume");
    let mut first =
        path_command(&server, &place, "127.0.0.1", &["--quick", "--no-confirm", "--no-report"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
    let journal = place.file("r.json.journal");
    let points =
        || fs::read_to_string(&journal).map_or(0, |text| text.lines().count().saturating_sub(1));
    wait_until("two points are on disk", || points() >= 2);
    first.kill().expect("SIGKILL");
    first.wait().expect("ends");
    let kept = points();
    assert!(!place.file("r.json").exists(), "results are written whole or not at all");

    let second =
        path(&server, &place, "127.0.0.1", &["--quick", "--no-confirm", "--no-report", "--json"]);
    assert_eq!(second.status.code(), Some(0), "{}", complaint(&second));
    assert!(
        complaint(&second)
            .contains(&format!("resuming after {}", units::count_of(kept as u64, "test"))),
        "{}",
        complaint(&second)
    );
    let results = read_results(&second.stdout).expect("a document");
    let single = results.points.iter().filter(|p| p.experiment == "single-stream").count();
    assert_eq!(single, 3, "no point twice, none missing");
    assert!(!journal.exists());
}

#[test]
fn interrupted_runs_keep_what_they_have() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let place = Place::new("interrupt");
    let mut run = path_command(&server, &place, "127.0.0.1", &["--quick", "--no-report"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let journal = place.file("r.json.journal");
    wait_until("a point is on disk", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() >= 2)
    });
    interrupt(&run);
    let ended = run.wait().expect("ends");
    let mut said = String::new();
    run.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(ended.code(), Some(130), "{said}");
    assert!(said.contains("run the same command to resume"), "{said}");
    let results = read_results(&fs::read(place.file("r.json")).expect("written")).expect("whole");
    assert_eq!(results.partial.as_deref(), Some("ended by signal 2"));
    assert!(journal.exists());
}

#[test]
fn a_path_whose_far_end_dies_keeps_what_was_measured() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let place = Place::new("dead");
    let run = path_command(&server, &place, "127.0.0.1", &["--quick", "--no-report"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let journal = place.file("r.json.journal");
    wait_until("a point is on disk", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() >= 2)
    });
    drop(server);
    let ended = run.wait_with_output().expect("ends");
    let said = complaint(&ended);
    assert_eq!(ended.status.code(), Some(5), "{said}");
    // Between two tests nothing is lost.
    let is_lost =
        ["lost 127.0.0.1", "nothing listens on 127.0.0.1"].iter().any(|why| said.contains(why));
    assert!(is_lost, "{said}");
    assert!(said.contains("; run the same command to resume from "), "{said}");
    let results = read_results(&fs::read(place.file("r.json")).expect("written")).expect("whole");
    assert!(results.points.iter().any(|point| point.measured().is_some()));
    assert!(journal.exists());
}

#[test]
fn a_journal_that_cannot_be_written_does_not_end_the_run() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let place = Place::new("full");
    // No file may grow beyond 32 blocks of 512 bytes: some point of the journal does not fit.
    let command =
        path_command(&server, &place, "127.0.0.1", &["--quick", "--no-confirm", "--no-report"]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$@\"", "sh"])
        .arg(command.get_program());
    let done = limited.args(command.get_args()).output().expect("starts");
    let said = complaint(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("the run continues without its journal"), "{said}");
    assert!(said.lines().last().is_some_and(|line| line.contains("r.json: ")), "{said}");
    let table = String::from_utf8_lossy(&done.stdout);
    assert!(table.contains("one stream  ") && table.contains("Verdict"), "{table}");
}

#[test]
fn an_interrupt_before_the_first_test_keeps_the_idle_path() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let place = Place::new("idle");
    let run = path_command(&server, &place, "127.0.0.1", &["--quick", "--no-report"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let journal = place.file("r.json.journal");
    wait_until("the journal is open", || journal.exists());
    interrupt(&run);
    let ended = run.wait_with_output().expect("ends");
    let said = complaint(&ended);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    let table = String::from_utf8_lossy(&ended.stdout);
    assert!(table.contains("RTT ") && table.contains("path MTU"), "{table}");
    let results = read_results(&fs::read(place.file("r.json")).expect("written")).expect("whole");
    assert!(results.path.idle_rtt.is_some());
    assert_eq!(results.partial.as_deref(), Some("ended by signal 2"));
}

/// Repeats of `test` to a file: each of the three signals keeps what there is, and the same command makes
/// the repeats that are left.
#[test]
fn repeats_of_a_test_that_were_cut_short_are_made_up() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let place = Place::new("repeats");
    let (file, journal) = (place.file("t.json"), place.file("t.json.journal"));
    let path = file.to_str().expect("plain").to_owned();
    let command = || {
        let mut command = Command::new(PROGRAM);
        command.args(["test", "127.0.0.1", "-p", &server.port.to_string(), "-t", "200ms"]);
        command.args(["--repeat", "12", "--output", &path]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let points = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count().max(1) - 1);
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        // A run before may have made more than one. Only a point of its own says that this one minds signals.
        let before = points();
        let run = command().spawn().expect("starts");
        wait_until("one more point is on disk", || points() > before);
        let pid = run.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
        let ended = run.wait_with_output().expect("ends");
        let said = complaint(&ended);
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains("run the same command to resume"), "{said}");
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(told.contains("received") && told.contains("Written  "), "{told}");
        let results = read_results(&fs::read(&file).expect("written")).expect("whole");
        assert!(results.partial.is_some_and(|why| why.contains("ended by signal")));
    }
    let kept = points();
    let last = command().output().expect("runs");
    assert_eq!(last.status.code(), Some(0), "{}", complaint(&last));
    assert!(
        complaint(&last)
            .contains(&format!("resuming after {}", units::count_of(kept as u64, "test")))
    );
    let results = read_results(&fs::read(&file).expect("written")).expect("whole");
    let mut repeats: Vec<u32> = results.points.iter().map(|point| point.repeat).collect();
    repeats.sort_unstable();
    assert_eq!(repeats, Vec::from_iter(0..12));
    assert!(!journal.exists());
}

#[test]
fn two_runs_do_not_share_a_results_file() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let place = Place::new("two");
    let mut first = path_command(&server, &place, "127.0.0.1", &["--quick", "--no-report"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    wait_until("the first has its journal", || place.file("r.json.journal").exists());
    let second = path(&server, &place, "127.0.0.1", &["--quick", "--no-report"]);
    refused(&second, 1, "in use by another run");
    first.kill().expect("SIGKILL");
    first.wait().expect("ends");
}

#[test]
fn every_mistake_gets_one_line() {
    let place = Place::new("mistakes");
    let nobody = free_port();
    let line = |host: &str, port: &str| {
        let output = place.file("r.json");
        let output = output.to_str().expect("plain").to_owned();
        run(&["path", host, "-p", port, "-o", &output, "--no-report"])
    };
    refused(&line("no-such-host.invalid", "5201"), 1, "no-such-host.invalid");
    refused(&line("127.0.0.1", &nobody.to_string()), 1, "clearstream serve");
    refused(&run(&["reproduce", "C-fig99"]), 2, "--list");
    refused(&run(&["report", "/no/such/results.json"]), 2, "/no/such/results.json");
    let cut = place.file("cut.json");
    fs::write(&cut, br#"{"schema_version":"1.0","kind":"pa"#).expect("writes");
    refused(&run(&["report", cut.to_str().expect("plain")]), 1, "ends in the middle");
    refused(&run(&["report", "/"]), 2, "folder");
    let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
    let mut help = Command::new(PROGRAM);
    refused(&help.arg("--help").stdout(full).output().expect("starts"), 1, "standard output");
    let lab = place.file("lab.toml");
    fs::write(
        &lab,
        "name = \"x\"\n[host.a]\n[host.b]\n[[link]]\nbetween = [\"a\", \"b\"]\ndeley = \"1ms\"\n",
    )
    .expect("writes");
    refused(&run(&["lab", "up", lab.to_str().expect("plain")]), 2, "delay");
    for absurd in [["-P", "1000000000"], ["-t", "-5"], ["-w", "lots"], ["--dscp", "64"]] {
        let done = run(&["test", "127.0.0.1", absurd[0], absurd[1]]);
        assert_eq!(done.status.code(), Some(2), "{absurd:?}");
        assert!(
            complaint(&done).contains(absurd[0].trim_start_matches('-'))
                || complaint(&done).contains(absurd[1]),
            "{absurd:?}: {}",
            complaint(&done)
        );
    }
    assert!(!place.file("r.json").exists(), "nothing is left behind");
}

#[test]
fn peers_that_are_silent_or_talk_nonsense_end_in_time() {
    for greeting in
        [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0xff; 64], &[9, 0xff, 0xff, 0xff, 0xff]]
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let peer = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("the client comes");
            // The client may hang up first; that is its right.
            socket.write_all(greeting).ok();
            let mut sink = Vec::new();
            socket.read_to_end(&mut sink).ok();
        });
        let began = Instant::now();
        let done = run(&["test", "127.0.0.1", "-p", &port.to_string(), "-t", "1"]);
        assert!(began.elapsed() < Duration::from_secs(25), "{greeting:?}");
        assert_eq!(done.status.code(), Some(1), "{greeting:?}: {}", complaint(&done));
        assert!(
            complaint(&done).lines().last().is_some_and(|line| line.starts_with("clearstream: "))
        );
        drop(peer);
    }
}

/// A directory of its own; removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("clearstream-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        Self(place)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removable");
    }
}

fn path_command(server: &Server, place: &Place, host: &str, options: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["path", host, "-p", &server.port.to_string()])
        .arg("-o")
        .arg(place.file("r.json"))
        .arg("--report")
        .arg(place.file("r.html"))
        .args(options.iter().filter(|option| **option != "--no-report"));
    if options.contains(&"--no-report") {
        command.arg("--no-report");
    }
    command
}

fn path(server: &Server, place: &Place, host: &str, options: &[&str]) -> Output {
    path_command(server, place, host, options).output().expect("runs")
}

fn run(line: &[&str]) -> Output {
    Command::new(PROGRAM).args(line).stdin(Stdio::null()).output().expect("runs")
}

fn complaint(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

fn refused(done: &Output, code: i32, says: &str) {
    let line = complaint(done);
    assert_eq!(done.status.code(), Some(code), "{line}");
    assert!(line.contains(says) && line.lines().count() == 1, "{line}");
    assert!(done.stdout.is_empty());
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill runs").success());
}

fn wait_until(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !met() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Paths in messages are those the user gave.
#[test]
fn a_full_disk_is_said_and_leaves_no_half_file() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: no /dev/full");
        return;
    }
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let done = run(&[
        "test",
        "127.0.0.1",
        "-p",
        &server.port.to_string(),
        "-t",
        "200ms",
        "-o",
        "/dev/full",
    ]);
    assert_ne!(done.status.code(), Some(0));
    assert!(complaint(&done).contains("/dev/full"), "{}", complaint(&done));
}
