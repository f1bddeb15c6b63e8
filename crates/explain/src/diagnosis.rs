//! Weighs every limit and selects the experiments that test the likeliest ones.

use results::{
    Companion, Confirmation, End, Estimate, Evidence, HostChange, Limit, NextCeiling, Results,
    SettingChange, TestSpec, Verdict,
};

use units::show_bit_rate;

use crate::advice::Advice;
use crate::ceiling::is_disproved;
use crate::change::{self, Change};
use crate::experiment::Experiment;
use crate::mechanism::{self, Mechanism, Opinion, TABLE};
use crate::numbers::ratio;
use crate::observed::Observed;
use crate::remedy::Remedy;
use crate::rivals::{self, Other};
use crate::thresholds::{Fit, predictions};
use crate::verdict;
use crate::wanted::{Wanted, is_window};
use crate::{unexplained, unseen};

/// Least weight, 0 to 1, at which a limit is suspected.
pub(crate) const SUSPECTED: f64 = 0.35;

/// Least weight at which the likeliest limit is put to the test where none is suspected; only its experiment can make
/// a verdict of it.
const WORTH_A_TRIAL: f64 = 0.2;

/// Most candidates that experiments are run for.
const CANDIDATES_TRIED_MAX: usize = 3;

/// A limit that may bind.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The limit.
    pub limit: Limit,
    /// The end it is at; absent for the path.
    pub end: Option<End>,
    /// How far it accounts for the throughput, 0 to 1.
    pub weight: f64,
    /// What speaks most against it, in words; absent if nothing does.
    pub doubt: Option<&'static str>,
    /// Evidence for it, one line each, strongest first.
    pub evidence: Vec<String>,
    /// Highest throughput it allows, bit/s.
    pub ceiling_bits_per_s: Option<f64>,
    /// Experiments that would decide, the most telling first; empty when none can be run.
    pub experiments: Vec<Experiment>,
    /// What the user should change, most useful first.
    pub advice: Vec<Advice>,
    /// The change to a host that would confirm it, if no change to the test does.
    pub host_change: Option<HostChange>,
    /// Changes of settings that lift it, most useful first.
    pub changes: Vec<SettingChange>,
    /// The ceiling that would bind next.
    pub next: Option<NextCeiling>,
}

/// The candidates for the binding limit, and how far the search has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// Throughput of the judged test, bit/s; absent when no TCP transfer was measured.
    pub measured: Option<Estimate>,
    /// The judged test; absent with `measured`.
    pub spec: Option<TestSpec>,
    /// Limits that may bind, likeliest first.
    pub candidates: Vec<Candidate>,
    /// Where none is suspected, the limits that the figures speak for nearly as much as for the one that is tried.
    faint: Vec<Candidate>,
    /// Limits that do not bind, with the reasons: those an experiment refuted come first.
    pub ruled_out: Vec<Evidence>,
    /// What the measurement shows and lacks, for a verdict that names no limit.
    pub(crate) shown: Vec<String>,
    /// Whether the far host told of itself.
    pub(crate) is_far_end_known: bool,
    /// The thresholds that limits are weighed by.
    pub(crate) fit: Fit,
    pub(crate) undecided: Vec<Undecided>,
    /// Changes that should have helped and, when tried, gained nothing.
    pub(crate) fruitless: Vec<Change>,
    /// Limits that an experiment refuted.
    pub(crate) refuted: Vec<Limit>,
    /// Number of the first candidate's experiments that were already run.
    pub(crate) experiments_run: usize,
    pub(crate) candidates_tried: usize,
    /// Further evidence lines: what earlier experiments of the first candidate showed.
    pub(crate) remarks: Vec<String>,
    /// What these showed of the candidate's other predictions.
    pub(crate) companions: Vec<Companion>,
    /// Limits that the outcome of an earlier experiment of the first candidate excludes.
    pub(crate) told_apart: Vec<Limit>,
    /// Whether both ends share their cores.
    shares_cores: bool,
    /// Limits that no figure could show, each after the one that it would look like.
    unseen: Vec<(Limit, Limit)>,
}

/// A candidate whose experiments were run without a decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Undecided {
    pub(crate) candidate: Candidate,
    /// The last experiment, if it measured anything.
    pub(crate) confirmation: Option<Confirmation>,
    pub(crate) why: String,
}

