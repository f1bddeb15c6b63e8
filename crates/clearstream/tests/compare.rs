//! `clearstream compare` on stored files: text, JSON, page, gate, folders, and what cannot be compared.

use crate::PROGRAM;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use results::{
    Direction, DirectionOutcome, Host, HostFacts, Point, Results, RunKind, TestOutcome, TestSpec,
};
use serde_json::Value;
use sys::private::Scratch;

const STEADY: [f64; 5] = [1.00e9, 1.02e9, 0.98e9, 1.01e9, 0.99e9];
const SLOWER: [f64; 5] = [0.80e9, 0.81e9, 0.82e9, 0.79e9, 0.78e9];

/// One TCP stream of these rates, on a host with this kernel.
fn document(spec: &TestSpec, rates: &[f64], kernel: &str) -> Results {
    let point = |(rate, repeat): (&f64, u32)| {
        let outcome = TestOutcome {
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: 1,
                received_bytes: 1,
                sent_bits_per_s: *rate,
                received_bits_per_s: *rate,
                retransmits_count: Some(0),
                udp: None,
            }],
            ..TestOutcome::default()
        };
        Point { repeat, ..Point::new("single-stream", spec.clone(), outcome) }
    };
    let facts = HostFacts { kernel: kernel.to_owned(), ..HostFacts::default() };
    Results {
        hosts: vec![Host::near(facts.clone()), Host::far(facts)],
        points: rates.iter().zip(0..).map(point).collect(),
        ..Results::begun(RunKind::Path, 1_700_000_000_000)
    }
}

struct Files(Scratch);

