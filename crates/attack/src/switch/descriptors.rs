//! Descriptors of every kind that there is, sent along with requests that have use for them and that have none.
//!
//! Whoever sends one closes its own at once: the daemon's is the last, and what closing costs, it pays.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use packet_switch::attachment::{Ask, Request};
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{Heard, Raw, copies};
use crate::case::{Case, Door, Need, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "descriptors of every kind, with every request", every_kind),
    Case::of(Door::Switch, "descriptors that take root to open, with every request", kinds_of_root)
        .needs(Need::Root),
    Case::of(Door::Switch, "a TCP connection that lingers when it is closed", lingering).once(),
    Case::of(Door::Switch, "many of them, with messages that are refused", lingering_many).once(),
    Case::of(Door::Switch, "a file of a file system that does not answer", fuse)
        .once()
        .needs(Need::Root),
    Case::of(Door::Switch, "as many descriptors as a message takes", very_many),
    Case::of(Door::Switch, "descriptors in flight that nobody takes", in_flight),
    Case::of(Door::Switch, "memory of huge pages, unsealed, empty, enormous", memories),
    Case::of(Door::Switch, "descriptors at random", at_random).generated(),
];

type Make = fn(&Scene) -> Option<OwnedFd>;

/// Every kind that anybody may have; what this kernel or user has not, is left out and said to be.
const KINDS: &[(&str, Make)] = &[
    ("regular file", |scene| File::create(scene.folder.join("file")).ok().map(Into::into)),
    ("folder", |scene| File::open(&scene.folder).ok().map(Into::into)),
    ("O_PATH", |scene| rustix::fs::open(&scene.folder, OFlags::PATH, Mode::empty()).ok()),
    ("/dev/null", |_| open("/dev/null")),
    ("/dev/zero", |_| open("/dev/zero")),
    ("/dev/full", |_| open("/dev/full")),
    ("/dev/random", |_| open("/dev/random")),
    ("/proc/self/mem", |_| open("/proc/self/mem")),
    ("/proc/self/maps", |_| open("/proc/self/maps")),
    ("/proc/version", |_| open("/proc/version")),
    ("network namespace", |_| open("/proc/self/ns/net")),
    ("user namespace", |_| open("/proc/self/ns/user")),
    ("/sys/kernel/mm", |_| open("/sys/kernel/mm")),
    ("pipe, read end", |_| rustix::pipe::pipe().ok().map(|ends| ends.0)),
    ("pipe, write end", |_| rustix::pipe::pipe().ok().map(|ends| ends.1)),
    ("eventfd", |_| eventfd(0, EventfdFlags::CLOEXEC)),
    ("eventfd, full", |_| eventfd(u64::MAX - 1, EventfdFlags::CLOEXEC)),
    ("eventfd, semaphore", |_| eventfd(7, EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK)),
    ("epoll", |_| rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).ok()),
    ("timerfd", |_| {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty()).ok()
    }),
    ("signalfd", |_| sys::descriptor::signal().ok()),
    ("inotify", |_| rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).ok()),
    ("pidfd", |_| {
        let own = rustix::process::getpid();
        rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).ok()
    }),
    ("pidfd of the switch", |scene| {
        let pid = rustix::process::Pid::from_raw(scene.pid.cast_signed())?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
    }),
    ("userfaultfd", |_| sys::descriptor::page_faults().ok()),
    ("io_uring", |_| sys::descriptor::ring().ok()),
    ("terminal", |_| rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).ok()),
    ("/dev/net/tun without a device", |_| {
        rustix::fs::open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).ok()
    }),
    ("/dev/fuse", |_| rustix::fs::open("/dev/fuse", OFlags::RDWR, Mode::empty()).ok()),
    ("memfd", |_| memfd(MemfdFlags::ALLOW_SEALING, 8 << 20, SealFlags::empty())),
    ("memfd, sealed", |_| memfd(MemfdFlags::ALLOW_SEALING, 8 << 20, SEALED)),
    ("memfd of huge pages", |_| {
        memfd(MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB, 8 << 20, SEALED)
    }),
    ("TCP, listening", |_| TcpListener::bind("127.0.0.1:0").ok().map(Into::into)),
    ("TCP", |_| lingering_socket(None)),
    ("UDP", |_| UdpSocket::bind("127.0.0.1:0").ok().map(Into::into)),
    ("UNIX", |_| UnixStream::pair().ok().map(|ends| ends.0.into())),
    ("UNIX, listening", |scene| {
        let path = scene.folder.join("listening");
        std::fs::remove_file(&path).ok();
        UnixListener::bind(path).ok().map(Into::into)
    }),
    ("netlink", |_| socket(AddressFamily::NETLINK, SocketType::RAW)),
    ("the switch's own socket", |scene| {
        shm::Socket::connect(&scene.socket).ok()?.as_fd().try_clone_to_owned().ok()
    }),
];

