//! Assigns arriving data connections to the sessions that expect them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::places::{Place, Share};
use super::{DataConnections, DataError};
use crate::control::{GREETING_BYTES, Refusal, Token};
use crate::engine::Need;

/// What arrives for a session.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A TCP data connection after its greeting.
    Tcp { index: u16, stream: TcpStream },
    /// A TCP connection of a personality's test, with its number among all accepted connections.
    Foreign { place: u64, stream: TcpStream },
    /// A UDP socket connected to the peer, and the first datagram if the stream is a personality's.
    Udp { index: u16, socket: UdpSocket, first: Vec<u8> },
    /// A padded greeting was received.
    Probe { payload_bytes: u32 },
}

/// How many data connections beyond the expected number may be queued; a client may open any
/// number.
const SURPLUS_MAX: usize = 16;
/// How often a waiting session checks whether the server is ending.
const LOOK_UP_EVERY: Duration = Duration::from_millis(100);
/// How often a session asks whether it is its turn to get UDP streams.
const TURN_EVERY: Duration = Duration::from_millis(5);

/// Sessions that expect data connections. Shared by the hub and all sessions.
#[derive(Debug, Default)]
pub(super) struct Registry {
    inner: Mutex<Inner>,
    ending: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    /// Tests of our protocol, by token.
    ours: HashMap<Token, Expected>,
    /// Sessions of personalities, by the greeting that all connections of one test share.
    foreign: HashMap<[u8; GREETING_BYTES], Expected>,
}

#[derive(Debug)]
struct Expected {
    peer: IpAddr,
    local: SocketAddr,
    arrivals: SyncSender<Arrival>,
    /// UDP streams that already have a socket, by index.
    udp_peers: HashMap<u16, SocketAddr>,
    streams_max: usize,
    probes: bool,
    /// Whether it has had its turn to get UDP streams (personalities only).
    wants_udp: bool,
    /// How many more data connections it accepts (personalities only); 0 before its test is
    /// admitted.
    wants: Arc<AtomicUsize>,
}

impl Expected {
    /// Whether UDP streams of a personality's session are still to come.
    fn is_opening_udp(&self) -> bool {
        self.wants_udp && self.wants.load(Ordering::Relaxed) > 0
    }
}

/// What the hub does with a datagram that arrived at the listening socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DatagramFate {
    /// No session waits for it.
    Ignore,
    /// Create a socket for its stream at this local address.
    Connect { local: SocketAddr },
    /// It was a path MTU probe and has been reported.
    Reported,
}

impl Registry {
    /// Tells all sessions to end.
    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// From now on, data connections that name `token` go to the inbox, UDP ones only from `peer`.
    pub(super) fn expect(
        self: &Arc<Self>,
        token: &Token,
        peer: IpAddr,
        local: SocketAddr,
        wanted: Wanted,
    ) -> Inbox {
        let (expected, arrivals) = expected(peer, local, wanted);
        self.lock().ours.insert(token.clone(), expected);
        Inbox { registry: Arc::clone(self), key: Key::Ours(token.clone()), arrivals }
    }

    /// Like `expect`, for the connections of a personality's test; `None` if its greeting is in
    /// use.
    pub(super) fn expect_foreign(
        self: &Arc<Self>,
        greeting: [u8; GREETING_BYTES],
        peer: IpAddr,
        local: SocketAddr,
        streams_max: usize,
        place: Arc<Place>,
    ) -> Option<ForeignInbox> {
        let wanted = Wanted { streams_max, probes: false };
        let (expected, arrivals) = expected(peer, local, wanted);
        let wants = Arc::clone(&expected.wants);
        let mut inner = self.lock();
        if inner.foreign.contains_key(&greeting) {
            return None;
        }
        inner.foreign.insert(greeting, expected);
        let inbox = Inbox { registry: Arc::clone(self), key: Key::Foreign(greeting), arrivals };
        Some(ForeignInbox { inbox, wants, place, share: None })
    }

    /// Whether a session with this greeting is running; the connection is then one of its streams.
    pub(super) fn knows_greeting(&self, greeting: &[u8; GREETING_BYTES]) -> bool {
        self.lock().foreign.contains_key(greeting)
    }

