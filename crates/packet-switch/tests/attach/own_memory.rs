//! Clients whose rings are in memory of their own.

use std::os::fd::{AsFd, BorrowedFd};

use packet_switch::PortName;
use packet_switch::attachment::{Ask, RefusalCode};
use packet_switch::client::{ClientError, Connection};
use ring::{Receiver, Sender};
use shm::Bell;
use testkit::own_memory::{OwnMemory, SHAPE};
use testkit::serving::{SOON, Serving, frame, wait_until};

fn own() -> PortName {
    "vale0:own".parse().unwrap()
}

fn send(sender: &mut Sender, frame: &[u8]) {
    assert!(sender.wait(SOON).unwrap() > 0 && sender.put(0, frame));
    sender.publish(1).unwrap();
}

fn receive(receiver: &mut Receiver) -> [u8; 60] {
    assert!(receiver.wait(SOON).unwrap() > 0);
    let mut out = [0; 60];
    assert_eq!(receiver.copy(0, &mut out), Some(60));
    receiver.release(1).unwrap();
    out
}

#[test]
fn rings_outlive_a_switch_and_go_on_where_they_were() {
    let memory = OwnMemory::new();
    let (mut sender, mut receiver) = {
        let serving = Serving::start("own-first");
        let mut connection = serving.connect();
        let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
        memory.lend(&mut connection, &own(), true);
        let (mut sender, mut receiver) = memory.ends();
        // More than once around.
        for round in 0..2 * SHAPE.slots {
            send(&mut sender, &frame(1, 2, round as u8));
            assert_eq!(receive(&mut b.receiver), frame(1, 2, round as u8));
            send(&mut b.sender, &frame(2, 1, round as u8));
            assert_eq!(receive(&mut receiver), frame(2, 1, round as u8));
        }
        let listed = connection.list().unwrap();
        let entry = listed.iter().find(|entry| entry.name == own().to_string()).unwrap();
        assert_eq!((entry.attached, entry.shape), (1, SHAPE));
        (sender, receiver)
    };
    // Sent while there is no switch.
    send(&mut sender, &frame(1, 2, 77));
    let serving = Serving::start("own-second");
    let mut connection = serving.connect();
    let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    memory.lend(&mut connection, &own(), false);
    assert_eq!(receive(&mut b.receiver), frame(1, 2, 77));
    send(&mut b.sender, &frame(2, 1, 78));
    assert_eq!(receive(&mut receiver), frame(2, 1, 78));
    // The port goes with the connection that lent it.
    let mut other = serving.connect();
    drop(connection);
    wait_until("the port goes", || other.list().unwrap().is_empty());
}

/// A switch that is started anew knows of no group: its members bring their memory and get new rings in it. Who joins later
/// gets another memory, because seats of the old one may be somebody's who has yet to come.
#[test]
fn members_of_a_trust_group_find_each_other_at_the_next_switch() {
    let (one, two): (PortName, PortName) =
        ("vale0:one".parse().unwrap(), "vale0:two".parse().unwrap());
    let group = "twins".parse().unwrap();
    let members = {
        let serving = Serving::start("trust-first");
        let mut connection = serving.connect();
        let members = [&one, &two].map(|port| OwnMemory::join(&mut connection, port, &group));
        members[0].attach(&mut connection, &one, true).unwrap();
        members[1].attach(&mut connection, &two, true).unwrap();
        members
    };
    let serving = Serving::start("trust-second");
    let mut connection = serving.connect();
    members[0].lend(&mut connection, &one, true);
    let late: PortName = "vale0:late".parse().unwrap();
    let newcomer = OwnMemory::join(&mut connection, &late, &group);
    newcomer.attach(&mut connection, &late, true).unwrap();
    assert_ne!(newcomer.region.file().unwrap(), members[0].region.file().unwrap());
    // Two ports cannot be at one seat.
    let third: PortName = "vale0:third".parse().unwrap();
    connection.ask(Ask::LendPort { port: third.clone(), shape: SHAPE }).unwrap();
    assert!(matches!(
        members[0].attach(&mut connection, &third, true),
        Err(ClientError::Refused { code: RefusalCode::Taken, .. })
    ));
    members[1].lend(&mut connection, &two, true);
    let [(mut tx, _), (mut two_tx, mut rx)] = members.each_ref().map(OwnMemory::ends);
    let (mut late_tx, mut late_rx) = newcomer.ends();
    send(&mut two_tx, &frame(2, 2, 0));
    send(&mut late_tx, &frame(3, 3, 0));
    wait_until("the switch knows where they are", || {
        let entries = connection.list().unwrap();
        let spoke = |entry: &&packet_switch::attachment::Entry| {
            entry.count.as_ref().is_some_and(|count| count.incoming.frames > 0)
        };
        entries.iter().filter(spoke).count() == 2
    });
    send(&mut tx, &frame(1, 2, 7));
    assert_eq!(receive(&mut rx), frame(1, 2, 7));
    send(&mut tx, &frame(1, 3, 8));
    assert_eq!(receive(&mut late_rx), frame(1, 3, 8));
    let entries = connection.list().unwrap();
    let handed_over = |port: &PortName| {
        let entry = entries.iter().find(|entry| entry.name == port.to_string()).unwrap();
        entry.count.as_ref().unwrap().handed_over
    };
    assert_eq!(
        (handed_over(&two), handed_over(&late)),
        (1, 0),
        "between two memories it is copied"
    );
}

