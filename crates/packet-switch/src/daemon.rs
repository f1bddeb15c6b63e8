//! The process behind the ports: one control thread for all clients, and a thread a switch.
//!
//! The control thread makes memory and bells, hands them out, and watches the connections: when one
//! closes, however its process ended, its attachments end. It never touches frames.

mod devices;
mod entries;
mod make;
mod monitors;
mod refusal;
mod registry;
mod session;
mod settings;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use shm::{Listener, Message, Socket};
use sys::SyscallError;
use sys::sandbox::{self, Calls};
use thiserror::Error;

use crate::attachment::{Answer, Delivery, MessageError, Request};
use refusal::Refusal;
use registry::{Asked, Registry};
use session::{Session, SessionId};

/// How the daemon is to be.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect.
    pub socket: PathBuf,
    /// How long an idle switch polls at most before it sleeps; less where that has not paid lately.
    pub linger: Duration,
    /// The cores on which the switches' threads run; any when empty.
    pub cores: Vec<u32>,
    /// Most memory for all regions together, bytes.
    pub memory_bytes_max: u64,
    /// Most connections at once.
    pub sessions_max: usize,
}

impl Config {
    /// With the usual limits.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            linger: crate::client::LINGER,
            cores: Vec::new(),
            memory_bytes_max: 8 << 30,
            sessions_max: 1024,
        }
    }
}

/// Why the daemon cannot begin or go on.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Somebody serves that socket already.
    #[error("another switch serves {}", .0.display())]
    Taken(PathBuf),
    /// Something that is no socket is where clients would connect.
    #[error("{} is there and no socket; it is left alone", .0.display())]
    NoSocket(PathBuf),
    /// The kernel refused.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// A switch's thread ended.
    #[error("the thread of switch {switch} ended: {why}")]
    Thread {
        /// Which.
        switch: String,
        /// What it said.
        why: String,
    },
}

/// What happens, for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A client attached to a port or pipe.
    Attached {
        /// `vale0:a`.
        name: String,
        /// The client's user id.
        user: u32,
    },
    /// It left, or was taken away.
    Detached {
        /// `vale0:a`.
        name: String,
    },
    /// It broke the protocol.
    CutOff {
        /// `vale0:a`.
        name: String,
        /// How.
        why: String,
    },
    /// Somebody was told no.
    Refused {
        /// The client's user id.
        user: u32,
        /// Why.
        why: String,
    },
}

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    listener: Listener,
    registry: Registry,
    sessions: BTreeMap<SessionId, Session>,
    next_session: SessionId,
    /// Given up for a moment to tell one more client that there is no other.
    spare: Option<OwnedFd>,
    /// Nobody can be told now: the listener is left alone until the next look around.
    deaf: bool,
}

/// How often the control thread looks around unasked: at the caller's wish to stop, and at switches
/// that hang in waking a client.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// After so many new connections those that are there have their turn, however many more wait.
const ACCEPTED_AT_ONCE: usize = 64;

impl Daemon {
    /// Listens; from now on clients can connect, and are served once [`run`](Self::run) is called.
    ///
    /// # Errors
    /// Another daemon serves that socket, or the kernel refused.
    pub fn bind(config: Config) -> Result<Self, DaemonError> {
        let listener =
            Listener::bind(&config.socket).map_err(|error| match error.source.kind() {
                io::ErrorKind::AddrInUse => DaemonError::Taken(config.socket.clone()),
                _ if error.source.raw_os_error() == Some(Errno::NOTSOCK.raw_os_error()) => {
                    DaemonError::NoSocket(config.socket.clone())
                }
                _ => DaemonError::Syscall(error),
            })?;
        let registry = Registry::new(&config)?;
        // Without it the first client would wait for ever.
        let spare = Some(spare(&listener)?);
        let sessions = BTreeMap::new();
        Ok(Self { config, listener, registry, sessions, next_session: 0, spare, deaf: false })
    }

    /// Has the calling thread, which is to [`run`](Self::run) the daemon, and those that carry its frames
    /// give up all system calls they have no need of, for good: see [`sys::sandbox`].
    ///
    /// # Errors
    /// The kernel cannot do that; the daemon serves all the same.
    pub fn confine(&mut self) -> Result<(), SyscallError> {
        sandbox::enter(Calls::Serve)?;
        self.registry.threads.confined = true;
        Ok(())
    }