    /// Delivers a TCP data connection; returns `false` if no session takes it.
    pub(super) fn deliver_tcp(&self, token: &Token, index: u16, stream: TcpStream) -> bool {
        let arrivals = self.lock().ours.get(token).map(|expected| expected.arrivals.clone());
        arrivals.is_some_and(|arrivals| offer(&arrivals, Arrival::Tcp { index, stream }))
    }

    /// Delivers a TCP data connection of a personality's test; returns `false` if no session takes
    /// it.
    pub(super) fn deliver_foreign(
        &self,
        greeting: &[u8; GREETING_BYTES],
        place: u64,
        stream: TcpStream,
    ) -> bool {
        let inner = self.lock();
        let Some(expected) = inner.foreign.get(greeting) else { return false };
        takes_one(&expected.wants) && offer(&expected.arrivals, Arrival::Foreign { place, stream })
    }

    /// Decides about a greeting that arrived over UDP.
    pub(super) fn on_greeting(
        &self,
        token: &Token,
        index: u16,
        from: SocketAddr,
        payload_bytes: usize,
    ) -> DatagramFate {
        let mut inner = self.lock();
        let Some(expected) = inner.ours.get_mut(token) else { return DatagramFate::Ignore };
        if expected.peer != from.ip().to_canonical() {
            return DatagramFate::Ignore;
        }
        if expected.probes {
            let payload_bytes = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
            offer(&expected.arrivals, Arrival::Probe { payload_bytes });
            return DatagramFate::Reported;
        }
        claim(expected, index, from)
    }

    /// Decides about any other datagram: it may be the first of a personality's stream, if a
    /// session waits for one from that address. Returns the session's greeting as well.
    pub(super) fn on_stranger(
        &self,
        from: SocketAddr,
    ) -> (DatagramFate, Option<[u8; GREETING_BYTES]>) {
        let mut inner = self.lock();
        let address = from.ip().to_canonical();
        let known = inner.foreign.values().flat_map(|expected| expected.udp_peers.values());
        if known.into_iter().any(|known| *known == from) {
            return (DatagramFate::Ignore, None);
        }
        let waiting = inner
            .foreign
            .iter_mut()
            .find(|(_, expected)| expected.peer == address && expected.is_opening_udp());
        let Some((greeting, expected)) = waiting else { return (DatagramFate::Ignore, None) };
        if !takes_one(&expected.wants) {
            return (DatagramFate::Ignore, None);
        }
        let index = u16::try_from(expected.udp_peers.len()).unwrap_or(u16::MAX);
        (claim(expected, index, from), Some(*greeting))
    }

    /// From now on datagrams of strangers are this personality's session's; false while another session of the same address
    /// waits for some.
    fn claim_udp(&self, key: &Key) -> bool {
        let Key::Foreign(own) = key else { return true };
        let mut inner = self.lock();
        let Some(peer) = inner.foreign.get(own).map(|expected| expected.peer) else { return true };
        let mut others = inner.foreign.iter().filter(|(greeting, _)| *greeting != own);
        if others.any(|(_, other)| other.peer == peer && other.is_opening_udp()) {
            return false;
        }
        if let Some(expected) = inner.foreign.get_mut(own) {
            expected.wants_udp = true;
        }
        true
    }

    /// Delivers the socket of a UDP stream of our protocol.
    pub(super) fn deliver_udp(&self, token: &Token, index: u16, socket: UdpSocket) {
        if let Some(expected) = self.lock().ours.get(token) {
            offer(&expected.arrivals, Arrival::Udp { index, socket, first: Vec::new() });
        }
    }

