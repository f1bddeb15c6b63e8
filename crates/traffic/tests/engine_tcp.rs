//! The engine over TCP on loopback: every way in and out of the socket.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use testkit::effort;

use results::{Direction, End, ReceivePath, SendPath, TestLimit, TestSpec};
use traffic::engine::{EndOutcome, EndPlan, Event, RunningEnd, StreamRole, StreamSocket};

fn pairs(count: u32) -> Vec<(OwnedFd, OwnedFd)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pair = |_| {
        let near = TcpStream::connect(address).unwrap();
        (near.into(), listener.accept().unwrap().0.into())
    };
    (0..count).map(pair).collect()
}

fn plan(spec: &TestSpec, end: End, role: StreamRole, sockets: Vec<OwnedFd>) -> EndPlan {
    let streams = (0_u32..).zip(sockets);
    EndPlan {
        spec: spec.clone(),
        end,
        streams: streams.map(|(index, socket)| StreamSocket { index, role, socket }).collect(),
        udp_counters_64bit: true,
    }
}

fn short(spec: TestSpec, duration_s: f64) -> TestSpec {
    TestSpec { limit: TestLimit::DurationS(duration_s), interval_s: 0.1, ..spec }
}

/// Waits for the end of an end; fails when it takes longer than any test here should.
fn until_finished(running: &mut RunningEnd) -> Vec<traffic::engine::IntervalReport> {
    let began = Instant::now();
    let mut intervals = Vec::new();
    loop {
        match running.next_event(Duration::from_secs(1)) {
            Event::Interval(report) => intervals.push(report),
            Event::Finished => return intervals,
            Event::Quiet => assert!(began.elapsed() < Duration::from_secs(20), "hangs"),
        }
    }
}

fn run(spec: &TestSpec) -> (EndOutcome, EndOutcome) {
    let (near, far) = pairs(spec.streams).into_iter().unzip();
    let mut receiver = RunningEnd::start(plan(spec, End::Far, StreamRole::Receive, far)).unwrap();
    let mut sender = RunningEnd::start(plan(spec, End::Near, StreamRole::Send, near)).unwrap();
    until_finished(&mut sender);
    until_finished(&mut receiver);
    (sender.finish(), receiver.finish())
}

#[test]
fn one_stream_counts_the_same_at_both_ends() {
    let spec = short(TestSpec::tcp(), 0.5);
    let began = Instant::now();
    let (sent, received) = run(&spec);
    let took_s = began.elapsed().as_secs_f64();
    for outcome in [&sent, &received] {
        // As long as was asked for, or as it really took where the machine stalled.
        assert!((0.45..=took_s).contains(&outcome.duration_s), "{}", outcome.duration_s);
        let stream = &outcome.report.streams[0];
        assert!(stream.bytes > 10_000_000, "{}", stream.bytes);
        assert!((4..=6).contains(&stream.intervals.len()), "{}", stream.intervals.len());
        let sum: u64 = stream.intervals.iter().map(|interval| interval.bytes).sum();
        assert_eq!(sum, stream.bytes);
        assert!(stream.thread_system_s.unwrap() > 0.01);
        assert!(!stream.cores.is_empty());
        assert_eq!(outcome.report.findings, []);
        assert!(!outcome.report.cores.is_empty());
    }
    let (sent, received) = (&sent.report.streams[0], &received.report.streams[0]);
    let ratio = received.bytes as f64 / sent.bytes as f64;
    assert!((0.7..1.3).contains(&ratio), "{ratio}");
    assert_eq!(sent.local, received.remote);
    assert!(sent.tcp.as_ref().unwrap().last.busy_s.unwrap() > 0.02);
}

