//! The engine over UDP and in transactions, on loopback.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use testkit::effort;

use results::{End, Protocol, TestLimit, TestSpec, UdpSpec};
use traffic::engine::{
    EndOutcome, EndPlan, Event, RunningEnd, StreamRole, StreamSocket, prepare_socket,
};

fn udp_pair(spec: &TestSpec) -> (OwnedFd, OwnedFd) {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (socket, sending) in [(&near, true), (&far, false)] {
        prepare_socket(socket, spec, sending);
    }
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    (near.into(), far.into())
}

fn tcp_pair() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nodelay(true).unwrap();
    let far = listener.accept().unwrap().0;
    far.set_nodelay(true).unwrap();
    (near.into(), far.into())
}

fn plan(spec: &TestSpec, end: End, role: StreamRole, socket: OwnedFd) -> EndPlan {
    EndPlan {
        spec: spec.clone(),
        end,
        streams: vec![StreamSocket { index: 0, role, socket }],
        udp_counters_64bit: true,
    }
}

fn wait(running: &mut RunningEnd) {
    let began = Instant::now();
    while !matches!(running.next_event(Duration::from_millis(200)), Event::Finished) {
        assert!(began.elapsed() < Duration::from_secs(20), "hangs");
    }
}

fn run(
    spec: &TestSpec,
    (near, far): (OwnedFd, OwnedFd),
    roles: (StreamRole, StreamRole),
) -> (EndOutcome, EndOutcome) {
    let mut receiver = RunningEnd::start(plan(spec, End::Far, roles.1, far)).unwrap();
    let mut sender = RunningEnd::start(plan(spec, End::Near, roles.0, near)).unwrap();
    wait(&mut sender);
    wait(&mut receiver);
    (sender.finish(), receiver.finish())
}

fn bulk(spec: &TestSpec) -> (EndOutcome, EndOutcome) {
    run(spec, udp_pair(spec), (StreamRole::Send, StreamRole::Receive))
}

fn short(spec: TestSpec) -> TestSpec {
    TestSpec { limit: TestLimit::DurationS(0.3), interval_s: 0.1, ..spec }
}

fn plain(datagram_bytes: u32, gso: bool, gro: bool) -> TestSpec {
    let udp = Some(UdpSpec { datagram_bytes, gso, gro, batch_count: 16 });
    short(TestSpec { udp, ..TestSpec::udp(datagram_bytes) })
}

#[test]
fn every_way_of_cutting_and_joining_carries_datagrams() {
    for (datagram_bytes, gso, gro) in
        [(64, true, true), (64, true, false), (64, false, true), (1400, false, false)]
    {
        let spec = plain(datagram_bytes, gso, gro);
        let (sent, received) = bulk(&spec);
        let (sent, received) = (&sent.report.streams[0], &received.report.streams[0]);
        let (out, into) = (sent.udp.as_ref().unwrap(), received.udp.as_ref().unwrap());
        assert!(out.datagrams_count > 1000, "{datagram_bytes} {gso} {gro}: {out:?}");
        assert_eq!(sent.bytes, out.datagrams_count * u64::from(datagram_bytes));
        assert_eq!(received.bytes, into.datagrams_count * u64::from(datagram_bytes));
        assert_eq!(into.duplicate_count, Some(0), "{datagram_bytes} {gso} {gro}");
        assert_eq!(into.reordered_count, Some(0), "{datagram_bytes} {gso} {gro}");
        let missing = into.lost_count.unwrap();
        let total = into.datagrams_count + missing;
        assert!(total <= out.datagrams_count + 4096, "{total} {}", out.datagrams_count);
        assert_eq!(into.gro_batches_count.unwrap() > 0, gro && gso, "{into:?}");
        // What was lost was lost at this socket: loopback loses nothing.
        assert!(into.socket_drops_count.unwrap() > 0 || missing == 0, "{into:?}");
    }
}

