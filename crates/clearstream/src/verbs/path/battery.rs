//! The tests `path` runs, in two rounds: what TCP does, then what that result asks about.

use std::collections::BTreeMap;

use results::{Direction, Point, TestLimit, TestSpec};
use sweep::{Plan, Setting};

/// How thorough a run is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Measured seconds of one test.
    pub(super) duration_s: f64,
    /// Seconds at the start of each that do not count.
    pub(super) omit_s: f64,
    /// Repeats of the single stream, which the verdict rests on.
    pub(super) baseline_repeats: u32,
    /// Repeats of everything else.
    pub(super) repeats: u32,
    /// Whether to sweep the window.
    pub(super) sweep: bool,
    /// Forward or reverse: the way that is judged.
    pub(super) way: Direction,
    /// Whether to leave out the tests of the other way and of both at once.
    pub(super) one_way: bool,
}

/// Streams of the `multi-stream` test: enough to tell a limit of the stream from one of the path.
const STREAMS_COUNT: u32 = 4;

/// UDP is offered at this multiple of the best TCP figure: enough to find a ceiling above it,
/// without flooding a shared network at whatever the processor can do.
const UDP_HEADROOM: f64 = 1.2;

/// Every order of the tests is a shuffle from this seed; any fixed number serves.
const SEED: u64 = 0x1650;

/// The application's own options, as a single stream of this effort, the way that is judged.
pub(super) fn baseline(application: &TestSpec, effort: &Effort) -> TestSpec {
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

/// First round: TCP as the application has it: alone, in parallel, back, and both ways at once.
pub(super) fn first_round(application: &TestSpec, effort: &Effort) -> Plan {
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

/// Second round: UDP a little above what TCP reached, and the window around the BDP.
pub(super) fn second_round(
    application: &TestSpec,
    effort: &Effort,
    path_mtu_bytes: Option<u32>,
    rtt_s: Option<f64>,
    points: &[Point],
) -> Plan {
    let best_bits_per_s = best_tcp(points, effort.way);
    let mut settings =
        vec![Setting::new("udp", udp(application, effort, path_mtu_bytes, best_bits_per_s))];
    if let (true, Some(rtt_s), Some(best)) = (effort.sweep, rtt_s, best_bits_per_s) {
        // A point of the curve needs less than the figure the verdict rests on.
        let shorter = Effort { duration_s: (effort.duration_s / 2.0).max(1.0), ..*effort };
        let quiet = TestSpec { latency_under_load: false, ..baseline(application, &shorter) };
        settings.extend(sweep::window_sweep(rtt_s, best).into_iter().map(|window_bytes| {
            let spec = TestSpec { window_bytes: Some(window_bytes), ..quiet.clone() };
            let varied = BTreeMap::from([("window_bytes".to_owned(), window_bytes as f64)]);
            Setting { varied, ..Setting::new("window-sweep", spec) }
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
    /// IPv6 and UDP headers; the payload that fits the path either way.
    const HEADERS_BYTES: u32 = 48;
    let datagram_bytes = path_mtu_bytes.map_or(1400, |mtu| mtu.saturating_sub(HEADERS_BYTES));
    TestSpec {
        direction: effort.way,
        limit: TestLimit::DurationS(effort.duration_s),
        omit_s: effort.omit_s,
        interval_s: 0.25_f64.min(effort.duration_s / 4.0),
        offered_bits_per_s: best_bits_per_s.map(|best| best * UDP_HEADROOM),
        near_cores: application.near_cores.clone(),
        far_cores: application.far_cores.clone(),
        dscp: application.dscp,
        ..TestSpec::udp(datagram_bytes.clamp(64, 65_000))
    }
}

/// The most that TCP carried `way` so far, bit/s.
pub(super) fn best_tcp(points: &[Point], way: Direction) -> Option<f64> {
    points
        .iter()
        .filter_map(Point::measured)
        .flat_map(|outcome| &outcome.directions)
        .filter(|direction| direction.direction == way)
        .map(|direction| direction.received_bits_per_s)
        .max_by(f64::total_cmp)
        .filter(|best| *best > 0.0)
}