#[test]
fn memory_that_is_no_use_for_a_port_is_refused() {
    let serving = Serving::start("own-refused");
    let mut connection = serving.connect();
    connection.ask(Ask::LendPort { port: own(), shape: SHAPE }).unwrap();
    let memory = OwnMemory::new();
    let mut code = |memory: BorrowedFd<'_>, kick: &Bell| {
        let bell = Bell::new().unwrap();
        let bells = [[kick, &bell], [&bell, &bell]];
        match connection.attach_memory(&own(), true, memory, &[bells]) {
            Err(ClientError::Refused { code, why }) => (code, why),
            other => panic!("not refused: {other:?}"),
        }
    };
    let bell = Bell::new().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let fd = memory.region.fd().unwrap();
    let (why, words) = code(fd, &Bell::from_fd(null.try_clone().unwrap().into()));
    assert!(why == RefusalCode::Device && words.contains("not an eventfd"), "{words}");
    let (why, words) = code(null.as_fd(), &bell);
    assert!(why == RefusalCode::Device && words.contains("not sealed"), "{words}");
    // The shape's rings and buffers take more.
    let short = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&short, 64 << 10).unwrap();
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&short, seals).unwrap();
    assert_eq!(code(short.as_fd(), &bell).0, RefusalCode::Invalid);
    let few = Ask::AttachMemory { port: own(), is_fresh: true, trust: None };
    match connection.ask_with(few, &[fd]) {
        Err(ClientError::Refused { code, why }) => {
            assert!(code == RefusalCode::Device && why.contains("1 came"), "{why}");
        }
        other => panic!("not refused: {other:?}"),
    }
    let nowhere = "vale0:nowhere".parse().unwrap();
    assert!(matches!(
        memory.attach(&mut connection, &nowhere, true),
        Err(ClientError::Refused { code: RefusalCode::NotThere, .. })
    ));
    memory.attach(&mut connection, &own(), true).unwrap();
}

/// Memory without pages costs whoever lends it nothing; the switch maps all of it, and counts it.
#[test]
fn the_whole_of_lent_memory_counts() {
    let serving = Serving::start("own-long");
    let mut connection = serving.connect();
    let attach = |connection: &mut Connection, number: u32| {
        let port: PortName = format!("vale0:own{number}").parse().unwrap();
        connection.ask(Ask::LendPort { port: port.clone(), shape: SHAPE }).unwrap();
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("long", flags).unwrap();
        rustix::fs::ftruncate(&memory, 4 << 30).unwrap();
        let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
        let bell = Bell::new().unwrap();
        connection.attach_memory(&port, true, memory.as_fd(), &[[[&bell, &bell]; 2]])
    };
    // The limit is 8 GiB.
    for number in 0..2 {
        attach(&mut connection, number).unwrap();
    }
    let third = attach(&mut connection, 2);
    assert!(
        matches!(&third, Err(ClientError::Refused { code: RefusalCode::Limit, .. })),
        "{third:?}"
    );
}

/// A guest's driver comes and goes a thousand times: each time its new rings serve both ways, and another port loses nothing.
#[test]
fn memory_is_attached_a_thousand_times_and_serves_each_time() {
    let serving = Serving::start("own-thousand");
    let mut connection = serving.connect();
    let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    let memory = OwnMemory::new();
    let mut attachment = memory.lend(&mut connection, &own(), true);
    for round in 0..1000 {
        let (mut sender, mut receiver) = memory.ends();
        send(&mut sender, &frame(1, 2, round as u8));
        assert_eq!(receive(&mut b.receiver), frame(1, 2, round as u8));
        send(&mut b.sender, &frame(2, 1, round as u8));
        assert_eq!(receive(&mut receiver), frame(2, 1, round as u8));
        connection.ask(Ask::Detach { attachment }).unwrap();
        wait_until("the switch lets go of it", || {
            match memory.attach(&mut connection, &own(), true) {
                Ok(number) => attachment = number,
                Err(ClientError::Refused { code: RefusalCode::Taken, .. }) => return false,
                Err(other) => panic!("{other}"),
            }
            true
        });
    }
}

/// Two attachments would write to the same rings.
#[test]
fn memory_is_attached_once_at_a_time() {
    let serving = Serving::start("own-twice");
    let mut connection = serving.connect();
    let memory = OwnMemory::new();
    let other: PortName = "vale0:other".parse().unwrap();
    connection.ask(Ask::LendPort { port: other.clone(), shape: SHAPE }).unwrap();
    let mut attachment = memory.lend(&mut connection, &own(), true);
    for _ in 0..20 {
        assert!(matches!(
            memory.attach(&mut connection, &other, true),
            Err(ClientError::Refused { code: RefusalCode::Taken, .. })
        ));
        connection.ask(Ask::Detach { attachment }).unwrap();
        wait_until("the switch lets go of it", || {
            match memory.attach(&mut connection, &own(), true) {
                Ok(number) => attachment = number,
                Err(ClientError::Refused { code: RefusalCode::Taken, .. }) => return false,
                Err(other) => panic!("{other}"),
            }
            true
        });
    }
}
