//! `explain --after` of a path: what changed between the two files, and whether that confirms the verdict.

use std::fmt::Write;

use compare::{HostChange, Run};
use explain::HostChangeError;
use results::{AppliedChange, Limit, Results, SettingChange, Verdict};
use serde::Serialize;

use super::load::changed_lines;
use crate::granted::end_name;
use crate::verdict_text::wrapped;

/// Facts that tell which host and program it is, and cannot make a path faster.
const IDENTITY: [&str; 2] = ["host name", "clearstream"];

/// What the results after a change say.
#[derive(Debug, Serialize)]
pub(super) struct After {
    /// What is known of the hosts and the path and is not the same in both files.
    host_changes: Vec<HostChange>,
    /// `confirmed`, `refuted` or `inconclusive`.
    trial: &'static str,
    /// The reason in words.
    words: String,
}

/// Judges `verdict`, that of `before`, by `after`. Files that record no change of a host, the path or the test neither
/// confirm nor refute it.
pub(super) fn judge(
    verdict: Verdict,
    before: &Results,
    after: &Results,
) -> Result<(Verdict, After), HostChangeError> {
    if let Some(tried) = tried(&verdict, after) {
        return Ok(tried);
    }
    let [a, b] = [before, after].map(|results| [Run::of("", results)]);
    let host_changes = compare::compare(("before", &a), ("after", &b)).host_changes;
    let judged = explain::confirm_host_change(before, verdict.clone(), after)?;
    let outcome = judged.confirmation.as_ref().map_or("", |one| one.outcome.as_str());
    // What only one file tells is no change.
    let is_known = |change: &HostChange| !change.a.is_empty() && !change.b.is_empty();
    let is_change = |change: &HostChange| !IDENTITY.contains(&change.fact.as_str());
    let is_recorded = host_changes.iter().any(|change| is_known(change) && is_change(change))
        || explain::window_asked(before) != explain::window_asked(after)
        || quotas(before) != quotas(after);
    if verdict.limit == Limit::NoneFound {
        let words = format!("the verdict of the first file names no bottleneck: {outcome}");
        return Ok((verdict, After { host_changes, trial: "inconclusive", words }));
    }
    if !is_recorded {
        let same = if host_changes.is_empty() {
            "the two files record the same hosts, path and test"
        } else {
            "what both files record of the hosts, the path and the test is the same"
        };
        let words = format!("{same}, so it is unknown what was changed: {outcome}");
        return Ok((verdict, After { host_changes, trial: "inconclusive", words }));
    }
    // An experiment may have confirmed it before: what counts here is the change alone.
    let unproven = Verdict { confirmed: false, ..verdict };
    let helped = explain::confirm_host_change(before, unproven, after)?.confirmed;
    let trial = if helped { "confirmed" } else { "refuted" };
    let words = outcome.to_owned();
    Ok((judged, After { host_changes, trial, words }))
}

/// Judges the verdict by the trial of its own change that `after` holds: `tune apply` measured with and without it, in
/// turns, and the other tests of its file are from before the change.
fn tried(verdict: &Verdict, after: &Results) -> Option<(Verdict, After)> {
    let is_advised = |record: &&AppliedChange| {
        let is_it = |change: &SettingChange| change.end == record.end && change.key == record.key;
        verdict.changes.iter().any(is_it)
    };
    let mut measured = after
        .changes
        .iter()
        .filter(is_advised)
        .filter_map(|record| Some((record, explain::trial(record)?)));
    let (record, (confirmation, helped)) = measured.next()?;
    let words = format!(
        "{}; measured by `tune apply`, with and without the change in turns",
        confirmation.outcome
    );
    let change = HostChange {
        host: end_name(record.end).to_owned(),
        fact: record.key.clone(),
        a: vec![record.from.clone()],
        b: vec![record.to.clone()],
    };
    let trial = if helped { "confirmed" } else { "refuted" };
    let judged = explain::with_trial(verdict.clone(), confirmation, helped);
    Some((judged, After { host_changes: vec![change], trial, words }))
}

/// Processor quotas of the ends of each test, which are no facts of a host.
fn quotas(results: &Results) -> Vec<(String, f64)> {
    let outcomes = results.points.iter().filter_map(|point| point.measured());
    let ends = outcomes.flat_map(|outcome| &outcome.hosts);
    let quotas = ends.filter_map(|host| host.account.counters.quota.as_ref());
    let mut all: Vec<(String, f64)> =
        quotas.map(|quota| (quota.group.clone(), quota.cores)).collect();
    all.dedup();
    all
}

/// The lines below the verdict.
pub(super) fn show(after: &After) -> String {
    let mut out = String::from("\n");
    // Writing to a String cannot fail.
    wrapped(&mut out, "After    ", &format!("{}: {}", after.trial, after.words)).ok();
    changed_lines(&mut out, &after.host_changes).ok();
    if after.host_changes.is_empty() {
        writeln!(out, "Changed  no recorded fact about the hosts or the path").ok();
    }
    out
}

#[cfg(test)]
mod tests {
    use results::{End, Estimate, Evidence, RunKind};

    use super::*;

    /// A file of `tune apply`: measured before the change, with a trial of it.
    #[test]
    fn the_trial_of_the_advised_change_judges_the_verdict() {
        let key = "net.ipv4.tcp_rmem".to_owned();
        let advised = SettingChange {
            end: End::Far,
            key: key.clone(),
            from: Some("4096 65536 262144".to_owned()),
            to: "4096 65536 9699328".to_owned(),
            why: String::new(),
            source: String::new(),
            predicted_bits_per_s: None,
        };
        let evidence = Evidence {
            limit: Limit::ReceiveWindow,
            text: "196 KiB in flight".to_owned(),
            weight: 0.9,
        };
        let verdict = Verdict {
            limit: Limit::ReceiveWindow,
            end: Some(End::Far),
            summary: String::new(),
            evidence: vec![evidence],
            confirmed: false,
            confirmation: None,
            host_change: None,
            changes: vec![advised],
            advice: Vec::new(),
            next: None,
            ruled_out: Vec::new(),
        };
        let of = |key: &str, is_kept| {
            let record = AppliedChange {
                end: End::Far,
                key: key.to_owned(),
                from: "4096 65536 262144".to_owned(),
                to: "4096 65536 9699328".to_owned(),
                why: None,
                source: None,
                predicted_bits_per_s: Some(941e6),
                before: Estimate::of(&[78e6]),
                after: Estimate::of(&[851e6]),
                is_kept: Some(is_kept),
                outcome: Some("78.0 Mbit/s -> 851 Mbit/s (+991%); kept".to_owned()),
            };
            Results { changes: vec![record], ..Results::begun(RunKind::Tune, 0) }
        };
        let (judged, after) = tried(&verdict, &of(&key, true)).expect("its change was tried");
        assert!(judged.confirmed, "{judged:?}");
        assert_eq!(after.trial, "confirmed");
        let told = show(&after).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("After confirmed: 78.0 Mbit/s -> 851 Mbit/s"), "{told}");
        assert!(told.contains("Changed far net.ipv4.tcp_rmem: 4096 65536 262144 -> "), "{told}");
        let (judged, after) = tried(&verdict, &of(&key, false)).expect("its change was tried");
        assert!(!judged.confirmed && after.trial == "refuted", "{judged:?}");
        assert!(tried(&verdict, &of("net.ipv4.tcp_wmem", true)).is_none(), "another change");
    }
}
