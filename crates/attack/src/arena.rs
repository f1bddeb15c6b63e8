//! The switch under attack with the innocents at it, the one that nobody attacks, and a round of an attack.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use packet_switch::attachment::{Ask, Entry, Health, Kind};
use packet_switch::client::{ClientError, Connection};

use crate::innocents::Innocents;
use crate::judge::{Judgement, Watch};
use crate::program::Daemon;
use testkit::stalls::Machine;

/// How long a daemon may take to listen.
const START: Duration = Duration::from_secs(10);

/// How long the daemon may take to notice that clients are gone.
const DEPARTURE: Duration = Duration::from_secs(5);

/// The daemon does ten times a second what nobody has asked for; this is longer than that.
const LATER: Duration = Duration::from_millis(130);

/// A switch with innocents.
#[derive(Debug)]
struct Post {
    // The daemon goes first: whoever waits for it then does so no longer.
    daemon: Daemon,
    innocents: Innocents,
    socket: PathBuf,
}

impl Post {
    fn start(program: &Path, folder: &Path, name: &str, few: bool) -> Result<Self, String> {
        let socket = folder.join(format!("{name}.sock"));
        // What an earlier one has left, which was killed.
        std::fs::remove_file(&socket).ok();
        let path = socket.to_string_lossy().into_owned();
        let log = folder.join(format!("{name}.log"));
        let mut daemon = Daemon::start(program, &["switch", "run", "--socket", &path], log)?;
        let until = Instant::now() + START;
        // It listens before it is confined, and answers after that.
        while Connection::open(&socket).and_then(|mut connection| connection.list()).is_err() {
            daemon.check()?;
            if Instant::now() > until {
                return Err(format!("{name} does not listen: {}", daemon.log_text()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon.check_confined()?;
        // Anybody may attach: also those who are to attack.
        let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&socket, anybody).map_err(|error| format!("{path}: {error}"))?;
        let innocents = Innocents::start(&socket, few)?;
        Ok(Self { daemon, innocents, socket })
    }
}

/// Everything of the switch's door.
#[derive(Debug)]
pub(crate) struct Arena {
    attacked: Post,
    control: Post,
    machine: Machine,
    program: PathBuf,
    folder: PathBuf,
    started: u32,
}

impl Arena {
    pub(crate) fn open(program: &Path, folder: &Path) -> Result<Self, String> {
        let mut attacked = Post::start(program, folder, "attacked", false)?;
        let control = Post::start(program, folder, "control", true)?;
        settle(&mut attacked)?;
        let (program, folder) = (program.to_owned(), folder.to_owned());
        Ok(Self { attacked, control, machine: Machine::watch(), program, folder, started: 0 })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.attacked.socket
    }

    pub(crate) fn pid(&self) -> u32 {
        self.attacked.daemon.pid()
    }

    /// Whether the machine's own stalls are known exactly.
    pub(crate) fn is_exact(&self) -> bool {
        self.machine.is_exact
    }

    /// Plays an attack and judges it.
    pub(crate) fn round(
        &mut self,
        floods: bool,
        attack: impl FnOnce() -> Result<(), String>,
    ) -> Judgement {
        let watch = Watch::begin(&self.attacked.innocents, &self.control.innocents, &self.machine);
        let outcome = attack();
        let (attacked, control) = (&mut self.attacked, &self.control.innocents);
        let mut judgement = watch.end(&mut attacked.innocents, control, &self.machine, floods);
        let after = outcome
            .and_then(|()| tidy(&attacked.socket))
            .and_then(|()| attacked.daemon.check_confined())
            // Before its size: what the sandbox refused explains what was left behind.
            .and_then(|()| check_health(&attacked.socket))
            .and_then(|()| attacked.daemon.check())
            // And after: it takes until then that all has ended which the attack began.
            .and_then(|()| check_health(&attacked.socket));
        judgement.broken = judgement.broken.or(after.err());
        judgement
    }

    /// Nothing may have failed, either, a moment after the last round.
    pub(crate) fn last_look(&self) -> Result<(), String> {
        std::thread::sleep(LATER);
        check_health(&self.attacked.socket)
    }

    /// A new switch and new innocents: the last ones are broken.
    pub(crate) fn renew(&mut self) -> Result<(), String> {
        self.started += 1;
        let name = format!("attacked-{}", self.started);
        self.attacked.innocents.stop();
        let mut attacked = Post::start(&self.program, &self.folder, &name, false)?;
        settle(&mut attacked)?;
        self.attacked = attacked;
        Ok(())
    }
}

/// Lets it reach what it is like when nothing happens.
fn settle(post: &mut Post) -> Result<(), String> {
    std::thread::sleep(Duration::from_millis(300));
    post.daemon.take_base()
}

/// Nothing of the defence may have met the sandbox, and no part of the daemon may have failed: both are counted
/// from its start, every list says how often, and a daemon that is broken is replaced.
fn check_health(socket: &Path) -> Result<(), String> {
    let (connection, _) = visit(socket)?;
    let health = connection.health();
    if health == Health::default() {
        return Ok(());
    }
    let Health { refused_calls, faults } = health;
    Err(format!(
        "the sandbox refused the daemon {refused_calls} system calls, and it had {faults} faults"
    ))
}

/// A connection that has a place, and the list of ports and pipes. A daemon that was full refuses it until it has
/// noticed that the attackers are gone.
fn visit(socket: &Path) -> Result<(Connection, Vec<Entry>), String> {
    let until = Instant::now() + DEPARTURE;
    loop {
        let list = |mut connection: Connection| Ok((connection.list()?, connection));
        match Connection::open(socket).and_then(list) {
            Ok((entries, connection)) => return Ok((connection, entries)),
            Err(error) if matches!(error, ClientError::NoDaemon(_)) || Instant::now() > until => {
                return Err(format!("after the attack: {error}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Takes away ports and pipes that stay, as whoever runs the switch would: attackers may add such.
fn tidy(socket: &Path) -> Result<(), String> {
    let (mut connection, mut entries) = visit(socket)?;
    let until = Instant::now() + START;
    loop {
        // Attackers name ports `vale0:innocent` too, and a port that is a member of a trust group holds its memory.
        let is_innocent = |name: &str| name.contains(":innocent-") || name == "innocents";
        let others: Vec<_> = entries.iter().filter(|entry| !is_innocent(&entry.name)).collect();
        if others.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("{} is there {START:?} after the attack", others[0].name));
        }
        for entry in others {
            // It may go by itself meanwhile.
            match entry.kind {
                Kind::Pipes { .. } => {
                    let group = entry.name.parse().map_err(|error| format!("{error}"))?;
                    connection.ask(Ask::DeletePipes { group }).ok();
                }
                _ => {
                    let port = entry.name.parse().map_err(|error| format!("{error}"))?;
                    connection.ask(Ask::DeletePort { port }).ok();
                }
            }
        }
        entries = connection.list().map_err(|error| format!("after the attack: {error}"))?;
    }
}
