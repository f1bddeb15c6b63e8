//! Clients and a daemon over a real socket and real shared memory, within one process.

#[path = "attach/own_memory.rs"]
mod own_memory;
#[path = "attach/passthrough_root.rs"]
mod passthrough_root;
#[path = "attach/refusals.rs"]
mod refusals;
use std::os::fd::AsFd;
use std::time::Duration;

use packet_switch::attachment::{Ask, DeviceKind, Kind, LinkConfig, PipeEnd, Shape, XdpFacts};
use packet_switch::client::{ClientError, Connection};
use packet_switch::daemon::Notice;
use ring::Patience;
use testkit::serving::{RawAttachment, SOON, Serving, frame, wait_until};

fn refusal(outcome: Result<impl std::fmt::Debug, ClientError>) -> String {
    match outcome {
        Err(ClientError::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn two_clients_talk_through_a_switch() {
    let serving = Serving::start("talk");
    let mut connection = serving.connect();
    let mut a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
    let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    let mut other = connection.attach_port(&"vale1:b".parse().unwrap()).unwrap();
    for (from, to) in [(1, 2), (2, 1), (1, 2)] {
        let (sender, receiver) = if from == 1 {
            (&mut a.sender, &mut b.receiver)
        } else {
            (&mut b.sender, &mut a.receiver)
        };
        sender.wait(SOON).unwrap();
        assert!(sender.put(0, &frame(from, to, 7)));
        sender.publish(1).unwrap();
        assert_eq!(receiver.wait(SOON).unwrap(), 1, "{from} to {to}");
        let mut out = [0; 100];
        assert_eq!(receiver.copy(0, &mut out), Some(60));
        assert_eq!(out[..60], frame(from, to, 7));
        receiver.release(1).unwrap();
    }
    let nothing = Patience { linger: Duration::ZERO, timeout: Duration::from_millis(20) };
    assert_eq!(other.receiver.wait(nothing).unwrap(), 0, "another switch is another network");

    let listed = connection.list().unwrap();
    let names: Vec<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["vale0:a", "vale0:b", "vale1:b"]);
    let count = listed[0].count.as_ref().unwrap();
    assert_eq!((count.incoming.frames, count.outgoing.frames), (2, 1));
    assert_eq!(count.incoming.bytes, 120);
}

#[test]
fn a_link_carries_frames_between_switches_as_they_are() {
    let serving = Serving::start("link");
    let mut connection = serving.connect();
    let mut a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
    let mut b = connection.attach_port(&"vale1:b".parse().unwrap()).unwrap();
    let (one, other) = ("vale0:up".parse().unwrap(), "vale1:down".parse().unwrap());
    let link = LinkConfig { delay_ns: 1_000_000, seed: 1, ..LinkConfig::default() };
    connection.ask(Ask::AddLink { one, other, link }).unwrap();
    let mut long = vec![9; 2000];
    long[..12].copy_from_slice(&frame(1, 0xff, 0)[..12]);
    for sent in [frame(1, 0xff, 5).to_vec(), long] {
        assert!(a.sender.wait(SOON).unwrap() > 0 && a.sender.put(0, &sent));
        a.sender.publish(1).unwrap();
        assert_eq!(b.receiver.wait(SOON).unwrap(), 1);
        let mut space = [0; 2112];
        let length = b.receiver.copy(0, &mut space).unwrap();
        assert_eq!(space[..length], sent);
        b.receiver.release(1).unwrap();
    }
    let ports = connection.list().unwrap();
    let up = ports.iter().find(|entry| entry.name == "vale0:up").unwrap();
    assert_eq!(up.count.as_ref().unwrap().outgoing.bytes, 2060, "headers are not counted");
    connection.ask(Ask::DeletePort { port: "vale1:down".parse().unwrap() }).unwrap();
    assert_eq!(connection.list().unwrap().len(), 2, "both its ports go");
}

#[test]
fn descriptors_that_are_no_device_are_refused() {
    let serving = Serving::start("no-device");
    let mut connection = serving.connect();
    let facts =
        XdpFacts { device: "x".repeat(4000), queue: u32::MAX, is_generic: true, takes_parts: true };
    let null = std::fs::File::open("/dev/null").unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let region = shm::Region::create("frames", 8 << 20).unwrap();
    for fds in [
        vec![],
        vec![null.as_fd()],
        vec![null.as_fd(), null.as_fd(), null.as_fd()],
        vec![socket.as_fd(), region.fd().unwrap()],
    ] {
        let guest = DeviceKind::VhostUser { path: "x".repeat(4000) };
        for device in [DeviceKind::Tap, DeviceKind::Xdp(facts.clone()), guest] {
            let port = "vale0:a".parse().unwrap();
            let ask = Ask::AddDevice { port, device, shape: Shape::default() };
            assert!(!refusal(connection.ask_with(ask, &fds)).is_empty());
        }
    }
    assert!(connection.list().unwrap().is_empty(), "no port is left behind");
}

#[test]
fn attachments_end_with_their_connection() {
    let serving = Serving::start("end");
    let name = "vale0:a".parse().unwrap();
    let mut stays = serving.connect();
    stays
        .ask(Ask::AddPort { port: "vale0:kept".parse().unwrap(), shape: Shape::default() })
        .unwrap();
    let mut first = serving.connect();
    let attached = first.attach_port(&name).unwrap();
    assert!(refusal(stays.attach_port(&name)).contains("in use"));
    first.ask(Ask::Detach { attachment: attached.attachment }).unwrap();
    let _again = stays.attach_port(&name).unwrap();
    drop(stays);
    let mut last = serving.connect();
    wait_until("the ephemeral port is gone", || last.list().unwrap().len() == 1);
    let kept = &last.list().unwrap()[0];
    assert_eq!((kept.name.as_str(), kept.kind, kept.attached), ("vale0:kept", Kind::Port, 0));
    last.ask(Ask::DeletePort { port: "vale0:kept".parse().unwrap() }).unwrap();
    assert!(last.list().unwrap().is_empty());
}

#[test]
fn a_lent_device_goes_with_the_connection_that_lent_it() {
    let serving = Serving::start("lent");
    let folder = sys::private::Scratch::new("lent").unwrap();
    let guest = |name: &str| {
        let path = folder.path().join(name);
        let listener = ports::vm::Listener::bind(&path).unwrap();
        (DeviceKind::VhostUser { path: path.display().to_string() }, listener)
    };
    let shape = Shape::of_device();
    let mut other = serving.connect();
    let (device, listener) = guest("kept");
    let ask = Ask::AddDevice { port: "vale0:kept".parse().unwrap(), device, shape };
    other.ask_with(ask, &[listener.as_fd()]).unwrap();
    let mut lender = serving.connect();
    for name in ["one", "two"] {
        let (device, listener) = guest(name);
        let port: packet_switch::PortName = format!("vale1:{name}").parse().unwrap();
        let ask = Ask::LendDevice { port: port.clone(), device: device.clone(), shape };
        lender.ask_with(ask.clone(), &[listener.as_fd()]).unwrap();
        assert!(refusal(other.ask_with(ask, &[listener.as_fd()])).contains("already exists"));
    }
    // One of them is taken away before; another's connection ends.
    lender.ask(Ask::DeletePort { port: "vale1:one".parse().unwrap() }).unwrap();
    let mut names =
        || -> Vec<String> { other.list().unwrap().into_iter().map(|entry| entry.name).collect() };
    drop(serving.connect());
    assert_eq!(names(), ["vale0:kept", "vale1:two"]);
    drop(lender);
    wait_until("what was lent is gone", || names() == ["vale0:kept"]);
}

#[test]
fn pipes_share_memory_and_need_no_switch() {
    let serving = Serving::start("pipe");
    let mut left = serving.connect();
    let mut middle = serving.connect();
    let mut right = serving.connect();
    let group = "chain".parse().unwrap();
    assert!(refusal(left.attach_pipe(&group, 0, PipeEnd::Master)).contains("there is no"));
    left.ask(Ask::AddPipes { group: group.clone(), pipes: 2, shape: Shape::default() }).unwrap();
    let mut first = left.attach_pipe(&group, 0, PipeEnd::Master).unwrap();
    assert!(refusal(right.attach_pipe(&group, 0, PipeEnd::Master)).contains("in use"));
    assert!(
        refusal(right.attach_pipe(&group, 2, PipeEnd::Master)).contains("there is no pipe 2 of")
    );
    let mut inlet = middle.attach_pipe(&group, 0, PipeEnd::Slave).unwrap();
    let mut outlet = middle.attach_pipe(&group, 1, PipeEnd::Master).unwrap();
    let mut last = right.attach_pipe(&group, 1, PipeEnd::Slave).unwrap();
    for round in 0..5000_u16 {
        let fill = (round % 251) as u8;
        first.sender.wait(SOON).unwrap();
        assert!(first.sender.put(0, &frame(1, 2, fill)));
        first.sender.publish(1).unwrap();
        assert_eq!(inlet.receiver.wait(SOON).unwrap(), 1);
        assert!(outlet.sender.wait(SOON).unwrap() > 0);
        assert!(ring::swap(&mut inlet.receiver, 0, &mut outlet.sender, 0), "one memory");
        outlet.sender.publish(1).unwrap();
        inlet.receiver.release(1).unwrap();
        assert_eq!(last.receiver.wait(SOON).unwrap(), 1);
        let mut out = [0; 60];
        last.receiver.copy(0, &mut out).unwrap();
        assert_eq!(out, frame(1, 2, fill));
        last.receiver.release(1).unwrap();
    }
    let entry = &left.list().unwrap()[0];
    assert_eq!((entry.kind, entry.attached), (Kind::Pipes { pipes: 2 }, 4));
    assert!(entry.count.is_none(), "nobody counts a pipe's frames");
}

#[test]
fn a_liar_is_cut_off_and_told_why() {
    let serving = Serving::start("liar");
    let mut connection = serving.connect();
    let mut liar = connection.attach_port(&"vale0:liar".parse().unwrap()).unwrap();
    let mut a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
    let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    liar.sender.reserve(1).unwrap();
    let end = liar.sender.end();
    let wild = ring::Slot { buffer: u32::MAX, length_bytes: 60, ..ring::Slot::default() };
    end.memory().set_slot(end.position(), wild);
    liar.sender.publish(1).unwrap();
    let mut told = None;
    wait_until("it is told", || {
        told = connection.poll_cut_off().unwrap();
        told.is_some()
    });
    let (attachment, why) = told.unwrap();
    assert_eq!(attachment, liar.attachment);
    assert!(why.contains("names buffer 4294967295"), "{why}");
    a.sender.reserve(1).unwrap();
    assert!(a.sender.put(0, &frame(1, 2, 3)));
    a.sender.publish(1).unwrap();
    assert_eq!(b.receiver.wait(SOON).unwrap(), 1, "the others go on");
    let cut_off = serving.notices().into_iter().any(|one| matches!(one, Notice::CutOff { .. }));
    assert!(cut_off, "it stands in the log");
}

/// Attaches, and makes whoever rings for it wait for ever.
fn jam(serving: &Serving, port: &str) -> RawAttachment {
    let mut raw = serving.raw_attach(port);
    // Memory, then theirs and ours of the transmit ring, then of the receive ring.
    let region = shm::Region::attach(raw.fds.remove(0)).unwrap();
    let ours = &raw.fds[3];
    rustix::io::write(ours, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rustix::fs::fcntl_setfl(ours, rustix::fs::OFlags::empty()).unwrap();
    let layout = ring::Layout::read(&region).unwrap();
    let mut asleep = layout.end(&region, 1, ring::Seat::User, 1).unwrap();
    assert!(asleep.arm().unwrap());
    raw
}

#[test]
fn a_jammed_bell_stops_nobody_for_long() {
    let serving = Serving::start_plain("jam");
    let mut connection = serving.connect();
    let _jam = jam(&serving, "vale0:jam");
    let mut a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
    let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    for fill in 0..3 {
        a.sender.reserve(1).unwrap();
        assert!(a.sender.put(0, &frame(1, 0xff, fill)));
        a.sender.publish(1).unwrap();
        assert_eq!(b.receiver.wait(SOON).unwrap(), 1, "frame {fill} arrives");
        b.receiver.release(1).unwrap();
    }
    wait_until("the jam is noticed", || {
        serving.notices().iter().any(|one| matches!(one, Notice::CutOff { .. }))
    });
}

/// The same, and everybody leaves while the switch hangs: whoever comes next is served, and is not taken for the one that
/// had its place before.
#[test]
fn a_jammed_bell_left_behind_stops_nobody_either() {
    for stays in [false, true] {
        let serving = Serving::start_plain("jam-left");
        // With a port that stays, the hanging switch itself serves those who come.
        let mut kept = serving.connect();
        let _kept = stays.then(|| kept.attach_port(&"vale0:kept".parse().unwrap()).unwrap());
        let left = {
            let jam = jam(&serving, "vale0:jam");
            let mut connection = serving.connect();
            let mut a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
            a.sender.reserve(1).unwrap();
            assert!(a.sender.put(0, &frame(1, 0xff, 0)));
            a.sender.publish(1).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            // The connections close, the bells stay open here.
            jam.fds
        };
        let mut connection = serving.connect();
        wait_until("those before have left", || {
            !connection.list().unwrap().iter().any(|port| port.name.ends_with("jam"))
        });
        let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
        let mut again = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
        again.sender.reserve(1).unwrap();
        assert!(again.sender.put(0, &frame(1, 0xff, 0)));
        again.sender.publish(1).unwrap();
        assert_eq!(b.receiver.wait(SOON).unwrap(), 1);
        assert!(connection.poll_cut_off().unwrap().is_none());
        drop(left);
    }
}

#[test]
fn impossible_wishes_are_refused_in_words() {
    let serving = Serving::start("refuse");
    let mut connection = serving.connect();
    let port = || "vale0:a".parse().unwrap();
    for shape in [
        Shape { slots: 1, ..Shape::default() },
        Shape { slots: u32::MAX, ..Shape::default() },
        Shape { buffer_bytes: 100, ..Shape::default() },
        Shape { buffer_bytes: 0, ..Shape::default() },
    ] {
        let why = refusal(connection.attach_port_as(&port(), shape));
        assert!(why.contains("expected"), "{why}");
        assert!(connection.list().unwrap().is_empty(), "nothing is left of it");
    }
    let pipes =
        |pipes| Ask::AddPipes { group: "g".parse().unwrap(), pipes, shape: Shape::default() };
    assert!(refusal(connection.ask(pipes(0))).contains("32"));
    assert!(refusal(connection.ask(pipes(u32::MAX))).contains("32"));
    for number in 0..8 {
        let port = format!("vale{number}:a").parse().unwrap();
        connection.ask(Ask::AddPort { port, shape: Shape::default() }).unwrap();
    }
    assert!(
        refusal(connection.attach_port(&"vale8:a".parse().unwrap()))
            .contains("switches: the limit of 8 is reached")
    );
    assert!(
        refusal(connection.ask(Ask::DeletePort { port: "vale9:a".parse().unwrap() }))
            .contains("there is no port vale9:a")
    );
}

#[test]
fn a_switch_has_254_ports_and_no_more() {
    let serving = Serving::start("many");
    let shape = Shape { slots: 16, ..Shape::default() };
    let mut connections: Vec<Connection> = Vec::new();
    let mut ports = Vec::new();
    for number in 0..254 {
        // A connection has at most 64 attachments.
        if number % 64 == 0 {
            connections.push(serving.connect());
        }
        let name = format!("vale0:p{number}").parse().unwrap();
        let connection = connections.last_mut().unwrap();
        ports.push(connection.attach_port_as(&name, shape).unwrap());
    }
    let one_more = "vale0:p254".parse().unwrap();
    let why = refusal(connections[3].attach_port_as(&one_more, shape));
    assert!(why.contains("ports of a switch: the limit of 254 is reached"), "{why}");
    // It does not fit the connection of the first 64 either, on any switch.
    let elsewhere = "vale1:a".parse().unwrap();
    assert!(refusal(connections[0].attach_port_as(&elsewhere, shape)).contains("64"));
    let sender = &mut ports[200].sender;
    assert!(sender.wait(SOON).unwrap() > 0 && sender.put(0, &frame(1, 0xff, 7)));
    sender.publish(1).unwrap();
    for (number, port) in ports.iter_mut().enumerate().filter(|(number, _)| *number != 200) {
        assert_eq!(port.receiver.wait(SOON).unwrap(), 1, "port {number}");
    }
}

#[test]
fn nonsense_is_answered_and_harms_nobody() {
    let serving = Serving::start("nonsense");
    let mut connection = serving.connect();
    let path = serving.path().to_owned();
    bolero::check!().with_iterations(300).for_each(|bytes: &[u8]| {
        let socket = shm::Socket::connect(&path).unwrap();
        if !bytes.is_empty() && bytes.len() < 4096 {
            socket.send(bytes, &[]).unwrap();
            let answer = socket.receive().unwrap();
            assert!(matches!(answer, shm::Message::Received { .. }), "{answer:?}");
        }
    });
    assert!(connection.list().unwrap().is_empty());
}

#[test]
fn sockets_are_not_taken_from_those_who_serve_them() {
    let serving = Serving::start("taken");
    let config = packet_switch::daemon::Config::new(serving.path().to_owned());
    assert!(packet_switch::daemon::Daemon::bind(config).is_err());
    let gone = serving.path().with_extension("gone");
    assert!(matches!(Connection::open(&gone), Err(ClientError::NoDaemon(_))));
}
