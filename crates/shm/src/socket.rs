//! Messages with descriptors over a UNIX socket.
//!
//! `SOCK_SEQPACKET`: the kernel keeps messages apart, so there is no framing to get wrong, and a
//! message arrives together with its descriptors or not at all.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use sys::SyscallError;

/// Longest message. One that is longer is refused whole.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Most descriptors in one message; the kernel's own limit is 253 (`SCM_MAX_FD`).
pub const FDS_MAX: usize = 130;

/// The result of a receive call.
#[derive(Debug)]
pub enum Message {
    /// A message.
    Received {
        /// Bytes of the message.
        bytes: Vec<u8>,
        /// Its descriptors; all are close-on-exec.
        fds: Vec<OwnedFd>,
    },
    /// Longer than [`MESSAGE_BYTES_MAX`], or more descriptors than [`FDS_MAX`].
    TooLong,
    /// Some of its descriptors are lost, because this process may not have so many.
    NoDescriptors,
    /// No message is waiting.
    Nothing,
    /// The peer has disconnected.
    Closed,
}

/// What waits to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// A message without descriptors.
    Plain,
    /// One that brings some.
    WithDescriptors,
    /// No connection is waiting.
    Nothing,
    /// The peer has disconnected, and everything it sent has been received.
    Closed,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// Nothing listens there, or permission is denied.
    pub fn connect(path: &Path) -> Result<Self, SyscallError> {
        let object = || path.display().to_string();
        let address = SocketAddrUnix::new(path)
            .map_err(|error| SyscallError::new("connect", object(), error))?;
        let fd = new_socket(SocketFlags::CLOEXEC, &object())?;
        rustix::net::connect(&fd, &address)
            .map_err(|error| SyscallError::new("connect", object(), error))?;
        Ok(Self { fd })
    }

    /// Connects to the server at an abstract name, which belongs to this network namespace and to no folder.
    /// Any user may listen at any name: see [`peer_user`](Self::peer_user). Connecting, sending and receiving
    /// each take at most `timeout`.
    ///
    /// # Errors
    /// Nothing listens there (`ECONNREFUSED`), or what listens accepts nobody (`EAGAIN`).
    pub fn connect_abstract(name: &str, timeout: Duration) -> Result<Self, SyscallError> {
        let failed = |error| SyscallError::new("connect", format!("@{name}"), error);
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed)?;
        let fd = new_socket(SocketFlags::CLOEXEC, name)?;
        sys::socket::set_timeouts(&fd, timeout)?;
        rustix::net::connect(&fd, &address).map_err(failed)?;
        Ok(Self { fd })
    }

    /// Sends a message, whole.
    ///
    /// # Errors
    /// The peer has disconnected or does not read, or the message is too long.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SyscallError> {
        let failed = |error: Errno| SyscallError::new("sendmsg", "UNIX socket", error);
        if bytes.len() > MESSAGE_BYTES_MAX || fds.len() > FDS_MAX {
            return Err(failed(Errno::MSGSIZE));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(failed(Errno::MSGSIZE));
        }
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut control, flags)
            .map(|_| ())
            .map_err(failed)
    }

    /// The next message; on a blocking socket, waits for it.
    ///
    /// # Errors
    /// The connection broke in another way than by closing.
    pub fn receive(&self) -> Result<Message, SyscallError> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut receive = || {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&self.fd, into, &mut control, flags)
        };
        // A peer that closes without reading is told of first, once; what it said before is there still.
        let outcome = match receive() {
            Err(Errno::CONNRESET) => receive(),
            outcome => outcome,
        };
        let received = match outcome {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Message::Nothing),
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Message::Closed),
            Err(error) => return Err(SyscallError::new("recvmsg", "UNIX socket", error)),
        };
        let fds: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Ok(Message::TooLong);
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            let too_many = fds.len() >= FDS_MAX;
            return Ok(if too_many { Message::TooLong } else { Message::NoDescriptors });
        }
        // A sequenced packet socket says that the peer has gone by a message of no bytes.
        if received.bytes == 0 && fds.is_empty() {
            return Ok(Message::Closed);
        }
        bytes.truncate(received.bytes);
        Ok(Message::Received { bytes, fds })
    }

    /// What [`receive`](Self::receive) would find, of a connection that a [`Listener`] accepted. No
    /// descriptor is taken over or closed: to close one may take as long as whoever sent it likes, and the
    /// kernel closes in the name of whoever receives.
    ///
    /// # Errors
    /// The connection broke in another way than by closing.
    pub fn peek(&self) -> Result<Waiting, SyscallError> {
        // Room for the sender's credentials, which come with each message, also with an empty one, and not
        // with the end; and for no descriptor.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
        let mut peek = || {
            rustix::net::recvmsg(&self.fd, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)
        };
        let outcome = match peek() {
            Err(Errno::CONNRESET) => peek(),
            outcome => outcome,
        };
        let received = match outcome {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Waiting::Nothing),
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Waiting::Closed),
            Err(error) => return Err(SyscallError::new("recvmsg", "UNIX socket", error)),
        };
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Ok(Waiting::WithDescriptors);
        }
        let is_end = received.bytes == 0 && control.drain().next().is_none();
        Ok(if is_end { Waiting::Closed } else { Waiting::Plain })
    }

    /// Neither side can say any more; what has been said can still be received.
    ///
    /// # Errors
    /// Not a connected UNIX socket.
    pub fn shutdown(&self) -> Result<(), SyscallError> {
        rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both)
            .map_err(|error| SyscallError::new("shutdown", "UNIX socket", error))
    }

    /// The user id of the process at the other end, as the kernel knows it.
    ///
    /// # Errors
    /// Not a connected UNIX socket.
    pub fn peer_user(&self) -> Result<u32, SyscallError> {
        sys::socket::peer_user(&self.fd)
    }

    /// The process at the other end; none where it has no number in this process-id namespace.
    ///
    /// # Errors
    /// Not a connected UNIX socket.
    pub fn peer_process(&self) -> Result<Option<u32>, SyscallError> {
        sys::socket::peer_process(&self.fd)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Connections that wait to be accepted, at most.
const BACKLOG_COUNT: i32 = 64;

/// A socket that others connect to. Its path goes with it.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// What the kernel calls the file at `path`: another's may take its place. None: there is no file.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Listens at `path`. What is left of a process that ended without cleaning up is replaced; a
    /// socket that somebody serves is not, nor another user's, nor anything that is no socket.
    ///
    /// # Errors
    /// Somebody listens there already (`EADDRINUSE`), something else is there (`ENOTSOCK`), or no
    /// permission for the folder.
    pub fn bind(path: &Path) -> Result<Self, SyscallError> {
        let object = path.display().to_string();
        let failed = |call| {
            let object = object.clone();
            move |error: Errno| SyscallError::new(call, object, error)
        };
        let address = SocketAddrUnix::new(path).map_err(failed("bind"))?;
        let fd = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, &object)?;
        // Connections have it from the listener: see `Socket::peek`.
        rustix::net::sockopt::set_socket_passcred(&fd, true)
            .map_err(failed("setsockopt(SO_PASSCRED)"))?;
        // Two that find the same deserted socket: the later one must find the earlier one's.
        let _turn = turn(path);
        match rustix::net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if !is_socket(path) => {
                return Err(failed("bind")(Errno::NOTSOCK));
            }
            Err(Errno::ADDRINUSE) if deserted(path) => {
                // Somebody else's is his to remove.
                if !is_own_file(path) {
                    return Err(failed("unlink")(Errno::PERM));
                }
                rustix::fs::unlink(path).map_err(failed("unlink"))?;
                rustix::net::bind(&fd, &address).map_err(failed("bind"))?;
            }
            answer => answer.map_err(failed("bind"))?,
        }
        let listener = Self { fd, path: path.to_owned(), file: file_at(path) };
        rustix::net::listen(&listener, BACKLOG_COUNT).map_err(failed("listen"))?;
        Ok(listener)
    }

    /// Listens at an abstract name, which is gone with the listener.
    ///
    /// # Errors
    /// Somebody listens there already, or no descriptor is left.
    pub fn bind_abstract(name: &str) -> Result<Self, SyscallError> {
        let failed = |call| move |error| SyscallError::new(call, format!("@{name}"), error);
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed("bind"))?;
        let fd = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, name)?;
        rustix::net::bind(&fd, &address).map_err(failed("bind"))?;
        rustix::net::listen(&fd, BACKLOG_COUNT).map_err(failed("listen"))?;
        Ok(Self { fd, path: PathBuf::from(format!("@{name}")), file: None })
    }

    /// The next connection, if one waits; it does not block either.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn accept(&self) -> Result<Option<Socket>, SyscallError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.fd, flags) {
            Ok(fd) => Ok(Some(Socket { fd })),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(SyscallError::new("accept", self.path.display().to_string(), error)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Somebody may have removed it already, and listen there now.
        if self.file.is_some() && file_at(&self.path) == self.file {
            rustix::fs::unlink(&self.path).ok();
        }
    }
}

