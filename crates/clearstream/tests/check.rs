//! `clearstream check` on models of two processes that exclude each other.

use crate::PROGRAM;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Peterson's algorithm; `turn` is what a process gives away before it waits.
fn peterson(turn: [u8; 2]) -> String {
    let process = |me: usize| {
        let (other, turn) = (1 - me, turn[me]);
        format!(
            "process P{me} {{\n state away, asks, waits, inside;\n init away;\n trans\n \
             away -> asks {{ effect wants[{me}] = 1; }},\n \
             asks -> waits {{ effect turn = {turn}; }},\n \
             waits -> inside {{ guard wants[{other}] == 0 or turn == {me}; effect count = count + 1; }},\n \
             inside -> away {{ effect wants[{me}] = 0, count = count - 1; }};\n}}\n"
        )
    };
    let watch = "process Watch { state on; init on; assert on: count < 2; }\n";
    format!("byte wants[2], turn, count;\n{}{}{watch}system async;\n", process(0), process(1))
}

/// A file that is gone when dropped.
struct ModelFile(PathBuf);

impl ModelFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}.dve", std::process::id()));
        std::fs::write(&path, text).expect("a file in the temporary folder");
        Self(path)
    }

    fn check(&self, options: &[&str]) -> (Option<i32>, String, String) {
        let done = Command::new(PROGRAM).arg("check").arg(&self.0).args(options).output();
        told(done.expect("the program runs"))
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn told(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_right_algorithm_holds_and_says_how_much_was_searched() {
    let model = ModelFile::new("right", &peterson([1, 0]));
    let (code, out, err) = model.check(&[]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("\nholds\n") && out.contains("0 deadlocks"), "{out}");
    let (code, out, _) = model.check(&["--json"]);
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &json["checks"][0]["verdict"]), (Some(0), &Value::from("holds")));
    assert_eq!(json["checks"][0]["never_taken"], Value::Array(Vec::new()));
    // Who waits comes in: the other, once it has given the turn away, waits too.
    let (code, out, _) = model.check(&["--ltl", "G ({P0.waits} -> F {P0.inside})"]);
    assert_eq!(code, Some(0), "{out}");
    let (code, out, _) = model.check(&["--ltl", "G F {P0.inside}"]);
    assert_eq!(code, Some(10), "without fairness the other may run alone: {out}");
    assert!(out.contains("the cycle begins here"), "{out}");
    let (code, out, _) = model.check(&["--ltl", "G F {P0.inside}", "--fairness", "weak"]);
    assert_eq!(code, Some(0), "{out}");
    let (code, out, _) = model.check(&["--ltl", "F G {P0.away}", "--fairness", "strong"]);
    assert_eq!(code, Some(10), "{out}");
    assert!(out.contains("the counterexample is a strongly fair infinite run (lasso)"), "{out}");
    let (code, out, _) = model.check(&["--ltl", "G !({P0.inside} && {P1.inside})"]);
    assert_eq!(code, Some(0), "{out}");
}

#[test]
fn a_wrong_algorithm_is_violated_with_the_shortest_run() {
    let model = ModelFile::new("wrong", &peterson([0, 1]));
    let (code, out, _) = model.check(&[]);
    assert_eq!(code, Some(10), "{out}");
    assert!(out.contains("assertion of Watch does not hold"), "{out}");
    let (_, out, _) = model.check(&["--json"]);
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let run = json["checks"][0]["run"].as_array().expect("a run");
    // Both ask, both give the turn to themselves, both go in: six steps, and no fewer will do.
    assert_eq!(run.len(), 7, "{run:?}");
    assert!(run[6]["state"].as_str().is_some_and(|state| state.contains("count=2")));
    assert_eq!(run[6]["movers"].as_array().map(Vec::len), Some(1));
    let drawing = ModelFile(model.0.with_extension("svg"));
    let (code, ..) = model.check(&["--svg", drawing.0.to_str().expect("text")]);
    let svg = std::fs::read_to_string(&drawing.0).expect("a drawing");
    assert_eq!((code, svg.matches("class=\"msc-step\"").count()), (Some(10), 6));
}

