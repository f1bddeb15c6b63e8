use results::{
    Confirmation, Direction, DirectionOutcome, EndReport, Figure, GateResult, HostAccount,
    IntervalSample, LatencySummary, Limit, PercentilePoint, Point, PointOutcome, Protocol,
    RequestResponseOutcome, StreamEnd, TestLimit, TestOutcome, TestSpec, UdpOutcome, Verdict,
};

use super::{Gate, GateError, GatedVerb, Judged};

const NOTHING: Judged<'static> =
    Judged { points: &[], idle_rtt: None, verdict: None, partial: None, wrong_data_count: None };

fn gate(verb: GatedVerb, line: &str) -> Result<Gate, GateError> {
    match line.split_once(' ').expect("option and value") {
        ("below", text) => Gate::fail_below(verb, text),
        ("above", text) => Gate::fail_above(verb, text),
        (_, text) => Gate::require(verb, text),
    }
}

fn judge(verb: GatedVerb, line: &str, judged: Judged<'_>) -> Vec<GateResult> {
    gate(verb, line).expect(line).judge(judged)
}

fn point(experiment: &str, repeat: u32, spec: TestSpec, outcome: TestOutcome) -> Point {
    Point { repeat, ..Point::new(experiment, spec, outcome) }
}

fn direction(way: Direction, bits_per_s: f64, retransmits_count: Option<u64>) -> DirectionOutcome {
    DirectionOutcome {
        direction: way,
        sent_bytes: 0,
        received_bytes: 0,
        sent_bits_per_s: bits_per_s,
        received_bits_per_s: bits_per_s,
        retransmits_count,
        udp: None,
    }
}

/// TCP streams, one way, of these rates.
fn streams(experiment: &str, rates: &[f64], retransmits: u64) -> Vec<Point> {
    let one = |(rate, repeat): (&f64, u32)| {
        let way = direction(Direction::Forward, *rate, Some(retransmits * u64::from(repeat)));
        let outcome = TestOutcome { directions: vec![way], ..TestOutcome::default() };
        point(experiment, repeat, TestSpec::tcp(), outcome)
    };
    rates.iter().zip(0..).map(one).collect()
}

fn datagrams(experiment: &str, lost_count: u64) -> Point {
    let received_count = 1000 - lost_count;
    let udp = UdpOutcome { sent_count: 1000, received_count, lost_count, ..UdpOutcome::default() };
    let way = DirectionOutcome { udp: Some(udp), ..direction(Direction::Forward, 1e8, None) };
    let outcome = TestOutcome { directions: vec![way], ..TestOutcome::default() };
    point(experiment, 0, TestSpec::udp(1448), outcome)
}

fn latency(p50: f64, p99: f64) -> LatencySummary {
    LatencySummary {
        count: 100,
        min_s: p50,
        mean_s: p50,
        deviation_s: 0.0,
        max_s: p99,
        percentiles: vec![
            PercentilePoint { percentile: 50.0, value_s: p50 },
            PercentilePoint { percentile: 99.0, value_s: p99 },
        ],
        method: "tcp-rr".to_owned(),
    }
}

#[test]
fn a_percentile_that_the_count_cannot_give_misses_its_gate() {
    let few = LatencySummary {
        count: 300,
        percentiles: [50.0, 99.0, 99.9]
            .map(|percentile| PercentilePoint { percentile, value_s: 0.01 })
            .to_vec(),
        ..latency(0.01, 0.01)
    };
    let judged = Judged { idle_rtt: Some(&few), ..NOTHING };
    let of = |line: &str| judge(GatedVerb::Path, line, judged);
    let results = of("above rtt_p99.9=20ms");
    let expected =
        "rtt_p99.9 was not measured: n too small: p99.9 needs 1000 samples, there are 300";
    assert_eq!(one(&results), (false, expected));
    assert!(one(&of("above rtt_p99=20ms")).0);

    // The idle path has enough, but the test's own round trips are what was asked about.
    let enough = LatencySummary { count: 5000, ..few.clone() };
    let rr = RequestResponseOutcome {
        transactions_count: 300,
        transactions_per_s: 100.0,
        timeouts_count: 0,
        latency: few,
    };
    let outcome = TestOutcome { request_response: Some(rr), ..TestOutcome::default() };
    let points = [point("test", 0, TestSpec::request_response(Protocol::Tcp, 1, 1), outcome)];
    let judged = Judged { points: &points, idle_rtt: Some(&enough), ..NOTHING };
    let results = judge(GatedVerb::Test, "above rtt_p99.9=20ms", judged);
    assert_eq!(one(&results), (false, expected));
    let bulk = Judged { points: &streams("test", &[1e9], 0), ..judged };
    assert!(one(&judge(GatedVerb::Test, "above rtt_p99.9=20ms", bulk)).0);
}

