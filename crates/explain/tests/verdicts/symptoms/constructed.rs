//! A document with round figures, whose symptoms a hand can compute: 6 s at 76 Mbit/s over 20 ms, the first
//! interval of a second not being steady.

use explain::symptoms::{Symptoms, symptoms};
use results::{
    CoreClock, CoreUse, CpuQuota, DeviceCounters, Direction, DirectionOutcome, End, EndCounters,
    EndReport, Host, HostAccount, HostFacts, IdleStateUse, InterfaceFacts, IntervalSample,
    KernelThreadUse, LatencySummary, MemoryTraffic, PathFacts, PercentilePoint, Point, Protocol,
    QdiscCounters, RequestResponseOutcome, Results, RunKind, SoftirqCounters, SoftnetCounters,
    StreamEnd, TcpSample, TcpSummary, TestOutcome, TestSpec, UdpOutcome, UdpStreamEnd,
};

use super::{median, named, without};

const BYTES: u64 = 9_500_000;
const RATE: f64 = 76e6;

fn close(all: &Symptoms, name: &str, end: Option<End>, value: f64) {
    let told = median(all, name, end).unwrap_or_else(|| panic!("{name} is absent"));
    assert!((told - value).abs() <= 1e-6 * value.abs(), "{name}: {told}, not {value}");
}

/// TCP after `step` seconds.
fn sample(step: u64) -> TcpSample {
    let at_s = step as f64;
    TcpSample {
        // In the steady seconds 2 to 6: 19, 21, 20, 19, 21 ms.
        rtt_s: [0.02, 0.02, 0.019, 0.021, 0.020, 0.019, 0.021][step as usize],
        rtt_variation_s: 0.001,
        rtt_min_s: Some(0.018),
        congestion_window_bytes: 380_000,
        peer_window_bytes: Some(192_000),
        in_flight_bytes: 190_000,
        not_sent_bytes: Some(110_000),
        retransmits_count: if step < 3 { 0 } else { (step - 2).min(2) * 5 },
        delivery_bits_per_s: Some(RATE),
        delivery_app_limited: step == 6,
        pacing_bits_per_s: Some(1.2 * RATE),
        busy_s: Some(0.9 * at_s),
        receive_window_limited_s: Some(0.72 * at_s),
        send_buffer_limited_s: Some(0.09 * at_s),
        marked_count: Some(95 * step),
        reordered_count: Some(step / 2),
        needless_retransmits_count: Some(if step == 6 { 4 } else { 0 }),
        slow_start_threshold_bytes: Some(300_000),
        ..TcpSample::default()
    }
}

fn stream(sending: bool) -> StreamEnd {
    let interval = |step: u64| IntervalSample {
        start_s: step as f64,
        end_s: step as f64 + 1.0,
        bytes: BYTES,
        tcp: Some(if sending {
            sample(step + 1)
        } else {
            TcpSample { advertised_window_bytes: Some(150_000), ..TcpSample::default() }
        }),
        send_queue_bytes: sending.then_some(300_000),
        receive_queue_bytes: (!sending).then_some(50_000),
        ..IntervalSample::default()
    };
    let receives = TcpSample {
        out_of_order_count: Some(114),
        receiver_rtt_s: Some(0.021),
        ..TcpSample::default()
    };
    StreamEnd {
        sending,
        bytes: 6 * BYTES,
        duration_s: 6.0,
        cores: vec![0],
        thread_user_s: Some(0.6),
        thread_system_s: Some(2.4),
        thread_wait_s: Some(0.3),
        thread_slices_count: Some(120),
        thread_sleeps_count: Some(600),
        thread_preempted_count: Some(60),
        thread_migrations_count: Some(12),
        send_buffer_bytes: Some(600_000),
        receive_buffer_bytes: Some(400_000),
        tcp: Some(TcpSummary {
            congestion_control: "cubic".to_owned(),
            mss_bytes: 1000,
            segments_out_count: Some(57_010),
            segments_in_count: Some(28_505),
            first: if sending { sample(0) } else { TcpSample::default() },
            last: if sending { sample(6) } else { receives },
            ..TcpSummary::default()
        }),
        intervals: (0..6).map(interval).collect(),
        ..StreamEnd::default()
    }
}

