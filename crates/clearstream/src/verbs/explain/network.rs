//! `explain --after` of a path: what changed between the two files, and whether that confirms the verdict.

use std::fmt::Write;

use compare::{HostChange, Run};
use explain::HostChangeError;
use results::{Limit, Results, Verdict};
use serde::Serialize;

use super::load::changed_lines;
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
        let words = format!("{same}, so nothing tells what was changed: {outcome}");
        return Ok((verdict, After { host_changes, trial: "inconclusive", words }));
    }
    // An experiment may have confirmed it before: what counts here is the change alone.
    let unproven = Verdict { confirmed: false, ..verdict };
    let helped = explain::confirm_host_change(before, unproven, after)?.confirmed;
    let trial = if helped { "confirmed" } else { "refuted" };
    let words = outcome.to_owned();
    Ok((judged, After { host_changes, trial, words }))
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
        writeln!(out, "Changed  no fact of the hosts or the path that the files record").ok();
    }
    out
}
