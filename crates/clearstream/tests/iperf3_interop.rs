//! `clearstream iperf3` against stock iperf3, both ways, and against itself.
//!
//! The stock program is `iperf3` in the path, or what `CLEARSTREAM_TEST_IPERF3` names; without one
//! those tests print `skipped: iperf3 not installed`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use iperf3::ordered::Json;
use rustix::process::{Pid, Signal, kill_process};
use testkit::port::free_port;

/// Directions and numbers of streams; every one with TCP and UDP.
const SHAPES: [&str; 6] = ["-P 1", "-P 4", "-R -P 1", "-R -P 4", "--bidir -P 1", "--bidir -P 4"];

/// Modes whose JSON keys are known from stock 3.21.
const KEYS: &str = include_str!("data/iperf3_keys_3.21.txt");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Ours,
    Stock,
}

impl Tool {
    fn command(self, line: &str) -> Command {
        let mut command = match self {
            Self::Ours => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_clearstream"));
                command.arg("iperf3");
                command
            }
            Self::Stock => Command::new(stock_path()),
        };
        command.args(line.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(self, line: &str) -> Child {
        self.command(line).spawn().expect("the program starts")
    }

    fn run(self, line: &str) -> Output {
        wait(self.start(line), Duration::from_secs(30))
    }
}

fn stock_path() -> String {
    std::env::var("CLEARSTREAM_TEST_IPERF3").unwrap_or_else(|_unset| "iperf3".to_owned())
}

fn has_stock() -> bool {
    let found = Command::new(stock_path()).arg("--version").output().is_ok();
    if !found {
        println!("skipped: iperf3 not installed");
    }
    found
}

fn wait(mut child: Child, at_most: Duration) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > at_most {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("still running after {at_most:?}: {}", text(&output.stdout));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until somebody listens; connecting would be a client already.
fn wait_for_listener(port: u16) {
    let wanted = format!(":{port:04X} ");
    let listens = |table: &str| {
        let lines = std::fs::read_to_string(table).unwrap_or_default();
        // State 0A is LISTEN (proc(5)).
        lines.lines().any(|line| {
            let local = line.split_whitespace().nth(1).unwrap_or_default();
            format!("{local} ").ends_with(&wanted) && line.contains(" 0A ")
        })
    };
    let start = Instant::now();
    while !listens("/proc/net/tcp") && !listens("/proc/net/tcp6") {
        assert!(start.elapsed() < Duration::from_secs(30), "nobody listens on {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Transfers as fast as they go, one at a time: a dozen at once starve each other on two cores. Those that name a
/// rate leave the cores to others.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// One test; what client and server printed.
fn pair(client: Tool, server: Tool, server_line: &str, client_line: &str) -> (Output, Output) {
    let has_rate = client_line.contains("-b ");
    let _alone = (!has_rate).then(|| ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner));
    let port = free_port();
    let serving = server.start(&format!("-s -1 -p {port} {server_line}"));
    wait_for_listener(port);
    let asked = client.run(&format!("-c 127.0.0.1 -p {port} {client_line}"));
    (asked, wait(serving, Duration::from_secs(30)))
}

fn json(output: &Output, whose: &str) -> Json {
    assert!(output.status.success(), "{whose}: {} {}", output.status, text(&output.stderr));
    let document = Json::parse(&output.stdout)
        .unwrap_or_else(|error| panic!("{whose}: {error}: {}", text(&output.stdout)));
    assert_eq!(document.get("error"), None, "{whose}");
    document
}

fn bytes(document: &Json, sum: &str) -> Option<i64> {
    document.get("end")?.get(sum)?.get("bytes")?.as_i64()
}

fn matrix(client: Tool, server: Tool, transport: &str) {
    if (client == Tool::Stock || server == Tool::Stock) && !has_stock() {
        return;
    }
    for shape in SHAPES {
        let line = format!("-J -t 1 {transport} {shape}");
        let (near, far) = pair(client, server, "-J", &line);
        let near = json(&near, &format!("client {line}"));
        let far = json(&far, &format!("server {line}"));
        let suffixes: &[&str] =
            if shape.contains("bidir") { &["", "_bidir_reverse"] } else { &[""] };
        for suffix in suffixes {
            let server_sends = shape.contains("-R") || !suffix.is_empty();
            // What the sending or receiving server counted is what the client was told.
            let told = if server_sends { "sum_sent" } else { "sum_received" };
            let sum = format!("{told}{suffix}");
            let (here, there) = (bytes(&near, &sum), bytes(&far, &sum));
            let (here, there) = (here.unwrap_or(-1), there.unwrap_or(-2));
            // A stock server of 3.16 or later prints while its senders still run.
            let slack = if server == Tool::Stock && server_sends { 8 << 20 } else { 0 };
            assert!((here - there).abs() <= slack, "{line}: {sum}: {here} here, {there} there");
            let moved = bytes(&near, &format!("sum_received{suffix}")).unwrap_or(0);
            assert!(moved > 0, "{line}: {suffix}");
            let sent = bytes(&near, &format!("sum_sent{suffix}")).unwrap_or(0);
            // A sender may not have counted blocks that the end of the test cut: one a stream here,
            // more where 3.16 and later cancel their threads.
            assert!(moved <= sent + (8 << 20), "{line}: {moved} received of {sent} sent");
        }
    }
}

#[test]
fn our_client_with_a_stock_server_over_tcp() {
    matrix(Tool::Ours, Tool::Stock, "");
}

#[test]
fn our_client_with_a_stock_server_over_udp() {
    matrix(Tool::Ours, Tool::Stock, "-u -b 20M");
}

#[test]
fn a_stock_client_with_our_server_over_tcp() {
    matrix(Tool::Stock, Tool::Ours, "");
}

#[test]
fn a_stock_client_with_our_server_over_udp() {
    matrix(Tool::Stock, Tool::Ours, "-u -b 20M");
}

#[test]
fn our_client_with_our_server_over_tcp() {
    matrix(Tool::Ours, Tool::Ours, "");
}

#[test]
fn our_client_with_our_server_over_udp() {
    matrix(Tool::Ours, Tool::Ours, "-u -b 20M");
}

/// Options that change the test, each with TCP against the other's server.
#[test]
fn options_reach_the_other_end() {
    if !has_stock() {
        return;
    }
    for line in [
        "-n 20M",
        "-n 20M -R",
        "-k 100",
        "-t 1 -O 1",
        "-t 1 -Z --skip-rx-copy",
        "-t 1 -w 200K -M 1200 -N -S 0x20 -C reno",
        "-t 1 -b 50M/10 -l 8K",
        "-t 1 -u -l 1000 -b 10M --udp-counters-64bit --dont-fragment",
        "-t 1 -u -R -l 1000 -k 200",
        "-t 1 -i 0.3 --cport 0",
    ] {
        // --cport 0 is refused by iperf3; the last line runs without it.
        let line = line.replace(" --cport 0", "");
        // 3.12 knows no --skip-rx-copy at its client, our server must take it from ours.
        let line =
            format!("-J {}", if line.contains("-k 200") { "-u -R -l 1000 -k 200" } else { &line });
        for (client, server) in [(Tool::Ours, Tool::Stock), (Tool::Stock, Tool::Ours)] {
            let line = if client == Tool::Stock {
                line.replace(" --skip-rx-copy", "")
            } else {
                line.clone()
            };
            let (near, far) = pair(client, server, "-J", &line);
            json(&near, &format!("{client:?} client {line}"));
            json(&far, &format!("{server:?} server {line}"));
        }
    }
}

#[test]
fn an_amount_is_moved_exactly() {
    let (near, _far) = pair(Tool::Ours, Tool::Ours, "-J", "-J -n 10M -P 2");
    let near = json(&near, "client");
    assert_eq!(bytes(&near, "sum_sent"), Some(10 << 20));
    assert_eq!(bytes(&near, "sum_received"), Some(10 << 20));
}

/// `start.connected[].socket`, in order of appearance.
fn keys(value: &Json, path: &str, found: &mut Vec<String>) {
    match value {
        Json::Object(members) => {
            for (key, member) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if !found.contains(&path) {
                    found.push(path.clone());
                }
                keys(member, &path, found);
            }
        }
        Json::Array(elements) => {
            for element in elements {
                keys(element, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

fn keys_of(document: &Json) -> Vec<String> {
    let mut found = Vec::new();
    keys(document, "", &mut found);
    found
}

#[test]
fn json_has_3_21s_keys_in_its_order() {
    let mut modes: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in KEYS.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(mode) => modes.push((mode, Vec::new())),
            None => modes.last_mut().expect("a section comes first").1.push(line),
        }
    }
    assert_eq!(modes.len(), 8);
    for (mode, wanted) in modes {
        let line = mode.replacen("udp", "-u", 1).replacen("tcp", "", 1);
        let (near, _far) = pair(Tool::Ours, Tool::Ours, "", &format!("-J -t 1 {line}"));
        assert_eq!(keys_of(&json(&near, mode)), wanted, "{mode}");
    }
}

#[test]
fn json_has_every_key_of_the_stock_program() {
    if !has_stock() {
        return;
    }
    for line in
        ["-t 1", "-t 1 -R", "-t 1 --bidir", "-t 1 -u", "-t 1 -u -R", "-t 1 --get-server-output"]
    {
        let line = format!("-J {line} -T title --extra-data more");
        let of = |tool| {
            let (near, _far) = pair(tool, Tool::Stock, "", &line);
            keys_of(&json(&near, &line)).into_iter().collect::<BTreeSet<_>>()
        };
        let (ours, stock) = (of(Tool::Ours), of(Tool::Stock));
        let missing: Vec<_> = stock.difference(&ours).collect();
        assert!(missing.is_empty(), "{line}: {missing:?}");
    }
}

#[test]
fn a_json_stream_is_one_event_a_line() {
    let (near, _far) = pair(Tool::Ours, Tool::Ours, "", "--json-stream -t 1 -i 0.5");
    let lines = text(&near.stdout);
    let events: Vec<String> = lines
        .lines()
        .map(|line| Json::parse(line.as_bytes()).expect("a line is JSON"))
        .map(|event| event.get("event").and_then(Json::as_str).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(events.first().map(String::as_str), Some("start"));
    assert_eq!(events.last().map(String::as_str), Some("end"));
    assert_eq!(events.iter().filter(|event| *event == "interval").count(), 2, "{events:?}");
}

/// A line with every figure as `#` and every prefix gone, so that two runs can be compared.
fn shape(line: &str) -> String {
    let mut out = String::new();
    for character in line.chars() {
        match character {
            '0'..='9' | '.' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            ' ' if out.ends_with(' ') => {}
            other => out.push(other),
        }
    }
    for (prefixed, plain) in [("KBytes", "Bytes"), ("MBytes", "Bytes"), ("GBytes", "Bytes")] {
        out = out.replace(prefixed, plain);
    }
    for (prefixed, plain) in [("Kbits", "bits"), ("Mbits", "bits"), ("Gbits", "bits")] {
        out = out.replace(prefixed, plain);
    }
    out.trim_end().to_owned()
}

#[test]
fn text_has_the_lines_of_the_stock_program() {
    if !has_stock() {
        return;
    }
    for line in [
        "-t 1",
        "-t 1 -R",
        "-t 1 --bidir",
        "-t 1 -P 2",
        "-t 1 --bidir -P 2",
        "-t 1 -u",
        "-t 1 -u -R",
        "-t 1 -u -P 2",
        "-t 1 -u --bidir",
        "-t 1 -V -R",
        "-t 1 -V -u",
        "-t 1 -V --bidir",
        "-t 1 -f M -T title",
        "-t 1 -O 1",
    ] {
        let of = |tool| {
            let (near, _far) = pair(tool, Tool::Stock, "", line);
            assert!(near.status.success(), "{line}: {}", text(&near.stderr));
            let out = text(&near.stdout);
            out.lines().map(shape).filter(|line| !differs_by_nature(line)).collect::<Vec<_>>()
        };
        assert_eq!(of(Tool::Ours), of(Tool::Stock), "{line}");
    }
}

/// Names of the program and of a run.
fn differs_by_nature(line: &str) -> bool {
    line.contains("iperf #") || line.contains("Cookie:") || line.starts_with("Time:")
}

/// Reads what a program says until it has said this; all of it so far.
fn until_said(reader: &mut impl BufRead, wanted: &str) -> String {
    let mut said = String::new();
    while !said.contains(wanted) {
        assert_ne!(reader.read_line(&mut said).unwrap(), 0, "it ended with {said}");
    }
    said
}

#[test]
fn a_signal_ends_a_client_and_a_server_well() {
    let port = free_port();
    let mut server = Tool::Ours.start(&format!("-s -p {port}"));
    wait_for_listener(port);
    let mut client = Tool::Ours.start(&format!("-c 127.0.0.1 -p {port} -t 300 --forceflush"));
    // An interval is over: there is a summary to give.
    let mut out = BufReader::new(client.stdout.take().unwrap());
    until_said(&mut out, "bits/sec");
    interrupt(&client);
    let mut summary = String::new();
    out.read_to_string(&mut summary).unwrap();
    assert!(summary.contains("sender"), "a summary of what was done: {summary}");
    let client = wait(client, Duration::from_secs(30));
    assert_eq!(client.status.code(), Some(0));
    let said = text(&client.stderr);
    let wanted = "iperf3: interrupt - the client has terminated by signal Interrupt(2)\n";
    assert_eq!(said, wanted);
    // Before it has noticed that, the server would be ended by its own signal alone.
    let mut log = BufReader::new(server.stderr.take().unwrap());
    let said = until_said(&mut log, "the client has terminated\n");
    assert!(said.contains("iperf3: the client has terminated\n"), "{said}");
    interrupt(&server);
    let mut said = String::new();
    log.read_to_string(&mut said).unwrap();
    assert!(said.contains("the server has terminated by signal Interrupt(2)"), "{said}");
    let server = wait(server, Duration::from_secs(30));
    assert_eq!(server.status.code(), Some(0));
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn mistakes_get_iperf3s_words_and_exit_code_1() {
    for (line, wanted) in [
        ("-c h -s", "iperf3: parameter error - cannot be both server and client\n\nUsage: iperf3"),
        ("--nonsense", "iperf3: unrecognized option '--nonsense'\n\nUsage: iperf3"),
        ("-c 127.0.0.1 -p 1", "iperf3: error - unable to connect to server: Connection refused\n"),
        ("-c nohost.invalid", "iperf3: error - unable to connect to server: "),
    ] {
        let output = Tool::Ours.run(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(text(&output.stderr).starts_with(wanted), "{line}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{line}");
    }
    let output = Tool::Ours.run("-c 127.0.0.1 -p 1 -J");
    assert_eq!(output.status.code(), Some(1));
    let document = Json::parse(&output.stdout).unwrap();
    let error = document.get("error").and_then(Json::as_str);
    assert_eq!(error, Some("unable to connect to server: Connection refused"));
}

#[test]
fn called_by_the_name_of_iperf3() {
    let directory = std::env::temp_dir().join(format!("called-iperf3-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let link = directory.join("iperf3");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_clearstream"), &link).unwrap();
    let version = Command::new(&link).arg("-v").output().unwrap();
    let help = Command::new(&link).arg("--help").output().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(text(&version.stdout).starts_with("iperf 3.21"), "{}", text(&version.stdout));
    assert!(text(&help.stdout).contains("--get-server-output"));
    assert!(version.status.success() && help.status.success());
}

#[test]
fn a_log_file_and_a_pid_file() {
    let directory = std::env::temp_dir().join(format!("iperf3-files-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (log, pid) = (directory.join("log"), directory.join("pid"));
    let port = free_port();
    let server = Tool::Ours.start(&format!(
        "-s -1 -p {port} -I {} --logfile {}",
        pid.display(),
        log.display()
    ));
    wait_for_listener(port);
    assert_eq!(std::fs::read_to_string(&pid).unwrap(), server.id().to_string());
    let client = Tool::Ours.run(&format!("-c 127.0.0.1 -p {port} -t 1 --timestamps=%s,"));
    assert!(client.status.success());
    for line in text(&client.stdout).lines() {
        let (stamp, _rest) = line.split_once(',').expect("a time stamp");
        assert!(stamp.parse::<u64>().is_ok(), "{line}");
    }
    let server = wait(server, Duration::from_secs(30));
    assert_eq!(text(&server.stdout), "");
    assert!(std::fs::read_to_string(&log).unwrap().contains("Accepted connection from 127.0.0.1"));
    assert!(!pid.exists(), "the pid file is gone");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_server_that_ends_or_breaks_off_leaves_the_client_its_summary() {
    for (signal, why) in [
        (Signal::TERM, "the server has terminated"),
        // Which of the connections breaks first decides the words.
        (Signal::KILL, "control"),
    ] {
        let port = free_port();
        let server = Tool::Ours.start(&format!("-s -p {port}"));
        wait_for_listener(port);
        let mut client = Tool::Ours.start(&format!("-c 127.0.0.1 -p {port} -t 300 --forceflush"));
        let mut out = BufReader::new(client.stdout.take().unwrap());
        until_said(&mut out, "bits/sec");
        kill_process(Pid::from_child(&server), signal).expect("our own process");
        let mut summary = String::new();
        out.read_to_string(&mut summary).unwrap();
        assert!(summary.contains("sender"), "a summary of what was done: {summary}");
        let client = wait(client, Duration::from_secs(30));
        assert_eq!(client.status.code(), Some(1));
        assert!(text(&client.stderr).contains(why), "{}", text(&client.stderr));
        wait(server, Duration::from_secs(30));
    }
}