/// A trace below an error's excerpt: the number of steps stands in the line of the reason.
#[test]
fn a_failed_assertion_is_shown_with_its_place_and_the_length_of_the_trace() {
    let text = "byte x;\nprocess P {\n state q, r; init q;\n assert r: x == 0;\n trans\n  q -> r { effect x = 1; };\n}\n\
                system async;\n";
    let (code, out, _) = ModelFile::new("caret", text).check(&[]);
    assert_eq!(code, Some(10), "{out}");
    let shown: Vec<&str> = out.lines().skip(1).take(6).collect();
    let wanted = [
        "violated: 4:12: assertion of P does not hold, after 1 step",
        "     assert r: x == 0;",
        "               ^",
        "   0  P.q x=0",
        "      P: q -> r (line 6)",
        "   1  P.r x=1",
    ];
    assert_eq!(shown, wanted, "{out}");
    let (_, out, _) = ModelFile::new("caret-json", text).check(&["--json"]);
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["checks"][0]["why"], "4:12: assertion of P does not hold");
}

/// From the state in which both are inside, no continuation satisfies the formula: a cycle would add nothing.
#[test]
fn a_safety_formula_is_violated_by_a_shortest_finite_run() {
    let model = ModelFile::new("safety", &peterson([0, 1]));
    let formula = "G !({P0.inside} && {P1.inside})";
    let run_of = |options: &[&str]| {
        let (code, out, err) = model.check(&[&["--ltl", formula, "--json"], options].concat());
        assert_eq!(code, Some(10), "{out}{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        let check = &json["checks"][0];
        assert_eq!(check["cycle_begins_at"], Value::Null, "{options:?}: {check}");
        let why = check["why"].as_str().expect("text").to_owned();
        let states = check["run"].as_array().expect("a run").clone();
        let last = states.last().and_then(|last| last["state"].as_str()).expect("a state");
        assert!(last.contains("P0.inside P1.inside"), "{options:?}: {last}");
        let is_both = |state: &Value| {
            state["state"].as_str().is_some_and(|state| state.contains("P0.inside P1.inside"))
        };
        assert_eq!(states.iter().filter(|state| is_both(state)).count(), 1, "{options:?}");
        (states.len(), why)
    };
    // As without a formula: six steps, and no fewer will do.
    assert_eq!(run_of(&[]), (7, "the formula can no longer hold".to_owned()));
    for options in [&["--ranks", "2"][..], &["--fairness", "weak"], &["--fairness", "strong"]] {
        let (states_count, why) = run_of(options);
        assert!(states_count >= 7, "{options:?}: {states_count}");
        assert!(why.contains("a shorter run may exist"), "{options:?}: {why}");
    }
    let (_, out, _) = model.check(&["--ltl", formula]);
    assert!(out.contains("violated: the formula can no longer hold, after 6 steps\n"), "{out}");
    assert!(!out.contains("cycle"), "{out}");
    // Violated before the first step.
    let (_, out, _) = model.check(&["--ltl", "{P0.asks}"]);
    assert!(out.contains("the formula can no longer hold, after 0 steps\n"), "{out}");
    assert!(out.contains("P0.away P1.away"), "{out}");
}

#[test]
fn a_model_is_read_from_standard_input() {
    let check = |options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["check", "-"]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let text = peterson([1, 0]);
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it is read");
        told(child.wait_with_output().expect("it ends"))
    };
    let (code, out, err) = check(&[]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.starts_with("standard input: absence of deadlocks"), "{out}");
    let (code, _, err) = check(&["--simulate"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("the model must be a file"), "{err}");
}

/// Lines that a counterexample of a formula cites are lines of the file.
#[test]
fn the_run_of_a_formula_cites_the_model_alone() {
    let text = peterson([1, 0]);
    let lines = text.lines().count();
    let (code, out, _) = ModelFile::new("cites", &text).check(&["--ltl", "G F {P0.inside}"]);
    assert_eq!(code, Some(10), "{out}");
    assert!(out.contains("violated: the counterexample is an infinite run (lasso), "), "{out}");
    let cited = out.split("(line ").skip(1).filter_map(|rest| rest.split(')').next());
    let cited: Vec<usize> = cited.map(|line| line.parse().expect("a number")).collect();
    assert!(!cited.is_empty() && cited.iter().all(|&line| line <= lines), "{lines}: {out}");
    assert!(!out.contains("LTL_property"), "{out}");
}

#[test]
fn what_is_wrong_with_a_formula_is_shown_in_the_formula() {
    let model = ModelFile::new("formula", &peterson([1, 0]));
    let (code, out, err) = model.check(&["--ltl", "G !{P0.indoors}"]);
    assert_eq!(code, Some(2), "{out}{err}");
    let wanted = "--ltl:1:8: there is no state `indoors` in `P0`; its states are: asks, away, inside, waits\n    G !{P0.indoors}\n           ^";
    assert!(err.contains(wanted), "{err}");
}

#[test]
fn runs_that_end_with_an_error_are_named_where_a_formula_holds() {
    let text = "byte x = 200; process P { state q; init q;\ntrans q -> q { effect x = x + 20; }; }\n\
                system async;\n";
    let model = ModelFile::new("ends", text);
    let ways: [&[&str]; 3] = [&[], &["--ranks", "2"], &["--fairness", "weak"]];
    for way in ways {
        let (code, out, err) = model.check(&[&["--ltl", "F {x > 250}"], way].concat());
        assert_eq!(code, Some(0), "{way:?} {out}{err}");
        let told = "run-time error, run not judged by the formula: P: q -> q (line 2)";
        assert!(out.contains(told), "{way:?} {out}");
    }
    let (_, out, _) = model.check(&["--ltl", "F {x > 250}", "--json"]);
    let document: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(document["checks"][0]["failing"][0], "P: q -> q (line 2)");
}

#[test]
fn who_stops_reading_is_told_the_verdict_all_the_same() {
    // Its warning is the first thing said, on stderr.
    let text = "byte x; process P { state q, r; init q; trans q -> r { guard 3 - 2 - 1 == x; }; } \
                system async;\n";
    let model = ModelFile::new("unread", text);
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        writer
    };
    for (out, err) in [(closed().into(), Stdio::null()), (Stdio::null(), closed().into())] {
        let mut command = Command::new(PROGRAM);
        let done = command.arg("check").arg(&model.0).stdout(out).stderr(err).status();
        assert_eq!(done.expect("the program runs").code(), Some(10));
    }
}

