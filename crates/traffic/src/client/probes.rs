//! Idle round-trip times and the path MTU.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use results::LatencySummary;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use stats::LatencyHistogram;
use sys::socket::{Family, Transport, new_socket};

use super::{ANSWER_TIMEOUT, ClientError, Session};
use crate::control::{ClientMessage, GREETING_BYTES, Purpose, ServerMessage, Token};

/// A round trip that takes longer fails.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Attempts per packet size; a single packet may be lost by chance.
const PROBE_TRIES: u32 = 3;
const PROBE_PATIENCE: Duration = Duration::from_millis(250);
/// Common sizes to try before searching: jumbo frames, Ethernet, PPPoE, tunnels, IPv6's minimum.
const USUAL_MTUS_BYTES: [u32; 9] = [65_535, 9_000, 8_000, 4_470, 1_500, 1_492, 1_476, 1_400, 1_280];
/// Smallest size tried: every IPv4 host accepts datagrams of 576 bytes (RFC 791).
const MTU_BYTES_MIN: u32 = 576;
/// Total length of the IP and UDP headers, in bytes.
const HEADERS_V4_BYTES: u32 = 28;
const HEADERS_V6_BYTES: u32 = 48;
/// Largest payload of a UDP datagram over IPv4, in bytes.
const PAYLOAD_BYTES_MAX: u32 = 65_507;

/// The largest packet that the path carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    /// Size of the IP packet including its header, in bytes.
    pub bytes: u32,
    /// Whether a packet of that size arrived at the far end; otherwise the size is this kernel's
    /// assumption.
    pub confirmed: bool,
}

impl Session {
    /// Measures `count` round trips of one byte over TCP, one every `interval`.
    ///
    /// # Errors
    /// [`ClientError`]; unless it is a refusal, the session is no longer usable.
    pub fn round_trips(
        &mut self,
        count: u32,
        interval: Duration,
    ) -> Result<LatencySummary, ClientError> {
        self.say(&ClientMessage::Echo)?;
        let token = self.granted()?;
        let failed = |source| ClientError::socket("round trips", source);
        let mut stream =
            TcpStream::connect_timeout(&self.address, ANSWER_TIMEOUT).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        stream.write_all(&Purpose::Stream { token, index: 0 }.greeting()).map_err(failed)?;
        match self.answer(ANSWER_TIMEOUT)? {
            ServerMessage::Ready => {}
            _ => return Err(self.unexpected("no connection for round trips")),
        }
        let mut histogram = LatencyHistogram::default();
        let mut due = Instant::now();
        for _ in 0..count {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due += interval;
            histogram.record_ns(round_trip_ns(&mut stream).map_err(failed)?);
        }
        drop(stream);
        LatencySummary::of(&histogram, "tcp-rr").ok_or_else(|| self.silent())
    }

    /// Finds the largest packet that reaches the server unfragmented, by sending packets of several
    /// sizes.
    ///
    /// # Errors
    /// [`ClientError`]; unless it is a refusal, the session is no longer usable.
    pub fn path_mtu(&mut self) -> Result<PathMtu, ClientError> {
        self.say(&ClientMessage::ProbeMtu)?;
        let token = self.granted()?;
        let failed = |source| ClientError::socket("path MTU", source);
        let socket = probe_socket(self.address).map_err(failed)?;
        let assumed_bytes = kernel_mtu(&socket, self.address).map_err(failed)?;
        let headers_bytes =
            if self.address.is_ipv4() { HEADERS_V4_BYTES } else { HEADERS_V6_BYTES };
        let greeting = Purpose::Stream { token, index: 0 }.greeting();
        let mut search = Search { session: self, socket, greeting, headers_bytes };
        let found = search.largest(assumed_bytes)?;
        self.say(&ClientMessage::Finished)?;
        Ok(match found {
            Some(bytes) => PathMtu { bytes, confirmed: true },
            None => PathMtu { bytes: assumed_bytes, confirmed: false },
        })
    }

    fn granted(&mut self) -> Result<Token, ClientError> {
        match self.answer(ANSWER_TIMEOUT)? {
            ServerMessage::Accepted { token, .. } => Ok(token),
            _ => Err(self.unexpected("no answer to a request")),
        }
    }
}