/// Those that only root may have.
const KINDS_OF_ROOT: &[(&str, Make)] = &[
    ("AF_PACKET", |_| socket(AddressFamily::PACKET, SocketType::RAW)),
    ("AF_XDP", |_| socket(AddressFamily::XDP, SocketType::RAW)),
    ("raw IP", |_| {
        let protocol = Some(rustix::net::ipproto::ICMP);
        let kind = SocketType::RAW;
        rustix::net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, protocol).ok()
    }),
    ("/proc/kmsg", |_| open("/proc/kmsg")),
    ("/dev/kmsg", |_| open("/dev/kmsg")),
];

pub(super) const SEALED: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

fn open(path: &str) -> Option<OwnedFd> {
    File::open(path).ok().map(Into::into)
}

fn socket(family: AddressFamily, kind: SocketType) -> Option<OwnedFd> {
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()
}

fn eventfd(value: u64, flags: EventfdFlags) -> Option<OwnedFd> {
    let fd = rustix::event::eventfd(0, flags).ok()?;
    rustix::io::write(&fd, &value.to_ne_bytes()).ok()?;
    Some(fd)
}

pub(super) fn memfd(flags: MemfdFlags, bytes: u64, seals: SealFlags) -> Option<OwnedFd> {
    let fd = rustix::fs::memfd_create("attack", flags).ok()?;
    rustix::fs::ftruncate(&fd, bytes).ok()?;
    rustix::fs::fcntl_add_seals(&fd, seals).ok()?;
    Some(fd)
}

