//! `clearstream check` by many ranks against the same by one.

#[path = "support/philosophers.rs"]
mod philosophers;

use philosophers::{ModelFile, assert_run, counts, philosophers};
use serde_json::Value;

#[test]
fn many_ranks_count_what_one_counts() {
    let model = ModelFile::new("counts", &philosophers(6, false));
    let (code, alone) = model.check(&["--full"]);
    assert_eq!((code, &alone["checks"][0]["verdict"]), (Some(0), &Value::from("holds")));
    assert!(alone["checks"][0]["states_count"].as_u64().is_some_and(|count| count > 50_000));
    for ranks in ["2", "3", "5"] {
        let (code, together) = model.check(&["--full", "--ranks", ranks]);
        assert_eq!(code, Some(0));
        assert_eq!(counts(&together), counts(&alone), "{ranks} ranks");
        assert!(together["checks"][0]["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 100_000));
    }
}

#[test]
fn many_ranks_show_a_shortest_run() {
    let model = ModelFile::new("deadlock", &philosophers(5, true));
    let (code, alone) = model.check(&[]);
    assert_eq!(code, Some(10));
    for ranks in ["2", "3"] {
        let (code, together) = model.check(&["--ranks", ranks]);
        assert_eq!(code, Some(10));
        assert_eq!(assert_run(&together), assert_run(&alone));
    }
}

#[test]
fn many_ranks_judge_formulas_as_one_does() {
    let model = ModelFile::new("formulas", &philosophers(3, false));
    for (formula, wanted) in [
        ("G !({P0.eats} && {P1.eats})", 0),
        ("F {P0.eats}", 10),
        ("G F {P0.eats}", 10),
        ("G ({P0.eats} -> F {P0.thinks})", 0),
        ("G ({P0.has} -> F {P0.eats})", 10),
        ("(G F {P0.thinks}) || (F G !{P0.thinks})", 0),
    ] {
        let (code, _) = model.check(&["--ltl", formula]);
        assert_eq!(code, Some(wanted), "{formula}, one rank");
        for ranks in ["2", "3"] {
            let (code, json) = model.check(&["--ltl", formula, "--ranks", ranks]);
            assert_eq!(code, Some(wanted), "{formula}, {ranks} ranks: {json}");
            if wanted == 10 {
                let length = assert_run(&json) as u64;
                let turn = json["checks"][0]["cycle_begins_at"].as_u64().expect("a cycle");
                assert!(turn + 1 < length);
            }
        }
    }
}

#[test]
fn many_ranks_that_cannot_decide_say_why() {
    let model = ModelFile::new("large", &philosophers(12, false));
    let (code, json) = model.check(&["--ranks", "2", "--time", "200ms"]);
    assert_eq!((code, &json["checks"][0]["verdict"]), (Some(11), &Value::from("undecided")));
    let (code, json) = model.check(&["--ranks", "2", "--memory", "2M"]);
    assert_eq!(code, Some(11));
    assert!(json["checks"][0]["why"].as_str().is_some_and(|why| why.contains("--memory")));
}
