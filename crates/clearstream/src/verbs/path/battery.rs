//! The tests of `path`: TCP, further tests that depend on its results, and the experiments on the verdict.

use std::collections::BTreeMap;

use results::{Direction, Finding, Point, Results, TestLimit, TestSpec};
use sweep::{Experiment, Plan, Setting};

use super::confirm;

/// Experiment names of the second round.
const UDP: &str = "udp";
const WINDOWS: &str = "window-sweep";

/// The experiment that `path` runs for an application on a path.
#[derive(Debug)]
pub(super) struct Battery {
    /// The user's options for the application.
    pub(super) application: TestSpec,
    pub(super) effort: Effort,
    /// Repeats of each experiment on the verdict; 0: none is run.
    pub(super) trial_repeats: u32,
}

impl Experiment for Battery {
    fn round(&self, number: u32, so_far: &Results) -> Option<Plan> {
        match number.checked_sub(2) {
            None if number == 0 => Some(first_round(&self.application, &self.effort)),
            None => Some(self.second_round(so_far)),
            Some(trials_count) => {
                let is_done = |trial: u32, _: &Plan| trial < trials_count;
                let (base, points) = (self.without_trials(so_far), &so_far.points);
                confirm::standing(&base, self.trial_repeats, points, is_done).next
            }
        }
    }

    fn conclude(&self, results: &mut Results, is_complete: bool) {
        results.summaries = sweep::summarise(&results.points);
        let first = first_round(&self.application, &self.effort);
        let points = &results.points;
        if !(first.was_run(points) && self.second_round(results).was_run(points)) {
            return;
        }
        let base = self.without_trials(results);
        let is_done = |_: u32, plan: &Plan| is_complete || plan.was_run(points);
        let standing = confirm::standing(&base, self.trial_repeats, points, is_done);
        results.verdict = Some(standing.verdict);
        results.path = base.path;
        results.findings = base.findings;
    }
}

impl Battery {
    fn second_round(&self, so_far: &Results) -> Plan {
        let is_first = |point: &&Point| {
            let name = point.experiment.as_str();
            name != UDP && name != WINDOWS && !name.starts_with(confirm::EXPERIMENTS)
        };
        let points = so_far.points.iter().filter(is_first);
        let best = best_tcp(points, self.effort.way);
        let (mtu, rtt_s) = (so_far.path.path_mtu_bytes, idle_rtt_s(so_far));
        second_round(&self.application, &self.effort, mtu, rtt_s, best)
    }

    /// The results without the points of experiments on the verdict.
    fn without_trials(&self, so_far: &Results) -> Results {
        let mut base = so_far.clone();
        base.points.retain(|point| !point.experiment.starts_with(confirm::EXPERIMENTS));
        base.summaries = sweep::summarise(&base.points);
        let best = best_tcp(base.points.iter(), self.effort.way);
        base.path.bandwidth_delay_product_bytes = best
            .zip(idle_rtt_s(so_far))
            .map(|(best, rtt_s)| units::bandwidth_delay_product_bytes(best, rtt_s));
        collect_findings(&mut base);
        base
    }
}

fn idle_rtt_s(results: &Results) -> Option<f64> {
    results.path.idle_rtt.as_ref().and_then(|rtt| rtt.percentile_s(50.0))
}

/// Copies the findings of all tests into the document, each once.
fn collect_findings(results: &mut Results) {
    for point in &results.points {
        let Some(outcome) = point.measured() else { continue };
        let ends = [Some(outcome.near()), outcome.far()];
        for finding in ends.into_iter().flatten().flat_map(|end| &end.findings) {
            let known = |other: &Finding| other.code == finding.code && other.end == finding.end;
            // The sweep requests many windows on purpose; refused ones show in its own figures.
            if point.experiment != WINDOWS && !results.findings.iter().any(known) {
                results.findings.push(finding.clone());
            }
        }
    }
}

/// The extent of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Measured time of one test, seconds.
    pub(super) duration_s: f64,
    /// Time at the start of each test that is not measured, seconds.
    pub(super) omit_s: f64,
    /// Repeats of the single-stream test, on which the verdict is based.
    pub(super) baseline_repeats: u32,
    /// Repeats of all other tests.
    pub(super) repeats: u32,
    /// Whether to sweep the window size.
    pub(super) sweep: bool,
    /// The direction to judge: forward or reverse.
    pub(super) way: Direction,
    /// Whether to leave out the tests of the other direction and of both at once.
    pub(super) one_way: bool,
}

/// Streams of the `multi-stream` test: enough to tell a per-stream limit from one of the path.
const STREAMS_COUNT: u32 = 4;