/// The one result of a gate: met or not, and the line.
fn one(results: &[GateResult]) -> (bool, &str) {
    let [result] = results else { panic!("{results:#?}") };
    (result.is_met, &result.text)
}

#[test]
fn the_median_of_the_repeats_is_judged() {
    let points = streams("test", &[1.0e9, 0.5e9, 2.0e9], 1);
    let judged = Judged { points: &points, ..NOTHING };
    for (line, is_met, text) in [
        ("below 1G", true, "throughput 1.00 Gbit/s is not below 1.00 Gbit/s (median of 3)"),
        ("below 1.1G", false, "throughput 1.00 Gbit/s is below 1.10 Gbit/s (median of 3)"),
        (
            "below throughput=900M",
            true,
            "throughput 1.00 Gbit/s is not below 900 Mbit/s (median of 3)",
        ),
        (
            "below test:1.5Gbit/s",
            false,
            "throughput 1.00 Gbit/s is below 1.50 Gbit/s (median of 3)",
        ),
        (
            "above throughput=0.9G",
            false,
            "throughput 1.00 Gbit/s is above 900 Mbit/s (median of 3)",
        ),
        ("above retransmissions=1", true, "retransmissions 1 is not above 1 (median of 3)"),
        ("above retransmits_count=0", false, "retransmissions 1 is above 0 (median of 3)"),
        ("require no-retransmissions", false, "2 retransmissions (test, the worst of 3 runs)"),
        ("require complete", true, "all 3 tests were measured"),
    ] {
        assert_eq!(one(&judge(GatedVerb::Test, line, judged)), (is_met, text), "{line}");
    }
}

#[test]
fn a_figure_that_was_not_measured_misses_its_gate() {
    let points = streams("test", &[1e9], 0);
    let failed = Point { outcome: PointOutcome::Failed("refused".into()), ..points[0].clone() };
    let failed = [points[0].clone(), failed];
    let tcp = Judged { points: &points, ..NOTHING };
    for (verb, line, judged, words) in [
        (GatedVerb::Test, "above loaded_rtt_p99=5ms", tcp, "--latency"),
        (GatedVerb::Test, "above rtt_p99=5ms", tcp, "no round trip"),
        (GatedVerb::Test, "above loss=1%", tcp, "-u"),
        (GatedVerb::Test, "below transactions=1000", tcp, "--rr"),
        (GatedVerb::Test, "above cpu=1s", tcp, "far end"),
        (GatedVerb::Test, "require no-loss", tcp, "no-retransmissions"),
        (GatedVerb::Test, "below 1G", NOTHING, "bulk"),
        (GatedVerb::Path, "below multi-stream:1G", tcp, "not run"),
        (GatedVerb::Path, "require confirmed", tcp, "no verdict"),
        (GatedVerb::Path, "require complete", Judged { points: &failed, ..NOTHING }, "1 of 2"),
        (
            GatedVerb::Path,
            "require complete",
            Judged { partial: Some("ended by signal 2"), ..tcp },
            "signal 2",
        ),
        (GatedVerb::Io, "below 1G", tcp, "not run"),
        (GatedVerb::Io, "require verified", tcp, "no check"),
        (GatedVerb::Meta, "require no-failed-calls", tcp, "not counted"),
    ] {
        let results = judge(verb, line, judged);
        let (is_met, text) = one(&results);
        assert!(!is_met && text.contains(words), "{line}: {text}");
        assert!(!text.contains('\n'), "{text:?}");
    }
    let nan = streams("test", &[f64::NAN], 0);
    let results = judge(GatedVerb::Test, "below 1k", Judged { points: &nan, ..NOTHING });
    assert!(!one(&results).0, "{results:?}");
}