fn counters() -> EndCounters {
    let softnet = |core: u32, processed_pkts: u64, dropped_pkts: u64| SoftnetCounters {
        core,
        processed_pkts,
        dropped_pkts,
        squeezed_count: 2,
        flow_limited_pkts: 1,
        ..SoftnetCounters::default()
    };
    EndCounters {
        devices: vec![DeviceCounters {
            interface: "eth0".to_owned(),
            tx_bytes: 60_000_000,
            tx_pkts: 10_000,
            rx_bytes: 60_000_000,
            rx_pkts: 20_000,
            rx_drops_count: 11,
            rx_errors_count: 12,
            tx_drops_count: 13,
            rx_ring_overruns_count: Some(14),
            ..DeviceCounters::default()
        }],
        softnet: vec![softnet(0, 30_000, 3), softnet(1, 10_000, 4)],
        softirqs: vec![SoftirqCounters { core: 0, net_rx_count: 6000, net_tx_count: 1 }],
        kernel_threads: vec![KernelThreadUse { run_s: 0.6, ..KernelThreadUse::default() }],
        qdiscs: vec![QdiscCounters {
            interface: "eth0".to_owned(),
            parent: "root".to_owned(),
            dropped_pkts: 21,
            requeues_count: 22,
            backlog_bytes: 23,
            ..QdiscCounters::default()
        }],
        quota: Some(CpuQuota {
            periods_count: 100,
            throttled_count: 25,
            throttled_s: 1.5,
            ..CpuQuota::default()
        }),
        clocks: vec![CoreClock {
            last_khz: 2_000_000,
            hardware_max_khz: Some(4_000_000),
            ..CoreClock::default()
        }],
        idle_states: vec![IdleStateUse {
            core: 0,
            exit_latency_us: 100,
            entered_count: 1200,
            ..IdleStateUse::default()
        }],
        memory_traffic: vec![MemoryTraffic { domain: 0, bytes: 6_000_000_000 }],
        ..EndCounters::default()
    }
}

fn report(sending: bool) -> EndReport {
    let busy = CoreUse {
        core: 0,
        user: 0.2,
        system: 0.3,
        softirq: 0.1,
        irq: 0.01,
        steal: 0.04,
        idle: 0.35,
    };
    EndReport {
        streams: vec![stream(sending)],
        cores: vec![busy, CoreUse { core: 1, idle: 0.95, user: 0.05, ..CoreUse::default() }],
        counters: counters(),
        process_cpu_s: Some((1.2, 2.4)),
        ..EndReport::default()
    }
}

fn latency(median_s: f64) -> LatencySummary {
    let at = |percentile: f64, value_s: f64| PercentilePoint { percentile, value_s };
    LatencySummary {
        count: 1000,
        min_s: median_s * 0.5,
        mean_s: median_s,
        deviation_s: median_s * 0.1,
        max_s: median_s * 5.0,
        percentiles: vec![
            at(50.0, median_s),
            at(90.0, median_s * 1.5),
            at(99.0, median_s * 2.0),
            at(99.9, median_s * 4.0),
        ],
        method: "tcp-rr".to_owned(),
    }
}

fn tcp(rate: f64) -> Point {
    let direction = DirectionOutcome {
        direction: Direction::Forward,
        sent_bytes: 6 * BYTES,
        received_bytes: 6 * BYTES,
        sent_bits_per_s: rate,
        received_bits_per_s: rate,
        retransmits_count: Some(10),
        udp: None,
    };
    let outcome = TestOutcome {
        duration_s: 6.0,
        directions: vec![direction],
        latency_under_load: Some(latency(0.03)),
        hosts: HostAccount::of_ends(report(true), Some(report(false))),
        ..TestOutcome::default()
    };
    Point::new("single-stream", TestSpec::tcp(), outcome)
}

fn document(points: Vec<Point>) -> Results {
    let interface =
        InterfaceFacts { name: "eth0".to_owned(), mtu_bytes: 1500, ..InterfaceFacts::default() };
    let host = |name: &str| HostFacts {
        name: name.to_owned(),
        interface: Some(interface.clone()),
        ..HostFacts::default()
    };
    let path = PathFacts {
        idle_rtt: Some(latency(0.01)),
        path_mtu_bytes: Some(1500),
        ..PathFacts::default()
    };
    Results {
        hosts: vec![Host::near(host("a")), Host::far(host("b"))],
        path,
        points,
        ..Results::begun(RunKind::Path, 0)
    }
}

