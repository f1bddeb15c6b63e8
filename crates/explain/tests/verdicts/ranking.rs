//! The ranking of the limits that may bind, and why the second is not the first.

use results::{
    DeviceCounters, EndCounters, EndReport, Evidence, Limit, Point, PointOutcome, QdiscCounters,
    Results, Verdict,
};

use crate::model::Model;
use crate::symptoms::recordings;
use crate::tcp;

/// Limits that may bind, behind the one that the verdict names.
fn behind(verdict: &Verdict) -> Vec<&Evidence> {
    let is_ranked = |line: &&Evidence| {
        ["second: ", "less likely: "].iter().any(|rank| line.text.starts_with(rank))
    };
    verdict.ruled_out.iter().filter(is_ranked).collect()
}

#[test]
fn each_limit_behind_the_first_says_what_speaks_against_it() {
    let mut ranked_count = 0;
    for (name, results) in recordings() {
        let verdict = explain::explain(&results);
        let behind = behind(&verdict);
        ranked_count += behind.len();
        for (place, line) in behind.iter().enumerate() {
            assert_eq!(line.text.starts_with("second: "), place == 0, "{name}: {line:?}");
            let why = line.text.split_once("; against it: ").map(|(_, doubt)| doubt);
            let is_told = why.is_some_and(|doubt| !doubt.is_empty());
            let is_close = ["speak more directly for", "do not distinguish it from"]
                .iter()
                .any(|words| line.text.contains(words));
            assert!(is_told || is_close, "{name}: {line:?}");
        }
        let weights: Vec<f64> = behind.iter().map(|line| line.weight).collect();
        assert!(weights.is_sorted_by(|a, b| a >= b), "{name}: {weights:?}");
    }
    assert!(ranked_count >= 3, "only {ranked_count} limits stand behind another");
}

/// What the near end reported of each point of an experiment.
fn near<'r>(
    results: &'r mut Results,
    experiment: &'static str,
) -> impl Iterator<Item = &'r mut EndReport> {
    let points = results.points.iter_mut().filter(move |point| point.experiment == experiment);
    points.filter_map(|point| match &mut point.outcome {
        PointOutcome::Measured(outcome) => outcome.hosts.first_mut().map(|one| &mut one.account),
        _ => None,
    })
}

fn set_rate(point: &mut Point, rate: f64) {
    let PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
    let bytes = (rate * outcome.duration_s / 8.0) as u64;
    for direction in &mut outcome.directions {
        direction.received_bits_per_s = rate;
    }
    let streams = outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams);
    streams.for_each(|stream| stream.bytes = bytes);
}

/// One repeat gets little of a line that others share, the next one most of it.
#[test]
fn other_traffic_is_counted_beside_the_throughput_of_the_same_repeat() {
    let line = Some(1e9);
    let model = Model { capacity_bits_per_s: 1e9, near_speed_bits_per_s: line, ..Model::default() };
    let limit = |rates: [f64; 2], together: f64| {
        let mut results = model.results(&tcp());
        let is_third = |point: &Point| point.experiment == "single-stream" && point.repeat > 1;
        results.points.retain(|point| !is_third(point));
        let judged = results.points.iter_mut().filter(|point| point.experiment == "single-stream");
        judged.zip(rates).for_each(|(point, rate)| set_rate(point, rate));
        for report in near(&mut results, "single-stream") {
            let duration_s = report.streams[0].duration_s;
            let tx_bytes = (together * duration_s / 8.0) as u64;
            let device =
                DeviceCounters { interface: "eth0".into(), tx_bytes, ..DeviceCounters::default() };
            report.counters = EndCounters { devices: vec![device], ..EndCounters::default() };
        }
        explain::explain(&results).limit
    };
    assert_eq!(limit([0.2e9, 0.75e9], 0.97e9), Limit::CrossTraffic);
    assert_eq!(limit([0.75e9, 0.2e9], 0.97e9), Limit::CrossTraffic);
    // Together far below the line: nothing that both share.
    assert_ne!(limit([0.1e9, 0.2e9], 0.3e9), Limit::CrossTraffic);
    // Together several times the line: the device does not tell the rate of this direction.
    assert_ne!(limit([0.2e9, 0.75e9], 3e9), Limit::CrossTraffic);
}

