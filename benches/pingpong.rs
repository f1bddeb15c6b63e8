//! The bare ping-pong loop: one byte there, one byte back, nothing else, with sockets that block or that are polled. What
//! any request/response tester is measured against.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::comparison::Figures;
use crate::host::{BenchError, Server, Side, Wire, finish};

/// First argument that turns this program into one end of the loop.
const WORD: &str = "--ping-pong";
const PORT: u16 = 5211;

/// Runs one end of the loop when the arguments ask for it.
pub(crate) fn intercept(arguments: &[String]) -> Option<ExitCode> {
    let [_, word, role, protocol, rest @ ..] = arguments else { return None };
    if word != WORD {
        return None;
    }
    let ended = match (role.as_str(), protocol.as_str(), rest) {
        ("serve", "tcp", []) => serve_tcp(),
        ("serve", "udp", []) => serve_udp(false),
        ("serve", "udp-polling", []) => serve_udp(true),
        ("ask", "tcp", [host, seconds]) => ask_tcp(host, seconds),
        ("ask", "udp", [host, seconds]) => ask_udp(host, seconds, false),
        ("ask", "udp-polling", [host, seconds]) => ask_udp(host, seconds, true),
        _ => return Some(ExitCode::from(2)),
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ping-pong: {error}");
            ExitCode::FAILURE
        }
    })
}

/// One run of the bare loop; transactions a second.
pub(crate) fn run(wire: &Wire, length: Duration, protocol: &str) -> Result<Figures, BenchError> {
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or_else(|| BenchError::Failed("an odd path".to_owned()))?;
    let mut serve = wire.command(Side::Far, program);
    serve.args([WORD, "serve", protocol]);
    let _server = Server::start(wire, serve, PORT, protocol.starts_with("udp"))?;
    let mut ask = wire.command(Side::Near, program);
    ask.args([WORD, "ask", protocol, &wire.target(), &length.as_secs().to_string()]);
    let finished = finish(ask, length + Duration::from_secs(10))?;
    let rate = finished.stdout.trim().parse::<f64>();
    let rate =
        rate.map_err(|error| BenchError::Failed(format!("{:?}: {error}", finished.stdout)))?;
    Ok(Figures::from([("transactions_per_s", rate)]))
}

fn serve_tcp() -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

fn serve_udp(is_polling: bool) -> std::io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    let mut byte = [0];
    let (_, peer) = socket.peek_from(&mut byte)?;
    socket.connect(peer)?;
    socket.set_nonblocking(is_polling)?;
    loop {
        receive(&socket, &mut byte)?;
        socket.send(&byte)?;
    }
}

/// Waits for a datagram, by asking again and again where the socket does not block.
fn receive(socket: &UdpSocket, byte: &mut [u8; 1]) -> std::io::Result<()> {
    loop {
        match socket.recv(byte) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            other => return other.map(drop),
        }
    }
}

fn ask_tcp(host: &str, seconds: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((host, PORT))?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    count(seconds, || {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)
    })
}

fn ask_udp(host: &str, seconds: &str, is_polling: bool) -> std::io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((host, PORT))?;
    socket.set_nonblocking(is_polling)?;
    let mut byte = [0];
    count(seconds, || {
        socket.send(&byte)?;
        receive(&socket, &mut byte)
    })
}

/// Repeats a transaction and prints how many there were a second. The clock is read once in 64
/// transactions, so that it costs nothing.
fn count(
    seconds: &str,
    mut transaction: impl FnMut() -> std::io::Result<()>,
) -> std::io::Result<()> {
    let length = Duration::from_secs(seconds.parse().unwrap_or(1));
    let began = Instant::now();
    let mut transactions = 0_u64;
    while began.elapsed() < length {
        for _ in 0..64 {
            transaction()?;
        }
        transactions += 64;
    }
    println!("{}", transactions as f64 / began.elapsed().as_secs_f64());
    Ok(())
}
