//! Common parts of the results documents of `io` and `meta`.

use std::collections::BTreeMap;
use std::io::Write as _;

use compare::Judged;
use file_load::LoadError;
use file_load::io::text::clock_lines;
use file_load::pattern::PatternKind;
use file_load::team::Member;
use results::{Finding, GateResult, Host, HostFacts, NEAR, Point, Results, Role, RunKind, Worker};
use serde_json::Value;

use super::Kind;
use super::call::Call;
use crate::exit::VerbError;
use crate::gates;
use crate::out;
use crate::runner;
use crate::store;

/// A run's options and results.
pub(crate) struct Run<'a> {
    pub(crate) kind: Kind,
    pub(crate) started_unix_ms: u64,
    pub(crate) members: &'a [Member],
    pub(crate) points: Vec<Point>,
    /// Places in which verified data differed from what was written; `None` if nothing was verified.
    pub(crate) wrong_data_count: Option<u64>,
    /// Why the run is incomplete, if it is.
    pub(crate) error: Option<&'a LoadError>,
}

/// Judges a run by its gates, and prints and stores its document if requested; after an error the document
/// says why it is incomplete.
pub(crate) fn finish(call: &Call, run: Run<'_>) -> Result<Vec<GateResult>, VerbError> {
    let Run { kind, started_unix_ms, members, points, wrong_data_count, error } = run;
    let partial = error.map(ToString::to_string);
    let judged = Judged {
        points: &points,
        idle_rtt: None,
        verdict: None,
        partial: partial.as_deref(),
        wrong_data_count,
    };
    let judged = gates::judge(&call.gates.gates(kind.gated())?, judged);
    if !call.is_json && call.output.is_none() {
        return Ok(judged);
    }
    let kind = match kind {
        Kind::Io => RunKind::Io,
        Kind::Meta => RunKind::Meta,
    };
    let mut results = Results::begun(kind, started_unix_ms);
    let own = || std::env::args().collect();
    results.command = call.typed.clone().unwrap_or_else(own);
    results.finished_unix_ms = Some(runner::now_unix_ms());
    results.partial = partial;
    results.gates.clone_from(&judged);
    results.hosts = hosts(members);
    results.findings = clock_findings(members);
    results.points = points;
    results.summaries = sweep::summarise(&results.points);
    if let Some(path) = &call.output {
        store::save(path, &results)?;
    }
    if call.is_json {
        let text = serde_json::to_string_pretty(&results);
        let text = text.map_err(|error| VerbError::from_error(&error))?;
        writeln!(out::stdout(), "{text}")?;
    }
    Ok(judged)
}

/// The hosts of a job; rank 0's host is the near one.
fn hosts(members: &[Member]) -> Vec<Host> {
    let mut hosts = vec![Host::near(topology::host_facts(None))];
    for name in others(members) {
        let facts = HostFacts { name: name.to_owned(), ..HostFacts::default() };
        hosts.push(Host { name: name.to_owned(), role: Role::Client, facts });
    }
    hosts
}

/// The workers for a part of the work: one on each host.
pub(crate) fn workers(members: &[Member], part: &str) -> Vec<Worker> {
    let worker =
        |host: &str| Worker { host: host.to_owned(), part: part.to_owned(), cores: Vec::new() };
    std::iter::once(NEAR).chain(others(members)).map(worker).collect()
}

/// The options that were given: neither false, nor 0, nor empty.
pub(crate) fn unusual<const N: usize>(all: [(&str, Value); N]) -> BTreeMap<String, Value> {
    let is_given = |value: &Value| match value {
        Value::Bool(is_set) => *is_set,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        _ => false,
    };
    let given = all.into_iter().filter(|(_, value)| is_given(value));
    given.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The data that are written, in words; empty for the usual ones.
pub(crate) fn pattern(kind: PatternKind) -> Value {
    let words = match kind {
        PatternKind::Timestamp => "",
        PatternKind::Offset => "data with offsets",
        PatternKind::Incompressible => "incompressible data",
        PatternKind::Random => "random data",
    };
    words.into()
}

/// Names of the hosts other than rank 0's, each once.
fn others(members: &[Member]) -> impl Iterator<Item = &str> {
    let lead = members.first().map(|member| &member.host);
    let is_new = move |(at, member): &(usize, &Member)| {
        Some(&member.host) != lead && !members[..*at].iter().any(|known| known.host == member.host)
    };
    members.iter().enumerate().filter(is_new).map(|(_, member)| member.host.as_str())
}

/// Findings on the differences between the hosts' clocks.
fn clock_findings(members: &[Member]) -> Vec<Finding> {
    let finding = |line: &str| Finding {
        end: None,
        code: "clock-offset".to_owned(),
        text: line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned(),
    };
    clock_lines(members).lines().map(finding).collect()
}
