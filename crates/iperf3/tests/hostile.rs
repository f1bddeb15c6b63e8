//! iperf3 peers that lie, stop or fall silent: each costs bounded time and one line.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iperf3::client;
use iperf3::failure::Iperf3Error;
use iperf3::options::{self, Options, Request};
use iperf3::server::listener::Listener;
use iperf3::server::{ServeLimits, serve_control};
use iperf3::sink::Silent;
use iperf3::wire::{UDP_HELLO, UDP_WELCOME};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long a peer may be silent where it is: one that speaks has to do so within that.
const PATIENCE: Duration = Duration::from_secs(1);

/// The same where it is not, on a machine that lets it speak late.
const LONG: Duration = Duration::from_secs(20);

/// What anything here may take: less than it takes to lose that patience.
const AT_MOST: Duration = Duration::from_secs(15);

const COOKIE: &[u8; 37] = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0";
const PARAMETERS: &str =
    r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072}"#;

fn options(line: &str) -> Options {
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    match options::parse(&words) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

/// A client against a server that `play`s; its error, in bounded time, on one line.
fn client_against(play: impl FnOnce(TcpStream) + Send + 'static) -> Iperf3Error {
    client_with(LONG, play)
}

fn client_with(patience: Duration, play: impl FnOnce(TcpStream) + Send + 'static) -> Iperf3Error {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _from) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 37]).unwrap();
        play(stream);
    });
    let options = options(&format!("-c 127.0.0.1 -p {port} -t 1"));
    let start = Instant::now();
    let error = client::run_patiently(&options, &mut Silent, &|| None, patience).unwrap_err();
    assert!(start.elapsed() < AT_MOST, "{error}: {:?}", start.elapsed());
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    server.join().unwrap();
    error
}

/// Reads the client's parameters and lets it connect one stream.
fn until_streams(control: &mut TcpStream) {
    control.write_all(&[9]).unwrap();
    let mut length = [0; 4];
    control.read_exact(&mut length).unwrap();
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    control.read_exact(&mut message).unwrap();
}

#[test]
fn a_client_survives_every_kind_of_server() {
    let closes = client_against(drop);
    assert!(matches!(closes, Iperf3Error::ControlClosed), "{closes}");
    let silent = client_with(PATIENCE, |stream| {
        std::thread::sleep(PATIENCE * 4);
        drop(stream);
    });
    assert!(matches!(silent, Iperf3Error::Silence(_)), "{silent}");
    let busy = client_against(|mut stream| stream.write_all(&[0xff]).unwrap());
    assert!(matches!(busy, Iperf3Error::Busy), "{busy}");
    let garbage = client_against(|mut stream| stream.write_all(b"HTTP/1.0 400 no\r\n").unwrap());
    assert!(matches!(garbage, Iperf3Error::UnknownMessage), "{garbage}");
    let early = client_against(|mut stream| stream.write_all(&[14]).unwrap());
    assert!(matches!(early, Iperf3Error::UnknownMessage), "{early}");
    let ended = client_against(|mut stream| stream.write_all(&[11]).unwrap());
    assert!(matches!(ended, Iperf3Error::ServerTerminated), "{ended}");
    let refused = client_against(|mut stream| {
        until_streams(&mut stream);
        stream.write_all(&[0xfe, 0, 0, 0, 27, 0, 0, 0, 0]).unwrap();
    });
    assert_eq!(refused.to_string(), "total required bandwidth is larger than server limit");
    let cut = client_against(|mut stream| stream.write_all(&[0xfe, 0, 0]).unwrap());
    assert!(matches!(cut, Iperf3Error::ControlClosed), "{cut}");
}

#[test]
fn a_client_survives_a_server_that_leaves_at_each_step() {
    // States the server goes through before it leaves: nothing, streams, start, running.
    for states in [&[][..], &[10], &[10, 1], &[10, 1, 2]] {
        // Which call notices depends on how fast the connection goes.
        client_with(PATIENCE, move |mut stream| {
            until_streams(&mut stream);
            stream.write_all(states).unwrap();
        });
    }
}