/// Measures how long connections take to open: the only round trip that a server without an echo
/// offers. The control connection stays open meanwhile, so that the server rejects these
/// connections at once.
pub(super) fn connect_times(
    address: SocketAddr,
    count: u32,
    interval: Duration,
) -> Result<LatencySummary, ClientError> {
    let mut histogram = LatencyHistogram::default();
    let mut due = Instant::now();
    for _ in 0..count {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due += interval;
        let began = Instant::now();
        let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)
            .map_err(|source| ClientError::Unreachable { target: address.to_string(), source })?;
        histogram.record_ns(nanoseconds(began.elapsed()));
        drop(stream);
    }
    LatencySummary::of(&histogram, "tcp-connect")
        .ok_or_else(|| ClientError::Silent { target: address.to_string() })
}

/// The path MTU that this kernel assumes for a connection.
pub(super) fn assumed_path_mtu(stream: &TcpStream) -> Result<PathMtu, ClientError> {
    let failed = |source| ClientError::socket("path MTU", source);
    let address = stream.peer_addr().map_err(failed)?;
    let bytes = kernel_mtu(stream, address).map_err(failed)?;
    Ok(PathMtu { bytes, confirmed: false })
}

fn round_trip_ns(stream: &mut TcpStream) -> io::Result<u64> {
    let mut byte = [0x43];
    let began = Instant::now();
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)?;
    Ok(nanoseconds(began.elapsed()))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A connected socket whose packets are never fragmented and may exceed the path MTU that the
/// kernel has learned (`IP_PMTUDISC_PROBE`, ip(7)).
fn probe_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let fd = new_socket(Family::of(&address), Transport::Udp).map_err(io::Error::other)?;
    if address.is_ipv4() {
        sockopt::set_ip_mtu_discover(&fd, Ipv4PathMtuDiscovery::PROBE)?;
    } else {
        sockopt::set_ipv6_mtu_discover(&fd, Ipv6PathMtuDiscovery::PROBE)?;
    }
    let socket = UdpSocket::from(fd);
    socket.connect(address)?;
    Ok(socket)
}

fn kernel_mtu(socket: &impl std::os::fd::AsFd, address: SocketAddr) -> io::Result<u32> {
    let bytes = if address.is_ipv4() { sockopt::ip_mtu(socket) } else { sockopt::ipv6_mtu(socket) };
    Ok(bytes?)
}

/// A search that sends packets of several sizes.
struct Search<'a> {
    session: &'a mut Session,
    socket: UdpSocket,
    greeting: [u8; GREETING_BYTES],
    headers_bytes: u32,
}

impl Search<'_> {
    /// The largest size up to `ceiling_bytes` that reaches the server; `None` if no packet does
    /// (UDP is filtered).
    fn largest(&mut self, ceiling_bytes: u32) -> Result<Option<u32>, ClientError> {
        let ceiling_bytes = ceiling_bytes.min(PAYLOAD_BYTES_MAX + self.headers_bytes);
        if self.gets_through(ceiling_bytes)? {
            return Ok(Some(ceiling_bytes));
        }
        let mut above_bytes = ceiling_bytes;
        let usual = USUAL_MTUS_BYTES.into_iter().chain([MTU_BYTES_MIN]);
        let smaller: Vec<u32> = usual.filter(|bytes| *bytes < ceiling_bytes).collect();
        let mut best_bytes = None;
        for bytes in smaller {
            if self.gets_through(bytes)? {
                best_bytes = Some(bytes);
                break;
            }
            above_bytes = bytes;
        }
        let Some(mut best_bytes) = best_bytes else { return Ok(None) };
        // Probing one more byte settles the usual case at once.
        let mut next_bytes = best_bytes + 1;
        while next_bytes < above_bytes {
            if self.gets_through(next_bytes)? {
                best_bytes = next_bytes;
            } else {
                above_bytes = next_bytes;
            }
            next_bytes = best_bytes + (above_bytes - best_bytes).div_ceil(2);
        }
        Ok(Some(best_bytes))
    }

    fn gets_through(&mut self, packet_bytes: u32) -> Result<bool, ClientError> {
        let payload_bytes = packet_bytes - self.headers_bytes;
        let mut datagram = vec![0; payload_bytes as usize];
        datagram[..GREETING_BYTES].copy_from_slice(&self.greeting);
        for _ in 0..PROBE_TRIES {
            if let Err(error) = self.socket.send(&datagram) {
                // Larger than the interface's MTU: the path need not be probed.
                if Errno::from_io_error(&error) == Some(Errno::MSGSIZE) {
                    return Ok(false);
                }
            }
            let deadline = Instant::now() + PROBE_PATIENCE;
            while Instant::now() < deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if let Some(ServerMessage::ProbeSeen { payload_bytes: seen_bytes }) =
                    self.session.hear(left)?
                    && seen_bytes == payload_bytes
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
