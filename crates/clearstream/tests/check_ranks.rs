//! `clearstream check` by many ranks against the same by one.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearstream");

/// Philosophers with forks to their left and right; `greedy`: all take the left one first, and may
/// wait for each other for ever.
fn philosophers(count: usize, greedy: bool) -> String {
    let mut text = format!("byte fork[{count}];\n");
    for me in 0..count {
        let (mut first, mut second) = (me, (me + 1) % count);
        if !greedy && first > second {
            std::mem::swap(&mut first, &mut second);
        }
        text += &format!(
            "process P{me} {{ byte eaten; state thinks, has, eats; init thinks; trans\n \
             thinks -> has {{ guard fork[{first}] == 0; effect fork[{first}] = 1; }},\n \
             has -> eats {{ guard fork[{second}] == 0; effect fork[{second}] = 1, eaten = (eaten + 1) % 3; }},\n \
             eats -> thinks {{ effect fork[{first}] = 0, fork[{second}] = 0; }}; }}\n"
        );
    }
    text + "system async;\n"
}

/// A file that is gone when dropped.
struct ModelFile(PathBuf);

impl ModelFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ranks-{name}-{}.dve", std::process::id()));
        std::fs::write(&path, text).expect("a file in the temporary folder");
        Self(path)
    }

    fn check(&self, options: &[&str]) -> (Option<i32>, Value) {
        let mut run = Command::new(PROGRAM);
        run.args(["check", "--json"]).arg(&self.0).args(options);
        let done = run.output().expect("the program runs");
        let json = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&done.stderr)));
        (done.status.code(), json)
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// What must be the same however many ranks search.
fn counts(json: &Value) -> Vec<Value> {
    let check = &json["checks"][0];
    ["verdict", "states_count", "transitions_count", "deadlocks_count", "depth", "never_taken"]
        .map(|name| check[name].clone())
        .to_vec()
}

/// Each state of a run follows from the one before by a step of the model.
fn assert_run(json: &Value) -> usize {
    let run = json["checks"][0]["run"].as_array().expect("a run");
    assert!(run[0]["step"].is_null(), "{run:?}");
    assert!(run[1..].iter().all(|line| line["step"].is_string()), "{run:?}");
    run.len()
}

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
