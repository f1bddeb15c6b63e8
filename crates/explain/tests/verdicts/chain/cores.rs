//! Cores and threads: quotas, priorities, clocks, memory nodes, work a packet.

use super::*;

#[test]
fn a_quota_stops_either_end() {
    for path in paths() {
        for share in [0.2, 0.5] {
            let quota = move |duration_s: f64| CpuQuota {
                group: "/box".into(),
                file: None,
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
                    outcome.near_mut().counters.quota = Some(quota(outcome.duration_s));
                    outcome
                        .near_mut()
                        .streams
                        .iter_mut()
                        .for_each(|s| s.thread_wait_s = Some(0.01));
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
fn advice_on_a_quota_names_the_file_that_the_host_has() {
    let file = "/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us";
    let advised = |file: Option<&'static str>| {
        let planted = Planted {
            model: Model {
                sender_core_share: 0.2,
                sender_core_bits_per_s: 8e9,
                ..Model::default()
            },
            spec: TestSpec { near_cores: vec![1], ..TestSpec::tcp() },
            adapt: dearer,
            dress: Box::new(move |_, outcome| {
                let duration_s = outcome.duration_s;
                outcome.near_mut().counters.quota = Some(CpuQuota {
                    group: "/box".into(),
                    file: file.map(str::to_owned),
                    cores: 0.2,
                    period_s: 0.1,
                    periods_count: (duration_s * 10.0) as u64,
                    throttled_count: (duration_s * 9.0) as u64,
                    throttled_s: duration_s * 0.8,
                });
            }),
            ..Planted::on(Model::default())
        };
        explain::explain(&planted.results())
    };
    let old = advised(Some(file));
    assert_eq!(old.limit, Limit::CpuQuota);
    assert!(old.advice[0].contains(&format!("echo -1 > {file} ")), "{:?}", old.advice);
    assert!(!format!("{old:?}").contains("cpu.max"), "a file of version 2: {old:#?}");
    let new = advised(None);
    let command = "echo 'max 100000' > /sys/fs/cgroup/box/cpu.max ";
    assert!(new.advice[0].contains(command), "{:?}", new.advice);
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
        dress: Box::new(move |_, outcome| {
            outcome.near_mut().counters.quota = Some(idle_quota.clone())
        }),
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
                        .near_mut()
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
            outcome
                .near_mut()
                .streams
                .iter_mut()
                .for_each(|s| s.thread_policy = Some("nice 10".into()));
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
                    outcome.near_mut().counters.clocks = clocks();
                }),
                ..Planted::on(path.clone())
            };
            planted.expect(Limit::CpuFrequency, FAR, true);
        }
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
                if let Some(far) = results.far_mut() {
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
            outcome.near_mut().counters.devices = vec![sent];
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
                results.near_mut().interface = facts(vec!["gro".into()]);
                if let Some(far) = results.far_mut() {
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
                results.near_mut().interface = facts(on());
                if let Some(far) = results.far_mut() {
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
                results.near_mut().interface = facts();
                if let Some(far) = results.far_mut() {
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
                outcome.near_mut().counters.devices = vec![sent];
            }),
            ..Planted::on(Model::default())
        };
        planted.expect(Limit::PathMtu, None, true);
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
        let changes = napi.verdict().0.changes;
        assert_eq!(changes[0].key, "thread:napi/eth0-8193/affinity", "{changes:?}");
        assert_eq!((changes[0].end, changes[0].from.as_deref()), (End::Far, Some("3")));
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
                if let Some(far) = results.far_mut() {
                    far.machine = Some(machine);
                }
            }),
            ..softirq
        };
        rps.expect(Limit::InterruptCore, FAR, true);
        let (verdict, _) = rps.verdict();
        let changes = &verdict.changes;
        assert_eq!(changes[0].key, "eth0/rx-0/rps_cpus", "{changes:?}");
        assert_eq!(changes[0].from.as_deref(), Some("40"));
        let command = format!("echo {} > /sys/class/net/eth0/queues/rx-0/rps_cpus", changes[0].to);
        assert!(verdict.advice[0].ends_with(&command), "{:?}", verdict.advice);
    }
}

#[test]
fn advice_that_an_experiment_refuted_is_not_given() {
    let dearer_sendfile = Planted {
        model: Model { sender_core_bits_per_s: 5e9, ..Model::default() },
        adapt: |model, spec| {
            let factor = if spec.send_path == results::SendPath::Sendfile { 0.4 } else { 1.0 };
            let rate = model.sender_core_bits_per_s * factor;
            Model { sender_core_bits_per_s: rate, ..model.clone() }
        },
        ..Planted::on(Model::default())
    };
    let (verdict, _) = dearer_sendfile.verdict();
    assert_eq!((verdict.limit, verdict.confirmed), (Limit::SenderCore, true), "{verdict:#?}");
    assert!(verdict.evidence.iter().any(|line| line.text.contains("sendfile")), "{verdict:#?}");
    assert!(!verdict.advice.iter().any(|line| line.contains("sendfile")), "{verdict:#?}");
    let several = |verdict: &Verdict| verdict.advice.iter().any(|line| line.contains("several"));
    assert!(several(&verdict), "four streams carry more on four cores: {verdict:#?}");
}
