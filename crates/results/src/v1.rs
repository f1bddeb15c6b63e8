//! Documents of schema version 1, read and converted.
//!
//! Only what version 2 has otherwise is written down here: two hosts as fields, a point that always
//! is a test between them, and the ends' accounts as fields. Everything else is read as version 2
//! has it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::check::CheckRun;
use crate::document::{
    Absent, AppliedChange, Finding, PathFacts, Results as Current, RunKind, SCHEMA_VERSION,
    ToolFacts,
};
use crate::host::HostFacts;
use crate::hosts::Host;
use crate::outcome::{
    DirectionOutcome, EndReport, HostAccount, LatencySummary, RequestResponseOutcome,
    TestOutcome as CurrentOutcome,
};
use crate::placement::PlacementFindings;
use crate::point::{Point as CurrentPoint, PointOutcome as CurrentPointOutcome, Summary};
use crate::reproduction::Reproduction;
use crate::spec::TestSpec;
use crate::verdict::Verdict;
use crate::work::Work;

/// A document.
#[derive(Debug, Deserialize)]
pub(crate) struct Results {
    kind: RunKind,
    tool: ToolFacts,
    command: Vec<String>,
    started_unix_ms: u64,
    finished_unix_ms: Option<u64>,
    partial: Option<String>,
    near: HostFacts,
    far: Option<HostFacts>,
    path: PathFacts,
    points: Vec<Point>,
    #[serde(default)]
    summaries: Vec<Summary>,
    verdict: Option<Verdict>,
    placement: Option<PlacementFindings>,
    reproduction: Option<Reproduction>,
    check: Option<CheckRun>,
    #[serde(default)]
    findings: Vec<Finding>,
    #[serde(default)]
    absent: Vec<Absent>,
    #[serde(default)]
    changes: Vec<AppliedChange>,
}

/// A test between the two hosts.
#[derive(Debug, Deserialize)]
struct Point {
    experiment: String,
    #[serde(default)]
    varied: BTreeMap<String, f64>,
    repeat: u32,
    started_unix_ms: u64,
    #[serde(default)]
    command: String,
    spec: TestSpec,
    outcome: PointOutcome,
}

/// What came of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PointOutcome {
    Measured(Box<TestOutcome>),
    RoundTrips(LatencySummary),
    Failed(String),
}

/// What the test gave.
#[derive(Debug, Deserialize)]
struct TestOutcome {
    duration_s: f64,
    directions: Vec<DirectionOutcome>,
    request_response: Option<RequestResponseOutcome>,
    latency_under_load: Option<LatencySummary>,
    near: EndReport,
    far: Option<EndReport>,
}

impl Results {
    /// The same document as this version has it.
    pub(crate) fn into_current(self) -> Current {
        let near = Host::near(self.near);
        Current {
            schema_version: SCHEMA_VERSION.to_owned(),
            kind: self.kind,
            tool: self.tool,
            command: self.command,
            started_unix_ms: self.started_unix_ms,
            finished_unix_ms: self.finished_unix_ms,
            partial: self.partial,
            hosts: std::iter::once(near).chain(self.far.map(Host::far)).collect(),
            path: self.path,
            points: self.points.into_iter().map(Point::into_current).collect(),
            summaries: self.summaries,
            verdict: self.verdict,
            placement: self.placement,
            reproduction: self.reproduction,
            check: self.check,
            findings: self.findings,
            absent: self.absent,
            changes: self.changes,
            gates: Vec::new(),
        }
    }
}

impl Point {
    fn into_current(self) -> CurrentPoint {
        let outcome = match self.outcome {
            PointOutcome::Measured(outcome) => measured(outcome.into_current()),
            PointOutcome::RoundTrips(latency) => {
                measured(CurrentOutcome { round_trips: Some(latency), ..CurrentOutcome::default() })
            }
            PointOutcome::Failed(why) => CurrentPointOutcome::Failed(why),
        };
        let work = Work::from(self.spec);
        CurrentPoint {
            experiment: self.experiment,
            varied: self.varied,
            repeat: self.repeat,
            started_unix_ms: self.started_unix_ms,
            command: self.command,
            by: work.workers(),
            work,
            outcome,
        }
    }
}

impl TestOutcome {
    fn into_current(self) -> CurrentOutcome {
        CurrentOutcome {
            duration_s: self.duration_s,
            directions: self.directions,
            request_response: self.request_response,
            latency_under_load: self.latency_under_load,
            hosts: HostAccount::of_ends(self.near, self.far),
            ..CurrentOutcome::default()
        }
    }
}

fn measured(outcome: CurrentOutcome) -> CurrentPointOutcome {
    CurrentPointOutcome::Measured(Box::new(outcome.with_figures()))
}