/// Weighs every limit against the points of `results`.
#[must_use]
pub fn diagnose(results: &Results) -> Diagnosis {
    diagnose_fitted(results, Fit::default())
}

/// The same with these thresholds.
pub(crate) fn diagnose_fitted(results: &Results, fit: Fit) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        measured: None,
        spec: None,
        candidates: Vec::new(),
        faint: Vec::new(),
        ruled_out: Vec::new(),
        shown: Vec::new(),
        is_far_end_known: results.far().is_some_and(|far| !far.sysctls.is_empty()),
        fit,
        undecided: Vec::new(),
        fruitless: Vec::new(),
        refuted: Vec::new(),
        experiments_run: 0,
        candidates_tried: 0,
        remarks: Vec::new(),
        companions: Vec::new(),
        told_apart: Vec::new(),
        shares_cores: false,
        unseen: Vec::new(),
    };
    let Some(seen) = Observed::fitted(results, fit) else { return diagnosis };
    diagnosis.shares_cores = seen.one_machine;
    diagnosis.unseen = unseen::unseen(&seen);
    diagnosis.measured = Some(seen.goodput);
    diagnosis.shown = unexplained::evidence(&seen);
    diagnosis.spec = Some(seen.spec.clone());
    diagnosis.weigh(&seen);
    diagnosis.fruitless.extend(seen.streams_in_vain());
    diagnosis
}

/// What is known of a limit that may bind.
fn candidate(
    seen: &Observed<'_>,
    opinions: &[Opinion],
    mechanism: &dyn Mechanism,
    opinion: &Opinion,
) -> Candidate {
    let limit = mechanism.limit();
    let headroom = headroom(seen, opinions, limit);
    let next = verdict::next_of(seen, opinions, limit, 0.0);
    Candidate {
        limit,
        end: opinion.end,
        weight: opinion.weight,
        doubt: opinion.doubt,
        evidence: opinion.evidence.clone(),
        // An estimate below what was carried is at least that.
        ceiling_bits_per_s: opinion.ceiling_bits_per_s.map(|rate| rate.max(seen.rate())),
        experiments: mechanism.experiments(seen, headroom),
        advice: mechanism.advice(seen),
        host_change: mechanism.host_change(seen, headroom).map(Remedy::shown),
        changes: up_to(mechanism.changes(seen, headroom), next.as_ref()),
        next,
    }
}

impl Candidate {
    /// Whether the figures alone speak for it enough to name it; a weaker one counts only once it is confirmed.
    #[must_use]
    pub fn is_suspected(&self) -> bool {
        self.weight >= SUSPECTED
    }

    /// The same diagnosis after an experiment that lifted its limit reached so much, bit/s: no lower ceiling
    /// can bind next.
    pub(crate) fn having_reached(
        &self,
        results: &Results,
        fit: Fit,
        reached_bits_per_s: f64,
    ) -> Self {
        let same = self.clone();
        let is_disproved = |next: &NextCeiling| next.bits_per_s < reached_bits_per_s;
        match Observed::fitted(results, fit)
            .filter(|_| self.next.as_ref().is_some_and(is_disproved))
        {
            Some(seen) => {
                let opinions = opinions(&seen);
                let next = verdict::next_of(&seen, &opinions, self.limit, reached_bits_per_s);
                let headroom = headroom(&seen, &opinions, self.limit);
                let seen = seen.wanting(Wanted::of(&seen, &opinions, None));
                let changes = mechanism::of(self.limit).map_or_else(Vec::new, |mechanism| {
                    up_to(mechanism.changes(&seen, headroom), next.as_ref())
                });
                Self { next, changes, ..same }
            }
            None => same,
        }
    }

