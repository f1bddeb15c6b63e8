//! How far a recording of another program carries a verdict: one of a few packets carries none, and one
//! that is damaged or brief is named as such.

use results::{Finding, Limit, Results, StreamEnd, TestOutcome, Verdict};
use units::show_seconds;

use crate::verdict;

/// Least number of full segments, and of round trips, in which a limit can show itself: TCP's ramp takes
/// most of fewer.
const SEGMENTS_MIN: f64 = 100.0;
const ROUND_TRIPS_MIN: f64 = 5.0;
/// Below this, what was seen may be a moment of a longer transfer, seconds.
const BRIEF_S: f64 = 1.0;
/// Payload of a segment on Ethernet, where the recording does not tell it, bytes.
const SEGMENT_BYTES: f64 = 1448.0;

/// The verdict that there can be none, for a recording of too little.
pub(crate) fn withheld(results: &Results) -> Option<Verdict> {
    let outcome = recorded(results)?;
    let (segments, round_trips) = (segments(outcome), round_trips(outcome));
    if segments >= SEGMENTS_MIN && round_trips.is_none_or(|count| count >= ROUND_TRIPS_MIN) {
        return None;
    }
    let count = units::saturating_u64;
    let trips = round_trips.map_or_else(String::new, |trips| {
        format!(", round trips: {} of at least {ROUND_TRIPS_MIN}", count(trips))
    });
    let summary = format!(
        "no verdict: {} is too little to judge (full segments: {} of at least {SEGMENTS_MIN}{trips})",
        show_seconds(outcome.duration_s),
        count(segments)
    );
    let advice = "record several seconds of the transfer".to_owned();
    Some(verdict::unproven(Limit::NoneFound, None, summary, vec![advice]))
}

/// The verdict, with what weakens it.
pub(crate) fn qualified(results: &Results, verdict: Verdict) -> Verdict {
    let Some(outcome) = recorded(results) else { return verdict };
    let mut summary = verdict.summary;
    if verdict.limit == Limit::NoneFound && !results.absent.is_empty() {
        // What else it lacks stands below the verdict, with the reasons.
        let lacks = &results.absent[0].what;
        summary.push_str(&format!("; the file lacks {lacks}"));
    }
    let has = |code: &str| results.findings.iter().any(|finding| finding.code == code);
    if has(Finding::BOUNDED) {
        let part = format!("; of the transfer's first {} only", show_seconds(outcome.duration_s));
        summary.push_str(&part);
    } else if outcome.duration_s < BRIEF_S {
        let rests = format!("; it rests on {} only", show_seconds(outcome.duration_s));
        summary.push_str(&rests);
    }
    if has(Finding::DAMAGE) {
        summary.push_str("; the file is damaged, so it holds only for the part that was read");
    }
    Verdict { summary, ..verdict }
}

fn recorded(results: &Results) -> Option<&TestOutcome> {
    // A recording is of any length; a test of this program is as long as its plan.
    results.recorder()?;
    results.points.first()?.measured()
}

fn streams(outcome: &TestOutcome) -> impl Iterator<Item = &StreamEnd> {
    outcome.hosts.iter().flat_map(|host| &host.account.streams)
}

fn segments(outcome: &TestOutcome) -> f64 {
    let bytes: u64 = outcome.directions.iter().map(|way| way.sent_bytes).sum();
    let told = streams(outcome).find_map(|stream| stream.tcp.as_ref()).map(|tcp| tcp.mss_bytes);
    let segment_bytes = told.filter(|bytes| *bytes > 0).map_or(SEGMENT_BYTES, f64::from);
    bytes as f64 / segment_bytes
}

fn round_trips(outcome: &TestOutcome) -> Option<f64> {
    let sample = streams(outcome).find_map(|stream| stream.tcp.as_ref()).map(|tcp| &tcp.last)?;
    let rtt_s = crate::numbers::positive(sample.rtt_min_s.unwrap_or(sample.rtt_s))?;
    Some(outcome.duration_s / rtt_s)
}