#[test]
fn a_client_survives_lies_about_results() {
    for (body, length) in [
        (&b"{}"[..], None),
        (b"not json", None),
        (b"[[[[[[[[", None),
        (b"", Some(u32::MAX)),
        (b"", Some(0)),
        // Announces more than it sends, then leaves.
        (b"{", Some(60_000_000)),
        (br#"{"cpu_util_total":1,"cpu_util_user":1,"cpu_util_system":1,"sender_has_retransmits":0,
              "streams":[{"id":99,"bytes":1e300,"retransmits":-1,"jitter":0,"errors":1e300,"packets":1e300}]}"#,
         None),
    ] {
        let error = lying_results(body.to_vec(), length);
        let expected = matches!(
            error,
            Iperf3Error::Results(_) | Iperf3Error::ControlClosed | Iperf3Error::StreamId
        );
        assert!(expected, "{:?}: {error}", String::from_utf8_lossy(body));
    }
}

/// A server that behaves until the results, which are `body` behind `length`.
fn lying_results(body: Vec<u8>, length: Option<u32>) -> Iperf3Error {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut control, _from) = listener.accept().unwrap();
        control.read_exact(&mut [0; 37]).unwrap();
        until_streams(&mut control);
        control.write_all(&[10]).unwrap();
        let (mut data, _from) = listener.accept().unwrap();
        data.read_exact(&mut [0; 37]).unwrap();
        control.write_all(&[1, 2]).unwrap();
        let reader = std::thread::spawn(move || {
            std::io::copy(&mut data, &mut std::io::sink()).ok();
        });
        // TEST_END.
        control.read_exact(&mut [0; 1]).unwrap();
        control.write_all(&[13]).unwrap();
        let length = length.unwrap_or(u32::try_from(body.len()).unwrap());
        control.write_all(&length.to_be_bytes()).unwrap();
        control.write_all(&body).unwrap();
        control.shutdown(Shutdown::Write).unwrap();
        reader.join().unwrap();
    });
    let options = options(&format!("-c 127.0.0.1 -p {port} -n 128K"));
    let start = Instant::now();
    let error = client::run_patiently(&options, &mut Silent, &|| None, LONG).unwrap_err();
    assert!(start.elapsed() < AT_MOST);
    server.join().unwrap();
    error
}

#[test]
fn nobody_there_is_one_line() {
    // One that was free a moment ago may be another test's by now; this one is nobody's.
    let options = options("-c 127.0.0.1 -p 1");
    let error = client::run(&options, &mut Silent, &|| None).unwrap_err();
    assert_eq!(error.to_string(), "unable to connect to server: Connection refused");
}

#[test]
fn a_signal_ends_a_wait() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = options(&format!("-c 127.0.0.1 -p {port}"));
    let start = Instant::now();
    let late = move || (start.elapsed() > Duration::from_millis(300)).then_some(2);
    let error = client::run(&options, &mut Silent, &late).unwrap_err();
    assert!(matches!(error, Iperf3Error::Interrupted(2)), "{error}");
    assert!(start.elapsed() < AT_MOST);
}

/// A server that takes one client, and has so much patience with it; what became of it.
fn serve_one(patience: Duration) -> (u16, JoinHandle<Result<(), Iperf3Error>>) {
    serve_with(ServeLimits { patience, ..ServeLimits::default() })
}

fn serve_with(limits: ServeLimits) -> (u16, JoinHandle<Result<(), Iperf3Error>>) {
    // Port 0 is no option of iperf3's.
    let mut options = options("-s");
    options.port = 0;
    let mut listener = Listener::bind(&options).unwrap();
    let port = listener.port();
    let server = std::thread::spawn(move || {
        let client = listener.next_client(AT_MOST, &|| None).expect("a client came");
        let mut data = listener.connections(&client);
        let (control, cookie) = (client.control, client.cookie);
        serve_control(control, cookie, &mut data, &limits, &mut Silent, &|| None)
    });
    (port, server)
}

fn greeted(port: u16) -> TcpStream {
    let mut control = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    control.set_read_timeout(Some(AT_MOST)).unwrap();
    control.write_all(COOKIE).unwrap();
    let mut state = [0];
    control.read_exact(&mut state).unwrap();
    assert_eq!(state, [9]);
    control
}