#[test]
fn the_connection_at_the_sender_is_as_computed_by_hand() {
    let all = symptoms(&document(vec![tcp(RATE)]));
    for (name, value) in [
        ("rtt", 0.020),
        ("rtt-variation", 0.001),
        ("rtt-min", 0.018),
        ("busy-share", 0.9),
        ("receive-window-limited-share", 0.8),
        ("send-buffer-limited-share", 0.1),
        ("application-limited-share", 0.2),
        ("writer-idle-share", 0.0),
        ("congestion-window", 380_000.0),
        ("congestion-window-swing", 1.0),
        ("slow-start-threshold", 300_000.0),
        ("peer-window", 192_000.0),
        ("peer-window-steadiness", 1.0),
        ("in-flight", 190_000.0),
        ("peer-window-fill", 190.0 / 192.0),
        ("congestion-window-fill", 0.5),
        ("peer-window-full-share", 1.0),
        ("congestion-window-full-share", 0.0),
        ("drained-share", 0.0),
        ("littles-law-ratio", RATE * 0.02 / (8.0 * 190_000.0)),
        ("send-buffer", 600_000.0),
        ("send-queue", 300_000.0),
        ("send-queue-of-buffer", 0.5),
        ("in-flight-of-send-queue", 190.0 / 300.0),
        ("not-sent", 110_000.0),
        ("delivery-rate", RATE),
        ("pacing-rate", 1.2 * RATE),
        ("segment-payload", 1000.0),
        ("segments-per-acknowledgement", 2.0),
        ("retransmitted-segments", 10.0),
        ("retransmit-share", 10.0 / 57_010.0),
        ("loss-event-share", 2.0 / 57_010.0),
        ("needless-retransmits", 4.0),
        ("needless-retransmit-share", 0.4),
        ("reordering-events", 3.0),
        ("marked-share", 0.01),
    ] {
        close(&all, name, Some(End::Near), value);
    }
    for name in ["pacing-maximum", "zero-copied-share"] {
        assert_eq!(median(&all, name, None), None, "{name}");
    }
}

#[test]
fn the_receiver_and_the_path_are_as_computed_by_hand() {
    let all = symptoms(&document(vec![tcp(RATE)]));
    for (name, value) in [
        ("advertised-window", 150_000.0),
        ("receive-buffer", 400_000.0),
        ("window-of-buffer", 0.48),
        ("receive-queue", 50_000.0),
        ("receive-socket-fullness", 0.25),
        ("reader-idle-share", 0.0),
        ("receiver-segment-payload", 1000.0),
        ("receiver-rtt", 0.021),
        ("out-of-order-packets", 114.0),
        ("out-of-order-share", 0.002),
    ] {
        close(&all, name, Some(End::Far), value);
    }
    for (name, value) in [
        ("throughput", RATE),
        ("throughput-growth", 1.0),
        ("throughput-unsteadiness", 0.0),
        ("loaded-rtt-p50", 0.03),
        ("loaded-rtt-p99", 0.06),
        ("queue-growth", 2.0),
        ("queue-delay", 0.01),
        ("queue-content", 95_000.0),
        ("idle-rtt-p50", 0.01),
        ("idle-rtt-p99", 0.02),
        ("path-mtu", 1500.0),
    ] {
        close(&all, name, None, value);
    }
    for name in [
        "line-use-share",
        "streams-gain",
        "streams-compared",
        "streams-sender-idle-share",
        "datagrams-of-throughput",
        "datagrams-lost-share",
    ] {
        assert_eq!(median(&all, name, None), None, "{name}");
    }
}

