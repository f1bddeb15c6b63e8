//! Queues, policers, pacing, slots and lines.

use super::*;

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
                outcome.near_mut().counters.qdiscs = vec![QdiscCounters {
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
                        .near_mut()
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
                    let interface = results.near_mut().interface.get_or_insert_default();
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
                if let Some(far) = results.far_mut() {
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
                for stream in &mut outcome.near_mut().streams {
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
                for stream in &mut outcome.near_mut().streams {
                    let Some(tcp) = &mut stream.tcp else { continue };
                    tcp.last.retransmits_count += 400;
                    (tcp.last.reordered_count, tcp.last.needless_retransmits_count) =
                        (Some(90), Some(380));
                }
                let again = outcome
                    .near_mut()
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
                outcome.near_mut().counters.devices = vec![device];
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
        file: None,
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
            outcome.near_mut().counters.quota = Some(quota(7.0));
            outcome.near_mut().streams.iter_mut().for_each(|s| s.thread_wait_s = Some(0.01));
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
    let setting = &verdict.changes[0];
    assert_eq!((setting.end, setting.key.as_str()), (End::Near, "cgroup:/box/cpu.max"));
    assert_eq!(
        (setting.from.as_deref(), setting.to.as_str()),
        (Some("30000 100000"), "max 100000")
    );
    let free =
        Planted { model: Model { sender_core_bits_per_s: 8e9, ..Model::default() }, ..stopped };
    let told = explain::confirm_host_change(&before, verdict.clone(), &free.results())
        .expect("the same test");
    assert!(told.confirmed && told.summary.contains("confirmed by the change"), "{told:#?}");
    let reworded = Verdict { summary: "in other words".to_owned(), ..verdict.clone() };
    let again = explain::confirm_host_change(&before, reworded, &free.results());
    assert_eq!(again.map(|verdict| verdict.summary), Ok(told.summary), "words decide nothing");
    let same =
        explain::confirm_host_change(&before, verdict.clone(), &before).expect("the same test");
    assert!(!same.confirmed && same.ruled_out[0].text.contains("refuted"), "{same:#?}");
    let other = Planted { spec: TestSpec::tcp(), ..free };
    let uncommon = explain::confirm_host_change(&before, verdict, &other.results());
    assert_eq!(uncommon, Err(explain::HostChangeError::NoCommonTest));
}

#[test]
fn advice_on_htb_changes_the_class_that_holds_traffic_back() {
    let shaped = 2e9;
    for path in paths() {
        let goodput = shaped * path.mss() / (path.mtu_bytes + 14.0);
        let advice = |class: Option<&'static str>| {
            let planted = Planted {
                hosts: Box::new(move |results| {
                    let interface = results.near_mut().interface.get_or_insert_default();
                    interface.qdisc = Some("htb".into());
                    interface.qdisc_class = class.map(str::to_owned);
                }),
                ..Planted::on(Model {
                    capacity_bits_per_s: goodput,
                    near_qdisc_bits_per_s: Some(shaped),
                    ..path.clone()
                })
            };
            planted.expect(Limit::Shaper, NEAR, true);
            planted.verdict().0.advice.join("\n")
        };
        let change = "`tc class change dev eth0 classid 1:10 htb rate 4000mbit` doubles the rate";
        assert!(advice(Some("1:10")).contains(change), "{}", advice(Some("1:10")));
        assert!(advice(None).contains("`tc class show dev eth0`"), "files of earlier versions");
    }
}