#[test]
fn each_direction_has_to_reach_a_rate() {
    let ways = [(Direction::Forward, 2e9), (Direction::Reverse, 0.5e9)];
    let directions = ways.map(|(way, rate)| direction(way, rate, None)).into();
    let outcome = TestOutcome { directions, ..TestOutcome::default() };
    let points = [point("test", 0, TestSpec::tcp(), outcome)];
    let results = judge(GatedVerb::Test, "below 1G", Judged { points: &points, ..NOTHING });
    let told: Vec<(bool, &str)> =
        results.iter().map(|one| (one.is_met, one.text.as_str())).collect();
    assert_eq!(
        told,
        [
            (true, "forward throughput 2.00 Gbit/s is not below 1.00 Gbit/s (1 run)"),
            (false, "reverse throughput 500 Mbit/s is below 1.00 Gbit/s (1 run)"),
        ]
    );
}

#[test]
fn path_is_judged_by_its_single_stream_unless_a_test_is_named() {
    let mut points = streams("single-stream", &[1e9], 0);
    points.extend(streams("multi-stream", &[4e9, 4e9], 9));
    points.extend(streams("confirm:shaper", &[1.0], 9));
    points.push(datagrams("udp", 250));
    let idle = latency(0.010, 0.012);
    let judged = Judged { points: &points, idle_rtt: Some(&idle), ..NOTHING };
    for (line, is_met, text) in [
        ("below 2G", false, "throughput 1.00 Gbit/s is below 2.00 Gbit/s (single-stream, 1 run)"),
        (
            "below multi-stream:3G",
            true,
            "throughput 4.00 Gbit/s is not below 3.00 Gbit/s (multi-stream, median of 2)",
        ),
        (
            "below udp:throughput=50M",
            true,
            "throughput 100 Mbit/s is not below 50.0 Mbit/s (udp, 1 run)",
        ),
        ("above loss=20%", false, "loss 25% is above 20% (udp, 1 run)"),
        ("above rtt_p99=12ms", true, "rtt_p99 12.0 ms is not above 12.0 ms (idle path)"),
        ("above rtt_p50=9.5ms", false, "rtt_p50 10.0 ms is above 9.50 ms (idle path)"),
        ("require no-retransmissions", true, "no retransmission in 1 run"),
        ("require no-loss", false, "250 lost datagrams (udp, 1 run)"),
    ] {
        assert_eq!(one(&judge(GatedVerb::Path, line, judged)), (is_met, text), "{line}");
    }
}

#[test]
fn jitter_is_judged_by_the_worst_interval_and_absent_without_intervals() {
    let udp = UdpOutcome { jitter_s: Some(0.001), ..UdpOutcome::default() };
    let way = DirectionOutcome { udp: Some(udp), ..direction(Direction::Forward, 1e8, None) };
    let intervals = [0.001, 0.008, 0.001]
        .map(|jitter_s| IntervalSample { jitter_s: Some(jitter_s), ..IntervalSample::default() });
    let stream = StreamEnd { intervals: intervals.to_vec(), ..StreamEnd::default() };
    let far = EndReport { streams: vec![stream], ..EndReport::default() };
    let run = |far| TestOutcome {
        directions: vec![way.clone()],
        hosts: HostAccount::of_ends(EndReport::default(), far),
        ..TestOutcome::default()
    };
    let judged = |far| {
        let points = [point("test", 0, TestSpec::udp(1448), run(far))];
        let results =
            judge(GatedVerb::Test, "above jitter=5ms", Judged { points: &points, ..NOTHING });
        let [result] = &results[..] else { panic!("{results:?}") };
        (result.is_met, result.text.clone())
    };
    let (is_met, text) = judged(Some(far));
    assert_eq!((is_met, &*text), (false, "jitter 8.00 ms is above 5.00 ms (1 run)"));
    let (is_met, text) = judged(None);
    assert!(!is_met && text.contains("no iperf3 server reports it"), "{text}");
}

