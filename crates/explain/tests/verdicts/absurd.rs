//! Documents that nobody should write.

use explain::{Judgement, diagnose, judge};
use proptest::prelude::*;
use results::{Point, Results, TestSpec};
use serde_json::Value;

use crate::model::Model;

/// Replaces or removes figures anywhere in a document, `picks` deciding which and how. What the
/// schema no longer admits is put back.
pub(crate) fn disturb(results: &Results, picks: &[(u32, u8)]) -> Results {
    let mut document = serde_json::to_value(results).expect("a document has a JSON form");
    for (pick, kind) in picks {
        let before = document.clone();
        let mut remaining = *pick;
        change_nth(&mut document, &mut remaining, *kind);
        if serde_json::from_value::<Results>(document.clone()).is_err() {
            document = before;
        }
    }
    serde_json::from_value(document).expect("checked after every change")
}

/// Changes the `remaining`th number, or the object member that holds it.
fn change_nth(value: &mut Value, remaining: &mut u32, kind: u8) -> bool {
    match value {
        Value::Number(number) => {
            if *remaining > 0 {
                *remaining -= 1;
                return false;
            }
            let whole = number.is_u64();
            *value = match (kind % 4, whole) {
                (0, true) => u64::MAX.into(),
                (0, false) => 1e308.into(),
                (1, true) => 0_u64.into(),
                (1, false) => (-1e308).into(),
                (2, true) => 1_u64.into(),
                (2, false) => 5e-324.into(),
                _ => Value::Null,
            };
            true
        }
        Value::Array(items) => items.iter_mut().any(|item| change_nth(item, remaining, kind)),
        Value::Object(members) => {
            members.values_mut().any(|member| change_nth(member, remaining, kind))
        }
        _ => false,
    }
}

