//! Limits of the hosts' own links: each a modelled path dressed with what the hosts would count.

use explain::{Judgement, diagnose, judge};
use results::{
    Cache, CeilingLink, Core, CoreClock, CpuQuota, End, InterfaceFacts, KernelThreadUse, Limit,
    Machine, MemoryNode, Nic, PcieLink, Point, PointOutcome, QdiscCounters, ReceiveQueue, Results,
    SoftnetCounters, TestOutcome, TestSpec, Verdict,
};

use crate::model::{FAR, Model, NEAR};

type Dress = dyn Fn(&TestSpec, &mut TestOutcome);

/// A path with something planted in its hosts.
struct Planted {
    model: Model,
    spec: TestSpec,
    /// The path as a changed test finds it.
    adapt: fn(&Model, &TestSpec) -> Model,
    /// What both ends count while a test runs.
    dress: Box<Dress>,
    /// What the hosts say of themselves.
    hosts: Box<dyn Fn(&mut Results)>,
}

impl Planted {
    fn on(model: Model) -> Self {
        Self {
            model,
            spec: TestSpec::tcp(),
            adapt: |model, _| model.clone(),
            dress: Box::new(|_, _| {}),
            hosts: Box::new(|_| {}),
        }
    }

    fn point(&self, name: &str, spec: &TestSpec, repeat: u32) -> Point {
        let mut point = (self.adapt)(&self.model, spec).point(name, spec, repeat);
        if let PointOutcome::Measured(outcome) = &mut point.outcome {
            (self.dress)(spec, outcome);
        }
        point
    }

    fn results(&self) -> Results {
        let mut results = self.model.results(&self.spec);
        results.points = results
            .points
            .iter()
            .map(|point| self.point(&point.experiment, &point.spec, point.repeat))
            .collect();
        (self.hosts)(&mut results);
        results
    }

    fn verdict(&self) -> (Verdict, Results) {
        let mut results = self.results();
        let mut diagnosis = diagnose(&results);
        while let Some((experiment, spec)) = diagnosis.experiment() {
            let name = experiment.point_name();
            let points: Vec<Point> =
                (0..3).map(|repeat| self.point(&name, &spec, repeat)).collect();
            let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
            results.points.extend(points);
            match next {
                Some(next) => diagnosis = next,
                None => return (verdict, results),
            }
        }
        (diagnosis.verdict(), results)
    }

    #[track_caller]
    fn expect(&self, limit: Limit, end: Option<End>, confirmed: bool) {
        let (verdict, results) = self.verdict();
        let told = format!("{:?}\n{verdict:#?}", self.model);
        assert_eq!((verdict.limit, verdict.end), (limit, end), "{told}");
        assert_eq!(verdict.confirmed, confirmed, "{told}");
        assert!(!verdict.evidence.is_empty() && !verdict.advice.is_empty(), "{told}");
        if !confirmed {
            assert!(verdict.host_change.is_some(), "{told}");
        }
        let stored = explain::explain(&results);
        assert_eq!((stored.limit, stored.end, stored.confirmed), (limit, end, confirmed));
    }
}

fn paths() -> Vec<Model> {
    [(0.017, 9000.0, false), (0.0005, 1500.0, false), (0.08, 1500.0, true)]
        .into_iter()
        .map(|(rtt_s, mtu_bytes, ipv6)| Model { rtt_s, mtu_bytes, ipv6, ..Model::default() })
        .collect()
}

fn far_of(outcome: &mut TestOutcome) -> &mut results::EndReport {
    outcome.far.get_or_insert_default()
}

/// Smaller blocks cost both ends' cores more a byte.
fn dearer(model: &Model, spec: &TestSpec) -> Model {
    let cost = if spec.block_bytes.is_some() { 0.55 } else { 1.0 };
    Model {
        sender_core_bits_per_s: model.sender_core_bits_per_s * cost,
        receiver_core_bits_per_s: model.receiver_core_bits_per_s * cost,
        ..model.clone()
    }
}

