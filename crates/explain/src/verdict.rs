//! Assembles the verdict: its text, its evidence and the limit that would bind next.

use results::{Confirmation, End, Evidence, Limit, NextCeiling, Point, Results, TestSpec, Verdict};
use units::show_bit_rate;

use crate::buffers::Buffer;
use crate::diagnosis::{Candidate, Diagnosis, opinions};
use crate::mechanism::{self, Mechanism, Opinion, Page, TABLE};
use crate::numbers::positive;
use crate::observed::{Observed, end_name};
use crate::rivals::Other;
use crate::wanted::is_window;

/// The limit that would bind if `limit` were lifted: the one with the lowest ceiling above the measured
/// throughput, and no lower than what any test reached without `limit`. `None` if no other limit has such a
/// ceiling.
#[must_use]
pub fn next_ceiling(results: &Results, limit: Limit) -> Option<NextCeiling> {
    let seen = Observed::of(results)?;
    next_of(&seen, &opinions(&seen), limit, 0.0)
}

/// Ceilings within this factor of the measured throughput count as equal to it.
const APART: f64 = 1.03;

/// Highest credible throughput of a connection, bit/s: above the fastest interfaces and memory copies.
const BITS_PER_S_MAX: f64 = 1e12;

/// Over a short path, a window divided by the round-trip time exceeds what one core can copy for a connection, whatever
/// the path's parts tell. Such a quotient is no limit.
const QUOTIENT_BITS_PER_S_MAX: f64 = 2e11;

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

/// The limit that would bind without `limit`; `reached_bits_per_s`: throughput of an experiment that lifted
/// `limit`, 0 if none did. A ceiling below what was reached is disproved and left out.
pub(crate) fn next_of(
    seen: &Observed<'_>,
    opinions: &[Opinion],
    limit: Limit,
    reached_bits_per_s: f64,
) -> Option<NextCeiling> {
    let is_left_out = |other| other == limit || is_window(limit) && is_window(other);
    let reached = reached_bits_per_s.max(reached_by_windows(seen, limit));
    let part = lowest_ceiling(seen, opinions, is_left_out, reached);
    let window = other_window(seen, opinions, limit, reached);
    match (part, window) {
        (Some(part), Some(window)) if part.bits_per_s <= window.bits_per_s => Some(part),
        (part, window) => window.or(part),
    }
}

/// The lowest ceiling above the measured throughput and not below `reached` (bit/s), of the limits that are
/// not `left_out`. A ceiling above every known capacity of the path's parts is ignored, because something
/// else binds first.
pub(crate) fn lowest_ceiling(
    seen: &Observed<'_>,
    opinions: &[Opinion],
    left_out: impl Fn(Limit) -> bool,
    reached: f64,
) -> Option<NextCeiling> {
    let most = capacity(opinions, seen.rate().max(reached), &left_out);
    // A full line looks like a rate limiter.
    let is_line = |limit: Limit| limit == Limit::Shaper && left_out(Limit::LinkRate);
    let above = ceilings(opinions).filter(|(mechanism, _, rate)| {
        !left_out(mechanism.limit())
            && !is_line(mechanism.limit())
            && *rate > seen.rate() * APART
            && *rate * APART >= reached
            && *rate <= most
            && (is_of_a_part(mechanism.limit()) || *rate <= QUOTIENT_BITS_PER_S_MAX)
    });
    let (mechanism, opinion, rate) = above.min_by(|a, b| a.2.total_cmp(&b.2))?;
    Some(ceiling_text(seen, mechanism, opinion, rate.max(reached)))
}

/// The other of the receive window and the send buffer, where `limit` is one of them. What it holds is an
/// estimate, which may lie below the throughput that it carried; it then binds at once.
fn other_window(
    seen: &Observed<'_>,
    opinions: &[Opinion],
    limit: Limit,
    reached: f64,
) -> Option<NextCeiling> {
    /// Estimates further below what was carried are wrong: at least half of a buffer is payload.
    const SHARE_MIN: f64 = 0.5;
    if !is_window(limit) {
        return None;
    }
    let is_other = |one: Limit| is_window(one) && one != limit;
    let (mechanism, opinion, rate) =
        ceilings(opinions).find(|(mechanism, _, _)| is_other(mechanism.limit()))?;
    let buffer =
        if mechanism.limit() == Limit::SendBuffer { Buffer::Send } else { Buffer::Receive };
    let is_bound = seen.spec.window_bytes.is_some()
        || opinion.end.is_some_and(|end| seen.sysctl(end, buffer.key()).is_some());
    let carried = seen.rate();
    let binds_at_once = is_bound && rate >= carried * SHARE_MIN;
    if rate > QUOTIENT_BITS_PER_S_MAX
        || rate > capacity(opinions, carried.max(reached), |other| other == limit)
        || !(rate > carried * APART || binds_at_once)
    {
        return None;
    }
    let mut next = ceiling_text(seen, mechanism, opinion, rate.max(carried));
    if reached > next.bits_per_s {
        if seen.spec.window_bytes.is_some() {
            // The experiment went past it, because its option sets both.
            next.text += "; the experiment asked for a larger window, which lifts this limit too";
        } else {
            next.text += &format!(", by estimate; another test reached {}", show_bit_rate(reached));
            next.bits_per_s = reached;
        }
    }
    Some(next)
}

