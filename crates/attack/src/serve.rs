//! `serve` under attack, and a guest at another address who wants nothing but short tests.

pub(crate) mod control;
pub(crate) mod iperf3;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use results::{TestLimit, TestSpec};
use traffic::client::{self, ClientError, Target};
use traffic::control::{FrameBuffer, Purpose, RefusalCode, SERVER_FRAME_BYTES_MAX, ServerMessage};

use crate::case::{Case, Scene};
use crate::judge::Judgement;
use crate::program::Daemon;
use testkit::spans::{ms, now_ns};
use testkit::stalls::lock;

/// All attacks on `serve`.
pub(crate) fn cases() -> Vec<Case> {
    [control::CASES, iperf3::CASES].concat()
}

/// A guest gets its test, or a word that the server is busy, within this.
const GUEST_MAX: Duration = Duration::from_secs(5);
/// After an attack it gets its test within this: those who are silent are disconnected by then.
const AFTER_MAX: Duration = Duration::from_secs(15);
/// What the server may use for all tests (`--memory`), bytes: the largest tests that attacks ask for do not fit.
const MEMORY: u64 = 1 << 30;
/// Resident memory beyond that, bytes: the program itself, and connections that are no clients yet.
const BESIDE: u64 = 64 << 20;
/// From one test of the guest to the next.
const GUEST_EVERY: Duration = Duration::from_millis(100);