/// Smaller segments cost them more as well.
fn more_packets(model: &Model, spec: &TestSpec) -> Model {
    let part = spec.mss_bytes.map_or(1.0, |mss| (f64::from(mss) / model.mss()).min(1.0));
    let model = dearer(model, spec);
    Model {
        sender_core_bits_per_s: model.sender_core_bits_per_s * part,
        receiver_core_bits_per_s: model.receiver_core_bits_per_s * part,
        mtu_bytes: model.mtu_bytes * part,
        ..model
    }
}

/// Losses that only bursts make.
fn bursts(model: &Model, spec: &TestSpec) -> Model {
    let paced = spec.pacing_bits_per_s.unwrap_or(f64::MAX) * 0.97;
    let loss_share = if spec.pacing_bits_per_s.is_some() { 0.0 } else { model.loss_share };
    let window_growth_bits_per_s = model.window_growth_bits_per_s.min(paced);
    Model { loss_share, window_growth_bits_per_s, ..model.clone() }
}

#[test]
fn a_quota_stops_either_end() {
    for path in paths() {
        for share in [0.2, 0.5] {
            let quota = move |duration_s: f64| CpuQuota {
                group: "/box".into(),
                cores: share,
                period_s: 0.1,
                periods_count: (duration_s * 10.0) as u64,
                throttled_count: (duration_s * 9.0) as u64,
                throttled_s: duration_s * (1.0 - share),
            };
            let sender = Planted {
                model: Model {
                    sender_core_share: share,
                    sender_core_bits_per_s: 8e9,
                    ..path.clone()
                },
                spec: TestSpec { near_cores: vec![1], ..TestSpec::tcp() },
                adapt: dearer,
                dress: Box::new(move |_, outcome| {
                    outcome.near.counters.quota = Some(quota(outcome.duration_s));
                    outcome.near.streams.iter_mut().for_each(|s| s.thread_wait_s = Some(0.01));
                }),
                ..Planted::on(path.clone())
            };
            sender.expect(Limit::CpuQuota, NEAR, true);
            let receiver = Planted {
                model: Model {
                    receiver_core_share: share,
                    receiver_core_bits_per_s: 8e9,
                    ..path.clone()
                },
                spec: TestSpec { far_cores: vec![1], ..TestSpec::tcp() },
                dress: Box::new(move |_, outcome| {
                    let duration_s = outcome.duration_s;
                    let far = far_of(outcome);
                    far.counters.quota = Some(quota(duration_s));
                    far.streams.iter_mut().for_each(|s| s.thread_wait_s = Some(0.01));
                }),
                ..sender
            };
            receiver.expect(Limit::CpuQuota, FAR, true);
        }
    }
}

#[test]
fn a_quota_that_stops_nobody_is_not_accused() {
    let idle_quota = CpuQuota {
        group: "/box".into(),
        cores: 1.5,
        period_s: 0.1,
        periods_count: 100,
        ..CpuQuota::default()
    };
    let planted = Planted {
        model: Model { window_max_bytes: 4e6, ..Model::default() },
        dress: Box::new(move |_, outcome| outcome.near.counters.quota = Some(idle_quota.clone())),
        ..Planted::on(Model::default())
    };
    planted.expect(Limit::ReceiveWindow, FAR, true);
}

#[test]
fn a_thread_behind_all_others() {
    for path in paths() {
        for (share, policy) in [(0.3, "idle"), (0.5, "nice 10"), (0.6, "nice 19")] {
            let sender = Planted {
                model: Model {
                    sender_core_share: share,
                    sender_core_bits_per_s: 9e9,
                    ..path.clone()
                },
                spec: TestSpec { near_cores: vec![1], ..TestSpec::tcp() },
                adapt: dearer,
                dress: Box::new(move |_, outcome| {
                    outcome
                        .near
                        .streams
                        .iter_mut()
                        .for_each(|s| s.thread_policy = Some(policy.into()));
                }),
                ..Planted::on(path.clone())
            };
            sender.expect(Limit::Scheduler, NEAR, false);
            let receiver = Planted {
                model: Model {
                    receiver_core_share: share,
                    receiver_core_bits_per_s: 9e9,
                    ..path.clone()
                },
                spec: TestSpec { far_cores: vec![1], ..TestSpec::tcp() },
                dress: Box::new(move |_, outcome| {
                    far_of(outcome)
                        .streams
                        .iter_mut()
                        .for_each(|s| s.thread_policy = Some(policy.into()));
                }),
                ..sender
            };
            receiver.expect(Limit::Scheduler, FAR, false);
        }
    }
}