#[test]
fn both_hosts_are_as_computed_by_hand() {
    let all = symptoms(&document(vec![tcp(RATE)]));
    let both = [
        ("thread-run-share", 0.5),
        ("thread-user-share", 0.1),
        ("thread-system-share", 0.4),
        ("thread-wait-share", 0.05),
        ("thread-delay", 0.0025),
        ("thread-sleeps", 100.0),
        ("thread-preemptions", 10.0),
        ("thread-migrations", 2.0),
        ("process-cores", 0.6),
        ("processor-time-per-gbit", 3.6 / 0.456),
        ("idle-share", 0.65),
        ("steal-share", 0.02),
        ("quota-throttled-share", 0.25),
        ("quota-throttled-time", 1.5),
        ("clock-of-maximum", 0.5),
        ("idle-exit-share", 0.02),
        ("softirq-rounds", 1000.0),
        ("kernel-thread-run-share", 0.1),
        ("softnet-busiest-share", 0.75),
        ("softnet-dropped", 7.0),
        ("softnet-flow-limited", 2.0),
        ("softnet-squeezed", 4.0),
        ("device-receive-drops", 11.0),
        ("device-receive-errors", 12.0),
        ("device-send-drops", 13.0),
        ("device-ring-overruns", 14.0),
        ("qdisc-drops", 21.0),
        ("qdisc-requeues", 22.0),
        ("qdisc-backlog", 23.0),
        ("memory-traffic", 1e9),
        ("core-0-user-share", 0.2),
        ("core-0-system-share", 0.3),
        ("core-0-softirq-share", 0.1),
        ("core-0-irq-share", 0.01),
        ("core-0-steal-share", 0.04),
        ("core-0-idle-share", 0.35),
    ];
    for end in [End::Near, End::Far] {
        for (name, value) in both {
            close(&all, name, Some(end), value);
        }
        assert!(named(&all, "core-1-idle-share", Some(end)).is_none(), "core 1 is not busy");
    }
    close(&all, "device-packet-size", Some(End::Near), 6000.0);
    close(&all, "device-packet-size", Some(End::Far), 3000.0);
}

#[test]
fn several_repeats_have_a_spread_and_one_has_an_error_of_its_samples() {
    let one = symptoms(&document(vec![tcp(RATE)]));
    let rtt = named(&one, "rtt", None).and_then(|one| one.estimate).expect("rtt");
    let sampling = rtt.sampling.expect("five samples");
    assert_eq!((rtt.repeats_count, rtt.spread, sampling.samples_count), (1, None, 5));
    // Deviations of 19, 21, 20, 19, 21 ms from 20: squares 4, over 4, root 1 ms; over the root of 5.
    assert!((sampling.standard_error - 0.001 / 5.0_f64.sqrt()).abs() < 1e-12, "{sampling:?}");
    let two = symptoms(&document(vec![tcp(RATE), tcp(RATE + 4e6)]));
    let told = named(&two, "throughput", None).and_then(|one| one.estimate).expect("throughput");
    let spread = told.spread.expect("two repeats");
    assert_eq!((told.median, told.repeats_count, told.sampling), (RATE + 2e6, 2, None));
    assert_eq!((told.sum, rtt.sum), (2.0 * RATE + 4e6, rtt.median));
    assert_eq!((spread.min, spread.max), (RATE, RATE + 4e6));
    assert!((spread.deviation - 8e12_f64.sqrt()).abs() < 1.0, "{spread:?}");
}

#[test]
fn figures_that_break_littles_law_are_told() {
    let mut results = document(vec![tcp(RATE)]);
    assert_eq!(symptoms(&results).contradiction(), None);
    let results::PointOutcome::Measured(outcome) = &mut results.points[0].outcome else {
        panic!("measured");
    };
    let streams = outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams);
    for interval in streams.flat_map(|stream| &mut stream.intervals) {
        if let Some(tcp) = &mut interval.tcp {
            tcp.in_flight_bytes *= 2;
        }
    }
    let told = symptoms(&results).contradiction().expect("half as much as was in flight");
    assert!(told.contains("0.50"), "{told}");
    // iperf3 writes down no data in flight; what its reader works out agrees by construction.
    results.tool.name = "iperf3".to_owned();
    let all = symptoms(&results);
    assert_eq!(median(&all, "littles-law-ratio", None), None);
    assert_eq!(median(&all, "in-flight", None), None);
}

#[test]
fn a_sender_that_tells_no_retransmissions_has_no_share_of_them() {
    let mut results = document(vec![tcp(RATE)]);
    let results::PointOutcome::Measured(outcome) = &mut results.points[0].outcome else {
        panic!("measured");
    };
    outcome.directions[0].retransmits_count = None;
    let all = symptoms(&results);
    for name in ["retransmit-share", "loss-event-share"] {
        assert_eq!(median(&all, name, None), None, "{name}");
    }
}

