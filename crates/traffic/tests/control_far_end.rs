//! Servers that break the rules, or are none: the client says what is wrong in one line.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use results::{HostFacts, TestSpec};
use testkit::port::free_port;
use traffic::client::{self, ClientError, Target};
use traffic::control::{
    ClientMessage, FrameError, GREETING_BYTES, Link, LinkError, ServerMessage, Token, WireInterval,
    encode,
};

/// Listens, hands the first connection (its greeting taken) to `play`, and keeps the others open.
fn server(play: impl FnOnce(TcpStream) + Send + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("a client");
        first.read_exact(&mut [0; GREETING_BYTES]).expect("a greeting");
        let others = thread::spawn(move || listener.incoming().take(8).collect::<Vec<_>>());
        play(first);
        drop(others);
    });
    Target { host: "127.0.0.1".to_owned(), port, family: None }
}

fn hello(stream: TcpStream) -> Link {
    let mut link = Link::new(stream, 1 << 20, Duration::from_secs(5)).expect("a socket");
    let hello = ServerMessage::Hello {
        protocol: "1.7".to_owned(),
        tool_version: "9.9.9".to_owned(),
        host: Box::new(HostFacts::default()),
        extensions: Vec::new(),
    };
    link.send(&hello).expect("sent");
    link
}

/// Accepts the first test it is asked for and gets as far as running it.
fn begin(stream: TcpStream) -> Link {
    let mut link = hello(stream);
    let deadline = Instant::now() + Duration::from_secs(5);
    let spec = loop {
        if let Some(ClientMessage::Start { spec }) = link.receive(deadline).expect("in time") {
            break spec;
        }
    };
    let (token, spec) = (Token::random(), Some(spec));
    link.send(&ServerMessage::Accepted { token, spec, findings: Vec::new() }).expect("sent");
    link.send(&ServerMessage::StreamConnected { index: 0 }).expect("sent");
    link.send(&ServerMessage::Ready).expect("sent");
    link.send(&ServerMessage::Started).expect("sent");
    link
}

/// The reason why a test failed that may have moved data by then.
fn reason(target: &Target) -> ClientError {
    match failure(target) {
        ClientError::CutShort { source, .. } => *source,
        other => other,
    }
}

fn failure(target: &Target) -> ClientError {
    let error = client::run_test(target, &TestSpec::tcp(), &mut |_| {}, &|| false)
        .expect_err("this server is of no use");
    let line = error.to_string();
    assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
    error
}

