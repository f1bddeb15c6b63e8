//! Weighing every limit, and the loop that puts the best ones to the test.

use results::{
    Confirmation, End, Estimate, Evidence, HostChange, Limit, NextCeiling, Results, SettingChange,
    TestSpec, Verdict,
};

use crate::experiment::Experiment;
use crate::mechanism::{Opinion, TABLE};
use crate::observed::Observed;
use crate::remedy::Remedy;
use crate::verdict;

/// Least weight at which a limit is suspected.
const SUSPECTED: f64 = 0.35;

/// Most candidates that are put to the test.
const CANDIDATES_TRIED_MAX: usize = 3;

/// A limit that may bind.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Which.
    pub limit: Limit,
    /// Where; absent for the path.
    pub end: Option<End>,
    /// How far it accounts for the throughput, 0 to 1.
    pub weight: f64,
    /// Lines for it, strongest first.
    pub evidence: Vec<String>,
    /// What it allows at most, bit/s.
    pub ceiling_bits_per_s: Option<f64>,
    /// Experiments that would decide, the most telling first; empty when none can be run.
    pub experiments: Vec<Experiment>,
    /// What to change, most useful first.
    pub advice: Vec<String>,
    /// The change to a host that would confirm it, where no change to the test does.
    pub host_change: Option<HostChange>,
    /// The settings whose change lifts it, most useful first.
    pub changes: Vec<SettingChange>,
    /// What would bind next.
    pub next: Option<NextCeiling>,
}

/// What the points say so far, and where the search for the binding limit stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// Throughput of the judged test, bit/s; absent when no TCP transfer was measured.
    pub measured: Option<Estimate>,
    /// The judged test.
    pub spec: Option<TestSpec>,
    /// Limits that may bind, likeliest first.
    pub candidates: Vec<Candidate>,
    /// Limits that do not, and why: first those an experiment refuted, then the others.
    pub ruled_out: Vec<Evidence>,
    pub(crate) undecided: Vec<Undecided>,
    /// Limits that an experiment refuted.
    pub(crate) refuted: Vec<Limit>,
    /// Experiments of the first candidate that were run already.
    pub(crate) experiments_run: usize,
    pub(crate) candidates_tried: usize,
    /// Lines to add to the evidence: what earlier experiments of the first candidate showed.
    pub(crate) remarks: Vec<String>,
}

/// A candidate whose experiments were run and decided nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Undecided {
    pub(crate) candidate: Candidate,
    /// The last experiment, when it measured anything.
    pub(crate) confirmation: Option<Confirmation>,
    pub(crate) why: String,
}

/// Weighs every limit against the points of `results`.
#[must_use]
pub fn diagnose(results: &Results) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        measured: None,
        spec: None,
        candidates: Vec::new(),
        ruled_out: Vec::new(),
        undecided: Vec::new(),
        refuted: Vec::new(),
        experiments_run: 0,
        candidates_tried: 0,
        remarks: Vec::new(),
    };
    let Some(seen) = Observed::of(results) else { return diagnosis };
    diagnosis.measured = Some(seen.goodput);
    diagnosis.spec = Some(seen.spec.clone());
    diagnosis.weigh(&seen);
    diagnosis
}

impl Diagnosis {
    /// Fills in who may bind and who does not.
    fn weigh(&mut self, seen: &Observed<'_>) {
        let opinions = opinions(seen);
        for (mechanism, opinion) in TABLE.iter().zip(&opinions) {
            let limit = mechanism.limit();
            if opinion.weight < SUSPECTED {
                let (text, weight) = (opinion.against.clone(), opinion.weight);
                self.ruled_out.push(Evidence { limit, text, weight });
                continue;
            }
            let headroom = headroom(seen, &opinions, limit);
            self.candidates.push(Candidate {
                limit,
                end: opinion.end,
                weight: opinion.weight,
                evidence: opinion.evidence.clone(),
                ceiling_bits_per_s: opinion.ceiling_bits_per_s,
                experiments: mechanism.experiments(seen, headroom),
                advice: mechanism.advice(seen),
                host_change: mechanism.host_change(seen, headroom).map(Remedy::shown),
                changes: mechanism.changes(seen, headroom),
                next: verdict::next_of(seen, &opinions, limit),
            });
        }
        self.candidates.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        self.ruled_out.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    }

    /// Puts the first candidate aside as refuted by an experiment. Where that was a window or a
    /// buffer, the time it seemed to explain is anybody's: the others are weighed again.
    pub(crate) fn refute(&mut self, text: String, results: &Results) {
        let Some(candidate) = self.move_on() else { return };
        let Candidate { limit, weight, .. } = candidate;
        self.refuted.push(limit);
        if matches!(limit, Limit::ReceiveWindow | Limit::SendBuffer)
            && let Some(seen) = Observed::of(results)
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
    }

    /// The likeliest limit that no experiment refuted yet.
    #[must_use]
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.first()
    }

    /// The experiment that would decide on it, and the test to run; `None` when there is none, or
    /// when enough was tried.
    #[must_use]
    pub fn experiment(&self) -> Option<(&Experiment, TestSpec)> {
        if self.candidates_tried >= CANDIDATES_TRIED_MAX {
            return None;
        }
        let experiment = self.best()?.experiments.get(self.experiments_run)?;
        Some((experiment, experiment.spec(self.spec.as_ref()?)))
    }

    /// The verdict if nothing more is tried: unconfirmed, or `none-found`.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        verdict::unconfirmed(self)
    }

    /// Goes on to the next candidate.
    pub(crate) fn move_on(&mut self) -> Option<Candidate> {
        self.experiments_run = 0;
        self.candidates_tried += 1;
        self.remarks.clear();
        (!self.candidates.is_empty()).then(|| self.candidates.remove(0))
    }
}

/// What every mechanism says, in the table's order, its numbers made sane.
pub(crate) fn opinions(seen: &Observed<'_>) -> Vec<Opinion> {
    let sane = |mut opinion: Opinion| {
        opinion.weight = if opinion.weight.is_nan() { 0.0 } else { opinion.weight.clamp(0.0, 1.0) };
        opinion.ceiling_bits_per_s = opinion.ceiling_bits_per_s.and_then(crate::numbers::positive);
        opinion
    };
    TABLE.iter().map(|mechanism| sane(mechanism.weigh(seen))).collect()
}

/// The lowest ceiling of the other limits, bit/s.
fn headroom(seen: &Observed<'_>, opinions: &[Opinion], limit: Limit) -> Option<f64> {
    verdict::next_of(seen, opinions, limit).map(|next| next.bits_per_s)
}