#[test]
fn a_nice_thread_that_never_waits_is_not_accused() {
    let planted = Planted {
        model: Model { sender_core_bits_per_s: 5e9, ..Model::default() },
        adapt: dearer,
        dress: Box::new(|_, outcome| {
            outcome.near.streams.iter_mut().for_each(|s| s.thread_policy = Some("nice 10".into()));
        }),
        ..Planted::on(Model::default())
    };
    planted.expect(Limit::SenderCore, NEAR, true);
}

#[test]
fn a_clock_held_low() {
    for path in paths() {
        for part in [0.35, 0.6] {
            let clocks = move || -> Vec<CoreClock> {
                let khz = (3_500_000.0 * part) as u64;
                let clock = |core| CoreClock {
                    core,
                    first_khz: khz,
                    last_khz: khz,
                    governor_max_khz: Some(khz),
                    hardware_max_khz: Some(3_500_000),
                };
                (0..8).map(clock).collect()
            };
            let planted = Planted {
                model: Model { receiver_core_bits_per_s: 20e9 * part, ..path.clone() },
                adapt: dearer,
                dress: Box::new(move |_, outcome| {
                    far_of(outcome).counters.clocks = clocks();
                    outcome.near.counters.clocks = clocks();
                }),
                ..Planted::on(path.clone())
            };
            planted.expect(Limit::CpuFrequency, FAR, true);
        }
    }
}

/// Two nodes of four cores, a cache each; the interface on node 0.
fn two_nodes() -> Machine {
    let core = |core| Core {
        core,
        package: Some(core / 4),
        physical_core: Some(core),
        node: Some(core / 4),
        is_online: true,
        is_usable: true,
        ..Core::default()
    };
    let group = |node: u32| (node * 4..node * 4 + 4).collect::<Vec<u32>>();
    Machine {
        cores: (0..8).map(core).collect(),
        caches: (0..2)
            .map(|node| Cache {
                level: 3,
                kind: "Unified".into(),
                size_bytes: None,
                cores: group(node),
            })
            .collect(),
        nodes: (0..2)
            .map(|node| MemoryNode { node, cores: group(node), ..MemoryNode::default() })
            .collect(),
        nics: vec![Nic {
            name: "eth0".into(),
            is_up: true,
            mtu_bytes: 9000,
            node: Some(0),
            near_cores: group(0),
            ..Nic::default()
        }],
        ..Machine::default()
    }
}

#[test]
fn a_thread_on_the_other_node() {
    for path in paths() {
        let planted = Planted {
            model: Model { receiver_core_bits_per_s: 9e9, ..path.clone() },
            spec: TestSpec { far_cores: vec![5], ..TestSpec::tcp() },
            adapt: |model, spec| {
                // Next to the device it is twice as fast.
                let near = spec.far_cores.first().is_some_and(|core| *core < 4);
                let speed = if near { 2.0 } else { 1.0 };
                Model {
                    receiver_core_bits_per_s: model.receiver_core_bits_per_s * speed,
                    ..model.clone()
                }
            },
            dress: Box::new(|_, outcome| {
                far_of(outcome).streams.iter_mut().for_each(|s| s.incoming_core = Some(1));
            }),
            hosts: Box::new(|results| {
                if let Some(far) = &mut results.far {
                    far.machine = Some(two_nodes());
                }
            }),
        };
        planted.expect(Limit::Placement, FAR, true);
        // The same core-bound stream next to its packets is the core's own affair.
        let placed = Planted {
            spec: TestSpec { far_cores: vec![2], ..TestSpec::tcp() },
            adapt: dearer,
            ..planted
        };
        placed.expect(Limit::ReceiverCore, FAR, true);
    }
}

