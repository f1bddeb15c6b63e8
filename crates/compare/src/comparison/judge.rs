//! Whether a difference is more than noise: by ranks, or, where the values are too few for them, by their spread.

use std::collections::BTreeSet;

use results::{Estimate, Unit};
use stats::Spread;

use super::{ComparedFigure, Counted, FALSE_SHARE_MAX, JudgedBy, Outcome};
use crate::better::Better;
use crate::quantity::Quantity;

/// Share of the permitted false differences that is left to ranks where figures are judged by their spread as well.
pub(super) const RANKS_SHARE: f64 = 0.9;

/// Tests whose figures of one kind must vary for it to be known how much such figures do. The figures of one test move
/// together: alone, they could all have been taken between two jumps of the machine.
const NOISY_TESTS_MIN: usize = 3;

/// One figure of both sides: whole runs count where there are enough of them, repeats otherwise.
pub(super) fn figure(
    label: &str,
    name: &str,
    a: &[&[f64]],
    b: &[&[f64]],
) -> Option<ComparedFigure> {
    let has_runs = stats::least_chance(a.len(), b.len()) <= FALSE_SHARE_MAX;
    let counted = if has_runs { Counted::Runs } else { Counted::Repeats };
    let values = |runs: &[&[f64]]| -> Vec<f64> {
        match counted {
            Counted::Runs => runs.iter().filter_map(|run| stats::median(run)).collect(),
            Counted::Repeats => runs.concat(),
        }
    };
    let values = [values(a), values(b)];
    let [of_a, of_b] = &values;
    let shift = stats::rank_sum(of_a, of_b)?;
    let is_enough = stats::least_chance(of_a.len(), of_b.len()) <= FALSE_SHARE_MAX;
    let (a, b) = (Estimate::of(of_a)?, Estimate::of(of_b)?);
    // Whether any difference can be told depends on the ties too.
    let is_judged = shift.least_chance <= FALSE_SHARE_MAX;
    Some(ComparedFigure {
        setting: label.to_owned(),
        differing_settings: Vec::new(),
        figure: name.to_owned(),
        unit: Unit::of_name(name),
        better: Better::of(name),
        counted,
        a,
        b,
        difference: shift.difference,
        low: shift.low,
        high: shift.high,
        confidence: shift.confidence,
        relative: (a.median != 0.0).then(|| shift.difference / a.median.abs()),
        judged_by: is_judged.then_some(JudgedBy::Ranks),
        chance: shift.chance,
        adjusted_chance: None,
        outcome: if is_enough { Outcome::Indistinguishable } else { Outcome::TooFew },
        is_of_files: false,
        values,
    })
}

/// Judges the figures, and holds the share of false ones among the differences told over all of them.
pub(super) fn adjust(mut figures: Vec<&mut ComparedFigure>) {
    judge_by_spread(&mut figures);
    let judged: Vec<&mut ComparedFigure> =
        figures.into_iter().filter(|figure| figure.judged_by.is_some()).collect();
    let weighted = weighted_chances(&judged);
    let adjusted = stats::false_discovery_adjusted(&weighted);
    for (figure, chance) in judged.into_iter().zip(adjusted) {
        figure.adjusted_chance = Some(chance);
        // With many equal values the ranks may differ where the typical shift is none.
        if chance <= FALSE_SHARE_MAX && figure.difference != 0.0 {
            figure.outcome = match (figure.better, figure.difference > 0.0) {
                (Better::Unknown, _) => Outcome::Different,
                (Better::More, true) | (Better::Less, false) => Outcome::Better,
                (Better::More, false) | (Better::Less, true) => Outcome::Worse,
            };
        }
    }
}

/// The chances, with most of the permitted false differences left to ranks where both tests judge (weights as Genovese,
/// Roeder and Wasserman 2006 have them: their mean is 1, so that the share holds over all figures together).
fn weighted_chances(judged: &[&mut ComparedFigure]) -> Vec<f64> {
    let is_of = |test| move |figure: &&&mut ComparedFigure| figure.judged_by == Some(test);
    let count = |test| judged.iter().filter(is_of(test)).count();
    let (ranks, spreads) = (count(JudgedBy::Ranks), count(JudgedBy::Spread));
    let weight = |test| {
        let (share, of) = match test {
            _ if ranks == 0 || spreads == 0 => return 1.0,
            JudgedBy::Ranks => (RANKS_SHARE, ranks),
            JudgedBy::Spread => (1.0 - RANKS_SHARE, spreads),
        };
        share * judged.len() as f64 / of as f64
    };
    judged
        .iter()
        .map(|figure| (figure.chance / figure.judged_by.map_or(1.0, weight)).min(1.0))
        .collect()
}

/// Judges figures with too few values for ranks by Student's test of their logarithms, whose spread is taken as at least
/// that of all figures of the same kind. Where fewer than [`NOISY_TESTS_MIN`] tests show it, they stay unjudged.
fn judge_by_spread(figures: &mut [&mut ComparedFigure]) {
    let kinds: Vec<Quantity> =
        figures.iter().map(|figure| Quantity::of_figure(&figure.figure)).collect();
    let mut usual: Vec<(Quantity, Option<f64>)> = Vec::new();
    for place in 0..figures.len() {
        let few = (figures[place].outcome == Outcome::TooFew).then(|| logarithms(figures[place]));
        let Some([a, b]) = few.flatten() else { continue };
        let kind = kinds[place];
        let known = usual.iter().find(|(known, _)| *known == kind).map(|(_, variance)| *variance);
        let variance = known.unwrap_or_else(|| {
            let of_kind = figures.iter().zip(&kinds).filter(|(_, other)| **other == kind);
            let variance = usual_variance(of_kind.map(|(figure, _)| &**figure));
            usual.push((kind, variance));
            variance
        });
        let chance = variance.and_then(|variance| stats::student_chance(&a, &b, variance));
        if let Some(chance) = chance {
            figures[place].judged_by = Some(JudgedBy::Spread);
            figures[place].chance = chance;
        }
    }
}

/// The variance of the logarithms within a side, over all these figures; `None` where too few tests have them.
fn usual_variance<'f>(figures: impl Iterator<Item = &'f ComparedFigure>) -> Option<f64> {
    let mut tests = BTreeSet::new();
    let mut all = Spread::default();
    for figure in figures {
        if let Some([a, b]) = logarithms(figure) {
            tests.insert(&figure.setting);
            all = all.and(Spread::of(&a)).and(Spread::of(&b));
        }
    }
    if tests.len() < NOISY_TESTS_MIN { None } else { all.variance() }
}

/// The logarithms of both sides' values; `None` where a value is not above 0, or a side has fewer than two.
fn logarithms(figure: &ComparedFigure) -> Option<[Vec<f64>; 2]> {
    let is_fit = |values: &Vec<f64>| values.len() > 1 && values.iter().all(|value| *value > 0.0);
    let logarithms = |values: &Vec<f64>| values.iter().map(|value| value.ln()).collect();
    figure.values.iter().all(is_fit).then(|| figure.values.each_ref().map(logarithms))
}
