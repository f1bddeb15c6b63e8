//! The ranking of the limits that may bind, and why the second is not the first.

use results::{Evidence, Verdict};

use crate::symptoms::recordings;

/// Limits that may bind, behind the one that the verdict names.
fn behind(verdict: &Verdict) -> Vec<&Evidence> {
    let is_ranked = |line: &&Evidence| {
        ["second: ", "less likely: "].iter().any(|rank| line.text.starts_with(rank))
    };
    verdict.ruled_out.iter().filter(is_ranked).collect()
}

#[test]
fn each_limit_behind_the_first_says_what_speaks_against_it() {
    let mut ranked_count = 0;
    for (name, results) in recordings() {
        let verdict = explain::explain(&results);
        let behind = behind(&verdict);
        ranked_count += behind.len();
        for (place, line) in behind.iter().enumerate() {
            assert_eq!(line.text.starts_with("second: "), place == 0, "{name}: {line:?}");
            let why = line.text.split_once("; against it: ").map(|(_, doubt)| doubt);
            let is_told = why.is_some_and(|doubt| !doubt.is_empty());
            let is_close = ["speak more directly for", "do not tell it from"]
                .iter()
                .any(|words| line.text.contains(words));
            assert!(is_told || is_close, "{name}: {line:?}");
        }
        let weights: Vec<f64> = behind.iter().map(|line| line.weight).collect();
        assert!(weights.is_sorted_by(|a, b| a >= b), "{name}: {weights:?}");
    }
    assert!(ranked_count >= 3, "only {ranked_count} limits stand behind another");
}