#[test]
fn offloads_off_and_cores_full() {
    for path in paths() {
        let wire = path.mtu_bytes + 14.0;
        let on = || ["tso", "tso6", "gso", "gro"].map(str::to_owned).to_vec();
        let count = move |bytes: u64| (bytes as f64 / wire) as u64 + 1;
        let dress = move |_: &TestSpec, outcome: &mut TestOutcome| {
            let bytes = outcome.directions[0].received_bytes;
            let mut sent =
                results::DeviceCounters { interface: "eth0".into(), ..Default::default() };
            let mut received = sent.clone();
            (sent.tx_bytes, sent.tx_pkts) = (bytes, count(bytes));
            (received.rx_bytes, received.rx_pkts) = (bytes, count(bytes));
            outcome.near.counters.devices = vec![sent];
            far_of(outcome).counters.devices = vec![received];
        };
        if path.mtu_bytes > 3000.0 {
            continue;
        }
        let sender = Planted {
            model: Model { sender_core_bits_per_s: 3e9, ..path.clone() },
            adapt: more_packets,
            dress: Box::new(dress),
            hosts: Box::new(move |results| {
                let facts = |offloads: Vec<String>| {
                    Some(InterfaceFacts {
                        name: "eth0".into(),
                        mtu_bytes: 1500,
                        offloads,
                        ..InterfaceFacts::default()
                    })
                };
                results.near.interface = facts(vec!["gro".into()]);
                if let Some(far) = &mut results.far {
                    far.interface = facts(on());
                }
            }),
            ..Planted::on(path.clone())
        };
        sender.expect(Limit::Offloads, NEAR, true);
        let receiver = Planted {
            model: Model { receiver_core_bits_per_s: 3e9, ..path.clone() },
            hosts: Box::new(move |results| {
                let facts = |offloads: Vec<String>| {
                    Some(InterfaceFacts {
                        name: "eth0".into(),
                        mtu_bytes: 1500,
                        offloads,
                        ..InterfaceFacts::default()
                    })
                };
                results.near.interface = facts(on());
                if let Some(far) = &mut results.far {
                    far.interface = facts(vec!["tso".into(), "gso".into()]);
                }
            }),
            ..sender
        };
        receiver.expect(Limit::Offloads, FAR, true);
        // With the features on, small packets on the wire are the core's own affair.
        let plain = Planted {
            hosts: Box::new(move |results| {
                let facts = || {
                    Some(InterfaceFacts {
                        name: "eth0".into(),
                        mtu_bytes: 1500,
                        offloads: on(),
                        ..InterfaceFacts::default()
                    })
                };
                results.near.interface = facts();
                if let Some(far) = &mut results.far {
                    far.interface = facts();
                }
            }),
            ..receiver
        };
        plain.expect(Limit::ReceiverCore, FAR, true);
    }
}

#[test]
fn small_segments_and_cores_full() {
    for mtu_bytes in [576.0, 800.0] {
        let planted = Planted {
            model: Model { sender_core_bits_per_s: 2e9, mtu_bytes, ..Model::default() },
            adapt: more_packets,
            dress: Box::new(move |_, outcome| {
                let bytes = outcome.directions[0].received_bytes;
                let mut sent =
                    results::DeviceCounters { interface: "eth0".into(), ..Default::default() };
                (sent.tx_bytes, sent.tx_pkts) = (bytes, (bytes as f64 / mtu_bytes) as u64 + 1);
                outcome.near.counters.devices = vec![sent];
            }),
            ..Planted::on(Model::default())
        };
        planted.expect(Limit::PathMtu, None, true);
    }
}