/// Every limit with a ceiling, bit/s.
fn ceilings(opinions: &[Opinion]) -> impl Iterator<Item = (&'static dyn Mechanism, &Opinion, f64)> {
    let all = TABLE.iter().copied().zip(opinions);
    all.filter_map(|(mechanism, opinion)| Some((mechanism, opinion, opinion.ceiling_bits_per_s?)))
}

/// The highest known capacity of the path's parts that are not `left_out`, bit/s, and no more than its line: that of
/// the others is an estimate. A virtual interface tells any line rate: one below what was `carried` does not count.
fn capacity(opinions: &[Opinion], carried: f64, left_out: impl Fn(Limit) -> bool) -> f64 {
    let of_parts = || {
        let parts = ceilings(opinions).map(|(mechanism, _, rate)| (mechanism.limit(), rate));
        parts.filter(|(limit, _)| is_of_a_part(*limit) && !left_out(*limit))
    };
    let is_line = |(limit, rate): &(Limit, f64)| *limit == Limit::LinkRate && *rate >= carried;
    let line = of_parts().find(is_line).map_or(BITS_PER_S_MAX, |(_, rate)| rate);
    let most = of_parts().map(|(_, rate)| rate).max_by(f64::total_cmp);
    most.unwrap_or(f64::MAX).min(line).min(BITS_PER_S_MAX)
}

fn ceiling_text(
    seen: &Observed<'_>,
    mechanism: &dyn Mechanism,
    opinion: &Opinion,
    bits_per_s: f64,
) -> NextCeiling {
    let limit = mechanism.limit();
    let place = opinion.end.map(|end| format!(" at the {} end", end_name(end))).unwrap_or_default();
    let Page { title, ceiling, .. } = mechanism.page();
    let buffer = if limit == Limit::SendBuffer { Buffer::Send } else { Buffer::Receive };
    let is_tuned = || opinion.end.is_some_and(|end| seen.sysctl(end, buffer.key()).is_some());
    let ceiling = match is_window(limit) {
        true if seen.spec.window_bytes.is_some() => "of the size that the test asks for",
        true if !is_tuned() => "as large as it was seen",
        _ => ceiling,
    };
    let rate = show_bit_rate(bits_per_s);
    let text = match limit {
        // Where no host tells of a limiter, a rate that streams reached does not either.
        Limit::Shaper | Limit::Policer if opinion.end.is_none() => {
            format!("all streams together reached {rate}; what stopped them was not tested")
        }
        _ => format!("{title}{place}: {ceiling}, {rate}"),
    };
    NextCeiling { limit, bits_per_s, text }
}

/// The highest throughput of the judged test with another window, experiments excepted; bit/s. 0 if `limit`
/// is no window or no other window was tried.
fn reached_by_windows(seen: &Observed<'_>, limit: Limit) -> f64 {
    let judged = seen.spec;
    let is_swept = |spec: &TestSpec| {
        let TestSpec { limit, omit_s, interval_s, latency_under_load, .. } = judged.clone();
        let window_bytes = judged.window_bytes;
        let same = TestSpec {
            window_bytes,
            limit,
            omit_s,
            interval_s,
            latency_under_load,
            ..spec.clone()
        };
        spec.window_bytes != judged.window_bytes && same == *judged
    };
    let points = seen.results().points.iter().filter(|point| !point.is_confirmation());
    let rates = points.filter(|point| is_window(limit) && point.spec().is_some_and(is_swept));
    let rate = |point: &Point| {
        let ways = &point.measured()?.directions;
        positive(ways.iter().find(|way| way.direction == judged.direction)?.received_bits_per_s)
    };
    rates.filter_map(rate).fold(0.0, f64::max)
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
        .filter(|(candidate, _)| candidate.is_suspected())
        .reduce(|best, other| if other.0.weight > best.0.weight { other } else { best });
    match best {
        Some((candidate, undecided)) => {
            let why = match undecided {
                Some(undecided) => format!("not confirmed: {}", undecided.why),
                None => why_untried(diagnosis, candidate),
            };
            let summary = format!("{}; {why}", headline(candidate));
            let confirmation = undecided.and_then(|undecided| undecided.confirmation.clone());
            Verdict { summary, ..of_candidate(diagnosis, candidate, confirmation) }
        }
        None => none_found(diagnosis),
    }
}

