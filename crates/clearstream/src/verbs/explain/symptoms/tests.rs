use super::*;
use std::path::PathBuf;

/// The text of `--symptoms` for one recording; `CLEARSTREAM_WRITE_SYMPTOMS=1` writes it anew.
const SNAPSHOT: &str = "crates/clearstream/tests/data/symptoms-rwnd-far.txt";

fn planted(name: &str) -> Results {
    let text = rules::text(&format!("testdata/planted/{name}.json"));
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    results::read_results(value["results"].to_string().as_bytes()).expect("a results document")
}

fn text_of(results: &Results) -> String {
    show(results, &explain::symptoms::symptoms(results))
}

/// Recordings of other programs, by name.
fn recorded() -> Vec<(PathBuf, Results)> {
    let folder = std::fs::read_dir(rules::root().join("testdata/recorded")).expect("the folder");
    let files = folder.map(|entry| entry.expect("a readable folder").path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending != "md"));
    files.map(|path| (path.clone(), crate::foreign::load(&path).expect("readable"))).collect()
}

#[test]
fn the_table_of_a_recording_is_as_it_was_reviewed() {
    let text = text_of(&planted("rwnd-far"));
    if std::env::var_os("CLEARSTREAM_WRITE_SYMPTOMS").is_some() {
        std::fs::write(rules::root().join(SNAPSHOT), &text).expect("the snapshot can be written");
    }
    assert!(
        rules::text(SNAPSHOT) == text,
        "{SNAPSHOT} differs; run this test with CLEARSTREAM_WRITE_SYMPTOMS=1 and review the difference:\n{text}"
    );
}

#[test]
fn no_line_of_a_table_is_wider_than_100_columns() {
    let own =
        ["rwnd-far", "crowd-far", "loss-high", "quota-near"].map(|name| text_of(&planted(name)));
    let others = recorded();
    assert!(others.len() >= 15, "{}", others.len());
    for text in own.into_iter().chain(others.iter().map(|(_, results)| text_of(results))) {
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
            assert!(!line.contains("NaN") && !line.contains("inf "), "{line}");
        }
    }
}

#[test]
fn files_of_other_programs_show_what_they_hold_and_name_the_rest_once() {
    for (path, results) in recorded() {
        let (text, name) = (text_of(&results), path.display());
        assert_eq!(text.matches("Not in this file: ").count(), 1, "{name}: {text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("far host: "), "{name}: {text}");
        assert!(!text.contains("absent"), "{name}: {text}");
        let symptoms = explain::symptoms::symptoms(&results);
        assert!(symptoms.all().any(|(_, one)| one.estimate.is_some()), "{name} shows nothing");
    }
}

#[test]
fn json_holds_each_symptom_once_known_or_absent() {
    let results = planted("rwnd-far");
    let symptoms = explain::symptoms::symptoms(&results);
    let told = serde_json::to_value(told(&results, &symptoms)).expect("JSON");
    assert_eq!(told["schema_version"], results.schema_version);
    let known = told["symptoms"].as_array().expect("a list");
    let absent = told["absent"].as_array().expect("a list").iter();
    let absent: usize = absent.map(|group| group["names"].as_array().expect("a list").len()).sum();
    assert_eq!(known.len() + absent, symptoms.all().count());
    assert!(known.iter().all(|one| one["median"].is_number() && one["source"].is_string()));
}

#[test]
fn figures_have_three_digits_in_the_unit_of_the_median() {
    for (value, text) in [
        (0.0, "0"),
        (0.000_123, "1.2e-4"),
        (0.0123, "0.0123"),
        (0.5, "0.500"),
        (9.874, "9.87"),
        (68.04, "68.0"),
        (1234.5, "1234"),
    ] {
        assert_eq!(digits(SymptomUnit::Ratio, value), text);
    }
    assert_eq!(digits(SymptomUnit::Count, 4.0), "4");
    for (unit, median, name) in [
        (SymptomUnit::S, 0.0203, "ms"),
        (SymptomUnit::S, 0.0, "s"),
        (SymptomUnit::Bytes, 262_144.0, "KiB"),
        (SymptomUnit::BitsPerS, 9.87e9, "Gbit/s"),
        (SymptomUnit::Share, 0.5, "%"),
    ] {
        assert_eq!(scale(unit, median).1, name);
    }
}

#[test]
fn symptoms_are_printed_instead_of_a_verdict_and_not_beside_one() {
    use clap::CommandFactory;
    for other in [&["--all"][..], &["--after", "later.json"]] {
        let words = ["clearstream", "explain", "results.json", "--symptoms"];
        let words = words.into_iter().chain(other.iter().copied());
        let refused = crate::CommandLine::command().try_get_matches_from(words);
        let kind = refused.expect_err("refused").kind();
        assert_eq!(kind, clap::error::ErrorKind::ArgumentConflict, "{other:?}");
    }
}