fn numbers_are_numbers(verdict: &results::Verdict) -> Result<(), TestCaseError> {
    let weights = verdict.evidence.iter().chain(&verdict.ruled_out).map(|line| line.weight);
    for weight in weights {
        prop_assert!((0.0..=1.0).contains(&weight), "{verdict:#?}");
    }
    let figures = verdict
        .confirmation
        .iter()
        .flat_map(|c| [c.predicted_bits_per_s, c.before_bits_per_s, c.after_bits_per_s]);
    for figure in figures.chain(verdict.next.iter().map(|next| next.bits_per_s)) {
        prop_assert!(figure.is_finite(), "{verdict:#?}");
    }
    let texts = verdict.evidence.iter().chain(&verdict.ruled_out).map(|line| &line.text);
    for text in texts.chain([&verdict.summary]).chain(&verdict.advice) {
        prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
    Ok(())
}

/// The rate after the first `words` in a text, bit/s.
fn rate_after(text: &str, words: &str) -> Option<f64> {
    let mut rest = text.split_once(words)?.1.split_whitespace();
    let (number, unit) = (rest.next()?, rest.next()?);
    let scale =
        [("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)]
            .into_iter()
            .find(|(name, _)| unit.starts_with(name))?
            .1;
    Some(number.parse::<f64>().ok()? * scale)
}

/// No limit allows less than was carried: neither the next one nor a candidate nor a line that rules one out.
fn ceilings_are_no_lower_than_measured(results: &Results) -> Result<(), TestCaseError> {
    let diagnosis = diagnose(results);
    let Some(measured) = diagnosis.measured.map(|measured| measured.median) else { return Ok(()) };
    for candidate in &diagnosis.candidates {
        let next = candidate.next.as_ref().map(|next| next.bits_per_s);
        let ceilings = [candidate.ceiling_bits_per_s, next];
        let is_low = |rate: &f64| *rate < measured * 0.949;
        prop_assert!(!ceilings.iter().flatten().any(is_low), "{measured}: {candidate:#?}");
    }
    for line in diagnosis.ruled_out.iter() {
        if let Some(allowed) = rate_after(&line.text, "would allow ") {
            // Three digits are printed.
            prop_assert!(allowed > measured * 0.94, "measured {measured}: {line:?}");
        }
    }
    for limit in results::Limit::ALL {
        let next = explain::next_ceiling(results, limit);
        prop_assert!(next.as_ref().is_none_or(|next| next.bits_per_s >= measured), "{next:?}");
    }
    Ok(())
}

#[test]
fn losses_that_would_allow_less_than_was_carried_are_no_ceiling() {
    // One loss of a hundred, over 17 ms: the law lets CUBIC carry a few Mbit/s.
    let model = Model { window_max_bytes: 4e6, ..Model::default() };
    let mut results = model.results(&TestSpec::tcp());
    for point in &mut results.points {
        let results::PointOutcome::Measured(outcome) = &mut point.outcome else { continue };
        outcome.directions.iter_mut().for_each(|way| way.retransmits_count = Some(20_000));
        for stream in &mut outcome.near_mut().streams {
            let samples = stream.intervals.iter_mut().filter_map(|sample| sample.tcp.as_mut());
            // Losses all the time, in no burst.
            for (tcp, at) in samples.zip(1..) {
                tcp.retransmits_count = at * 1000;
            }
            if let Some(tcp) = &mut stream.tcp {
                tcp.last.retransmits_count += 20_000;
            }
        }
    }
    ceilings_are_no_lower_than_measured(&results).expect("no lower ceiling");
    let ruled_out = diagnose(&results).ruled_out;
    let loss = ruled_out.iter().find(|line| line.limit == results::Limit::Loss).expect("weighed");
    assert!(loss.text.contains("hold a long transfer to"), "{loss:?}");
}

fn models() -> Vec<(Model, TestSpec)> {
    let tcp = TestSpec::tcp();
    vec![
        (Model { window_max_bytes: 4e6, ..Model::default() }, tcp.clone()),
        (
            Model {
                capacity_bits_per_s: 1e9,
                near_speed_bits_per_s: Some(1e10),
                ..Model::default()
            },
            tcp.clone(),
        ),
        (Model { loss_share: 1e-3, far_told: false, ..Model::default() }, tcp.clone()),
        (
            Model { receiver_core_share: 0.5, ..Model::default() },
            TestSpec { far_cores: vec![0], ..tcp.clone() },
        ),
        (
            Model::default(),
            TestSpec { offered_bits_per_s: Some(1e9), read_bits_per_s: Some(2e9), ..tcp },
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_figures_give_a_sane_verdict(
        which in 0_usize..5,
        picks in prop::collection::vec((0_u32..3000, any::<u8>()), 0..12),
        answers in prop::collection::vec((0_u32..400, any::<u8>()), 0..4),
    ) {
        let (model, spec) = &models()[which];
        let mut results = disturb(&model.results(spec), &picks);
        let mut diagnosis = diagnose(&results);
        for _ in 0..12 {
            let Some((experiment, _)) = diagnosis.experiment() else { break };
            prop_assert!(experiment.predicted.expected_bits_per_s.is_finite());
            let name = experiment.point_name();
            // The model answers the undisturbed test; the answer is disturbed as well.
            let answered = Results { points: vec![model.point(&name, spec, 0)], ..results.clone() };
            let points: Vec<Point> = disturb(&answered, &answers).points;
            let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
            numbers_are_numbers(&verdict)?;
            results.points.extend(points);
            match next {
                Some(next) => diagnosis = next,
                None => break,
            }
        }
        ceilings_are_no_lower_than_measured(&results)?;
        numbers_are_numbers(&diagnosis.verdict())?;
        numbers_are_numbers(&explain::explain(&results))?;
    }
}

#[test]
fn an_interface_without_speed_is_no_ceiling() {
    for speed in [5e-324, 1e-3, 1e308] {
        let model = Model {
            capacity_bits_per_s: 1e9,
            near_speed_bits_per_s: Some(speed),
            ..Model::default()
        };
        let verdict = explain::explain(&model.results(&TestSpec::tcp()));
        numbers_are_numbers(&verdict).expect("only figures");
    }
}

#[test]
fn figures_that_json_cannot_hold_count_as_absent() {
    let model = Model { window_max_bytes: 4e6, ..Model::default() };
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let mut results = model.results(&TestSpec::tcp());
        for point in &mut results.points {
            let results::PointOutcome::Measured(outcome) = &mut point.outcome else { continue };
            outcome.duration_s = bad;
            for stream in &mut outcome.near_mut().streams {
                stream.duration_s = bad;
                stream.thread_user_s = Some(bad);
                for interval in &mut stream.intervals {
                    interval.end_s = bad;
                    if let Some(tcp) = &mut interval.tcp {
                        (tcp.rtt_s, tcp.rtt_min_s, tcp.busy_s) = (bad, Some(bad), Some(bad));
                    }
                }
            }
        }
        let verdict = diagnose(&results).verdict();
        assert!(
            verdict.evidence.iter().all(|line| (0.0..=1.0).contains(&line.weight)),
            "{verdict:#?}"
        );
    }
}

#[test]
fn an_empty_document_says_so() {
    let mut results = Model::default().results(&TestSpec::tcp());
    results.points.clear();
    let verdict = explain::explain(&results);
    assert_eq!(verdict.limit, results::Limit::NoneFound);
    assert!(verdict.summary.contains("no TCP transfer"), "{}", verdict.summary);
}
