//! `test` over loopback: what the kernels do not grant ends it with exit code 4, and what it prints at its end is
//! short for people and whole for programs.

use crate::PROGRAM;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::port::free_port;

use testkit::server::Server;

fn test(server: &Server, options: &[&str]) -> Output {
    let port = server.port.to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["test", "127.0.0.1", "-p", &port, "-t", "300ms"]).args(options);
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn what_a_kernel_does_not_grant_is_refused_before_or_fails_the_test() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let before: [(&[&str], &str); 4] = [
        (&["-C", "no_such"], "-C no_such: not available at the near end; available:"),
        (&["--cores", "1023"], "core 1023 is not usable at the near end; usable cores:"),
        (&["--far-cores", "1023"], "core 1023 is not usable at the far end; usable cores:"),
        (&["--bidir", "-C", "no_such"], "-C no_such"),
    ];
    for (options, why) in before {
        let output = test(&server, options);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{options:?}: {said}");
        assert_eq!(said.lines().count(), 1, "nothing was run: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{options:?}: {said}");
    }
    // Only the far end's account tells what its kernel granted.
    let output = test(&server, &["-R", "-C", "no_such"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("-C no_such: not available at the far end"), "{said}");
    assert!(text(&output.stdout).contains("reverse    received"), "what was measured is shown");
}

#[test]
fn a_test_ends_in_at_most_six_lines() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    for options in [
        &["-P", "4", "--bidir", "--latency", "-w", "4M"][..],
        &["-u", "--bidir", "-P", "3", "-b", "10M", "--latency"],
        &["--rr", "-P", "2"],
        &["--repeat", "3", "--bidir", "--latency"],
    ] {
        let output = test(&server, options);
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        let is_earlier = |line: &str| line.starts_with(' ') || line.starts_with("repeat ");
        let summary = said.lines().filter(|line| !is_earlier(line)).count();
        assert!((1..=6).contains(&summary), "{options:?}: {said}");
    }
    let verbose = test(&server, &["-P", "3", "--verbose"]);
    let streams = text(&verbose.stdout).matches("stream 2 sent").count();
    assert_eq!(streams, 1, "{}", text(&verbose.stdout));
}

#[test]
fn csv_and_openmetrics_are_all_that_stdout_has() {
    let server = Server::start(&["--bind", "127.0.0.1"]);
    let output = test(&server, &["--csv", "--repeat", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines: Vec<Vec<&str>> =
        text(&output.stdout).lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3, "a header and two runs: {lines:?}");
    let column = lines[0].iter().position(|name| *name == "forward_received_bits_per_s");
    let column = column.expect("the column to quote");
    for row in &lines[1..] {
        assert_eq!(row.len(), lines[0].len(), "{row:?}");
        assert!(row[column].parse::<f64>().expect("a number") > 0.0, "{row:?}");
    }
    let output = test(&server, &["--openmetrics"]);
    let metrics = text(&output.stdout);
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        assert!(line.starts_with("clearstream_test_") && value.is_some(), "{line}");
    }
    assert!(metrics.contains("forward_received_bits_per_s{") && metrics.ends_with("# EOF\n"));
    let both = test(&server, &["--csv", "--openmetrics"]);
    assert_eq!(both.status.code(), Some(2));
}

/// Exit code, output and last message of a long test whose server is ended once an interval has been printed.
fn cut_short(
    server: &Server,
    options: &[&str],
    end: impl FnOnce(),
) -> (Option<i32>, String, String) {
    let port = server.port.to_string();
    let mut client = Command::new(PROGRAM)
        .args(["test", "127.0.0.1", "-p", &port, "-t", "300", "-i", "100ms"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut out = BufReader::new(client.stdout.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("bit/s") {
        assert_ne!(out.read_line(&mut said).expect("UTF-8"), 0, "it ended with {said}");
    }
    end();
    out.read_to_string(&mut said).expect("UTF-8");
    let ended = client.wait_with_output().expect("it ends");
    let last = text(&ended.stderr).lines().last().unwrap_or_default().to_owned();
    (ended.status.code(), said, last)
}

#[test]
fn a_server_that_ends_leaves_a_summary_and_the_reason() {
    for (signal, why) in [
        (Signal::TERM, ": the server is shutting down"),
        (Signal::KILL, "clearstream: the test ended early: lost 127.0.0.1 port "),
    ] {
        for options in [&["-b", "10M"][..], &["-R", "-b", "10M"]] {
            let server = Server::start(&["--bind", "127.0.0.1"]);
            let pid = Pid::from_child(&server.child);
            let end = || kill_process(pid, signal).expect("our own process");
            let (code, said, last) = cut_short(&server, options, end);
            assert_eq!(code, Some(5), "{options:?}: {last}");
            assert!(said.contains("\nnear "), "a summary: {said}");
            assert!(last.contains("the test ended early: ") && last.contains(why), "{last}");
            let is_reported = said.contains("\nfar ");
            assert_eq!(is_reported, signal == Signal::TERM, "{options:?}: {said}");
        }
    }
}

#[test]
fn an_iperf3_server_that_ends_a_test_leaves_a_summary_and_the_reason() {
    let port = free_port();
    let mut child = Command::new(PROGRAM)
        .args(["iperf3", "-s", "--server-bitrate-limit", "1M/1", "-p", &port.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("Server listening") {
        assert_ne!(out.read_line(&mut line).expect("UTF-8"), 0, "{line}");
    }
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let server = Server { child, port };
    let (code, said, last) = cut_short(&server, &[], || {});
    assert_eq!(code, Some(5), "{last}");
    assert!(said.contains("forward    received"), "{said}");
    assert!(last.contains("the test ended early: "), "{last}");
    assert!(last.contains("total required bandwidth is larger than server limit"), "{last}");
}
