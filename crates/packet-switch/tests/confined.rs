//! What ships: the daemon as a process of its own, confined, with hostile clients beside innocent ones.
//!
//! The innocents send each other frames all the while and ask the daemon things; they lose nothing, and
//! nothing that they wait for takes longer than [`WAIT_MAX`].

#[path = "support/confined.rs"]
mod confined;
#[path = "confined/guests.rs"]
mod guests;
#[path = "confined/of_every.rs"]
mod of_every;
#[path = "confined/own_memory.rs"]
mod own_memory;
#[path = "confined/trust.rs"]
mod trust;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use confined::{Confined, Innocents};
use of_every::of_every;
use packet_switch::attachment::{Ask, DeviceKind, RefusalCode, Request, Shape, XdpFacts};
use packet_switch::client::{Attached, ClientError, Connection};
use rustix::net::sockopt;
use testkit::serving::{SOON, frame, wait_until};

/// What the other process does; nothing without a role.
#[test]
fn plays_its_role() {
    if std::env::var("CLEARSTREAM_ROLE").is_ok_and(|role| role == "victim") {
        trust::play_victim();
    }
    confined::play();
}

/// An attachment as it comes over the socket.
struct Raw {
    socket: shm::Socket,
    fds: Vec<OwnedFd>,
}

fn raw_attach(path: &Path, port: &str) -> Raw {
    let socket = shm::Socket::connect(path).unwrap();
    // The last one of that name may not be gone yet.
    loop {
        let ask = Ask::AttachPort { port: port.parse().unwrap(), shape: Shape::default() };
        socket.send(&Request::encode(ask), &[]).unwrap();
        let shm::Message::Received { fds, .. } = socket.receive().unwrap() else { panic!() };
        if !fds.is_empty() {
            return Raw { socket, fds };
        }
    }
}

