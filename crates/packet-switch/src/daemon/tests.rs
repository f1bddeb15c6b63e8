//! Panics in what the daemon does for everybody, and memory that has left and is still held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use ring::Patience;

use super::descriptor_threads::Brought;
use super::registry::Asked;
use super::*;
use crate::attachment::{Ask, LinkConfig, PipeEnd, Shape};
use crate::client::Connection;
use crate::deferred_drop::DeferredDrop;
use crate::device::Keep;

const SOON: Patience = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(20) };

#[test]
fn a_panic_in_what_is_done_for_all_takes_nobodys_port() {
    for part in [
        "messages of threads",
        "bells of switches",
        "refused calls",
        "connections to close",
        "new connections",
    ] {
        let mut daemon = Daemon::bind(Config::new(testkit::socket::socket_path("fault"))).unwrap();
        let socket = daemon.config.socket.clone();
        daemon.fault = Some(part);
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut notice = |notice| drop(tell.send(notice));
                daemon.run(&mut notice, &|| stop.load(Ordering::Relaxed))
            }
        });
        // It may have failed before this client came, while it did, or with it there: it is served.
        let mut connection = Connection::open(&socket).unwrap();
        let [mut a, mut b] = ["vale0:a", "vale0:b"]
            .map(|port| connection.attach_port(&port.parse().unwrap()).unwrap());
        let failed = told.iter().find(|one| matches!(one, Notice::Fault { .. }));
        let why = "internal error: planted".to_owned();
        assert_eq!(failed, Some(Notice::Fault { what: part.to_owned(), why }));
        assert!(a.sender.wait(SOON).unwrap() > 0 && a.sender.put(0, &[0xff; 60]), "{part}");
        a.sender.publish(1).unwrap();
        assert_eq!(b.receiver.wait(SOON).unwrap(), 1, "{part}");
        // Lists say so from the next look at it on.
        let until = Instant::now() + SOON.timeout;
        while connection.list().is_ok() && connection.health().faults == 0 {
            assert!(Instant::now() < until, "{part}: it is counted");
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap().unwrap();
        std::fs::remove_file(&socket).ok();
    }
}

/// A registry whose deferred drops all wait in a queue that the test empties.
struct Bench {
    registry: Registry,
    waiting: mpsc::Receiver<(u32, Box<dyn std::any::Any + Send>)>,
}

impl Bench {
    fn new(memory_bytes_max: u64) -> Self {
        let config = Config { memory_bytes_max, ..Config::new("/nowhere".into()) };
        let mut registry = Registry::new(&config).unwrap();
        let (deferred_drop, waiting) = DeferredDrop::held();
        registry.deferred_drop = deferred_drop;
        Self { registry, waiting }
    }

    fn ask(&mut self, ask: Ask) -> Result<(), String> {
        let asked =
            Asked { session: 1, user: 0, ask, brought: Brought::Nothing, keep: Keep::default() };
        self.registry.answer(asked, &mut |_| {}).map(drop).map_err(|error| error.to_string())
    }

    fn attach(&mut self, port: &str) -> Result<(), String> {
        self.ask(Ask::AttachPort { port: port.parse().unwrap(), shape: Shape::default() })
    }

    fn leave(&mut self) {
        self.registry.leave(1, &mut |_| {});
    }

    fn used_bytes(&mut self) -> u64 {
        self.registry.memory.used_bytes()
    }

    /// Drops what waits as it comes, until so many bytes count.
    fn drop_until(&mut self, bytes: u64) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.used_bytes() != bytes {
            assert!(Instant::now() < until, "{} bytes count, not {bytes}", self.used_bytes());
            self.waiting.recv_timeout(Duration::from_millis(1)).ok();
            self.registry.watch_bells(Instant::now());
        }
    }
}

#[test]
fn memory_counts_until_it_is_really_dropped() {
    let mut bench = Bench::new(1 << 30);
    let port: crate::name::PortName = "vale0:a".parse().unwrap();
    let group: crate::name::Name = "chain".parse().unwrap();
    let shape = Shape::default();
    let link = LinkConfig { delay_ns: 1_000_000, ..LinkConfig::default() };
    let [one, other] = ["vale0:x", "vale0:y"].map(|name| name.parse().unwrap());
    let pipe = Ask::OpenPipe { group: group.clone(), end: PipeEnd::Master, shape };
    for (asks, ends) in [
        (vec![Ask::AttachPort { port: port.clone(), shape }], None),
        (
            vec![Ask::AttachPort { port: port.clone(), shape }, Ask::Watch { port: port.clone() }],
            None,
        ),
        (vec![pipe], None),
        (
            vec![Ask::AddPipes { group: group.clone(), pipes: 3, shape }],
            Some(Ask::DeletePipes { group }),
        ),
        (
            vec![Ask::AddLink { one, other, link }],
            Some(Ask::DeletePort { port: "vale0:x".parse().unwrap() }),
        ),
    ] {
        let what = format!("{asks:?}");
        asks.into_iter().for_each(|ask| bench.ask(ask).unwrap());
        let all = bench.used_bytes();
        assert!(all > 0, "{what}");
        ends.into_iter().for_each(|ask| bench.ask(ask).unwrap());
        bench.leave();
        // Longer than any thread needs to hand over what it holds.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(bench.used_bytes(), all, "{what}: it waits, and counts");
        bench.drop_until(0);
    }
}

