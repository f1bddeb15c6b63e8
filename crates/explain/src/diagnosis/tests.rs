//! Which candidates an experiment must exclude before it confirms the first one.

use results::{Limit, Point, Results, Ruling, RunKind};

use super::*;
use crate::experiment::{Prediction, Rule};
use crate::judgement::judge;

const RATE: f64 = 1e9;

fn candidate(limit: Limit, weight: f64) -> Candidate {
    Candidate {
        limit,
        end: None,
        weight,
        doubt: None,
        evidence: Vec::new(),
        ceiling_bits_per_s: None,
        experiments: Vec::new(),
        advice: Vec::new(),
        host_change: None,
        changes: Vec::new(),
        next: None,
    }
}

fn diagnosis(candidates: &[(Limit, f64)], faint: &[(Limit, f64)]) -> Diagnosis {
    let of = |all: &[(Limit, f64)]| {
        all.iter().map(|(limit, weight)| candidate(*limit, *weight)).collect()
    };
    let empty = diagnose(&Results::begun(RunKind::Path, 0));
    Diagnosis {
        measured: Estimate::of(&[RATE; 3]),
        spec: Some(TestSpec::tcp()),
        candidates: of(candidates),
        faint: of(faint),
        ..empty
    }
}

fn rivals_of(diagnosis: &Diagnosis) -> Vec<Limit> {
    diagnosis.rivals().into_iter().map(|other| other.limit).collect()
}

/// A rate that stays the same when `change` is made.
fn stays(change: Change) -> Experiment {
    let predicted = Prediction::new(RATE * 0.9, RATE, RATE * 1.1);
    Experiment { limit: Limit::Shaper, change, predicted, rule: Rule::Stays }
}

/// More streams exclude a window and no core; smaller blocks exclude a core and no window.
fn more_streams_and_smaller_blocks() -> Vec<Experiment> {
    let more = Change::MoreStreams { from_count: 1, to_count: 8 };
    vec![stays(more), stays(Change::Block { to_bytes: 8192 })]
}

fn answers(diagnosis: &Diagnosis, rate: f64) -> Vec<Point> {
    let (experiment, spec) = diagnosis.experiment().expect("an experiment");
    let point = |repeat: u32| {
        let value = serde_json::json!({
            "experiment": experiment.point_name(), "repeat": repeat, "started_unix_ms": 0,
            "work": results::Work::from(spec.clone()),
            "outcome": { "measured": { "duration_s": 1.0,
                "hosts": [{ "host": "near", "account": { "streams": [], "cores": [], "counters": {},
                    "findings": [] } }],
                "directions": [{ "direction": "forward", "sent_bytes": 1, "received_bytes": 1,
                    "sent_bits_per_s": rate, "received_bits_per_s": rate }] } }
        });
        serde_json::from_value(value).expect("a point of the schema")
    };
    (0..3).map(point).collect()
}

#[test]
fn every_candidate_of_comparable_weight_is_a_rival() {
    let several = [
        (Limit::Shaper, 0.9),
        (Limit::SendBuffer, 0.7),
        (Limit::SenderCore, 0.5),
        (Limit::Loss, 0.4),
    ];
    let told = rivals_of(&diagnosis(&several, &[]));
    assert_eq!(told, [Limit::SendBuffer, Limit::SenderCore]);
}

#[test]
fn a_faint_candidate_has_faint_rivals() {
    let faint = [(Limit::SendBuffer, 0.18), (Limit::SenderCore, 0.16)];
    let one = diagnosis(&[(Limit::Shaper, 0.33)], &faint);
    assert_eq!(rivals_of(&one), [Limit::SendBuffer, Limit::SenderCore]);
    assert!(rivals_of(&diagnosis(&[(Limit::Shaper, 0.33)], &[])).is_empty());
}

#[test]
fn the_experiment_that_excludes_most_comes_first() {
    let candidates =
        [(Limit::Shaper, 0.9), (Limit::ReceiverCore, 0.7), (Limit::ReceiveWindow, 0.6)];
    let mut one = diagnosis(&candidates, &[]);
    let slower = stays(Change::PaceAt { bits_per_s: RATE });
    one.candidates[0].experiments = vec![slower];
    one.candidates[0].experiments.extend(more_streams_and_smaller_blocks());
    one.put_first_what_separates();
    let left: Vec<usize> = one.candidates[0]
        .experiments
        .iter()
        .map(|experiment| one.not_told_apart(experiment).len())
        .collect();
    assert_eq!(left, [1, 1, 2]);
}

/// Each experiment excludes one rival, and both came as predicted.
#[test]
fn what_two_experiments_exclude_together_is_excluded() {
    let candidates =
        [(Limit::Shaper, 0.9), (Limit::ReceiverCore, 0.7), (Limit::ReceiveWindow, 0.6)];
    let mut one = diagnosis(&candidates, &[]);
    one.candidates[0].experiments = more_streams_and_smaller_blocks();
    let results = Results::begun(RunKind::Path, 0);

    let first = judge(&results, &one, &answers(&one, RATE));
    assert!(!first.verdict.confirmed, "a core predicts the same");
    let next = first.next.expect("another experiment");
    assert_eq!(next.told_apart, [Limit::ReceiveWindow]);

    let second = judge(&results, &next, &answers(&next, RATE));
    assert!(second.verdict.confirmed, "{}", second.verdict.summary);
    let told = second.verdict.confirmation.expect("an experiment");
    assert_eq!(told.ruling, Some(Ruling::Confirmed));

    // The second one alone leaves the window.
    one.candidates[0].experiments.remove(0);
    let alone = judge(&results, &one, &answers(&one, RATE));
    assert!(!alone.verdict.confirmed, "a window predicts the same");
    let rival = alone.verdict.confirmation.and_then(|told| told.rival).expect("a rival");
    assert_eq!((rival.limit, rival.is_separate), (Limit::ReceiveWindow, false));
}

#[test]
fn what_no_experiment_excludes_is_named() {
    let mut one = diagnosis(&[(Limit::Shaper, 0.9), (Limit::ReceiveWindow, 0.6)], &[]);
    one.candidates[0].experiments = vec![stays(Change::Block { to_bytes: 8192 })];
    let summary = one.verdict().summary;
    assert!(
        summary.contains("no experiment distinguishes it from the receive window"),
        "{summary}"
    );
}
