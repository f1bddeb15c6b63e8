//! Round trips beside the checker and beside bulk: what small messages wait for.
//!
//! A connection of its own goes to and fro (netperf's TCP_RR) beside a stream that offers next to
//! nothing, so that it loads neither the path nor the cores it watches.

use results::{LatencySummary, PaperFigure, Results, TestLimit, TestOutcome, TestSpec};

use super::{Measured, estimate};
use crate::bed::TestBed;
use crate::exit::VerbError;
use crate::tester::Tester;

/// What the watching stream offers: a packet now and then.
const OFFERED_BITS_PER_S: f64 = 100e3;

/// When round trips are measured, and the names of their percentiles.
const WHEN: [(&str, [&str; 3]); 4] = [
    ("idle path", ["idle_rtt_p50_s", "idle_rtt_p99_s", "idle_rtt_p99_9_s"]),
    (
        "beside the checker",
        ["rtt_p50_s_beside_checker", "rtt_p99_s_beside_checker", "rtt_p99_9_s_beside_checker"],
    ),
    ("beside bulk", ["rtt_p50_s_beside_bulk", "rtt_p99_s_beside_bulk", "rtt_p99_9_s_beside_bulk"]),
    ("beside both", ["rtt_p50_s_beside_both", "rtt_p99_s_beside_both", "rtt_p99_9_s_beside_both"]),
];

/// An index into [`WHEN`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Beside {
    Nothing = 0,
    Checker = 1,
    Bulk = 2,
    Both = 3,
}

const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// A measurement under way.
#[derive(Debug)]
pub(super) struct Probe(Tester);

impl Probe {
    /// Begins to measure from the near host to the far one, for so long.
    pub(super) fn begin(bed: &TestBed, seconds: f64) -> Result<Self, VerbError> {
        let mut tester = bed.tester()?;
        tester.begin(&TestSpec {
            limit: TestLimit::DurationS(seconds),
            offered_bits_per_s: Some(OFFERED_BITS_PER_S),
            latency_under_load: true,
            ..TestSpec::tcp()
        })?;
        Ok(Self(tester))
    }

    /// One that waits for a search that will take about so long.
    pub(super) fn while_searching(bed: &TestBed, search_s: f64) -> Waiting<'_> {
        /// Part of the search's time that is watched, from a quarter second after its start.
        const SHARE: f64 = 0.7;
        /// No test is shorter.
        const SHORTEST_S: f64 = 0.5;
        Waiting { bed, seconds: (search_s * SHARE).max(SHORTEST_S), probe: None }
    }

    /// What came of it.
    pub(super) fn end(mut self) -> Result<LatencySummary, VerbError> {
        under_load(self.0.outcome(&mut |_| {})?)
    }
}

/// A measurement that begins when a search is under way and ends before it is expected to.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    bed: &'a TestBed,
    seconds: f64,
    probe: Option<Probe>,
}

impl Waiting<'_> {
    /// Begins, if it has not begun yet.
    pub(super) fn go(&mut self) -> Result<(), VerbError> {
        if self.probe.is_none() {
            self.probe = Some(Probe::begin(self.bed, self.seconds)?);
        }
        Ok(())
    }

    /// What came of it; nothing where the search was over before it could begin.
    pub(super) fn end(self) -> Result<Option<LatencySummary>, VerbError> {
        self.probe.map(Probe::end).transpose()
    }
}

/// Round trips that were made while a test ran.
pub(super) fn under_load(outcome: TestOutcome) -> Result<LatencySummary, VerbError> {
    let missing = || VerbError::failed("the latency probe tells nothing");
    outcome.latency_under_load.ok_or_else(missing)
}

/// Notes a distribution's percentiles.
pub(super) fn keep(measured: &mut Measured, beside: Beside, latency: &LatencySummary) {
    for (name, percentile) in WHEN[beside as usize].1.into_iter().zip(PERCENTILES) {
        if let Some(value) = latency.percentile_s(percentile) {
            measured.push((name, value));
        }
    }
}

/// Rows of a lab's round trips: medians over the repeats of each percentile.
pub(super) fn rows(results: &Results, id: &str, lab: &str) -> Vec<PaperFigure> {
    let row = |(when, names): (&str, [&'static str; 3])| {
        let values = names.map(|name| estimate(results, id, lab, name));
        let [Some(middle), Some(high), Some(highest)] = values else {
            return PaperFigure {
                name: format!("round trips {when}, {lab}"),
                paper: "-".to_owned(),
                here: None,
            };
        };
        let show = |one: results::Estimate| units::show_seconds(one.median);
        let here = format!(
            "p50 {}, p99 {}, p99.9 {} (n={})",
            show(middle),
            show(high),
            show(highest),
            middle.count
        );
        PaperFigure {
            name: format!("round trips {when}, {lab}"),
            paper: "-".to_owned(),
            here: Some(here),
        }
    };
    WHEN.into_iter().map(row).collect()
}

/// How many times as long a round trip takes at the 99th percentile as on the idle path.
pub(super) fn stretch(results: &Results, id: &str, lab: &str, beside: Beside) -> Option<f64> {
    let p99 = |when: Beside| Some(estimate(results, id, lab, WHEN[when as usize].1[1])?.median);
    Some(p99(beside)? / p99(Beside::Nothing)?)
}
