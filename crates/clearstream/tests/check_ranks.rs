//! `clearstream check` by many ranks against the same by one.

use std::fs;

use crate::philosophers::{Folder, ModelFile, assert_run, counts, philosophers};
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
        assert_eq!(together["checks"][0]["sent_bytes"], 0);
        let (code, apart) = model.check(&["--full", "--messages", "--ranks", ranks]);
        assert_eq!(code, Some(0));
        assert_eq!(counts(&apart), counts(&alone), "{ranks} ranks with messages");
        assert!(apart["checks"][0]["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 100_000));
    }
}

#[test]
fn many_ranks_show_a_shortest_run() {
    let model = ModelFile::new("deadlock", &philosophers(5, true));
    let (code, alone) = model.check(&[]);
    assert_eq!(code, Some(10));
    for options in [&["--ranks", "2"][..], &["--ranks", "3"], &["--ranks", "2", "--messages"]] {
        let (code, together) = model.check(options);
        assert_eq!(code, Some(10));
        assert_eq!(assert_run(&together), assert_run(&alone), "{options:?}");
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
fn many_ranks_leave_no_process_out_where_one_does_not() {
    // A fork that a neighbour takes again and again is free again and again, but never for good: whoever
    // waits for it gets it under strong fairness alone.
    let model = ModelFile::new("fair", &philosophers(3, false));
    for (formula, fairness, wanted) in [
        ("F {P0.has}", None, 10),
        ("F {P2.has}", Some("weak"), 10),
        ("F {P2.has}", Some("strong"), 0),
        ("G F ({P0.eats} || {P1.eats} || {P2.eats})", Some("weak"), 0),
        ("G F {P1.eats}", Some("weak"), 10),
        ("G F {P1.eats}", Some("strong"), 0),
        ("G {P0.thinks}", Some("strong"), 10),
    ] {
        let kind: Vec<&str> = fairness.iter().flat_map(|&kind| ["--fairness", kind]).collect();
        let options = [&["--ltl", formula][..], &kind].concat();
        let (code, alone) = model.check(&options);
        assert_eq!(code, Some(wanted), "{options:?}, one rank");
        for ranks in ["2", "3"] {
            let (code, json) = model.check(&[&options[..], &["--ranks", ranks]].concat());
            assert_eq!(code, Some(wanted), "{options:?}, {ranks} ranks: {json}");
            assert_eq!(json["checks"][0]["checked"], alone["checks"][0]["checked"]);
            if wanted == 10 {
                let length = assert_run(&json) as u64;
                let turn = json["checks"][0]["cycle_begins_at"].as_u64();
                // Nothing that follows makes up for one state without the proposition.
                let is_finite = formula == "G {P0.thinks}";
                assert_eq!(turn.is_none(), is_finite, "{formula}: {json}");
                assert!(turn.is_none_or(|turn| turn + 1 < length));
            }
        }
    }
}

#[test]
fn many_ranks_that_cannot_decide_say_why() {
    let model = ModelFile::new("large", &philosophers(12, false));
    for messages in [&[][..], &["--messages"]] {
        let check = |bound: &[&str]| model.check(&[&["--ranks", "2"], bound, messages].concat());
        let (code, json) = check(&["--time", "200ms"]);
        assert_eq!((code, &json["checks"][0]["verdict"]), (Some(11), &Value::from("undecided")));
        let (code, json) = check(&["--memory", "2M"]);
        assert_eq!(code, Some(11));
        assert!(json["checks"][0]["why"].as_str().is_some_and(|why| why.contains("--memory")));
    }
}

#[test]
fn many_ranks_that_keep_less_find_errors_and_never_say_that_it_holds() {
    let right = ModelFile::new("less-right", &philosophers(5, false));
    let (_, alone) = right.check(&["--full"]);
    let found = |json: &Value| {
        ["states_count", "transitions_count"].map(|name| json["checks"][0][name].as_u64().unwrap())
    };
    let wrong = ModelFile::new("less-wrong", &philosophers(5, true));
    for ranks in ["2", "3"] {
        for (kept, is_whole) in [
            (&["--hash-compaction"][..], true),
            (&["--bitstate", "4M"], true),
            (&["--bitstate", "2K"], false),
        ] {
            let options = [kept, &["--ranks", ranks]].concat();
            let (code, json) = right.check(&options);
            assert_eq!(code, Some(11), "{json}");
            let why = json["checks"][0]["why"].as_str().expect("a reason");
            assert!(why.contains("may miss errors") && why.contains(kept[0]), "{why}");
            let (here, there) = (found(&json), found(&alone));
            assert!(here[0] <= there[0] && here[1] <= there[1]);
            assert_eq!(here == there, is_whole, "{options:?}: {here:?} of {there:?}");
            if is_whole {
                let (code, json) = wrong.check(&options);
                assert_eq!(code, Some(10), "{json}");
                assert!(assert_run(&json) >= 6, "each takes its left fork");
            }
        }
    }
    let large = ModelFile::new("less-large", &philosophers(12, false));
    let (code, json) = large.check(&["--ranks", "2", "--hash-compaction", "--memory", "2M"]);
    assert_eq!(code, Some(11));
    let why = json["checks"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("--memory") && why.contains("may have missed"), "{why}");
}

/// A search put down as soon as it has begun.
const SHORT: [&str; 2] = ["--time", "1ms"];

#[test]
fn many_ranks_put_down_and_taken_up_again_count_what_one_counts() {
    let model = ModelFile::new("kept", &philosophers(7, false));
    let folder = Folder::new("ranks-kept");
    let file = folder.0.join("kept").display().to_string();
    let (_, alone) = model.check(&["--full"]);
    for ranks in ["2", "3"] {
        let options = ["--full", "--ranks", ranks];
        let (code, json) = model.check(&[&options[..], &SHORT, &["--checkpoint", &file]].concat());
        assert_eq!(code, Some(11), "{json}");
        let (code, together) = model.check(&[&options[..], &["--resume", &file]].concat());
        assert_eq!(code, Some(0), "{together}");
        assert_eq!(counts(&together), counts(&alone), "{ranks} ranks");
    }
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let model = ModelFile::new("parts", &philosophers(7, false));
    let folder = Folder::new("ranks-parts");
    let file = folder.0.join("kept").display().to_string();
    let part = |name: &str| folder.0.join(format!("kept.{name}"));
    let keep = |options: &[&str]| {
        let usual = ["--ranks", "2", "--checkpoint", &file];
        model.told(&[&usual[..], &SHORT, options].concat())
    };
    let refused = |options: &[&str], why: &str| {
        let (code, _, err) = model.told(&[&["--resume", &file][..], options].concat());
        assert_eq!((code, err.lines().count()), (Some(2), 1), "{err}");
        assert!(err.contains(why), "{err}");
    };
    let (code, _, err) = keep(&[]);
    assert_eq!(code, Some(11), "{err}");
    assert!(err.contains("--ranks 2 --resume"), "{err}");
    // A checkpoint that cannot be written leaves the one before as it is.
    fs::create_dir(part("b1")).expect("a folder");
    let (code, _, err) = keep(&["--resume", &file]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("kept.b1") && !part("b0").exists(), "{err}");
    fs::remove_dir(part("b1")).expect("removed");
    // One that can takes its place; so does what it is made of.
    let old = fs::read(part("a1")).expect("a part");
    let (code, _, err) = keep(&["--resume", &file]);
    assert_eq!(code, Some(11), "{err}");
    assert!(part("b1").exists() && !part("a0").exists() && !part("a1").exists());
    refused(&["--ranks", "3"], "by 2 ranks");
    refused(&[], "by 2 ranks");
    refused(&["--ranks", "2", "--allow-deadlock"], "other options");
    let new = fs::read(part("b1")).expect("a part");
    for (bytes, why) in [(&old[..], "another model"), (&new[..new.len() / 2], "damaged")] {
        fs::write(part("b1"), bytes).expect("written");
        refused(&["--ranks", "2"], why);
    }
    fs::remove_file(part("b1")).expect("removed");
    refused(&["--ranks", "2"], "No such file");
    fs::write(part("b1"), new).expect("written");
    let (code, _, err) = model.told(&["--ranks", "2", "--resume", &file]);
    assert_eq!(code, Some(0), "{err}");
}
