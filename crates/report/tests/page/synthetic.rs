//! Results that no network gave: plausible documents for tests and for looking at the page.
//!
//! Every document says so in its `command`. The path is that of C-fig6: 17 ms, about 9 Gbit/s.

use std::collections::BTreeMap;

use results::{
    Absent, Confirmation, Core, CoreUse, Direction, DirectionOutcome, End, EndReport, Estimate,
    Evidence, Finding, Host, HostAccount, HostFacts, InterfaceFacts, IntervalSample,
    LatencySummary, LawCheck, Limit, Machine, MemoryNode, NextCeiling, Nic, PaperFigure, PathFacts,
    PercentilePoint, PlacedPair, PlacementFindings, Point, PointOutcome, Protocol, Proximity,
    RelationFigure, Reproduction, RequestResponseOutcome, Results, RunKind, StreamEnd, Summary,
    TcpSample, TcpSummary, TestLimit, TestOutcome, TestSpec, UdpLoss, UdpOutcome, UdpStreamEnd,
    Verdict,
};
use stats::Random;

/// Round-trip time of the path, seconds.
const RTT_S: f64 = 0.017;

/// What the cores can carry, bit/s.
const PLATEAU_BITS_PER_S: f64 = 9.12e9;

/// The window a stream gets when nobody asks, bytes.
const TUNED_WINDOW_BYTES: f64 = 8_388_608.0;

/// When the first run began.
const STARTED_UNIX_MS: u64 = 1_795_176_000_000;

/// A run being made up.
struct Maker {
    random: Random,
    clock_ms: u64,
    points: Vec<Point>,
}

/// The full run of `clearstream path`: both ends seen, verdict confirmed.
pub(crate) fn path() -> Results {
    let mut maker =
        Maker { random: Random::from_seed(6), clock_ms: STARTED_UNIX_MS, points: Vec::new() };
    let single = TestSpec { latency_under_load: true, omit_s: 1.0, ..TestSpec::tcp() };
    for repeat in 0..5 {
        maker.bulk("single-stream", repeat, &single, TUNED_WINDOW_BYTES);
        maker.bulk("single-stream", repeat, &reversed(&single), TUNED_WINDOW_BYTES);
    }
    for repeat in 0..3 {
        let multi = TestSpec { streams: 4, ..single.clone() };
        maker.bulk("multi-stream", repeat, &multi, TUNED_WINDOW_BYTES);
        let both = TestSpec { direction: Direction::Bidirectional, ..single.clone() };
        maker.bulk("bidirectional", repeat, &both, TUNED_WINDOW_BYTES);
        maker.datagrams(repeat);
        maker.transactions(repeat);
    }
    maker.window_sweep(3);
    let wide = TestSpec { window_bytes: Some(16 << 20), ..single };
    maker.bulk("confirm:receive-window", 0, &wide, 16_777_216.0);
    let mut results = document(RunKind::Path, maker, Some(host("geneva", true)));
    results.verdict = Some(verdict());
    results.findings.push(Finding {
        end: Some(End::Far),
        code: "window-clamped".to_owned(),
        text: "asked for a 64.0 MiB receive buffer, net.core.rmem_max gave 32.0 MiB".to_owned(),
    });
    results
}

