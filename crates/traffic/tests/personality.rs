//! Protocols beside our own, handed in: a server that speaks one more, a client that knows one more.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use results::{TestOutcome, TestSpec};
use testkit::port::free_port;
use traffic::client::{
    self, CONNECT_TIMEOUT, ClientError, FarProtocol, FarTestError, FirstAnswer, Peer, Target,
    connect,
};
use traffic::control::{GREETING_BYTES, RefusalCode};
use traffic::engine::{IntervalReport, Need};
use traffic::server::{ForeignClient, Notice, Personality};

use crate::control::{Running, brief, eventually};

/// A protocol whose server says what its data connections say.
#[derive(Debug)]
struct Parrot;

const BUSY: u8 = b'!';
const READY: u8 = b'?';
const TOLD: Duration = Duration::from_secs(5);

impl Personality for Parrot {
    fn name(&self) -> &'static str {
        "parrot"
    }

    fn recognises(&self, greeting: &[u8; GREETING_BYTES]) -> bool {
        greeting.starts_with(b"parrot")
    }

    fn refusal(&self) -> &'static [u8] {
        &[BUSY]
    }

    fn serve(&self, client: ForeignClient<'_>) -> Result<(), Box<dyn Error>> {
        let mut control = client.control;
        control.set_nonblocking(false)?;
        let bytes = u64::from_be_bytes({
            let mut bytes = [0; 8];
            control.read_exact(&mut bytes)?;
            bytes
        });
        client.data.reserve(Need { bytes, streams: 2 }).map_err(|refusal| refusal.reason)?;
        control.write_all(&[READY])?;
        let (_place, mut stream) = client.data.next_tcp(Instant::now() + TOLD)?;
        client.session.began("a conversation");
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard)?;
        client.data.expect_udp(Instant::now() + TOLD)?;
        stream.write_all(&heard)?;
        drop(stream);
        let (socket, first) = client.data.next_udp(Instant::now() + TOLD)?;
        socket.set_nonblocking(false)?;
        socket.send(&first)?;
        while !client.session.should_end() && client.greeting.ends_with(b"stays") {
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl FarProtocol for Parrot {
    fn name(&self) -> &'static str {
        "parrot"
    }

    fn server_command(&self) -> &'static str {
        "parrot --perch"
    }

    fn first_answer(&self, first: u8) -> Option<FirstAnswer> {
        match first {
            READY => Some(FirstAnswer::Ready),
            BUSY => Some(FirstAnswer::Busy),
            _ => None,
        }
    }

    fn run_test(
        &self,
        mut control: TcpStream,
        _greeting: [u8; GREETING_BYTES],
        _spec: &TestSpec,
        _on_report: &mut dyn FnMut(&IntervalReport),
        _should_stop: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, FarTestError> {
        let mut state = [0];
        control.read_exact(&mut state).map_err(FarTestError::unmeasured)?;
        let why = format!("it said '{}' and flew away", char::from(state[0]));
        Err(FarTestError::unmeasured(why))
    }
}

const KNOWN: &[&dyn FarProtocol] = &[&Parrot];

fn greeted(server: &Running, greeting: &[u8; GREETING_BYTES]) -> TcpStream {
    let mut stream = TcpStream::connect((server.target.host.as_str(), server.target.port)).unwrap();
    stream.set_read_timeout(Some(TOLD)).unwrap();
    stream.write_all(greeting).unwrap();
    stream
}

/// What comes until the server closes the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("closed in time");
    rest
}

const GREETING: &[u8; GREETING_BYTES] = b"parrot, and whatever makes it 37 long";
const STAYING: &[u8; GREETING_BYTES] = b"parrot, and it does not leave: _stays";

/// A session up to its TCP stream, which has been told what it is to say: the control connection, and that stream.
fn begun(server: &Running, greeting: &[u8; GREETING_BYTES]) -> (TcpStream, TcpStream) {
    let mut control = greeted(server, greeting);
    control.write_all(&1000_u64.to_be_bytes()).unwrap();
    let mut state = [0];
    control.read_exact(&mut state).unwrap();
    assert_eq!(state, [READY]);
    let mut data = greeted(server, greeting);
    data.write_all(b"hello").unwrap();
    data.shutdown(Shutdown::Write).unwrap();
    (control, data)
}

/// The UDP stream of the session that has said all over TCP.
fn over_the_air(server: &Running) {
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_read_timeout(Some(TOLD)).unwrap();
    datagrams.send_to(b"over the air", ("127.0.0.1", server.target.port)).unwrap();
    let mut answer = [0; 16];
    let heard = datagrams.recv(&mut answer).expect("answered");
    assert_eq!(&answer[..heard], b"over the air");
}

/// A whole session: a TCP stream, a UDP stream.
fn converse(server: &Running, greeting: &[u8; GREETING_BYTES]) -> TcpStream {
    let (control, data) = begun(server, greeting);
    assert_eq!(rest(data), b"hello");
    over_the_air(server);
    control
}

/// A datagram does not say which session it is for.
#[test]
fn sessions_of_one_address_take_turns_with_their_udp_streams() {
    let server = Running::with(|config| config.personalities = vec![Arc::new(Parrot)]);
    let (first, data) = begun(&server, GREETING);
    assert_eq!(rest(data), b"hello", "it is the first's turn");
    let (second, mut data) = begun(&server, b"parrot, and another that is 37 long..");
    data.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let early = data.read(&mut [0]).expect_err("it is not yet the second's turn");
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    over_the_air(&server);
    assert_eq!(rest(first), b"");
    data.set_read_timeout(Some(TOLD)).unwrap();
    assert_eq!(rest(data), b"hello");
    over_the_air(&server);
    assert_eq!(rest(second), b"");
    eventually("the log is complete", TOLD, || server.endings().len() == 2);
    assert!(server.endings().iter().all(|ending| ending == "done"), "{:?}", server.endings());
}

