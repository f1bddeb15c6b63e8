//! Two and three repeats of each test, as `--quick` takes them: what their spread can tell, and that it tells nothing
//! of equal sides.

use stats::Random;

use super::{Comparison, Outcome, Results, TestSpec, document_of, of, point, throughput};
use crate::JudgedBy;

/// A document of so many tests, whose throughput is `rate` times what `noise` gives for each repeat.
fn quick(tests: u32, repeats: u32, rate: f64, mut noise: impl FnMut() -> f64) -> Results {
    let mut points = Vec::new();
    for streams in 1..=tests {
        let spec = TestSpec { streams, ..TestSpec::tcp() };
        points.extend((0..repeats).map(|repeat| point("more", &spec, rate * noise(), repeat)));
    }
    document_of(points)
}

fn told(comparison: &Comparison) -> usize {
    let is_told = |figure: &&super::super::ComparedFigure| {
        !matches!(figure.outcome, Outcome::TooFew | Outcome::Indistinguishable)
    };
    comparison.figures.iter().filter(is_told).count()
}

#[test]
fn two_repeats_tell_what_no_spread_of_any_test_explains() {
    let mut random = Random::from_seed(3);
    let mut noise = || 1.0 + 0.03 * random.normal();
    let before = quick(5, 2, 1e9, &mut noise);
    let after = quick(5, 2, 3.39e9, &mut noise);
    let better = of(std::slice::from_ref(&before), std::slice::from_ref(&after));
    assert_eq!((throughput(&better), told(&better)), (Outcome::Better, 5), "{better:#?}");
    let figure = &better.figures[0];
    assert_eq!(figure.judged_by, Some(JudgedBy::Spread));
    assert!(figure.adjusted_chance.expect("judged") <= 0.05, "{figure:?}");
    assert_eq!(
        better.missed(0.0),
        ["none of the 10 figures with equal settings has enough repeats on both sides"],
        "what rose says nothing of what could have fallen unseen"
    );
    let worse = of(&[after], &[before]);
    assert_eq!(told(&worse), 5);
    assert_eq!(worse.missed(0.0).len(), 5, "{:?}", worse.missed(0.0));
}

#[test]
fn two_repeats_tell_nothing_where_fewer_than_three_tests_show_the_spread() {
    let mut random = Random::from_seed(4);
    let mut noise = || 1.0 + 0.03 * random.normal();
    let two = of(&[quick(2, 2, 1e9, &mut noise)], &[quick(2, 2, 9e9, &mut noise)]);
    assert_eq!((throughput(&two), told(&two)), (Outcome::TooFew, 0), "{two:#?}");
    assert!(two.figures.iter().all(|figure| figure.judged_by.is_none()), "{two:#?}");
    let one = of(&[quick(5, 1, 1e9, &mut noise)], &[quick(5, 1, 9e9, &mut noise)]);
    assert_eq!(told(&one), 0, "one value has no spread: {one:#?}");
}

#[test]
fn a_spread_that_is_small_by_chance_is_not_believed() {
    // The repeats of the first test happen to be equal; those of the others vary by a third.
    let rates = |first: f64| {
        let mut taken = 0;
        quick(5, 2, 1e9, || {
            taken += 1;
            if taken <= 2 { first } else { 1.0 + 0.3 * f64::from(taken % 2) }
        })
    };
    let comparison = of(&[rates(1.0)], &[rates(1.3)]);
    assert_eq!((throughput(&comparison), told(&comparison)), (Outcome::TooFew, 0));
}

/// Noise of many kinds: what it is called, and a factor around 1.
type Noise = (&'static str, fn(&mut Random) -> f64);

const NOISES: [Noise; 6] = [
    ("normal", |random| 1.0 + 0.03 * random.normal()),
    ("lognormal", |random| (0.5 * random.normal()).exp()),
    ("uniform", |random| 1.0 + 0.2 * random.unit()),
    ("two modes", |random| {
        let mode = if random.chance(0.5) { 1.0 } else { 0.5 };
        mode * (1.0 + 0.005 * random.normal())
    }),
    ("a rare dip", |random| {
        let mode = if random.chance(0.1) { 0.6 } else { 1.0 };
        mode * (1.0 + 0.005 * random.normal())
    }),
    ("Student, three degrees of freedom", |random| {
        let squares: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
        (0.05 * random.normal() / (squares / 3.0).sqrt()).exp()
    }),
];

#[test]
fn few_repeats_of_equal_sides_tell_false_differences_as_rarely_as_stated() {
    let mut random = Random::from_seed(17);
    let trials = 100;
    for (name, noise) in NOISES {
        for (tests, repeats) in [(3, 2), (3, 3), (6, 2)] {
            let mut false_ones = 0;
            for _ in 0..trials {
                let mut side = || quick(tests, repeats, 1e9, || noise(&mut random));
                false_ones += u32::from(told(&of(&[side()], &[side()])) > 0);
            }
            // 5% of 100 are 5, with a deviation of 2.2.
            assert!(false_ones <= 12, "{name}, {tests} tests: {false_ones} of {trials}");
        }
    }
}

/// Three repeats of most tests and six of one, as `path` takes them: both judgements share the permitted 5%.
#[test]
fn ranks_and_spreads_together_tell_false_differences_as_rarely_as_stated() {
    let mut random = Random::from_seed(23);
    let (trials, mut false_ones) = (300, 0);
    for _ in 0..trials {
        let mut side = || {
            let mut noise = || 1.0 + 0.03 * random.normal();
            let mut results = quick(4, 3, 1e9, &mut noise);
            let more = |repeat| point("single-stream", &TestSpec::tcp(), 1e9 * noise(), repeat);
            results.points.extend((0..6).map(more));
            results
        };
        let comparison = of(&[side()], &[side()]);
        let by = |test| comparison.figures.iter().any(|one| one.judged_by == Some(test));
        assert!(by(JudgedBy::Ranks) && by(JudgedBy::Spread), "{comparison:#?}");
        false_ones += u32::from(told(&comparison) > 0);
    }
    // 5% of 300 are 15, with a deviation of 3.8.
    assert!(false_ones <= 30, "{false_ones} of {trials}");
}