#[test]
fn datagrams_that_had_not_arrived_are_no_proof_of_no_loss() {
    let run = |received_count| {
        let udp = UdpOutcome { sent_count: 1000, received_count, ..UdpOutcome::default() };
        let way = DirectionOutcome { udp: Some(udp), ..direction(Direction::Forward, 1e8, None) };
        let outcome = TestOutcome { directions: vec![way], ..TestOutcome::default() };
        let spec = TestSpec { limit: TestLimit::DurationS(10.0), ..TestSpec::udp(1448) };
        [point("test", 0, spec, outcome)]
    };
    let arrived = "had not arrived by the end (lost or still in a queue)";
    for (received, line, is_met, text) in [
        // A quarter second of ten is usually on its way.
        (975, "require no-loss", true, "no lost datagram in 1 run".to_owned()),
        (975, "above loss=0%", true, "loss 0% is not above 0% (1 run)".to_owned()),
        (
            875,
            "require no-loss",
            false,
            format!("no datagram is known to be lost, but 100 datagrams {arrived}"),
        ),
        (0, "above loss=50%", false, format!("loss may be up to 100%: that share {arrived}")),
    ] {
        let points = run(received);
        let judged = Judged { points: &points, ..NOTHING };
        let results = judge(GatedVerb::Test, line, judged);
        assert_eq!(one(&results), (is_met, text.as_str()), "{received} {line}");
    }
    // The known share meets the gate, what may be lost does not.
    let points = run(875);
    let judged = Judged { points: &points, ..NOTHING };
    let met = |line| judge(GatedVerb::Test, line, judged).iter().all(|one| one.is_met);
    assert!(!met("above loss=1%") && met("above loss=11%"));
}

#[test]
fn requests_without_an_answer_are_losses() {
    let answered = |protocol, timeouts_count| {
        let rr = RequestResponseOutcome {
            transactions_count: 10,
            transactions_per_s: 900.0,
            timeouts_count,
            latency: latency(0.001, 0.002),
        };
        let outcome = TestOutcome { request_response: Some(rr), ..TestOutcome::default() };
        [point("test", 0, TestSpec::request_response(protocol, 1, 1), outcome)]
    };
    let idle = latency(0.1, 0.2);
    for (protocol, timeouts, line, is_met) in [
        (Protocol::Udp, 3, "require no-loss", false),
        (Protocol::Udp, 0, "require no-loss", true),
        (Protocol::Tcp, 0, "require no-loss", false),
        (Protocol::Tcp, 0, "below transactions=0.9k", true),
        // Those of the test, not of the idle path.
        (Protocol::Tcp, 0, "above rtt_p99=2ms", true),
        (Protocol::Tcp, 0, "below 1k", false),
    ] {
        let points = answered(protocol, timeouts);
        let judged = Judged { points: &points, idle_rtt: Some(&idle), ..NOTHING };
        let results = judge(GatedVerb::Test, line, judged);
        assert_eq!(one(&results).0, is_met, "{protocol:?} {line}: {results:?}");
    }
}