/// The same path to a stock iperf3 server: the far end tells nothing, one run failed.
pub(crate) fn unseen() -> Results {
    let mut maker =
        Maker { random: Random::from_seed(7), clock_ms: STARTED_UNIX_MS, points: Vec::new() };
    for repeat in 0..3 {
        maker.bulk("single-stream", repeat, &TestSpec::tcp(), 64e6);
    }
    for point in &mut maker.points {
        if let PointOutcome::Measured(outcome) = &mut point.outcome {
            outcome.set_far(None);
        }
    }
    let mut failed = maker.points[0].clone();
    failed.repeat = 3;
    failed.outcome = PointOutcome::Failed("geneva: connection refused on port 5201".to_owned());
    maker.points.push(failed);
    let mut results = document(RunKind::Path, maker, None);
    results.path.peer = Some("iperf3".to_owned());
    results.partial = Some("1 of 4 runs failed".to_owned());
    results.absent.push(Absent {
        what: "far end: cores, buffers, counters".to_owned(),
        why: "a stock iperf3 server does not tell".to_owned(),
    });
    results.verdict = Some(Verdict {
        limit: Limit::ReceiverCore,
        end: Some(End::Far),
        summary: "One stream stops at 9.1 Gbit/s; nothing at the near end and nothing on the path explains it, \
                  which leaves the receiving core."
            .to_owned(),
        evidence: vec![Evidence {
            limit: Limit::ReceiverCore,
            text: "two streams to two server processes together reach 17.6 Gbit/s".to_owned(),
            weight: 0.6,
        }],
        confirmed: false,
        confirmation: None,
        host_change: None,
        changes: Vec::new(),
        advice: vec!["Run `clearstream serve` on geneva: then the receiving core can be seen.".to_owned()],
        next: None,
        ruled_out: Vec::new(),
    });
    results
}

/// `clearstream reproduce C-fig6`.
pub(crate) fn reproduction() -> Results {
    let mut maker =
        Maker { random: Random::from_seed(8), clock_ms: STARTED_UNIX_MS, points: Vec::new() };
    maker.window_sweep(5);
    for point in &mut maker.points {
        point.experiment = "C-fig6".to_owned();
    }
    let mut results = document(RunKind::Reproduce, maker, Some(host("geneva", true)));
    results.reproduction = Some(Reproduction {
        id: "C-fig6".to_owned(),
        title: "Throughput of one flow over the TCP window".to_owned(),
        source: "ClearStream 2011, Figure 6".to_owned(),
        figures: vec![
            figure(
                "throughput at the plateau",
                "19 Gbit/s",
                Some("9.11 Gbit/s (9.06 to 9.15, n 5)"),
            ),
            figure("bandwidth-delay product", "40.4 MB", Some("19.4 MB")),
            figure("energy", "not measured", None),
        ],
        law: LawCheck {
            law: "T(w) = min(w / RTT, Tmax)".to_owned(),
            holds: Some(true),
            judged:
                "Every median lies within 6% of the model, over 9 windows from 256 KiB to 64 MiB."
                    .to_owned(),
        },
    });
    results
}

/// `clearstream place geneva`, 4 x 4 cores: the receiver's package decides.
pub(crate) fn placement() -> Results {
    let mut maker =
        Maker { random: Random::from_seed(10), clock_ms: STARTED_UNIX_MS, points: Vec::new() };
    let unpinned = TestSpec { first_port: Some(25_201), ..TestSpec::tcp() };
    for repeat in 0..2 {
        maker.bulk("placement", repeat, &unpinned, 10e6);
        for (near, far) in (0..4_u32).flat_map(|near| (0..4_u32).map(move |far| (near, far))) {
            let spec =
                TestSpec { near_cores: vec![near], far_cores: vec![far], ..unpinned.clone() };
            let window = if far < 2 { 16e6 } else { 8e6 } + f64::from(near) * 1e4;
            let outcome = maker.tcp(&spec, window);
            let varied = BTreeMap::from([
                ("near_core".to_owned(), f64::from(near)),
                ("far_core".to_owned(), f64::from(far)),
            ]);
            maker.add("placement", varied, repeat, &spec, outcome);
        }
    }
    let mut results = document(RunKind::Place, maker, Some(host("geneva", true)));
    let estimate = Estimate { count: 3, median: 7.5e9, low: 7.4e9, high: 7.6e9, confidence: 0.75 };
    let best = PlacedPair {
        near_core: 3,
        far_core: 1,
        near_interrupt_core: None,
        far_interrupt_core: None,
        estimate,
    };
    results.placement = Some(PlacementFindings {
        direction: Direction::Forward,
        figure: "forward_received_bits_per_s".to_owned(),
        more_is_better: true,
        unpinned: Some(Estimate { median: 4.7e9, ..estimate }),
        best,
        ties: Vec::new(),
        beats_unpinned: true,
        gain: Some(0.59),
        chance: Some(0.001),
        near_incoming_core: None,
        far_incoming_core: Some(1),
        relations: vec![RelationFigure {
            end: End::Far,
            proximity: Proximity::SharedCache,
            estimate,
            core: 1,
            placements_count: 8,
        }],
        pairs_count: 16,
        measured_pairs_count: 16,
        advice: vec!["`taskset -c 2 PROGRAM` on geneva".to_owned()],
    });
    results
}

