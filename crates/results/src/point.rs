//! Points: single runs, and what repeats of them say together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::TestOutcome;
use crate::spec::TestSpec;
use crate::work::{Work, Worker};

/// One run of one setting of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Experiment it belongs to: `single-stream`, `multi-stream`, `bidirectional`, `udp`,
    /// `round-trip`, `window-sweep`, `confirm:<limit>`, or a reproduction's own name.
    pub experiment: String,
    /// What was varied: name with unit → value, e.g. `window_bytes` → 4194304. Of an experiment on a verdict also what
    /// it predicted before the experiment ran: `predicted_low_bits_per_s`, `predicted_high_bits_per_s`.
    #[serde(default)]
    pub varied: BTreeMap<String, f64>,
    /// Repeat number, from 0.
    pub repeat: u32,
    /// When it began, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// The exact command that does this work alone; empty where there is none.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub command: String,
    /// The requested work.
    pub work: Work,
    /// The processes that did the work.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub by: Vec<Worker>,
    /// Its outcome.
    pub outcome: PointOutcome,
}

/// The outcome of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PointOutcome {
    /// The work was done.
    Measured(Box<TestOutcome>),
    /// It failed; why, in one line.
    Failed(String),
}

/// What the names of experiments begin with that put a verdict to the test; the limit's name follows.
pub const CONFIRMATION: &str = "confirm:";

/// What the names in [`Point::varied`] begin with that hold what was predicted of an experiment before it ran.
pub const PREDICTED: &str = "predicted_";

impl From<TestOutcome> for PointOutcome {
    fn from(outcome: TestOutcome) -> Self {
        Self::Measured(Box::new(outcome))
    }
}

impl Point {
    /// The first repeat of an experiment that varies nothing: begun at 0, of no command, by the workers that
    /// follow from the work. Whoever knows more sets it: `Point { repeat, ..Point::new(name, work, outcome) }`.
    #[must_use]
    pub fn new(
        experiment: impl Into<String>,
        work: impl Into<Work>,
        outcome: impl Into<PointOutcome>,
    ) -> Self {
        let work = work.into();
        Self {
            experiment: experiment.into(),
            varied: BTreeMap::new(),
            repeat: 0,
            started_unix_ms: 0,
            command: String::new(),
            by: work.workers(),
            work,
            outcome: outcome.into(),
        }
    }

    /// Whether it belongs to an experiment that put a verdict to the test.
    #[must_use]
    pub fn is_confirmation(&self) -> bool {
        self.experiment.starts_with(CONFIRMATION)
    }

    /// What was measured, when the work was done.
    #[must_use]
    pub fn measured(&self) -> Option<&TestOutcome> {
        match &self.outcome {
            PointOutcome::Measured(outcome) => Some(outcome),
            PointOutcome::Failed(_) => None,
        }
    }

    /// The test between two hosts that was asked for, when the work was one.
    #[must_use]
    pub fn spec(&self) -> Option<&TestSpec> {
        self.work.test()
    }

    /// A test between two hosts that was done: what was asked and what came of it.
    #[must_use]
    pub fn tested(&self) -> Option<(&TestSpec, &TestOutcome)> {
        self.spec().zip(self.measured())
    }
}

/// A figure from repeats.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// Repeats.
    pub count: u32,
    /// Median.
    pub median: f64,
    /// Lower end of the median's confidence interval; with fewer than 6 repeats the interval is the
    /// whole range.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
    /// Confidence of the interval, 0 to 1; below 0.95 for few repeats.
    pub confidence: f64,
}

impl Estimate {
    /// The estimate repeats give; `None` without any finite value.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        stats::median_interval(values).map(|interval| Self {
            count: u32::try_from(interval.count).unwrap_or(u32::MAX),
            median: interval.median,
            low: interval.low,
            high: interval.high,
            confidence: interval.confidence,
        })
    }

    /// Ends of the interval; `None` with a single repeat, which has no spread.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        (self.count > 1).then_some((self.low, self.high))
    }

    /// The median with its interval and the number of repeats, each value as `show` prints it:
    /// `9.87 Gbit/s (9.70 Gbit/s .. 9.95 Gbit/s, n=5)`, and `9.87 Gbit/s (n=1)` for a single repeat.
    #[must_use]
    pub fn text(&self, show: impl Fn(f64) -> String) -> String {
        let (median, count) = (show(self.median), self.count);
        match self.interval() {
            Some((low, high)) => format!("{median} ({} .. {}, n={count})", show(low), show(high)),
            None => format!("{median} (n={count})"),
        }
    }
}

/// One figure of one setting of an experiment, over its repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Experiment.
    pub experiment: String,
    /// Setting.
    #[serde(default)]
    pub varied: BTreeMap<String, f64>,
    /// What the figure is, with its unit: `forward_received_bits_per_s`, `rtt_p50_s`.
    pub figure: String,
    /// Its median and spread over the repeats.
    pub estimate: Estimate,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Protocol;

    #[test]
    fn a_new_point_is_done_by_the_workers_of_its_work() {
        let spec = TestSpec::request_response(Protocol::Tcp, 1, 1);
        let parts = |point: &Point| -> Vec<String> {
            point.by.iter().map(|worker| format!("{} {}", worker.host, worker.part)).collect()
        };
        let point = Point::new("round-trip", spec, TestOutcome::default());
        assert_eq!(parts(&point), ["near ask", "far answer"]);
        assert!(point.measured().is_some() && !point.is_confirmation());
        let failed = Point::new(
            format!("{CONFIRMATION}loss"),
            TestSpec::tcp(),
            PointOutcome::Failed("refused".to_owned()),
        );
        assert!(failed.measured().is_none() && failed.is_confirmation());
    }

    #[test]
    fn one_repeat_has_no_interval() {
        let text = |values: &[f64]| {
            Estimate::of(values).expect("finite").text(|value| format!("{value:.0} W"))
        };
        assert_eq!(text(&[3.0]), "3 W (n=1)");
        assert_eq!(text(&[3.0, 2.0, 4.0]), "3 W (2 W .. 4 W, n=3)");
    }
}