    /// The same diagnosis after an experiment that made `change`, should have reached the next ceiling and ended far
    /// below it: something that no figure names binds first. A rate that the test set itself is lifted for good; other
    /// changes are expected to reach what was predicted of them.
    pub(crate) fn stopped_short(self, told: &Confirmation, change: &Change) -> Self {
        /// Share of the next ceiling that was predicted, at least.
        const PREDICTED_MIN: f64 = 0.9;
        /// Share of the next ceiling that was reached, at most.
        const REACHED_MAX: f64 = 0.8;
        let is_gone = matches!(
            change,
            Change::LiftOfferedRate { .. }
                | Change::LiftReadRate { .. }
                | Change::LiftPacing { .. }
        );
        let is_short = |next: &NextCeiling| {
            (is_gone || told.predicted_bits_per_s >= next.bits_per_s * PREDICTED_MIN)
                && told.after_bits_per_s <= next.bits_per_s * REACHED_MAX
        };
        let Some(known) = self.next.as_ref().filter(|next| is_short(next)) else { return self };
        let text = format!(
            "without this limit the experiment reached no more, although the next known ceiling, {}, is at {}; \
             measure again without this limit",
            known.limit.name(),
            show_bit_rate(known.bits_per_s)
        );
        let (limit, bits_per_s) = (Limit::NoneFound, told.after_bits_per_s);
        Self { next: Some(NextCeiling { limit, bits_per_s, text }), ..self }
    }

    /// The same diagnosis, with windows and buffers sized for the rate that an experiment reached, bit/s.
    pub(crate) fn knowing(&self, results: &Results, fit: Fit, reached_bits_per_s: f64) -> Self {
        let same = self.clone();
        if !matches!(self.limit, Limit::ReceiveWindow | Limit::SendBuffer) {
            return same;
        }
        let (Some(seen), Some(mechanism)) =
            (Observed::fitted(results, fit), mechanism::of(self.limit))
        else {
            return same;
        };
        let opinions = opinions(&seen);
        let headroom = headroom(&seen, &opinions, self.limit);
        let seen = seen.wanting(Wanted::of(&seen, &opinions, Some(reached_bits_per_s)));
        let changes = up_to(mechanism.changes(&seen, headroom), self.next.as_ref());
        Self { advice: mechanism.advice(&seen), changes, ..same }
    }
}

impl Diagnosis {
    /// Sorts the limits into candidates and those ruled out.
    fn weigh(&mut self, seen: &Observed<'_>) {
        let opinions = opinions(seen);
        let seen = &seen.wanting(Wanted::of(seen, &opinions, None));
        self.faint.clear();
        for (mechanism, opinion) in TABLE.iter().zip(&opinions) {
            let limit = mechanism.limit();
            if opinion.weight < SUSPECTED {
                let (text, weight) = (opinion.against.clone(), opinion.weight);
                self.ruled_out.push(Evidence { limit, text, weight });
                continue;
            }
            self.candidates.push(candidate(seen, &opinions, *mechanism, opinion));
        }
        if self.candidates.is_empty() {
            self.weigh_faint(seen, &opinions);
        }
        self.candidates.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        self.ruled_out.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        self.put_first_what_separates();
    }

    /// Where no limit is suspected: the likeliest is worth a trial, which must tell it from those beside it.
    fn weigh_faint(&mut self, seen: &Observed<'_>, opinions: &[Opinion]) {
        let undecided = self.undecided.iter().map(|undecided| undecided.candidate.limit);
        let decided: Vec<Limit> = undecided.chain(self.refuted.iter().copied()).collect();
        let open = || {
            let all = TABLE.iter().zip(opinions);
            all.filter(|(mechanism, _)| !decided.contains(&mechanism.limit()))
        };
        let most = open().map(|(_, opinion)| opinion.weight).fold(0.0, f64::max);
        if most < WORTH_A_TRIAL {
            return;
        }
        let near = open().filter(|(_, opinion)| opinion.weight >= predictions::FAINT_RIVAL * most);
        let mut near: Vec<Candidate> = near
            .map(|(mechanism, opinion)| candidate(seen, opinions, *mechanism, opinion))
            .collect();
        near.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        let first = near.remove(0);
        if !first.experiments.is_empty() {
            self.candidates.push(first);
            self.faint = near;
        }
    }