#[test]
fn every_way_in_and_out_carries_the_bytes() {
    for send_path in [SendPath::Copy, SendPath::Sendfile, SendPath::Zerocopy] {
        for receive_path in [ReceivePath::Copy, ReceivePath::Discard, ReceivePath::Zerocopy] {
            let limit = TestLimit::TotalBytes(20_000_001);
            let spec = TestSpec { send_path, receive_path, limit, ..TestSpec::tcp() };
            let (sent, received) = run(&spec);
            let what = format!("{send_path:?} {receive_path:?}");
            assert_eq!(sent.report.findings, [], "{what}");
            let (sent, received) = (&sent.report.streams[0], &received.report.streams[0]);
            assert_eq!((sent.bytes, received.bytes), (20_000_001, 20_000_001), "{what}");
            assert!(received.duration_s > 0.0 && received.duration_s < 5.0, "{what}");
            assert_eq!(sent.zero_copy.is_some(), send_path == SendPath::Zerocopy);
            if let Some(share) = &sent.zero_copy {
                assert_eq!(share.zero_copied_bytes, 0, "loopback copies: {share:?}");
                assert!(share.asked_bytes > 10_000_000, "{share:?}");
            }
            if let Some(share) = &received.zero_copy {
                assert_eq!(share.asked_bytes, 20_000_001, "{what}");
                assert!(share.zero_copied_bytes <= share.asked_bytes, "{what}");
            }
        }
    }
}

#[test]
fn sixty_four_streams_share_a_limit_exactly() {
    let limit = TestLimit::TotalBlocks(1000);
    let spec = TestSpec { streams: 64, limit, block_bytes: Some(10_007), ..TestSpec::tcp() };
    let (sent, received) = run(&spec);
    let sum = |outcome: &EndOutcome| -> u64 {
        outcome.report.streams.iter().map(|stream| stream.bytes).sum()
    };
    assert_eq!(sum(&sent), 10_007_000);
    assert_eq!(sum(&received), 10_007_000);
    assert_eq!(received.report.streams.len(), 64);
}

#[test]
fn both_directions_at_once() {
    let spec = short(TestSpec { direction: Direction::Bidirectional, ..TestSpec::tcp() }, 0.3);
    let [one, two]: [(OwnedFd, OwnedFd); 2] = pairs(2).try_into().unwrap();
    let end = |end, sender, receiver| EndPlan {
        spec: spec.clone(),
        end,
        streams: vec![
            StreamSocket { index: 0, role: StreamRole::Send, socket: sender },
            StreamSocket { index: 0, role: StreamRole::Receive, socket: receiver },
        ],
        udp_counters_64bit: true,
    };
    let began = Instant::now();
    let mut near = RunningEnd::start(end(End::Near, one.0, two.0)).unwrap();
    let mut far = RunningEnd::start(end(End::Far, two.1, one.1)).unwrap();
    until_finished(&mut near);
    until_finished(&mut far);
    let took_s = began.elapsed().as_secs_f64();
    for outcome in [near.finish(), far.finish()] {
        assert_eq!(outcome.report.findings, []);
        for stream in &outcome.report.streams {
            assert!(stream.bytes > 1_000_000, "{stream:?}");
            assert!((0.05..=took_s).contains(&stream.duration_s), "{}", stream.duration_s);
        }
    }
}

#[test]
fn the_omitted_start_does_not_count() {
    let spec = TestSpec { omit_s: 0.2, ..short(TestSpec::tcp(), 0.3) };
    let began = Instant::now();
    let (near, far) = pairs(1).into_iter().unzip();
    let mut receiver = RunningEnd::start(plan(&spec, End::Far, StreamRole::Receive, far)).unwrap();
    let mut sender = RunningEnd::start(plan(&spec, End::Near, StreamRole::Send, near)).unwrap();
    let intervals = until_finished(&mut sender);
    until_finished(&mut receiver);
    let took_s = began.elapsed().as_secs_f64();
    let omitted: Vec<bool> = intervals.iter().map(|interval| interval.omitted).collect();
    assert_eq!(omitted, [true, true, false, false, false]);
    // What counts begins after what does not, and all of it within the time that it really took.
    assert!((0.47..=took_s).contains(&intervals[4].end_s), "{}", intervals[4].end_s);
    for outcome in [sender.finish(), receiver.finish()] {
        assert!((0.27..took_s - 0.17).contains(&outcome.duration_s), "{}", outcome.duration_s);
        let stream = &outcome.report.streams[0];
        let counted: u64 = stream
            .intervals
            .iter()
            .filter(|interval| !interval.omitted)
            .map(|interval| interval.bytes)
            .sum();
        let omitted: u64 =
            stream.intervals.iter().map(|interval| interval.bytes).sum::<u64>() - counted;
        assert!(omitted > 1_000_000);
        // The mark between the two is read a moment after the interval.
        assert!(stream.bytes.abs_diff(counted) < counted / 10, "{} {counted}", stream.bytes);
    }
}