/// An hour of many streams: what must not make the page grow without bound.
#[allow(dead_code, reason = "the example that writes files has no use for it")]
pub(crate) fn hour(streams: u32) -> Results {
    let mut maker =
        Maker { random: Random::from_seed(9), clock_ms: STARTED_UNIX_MS, points: Vec::new() };
    let spec = TestSpec { streams, limit: TestLimit::DurationS(3600.0), ..TestSpec::tcp() };
    maker.bulk("single-stream", 0, &spec, 64e6);
    document(RunKind::Test, maker, Some(host("geneva", true)))
}

fn figure(name: &str, paper: &str, here: Option<&str>) -> PaperFigure {
    PaperFigure { name: name.to_owned(), paper: paper.to_owned(), here: here.map(str::to_owned) }
}

fn reversed(spec: &TestSpec) -> TestSpec {
    TestSpec { direction: Direction::Reverse, ..spec.clone() }
}

fn document(kind: RunKind, maker: Maker, far: Option<HostFacts>) -> Results {
    let rates: Vec<f64> = maker
        .points
        .iter()
        .filter(|point| {
            point.experiment == "single-stream"
                && point.spec().is_some_and(|spec| spec.direction == Direction::Forward)
        })
        .filter_map(|point| Some(point.measured()?.directions.first()?.received_bits_per_s))
        .collect();
    let summaries = Estimate::of(&rates)
        .map(|estimate| Summary {
            experiment: "single-stream".to_owned(),
            varied: BTreeMap::new(),
            figure: "forward_received_bits_per_s".to_owned(),
            estimate,
        })
        .into_iter()
        .collect();
    Results {
        command: [
            "clearstream",
            "path",
            "geneva",
            "#",
            "synthetic:",
            "made",
            "up,",
            "not",
            "measured",
        ]
        .map(str::to_owned)
        .to_vec(),
        finished_unix_ms: Some(maker.clock_ms),
        hosts: std::iter::once(Host::near(host("amsterdam", false)))
            .chain(far.map(Host::far))
            .collect(),
        path: PathFacts {
            target: "geneva".to_owned(),
            address: Some("10.11.0.2".to_owned()),
            port: Some(5201),
            peer: Some("clearstream 0.1.0".to_owned()),
            idle_rtt: Some(latency(0.0170, 0.000_05, 2000, "tcp-rr")),
            path_mtu_bytes: Some(9000),
            bandwidth_delay_product_bytes: Some(19_380_000),
            lab: Some("glif2010".to_owned()),
        },
        points: maker.points,
        summaries,
        findings: vec![Finding {
            end: None,
            code: "emulated-path".to_owned(),
            text: "both hosts and the path run on this machine's cores".to_owned(),
        }],
        absent: vec![Absent {
            what: "energy per bit".to_owned(),
            why: "no energy counters (powercap) on this machine".to_owned(),
        }],
        ..Results::begun(kind, STARTED_UNIX_MS)
    }
}

