//! Gates of `test`, `path`, `io` and `meta`: exit code 3, one line for each that is missed, whoever reads.

use crate::PROGRAM;
use std::fs;
use std::process::{Command, Output, Stdio};

use results::{Results, read_results};
use sys::private::Scratch;
use testkit::port::free_port;
use testkit::server::Server;

fn run(line: &str) -> Output {
    Command::new(PROGRAM).args(line.split_whitespace()).output().expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines on standard error that tell of missed gates.
fn missed(output: &Output) -> Vec<String> {
    let lines = said(output);
    let missed = lines.lines().filter_map(|line| line.strip_prefix("clearstream: gate missed: "));
    missed.map(str::to_owned).collect()
}

fn document(output: &Output) -> Results {
    read_results(&output.stdout).expect("--json prints the document")
}

#[test]
fn a_missed_gate_of_test_is_a_line_and_exit_code_3() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let test = format!("test 127.0.0.1 -p {} -t 100ms", server.port);

    let met = run(&format!("{test} --fail-below 1k --require complete"));
    assert_eq!(met.status.code(), Some(0), "{}", said(&met));
    assert!(missed(&met).is_empty() && said(&met).lines().count() <= 1, "{}", said(&met));
    assert!(String::from_utf8_lossy(&met.stdout).contains("2 of 2 met"), "{met:?}");

    let low = run(&format!("{test} --fail-below 900T --fail-above rtt_p99=1h"));
    assert_eq!(low.status.code(), Some(3), "{}", said(&low));
    let lines = missed(&low);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("throughput ") && lines[0].contains(" is below 900 Tbit/s (1 run)"),
        "{lines:?}"
    );

    let unmeasured = run(&format!("{test} --json --fail-above loaded_rtt_p99=1h --repeat 2"));
    assert_eq!(unmeasured.status.code(), Some(3), "{}", said(&unmeasured));
    assert_eq!(missed(&unmeasured), ["loaded_rtt_p99 was not measured: --latency measures it"]);
    let gates = document(&unmeasured).gates;
    assert_eq!(gates.len(), 1, "{gates:?}");
    assert!(!gates[0].is_met && gates[0].measured.is_none(), "{gates:?}");
    assert_eq!(gates[0].gate, "--fail-above loaded_rtt_p99=1h");
}

#[test]
fn a_reader_that_goes_away_hides_no_missed_gate() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    for json in ["--json", "text"] {
        let mut command = Command::new(PROGRAM);
        command.args(["test", "127.0.0.1", "-t", "100ms", "--fail-below", "900T", "-p"]);
        command.arg(server.port.to_string());
        command.args((json == "--json").then_some(json));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("ends");
        assert_eq!(ended.status.code(), Some(3), "{json}: {}", said(&ended));
        assert_eq!(missed(&ended).len(), 1, "{json}: {}", said(&ended));
    }
}

