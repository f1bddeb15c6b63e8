//! The hub: accepts connections and datagrams, identifies each, and passes it to its session.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::places::{Caps, Places, most_frequent, owner_of};
use super::registry::{DatagramFate, Registry, canonical};
use super::session::{self, Session};
use super::sockets::{Listeners, Sharing, Sockets, udp_stream};
use super::{Notice, NoticeSink, ServerConfig, ServerError};
use crate::control::{
    GREETING_BYTES, GREETING_TIMEOUT, Greeting, PROTOCOL_MAJOR, Purpose, Refusal, RefusalCode,
    ServerMessage, encode,
};
use crate::engine::BufferCaps;

/// Upper bound on connections whose greeting is not complete, lower where the process may open few
/// files. Beyond it, the address with most of them loses its oldest.
const PENDING_MAX: usize = 256;
/// Limit on the streams of all tests together, unless four tests of the largest kind need more or
/// descriptors are scarce.
const STREAMS_MIN: u64 = 2048;
/// Descriptors of neither streams nor connections: listeners, files being read, the log.
const DESCRIPTORS_OWN: u64 = 64;
/// Connections and datagrams processed in a row before everything else gets its turn.
const BATCH_COUNT: usize = 64;
/// How often `should_stop` is called.
const LOOK_UP_EVERY: Duration = Duration::from_millis(100);
/// Time for sessions to end when the server ends.
const WIND_DOWN: Duration = Duration::from_secs(3);

/// State shared by all sessions.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) config: Arc<ServerConfig>,
    pub(super) registry: Arc<Registry>,
    pub(super) listeners: Arc<Listeners>,
    pub(super) places: Arc<Places>,
    pub(super) buffer_caps: BufferCaps,
    notices: NoticeSink,
    /// Held by every session until it has said how it ended: a moment longer than its place.
    at_work: Arc<()>,
}

impl Shared {
    pub(super) fn notice(&self, notice: &Notice) {
        (self.notices)(notice);
    }

    /// Whether another than the hub has this state. Who ends the process before would lose the last lines of its log.
    fn has_sessions(&self) -> bool {
        Arc::strong_count(&self.at_work) > 1
    }
}

/// The listening sockets, and the connections that are not identified yet.
pub(super) struct Hub {
    shared: Shared,
    sockets: Sockets,
    pending: Vec<Pending>,
    pending_max: usize,
    accepted_count: u64,
}

/// A connection whose greeting is not complete.
struct Pending {
    /// Its number among all accepted connections.
    place: u64,
    stream: TcpStream,
    peer: SocketAddr,
    greeting: [u8; GREETING_BYTES],
    received_bytes: usize,
    since: Instant,
}

enum Progress {
    Waiting,
    Complete,
    Disconnected,
}

impl Hub {
    pub(super) fn new(config: ServerConfig, sockets: Sockets, notices: NoticeSink) -> Self {
        let descriptors = descriptors_max();
        let pending_max = usize::try_from(descriptors / 4).unwrap_or(PENDING_MAX).min(PENDING_MAX);
        let shared = Shared {
            places: Places::new(caps_of(&config, descriptors, pending_max)),
            buffer_caps: BufferCaps::probe(),
            config: Arc::new(config),
            registry: Arc::default(),
            listeners: Arc::clone(&sockets.tcp),
            notices,
            at_work: Arc::new(()),
        };
        Self { shared, sockets, pending: Vec::new(), pending_max, accepted_count: 0 }
    }

