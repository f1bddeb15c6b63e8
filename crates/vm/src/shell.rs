//! Clients of a guest's serial ports: commands in its shell, and its console.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::rand::GetRandomFlags;
use sys::process::SignalReader;

use crate::line::names;
use crate::serial::{Command, Greeting, Heard};
use crate::{Machine, VmError};

/// Longest until the guest's shell answers, on a machine on which QEMU waits for a core.
const ANSWER_MAX: Duration = Duration::from_secs(180);
/// How often it is asked.
const GREET_EVERY: Duration = Duration::from_secs(1);

/// A guest's shell. One at a time; the next one waits.
#[derive(Debug)]
pub struct Shell<'a> {
    machine: &'a Machine,
    socket: UnixStream,
    /// Held as long as the value.
    _lock: File,
}

/// How a command in a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellEnd {
    /// By itself.
    Status(u8),
    /// By a signal that its client got.
    Signal(i32),
}

impl Machine {
    /// Its shell, once it is ready and nobody else has it. A command that a killed client left is ended.
    ///
    /// # Errors
    /// It has none, does not become ready, or its shell does not answer.
    pub fn shell(&self, ready_within: Duration) -> Result<Shell<'_>, VmError> {
        self.wait_until_ready(ready_within)?;
        let lock = self.lock("shell.lock", FlockOperation::LockExclusive)?;
        let mut shell = Shell { machine: self, socket: self.connect(names::SHELL)?, _lock: lock };
        shell.greet()?;
        Ok(shell)
    }

    /// Its console, unless somebody else is there.
    ///
    /// # Errors
    /// Somebody is.
    pub fn console(&self) -> Result<Console, VmError> {
        let lock = match self.lock("console.lock", FlockOperation::NonBlockingLockExclusive) {
            Err(VmError::File { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                return Err(VmError::ConsoleTaken(self.state().config.name));
            }
            other => other?,
        };
        Ok(Console { socket: self.connect(names::CONSOLE)?, _lock: lock })
    }

    fn lock(&self, name: &str, how: FlockOperation) -> Result<File, VmError> {
        let file = self.folder.folder.append(name);
        let file = file.map_err(VmError::file("open", self.folder.file(name)))?;
        loop {
            match rustix::fs::flock(&file, how) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(VmError::file("lock", self.folder.file(name))(error.into()));
                }
            }
        }
    }

    fn connect(&self, name: &str) -> Result<UnixStream, VmError> {
        let path = self.folder.file(name);
        let socket = UnixStream::connect(&path).map_err(|error| match self.is_up() {
            true => VmError::file("connect to", &path)(error),
            false => self.ended(),
        })?;
        socket.set_nonblocking(true).map_err(VmError::file("use", &path))?;
        Ok(socket)
    }

    fn ended(&self) -> VmError {
        VmError::Ended { name: self.state().config.name, why: self.folder.logs().why_ended() }
    }
}

impl Shell<'_> {
    fn greet(&mut self) -> Result<(), VmError> {
        let mut greeting = Greeting::new(token()?);
        let until = Instant::now() + ANSWER_MAX;
        while Instant::now() < until {
            self.send(greeting.line(), until)?;
            let again = Instant::now() + GREET_EVERY;
            while let Some(bytes) = self.hear(again, None)? {
                if greeting.hear(&bytes) {
                    return Ok(());
                }
            }
        }
        Err(self.silent())
    }

    /// Runs a program of the guest's, and writes what it says, on its standard output and its standard error, to `out`. A
    /// signal that `signals` reads ends it.
    ///
    /// # Errors
    /// The guest ends, reboots or is silent; `out` fails.
    pub fn run(
        &mut self,
        words: &[impl AsRef<[u8]>],
        out: &mut dyn Write,
        signals: Option<&SignalReader>,
    ) -> Result<ShellEnd, VmError> {
        let mut command = Command::new(token()?, words);
        let until = Instant::now() + ANSWER_MAX;
        self.send(command.line(), until)?;
        let mut said = Vec::new();
        loop {
            let bytes = self.hear(Instant::now() + GREET_EVERY, signals)?;
            if let Some(number) = signals.and_then(asks_to_end) {
                // Ends the command.
                self.greet()?;
                return Ok(ShellEnd::Signal(number));
            }
            let heard = command.hear(&bytes.unwrap_or_default(), &mut said);
            if !said.is_empty() {
                let written = out.write_all(&said).and_then(|()| out.flush());
                said.clear();
                if let Err(error) = written {
                    self.greet()?;
                    return Err(VmError::Output(error));
                }
            }
            match heard {
                Heard::Ended(status) => return Ok(ShellEnd::Status(status)),
                Heard::Rebooted => {
                    return Err(VmError::Rebooted(self.machine.state().config.name));
                }
                Heard::More if command.has_begun() || Instant::now() < until => {}
                Heard::More => return Err(self.silent()),
            }
        }
    }

    fn silent(&self) -> VmError {
        let name = self.machine.state().config.name;
        VmError::Silent { name, limit_s: ANSWER_MAX.as_secs() }
    }

    /// What comes until then; `None` where nothing does, or a signal does.
    fn hear(
        &mut self,
        until: Instant,
        signals: Option<&SignalReader>,
    ) -> Result<Option<Vec<u8>>, VmError> {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(self.machine.ended()),
                Ok(count) => return Ok(Some(bytes[..count].to_vec())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(self.machine.ended()),
            }
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN)];
            fds.extend(signals.map(|signals| PollFd::new(signals, PollFlags::IN)));
            let ready = rustix::event::poll(&mut fds, Timespec::try_from(left).ok().as_ref());
            let has_signal = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            if left.is_zero() || has_signal || ready == Ok(0) {
                return Ok(None);
            }
        }
    }

    /// Sends it, as QEMU takes it: a guest reads a byte at a time.
    fn send(&mut self, mut bytes: &[u8], until: Instant) -> Result<(), VmError> {
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() > until {
                        return Err(self.silent());
                    }
                    let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
                    rustix::event::poll(&mut fds, Timespec::try_from(GREET_EVERY).ok().as_ref())
                        .ok();
                }
                Err(_) => return Err(self.machine.ended()),
            }
        }
        Ok(())
    }
}

/// The signal that asks this process to end, if one has come.
fn asks_to_end(signals: &SignalReader) -> Option<i32> {
    let mut found = None;
    while let Ok(Some(signal)) = signals.next() {
        let asks = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
        if asks.iter().any(|one| one.as_raw() == signal.number) {
            found = Some(signal.number);
        }
    }
    found
}

/// A number that no other client of the guest has.
fn token() -> Result<u64, VmError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| sys::SyscallError::new("getrandom", "token", error))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A guest's console: what its first serial port says and hears.
#[derive(Debug)]
pub struct Console {
    /// To be polled, read and written; it does not block.
    pub socket: UnixStream,
    /// Held as long as the value.
    _lock: File,
}