#[test]
fn wrong_gates_are_refused_before_anything_is_measured() {
    // Nobody listens there: a test that began would end with exit code 1.
    let port = free_port();
    for (line, words) in [
        (format!("test 127.0.0.1 -p {port} --fail-above rt_p99=5ms"), "rtt_p99"),
        (format!("test 127.0.0.1 -p {port} --require confirmed"), "no-loss"),
        (format!("test 127.0.0.1 -p {port} -u --require no-retransmissions"), "only TCP"),
        (format!("test 127.0.0.1 -p {port} -u --fail-above retransmissions=5"), "only TCP"),
        (format!("test 127.0.0.1 -p {port} --require no-loss"), "only UDP"),
        (format!("test 127.0.0.1 -p {port} --rr --fail-below 1G"), "only bulk"),
        (format!("path 127.0.0.1 -p {port} --fail-below four:1G"), "multi-stream"),
        (format!("path 127.0.0.1 -p {port} --fail-above 5ms"), "FIGURE=VALUE"),
        ("io --fail-below rate=1 -o /nowhere/f".to_owned(), "throughput"),
        ("io --ranks 2 --fail-above latency=1 -- -o /nowhere/f".to_owned(), "latency_p99"),
        (format!("test 127.0.0.1 -p {port} --fail-below 10"), "'10' has no unit"),
        (format!("test 127.0.0.1 -p {port} --fail-above rtt_p99=5"), "'5' has no unit"),
        ("io --fail-below 5 -o /nowhere/f".to_owned(), "write for example 5M, or 5 B/s"),
        ("meta --require nothing -d /nowhere".to_owned(), "no-failed-calls"),
        ("io --locks /tmp --fail-below 1k".to_owned(), "--locks"),
    ] {
        let refused = run(&line);
        assert_eq!(refused.status.code(), Some(2), "{line}: {}", said(&refused));
        assert!(said(&refused).contains(words), "{line}: {}", said(&refused));
        assert_eq!(said(&refused).lines().count(), 1, "{line}: {}", said(&refused));
    }
}

#[test]
fn path_is_held_against_its_gates_and_keeps_their_results() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let scratch = Scratch::new("gates").expect("a folder");
    let (results, page) = (scratch.path().join("r.json"), scratch.path().join("r.html"));
    let options = "--duration 400ms --repeats 1 --no-sweep --one-way --no-confirm \
                   --fail-below 1k --fail-below multi-stream:900T --require confirmed";
    let done = run(&format!(
        "path 127.0.0.1 -p {} -o {} --report {} {options}",
        server.port,
        results.display(),
        page.display()
    ));
    assert_eq!(done.status.code(), Some(3), "{}", said(&done));
    let lines = missed(&done);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("is below 900 Tbit/s (multi-stream, 1 run)"), "{lines:?}");
    assert!(lines[1].ends_with("is not confirmed: no experiment was run"), "{lines:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("Gates    1 of 3 met"), "{done:?}");
    let stored = read_results(&fs::read(&results).expect("written")).expect("whole");
    let met: Vec<bool> = stored.gates.iter().map(|gate| gate.is_met).collect();
    assert_eq!(met, [true, false, false], "{:?}", stored.gates);
    assert_eq!(stored.gates[0].experiment.as_deref(), Some("single-stream"));
    let page = fs::read_to_string(page).expect("written");
    assert!(page.contains("is not confirmed: no experiment was run"), "the page has the gates");
}

#[test]
fn file_load_is_held_against_its_gates() {
    let scratch = Scratch::new("gates").expect("a folder");
    let file = scratch.path().join("f");
    let io = format!("-w -r -b 64k -t 16k -o {}", file.display());

    let met = run(&format!("io --fail-below 1k --fail-above latency_p50=1h -R {io}"));
    assert_eq!(met.status.code(), Some(0), "{}", said(&met));
    let low = run(&format!("io --json --fail-below read:900T --require verified {io}"));
    assert_eq!(low.status.code(), Some(3), "{}", said(&low));
    let lines = missed(&low);
    assert!(lines[0].contains("is below 900 TiB/s (read-0, 1 run)"), "{lines:?}");
    assert!(lines[1].starts_with("no data was verified"), "{lines:?}");
    assert_eq!(document(&low).gates.len(), 2);

    let folder = scratch.path().join("d");
    let meta = format!("-n 4 -F -d {}", folder.display());
    let met = run(&format!("meta --require no-failed-calls --fail-below 1 {meta}"));
    assert_eq!(met.status.code(), Some(0), "{}", said(&met));
    let low = run(&format!("meta --threads 2 --fail-below file-stat:900M {meta}"));
    assert_eq!(low.status.code(), Some(3), "{}", said(&low));
    assert_eq!(missed(&low).len(), 1, "{}", said(&low));
    assert!(missed(&low)[0].contains("(file-stat, 1 run)"), "{}", said(&low));
}