#[test]
fn code_that_no_run_comes_to_is_named_with_its_line() {
    let text = "byte x;\nprocess P {\n state a, b,\n  dead, wrong; init a; trans\n a -> b {},\n \
                b -> a {}, b -> dead { guard x == 7; },\n a -> wrong { effect x = 1 / x; };\n}\n\
                system async;\n";
    let model = ModelFile::new("unreachable", text);
    for ranks in ["1", "2"] {
        let (code, out, err) = model.check(&["--full", "--ranks", ranks]);
        assert_eq!(code, Some(10), "the division fails: {out}{err}");
        let named: Vec<&str> = out.lines().filter(|line| line.starts_with("never")).collect();
        let wanted = [
            "never taken: P: b -> dead (line 6)",
            "never reached: P.dead (line 4)",
            "never reached: P.wrong (line 4)",
        ];
        assert_eq!(named, wanted, "by {ranks}: {out}");
    }
}

#[test]
fn a_report_page_shows_verdict_run_and_search() {
    let model = ModelFile::new("paged", &peterson([0, 1]));
    let results = ModelFile(model.0.with_extension("json"));
    let page = ModelFile(model.0.with_extension("html"));
    let (code, ..) = model.check(&["--output", results.0.to_str().expect("text")]);
    assert_eq!(code, Some(10));
    let done = Command::new(PROGRAM).arg("report").arg(&results.0).output();
    let (code, out, err) = told(done.expect("the program runs"));
    assert_eq!(code, Some(0), "{out}{err}");
    let html = std::fs::read_to_string(&page.0).expect("a page beside the results");
    for wanted in
        ["Violated", "assertion of Watch does not hold", "The counterexample", "The search"]
    {
        assert!(html.contains(wanted), "no {wanted}");
    }
    // Drawn twice: for a screen and for a phone.
    assert_eq!(html.matches("class=\"msc-step\"").count(), 12);
}

