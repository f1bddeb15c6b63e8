//! Conversations with the kernel over netlink (`netlink(7)`): requests, lists, batches and
//! notifications. What is said is the `netlink` crate's.
//!
//! A socket acts in the network namespace its thread was in when it was opened, or in one that is
//! given by its descriptor ([`NetlinkSocket::open_in`]). Whatever goes wrong is reported with the kernel's number and
//! text; nothing is repeated, except a list that changed while it was read, and nothing is left out.

mod filters;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use netlink::{
    Answer, Configurable, CreateError, Frame, Frames, KernelError, MalformedError, Message, Mode,
    Notification, Object, Route, RouteFilter, flag,
};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};
use thiserror::Error;

use crate::{SyscallError, namespace, socket};

/// What the kernel puts into one answer at most (`netlink_dump` in `net/netlink/af_netlink.c`).
const ANSWER_BYTES_MAX: usize = 32 << 10;
/// Answers of one list: 256 MiB, some millions of routes.
const ANSWERS_COUNT_MAX: usize = 8192;
/// Times a list is read that changes meanwhile.
const DUMPS_COUNT_MAX: usize = 16;
/// How long the kernel is waited for. It answers before a request returns; only what drops answers makes it
/// silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests sent at once: their acknowledgements wait in the receive buffer, 1 KiB each, and
/// its default size is 208 KiB.
const BATCH_MESSAGES_MAX: usize = 64;
/// Bytes sent at once: below the default send buffer.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// What waits for a subscriber that is slow, bytes.
const NOTIFICATION_BUFFER_BYTES: u64 = 4 << 20;

/// A request that failed.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// The socket itself failed.
    #[error(transparent)]
    Call(#[from] SyscallError),
    /// The kernel refused.
    #[error("the kernel refuses: {0}")]
    Refused(#[from] KernelError),
    /// The kernel's answer has not the form it must have.
    #[error(transparent)]
    Malformed(#[from] MalformedError),
    /// The request cannot be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A list changed each time it was read.
    #[error("the list changed {DUMPS_COUNT_MAX} times while it was read")]
    Changing,
    /// A list or an answer is longer than is read.
    #[error("the kernel's answer is too long")]
    TooLong,
    /// Notifications were lost: everything must be listed again.
    #[error("netlink messages were lost: the receive buffer is full")]
    Lost,
    /// No answer, or one without the object that was asked for.
    #[error("the kernel does not answer")]
    Silent,
}

impl NetlinkError {
    /// The kernel's error number.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call(error) => error.source.raw_os_error(),
            Self::Refused(error) => Some(error.errno),
            _ours => None,
        }
    }

    /// Converts to the error of a named operation on an object. The kernel's number stays the source.
    #[must_use]
    pub fn into_syscall(self, call: &'static str, object: impl Into<String>) -> SyscallError {
        let (source, detail) = match self {
            Self::Call(error) => (error.source, error.detail),
            Self::Refused(error) => (io::Error::from_raw_os_error(error.errno), error.text),
            Self::Silent => (io::ErrorKind::TimedOut.into(), None),
            other => (io::Error::new(io::ErrorKind::InvalidData, other), None),
        };
        SyscallError { detail, ..SyscallError::new(call, object, source) }
    }
}

/// A netlink socket.
#[derive(Debug)]
pub struct NetlinkSocket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl NetlinkSocket {
    /// About links, addresses, routes, rules, nexthops, neighbours and queueing disciplines.
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn open() -> Result<Self, NetlinkError> {
        // NETLINK_ROUTE is protocol 0, which is spelled "none".
        Self::open_for(None)
    }

    /// About the families of generic netlink.
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn open_generic() -> Result<Self, NetlinkError> {
        Self::open_for(Some(rustix::net::netlink::GENERIC))
    }

    /// About the sockets of the network namespace.
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn open_sockets() -> Result<Self, NetlinkError> {
        Self::open_for(Some(rustix::net::netlink::SOCK_DIAG))
    }

