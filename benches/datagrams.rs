//! The bare datagram loop: batches of datagrams, or of super-segments as full as the kernel takes them, sent as fast
//! as they go and received by one loop, without headers, clocks or accounts. It shows what the kernel's work per
//! packet leaves to any UDP tester on this machine.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sys::datagram::{ReceiveBatch, SendBatch, set_segment_bytes};

use crate::comparison::Figures;
use crate::host::{BenchError, Server, Side, Wire, finish};

/// First argument that turns this program into one end of the loop.
const WORD: &str = "--datagrams";
const PORT: u16 = 5212;
/// A datagram of one byte asks how many of the others came.
const QUESTION: [u8; 1] = [0];
/// `UDP_MAX_SEGMENTS` (kernel `include/linux/udp.h`): 128 since Linux 6.9, 64 before.
const SEGMENTS_COUNT_MAX: [usize; 2] = [128, 64];
/// Payload of the largest IPv4 datagram, which is also what GSO takes at most, bytes.
const MESSAGE_BYTES_MAX: usize = 65_507;
/// Super-segments per system call.
const BATCH_COUNT: usize = 16;
/// Datagrams per system call where each is handed over by itself.
const MESSAGES_COUNT: usize = 256;

/// Runs one end of the loop when the arguments ask for it.
pub(crate) fn intercept(arguments: &[String]) -> Option<ExitCode> {
    let [_, word, role, rest @ ..] = arguments else { return None };
    if word != WORD {
        return None;
    }
    let ended = match (role.as_str(), rest) {
        ("serve", []) => serve(),
        ("send", [host, bytes, seconds, joined]) => {
            send(host, bytes, seconds, joined == Joined::BySegmentation.word())
        }
        _ => return Some(ExitCode::from(2)),
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("datagrams: {error}");
            ExitCode::FAILURE
        }
    })
}

/// How datagrams are handed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// Many as one super-segment (`UDP_SEGMENT`).
    BySegmentation,
    /// Each by itself, many per system call (`sendmmsg`).
    ByCall,
}

impl Joined {
    fn word(self) -> &'static str {
        match self {
            Self::BySegmentation => "segments",
            Self::ByCall => "messages",
        }
    }
}

/// One run of the bare loop with datagrams of `bytes` bytes; datagrams received per second.
pub(crate) fn run(
    wire: &Wire,
    length: Duration,
    bytes: &str,
    joined: Joined,
) -> Result<Figures, BenchError> {
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or_else(|| BenchError::Failed("an odd path".to_owned()))?;
    let mut serve = wire.command(Side::Far, program);
    serve.args([WORD, "serve"]);
    let _server = Server::start(wire, serve, PORT, true)?;
    let mut send = wire.command(Side::Near, program);
    let seconds = length.as_secs().to_string();
    send.args([WORD, "send", &wire.target(), bytes, &seconds, joined.word()]);
    let finished = finish(send, length + Duration::from_secs(10))?;
    let rate = finished.stdout.trim().parse::<f64>();
    let rate =
        rate.map_err(|error| BenchError::Failed(format!("{:?}: {error}", finished.stdout)))?;
    Ok(Figures::from([("datagrams_per_s", rate)]))
}

fn serve() -> std::io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    let (_, peer) = socket.peek_from(&mut [0; 2])?;
    socket.connect(peer)?;
    let mut batch = ReceiveBatch::new(512, 2048);
    let mut datagrams = 0_u64;
    loop {
        let came = batch.receive(&socket)?;
        for index in 0..came {
            if batch.message(index).payload.len() == QUESTION.len() {
                socket.send(&datagrams.to_ne_bytes())?;
            } else {
                datagrams += 1;
            }
        }
    }
}

fn send(host: &str, bytes: &str, seconds: &str, with_segments: bool) -> std::io::Result<()> {
    let (bytes, seconds) = (bytes.parse().unwrap_or(64), seconds.parse().unwrap_or(1));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(SocketAddr::new(host.parse().map_err(std::io::Error::other)?, PORT))?;
    let mut batch = if with_segments {
        segments(&socket, bytes)?
    } else {
        SendBatch::new(MESSAGES_COUNT, bytes as usize)
    };
    let count = batch.count();
    let (began, length) = (Instant::now(), Duration::from_secs(seconds));
    while began.elapsed() < length {
        batch.send(&socket, 0..count)?;
    }
    let took_s = began.elapsed().as_secs_f64();
    set_segment_bytes(&socket, 0).map_err(std::io::Error::other)?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut answer = [0; 8];
    // The question is lost where the far end's queue is full.
    for _ in 0..10 {
        socket.send(&QUESTION)?;
        if socket.recv(&mut answer).is_ok() {
            println!("{}", u64::from_ne_bytes(answer) as f64 / took_s);
            return Ok(());
        }
    }
    Err(std::io::Error::other("the far end does not say how many came"))
}

/// A batch of super-segments as full as this kernel takes them.
fn segments(socket: &UdpSocket, bytes: u32) -> std::io::Result<SendBatch> {
    set_segment_bytes(socket, bytes).map_err(std::io::Error::other)?;
    let bytes = (bytes as usize).max(1);
    for count in SEGMENTS_COUNT_MAX {
        let mut batch = SendBatch::new(BATCH_COUNT, count.min(MESSAGE_BYTES_MAX / bytes) * bytes);
        if batch.send(socket, 0..1).is_ok() {
            return Ok(batch);
        }
    }
    Err(std::io::Error::other("the kernel cuts no datagrams"))
}