#[test]
fn whoever_comes_and_goes_gets_no_more_than_there_is_while_drops_hang() {
    let mut bench = Bench::new(u64::MAX);
    bench.attach("vale0:a").unwrap();
    let each = bench.used_bytes();
    bench.registry.memory.bytes_max = 3 * each;
    let refused = loop {
        bench.leave();
        if let Err(why) = bench.attach("vale0:a") {
            break why;
        }
        assert!(bench.used_bytes() <= 3 * each);
    };
    assert!(refused.contains("still being freed"), "{refused}");
    assert_eq!(bench.used_bytes(), 3 * each, "three that have left");
    bench.drop_until(0);
    bench.attach("vale0:a").unwrap();
    let refused =
        ["vale0:b", "vale0:c", "vale0:d"].into_iter().find_map(|port| bench.attach(port).err());
    assert!(!refused.unwrap().contains("still being freed"), "they stay: later is no better");
}

fn session_of(socket: &Arc<Socket>, user: u32) -> Session {
    Session { socket: Arc::clone(socket), user, state: State::Ready, heard: 0 }
}

/// Silent connections are places that nobody else gets.
#[test]
fn one_user_has_a_share_of_the_places_and_all_leave_some_to_root() {
    let config = Config::new(testkit::socket::socket_path("places"));
    let mut daemon = Daemon::bind(Config { sessions_max: 16, ..config }).unwrap();
    let silent = Arc::new(Socket::connect(&daemon.config.socket).unwrap());
    let mut next = 0;
    let mut come = |daemon: &mut Daemon, user: u32| {
        let why = daemon.no_place_for(user);
        if why.is_none() {
            next += 1;
            let session = session_of(&silent, user);
            daemon.sessions.insert(next, session);
        }
        why
    };
    daemon.owner = 7;
    (0..4).for_each(|_| assert_eq!(come(&mut daemon, 1000), None));
    assert!(come(&mut daemon, 1000).unwrap().contains("4 clients per user"));
    for user in [1001, 1002] {
        (0..4).for_each(|_| assert_eq!(come(&mut daemon, user), None, "others have theirs"));
    }
    (0..2).for_each(|_| assert_eq!(come(&mut daemon, 1003), None));
    assert!(come(&mut daemon, 1003).unwrap().contains("full (14 clients of users other"));
    assert_eq!([0, 7].map(|user| come(&mut daemon, user)), [None, None]);
    assert_eq!(come(&mut daemon, 0).unwrap(), "the switch is full (16 clients)");
    std::fs::remove_file(&daemon.config.socket).ok();
}

#[test]
fn users_take_turns_and_so_do_the_connections_of_each() {
    let mut daemon = Daemon::bind(Config::new(testkit::socket::socket_path("turns"))).unwrap();
    let socket = Arc::new(Socket::connect(&daemon.config.socket).unwrap());
    let users = [(1..=1000, 1000), (1001..=1002, 1001), (1003..=1003, 0)];
    for (ids, user) in users {
        daemon.sessions.extend(ids.map(|id| (id, session_of(&socket, user))));
    }
    let all: Vec<SessionId> = daemon.sessions.keys().copied().collect();
    let mut heard = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let now = daemon.in_turn(all.clone());
        assert!(now.len() <= HEARD_AT_ONCE + 2, "{now:?}");
        let place = |id| now.iter().position(|&one| one == id);
        assert!(place(1003).unwrap() < 3 && place(1001).unwrap() < 6, "{now:?}");
        heard.extend(now);
    }
    assert_eq!(heard.len(), all.len(), "none is left out for long");
    std::fs::remove_file(&daemon.config.socket).ok();
}

/// Names whose order as text is not that of their switches and then their ports.
#[test]
fn lists_go_through_all_entries_in_the_order_of_their_names() {
    let mut bench = Bench::new(u64::MAX);
    let shape = Shape::default();
    let mut names = Vec::new();
    for switch in ["a", "a-b", "a.b", "a0"] {
        names.extend((0..60).map(|number| format!("{switch}:p{number}")));
    }
    for name in &names {
        bench.ask(Ask::AddPort { port: name.parse().unwrap(), shape }).unwrap();
    }
    for name in ["a", "a-", "a1", "z"] {
        let group = name.parse().unwrap();
        bench.ask(Ask::AddPipes { group, pipes: 1, shape }).unwrap();
        names.push(name.to_owned());
    }
    names.sort();
    let list = |bench: &Bench, after: Option<&str>| {
        let Answer::Listed { entries, more, .. } = bench.registry.list(after) else { panic!() };
        (entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>(), more)
    };
    for after in [
        "", "a", "a-", "a-b", "a-b:", "a-b:p5", "a-b:p\0", "a:", "a;", "a:p99", "a:z", "zz",
        "\u{7f}",
    ] {
        let rest: Vec<_> = names.iter().filter(|name| name.as_str() > after).cloned().collect();
        let (entries, more) = list(&bench, Some(after));
        assert_eq!(entries, rest[..rest.len().min(48)], "after '{after}'");
        assert_eq!(more, rest.len() > 48, "after '{after}'");
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (entries, more) = list(&bench, after.as_deref());
        after = entries.last().cloned();
        seen.extend(entries);
        if !more {
            break;
        }
    }
    assert_eq!(seen, names);
}
