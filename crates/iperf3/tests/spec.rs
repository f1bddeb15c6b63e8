//! Our own tests through iperf3's protocol: the ordinary client against an iperf3 server.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use iperf3::client::run_spec;
use iperf3::failure::Iperf3Error;
use iperf3::options::{Options, Role};
use iperf3::server::listener::Listener;
use iperf3::server::{ServeLimits, serve_control};
use iperf3::sink::Silent;
use results::{Direction, Protocol, TestLimit, TestOutcome, TestSpec};

fn server() -> (u16, JoinHandle<Result<(), Iperf3Error>>) {
    let mut listener = Listener::bind(&Options { port: 0, ..Options::new(Role::Server) }).unwrap();
    let port = listener.port();
    let thread = std::thread::spawn(move || {
        let client = listener.next_client(Duration::from_secs(10), &|| None).expect("a client");
        let mut data = listener.connections(&client);
        let limits = ServeLimits::default();
        let (control, cookie) = (client.control, client.cookie);
        serve_control(control, cookie, &mut data, &limits, &mut Silent, &|| None)
    });
    (port, thread)
}

fn run(spec: &TestSpec, should_stop: &dyn Fn() -> bool) -> (TestOutcome, usize) {
    let (port, server) = server();
    let mut control = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let cookie = [b'c'; 37];
    control.write_all(&cookie).unwrap();
    let mut reports = 0;
    let outcome = run_spec(control, cookie, spec, &mut |_| reports += 1, should_stop).unwrap();
    server.join().unwrap().unwrap();
    (outcome, reports)
}

fn short(direction: Direction) -> TestSpec {
    TestSpec {
        direction,
        streams: 2,
        limit: TestLimit::DurationS(0.5),
        interval_s: 0.1,
        ..TestSpec::tcp()
    }
}

#[test]
fn every_direction_has_an_outcome_of_both_ends() {
    for (direction, ways) in [
        (Direction::Forward, &[Direction::Forward][..]),
        (Direction::Reverse, &[Direction::Reverse]),
        (Direction::Bidirectional, &[Direction::Forward, Direction::Reverse]),
    ] {
        let (outcome, reports) = run(&short(direction), &|| false);
        assert!((4..=6).contains(&reports), "{direction:?}: {reports} intervals of 0.1 s");
        assert!((outcome.duration_s - 0.5).abs() < 0.2, "{}", outcome.duration_s);
        assert!(outcome.far().is_none(), "iperf3 does not tell");
        assert_eq!(outcome.near().streams.len(), 2 * ways.len());
        let found: Vec<_> = outcome.directions.iter().map(|way| way.direction).collect();
        assert_eq!(found, ways);
        for way in &outcome.directions {
            assert!(way.received_bytes > 0 && way.sent_bytes > 0, "{way:?}");
            assert!(way.received_bits_per_s > 1e6);
            assert!(way.retransmits_count.is_some(), "the sender counts them");
        }
    }
}

#[test]
fn datagrams_are_counted_at_both_ends() {
    for direction in [Direction::Forward, Direction::Reverse] {
        let spec = TestSpec {
            // So few that they all fit into a socket whose reader is kept waiting, over so long that it is not for all of it.
            limit: TestLimit::TotalBlocks(100),
            direction,
            offered_bits_per_s: Some(4e5),
            ..TestSpec::udp(500)
        };
        let (outcome, _reports) = run(&spec, &|| false);
        let way = &outcome.directions[0];
        let udp = way.udp.as_ref().unwrap();
        assert!(udp.sent_count >= 100, "{udp:?}");
        assert!(udp.received_count + udp.lost_count <= udp.sent_count, "{udp:?}");
        assert!(udp.received_count >= 90, "{udp:?}");
        assert_eq!(spec.protocol, Protocol::Udp);
    }
}

#[test]
fn a_test_that_is_stopped_is_still_accounted_for() {
    let start = std::time::Instant::now();
    let spec = TestSpec { limit: TestLimit::DurationS(30.0), ..short(Direction::Forward) };
    let (outcome, _reports) = run(&spec, &|| start.elapsed() > Duration::from_millis(700));
    assert!(start.elapsed() < Duration::from_secs(20), "well before its end");
    assert!(outcome.directions[0].received_bytes > 0);
}

#[test]
fn what_iperf3_cannot_do_is_said() {
    let (port, _server) = server();
    let control = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let spec = TestSpec::request_response(Protocol::Tcp, 1, 1);
    let error = run_spec(control, [b'c'; 37], &spec, &mut |_| {}, &|| false).unwrap_err();
    let why = error.source.to_string();
    assert!(why.contains("clearstream serve") && error.measured.is_none(), "{why}");
}
