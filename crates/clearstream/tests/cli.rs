//! The command line as a user meets it: help, spelling mistakes, exit codes, start time.

use crate::PROGRAM;
use std::process::{Command, Output};
use std::time::Duration;
use testkit::effort;

const VERBS: &[&str] = &[
    "path",
    "explain",
    "compare",
    "place",
    "run",
    "test",
    "serve",
    "live",
    "topo",
    "lab",
    "switch",
    "port",
    "link",
    "pkt",
    "gateway",
    "reproduce",
    "report",
    "iperf3",
    "help",
    "manual",
];

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The one line a refused command leaves on stderr.
fn complaint(output: &Output) -> &str {
    assert_eq!(text(&output.stdout), "", "stdout is for data");
    let line = text(&output.stderr);
    assert_eq!(line.lines().count(), 1, "one line: {line:?}");
    line.trim_end()
}

#[test]
fn every_verb_has_help() {
    for verb in VERBS {
        let output = run(&[verb, "--help"]);
        assert!(output.status.success(), "{verb}: {}", text(&output.stderr));
        let help = text(&output.stdout);
        assert!(help.to_lowercase().contains("usage"), "{verb}: {help}");
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{verb}: help wider than 100"
        );
    }
}

#[test]
fn help_lists_every_verb_and_its_example() {
    let output = run(&["--help"]);
    let help = text(&output.stdout);
    for verb in VERBS.iter().filter(|verb| **verb != "manual") {
        assert!(help.lines().any(|line| line.trim_start().starts_with(verb)), "{verb}: {help}");
        if ["iperf3", "help"].contains(verb) {
            continue; // the help of iperf3 is its own, that of help the whole program's
        }
        let page = run(&[verb, "--help"]);
        let example = format!("clearstream {verb} ");
        let shown = text(&page.stdout).lines().filter(|line| !line.starts_with("Usage"));
        assert!(
            shown.into_iter().any(|line| format!("{line} ").contains(&example)),
            "no example in {verb} --help"
        );
    }
}

