//! What `io` found as a results document.

use std::collections::BTreeMap;
use std::io::Write as _;

use file_load::LoadError;
use file_load::io::options::{CommandLine, IoOptions};
use file_load::io::summary::{Access, Measured};
use file_load::team::Member;
use results::{
    Figure, FileIoWork, Finding, Host, LatencySummary, Point, PointOutcome, Results, Role, RunKind,
    TestOutcome, Work, Worker,
};

use crate::exit::VerbError;
use crate::out;
use crate::runner;
use crate::store;
use crate::verbs::load::call::Call;

/// A run, and its rows as far as it came.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) call: &'a Call,
    pub(super) line: &'a CommandLine,
    pub(super) started_unix_ms: u64,
    pub(super) rows: &'a [(usize, Measured)],
}

impl Run<'_> {
    /// Prints and stores the document where that was asked for; one that says why it is not whole after
    /// an error.
    pub(super) fn finish(
        &self,
        members: &[Member],
        error: Option<&LoadError>,
    ) -> Result<(), VerbError> {
        if !self.call.is_json && self.call.output.is_none() {
            return Ok(());
        }
        let results = self.document(members, error);
        if let Some(path) = &self.call.output {
            store::save(path, &results)?;
        }
        if self.call.is_json {
            let text = serde_json::to_string_pretty(&results)
                .map_err(|error| VerbError::from_error(&error))?;
            writeln!(out::stdout(), "{text}")?;
        }
        Ok(())
    }

    fn document(&self, members: &[Member], error: Option<&LoadError>) -> Results {
        let mut results = Results::begun(RunKind::Io, self.started_unix_ms);
        results.command = std::env::args().collect();
        results.finished_unix_ms = Some(runner::now_unix_ms());
        results.partial = error.map(ToString::to_string);
        results.hosts = hosts(members);
        results.findings = clock_findings(members);
        let points = self.rows.iter().map(|(test, one)| self.point(*test, one, members));
        results.points = points.collect();
        results.summaries = sweep::summarise(&results.points);
        results
    }

    fn point(&self, test: usize, one: &Measured, members: &[Member]) -> Point {
        let options = &self.line.tests[test];
        Point {
            experiment: format!("{}-{test}", one.access.name()),
            varied: BTreeMap::new(),
            repeat: one.repetition,
            started_unix_ms: self.started_unix_ms,
            command: format!("clearstream io {}", self.call.words.join(" ")),
            work: Work::FileIo(work(options, one)),
            by: workers(members, one.access.name()),
            outcome: PointOutcome::Measured(Box::new(outcome(one))),
        }
    }
}

fn work(options: &IoOptions, one: &Measured) -> FileIoWork {
    let by = if one.access == Access::Write { "pwrite" } else { "pread" };
    FileIoWork {
        access: one.access.name().to_owned(),
        path: options.test_file.clone(),
        has_file_per_rank: options.file_per_task,
        ranks_count: one.ranks.len() as u64,
        block_bytes: options.block_bytes,
        transfer_bytes: options.transfer_bytes,
        segments_count: options.segment_count,
        by: if options.is_direct { format!("{by}, O_DIRECT") } else { by.to_owned() },
    }
}

fn outcome(one: &Measured) -> TestOutcome {
    let mut figures = vec![
        Figure::new("moved_bytes_per_s", one.bytes_per_s()),
        Figure::new("transfers_per_s", one.iops),
        Figure::new("moved_bytes", one.moved_bytes as f64),
        Figure::new("open_s", one.open_s),
        Figure::new("transfer_s", one.transfer_s),
        Figure::new("close_s", one.close_s),
        Figure::new("total_s", one.total_s),
        Figure::new("best_rank_mean_latency_s", one.best_mean_latency_s),
        Figure::new("cpu_s", one.cpu_s),
    ];
    if let Some(stonewall) = one.stonewall {
        figures.push(Figure::new("stonewall_s", stonewall.time_s));
        figures.push(Figure::new("stonewall_bytes", stonewall.bytes_mean as f64));
    }
    figures.retain(|figure| figure.value.is_finite());
    TestOutcome {
        duration_s: one.total_s,
        figures,
        round_trips: LatencySummary::of(&one.latencies, "file call"),
        ..TestOutcome::default()
    }
}

/// The hosts of a job; rank 0's is the one that asks.
pub(crate) fn hosts(members: &[Member]) -> Vec<Host> {
    let mut hosts = vec![Host::near(topology::host_facts(None))];
    let lead = members.first().map(|member| member.host.clone());
    for member in members {
        let is_new = Some(&member.host) != lead.as_ref()
            && !hosts.iter().any(|host| host.name == member.host);
        if is_new {
            let facts = results::HostFacts { name: member.host.clone(), ..Default::default() };
            hosts.push(Host { name: member.host.clone(), role: Role::Client, facts });
        }
    }
    hosts
}

/// Who did a part: each host.
pub(crate) fn workers(members: &[Member], part: &str) -> Vec<Worker> {
    let worker = |host: Host| Worker { host: host.name, part: part.to_owned(), cores: Vec::new() };
    hosts(members).into_iter().map(worker).collect()
}

/// How far the hosts' clocks were apart.
pub(crate) fn clock_findings(members: &[Member]) -> Vec<Finding> {
    let text = file_load::io::text::clock_lines(members);
    let line = |line: &str| Finding {
        end: None,
        code: "clock-offset".to_owned(),
        text: line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned(),
    };
    text.lines().map(line).collect()
}