impl Files {
    fn new() -> Self {
        Self(Scratch::new("compare").expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, results: &Results) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, serde_json::to_vec(results).expect("JSON")).expect("written");
        path.display().to_string()
    }

    fn streams(&self, name: &str, rates: &[f64], kernel: &str) -> String {
        self.write(name, &document(&TestSpec::tcp(), rates, kernel))
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("compare").args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_compared_with_itself_is_said_to_be_the_same() {
    let files = Files::new();
    let one = files.streams("one.json", &STEADY, "6.8.0");
    let output = run(&[&one, &one]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("\nA and B are the same measurements.\n"), "{said}");
}

#[test]
fn a_slower_run_is_told_in_text_json_and_page_and_misses_the_gate() {
    let files = Files::new();
    let before = files.streams("before.json", &STEADY, "6.8.0");
    let after = files.streams("after.json", &SLOWER, "6.12.0");
    let page = files.path("c.html");
    let page = page.to_str().expect("plain");

    let told = run(&[&before, &after, "--report", page]);
    assert_eq!(told.status.code(), Some(0), "without --gate: {}", text(&told.stderr));
    let out = text(&told.stdout);
    for words in [
        "Worse, beyond the noise",
        "single stream",
        "throughput, forward",
        "1.00 Gbit/s",
        "800 Mbit/s",
        "-20%",
        "5, 5",
        "near kernel: 6.8.0 -> 6.12.0",
        "each repeat counts once",
        "Written  ",
    ] {
        assert!(out.contains(words), "no '{words}' in {out}");
    }
    let mut lines = out.lines().filter(|line| !line.contains("before") && !line.contains("after"));
    assert!(lines.all(|line| line.contains("c.html") || line.chars().count() <= 100), "{out}");
    let shown = fs::read_to_string(page).expect("a page");
    for words in ["Beyond the noise: 1 worse", "-20%", "6.12.0", "</html>"] {
        assert!(shown.contains(words), "no '{words}' on the page");
    }
    assert!(!shown.contains("http://") || shown.matches("http").count() < 3, "nothing is loaded");

    let gated = run(&[&before, &after, "--gate", "--json"]);
    assert_eq!(gated.status.code(), Some(3), "{}", text(&gated.stderr));
    let line = "clearstream: gate missed: single stream: throughput, forward 1.00 Gbit/s -> 800 Mbit/s (-20%)\n";
    assert_eq!(text(&gated.stderr), line);
    let object: Value = serde_json::from_slice(&gated.stdout).expect("JSON");
    assert_eq!(object["gate"]["is_met"], false, "{object}");
    let figure = &object["figures"][0];
    assert_eq!((&figure["outcome"], &figure["better"]), (&"worse".into(), &"more".into()));
    assert_eq!(figure["a"]["count"], 5);

    let tolerated = run(&[&before, &after, "--gate", "--tolerance", "25%"]);
    assert_eq!(tolerated.status.code(), Some(0), "{}", text(&tolerated.stderr));
    let faster = run(&[&after, &before, "--gate"]);
    assert_eq!(faster.status.code(), Some(0), "{}", text(&faster.stderr));
    assert!(text(&faster.stdout).contains("Better, beyond the noise"));
    let same = run(&[&before, &before, "--gate"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    assert!(text(&same.stdout).contains("No figure differs beyond the noise"));
}

#[test]
fn a_reader_that_goes_away_hides_no_missed_gate() {
    let files = Files::new();
    let before = files.streams("before.json", &STEADY, "6.8.0");
    let after = files.streams("after.json", &SLOWER, "6.8.0");
    let mut child = Command::new(PROGRAM)
        .args(["compare", &before, &after, "--gate"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("ends").code(), Some(3));
}

#[test]
fn runs_of_a_folder_count_once_each_and_strangers_are_skipped() {
    let files = Files::new();
    for (night, rate) in [0.9e9, 1.0e9, 1.1e9, 1.2e9].iter().enumerate() {
        files.streams(&format!("old/{night}.json"), &[*rate, *rate, *rate], "6.8.0");
        files.streams(&format!("new/{night}.json"), &[*rate / 2.0; 3], "6.8.0");
    }
    fs::write(files.path("old/notes.json"), "[]").expect("written");
    fs::write(files.path("old/notes.txt"), "no results").expect("written");
    let (old, new) = (files.path("old"), files.path("new"));
    let (old, new) = (old.to_str().expect("plain"), new.to_str().expect("plain"));
    let told = run(&[old, new, "--gate"]);
    assert_eq!(told.status.code(), Some(3), "{}", text(&told.stderr));
    let out = text(&told.stdout);
    assert!(out.contains("each run counts once") && out.contains("4 runs"), "{out}");
    assert!(out.contains("4, 4"), "{out}");
    let skipped = text(&told.stderr);
    assert_eq!(skipped.lines().filter(|line| line.contains("skipped")).count(), 1, "{skipped}");
    assert!(skipped.contains("notes.json"), "{skipped}");
}

#[test]
fn what_cannot_be_compared_is_answered_in_one_line() {
    let files = Files::new();
    let good = files.streams("good.json", &STEADY, "6.8.0");
    let back = TestSpec { direction: Direction::Reverse, ..TestSpec::tcp() };
    let other = files.write("other.json", &document(&back, &STEADY, "6.8.0"));
    let empty = files.write("empty.json", &Results::begun(RunKind::Path, 0));
    let cut = files.path("cut.json");
    fs::write(&cut, r#"{"schema_version":"2.0","#).expect("written");
    let (cut, bare) = (cut.display().to_string(), files.path("bare"));
    fs::create_dir(&bare).expect("made");
    let bare = bare.display().to_string();
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let refused = run(arguments);
        let line = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {line}");
        assert!(line.contains(words) && line.lines().count() == 1, "{arguments:?}: {line}");
    };
    refused(&[&good, "no-such.json"], 2, "no-such.json");
    refused(&[&good], 2, "B: ");
    refused(&[&good, &good, "--tolerance", "2%"], 2, "--gate");
    refused(&[&good, &other], 1, "(TCP, reverse)");
    refused(&[&good, &empty], 1, "holds no figures");
    refused(&[&good, &cut], 1, "ends in the middle");
    refused(&[&bare, &good], 1, "no file in this folder");
    // Too few to tell is no gate met.
    let few = files.streams("few.json", &STEADY[..3], "6.8.0");
    let told = run(&[&few, &few, "--gate"]);
    assert_eq!(told.status.code(), Some(3), "{}", text(&told.stderr));
    assert!(text(&told.stderr).contains("enough repeats"), "{}", text(&told.stderr));
    let out = text(&told.stdout);
    assert!(out.contains("\nToo few repeats to tell\n"), "{out}");
    assert!(out.contains("\nNo difference can be told: too few repeats"), "{out}");
    assert!(!out.contains("beyond the noise"), "{out}");
}

#[test]
fn tests_whose_settings_differ_stand_apart_in_text_json_and_page_and_miss_the_gate() {
    let files = Files::new();
    let spec = |window_bytes| TestSpec { window_bytes: Some(window_bytes), ..TestSpec::tcp() };
    let small = files.write("small.json", &document(&spec(128 << 10), &SLOWER, "6.8.0"));
    let large = files.write("large.json", &document(&spec(1 << 20), &STEADY, "6.8.0"));
    let page = files.path("c.html");
    let page = page.to_str().expect("plain");

    let told = run(&[&small, &large, "--report", page]);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    let out = text(&told.stdout);
    let apart = out.find("Tests whose settings differ").expect("told apart");
    let better = out.find("Better, beyond the noise").expect("compared as usual");
    // What is decided comes first.
    let alike = out.find("No test has the same settings").expect("told");
    assert!(apart < better && better < alike, "{out}");
    assert!(out.contains("\n      settings differ: window 128 KiB -> 1.00 MiB\n"), "{out}");
    assert!(!out.contains("Only in"), "{out}");
    let shown = fs::read_to_string(page).expect("a page");
    for words in
        ["No test has the same settings", "Settings differ", "window 128 KiB -&gt; 1.00 MiB"]
    {
        assert!(shown.contains(words), "no '{words}' on the page");
    }

    let gated = run(&[&small, &large, "--gate", "--json"]);
    assert_eq!(gated.status.code(), Some(3), "{}", text(&gated.stderr));
    let line = "clearstream: gate missed: single stream: not judged, settings differ: window 128 KiB -> 1.00 MiB; \
                repeat it with the settings of A\n";
    assert_eq!(text(&gated.stderr), line);
    let object: Value = serde_json::from_slice(&gated.stdout).expect("JSON");
    let change = &object["figures"][0]["differing_settings"][0];
    assert_eq!((&change["setting"], &change["a"]), (&"window".into(), &"128 KiB".into()));
    assert_eq!(object["gate"]["is_met"], false, "{object}");

    // Two candidates that differ as little: neither is compared.
    let mut both = document(&spec(2 << 20), &STEADY, "6.8.0");
    both.points.extend(document(&spec(4 << 20), &STEADY, "6.8.0").points);
    both.points.extend(document(&TestSpec::udp(1448), &STEADY, "6.8.0").points);
    let mut one = document(&spec(128 << 10), &STEADY, "6.8.0");
    one.points.extend(document(&TestSpec::udp(1448), &STEADY, "6.8.0").points);
    let (one, both) = (files.write("one.json", &one), files.write("both.json", &both));
    let told = run(&[&one, &both]);
    let out = text(&told.stdout);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    assert_eq!(out.matches("ambiguous: more than one test could be").count(), 3, "{out}");
    assert!(!out.contains("settings differ"), "{out}");
    let object: Value =
        serde_json::from_slice(&run(&[&one, &both, "--json"]).stdout).expect("JSON");
    assert_eq!(object["only_b"][1]["why"], "ambiguous", "{object}");
}

#[test]
fn recorded_runs_compare_with_themselves() {
    let recorded = rules::root().join("testdata/results");
    for name in ["cumulus-two-clients", "synthetic-path", "synthetic-reproduction"] {
        let path = recorded.join(format!("{name}.json"));
        let path = path.to_str().expect("plain");
        let told = run(&[path, path, "--all"]);
        let out = text(&told.stdout);
        assert_eq!(told.status.code(), Some(0), "{name}: {}", text(&told.stderr));
        // The recording of the two clients has one run of each phase.
        let told = match name {
            "cumulus-two-clients" => "No difference can be told: too few repeats",
            _ => "No figure differs beyond the noise",
        };
        assert!(out.contains(told), "{name}: {out}");
        assert!(!out.contains("Only in"), "{name}: {out}");
        assert!(out.contains("facts of the hosts and the path are the same"), "{name}: {out}");
    }
}

#[test]
fn options_of_a_file_load_are_settings_of_it() {
    let files = Files::new();
    let data = files.path("data");
    let measured = |name: &str, verb: &str, options: &[&str], place: [&str; 2]| {
        let output = files.path(name).to_string_lossy().into_owned();
        let mut command = Command::new(PROGRAM);
        command.args([verb, "--output", &output, "--"]).args(options).args(place);
        let done = command.output().expect("the program starts");
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        output
    };
    let place = data.to_string_lossy().into_owned();
    let io = ["-w", "-r", "-R", "-i", "4", "-t", "4k", "-b", "16k"];
    let meta = ["-n", "10", "-F", "-i", "4"];
    for (verb, options, more, at, differs) in [
        ("io", &io[..], &["-e"][..], "-o", "settings differ: fsync not set -> yes"),
        (
            "io",
            &io[..],
            &["-z", "--random-offset-seed=7"][..],
            "-o",
            "shuffled offsets not set -> yes",
        ),
        ("meta", &meta[..], &["-y"][..], "-d", "settings differ: fsync not set -> yes"),
    ] {
        let a = measured("a.json", verb, options, [at, &place]);
        let same = measured("c.json", verb, options, [at, &place]);
        let b = measured("b.json", verb, &[options, more].concat(), [at, &place]);
        let told = run(&[&a, &b, "--gate"]);
        let out = text(&told.stdout);
        assert!(out.contains("No test has the same settings on both sides"), "{out}");
        assert!(out.contains(differs), "{verb} {more:?}: {out}");
        assert_eq!(told.status.code(), Some(3), "{}", text(&told.stderr));
        let alike = text(&run(&[&a, &same]).stdout);
        assert!(!alike.contains("settings differ"), "{alike}");
        assert!(alike.contains("call p50") && !alike.contains("RTT"), "{alike}");
        assert!(alike.contains("B - A: the median of all pairwise differences"), "{alike}");
    }
}
