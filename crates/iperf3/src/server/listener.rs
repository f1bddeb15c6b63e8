//! The listening sockets of `iperf3 -s`: one client at a time, the others are told that it is busy.
//!
//! One thread accepts connections. The cookie of each is read by a thread of its own, so that a client
//! that stays silent delays no other; at most `UNIDENTIFIED_MAX` connections may wait like this, and a
//! newcomer displaces one of them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sys::socket::{Family as IpFamily, Transport, new_socket};

use super::unidentified::Unidentified;
use crate::channel::{Interrupted, is_pause, wait_readable};
use crate::failure::{self, Iperf3Error, OptionKind};
use crate::options::{Family, Options};
use crate::wire::{COOKIE_BYTES, Cookie, State, UDP_HELLO, UDP_HELLO_LEGACY};
use traffic::control::{Refusal, RefusalCode};
use traffic::engine::Need;
use traffic::server::{DataConnections, DataError, default_memory_bytes};

/// Connections whose cookie has not come yet: twice the streams of the largest test.
const UNIDENTIFIED_MAX: usize = 512;

/// How long a cookie may take.
const COOKIE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a client waits for the one before it to be gone entirely, so that scripts may run test
/// after test.
const TURN_PATIENCE: Duration = Duration::from_millis(250);

/// Connections waiting to be accepted.
const BACKLOG: i32 = 128;

/// A client that has been let in.
#[derive(Debug)]
pub struct AdmittedClient {
    /// Its control connection.
    pub control: TcpStream,
    /// The name of its test.
    pub cookie: [u8; COOKIE_BYTES],
}

/// A server's port, TCP and UDP.
#[derive(Debug)]
pub struct Listener {
    admission: Arc<Admission>,
    admitted: Receiver<AdmittedClient>,
    udp: Option<UdpSocket>,
    place: ListenAddress,
    thread: Option<JoinHandle<()>>,
}

/// Where to listen.
#[derive(Debug, Clone)]
struct ListenAddress {
    address: SocketAddr,
    dual_stack: bool,
    device: Option<String>,
}

/// The cookie of the running test and where its data connections go, each with its place among all
/// that were accepted.
type Running = Option<(Cookie, Sender<(u64, TcpStream)>)>;

#[derive(Debug)]
struct Admission {
    closed: AtomicBool,
    unidentified: Unidentified,
    test: Mutex<Running>,
    admitted: Sender<AdmittedClient>,
}

impl Listener {
    /// Listens as the options say.
    ///
    /// # Errors
    /// The port is taken, the address is not one of this host.
    pub fn bind(options: &Options) -> Result<Self, Iperf3Error> {
        let (listener, place) = listen(options)?;
        listener.set_nonblocking(true).map_err(Iperf3Error::Listen)?;
        let (sender, admitted) = channel();
        let admission = Arc::new(Admission {
            closed: AtomicBool::new(false),
            unidentified: Unidentified::new(UNIDENTIFIED_MAX),
            test: Mutex::new(None),
            admitted: sender,
        });
        let udp = datagram_socket(&place).map_err(Iperf3Error::Listen)?;
        let keeper = Arc::clone(&admission);
        let thread = std::thread::Builder::new()
            .name("cs-accept".to_owned())
            .spawn(move || keep(&keeper, &listener))
            .map_err(Iperf3Error::Listen)?;
        Ok(Self { admission, admitted, udp: Some(udp), place, thread: Some(thread) })
    }

    /// The port listened on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.place.address.port()
    }

    /// Waits for the next client; `None` when none came within `idle` (0: no limit) or a signal
    /// came.
    pub fn next_client(
        &self,
        idle: Duration,
        interrupted: Interrupted<'_>,
    ) -> Option<AdmittedClient> {
        let start = Instant::now();
        loop {
            if interrupted().is_some() || (!idle.is_zero() && start.elapsed() >= idle) {
                return None;
            }
            match self.admitted.recv_timeout(Duration::from_millis(100)) {
                Ok(client) => return Some(client),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// The data connections of this client's test. While it lives, others are turned away.
    pub fn connections(&mut self, client: &AdmittedClient) -> Connections<'_> {
        let (sender, streams) = channel();
        *self.admission.test() = Some((Cookie(client.cookie), sender));
        // One that has left already gets no datagrams.
        let host = client.control.peer_addr().ok().map(|peer| peer.ip().to_canonical());
        Connections { listener: self, streams, host }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.admission.closed.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            thread.join().ok();
        }
    }
}

