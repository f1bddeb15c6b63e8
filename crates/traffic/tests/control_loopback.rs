//! Whole tests over loopback: our client against our server. What they carry in how much time is judged.

use std::net::{Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use crate::control::{Running, brief, eventually};
use results::{Direction, EndReport, Protocol, TestLimit, TestSpec};
use testkit::port::free_port;
use traffic::client::{self, CONNECT_TIMEOUT, Family, Peer, Target};
use traffic::control::Limits;

#[test]
fn tcp_forward_is_seen_from_both_ends() {
    let server = Running::start();
    let mut pairs = 0;
    let mut with_far = 0;
    let mut on_interval = |pair: &client::IntervalPair| {
        pairs += 1;
        with_far += usize::from(pair.far.is_some());
    };
    let spec = brief(TestSpec::tcp());
    let outcome =
        client::run_test(&server.target, &spec, &mut on_interval, &|| false).expect("runs");
    let [forward] = &outcome.directions[..] else { panic!("one direction") };
    assert_eq!(forward.direction, Direction::Forward);
    assert!(forward.received_bits_per_s > 1e8, "{}", forward.received_bits_per_s);
    // Each end has its own clock, so the two windows are not quite the same.
    assert!((forward.received_bytes as f64) < forward.sent_bytes as f64 * 1.2);
    let far = outcome.far().expect("our server tells");
    assert!(!far.streams[0].sending && outcome.near().streams[0].sending);
    assert!(far.streams[0].tcp.is_some(), "TCP_INFO of the far end");
    assert!(pairs >= 3, "{pairs} intervals in 0.4 s of 0.1 s each");
    assert!(with_far >= 2, "{with_far} of {pairs} intervals with the far end's view");
}

#[test]
fn tcp_reverse_and_both_directions_with_several_streams() {
    let server = Running::start();
    let mut spec = brief(TestSpec::tcp());
    spec.streams = 3;
    spec.direction = Direction::Reverse;
    let outcome = server.test(&spec).expect("runs");
    assert_eq!(sending(outcome.near()), [false; 3]);
    assert_eq!(sending(outcome.far().expect("told")), [true; 3]);
    assert!(outcome.directions[0].received_bytes > 0);
    spec.direction = Direction::Bidirectional;
    let outcome = server.test(&spec).expect("runs");
    assert_eq!(sending(outcome.near()), [true, true, true, false, false, false]);
    let [forward, reverse] = &outcome.directions[..] else { panic!("two directions") };
    assert!(forward.received_bytes > 0 && reverse.received_bytes > 0);
}

fn sending(end: &EndReport) -> Vec<bool> {
    let mut streams: Vec<_> = end.streams.iter().collect();
    streams.sort_by_key(|stream| stream.index);
    streams.iter().map(|stream| stream.sending).collect()
}

#[test]
fn udp_in_every_direction_with_streams() {
    let server = Running::start();
    for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional] {
        let mut spec = brief(TestSpec::udp(1200));
        (spec.direction, spec.streams) = (direction, 2);
        spec.offered_bits_per_s = Some(20e6);
        let outcome = server.test(&spec).expect("runs");
        assert!(!outcome.directions.is_empty());
        for way in &outcome.directions {
            let udp = way.udp.as_ref().expect("UDP");
            assert!(udp.received_count > 300, "{direction:?}: {udp:?}");
            let (loss, places) = (udp.lost_count, &udp.loss);
            let places = [
                places.socket_buffer_count,
                places.softnet_count,
                places.device_count,
                places.path_count,
            ];
            assert_eq!(places.into_iter().flatten().sum::<u64>(), loss, "{direction:?}: {udp:?}");
            assert!(loss * 20 < udp.sent_count, "{direction:?}: {udp:?}");
        }
    }
}