fn verdict() -> Verdict {
    let evidence = |limit, text: &str, weight| Evidence { limit, text: text.to_owned(), weight };
    Verdict {
        limit: Limit::ReceiveWindow,
        end: Some(End::Far),
        summary: "geneva's receive window holds one stream at 3.88 Gbit/s: 8.00 MiB over 17.0 ms allow 3.95 Gbit/s, \
                  and the path carries 9.1."
            .to_owned(),
        evidence: vec![
            evidence(Limit::ReceiveWindow, "receive-window-limited 97% of the time the stream was busy", 0.97),
            evidence(
                Limit::ReceiveWindow,
                "window 8.00 MiB / 17.0 ms = 3.95 Gbit/s; measured 3.88 Gbit/s",
                0.99,
            ),
            evidence(Limit::ReceiveWindow, "four streams together reach 9.01 Gbit/s, so the path has room", 0.8),
        ],
        confirmed: true,
        confirmation: Some(Confirmation {
            change: "window 8.00 MiB → 16.0 MiB".to_owned(),
            predicted_bits_per_s: 7.89e9,
            before_bits_per_s: 3.88e9,
            after_bits_per_s: 7.75e9,
            outcome: "Twice the window gave 2.00 times the throughput, as predicted.".to_owned(),
            predicted_low_bits_per_s: Some(6.3e9),
            ruling: Some(results::Ruling::Confirmed),
            ..Confirmation::default()
        }),
        host_change: None,
        changes: Vec::new(),
        advice: vec![
            "sudo sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864' net.core.rmem_max=67108864".to_owned(),
            "Do the same for `net.ipv4.tcp_wmem` on amsterdam if it is to receive as well.".to_owned(),
            "clearstream test geneva --window 32M --time 30".to_owned(),
        ],
        next: Some(NextCeiling {
            limit: Limit::ReceiverCore,
            bits_per_s: 9.2e9,
            text: "geneva's core 1 was 43% busy at 3.88 Gbit/s.".to_owned(),
        }),
        ruled_out: vec![
            evidence(Limit::Loss, "no segment was retransmitted in five runs", 0.0),
            evidence(Limit::SendBuffer, "held back by the send buffer 0.4% of the time", 0.004),
            evidence(Limit::SenderCore, "amsterdam's core 0 was 38% busy", 0.38),
            evidence(Limit::LinkRate, "UDP was delivered at 21 Gbit/s over the same path", 0.19),
        ],
    }
}

fn host(name: &str, far: bool) -> HostFacts {
    let sysctls = [
        ("net.core.rmem_max", "33554432"),
        ("net.core.wmem_max", "67108864"),
        ("net.ipv4.tcp_congestion_control", "cubic"),
        ("net.ipv4.tcp_rmem", if far { "4096 131072 16777216" } else { "4096 131072 67108864" }),
        ("net.ipv4.tcp_wmem", "4096 65536 67108864"),
    ];
    HostFacts {
        name: name.to_owned(),
        kernel: "6.1.0-28-amd64".to_owned(),
        processor: Some("AMD EPYC 7763 64-Core Processor".to_owned()),
        usable_cores: vec![0, 1, 2, 3],
        online_cores_count: 4,
        memory_nodes_count: Some(1),
        memory_bytes: Some(16 << 30),
        hypervisor: Some("kvm".to_owned()),
        interface: Some(InterfaceFacts {
            name: if far { "gva0" } else { "ams0" }.to_owned(),
            driver: Some("mlx5_core".to_owned()),
            speed_bits_per_s: Some(40e9),
            mtu_bytes: 9000,
            queues_count: Some((8, 8)),
            qdisc: Some("fq_codel".to_owned()),
            qdisc_rate_bits_per_s: None,
            offloads: ["tso", "gso", "gro"].map(str::to_owned).to_vec(),
            memory_node: Some(0),
            ..InterfaceFacts::default()
        }),
        sysctls: sysctls.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        machine: Some(machine()),
        tool_version: Some("0.1.0".to_owned()),
    }
}

/// Eight cores of two memory nodes, the interface at the first.
pub(crate) fn machine() -> Machine {
    let core = |number: u32| Core {
        core: number,
        package: Some(number / 4),
        node: Some(number / 4),
        is_online: true,
        is_usable: true,
        ..Core::default()
    };
    let node = |number: u32| MemoryNode {
        node: number,
        cores: (number * 4..number * 4 + 4).collect(),
        memory_bytes: Some(32 << 30),
        distances: if number == 0 { vec![10, 21] } else { vec![21, 10] },
    };
    Machine {
        cores: (0..8).map(core).collect(),
        nodes: vec![node(0), node(1)],
        nics: vec![Nic { name: "eth0 100% <\"&#>".to_owned(), node: Some(0), ..Nic::default() }],
        ..Machine::default()
    }
}

