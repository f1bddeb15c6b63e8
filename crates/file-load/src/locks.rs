//! Do a file system's locks exclude other clients? Found by two ranks, never by one: a client that keeps
//! locks to itself grants them all the same.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::fs::FlockOperation;
use sys::file_lock::{ByteRange, LockKind, lock_range};

use crate::clock;
use crate::error::LoadError;
use crate::posix;
use crate::team::Team;

/// Length of the file that is locked, bytes; its halves are the two ranges.
const FILE_BYTES: u64 = 128;

/// How long the holder keeps a lock that another rank waits for.
const HELD: Duration = Duration::from_millis(500);

/// How long the other rank looks for the holder's file: clients keep old views of a directory for a while.
const VISIBLE_WITHIN: Duration = Duration::from_secs(5);

/// Locked and unlocked so often, or for so long, to find out how fast that is.
const PAIRS_MAX: u32 = 1000;
const PAIRS_FOR: Duration = Duration::from_secs(2);

/// Kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `flock(2)`: the whole file.
    Whole,
    /// `fcntl(2)`: ranges of bytes.
    Ranges,
}

/// Both kinds.
pub const KINDS: [Kind; 2] = [Kind::Whole, Kind::Ranges];

impl Kind {
    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "flock",
            Self::Ranges => "byte ranges",
        }
    }
}

/// What an attempt to lock gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The lock.
    Granted,
    /// Another process holds it.
    Excluded,
    /// This error number: there are no such locks, or their service failed.
    Refused(i32),
}

impl Attempt {
    fn of(done: &io::Result<()>) -> Self {
        const EXCLUDED: [i32; 2] = [11, 13];
        match done {
            Ok(()) => Self::Granted,
            Err(error) => match error.raw_os_error() {
                Some(number) if EXCLUDED.contains(&number) => Self::Excluded,
                number => Self::Refused(number.unwrap_or(0)),
            },
        }
    }

    fn to_number(self) -> f64 {
        match self {
            Self::Granted => -1.0,
            Self::Excluded => -2.0,
            Self::Refused(number) => f64::from(number),
        }
    }

    fn from_number(number: f64) -> Self {
        match number as i32 {
            -1 => Self::Granted,
            -2 => Self::Excluded,
            number => Self::Refused(number),
        }
    }
}

/// What two ranks saw of one kind of lock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// The holder, on a file that nobody has locked.
    pub holder: Attempt,
    /// The other rank, while the holder has the lock.
    pub other: Attempt,
    /// The other rank on bytes that the holder has not locked; of byte ranges only.
    pub disjoint: Option<Attempt>,
    /// The other rank after the holder has unlocked.
    pub after: Attempt,
    /// From the holder's unlocking to the other rank, which waited, having the lock: seconds. None where
    /// it was not excluded and so did not wait.
    pub woken_s: Option<f64>,
    /// Locked and unlocked by the holder alone, 1/s; 0: refused.
    pub pairs_per_s: f64,
}

/// What a kind of lock is worth between clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It excludes other clients, and only where it should.
    Works,
    /// There are no such locks: the error number.
    Refused(i32),
    /// Granted to both: each client keeps its locks to itself, and says nothing.
    LocalOnly,
    /// Something else is wrong; what.
    Broken(&'static str),
}

impl Seen {
    /// What that means.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match (self.holder, self.other) {
            (Attempt::Refused(number), _) | (_, Attempt::Refused(number)) => {
                return Verdict::Refused(number);
            }
            (Attempt::Excluded, _) => {
                return Verdict::Broken("a lock on a new file was not granted");
            }
            (Attempt::Granted, Attempt::Granted) => return Verdict::LocalOnly,
            (Attempt::Granted, Attempt::Excluded) => {}
        }
        if matches!(self.disjoint, Some(Attempt::Excluded | Attempt::Refused(_))) {
            return Verdict::Broken("bytes that nobody had locked were not granted");
        }
        if self.after != Attempt::Granted {
            return Verdict::Broken("the lock was not granted after its holder had unlocked");
        }
        match self.woken_s {
            Some(woken_s) if woken_s < -0.1 => {
                Verdict::Broken("a rank that waited had the lock before its holder had unlocked")
            }
            _ => Verdict::Works,
        }
    }
}

impl Verdict {
    /// In words, for one line.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Works => "works".to_owned(),
            Self::Refused(number) => {
                format!("refused ({})", io::Error::from_raw_os_error(*number))
            }
            Self::LocalOnly => {
                "local only: granted to both clients at once, without an error".to_owned()
            }
            Self::Broken(what) => format!("broken: {what}"),
        }
    }
}

/// What rank 0 and another rank found out about one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The kind.
    pub kind: Kind,
    /// The other rank.
    pub other: usize,
    /// What they saw.
    pub seen: Seen,
}