#[test]
fn spelling_mistakes_get_one_line_and_a_suggestion() {
    let output = run(&["pth", "geneva"]);
    assert_eq!(output.status.code(), Some(2));
    let line = complaint(&output);
    assert!(line.starts_with("clearstream: "), "{line}");
    assert!(line.contains("'pth'") && line.contains("'path'"), "{line}");

    let output = run(&["path", "--jsn", "geneva"]);
    assert_eq!(output.status.code(), Some(2));
    let line = complaint(&output);
    assert!(line.contains("--jsn") && line.contains("--json"), "{line}");

    let output = run(&["path"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("HOST"), "{output:?}");
}

#[test]
fn a_usage_error_says_what_to_write_instead() {
    let dashes = "write -- before the program and its options";
    for (arguments, expected) in [
        (&["mpi", "mpirun", "-n", "2", "./job"][..], dashes),
        (&["mpi", "-n", "2", "./job"], "-- <LAUNCHER>... or clearstream mpi <COMMAND>"),
        (&["netmap", "pkt-gen"], dashes),
        (&["run", "--place", "p.toml", "ls"], dashes),
        (&["serve", "-p", "abc"], "'abc' for '--port <PORT>': it is not a whole number"),
        (&["help", "schema", "x"], "write: clearstream help schema"),
        (&["gateway", "plan", "/nonexistent.toml"], "/nonexistent.toml: No such file"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let line = complaint(&output);
        assert!(line.contains(expected), "{arguments:?}: {line}");
    }
    // A mistyped option of our own is no program.
    let output = run(&["mpi", "--interfase", "eth0"]);
    assert!(!complaint(&output).contains(dashes), "{output:?}");
    // `undo` is the word that `apply` prints.
    assert!(run(&["tune", "undo", "--help"]).status.success());
}

#[test]
fn help_lists_the_commands_as_json_and_takes_no_words_for_granted() {
    let output = run(&["help", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (kind, name) in [("commands", "path"), ("topics", "limits")] {
        let one = &kind[..kind.len() - 1];
        let entries = list[kind].as_array().expect("a list");
        let found = entries.iter().find(|entry| entry[one] == name).expect(name);
        assert!(found["about"].as_str().is_some_and(|about| about.len() > 10), "{found}");
    }
    let output = run(&["help", "--"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("Usage: clearstream"), "{output:?}");
    let output = run(&["help", "path", "--json"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(complaint(&output).ends_with("write: clearstream path --help"), "{output:?}");
}

#[test]
fn only_a_word_that_is_close_is_suggested() {
    for (arguments, suggested) in [
        (&["help", "undo"][..], None),
        (&["help", "exitcodes"], Some("'exit-codes'")),
        (&["completions"], None),
        (&["paht"], Some("'path'")),
        (&["reprod"], Some("'reproduce'")),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let line = complaint(&output);
        match suggested {
            Some(name) => assert!(line.contains(name), "{line}"),
            None => assert!(!line.contains("similar"), "{line}"),
        }
        assert!(!line.contains("'pkt'"), "{line}");
    }
}

#[test]
fn a_word_that_is_no_number_is_called_that_and_an_unknown_option_leads_to_the_known_ones() {
    for (arguments, expected) in [
        (
            &["pkt", "gen", "vale0:a", "--rate", "fast"][..],
            "'fast' is not a number; write for example",
        ),
        (&["test", "h", "-t", "abc"], "'abc' is not a number; write for example"),
        (&["io", "--zz"], "no option --zz; `clearstream io --help` lists the options"),
        (&["meta", "-q"], "no option -q; `clearstream meta --help` lists the options"),
        (&["test", "h", "--fail-above", "rtt_p99=5"], "'5' has no unit; write for example 5ms"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(complaint(&output).contains(expected), "{output:?}");
    }
}

#[test]
fn the_help_of_io_and_meta_names_only_their_own_options_and_figures() {
    let (io, meta) = (run(&["io", "--help"]), run(&["meta", "--help"]));
    let (io, meta) = (text(&io.stdout), text(&meta.stdout));
    assert!(io.contains("--uring DEPTH") && io.contains("read:throughput=1G"), "{io}");
    assert!(meta.contains("file-creation:throughput=5k") && !meta.contains("--uring"), "{meta}");
    assert!(!io.contains("no-failed-calls") && !io.contains("meta"), "{io}");
}

#[test]
fn version_is_the_packages() {
    let output = run(&["--version"]);
    assert_eq!(text(&output.stdout), format!("clearstream {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_starts_at_once() {
    let median = effort::median_time(11, || assert!(run(&["--help"]).status.success()));
    assert!(median < Duration::from_millis(20), "{median:?}");
}

/// A shell asks while a command line is typed.
#[test]
fn names_to_complete_are_there_at_once() {
    for words in [["check", "--example", ""], ["lab", "exec", ""], ["port", "del", ""]] {
        let complete = [&["complete", "--"][..], &words].concat();
        let median = effort::median_time(11, || assert!(run(&complete).status.success()));
        assert!(median < Duration::from_millis(50), "{words:?}: {median:?}");
    }
}

#[test]
fn manual_writes_a_page_for_every_verb_and_completions() {
    let folder = std::env::temp_dir().join(format!("clearstream-manual-{}", std::process::id()));
    let output = run(&["manual", "--out", folder.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for verb in VERBS.iter().filter(|verb| **verb != "manual") {
        let page = std::fs::read_to_string(folder.join(format!("clearstream-{verb}.1")));
        let page = page.unwrap_or_else(|error| panic!("{verb}: {error}"));
        assert!(page.contains(".SH SYNOPSIS"), "{verb}: {page}");
    }
    for file in ["clearstream.1", "clearstream.bash", "_clearstream", "clearstream.fish"] {
        assert!(folder.join(file).is_file(), "{file}");
    }
    std::fs::remove_dir_all(&folder).expect("our own folder");
}