fn latency(median_s: f64, spread_s: f64, count: u64, method: &str) -> LatencySummary {
    // A floor with a long tail: value = floor + spread * (-ln(1 - p))^1.6.
    let floor_s = median_s - spread_s * 0.56;
    let at = |share: f64| floor_s + spread_s * (-(1.0 - share).ln()).powf(1.6);
    LatencySummary {
        count,
        min_s: floor_s,
        mean_s: median_s + 0.4 * spread_s,
        deviation_s: spread_s * 1.5,
        max_s: at(1.0 - 0.7 / count as f64),
        percentiles: LatencySummary::PERCENTILES
            .iter()
            .map(|&percentile| PercentilePoint { percentile, value_s: at(percentile / 100.0) })
            .collect(),
        method: method.to_owned(),
    }
}

impl Maker {
    fn add(
        &mut self,
        experiment: &str,
        varied: BTreeMap<String, f64>,
        repeat: u32,
        spec: &TestSpec,
        outcome: TestOutcome,
    ) {
        let took_ms = (outcome.duration_s * 1000.0) as u64 + 1400;
        let started_unix_ms = self.clock_ms;
        self.clock_ms += took_ms;
        let way = match spec.direction {
            Direction::Forward => "",
            Direction::Reverse => " --reverse",
            Direction::Bidirectional => " --bidir",
        };
        let window =
            spec.window_bytes.map_or_else(String::new, |bytes| format!(" --window {bytes}"));
        let kind = if spec.protocol == Protocol::Udp { " --udp" } else { "" };
        self.points.push(Point {
            varied,
            repeat,
            started_unix_ms,
            command: format!(
                "clearstream test geneva --streams {}{kind}{way}{window}",
                spec.streams
            ),
            ..Point::new(experiment, spec.clone(), outcome)
        });
    }

    fn window_sweep(&mut self, repeats: u32) {
        let mut runs: Vec<(u64, u32)> = (0..repeats)
            .flat_map(|repeat| (0..9).map(move |step| ((256 << 10) << step, repeat)))
            .collect();
        self.random.shuffle(&mut runs);
        for (window_bytes, repeat) in runs {
            let limit = TestLimit::DurationS(5.0);
            let spec = TestSpec {
                window_bytes: Some(window_bytes),
                limit,
                omit_s: 1.0,
                ..TestSpec::tcp()
            };
            let outcome = self.tcp(&spec, window_bytes as f64);
            let varied = BTreeMap::from([("window_bytes".to_owned(), window_bytes as f64)]);
            self.add("window-sweep", varied, repeat, &spec, outcome);
        }
    }

    fn bulk(&mut self, experiment: &str, repeat: u32, spec: &TestSpec, window_bytes: f64) {
        let outcome = self.tcp(spec, window_bytes);
        self.add(experiment, BTreeMap::new(), repeat, spec, outcome);
    }

    fn tcp(&mut self, spec: &TestSpec, window_bytes: f64) -> TestOutcome {
        let both = spec.direction == Direction::Bidirectional;
        let ways =
            if both { vec![Direction::Forward, Direction::Reverse] } else { vec![spec.direction] };
        let windows_rate = window_bytes * 8.0 / RTT_S * 0.985 * f64::from(spec.streams);
        let plateau = if both { PLATEAU_BITS_PER_S * 0.78 } else { PLATEAU_BITS_PER_S };
        let stream_rate = windows_rate.min(plateau) / f64::from(spec.streams);
        let TestLimit::DurationS(duration_s) = spec.limit else {
            unreachable!("made with a duration")
        };
        let (mut near, mut far) = (EndReport::default(), EndReport::default());
        let mut directions = Vec::new();
        for way in ways {
            let mut resent = 0;
            let mut sent_bytes = 0;
            for index in 0..spec.streams {
                let (sender, receiver) =
                    self.stream(index, stream_rate, window_bytes, spec, duration_s);
                resent += sender.tcp.as_ref().map_or(0, |tcp| tcp.last.retransmits_count);
                sent_bytes += sender.bytes;
                let (from, to) = if way == Direction::Reverse {
                    (&mut far, &mut near)
                } else {
                    (&mut near, &mut far)
                };
                from.streams.push(sender);
                to.streams.push(receiver);
            }
            let rate = sent_bytes as f64 * 8.0 / duration_s;
            directions.push(DirectionOutcome {
                direction: way,
                sent_bytes,
                received_bytes: sent_bytes,
                sent_bits_per_s: rate,
                received_bits_per_s: rate,
                retransmits_count: Some(resent),
                udp: None,
            });
        }
        let load =
            directions.iter().map(|one| one.received_bits_per_s).sum::<f64>() / PLATEAU_BITS_PER_S;
        near.cores = self.cores(load * 0.62, load * 0.3);
        far.cores = self.cores(load * 0.98, load * 0.72);
        TestOutcome {
            duration_s,
            directions,
            latency_under_load: spec
                .latency_under_load
                .then(|| latency(0.0174 + 0.001 * load, 0.0004, 950, "tcp-rr")),
            hosts: HostAccount::of_ends(near, Some(far)),
            ..TestOutcome::default()
        }
        .with_figures()
    }