/// Tries both kinds of locks between rank 0 and each other rank. `directories` are the paths of one
/// directory at the ranks, in turn: one where all see it under the same name. All ranks call it; rank 0
/// has the findings.
///
/// # Errors
/// There is one rank only, the file is not the same at all ranks, or a rank failed.
pub fn run(team: &mut Team, directories: &[String]) -> Result<Vec<Finding>, LoadError> {
    if team.size() < 2 {
        let line = "locks need two ranks, on two clients of the file system: --ranks 2 --hosts A,B";
        return Err(LoadError::Usage(line.to_owned()));
    }
    let me = team.me();
    let token = format!("{:>width$}", clock::now_ns(), width = FILE_BYTES as usize);
    let token = String::from_utf8_lossy(&team.broadcast(token.into_bytes())?).into_owned();
    let name = format!("clearstream-locks.{}", token.trim());
    let path = format!("{}/{name}", directories[me % directories.len()].trim_end_matches('/'));
    let call = |team: &Team, operation, source| LoadError::Call {
        rank: me,
        host: team.host().to_owned(),
        operation,
        path: path.clone(),
        place: String::new(),
        source,
    };
    if me == 0 {
        let made = team.activity.during("create", &path, || make(&path, &token));
        made.map_err(|source| call(team, "create", source))?;
    }
    team.barrier()?;
    let found = team.activity.during("open", &path, || find(&path, &token));
    team.activity.name("lock", &path);
    let fd = match found {
        Ok(fd) => fd,
        Err(source) => return Err(call(team, "open", source)),
    };
    let mut findings = Vec::new();
    for other in 1..team.size() {
        for kind in KINDS {
            let seen = Pair { team, fd: &fd, kind, other }.try_out()?;
            findings.push(Finding { kind, other, seen });
        }
    }
    team.barrier()?;
    if me == 0 {
        let removed = team.activity.during("unlink", &path, || std::fs::remove_file(&path));
        removed.map_err(|source| call(team, "unlink", source))?;
    }
    Ok(findings)
}

fn make(path: &str, token: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(token.as_bytes())?;
    file.sync_all()
}