#[test]
fn queues_of_the_hosts_that_overflow() {
    for path in paths().into_iter().filter(|path| path.rtt_s > 0.001) {
        let lossy = Model { loss_share: 1e-3, capacity_bits_per_s: 20e9, ..path.clone() };
        let planted = Planted { model: lossy.clone(), adapt: bursts, ..Planted::on(path.clone()) };
        let drops = |spec: &TestSpec, outcome: &TestOutcome| match spec.pacing_bits_per_s {
            Some(_) => 0,
            None => outcome.directions[0].retransmits_count.unwrap_or(0) / 4 + 5,
        };
        let qdisc = Planted {
            dress: Box::new(move |spec, outcome| {
                let dropped_pkts = drops(spec, outcome);
                outcome.near.counters.qdiscs = vec![QdiscCounters {
                    interface: "eth0".into(),
                    kind: "pfifo".into(),
                    parent: "root".into(),
                    sent_pkts: 90_000,
                    dropped_pkts,
                    limit_pkts: Some(2),
                    ..QdiscCounters::default()
                }];
            }),
            ..planted
        };
        qdisc.expect(Limit::Qdisc, NEAR, true);
        let softnet = Planted {
            dress: Box::new(move |spec, outcome| {
                let dropped_pkts = drops(spec, outcome);
                let core = SoftnetCounters {
                    core: 2,
                    processed_pkts: 90_000,
                    dropped_pkts,
                    steered_pkts: 90_000,
                    ..Default::default()
                };
                far_of(outcome).counters.softnet = vec![core];
            }),
            ..qdisc
        };
        softnet.expect(Limit::SoftnetBacklog, FAR, true);
        let ring = Planted {
            dress: Box::new(move |spec, outcome| {
                let overruns = drops(spec, outcome);
                let device = results::DeviceCounters {
                    interface: "eth0".into(),
                    rx_pkts: 90_000,
                    rx_ring_overruns_count: Some(overruns),
                    ..Default::default()
                };
                far_of(outcome).counters.devices = vec![device];
            }),
            ..softnet
        };
        ring.expect(Limit::RingOverrun, FAR, true);
        // Counters that do not move leave the loss to the path.
        let path_loss =
            Planted { dress: Box::new(|_, _| {}), adapt: |model, _| model.clone(), ..ring };
        path_loss.expect(Limit::Loss, None, true);
    }
}

#[test]
fn a_policer_that_a_host_shows() {
    for path in paths() {
        let planted = Planted {
            model: Model { capacity_bits_per_s: 1e9, queue_bytes: 0.0, ..path.clone() },
            adapt: bursts,
            dress: Box::new(|_, outcome| {
                let qdisc = QdiscCounters {
                    interface: "eth0".into(),
                    kind: "ingress".into(),
                    parent: "ingress".into(),
                    sent_pkts: 100_000,
                    dropped_pkts: 900,
                    police_bits_per_s: Some(1.05e9),
                    ..QdiscCounters::default()
                };
                far_of(outcome).counters.qdiscs = vec![qdisc];
            }),
            ..Planted::on(path)
        };
        planted.expect(Limit::Policer, FAR, true);
    }
}

#[test]
fn pacing_by_option_socket_and_fq() {
    for path in paths() {
        for rate in [0.3e9, 2e9] {
            let paced = |model: &Model, spec: &TestSpec| {
                let asked = spec.pacing_bits_per_s.unwrap_or(f64::MAX);
                Model {
                    window_growth_bits_per_s: model.window_growth_bits_per_s.min(asked),
                    ..model.clone()
                }
            };
            let option = Planted {
                spec: TestSpec { pacing_bits_per_s: Some(rate), ..TestSpec::tcp() },
                adapt: paced,
                ..Planted::on(path.clone())
            };
            option.expect(Limit::Pacing, NEAR, true);
            let socket = Planted {
                model: Model { window_growth_bits_per_s: rate, ..path.clone() },
                dress: Box::new(move |_, outcome| {
                    outcome
                        .near
                        .streams
                        .iter_mut()
                        .for_each(|s| s.pacing_max_bits_per_s = Some(rate));
                }),
                ..Planted::on(path.clone())
            };
            socket.expect(Limit::Pacing, NEAR, true);
            let fq = Planted {
                model: Model { window_growth_bits_per_s: rate * 0.97, ..path.clone() },
                hosts: Box::new(move |results| {
                    let interface = results.near.interface.get_or_insert_default();
                    interface.qdisc = Some("fq".into());
                    interface.qdisc_rate_bits_per_s = Some(rate);
                }),
                ..Planted::on(path.clone())
            };
            fq.expect(Limit::Pacing, NEAR, true);
        }
    }
}

