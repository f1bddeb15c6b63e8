//! Paths of single peers: messages copied from the sender's memory, larger packets, and back-pressure.

use messaging::{Failure, Operation, SendMode, Status};

use crate::network::{Path, Shared, World};

const SHARED: Shared = Shared {
    path: messaging::Path { packet_bytes_max: 8_320, is_direct: true },
    refusal: 0.0,
    filling: 0.0,
};

fn world(shared: Shared) -> World {
    let mut world = World::new(3, Path::LAN, 1);
    world.shared = Some(shared);
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
        world.peer(from, to);
    }
    world
}

fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Sends a message and checks that it arrives; the packets that it took.
fn deliver(world: &mut World, bytes: usize, room: usize) -> u64 {
    let before = world.sent_pkts;
    let sent = world.send(0, 1, 7, message(bytes), SendMode::Standard);
    let received = world.receive(1, Some(0), 7, room);
    let until_ns = world.now_ns + 1_000_000_000;
    let is_done = |world: &World| {
        world.completion(0, sent).is_some() && world.completion(1, received).is_some()
    };
    assert!(world.run_until(until_ns, is_done));
    let (_, completion) = world.completion(1, received).expect("it is complete");
    let wanted = bytes.min(room);
    let status = if room < bytes { Status::Truncated } else { Status::Ok };
    assert_eq!(completion.status, status);
    assert!(world.nodes[1].memory.bytes[&received] == message(bytes)[..wanted]);
    world.sent_pkts - before
}

#[test]
fn a_long_message_is_copied_once_and_sent_in_no_packet() {
    let mut world = world(SHARED);
    deliver(&mut world, 1, 1);
    let packets = deliver(&mut world, 1 << 20, 1 << 20);
    assert!(packets < 8, "{packets} packets");
    deliver(&mut world, 1 << 20, 100_000);
    assert_eq!(world.nodes[1].machine.counters().direct_bytes, (1 << 20) + 100_000);
}

#[test]
fn a_message_that_cannot_be_copied_is_pulled_in_packets_of_the_path() {
    let mut world = world(Shared { refusal: 1.0, ..SHARED });
    deliver(&mut world, 1, 1);
    let packets = deliver(&mut world, 1 << 20, 1 << 20);
    // 127 packets of 8320 bytes, and the requests for them; 743 of 1472 bytes would be needed.
    assert!((127..300).contains(&packets), "{packets} packets");
    assert_eq!(world.nodes[1].machine.counters().direct_bytes, 0);
}

#[test]
fn a_held_peer_gets_nothing_until_it_is_released_and_the_others_do() {
    let mut world = world(SHARED);
    deliver(&mut world, 1, 1);
    let peer = world.peer(0, 1);
    world.nodes[0].machine.hold(peer);
    let receives = [1, 2].map(|at| world.receive(at, Some(0), 9, 100));
    let sent = world.sent_pkts;
    world.send(0, 1, 9, message(100), SendMode::Standard);
    assert_eq!(world.sent_pkts, sent);
    world.send(0, 2, 9, message(100), SendMode::Standard);
    world.run_for(1_000_000);
    assert!(
        world.completion(1, receives[0]).is_none() && world.completion(2, receives[1]).is_some()
    );
    world.nodes[0].machine.release(peer);
    world.pump(0);
    world.run_for(1_000_000);
    assert!(world.completion(1, receives[0]).is_some());
    assert_eq!(world.nodes[0].machine.counters().resent_pkts, 0);
}

#[test]
fn a_peer_that_broke_the_rules_of_its_path_fails_at_both_ends() {
    let mut world = world(SHARED);
    deliver(&mut world, 1, 1);
    let receives = [(0, 1), (1, 0)].map(|(at, from)| world.receive(at, Some(from), 9, 100));
    let (peer, now_ns) = (world.peer(0, 1), world.now_ns);
    world.nodes[0].machine.reject(now_ns, peer);
    world.pump(0);
    world.run_for(1_000_000);
    let failed = |at: usize, receive| {
        let (_, completion) = world.completion(at, receive).expect("it ended");
        assert!(matches!(completion.operation, Operation::Receive { message: None, .. }));
        completion.status
    };
    assert_eq!(failed(0, receives[0]), Status::PeerFailed(Failure::Violation));
    assert_eq!(failed(1, receives[1]), Status::PeerFailed(Failure::Restarted));
}