#[test]
fn a_personality_has_its_clients_on_the_servers_one_port() {
    let server = Running::with(|config| config.personalities = vec![Arc::new(Parrot)]);
    assert_eq!(rest(converse(&server, GREETING)), b"");
    server.test(&brief(TestSpec::tcp())).expect("our own clients are served beside it");
    eventually("the log is complete", TOLD, || server.endings().len() == 2);
    let notices = server.notices();
    let opened = |notice: &Notice| matches!(notice, Notice::Opened { protocol: "parrot", .. });
    assert!(notices.iter().any(opened), "{notices:?}");
    let began =
        |notice: &Notice| matches!(notice, Notice::Began { what, .. } if what == "a conversation");
    assert!(notices.iter().any(began), "{notices:?}");
    drop(notices);
    assert_eq!(server.endings()[0], "done");
}

#[test]
fn greetings_that_no_personality_recognises_are_closed_without_an_answer() {
    let server = Running::with(|config| config.personalities = vec![Arc::new(Parrot)]);
    assert_eq!(rest(greeted(&server, b"pigeon, and whatever makes it 37 long")), b"");
    let without = Running::start();
    assert_eq!(rest(greeted(&without, GREETING)), b"");
    assert!(server.notices().is_empty() && without.notices().is_empty());
}

#[test]
fn the_servers_limits_bind_a_personalitys_clients() {
    let server = Running::with(|config| {
        config.personalities = vec![Arc::new(Parrot)];
        config.sessions_an_address_max = Some(1);
        config.memory_bytes_max = 64 << 20;
    });
    let first = converse(&server, STAYING);
    assert_eq!(rest(greeted(&server, GREETING)), [BUSY], "one place an address");
    drop(server);
    assert_eq!(rest(first), b"", "a session ends with the server");

    let server = Running::with(|config| {
        config.personalities = vec![Arc::new(Parrot)];
        config.memory_bytes_max = 64 << 20;
    });
    let mut greedy = greeted(&server, GREETING);
    greedy.write_all(&u64::to_be_bytes(1 << 40)).unwrap();
    assert_eq!(rest(greedy), b"");
    eventually("it was disconnected", TOLD, || server.endings().len() == 1);
    assert!(server.endings()[0].contains("memory"), "{:?}", server.endings());

    let elsewhere = Running::with(|config| {
        config.personalities = vec![Arc::new(Parrot)];
        config.networks = vec!["192.0.2.0/24".parse().unwrap()];
    });
    assert_eq!(rest(greeted(&elsewhere, GREETING)), [BUSY]);
    let notices = elsewhere.notices();
    let refused = |notice: &Notice| matches!(notice, Notice::Refused { refusal, .. } if refusal.code == RefusalCode::NotAllowed);
    assert!(notices.iter().any(refused), "{notices:?}");
}

/// A server that answers the first greeting with one byte.
fn answers(byte: u8) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; GREETING_BYTES]).unwrap();
        stream.write_all(&[byte]).unwrap();
        // Until the client has gone.
        stream.read_to_end(&mut Vec::new()).ok();
    });
    Target { host: "127.0.0.1".to_owned(), port, family: None }
}

#[test]
fn a_client_speaks_what_the_server_speaks() {
    let peer = connect(&answers(READY), CONNECT_TIMEOUT, KNOWN).expect("known");
    assert_eq!(peer.name(), "parrot");
    let Peer::Foreign(peer) = peer else { panic!("{peer:?}") };
    assert!(!peer.path_mtu().unwrap().confirmed);
    let target = peer.address().to_string();
    let error = peer.run_test(&TestSpec::tcp(), &mut |_| {}, &|| false).unwrap_err();
    let line = format!("the parrot server at {target}: it said '?' and flew away");
    assert_eq!(error.to_string(), line);

    let error = connect(&answers(BUSY), CONNECT_TIMEOUT, KNOWN).unwrap_err();
    assert!(error.to_string().contains("the parrot server is busy"), "{error}");

    let Ok(Peer::Foreign(peer)) = connect(&answers(READY), CONNECT_TIMEOUT, KNOWN) else {
        panic!("known")
    };
    let moving = TestSpec { near_interrupt_core: Some(0), ..TestSpec::tcp() };
    let error = peer.run_test(&moving, &mut |_| {}, &|| false).unwrap_err();
    assert!(matches!(error, ClientError::Unsupported { protocol: "parrot", .. }), "{error}");

    let target = answers(READY);
    let error = client::watch(&target, &[], Duration::from_secs(1), KNOWN).unwrap_err();
    let line = format!(
        "{target} is a stock parrot server and cannot report its counters; run `clearstream serve` there"
    );
    assert_eq!(error.to_string(), line);
}

#[test]
fn a_client_names_the_protocols_that_it_knows() {
    let strange = |known| connect(&answers(b'S'), CONNECT_TIMEOUT, known).unwrap_err().to_string();
    assert!(strange(KNOWN).ends_with("is neither clearstream nor parrot"), "{}", strange(KNOWN));
    assert!(strange(&[]).ends_with("is not clearstream"), "{}", strange(&[]));
    let closed = Target { host: "127.0.0.1".to_owned(), port: free_port(), family: None };
    let nobody = |known| connect(&closed, CONNECT_TIMEOUT, known).unwrap_err().to_string();
    let both = "start `clearstream serve` (or `parrot --perch`) there";
    assert!(nobody(KNOWN).ends_with(both), "{}", nobody(KNOWN));
    assert!(nobody(&[]).ends_with("start `clearstream serve` there"), "{}", nobody(&[]));
}
