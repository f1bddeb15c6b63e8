//! Judges whether a change made to a host confirms the verdict that advised it.

use std::fmt;

use results::{
    AppliedChange, Confirmation, Estimate, Evidence, Limit, Results, Ruling, TestSpec, Verdict,
};
use units::{show_bit_rate, show_byte_size};

use crate::diagnosis::opinions;
use crate::numbers::{percent, ratio};
use crate::observed::{Observed, end_name};
use crate::verdict::bound_by;
use crate::wanted::Wanted;

/// Smallest gain that is not noise, as a share.
const NOISE_MIN: f64 = 0.04;

/// Why two documents cannot show whether a change helped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostChangeError {
    /// The verdict advises no change.
    NothingAdvised,
    /// Both documents hold the same tests.
    SameTests,
    /// The second document is of an earlier run than the first.
    NotLater,
    /// The judged test is not in both documents.
    NoCommonTest,
    /// The host still has the former value.
    NotMade {
        /// The end: `near` or `far`.
        end: &'static str,
        /// Name of the setting.
        key: String,
        /// Its value in both documents.
        value: String,
    },
}

impl fmt::Display for HostChangeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingAdvised => write!(out, "the verdict of the first file advises no change"),
            Self::SameTests => {
                write!(
                    out,
                    "it holds the same tests as the first file: name one that was measured after the change"
                )
            }
            Self::NotLater => {
                write!(out, "it was measured before the first file: name the earlier file first")
            }
            Self::NoCommonTest => {
                write!(out, "the two files have no test in common, so nothing can be compared")
            }
            Self::NotMade { end, key, value } => {
                write!(
                    out,
                    "the change was not made: {key} at the {end} end is '{value}' in both files"
                )
            }
        }
    }
}

impl std::error::Error for HostChangeError {}

/// Refuses a document `after` that cannot show the effect of a change made after `before` was measured.
/// Recordings that do not tell when they were taken (0) are taken for later ones.
///
/// # Errors
/// [`HostChangeError::SameTests`], [`HostChangeError::NotLater`].
pub fn check_later(before: &Results, after: &Results) -> Result<(), HostChangeError> {
    if before.points == after.points {
        return Err(HostChangeError::SameTests);
    }
    let (was, is) = (before.started_unix_ms, after.started_unix_ms);
    if was > is && is > 0 { Err(HostChangeError::NotLater) } else { Ok(()) }
}

/// The window that the judged test of a document asks for, bytes.
#[must_use]
pub fn window_asked(results: &Results) -> Option<u64> {
    Observed::of(results)?.spec.window_bytes
}

/// Judges `verdict`, which comes from `before` and advises a change to a host, by the same test run
/// after that change.
///
/// # Errors
/// [`HostChangeError`] if the documents cannot show it.
pub fn confirm_host_change(
    before: &Results,
    verdict: Verdict,
    after: &Results,
) -> Result<Verdict, HostChangeError> {
    let advised = advised(&verdict).ok_or(HostChangeError::NothingAdvised)?;
    let seen = Observed::of(before).zip(Observed::of(after));
    let (was, is) = seen.ok_or(HostChangeError::NoCommonTest)?;
    let change = match window_change(&verdict, was.spec, is.spec) {
        Some(change) => change,
        None if is_alike(was.spec, is.spec) => made(&verdict, &is).map(|()| advised)?,
        None => return Err(HostChangeError::NoCommonTest),
    };
    let predicted =
        predicted(&verdict).unwrap_or_else(|| Wanted::of(&was, &opinions(&was), None).bits_per_s);
    let (old, new) = (was.goodput, is.goodput);
    let gain = ratio(new.median, old.median).ok_or(HostChangeError::NoCommonTest)? - 1.0;
    let noise = (spread(&old) + spread(&new)).clamp(NOISE_MIN, 1.0);
    let outcome = format!(
        "{} -> {} ({}{}), up to {} predicted; noise {}",
        show_bit_rate(old.median),
        show_bit_rate(new.median),
        if gain < 0.0 { "" } else { "+" },
        percent(gain),
        show_bit_rate(predicted),
        percent(noise)
    );
    let confirmation = Confirmation {
        change,
        predicted_bits_per_s: predicted,
        before_bits_per_s: old.median,
        after_bits_per_s: new.median,
        outcome,
        ..Confirmation::default()
    };
    Ok(with_trial(verdict, confirmation, gain > noise))
}

/// The verdict, extended by the outcome of the host change it advised; `helped`: the gain exceeds the noise.
#[must_use]
pub fn with_trial(verdict: Verdict, confirmation: Confirmation, helped: bool) -> Verdict {
    let outcome = &confirmation.outcome;
    let word = match (helped, verdict.confirmed) {
        (true, _) => "confirmed by the change to the host",
        (false, true) => "confirmed by experiment, but the change to the host did not lift it",
        (false, false) => "refuted by the change to the host",
    };
    let strongest = verdict.evidence.first().map(|evidence| evidence.text.as_str());
    let summary = format!("{}; {word}: {outcome}", bound_by(verdict.limit, verdict.end, strongest));
    let mut ruled_out = verdict.ruled_out;
    let confirmed = helped || verdict.confirmed;
    let ruling = match (helped, verdict.confirmed) {
        (true, _) => Ruling::Confirmed,
        (false, true) => Ruling::Inconclusive,
        (false, false) => Ruling::Refuted,
    };
    if !confirmed {
        let text = format!("{word}: {outcome}");
        ruled_out.insert(0, Evidence { limit: verdict.limit, text, weight: 0.0 });
    }
    Verdict {
        summary,
        confirmed,
        confirmation: Some(Confirmation { ruling: Some(ruling), ..confirmation }),
        host_change: None,
        ruled_out,
        ..verdict
    }
}

