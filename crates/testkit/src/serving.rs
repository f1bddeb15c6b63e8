//! A daemon in a thread.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::socket::socket_path;
use packet_switch::attachment::{Ask, Request, Shape};
use packet_switch::client::Connection;
use packet_switch::daemon::{Config, Daemon, Notice};
use ring::Patience;

/// Long enough for anything on a busy machine.
pub const SOON: Patience = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(20) };

#[derive(Debug)]
pub struct Serving {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    notices: Arc<Mutex<Vec<Notice>>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub fn start(name: &str) -> Self {
        Self::start_as(Config::new(socket_path(name)))
    }

    /// One that rings by plain writes.
    pub fn start_plain(name: &str) -> Self {
        Self::start_as(Config { plain_bells: true, ..Config::new(socket_path(name)) })
    }

    fn start_as(config: Config) -> Self {
        let path = config.socket.clone();
        let daemon = Daemon::bind(config).unwrap();
        let (stop, notices) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, log) = (Arc::clone(&stop), Arc::clone(&notices));
        let thread = std::thread::spawn(move || {
            let mut notice = |one| log.lock().unwrap().push(one);
            daemon.run(&mut notice, &|| stopped.load(Ordering::Relaxed)).unwrap();
        });
        Self { path, stop, notices, thread: Some(thread) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn connect(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    pub fn notices(&self) -> Vec<Notice> {
        self.notices.lock().unwrap().clone()
    }

    /// A new attachment as it comes over the socket.
    pub fn raw_attach(&self, port: &str) -> RawAttachment {
        let socket = shm::Socket::connect(&self.path).unwrap();
        let ask = Ask::AttachPort { port: port.parse().unwrap(), shape: Shape::default() };
        socket.send(&Request::encode(ask), &[]).unwrap();
        let shm::Message::Received { fds, .. } = socket.receive().unwrap() else { panic!() };
        RawAttachment { fds, _socket: socket }
    }
}

/// Lasts as long as its socket.
#[derive(Debug)]
pub struct RawAttachment {
    pub fds: Vec<OwnedFd>,
    _socket: shm::Socket,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the daemon ends when asked");
    }
}

pub fn frame(from: u8, to: u8, fill: u8) -> [u8; 60] {
    let mut frame = [fill; 60];
    let station = |number: u8| if number == 0xff { [0xff; 6] } else { [2, 0, 0, 0, 0, number] };
    frame[..6].copy_from_slice(&station(to));
    frame[6..12].copy_from_slice(&station(from));
    frame
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}