    /// The other limits that no experiment refuted and that the figures speak for nearly as much, likeliest first: the
    /// first candidate's experiments must tell it from each of them.
    pub(crate) fn rivals(&self) -> Vec<Other> {
        let Some(first) = self.best() else { return Vec::new() };
        let undecided = self.undecided.iter().map(|undecided| &undecided.candidate);
        let suspected = self.candidates.iter().skip(1).chain(undecided).filter(|other| {
            other.is_suspected() && other.weight >= predictions::RIVAL * first.weight
        });
        let near = suspected.chain(&self.faint);
        let mut near: Vec<&Candidate> = near
            .filter(|other| self.meets_its_rate(other) || !self.meets_its_rate(first))
            .filter(|other| !self.told_apart.contains(&other.limit))
            .collect();
        near.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        let shares_cores = self.shares_cores;
        let other = |candidate: &Candidate| {
            let Candidate { limit, end, .. } = *candidate;
            Other { limit, end, shares_cores }
        };
        let near: Vec<Other> = near.into_iter().map(other).collect();
        let is_near = |unseen: &Other| near.iter().any(|other| other.limit == unseen.limit);
        let unseen: Vec<Other> =
            self.unseen_beside(first).into_iter().filter(|other| !is_near(other)).collect();
        near.into_iter().chain(unseen).collect()
    }

    /// Limits that would look like this one and that no figure could show, unless an experiment excluded them. What a
    /// host tells of its own limiter is known.
    fn unseen_beside(&self, first: &Candidate) -> Vec<Other> {
        if first.limit == Limit::Shaper && first.end.is_some() {
            return Vec::new();
        }
        let shares_cores = self.shares_cores;
        let excluded = [&self.told_apart, &self.refuted];
        let beside = self.unseen.iter().filter(|(of, other)| {
            *of == first.limit && !excluded.iter().any(|excluded| excluded.contains(other))
        });
        beside.map(|(_, limit)| Other { limit: *limit, end: None, shares_cores }).collect()
    }

    /// Whether a setting or a device states the limit's rate, and throughput meets it: that predicts the figure itself,
    /// as no limit does that states none.
    fn meets_its_rate(&self, candidate: &Candidate) -> bool {
        let is_stated = match candidate.limit {
            Limit::LinkRate
            | Limit::Pcie
            | Limit::Pacing
            | Limit::SendingApplication
            | Limit::ReceivingApplication => true,
            Limit::Shaper | Limit::Policer => candidate.end.is_some(),
            _ => false,
        };
        let reached = self
            .measured
            .zip(candidate.ceiling_bits_per_s)
            .and_then(|(measured, ceiling)| ratio(measured.median, ceiling));
        is_stated && reached.is_some_and(|reached| reached >= predictions::STATED_MET)
    }

    /// The rivals that an experiment on the first candidate does not tell it from, likeliest first.
    pub(crate) fn not_told_apart(&self, experiment: &Experiment) -> Vec<Other> {
        let Some(measured) = self.measured else { return Vec::new() };
        let is_separate = |other: &Other| rivals::separates(experiment, measured.median, *other);
        self.rivals().into_iter().filter(|other| !is_separate(other)).collect()
    }

    /// Of the first candidate's experiments that were not run, those that tell it from the most rivals come first.
    pub(crate) fn put_first_what_separates(&mut self) {
        let Some(first) = self.candidates.first() else { return };
        let mut experiments = first.experiments.clone();
        let left = experiments.get_mut(self.experiments_run..).unwrap_or_default();
        left.sort_by_cached_key(|experiment| self.not_told_apart(experiment).len());
        self.candidates[0].experiments = experiments;
    }

    /// Takes next, of the first candidate's experiments, the one that `spec` was run for: another version may have
    /// chosen another order.
    pub(crate) fn run_next(&mut self, spec: &TestSpec) {
        let (Some(judged), Some(first)) = (&self.spec, self.candidates.first_mut()) else { return };
        let left = first.experiments.get_mut(self.experiments_run..).unwrap_or_default();
        let is_same = |experiment: &Experiment| experiment.spec(judged) == *spec;
        let is_alike =
            |experiment: &Experiment| change::is_same_kind(judged, &experiment.spec(judged), spec);
        let at = left.iter().position(is_same).or_else(|| left.iter().position(is_alike));
        if let Some(at) = at {
            left[..=at].rotate_right(1);
            // Earlier versions set both sides' buffers.
            if let Change::Window { side, .. } = &mut left[0].change {
                *side = spec.window_side;
            }
        }
    }