    pub(super) fn run(mut self, should_stop: &dyn Fn() -> bool) -> Result<(), ServerError> {
        while !should_stop() {
            self.wait().map_err(ServerError::Wait)?;
            self.accept();
            self.advance();
            self.take_datagrams();
        }
        self.shared.registry.end();
        let deadline = Instant::now() + WIND_DOWN;
        while self.shared.has_sessions() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let listening =
            self.sockets.tcp.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN));
        let datagrams = self.sockets.udp.iter().map(|socket| PollFd::new(socket, PollFlags::IN));
        let greeting =
            self.pending.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN));
        let mut fds: Vec<_> = listening.chain(datagrams).chain(greeting).collect();
        let timeout = Timespec::try_from(LOOK_UP_EVERY).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self) {
        for listener in &self.sockets.tcp.sockets {
            for _ in 0..BATCH_COUNT {
                match listener.accept() {
                    Ok((stream, peer)) => {
                        if stream.set_nonblocking(true).is_ok() {
                            self.accepted_count += 1;
                            self.pending.push(Pending::new(self.accepted_count, stream, peer));
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if is_out_of_descriptors(&error) => {
                        // The connection stays in the backlog until there is a descriptor for it;
                        // without a pause this would be a busy loop.
                        drop_surplus(&mut self.pending, self.pending_max / 2);
                        thread::sleep(Duration::from_millis(20));
                        break;
                    }
                    // That connection was closed before it could be accepted.
                    Err(_) => {}
                }
            }
        }
        drop_surplus(&mut self.pending, self.pending_max);
    }

    /// Reads greetings; removes connections whose greeting is complete or that are gone or late.
    fn advance(&mut self) {
        let mut waiting = Vec::with_capacity(self.pending.len());
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.read() {
                Progress::Waiting if pending.since.elapsed() > GREETING_TIMEOUT => {}
                Progress::Waiting => waiting.push(pending),
                Progress::Complete => self.route(pending),
                Progress::Disconnected => {}
            }
        }
        self.pending = waiting;
    }

    fn route(&self, pending: Pending) {
        let Pending { place, stream, peer, greeting, .. } = pending;
        match Greeting::parse(&greeting) {
            Some(Greeting::Ours(Purpose::Control)) => {
                self.open(stream, peer, session::Kind::Ours);
            }
            Some(Greeting::Ours(Purpose::Stream { token, index })) => {
                // A data connection that no session waits for is dropped and thereby closed.
                self.shared.registry.deliver_tcp(&token, index, stream);
            }
            Some(Greeting::OtherVersion(major)) => {
                let reason = format!(
                    "this server speaks version {PROTOCOL_MAJOR} of the control protocol, the \
                     client version {major}"
                );
                let refusal = Refusal::new(RefusalCode::Version, reason);
                self.refuse(stream, peer, refusal, &session::Kind::Ours);
            }
            None => self.route_foreign(place, stream, peer, &greeting),
        }
    }

    /// Handles a connection of another protocol: one of a personality, or an unknown one.
    fn route_foreign(
        &self,
        place: u64,
        stream: TcpStream,
        peer: SocketAddr,
        greeting: &[u8; GREETING_BYTES],
    ) {
        let known = &self.shared.config.personalities;
        let Some(personality) = known.iter().find(|known| known.recognises(greeting)) else {
            // The client would not understand any answer.
            return;
        };
        if self.shared.registry.knows_greeting(greeting) {
            self.shared.registry.deliver_foreign(greeting, place, stream);
        } else {
            self.open(stream, peer, session::Kind::Foreign(Arc::clone(personality), *greeting));
        }
    }

    fn open(&self, stream: TcpStream, peer: SocketAddr, kind: session::Kind) {
        let config = &self.shared.config;
        let address = peer.ip();
        let allowed = config.networks.is_empty()
            || config.networks.iter().any(|network| network.contains(address));
        if !allowed {
            let reason = format!("clients from {} may not use this server", address.to_canonical());
            let refusal = Refusal::new(RefusalCode::NotAllowed, reason);
            return self.refuse(stream, peer, refusal, &kind);
        }
        let place = match self.shared.places.enter(peer) {
            Ok(place) => Arc::new(place),
            Err(refusal) => return self.refuse(stream, peer, refusal, &kind),
        };
        let session = Session { shared: self.shared.clone(), stream, peer, kind, place };
        let started = thread::Builder::new().name("session".into()).spawn(move || session.run());
        // If no thread can be started, the connection is dropped with the closure, and the client
        // sees it closed.
        drop(started);
    }

    fn refuse(&self, stream: TcpStream, peer: SocketAddr, refusal: Refusal, kind: &session::Kind) {
        let answer = match kind {
            session::Kind::Ours => {
                encode(&ServerMessage::Refused(refusal.clone())).unwrap_or_default()
            }
            session::Kind::Foreign(personality, _) => personality.refusal().to_vec(),
        };
        // The socket is new and its send buffer empty, so this does not block; a client that has
        // gone needs no answer.
        (&stream).write_all(&answer).ok();
        self.shared.notice(&Notice::Refused { peer, refusal });
    }

    fn take_datagrams(&self) {
        let mut datagram = vec![0; 64 << 10];
        for socket in &self.sockets.udp {
            for _ in 0..BATCH_COUNT {
                // Errors here belong to earlier datagrams (ICMP), or there is nothing more to read.
                let Ok((count, from)) = socket.recv_from(&mut datagram) else { break };
                self.on_datagram(socket, from, &datagram[..count]);
            }
        }
    }

    fn on_datagram(&self, socket: &UdpSocket, from: SocketAddr, datagram: &[u8]) {
        let from = canonical(from);
        let registry = &self.shared.registry;
        let connect = |local| udp_stream(local, from, Sharing::of(socket));
        if let Some(Greeting::Ours(Purpose::Stream { token, index })) = Greeting::parse(datagram) {
            let fate = registry.on_greeting(&token, index, from, datagram.len());
            if let DatagramFate::Connect { local } = fate
                && let Ok(stream) = connect(local)
            {
                registry.deliver_udp(&token, index, stream);
            }
        } else if let (DatagramFate::Connect { local }, Some(greeting)) = registry.on_stranger(from)
            && let Ok(stream) = connect(local)
        {
            registry.deliver_foreign_udp(&greeting, stream, datagram.to_vec());
        }
    }
}

