//! Symptoms of tests of requests and responses.

use results::{EndReport, LatencySummary, Results, TestOutcome, Work};

use super::definition::{Definition, SymptomUnit as Unit};
use super::{Section, SymptomGroup, tested};
use crate::numbers::{positive, share};
use crate::round_trips::{waiting_s, waking_s};

/// A symptom of one repeat.
pub(super) struct TripRow {
    pub(super) definition: Definition,
    read: fn(&TestOutcome) -> Option<f64>,
}

const fn row(
    name: &'static str,
    unit: Unit,
    source: &'static str,
    about: &'static str,
    read: fn(&TestOutcome) -> Option<f64>,
) -> TripRow {
    TripRow { definition: Definition::new(name, unit, source, about), read }
}

const CLOCK: &str = "CLOCK_MONOTONIC around each";

pub(super) static ROWS: &[TripRow] = &[
    row(
        "transactions",
        Unit::PerS,
        "completed transactions",
        "transactions completed, all streams",
        |test| positive(test.request_response.as_ref()?.transactions_per_s),
    ),
    row("transaction-min", Unit::S, CLOCK, "shortest round trip", |test| {
        positive(latency(test)?.min_s)
    }),
    row("transaction-p50", Unit::S, CLOCK, "median round trip", |test| percentile(test, 50.0)),
    row("transaction-p90", Unit::S, CLOCK, "90th percentile", |test| percentile(test, 90.0)),
    row("transaction-p99", Unit::S, CLOCK, "99th percentile", |test| percentile(test, 99.0)),
    row("transaction-p99.9", Unit::S, CLOCK, "99.9th percentile", |test| percentile(test, 99.9)),
    row(
        "transaction-deviation",
        Unit::S,
        CLOCK,
        "standard deviation of the round trips of one repeat",
        |test| Some(latency(test)?.deviation_s),
    ),
    row(
        "transaction-timeout-share",
        Unit::Share,
        "requests without an answer",
        "transactions given up, of those begun (UDP)",
        |test| {
            let told = test.request_response.as_ref()?;
            let (lost, done) = (told.timeouts_count as f64, told.transactions_count as f64);
            share(lost, lost + done)
        },
    ),
    row(
        "near-core-wait",
        Unit::S,
        "/proc/PID/schedstat",
        "time that the near end's threads wait for a core, per transaction",
        |test| of_end(test, Some(test.near()), waiting_s),
    ),
    row("far-core-wait", Unit::S, "/proc/PID/schedstat", "the same at the far end", |test| {
        of_end(test, test.far(), waiting_s)
    }),
    row(
        "near-idle-exit",
        Unit::S,
        "cpuidle",
        "time that the near end's cores take to leave idle states, per transaction",
        |test| of_end(test, Some(test.near()), waking_s),
    ),
    row("far-idle-exit", Unit::S, "cpuidle", "the same at the far end", |test| {
        of_end(test, test.far(), waking_s)
    }),
    row(
        "transaction-rest",
        Unit::S,
        "median less the parts above",
        "the wire, both stacks and what no counter shows",
        rest_s,
    ),
];

/// The symptoms of the first test of requests in the document, over its repeats.
pub(super) fn group(results: &Results) -> SymptomGroup {
    let is_one = |point: &&results::Point| {
        matches!(point.work, Work::RoundTrips(_))
            && !point.is_confirmation()
            && point.measured().is_some()
    };
    let first = results.points.iter().find(is_one);
    let points = first.map_or_else(Vec::new, |first| tested::alike(results, first));
    let outcomes: Vec<&TestOutcome> = points.iter().filter_map(|point| point.measured()).collect();
    let symptoms = ROWS.iter().map(|row| {
        let values: Vec<f64> = outcomes.iter().filter_map(|test| (row.read)(test)).collect();
        row.definition.symptom(results.recorder(), &values, &[])
    });
    SymptomGroup {
        section: Section::RoundTrips,
        end: None,
        offered_bits_per_s: None,
        test: first.and_then(|point| point.spec()).map_or_else(String::new, tested::test_words),
        symptoms: symptoms.collect(),
    }
}

fn latency(test: &TestOutcome) -> Option<&LatencySummary> {
    Some(&test.request_response.as_ref()?.latency)
}

fn percentile(test: &TestOutcome, percentile: f64) -> Option<f64> {
    latency(test)?.percentile_s(percentile).and_then(positive)
}

fn of_end(
    test: &TestOutcome,
    report: Option<&EndReport>,
    part_s: fn(&EndReport, f64) -> Option<f64>,
) -> Option<f64> {
    let transactions = positive(test.request_response.as_ref()?.transactions_count as f64)?;
    part_s(report?, transactions)
}

/// The median less the parts that a counter shows; `None` where none shows any.
fn rest_s(test: &TestOutcome) -> Option<f64> {
    let ends = [Some(test.near()), test.far()];
    let parts = ends.into_iter().flat_map(|end| {
        [of_end(test, end, waiting_s), of_end(test, end, waking_s)].into_iter().flatten()
    });
    let told_s = parts.reduce(|sum, one| sum + one)?;
    Some((percentile(test, 50.0)? - told_s).max(0.0))
}
