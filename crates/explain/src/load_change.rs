//! Whether a change between two runs of file-system load confirms the verdict of the first one.

use results::{Limit, Point, Results, Verdict};

/// How the rates of the phases changed, by a test that knows the noise of their repeats.
#[derive(Debug, Clone, Copy)]
pub struct LoadRates<'a> {
    /// Phases whose rate rose beyond the noise.
    pub risen: &'a [&'a str],
    /// Phases whose rate fell beyond the noise.
    pub fallen: &'a [&'a str],
    /// Whether any phase has enough repeats to tell a difference.
    pub can_tell: bool,
    /// Whether no phase was asked for alike in both runs, though the verdict is not lifted by other settings.
    pub has_other_settings: bool,
}

/// What a second run says of the verdict of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadTrial {
    /// The rates changed as the verdict lets expect.
    Confirmed,
    /// They did not.
    NotConfirmed,
    /// The repeats are too few to tell.
    TooFewRepeats,
    /// The settings of the load differ, and the limit is none that they lift.
    OtherSettings,
    /// The first run names no limit, so that there is nothing to confirm.
    NoLimit,
}

impl LoadTrial {
    /// For programs: `confirmed`, `not-confirmed`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::NotConfirmed => "not-confirmed",
            Self::TooFewRepeats => "too-few-repeats",
            Self::OtherSettings => "other-settings",
            Self::NoLimit => "no-limit",
        }
    }
}

/// Whether other settings of a load are among what lifts a limit of it: its ranks, its transfers, its way around a
/// cache. Gateways and servers do not gain from them.
#[must_use]
pub fn is_lifted_by_settings(limit: Limit) -> bool {
    !matches!(limit, Limit::Gateway | Limit::StorageServer)
}

/// Whether a document holds what a verdict on file-system load rests on: counters of gateways.
#[must_use]
pub fn has_load_verdict(results: &Results) -> bool {
    results.points.iter().filter_map(Point::crossing).next().is_some()
}

/// Judges `verdict`, that of `before`, by how the rates changed in `after`, and says it in words. A cache that no longer
/// answers leaves lower rates; any other limit that was lifted leaves higher ones. The size of the change is not
/// judged, as nothing predicts it.
#[must_use]
pub fn confirm_load_change(
    before: &Results,
    verdict: Verdict,
    after: &Results,
    rates: &LoadRates<'_>,
) -> (Verdict, LoadTrial, String) {
    let (seen, name) = (seen(rates), verdict.limit.name());
    if verdict.limit == Limit::NoneFound || !has_load_verdict(before) {
        let why = match has_load_verdict(before) {
            true => "names no limit",
            false => "holds no counters of gateways (`--gateways PLAN`) that would name a limit",
        };
        let words = format!("{seen}; nothing is confirmed by it, as the first file {why}");
        return (verdict, LoadTrial::NoLimit, words);
    }
    let is_cache = verdict.limit == Limit::FileCache;
    let is_still_cached =
        is_cache && has_load_verdict(after) && crate::explain(after).limit == Limit::FileCache;
    let (wanted, unwanted, expected) = match (is_cache, is_still_cached) {
        (true, true) => (rates.fallen, rates.risen, "a cache answered in the second file too"),
        (true, false) => (rates.fallen, rates.risen, "without the cache the rates fall"),
        (false, _) => (
            rates.risen,
            rates.fallen,
            "lifting the limit makes something faster and nothing slower",
        ),
    };
    let is_as_expected = !wanted.is_empty() && unwanted.is_empty() && !is_still_cached;
    let trial = match (rates.has_other_settings, rates.can_tell, is_as_expected) {
        (true, _, _) => LoadTrial::OtherSettings,
        (false, false, _) => LoadTrial::TooFewRepeats,
        (false, true, true) => LoadTrial::Confirmed,
        (false, true, false) => LoadTrial::NotConfirmed,
    };
    let words = match trial {
        LoadTrial::Confirmed => format!("{name} confirmed by the change: {seen}"),
        LoadTrial::NotConfirmed => {
            format!("{name} not confirmed by the change: {seen}; {expected}")
        }
        LoadTrial::OtherSettings => format!(
            "{name} neither confirmed nor refuted: the settings of the load differ, which may be all that changed \
             its rates"
        ),
        LoadTrial::TooFewRepeats | LoadTrial::NoLimit => {
            format!("{name} neither confirmed nor refuted: {seen}")
        }
    };
    let verdict = match trial {
        LoadTrial::Confirmed => {
            let summary = format!("{}; {words}", verdict.summary);
            Verdict { confirmed: true, summary, ..verdict }
        }
        _ => verdict,
    };
    (verdict, trial, words)
}

fn seen(rates: &LoadRates<'_>) -> String {
    if !rates.can_tell {
        return "too few repeats to tell any difference (it takes four in both files, `-i 4`)"
            .to_owned();
    }
    match (rates.risen, rates.fallen) {
        ([], []) => "no rate changed beyond the noise".to_owned(),
        (risen, []) => format!("faster beyond the noise: {}", risen.join(", ")),
        ([], fallen) => format!("slower beyond the noise: {}", fallen.join(", ")),
        (risen, fallen) => {
            let (risen, fallen) = (risen.join(", "), fallen.join(", "));
            format!("faster beyond the noise: {risen}; slower: {fallen}")
        }
    }
}