fn framed(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

#[test]
fn a_server_survives_every_kind_of_message() {
    let parameters = |changes: &str| {
        framed(&PARAMETERS.replace(r#""time":1"#, &format!(r#""time":1,{changes}"#)))
    };
    let huge = [0x7f, 0xff, 0xff, 0xff].to_vec();
    for (message, code) in [
        (b"GET / HTTP/1.0\r\n\r\n".to_vec(), 114),
        (huge, 114),
        (vec![0; 4], 114),
        (framed("[]"), 114),
        (framed("{\"tcp\":true,"), 114),
        (framed(r#"{"sctp":true,"len":1}"#), 13),
        (framed(&PARAMETERS.replace(r#""parallel":1"#, r#""parallel":1000000000"#)), 6),
        (framed(&PARAMETERS.replace(r#""parallel":1"#, r#""parallel":-1"#)), 6),
        (framed(&PARAMETERS.replace(r#""parallel":1"#, r#""parallel":0"#)), 6),
        (framed(&PARAMETERS.replace("131072", "-5")), 7),
        (framed(&PARAMETERS.replace("131072", "2147483647")), 7),
        (framed(&PARAMETERS.replace(r#""omit":0"#, r#""omit":1e18"#)), 37),
        (parameters(r#""authtoken":"x""#), 13),
    ] {
        let (port, server) = serve_one(LONG);
        let start = Instant::now();
        let mut control = greeted(port);
        control.write_all(&message).unwrap();
        let mut answer = Vec::new();
        // The connection may end in a reset when not all of the garbage was read.
        control.read_to_end(&mut answer).ok();
        let error = server.join().unwrap().unwrap_err();
        assert_eq!(error.code(), code, "{:?}: {error}", String::from_utf8_lossy(&message));
        assert_eq!(error.to_string().lines().count(), 1);
        let told = [&[0xfe][..], &code.to_be_bytes(), &[0; 4]].concat();
        assert_eq!(answer, told, "{error}");
        assert!(start.elapsed() < AT_MOST);
    }
}

#[test]
fn a_server_survives_a_client_that_leaves_or_sleeps() {
    // After the parameters: gone, silent, terminated, silent for its streams.
    let (port, server) = serve_one(LONG);
    drop(greeted(port));
    assert!(matches!(server.join().unwrap(), Err(Iperf3Error::ControlClosed)));

    let (port, server) = serve_one(PATIENCE);
    let silent = greeted(port);
    assert!(matches!(server.join().unwrap(), Err(Iperf3Error::Silence(_))));
    drop(silent);

    let (port, server) = serve_one(PATIENCE);
    let mut without_streams = greeted(port);
    without_streams.write_all(&framed(PARAMETERS)).unwrap();
    assert!(matches!(server.join().unwrap(), Err(Iperf3Error::StreamAccept(_))));
    drop(without_streams);

    let (port, server) = serve_one(LONG);
    let mut terminated = greeted(port);
    terminated.write_all(&framed(PARAMETERS)).unwrap();
    terminated.read_exact(&mut [0; 1]).unwrap();
    terminated.write_all(&[12]).unwrap();
    assert!(matches!(server.join().unwrap(), Err(Iperf3Error::ClientTerminated)));
}

#[test]
fn a_client_that_sends_nothing_is_sent_away() {
    let limits =
        ServeLimits { patience: LONG, receive_timeout: PATIENCE, ..ServeLimits::default() };
    let (port, server) = serve_with(limits);
    let mut control = greeted(port);
    control.write_all(&framed(PARAMETERS)).unwrap();
    control.read_exact(&mut [0; 1]).unwrap();
    let mut data = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    data.write_all(COOKIE).unwrap();
    let start = Instant::now();
    assert!(matches!(server.join().unwrap(), Err(Iperf3Error::NoData)));
    assert!(start.elapsed() < AT_MOST);
}

#[test]
fn limits_are_kept() {
    let asked = framed(&PARAMETERS.replace(r#""time":1"#, r#""time":60,"bandwidth":1000000"#));
    let short = ServeLimits { duration_max: Some(Duration::from_secs(30)), ..Default::default() };
    let slow = ServeLimits { rate_bits_per_s_max: Some(1e5), ..Default::default() };
    for (limits, code) in [(short, 37), (slow, 27)] {
        let (port, server) = serve_with(limits);
        let mut control = greeted(port);
        control.write_all(&asked).unwrap();
        assert_eq!(server.join().unwrap().unwrap_err().code(), code);
    }
}

/// Whoever holds a control connection can have a greeting sent in somebody else's name.
#[test]
fn udp_goes_only_where_the_client_is() {
    let (port, server) = serve_one(LONG);
    let mut control = greeted(port);
    let datagrams = r#""udp":true,"reverse":true"#;
    let asked = PARAMETERS.replace(r#""tcp":true"#, datagrams).replace("131072", "1400");
    control.write_all(&framed(&asked)).unwrap();
    control.read_exact(&mut [0; 1]).unwrap();
    let socket = |host: u8| {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0)).unwrap();
        socket.set_read_timeout(Some(AT_MOST)).unwrap();
        socket.send_to(&UDP_HELLO, (Ipv4Addr::LOCALHOST, port)).unwrap();
        socket
    };
    let stranger = socket(9);
    let own = socket(1);
    let mut answer = [0; 4];
    assert_eq!(own.recv(&mut answer).expect("the client is welcome"), 4);
    assert_eq!(answer, UDP_WELCOME);
    stranger.set_nonblocking(true).unwrap();
    let nothing = stranger.recv(&mut answer).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    drop(control);
    server.join().unwrap().expect_err("the client left");
}

/// An end of `serve` that may move a megabyte a second.
fn serve_slowly() -> (u16, JoinHandle<Result<(), Iperf3Error>>) {
    serve_with(ServeLimits {
        rate_bits_per_s_max: Some(8e6),
        rate_interval_s: 1.0,
        paces: true,
        patience: LONG,
        ..ServeLimits::default()
    })
}

/// The parameters with these changes, up to the request for data connections.
fn began(port: u16, changes: &[(&str, &str)]) -> TcpStream {
    let mut control = greeted(port);
    let change = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    let asked = changes.iter().fold(PARAMETERS.to_owned(), change);
    control.write_all(&framed(&asked)).unwrap();
    control.read_exact(&mut [0; 1]).unwrap();
    control
}

fn data(port: u16) -> TcpStream {
    let mut data = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    data.write_all(COOKIE).unwrap();
    data
}

fn datagrams(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.set_read_timeout(Some(AT_MOST)).unwrap();
    socket.send(&UDP_HELLO).unwrap();
    assert_eq!(socket.recv(&mut [0; 4]).expect("the client is welcome"), 4);
    socket
}

/// Bytes that `turn` moves within a second, and what a megabyte a second comes to in that time.
fn moved(mut turn: impl FnMut() -> usize) -> (f64, f64) {
    let start = Instant::now();
    let mut bytes = 0;
    while start.elapsed() < Duration::from_secs(1) {
        bytes += turn();
    }
    (bytes as f64, start.elapsed().as_secs_f64() * 1e6)
}

#[test]
fn a_server_that_paces_keeps_to_its_rate_whatever_is_asked_for() {
    let mut buffer = vec![0; 1 << 16];
    let reverse = (r#""time":1"#, r#""time":30,"reverse":true"#);
    let udp = [(r#""tcp":true"#, r#""udp":true,"bandwidth":0"#), ("131072", "1400")];

    let (port, server) = serve_slowly();
    let control = began(port, &[reverse]);
    let mut stream = data(port);
    let (came, allowed) = moved(|| stream.read(&mut buffer).unwrap());
    assert!(came > 0.0 && came < 1.5 * allowed, "TCP from the server: {came} of {allowed} bytes");
    drop((control, stream));
    server.join().unwrap().expect_err("the client left");

    let (port, server) = serve_slowly();
    let control = began(port, &[reverse, udp[0], udp[1]]);
    let socket = datagrams(port);
    let (came, allowed) = moved(|| socket.recv(&mut buffer).unwrap());
    assert!(came > 0.0 && came < 1.5 * allowed, "UDP from the server: {came} of {allowed} bytes");
    drop((control, socket));
    server.join().unwrap().expect_err("the client left");

    let (port, server) = serve_slowly();
    let control = began(port, &[(r#""time":1"#, r#""time":30"#)]);
    let mut stream = data(port);
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let (went, allowed) = moved(|| stream.write(&buffer).unwrap_or(0));
    // What the buffers of both ends hold comes on top.
    assert!(went < 1.5 * allowed + 32e6, "TCP to the server: {went} of {allowed} bytes");
    drop((control, stream));
    server.join().unwrap().expect_err("the client left");
}

/// Datagrams cannot be held back by whoever receives them.
#[test]
fn a_flood_of_datagrams_beyond_the_rate_ends_its_test() {
    let (port, server) = serve_slowly();
    let udp =
        [(r#""tcp":true"#, r#""udp":true"#), ("131072", "1400"), (r#""time":1"#, r#""time":60"#)];
    let control = began(port, &udp);
    let socket = datagrams(port);
    let start = Instant::now();
    while !server.is_finished() && start.elapsed() < AT_MOST {
        // Refused once the server has closed its end.
        socket.send(&[0; 1400]).ok();
    }
    assert!(start.elapsed() < AT_MOST, "it is still served");
    assert!(matches!(server.join().unwrap(), Err(Iperf3Error::TotalRate)));
    drop(control);
}

#[test]
fn a_test_of_an_amount_ends_with_the_longest_time_allowed() {
    let limits = ServeLimits {
        duration_max: Some(Duration::from_secs(1)),
        patience: LONG,
        ..ServeLimits::default()
    };
    let (port, server) = serve_with(limits);
    let amount = (r#""time":1,"num":0"#, r#""time":0,"num":2000000000000,"reverse":true"#);
    let control = began(port, &[amount]);
    let mut stream = data(port);
    let start = Instant::now();
    std::io::copy(&mut stream, &mut std::io::sink()).ok();
    assert!(start.elapsed() < AT_MOST, "{:?}", start.elapsed());
    assert!(matches!(server.join().unwrap(), Err(Iperf3Error::Expired)));
    drop(control);
}

#[test]
fn a_second_client_is_told_that_the_server_is_busy() {
    let (port, server) = serve_one(LONG);
    let first = greeted(port);
    let mut second = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    second.set_read_timeout(Some(AT_MOST)).unwrap();
    second.write_all(&[b'b'; 37]).unwrap();
    let mut answer = Vec::new();
    second.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [0xff]);
    drop(first);
    assert!(server.join().unwrap().is_err());
}

#[test]
fn silent_visitors_hold_up_nobody() {
    let (port, server) = serve_one(LONG);
    let visitors: Vec<_> =
        (0..20).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
    let start = Instant::now();
    drop(greeted(port));
    assert!(server.join().unwrap().is_err());
    assert!(start.elapsed() < AT_MOST);
    drop(visitors);
}

#[test]
fn more_silent_visitors_than_there_are_places_hold_up_nobody() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let (port, server) = serve_one(LONG);
    let visitors: Vec<_> =
        (0..600).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
    let start = Instant::now();
    drop(greeted(port));
    assert!(server.join().unwrap().is_err(), "the client left");
    assert!(start.elapsed() < AT_MOST);
    drop(visitors);
}

/// Which connection sends is told by the order in which they were opened, not by whose cookie is
/// read first.
#[test]
fn connections_whose_cookies_come_late_keep_their_places() {
    let (port, server) = serve_with(ServeLimits { patience: AT_MOST, ..ServeLimits::default() });
    let mut control = greeted(port);
    let both_ways = r#""parallel":1,"bidirectional":true"#;
    control.write_all(&framed(&PARAMETERS.replace(r#""parallel":1"#, both_ways))).unwrap();
    control.read_exact(&mut [0; 1]).unwrap();
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let (mut first, mut second) = (connect(), connect());
    second.write_all(COOKIE).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    first.write_all(COOKIE).unwrap();
    second.set_read_timeout(Some(AT_MOST)).unwrap();
    second.read_exact(&mut [0; 1000]).expect("the server sends on the second");
    first.set_nonblocking(true).unwrap();
    let nothing = first.read(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    drop((control, first, second));
    server.join().unwrap().expect_err("the client left");
}