    /// As [`open`](Self::open), in the network namespace behind a descriptor. The calling thread stays
    /// where it is: a thread of its own enters the namespace.
    ///
    /// # Errors
    /// No such namespace, no `CAP_SYS_ADMIN` in its owner, or no socket is to be had.
    pub fn open_in(namespace: BorrowedFd<'_>) -> Result<Self, NetlinkError> {
        let refused = |error: io::Error| SyscallError::new("clone", "thread", error);
        thread::scope(|scope| {
            let inside = || {
                namespace::enter_network(namespace)?;
                Self::open()
            };
            let opening = thread::Builder::new().spawn_scoped(scope, inside).map_err(refused)?;
            let panicked = |_| Err(refused(io::ErrorKind::Other.into()).into());
            opening.join().unwrap_or_else(panicked)
        })
    }

    fn open_for(protocol: Option<Protocol>) -> Result<Self, NetlinkError> {
        let refused = |error| SyscallError::new("socket", "netlink", error);
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)
            .map_err(refused)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0)).map_err(refused)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))
            .map_err(refused)?;
        // Texts of errors (Linux 4.12), errors without the request (4.2), filters that are heeded
        // (4.20): older kernels answer without.
        let options = [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK, libc::NETLINK_GET_STRICT_CHK];
        for option in options {
            let call = "setsockopt(SOL_NETLINK)";
            socket::set(socket.as_fd(), libc::SOL_NETLINK, option, &1, call).ok();
        }
        Ok(Self { socket, sequence: 0, buffer: vec![0; ANSWER_BYTES_MAX] })
    }

    /// Creates an object, or changes the one that is there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn create<O: Configurable>(&mut self, object: &O, mode: Mode) -> Result<(), NetlinkError> {
        self.request(&netlink::create(object, mode)?)
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// The kernel refuses: there is no such object.
    pub fn delete<O: Configurable>(&mut self, object: &O) -> Result<(), NetlinkError> {
        self.request(&netlink::delete(object)?)
    }

    /// The objects that a request lists, in the kernel's order.
    ///
    /// # Errors
    /// The kernel refuses, the list keeps changing, or one object of it is malformed.
    pub fn list<O: Object>(&mut self, question: &Message) -> Result<Vec<O>, NetlinkError> {
        self.dump(question)?.iter().map(|body| O::parse(body).map_err(NetlinkError::from)).collect()
    }

    /// The one object that a request asks for.
    ///
    /// # Errors
    /// There is none, or it is malformed.
    pub fn find<O: Object>(&mut self, question: &Message) -> Result<O, NetlinkError> {
        Ok(O::parse(&self.get(question)?)?)
    }

    /// The routes that a filter admits, on kernels too that do not heed filters. A table without
    /// routes does not exist, which is no error here.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn routes(&mut self, filter: RouteFilter) -> Result<Vec<Route>, NetlinkError> {
        match self.list::<Route>(&Route::dump(filter)) {
            Ok(routes) => Ok(routes.into_iter().filter(|route| filter.admits(route)).collect()),
            Err(error) if error.errno() == Some(libc::ENOENT) && filter.table.is_some() => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a request and waits until it is carried out.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn request(&mut self, message: &Message) -> Result<(), NetlinkError> {
        self.send(std::slice::from_ref(message), flag::ACKNOWLEDGE)?;
        let sequence = self.sequence;
        self.answers(sequence, |_object| Ok(()))
    }

    /// The body of the one object that a request asks for.
    ///
    /// # Errors
    /// The kernel refuses: there is none.
    pub fn get(&mut self, message: &Message) -> Result<Vec<u8>, NetlinkError> {
        self.send(std::slice::from_ref(message), flag::ACKNOWLEDGE)?;
        let (sequence, mut found) = (self.sequence, None);
        self.answers(sequence, |object| {
            found.get_or_insert_with(|| object.body.to_vec());
            Ok(())
        })?;
        found.ok_or(NetlinkError::Silent)
    }

    /// The bodies of a list, all of one moment: a list that changed while it was read is read again.
    ///
    /// # Errors
    /// The kernel refuses, or the list keeps changing.
    pub fn dump(&mut self, message: &Message) -> Result<Vec<Vec<u8>>, NetlinkError> {
        for _attempt in 0..DUMPS_COUNT_MAX {
            self.send(std::slice::from_ref(message), 0)?;
            let (sequence, mut bodies, mut is_of_one_moment) = (self.sequence, Vec::new(), true);
            self.answers(sequence, |frame| {
                is_of_one_moment &= frame.flags & flag::DUMP_INTERRUPTED == 0;
                if let Ok(Answer::Data(object)) = frame.answer() {
                    bodies.push(object.body.to_vec());
                }
                Ok(())
            })?;
            if is_of_one_moment {
                return Ok(bodies);
            }
        }
        Err(NetlinkError::Changing)
    }

    /// Sends many requests, in order and with few system calls, and says of each what became of it.
    /// The kernel goes on after one that it refuses.
    ///
    /// # Errors
    /// The socket fails: what became of the requests must be looked up.
    pub fn batch(
        &mut self,
        messages: &[Message],
    ) -> Result<Vec<Result<(), KernelError>>, NetlinkError> {
        let mut outcomes = Vec::with_capacity(messages.len());
        let mut rest = messages;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(batch_length(rest));
            self.send(now, flag::ACKNOWLEDGE)?;
            let newest = self.sequence;
            for age in (0..now.len()).rev() {
                let age = u32::try_from(age).unwrap_or(0);
                outcomes.push(match self.answers(newest.wrapping_sub(age), |_object| Ok(())) {
                    Ok(()) => Ok(()),
                    Err(NetlinkError::Refused(error)) => Err(error),
                    Err(error) => return Err(error),
                });
            }
            rest = later;
        }
        Ok(outcomes)
    }

    /// Has the kernel announce changes to this socket: numbers of [`netlink::group`]. A socket that listens
    /// is not to be asked anything else.
    ///
    /// # Errors
    /// No such group in this kernel.
    pub fn subscribe(&mut self, groups: &[u32]) -> Result<(), NetlinkError> {
        socket::set_receive_buffer(&self.socket, NOTIFICATION_BUFFER_BYTES)?;
        for group in groups {
            let call = "setsockopt(NETLINK_ADD_MEMBERSHIP)";
            let option = libc::NETLINK_ADD_MEMBERSHIP;
            socket::set(self.as_fd(), libc::SOL_NETLINK, option, &group.cast_signed(), call)?;
        }
        Ok(())
    }

    /// The notifications of one datagram; empty where none comes within 5 s. The socket's descriptor
    /// is readable when there are some.
    ///
    /// # Errors
    /// Some were lost ([`NetlinkError::Lost`]): list everything again, and go on listening.
    pub fn notifications(&mut self) -> Result<Vec<Notification>, NetlinkError> {
        let length = match self.receive() {
            Err(NetlinkError::Silent) => return Ok(Vec::new()),
            received => received?,
        };
        let mut notifications = Vec::new();
        for frame in Frames::new(&self.buffer[..length]) {
            match frame?.answer()? {
                Answer::Data(object) => notifications.push(Notification::parse(object)?),
                Answer::Overrun => return Err(NetlinkError::Lost),
                _answer => {}
            }
        }
        Ok(notifications)
    }

    fn send(&mut self, messages: &[Message], more_flags: u16) -> Result<(), NetlinkError> {
        let mut request = Vec::with_capacity(messages.iter().map(Message::length_bytes).sum());
        for message in messages {
            self.sequence = self.sequence.wrapping_add(1);
            message.write(self.sequence, flag::REQUEST | more_flags, &mut request);
        }
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, &request, SendFlags::empty()))
            .map_err(|error| SyscallError::new("send", "netlink", error))?;
        Ok(())
    }

    /// Hands every object of the answer to a request to `each`, until an acknowledgement, an error or
    /// the end of the list; that frame too, for its flags.
    fn answers(
        &mut self,
        sequence: u32,
        mut each: impl FnMut(Frame<'_>) -> Result<(), NetlinkError>,
    ) -> Result<(), NetlinkError> {
        for _answer in 0..ANSWERS_COUNT_MAX {
            let length = self.receive()?;
            for frame in Frames::new(&self.buffer[..length]) {
                let frame = frame?;
                if frame.sequence != sequence {
                    continue;
                }
                match frame.answer()? {
                    Answer::Data(object) => each(object)?,
                    Answer::Done => return each(frame),
                    Answer::Acknowledged => return Ok(()),
                    Answer::Refused(error) => return Err(error.into()),
                    Answer::Overrun => return Err(NetlinkError::Lost),
                    Answer::Noop => {}
                }
            }
        }
        Err(NetlinkError::TooLong)
    }

    /// Length of the next datagram of the kernel, which is then in the buffer.
    fn receive(&mut self) -> Result<usize, NetlinkError> {
        loop {
            let received =
                rustix::net::recvfrom(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC);
            let (_, length, sender) = match received {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(NetlinkError::Silent),
                Err(Errno::NOBUFS) => return Err(NetlinkError::Lost),
                received => {
                    received.map_err(|error| SyscallError::new("recv", "netlink", error))?
                }
            };
            let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
            // Processes can send to each other; the kernel's port is 0.
            if sender.is_none_or(|sender| sender.pid() != 0) {
                continue;
            }
            return if length <= self.buffer.len() {
                Ok(length)
            } else {
                Err(NetlinkError::TooLong)
            };
        }
    }
}