/// Makes whoever rings for it by `write` wait for ever: both bells that the switch rings.
fn jam(path: &Path, port: &str) -> Raw {
    let mut raw = raw_attach(path, port);
    // Memory, then theirs and ours of the transmit ring, then of the receive ring.
    let region = shm::Region::attach(raw.fds.remove(0)).unwrap();
    for ours in [&raw.fds[1], &raw.fds[3]] {
        rustix::io::write(ours, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(ours, rustix::fs::OFlags::empty()).unwrap();
    }
    let layout = ring::Layout::read(&region).unwrap();
    for number in [0, 1] {
        let mut asleep = layout.end(&region, number, ring::Seat::User, 1).unwrap();
        asleep.arm().unwrap();
    }
    raw
}

fn shout(port: &mut Attached) {
    assert!(port.sender.wait(SOON).unwrap() > 0);
    assert!(port.sender.put(0, &frame(9, 0xff, 0)));
    port.sender.publish(1).unwrap();
    // Taken means carried: the switch has rung for whoever sleeps.
    let all = port.sender.end().slots() - 1;
    wait_until("the frame is taken", || port.sender.reserve(all).unwrap() == all);
}

#[test]
fn clients_that_jam_their_bells_again_and_again_cost_the_others_nothing() {
    let daemon = Confined::start("jams");
    let innocents = Innocents::start(daemon.path());
    let mut connection = daemon.connect();
    let mut shouter = connection.attach_port(&"vale0:shout".parse().unwrap()).unwrap();
    let (until, mut jams) = (Instant::now() + Duration::from_secs(2), 0);
    let mut kept = Vec::new();
    while Instant::now() < until {
        let raw = jam(daemon.path(), &format!("vale0:jam{}", jams % 7));
        shout(&mut shouter);
        // Some leave, some stay, some leave and keep the bells.
        match jams % 3 {
            0 => drop(raw),
            1 if kept.len() < 3 => kept.push((Some(raw.socket), raw.fds)),
            _ => kept.push((None, raw.fds)),
        }
        kept.truncate(100);
        jams += 1;
        if jams % 7 == 1 {
            kept.retain(|(socket, _)| socket.is_none());
        }
    }
    println!("{jams} jams");
    assert!(jams > 20, "{jams} jams are no attack");
    innocents.end();
    daemon.end();
}

/// Where the kernel has no way to ring without waiting, the second line of defence holds, confined too.
#[test]
fn a_jammed_bell_is_freed_also_within_the_sandbox() {
    let daemon = Confined::start_as("plain-daemon", "plain");
    let mut connection = daemon.connect();
    let mut a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
    let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    let _jam = jam(daemon.path(), "vale0:jam");
    let begun = Instant::now();
    for _ in 0..2 {
        shout(&mut a);
        assert_eq!(b.receiver.wait(SOON).unwrap(), 1);
        b.receiver.release(1).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    wait_until("the jam is noticed", || daemon.said().iter().any(|one| one.contains("CutOff")));
    daemon.end();
}

/// A TCP socket with bytes that its peer never reads: to close it takes an hour, or until the peer goes.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 1 << 20]).is_ok() {}
    near.set_nonblocking(false).unwrap();
    sockopt::set_socket_linger(&near, Some(Duration::from_secs(3600))).unwrap();
    (near, far)
}

/// Sends raw bytes with descriptors, whose only copies are then those on the way.
fn send_away(socket: &shm::Socket, bytes: &[u8], what: Vec<TcpStream>) {
    let fds: Vec<BorrowedFd<'_>> = what.iter().map(AsFd::as_fd).collect();
    if bytes.is_empty() {
        // Looks like the end, and the daemon leaves what is behind it.
        socket.send(b"", &[]).unwrap();
    }
    socket.send(bytes, &fds).unwrap();
}

#[test]
fn descriptors_whose_close_takes_an_hour_stop_nobody() {
    let daemon = Confined::start("linger");
    let innocents = Innocents::start(daemon.path());
    let mut ready: Vec<TcpStream> = Vec::new();
    // Dropped before those that linger, also by a test that fails: each of these then closes at once.
    let (mut far_ends, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        let (near, far) = lingering();
        ready.push(near);
        far_ends.push(far);
    }
    let mut lingering = || ready.pop().unwrap();
    let list = || Request::encode(Ask::List { after: None });
    let tap = || Ask::AddDevice {
        port: "vale0:tap".parse().unwrap(),
        device: DeviceKind::Tap,
        shape: Shape::default(),
    };
    let facts = XdpFacts { device: "x".into(), queue: 0, is_generic: true, takes_parts: true };
    let xdp = Ask::AddDevice {
        port: "vale0:xdp".parse().unwrap(),
        device: DeviceKind::Xdp(facts),
        shape: Shape::default(),
    };
    let requests =
        [list(), Request::encode(tap()), Request::encode(xdp), b"nonsense".to_vec(), Vec::new()];
    // While the daemon does nothing, so that nobody but it is the last to close them. Once only: a signal ends
    // the wait of a close that has begun.
    daemon.frozen(|| {
        for (number, bytes) in requests.iter().cycle().take(10).enumerate() {
            let socket = shm::Socket::connect(daemon.path()).unwrap();
            send_away(&socket, bytes, (0..1 + number % 3).map(|_| lingering()).collect());
            // Half of them leave at once, with more on the way.
            if number % 2 == 0 {
                send_away(&socket, &list(), vec![lingering()]);
            } else {
                kept.push(socket);
            }
        }
        // As many as a message may bring.
        let socket = shm::Socket::connect(daemon.path()).unwrap();
        let one = lingering();
        let copies = (0..130).map(|_| one.try_clone().unwrap()).collect();
        drop(one);
        send_away(&socket, &list(), copies);
        kept.push(socket);
    });
    std::thread::sleep(Duration::from_millis(500));
    // The sender has used up what he may have; those who send no descriptors are served.
    let begun = Instant::now();
    let mut one_more = daemon.connect();
    let null = std::fs::File::open("/dev/null").unwrap();
    let outcome = one_more.ask_with(tap(), &[null.as_fd()]);
    assert!(
        matches!(&outcome, Err(ClientError::Refused { code: RefusalCode::Busy, .. })),
        "{outcome:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    innocents.end();
    // Once they are closed the next is heard again.
    far_ends.clear();
    wait_until("the descriptors are closed", || {
        let outcome = daemon.connect().ask_with(tap(), &[null.as_fd()]);
        matches!(&outcome, Err(ClientError::Refused { code: RefusalCode::System, .. }))
    });
    daemon.end();
}

#[test]
fn clients_that_read_nothing_stop_nobody() {
    let daemon = Confined::start("deaf");
    let innocents = Innocents::start(daemon.path());
    let mut deaf = Vec::new();
    for _ in 0..50 {
        let socket = shm::Socket::connect(daemon.path()).unwrap();
        rustix::io::ioctl_fionbio(&socket, true).unwrap();
        let ask = || Request::encode(Ask::List { after: None });
        while socket.send(&ask(), &[]).is_ok() {}
        deaf.push(socket);
    }
    std::thread::sleep(Duration::from_millis(500));
    innocents.end();
    daemon.end();
}

of_every! {
    /// Each request, with `@` for a name and `#` for a number.
    fn templates() -> Vec<&'static str> = Ask {
        AttachPort => [r#"{"attach_port":{"port":@,"shape":{"slots":#,"buffer_bytes":#}}}"#],
        AddPort => [r#"{"add_port":{"port":@,"shape":{"slots":2,"buffer_bytes":#}}}"#],
        AddPipes => [r#"{"add_pipes":{"group":@,"pipes":#,"shape":{"slots":#,"buffer_bytes":64}}}"#],
        AttachPipe => [r#"{"attach_pipe":{"group":@,"pipe":#,"end":"master"}}"#],
        OpenPipe => [r#"{"open_pipe":{"group":"g","end":"slave","shape":{"slots":#,"buffer_bytes":65536}}}"#],
        Detach => [r#"{"detach":{"attachment":#}}"#],
        SetHeader => [r#"{"set_header":{"port":@,"header_bytes":#}}"#],
        Poll => [
            r#"{"poll":{"port":@,"always":#}}"#,
            r#"{"poll":{"port":@,"always":true}}"#,
            r#"{"poll":{"port":@,"always":false}}"#,
        ],
        AddDevice => [
            r#"{"add_device":{"port":@,"device":{"xdp":{"device":"a\u0000b","queue":#}}}}"#,
            r#"{"add_device":{"port":@,"device":"tap","shape":{"slots":#,"buffer_bytes":#}}}"#,
            r#"{"add_device":{"port":@,"device":{"vhost_user":{"path":@}},"shape":{"slots":#,"buffer_bytes":#}}}"#,
        ],
        LendDevice => [
            r#"{"lend_device":{"port":@,"device":{"xdp":{"device":@,"queue":#}}}}"#,
            r#"{"lend_device":{"port":@,"device":"tap","shape":{"slots":#,"buffer_bytes":#}}}"#,
            r#"{"lend_device":{"port":@,"device":{"vhost_user":{"path":@}},"shape":{"slots":#,"buffer_bytes":#}}}"#,
        ],
        LendPort => [r#"{"lend_port":{"port":@,"shape":{"slots":#,"buffer_bytes":#}}}"#],
        AttachMemory => [
            r#"{"attach_memory":{"port":@,"is_fresh":true}}"#,
            r#"{"attach_memory":{"port":@,"is_fresh":#}}"#,
            r#"{"attach_memory":{"port":@,"is_fresh":true,"trust":{"group":"g","seat":#}}}"#,
        ],
        JoinGroup => [
            r#"{"join_group":{"port":@,"group":"g"}}"#,
            r#"{"join_group":{"port":"vale7:u","group":@}}"#,
        ],
        AddLink => [
            r#"{"add_link":{"one":@,"other":"vale6:y","link":{"delay_ns":#,"jitter_ns":#}}}"#,
            r#"{"add_link":{"one":"vale7:u","other":"vale6:v","link":{"rate_bits_per_s":#,"queue_bytes":#}}}"#,
            r#"{"add_link":{"one":"vale7:s","other":"vale6:t","link":{"loss_per_billion":#,"seed":#}}}"#,
        ],
        Watch => [r#"{"watch":{"port":@}}"#],
        DeletePort => [
            r#"{"delete_port":{"port":@}}"#,
            r#"{"delete_port":{"port":"vale7:u"}}"#,
            r#"{"delete_port":{"port":"vale7:s"}}"#,
        ],
        DeletePipes => [r#"{"delete_pipes":{"group":@}}"#],
        List => [r#"{"list":{"after":@}}"#],
    }
}

/// Everything a client can write into a request that is of the right form.
#[test]
fn no_value_of_any_field_harms_anybody() {
    let daemon = Confined::start("values");
    let innocents = Innocents::start(daemon.path());
    let numbers = ["0", "1", "-1", "4294967295", "18446744073709551615", "1e308", "1e999", "null"];
    let names = [r#""vale7:x""#, r#""vale7:\u0000""#, r#""\u001b[2J:x""#, r#""""#, r#""a:b:c""#];
    let asks = templates();
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut connection = shm::Socket::connect(daemon.path()).unwrap();
    let mut said = 0;
    for name in names {
        for number in numbers {
            for ask in &asks {
                let ask = ask.replace('@', name).replace('#', number);
                let text = format!(r#"{{"version":1,"ask":{ask}}}"#);
                let with: &[BorrowedFd<'_>] =
                    if said % 5 == 0 { &[null.as_fd(), null.as_fd()] } else { &[] };
                connection.send(text.as_bytes(), with).unwrap();
                let shm::Message::Received { bytes, .. } = connection.receive().unwrap() else {
                    panic!("{text} ends the connection");
                };
                let answer = String::from_utf8(bytes).unwrap();
                assert!(!answer.contains("\\u0000") && !answer.contains("\\u001b"), "{answer}");
                said += 1;
            }
        }
        connection = shm::Socket::connect(daemon.path()).unwrap();
    }
    drop(connection);
    innocents.end();
    daemon.end();
}

/// The name of a device becomes that of a thread, and is shown in lists. On a loopback device of a network of
/// its own.
#[test]
fn root_a_device_of_any_name_is_taken() {
    let daemon = Confined::start("device");
    let innocents = Innocents::start(daemon.path());
    let queue = std::thread::spawn(|| {
        sys::namespace::unshare_network().unwrap();
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        ports::xdp::open("lo", 0).unwrap()
    });
    let queue = queue.join().unwrap();
    let device = DeviceKind::Xdp(XdpFacts {
        device: "e\0\u{1b}[2J".into(),
        queue: 0,
        is_generic: queue.is_generic,
        takes_parts: queue.takes_parts,
    });
    let ask = Ask::AddDevice { port: "vale0:lo".parse().unwrap(), device, shape: Shape::default() };
    let mut connection = daemon.connect();
    let mut fds = vec![queue.socket.as_fd(), queue.memory.fd().unwrap()];
    fds.extend(queue.holds.iter().map(AsFd::as_fd));
    connection.ask_with(ask, &fds).unwrap();
    let entries = connection.list().unwrap();
    let entry = entries.iter().find(|entry| entry.name == "vale0:lo").unwrap();
    let state = entry.device.as_ref().unwrap();
    assert_eq!((state.name.as_str(), &state.ended), ("e??[2J queue 0", &None));
    connection.ask(Ask::DeletePort { port: "vale0:lo".parse().unwrap() }).unwrap();
    innocents.end();
    daemon.end();
}

/// What the sandbox refuses stands in the log and in the very next list, whatever becomes of the error.
#[test]
fn what_the_sandbox_refuses_is_shown() {
    let daemon = Confined::start_as("provoked-daemon", "refused");
    let mut connection: Connection = daemon.connect();
    connection.list().unwrap();
    assert_eq!(connection.health().refused_calls, 3);
    wait_until("it is said", || {
        daemon.said().iter().any(|line| line.contains("RefusedCall") && line.contains("getcwd"))
    });
}
