//! Judges a limit by the outcome of its experiment.

mod trial;

use results::{Point, Results, TestSpec, Verdict};

use crate::diagnosis::{Diagnosis, Undecided, diagnose_fitted};
use crate::observed::repeats_of;
use crate::recording;
use crate::thresholds::Fit;
use crate::verdict;
use trial::{Outcome, Trial};

/// The result of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The verdict so far.
    pub verdict: Verdict,
    /// The diagnosis to continue with; present if the limit is not confirmed and something is left to try.
    pub next: Option<Diagnosis>,
}

/// Judges the points of the experiment that `diagnosis` requested ([`Diagnosis::experiment`]).
///
/// An experiment that decides nothing (it failed, or the kernel did not make the change) is followed
/// by the candidate's next one; if it refutes its candidate, the next candidate is tried.
#[must_use]
pub fn judge(results: &Results, diagnosis: &Diagnosis, points: &[Point]) -> Judgement {
    let mut next = diagnosis.clone();
    let trial = diagnosis.experiment().zip(diagnosis.measured).zip(diagnosis.best());
    let Some((((experiment, spec), before), candidate)) = trial else {
        return Judgement { verdict: diagnosis.verdict(), next: None };
    };
    let judged = judged_points(results, diagnosis);
    let trial = Trial { experiment, before, points, judged };
    let ruling = trial.ruling();
    if trial.is_fruitless() {
        next.fruitless.push(experiment.change.clone());
    }
    // Ceilings are those of as many TCP streams as were judged.
    let is_alike =
        |judged: &TestSpec| (spec.protocol, spec.streams) == (judged.protocol, judged.streams);
    let reached = ruling.after_bits_per_s.filter(|_| diagnosis.spec.as_ref().is_some_and(is_alike));
    let candidate = &candidate.having_reached(results, diagnosis.fit, reached.unwrap_or(0.0));
    if let Some(tried) = next.candidates.first_mut() {
        tried.clone_from(candidate);
    }
    let confirmation = ruling.confirmation(experiment, &before);
    match (ruling.outcome, confirmation) {
        (Outcome::Confirmed, Some(confirmation)) => {
            let candidate =
                &candidate.knowing(results, diagnosis.fit, confirmation.after_bits_per_s);
            let verdict = verdict::confirmed(diagnosis, candidate, confirmation);
            return Judgement { verdict, next: None };
        }
        (Outcome::Refuted, _) => {
            let text = format!("refuted by experiment: {}: {}", experiment.change, ruling.text);
            next.refute(text, results);
        }
        (_, confirmation) => {
            next.experiments_run += 1;
            next.remarks.push(format!("{}: {}", experiment.change, ruling.text));
            if next.experiments_run >= candidate.experiments.len() {
                let tried = next.move_on();
                let why = ruling.text;
                next.undecided.extend(tried.map(|candidate| Undecided {
                    candidate,
                    confirmation,
                    why,
                }));
            }
        }
    }
    let verdict = next.verdict();
    let next = next.experiment().is_some().then_some(next);
    Judgement { verdict, next }
}

/// The verdict of a stored document, from its `confirm:…` points in the order in which they ran. File-system load
/// that was measured together with gateways is judged by their counters instead.
#[must_use]
pub fn explain(results: &Results) -> Verdict {
    explain_fitted(results, &Fit::default())
}

/// The same by these thresholds, which other recorded cases set: what that changes shows how much a verdict rests on
/// the cases that its thresholds come from.
#[must_use]
pub fn explain_fitted(results: &Results, fit: &Fit) -> Verdict {
    let judged = || recording::qualified(results, judged(results, *fit));
    recording::withheld(results).unwrap_or_else(judged)
}

fn judged(results: &Results, fit: Fit) -> Verdict {
    let mut diagnosis = diagnose_fitted(results, fit);
    if diagnosis.measured.is_none()
        && let Some(verdict) = crate::files::explain(results)
            .or_else(|| crate::datagrams::explain(results))
            .or_else(|| crate::files::unwatched(results))
            .or_else(|| crate::round_trips::explain(results))
    {
        return verdict;
    }
    loop {
        let Some((experiment, _)) = diagnosis.experiment() else { return diagnosis.verdict() };
        let points = nth_trial(results, &experiment.point_name(), diagnosis.experiments_run);
        if points.is_empty() {
            return diagnosis.verdict();
        }
        match judge(results, &diagnosis, &points) {
            Judgement { next: Some(next), .. } => diagnosis = next,
            Judgement { verdict, next: None } => return verdict,
        }
    }
}

/// The points of the `index`th distinct test that ran under the experiment name `name`.
fn nth_trial(results: &Results, name: &str, index: usize) -> Vec<Point> {
    let named = || results.points.iter().filter(|point| point.experiment == name);
    let mut specs: Vec<&TestSpec> = Vec::new();
    for spec in named().filter_map(Point::spec) {
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    let Some(spec) = specs.get(index) else { return Vec::new() };
    named().filter(|point| point.spec() == Some(*spec)).cloned().collect()
}

/// The judged test's repeats that gave a measurement.
fn judged_points<'a>(results: &'a Results, diagnosis: &Diagnosis) -> Vec<&'a Point> {
    let judged = results.points.iter().filter(|point| {
        diagnosis.spec.is_some()
            && point.spec() == diagnosis.spec.as_ref()
            && !point.is_confirmation()
    });
    let judged: Vec<&Point> = judged.collect();
    repeats_of(&judged).into_iter().map(|(point, _)| point).collect()
}
