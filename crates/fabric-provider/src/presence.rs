//! Whether a silent peer is there. Each endpoint accepts TCP connections at its UDP port: the kernel of a
//! host that runs answers the connection, a thread of a process that runs writes a byte to it, however
//! long the program computes, and the kernel refuses it where the process has ended.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Duration;

use messaging::PeerId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

/// How long nobody is answered where there is no descriptor for it.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);
/// Probes under way at once, at most.
const PROBES_MAX: usize = 64;

/// Answers for this process.
#[derive(Debug)]
pub(crate) struct Presence {
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Presence {
    /// Answers at an address.
    pub(crate) fn open(at: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        let accepting = listener.try_clone()?;
        let thread = without_signals(|| {
            std::thread::Builder::new().name("clearstream-fi".to_owned()).spawn(move || {
                loop {
                    match accepting.accept() {
                        Ok((mut stream, _from)) => drop(stream.write_all(&[1])),
                        // The socket was shut down.
                        Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                        // The program may have no descriptor left now; it still runs.
                        Err(_) => std::thread::sleep(SHORTAGE_PAUSE),
                    }
                }
            })
        })?;
        Ok(Self { listener, thread: Some(thread) })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.listener, Shutdown::Both).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Starts a thread that takes no signals: they are the program's.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: room for a set, which the call fills.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: a full set, and room for the one before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let started = start();
    // SAFETY: the set that the call above gave; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

/// What a probe found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The peer's host runs.
    Host,
    /// The peer's process runs.
    Process,
    /// Nobody listens there any more.
    Nobody,
}

/// Probes under way.
#[derive(Debug, Default)]
pub(crate) struct Probes(Vec<Probe>);

#[derive(Debug)]
struct Probe {
    peer: PeerId,
    socket: OwnedFd,
    is_connected: bool,
}

impl Probes {
    /// Asks a peer, without waiting.
    pub(crate) fn ask(&mut self, peer: PeerId, at: SocketAddr) {
        self.0.retain(|probe| probe.peer != peer);
        if self.0.len() >= PROBES_MAX {
            self.0.remove(0);
        }
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::socket_with(family, SocketType::STREAM, flags, None) else {
            return;
        };
        // Whether it succeeds is seen later, a refusal at once too.
        rustix::net::connect(&socket, &at).ok();
        self.0.push(Probe { peer, socket, is_connected: false });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was found out since.
    pub(crate) fn found(&mut self) -> Vec<(PeerId, Found)> {
        let mut found = Vec::new();
        self.0.retain_mut(|probe| {
            let (what, goes_on) = probe.look();
            found.extend(what.map(|what| (probe.peer, what)));
            goes_on
        });
        found
    }
}

impl Probe {
    /// What is new, and whether there may be more.
    fn look(&mut self) -> (Option<Found>, bool) {
        if !self.is_connected {
            let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut polled, Some(&at_once)).unwrap_or(0) == 0 {
                return (None, true);
            }
            return match rustix::net::sockopt::socket_error(&self.socket) {
                Ok(Ok(())) => {
                    self.is_connected = true;
                    (Some(Found::Host), true)
                }
                Ok(Err(rustix::io::Errno::CONNREFUSED)) => (Some(Found::Nobody), false),
                _ => (None, false),
            };
        }
        let Ok(copy) = self.socket.try_clone() else { return (None, false) };
        let mut byte = [0; 1];
        match TcpStream::from(copy).read(&mut byte) {
            Ok(1) => (Some(Found::Process), false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (None, true),
            _ => (None, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn wait_for(probes: &mut Probes, what: Found) {
        let began = Instant::now();
        let mut all = Vec::new();
        while !all.contains(&(PeerId(3), what)) {
            all.extend(probes.found());
            assert!(began.elapsed() < Duration::from_secs(10), "{all:?} without {what:?}");
        }
    }

    #[test]
    fn a_process_that_runs_answers_and_one_that_ended_is_refused() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = free.local_addr().unwrap();
        drop(free);
        let presence = Presence::open(at).unwrap();
        let mut probes = Probes::default();
        probes.ask(PeerId(3), at);
        wait_for(&mut probes, Found::Process);
        assert!(probes.is_empty());
        drop(presence);
        probes.ask(PeerId(3), at);
        wait_for(&mut probes, Found::Nobody);
    }

    /// As a stopped process: its kernel answers, it does not.
    #[test]
    fn a_process_that_does_not_run_is_told_from_its_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut probes = Probes::default();
        probes.ask(PeerId(3), listener.local_addr().unwrap());
        wait_for(&mut probes, Found::Host);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(probes.found(), []);
        assert!(!probes.is_empty());
    }
}
