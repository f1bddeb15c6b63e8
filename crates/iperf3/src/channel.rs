//! The control connection: bytes with deadlines, never a wait that a signal cannot end.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::failure::Iperf3Error;
use super::ordered::Json;
use super::wire::{self, State};

/// Signals are looked for this often.
const SLICE: Duration = Duration::from_millis(100);

/// Read at a time, so that an announced length costs nothing before its bytes come.
const CHUNK_BYTES: usize = 64 * 1024;

/// Whoever takes a message more slowly holds us up on purpose.
const TAKEN_BYTES_PER_S_MIN: u64 = 16 << 10;

/// Asks whether a signal wants the program to end.
pub(super) type Interrupted<'a> = &'a dyn Fn() -> Option<i32>;

/// One control connection.
pub(super) struct Channel<'a> {
    stream: TcpStream,
    interrupted: Interrupted<'a>,
    patience: Duration,
}

impl std::fmt::Debug for Channel<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Channel").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl<'a> Channel<'a> {
    /// Takes a connected stream; the other end may stay silent for `patience` whenever it is its
    /// turn.
    pub(super) fn new(
        stream: TcpStream,
        patience: Duration,
        interrupted: Interrupted<'a>,
    ) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(SLICE))?;
        Ok(Self { stream, interrupted, patience })
    }

    /// The connection itself.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Who to ask about signals.
    pub(super) fn interrupted(&self) -> Interrupted<'a> {
        self.interrupted
    }

    /// Fails when a signal has come.
    pub(super) fn check_signal(&self) -> Result<(), Iperf3Error> {
        (self.interrupted)().map_or(Ok(()), |signal| Err(Iperf3Error::Interrupted(signal)))
    }

    /// Whether a byte (or the end) waits within this time.
    pub(super) fn is_readable(&self, within: Duration) -> bool {
        wait_readable(self.stream.as_fd(), within)
    }

    pub(super) fn send_state(&mut self, state: State) -> Result<(), Iperf3Error> {
        self.send(&[state.byte()])
    }

    pub(super) fn send_message(&mut self, message: &Json) -> Result<(), Iperf3Error> {
        self.send(&wire::encode_message(message))
    }

    /// Sends all of it; the other end may take none of it for the patience, and no less than
    /// [`TAKEN_BYTES_PER_S_MIN`] in all.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<(), Iperf3Error> {
        let patience = self.patience.max(SLICE);
        let slowest = Duration::from_secs(bytes.len() as u64 / TAKEN_BYTES_PER_S_MIN);
        let (began, mut moved) = (Instant::now(), Instant::now());
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(Iperf3Error::SendMessage(io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    bytes = &bytes[count..];
                    moved = Instant::now();
                }
                Err(error) if is_pause(&error) => {
                    self.check_signal()?;
                    if moved.elapsed() > patience || began.elapsed() > patience + slowest {
                        return Err(Iperf3Error::SendMessage(io::ErrorKind::TimedOut.into()));
                    }
                }
                Err(error) => return Err(Iperf3Error::SendMessage(error)),
            }
        }
        Ok(())
    }

    /// The next state byte.
    pub(super) fn state(&mut self) -> Result<State, Iperf3Error> {
        let mut byte = [0];
        self.read(&mut byte)?;
        State::from_byte(byte[0]).ok_or(Iperf3Error::UnknownMessage)
    }

    /// A big-endian number.
    pub(super) fn number(&mut self) -> Result<i32, Iperf3Error> {
        let mut bytes = [0; 4];
        self.read(&mut bytes)?;
        Ok(i32::from_be_bytes(bytes))
    }

    /// The body of a JSON message of at most `max_bytes`; `refuse` wraps what is wrong with it.
    pub(super) fn message(
        &mut self,
        max_bytes: u32,
        refuse: fn(wire::WireError) -> Iperf3Error,
    ) -> Result<Vec<u8>, Iperf3Error> {
        let mut header = [0; 4];
        self.read(&mut header)?;
        let length_bytes = wire::message_length(header, max_bytes).map_err(refuse)?;
        let mut body = Vec::new();
        while body.len() < length_bytes {
            let have = body.len();
            body.resize(length_bytes.min(have + CHUNK_BYTES), 0);
            self.read(&mut body[have..])?;
        }
        Ok(body)
    }

    /// Fills `buffer`.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<(), Iperf3Error> {
        let deadline = Instant::now() + self.patience;
        let mut have = 0;
        while have < buffer.len() {
            self.check_signal()?;
            match self.stream.read(&mut buffer[have..]) {
                Ok(0) => return Err(Iperf3Error::ControlClosed),
                Ok(count) => have += count,
                Err(error) if is_pause(&error) => {
                    if Instant::now() >= deadline {
                        return Err(Iperf3Error::Silence(self.patience.as_secs()));
                    }
                }
                Err(error) => return Err(Iperf3Error::ReceiveMessage(error)),
            }
        }
        Ok(())
    }

    /// Lets the other end read everything before the connection goes: half-closes and waits a
    /// little for its end.
    pub(super) fn close(mut self) {
        // Whatever goes wrong here, the connection is gone in the end.
        self.stream.shutdown(std::net::Shutdown::Write).ok();
        let deadline = Instant::now() + Duration::from_millis(500);
        let mut rest = [0; 512];
        while Instant::now() < deadline {
            match self.stream.read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if is_pause(&error) => {}
                Err(_gone) => return,
            }
        }
    }
}

/// Whether a read ended because its time slice did.
pub(super) fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Whether a read would not wait, within this time.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, within: Duration) -> bool {
    wait(fd, PollFlags::IN, within)
}

/// Whether one of these events is there within this time; an interrupted wait says no.
pub(super) fn wait(fd: BorrowedFd<'_>, events: PollFlags, within: Duration) -> bool {
    let mut wanted = [PollFd::from_borrowed_fd(fd, events)];
    let timeout = Timespec::try_from(within).ok();
    poll(&mut wanted, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}