#[test]
fn a_paced_sender_keeps_its_rate_and_loses_nothing() {
    let spec = TestSpec { offered_bits_per_s: Some(50e6), ..plain(1000, true, true) };
    let paced = |_| {
        let (sent, received) = bulk(&spec);
        let stream = &sent.report.streams[0];
        let rate = stream.bytes as f64 * 8.0 / stream.duration_s;
        let udp = received.report.streams[0].udp.clone().unwrap();
        (rate, stream.application_idle_s.unwrap(), udp.lost_count, udp.jitter_s.unwrap())
    };
    // A receiver that waits for its core loses some, and a sender that does is behind.
    let is_kept = |&(rate, idle_s, lost, jitter_s): &(f64, f64, Option<u64>, f64)| {
        (rate / 50e6 - 1.0).abs() < 0.05 && idle_s > 0.1 && lost == Some(0) && jitter_s < 0.01
    };
    effort::judge_runs("50 Mbit/s", 9, paced, is_kept);
}

#[test]
fn limits_in_datagrams_and_bytes_are_exact() {
    for limit in [TestLimit::TotalBlocks(1001), TestLimit::TotalBytes(100_100)] {
        let spec = TestSpec { limit, offered_bits_per_s: Some(100e6), ..plain(100, true, true) };
        let (sent, received) = bulk(&spec);
        assert_eq!(sent.report.streams[0].udp.as_ref().unwrap().datagrams_count, 1001);
        assert_eq!(received.report.streams[0].bytes, 100_100);
        assert!(received.duration_s < 1.0);
    }
}

#[test]
fn datagrams_larger_than_the_path_go_without_gso() {
    let spec = TestSpec { offered_bits_per_s: Some(500e6), ..plain(65_000, true, true) };
    let (sent, received) = bulk(&spec);
    assert!(sent.report.streams[0].bytes > 1_000_000);
    assert!(received.report.streams[0].bytes > 1_000_000);
}

#[test]
fn a_port_nobody_listens_at_ends_the_stream() {
    let spec = TestSpec { limit: TestLimit::DurationS(5.0), ..plain(100, true, true) };
    let (near, far) = udp_pair(&spec);
    drop(far);
    let mut sender = RunningEnd::start(plan(&spec, End::Near, StreamRole::Send, near)).unwrap();
    wait(&mut sender);
    let outcome = sender.finish();
    assert_eq!(outcome.report.findings[0].code, "stream-failed", "{:?}", outcome.report.findings);
    assert!(outcome.duration_s < 2.0);
}

#[test]
fn transactions_are_counted_and_timed() {
    for (protocol, pair) in [
        (Protocol::Tcp, tcp_pair()),
        (Protocol::Udp, udp_pair(&TestSpec::request_response(Protocol::Udp, 1, 1))),
    ] {
        let spec = short(TestSpec::request_response(protocol, 1, 100));
        let (asked, answered) = run(&spec, pair, (StreamRole::Request, StreamRole::Respond));
        let outcome = asked.request_response.expect("requests were made");
        assert!(outcome.transactions_count > 100, "{outcome:?}");
        assert_eq!(outcome.latency.count, outcome.transactions_count);
        assert_eq!(outcome.timeouts_count, 0);
        let median_s = outcome.latency.percentile_s(50.0).unwrap();
        assert!(median_s > 1e-6 && median_s < 0.05, "{median_s}");
        let mean_s = asked.duration_s / outcome.transactions_count as f64;
        assert!((outcome.latency.mean_s / mean_s - 1.0).abs() < 0.2, "{outcome:?} {mean_s}");
        let bytes = answered.report.streams[0].bytes;
        assert!(bytes.abs_diff(outcome.transactions_count) <= 2, "{bytes}");
        assert_eq!(asked.report.findings, []);
    }
}

#[test]
fn a_limit_in_transactions_is_exact() {
    let spec = TestSpec {
        limit: TestLimit::TotalBlocks(77),
        ..TestSpec::request_response(Protocol::Tcp, 300_000, 200_000)
    };
    let (asked, _answered) = run(&spec, tcp_pair(), (StreamRole::Request, StreamRole::Respond));
    assert_eq!(asked.request_response.unwrap().transactions_count, 77);
    assert_eq!(asked.report.streams[0].bytes, 77 * 300_000);
}

