//! Trust groups: frames change hands between members without a copy, members come and go, and what they write into their
//! memory harms no other port.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use packet_switch::attachment::{Ask, Entry, RefusalCode, TRUST_SEATS};
use packet_switch::client::{ClientError, Connection};
use packet_switch::{Name, PortName};
use ring::{Layout, Receiver, Sender};
use testkit::own_memory::{OwnMemory, SHAPE};
use testkit::serving::{SOON, frame, wait_until};

use crate::confined::{Confined, Innocents};

/// Station of the member that is killed again and again.
const VICTIM: u8 = 7;

fn port(short: &str) -> PortName {
    format!("vale1:{short}").parse().unwrap()
}

fn group() -> Name {
    "twins".parse().unwrap()
}

/// A member of the group, attached: it has said who it is.
struct Member {
    memory: OwnMemory,
    tx: Sender,
    rx: Receiver,
    station: u8,
    attachment: u32,
}

/// Attaches as soon as the switch has let go of what was before.
fn attach(memory: &OwnMemory, connection: &mut Connection, port: &PortName) -> u32 {
    let mut attachment = None;
    wait_until("the member is attached", || {
        attachment = match memory.attach(connection, port, true) {
            Ok(number) => Some(number),
            Err(ClientError::Refused { code: RefusalCode::Taken, .. }) => None,
            Err(error) => panic!("{error}"),
        };
        attachment.is_some()
    });
    attachment.unwrap()
}

impl Member {
    fn join(connection: &mut Connection, short: &str, station: u8) -> Self {
        let memory = OwnMemory::join(connection, &port(short), &group());
        let attachment = attach(&memory, connection, &port(short));
        let (tx, rx) = memory.ends();
        let mut member = Self { memory, tx, rx, station, attachment };
        member.send(station);
        member
    }

    /// Sends a frame; the buffer that it is in.
    fn send(&mut self, to: u8) -> u32 {
        assert!(self.tx.wait(SOON).unwrap() > 0);
        let end = self.tx.end();
        let buffer = end.memory().slot(end.position()).buffer;
        assert!(self.tx.put(0, &frame(self.station, to, 5)));
        self.tx.publish(1).unwrap();
        buffer
    }

    /// Receives a frame from a station; the buffer that it is in.
    fn receive(&mut self, from: u8) -> u32 {
        assert!(self.rx.wait(SOON).unwrap() > 0);
        let mut copy = [0; 60];
        assert_eq!(self.rx.copy(0, &mut copy), Some(60));
        assert_eq!(copy, frame(from, self.station, 5));
        let end = self.rx.end();
        let buffer = end.memory().slot(end.position()).buffer;
        self.rx.release(1).unwrap();
        buffer
    }

    /// The buffers of all its slots, wherever these are.
    fn buffers(&self) -> Vec<u32> {
        let all = |end: &ring::End<ring::Mapped>| {
            (0..SHAPE.slots).map(|index| end.memory().slot(index).buffer).collect::<Vec<u32>>()
        };
        [all(self.tx.place()), all(self.rx.place())].concat()
    }
}

fn entry(daemon: &Confined, short: &str) -> Entry {
    let entries = daemon.connect().list().unwrap();
    entries.into_iter().find(|entry| entry.name == port(short).to_string()).unwrap()
}

fn handed_over(daemon: &Confined, short: &str) -> u64 {
    entry(daemon, short).count.unwrap().handed_over
}

#[test]
fn the_receiver_reads_the_very_buffer_that_the_sender_filled_and_strangers_get_copies() {
    let daemon = Confined::start("trust");
    let mut connection = daemon.connect();
    let mut stranger = connection.attach_port(&port("stranger")).unwrap();
    assert!(stranger.sender.wait(SOON).unwrap() > 0 && stranger.sender.put(0, &frame(9, 9, 5)));
    stranger.sender.publish(1).unwrap();
    let [mut one, mut two] = [("one", 1), ("two", 2)]
        .map(|(short, station)| Member::join(&mut connection, short, station));
    wait_until("the switch knows who is where", || {
        ["one", "two"].iter().all(|short| entry(&daemon, short).count.unwrap().incoming.frames == 1)
    });
    // Many times around the rings.
    for _ in 0..5 * SHAPE.slots {
        assert_eq!(one.send(2), two.receive(1));
        assert_eq!(two.send(1), one.receive(2));
    }
    let frames = u64::from(5 * SHAPE.slots);
    assert_eq!(handed_over(&daemon, "one"), frames);
    assert_eq!(handed_over(&daemon, "two"), frames);
    assert_eq!(entry(&daemon, "two").trust, Some(group()));
    assert_eq!(entry(&daemon, "stranger").trust, None);
    // The stranger's frames are copied, both ways, and nobody else's came to it.
    let filled = one.send(9);
    assert!(stranger.receiver.wait(SOON).unwrap() > 0);
    let mut copy = [0; 60];
    assert_eq!(stranger.receiver.copy(0, &mut copy), Some(60));
    assert_eq!(copy, frame(1, 9, 5));
    assert!(stranger.sender.wait(SOON).unwrap() > 0 && stranger.sender.put(0, &frame(9, 2, 5)));
    stranger.sender.publish(1).unwrap();
    two.receive(9);
    assert!(one.buffers().contains(&filled), "what is copied stays where it was");
    assert_eq!(handed_over(&daemon, "two"), frames);
    assert_eq!(handed_over(&daemon, "stranger"), 0);
    assert_eq!(entry(&daemon, "stranger").count.unwrap().outgoing.frames, 1);
    daemon.end();
}