/// What `tune apply` measured of a change, and whether it helped; `None` if it was not measured.
#[must_use]
pub fn trial(record: &AppliedChange) -> Option<(Confirmation, bool)> {
    let AppliedChange { end, key, from, to, .. } = record;
    let confirmation = Confirmation {
        change: format!("{key} at the {} end: {from} -> {to}", end_name(*end)),
        predicted_bits_per_s: record.predicted_bits_per_s?,
        before_bits_per_s: record.before?.median,
        after_bits_per_s: record.after?.median,
        outcome: record.outcome.clone()?,
        ..Confirmation::default()
    };
    Some((confirmation, record.is_kept == Some(true)))
}

/// Describes the change that a verdict advises.
fn advised(verdict: &Verdict) -> Option<String> {
    if let Some(change) = &verdict.host_change {
        return Some(change.command.clone());
    }
    let changes = verdict.changes.iter().map(|change| {
        let from = change.from.as_deref().map_or_else(String::new, |from| format!("{from} -> "));
        format!("{} at the {} end: {from}{}", change.key, end_name(change.end), change.to)
    });
    let changes: Vec<String> = changes.collect();
    // Advice alone is no record of what was done.
    let followed =
        |advice: &String| format!("whatever was changed between the two files (advised: {advice})");
    if changes.is_empty() { verdict.advice.first().map(followed) } else { Some(changes.join("; ")) }
}

/// Throughput predicted for the advised change, bit/s.
fn predicted(verdict: &Verdict) -> Option<f64> {
    let of_changes = verdict.changes.iter().filter_map(|change| change.predicted_bits_per_s);
    let of_host = verdict.host_change.as_ref().map(|change| change.predicted_bits_per_s);
    of_host.or_else(|| of_changes.max_by(f64::total_cmp))
}

/// Fails if every advised setting still has its former value.
fn made(verdict: &Verdict, after: &Observed<'_>) -> Result<(), HostChangeError> {
    let words = |text: &str| text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let left = verdict.changes.iter().map(|change| {
        let now = words(after.sysctl(change.end, &change.key)?);
        let is_left = change.from.as_deref().is_some_and(|from| words(from) == now);
        let end = end_name(change.end);
        is_left.then(|| HostChangeError::NotMade { end, key: change.key.clone(), value: now })
    });
    match left.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next()) {
        Some(first) => Err(first),
        None => Ok(()),
    }
}

/// Describes a change of the test's window, if nothing else differs and the limit is a window or buffer.
fn window_change(verdict: &Verdict, was: &TestSpec, is: &TestSpec) -> Option<String> {
    let is_of_window = matches!(verdict.limit, Limit::ReceiveWindow | Limit::SendBuffer);
    let rest = TestSpec { window_bytes: is.window_bytes, ..was.clone() };
    if !is_of_window || was.window_bytes == is.window_bytes || !is_alike(&rest, is) {
        return None;
    }
    let show = |bytes: Option<u64>| bytes.map_or_else(|| "none".to_owned(), show_byte_size);
    let [was, is] = [was.window_bytes, is.window_bytes].map(show);
    Some(format!("window asked for by the test: {was} -> {is}"))
}

/// Whether two tests are the same apart from their length, sampling and latency probes.
fn is_alike(one: &TestSpec, other: &TestSpec) -> bool {
    let TestSpec { limit, omit_s, interval_s, latency_under_load, .. } = other.clone();
    TestSpec { limit, omit_s, interval_s, latency_under_load, ..one.clone() } == *other
}

/// Relative uncertainty: half the interval over the median; 5% for a single run.
fn spread(estimate: &Estimate) -> f64 {
    match estimate.count {
        0 | 1 => 0.05,
        _ => ratio((estimate.high - estimate.low) / 2.0, estimate.median).unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use results::{Point, PointOutcome, RunKind, Work};

    use super::*;

    fn document(started_unix_ms: u64, tests: u64) -> Results {
        let point = |started_unix_ms| Point {
            experiment: "test".to_owned(),
            varied: Default::default(),
            repeat: 0,
            started_unix_ms,
            command: String::new(),
            work: Work::Bulk(TestSpec::tcp()),
            by: Vec::new(),
            outcome: PointOutcome::Failed("refused".to_owned()),
        };
        let points = (0..tests).map(|number| point(started_unix_ms + number)).collect();
        Results { points, ..Results::begun(RunKind::Test, started_unix_ms) }
    }

    #[test]
    fn only_a_later_run_shows_the_effect_of_a_change() {
        let before = document(1000, 2);
        assert_eq!(check_later(&before, &before), Err(HostChangeError::SameTests));
        assert_eq!(check_later(&before, &document(999, 2)), Err(HostChangeError::NotLater));
        assert_eq!(check_later(&before, &document(1001, 2)), Ok(()));
        assert_eq!(check_later(&before, &document(0, 1)), Ok(()), "a recording without a time");
    }

    #[test]
    fn advice_is_not_taken_for_what_was_changed() {
        let advice = vec!["shorten the path".to_owned()];
        let verdict = crate::verdict::unproven(Limit::Loss, None, String::new(), advice);
        let told = advised(&verdict).expect("advice");
        assert_eq!(told, "whatever was changed between the two files (advised: shorten the path)");
    }
}