/// A peer that asks as fast as it is answered; over UDP one that does not even wait.
#[test]
fn answers_keep_the_offered_rate_whoever_asks() {
    const SECOND: Duration = Duration::from_secs(1);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let spec = TestSpec {
            offered_bits_per_s: Some(8e6),
            limit: TestLimit::DurationS(30.0),
            ..TestSpec::request_response(protocol, 1, 10_000)
        };
        let pair = if protocol == Protocol::Tcp { tcp_pair() } else { udp_pair(&spec) };
        let (asking, far) = pair;
        let answering = RunningEnd::start(plan(&spec, End::Far, StreamRole::Respond, far)).unwrap();
        sys::socket::set_timeouts(&asking, Duration::from_millis(1)).unwrap();
        let (mut answer, mut came) = (vec![0; 1 << 16], 0);
        let start = Instant::now();
        while start.elapsed() < SECOND {
            rustix::net::send(&asking, &[0], rustix::net::SendFlags::NOSIGNAL).ok();
            came += rustix::io::read(&asking, &mut *answer).unwrap_or(0);
        }
        let allowed = 1e6 * start.elapsed().as_secs_f64();
        let came = came as f64;
        assert!(came > 0.0 && came < 1.2 * allowed, "{protocol:?}: {came} of {allowed} bytes");
        drop(answering);
    }
}

/// The asking end keeps to it by itself.
#[test]
fn transactions_keep_the_offered_rate() {
    let spec = short(TestSpec {
        offered_bits_per_s: Some(8e6),
        ..TestSpec::request_response(Protocol::Tcp, 10_000, 1)
    });
    let (asked, _answered) = run(&spec, tcp_pair(), (StreamRole::Request, StreamRole::Respond));
    let outcome = asked.request_response.expect("requests were made");
    let most = 100.0 * 1.2 * asked.duration_s + 10.0;
    assert!(outcome.transactions_count > 0, "{outcome:?}");
    assert!((outcome.transactions_count as f64) < most, "{outcome:?}");
}

#[test]
fn a_lost_answer_is_a_timeout_and_nothing_is_confused() {
    let spec = TestSpec {
        limit: TestLimit::DurationS(1.6),
        ..TestSpec::request_response(Protocol::Udp, 8, 8)
    };
    let (near, far) = udp_pair(&spec);
    let far = UdpSocket::from(far);
    let answering = std::thread::spawn(move || {
        far.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let mut request = [0; 8];
        let mut count = 0_u32;
        while far.recv(&mut request).is_ok() {
            count += 1;
            // The third is lost; every other one is answered twice, which must not desync.
            if count != 3 && far.send(&request).and_then(|_| far.send(&request)).is_err() {
                break;
            }
            if count > 200 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let mut asking = RunningEnd::start(plan(&spec, End::Near, StreamRole::Request, near)).unwrap();
    wait(&mut asking);
    let outcome = asking.finish().request_response.unwrap();
    assert_eq!(outcome.timeouts_count, 1);
    assert!(outcome.transactions_count > 100, "{outcome:?}");
    assert!(outcome.latency.max_s < 0.9, "{outcome:?}");
    answering.join().unwrap();
}

#[test]
fn probes_run_beside_a_bulk_test() {
    let spec = short(TestSpec { latency_under_load: true, ..TestSpec::tcp() });
    let (data, probe) = (tcp_pair(), tcp_pair());
    let end = |end, roles: [StreamRole; 2], sockets: [OwnedFd; 2]| EndPlan {
        spec: spec.clone(),
        end,
        streams: roles
            .into_iter()
            .zip(sockets)
            .zip(0..)
            .map(|((role, socket), index)| StreamSocket { index, role, socket })
            .collect(),
        udp_counters_64bit: true,
    };
    let far_roles = [StreamRole::Receive, StreamRole::Respond];
    let near_roles = [StreamRole::Send, StreamRole::Probe];
    let mut far = RunningEnd::start(end(End::Far, far_roles, [data.1, probe.1])).unwrap();
    let mut near = RunningEnd::start(end(End::Near, near_roles, [data.0, probe.0])).unwrap();
    wait(&mut near);
    wait(&mut far);
    let (near, far) = (near.finish(), far.finish());
    let latency = near.latency_under_load.expect("probes were answered");
    assert!((10..=32).contains(&latency.count), "{latency:?}");
    assert_eq!(near.report.streams.len(), 1, "the probe is not in the account");
    assert_eq!(far.report.streams.len(), 1);
    assert!(near.request_response.is_none() && far.request_response.is_none());
    assert_eq!((near.report.findings, far.report.findings), (vec![], vec![]));
}
