//! Round trips beside the checker and beside bulk: how long small messages wait.
//!
//! A separate connection exchanges requests and responses (netperf's TCP_RR) beside a stream that offers
//! almost nothing, so that it loads neither the path nor the cores.

use results::{
    LatencySummary, PaperFigure, Results, TestLimit, TestOutcome, TestSpec, show_percentile,
};

use super::{Measured, estimate};
use crate::bed::TestBed;
use crate::exit::VerbError;
use crate::tester::Tester;

/// Rate of the stream beside the round trips: an occasional packet.
const OFFERED_BITS_PER_S: f64 = 100e3;

/// Conditions under which round trips are measured, with the names of their percentiles.
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

/// A measurement in progress.
#[derive(Debug)]
pub(super) struct Probe(Tester);

impl Probe {
    /// Starts a measurement of this duration from the near host to the far one.
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

    /// A measurement that waits for a search, which is expected to take `search_s` seconds.
    pub(super) fn while_searching(bed: &TestBed, search_s: f64) -> Waiting<'_> {
        /// Share of the search's time that is measured, from a quarter second after its start.
        const SHARE: f64 = 0.7;
        /// Shortest possible test, seconds.
        const SHORTEST_S: f64 = 0.5;
        Waiting { bed, seconds: (search_s * SHARE).max(SHORTEST_S), probe: None }
    }

    /// Waits for the measurement's end; returns the distribution.
    pub(super) fn end(mut self) -> Result<LatencySummary, VerbError> {
        under_load(self.0.outcome(&mut |_| {})?)
    }
}

/// A measurement that begins once a search is running and ends before the search is expected to.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    bed: &'a TestBed,
    seconds: f64,
    probe: Option<Probe>,
}

impl Waiting<'_> {
    /// Starts the measurement, unless it has started.
    pub(super) fn go(&mut self) -> Result<(), VerbError> {
        if self.probe.is_none() {
            self.probe = Some(Probe::begin(self.bed, self.seconds)?);
        }
        Ok(())
    }

    /// Waits for its end; `None` if the search was over before the measurement could start.
    pub(super) fn end(self) -> Result<Option<LatencySummary>, VerbError> {
        self.probe.map(Probe::end).transpose()
    }
}

/// The round trips measured while a test ran.
pub(super) fn under_load(outcome: TestOutcome) -> Result<LatencySummary, VerbError> {
    let missing = || VerbError::failed("the latency probe reported nothing");
    outcome.latency_under_load.ok_or_else(missing)
}

/// Records a distribution's percentiles.
pub(super) fn keep(measured: &mut Measured, beside: Beside, latency: &LatencySummary) {
    for (name, percentile) in WHEN[beside as usize].1.into_iter().zip(PERCENTILES) {
        if let Some(value) = latency.percentile_s(percentile) {
            measured.push((name, value));
        }
    }
}

/// Rows of a lab's round trips: for each percentile the median over the repeats.
pub(super) fn rows(results: &Results, id: &str, lab: &str) -> Vec<PaperFigure> {
    let row = |(when, names): (&str, [&'static str; 3])| {
        let values = names.map(|name| estimate(results, id, lab, name));
        let [Some(middle), high, highest] = values else {
            return PaperFigure {
                name: format!("round trips {when}, {lab}"),
                paper: "-".to_owned(),
                here: None,
            };
        };
        let show = |one: results::Estimate| units::show_seconds(one.median);
        let (high, highest) = (high.map(show), highest.map(show));
        let here = format!(
            "p50 {}, {}, {} (n={})",
            show(middle),
            show_percentile(99.0, high),
            show_percentile(99.9, highest),
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

/// Factor by which the 99th percentile of the round trips exceeds that of the idle path.
pub(super) fn stretch(results: &Results, id: &str, lab: &str, beside: Beside) -> Option<f64> {
    let p99 = |when: Beside| Some(estimate(results, id, lab, WHEN[when as usize].1[1])?.median);
    Some(p99(beside)? / p99(Beside::Nothing)?)
}