#[test]
fn the_core_that_takes_the_packets() {
    for path in paths() {
        // More streams hash to the other queues.
        let model = Model { window_growth_bits_per_s: 4e9, ..path.clone() };
        let napi = Planted {
            model: model.clone(),
            dress: Box::new(|spec, outcome| {
                let duration_s = outcome.duration_s;
                let alone = if spec.streams > 1 { 0.3 } else { 1.0 };
                let thread = KernelThreadUse {
                    name: "napi/eth0-8193".into(),
                    pid: 99,
                    run_s: duration_s * 0.5 * alone,
                    wait_s: duration_s * 0.48 * alone,
                    core: Some(3),
                    allowed_cores: vec![3],
                };
                far_of(outcome).counters.kernel_threads = vec![thread];
                far_of(outcome).streams.iter_mut().for_each(|s| s.incoming_core = Some(3));
            }),
            ..Planted::on(path.clone())
        };
        napi.expect(Limit::InterruptCore, FAR, true);
        let softirq = Planted {
            dress: Box::new(|_, outcome| {
                let far = far_of(outcome);
                if let Some(core) = far.cores.iter_mut().find(|core| core.core == 3) {
                    (core.softirq, core.system, core.idle) = (0.97, 0.01, 0.01);
                }
                far.streams.iter_mut().for_each(|s| s.incoming_core = Some(3));
            }),
            ..napi
        };
        softirq.expect(Limit::InterruptCore, FAR, true);
        let rps = Planted {
            dress: Box::new(|_, outcome| {
                let far = far_of(outcome);
                if let Some(core) = far.cores.iter_mut().find(|core| core.core == 6) {
                    (core.user, core.softirq, core.system, core.idle) = (0.7, 0.29, 0.01, 0.0);
                }
                far.streams.iter_mut().for_each(|s| s.incoming_core = Some(6));
            }),
            hosts: Box::new(|results| {
                let mut machine = two_nodes();
                machine.nics[0].receive_queues =
                    vec![ReceiveQueue { rps_cores: vec![6], ..ReceiveQueue::default() }];
                if let Some(far) = &mut results.far {
                    far.machine = Some(machine);
                }
            }),
            ..softirq
        };
        rps.expect(Limit::InterruptCore, FAR, true);
    }
}

#[test]
fn a_slot_narrower_than_the_line() {
    for path in paths() {
        let mut machine = two_nodes();
        machine.nics[0].mtu_bytes = path.mtu_bytes as u32;
        machine.nics[0].speed_bits_per_s = Some(40e9);
        machine.nics[0].pcie = Some(PcieLink {
            address: "0000:41:00.0".into(),
            speed_gt_per_s: 2.5,
            lanes_count: 4,
            payload_max_bytes: Some(256),
            ..PcieLink::default()
        });
        let headers = explain::Headers { is_ipv6: path.ipv6, lacks_timestamps: false };
        let ceiling = explain::ceilings(&machine.nics[0], headers, None);
        let goodput = ceiling.of(CeilingLink::PcieReceive).expect("a link").goodput_bits_per_s;
        let planted = Planted {
            model: Model {
                capacity_bits_per_s: goodput,
                queue_bytes: 1e6,
                far_speed_bits_per_s: Some(40e9),
                ..path.clone()
            },
            hosts: Box::new(move |results| {
                if let Some(far) = &mut results.far {
                    far.machine = Some(machine.clone());
                }
            }),
            ..Planted::on(path)
        };
        planted.expect(Limit::Pcie, FAR, true);
    }
}

#[test]
fn marks_and_late_packets() {
    for path in paths().into_iter().filter(|path| path.rtt_s > 0.001) {
        // Held down by something that more streams share out and BBR does not mind.
        let held = |model: &Model, spec: &TestSpec| {
            let bbr = spec.congestion_control.as_deref() == Some("bbr");
            Model { window_growth_bits_per_s: if bbr { 15e9 } else { 1e9 }, ..model.clone() }
        };
        let marks = Planted {
            adapt: held,
            dress: Box::new(|_, outcome| {
                let bytes = outcome.directions[0].received_bytes as f64;
                for stream in &mut outcome.near.streams {
                    let Some(tcp) = &mut stream.tcp else { continue };
                    tcp.first.marked_count = Some(0);
                    tcp.last.marked_count =
                        Some((bytes / f64::from(tcp.mss_bytes) * 2e-3) as u64 + 20);
                }
            }),
            ..Planted::on(path.clone())
        };
        marks.expect(Limit::EcnMarks, None, true);
        let late = Planted {
            dress: Box::new(|_, outcome| {
                for stream in &mut outcome.near.streams {
                    let Some(tcp) = &mut stream.tcp else { continue };
                    tcp.last.retransmits_count += 400;
                    (tcp.last.reordered_count, tcp.last.needless_retransmits_count) =
                        (Some(90), Some(380));
                }
                let again = outcome
                    .near
                    .streams
                    .iter()
                    .filter_map(|s| s.tcp.as_ref())
                    .map(|tcp| tcp.last.retransmits_count)
                    .sum();
                let direction = &mut outcome.directions[0];
                direction.retransmits_count = direction.udp.is_none().then_some(again);
                if let Some(udp) = &mut direction.udp {
                    udp.reordered_count = udp.sent_count / 50;
                }
            }),
            ..marks
        };
        late.expect(Limit::Reordering, None, true);
    }
}