/// A server under attack, and its guest.
#[derive(Debug)]
pub(crate) struct Served {
    daemon: Daemon,
    pub(crate) port: u16,
    guest: Arc<Guest>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Guest {
    stop: AtomicBool,
    /// Held during a test.
    tests: Mutex<()>,
    worst_ns: AtomicU64,
    /// Number of the test that was begun last.
    begun: AtomicU64,
    /// Number of the last one that the server ran.
    had: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Served {
    pub(crate) fn open(program: &Path, folder: &Path, number: u32) -> Result<Self, String> {
        let port = testkit::port::free_port();
        let text = port.to_string();
        let log = folder.join(format!("serve-{number}.log"));
        // All of 127.0.0.0/8 is this host.
        let memory = MEMORY.to_string();
        let arguments = ["serve", "--bind", "0.0.0.0", "--port", &text, "--memory", &memory];
        let mut daemon = Daemon::start_listening(program, &arguments, log, port)?;
        test_once(port).map_err(|error| format!("serve does not serve: {error}"))?;
        std::thread::sleep(Duration::from_millis(200));
        daemon.take_base()?;
        let guest = Arc::new(Guest::default());
        let its = Arc::clone(&guest);
        let thread = Some(std::thread::spawn(move || its.visit(port)));
        Ok(Self { daemon, port, guest, thread })
    }

    /// Plays an attack and judges it.
    pub(crate) fn round(&mut self, attack: impl FnOnce() -> Result<(), String>) -> Judgement {
        self.guest.worst_ns.store(0, Ordering::Relaxed);
        let (stop, pid) = (Arc::new(AtomicBool::new(false)), self.daemon.pid());
        let stopped = Arc::clone(&stop);
        let meter = std::thread::spawn(move || largest(pid, &stopped));
        let outcome = attack();
        stop.store(true, Ordering::Relaxed);
        let resident_bytes = meter.join().unwrap_or(0);
        let after = self.next_test();
        let health = {
            // The guest's own test is no part of what is left behind.
            let _no_test = lock(&self.guest.tests);
            self.daemon.check()
        };
        let answer_ms = ms(self.guest.worst_ns.load(Ordering::Relaxed));
        let too_large = (resident_bytes > MEMORY + BESIDE).then(|| {
            let most = (MEMORY + BESIDE) >> 20;
            format!("{} MiB resident during the attack, {most} allowed", resident_bytes >> 20)
        });
        let slow = (answer_ms > GUEST_MAX.as_secs_f64() * 1e3)
            .then(|| format!("the guest waited {answer_ms:.0} ms"));
        let guest = lock(&self.guest.trouble).take();
        let broken = guest.or(outcome.err()).or(after.err()).or(health.err()).or(too_large);
        Judgement { answer_ms, broken, slow, ..Judgement::default() }
    }

    /// Waits until the guest has had a test that began after now.
    fn next_test(&self) -> Result<(), String> {
        let (begun, since) = (self.guest.begun.load(Ordering::Relaxed), Instant::now());
        while self.guest.had.load(Ordering::Relaxed) <= begun {
            if since.elapsed() > AFTER_MAX {
                return Err(format!("no test for a guest {AFTER_MAX:?} after the attack"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.guest.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Most resident memory until it is told to stop, bytes.
fn largest(pid: u32, stop: &AtomicBool) -> u64 {
    let mut most = 0;
    while !stop.load(Ordering::Relaxed) {
        most = most.max(crate::program::size_of(pid).map_or(0, |size| size.resident_bytes));
        std::thread::sleep(Duration::from_millis(20));
    }
    most
}

impl Guest {
    fn visit(&self, port: u16) {
        while !self.stop.load(Ordering::Relaxed) {
            self.test(port);
            std::thread::sleep(GUEST_EVERY);
        }
    }

    fn test(&self, port: u16) {
        let _test = lock(&self.tests);
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let from_ns = now_ns();
        match test_once(port) {
            Ok(()) => self.had.store(number, Ordering::Relaxed),
            // Said clearly.
            Err(ClientError::Refused { refusal, .. }) if refusal.code == RefusalCode::Busy => {}
            Err(error) => {
                lock(&self.trouble).get_or_insert(format!("the guest got no test: {error}"));
            }
        }
        self.worst_ns.fetch_max(now_ns() - from_ns, Ordering::Relaxed);
    }
}

/// A tenth of a second, far below what the machine can.
fn test_once(port: u16) -> Result<(), ClientError> {
    let mut spec = TestSpec::tcp();
    spec.limit = TestLimit::DurationS(0.1);
    spec.interval_s = 0.05;
    spec.offered_bits_per_s = Some(20e6);
    let target = Target { host: "127.0.0.1".to_owned(), port, family: None };
    client::run_test(&target, &spec, &mut |_| {}, &|| false).map(|_| ())
}

/// A hostile peer's connection from any address of this host.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    buffer: FrameBuffer,
}

/// How long a peer waits for what the server says.
const PATIENCE: Duration = Duration::from_secs(5);

impl Peer {
    pub(crate) fn connect(scene: &Scene, from: u8) -> Result<Self, String> {
        let stream = connect_from(from, scene.port).map_err(|error| format!("connect: {error}"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        Ok(Self { stream, buffer: FrameBuffer::new(SERVER_FRAME_BYTES_MAX) })
    }

    /// Past the greeting; none where the server has no place.
    pub(crate) fn greeted(scene: &Scene, from: u8) -> Result<Option<Self>, String> {
        let mut peer = Self::connect(scene, from)?;
        peer.send(&Purpose::Control.greeting());
        Ok(matches!(peer.hear(), Some(ServerMessage::Hello { .. })).then_some(peer))
    }

    /// The server may have closed already.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub(crate) fn say(&mut self, json: &str) -> bool {
        let length = u32::try_from(json.len()).unwrap_or(u32::MAX).to_be_bytes();
        self.send(&length) && self.send(json.as_bytes())
    }

    /// The next message; none when the server has closed or says nothing.
    pub(crate) fn hear(&mut self) -> Option<ServerMessage> {
        let mut bytes = [0; 4096];
        loop {
            if let Ok(Some(message)) = self.buffer.next_message() {
                return Some(message);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.buffer.extend(&bytes[..count]),
            }
        }
    }
}

/// From 127.0.0.`from`.
pub(crate) fn connect_from(from: u8, port: u16) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, from), 0))?;
    rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    Ok(socket.into())
}
