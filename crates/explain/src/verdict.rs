//! Assembles the verdict: its text, its evidence and the limit that would bind next.

use results::{Confirmation, End, Evidence, Limit, NextCeiling, Results, Verdict};
use units::show_bit_rate;

use crate::diagnosis::{Candidate, Diagnosis, opinions};
use crate::mechanism::{self, Opinion, TABLE};
use crate::observed::{Observed, end_name};

/// The limit that would bind if `limit` were lifted: the one with the lowest ceiling above the measured
/// throughput. `None` if no other limit has a known ceiling.
#[must_use]
pub fn next_ceiling(results: &Results, limit: Limit) -> Option<NextCeiling> {
    let seen = Observed::of(results)?;
    next_of(&seen, &opinions(&seen), limit)
}

/// Ceilings within this factor of the measured throughput count as equal to it.
const APART: f64 = 1.03;

/// Highest credible throughput of a connection, bit/s: above the fastest interfaces and memory copies.
const BITS_PER_S_MAX: f64 = 1e12;

/// Whether a limit's ceiling is the capacity of a part of the path; the quotient of a window and a
/// round-trip time is not, and over a short path it exceeds every part's capacity.
fn is_of_a_part(limit: Limit) -> bool {
    matches!(
        limit,
        Limit::SenderCore
            | Limit::ReceiverCore
            | Limit::InterruptCore
            | Limit::LinkRate
            | Limit::Shaper
            | Limit::Pcie
            | Limit::MemoryBandwidth
    )
}

pub(crate) fn next_of(
    seen: &Observed<'_>,
    opinions: &[Opinion],
    limit: Limit,
) -> Option<NextCeiling> {
    lowest_ceiling(seen, opinions, |other| other == limit)
}

/// The lowest ceiling above the measured throughput, of the limits that are not `left_out`. A ceiling above
/// every known capacity of the path's parts is ignored, because something else binds first.
pub(crate) fn lowest_ceiling(
    seen: &Observed<'_>,
    opinions: &[Opinion],
    left_out: impl Fn(Limit) -> bool,
) -> Option<NextCeiling> {
    let told = || {
        let all = TABLE.iter().zip(opinions);
        all.filter(|(mechanism, _)| !left_out(mechanism.limit())).filter_map(
            |(mechanism, opinion)| Some((mechanism, opinion, opinion.ceiling_bits_per_s?)),
        )
    };
    let of_parts = told().filter(|(mechanism, _, _)| is_of_a_part(mechanism.limit()));
    let most = of_parts.map(|(_, _, rate)| rate).max_by(f64::total_cmp);
    let most = most.unwrap_or(f64::MAX).min(BITS_PER_S_MAX);
    let above = told().filter(|(_, _, rate)| *rate > seen.rate() * APART && *rate <= most);
    let (mechanism, opinion, bits_per_s) = above.min_by(|a, b| a.2.total_cmp(&b.2))?;
    let place = opinion.end.map(|end| format!(" at the {} end", end_name(end))).unwrap_or_default();
    let ceiling = mechanism.page().ceiling;
    let text =
        format!("{}{place}: {ceiling}, {}", mechanism.page().title, show_bit_rate(bits_per_s));
    Some(NextCeiling { limit: mechanism.limit(), bits_per_s, text })
}

/// The verdict for a limit that an experiment confirmed.
pub(crate) fn confirmed(
    diagnosis: &Diagnosis,
    candidate: &Candidate,
    confirmation: Confirmation,
) -> Verdict {
    let summary = format!("{}; confirmed: {}", headline(candidate), confirmation.outcome);
    let told = of_candidate(diagnosis, candidate, Some(confirmation));
    Verdict { summary, confirmed: true, host_change: None, ..told }
}

/// The verdict without further experiments.
pub(crate) fn unconfirmed(diagnosis: &Diagnosis) -> Verdict {
    // A candidate whose experiments decided nothing is still likelier than an untried one of lower weight.
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

/// Text of a limit, with its end and its strongest line of evidence:
/// `bound by the receive window at the far end: receive-window-limited 97% …`.
pub(crate) fn bound_by(limit: Limit, end: Option<End>, evidence: Option<&str>) -> String {
    let title = mechanism::of(limit).map_or(limit.name(), |mechanism| mechanism.page().title);
    let place = match end {
        Some(End::Near) => " at the near end",
        Some(End::Far) => " at the far end",
        None => "",
    };
    let evidence = evidence.map(|line| format!(": {line}")).unwrap_or_default();
    format!("bottleneck: {title}{place}{evidence}")
}
