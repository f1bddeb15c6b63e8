//! How two ranks of one host come to share rings. Each listens at an abstract UNIX name, which only processes
//! of the same network namespace reach. The one that has something to send connects, and both check the
//! other's user with the kernel. Four messages follow:
//!
//! 1. `Offer`: the region, the key of whoever listens (which the other has from its name), the sender's address,
//!    and where its secret is;
//! 2. `Welcome`: where the secret of whoever listens is;
//! 3. `Agreed`: now whoever listens uses the rings, and the other end takes packets from them;
//! 4. `Confirmed`: now the other end sends over them too. So no end talks into rings that the other gave up.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use messaging::Address;
use rustix::event::{PollFd, PollFlags, poll};
use shm::{Listener, Message, Socket};

use super::direct::{Process, SECRET_BYTES, Secret};
use super::rings::{Rings, descriptor};
use crate::name::Name;
use crate::presence::without_signals;

/// First bytes of each message: its format.
const VERSION: [u8; 4] = *b"CSM1";
/// Longest wait for the other end's next message. Its thread answers, whatever its program does.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long nobody is answered where there is no descriptor for it.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);

/// A way to a rank of this host.
#[derive(Debug)]
pub(crate) struct Link {
    /// The peer, as it says; whoever says so has this endpoint's key, or was asked by it.
    pub(crate) address: Address,
    pub(crate) rings: Rings,
    /// Where long messages are read; none where the kernel forbids it.
    pub(crate) process: Option<Process>,
    /// Lets the peer read this process's long messages.
    _secret: Secret,
    /// The peer takes packets from the rings. Without that it may all the same send some.
    pub(crate) is_confirmed: bool,
}

/// Why there is no link.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// Nobody listens there: a rank of another host, one that has ended, or one without shared memory.
    Absent,
    /// What stands in the way, for the user.
    Refused(String),
}

fn refused(error: impl std::fmt::Display) -> LinkError {
    LinkError::Refused(error.to_string())
}

/// The abstract name at which an endpoint listens.
fn listening_at(address: &Address) -> String {
    format!("clearstream-fi/{address}")
}

/// Whether the other end is of this user.
fn check_user(socket: &Socket) -> Result<(), LinkError> {
    let user = socket.peer_user().map_err(refused)?;
    let own = rustix::process::geteuid().as_raw();
    if user == own {
        return Ok(());
    }
    Err(LinkError::Refused(format!("the rank is of user {user}, this one of user {own}")))
}

fn random_secret() -> Result<Secret, LinkError> {
    crate::endpoint::random()
        .map(Secret::new)
        .map_err(|number| refused(io::Error::from_raw_os_error(number)))
}

/// Connects to an endpoint of this host.
pub(crate) fn connect(own: &Address, peer: &Name, may_read: bool) -> Result<Link, LinkError> {
    let socket =
        Socket::connect_abstract(&listening_at(&peer.address), PATIENCE).map_err(|error| {
            let is_absent = error.source.kind() == io::ErrorKind::ConnectionRefused;
            if is_absent { LinkError::Absent } else { refused(error) }
        })?;
    check_user(&socket)?;
    let (rings, region) = Rings::create().map_err(refused)?;
    let secret = random_secret()?;
    let offer = [&VERSION[..], &peer.key, &own.0, &secret.address().to_le_bytes(), &secret.bytes()]
        .concat();
    socket.send(&offer, &[descriptor(&region)]).map_err(refused)?;
    let (welcome, _fds) = next(&socket)?;
    let (secret_at, their_secret) = parse_welcome(&welcome).ok_or_else(malformed)?;
    let process = if may_read { find_process(&socket, secret_at, their_secret) } else { None };
    socket.send(&VERSION, &[]).map_err(refused)?;
    let is_confirmed = next(&socket).is_ok_and(|(confirmed, _fds)| confirmed == VERSION);
    Ok(Link { address: peer.address, rings, process, _secret: secret, is_confirmed })
}

/// Answers one that connected.
fn welcome(socket: &Socket, name: &Name, may_read: bool) -> Result<Link, LinkError> {
    check_user(socket)?;
    // The listener's connections do not block.
    rustix::io::ioctl_fionbio(socket, false).map_err(refused)?;
    sys::socket::set_timeouts(socket, PATIENCE).map_err(refused)?;
    let (offer, mut fds) = next(socket)?;
    let offer = Offer::parse(&offer).ok_or_else(malformed)?;
    let region = fds.pop().filter(|_| fds.is_empty()).ok_or_else(malformed)?;
    if offer.key != name.key {
        return Err(refused("its key is not this endpoint's"));
    }
    let rings = Rings::attach(region).map_err(refused)?;
    let process = if may_read { find_process(socket, offer.secret_at, offer.secret) } else { None };
    let secret = random_secret()?;
    let welcome = [&VERSION[..], &secret.address().to_le_bytes(), &secret.bytes()].concat();
    socket.send(&welcome, &[]).map_err(refused)?;
    let (agreed, _fds) = next(socket)?;
    if agreed != VERSION {
        return Err(malformed());
    }
    // Where this is lost the peer takes packets from the rings and sends its own by UDP.
    socket.send(&VERSION, &[]).ok();
    Ok(Link { address: offer.from, rings, process, _secret: secret, is_confirmed: true })
}

