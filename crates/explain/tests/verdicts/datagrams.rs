//! UDP: every datagram is accounted for, the place where most were lost is named, and two rates tell
//! what one cannot.

use results::{
    CoreUse, DeviceCounters, Direction, DirectionOutcome, End, EndCounters, EndReport, HostAccount,
    LatencySummary, Limit, Point, PointOutcome, QdiscCounters, Results, RunKind, SoftnetCounters,
    StreamEnd, TestOutcome, TestSpec, UdpOutcome, UdpStreamEnd, Verdict, Work,
};

const DURATION_S: f64 = 4.0;
const DATAGRAM_BYTES: u32 = 1400;

/// One test: datagrams offered, and those that each place took.
#[derive(Clone, Copy)]
struct Test {
    offered_bits_per_s: f64,
    qdisc: u64,
    sender_device: u64,
    path: u64,
    receiver_device: u64,
    backlog: u64,
    socket: u64,
    /// Share of the time that the receiving thread ran.
    reader_busy: f64,
    far_tells: bool,
    /// How long datagrams waited, as the receiver tells.
    waited_s: Option<f64>,
    direction: Direction,
}

const CLEAN: Test = Test {
    offered_bits_per_s: 100e6,
    qdisc: 0,
    sender_device: 0,
    path: 0,
    receiver_device: 0,
    backlog: 0,
    socket: 0,
    reader_busy: 0.2,
    far_tells: true,
    waited_s: None,
    direction: Direction::Forward,
};

impl Test {
    fn sent(&self) -> u64 {
        (self.offered_bits_per_s * DURATION_S / 8.0 / f64::from(DATAGRAM_BYTES)) as u64
    }

    fn point(&self) -> Point {
        let sent = self.sent();
        let drops = [self.qdisc, self.sender_device, self.path, self.receiver_device, self.backlog];
        let lost = drops.iter().sum::<u64>() + self.socket;
        let rate = |count: u64| count as f64 * f64::from(DATAGRAM_BYTES) * 8.0 / DURATION_S;
        let direction = DirectionOutcome {
            direction: self.direction,
            sent_bytes: sent * u64::from(DATAGRAM_BYTES),
            received_bytes: (sent - lost) * u64::from(DATAGRAM_BYTES),
            sent_bits_per_s: rate(sent),
            received_bits_per_s: rate(sent - lost),
            retransmits_count: None,
            udp: Some(UdpOutcome {
                sent_count: sent,
                received_count: sent - lost,
                lost_count: lost,
                standing_delay_s: self.waited_s,
                ..UdpOutcome::default()
            }),
        };
        let (sender, receiver) = (self.sender(sent), self.receiver(sent));
        let hosts = if self.direction == Direction::Reverse {
            HostAccount::of_ends(receiver, Some(sender))
        } else {
            HostAccount::of_ends(sender, self.far_tells.then_some(receiver))
        };
        let work = Work::from(TestSpec {
            direction: self.direction,
            offered_bits_per_s: Some(self.offered_bits_per_s),
            ..TestSpec::udp(DATAGRAM_BYTES)
        });
        let outcome = TestOutcome {
            duration_s: DURATION_S,
            directions: vec![direction],
            hosts,
            ..Default::default()
        };
        Point::new("udp", work, outcome)
    }

    fn sender(&self, sent: u64) -> EndReport {
        let device = DeviceCounters {
            interface: "eth0".to_owned(),
            tx_pkts: sent - self.qdisc,
            tx_drops_count: self.sender_device,
            ..DeviceCounters::default()
        };
        let qdisc = QdiscCounters {
            kind: "pfifo".to_owned(),
            parent: "root".to_owned(),
            sent_pkts: sent - self.qdisc,
            dropped_pkts: self.qdisc,
            ..QdiscCounters::default()
        };
        let counters =
            EndCounters { devices: vec![device], qdiscs: vec![qdisc], ..EndCounters::default() };
        let stream = StreamEnd { sending: true, duration_s: DURATION_S, ..StreamEnd::default() };
        EndReport { streams: vec![stream], counters, ..EndReport::default() }
    }

