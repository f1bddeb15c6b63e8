//! The socket at which a hypervisor speaks vhost-user.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};
use sys::SyscallError;
use thiserror::Error;

use super::message::{HEADER_BYTES, Message, MessageError, REGIONS_MAX, payload_bytes};

/// How long nothing is done where no descriptor is left for a hypervisor that connects.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);

/// The socket to which hypervisors connect.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Listens at `path`. A socket of this user's that nobody serves any more is replaced; nothing else is. The file
    /// stays when the listener goes.
    ///
    /// # Errors
    /// Somebody listens there (`EADDRINUSE`), something else is there, a deserted socket is another user's (`EPERM`), or
    /// no permission.
    pub fn bind(path: &Path) -> Result<Self, SyscallError> {
        let failed = |call: &'static str| {
            move |error: Errno| SyscallError::new(call, path.display().to_string(), error)
        };
        let address = SocketAddrUnix::new(path).map_err(failed("bind"))?;
        let new = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        };
        let fd = new().map_err(failed("socket"))?;
        match rustix::net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if is_socket(path) => {
                let other = new().map_err(failed("socket"))?;
                if rustix::net::connect(&other, &address) != Err(Errno::CONNREFUSED) {
                    return Err(failed("bind")(Errno::ADDRINUSE));
                }
                // Somebody else's is his to remove.
                if !shm::is_own_file(path) {
                    return Err(failed("unlink")(Errno::PERM));
                }
                rustix::fs::unlink(path).map_err(failed("unlink"))?;
                rustix::net::bind(&fd, &address).map_err(failed("bind"))?;
            }
            answer => answer.map_err(failed("bind"))?,
        }
        rustix::net::listen(&fd, 4).map_err(failed("listen"))?;
        Ok(Self { fd })
    }

    /// Takes over one that somebody else made.
    ///
    /// # Errors
    /// It is no UNIX stream socket that listens.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, SyscallError> {
        use rustix::net::sockopt;
        let failed = |call: &'static str| {
            move |error: Errno| SyscallError::new(call, "vhost-user socket", error)
        };
        let listens = sockopt::socket_acceptconn(&fd).map_err(failed("getsockopt"))?;
        let kind = sockopt::socket_type(&fd).map_err(failed("getsockopt"))?;
        let family = sockopt::socket_domain(&fd).map_err(failed("getsockopt"))?;
        if !listens || kind != SocketType::STREAM || family != AddressFamily::UNIX {
            return Err(failed("accept")(Errno::INVAL));
        }
        rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK).map_err(failed("fcntl"))?;
        Ok(Self { fd })
    }

    /// The next hypervisor, if one waits.
    ///
    /// # Errors
    /// As `accept(2)`.
    pub fn accept(&self) -> Result<Option<Connection>, SyscallError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.fd, flags) {
            Ok(fd) => Ok(Some(Connection::new(fd))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            // This process may have no more descriptors now: the hypervisor waits.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                std::thread::sleep(SHORTAGE_PAUSE);
                Ok(None)
            }
            Err(error) => Err(SyscallError::new("accept", "vhost-user socket", error)),
        }
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> Self {
        listener.fd
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_socket(path: &Path) -> bool {
    let is_one = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    rustix::fs::lstat(path).is_ok_and(is_one)
}

/// Why a connection is over.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The hypervisor has disconnected.
    #[error("the hypervisor has disconnected")]
    Closed,
    /// It says what is no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// It sends descriptors that no message has, or more than can be taken.
    #[error("descriptors that cannot be accepted")]
    Descriptors,
    /// It does not read its answers.
    #[error("answers are not read")]
    Deaf,
    /// The kernel says so.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

/// A hypervisor that has connected.
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
    /// What has come of the next message.
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Connection {
    fn new(fd: OwnedFd) -> Self {
        Self { fd, bytes: Vec::new(), fds: Vec::new() }
    }

    /// The next message and its descriptors, if it is there; never waits.
    ///
    /// # Errors
    /// The connection is over.
    pub fn next_message(&mut self) -> Result<Option<(Message, Vec<OwnedFd>)>, ConnectionError> {
        loop {
            let header = self.bytes.first_chunk::<HEADER_BYTES>();
            let wanted = match header {
                Some(header) => HEADER_BYTES + payload_bytes(header)?,
                None => HEADER_BYTES,
            };
            if let Some(header) = header.filter(|_| self.bytes.len() == wanted) {
                let message = Message::decode(header, &self.bytes[HEADER_BYTES..])?;
                self.bytes.clear();
                return Ok(Some((message, std::mem::take(&mut self.fds))));
            }
            // No more than this message has: descriptors of the next come with its first byte.
            if !self.receive(wanted - self.bytes.len())? {
                return Ok(None);
            }
        }
    }

    /// Receives up to so many bytes; false when none is there.
    fn receive(&mut self, count: usize) -> Result<bool, ConnectionError> {
        let at = self.bytes.len();
        self.bytes.resize(at + count, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGIONS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let into = &mut [IoSliceMut::new(&mut self.bytes[at..])];
        let outcome = rustix::net::recvmsg(&self.fd, into, &mut control, flags);
        let received = outcome.as_ref().map_or(0, |received| received.bytes);
        self.bytes.truncate(at + received);
        let brought = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        self.fds.extend(brought.flatten());
        match outcome {
            Ok(received) if received.flags.contains(ReturnFlags::CTRUNC) => {
                Err(ConnectionError::Descriptors)
            }
            Ok(_) if self.fds.len() > REGIONS_MAX => Err(ConnectionError::Descriptors),
            Ok(received) if received.bytes == 0 => Err(ConnectionError::Closed),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::CONNRESET | Errno::PIPE) => Err(ConnectionError::Closed),
            Err(error) => Err(SyscallError::new("recvmsg", "vhost-user socket", error).into()),
        }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// The connection is over, or the hypervisor does not read.
    pub fn send(&mut self, answer: &[u8]) -> Result<(), ConnectionError> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(&self.fd, answer, flags) {
            Ok(sent) if sent == answer.len() => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(ConnectionError::Deaf),
            Err(Errno::CONNRESET | Errno::PIPE) => Err(ConnectionError::Closed),
            Err(error) => Err(SyscallError::new("send", "vhost-user socket", error).into()),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