#[test]
fn bytes_limit_is_met_exactly_at_both_ends() {
    let server = Running::start();
    let mut spec = TestSpec::tcp();
    spec.limit = TestLimit::TotalBytes(10_000_000);
    spec.streams = 2;
    let outcome = server.test(&spec).expect("runs");
    let forward = &outcome.directions[0];
    assert_eq!((forward.sent_bytes, forward.received_bytes), (10_000_000, 10_000_000));
}

#[test]
fn udp_bytes_limit_ends_without_a_stall() {
    let server = Running::start();
    let mut spec = TestSpec::udp(1000);
    spec.limit = TestLimit::TotalBlocks(500);
    spec.offered_bits_per_s = Some(50e6);
    let began = Instant::now();
    let outcome = server.test(&spec).expect("runs");
    assert_eq!(outcome.directions[0].udp.as_ref().expect("UDP").sent_count, 500);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn requests_and_responses_over_both_transports() {
    let server = Running::start();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let spec = brief(TestSpec::request_response(protocol, 1, 1));
        let outcome = server.test(&spec).expect("runs");
        assert!(outcome.directions.is_empty());
        let exchanges = outcome.request_response.expect("request/response");
        assert!(exchanges.transactions_count > 100, "{protocol:?}: {exchanges:?}");
        let p50_s = exchanges.latency.percentile_s(50.0).expect("listed");
        assert!(p50_s > 0.0 && p50_s < 0.05, "{protocol:?}: {p50_s}");
    }
}

#[test]
fn latency_beside_a_bulk_test() {
    let server = Running::start();
    for protocol in [TestSpec::tcp(), TestSpec::udp(1400)] {
        let mut spec = brief(protocol);
        spec.latency_under_load = true;
        spec.offered_bits_per_s = Some(100e6);
        let outcome = server.test(&spec).expect("runs");
        let latency = outcome.latency_under_load.as_ref().expect("probed");
        assert!(latency.count > 3, "{latency:?}");
        assert_eq!(outcome.near().streams.len(), 1, "the probe is no stream of the test");
    }
}

#[test]
fn works_over_ipv6_and_on_both_families_at_once() {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skipped: this host has no IPv6");
        return;
    }
    let server = Running::with(|config| config.bind = None);
    for (host, family) in [("::1", Family::V6), ("[::1]", Family::V6), ("127.0.0.1", Family::V4)] {
        let family = Some(family);
        let target = Target { host: host.to_owned(), port: server.target.port, family };
        for spec in [brief(TestSpec::tcp()), brief(TestSpec::udp(1200))] {
            let outcome = client::run_test(&target, &spec, &mut |_| {}, &|| false).expect(host);
            assert!(outcome.directions[0].received_bytes > 0, "{host}");
        }
    }
}

#[test]
fn multipath_tcp_is_what_the_kernels_made_of_it() {
    let mut spec = brief(TestSpec::tcp());
    (spec.mptcp, spec.streams) = (true, 2);
    let has_mptcp = std::fs::read_to_string("/proc/sys/net/mptcp/enabled")
        .is_ok_and(|enabled| enabled.trim() == "1");
    for server_speaks in [true, false] {
        let server = Running::with(|config| config.mptcp = server_speaks && has_mptcp);
        let tested = server.test(&spec);
        if !has_mptcp {
            let line = tested.expect_err("this kernel has none").to_string();
            assert!(!line.contains('\n'), "{line}");
            continue;
        }
        let outcome = tested.expect("runs");
        assert!(outcome.directions[0].received_bytes > 1_000_000);
        let established: Vec<_> = outcome
            .near()
            .streams
            .iter()
            .map(|stream| stream.tcp.as_ref().and_then(|tcp| tcp.mptcp_established))
            .collect();
        assert_eq!(established, [Some(server_speaks); 2]);
    }
}