/// A reader that is behind when the measured time begins must not report more than the path carried in it.
#[test]
fn bytes_that_arrived_in_the_omitted_start_do_not_count() {
    let read_bits_per_s = Some(800_000.0);
    let spec = TestSpec { omit_s: 0.1, read_bits_per_s, ..short(TestSpec::tcp(), 0.2) };
    let (near, far) = pairs(1).remove(0);
    // 0.4 s of reading, less than any receive buffer; nothing arrives later.
    std::io::Write::write_all(&mut &TcpStream::from(near.try_clone().unwrap()), &[0; 40_000])
        .unwrap();
    let mut receiver =
        RunningEnd::start(plan(&spec, End::Far, StreamRole::Receive, vec![far])).unwrap();
    until_finished(&mut receiver);
    let outcome = receiver.finish();
    let stream = &outcome.report.streams[0];
    let sum = |omitted: bool| -> u64 {
        let intervals = stream.intervals.iter().filter(|interval| interval.omitted == omitted);
        intervals.map(|interval| interval.bytes).sum()
    };
    assert!(sum(true) > 0, "the reader had begun: {:?}", stream.intervals);
    assert_eq!((stream.bytes, sum(false)), (0, 0), "{:?}", stream.intervals);
    drop(near);
}

#[test]
fn a_limit_after_an_omitted_start_is_exact_at_the_sender() {
    let limit = TestLimit::TotalBytes(3_000_000);
    let spec = TestSpec { omit_s: 0.1, limit, ..TestSpec::tcp() };
    let (sent, _received) = run(&spec);
    assert_eq!(sent.report.streams[0].bytes, 3_000_000);
}

#[test]
fn stopping_early_is_prompt_and_keeps_what_was_measured() {
    let stopped = |_| {
        let spec = short(TestSpec::tcp(), 60.0);
        let (near, far) = pairs(1).into_iter().unzip();
        let receiver = plan(&spec, End::Far, StreamRole::Receive, far);
        let mut receiver = RunningEnd::start(receiver).unwrap();
        let mut sender = RunningEnd::start(plan(&spec, End::Near, StreamRole::Send, near)).unwrap();
        for running in [&mut receiver, &mut sender] {
            assert!(matches!(running.next_event(Duration::from_secs(5)), Event::Interval(_)));
        }
        let asked = Instant::now();
        sender.stop();
        receiver.stop();
        until_finished(&mut sender);
        for outcome in [sender.finish(), receiver.finish()] {
            assert!((0.08..10.0).contains(&outcome.duration_s), "{}", outcome.duration_s);
            assert!(outcome.report.streams[0].bytes > 1_000_000);
            assert_eq!(outcome.report.findings, []);
        }
        asked.elapsed()
    };
    effort::judge_runs("stopping", 9, stopped, |took| *took < Duration::from_millis(500));
}

#[test]
fn dropping_stops_everything() {
    let spec = short(TestSpec::tcp(), 60.0);
    let dropped = |_| {
        let (near, far): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs(3).into_iter().unzip();
        let sender = RunningEnd::start(plan(&spec, End::Near, StreamRole::Send, near)).unwrap();
        // Nobody reads: the senders are stuck in the kernel.
        std::thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        drop(sender);
        let took = began.elapsed();
        drop(far);
        took
    };
    effort::judge_runs("dropping", 9, dropped, |took| *took < Duration::from_millis(500));
}