#[test]
fn round_trips_are_as_computed_by_hand() {
    let outcome = TestOutcome {
        duration_s: 6.0,
        request_response: Some(RequestResponseOutcome {
            transactions_count: 6000,
            transactions_per_s: 1000.0,
            timeouts_count: 2000,
            latency: latency(0.001),
        }),
        hosts: HostAccount::of_ends(report(true), Some(report(false))),
        ..TestOutcome::default()
    };
    let spec = TestSpec::request_response(Protocol::Tcp, 1, 1);
    let results = document(vec![Point::new("round-trip", spec, outcome)]);
    let all = symptoms(&results);
    // Per transaction: 0.3 s of waiting, and 1200 exits of 100 us at most once each.
    let (wait_s, exit_s) = (0.3 / 6000.0, 0.12 / 6000.0);
    for (name, value) in [
        ("transactions", 1000.0),
        ("transaction-min", 0.0005),
        ("transaction-p50", 0.001),
        ("transaction-p90", 0.0015),
        ("transaction-p99", 0.002),
        ("transaction-p99.9", 0.004),
        ("transaction-deviation", 0.0001),
        ("transaction-timeout-share", 0.25),
        ("near-core-wait", wait_s),
        ("far-core-wait", wait_s),
        ("near-idle-exit", exit_s),
        ("far-idle-exit", exit_s),
        ("transaction-rest", 0.001 - 2.0 * (wait_s + exit_s)),
    ] {
        close(&all, name, None, value);
    }
    // The hosts are those of this test, as there is no TCP bulk transfer.
    close(&all, "thread-run-share", Some(End::Far), 0.5);
    assert_eq!(median(&all, "rtt", None), None);
}

/// A test at an offered rate, of which `path` and `socket` datagrams of 1000 bytes were lost.
fn udp(offered_bits_per_s: f64, path: u64, socket: u64) -> Point {
    let sent = (offered_bits_per_s * 6.0 / 8000.0) as u64;
    let lost = path + socket;
    let rate = |count: u64| count as f64 * 8000.0 / 6.0;
    let direction = DirectionOutcome {
        direction: Direction::Forward,
        sent_bytes: sent * 1000,
        received_bytes: (sent - lost) * 1000,
        sent_bits_per_s: rate(sent),
        received_bits_per_s: rate(sent - lost),
        retransmits_count: None,
        udp: Some(UdpOutcome {
            sent_count: sent,
            received_count: sent - lost,
            lost_count: lost,
            reordered_count: sent / 100,
            duplicate_count: 0,
            jitter_s: Some(0.0002),
            standing_delay_s: Some(0.0083),
            ..UdpOutcome::default()
        }),
    };
    let end = |sending: bool| {
        let udp = UdpStreamEnd {
            socket_drops_count: (!sending).then_some(socket),
            send_failures_count: sending.then_some(5),
            ..UdpStreamEnd::default()
        };
        let stream = StreamEnd { sending, udp: Some(udp), ..StreamEnd::default() };
        let softnet = vec![SoftnetCounters { processed_pkts: sent, ..SoftnetCounters::default() }];
        let counters = EndCounters { softnet, ..EndCounters::default() };
        EndReport { streams: vec![stream], counters, ..EndReport::default() }
    };
    let outcome = TestOutcome {
        duration_s: 6.0,
        directions: vec![direction],
        hosts: HostAccount::of_ends(end(true), Some(end(false))),
        ..TestOutcome::default()
    };
    let spec = TestSpec { offered_bits_per_s: Some(offered_bits_per_s), ..TestSpec::udp(1000) };
    Point::new("udp", spec, outcome)
}

