//! A control connection: messages over TCP, with a deadline for every operation.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{FrameBuffer, FrameError, encode};

/// A peer that reads nothing of what is sent for this long is considered gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that reads more slowly than this, in bytes per second, is considered stalled.
const SEND_BYTES_PER_S_MIN: u64 = 16 << 10;

/// Why a control connection is no longer usable.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer closed it, in the middle of a message or between two.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer does not finish a message it began, or no longer reads.
    #[error("the peer stalled in the middle of a message")]
    Stalled,
    /// The received bytes are not this protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The network failed.
    #[error("the connection failed")]
    Socket(#[source] io::Error),
}

/// A control connection. Owns the socket, which is non-blocking from here on.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    buffer: FrameBuffer,
    message_timeout: Duration,
    partial_since: Option<Instant>,
    received_at: Instant,
}

impl Link {
    /// Takes over a connection after its greeting. Accepts messages of at most `frame_bytes_max`
    /// bytes; each must be complete `message_timeout` after it began.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn new(
        stream: TcpStream,
        frame_bytes_max: usize,
        message_timeout: Duration,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // The peer waits for each of these small messages; a socket without the option is only
        // slower.
        stream.set_nodelay(true).ok();
        let buffer = FrameBuffer::new(frame_bytes_max);
        let received_at = Instant::now();
        Ok(Self { stream, buffer, message_timeout, partial_since: None, received_at })
    }

    /// From now on accepts messages of at most `frame_bytes_max` bytes.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.buffer.set_frame_bytes_max(frame_bytes_max);
    }

    /// This end's address.
    ///
    /// # Errors
    /// The socket is no longer connected.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Time since anything arrived from the peer, even part of a message.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        self.received_at.elapsed()
    }

    /// Sends one message. The peer must read part of it every 10 s, and all of it within 10 s plus
    /// 1 s for every 16 KiB.
    ///
    /// # Errors
    /// [`LinkError`]: the link is no longer usable.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), LinkError> {
        let frame = encode(message)?;
        let mut rest = frame.as_slice();
        let patience = Duration::from_secs(frame.len() as u64 / SEND_BYTES_PER_S_MIN);
        let latest = Instant::now() + SEND_TIMEOUT + patience;
        let mut deadline = latest.min(Instant::now() + SEND_TIMEOUT);
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(written_bytes) => {
                    rest = &rest[written_bytes..];
                    deadline = latest.min(Instant::now() + SEND_TIMEOUT);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait(&self.stream, PollFlags::OUT, deadline).map_err(LinkError::Socket)? {
                        return Err(LinkError::Stalled);
                    }
                }
                Err(error) => return Err(failure(error)),
            }
        }
        Ok(())
    }

    /// The next message; `None` if none is complete at `deadline` (which may be now).
    ///
    /// # Errors
    /// [`LinkError`]: the link is no longer usable.
    pub fn receive<M: DeserializeOwned>(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<M>, LinkError> {
        loop {
            if let Some(message) = self.buffer.next_message()? {
                self.partial_since = None;
                return Ok(Some(message));
            }
            if self.read_some()? {
                continue;
            }
            self.check_stall()?;
            if !wait(&self.stream, PollFlags::IN, deadline).map_err(LinkError::Socket)? {
                return Ok(None);
            }
        }
    }

    /// Reads what the socket has; returns `false` if it has nothing.
    fn read_some(&mut self) -> Result<bool, LinkError> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(LinkError::Closed),
            Ok(count) => {
                self.buffer.extend(&bytes[..count]);
                self.received_at = Instant::now();
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(failure(error)),
        }
    }

    fn check_stall(&mut self) -> Result<(), LinkError> {
        if !self.buffer.is_partial() {
            self.partial_since = None;
            return Ok(());
        }
        let since = *self.partial_since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.message_timeout { Err(LinkError::Stalled) } else { Ok(()) }
    }
}

fn failure(error: io::Error) -> LinkError {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => LinkError::Closed,
        _ => LinkError::Socket(error),
    }
}

/// Waits until the socket is ready or the deadline passes; `false` for the latter. Also returns
/// `true` early, after `LOOK_AGAIN` or on a signal, so that the caller checks its own state again.
fn wait(socket: &impl AsFd, flags: PollFlags, deadline: Instant) -> io::Result<bool> {
    // The interval at which a partial message is checked, so that a stall is noticed.
    const LOOK_AGAIN: Duration = Duration::from_millis(500);
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    let timeout = Timespec::try_from(left.min(LOOK_AGAIN)).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket, flags)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