/// UDP rate as a multiple of the best TCP throughput: high enough to find a ceiling above that, and low
/// enough not to flood a shared network with all that the processor can send.
const UDP_HEADROOM: f64 = 1.2;

/// Seed of the shuffled order of the tests; its value has no significance.
const SEED: u64 = 0x1650;

/// The application as a single stream, with this run's duration and direction.
fn baseline(application: &TestSpec, effort: &Effort) -> TestSpec {
    TestSpec {
        direction: effort.way,
        streams: 1,
        limit: TestLimit::DurationS(effort.duration_s),
        omit_s: effort.omit_s,
        interval_s: 0.25_f64.min(effort.duration_s / 4.0),
        latency_under_load: true,
        ..application.clone()
    }
}

/// First round: TCP with the application's options, as one stream, several, in reverse, and in both directions.
fn first_round(application: &TestSpec, effort: &Effort) -> Plan {
    let single = baseline(application, effort);
    let quiet = TestSpec { latency_under_load: false, ..single.clone() };
    let mut settings = vec![Setting::new("single-stream", single.clone())];
    let mut others =
        vec![Setting::new("multi-stream", TestSpec { streams: STREAMS_COUNT, ..single })];
    if !effort.one_way {
        let (name, direction) = match effort.way {
            Direction::Reverse => ("forward", Direction::Forward),
            Direction::Forward | Direction::Bidirectional => ("reverse", Direction::Reverse),
        };
        let both = TestSpec { direction: Direction::Bidirectional, ..quiet.clone() };
        others.push(Setting::new(name, TestSpec { direction, ..quiet }));
        others.push(Setting::new("bidirectional", both));
    }
    settings.extend(others.into_iter().map(|setting| setting.with_repeats(effort.repeats)));
    Plan::new(settings, effort.baseline_repeats, SEED)
}

/// Second round: UDP slightly above TCP's throughput, and windows around the BDP.
fn second_round(
    application: &TestSpec,
    effort: &Effort,
    path_mtu_bytes: Option<u32>,
    rtt_s: Option<f64>,
    best_bits_per_s: Option<f64>,
) -> Plan {
    let mut settings =
        vec![Setting::new(UDP, udp(application, effort, path_mtu_bytes, best_bits_per_s))];
    if let (true, Some(rtt_s), Some(best)) = (effort.sweep, rtt_s, best_bits_per_s) {
        // A point of the sweep needs less accuracy than the figure the verdict is based on.
        let shorter = Effort { duration_s: (effort.duration_s / 2.0).max(1.0), ..*effort };
        let quiet = TestSpec { latency_under_load: false, ..baseline(application, &shorter) };
        settings.extend(sweep::window_sweep(rtt_s, best).into_iter().map(|window_bytes| {
            let spec = TestSpec { window_bytes: Some(window_bytes), ..quiet.clone() };
            let varied = BTreeMap::from([("window_bytes".to_owned(), window_bytes as f64)]);
            Setting { varied, ..Setting::new(WINDOWS, spec) }
        }));
    }
    Plan::new(settings, effort.repeats, SEED)
}

fn udp(
    application: &TestSpec,
    effort: &Effort,
    path_mtu_bytes: Option<u32>,
    best_bits_per_s: Option<f64>,
) -> TestSpec {
    /// IPv6 and UDP headers, bytes, so that the payload fits the path with IPv4 too.
    const HEADERS_BYTES: u32 = 48;
    let datagram_bytes = path_mtu_bytes.map_or(1400, |mtu| mtu.saturating_sub(HEADERS_BYTES));
    TestSpec {
        direction: effort.way,
        limit: TestLimit::DurationS(effort.duration_s),
        omit_s: effort.omit_s,
        interval_s: 0.25_f64.min(effort.duration_s / 4.0),
        offered_bits_per_s: best_bits_per_s.map(|best| (best * UDP_HEADROOM).round()),
        near_cores: application.near_cores.clone(),
        far_cores: application.far_cores.clone(),
        dscp: application.dscp,
        ..TestSpec::udp(datagram_bytes.clamp(64, 65_000))
    }
}

/// Highest TCP throughput in direction `way` so far, bit/s.
fn best_tcp<'a>(points: impl Iterator<Item = &'a Point>, way: Direction) -> Option<f64> {
    points
        .filter_map(Point::measured)
        .flat_map(|outcome| &outcome.directions)
        .filter(|direction| direction.direction == way)
        .map(|direction| direction.received_bits_per_s)
        .max_by(f64::total_cmp)
        .filter(|best| *best > 0.0)
}