/// The data connections of one test.
#[derive(Debug)]
pub struct Connections<'a> {
    listener: &'a mut Listener,
    streams: Receiver<(u64, TcpStream)>,
    /// Where the control connection comes from. A greeting over UDP proves nothing about its sender:
    /// without this comparison it would direct the test's datagrams at anybody.
    host: Option<IpAddr>,
}

impl Drop for Connections<'_> {
    fn drop(&mut self) {
        *self.listener.admission.test() = None;
    }
}

impl DataConnections for Connections<'_> {
    fn reserve(&mut self, need: Need) -> Result<(), Refusal> {
        // One test at a time: nobody else holds any of it.
        let most_bytes = default_memory_bytes();
        if need.bytes <= most_bytes {
            return Ok(());
        }
        let [asked, most] = [need.bytes, most_bytes].map(units::show_byte_size);
        let reason = format!("this test needs {asked} of memory; this server allows {most}");
        Err(Refusal { code: RefusalCode::Limit, reason })
    }

    fn next_tcp(&mut self, deadline: Instant) -> Result<(u64, TcpStream), DataError> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.streams.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => DataError::Timeout,
            RecvTimeoutError::Disconnected => DataError::Ending,
        })
    }

    fn next_udp(&mut self, deadline: Instant) -> Result<(UdpSocket, Vec<u8>), DataError> {
        loop {
            let socket = match self.listener.udp.take() {
                Some(socket) => socket,
                None => datagram_socket(&self.listener.place)?,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !wait_readable(socket.as_fd(), left) {
                self.listener.udp = Some(socket);
                if Instant::now() >= deadline {
                    return Err(DataError::Timeout);
                }
                continue;
            }
            let mut hello = [0; 4];
            // What an earlier test left behind, or another host sends, is no greeting.
            let from = match socket.recv_from(&mut hello) {
                Ok((4, from))
                    if [UDP_HELLO, UDP_HELLO_LEGACY].contains(&hello)
                        && self.host == Some(from.ip().to_canonical()) =>
                {
                    from
                }
                Ok(_) | Err(_) => {
                    self.listener.udp = Some(socket);
                    continue;
                }
            };
            socket.connect(from)?;
            // The next stream's greeting needs somebody to hear it before this one is answered.
            self.listener.udp = Some(datagram_socket(&self.listener.place)?);
            return Ok((socket, hello.to_vec()));
        }
    }
}

impl Admission {
    fn test(&self) -> std::sync::MutexGuard<'_, Running> {
        self.test.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides on a connection that has said its cookie; `place`: its place among those accepted.
    fn admit(&self, place: u64, stream: Arc<TcpStream>, cookie: Cookie) {
        let deadline = Instant::now() + TURN_PATIENCE;
        // Displaced, it is closed already.
        let leaving =
            |stream| self.unidentified.leave(place).then(|| Arc::into_inner(stream)).flatten();
        loop {
            let mut test = self.test();
            match &*test {
                Some((name, data)) if *name == cookie => {
                    if let Some(stream) = leaving(stream) {
                        // A test that is over needs no more data.
                        data.send((place, stream)).ok();
                    }
                    return;
                }
                Some(_) if Instant::now() < deadline => {
                    drop(test);
                    std::thread::sleep(Duration::from_millis(10));
                }
                Some(_) => {
                    // Told or not, it is turned away.
                    (&*stream).write_all(&[State::AccessDenied.byte()]).ok();
                    self.unidentified.leave(place);
                    return;
                }
                None => {
                    let Some(control) = leaving(stream) else { return };
                    // Busy from now on; `connections` puts the test's own channel in place.
                    let (sender, _nobody) = channel();
                    *test = Some((cookie, sender));
                    drop(test);
                    // Without a listener there is nobody to serve.
                    self.admitted.send(AdmittedClient { control, cookie: cookie.0 }).ok();
                    return;
                }
            }
        }
    }
}

