//! SPECIFICATION.md and the list of its tests: each promise has an id and something that shows it, each name in
//! the list is a test.
//!
//! `CLEARSTREAM_WRITE_PROMISES=1 cargo test -p rules promises` gives new rows their ids.

use std::collections::BTreeSet;
use std::path::Path;

use rules::promises::{self, PROMISES, TESTS};

#[test]
fn each_promise_has_an_id_and_its_tests_in_the_list() {
    let document = rules::text(PROMISES);
    let list = rules::text(TESTS);
    let (text, tests) = promises::tidied(&document, &promises::read_list(&list));
    let tests = promises::write_list(&tests);
    if std::env::var_os("CLEARSTREAM_WRITE_PROMISES").is_some() {
        std::fs::write(rules::root().join(PROMISES), &text).expect("the document can be written");
        std::fs::write(rules::root().join(TESTS), &tests).expect("the list can be written");
        return;
    }
    let hint = "CLEARSTREAM_WRITE_PROMISES=1 cargo test -p rules promises";
    assert!(text == document && tests == list, "{PROMISES} and {TESTS} differ: {hint}");
    let ids: Vec<&str> = promises::ids(&document).collect();
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "an id stands twice");
    assert!(ids.len() > 200, "{} promises", ids.len());
}

#[test]
fn each_promise_is_shown_by_something() {
    let document = rules::text(PROMISES);
    let rows = document.lines().filter(|line| line.starts_with("| S-"));
    let bare: Vec<&str> =
        rows.filter(|row| row.trim_end_matches(['|', ' ']).len() + 3 < row.len()).collect();
    assert!(bare.is_empty(), "nothing shows these: {bare:#?}");
}

#[test]
fn each_test_in_the_list_exists() {
    let there = |test: &String| {
        let (file, name) = test.split_once(".rs::").expect("FILE::TEST");
        let file = rules::root().join(Path::new(&format!("{file}.rs")));
        std::fs::read_to_string(file).is_ok_and(|source| source.contains(&format!("fn {name}(")))
    };
    let list = promises::read_list(&rules::text(TESTS));
    let missing: Vec<&String> = list.values().flatten().filter(|test| !there(test)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn new_rows_get_ids_and_give_their_names_to_the_list() {
    let document = "text\n\n| id | promise | figure | shown by |\n|---|---|---|---|\n\
        | S-007 | old | 1 s | `bench a`; tests: cli |\n\
        | + | new | | `bench b`, `crates/x/tests/y.rs::one`, `crates/x/src/z/tests.rs::two` |\n";
    let list = promises::read_list(
        "# head\nS-007 crates/c/tests/cli.rs::three\nS-003 crates/c/tests/cli.rs::gone\n",
    );
    let (text, tests) = promises::tidied(document, &list);
    assert_eq!(
        text,
        "text\n\n| id | promise | figure | shown by |\n|---|---|---|---|\n\
         | S-007 | old | 1 s | `bench a`; tests: cli |\n\
         | S-008 | new | | `bench b`; tests: y, z |\n"
    );
    let written = promises::write_list(&tests);
    assert_eq!(promises::read_list(&written), tests);
    let names: Vec<(&str, usize)> =
        tests.iter().map(|(id, tests)| (id.as_str(), tests.len())).collect();
    assert_eq!(names, [("S-007", 1), ("S-008", 2)]);
    assert_eq!(promises::tidied(&text, &tests), (text, tests), "and nothing changes again");
}