    /// Serves until `stop` says so; it is asked ten times a second and after every signal.
    ///
    /// # Errors
    /// A switch's thread ended, or the kernel refused something that the daemon cannot do without.
    pub fn run(
        mut self,
        notice: &mut dyn FnMut(Notice),
        stop: &dyn Fn() -> bool,
    ) -> Result<(), DaemonError> {
        let mut watched = Instant::now();
        while !stop() {
            let ready = self.wait()?;
            for id in ready {
                self.serve(id, notice);
            }
            for (id, answer) in self.registry.settle_trouble(notice)? {
                if let Some(session) = self.sessions.get(&id) {
                    session.tell(&answer.into());
                }
            }
            if watched.elapsed() >= WATCH_INTERVAL {
                watched = Instant::now();
                self.deaf = false;
                self.spare = self.spare.take().or_else(|| spare(&self.listener).ok());
                self.registry.watch_bells();
            }
            self.accept()?;
        }
        Ok(())
    }

    /// Waits for something to do; the sessions that have something to say.
    fn wait(&self) -> Result<Vec<SessionId>, SyscallError> {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        let mut set = vec![
            PollFd::new(&self.listener, if self.deaf { PollFlags::empty() } else { PollFlags::IN }),
            PollFd::new(self.registry.trouble_bell(), PollFlags::IN),
        ];
        set.extend(
            self.sessions
                .values()
                .map(|session| PollFd::from_borrowed_fd(session.socket.as_fd(), PollFlags::IN)),
        );
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(WATCH_INTERVAL.subsec_nanos()) };
        match rustix::event::poll(&mut set, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(SyscallError::new("poll", "clients", error)),
        }
        let ready = set[2..].iter().map(|one| !one.revents().is_empty());
        Ok(ids.into_iter().zip(ready).filter_map(|(id, ready)| ready.then_some(id)).collect())
    }

    fn accept(&mut self) -> Result<(), SyscallError> {
        for _ in 0..ACCEPTED_AT_ONCE {
            let socket = match self.listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return Ok(()),
                Err(error) if is_shortage(&error) => {
                    self.turn_away();
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if self.sessions.len() >= self.config.sessions_max {
                refuse(&socket, &format!("{} clients are all I serve", self.config.sessions_max));
                continue;
            }
            let Ok(user) = socket.peer_user() else { continue };
            self.next_session += 1;
            self.sessions.insert(self.next_session, Session { socket, user });
        }
        Ok(())
    }

    /// No descriptor is left for another client: it is told so with the spare one. If even that fails,
    /// whoever waits goes on waiting, and those who are served are served.
    fn turn_away(&mut self) {
        self.spare = None;
        match self.listener.accept() {
            Ok(Some(socket)) => refuse(&socket, "no file descriptor left for another client"),
            _ => self.deaf = true,
        }
        self.spare = spare(&self.listener).ok();
    }

    fn serve(&mut self, id: SessionId, notice: &mut dyn FnMut(Notice)) {
        let Some(session) = self.sessions.get(&id) else { return };
        let bytes = match session.socket.receive() {
            Ok(Message::Received { bytes, fds }) => Ok((bytes, fds)),
            Ok(Message::TooLong) => Err(MessageError::TooLong),
            Ok(Message::NoDescriptors) => Err(MessageError::NoDescriptors),
            Ok(Message::Nothing) => return,
            Ok(Message::Closed) | Err(_) => return self.close(id, notice),
        };
        let user = session.user;
        let delivery = bytes
            .and_then(|(bytes, fds)| Ok((Request::decode(&bytes)?, fds)))
            .map_err(|error| (error.to_string(), false))
            .and_then(|(ask, fds)| {
                let asked = Asked { session: id, user, ask, fds };
                let refused = |error: Refusal| (refusal::words(&error), error.is_senseless());
                self.registry.answer(asked, notice).map_err(refused)
            })
            .unwrap_or_else(|(why, is_senseless)| {
                notice(Notice::Refused { user, why: why.clone() });
                Delivery::from(Answer::Refused { why, is_senseless })
            });
        // A client that does not read its answers is not waited for.
        if !session.tell(&delivery) {
            self.close(id, notice);
        }
    }

    fn close(&mut self, id: SessionId, notice: &mut dyn FnMut(Notice)) {
        self.sessions.remove(&id);
        self.registry.leave(id, notice);
    }
}

fn spare(listener: &Listener) -> Result<OwnedFd, SyscallError> {
    let copy = listener.as_fd().try_clone_to_owned();
    copy.map_err(|error| SyscallError::new("dup", "a descriptor to spare", error))
}

fn is_shortage(error: &SyscallError) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    shortages.iter().any(|one| error.source.raw_os_error() == Some(one.raw_os_error()))
}

fn refuse(socket: &Socket, why: &str) {
    let answer = Answer::Refused { why: why.to_owned(), is_senseless: false };
    // It may have gone already.
    socket.send(&answer.encode(), &[]).ok();
}