fn find_process(socket: &Socket, secret_at: u64, secret: [u8; SECRET_BYTES]) -> Option<Process> {
    let pid = socket.peer_process().ok()??;
    Process::find(pid, secret_at, secret).ok()
}

fn malformed() -> LinkError {
    refused("its message is none of this version's")
}

/// The next message of the other end, and its descriptors.
fn next(socket: &Socket) -> Result<(Vec<u8>, Vec<std::os::fd::OwnedFd>), LinkError> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match socket.receive().map_err(refused)? {
            Message::Received { bytes, fds } => return Ok((bytes, fds)),
            // A signal, or the time is up.
            Message::Nothing => {}
            Message::NoDescriptors => return Err(refused("no descriptor is left")),
            Message::TooLong | Message::Closed => return Err(malformed()),
        }
    }
    Err(refused(format!("the rank has not answered for {} s", PATIENCE.as_secs())))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer {
    key: [u8; 16],
    from: Address,
    secret_at: u64,
    secret: [u8; SECRET_BYTES],
}

impl Offer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (key, rest) = bytes.strip_prefix(&VERSION)?.split_first_chunk()?;
        let (from, rest) = rest.split_first_chunk()?;
        let (secret_at, rest) = rest.split_first_chunk()?;
        let secret = rest.try_into().ok()?;
        let secret_at = u64::from_le_bytes(*secret_at);
        Some(Self { key: *key, from: Address(*from), secret_at, secret })
    }
}

fn parse_welcome(bytes: &[u8]) -> Option<(u64, [u8; SECRET_BYTES])> {
    let (secret_at, secret) = bytes.strip_prefix(&VERSION)?.split_first_chunk()?;
    Some((u64::from_le_bytes(*secret_at), secret.try_into().ok()?))
}

/// Answers ranks that connect, in a thread: also while the program computes.
#[derive(Debug)]
pub(crate) struct Door {
    listener: std::sync::Arc<Listener>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Answers for an endpoint; links come out of the channel.
    pub(crate) fn open(name: Name, may_read: bool) -> io::Result<(Self, mpsc::Receiver<Link>)> {
        let listener =
            Listener::bind_abstract(&listening_at(&name.address)).map_err(io::Error::other)?;
        let listener = std::sync::Arc::new(listener);
        let (links, come) = mpsc::channel();
        let accepting = std::sync::Arc::clone(&listener);
        let serve = move || while admit(&accepting, &name, may_read, &links) {};
        let thread = without_signals(|| {
            std::thread::Builder::new().name("clearstream-shm".to_owned()).spawn(serve)
        })?;
        Ok((Self { listener, thread: Some(thread) }, come))
    }
}

