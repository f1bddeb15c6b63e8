//! `explain --after` of file-system load: whether its rates changed beyond the noise of the repeats, and whether
//! that is what the verdict lets expect.

use std::fmt::Write;

use compare::{ComparedFigure, HostChange, JudgedBy, Outcome, Run};
use explain::LoadRates;
use results::{Results, Verdict};
use serde::Serialize;

use crate::verdict_text::wrapped;

/// Rates of phases of `io` and `meta`, by which they are judged.
const RATES: [&str; 2] = ["moved_bytes_per_s", "items_per_s"];

/// Facts of hosts that are listed.
const CHANGES_MAX: usize = 12;

/// What the results after a change say.
#[derive(Debug, Serialize)]
pub(super) struct After {
    /// The rates of each phase that both files have.
    rates: Vec<ComparedFigure>,
    /// What is known of the hosts and is not the same in both files.
    host_changes: Vec<HostChange>,
    /// What follows from it.
    trial: &'static str,
    /// It in words.
    words: String,
    /// The verdict of the second file; absent where no gateway's counters are in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
}

/// Compares two loads, and judges `verdict`, that of the first one, by the second; `None` where they have no phase in
/// common.
pub(super) fn judge(
    verdict: Verdict,
    before: &Results,
    after: &Results,
) -> Option<(Verdict, After)> {
    let [a, b] = [before, after].map(|results| [Run::of("", results)]);
    let compared = compare::compare(("before", &a), ("after", &b));
    let is_rate = |figure: &ComparedFigure| RATES.contains(&figure.figure.as_str());
    let rates: Vec<ComparedFigure> = compared.figures.into_iter().filter(is_rate).collect();
    if rates.is_empty() {
        return None;
    }
    let lifts = explain::is_lifted_by_settings(verdict.limit);
    let judged: Vec<&ComparedFigure> =
        rates.iter().filter(|rate| lifts || rate.is_alike()).collect();
    let names = |outcome: Outcome| -> Vec<&str> {
        let with = judged.iter().filter(|rate| rate.outcome == outcome);
        with.map(|rate| rate.setting.as_str()).collect()
    };
    let seen = LoadRates {
        risen: &names(Outcome::Better),
        fallen: &names(Outcome::Worse),
        can_tell: judged.iter().any(|rate| {
            rate.outcome != Outcome::TooFew && rate.judged_by != Some(JudgedBy::Spread)
        }),
        has_other_settings: judged.is_empty(),
    };
    let (verdict, trial, words) = explain::confirm_load_change(before, verdict, after, &seen);
    let after = After {
        verdict: explain::has_load_verdict(after).then(|| explain::explain(after)),
        rates,
        host_changes: compared.host_changes,
        trial: trial.name(),
        words,
    };
    Some((verdict, after))
}

/// The lines below the verdict.
pub(super) fn show(after: &After) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    lines(&mut out, after).ok();
    out
}

fn lines(out: &mut String, after: &After) -> std::fmt::Result {
    writeln!(out)?;
    wrapped(out, "After    ", &after.words)?;
    for rate in &after.rates {
        wrapped(out, "       - ", &rate_line(rate))?;
        if !rate.is_alike() {
            wrapped(out, "         ", &rate.differing_words())?;
        }
    }
    changed_lines(out, &after.host_changes)?;
    let is_unchanged =
        after.host_changes.is_empty() && after.rates.iter().all(ComparedFigure::is_alike);
    if is_unchanged {
        writeln!(out, "Changed  no recorded fact about the hosts, the path or the settings")?;
    }
    if let Some(verdict) = &after.verdict {
        wrapped(out, "Then     ", &format!("{}: {}", verdict.limit.name(), verdict.summary))?;
    }
    Ok(())
}

/// What differs between the two files, a line each.
pub(super) fn changed_lines(out: &mut String, changes: &[HostChange]) -> std::fmt::Result {
    for change in changes.iter().take(CHANGES_MAX) {
        let (HostChange { host, fact, .. }, [a, b]) = (change, change.shown());
        wrapped(out, "Changed  ", &format!("{host} {fact}: {a} -> {b}"))?;
    }
    match changes.len().saturating_sub(CHANGES_MAX) {
        0 => Ok(()),
        more => writeln!(out, "         and {more} more facts: clearstream compare lists them"),
    }
}

fn rate_line(rate: &ComparedFigure) -> String {
    let outcome = match rate.outcome {
        Outcome::Better => "risen beyond the noise",
        Outcome::Worse => "fallen beyond the noise",
        Outcome::Different => "different beyond the noise",
        Outcome::Indistinguishable => "within the noise",
        Outcome::TooFew => "too few repeats to tell",
    };
    format!(
        "{} ({}, interval {}, n {}, {}): {outcome}",
        rate.shown_medians(),
        rate.shown_difference(),
        rate.shown_interval(),
        rate.a.count,
        rate.b.count
    )
}
