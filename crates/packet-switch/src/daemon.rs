//! The process behind the ports: one control thread for all clients, and a thread a switch.
//!
//! The control thread makes memory and bells, hands them out, and watches the connections: when one
//! closes, however its process ended, its attachments end. It never touches frames.

mod descriptor_threads;
mod devices;
mod entries;
mod jams;
mod lent_memory;
mod list;
mod make;
mod memory;
mod monitors;
mod reception;
mod refusal;
mod registry;
mod session;
mod settings;
mod switches;
mod trust;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use shm::{Listener, Socket};
use sys::SyscallError;
use sys::sandbox::{self, Calls};
use thiserror::Error;

use crate::attachment::{Answer, Health, RefusalCode};
use crate::panics;
use descriptor_threads::DescriptorThreads;
pub(crate) use memory::Share;
use registry::Registry;
use session::{Session, SessionId, State};
pub(crate) use switches::random_seed;

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
    /// Most connections at once: a quarter for each user, and an eighth that only root and the daemon's own user
    /// take, to whom no share applies.
    pub sessions_max: usize,
    /// Whether bells are rung by plain writes, as where the kernel has no other way (see
    /// [`Daemon::waits_for_bells`]): for tests of that way.
    pub plain_bells: bool,
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
            plain_bells: false,
        }
    }
}

/// Why the daemon cannot start or continue.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Another process already serves that socket.
    #[error("another switch serves {}", .0.display())]
    Taken(PathBuf),
    /// The path of the socket is taken by another kind of file.
    #[error("{} exists and is not a socket; it is left alone", .0.display())]
    NoSocket(PathBuf),
    /// The kernel refused.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

/// Events for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A client attached to a port or pipe.
    Attached {
        /// Name of the port or pipe: `vale0:a`.
        name: String,
        /// The client's user id.
        user: u32,
    },
    /// The client left, or its attachment was removed.
    Detached {
        /// Name of the port or pipe: `vale0:a`.
        name: String,
    },
    /// The client broke the protocol and was disconnected.
    CutOff {
        /// Name of the port or pipe: `vale0:a`.
        name: String,
        /// The rule that it broke.
        why: String,
    },
    /// A request was refused.
    Refused {
        /// The client's user id.
        user: u32,
        /// The reason.
        why: String,
    },
    /// A part of the daemon failed and only that part ended: a switch with its ports, or a connection.
    Fault {
        /// The part that failed.
        what: String,
        /// Message of the panic.
        why: String,
    },
    /// The sandbox refused a system call, which should never happen.
    RefusedCall {
        /// Name of the call.
        call: String,
        /// How often until now.
        count: u64,
    },
}

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    listener: Listener,
    registry: Registry,
    /// The user as whom it runs.
    owner: u32,
    sessions: BTreeMap<SessionId, Session>,
    next_session: SessionId,
    /// How often it was decided whom to hear.
    hearings: u64,
    descriptor_threads: DescriptorThreads,
    /// Connections that are closed as soon as a thread may do it.
    closing: VecDeque<(u32, Arc<Socket>)>,
    /// Given up for a moment to tell one more client that there is no other.
    spare: Option<OwnedFd>,
    /// No refusal can be sent now: the listener is left alone until the next round.
    deaf: bool,
    /// The part of the daemon whose next turn panics.
    #[cfg(test)]
    fault: Option<&'static str>,
}

/// How often the control thread looks around unasked: at the caller's wish to stop, and at switches
/// that hang in waking a client.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// After so many new connections those that are there have their turn, however many more wait.
const ACCEPTED_AT_ONCE: usize = 64;