/// Waits for one that connects and answers it; false: the door is closed.
fn admit(listener: &Listener, name: &Name, may_read: bool, links: &mpsc::Sender<Link>) -> bool {
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    if poll(&mut polled, None).is_err() {
        return true;
    }
    if polled[0].revents().contains(PollFlags::HUP) {
        return false;
    }
    match listener.accept() {
        // Whoever is not admitted uses UDP, and says why.
        Ok(Some(socket)) => match welcome(&socket, name, may_read) {
            Ok(link) => links.send(link).is_ok(),
            Err(_refused) => true,
        },
        Ok(None) => true,
        // The program may have no descriptor left now.
        Err(_shortage) => {
            std::thread::sleep(SHORTAGE_PAUSE);
            true
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::rings::PACKET_BYTES_MAX;

    fn name(port: u16) -> Name {
        let unique = crate::endpoint::random().unwrap();
        Name::new(std::net::SocketAddr::from(([127, 0, 0, 1], port)), None, unique, [9; 16])
    }

    fn at_once(error: LinkError) -> String {
        match error {
            LinkError::Absent => "absent".to_owned(),
            LinkError::Refused(line) => line,
        }
    }

    #[test]
    fn both_ends_get_the_rings_and_read_each_other() {
        let (near, far) = (name(1), name(2));
        let (_door, links) = Door::open(far, true).unwrap();
        let mut ours = connect(&near.address, &far, true).map_err(at_once).unwrap();
        let mut theirs = links.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!((theirs.address, ours.address), (near.address, far.address));
        assert!(ours.process.is_some() && theirs.process.is_some(), "the process may read itself");
        assert!(ours.rings.has_room().unwrap());
        ours.rings.push(b"header", b"payload");
        let mut came = Vec::new();
        theirs
            .rings
            .receive(&mut [0; PACKET_BYTES_MAX as usize], |packet| came.push(packet.to_vec()))
            .unwrap();
        assert_eq!(came, [b"headerpayload"]);
    }

    #[test]
    fn who_lacks_the_key_is_not_admitted() {
        let (near, far) = (name(3), name(4));
        let (_door, links) = Door::open(far, true).unwrap();
        let guessed = Name { key: [8; 16], ..far };
        assert!(connect(&near.address, &guessed, true).is_err());
        assert!(links.try_recv().is_err());
        connect(&near.address, &far, true).map_err(at_once).expect("the door is still open");
    }

    /// Another user of this host, with this thread's rights gone.
    fn as_stranger<T: Send>(part: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let part = scope.spawn(|| {
                let user = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                part()
            });
            part.join().unwrap()
        })
    }

    /// The kernel says whose the other end is, whatever that end knows and says. A crowd of such delays nobody.
    #[test]
    fn root_another_user_is_neither_admitted_nor_believed() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can become another user");
            return;
        }
        let (near, far) = (name(9), name(10));
        let (_door, links) = Door::open(far, true).unwrap();
        let offer = [&VERSION[..], &far.key, &near.address.0, &[0; 8], &[0; 16]].concat();
        let silent = as_stranger(|| {
            let connect = || Socket::connect_abstract(&listening_at(&far.address), PATIENCE);
            let (_rings, region) = Rings::create().unwrap();
            let knowing = connect().unwrap();
            knowing.send(&offer, &[descriptor(&region)]).ok();
            assert!(!matches!(knowing.receive(), Ok(Message::Received { .. })), "it is welcome");
            (0..50).map(|_| connect().unwrap()).collect::<Vec<_>>()
        });
        connect(&near.address, &far, true).map_err(at_once).expect("the door is open to others");
        drop(silent);
        let admitted = links.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(admitted.address, near.address);
        assert!(links.try_recv().is_err(), "a stranger was admitted");
        // At a name of its own there is a stranger, who knows the key.
        let elsewhere = name(11);
        let _trap =
            as_stranger(|| Listener::bind_abstract(&listening_at(&elsewhere.address)).unwrap());
        let refused = connect(&near.address, &elsewhere, true).map_err(at_once).unwrap_err();
        assert!(refused.contains("of user 65534"), "{refused}");
    }

    #[test]
    fn nobody_there_is_known_at_once_and_a_silent_one_after_a_second() {
        let (near, far) = (name(5), name(6));
        let absent = connect(&near.address, &far, true).map_err(at_once).unwrap_err();
        assert_eq!(absent, "absent");
        // As a stopped process: its kernel accepts, it does not.
        let _listener = Listener::bind_abstract(&listening_at(&far.address)).unwrap();
        let silent = connect(&near.address, &far, true).map_err(at_once).unwrap_err();
        assert!(silent.contains("not answered"), "{silent}");
    }

    /// Whatever is said at the door, the next one is admitted.
    #[test]
    fn any_bytes_at_the_door_are_refused() {
        let (near, far) = (name(7), name(8));
        let (_door, _links) = Door::open(far, true).unwrap();
        let valid = [&VERSION[..], &far.key, &near.address.0, &[0; 8], &[0; 16]].concat();
        for bytes in [&b"x"[..], &VERSION, &valid[..75], &valid, &[valid.as_slice(), b"x"].concat()]
        {
            let socket =
                Socket::connect_abstract(&listening_at(&far.address), Duration::from_secs(10))
                    .unwrap();
            socket.send(bytes, &[]).unwrap();
            assert!(matches!(socket.receive().unwrap(), Message::Closed), "{bytes:?}");
        }
        connect(&near.address, &far, true).map_err(at_once).expect("the door is still open");
    }

    #[test]
    fn messages_survive_their_bytes_or_are_none() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let versioned = [&VERSION[..], bytes].concat();
            if let Some(offer) = Offer::parse(&versioned) {
                assert_eq!(versioned.len(), 76);
                assert_eq!(offer.from.0, versioned[20..52]);
            }
            assert_eq!(parse_welcome(&versioned).is_some(), versioned.len() == 28);
        });
    }
}