#[test]
fn what_cannot_be_decided_says_why() {
    // Four counters of 0 to 99: 10^8 states.
    let process = |me: u8| {
        format!(
            "process P{me} {{ byte n; state q; init q; trans q -> q {{ guard n < 99; effect n = n + 1; }}; }}\n"
        )
    };
    let text: String = (0..4).map(process).collect();
    let model = ModelFile::new("large", &format!("{text}system async;\n"));
    let (code, out, _) = model.check(&["--memory", "4M", "--allow-deadlock"]);
    assert_eq!(code, Some(11), "{out}");
    assert!(out.contains("the memory limit 4.00 MiB (--memory) was reached"), "{out}");
    assert!(out.contains("queued, no error found"), "{out}");
    for time in ["200ms", "0s"] {
        let (code, out, _) = model.check(&["--time", time, "--allow-deadlock"]);
        assert_eq!(code, Some(11), "{out}");
    }
    let drawing = model.0.with_extension("svg");
    let svg = drawing.to_str().expect("text");
    let (_, _, err) = model.check(&["--time", "0s", "--svg", svg]);
    assert_eq!(
        err,
        format!("clearstream: {svg} is not written: there is no counterexample to draw\n")
    );
    assert!(!drawing.exists());
}

/// Processor time of a process, clock ticks: fields 14 and 15 of `/proc/PID/stat`.
fn used_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_name, after)| after);
    after
        .split_whitespace()
        .skip(14 - 3)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum()
}