    fn receiver(&self, sent: u64) -> EndReport {
        let device = DeviceCounters {
            interface: "eth0".to_owned(),
            rx_pkts: sent - self.qdisc - self.sender_device - self.path,
            rx_drops_count: self.receiver_device,
            ..DeviceCounters::default()
        };
        let softnet = SoftnetCounters { dropped_pkts: self.backlog, ..SoftnetCounters::default() };
        let udp = UdpStreamEnd { socket_drops_count: Some(self.socket), ..UdpStreamEnd::default() };
        let stream = StreamEnd {
            duration_s: DURATION_S,
            thread_user_s: Some(0.0),
            thread_system_s: Some(self.reader_busy * DURATION_S),
            udp: Some(udp),
            ..StreamEnd::default()
        };
        let counters =
            EndCounters { devices: vec![device], softnet: vec![softnet], ..EndCounters::default() };
        let cores = vec![CoreUse { idle: 0.5, ..CoreUse::default() }];
        EndReport { streams: vec![stream], cores, counters, ..EndReport::default() }
    }
}

/// The only direction's UDP counts of a test in a document of its own.
fn verdict_of(change: impl Fn(&mut UdpOutcome)) -> Verdict {
    let mut point = CLEAN.point();
    let PointOutcome::Measured(outcome) = &mut point.outcome else { panic!("measured") };
    change(outcome.directions[0].udp.as_mut().expect("UDP"));
    explain::explain(&Results { points: vec![point], ..Results::begun(RunKind::Test, 0) })
}

#[test]
fn what_had_not_arrived_is_neither_lost_nor_nothing() {
    let queued = verdict_of(|udp| udp.received_count = udp.sent_count * 3 / 4);
    assert_eq!(queued.limit, Limit::Shaper);
    assert!(queued.summary.contains("had not arrived by the end"), "{}", queued.summary);
    assert!(
        queued.evidence[1].text.contains("; not arrived when the test ended: 8929"),
        "{queued:#?}"
    );
    let dead = verdict_of(|udp| udp.received_count = 0);
    assert_eq!(dead.limit, Limit::Loss);
    assert!(dead.summary.starts_with("no datagram arrived"), "{}", dead.summary);
    let usual = verdict_of(|udp| udp.received_count = udp.sent_count * 99 / 100);
    assert_eq!(usual.limit, Limit::SendingApplication, "{}", usual.summary);
}

fn verdict(tests: &[Test]) -> Verdict {
    let points = tests.iter().map(Test::point).collect();
    explain::explain(&Results { points, ..Results::begun(RunKind::Test, 0) })
}

