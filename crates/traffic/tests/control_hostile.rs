//! Clients that break the rules: each is disconnected, and the next honest one is served.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::{Running, brief, eventually};
use crate::raw::{Raw, address};
use results::{TestLimit, TestSpec};
use testkit::effort;
use traffic::client::{self, CONNECT_TIMEOUT, ClientError, Peer};
use traffic::control::{
    ClientMessage, Limits, Link, LinkError, Purpose, RefusalCode, SERVER_FRAME_BYTES_MAX,
    ServerMessage, encode,
};

impl Raw {
    fn say_json(&mut self, json: &str) {
        self.send(&u32::try_from(json.len()).expect("short").to_be_bytes());
        self.send(json.as_bytes());
    }

    /// Reads on until the server has said why it gives up; panics when it just closes.
    fn failure(&mut self) -> String {
        loop {
            match self.hear().expect("a reason before the end") {
                ServerMessage::Failed { reason } => return reason,
                ServerMessage::Refused(refusal) => return refusal.reason,
                _ => {}
            }
        }
    }

    fn assert_closed_within(&mut self, patience: Duration) {
        let began = Instant::now();
        while self.hear().is_some() {}
        assert!(began.elapsed() < patience, "{:?}", began.elapsed());
    }
}

fn assert_serves(server: &Running) {
    server.test(&brief(TestSpec::tcp())).expect("an honest client is served");
}

#[test]
fn garbage_on_the_port() {
    let server = Running::start();
    for garbage in [
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n".to_vec(),
        vec![0; 37],
        vec![0xFF; 4096],
        b"CLEARSTREAM/1 Dzzzzzzzzzzzzzzzz0000\0\0".to_vec(),
        b"CLEARSTREAM/99999999999999999999 C    ".to_vec(),
    ] {
        let mut raw = Raw::connect(&server);
        raw.send(&garbage);
        raw.assert_closed_within(Duration::from_secs(3));
    }
    assert_serves(&server);
}