/// The limits that follow from the configuration and the number of descriptors.
fn caps_of(config: &ServerConfig, descriptors: u64, pending_max: usize) -> Caps {
    let places = config.sessions_max;
    let quarter = (places / 4).max(2).min(places);
    let tests = 4 * (2 * u64::from(config.limits.streams_max) + 2);
    // A session has one descriptor of its own and up to 16 of unclaimed data connections; a stream
    // up to two.
    let elsewhere = DESCRIPTORS_OWN + pending_max as u64 + 17 * places as u64;
    Caps {
        places,
        places_an_address: config.sessions_an_address_max.unwrap_or(quarter),
        bytes: config.memory_bytes_max,
        streams: tests.max(STREAMS_MIN).min(descriptors.saturating_sub(elsewhere) / 2),
        age: config.limits.duration_max,
    }
}

/// Limit on the open files of this process.
fn descriptors_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Closes connections until `most` are left: the oldest of the address that has most of them, so
/// that a flood from one address does not displace a slow greeting from another.
fn drop_surplus(pending: &mut Vec<Pending>, most: usize) {
    while pending.len() > most {
        let Some(flood) = most_frequent(pending.iter().map(|one| owner_of(one.peer.ip()))) else {
            return;
        };
        let mut surplus_count = pending.len() - most;
        pending.retain(|one| {
            let goes = surplus_count > 0 && owner_of(one.peer.ip()) == flood;
            surplus_count -= usize::from(goes);
            !goes
        });
    }
}

impl Pending {
    fn new(place: u64, stream: TcpStream, peer: SocketAddr) -> Self {
        let greeting = [0; GREETING_BYTES];
        Self { place, stream, peer, greeting, received_bytes: 0, since: Instant::now() }
    }

    fn read(&mut self) -> Progress {
        loop {
            match self.stream.read(&mut self.greeting[self.received_bytes..]) {
                Ok(0) => return Progress::Disconnected,
                Ok(count) => self.received_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Progress::Waiting;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Progress::Disconnected,
            }
            if self.received_bytes == GREETING_BYTES {
                return Progress::Complete;
            }
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| scarce.contains(&errno))
}