#[test]
fn other_traffic_on_the_line() {
    for path in paths() {
        let line = 10e9;
        let goodput = line * path.mss() / (path.mtu_bytes + 38.0);
        let planted = Planted {
            model: Model {
                capacity_bits_per_s: goodput * 0.5,
                queue_bytes: 2e6,
                near_speed_bits_per_s: Some(line),
                far_speed_bits_per_s: Some(40e9),
                ..path.clone()
            },
            // Four flows against one other get four fifths.
            adapt: |model, spec| {
                let more = if spec.streams > 4 { 1.7 } else { 1.0 };
                Model { capacity_bits_per_s: model.capacity_bits_per_s * more, ..model.clone() }
            },
            dress: Box::new(move |_, outcome| {
                let other = goodput * 0.5 / 8.0 * outcome.duration_s;
                let own = outcome.directions[0].sent_bytes as f64 * 1.05;
                let device = results::DeviceCounters {
                    interface: "eth0".into(),
                    tx_bytes: (own + other) as u64,
                    tx_pkts: ((own + other) / 30_000.0) as u64,
                    ..Default::default()
                };
                outcome.near.counters.devices = vec![device];
            }),
            ..Planted::on(path)
        };
        let (verdict, _) = planted.verdict();
        assert_eq!((verdict.limit, verdict.end), (Limit::CrossTraffic, NEAR), "{verdict:#?}");
    }
}

#[test]
fn the_change_the_user_made_decides() {
    let quota = |throttled_s: f64| CpuQuota {
        group: "/box".into(),
        cores: 0.3,
        period_s: 0.1,
        periods_count: 100,
        throttled_count: if throttled_s > 0.0 { 90 } else { 0 },
        throttled_s,
    };
    let stopped = Planted {
        model: Model { sender_core_share: 0.3, sender_core_bits_per_s: 8e9, ..Model::default() },
        spec: TestSpec { near_cores: vec![1], ..TestSpec::tcp() },
        dress: Box::new(move |_, outcome| {
            outcome.near.counters.quota = Some(quota(7.0));
            outcome.near.streams.iter_mut().for_each(|s| s.thread_wait_s = Some(0.01));
        }),
        ..Planted::on(Model::default())
    };
    let before = stopped.results();
    let verdict = explain::explain(&before);
    assert_eq!((verdict.limit, verdict.confirmed), (Limit::CpuQuota, false));
    let change = verdict.host_change.clone().expect("a command");
    assert!(
        change.command.contains("/sys/fs/cgroup/box/cpu.max") && change.undo.is_some(),
        "{change:?}"
    );
    let free =
        Planted { model: Model { sender_core_bits_per_s: 8e9, ..Model::default() }, ..stopped };
    let told = explain::confirm_host_change(&before, verdict.clone(), &free.results())
        .expect("the same test");
    assert!(told.confirmed && told.summary.contains("confirmed by the change"), "{told:#?}");
    let same =
        explain::confirm_host_change(&before, verdict.clone(), &before).expect("the same test");
    assert!(!same.confirmed && same.ruled_out[0].text.contains("refuted"), "{same:#?}");
    let other = Planted { spec: TestSpec::tcp(), ..free };
    assert_eq!(explain::confirm_host_change(&before, verdict, &other.results()), None);
}