#[test]
fn another_major_version_is_told_so() {
    let server = Running::start();
    let mut raw = Raw::connect(&server);
    raw.send(b"CLEARSTREAM/2 Cabcdefghijklmnop\0\0\0\0\0\0");
    match raw.hear() {
        Some(ServerMessage::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::Version);
            assert!(refusal.reason.contains("version 1"), "{refusal}");
            assert!(refusal.reason.contains("version 2"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn absurd_lengths_and_documents() {
    let server = Running::start();
    for length in [2_u32 << 30, u32::MAX, 64 * 1024 + 1] {
        let mut raw = Raw::greeted(&server);
        raw.send(&length.to_be_bytes());
        let reason = raw.failure();
        assert!(reason.contains("65536"), "{reason}");
        raw.assert_closed_within(Duration::from_secs(1));
    }
    for json in [
        "",
        "{",
        "[]",
        "null",
        "\"hello\"",
        "{\"type\":3}",
        &"[".repeat(60_000),
        &format!("{{\"type\":\"start\",\"spec\":{}1{}}}", "[".repeat(20_000), "]".repeat(20_000)),
    ] {
        let mut raw = Raw::greeted(&server);
        raw.say_json(json);
        raw.failure();
        raw.assert_closed_within(Duration::from_secs(1));
    }
    assert_serves(&server);
}

#[test]
fn absurd_parameters_are_refused_and_the_session_goes_on() {
    let server = Running::start();
    let mut spec = TestSpec::tcp();
    spec.streams = 1_000_000_000;
    match server.test(&spec) {
        Err(ClientError::Refused { refusal, .. }) => {
            assert_eq!(refusal.code, RefusalCode::Limit);
            assert!(refusal.reason.contains("1000000000 streams"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    let good = serde_json::to_value(TestSpec::tcp()).expect("serialises");
    let mut raw = Raw::greeted(&server);
    for (field, value) in [
        ("streams", "0"),
        ("interval_s", "-1"),
        ("interval_s", "1e-300"),
        ("omit_s", "-0.5"),
        ("limit", "{\"duration_s\":1e308}"),
        ("limit", "{\"total_bytes\":0}"),
        ("block_bytes", "18446744073709551615"),
        ("window_bytes", "18446744073709551615"),
        ("mss_bytes", "4294967295"),
        ("offered_bits_per_s", "-1e9"),
        ("congestion_control", "\"../../etc/passwd\""),
        ("protocol", "\"udp\""),
    ] {
        let mut json = good.clone();
        json[field] = serde_json::from_str(value).expect("JSON");
        raw.say_json(&format!("{{\"type\":\"start\",\"spec\":{json}}}"));
        match raw.hear() {
            Some(ServerMessage::Refused(refusal)) => assert!(!refusal.reason.is_empty()),
            other => panic!("{field}={value}: {other:?}"),
        }
    }
    // What no number type holds is no message at all.
    for (field, value) in [("interval_s", "1e999"), ("streams", "-1"), ("streams", "1.5")] {
        let mut raw = Raw::greeted(&server);
        let json = good.to_string().replacen(
            &format!("\"{field}\":{}", good[field]),
            &format!("\"{field}\":{value}"),
            1,
        );
        raw.say_json(&format!("{{\"type\":\"start\",\"spec\":{json}}}"));
        raw.failure();
    }
    raw.say(&ClientMessage::Start { spec: Box::new(TestSpec::tcp()) });
    assert!(matches!(raw.hear(), Some(ServerMessage::Accepted { .. })), "after twelve refusals");
}

#[test]
fn silence_and_slowness_cost_nobody_a_place() {
    let server = Running::with(|config| {
        config.sessions_max = 2;
        config.idle_timeout = Duration::from_secs(1);
    });
    // Half-open and slow connections have no place yet.
    let mut mute: Vec<Raw> = (0..50).map(|_| Raw::connect(&server)).collect();
    let mut slow = Raw::connect(&server);
    slow.send(b"CLEARS");
    assert_serves(&server);
    // A client that says nothing after its greeting loses its place.
    let mut idle = Raw::greeted(&server);
    let reason = idle.failure();
    assert!(reason.contains("1 s"), "{reason}");
    // One that only says it is alive, too.
    let mut chatty = Raw::greeted(&server);
    let mut speaker = chatty.stream.try_clone().expect("cloned");
    let alive = encode(&ClientMessage::Alive).expect("encodes");
    thread::spawn(move || {
        while speaker.write_all(&alive).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    chatty.failure();
    // A message that never ends.
    let mut stalled = Raw::greeted(&server);
    stalled.send(&100_u32.to_be_bytes());
    stalled.send(b"{\"type\":");
    stalled.failure();
    mute[0].assert_closed_within(Duration::from_secs(7));
    slow.assert_closed_within(Duration::from_secs(2));
    assert_serves(&server);
}

#[test]
fn a_flood_of_connections_does_not_keep_others_out() {
    let server = Running::start();
    let flood: Vec<_> =
        (0..600).filter_map(|_| TcpStream::connect(address(&server)).ok()).collect();
    assert!(flood.len() > 500, "{}", flood.len());
    assert_serves(&server);
    drop(flood);
}

#[test]
fn places_are_counted_and_come_back() {
    let server = Running::with(|config| config.sessions_max = 1);
    let first = Raw::greeted(&server);
    match server.test(&brief(TestSpec::tcp())) {
        Err(ClientError::Refused { refusal, .. }) => {
            assert_eq!(refusal.code, RefusalCode::Busy);
        }
        other => panic!("{other:?}"),
    }
    drop(first);
    eventually("the place is free", Duration::from_secs(2), || {
        client::connect(&server.target, CONNECT_TIMEOUT, &[]).is_ok()
    });
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_test_frees_its_place() {
    let server = Running::with(|config| config.sessions_max = 1);
    let mut raw = Raw::greeted(&server);
    raw.say(&ClientMessage::Start { spec: Box::new(TestSpec::tcp()) });
    let Some(ServerMessage::Accepted { token, .. }) = raw.hear() else { panic!("accepted") };
    let mut data = TcpStream::connect(address(&server)).expect("listens");
    data.write_all(&Purpose::Stream { token, index: 0 }.greeting()).expect("sent");
    assert_eq!(raw.hear(), Some(ServerMessage::StreamConnected { index: 0 }));
    assert_eq!(raw.hear(), Some(ServerMessage::Ready));
    raw.say(&ClientMessage::Go);
    assert_eq!(raw.hear(), Some(ServerMessage::Started));
    data.write_all(&[7; 100_000]).expect("sent");
    drop((raw, data));
    eventually("the session has ended", Duration::from_secs(2), || !server.endings().is_empty());
    let how = &server.endings()[0];
    assert!(how.contains("closed"), "{how}");
    assert_serves(&server);
}

#[test]
fn a_client_that_falls_silent_in_the_middle_of_a_test_is_dropped() {
    let server = Running::start();
    let mut raw = Raw::greeted(&server);
    let mut spec = TestSpec::tcp();
    spec.limit = TestLimit::DurationS(300.0);
    raw.say(&ClientMessage::Start { spec: Box::new(spec) });
    let Some(ServerMessage::Accepted { token, .. }) = raw.hear() else { panic!("accepted") };
    let mut data = TcpStream::connect(address(&server)).expect("listens");
    data.write_all(&Purpose::Stream { token, index: 0 }.greeting()).expect("sent");
    raw.say(&ClientMessage::Go);
    let began = Instant::now();
    let reason = raw.failure();
    assert!(reason.contains("stopped answering"), "{reason}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn data_connections_that_never_come() {
    let server = Running::start();
    let mut raw = Raw::greeted(&server);
    raw.say(&ClientMessage::Start { spec: Box::new(TestSpec::tcp()) });
    let reason = raw.failure();
    assert!(reason.contains("1 of 1 data connections"), "{reason}");
}

/// A client at another loopback address; as [`Raw::greeted`], or what it was refused with.
fn greeted_from(server: &Running, host: u8) -> Result<Raw, RefusalCode> {
    let mut raw = connected_from(server, host);
    raw.send(&Purpose::Control.greeting());
    match raw.hear() {
        Some(ServerMessage::Hello { .. }) => Ok(raw),
        Some(ServerMessage::Refused(refusal)) => Err(refusal.code),
        other => panic!("{other:?}"),
    }
}

fn connected_from(server: &Running, host: u8) -> Raw {
    let tcp = rustix::net::SocketType::STREAM;
    let fd = rustix::net::socket(rustix::net::AddressFamily::INET, tcp, None).expect("a socket");
    let from = std::net::Ipv4Addr::new(127, 0, 0, host);
    rustix::net::bind(&fd, &std::net::SocketAddr::from((from, 0))).expect("loopback");
    let to: std::net::SocketAddr =
        format!("{}:{}", server.target.host, server.target.port).parse().expect("an address");
    rustix::net::connect(&fd, &to).expect("listens");
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    Raw::over(stream)
}

#[test]
fn one_address_cannot_have_all_places() {
    let server = Running::with(|config| config.sessions_max = 8);
    let held: Vec<_> =
        (0..2).map(|_| greeted_from(&server, 2).expect("within its share")).collect();
    assert_eq!(greeted_from(&server, 2).err(), Some(RefusalCode::Busy));
    assert_serves(&server);
    greeted_from(&server, 3).expect("another address");
    drop(held);
    eventually("its share is free again", Duration::from_secs(2), || {
        greeted_from(&server, 2).is_ok()
    });
}

#[test]
fn a_place_where_nothing_happens_goes_to_who_waits() {
    let server = Running::with(|config| {
        config.sessions_max = 3;
        config.sessions_an_address_max = Some(3);
        config.idle_timeout = Duration::from_secs(600);
    });
    // One that asks for nothing, one whose test moves nothing, one that watches.
    let mut idle = greeted_from(&server, 2).expect("free");
    let mut still = greeted_from(&server, 2).expect("free");
    let spec = TestSpec { limit: TestLimit::DurationS(300.0), ..TestSpec::tcp() };
    still.say(&ClientMessage::Start { spec: Box::new(spec) });
    let Some(ServerMessage::Accepted { token, .. }) = still.hear() else { panic!("accepted") };
    let mut data = connected_from(&server, 2);
    data.send(&Purpose::Stream { token, index: 0 }.greeting());
    still.say(&ClientMessage::Go);
    let mut watching = greeted_from(&server, 2).expect("free");
    watching.say(&ClientMessage::Watch { interfaces: vec!["lo".into()], interval_s: 60.0 });
    assert_eq!(greeted_from(&server, 3).err(), Some(RefusalCode::Busy), "all have just asked");
    thread::sleep(Duration::from_millis(3300));
    let began = Instant::now();
    let _new: Vec<_> = (3..6).map(|host| greeted_from(&server, host).expect("a place")).collect();
    if effort::is_all() {
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    } else {
        effort::left_to_test_all("whether places are had at once");
    }
    for client in [&mut idle, &mut still, &mut watching] {
        let reason = client.failure();
        assert!(reason.contains("this session"), "{reason}");
    }
}

#[test]
fn a_flood_from_one_address_does_not_push_out_a_greeting_from_another() {
    let server = Running::start();
    let mut slow = connected_from(&server, 2);
    let greeting = Purpose::Control.greeting();
    slow.send(&greeting[..20]);
    thread::sleep(Duration::from_millis(100));
    let flood: Vec<_> =
        (0..600).filter_map(|_| TcpStream::connect(address(&server)).ok()).collect();
    thread::sleep(Duration::from_millis(300));
    slow.send(&greeting[20..]);
    assert!(matches!(slow.hear(), Some(ServerMessage::Hello { .. })));
    drop(flood);
}

/// The far end's account may be large; a client that does not read it is not waited for as if it
/// did so slowly.
#[test]
fn a_peer_that_reads_nothing_of_a_long_message_is_gone_in_ten_seconds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let deaf = TcpStream::connect(listener.local_addr().expect("bound")).expect("listens");
    let (stream, _from) = listener.accept().expect("connected");
    // Buffers that the kernel tunes still grow seconds later, when it probes the closed window.
    rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 64 << 10).expect("a buffer");
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, 64 << 10).expect("a buffer");
    let timeout = Duration::from_secs(5);
    let mut link = Link::new(stream, SERVER_FRAME_BYTES_MAX, timeout).expect("a link");
    let began = Instant::now();
    let failed = link.send(&"x".repeat(4 << 20)).expect_err("nobody reads");
    assert!(matches!(failed, LinkError::Stalled), "{failed}");
    assert!(began.elapsed() < Duration::from_secs(13), "{:?}", began.elapsed());
}

#[test]
fn strangers_are_refused_by_network() {
    let server = Running::with(|config| {
        config.networks = vec!["192.0.2.0/24".parse().expect("a network")];
    });
    match server.test(&TestSpec::tcp()) {
        Err(error @ ClientError::Refused { .. }) => {
            assert!(error.to_string().contains("127.0.0.1"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn limits_are_told() {
    let limits =
        Limits { duration_max: Duration::from_secs(5), streams_max: 2, ..Limits::default() };
    let server = Running::with(|config| config.limits = limits);
    let mut long = TestSpec::tcp();
    long.limit = TestLimit::DurationS(60.0);
    let mut wide = brief(TestSpec::tcp());
    wide.streams = 3;
    for (spec, figure) in [(long, "5 s"), (wide, "the 2 this server allows")] {
        let error = server.test(&spec).expect_err("refused").to_string();
        assert!(error.contains(figure), "{error}");
    }
}

#[test]
fn udp_goes_only_where_a_client_is() {
    let server = Running::start();
    let mut raw = Raw::greeted(&server);
    let mut spec = TestSpec::udp(1200);
    spec.direction = results::Direction::Reverse;
    raw.say(&ClientMessage::Start { spec: Box::new(spec) });
    let Some(ServerMessage::Accepted { token, .. }) = raw.hear() else { panic!("accepted") };
    let greeting = Purpose::Stream { token, index: 0 }.greeting();
    // The token is right, the address is not the client's.
    let victim = UdpSocket::bind("127.0.0.2:0").expect("loopback is 127.0.0.0/8");
    victim.send_to(&greeting, address(&server)).expect("sent");
    thread::sleep(Duration::from_millis(300));
    let own = UdpSocket::bind("127.0.0.1:0").expect("bound");
    own.send_to(&greeting, address(&server)).expect("sent");
    assert_eq!(raw.hear(), Some(ServerMessage::StreamConnected { index: 0 }));
    assert_eq!(raw.hear(), Some(ServerMessage::Ready));
    raw.say(&ClientMessage::Go);
    assert_eq!(raw.hear(), Some(ServerMessage::Started));
    own.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    let mut bytes = [0; 2048];
    assert_eq!(own.recv(&mut bytes).expect("the stream comes here"), 1200);
    victim.set_nonblocking(true).expect("set");
    assert!(victim.recv(&mut bytes).is_err(), "and nowhere else");
}

#[test]
fn the_server_says_that_it_ends() {
    let server = Running::start();
    let target = server.target.clone();
    let test = thread::spawn(move || {
        let mut spec = TestSpec::tcp();
        spec.limit = TestLimit::DurationS(30.0);
        client::run_test(&target, &spec, &mut |_| {}, &|| false)
    });
    eventually("the test runs", Duration::from_secs(3), || server.notices().len() >= 2);
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    drop(server);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let error = test.join().expect("no panic").expect_err("the server has ended");
    let ClientError::CutShort { source, measured } = error else { panic!("{error}") };
    let why = source.to_string();
    assert!(why.contains("the server is shutting down") && !why.contains('\n'), "{why}");
    let forward = &measured.directions[0];
    assert!(measured.duration_s < 30.0 && forward.received_bytes > 0, "{forward:?}");
    assert!(measured.far().is_some(), "the server still reports what it received");
}

#[test]
fn arbitrary_bytes_after_the_greeting_do_no_harm() {
    let server = Running::start();
    let (host, port) = (server.target.host.clone(), server.target.port);
    bolero::check!().with_iterations(100).for_each(move |bytes: &[u8]| {
        let Ok(mut stream) = TcpStream::connect((host.as_str(), port)) else {
            panic!("still listens")
        };
        stream.write_all(&Purpose::Control.greeting()).expect("sent");
        // The server may have closed already.
        stream.write_all(bytes).ok();
    });
    eventually("all places are free", Duration::from_secs(8), || {
        matches!(client::connect(&server.target, CONNECT_TIMEOUT, &[]), Ok(Peer::ClearStream(_)))
    });
    assert_serves(&server);
}
