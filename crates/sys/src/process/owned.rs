//! Child processes that have an owner: a value in this process, with which they end.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::{ChildStart, start_child_as};

/// Longest wait for what a child has written once it has ended: what it left running may hold the
/// pipe's other end open for ever.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// How a child is ended when its owner no longer wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// What it is asked with.
    pub signal: Signal,
    /// How long it then has until SIGKILL.
    pub grace: Duration,
    /// It is started in a process group of its own, and all of the group end with it. A terminal's
    /// Ctrl-C does not reach such a group.
    pub group: bool,
}

impl Ending {
    /// SIGKILL at once.
    pub const KILL: Self = Self { signal: Signal::KILL, grace: Duration::ZERO, group: false };

    /// SIGTERM, and SIGKILL two seconds later.
    pub const TERM: Self =
        Self { signal: Signal::TERM, grace: Duration::from_secs(2), group: false };

    /// The same for the child's process group.
    #[must_use]
    pub const fn with_group(self) -> Self {
        Self { group: true, ..self }
    }
}

/// A child process that ends with this value, and with the *thread* that started it, however that
/// ends (`PR_SET_PDEATHSIG`, `prctl(2)`): one that is to outlive a thread must be started by another.
/// It is always waited for, so none stays as a zombie.
#[derive(Debug)]
pub struct Owned {
    child: Child,
    pidfd: OwnedFd,
    ending: Ending,
    status: Option<ExitStatus>,
    stdout: Option<Captured>,
    stderr: Option<Captured>,
}

/// What came of a child.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the process.
    pub status: ExitStatus,
    /// What it wrote on its standard output, where that was captured.
    pub stdout: Vec<u8>,
    /// The same of its standard error.
    pub stderr: Vec<u8>,
}

impl Ended {
    /// The last line with text on standard error or, if there is none, on standard output: why
    /// most programs say that they failed.
    #[must_use]
    pub fn last_line(&self) -> String {
        let last = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
            line.map(str::to_owned)
        };
        last(&self.stderr).or_else(|| last(&self.stdout)).unwrap_or_else(|| "no message".to_owned())
    }
}

impl Owned {
    /// Starts `command`'s child.
    ///
    /// # Errors
    /// It cannot be started; the message names the program.
    pub fn start(command: &mut Command, ending: Ending) -> io::Result<Self> {
        start_child_as(command, ChildStart { dies_with_parent: true });
        if ending.group {
            command.process_group(0);
        }
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            io::Error::new(error.kind(), format!("cannot start {program}: {error}"))
        })?;
        match pid_of(&child).and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) {
            Ok(pidfd) => {
                Ok(Self { child, pidfd, ending, status: None, stdout: None, stderr: None })
            }
            Err(error) => {
                // Out of descriptors: nobody could watch it.
                child.kill()?;
                child.wait()?;
                Err(error.into())
            }
        }
    }

    /// Reads what it writes to its pipes from now on, and keeps the first `bytes_max` of each. The rest
    /// is read and forgotten, so that the child never waits for a reader.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn capture(mut self, bytes_max: usize) -> io::Result<Self> {
        self.stdout = self.child.stdout.take().map(|p| Captured::of(p, bytes_max)).transpose()?;
        self.stderr = self.child.stderr.take().map(|p| Captured::of(p, bytes_max)).transpose()?;
        Ok(self)
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The pipe to its standard input, once, where it has one.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The pipe from its standard output, once, where it has one that is not captured.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.wait_within(Duration::ZERO)
    }

    /// How it ended, once it has. The pipe to its standard input, if any, is closed first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.child.stdin.take());
        loop {
            if let Some(status) = self.wait_within(Duration::from_secs(3600))? {
                return Ok(status);
            }
        }
    }

    /// How it ended; `None` if it still runs after `limit`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait_within(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && self.has_ended_within(limit)? {
            self.bury()?;
        }
        Ok(self.status)
    }

    /// Whether it has ended, or does so within `limit`. It is not waited for by this: until it is,
    /// `/proc` tells its times.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_ended_within(&self, limit: Duration) -> io::Result<bool> {
        let until = Instant::now().checked_add(limit);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match rustix::event::poll(&mut fds, left.as_ref()) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends it a signal, and not its group; one that has ended gets none.
    ///
    /// # Errors
    /// It now runs as another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.status.is_some() {
            return Ok(());
        }
        is_sent(rustix::process::pidfd_send_signal(&self.pidfd, signal))
    }

    fn signal_all(&self, signal: Signal) -> io::Result<()> {
        match pid_of(&self.child) {
            Ok(pid) if self.ending.group => {
                is_sent(rustix::process::kill_process_group(pid, signal))
            }
            _ => self.signal(signal),
        }
    }

    /// Ends it as it was started to be ended; how it did.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.ending.grace.is_zero() && self.status.is_none() {
            self.signal_all(self.ending.signal)?;
            self.wait_within(self.ending.grace)?;
        }
        if let Some(status) = self.status {
            return Ok(status);
        }
        self.signal_all(Signal::KILL)?;
        self.wait()
    }

    /// What came of it when it has ended by itself, and what it wrote where that is captured. One that
    /// has not ended after `limit` is ended.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after `limit`; the kernel's.
    pub fn ended_within(mut self, limit: Duration) -> io::Result<Ended> {
        drop(self.child.stdin.take());
        let Some(status) = self.wait_within(limit)? else {
            self.end()?;
            let late = format!("it had not ended after {} s", limit.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, late));
        };
        let until = Instant::now() + DRAIN_MAX;
        let text =
            |captured: Option<Captured>| captured.map_or_else(Vec::new, |one| one.text(until));
        Ok(Ended { status, stdout: text(self.stdout.take()), stderr: text(self.stderr.take()) })
    }

    /// Waits for one that has ended. Until then its group cannot be another's.
    fn bury(&mut self) -> io::Result<()> {
        if self.ending.group {
            self.signal_all(Signal::KILL)?;
        }
        self.status = Some(self.child.wait()?);
        Ok(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.end().is_err() {
            // At least it is not left running.
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// What has ended already needs no signal.
fn is_sent(sent: Result<(), Errno>) -> io::Result<()> {
    match sent {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn pid_of(child: &Child) -> Result<Pid, Errno> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)
}

/// A pipe that a thread reads. Locked so that an owner may be seen by several threads; only its last holder
/// takes what was read.
#[derive(Debug)]
struct Captured(Mutex<Receiver<Vec<u8>>>);

impl Captured {
    fn of(mut pipe: impl Read + Send + 'static, bytes_max: usize) -> io::Result<Self> {
        let (say, hear) = channel();
        let read = move || {
            let mut chunk = vec![0; 16 << 10];
            let mut left = bytes_max;
            loop {
                match pipe.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(count) => {
                        let kept = count.min(left);
                        left -= kept;
                        // Who listens no longer does not stop the child from writing.
                        say.send(chunk[..kept].to_vec()).ok();
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        };
        thread::Builder::new().name("captured".to_owned()).spawn(read)?;
        Ok(Self(Mutex::new(hear)))
    }

    /// All of it, or what has come until then.
    fn text(self, until: Instant) -> Vec<u8> {
        let hear = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut text = Vec::new();
        loop {
            match hear.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(chunk) => text.extend(chunk),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return text,
            }
        }
    }
}

#[cfg(test)]
mod tests;