/// After so many requests, but one of each user who has any, it is looked who else has something to say.
const HEARD_AT_ONCE: usize = 64;

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
        let descriptor_threads = DescriptorThreads::new()?;
        Ok(Self {
            config,
            listener,
            registry,
            owner: rustix::process::geteuid().as_raw(),
            sessions: BTreeMap::new(),
            next_session: 0,
            hearings: 0,
            descriptor_threads,
            closing: VecDeque::new(),
            spare,
            deaf: false,
            #[cfg(test)]
            fault: None,
        })
    }

    /// Why this kernel cannot ring a client's bell without waiting for the client, if it cannot: then one
    /// that jams its bell holds its switch up, 200 ms at most each time.
    #[must_use]
    pub fn waits_for_bells(&self) -> Option<&SyscallError> {
        self.registry.waits_for_bells()
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
    /// The kernel refused something that the daemon cannot do without.
    pub fn run(
        mut self,
        notice: &mut dyn FnMut(Notice),
        stop: &dyn Fn() -> bool,
    ) -> Result<(), DaemonError> {
        self.registry.begin();
        let mut watched = Instant::now();
        while !stop() {
            let ready = self.wait()?;
            for id in self.in_turn(ready) {
                // What fails in the service of one client ends that one's connection.
                if let Err(why) = panics::caught(|| self.serve(id, notice)) {
                    notice(Notice::Fault { what: format!("connection {id}"), why });
                    self.end(id, notice);
                }
            }
            self.contain("messages of threads", notice, Self::hear);
            if watched.elapsed() >= WATCH_INTERVAL {
                watched = Instant::now();
                self.watch(notice);
            }
            match self.contain("new connections", notice, |daemon, _| daemon.accept()) {
                Some(accepted) => accepted?,
                // Left alone until the next round: what failed once may fail each time.
                None => self.deaf = true,
            }
        }
        Ok(())
    }

    /// What is done ten times a second at most; a part that fails keeps no other from its turn.
    fn watch(&mut self, notice: &mut dyn FnMut(Notice)) {
        self.deaf = false;
        self.spare = self.spare.take().or_else(|| spare(&self.listener).ok());
        self.contain("bells of switches", notice, |daemon, _| {
            daemon.registry.watch_bells(Instant::now())
        });
        self.contain("refused calls", notice, Self::count_refused_calls);
        self.contain("connections to close", notice, |daemon, _| daemon.close_later());
    }

    /// Does what is done for everybody: a panic ends that turn only, and nobody's port with it. `None` then.
    fn contain<T>(
        &mut self,
        what: &'static str,
        notice: &mut dyn FnMut(Notice),
        work: impl FnOnce(&mut Self, &mut dyn FnMut(Notice)) -> T,
    ) -> Option<T> {
        let outcome = panics::caught(|| {
            #[cfg(test)]
            assert!(self.fault.take_if(|planted| *planted == what).is_none(), "planted");
            work(self, notice)
        });
        outcome.map_err(|why| notice(Notice::Fault { what: what.to_owned(), why })).ok()
    }

    /// What other threads say: those of switches, of devices, and those that receive descriptors.
    fn hear(&mut self, notice: &mut dyn FnMut(Notice)) {
        for (id, answer) in self.registry.settle_trouble(notice) {
            if let Some(session) = self.sessions.get(&id) {
                session.tell(&answer.into());
            }
        }
        self.registry.check_threads(notice);
        for message in self.descriptor_threads.arrivals() {
            let id = message.session;
            if let Err(why) = panics::caught(|| self.handle_received(message, notice)) {
                notice(Notice::Fault { what: format!("connection {id}"), why });
                self.close(id, notice);
            }
        }
        self.try_again(notice);
    }

    /// Says which calls the sandbox has refused since the last time.
    fn count_refused_calls(&mut self, notice: &mut dyn FnMut(Notice)) {
        let refused = sandbox::refused();
        let refused_calls = refused.iter().map(|one| one.count).sum();
        let before = std::mem::replace(
            &mut self.registry.health,
            Health { refused_calls, faults: panics::count() },
        );
        if before.refused_calls != refused_calls {
            for one in refused {
                notice(Notice::RefusedCall { call: one.to_string(), count: one.count });
            }
        }
    }

    /// Waits for something to do; the sessions that have something to say.
    fn wait(&self) -> Result<Vec<SessionId>, SyscallError> {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        let mut set = vec![
            PollFd::new(&self.listener, if self.deaf { PollFlags::empty() } else { PollFlags::IN }),
            PollFd::new(self.registry.trouble_bell(), PollFlags::IN),
            PollFd::new(self.descriptor_threads.bell(), PollFlags::IN),
        ];
        let others = set.len();
        set.extend(self.sessions.values().map(|session| {
            // Of the others only the end is heard.
            let is_heard = session.state == State::Ready;
            let what = if is_heard { PollFlags::IN } else { PollFlags::empty() };
            PollFd::from_borrowed_fd(session.socket.as_fd(), what)
        }));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(WATCH_INTERVAL.subsec_nanos()) };
        match rustix::event::poll(&mut set, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(SyscallError::new("poll", "clients", error)),
        }
        let ready = set[others..].iter().map(|one| !one.revents().is_empty());
        Ok(ids.into_iter().zip(ready).filter_map(|(id, ready)| ready.then_some(id)).collect())
    }

    /// Of those that have something to say, whom to hear now: the users take turns, so that one's thousand connections
    /// delay another's by one request each time, and a user's connections take turns. The others are found again.
    fn in_turn(&mut self, mut ready: Vec<SessionId>) -> Vec<SessionId> {
        ready.sort_by_key(|id| self.sessions.get(id).map(|session| session.heard));
        let mut of_users: BTreeMap<u32, VecDeque<SessionId>> = BTreeMap::new();
        for id in ready {
            let Some(session) = self.sessions.get(&id) else { continue };
            of_users.entry(session.user).or_default().push_back(id);
        }
        let mut now = Vec::new();
        while now.len() < HEARD_AT_ONCE && !of_users.is_empty() {
            now.extend(of_users.values_mut().filter_map(VecDeque::pop_front));
            of_users.retain(|_, ids| !ids.is_empty());
        }
        self.hearings += 1;
        for id in &now {
            if let Some(session) = self.sessions.get_mut(id) {
                session.heard = self.hearings;
            }
        }
        now
    }

    fn accept(&mut self) -> Result<(), SyscallError> {
        for _ in 0..ACCEPTED_AT_ONCE {
            // What cannot be closed yet is not added to: whoever connects waits.
            if self.closing.len() >= self.config.sessions_max {
                self.deaf = true;
                return Ok(());
            }
            let socket = match self.listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return Ok(()),
                Err(error) if is_shortage(&error) => {
                    self.turn_away();
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let Ok(user) = socket.peer_user() else { continue };
            if let Some(why) = self.no_place_for(user) {
                refuse(&socket, &why);
                self.let_go(Arc::new(socket));
                continue;
            }
            self.next_session += 1;
            let session = Session { socket: Arc::new(socket), user, state: State::Ready, heard: 0 };
            self.sessions.insert(self.next_session, session);
        }
        Ok(())
    }

    /// Why another client of that user's has no place, if it has none.
    fn no_place_for(&self, user: u32) -> Option<String> {
        let most = self.config.sessions_max;
        let served = self.sessions.values().map(|session| session.user);
        let users = || served.clone().chain(self.closing.iter().map(|(user, _)| *user));
        let is_trusted = |user: u32| user == 0 || user == self.owner;
        if users().count() >= most {
            return Some(format!("the switch is full ({most} clients)"));
        }
        if is_trusted(user) {
            return None;
        }
        let (share, open) = ((most / 4).max(1), most - most / 8);
        if users().filter(|&one| one == user).count() >= share {
            return Some(format!(
                "the switch serves at most {share} clients per user, and you have as many"
            ));
        }
        // Several users together leave some places, too.
        let is_full = users().filter(|&one| !is_trusted(one)).count() >= open;
        is_full.then(|| {
            format!("the switch is full ({open} clients of users other than root and its own)")
        })
    }

    /// No descriptor is left for another client: it is told so with the spare one. If even that fails,
    /// whoever waits goes on waiting, and those who are served are served.
    fn turn_away(&mut self) {
        self.spare = None;
        match self.listener.accept() {
            Ok(Some(socket)) => {
                refuse(&socket, "no file descriptor left for another client");
                self.let_go(Arc::new(socket));
            }
            _ => self.deaf = true,
        }
        self.spare = spare(&self.listener).ok();
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

/// Tells somebody who is not served that a limit is reached.
fn refuse(socket: &Socket, why: &str) {
    let answer = Answer::refused(RefusalCode::Limit, why);
    // It may have gone already.
    socket.send(&answer.encode(), &[]).ok();
}

#[cfg(test)]
mod tests;