/// Longest wait for others that are about to listen in the same folder.
const TURN_MAX: Duration = Duration::from_secs(5);

/// A lock on the folder, as long as the result is there. Where it cannot be had nobody is kept from listening.
fn turn(path: &Path) -> Option<OwnedFd> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, Mode::empty()).ok()?;
    let began = Instant::now();
    loop {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(Errno::WOULDBLOCK | Errno::INTR) if began.elapsed() < TURN_MAX => {}
            Err(_) => return None,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Its device and number.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    rustix::fs::lstat(path).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Whether it is a socket, or nothing any more.
fn is_socket(path: &Path) -> bool {
    let is_one = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    rustix::fs::lstat(path).map_or(true, is_one)
}

/// Whether this user made what is at `path`, or nothing is there any more.
#[must_use]
pub fn is_own_file(path: &Path) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    rustix::fs::lstat(path).map_or(true, |stat| stat.st_uid == ours)
}

/// Whether `path` is a socket without a server.
fn deserted(path: &Path) -> bool {
    let refused = |error: &SyscallError| {
        error.source.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error())
    };
    Socket::connect(path).is_err_and(|error| refused(&error))
}

fn new_socket(flags: SocketFlags, object: &str) -> Result<OwnedFd, SyscallError> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|error| SyscallError::new("socket", object, error))
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::{Bell, Region};

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("clearstream-shm-{name}-{}", std::process::id()))
    }

    #[test]
    fn memory_and_bells_travel() {
        let path = path("travel");
        let listener = Listener::bind(&path).unwrap();
        let near = Socket::connect(&path).unwrap();
        let far = listener.accept().unwrap().unwrap();
        assert!(matches!(far.receive().unwrap(), Message::Nothing));
        assert_eq!(far.peer_user().unwrap(), rustix::process::getuid().as_raw());

        let (region, bell) = (Region::create("test", 1).unwrap(), Bell::new().unwrap());
        far.send(b"here", &[region.fd().unwrap(), bell.as_fd()]).unwrap();
        let Message::Received { bytes, mut fds } = near.receive().unwrap() else { panic!() };
        assert_eq!((bytes.as_slice(), fds.len()), (b"here".as_slice(), 2));
        Bell::from_fd(fds.pop().unwrap()).ring().unwrap();
        assert!(bell.wait(None).unwrap());
        assert_eq!(Region::attach(fds.pop().unwrap()).unwrap().length_bytes(), 2 << 20);

        drop(far);
        assert!(matches!(near.receive().unwrap(), Message::Closed));
        assert!(near.send(b"x", &[]).is_err());
    }

    #[test]
    fn what_waits_is_known_before_it_is_received() {
        let path = path("peek");
        let listener = Listener::bind(&path).unwrap();
        let near = Socket::connect(&path).unwrap();
        let bell = Bell::new().unwrap();
        // The first is said before anybody has accepted.
        near.send(b"early", &[]).unwrap();
        let far = listener.accept().unwrap().unwrap();
        assert_eq!(far.peek().unwrap(), Waiting::Plain);
        assert!(
            matches!(far.receive().unwrap(), Message::Received { bytes, .. } if bytes == b"early")
        );
        assert_eq!(far.peek().unwrap(), Waiting::Nothing);
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        near.send(b"", &[]).unwrap();
        near.send(b"with", &[bell.as_fd(), bell.as_fd()]).unwrap();
        near.send(&[7; 5000], &[]).unwrap();
        drop(near);
        assert_eq!(far.peek().unwrap(), Waiting::Plain, "an empty message is no end");
        far.receive().unwrap();
        let before = open();
        for _ in 0..50 {
            assert_eq!(far.peek().unwrap(), Waiting::WithDescriptors);
        }
        // Other tests open and close some meanwhile, but not so many.
        assert!(open() < before + 40, "none is taken over");
        assert!(matches!(far.receive().unwrap(), Message::Received { fds, .. } if fds.len() == 2));
        far.shutdown().unwrap();
        assert_eq!(far.peek().unwrap(), Waiting::Plain);
        assert!(
            matches!(far.receive().unwrap(), Message::Received { bytes, .. } if bytes == [7; 5000])
        );
        assert_eq!(far.peek().unwrap(), Waiting::Closed);
    }

    #[test]
    fn what_is_no_socket_is_not_replaced() {
        let path = path("file");
        std::fs::write(&path, "somebody's").unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(Errno::NOTSOCK.raw_os_error()));
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
        std::fs::remove_file(&path).unwrap();
        let folder = std::env::temp_dir();
        assert!(Listener::bind(&folder).is_err() && folder.is_dir());
    }

    #[test]
    fn of_many_that_find_a_deserted_socket_one_listens() {
        let folder = path("many");
        std::fs::create_dir(&folder).unwrap();
        let together = std::sync::Barrier::new(6);
        for round in 0..100 {
            let path = folder.join(round.to_string());
            let left = new_socket(SocketFlags::CLOEXEC, "test").unwrap();
            rustix::net::bind(&left, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            drop(left);
            let all: Vec<_> = std::thread::scope(|scope| {
                let bind = || {
                    scope.spawn(|| {
                        together.wait();
                        Listener::bind(&path)
                    })
                };
                let threads: Vec<_> = (0..6).map(|_| bind()).collect();
                threads.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1, "{all:?}");
        }
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn only_a_deserted_socket_is_replaced() {
        let path = path("deserted");
        let served = Listener::bind(&path).unwrap();
        assert!(Listener::bind(&path).is_err(), "somebody serves it");
        // As after a crash: the descriptor is closed, the path stays.
        let address = SocketAddrUnix::new(path.with_extension("old")).unwrap();
        let left = new_socket(SocketFlags::CLOEXEC, "test").unwrap();
        rustix::net::bind(&left, &address).unwrap();
        drop(left);
        Listener::bind(&path.with_extension("old")).unwrap();
        std::fs::remove_file(&path).unwrap();
        let successor = Listener::bind(&path).unwrap();
        drop(served);
        Socket::connect(&path).expect("the path is another's now");
        drop(successor);
        assert!(!path.exists(), "the path goes with the listener");
    }

    #[test]
    fn an_abstract_name_serves_while_its_listener_lives_and_nobody_waits_for_long() {
        let name = format!("clearstream-test-{}", std::process::id());
        let listener = Listener::bind_abstract(&name).unwrap();
        assert!(Listener::bind_abstract(&name).is_err(), "it is taken");
        let short = Duration::from_millis(10);
        let near = Socket::connect_abstract(&name, short).unwrap();
        let far = listener.accept().unwrap().unwrap();
        for end in [&near, &far] {
            assert_eq!(end.peer_user().unwrap(), rustix::process::geteuid().as_raw());
            assert_eq!(end.peer_process().unwrap(), Some(std::process::id()));
        }
        assert!(matches!(near.receive().unwrap(), Message::Nothing), "nothing came in time");
        let waiting: Vec<Socket> =
            std::iter::from_fn(|| Socket::connect_abstract(&name, short).ok()).take(1000).collect();
        assert!(waiting.len() < 1000, "at some time nobody more may wait");
        drop(listener);
        let error = Socket::connect_abstract(&name, short).unwrap_err();
        assert_eq!(error.source.kind(), std::io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn too_much_is_refused_whole() {
        let path = path("long");
        let listener = Listener::bind(&path).unwrap();
        let near = Socket::connect(&path).unwrap();
        let far = listener.accept().unwrap().unwrap();
        assert!(near.send(&vec![1; MESSAGE_BYTES_MAX + 1], &[]).is_err());
        rustix::net::send(&near, &vec![1; MESSAGE_BYTES_MAX + 1], SendFlags::empty()).unwrap();
        near.send(b"short", &[]).unwrap();
        assert!(matches!(far.receive().unwrap(), Message::TooLong));
        assert!(matches!(far.receive().unwrap(), Message::Received { .. }), "the next is whole");
    }
}