/// A connection with data on its way that nobody reads; closing it takes as long as it lingers.
fn lingering_socket(lingers: Option<Duration>) -> Option<OwnedFd> {
    let listener = TcpListener::bind("127.0.0.1:0").ok()?;
    let mut stream = TcpStream::connect(listener.local_addr().ok()?).ok()?;
    let far = listener.accept().ok()?.0;
    if lingers.is_some() {
        stream.set_nonblocking(true).ok()?;
        let block = vec![7; 1 << 16];
        loop {
            match stream.write(&block) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        stream.set_nonblocking(false).ok()?;
        rustix::net::sockopt::set_socket_linger(&stream, lingers).ok()?;
        // Stays open for longer than anybody may have to wait, and does not read.
        std::thread::spawn(move || {
            std::thread::sleep(crate::judge::ANSWER_MAX * 3 / 2);
            far.shutdown(Shutdown::Both).ok();
        });
    }
    Some(stream.into())
}

/// Every request, whether it takes descriptors or not, and one that is none.
fn requests() -> Vec<Vec<u8>> {
    super::requests::all().into_iter().chain([b"no request".to_vec()]).collect()
}

/// Sends it, closes the own one, and waits for the answer.
fn hand_over(scene: &Scene, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    // Some the kernel itself does not let travel.
    let is_sent = raw.say(bytes, &borrowed);
    drop(fds);
    if !is_sent {
        return Ok(());
    }
    match raw.hear(super::ANSWER) {
        Heard::Nothing => Err(format!("no answer to {}", text(bytes))),
        Heard::Answer(..) | Heard::Closed => Ok(()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned()
}

fn every_kind(scene: &mut Scene) -> Result<(), String> {
    each_with_every_request(scene, KINDS)
}

fn kinds_of_root(scene: &mut Scene) -> Result<(), String> {
    each_with_every_request(scene, KINDS_OF_ROOT)
}

fn each_with_every_request(scene: &Scene, kinds: &[(&str, Make)]) -> Result<(), String> {
    for (name, make) in kinds {
        if make(scene).is_none() {
            crate::play::say_once(&format!("attack: left out, cannot be opened here: {name}"));
            continue;
        }
        for bytes in requests() {
            for count in [1, 2, 3] {
                let Some(fd) = make(scene) else { continue };
                let mut fds = vec![fd];
                // With memory behind, as an AF_XDP socket has it.
                fds.extend(
                    (1..count).filter_map(|_| memfd(MemfdFlags::ALLOW_SEALING, 8 << 20, SEALED)),
                );
                hand_over(scene, &bytes, fds).map_err(|error| format!("{name}: {error}"))?;
            }
        }
    }
    Ok(())
}

/// So many at a time, half of those that a user may have: a request for a device has its answer when the connection is
/// closed.
const LINGERING: usize = 4;

fn lingering(scene: &mut Scene) -> Result<(), String> {
    let scene = &*scene;
    let hand_over = |bytes: &[u8]| {
        let fd = lingering_socket(Some(Duration::from_secs(10)));
        hand_over(scene, bytes, vec![fd.ok_or("no TCP connection to be had")?])
    };
    requests().chunks(LINGERING).try_for_each(|some| {
        std::thread::scope(|scope| {
            let all: Vec<_> = some.iter().map(|bytes| scope.spawn(|| hand_over(bytes))).collect();
            let ended = |one: std::thread::ScopedJoinHandle<'_, Result<(), String>>| {
                one.join().unwrap_or_else(|_| Err("the attack itself panicked".to_owned()))
            };
            // All are waited for, whatever the first of them says.
            all.into_iter().map(ended).fold(Ok(()), Result::and)
        })
    })
}

fn lingering_many(scene: &mut Scene) -> Result<(), String> {
    for _ in 0..4 {
        let fds: Vec<OwnedFd> =
            (0..10).filter_map(|_| lingering_socket(Some(Duration::from_secs(10)))).collect();
        hand_over(scene, b"{", fds)?;
        // Nobody waits for the answer.
        let raw = Raw::connect(&scene.socket)?;
        let fd =
            lingering_socket(Some(Duration::from_secs(10))).ok_or("no TCP connection to be had")?;
        raw.say(&Request::encode(Ask::List { after: None }), &[fd.as_fd()]);
    }
    Ok(())
}

/// A file whose closing is a question to a file system that answers no more (`FUSE_FLUSH`).
fn fuse(scene: &mut Scene) -> Result<(), String> {
    // Let go of after the file.
    let _alone = crate::program::no_starts();
    let Some(file) = super::devices::silent_file(scene)? else { return Ok(()) };
    for bytes in requests() {
        let copy = file.fd.try_clone().map_err(|error| error.to_string())?;
        let raw = Raw::connect(&scene.socket)?;
        raw.say(&bytes, &[copy.as_fd()]);
        // Whose descriptor does not answer may wait for an answer itself; nobody else may.
        raw.hear(Duration::from_millis(200));
    }
    Ok(())
}

fn very_many(scene: &mut Scene) -> Result<(), String> {
    let null = open("/dev/null").ok_or("no /dev/null")?;
    for count in [1, 64, 65, 129, 130, 131, 253] {
        for bytes in requests() {
            let raw = Raw::connect(&scene.socket)?;
            let is_sent = raw.say(&bytes, &copies(&null, count));
            if is_sent && matches!(raw.hear(super::ANSWER), Heard::Nothing) {
                return Err(format!("no answer with {count} descriptors"));
            }
        }
    }
    Ok(())
}

/// Sockets that hold descriptors that hold descriptors, and connections that go before they are read.
fn in_flight(scene: &mut Scene) -> Result<(), String> {
    for _ in 0..50 {
        let raw = Raw::connect(&scene.socket)?;
        let (one, other) = UnixStream::pair().map_err(|error| error.to_string())?;
        // A connection to the daemon, in a socket, in a message to the daemon.
        let ask = Request::encode(Ask::List { after: None });
        raw.say(&ask, &[one.as_fd(), other.as_fd(), raw.socket.as_fd()]);
    }
    Ok(())
}

fn memories(scene: &mut Scene) -> Result<(), String> {
    let kinds = [
        (MemfdFlags::ALLOW_SEALING, 0, SEALED),
        (MemfdFlags::ALLOW_SEALING, 1, SEALED),
        (MemfdFlags::ALLOW_SEALING, 8 << 20, SealFlags::SHRINK),
        (MemfdFlags::ALLOW_SEALING, 8 << 20, SEALED.union(SealFlags::WRITE)),
        (MemfdFlags::ALLOW_SEALING, i64::MAX as u64 & !0xfff, SEALED),
        (MemfdFlags::ALLOW_SEALING.union(MemfdFlags::HUGETLB), 2 << 20, SEALED),
        (MemfdFlags::ALLOW_SEALING.union(MemfdFlags::HUGETLB), 8 << 20, SEALED),
    ];
    for (flags, bytes, seals) in kinds {
        for request in requests() {
            let socket: Option<OwnedFd> = UdpSocket::bind("127.0.0.1:0").ok().map(Into::into);
            let fds = socket.into_iter().chain(memfd(flags, bytes, seals)).collect();
            hand_over(scene, &request, fds)?;
        }
    }
    Ok(())
}

fn at_random(scene: &mut Scene) -> Result<(), String> {
    let requests = requests();
    while !scene.is_over() {
        let count = scene.random.below(6) as usize;
        let mut fds = Vec::new();
        for _ in 0..count {
            let (_, make) = scene.pick(KINDS);
            let lingers = scene.random.chance(0.05);
            let fd =
                if lingers { lingering_socket(Some(Duration::from_secs(2))) } else { make(scene) };
            fds.extend(fd);
        }
        let bytes = &requests[scene.random.below(requests.len() as u64) as usize];
        hand_over(scene, bytes, fds)?;
    }
    Ok(())
}