fn text(verdict: &Verdict) -> String {
    verdict.evidence.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_place_that_lost_most_is_named_with_its_end_and_counter() {
    let (near, far) = (Some(End::Near), Some(End::Far));
    let places = [
        (Test { qdisc: 9000, socket: 50, ..CLEAN }, Limit::Qdisc, near, "drops of its qdiscs"),
        (Test { sender_device: 9000, path: 10, ..CLEAN }, Limit::LinkRate, near, "tx_dropped"),
        (Test { receiver_device: 9000, path: 10, ..CLEAN }, Limit::RingOverrun, far, "rx_dropped"),
        (Test { backlog: 9000, path: 10, ..CLEAN }, Limit::SoftnetBacklog, far, "softnet_stat"),
        (Test { socket: 9000, path: 10, ..CLEAN }, Limit::ReceivingApplication, far, "SO_RXQ_OVFL"),
        (
            Test { socket: 9000, reader_busy: 0.97, ..CLEAN },
            Limit::ReceiverCore,
            far,
            "the receiving threads ran 97%",
        ),
    ];
    for (test, limit, end, says) in places {
        for direction in [Direction::Forward, Direction::Reverse] {
            let verdict = verdict(&[Test { direction, ..test }]);
            let opposite = |end| if end == End::Near { End::Far } else { End::Near };
            let end = if direction == Direction::Reverse { end.map(opposite) } else { end };
            assert_eq!((verdict.limit, verdict.end), (limit, end), "{verdict:#?}");
            assert!(text(&verdict).contains(says), "{verdict:#?}");
            assert!(!verdict.advice.is_empty());
        }
    }
}

#[test]
fn every_datagram_of_the_account_is_somewhere() {
    let test = Test {
        qdisc: 100,
        sender_device: 200,
        path: 300,
        receiver_device: 400,
        backlog: 500,
        socket: 600,
        ..CLEAN
    };
    let text = text(&verdict(&[test]));
    for count in ["100", "200", "300", "400", "500", "600"] {
        assert!(text.contains(&format!(": {count} (")), "{count}: {text}");
    }
    assert!(text.contains(&format!("of {} datagrams sent", test.sent())), "{text}");
}

/// What a path of `rate` bit/s that also loses `share` takes of an offer.
fn over(rate: f64, share: f64, offered: f64) -> Test {
    let test = Test { offered_bits_per_s: offered, ..CLEAN };
    let excess = (offered - rate).max(0.0) / offered;
    Test { path: (test.sent() as f64 * (excess + (1.0 - excess) * share)) as u64, ..test }
}

#[test]
fn two_rates_tell_a_rate_limit_from_random_loss() {
    for (offers, limit) in [([120e6, 60e6], 80e6), ([300e6, 200e6], 80e6), ([90e6, 40e6], 80e6)] {
        let verdict = verdict(&offers.map(|offered| over(limit, 0.0, offered)));
        assert_eq!(verdict.limit, Limit::Shaper, "{offers:?}: {verdict:#?}");
        assert!(verdict.summary.contains("80.0 Mbit/s is delivered"), "{verdict:#?}");
    }
    for share in [0.003, 0.02, 0.3] {
        let verdict = verdict(&[60e6, 120e6].map(|offered| over(1e9, share, offered)));
        assert_eq!(verdict.limit, Limit::Loss, "{share}: {verdict:#?}");
        assert!(verdict.summary.starts_with("random loss"), "{verdict:#?}");
    }
}

/// The test lasts 4 s, in which clocks may drift apart so that the mean shows 0.2 ms.
#[test]
fn what_waited_tells_a_queue_from_a_policer() {
    let limit = |waited_s, idle_rtt_s: f64| {
        let tests = [120e6, 60e6].map(|sent| Test { waited_s, ..over(80e6, 0.0, sent) });
        let mut results = Results {
            points: tests.iter().map(Test::point).collect(),
            ..Results::begun(RunKind::Test, 0)
        };
        let mut idle = stats::LatencyHistogram::default();
        (0..10).for_each(|_| idle.record_ns((idle_rtt_s * 1e9) as u64));
        results.path.idle_rtt = LatencySummary::of(&idle, "tcp-rr");
        let told = explain::explain(&results);
        (told.limit, text(&told))
    };
    for (waited_s, idle_rtt_s, wanted, said) in [
        (Some(0.030), 0.001, Limit::Shaper, "had waited 29.8 ms in a queue"),
        (Some(0.000_3), 0.001, Limit::Policer, "had waited in no queue"),
        (Some(0.000_5), 0.001, Limit::Shaper, "is not known"),
        // A long path's own times vary by more.
        (Some(0.000_7), 0.160, Limit::Policer, "had waited in no queue"),
        (Some(0.004_4), 0.160, Limit::Shaper, "had waited 4.20 ms in a queue"),
        (None, 0.001, Limit::Shaper, "is not known"),
    ] {
        let (limit, text) = limit(waited_s, idle_rtt_s);
        assert_eq!(limit, wanted, "{waited_s:?}: {text}");
        assert!(text.contains(said), "{waited_s:?}: {text}");
    }
}

/// Shares are told apart by their counts: 134 of 43 000 and 90 of 86 000 are not the same share.
#[test]
fn random_loss_is_named_only_where_the_counts_allow_the_same_share() {
    let lost = |offered_bits_per_s, path| Test { offered_bits_per_s, path, ..CLEAN };
    let burst = verdict(&[lost(120e6, 134), lost(240e6, 90)]);
    assert_eq!(burst.limit, Limit::Loss);
    assert!(burst.summary.contains("the lower rate lost more"), "{burst:#?}");
    assert!(!text(&burst).contains("optics"), "{burst:#?}");
    assert!(burst.advice[0].contains("again, in turns"), "{burst:#?}");
    // Half the share, and too few to tell.
    let few = verdict(&[lost(60e6, 15), lost(120e6, 62)]);
    assert!(few.summary.contains("cannot be distinguished: too few are lost"), "{few:#?}");
    // Two of three agree.
    let third = verdict(&[lost(30e6, 60), lost(60e6, 280), lost(120e6, 240)]);
    assert!(third.summary.contains("the lower rate lost more"), "{third:#?}");
}

/// What a further file says is used, or it is told why it does not decide.
#[test]
fn every_rate_is_used_or_said_to_decide_nothing() {
    let lost = |offered_bits_per_s, path| Test { offered_bits_per_s, path, ..CLEAN };
    let few = verdict(&[lost(100e6, 23), lost(190e6, 41)]);
    assert!(few.summary.contains("the test at 100 Mbit/s lost 23 of 35714, too few"), "{few:#?}");
    assert!(few.advice[0].contains("at 100 Mbit/s for at least 6 s"), "{few:#?}");
    let near = verdict(&[lost(100e6, 900), lost(110e6, 1000)]);
    assert!(near.summary.contains("100 Mbit/s is too near for a comparison"), "{near:#?}");
    // Repeats of a rate count together.
    let repeats = verdict(&[lost(100e6, 23), lost(100e6, 25), lost(190e6, 41)]);
    assert!(repeats.summary.starts_with("random loss"), "{repeats:#?}");
    // A limit is at least what any test delivered.
    let limit = verdict(&[lost(100e6, 0), lost(190e6, 60), over(177e6, 0.0, 240e6)]);
    assert_eq!(limit.limit, Limit::Shaper);
    assert!(limit.summary.contains("at most 190 Mbit/s is delivered"), "{limit:#?}");
    assert!(limit.summary.contains("of 190 Mbit/s 0.088%"), "{limit:#?}");
}

#[test]
fn the_evidence_quotes_the_repeat_that_the_tables_median_is() {
    let repeat = |path| Test { path, ..over(80e6, 0.0, 120e6) }.point();
    let points = [3000, 1000, 5000, 2000, 9000].map(repeat).to_vec();
    let told = explain::explain(&Results { points, ..Results::begun(RunKind::Test, 0) });
    assert!(
        text(&told).contains("one of 5 repeats, the one with the median throughput"),
        "{told:#?}"
    );
    let sent = Test { ..over(80e6, 0.0, 120e6) }.sent();
    let share = units::show_share(3000.0 / sent as f64);
    let lost = text(&told).contains("3000") || text(&told).contains(&share);
    assert!(lost && !text(&told).contains("1000 "), "{told:#?}");
}

#[test]
fn one_rate_alone_says_that_it_cannot_tell() {
    for far_tells in [true, false] {
        let verdict = verdict(&[Test { far_tells, ..over(80e6, 0.0, 120e6) }]);
        assert_eq!(verdict.limit, Limit::Loss);
        assert!(verdict.summary.contains("one rate alone cannot tell"), "{verdict:#?}");
        assert!(verdict.summary.starts_with("33.3% of the datagrams"), "{verdict:#?}");
        let place = if far_tells { "on the path" } else { "somewhere" };
        assert!(verdict.summary.contains(place), "{verdict:#?}");
    }
}

#[test]
fn a_test_that_lost_nothing_accuses_nobody() {
    let told = verdict(&[CLEAN]);
    assert_eq!((told.limit, told.end), (Limit::SendingApplication, Some(End::Near)));
    assert!(told.summary.contains("and all of it arrived"), "{told:#?}");
    let random = verdict(&[Test { path: 5, ..CLEAN }]);
    assert!(random.summary.starts_with("0.014% of the datagrams were lost"), "{random:#?}");
    // A few are no limit, but they did not arrive.
    let few = verdict(&[Test { path: 2, ..CLEAN }]);
    assert!(few.summary.contains("and all but 0.0056% of it arrived"), "{few:#?}");
}

/// Counters that contradict each other place no loss, whatever one of them counted.
#[test]
fn more_datagrams_than_were_sent_give_no_verdict() {
    let told = |received_more: u64| {
        let mut point = Test { qdisc: 500, ..CLEAN }.point();
        let PointOutcome::Measured(outcome) = &mut point.outcome else { panic!("measured") };
        outcome.directions[0].udp.as_mut().expect("UDP").received_count += received_more;
        explain::explain(&Results { points: vec![point], ..Results::begun(RunKind::Test, 0) })
    };
    assert_eq!(told(0).limit, Limit::Qdisc);
    // What a quarter second of sending explains.
    assert_eq!(told(20).limit, Limit::Qdisc);
    let torn = told(10_000_000);
    assert_eq!((torn.limit, torn.confirmed), (Limit::NoneFound, false), "{torn:#?}");
    assert!(torn.summary.contains("contradict"), "{torn:#?}");
}