    /// Sets the first candidate aside as refuted by an experiment. If it was a window or a buffer, the
    /// time it seemed to explain may belong to any other limit, so these are weighed again.
    pub(crate) fn refute(&mut self, text: String, results: &Results) {
        let Some(candidate) = self.move_on() else { return };
        let Candidate { limit, weight, .. } = candidate;
        self.refuted.push(limit);
        self.ruled_out.retain(|evidence| evidence.limit != limit);
        if matches!(limit, Limit::ReceiveWindow | Limit::SendBuffer)
            && let Some(seen) = Observed::fitted(results, self.fit)
        {
            let is_refuted = |evidence: &Evidence| self.refuted.contains(&evidence.limit);
            let told: Vec<Evidence> = self.ruled_out.drain(..).filter(is_refuted).collect();
            self.candidates.clear();
            self.weigh(&seen.knowing(&self.refuted));
            let undecided = self.undecided.iter().map(|undecided| undecided.candidate.limit);
            let decided: Vec<Limit> = undecided.chain(self.refuted.iter().copied()).collect();
            self.candidates.retain(|candidate| !decided.contains(&candidate.limit));
            self.ruled_out.retain(|evidence| !decided.contains(&evidence.limit));
            self.ruled_out.splice(0..0, told);
        }
        self.ruled_out.insert(0, Evidence { limit, text, weight });
        self.put_first_what_separates();
    }

    /// The likeliest limit that no experiment has refuted, be it not [suspected](Candidate::is_suspected) without one.
    #[must_use]
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.first()
    }

    /// The experiment that would decide on the best candidate, and the test to run; `None` if there is
    /// none, or if three candidates were tried already.
    #[must_use]
    pub fn experiment(&self) -> Option<(&Experiment, TestSpec)> {
        if self.candidates_tried >= CANDIDATES_TRIED_MAX {
            return None;
        }
        let experiment = self.best()?.experiments.get(self.experiments_run)?;
        Some((experiment, experiment.spec(self.spec.as_ref()?)))
    }

    /// The verdict without further experiments: unconfirmed, or `none-found`.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        verdict::unconfirmed(self)
    }

    /// Removes the first candidate, and its experiments' state, to go on with the next one.
    pub(crate) fn move_on(&mut self) -> Option<Candidate> {
        self.experiments_run = 0;
        self.candidates_tried += 1;
        self.remarks.clear();
        self.companions.clear();
        self.told_apart.clear();
        (!self.candidates.is_empty()).then(|| self.candidates.remove(0))
    }

    /// Sets the first candidate aside, undecided.
    pub(crate) fn leave_undecided(&mut self, confirmation: Option<Confirmation>, why: String) {
        let tried = self.move_on();
        self.undecided.extend(tried.map(|candidate| Undecided { candidate, confirmation, why }));
        self.put_first_what_separates();
    }
}

/// The opinion of every mechanism, in the table's order, without absurd numbers and without ceilings below what was
/// carried. What a window or a buffer holds is an estimate, which `verdict` compares with that itself.
pub(crate) fn opinions(seen: &Observed<'_>) -> Vec<Opinion> {
    let sane = |(limit, mut opinion): (Limit, Opinion)| {
        opinion.weight = if opinion.weight.is_nan() { 0.0 } else { opinion.weight.clamp(0.0, 1.0) };
        let ceiling = opinion.ceiling_bits_per_s.and_then(crate::numbers::positive);
        opinion.ceiling_bits_per_s =
            ceiling.filter(|ceiling| is_window(limit) || !is_disproved(*ceiling, seen.rate()));
        opinion
    };
    TABLE.iter().map(|mechanism| sane((mechanism.limit(), mechanism.weigh(seen)))).collect()
}

/// Changes whose predictions end where the next limit binds: a verdict that names both must not contradict itself.
fn up_to(mut changes: Vec<SettingChange>, next: Option<&NextCeiling>) -> Vec<SettingChange> {
    let most = next.map_or(f64::MAX, |next| next.bits_per_s);
    for change in &mut changes {
        change.predicted_bits_per_s = change.predicted_bits_per_s.map(|rate| rate.min(most));
    }
    changes
}

/// The lowest ceiling of the other limits, bit/s.
fn headroom(seen: &Observed<'_>, opinions: &[Opinion], limit: Limit) -> Option<f64> {
    let lowest = verdict::lowest_ceiling(seen, opinions, |other| other == limit, 0.0);
    lowest.map(|next| next.bits_per_s)
}

#[cfg(test)]
mod tests;