#[test]
fn two_clients_at_once() {
    let server = Running::start();
    std::thread::scope(|scope| {
        let both = [TestSpec::tcp(), TestSpec::udp(1200)].map(|spec| {
            let (server, mut spec) = (&server, brief(spec));
            spec.offered_bits_per_s = Some(50e6);
            scope.spawn(move || server.test(&spec).expect("runs beside the other"))
        });
        for test in both {
            let outcome = test.join().expect("no panic");
            assert!(outcome.directions[0].received_bytes > 100_000);
        }
    });
}

#[test]
fn fixed_source_ports_can_be_used_again_at_once() {
    let server = Running::start();
    let first_port = free_port();
    let mut spec = brief(TestSpec::tcp());
    spec.first_port = Some(first_port);
    for _ in 0..3 {
        let outcome = server.test(&spec).expect("the port is free again");
        let local = &outcome.near().streams[0].local;
        assert!(local.ends_with(&format!(":{first_port}")), "{local}");
    }
}

#[test]
fn one_session_runs_tests_one_after_the_other() {
    let server = Running::start();
    let Peer::ClearStream(mut session) =
        client::connect(&server.target, CONNECT_TIMEOUT, &[]).expect("connects")
    else {
        panic!("our own server")
    };
    assert_eq!(session.tool_version(), env!("CARGO_PKG_VERSION"));
    assert!(!session.host().kernel.is_empty());
    for _ in 0..2 {
        session.run_test(&brief(TestSpec::tcp()), &mut |_| {}, &|| false).expect("runs");
    }
    let idle = session.round_trips(20, Duration::from_millis(1)).expect("round trips");
    assert_eq!((idle.count, idle.method.as_str()), (20, "tcp-rr"));
    let mtu = session.path_mtu().expect("path MTU");
    assert!(mtu.confirmed && mtu.bytes > 60_000, "loopback: {mtu:?}");
}

#[test]
fn stopping_early_keeps_what_was_measured() {
    let server = Running::start();
    let mut spec = TestSpec::tcp();
    spec.interval_s = 0.1;
    let began = Instant::now();
    let stop = || began.elapsed() > Duration::from_millis(400);
    let outcome = client::run_test(&server.target, &spec, &mut |_| {}, &stop).expect("partial");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(outcome.duration_s > 0.1 && outcome.duration_s < 2.0, "{}", outcome.duration_s);
    assert!(outcome.directions[0].received_bytes > 0);
    assert!(outcome.far().is_some());
}

#[test]
fn a_rate_limit_holds_in_both_directions_and_is_said() {
    let limits = Limits { rate_bits_per_s_max: Some(40e6), ..Limits::default() };
    let server = Running::with(|config| config.limits = limits);
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut spec = brief(TestSpec::tcp());
        spec.limit = TestLimit::DurationS(1.0);
        (spec.direction, spec.streams) = (direction, 2);
        let outcome = server.test(&spec).expect("slowed, not refused");
        let rate = outcome.directions[0].received_bits_per_s;
        assert!(rate < 60e6, "{direction:?}: {rate}");
        let codes: Vec<_> = outcome.near().findings.iter().map(|finding| &finding.code).collect();
        assert!(codes.iter().any(|code| *code == "rate-limited"), "{codes:?}");
    }
}

#[test]
fn counters_of_the_far_host_come_in_time() {
    let server = Running::start();
    let interval = Duration::from_millis(200);
    let interfaces = ["lo".to_owned()];
    let mut watch = client::watch(&server.target, &interfaces, interval, &[]).expect("watches");
    let mut readings = Vec::new();
    for _ in 0..3 {
        let reading = watch.next_reading(Duration::from_secs(2)).expect("healthy");
        readings.push(reading.expect("in time"));
    }
    assert_eq!(readings[0].devices[0].interface, "lo");
    let gaps_s = readings.windows(2).map(|pair| pair[1].at_s - pair[0].at_s);
    for gap_s in gaps_s {
        assert!((0.1..0.6).contains(&gap_s), "{gap_s}");
    }
    drop(watch);
    eventually("the session ends with the watch", Duration::from_secs(2), || {
        !server.endings().is_empty()
    });
}
