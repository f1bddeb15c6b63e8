//! Resolves a name, connects, and determines what is at the other end.

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{connect, sockopt};

use super::ClientError;
use super::foreign::{FarProtocol, FirstAnswer, none_of, server_commands};
use crate::control::{GREETING_BYTES, Refusal, RefusalCode};

/// Internet Protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name or address; an IPv6 address may be in brackets.
    pub host: String,
    /// The port, for both TCP and UDP.
    pub port: u16,
    /// Connect only over this IP version; absent: over either.
    pub family: Option<Family>,
}

impl Target {
    /// A host at the default port, over either IP version.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: crate::server::DEFAULT_PORT, family: None }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} port {}", self.host, self.port)
    }
}

/// What the first byte from a server says about it.
#[derive(Debug)]
pub(super) enum Answer {
    Ours,
    Foreign(&'static dyn FarProtocol),
}

/// Why a greeting did not lead to a session.
#[derive(Debug)]
pub(super) enum GreetError {
    Busy(&'static dyn FarProtocol),
    Mute,
    Foreign,
    Closed,
    Io(io::Error),
}

impl GreetError {
    pub(super) fn at(self, target: &Target, known: &[&'static dyn FarProtocol]) -> ClientError {
        let named = target.to_string();
        match self {
            Self::Busy(protocol) => {
                let name = protocol.name();
                let reason =
                    format!("the {name} server is busy with another test; try again later");
                ClientError::refused(target, Refusal::new(RefusalCode::Busy, reason))
            }
            Self::Mute => ClientError::Mute { target: named, what: none_of(known) },
            Self::Foreign => ClientError::Foreign { target: named, what: none_of(known) },
            Self::Closed => {
                ClientError::Lost { target: named, source: crate::control::LinkError::Closed }
            }
            Self::Io(source) => ClientError::Unreachable { target: named, source },
        }
    }
}

/// Connects to the first address of `target` that accepts the connection.
pub(super) fn dial(
    target: &Target,
    timeout: Duration,
    known: &[&'static dyn FarProtocol],
) -> Result<(TcpStream, SocketAddr), ClientError> {
    let mut failure = None;
    let mut lacks_interface = false;
    for address in resolve(target)? {
        lacks_interface |= matches!(address, SocketAddr::V6(v6)
            if v6.ip().is_unicast_link_local() && v6.scope_id() == 0);
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok((stream, address)),
            // An address that refuses says more than one that cannot be reached.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => failure = Some(error),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let named = target.to_string();
    Err(match failure {
        Some(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                ClientError::NothingListens { target: named, start: server_commands(known) }
            }
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                ClientError::Timeout { target: named }
            }
            io::ErrorKind::InvalidInput if lacks_interface => {
                ClientError::NoInterface { host: target.host.clone() }
            }
            _ => ClientError::Unreachable { target: named, source: error },
        },
        None => ClientError::UnknownHost {
            host: target.host.clone(),
            reason: match target.family {
                Some(Family::V4) => "it has no IPv4 address".to_owned(),
                Some(Family::V6) => "it has no IPv6 address".to_owned(),
                None => "it has no address".to_owned(),
            },
        },
    })
}

fn resolve(target: &Target) -> Result<Vec<SocketAddr>, ClientError> {
    let host = target.host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (host, target.port).to_socket_addrs().map_err(|error| {
        let reason = error.to_string();
        // The resolver's own words without the library's prefix.
        let reason = reason.rsplit(": ").next().unwrap_or(&reason).to_owned();
        ClientError::UnknownHost { host: target.host.clone(), reason }
    })?;
    let wanted = |address: &SocketAddr| match target.family {
        Some(Family::V4) => address.is_ipv4(),
        Some(Family::V6) => address.is_ipv6(),
        None => true,
    };
    Ok(addresses.filter(wanted).collect())
}

/// Sends the greeting and peeks at the first byte of the answer without removing it.
pub(super) fn greet(
    mut stream: &TcpStream,
    greeting: &[u8; GREETING_BYTES],
    timeout: Duration,
    known: &[&'static dyn FarProtocol],
) -> Result<Answer, GreetError> {
    stream.set_read_timeout(Some(timeout)).map_err(GreetError::Io)?;
    stream.write_all(greeting).map_err(GreetError::Io)?;
    let mut first = [0];
    match stream.peek(&mut first) {
        Ok(0) => Err(GreetError::Closed),
        // The first frame is far shorter than 16 MiB, so the first byte of its length is 0.
        Ok(_) if first == [0] => Ok(Answer::Ours),
        Ok(_) => {
            let answers = known.iter().filter_map(|one| Some((*one, one.first_answer(first[0])?)));
            match answers.into_iter().next() {
                Some((protocol, FirstAnswer::Ready)) => Ok(Answer::Foreign(protocol)),
                Some((protocol, FirstAnswer::Busy)) => Err(GreetError::Busy(protocol)),
                None => Err(GreetError::Foreign),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(GreetError::Mute),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(GreetError::Closed),
        Err(error) => Err(GreetError::Io(error)),
    }
}

/// Connects a prepared socket, waiting at most until `deadline`.
pub(super) fn connect_prepared(
    fd: OwnedFd,
    address: SocketAddr,
    deadline: Instant,
) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    match connect(&fd, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => await_connection(&fd, deadline)?,
        Err(error) => return Err(error.into()),
    }
    rustix::io::ioctl_fionbio(&fd, false)?;
    Ok(fd)
}

fn await_connection(fd: &impl AsFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(fd, PollFlags::OUT)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(sockopt::socket_error(fd)??),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