/// How many of the messages go into one datagram: at least one.
fn batch_length(messages: &[Message]) -> usize {
    let mut bytes = 0;
    let fits = |message: &&Message| {
        bytes += message.length_bytes();
        bytes <= BATCH_BYTES_MAX
    };
    messages.iter().take(BATCH_MESSAGES_MAX).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use netlink::{Connection, Family, Link, RouteQuestion, Target};

    use super::*;

    #[test]
    fn the_loopback_device_is_listed_and_found() {
        let mut socket = NetlinkSocket::open().unwrap();
        let links = socket.list::<Link>(&Link::dump()).unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(lo.is_loopback());
        let found = socket.find::<Link>(&Link::get(lo.index)).unwrap();
        assert_eq!((found.name, found.mtu_bytes), ("lo".to_owned(), Some(65_536)));
    }

    #[test]
    fn routes_to_this_host_lead_over_loopback() {
        let mut socket = NetlinkSocket::open().unwrap();
        for address in ["127.0.0.1", "::1"] {
            let question = RouteQuestion::to(address.parse().unwrap()).message();
            let Target::Paths(paths) = socket.find::<Route>(&question).unwrap().target else {
                panic!("{address} has no path");
            };
            assert_eq!(paths.first().and_then(|path| path.interface_index), Some(1), "{address}");
        }
    }

    #[test]
    fn connections_are_listed_with_their_bytes_and_round_trips() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        server.write_all(&[8]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let mut socket = NetlinkSocket::open_sockets().unwrap();
        let all = socket.list::<Connection>(&Connection::dump(Family::V4)).unwrap();
        let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let of_end = |end| all.iter().find(|one| one.local == end).expect("listed");
        let (one, other) = (of_end(local), of_end(remote));
        assert_eq!((one.remote, other.remote), (remote, local));
        // The kernel may count the SYN as a byte.
        assert!((5000..=5001).contains(&one.sent_bytes), "{one:?}");
        assert_eq!((one.received_bytes, other.received_bytes), (1, 5000));
        assert!(one.rtt_us > 0);
    }

    #[test]
    fn a_refusal_has_the_kernel_s_number() {
        let mut socket = NetlinkSocket::open().unwrap();
        let error = socket.find::<Link>(&Link::get(0x7fff_fff0)).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV), "{error}");
        let error = error.into_syscall("rtnetlink getlink", "index 2147483632");
        assert_eq!(error.source.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_text_of_a_refusal_is_shown() {
        let refusal =
            KernelError { errno: libc::EINVAL, text: Some("Why".into()), offset_bytes: None };
        let error = NetlinkError::from(refusal).into_syscall("rtnetlink newroute", "10.0.0.0/8");
        assert_eq!(error.to_string(), "rtnetlink newroute 10.0.0.0/8 (Why)");
    }

    #[test]
    fn a_batch_is_cut_by_count_and_by_bytes() {
        let message = |bytes| Message { kind: 0, flags: 0, body: vec![0; bytes] };
        assert_eq!(batch_length(&vec![message(16); 100]), BATCH_MESSAGES_MAX);
        assert_eq!(batch_length(&[message(40_000), message(40_000)]), 1);
        assert_eq!(batch_length(&[message(100_000)]), 1);
    }
}