#[test]
fn datagrams_are_as_computed_by_hand_at_each_rate() {
    // Of 30 000 at 40 Mbit/s 300 are lost on the path; of 60 000 at 80 Mbit/s 12 000 there and 3000 at the socket.
    let results = document(vec![udp(80e6, 12_000, 3000), udp(40e6, 300, 0)]);
    let all = symptoms(&results);
    let at = |rate: f64, name: &str| {
        let told = all
            .all()
            .find(|(group, one)| group.offered_bits_per_s == Some(rate) && one.name == name);
        told.and_then(|(_, one)| one.estimate).map(|one| one.median)
    };
    for (rate, name, value) in [
        (40e6, "lost-share", Some(0.01)),
        (40e6, "lost-on-path-share", Some(0.01)),
        (40e6, "lost-at-socket-share", Some(0.0)),
        (80e6, "sent-rate", Some(80e6)),
        (80e6, "delivered-rate", Some(60e6)),
        (80e6, "lost-share", Some(0.25)),
        (80e6, "lost-on-path-share", Some(0.2)),
        (80e6, "lost-at-socket-share", Some(0.05)),
        (80e6, "lost-at-backlog-share", Some(0.0)),
        (80e6, "late-share", Some(0.01)),
        (80e6, "duplicate-share", Some(0.0)),
        (80e6, "undecided-share", Some(0.0)),
        (80e6, "refused-sends", Some(5.0)),
        (80e6, "jitter", Some(0.0002)),
    ] {
        assert_eq!(at(rate, name), value, "{name} at {rate}");
    }
    close(&all, "loss-at-lower-rate-ratio", None, 0.05);
    close(&all, "delivered-at-lower-rate-ratio", None, 39.6 / 60.0);
    // Where the receiver tells no counters, nobody knows where they were lost.
    let mut document = serde_json::to_value(&results).expect("JSON");
    for field in ["counters", "udp_drops", "socket_drops_count"] {
        without(&mut document, field);
    }
    let all = symptoms(&serde_json::from_value(document).expect("a document"));
    for name in ["lost-on-path-share", "lost-at-socket-share", "lost-at-backlog-share"] {
        assert_eq!(median(&all, name, None), None, "{name}");
    }
    close(&all, "lost-share", None, 0.01);
}

#[test]
fn several_streams_and_datagrams_are_compared_with_the_judged_test() {
    let mut four = tcp(3.0 * RATE);
    four.experiment = "multi-stream".to_owned();
    four.work = TestSpec { streams: 4, ..TestSpec::tcp() }.into();
    let all = symptoms(&document(vec![tcp(RATE), four, udp(160e6, 6000, 0)]));
    for (name, value) in [
        ("streams-gain", 3.0),
        ("streams-compared", 4.0),
        ("streams-sender-idle-share", 0.65),
        ("streams-receiver-idle-share", 0.65),
        ("streams-receiver-rtt", 0.021),
        ("datagrams-of-throughput", 2.0),
        ("datagrams-sent", 120_000.0),
        ("datagrams-sent-rate", 160e6),
        ("datagrams-delivered-rate", 152e6),
        ("datagrams-lost-share", 0.05),
        ("datagrams-late-share", 0.01),
        // Clocks may drift apart by 0.05 ms on average in each of the 6 s.
        ("datagrams-standing-delay", 0.008),
    ] {
        close(&all, name, None, value);
    }
    assert_eq!(median(&all, "datagrams-lost-on-path-share", None), None, "nobody tells where");
}

#[test]
fn datagrams_that_the_receiver_lost_are_not_lost_on_the_path() {
    // Of 120 000 at 160 Mbit/s 6000 are lost on the path, 6000 at the socket, of which the receiver tells.
    let mut point = udp(160e6, 6000, 6000);
    let results::PointOutcome::Measured(outcome) = &mut point.outcome else { panic!("measured") };
    let told = outcome.directions[0].udp.as_mut().expect("UDP");
    told.loss.socket_buffer_count = Some(6000);
    let all = symptoms(&document(vec![tcp(RATE), point]));
    close(&all, "datagrams-lost-share", None, 0.05);
    close(&all, "datagrams-lost-on-path-share", None, 0.05);
}

/// A test of one second may hold one sample: a moment, of which nobody knows how far it is from the mean.
#[test]
fn one_sample_contradicts_nothing() {
    let mut results = document(vec![tcp(RATE)]);
    let results::PointOutcome::Measured(outcome) = &mut results.points[0].outcome else {
        panic!("measured");
    };
    let streams = outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams);
    for stream in streams {
        for interval in &mut stream.intervals {
            if let Some(tcp) = &mut interval.tcp {
                tcp.in_flight_bytes *= 2;
            }
        }
    }
    assert!(symptoms(&results).contradiction().is_some(), "five samples, all of them half");
    let results::PointOutcome::Measured(outcome) = &mut results.points[0].outcome else {
        panic!("measured");
    };
    for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
        let last = stream.intervals.len() - 1;
        stream.intervals.drain(..last);
    }
    let told = symptoms(&results);
    let law = named(&told, "littles-law-ratio", None).and_then(|one| one.estimate).expect("it");
    assert!((law.median - 0.5).abs() < 0.1 && law.sampling.is_none(), "{law:?}");
    assert_eq!(told.contradiction(), None);
}