    /// Both ends of one stream.
    fn stream(
        &mut self,
        index: u32,
        rate: f64,
        window_bytes: f64,
        spec: &TestSpec,
        duration_s: f64,
    ) -> (StreamEnd, StreamEnd) {
        let (whole_s, mut counted, mut resent) = (duration_s + spec.omit_s, 0_u64, 0_u64);
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let flat_window = (rate * RTT_S / 8.0).min(window_bytes);
        let mut state = TcpSample::default();
        for second in 0..whole_s as u32 {
            let start_s = f64::from(second);
            let grown = 1.0 - (-(start_s + 0.6) / 0.45).exp();
            let lost =
                self.random.chance(if rate * f64::from(spec.streams) > 8e9 { 0.04 } else { 0.0 });
            let dip = if lost { 0.82 } else { 1.0 };
            let bytes = (rate / 8.0 * grown * dip * (1.0 + 0.008 * self.random.normal())) as u64;
            let omitted = start_s < spec.omit_s;
            counted += if omitted { 0 } else { bytes };
            resent += if lost { 1 + self.random.below(40) } else { 0 };
            state = TcpSample {
                rtt_s: RTT_S + 0.0006 * self.random.unit() + 0.0009 * rate / PLATEAU_BITS_PER_S,
                rtt_variation_s: 0.0002,
                congestion_window_bytes: (flat_window * 1.15 * grown * dip) as u64,
                peer_window_bytes: Some(window_bytes as u64),
                in_flight_bytes: (flat_window * grown) as u64,
                retransmits_count: resent,
                busy_s: Some(start_s + 1.0),
                receive_window_limited_s: Some((start_s + 1.0) * 0.97),
                send_buffer_limited_s: Some((start_s + 1.0) * 0.004),
                ..TcpSample::default()
            };
            let interval = IntervalSample {
                start_s,
                end_s: start_s + 1.0,
                bytes,
                omitted,
                ..IntervalSample::default()
            };
            received.push(interval.clone());
            sent.push(IntervalSample { tcp: Some(state.clone()), ..interval });
        }
        let tcp = TcpSummary {
            congestion_control: "cubic".to_owned(),
            mss_bytes: 8948,
            segments_out_count: Some(counted / 8948),
            last: state,
            ..TcpSummary::default()
        };
        let end = |sending: bool, intervals| StreamEnd {
            index,
            sending,
            local: if sending { "10.11.0.1:41000" } else { "10.11.0.2:5201" }.to_owned(),
            remote: if sending { "10.11.0.2:5201" } else { "10.11.0.1:41000" }.to_owned(),
            bytes: counted,
            duration_s,
            cores: vec![if sending { 0 } else { 1 }],
            thread_user_s: Some(duration_s * 0.02),
            thread_system_s: Some(
                duration_s * rate / PLATEAU_BITS_PER_S * if sending { 0.68 } else { 0.93 },
            ),
            thread_wait_s: Some(duration_s * 0.004),
            send_buffer_bytes: Some(67_108_864),
            receive_buffer_bytes: Some((window_bytes * 2.0) as u64),
            tcp: Some(TcpSummary { ..tcp.clone() }),
            intervals,
            ..StreamEnd::default()
        };
        (end(true, sent), end(false, received))
    }