#[test]
fn who_interrupts_a_search_is_told_what_is_known() {
    let count = "byte n; state q; init q; trans q -> q { guard n < 99; effect n = n + 1; };";
    let text: String = (0..4).map(|me| format!("process P{me} {{ {count} }}\n")).collect();
    let model = ModelFile::new("endless", &format!("{text}system async;\n"));
    let child = Command::new(PROGRAM)
        .arg("check")
        .arg(&model.0)
        .args(["--allow-deadlock", "--json", "--time", "60s"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let began = std::time::Instant::now();
    // It starts within a hundredth of a second; what takes a fifth is the search. (A signal before it begins ends the
    // program with nothing to tell.)
    while used_ticks(child.id()) < 20 {
        assert!(began.elapsed().as_secs() < 30, "it never searches");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let (code, out, _) = told(child.wait_with_output().expect("it ends"));
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &json["checks"][0]["verdict"]), (Some(11), &Value::from("undecided")));
    assert!(json["checks"][0]["why"].as_str().is_some_and(|why| why.contains("interrupted")));
    assert!(json["checks"][0]["states_count"].as_u64() > Some(0));
}

#[test]
fn searches_that_keep_less_never_say_that_it_holds() {
    for options in [&["--hash-compaction"][..], &["--bitstate", "1M"]] {
        let (code, out, _) = ModelFile::new("less-right", &peterson([1, 0])).check(options);
        assert_eq!(code, Some(11), "{out}");
        assert!(out.contains("may miss errors"), "{out}");
        let (code, out, _) = ModelFile::new("less-wrong", &peterson([0, 1])).check(options);
        assert_eq!(code, Some(10), "{out}");
        assert!(out.contains("count=2"), "{out}");
    }
}

#[test]
fn a_bad_model_is_a_line_with_its_place() {
    let model = ModelFile::new("bad", "process P { state q; init r; } system async;\n");
    let (code, _, err) = model.check(&[]);
    assert_eq!(code, Some(2));
    assert!(err.contains(":1:27: there is no state `r`") && err.contains('^'), "{err}");
    let several =
        "process P { state q; init q;\ntrans q -> r { guard x == 1; }; }\nsystem async;\n";
    let (code, _, err) = ModelFile::new("several", several).check(&[]);
    assert_eq!(code, Some(2));
    let first = err.find(":2:12: there is no state `r`").expect("the first error");
    let second = err.find(":2:22: there is no variable `x`").expect("the second error");
    assert!(first < second && err.matches("clearstream: ").count() == 2, "{err}");
    let good = ModelFile::new("good", &peterson([1, 0]));
    let (code, _, err) = good.check(&["--ltl", "G (p"]);
    assert_eq!(code, Some(2), "{err}");
    let (code, _, err) = good.check(&["--ltl", "G p"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("`p`"), "{err}");
}

#[test]
fn a_search_is_put_down_and_taken_up_again() {
    let count = "byte n; state q; init q; trans q -> q { guard n < 39; effect n = n + 1; };";
    let text: String = (0..3).map(|me| format!("process P{me} {{ {count} }}\n")).collect();
    let model = ModelFile::new("long", &format!("{text}system async;\n"));
    let file = ModelFile(model.0.with_extension("checkpoint"));
    let path = file.0.to_str().expect("text");
    let options = ["--allow-deadlock", "--json"];
    let (code, out, err) =
        model.check(&[&options[..], &["--memory", "700K", "--checkpoint", path]].concat());
    assert_eq!(code, Some(11), "{out}{err}");
    assert!(err.contains("--resume"), "{err}");
    let (code, out, err) = model.check(&[&options[..], &["--resume", path]].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["checks"][0]["states_count"], 64_000);
    assert_eq!(json["checks"][0]["transitions_count"], 3 * 39 * 1600);
    let (code, _, err) = model.check(&["--resume", path]);
    assert_eq!(code, Some(2));
    assert!(err.contains("other options"), "{err}");
}

#[test]
fn reduced_searches_are_smaller_and_say_so() {
    let worker = |me: usize| {
        format!(
            "process W{me} {{ byte n; state a, b, c, d; init a; trans a -> b {{ effect n = 1; }}, \
             b -> c {{ effect n = n + 1; }}, c -> d {{ effect all = all + n; }}, d -> d {{ }}; }}\n"
        )
    };
    let workers: String = (0..4).map(worker).collect();
    let model = ModelFile::new("work", &format!("byte all;\n{workers}system async;\n"));
    let states = |options: &[&str]| {
        let (code, out, err) = model.check(&[options, &["--json"]].concat());
        assert_eq!(code, Some(0), "{out}{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        json["checks"][0]["states_count"].as_u64().expect("a number")
    };
    assert_eq!(states(&[]), 256);
    assert!(states(&["--reduce"]) < 64);
    assert!(states(&["--reduce", "--ltl", "G ({all == 8} -> G {all == 8})"]) < 64);
    let (code, out, _) = model.check(&["--reduce", "--ltl", "F {all == 9}"]);
    assert_eq!(code, Some(10), "{out}");
    assert!(out.contains("(reduced search)"), "{out}");
    let (code, _, err) = model.check(&["--reduce", "--ltl", "X {all == 0}"]);
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn a_model_with_parameters_is_expanded() {
    let text = "default(N, 2)\nforloop(i, 0, N - 1, `process P_`'i { state a, b; init a; \
                trans a -> b { }, b -> a { }; }\n')\nsystem async;\n";
    let mut model = ModelFile::new("many", text);
    let path = model.0.with_extension("mdve");
    std::fs::rename(&model.0, &path).expect("renamed");
    model.0 = path;
    for (options, states) in [(&[][..], 4), (&["-D", "N=5"][..], 32)] {
        let (code, out, err) = model.check(&[options, &["--json"]].concat());
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!((code, &json["checks"][0]["states_count"]), (Some(0), &states.into()), "{err}");
    }
    let (code, _, err) = model.check(&["-D", "N=1 2"]);
    assert_eq!(code, Some(2));
    assert!(err.contains(".mdve:2:") && err.contains('^'), "{err}");
    let (code, _, err) = model.check(&["-D", "M=3"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("--define M: nothing in ") && err.contains("parameter is N"), "{err}");
}

#[test]
fn a_checkpoint_that_could_not_be_written_is_refused_before_the_search() {
    let model = ModelFile::new("nowhere", &peterson([1, 0]));
    let (code, out, err) = model.check(&["--checkpoint", "/nonexistent/saved"]);
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(err.contains("/nonexistent/saved: cannot be written") && out.is_empty(), "{out}{err}");
}

/// What `--simulate` prints while it is answered so.
fn stepped_through(model: &ModelFile, answers: &[u8]) -> String {
    let mut child = Command::new(PROGRAM)
        .arg("check")
        .arg(&model.0)
        .arg("--simulate")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    child.stdin.take().expect("its input").write_all(answers).expect("it reads");
    let (code, out, _) = told(child.wait_with_output().expect("it ends"));
    assert_eq!(code, Some(0), "{out}");
    out
}

/// Also into a state that violates an assertion, and into the error that ends the run.
#[test]
fn a_model_can_be_stepped_through() {
    let out = stepped_through(&ModelFile::new("step", &peterson([1, 0])), b"0\nb\n9\nq\n");
    assert!(out.contains("   1  P0.asks") && out.contains("enter the number of a step"), "{out}");

    let text = "byte x = 1;\nprocess P { state a; init a; assert a: x > 0;\n\
                trans a -> a { effect x = x - 1; }; }\nsystem async;\n";
    let out = stepped_through(&ModelFile::new("violates", text), b"0\n0\n");
    assert!(out.contains("   1  P.a x=0\n  2:40: assertion of P does not hold\n"), "{out}");
    let ended = "   2  error state\n  the run has ended with a run-time error\n";
    assert!(out.contains(ended) && !out.contains("deadlock"), "{out}");
}

/// The words of a command line, with double quotes as a shell takes them.
fn shell_words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    parts
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _quoted => vec![part.to_owned()],
        })
        .collect()
}

#[test]
fn searches_that_an_example_names_end_as_it_says() {
    let mut searches = 0;
    for example in dve::EXAMPLES {
        let lines = example.text.lines().map_while(|line| line.strip_prefix("//"));
        let tries = lines.filter_map(|line| line.trim().strip_prefix("check --example "));
        let before = searches;
        for line in tries {
            let (search, verdict) = line.rsplit_once(' ').expect("a verdict");
            let words = shell_words(search);
            assert_eq!(words[0], example.name, "{line}");
            let done = Command::new(PROGRAM).args(["check", "--example"]).args(words).output();
            let (code, out, err) = told(done.expect("the program runs"));
            let wanted = match verdict {
                "holds" => 0,
                "violated" => 10,
                other => panic!("{other}: {line}"),
            };
            assert_eq!(code, Some(wanted), "{line}\n{out}{err}");
            searches += 1;
        }
        assert!(searches > before, "{} names no search", example.name);
    }
    assert!(searches >= 20, "{searches}");
}

#[test]
fn examples_are_listed_printed_and_refused_by_name() {
    let run = |options: &[&str]| {
        told(Command::new(PROGRAM).arg("check").args(options).output().expect("the program runs"))
    };
    let (code, out, _) = run(&["--example"]);
    assert_eq!(code, Some(0));
    for example in dve::EXAMPLES {
        assert!(out.contains(example.title()) && out.contains(example.name), "{out}");
        let (code, text, _) = run(&["--example", example.name, "--print"]);
        assert_eq!((code, text.as_str()), (Some(0), example.text));
    }
    let (code, out, err) = run(&["--example", "nobody"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("nobody") && err.contains("--example"), "{err}");
    let (code, ..) = run(&["--example", "peterson", "other.dve"]);
    assert_eq!(code, Some(2), "an example or a file");
}

/// Whether the lines shown are the lines printed; a line `…` stands for any lines.
fn shows(shown: &[&str], printed: &[&str]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((&"…", rest)), _) => {
            (0..=printed.len()).any(|omitted| shows(rest, &printed[omitted..]))
        }
        (Some((one, rest)), Some((other, printed))) => one == other && shows(rest, printed),
        _ => false,
    }
}

/// The commands of the tutorial are run by a shell, in the order of the text, in a folder with its models.
#[test]
fn tutorial_shows_what_is_printed() {
    let text = rules::text("docs/tutorial-checking.md");
    let folder = sys::private::Scratch::new("tutorial").expect("a folder");
    let models = text.split("```dve\n").skip(1).filter_map(|rest| rest.split("```").next());
    for (name, model) in ["first.dve", "second.dve"].into_iter().zip(models) {
        std::fs::write(folder.path().join(name), model).expect("a model");
    }
    let programs = Path::new(PROGRAM).parent().expect("a folder").display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut transcripts = 0;
    for block in text.split("```text\n").skip(1) {
        let block = block.split("```").next().expect("an end");
        let mut shown: Vec<&str> = block.lines().collect();
        let command = shown.remove(0).strip_prefix("$ ").expect("a command");
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(folder.path()).env("PATH", &path);
        let (_, printed, err) = told(shell.output().expect("a shell"));
        let printed: Vec<&str> = printed.lines().collect();
        assert!(shows(&shown, &printed), "{command}\n{printed:#?}\n{err}");
        transcripts += 1;
    }
    assert!(transcripts >= 8, "{transcripts}");
    let first = std::fs::read_to_string(folder.path().join("first.dve")).expect("it");
    let printed = std::fs::read_to_string(folder.path().join("mutex.dve")).expect("printed");
    assert!(printed.ends_with(&first), "the first model is the example without its comment");
}

#[test]
fn models_in_the_documents_are_models() {
    let mut models = 0;
    for file in ["docs/dve.md", "docs/tutorial-checking.md"] {
        let text = rules::text(file);
        for block in text.split("```dve\n").skip(1) {
            let model = block.split("```").next().expect("an end");
            if let Err(error) = dve::Model::parse(model) {
                panic!("{file}: {error}\n{model}");
            }
            models += 1;
        }
    }
    assert!(models >= 3, "{models}");
}
