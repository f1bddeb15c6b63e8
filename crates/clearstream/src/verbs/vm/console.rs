//! `vm console`: connects this terminal to a guest's first serial port.

use std::io::{self, Read, Write};

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use sys::process::SignalReader;
use vm::Machine;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// The key that leaves the console, Ctrl-].
const LEAVE: u8 = 0x1d;
/// Bytes of earlier output to show.
const BEFORE_BYTES: usize = 4096;

/// A terminal in raw mode, which passes on every key; restored on drop.
struct Raw(Option<Termios>);

impl Raw {
    fn enter() -> io::Result<Self> {
        if !isatty(io::stdin()) {
            return Ok(Self(None));
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // If the terminal is gone, there is nothing to restore.
            tcsetattr(io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}

pub(super) fn run(name: &str) -> VerbResult {
    let machine = Machine::open(name)?;
    let console = machine.console()?;
    let signals = SignalReader::open().map_err(|error| VerbError::from_error(&error))?;
    let raw = Raw::enter()?;
    if raw.0.is_some() {
        writeln!(crate::out::stderr(), "connected to the console of {name}; Ctrl-] disconnects\r")?;
    }
    let log = machine.console_log();
    let mut out = crate::out::raw_stdout();
    out.write_all(&log[log.len().saturating_sub(BEFORE_BYTES)..])?;
    out.flush()?;
    let mut socket = &console.socket;
    let mut bytes = [0; 4096];
    loop {
        let mut fds = [
            PollFd::new(&signals, PollFlags::IN),
            PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN),
            PollFd::new(&console.socket, PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let [_, has_keys, has_said] = fds.map(|fd| !fd.revents().is_empty());
        while let Some(signal) = signals.next().map_err(|error| VerbError::from_error(&error))? {
            if signal.number != Signal::CHILD.as_raw() {
                return Ok(Exit::Signal(signal.number));
            }
        }
        if has_said {
            match socket.read(&mut bytes) {
                Ok(0) => return Ok(Exit::Ok),
                Ok(count) => {
                    out.write_all(&bytes[..count])?;
                    out.flush()?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The guest has ended.
                Err(_) => return Ok(Exit::Ok),
            }
        }
        if has_keys {
            let count = io::stdin().read(&mut bytes).unwrap_or(0);
            let keys = &bytes[..count];
            let leaves = keys.iter().position(|&key| key == LEAVE && raw.0.is_some());
            if !send(socket, &keys[..leaves.unwrap_or(count)]) || count == 0 || leaves.is_some() {
                return Ok(Exit::Ok);
            }
        }
    }
}

/// Sends keys to the guest; returns false if the guest has ended.
fn send(mut socket: &std::os::unix::net::UnixStream, mut keys: &[u8]) -> bool {
    while !keys.is_empty() {
        match socket.write(keys) {
            Ok(count) => keys = &keys[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
                rustix::event::poll(&mut fds, None).ok();
            }
            Err(_) => return false,
        }
    }
    true
}