    fn cores(&mut self, application: f64, interrupts: f64) -> Vec<CoreUse> {
        let mut core = |core: u32, user: f64, system: f64, softirq: f64| {
            let scale = (0.985 / (user + system + softirq)).min(1.0);
            let (user, system, softirq) = (user * scale, system * scale, softirq * scale);
            let steal = 0.004 * self.random.unit();
            CoreUse {
                core,
                user,
                system,
                softirq,
                irq: 0.002,
                idle: (1.0 - user - system - softirq).max(0.0),
                steal,
            }
        };
        vec![
            core(0, 0.03, application, application * 0.08),
            core(1, 0.02, application * 0.85, application * 0.1),
            core(2, 0.004, 0.02, interrupts),
            core(3, 0.006, 0.012, 0.004),
        ]
    }

    fn datagrams(&mut self, repeat: u32) {
        let spec = TestSpec { limit: TestLimit::DurationS(10.0), ..TestSpec::udp(8900) };
        let sent_count = 2_950_000 + self.random.below(20_000);
        let (socket, device) = (2_900 + self.random.below(600), 240 + self.random.below(80));
        let lost_count = socket + device;
        let received_count = sent_count - lost_count;
        let mut near = EndReport { cores: self.cores(0.8, 0.1), ..EndReport::default() };
        let mut far = EndReport { cores: self.cores(0.75, 0.9), ..EndReport::default() };
        let second = |index: u32, count: u64| IntervalSample {
            start_s: f64::from(index),
            end_s: f64::from(index) + 1.0,
            bytes: count * 890,
            datagrams_count: Some(count / 10),
            ..IntervalSample::default()
        };
        let mut end = |sending: bool, count: u64| StreamEnd {
            sending,
            bytes: count * 8900,
            duration_s: 10.0,
            udp: Some(UdpStreamEnd { datagrams_count: count, ..UdpStreamEnd::default() }),
            intervals: (0..10)
                .map(|index| second(index, count - self.random.below(count / 30)))
                .collect(),
            ..StreamEnd::default()
        };
        near.streams.push(end(true, sent_count));
        far.streams.push(end(false, received_count));
        let rate = |count: u64| count as f64 * 8900.0 * 8.0 / 10.0;
        let outcome = TestOutcome {
            duration_s: 10.0,
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: sent_count * 8900,
                received_bytes: received_count * 8900,
                sent_bits_per_s: rate(sent_count),
                received_bits_per_s: rate(received_count),
                retransmits_count: None,
                udp: Some(UdpOutcome {
                    sent_count,
                    received_count,
                    lost_count,
                    reordered_count: 12,
                    duplicate_count: 0,
                    jitter_s: Some(4.1e-6),
                    standing_delay_s: Some(35e-6),
                    loss: UdpLoss {
                        socket_buffer_count: Some(socket),
                        softnet_count: Some(0),
                        device_count: Some(device),
                        path_count: Some(0),
                    },
                }),
            }],
            hosts: HostAccount::of_ends(near, Some(far)),
            ..TestOutcome::default()
        };
        self.add("udp", BTreeMap::new(), repeat, &spec, outcome);
    }

    fn transactions(&mut self, repeat: u32) {
        let spec = TestSpec::request_response(Protocol::Tcp, 1, 1);
        let summary = latency(0.01702 + 1e-5 * self.random.unit(), 0.000_04, 586, "tcp-rr");
        let outcome = TestOutcome {
            duration_s: 10.0,
            request_response: Some(RequestResponseOutcome {
                transactions_count: 586,
                transactions_per_s: 58.6 + 0.1 * self.random.unit(),
                timeouts_count: 0,
                latency: summary,
            }),
            hosts: HostAccount::of_ends(
                EndReport { cores: self.cores(0.005, 0.005), ..EndReport::default() },
                Some(EndReport { cores: self.cores(0.005, 0.005), ..EndReport::default() }),
            ),
            ..TestOutcome::default()
        };
        self.add("round-trip", BTreeMap::new(), repeat, &spec, outcome);
    }
}
