//! `clearstream explain` on stored files: an hour within a second, standard input, bad files.

use crate::PROGRAM;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use testkit::effort;

use results::{
    Direction, DirectionOutcome, EndReport, Host, HostAccount, HostFacts, InterfaceFacts,
    IntervalSample, Point, PointOutcome, Results, RunKind, StreamEnd, TcpSample, TcpSummary,
    TestLimit, TestOutcome, TestSpec,
};

/// A file of our own, gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path =
            std::env::temp_dir().join(format!("clearstream-explain-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a scratch file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

#[test]
fn a_file_of_the_model_checker_is_refused_with_what_it_holds() {
    let checked = Scratch::new("checked.json", b"");
    let output = run(&["check", "--example", "peterson", "-o", checked.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for options in [&[][..], &["--symptoms"]] {
        let output = run(&[&["explain", checked.path()], options].concat());
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(
            line.contains("neither a network test") && line.contains("model checker"),
            "{line}"
        );
        assert!(output.stdout.is_empty() && line.lines().count() == 1, "{line}");
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

/// A host on 10-Gbit/s Ethernet.
fn host(name: &str) -> HostFacts {
    let interface = InterfaceFacts {
        name: "eth0".to_owned(),
        speed_bits_per_s: Some(1e10),
        mtu_bytes: 9000,
        ..InterfaceFacts::default()
    };
    HostFacts { name: name.to_owned(), interface: Some(interface), ..HostFacts::default() }
}

/// One test of an hour, sampled ten times a second, that a window of 4 MB held to 1.88 Gbit/s.
fn an_hour() -> Results {
    const INTERVALS: u32 = 36_000;
    let sample = |at_s: f64| TcpSample {
        rtt_s: 0.017,
        rtt_min_s: Some(0.017),
        congestion_window_bytes: 9_000_000,
        peer_window_bytes: Some(4_000_000),
        in_flight_bytes: 3_990_000,
        busy_s: Some(at_s),
        receive_window_limited_s: Some(at_s * 0.97),
        send_buffer_limited_s: Some(0.0),
        ..TcpSample::default()
    };
    let interval = |number: u32| {
        let end_s = f64::from(number + 1) * 0.1;
        let tcp = Some(sample(end_s));
        IntervalSample {
            start_s: end_s - 0.1,
            end_s,
            bytes: 23_500_000,
            tcp,
            ..IntervalSample::default()
        }
    };
    let intervals: Vec<IntervalSample> = (0..INTERVALS).map(interval).collect();
    let tcp = TcpSummary {
        mss_bytes: 8948,
        first: sample(0.0),
        last: sample(3600.0),
        ..TcpSummary::default()
    };
    let end = |sending: bool| StreamEnd {
        sending,
        bytes: 23_500_000 * u64::from(INTERVALS),
        duration_s: 3600.0,
        tcp: Some(tcp.clone()),
        intervals: intervals.clone(),
        thread_system_s: Some(360.0),
        ..StreamEnd::default()
    };
    let report = |sending| EndReport { streams: vec![end(sending)], ..EndReport::default() };
    let spec = TestSpec { limit: TestLimit::DurationS(3600.0), interval_s: 0.1, ..TestSpec::tcp() };
    let outcome = TestOutcome {
        duration_s: 3600.0,
        directions: vec![DirectionOutcome {
            direction: Direction::Forward,
            sent_bytes: 846_000_000_000,
            received_bytes: 846_000_000_000,
            sent_bits_per_s: 1.88e9,
            received_bits_per_s: 1.88e9,
            retransmits_count: Some(0),
            udp: None,
        }],
        hosts: HostAccount::of_ends(report(true), Some(report(false))),
        ..TestOutcome::default()
    };
    let point = Point::new("test", spec, outcome);
    Results {
        hosts: vec![Host::near(host("amsterdam")), Host::far(host("geneva"))],
        points: vec![point],
        ..Results::begun(RunKind::Test, 0)
    }
}

#[test]
fn an_hour_is_explained_within_a_second() {
    let bytes = serde_json::to_vec(&an_hour()).expect("JSON");
    let file = Scratch::new("hour.json", &bytes);
    let mut output = None;
    let took = effort::median_time(9, || output = Some(run(&["--json", "explain", file.path()])));
    let output = output.expect("it ran");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["verdict"]["limit"], "receive-window", "{told}");
    assert_eq!(told["verdict"]["end"], "far");
    assert!(took < Duration::from_secs(1), "{} MB took {took:.2?}", bytes.len() / 1_000_000);
}

#[test]
fn the_path_of_a_reverse_test_leads_from_the_far_host() {
    let shown = |direction: Direction| {
        let rate = DirectionOutcome {
            direction,
            sent_bytes: 1,
            received_bytes: 1,
            sent_bits_per_s: 1e9,
            received_bits_per_s: 1e9,
            retransmits_count: None,
            udp: None,
        };
        let outcome = TestOutcome { directions: vec![rate], ..TestOutcome::default() };
        let spec = TestSpec { direction, ..TestSpec::tcp() };
        let results = Results {
            hosts: vec![Host::near(host("amsterdam")), Host::far(host("geneva"))],
            points: vec![Point::new("test", spec, outcome)],
            ..Results::begun(RunKind::Test, 0)
        };
        let file = Scratch::new("way.json", &serde_json::to_vec(&results).expect("JSON"));
        String::from_utf8_lossy(&run(&["explain", file.path()]).stdout).into_owned()
    };
    let (there, back) = (shown(Direction::Forward), shown(Direction::Reverse));
    assert!(there.starts_with("Path     amsterdam -> geneva: 1.00 Gbit/s"), "{there}");
    assert!(back.starts_with("Path     geneva -> amsterdam: 1.00 Gbit/s"), "{back}");
    assert!(back.contains("\nVerdict  none-found\n"), "{back}");
}

#[test]
fn standard_input_is_read_and_bad_files_get_a_line() {
    let mut results = an_hour();
    for point in &mut results.points {
        let PointOutcome::Measured(outcome) = &mut point.outcome else { continue };
        for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
            stream.intervals.truncate(20);
        }
    }
    let bytes = serde_json::to_vec(&results).expect("JSON");
    let mut child = Command::new(PROGRAM)
        .args(["explain", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(&bytes).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let screen = String::from_utf8(output.stdout).expect("UTF-8");
    for part in [
        "amsterdam -> geneva",
        "Verdict  receive-window at the far end",
        "Next     link-rate",
        "Advice",
        "Ruled out",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let cut = Scratch::new("cut.json", &bytes[..bytes.len() / 2]);
    let output = run(&["explain", cut.path()]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    let packed = Scratch::new("results.json.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    let output = run(&["explain", packed.path()]);
    let complaint = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(complaint.ends_with("compressed (gzip); decompress it first: gunzip\n"), "{complaint}");
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    // The tests have no standard input to read.
    let output = Command::new(PROGRAM).args(["explain", "-"]).stdin(Stdio::null()).output();
    let complaint = String::from_utf8(output.expect("the program starts").stderr).expect("UTF-8");
    assert_eq!(complaint, "clearstream: standard input: the file is empty\n");
    let empty = Scratch::new("empty.json", b"");
    let output = run(&["explain", empty.path()]);
    let complaint = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(complaint.ends_with("empty.json: the file is empty\n"), "{complaint}");
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    let whole = Scratch::new("whole.json", &bytes);
    // The same run, under any name, shows no change; nor does an earlier one.
    let at = |results: &Results, name: &str, ms: u64| {
        let mut later = Results { started_unix_ms: ms, ..results.clone() };
        later.points.iter_mut().for_each(|point| point.started_unix_ms = ms);
        Scratch::new(name, &serde_json::to_vec(&later).expect("JSON"))
    };
    let (copy, early) = (Scratch::new("copy.json", &bytes), at(&results, "early.json", 500));
    let vain = at(&results, "vain.json", 1000);
    for (before, after, words) in [
        (&whole, &whole, "holds the same tests as the first file"),
        (&whole, &copy, "holds the same tests as the first file"),
        (&vain, &early, "was measured before the first file"),
    ] {
        let output = run(&["explain", before.path(), "--after", after.path()]);
        let complaint = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{words}: {complaint}");
        assert!(complaint.contains(words) && complaint.lines().count() == 1, "{complaint}");
    }
    let output = run(&["explain", whole.path(), "--after", vain.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("After inconclusive: the two files record the same hosts"), "{told}");
    assert!(!told.contains("refuted") && !told.contains("confirmed by the change"), "{told}");
    // A recorded change that gains nothing refutes.
    let with = |value: &str| {
        let mut changed = results.clone();
        let near = changed.hosts.iter_mut().find(|host| host.name == "near").expect("near");
        near.facts.sysctls.insert("net.ipv4.tcp_moderate_rcvbuf".to_owned(), value.to_owned());
        changed
    };
    let first = at(&with("1"), "first.json", 500);
    let changed = at(&with("0"), "changed.json", 1000);
    let output = run(&["explain", first.path(), "--after", changed.path()]);
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("After refuted: ") && told.contains("tcp_moderate_rcvbuf: 1 -> 0"),
        "{told}"
    );
    // What only the later file tells is no change.
    let output = run(&["explain", whole.path(), "--after", changed.path()]);
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(told.contains("inconclusive: what both files record"), "{told}");
    // Another test is no answer.
    results.points[0].work.test_mut().expect("a test").streams = 2;
    let other = Scratch::new("other.json", &serde_json::to_vec(&results).expect("JSON"));
    let output = run(&["explain", whole.path(), "--after", other.path()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let complaint = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(complaint.contains("no test in common"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}