#[test]
fn a_peer_that_closes_or_resets_is_named() {
    for resets in [false, true] {
        let spec = short(TestSpec::tcp(), 30.0);
        let (near, mut far): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs(1).into_iter().unzip();
        let far = TcpStream::from(far.remove(0));
        std::io::Write::write_all(&mut &far, &[0; 1000]).unwrap();
        let mut receiver =
            RunningEnd::start(plan(&spec, End::Near, StreamRole::Receive, near)).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        if resets {
            sys::socket::reset_on_close(&far).unwrap();
        }
        drop(far);
        let began = Instant::now();
        until_finished(&mut receiver);
        assert!(began.elapsed() < Duration::from_secs(1));
        let outcome = receiver.finish();
        let code = if resets { "stream-failed" } else { "peer-closed" };
        assert_eq!(outcome.report.findings[0].code, code);
        assert_eq!(outcome.report.streams[0].bytes, 1000);
    }
    // A sender whose peer resets.
    let spec = short(TestSpec::tcp(), 30.0);
    let (near, far): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs(1).into_iter().unzip();
    for send_path in [SendPath::Sendfile] {
        let spec = TestSpec { send_path, ..spec.clone() };
        let near = near.iter().map(|fd| fd.try_clone().unwrap()).collect();
        let mut sender = RunningEnd::start(plan(&spec, End::Near, StreamRole::Send, near)).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        far.iter().for_each(|far| sys::socket::reset_on_close(far).unwrap());
        for fd in &far {
            rustix::net::shutdown(fd, rustix::net::Shutdown::Both).unwrap();
        }
        until_finished(&mut sender);
        assert_eq!(sender.finish().report.findings[0].code, "stream-failed");
    }
}

#[test]
fn a_silent_peer_is_given_up() {
    let patience = Duration::from_millis(300);
    let (near, far): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs(2).into_iter().unzip();
    let timed = short(TestSpec::tcp(), 60.0);
    let limited = TestSpec { limit: TestLimit::TotalBytes(1 << 30), ..TestSpec::tcp() };
    for ((role, spec), socket) in
        [(StreamRole::Receive, timed), (StreamRole::Send, limited)].into_iter().zip(near)
    {
        let began = Instant::now();
        let plan = plan(&spec, End::Near, role, vec![socket]);
        let mut running = RunningEnd::start_with_patience(plan, patience).unwrap();
        until_finished(&mut running);
        let outcome = running.finish();
        assert!(began.elapsed() < Duration::from_secs(2), "{role:?} {:?}", began.elapsed());
        assert_eq!(outcome.report.findings[0].code, "peer-silent", "{role:?}");
    }
    drop(far);
}

#[test]
fn the_application_keeps_its_rate() {
    let offers = TestSpec { offered_bits_per_s: Some(200e6), ..short(TestSpec::tcp(), 0.5) };
    let reads = TestSpec { read_bits_per_s: Some(200e6), ..short(TestSpec::tcp(), 0.5) };
    for spec in [offers, reads] {
        let rate = |_| {
            let (sent, received) = run(&spec);
            let stream = &received.report.streams[0];
            let idle_s = |outcome: &EndOutcome| outcome.report.streams[0].application_idle_s;
            let idle_s = idle_s(&sent).unwrap_or(0.0).max(idle_s(&received).unwrap_or(0.0));
            (stream.bytes as f64 * 8.0 / stream.duration_s, idle_s)
        };
        let is_kept =
            |(rate, idle_s): &(f64, f64)| (rate / 200e6 - 1.0).abs() < 0.05 && *idle_s > 0.2;
        effort::judge_runs("200 Mbit/s", 9, rate, is_kept);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for limit in [TestLimit::DurationS(f64::NAN), TestLimit::DurationS(-1.0)] {
        let spec = TestSpec { limit, ..TestSpec::tcp() };
        let sockets = pairs(1).into_iter().map(|(near, _far)| near).collect();
        let plan = plan(&spec, End::Near, StreamRole::Send, sockets);
        assert!(RunningEnd::start(plan).is_err());
    }
    assert!(
        RunningEnd::start(plan(&TestSpec::tcp(), End::Near, StreamRole::Send, vec![])).is_err()
    );
}

#[test]
fn sockets_can_be_kept() {
    let spec = short(TestSpec::tcp(), 0.1);
    let (near, far): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs(1).into_iter().unzip();
    let mut receiver = RunningEnd::start(plan(&spec, End::Far, StreamRole::Receive, far)).unwrap();
    let mut sender = RunningEnd::start(plan(&spec, End::Near, StreamRole::Send, near)).unwrap();
    until_finished(&mut sender);
    let (_outcome, sockets) = sender.finish_keeping_sockets();
    until_finished(&mut receiver);
    assert_eq!(sockets.len(), 1);
    assert!(TcpStream::from(sockets.into_iter().next().unwrap()).peer_addr().is_ok());
}