    /// Delivers the socket of a personality's UDP stream with its first datagram.
    pub(super) fn deliver_foreign_udp(
        &self,
        greeting: &[u8; GREETING_BYTES],
        socket: UdpSocket,
        first: Vec<u8>,
    ) {
        if let Some(expected) = self.lock().foreign.get(greeting) {
            offer(&expected.arrivals, Arrival::Udp { index: 0, socket, first });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every critical section leaves the maps consistent, so a panic elsewhere does not matter.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a session expects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Upper bound on the streams, TCP or UDP.
    pub(super) streams_max: usize,
    /// Expects path MTU probes instead of streams.
    pub(super) probes: bool,
}

fn expected(peer: IpAddr, local: SocketAddr, wanted: Wanted) -> (Expected, Receiver<Arrival>) {
    let (sender, arrivals) = sync_channel(wanted.streams_max + SURPLUS_MAX);
    let expected = Expected {
        peer: peer.to_canonical(),
        local: canonical(local),
        arrivals: sender,
        udp_peers: HashMap::new(),
        streams_max: wanted.streams_max,
        probes: wanted.probes,
        wants_udp: false,
        wants: Arc::default(),
    };
    (expected, arrivals)
}

/// Converts an IPv4-mapped IPv6 address to IPv4; leaves others unchanged, including the scope.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

fn claim(expected: &mut Expected, index: u16, from: SocketAddr) -> DatagramFate {
    let full = expected.udp_peers.len() >= expected.streams_max;
    if full || expected.udp_peers.contains_key(&index) {
        return DatagramFate::Ignore;
    }
    expected.udp_peers.insert(index, from);
    DatagramFate::Connect { local: expected.local }
}

/// Decrements the number of wanted connections; returns `false` if it was 0.
fn takes_one(wants: &AtomicUsize) -> bool {
    let relaxed = Ordering::Relaxed;
    wants.fetch_update(relaxed, relaxed, |left| left.checked_sub(1)).is_ok()
}

fn offer(arrivals: &SyncSender<Arrival>, arrival: Arrival) -> bool {
    match arrivals.try_send(arrival) {
        Ok(()) => true,
        // Drops the connections that the session does not fetch.
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
    }
}

#[derive(Debug)]
enum Key {
    Ours(Token),
    Foreign([u8; GREETING_BYTES]),
}

/// The data connections of one session. Dropping it ends the registration.
#[derive(Debug)]
pub(super) struct Inbox {
    registry: Arc<Registry>,
    key: Key,
    arrivals: Receiver<Arrival>,
}

impl Inbox {
    /// The next arrival, after waiting at most `timeout`.
    pub(super) fn next(&self, timeout: Duration) -> Option<Arrival> {
        self.arrivals.recv_timeout(timeout).ok()
    }

    fn wait(&self, deadline: Instant) -> Result<Arrival, DataError> {
        loop {
            if self.registry.is_ending() {
                return Err(DataError::Ending);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.arrivals.recv_timeout(left.min(LOOK_UP_EVERY)) {
                Ok(arrival) => return Ok(arrival),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(DataError::Timeout),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(DataError::Ending),
            }
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        match &self.key {
            Key::Ours(token) => drop(inner.ours.remove(token)),
            Key::Foreign(greeting) => drop(inner.foreign.remove(greeting)),
        }
    }
}

/// The data connections of a personality's session.
#[derive(Debug)]
pub(super) struct ForeignInbox {
    inbox: Inbox,
    wants: Arc<AtomicUsize>,
    place: Arc<Place>,
    share: Option<Share>,
}

impl DataConnections for ForeignInbox {
    fn reserve(&mut self, need: Need) -> Result<(), Refusal> {
        self.share = Some(self.place.take(need)?);
        let streams_count = usize::try_from(need.streams).unwrap_or(usize::MAX);
        self.wants.store(streams_count, Ordering::Relaxed);
        Ok(())
    }

    fn expect_udp(&mut self, deadline: Instant) -> Result<(), DataError> {
        while !self.inbox.registry.claim_udp(&self.inbox.key) {
            if self.inbox.registry.is_ending() {
                return Err(DataError::Ending);
            }
            if Instant::now() >= deadline {
                return Err(DataError::Timeout);
            }
            std::thread::sleep(TURN_EVERY);
        }
        Ok(())
    }

    fn next_tcp(&mut self, deadline: Instant) -> Result<(u64, TcpStream), DataError> {
        loop {
            if let Arrival::Foreign { place, stream } = self.inbox.wait(deadline)? {
                stream.set_nonblocking(false)?;
                return Ok((place, stream));
            }
        }
    }

    fn next_udp(&mut self, deadline: Instant) -> Result<(UdpSocket, Vec<u8>), DataError> {
        self.expect_udp(deadline)?;
        loop {
            if let Arrival::Udp { socket, first, .. } = self.inbox.wait(deadline)? {
                return Ok((socket, first));
            }
        }
    }
}