/// The accepting thread.
fn keep(admission: &Arc<Admission>, listener: &TcpListener) {
    let mut accepted_count = 0;
    while !admission.closed.load(Ordering::Relaxed) {
        if !wait_readable(listener.as_fd(), Duration::from_millis(100)) {
            continue;
        }
        let Ok((stream, from)) = listener.accept() else {
            // Out of descriptors, it stays readable: without a pause this would spin.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        accepted_count += 1;
        let place = accepted_count;
        let stream = admission.unidentified.enter(place, from.ip(), stream);
        let guard = Arc::clone(admission);
        let body = move || match read_cookie(&stream, &guard.closed) {
            Ok(cookie) => guard.admit(place, stream, cookie),
            Err(_) => {
                guard.unidentified.leave(place);
            }
        };
        let spawned = std::thread::Builder::new().name("cs-cookie".to_owned()).spawn(body);
        if spawned.is_err() {
            admission.unidentified.leave(place);
        }
    }
}

fn read_cookie(mut stream: &TcpStream, closed: &AtomicBool) -> io::Result<Cookie> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let deadline = Instant::now() + COOKIE_PATIENCE;
    let mut bytes = [0; COOKIE_BYTES];
    let mut have = 0;
    while have < COOKIE_BYTES {
        if closed.load(Ordering::Relaxed) || Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut bytes[have..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => have += count,
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Cookie(bytes))
}

/// The first place that can be listened on: both families, else IPv4.
fn listen(options: &Options) -> Result<(TcpListener, ListenAddress), Iperf3Error> {
    let mut places = Vec::new();
    let address = match &options.bind_address {
        Some(text) => {
            let found = crate::sockets::resolve(text, options.port, options.family);
            let unknown = |text: String| Iperf3Error::Listen(io::Error::other(text));
            Some(found.map_err(unknown)?)
        }
        None => None,
    };
    let place = |ip: IpAddr, dual_stack| ListenAddress {
        address: SocketAddr::new(ip, options.port),
        dual_stack,
        device: options.bind_device.clone(),
    };
    match (address, options.family) {
        (Some(addresses), _) => {
            places.extend(addresses.into_iter().map(|address| place(address.ip(), false)));
        }
        (None, Family::V4) => places.push(place(Ipv4Addr::UNSPECIFIED.into(), false)),
        (None, Family::V6) => places.push(place(Ipv6Addr::UNSPECIFIED.into(), false)),
        (None, Family::Any) => {
            places.push(place(Ipv6Addr::UNSPECIFIED.into(), true));
            places.push(place(Ipv4Addr::UNSPECIFIED.into(), false));
        }
    }
    let transport = if options.mptcp { Transport::Mptcp } else { Transport::Tcp };
    let mut last = Iperf3Error::Listen(io::ErrorKind::AddrNotAvailable.into());
    for mut place in places {
        match listen_at(&place, transport) {
            Ok(listener) => {
                place.address = listener.local_addr().map_err(Iperf3Error::Listen)?;
                return Ok((listener, place));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn listen_at(place: &ListenAddress, transport: Transport) -> Result<TcpListener, Iperf3Error> {
    let socket = bound_socket(place, transport)?;
    rustix::net::listen(&socket, BACKLOG).map_err(|error| Iperf3Error::Listen(error.into()))?;
    Ok(TcpListener::from(socket))
}

fn datagram_socket(place: &ListenAddress) -> io::Result<UdpSocket> {
    let socket = bound_socket(place, Transport::Udp).map_err(|error| match error {
        Iperf3Error::Listen(error) => error,
        other => io::Error::other(other.to_string()),
    })?;
    Ok(UdpSocket::from(socket))
}

fn bound_socket(place: &ListenAddress, transport: Transport) -> Result<OwnedFd, Iperf3Error> {
    let failed = |error: rustix::io::Errno| Iperf3Error::Listen(error.into());
    let socket = new_socket(IpFamily::of(&place.address), transport)
        .map_err(|error| Iperf3Error::Listen(error.source))?;
    if let Some(device) = &place.device {
        sys::binding::bind_to_device(&socket, device).map_err(|error| {
            Iperf3Error::Option(failure::Refusal::new(OptionKind::BindDevice, error.source))
        })?;
    }
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    if place.address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, !place.dual_stack).map_err(failed)?;
    }
    rustix::net::bind(&socket, &place.address).map_err(failed)?;
    Ok(socket)
}