/// The part of a process that is a member until it is killed: it keeps frames in all its slots, and some in flight.
pub(crate) fn play_victim() -> ! {
    let socket = PathBuf::from(std::env::var("CLEARSTREAM_SOCKET").unwrap());
    let mut connection = Connection::open(&socket).unwrap();
    let mut member = Member::join(&mut connection, "victim", VICTIM);
    loop {
        let free = member.tx.wait(SOON).unwrap();
        assert!((0..free).all(|offset| member.tx.put(offset, &frame(VICTIM, 1, 5))));
        member.tx.publish(free).unwrap();
        // Half of what it gets stays in its hands.
        let count = member.rx.peek(u32::MAX).unwrap();
        member.rx.release(count / 2).unwrap();
    }
}

fn start_victim(daemon: &Confined) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "plays_its_role", "--nocapture", "--test-threads", "1"])
        .env("CLEARSTREAM_ROLE", "victim")
        .env("CLEARSTREAM_SOCKET", daemon.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_member_that_is_killed_leaves_all_its_buffers_to_the_next_at_its_seat() {
    let daemon = Confined::start("trust-killed");
    let mut connection = daemon.connect();
    let [mut one, two] = [("one", 1), ("two", 2)]
        .map(|(short, station)| Member::join(&mut connection, short, station));
    for round in 0..10 {
        let mut victim = start_victim(&daemon);
        // It has sent and received without a copy, in both directions.
        for _ in 0..20 * (round + 1) {
            one.receive(VICTIM);
            one.send(VICTIM);
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        wait_until("its port is gone", || {
            let entries = connection.list().unwrap();
            entries.iter().all(|entry| entry.name != port("victim").to_string())
        });
        // What it had sent before.
        wait_until("its last frames have come", || {
            let count = one.rx.peek(u32::MAX).unwrap();
            one.rx.release(count).unwrap();
            count == 0
        });
    }
    assert!(handed_over(&daemon, "one") > 1000);
    let last = Member::join(&mut connection, "victim", VICTIM);
    assert_eq!(last.memory.seat.as_ref().unwrap().seat, 2, "the seat is free again");
    wait_until("its frames have gone", || one.tx.reserve(SHAPE.slots).unwrap() == SHAPE.slots - 1);
    let mut all: Vec<u32> =
        [&one, &two, &last].iter().flat_map(|member| member.buffers()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 3 * 2 * SHAPE.slots as usize, "each buffer is in one slot");
    daemon.end();
}

/// Words of the headers, both CSBs and all rings of a group's memory.
const WORDS: usize = (16384 + 2 * TRUST_SEATS as usize * 4096) / 4;

#[test]
fn rubbish_in_a_groups_memory_harms_no_other_port() {
    let daemon = Confined::start("trust-rubbish");
    let innocents = Innocents::start(daemon.path());
    let mut connection = daemon.connect();
    let [mut stranger, mut other] =
        ["stranger", "other"].map(|short| connection.attach_port(&port(short)).unwrap());
    let mut members = [("one", 1), ("two", 2)]
        .map(|(short, station)| Member::join(&mut connection, short, station));
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as u32
    };
    let words = members[0].memory.region.view::<AtomicU32>(0, WORDS).unwrap();
    for round in 0..300 {
        for _ in 0..20 {
            let value = if next() % 2 == 0 { next() } else { next() % SHAPE.slots };
            words[next() as usize % WORDS].store(value, Ordering::Release);
        }
        // The users' cursors of both members, and a buffer of any seat in a slot of the first.
        for ring in [0, 1, TRUST_SEATS, TRUST_SEATS + 1] {
            words[(4096 + 64 * usize::from(ring)) / 4]
                .store(next() % SHAPE.slots, Ordering::Release);
        }
        words[(16384 + 256) / 4].store(2 + next() % 900, Ordering::Release);
        members.iter().for_each(|member| member.memory.bells[0][0].ring().unwrap());
        // Between the others nothing is lost, copied wrongly or seen by the wrong one.
        let sent = frame(8, 9, round as u8);
        assert!(stranger.sender.wait(SOON).unwrap() > 0 && stranger.sender.put(0, &sent));
        stranger.sender.publish(1).unwrap();
        let mut copy = [0; 60];
        while copy != sent {
            assert!(other.receiver.wait(SOON).unwrap() > 0);
            assert!(other.receiver.copy(0, &mut copy).is_some());
            other.receiver.release(1).unwrap();
        }
        let count = stranger.receiver.peek(u32::MAX).unwrap();
        stranger.receiver.release(count).unwrap();
        while let Some((ended, _)) = connection.poll_cut_off().unwrap() {
            for (member, short) in members.iter_mut().zip(["one", "two"]) {
                if member.attachment == ended {
                    member.attachment = attach(&member.memory, &mut connection, &port(short));
                }
            }
        }
    }
    // Made anew, the group is as good as ever.
    for (member, short) in members.iter_mut().zip(["one", "two"]) {
        connection.ask(Ask::Detach { attachment: member.attachment }).ok();
        member.attachment = attach(&member.memory, &mut connection, &port(short));
        (member.tx, member.rx) = member.memory.ends();
    }
    let before = handed_over(&daemon, "two");
    let [one, two] = &mut members;
    two.send(2);
    wait_until("the switch knows where it is", || {
        one.send(2);
        two.rx.peek(1).unwrap() > 0
    });
    wait_until("it is handed over", || handed_over(&daemon, "two") > before);
    innocents.end();
    daemon.end();
}

#[test]
fn only_the_groups_memory_at_the_ports_own_seat_is_taken() {
    let daemon = Confined::start("trust-refused");
    let mut connection = daemon.connect();
    let one = OwnMemory::join(&mut connection, &port("one"), &group());
    let two = OwnMemory::join(&mut connection, &port("two"), &group());
    let code = |outcome: Result<u32, ClientError>| match outcome {
        Err(ClientError::Refused { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    };
    // Another seat's place, memory that is not the group's, and the group's as if it were a port's own.
    assert_eq!(code(two.attach(&mut connection, &port("one"), true)), RefusalCode::Invalid);
    let own = OwnMemory { seat: one.seat.clone(), ..OwnMemory::new() };
    assert_eq!(code(own.attach(&mut connection, &port("one"), true)), RefusalCode::Invalid);
    let own = OwnMemory::new();
    assert_eq!(code(own.attach(&mut connection, &port("one"), true)), RefusalCode::Invalid);
    assert!(matches!(
        connection.attach_port(&port("one")),
        Err(ClientError::Refused { code: RefusalCode::Invalid, .. })
    ));
    let again = connection.join_group(&port("one"), &group());
    assert!(matches!(again, Err(ClientError::Refused { code: RefusalCode::Taken, .. })));
    // Its rings are made anew, always.
    let seat = one.seat.clone().unwrap();
    let bell = shm::Bell::new().unwrap();
    let fds = [one.region.fd().unwrap(), bell.as_fd(), bell.as_fd(), bell.as_fd(), bell.as_fd()];
    let ask = Ask::AttachMemory { port: port("one"), is_fresh: false, trust: Some(seat) };
    let resumed = connection.ask_with(ask, &fds);
    assert!(matches!(resumed, Err(ClientError::Refused { code: RefusalCode::Invalid, .. })));
    // As many as there are seats share a memory; the next begins another.
    let layout = Layout::read(&one.region).unwrap();
    assert_eq!(layout.rings().len(), 2 * usize::from(TRUST_SEATS));
    let seats: Vec<(u8, (u64, u64))> = (2..=TRUST_SEATS)
        .map(|number| {
            let member = OwnMemory::join(&mut connection, &port(&format!("m{number}")), &group());
            (member.seat.unwrap().seat, member.region.file().unwrap().unwrap())
        })
        .collect();
    let numbers: Vec<u8> = seats.iter().map(|(seat, _)| *seat).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6, 0]);
    assert_eq!(seats[0].1, one.region.file().unwrap().unwrap());
    assert_ne!(seats[5].1, seats[0].1);
    one.attach(&mut connection, &port("one"), true).unwrap();
    two.attach(&mut connection, &port("two"), true).unwrap();
    daemon.end();
}
