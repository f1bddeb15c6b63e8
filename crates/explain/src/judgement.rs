//! Judges a limit by the outcome of its experiment.

mod trial;

use results::{Confirmation, Point, Results, Rival, Ruling, TestSpec, Verdict};

use crate::diagnosis::{Diagnosis, diagnose_fitted};
use crate::experiment::{Experiment, point_name};
use crate::observed::repeats_of;
use crate::recording;
use crate::rivals;
use crate::thresholds::Fit;
use crate::verdict;
use trial::Trial;

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
    let experiment = &experiment.as_registered(points);
    let judged = judged_points(results, diagnosis);
    let trial = Trial { experiment, before, points, judged };
    let told = trial.ruling();
    next.companions.extend(trial.harm());
    if told.outcome == Ruling::Confirmed {
        next.companions.extend(trial.companions());
    }
    if told.outcome == Ruling::Confirmed && next.companions.iter().all(|companion| companion.holds)
    {
        let remain = diagnosis.not_told_apart(experiment);
        let excluded = diagnosis.rivals().into_iter().filter(|other| !remain.contains(other));
        next.told_apart.extend(excluded.map(|other| other.limit));
    }
    let rival = rival(diagnosis, experiment, before.median);
    let told = told.beside(rival.as_ref(), &next.companions, candidate.limit);
    if trial.is_fruitless() {
        next.fruitless.push(experiment.change.clone());
    }
    // Ceilings are those of as many TCP streams as were judged.
    let is_alike =
        |judged: &TestSpec| (spec.protocol, spec.streams) == (judged.protocol, judged.streams);
    let reached = told.after_bits_per_s.filter(|_| diagnosis.spec.as_ref().is_some_and(is_alike));
    let candidate = &candidate.having_reached(results, diagnosis.fit, reached.unwrap_or(0.0));
    if let Some(tried) = next.candidates.first_mut() {
        tried.clone_from(candidate);
    }
    let confirmation = told.confirmation(experiment, &before).map(|confirmation| Confirmation {
        rival,
        companions: next.companions.clone(),
        ..confirmation
    });
    match (told.outcome, confirmation) {
        (Ruling::Confirmed, Some(confirmation)) => {
            let after = confirmation.after_bits_per_s;
            let candidate = candidate.knowing(results, diagnosis.fit, after);
            let candidate = &candidate.stopped_short(&confirmation, &experiment.change);
            let verdict = verdict::confirmed(diagnosis, candidate, confirmation);
            return Judgement { verdict, next: None };
        }
        (Ruling::Refuted, _) => {
            let text = format!("refuted by experiment: {}: {}", experiment.change, told.text);
            next.refute(text, results);
        }
        (_, confirmation) => {
            next.experiments_run += 1;
            next.remarks.push(format!("{}: {}", experiment.change, told.text));
            if next.experiments_run >= candidate.experiments.len() {
                next.leave_undecided(confirmation, told.text);
            } else {
                next.put_first_what_separates();
            }
        }
    }
    let verdict = next.verdict();
    let next = next.experiment().is_some().then_some(next);
    Judgement { verdict, next }
}

/// The likeliest candidate that the experiment does not tell from the first, or else the second one, and what it
/// predicts.
fn rival(diagnosis: &Diagnosis, experiment: &Experiment, rate: f64) -> Option<Rival> {
    let not_told_apart = diagnosis.not_told_apart(experiment).into_iter().next();
    let is_separate = not_told_apart.is_none();
    let other = not_told_apart.or_else(|| diagnosis.rivals().into_iter().next())?;
    let predicted = rivals::predicted(&experiment.change, rate, other);
    Some(Rival {
        limit: other.limit,
        low_bits_per_s: predicted.map(|predicted| predicted.low_bits_per_s),
        high_bits_per_s: predicted.map(|predicted| predicted.high_bits_per_s),
        is_separate,
    })
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
            .or_else(|| crate::stuck::explain(results))
            .or_else(|| crate::datagrams::explain(results))
            .or_else(|| crate::files::unwatched(results))
            .or_else(|| crate::round_trips::explain(results))
    {
        return verdict;
    }
    loop {
        let Some(best) = diagnosis.best() else { return diagnosis.verdict() };
        let trials = trials(results, &point_name(best.limit));
        if let Some(spec) = trials.get(diagnosis.experiments_run) {
            diagnosis.run_next(spec);
        }
        let Some((experiment, _)) = diagnosis.experiment() else { return diagnosis.verdict() };
        let name = experiment.point_name();
        let Some(spec) = trials.get(diagnosis.experiments_run) else { return diagnosis.verdict() };
        let of_trial = |point: &&Point| point.experiment == name && point.spec() == Some(*spec);
        let points: Vec<Point> = results.points.iter().filter(of_trial).cloned().collect();
        match judge(results, &diagnosis, &points) {
            Judgement { next: Some(next), .. } => diagnosis = next,
            Judgement { verdict, next: None } => return verdict,
        }
    }
}

/// The distinct tests that ran under the experiment name `name`, in their order.
fn trials<'a>(results: &'a Results, name: &str) -> Vec<&'a TestSpec> {
    let mut specs: Vec<&TestSpec> = Vec::new();
    let named = results.points.iter().filter(|point| point.experiment == name);
    for spec in named.filter_map(Point::spec) {
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    specs
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
