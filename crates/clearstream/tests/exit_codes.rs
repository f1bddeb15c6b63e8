//! Commands that miss something: one line that says what can be given, and exit code 2.

use crate::PROGRAM;
use std::process::{Command, Output};

fn run(line: &str) -> Output {
    Command::new(PROGRAM).args(line.split_whitespace()).output().expect("the program starts")
}

/// The one line of a usage error.
fn refusal(line: &str) -> String {
    let output = run(line);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    assert_eq!(said.lines().count(), 1, "{line}: {said:?}");
    said
}

#[test]
fn a_missing_file_is_a_usage_error_for_every_verb() {
    for line in [
        "explain no-such.json",
        "explain no-such.json --after no-such-either.json",
        "report no-such.json",
        "check no-such.dve",
        "check --example philosophers --ltl no-such.ltl",
        "run --place no-such.toml -- true",
        "test 127.0.0.1 --place no-such.toml",
        "lab up no-such.toml",
        "gateway plan no-such.toml",
        "tune apply --from no-such.json",
        "tune apply --plan no-such.json",
        "tune profile show no-such.conf",
        "io -f no-such.ior",
    ] {
        let said = refusal(line);
        assert!(said.contains("no-such") || said.contains("no lab"), "{line}: {said}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_anything_is_measured() {
    // Nothing listens there: a verb that measured first would complain of that.
    for line in [
        "test 127.0.0.1 -p 1 -o no-such/a.json",
        "path 127.0.0.1 -p 1 -o no-such/a.json",
        "path 127.0.0.1 -p 1 --report no-such/a.html",
        "place 127.0.0.1 -p 1 --report no-such/a.html",
        "place 127.0.0.1 -p 1 --save no-such/a.toml",
        "tune plan 127.0.0.1 -p 1 -o no-such/a.json",
        "tune apply 127.0.0.1 -p 1 --measure --report no-such/a.html",
        "tune cc compare reno 127.0.0.1 -p 1 --report no-such/a.html",
        "reproduce C-fig6 127.0.0.1 -p 1 --report no-such/a.html",
        "check --example philosophers -o no-such/a.json",
        "check --example philosophers --svg no-such/a.svg",
        "io --output no-such/a.json -o no-such/data",
        "meta --ranks 2 --output no-such/a.json",
        "mpi --report no-such/a.json -- true",
    ] {
        let said = refusal(line);
        assert!(
            said.contains("no-such/a.") && said.contains("cannot be written"),
            "{line}: {said}"
        );
    }
    let said = refusal("path 127.0.0.1 -p 1 -o same.x --report ./same.x");
    assert!(said.contains("two outputs name this file"), "{said}");
    let said = refusal("test 127.0.0.1 -p 1 -o /tmp");
    assert!(said.contains("it is a directory"), "{said}");
}

#[test]
fn a_missing_argument_is_named_with_what_it_can_be() {
    for (line, words) in [
        ("path", &["HOST", "clearstream serve", "usage: clearstream path"][..]),
        ("test", &["HOST", "iperf3 -s", "usage: clearstream test"]),
        ("reproduce", &["C-fig6", "P-vale", "--list"]),
        ("lab exec dsl near ls", &["'ls'", "HOST -- PROGRAM"]),
        ("netmap pkt-gen", &["'pkt-gen'", "-- <PROGRAM>"]),
        ("test 127.0.0.1:5201", &["127.0.0.1 -p 5201"]),
        ("explain", &["RESULTS", "iperf3 -J"]),
    ] {
        let said = refusal(line);
        for word in words {
            assert!(said.contains(word), "{line}: no '{word}' in {said}");
        }
    }
}

#[test]
fn mistakes_are_answered_in_words_that_help() {
    for (line, words) in [
        ("test localhost -P 0", "0 is not in 1 to 1024"),
        ("check --example peterson --xyz 2", "unexpected argument '--xyz' found; usage: "),
        ("tune cc xyz", "unrecognized subcommand 'xyz'"),
        ("lab upp2 x", "unrecognized subcommand 'upp2'"),
        ("pkt throw vale0:a", "known: "),
        ("tune apply --set net.ipv4.tcp_rmen=1", "did you mean 'net.ipv4.tcp_rmem'?"),
        ("port add vale0:1 --type nosuch", "nosuch"),
        ("tune revert geneva", "a far host is given with --far geneva"),
        ("lab exec dsl near ls", "write -- before the program and its options"),
        ("topo --svg no-such/a.svg", "no-such/a.svg: cannot be written"),
    ] {
        let said = refusal(line);
        assert!(said.contains(words) && !said.contains("as a value"), "{line}: {said}");
    }
}

#[test]
fn help_is_a_command() {
    for (asked, same) in [
        ("help", "--help"),
        ("help path", "path --help"),
        ("help tune apply", "tune apply --help"),
        ("help io", "io --help"),
        ("help iperf3", "iperf3 --help"),
        ("help help", "help --help"),
    ] {
        let (asked, same) = (run(asked), run(same));
        assert_eq!(asked.status.code(), Some(0), "{asked:?}");
        assert!(asked.stdout.len() > 100 && asked.stdout == same.stdout, "{asked:?}");
    }
    assert!(refusal("help pth").contains("'path'"));
    assert!(refusal("help exit-code").contains("similar: 'exit-codes'"));
    assert!(refusal("help limit").contains("similar: 'limits'"));
}

#[test]
fn commands_that_the_help_does_not_show_are_not_suggested() {
    for line in ["tset", "testr", "tester2", "manul", "complet", "test --wordz", "help testr"] {
        let said = refusal(line);
        let suggested = said.split_once("similar").map_or("", |(_, suggested)| suggested);
        for hidden in ["'tester", "'manual", "'complete"] {
            assert!(!suggested.contains(hidden), "{line}: {said}");
        }
    }
    assert!(refusal("tset").contains("a similar subcommand exists: 'test'"));
}

#[test]
fn the_list_of_figures_explains_its_letters() {
    let output = run("reproduce --list");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for paper in ["C-  ClearStream 2011", "P-  ptnet 2016", "M-  Open-MX 2009", "G-  Cumulus 2018"]
    {
        assert!(text.contains(paper), "{text}");
    }
}
