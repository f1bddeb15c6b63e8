//! Recorded results of planted limits, and modelled ones of machines we do not have, judged again:
//! the share of right verdicts is printed and at least 95%. `make bench BENCH='--only verdicts --record testdata/planted'` records them anew.

use testkit::planted::modelled;
use testkit::planted::recorded;

/// Least share of right verdicts.
const RIGHT_MIN: f64 = 0.95;

/// Fewer say little of a share.
const RECORDED_MIN: usize = 40;

#[test]
fn recorded_limits_are_named_rightly() {
    let modelled = modelled::modelled();
    let all: Vec<_> = recorded::recorded().iter().chain(&modelled).collect();
    let mut wrong = Vec::new();
    for (name, recorded) in &all {
        let (verdict, is_right) = recorded.judge();
        if !is_right {
            let told = format!("{name} ({}): {}", recorded.plants, verdict.summary);
            println!("misjudged: {told}");
            wrong.push(told);
        }
    }
    let right = all.len() - wrong.len();
    let share = right as f64 / all.len() as f64;
    println!(
        "{right} of {} recorded and modelled limits named rightly: {:.1}%",
        all.len(),
        share * 100.0
    );
    assert!(all.len() >= RECORDED_MIN, "only {} are recorded", all.len());
    assert!(share >= RIGHT_MIN, "misjudged: {wrong:#?}");
}

/// A path on which nothing was planted may be explained, never accused.
#[test]
fn recorded_paths_without_a_planted_limit_are_not_accused() {
    let all = recorded::recorded();
    let unplanted: Vec<_> = all.iter().filter(|(name, _)| name.starts_with("clean")).collect();
    assert!(unplanted.len() >= 3, "only {} are recorded", unplanted.len());
    for (name, recorded) in unplanted {
        let (verdict, is_right) = recorded.judge();
        assert!(is_right, "{name}: {verdict:#?}");
    }
}
