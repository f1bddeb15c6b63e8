//! Wording the verdict.

use results::{Confirmation, End, Evidence, Limit, NextCeiling, Results, Verdict};
use units::show_bit_rate;

use crate::diagnosis::{Candidate, Diagnosis, opinions};
use crate::mechanism::{self, Opinion, TABLE};
use crate::observed::{Observed, end_name};

/// What would bind if `limit` were lifted: the lowest ceiling that any other limit of the table
/// puts above what was measured. `None` when none of them has a ceiling that is known.
#[must_use]
pub fn next_ceiling(results: &Results, limit: Limit) -> Option<NextCeiling> {
    let seen = Observed::of(results)?;
    next_of(&seen, &opinions(&seen), limit)
}

/// Ceilings closer to the measured throughput than this are the same one.
const APART: f64 = 1.03;

pub(crate) fn next_of(
    seen: &Observed<'_>,
    opinions: &[Opinion],
    limit: Limit,
) -> Option<NextCeiling> {
    let above = TABLE.iter().zip(opinions).filter_map(|(mechanism, opinion)| {
        let bits_per_s = opinion.ceiling_bits_per_s?;
        let other = mechanism.limit() != limit && bits_per_s > seen.rate() * APART;
        other.then_some((mechanism, opinion, bits_per_s))
    });
    let (mechanism, opinion, bits_per_s) = above.min_by(|a, b| a.2.total_cmp(&b.2))?;
    let place = opinion.end.map(|end| format!(" at the {} end", end_name(end))).unwrap_or_default();
    let ceiling = mechanism.page().ceiling;
    let text =
        format!("{}{place}: {ceiling}, {}", mechanism.page().title, show_bit_rate(bits_per_s));
    Some(NextCeiling { limit: mechanism.limit(), bits_per_s, text })
}

/// The verdict that an experiment proved.
pub(crate) fn confirmed(
    diagnosis: &Diagnosis,
    candidate: &Candidate,
    confirmation: Confirmation,
) -> Verdict {
    let summary = format!("{}; confirmed: {}", headline(candidate), confirmation.outcome);
    let told = of_candidate(diagnosis, candidate, Some(confirmation));
    Verdict { summary, confirmed: true, host_change: None, ..told }
}

/// The verdict if nothing more is tried.
pub(crate) fn unconfirmed(diagnosis: &Diagnosis) -> Verdict {
    // A candidate that was tried in vain is still likelier than a lighter one that was not.
    let tried = diagnosis.undecided.iter().map(|undecided| (&undecided.candidate, Some(undecided)));
    let untried = diagnosis.candidates.iter().map(|candidate| (candidate, None));
    let best = tried
        .chain(untried)
        .reduce(|best, other| if other.0.weight > best.0.weight { other } else { best });
    match best {
        Some((candidate, undecided)) => {
            let why = match undecided {
                Some(undecided) => format!("not confirmed: {}", undecided.why),
                None => "not confirmed by an experiment".to_owned(),
            };
            let summary = format!("{}; {why}", headline(candidate));
            let confirmation = undecided.and_then(|undecided| undecided.confirmation.clone());
            Verdict { summary, ..of_candidate(diagnosis, candidate, confirmation) }
        }
        None => none_found(diagnosis),
    }
}

fn of_candidate(
    diagnosis: &Diagnosis,
    candidate: &Candidate,
    confirmation: Option<Confirmation>,
) -> Verdict {
    let Candidate { limit, end, weight, .. } = *candidate;
    let lines = candidate.evidence.iter().chain(&diagnosis.remarks);
    let evidence = lines.map(|text| Evidence { limit, text: text.clone(), weight }).collect();
    let others =
        diagnosis.candidates.iter().chain(diagnosis.undecided.iter().map(|other| &other.candidate));
    let weaker = others.filter(|other| other.limit != limit).map(|other| Evidence {
        limit: other.limit,
        text: format!("less likely: {}", other.evidence.first().map_or("", String::as_str)),
        weight: other.weight,
    });
    Verdict {
        limit,
        end,
        summary: String::new(),
        evidence,
        confirmed: false,
        confirmation,
        host_change: candidate.host_change.clone(),
        changes: candidate.changes.clone(),
        advice: candidate.advice.clone(),
        next: candidate.next.clone(),
        ruled_out: weaker.chain(diagnosis.ruled_out.iter().cloned()).collect(),
    }
}

fn none_found(diagnosis: &Diagnosis) -> Verdict {
    let (summary, advice) = match diagnosis.measured {
        Some(measured) => (
            format!("nothing measured explains {}", show_bit_rate(measured.median)),
            vec![
                "measure longer, with more repeats, and with clearstream serving the far end"
                    .to_owned(),
            ],
        ),
        None => {
            ("no TCP transfer was measured, so there is nothing to judge".to_owned(), Vec::new())
        }
    };
    Verdict {
        limit: Limit::NoneFound,
        end: None,
        summary,
        evidence: Vec::new(),
        confirmed: false,
        confirmation: None,
        host_change: None,
        changes: Vec::new(),
        advice,
        next: None,
        ruled_out: diagnosis.ruled_out.clone(),
    }
}

fn headline(candidate: &Candidate) -> String {
    bound_by(candidate.limit, candidate.end, candidate.evidence.first().map(String::as_str))
}

/// `bound by the receive window at the far end: receive-window-limited 97% …`, with the strongest line of
/// evidence.
pub(crate) fn bound_by(limit: Limit, end: Option<End>, evidence: Option<&str>) -> String {
    let title = mechanism::of(limit).map_or(limit.name(), |mechanism| mechanism.page().title);
    let place = match end {
        Some(End::Near) => " at the near end",
        Some(End::Far) => " at the far end",
        None => "",
    };
    let evidence = evidence.map(|line| format!(": {line}")).unwrap_or_default();
    format!("bound by {title}{place}{evidence}")
}
