//! What the results documents of `io` and `meta` have in common.

use std::io::Write as _;

use file_load::LoadError;
use file_load::io::text::clock_lines;
use file_load::team::Member;
use results::{Finding, Host, HostFacts, NEAR, Point, Results, Role, RunKind, Worker};

use super::call::Call;
use crate::exit::VerbError;
use crate::out;
use crate::runner;
use crate::store;

/// Prints and stores the document of a run where that was asked for; one that says why it is not whole
/// after an error.
pub(crate) fn finish(
    call: &Call,
    (kind, started_unix_ms): (RunKind, u64),
    members: &[Member],
    points: Vec<Point>,
    error: Option<&LoadError>,
) -> Result<(), VerbError> {
    if !call.is_json && call.output.is_none() {
        return Ok(());
    }
    let mut results = Results::begun(kind, started_unix_ms);
    results.command = std::env::args().collect();
    results.finished_unix_ms = Some(runner::now_unix_ms());
    results.partial = error.map(ToString::to_string);
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
    Ok(())
}

/// The hosts of a job; rank 0's is the one that asks.
fn hosts(members: &[Member]) -> Vec<Host> {
    let mut hosts = vec![Host::near(topology::host_facts(None))];
    for name in others(members) {
        let facts = HostFacts { name: name.to_owned(), ..HostFacts::default() };
        hosts.push(Host { name: name.to_owned(), role: Role::Client, facts });
    }
    hosts
}

/// Who did a part: each host.
pub(crate) fn workers(members: &[Member], part: &str) -> Vec<Worker> {
    let worker =
        |host: &str| Worker { host: host.to_owned(), part: part.to_owned(), cores: Vec::new() };
    std::iter::once(NEAR).chain(others(members)).map(worker).collect()
}

/// Names of the hosts besides rank 0's, each once.
fn others(members: &[Member]) -> impl Iterator<Item = &str> {
    let lead = members.first().map(|member| &member.host);
    let is_new = move |(at, member): &(usize, &Member)| {
        Some(&member.host) != lead && !members[..*at].iter().any(|known| known.host == member.host)
    };
    members.iter().enumerate().filter(is_new).map(|(_, member)| member.host.as_str())
}

/// How far the hosts' clocks were apart.
fn clock_findings(members: &[Member]) -> Vec<Finding> {
    let finding = |line: &str| Finding {
        end: None,
        code: "clock-offset".to_owned(),
        text: line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned(),
    };
    clock_lines(members).lines().map(finding).collect()
}
