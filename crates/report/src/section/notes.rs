//! What was noticed, what could not be measured, what was changed, and how to read the figures.

use std::collections::BTreeMap;

use results::{End, EndReport, Finding};

use super::{Section, load, prose};
use crate::digest::Digest;
use crate::markup::{Element, el};
use crate::show;
use crate::table::Table;

/// Findings listed at most.
const FINDINGS_MAX: usize = 200;

/// Findings, absences and changes.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    let parts =
        [gates(digest), findings(digest), absent(digest), changes(digest), Some(reading(digest))];
    Section::new("notes", "Notes", parts.into_iter().flatten())
}

/// The requirements that the run was held against.
fn gates(digest: &Digest<'_>) -> Option<Element> {
    let mut table = Table::new("Gates", 3, &["gate", "result", "why"]);
    for gate in &digest.results.gates {
        let result = if gate.is_met { "met" } else { "missed" };
        table.row([gate.gate.clone(), result.to_owned(), gate.text.clone()]);
    }
    (!table.is_empty()).then(|| table.into_element())
}

/// Findings of the run and those the ends noticed during tests, each once with its count.
fn findings(digest: &Digest<'_>) -> Option<Element> {
    let mut counted: BTreeMap<(String, &str, &str), u32> = BTreeMap::new();
    for (end, finding) in every_finding(digest) {
        *counted.entry((place(digest, end), &finding.code, &finding.text)).or_default() += 1;
    }
    let mut table = Table::new("Findings", 3, &["finding", "where", "what", "times"]);
    for ((place, code, text), count) in counted.into_iter().take(FINDINGS_MAX) {
        table.row([show::name(code), place, text.to_owned(), count.to_string()]);
    }
    (!table.is_empty()).then(|| table.into_element())
}

fn every_finding<'a>(digest: &Digest<'a>) -> impl Iterator<Item = (Option<End>, &'a Finding)> {
    let results = digest.results;
    let of_end = |report: &'a EndReport, end: End| {
        report.findings.iter().map(move |finding| (finding.end.or(Some(end)), finding))
    };
    let of_tests =
        results.points.iter().filter_map(|point| point.measured()).flat_map(move |outcome| {
            let far = outcome.far().into_iter().flat_map(move |far| of_end(far, End::Far));
            of_end(outcome.near(), End::Near).chain(far)
        });
    results.findings.iter().map(|finding| (finding.end, finding)).chain(of_tests)
}

fn place(digest: &Digest<'_>, end: Option<End>) -> String {
    match end {
        Some(End::Near) => digest.near_name.clone(),
        Some(End::Far) => digest.far_name.clone(),
        None => "path".to_owned(),
    }
}

fn absent(digest: &Digest<'_>) -> Option<Element> {
    let mut table = Table::new("Not measured, and why", 2, &["what", "why"]);
    for absent in &digest.results.absent {
        table.row([absent.what.clone(), absent.why.clone()]);
    }
    (!table.is_empty()).then(|| table.into_element())
}

fn changes(digest: &Digest<'_>) -> Option<Element> {
    let mut table =
        Table::new("Changed during the run", 4, &["setting", "where", "before", "after"]);
    for change in &digest.results.changes {
        let host = place(digest, Some(change.end));
        table.row([change.key.clone(), host, change.from.clone(), change.to.clone()]);
    }
    (!table.is_empty()).then(|| table.into_element())
}

/// The limits of what is on the page.
fn reading(digest: &Digest<'_>) -> Element {
    let is_load = load::is_one(digest.results);
    let rates = if is_load {
        "Rates count bytes moved or calls completed, from the first task's beginning to the last one's end. Sizes are \
         binary (1 MiB is 2^20 bytes)."
    } else {
        "Throughput is goodput: payload taken from the receiver's sockets, headers not counted, in decimal units \
         (1 Gbit/s is 10^9 bit/s). Sizes are binary (1 MiB is 2^20 bytes)."
    };
    let mut lines = vec![
        rates.to_owned(),
        "A figure is the median of its repeats; its interval comes from order statistics and assumes nothing \
         about the distribution. With fewer than six repeats it is the whole range and covers less than 95%. Charts over \
         time show the repeat nearest to the median."
            .to_owned(),
    ];
    if let Some(lab) = &digest.results.path.lab {
        lines.push(format!(
            "The path was emulated on one machine (lab {}): both hosts and the path shared its cores. The figures \
             show how these programs behave over such a path, not how fast a network is.",
            show::clip(lab, 60)
        ));
    }
    if digest.results.far().is_none() && !is_load {
        lines.push(
            "The far host reported no figures; statements about it are derived from its packets."
                .to_owned(),
        );
    }
    el("div")
        .class("reading")
        .child(el("h3").text("How to read the figures"))
        .children(lines.iter().map(|line| prose("p", line)))
}