#[test]
fn the_phases_of_file_load_are_judged_apart() {
    let phase = |experiment: &str, name: &str, value: f64| {
        let outcome =
            TestOutcome { figures: vec![Figure::new(name, value)], ..TestOutcome::default() };
        point(experiment, 0, TestSpec::tcp(), outcome)
    };
    let io = [
        phase("write-0", "moved_bytes_per_s", (200_u64 << 20) as f64),
        phase("read-0", "moved_bytes_per_s", (400_u64 << 20) as f64),
        phase("read-1", "moved_bytes_per_s", (100_u64 << 20) as f64),
    ];
    let io = Judged { points: &io, wrong_data_count: Some(0), ..NOTHING };
    let met = |verb, line: &str, judged| -> Vec<bool> {
        judge(verb, line, judged).iter().map(|one| one.is_met).collect()
    };
    assert_eq!(met(GatedVerb::Io, "below 150MiB/s", io), [true, true, false]);
    assert_eq!(met(GatedVerb::Io, "below write:150M", io), [true]);
    assert_eq!(met(GatedVerb::Io, "below read:150M", io), [true, false]);
    assert_eq!(met(GatedVerb::Io, "require verified", io), [true]);
    let wrong = Judged { wrong_data_count: Some(2), ..io };
    assert_eq!(met(GatedVerb::Io, "require verified", wrong), [false]);
    let meta =
        [phase("file-creation", "items_per_s", 5000.0), phase("tree-creation", "items_per_s", 1.0)];
    let meta = Judged { points: &meta, ..NOTHING };
    assert_eq!(met(GatedVerb::Meta, "below 5k", meta), [true], "without the tree");
    assert_eq!(met(GatedVerb::Meta, "below tree-creation:2", meta), [false]);
}

#[test]
fn a_verdict_counts_as_confirmed_only_by_its_experiment() {
    let verdict = |confirmed, is_tried: bool| Verdict {
        limit: Limit::Shaper,
        end: None,
        summary: String::new(),
        evidence: Vec::new(),
        ruled_out: Vec::new(),
        confirmed,
        confirmation: is_tried.then(|| Confirmation {
            change: String::new(),
            predicted_bits_per_s: 1.0,
            before_bits_per_s: 1.0,
            after_bits_per_s: 1.0,
            ..Confirmation::default()
        }),
        next: None,
        advice: Vec::new(),
        host_change: None,
        changes: Vec::new(),
    };
    for (confirmed, is_tried, words) in [
        (true, true, "is confirmed"),
        (false, true, "not confirmed by"),
        (false, false, "no experiment"),
    ] {
        let verdict = verdict(confirmed, is_tried);
        let judged = Judged { verdict: Some(&verdict), ..NOTHING };
        let results = judge(GatedVerb::Path, "require confirmed", judged);
        let (is_met, text) = one(&results);
        assert!(is_met == confirmed && text.contains(words) && text.contains("shaper"), "{text}");
    }
}

#[test]
fn wrong_names_are_answered_with_the_right_ones() {
    for (verb, line, words) in [
        (GatedVerb::Test, "above rt_p99=5ms", "rtt_p99, rtt_p99.9"),
        (GatedVerb::Path, "below transactions=1", "throughput, rtt_p50"),
        (GatedVerb::Io, "above rtt_p99=5ms", "latency_p99"),
        (GatedVerb::Meta, "below transfers=5", "failed_calls"),
        (GatedVerb::Test, "require confirmed", "no-loss, no-reordering"),
        (GatedVerb::Path, "require noloss", "confirmed, complete"),
        (GatedVerb::Path, "below four:1G", "single-stream, multi-stream"),
        (GatedVerb::Meta, "below create:1", "file-creation"),
        (GatedVerb::Test, "above 5ms", "rtt_p99=5ms"),
        (GatedVerb::Test, "below fast", "throughput"),
        (GatedVerb::Test, "below throughput=5ms", "unknown unit"),
        (GatedVerb::Test, "above rtt_p99=5G", "unknown unit"),
        (GatedVerb::Test, "above loss=300%", "0% to 100%"),
        (GatedVerb::Test, "above retransmissions=-1", "negative"),
        (GatedVerb::Test, "above retransmissions=inf", "number"),
    ] {
        let error = gate(verb, line).expect_err(line).to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{line}: {error}");
    }
}
