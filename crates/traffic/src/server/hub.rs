//! The hub: takes connections and datagrams, finds out what each is, and sends it where it
//! belongs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::registry::{DatagramFate, Registry, canonical};
use super::session::{self, Session};
use super::sockets::{Listeners, Sharing, Sockets, udp_stream};
use super::{Notice, NoticeSink, ServerConfig, ServerError};
use crate::control::{
    GREETING_BYTES, GREETING_TIMEOUT, Greeting, PROTOCOL_MAJOR, Purpose, Refusal, RefusalCode,
    ServerMessage, encode,
};

/// Connections that have not said yet what they are; beyond it the oldest goes.
const PENDING_MAX: usize = 256;
/// Connections and datagrams taken in a row before everything else gets its turn.
const BATCH_COUNT: usize = 64;
/// How often `should_stop` is asked.
const LOOK_UP_EVERY: Duration = Duration::from_millis(100);
/// How long sessions get to wind down when the server ends.
const WIND_DOWN: Duration = Duration::from_secs(3);

/// What all sessions share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) config: Arc<ServerConfig>,
    pub(super) registry: Arc<Registry>,
    pub(super) listeners: Arc<Listeners>,
    notices: NoticeSink,
}

impl Shared {
    pub(super) fn notice(&self, notice: &Notice) {
        (self.notices)(notice);
    }
}

/// The listening sockets and the connections that are not known yet.
pub(super) struct Hub {
    shared: Shared,
    sockets: Sockets,
    pending: Vec<Pending>,
    accepted_count: u64,
}

/// A connection whose greeting is not complete.
struct Pending {
    /// Its place among all that were accepted.
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
    Gone,
}

impl Hub {
    pub(super) fn new(config: ServerConfig, sockets: Sockets, notices: NoticeSink) -> Self {
        let shared = Shared {
            config: Arc::new(config),
            registry: Arc::default(),
            listeners: Arc::clone(&sockets.tcp),
            notices,
        };
        Self { shared, sockets, pending: Vec::new(), accepted_count: 0 }
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
        while self.shared.registry.sessions_count() > 0 && Instant::now() < deadline {
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
                        // The connection stays in the backlog; without a pause this would spin.
                        thread::sleep(Duration::from_millis(20));
                        break;
                    }
                    // That one connection was gone before we took it.
                    Err(_) => {}
                }
            }
        }
        let surplus = self.pending.len().saturating_sub(PENDING_MAX);
        self.pending.drain(..surplus);
    }

    /// Reads greetings; connections that are complete or gone leave the list.
    fn advance(&mut self) {
        let mut waiting = Vec::with_capacity(self.pending.len());
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.read() {
                Progress::Waiting if pending.since.elapsed() > GREETING_TIMEOUT => {}
                Progress::Waiting => waiting.push(pending),
                Progress::Complete => self.route(pending),
                Progress::Gone => {}
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
                // A data connection nobody waits for is closed by being dropped.
                self.shared.registry.deliver_tcp(&token, index, stream);
            }
            Some(Greeting::Iperf3(cookie)) => {
                if self.shared.registry.knows_cookie(&cookie) {
                    self.shared.registry.deliver_iperf3(&cookie, place, stream);
                } else {
                    self.open(stream, peer, session::Kind::Iperf3(cookie));
                }
            }
            Some(Greeting::OtherVersion(major)) => {
                let reason = format!(
                    "this server speaks version {PROTOCOL_MAJOR} of the control protocol, the \
                     client version {major}"
                );
                let refusal = Refusal::new(RefusalCode::Version, reason);
                self.refuse(stream, peer, refusal, &session::Kind::Ours);
            }
            // Neither protocol: nothing we could answer would be understood.
            None => {}
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
        let Some(slot) = self.shared.registry.enter(config.sessions_max) else {
            let reason = format!(
                "the server is busy: all of its {} places are taken; try again later",
                config.sessions_max
            );
            return self.refuse(stream, peer, Refusal::new(RefusalCode::Busy, reason), &kind);
        };
        let session = Session { shared: self.shared.clone(), stream, peer, kind };
        let started = thread::Builder::new().name("session".into()).spawn(move || {
            session.run();
            drop(slot);
        });
        // Without a thread the connection is dropped with the closure; the client sees it closed.
        drop(started);
    }

    fn refuse(&self, stream: TcpStream, peer: SocketAddr, refusal: Refusal, kind: &session::Kind) {
        let answer = match kind {
            session::Kind::Ours => {
                encode(&ServerMessage::Refused(refusal.clone())).unwrap_or_default()
            }
            // ACCESS_DENIED (iperf_api.h), which stock clients print as "server is busy".
            session::Kind::Iperf3(_) => vec![0xFF],
        };
        // The socket is new and its buffer empty, so this does not block; a client that is gone
        // misses nothing.
        (&stream).write_all(&answer).ok();
        self.shared.notice(&Notice::Refused { peer, refusal });
    }

    fn take_datagrams(&self) {
        let mut datagram = vec![0; 64 << 10];
        for socket in &self.sockets.udp {
            for _ in 0..BATCH_COUNT {
                // Errors here are those of earlier datagrams (ICMP) or "nothing more".
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
        } else if let (DatagramFate::Connect { local }, Some(cookie)) = registry.on_stranger(from)
            && let Ok(stream) = connect(local)
        {
            registry.deliver_iperf3_udp(&cookie, stream, datagram.to_vec());
        }
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
                Ok(0) => return Progress::Gone,
                Ok(count) => self.received_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Progress::Waiting;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Progress::Gone,
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