/// Why a candidate that no experiment was run for is not confirmed.
fn why_untried(diagnosis: &Diagnosis, candidate: &Candidate) -> String {
    let is_first = diagnosis.best() == Some(candidate);
    let stays = |other: &Other| {
        let mut experiments = candidate.experiments.iter();
        experiments.all(|experiment| diagnosis.not_told_apart(experiment).contains(other))
    };
    let rival = diagnosis.rivals().into_iter().find(stays);
    match rival {
        Some(rival) if is_first => {
            format!("no experiment distinguishes it from {}", title(rival.limit))
        }
        _ => "no experiment tested it".to_owned(),
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
    let mut weaker: Vec<&Candidate> = others.filter(|other| other.limit != limit).collect();
    weaker.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let weaker = weaker.into_iter().enumerate().map(|(behind, other)| Evidence {
        limit: other.limit,
        text: why_behind(behind, other, candidate),
        weight: other.weight,
    });
    let advice = candidate.advice.iter().filter(|one| !one.is_refuted(&diagnosis.fruitless));
    // One that was only worth a trial stands there too.
    let ruled_out = diagnosis.ruled_out.iter().filter(|evidence| evidence.limit != limit);
    Verdict {
        limit,
        end,
        summary: String::new(),
        evidence,
        confirmed: false,
        confirmation,
        host_change: candidate.host_change.clone(),
        changes: candidate.changes.clone(),
        advice: advice.map(|advice| advice.text.clone()).collect(),
        next: candidate.next.clone(),
        ruled_out: weaker.chain(ruled_out.cloned()).collect(),
    }
}

/// Why a candidate stands behind the first one: what speaks for it, and what against it. `behind` is 0 for the
/// second.
fn why_behind(behind: usize, other: &Candidate, first: &Candidate) -> String {
    let rank = if behind == 0 { "second" } else { "less likely" };
    let sign = other.evidence.first().map_or("", String::as_str);
    let against = match other.doubt {
        Some(doubt) => format!("against it: {doubt}"),
        None if other.weight < first.weight => {
            format!("the figures speak more directly for {}", title(first.limit))
        }
        // An experiment set the first apart, or nothing did.
        None => format!("the figures do not distinguish it from {}", title(first.limit)),
    };
    format!("{rank}: {sign}; {against}")
}

/// A limit in a sentence.
pub(crate) fn title(limit: Limit) -> &'static str {
    mechanism::of(limit).map_or(limit.name(), |mechanism| mechanism.page().title)
}

/// A verdict with its advice alone: no evidence, no experiment, nothing ruled out.
pub(crate) fn unproven(
    limit: Limit,
    end: Option<End>,
    summary: String,
    advice: Vec<String>,
) -> Verdict {
    Verdict {
        limit,
        end,
        summary,
        evidence: Vec::new(),
        confirmed: false,
        confirmation: None,
        host_change: None,
        changes: Vec::new(),
        advice,
        next: None,
        ruled_out: Vec::new(),
    }
}

fn none_found(diagnosis: &Diagnosis) -> Verdict {
    let (summary, advice) = match diagnosis.measured {
        Some(measured) => (
            format!("nothing measured explains {}", show_bit_rate(measured.median)),
            more_to_measure(diagnosis),
        ),
        None => {
            ("no TCP transfer was measured, so there is nothing to judge".to_owned(), Vec::new())
        }
    };
    let shown = diagnosis.shown.iter().map(|text| Evidence {
        limit: Limit::NoneFound,
        text: text.clone(),
        weight: 0.0,
    });
    let (evidence, ruled_out) = (shown.collect(), diagnosis.ruled_out.clone());
    Verdict { evidence, ruled_out, ..unproven(Limit::NoneFound, None, summary, advice) }
}

/// What would tell more than the measurement did.
fn more_to_measure(diagnosis: &Diagnosis) -> Vec<String> {
    // Neither length nor repeats tell of an end that tells nothing.
    let advice = if diagnosis.is_far_end_known {
        "measure longer and with more repeats"
    } else {
        "run `clearstream serve` at the far end, so that its threads and counters are recorded too"
    };
    vec![advice.to_owned()]
}

fn headline(candidate: &Candidate) -> String {
    bound_by(candidate.limit, candidate.end, candidate.evidence.first().map(String::as_str))
}

/// Text of a limit, with its end and its strongest line of evidence:
/// `bound by the receive window at the far end: receive-window-limited 97% …`.
pub(crate) fn bound_by(limit: Limit, end: Option<End>, evidence: Option<&str>) -> String {
    let title = title(limit);
    let place = match end {
        Some(End::Near) => " at the near end",
        Some(End::Far) => " at the far end",
        None => "",
    };
    let evidence = evidence.map(|line| format!(": {line}")).unwrap_or_default();
    format!("bottleneck: {title}{place}{evidence}")
}