/// What came before the measured time, while slow start ended, and cut the window.
struct Start {
    /// Packets that the host's queue drops of several streams.
    dropped_pkts: u64,
    retransmits_count: u64,
    /// The window over what the cut left of it.
    regained: f64,
    /// Whether UDP arrives late instead of not at all.
    is_late: bool,
}

impl Start {
    /// The limit that is named of a window that grows slowly.
    fn limit(&self) -> Limit {
        let growth = 0.7e9;
        let model = Model {
            congestion_control: "reno",
            window_growth_bits_per_s: growth,
            ..Model::default()
        };
        let mut results = model.results(&tcp());
        for stream in near(&mut results, "single-stream").flat_map(|report| &mut report.streams) {
            let sampled = stream.intervals.iter_mut().filter_map(|one| one.tcp.as_mut());
            let tcp = stream.tcp.iter_mut().flat_map(|tcp| [&mut tcp.first, &mut tcp.last]);
            for sample in tcp.chain(sampled) {
                let threshold = sample.congestion_window_bytes as f64 / self.regained;
                sample.slow_start_threshold_bytes = Some(threshold as u64);
                sample.marked_count = Some(0);
                sample.retransmits_count = self.retransmits_count;
            }
        }
        for report in near(&mut results, "multi-stream") {
            let qdisc = QdiscCounters {
                interface: "eth0".into(),
                kind: "pfifo".into(),
                dropped_pkts: self.dropped_pkts,
                ..QdiscCounters::default()
            };
            report.counters = EndCounters { qdiscs: vec![qdisc], ..EndCounters::default() };
        }
        let udp = results.points.iter_mut().filter(|point| point.experiment == "udp");
        for point in udp.filter(|_| self.is_late) {
            let PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
            let udp = outcome.directions[0].udp.as_mut().expect("datagrams");
            udp.received_count = udp.sent_count;
            udp.lost_count = 0;
            udp.reordered_count = udp.sent_count / 50;
        }
        explain::explain(&results).limit
    }
}

/// Few losses, or drops of the host's own queue, hold down a window that grows slowly; none is seen while it is measured.
#[test]
fn what_cut_the_window_at_the_start_holds_it() {
    let start = |dropped_pkts, retransmits_count, regained| Start {
        dropped_pkts,
        retransmits_count,
        regained,
        is_late: false,
    };
    for (what, start, limit) in [
        ("nothing was lost or dropped", start(0, 0, 1.3), Limit::CongestionControl),
        ("the queue dropped", start(13, 0, 1.3), Limit::Qdisc),
        (
            "the queue dropped, and the window has grown back",
            start(13, 0, 2.5),
            Limit::CongestionControl,
        ),
        ("the path lost as well as the queue", start(13, 20, 1.3), Limit::Loss),
        ("the path lost", start(0, 6, 1.3), Limit::Loss),
        (
            "the path lost, and the window has grown back",
            start(0, 6, 3.0),
            Limit::CongestionControl,
        ),
        ("datagrams come late", Start { is_late: true, ..start(0, 6, 1.3) }, Limit::Reordering),
    ] {
        assert_eq!(start.limit(), limit, "{what}");
    }
}

/// Acknowledgements that wait make round trips many times longer, though each stream carries as much again.
#[test]
fn a_window_whose_round_trips_grow_under_load_is_not_too_small() {
    let model = Model { window_growth_bits_per_s: 0.5e9, ..Model::default() };
    let limit = |times: f64| {
        let mut results = model.results(&tcp());
        for stream in near(&mut results, "single-stream").flat_map(|report| &mut report.streams) {
            let sampled = stream.intervals.iter_mut().filter_map(|one| one.tcp.as_mut());
            let tcp = stream.tcp.iter_mut().flat_map(|tcp| [&mut tcp.first, &mut tcp.last]);
            for sample in tcp.chain(sampled) {
                sample.rtt_s *= times;
                sample.congestion_window_bytes =
                    (sample.congestion_window_bytes as f64 * times) as u64;
                sample.in_flight_bytes = (sample.in_flight_bytes as f64 * times) as u64;
            }
        }
        explain::explain(&results).limit
    };
    assert_eq!(limit(1.0), Limit::CongestionControl);
    assert_ne!(limit(8.0), Limit::CongestionControl);
}
