//! The limits that the owner of `serve` sets (`--max-rate`, `--max-duration`), against clients that keep to none.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use results::{Protocol, TestLimit, TestSpec};
use serde_json::{Value, json};
use traffic::control::{Purpose, ServerMessage};

use crate::case::{Case, Door, Scene};
use crate::program::Daemon;
use crate::serve::control::{self, accepted};
use crate::serve::{Peer, connect_from, iperf3};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Verbs, "iperf3 clients that keep to none of the owner's limits", stock).waits(),
    Case::of(
        Door::Verbs,
        "request/response clients that keep to none of the owner's limits",
        transactions,
    )
    .waits(),
];

/// The limits: bytes a second, and the longest test.
const BYTES_PER_S: f64 = 2.5e6;
const LONGEST: Duration = Duration::from_secs(3);
/// How much longer a test of an amount may last that an iperf3 client asks for, and a busy machine's share.
const MARGIN: Duration = Duration::from_secs(5 + 5);
/// How long the rate is looked at. What a stall of the machine held up comes at once: half as much again may come.
const LOOK: Duration = Duration::from_secs(1);
const TOLERANCE: f64 = 1.5;
const STREAMS: u16 = 4;

fn said(error: std::io::Error) -> String {
    error.to_string()
}

/// Starts a server with these limits and points the scene at it.
fn serve(scene: &mut Scene, name: &str) -> Result<Daemon, String> {
    scene.port = testkit::port::free_port();
    let (port, longest) = (scene.port.to_string(), format!("{}s", LONGEST.as_secs()));
    let arguments = ["serve", "--bind", "127.0.0.1", "--port", &port, "--max-rate", "20M"];
    let arguments = [&arguments[..], &["--max-duration", &longest]].concat();
    let log = scene.folder.join(format!("{name}-{}.log", scene.random_name()));
    Daemon::start_listening(&scene.program, &arguments, log, scene.port)
}

/// Whether what moved while `turn` was called again and again is within the limit, apart from `buffered_bytes`.
fn is_kept(what: &str, buffered_bytes: f64, mut turn: impl FnMut() -> usize) -> Result<(), String> {
    let began = Instant::now();
    let mut moved_bytes = 0.0;
    while began.elapsed() < LOOK {
        moved_bytes += turn() as f64;
    }
    let most_bytes = began.elapsed().as_secs_f64() * BYTES_PER_S * TOLERANCE + buffered_bytes;
    if moved_bytes == 0.0 || moved_bytes > most_bytes {
        return Err(format!("{what}: {:.1} of {:.1} MB", moved_bytes / 1e6, most_bytes / 1e6));
    }
    Ok(())
}

/// With a cookie of this number, a test of 2 TB as fast as it goes, up to where the server asks for its streams.
fn begin(scene: &Scene, number: u8, changes: &Value) -> Result<TcpStream, String> {
    let mut parameters = json!({"tcp": true, "omit": 0, "time": 0, "num": 2_000_000_000_000_u64, "blockcount": 0,
        "parallel": STREAMS, "len": 131_072, "pacing_timer": 1000, "client_version": "3.12", "bandwidth": 0});
    for (name, value) in changes.as_object().into_iter().flatten() {
        parameters[name] = value.clone();
    }
    let mut control = iperf3::control(scene, number)?.ok_or("serve is busy")?;
    iperf3::say(&mut control, &parameters.to_string());
    let mut state = [0];
    control.read_exact(&mut state).map_err(said)?;
    // CREATE_STREAMS.
    if state == [10] { Ok(control) } else { Err(format!("serve answered {} to a test", state[0])) }
}

/// Longest wait for one read or write.
const STEP: Duration = Duration::from_millis(5);

fn data(scene: &Scene, number: u8) -> Result<Vec<TcpStream>, String> {
    let open = |_| -> std::io::Result<TcpStream> {
        let mut stream = connect_from(iperf3::ONE, scene.port)?;
        stream.write_all(&iperf3::cookie(number))?;
        stream.set_read_timeout(Some(STEP))?;
        stream.set_write_timeout(Some(STEP))?;
        Ok(stream)
    };
    (0..STREAMS).map(open).collect::<std::io::Result<_>>().map_err(said)
}

fn datagrams(scene: &Scene) -> Result<Vec<UdpSocket>, String> {
    (0..STREAMS).map(|_| greeted(scene)).collect()
}