/// What JSON becomes in memory may be thirty times as large, so nothing is granted that is not needed.
#[test]
fn a_message_larger_than_its_place_needs_is_refused_when_it_is_announced() {
    let announced = (64_u32 << 20).to_be_bytes();
    let after_hello = server(move |mut stream| {
        let _link = hello(stream.try_clone().expect("a socket"));
        stream.write_all(&announced).expect("sent");
        thread::sleep(Duration::from_secs(2));
    });
    let in_a_test = server(move |mut stream| {
        let _link = begin(stream.try_clone().expect("a socket"));
        stream.write_all(&announced).expect("sent");
        thread::sleep(Duration::from_secs(2));
    });
    for target in [after_hello, in_a_test] {
        let error = reason(&target);
        let ClientError::Lost { source: LinkError::Frame(why), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(matches!(why, FrameError::TooLong { .. }), "{why:?}");
    }
}

#[test]
fn nothing_and_nobody() {
    let closed = Target { host: "127.0.0.1".to_owned(), port: free_port(), family: None };
    let error = failure(&closed);
    assert!(matches!(error, ClientError::NothingListens { .. }), "{error:?}");
    assert!(error.to_string().contains("clearstream serve"), "{error}");
    let unknown = Target::new("no-such-host.invalid");
    assert!(matches!(failure(&unknown), ClientError::UnknownHost { .. }));
    let wrong_family = Target { family: Some(client::Family::V6), ..closed };
    assert!(matches!(failure(&wrong_family), ClientError::UnknownHost { .. }));
    let which_link = failure(&Target::new("fe80::1"));
    assert!(matches!(which_link, ClientError::NoInterface { .. }), "{which_link:?}");
}

#[test]
fn other_services() {
    let ssh = server(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").expect("sent"));
    assert!(matches!(failure(&ssh), ClientError::Foreign { .. }));
    let hangs_up = server(drop);
    assert!(matches!(failure(&hangs_up), ClientError::Lost { .. }));
    let mute = server(|stream| {
        thread::sleep(Duration::from_secs(20));
        drop(stream);
    });
    let began = Instant::now();
    assert!(matches!(failure(&mute), ClientError::Mute { .. }));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn another_version_of_the_protocol() {
    let newer = server(|stream| {
        let mut link = Link::new(stream, 1 << 20, Duration::from_secs(5)).expect("a socket");
        let json = r#"{"type":"refused","code":"version","reason":"this server speaks 3"}"#;
        let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
        link.send(&json).expect("sent");
    });
    let error = failure(&newer);
    assert!(matches!(error, ClientError::Version { .. }), "{error:?}");
}

#[test]
fn frames_that_make_no_sense() {
    for bytes in [
        u32::to_be_bytes(200 << 10).into_iter().chain(vec![b'x'; 200 << 10]).collect::<Vec<u8>>(),
        [&[0_u8, 0, 0, 2][..], b"{}"].concat(),
        vec![0, 0, 0, 0],
        [&[0_u8, 0xFF, 0xFF, 0xFF][..], b"{\"type\":\"hello\""].concat(),
    ] {
        let target = server(move |mut stream| {
            // The client may hang up in the middle of it.
            stream.write_all(&bytes).ok();
        });
        assert!(matches!(failure(&target), ClientError::Lost { .. }));
    }
    let out_of_turn = server(|stream| {
        let mut link = hello(stream);
        link.send(&ServerMessage::Started).expect("sent");
        thread::sleep(Duration::from_secs(2));
    });
    assert!(matches!(failure(&out_of_turn), ClientError::Unexpected { .. }));
}

#[test]
fn a_server_may_not_change_the_test() {
    let target = server(|stream| {
        let mut link = hello(stream);
        let mut spec = TestSpec::tcp();
        spec.streams = 1000;
        let spec = Some(Box::new(spec));
        let accepted =
            ServerMessage::Accepted { token: Token::random(), spec, findings: Vec::new() };
        link.send(&accepted).expect("sent");
        thread::sleep(Duration::from_secs(2));
    });
    assert!(matches!(failure(&target), ClientError::Unexpected { .. }));
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_test() {
    let target = server(|stream| {
        let link = begin(stream);
        thread::sleep(Duration::from_millis(300));
        drop(link);
    });
    let began = Instant::now();
    let error = reason(&target);
    assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn a_server_that_falls_silent_in_the_middle_of_a_test() {
    let target = server(|stream| {
        let link = begin(stream);
        thread::sleep(Duration::from_secs(30));
        drop(link);
    });
    let began = Instant::now();
    let error = reason(&target);
    assert!(matches!(error, ClientError::Silent { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn messages_of_later_versions_are_ignored() {
    let target = server(|stream| {
        let mut link = begin(stream);
        let later: serde_json::Value =
            serde_json::from_str(r#"{"type":"weather","sky":["blue"]}"#).expect("JSON");
        link.send(&later).expect("sent");
        let interval =
            WireInterval { start_s: 0.0, end_s: 1.0, omitted: false, streams: Vec::new() };
        link.send(&ServerMessage::Interval(interval)).expect("sent");
        link.send(&ServerMessage::Failed { reason: "out of coffee".to_owned() }).expect("sent");
        thread::sleep(Duration::from_secs(1));
    });
    let error = reason(&target);
    assert!(error.to_string().ends_with("out of coffee"), "{error}");
}

#[test]
fn a_large_frame_may_come_slowly_as_long_as_it_comes() {
    let target = server(|mut stream| {
        let reason = "x".repeat(10_000);
        let frame = encode(&ServerMessage::Failed { reason }).expect("encodes");
        for piece in frame.chunks(500) {
            stream.write_all(piece).expect("sent");
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(matches!(failure(&target), ClientError::Far { .. }));
}

#[test]
fn a_server_without_the_tuning_extension_is_told_from_one_without_permission() {
    let target = server(|stream| {
        let mut link = hello(stream);
        link.receive::<ClientMessage>(Instant::now() + Duration::from_secs(5))
            .expect("the client's hello");
        // A client that asked nevertheless would wait here in vain.
        link.receive::<ClientMessage>(Instant::now() + Duration::from_secs(5)).ok();
    });
    let peer = client::connect(&target, Duration::from_secs(5), &[]).expect("our own server");
    let client::Peer::ClearStream(mut session) = peer else { panic!("not iperf3") };
    let error = session.tune(&serde_json::json!({ "ask": "status" })).expect_err("it has none");
    assert!(matches!(error, ClientError::NoExtension { .. }), "{error}");
    let line = error.to_string();
    assert!(line.contains("clearstream 9.9.9") && !line.contains('\n'), "{line}");
}