/// Opens the file once this client sees it as it was written.
fn find(path: &str, token: &str) -> io::Result<OwnedFd> {
    let start_ns = clock::now_ns();
    loop {
        let seen = std::fs::read(path);
        if seen.as_ref().is_ok_and(|bytes| bytes == token.as_bytes()) {
            return posix::create(path, false);
        }
        if clock::now_ns() - start_ns > VISIBLE_WITHIN.as_nanos() as u64 {
            let other = || io::Error::other("this is not the file that rank 0 wrote");
            return Err(seen.err().unwrap_or_else(other));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Rank 0 and another rank, trying out one kind of lock. All ranks go along for the barriers.
struct Pair<'a> {
    team: &'a mut Team,
    fd: &'a OwnedFd,
    kind: Kind,
    other: usize,
}

impl Pair<'_> {
    fn try_out(mut self) -> Result<Seen, LoadError> {
        let (is_holder, is_other) = (self.team.leads(), self.team.me() == self.other);
        let (first, second) = (range(0), range(FILE_BYTES / 2));
        let mut pairs_per_s = 0.0;
        let holder = self.step(is_holder, |pair| pair.attempt(true, first, false))?;
        let other = self.step(is_other, |pair| pair.attempt(true, first, false))?;
        let disjoint = match self.kind {
            Kind::Whole => None,
            Kind::Ranges => Some(self.step(is_other, |pair| pair.attempt(true, second, false))?),
        };
        let woken_s = match (holder, other) {
            (Attempt::Granted, Attempt::Excluded) => Some(self.wait(first)?),
            _ => {
                self.step(is_holder, |pair| pair.attempt(false, first, false))?;
                None
            }
        };
        let after = match woken_s {
            // The rank that waited has it.
            Some(_) => Attempt::Granted,
            None => self.step(is_other, |pair| pair.attempt(true, first, false))?,
        };
        self.step(is_other, |pair| pair.attempt(false, range_of_all(), false))?;
        if is_holder && holder == Attempt::Granted {
            pairs_per_s = self.pairs(first);
        }
        self.team.barrier()?;
        Ok(Seen { holder, other, disjoint, after, woken_s, pairs_per_s })
    }

    /// One rank does something; all hear what came of it.
    fn step(
        &mut self,
        is_mine: bool,
        act: impl FnOnce(&Self) -> io::Result<()>,
    ) -> Result<Attempt, LoadError> {
        let mine = if is_mine { Attempt::of(&act(self)).to_number() } else { 0.0 };
        let all = self.team.share_numbers(&[mine, f64::from(u8::from(is_mine))])?;
        let told = all.iter().find(|row| row[1] > 0.0);
        Ok(told.map_or(Attempt::Refused(0), |row| Attempt::from_number(row[0])))
    }

    /// The other rank waits for the lock while the holder keeps it a while; gives the time from unlocking to
    /// having it.
    fn wait(&mut self, range: ByteRange) -> Result<f64, LoadError> {
        self.team.barrier()?;
        let mut moment_s = 0.0;
        if self.team.leads() {
            thread::sleep(HELD);
            // Asked before: the other rank may have the lock before this call returns.
            moment_s = self.team.now_s();
            // The other rank tells by its silence that this failed; the stall limit ends its waiting.
            self.attempt(false, range, false).ok();
        } else if self.team.me() == self.other {
            self.team.activity.begin(crate::watch::NOWHERE, clock::now_ns());
            let waited = self.attempt(true, range, true);
            self.team.activity.end();
            moment_s = self.team.now_s();
            if let Err(source) = waited {
                let (rank, host) = (self.team.me(), self.team.host().to_owned());
                let path = "the file of locks".to_owned();
                let place = String::new();
                return Err(LoadError::Call { rank, host, operation: "lock", path, place, source });
            }
        }
        let all = self.team.share_numbers(&[moment_s])?;
        Ok(all[self.other][0] - all[0][0])
    }

    fn pairs(&self, range: ByteRange) -> f64 {
        let start_ns = clock::now_ns();
        let mut count = 0;
        let mut elapsed_ns = 0;
        while count < PAIRS_MAX && elapsed_ns < PAIRS_FOR.as_nanos() as u64 {
            let is_done = self.attempt(true, range, false).is_ok()
                && self.attempt(false, range, false).is_ok();
            if !is_done {
                return 0.0;
            }
            count += 1;
            elapsed_ns = clock::now_ns() - start_ns;
        }
        f64::from(count) / (elapsed_ns as f64 * 1e-9)
    }

    fn attempt(&self, locks: bool, range: ByteRange, waits: bool) -> io::Result<()> {
        match self.kind {
            Kind::Whole => {
                let operation = match (locks, waits) {
                    (true, true) => FlockOperation::LockExclusive,
                    (true, false) => FlockOperation::NonBlockingLockExclusive,
                    (false, _) => FlockOperation::Unlock,
                };
                Ok(rustix::fs::flock(self.fd, operation)?)
            }
            Kind::Ranges => {
                let kind = if locks { LockKind::Exclusive } else { LockKind::None };
                lock_range(self.fd, kind, range, waits)
            }
        }
    }
}

fn range(start: u64) -> ByteRange {
    ByteRange { start, length: FILE_BYTES / 2 }
}

fn range_of_all() -> ByteRange {
    ByteRange { start: 0, length: 0 }
}

/// One line about a kind of lock.
#[must_use]
pub fn line(finding: &Finding) -> String {
    let Finding { kind, other, seen } = finding;
    let mut text = format!("{:<12} ranks 0 and {other}: {}", kind.name(), seen.verdict().words());
    if let Some(woken_s) = seen.woken_s {
        text +=
            &format!("; a rank that waited had the lock {:.3} ms after unlocking", woken_s * 1e3);
    }
    if seen.pairs_per_s > 0.0 {
        text += &format!("; {:.0} lock+unlock pairs/s", seen.pairs_per_s);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKS: Seen = Seen {
        holder: Attempt::Granted,
        other: Attempt::Excluded,
        disjoint: Some(Attempt::Granted),
        after: Attempt::Granted,
        woken_s: Some(0.001),
        pairs_per_s: 1000.0,
    };

    #[test]
    fn only_two_clients_tell_a_lock_that_works_from_one_that_does_not() {
        let table = [
            (WORKS, Verdict::Works),
            (Seen { other: Attempt::Granted, woken_s: None, ..WORKS }, Verdict::LocalOnly),
            (Seen { holder: Attempt::Refused(95), ..WORKS }, Verdict::Refused(95)),
            (Seen { other: Attempt::Refused(37), ..WORKS }, Verdict::Refused(37)),
        ];
        for (seen, verdict) in table {
            assert_eq!(seen.verdict(), verdict, "{seen:?}");
        }
        let broken = [
            Seen { holder: Attempt::Excluded, ..WORKS },
            Seen { disjoint: Some(Attempt::Excluded), ..WORKS },
            Seen { after: Attempt::Excluded, ..WORKS },
            Seen { woken_s: Some(-0.4), ..WORKS },
        ];
        for seen in broken {
            assert!(matches!(seen.verdict(), Verdict::Broken(_)), "{seen:?}");
        }
    }

    #[test]
    fn attempts_are_told_apart_after_being_sent() {
        for attempt in [Attempt::Granted, Attempt::Excluded, Attempt::Refused(95)] {
            assert_eq!(Attempt::from_number(attempt.to_number()), attempt);
        }
        let excluded = Err(io::Error::from_raw_os_error(11));
        assert_eq!(Attempt::of(&excluded), Attempt::Excluded);
        assert_eq!(Attempt::of(&Err(io::Error::from_raw_os_error(95))), Attempt::Refused(95));
    }

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding { kind: Kind::Whole, other: 1, seen: WORKS };
        let expected = "flock        ranks 0 and 1: works; a rank that waited had the lock 1.000 ms \
                        after unlocking; 1000 lock+unlock pairs/s";
        assert_eq!(line(&finding), expected);
    }
}