/// The socket of a UDP stream, greeted once, as by iperf3.
fn greeted(scene: &Scene) -> Result<UdpSocket, String> {
    let from = (Ipv4Addr::new(127, 0, 0, iperf3::ONE), 0);
    let socket = UdpSocket::bind(from).map_err(said)?;
    socket.connect((Ipv4Addr::LOCALHOST, scene.port)).map_err(said)?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).map_err(said)?;
    socket.send(&GREETING).map_err(said)?;
    socket.recv(&mut [0; 4]).map_err(|_silent| "serve does not welcome a UDP stream".to_owned())?;
    socket.set_read_timeout(Some(STEP)).map_err(said)?;
    Ok(socket)
}

/// The greeting of a UDP stream: `UDP_CONNECT_MSG`.
pub(super) const GREETING: [u8; 4] = *b"9876";

fn stock(scene: &mut Scene) -> Result<(), String> {
    let mut daemon = serve(scene, "owner")?;
    let mut buffer = vec![0; 1 << 20];

    let control =
        begin(scene, 1, &json!({"reverse": true, "udp": true, "tcp": false, "len": 1400}))?;
    let sockets = datagrams(scene)?;
    is_kept("UDP from the server", 0.0, || {
        sockets.iter().map(|socket| socket.recv(&mut buffer).unwrap_or(0)).sum()
    })?;
    drop((control, sockets));

    // What the buffers of both ends hold comes on top.
    let control = begin(scene, 2, &json!({"parallel": 1}))?;
    let mut stream = data(scene, 2)?.swap_remove(0);
    is_kept("TCP to the server", 32e6, || stream.write(&buffer).unwrap_or(0))?;
    drop((control, stream));

    let mut control = begin(scene, 3, &json!({"reverse": true}))?;
    let began = Instant::now();
    let mut streams = data(scene, 3)?;
    let mut read = || -> usize {
        streams.iter_mut().map(|stream| stream.read(&mut buffer).unwrap_or(0)).sum()
    };
    is_kept("TCP from the server", 1e6, &mut read)?;
    control.set_nonblocking(true).map_err(said)?;
    loop {
        read();
        match control.read(&mut [0; 64]) {
            Ok(0) => break,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
            _ if began.elapsed() > LONGEST + MARGIN => {
                return Err(format!("a test goes on after {:?}", began.elapsed()));
            }
            _ => std::thread::sleep(STEP),
        }
    }
    daemon.check()
}

/// Requests without a pause, and whatever answers they get.
fn transactions(scene: &mut Scene) -> Result<(), String> {
    const ANSWER_BYTES: u32 = 64 << 10;
    let mut daemon = serve(scene, "transactions")?;
    let mut spec = TestSpec::request_response(Protocol::Tcp, 64, ANSWER_BYTES);
    spec.streams = STREAMS.into();
    spec.limit = TestLimit::DurationS(LONGEST.as_secs_f64());
    let mut peer = Peer::greeted(scene, control::ONE)?.ok_or("serve says no hello")?;
    let token = accepted(&mut peer, &spec).ok_or("the test was not accepted")?;
    let mut streams = Vec::new();
    for index in 0..STREAMS {
        let mut stream = connect_from(control::ONE, scene.port).map_err(said)?;
        stream
            .write_all(&Purpose::Stream { token: token.clone(), index }.greeting())
            .map_err(said)?;
        streams.push(stream);
    }
    while !matches!(peer.hear().ok_or("the test did not begin")?, ServerMessage::Ready) {}
    peer.say("{\"type\":\"go\"}");
    let requests = vec![7; 64 * 64];
    let mut buffer = vec![0; 1 << 20];
    for stream in &streams {
        stream.set_read_timeout(Some(STEP)).map_err(said)?;
        stream.set_write_timeout(Some(STEP)).map_err(said)?;
    }
    // Each stream's first answer, and one that is on its way.
    let under_way_bytes = f64::from(2 * u32::from(STREAMS) * ANSWER_BYTES);
    is_kept("answers", under_way_bytes, || {
        let mut came_bytes = 0;
        for stream in &mut streams {
            // Full where the server is slower.
            rustix::io::write(&*stream, &requests).ok();
            came_bytes += stream.read(&mut buffer).unwrap_or(0);
        }
        came_bytes
    })?;
    drop((peer, streams));
    daemon.check()
}
