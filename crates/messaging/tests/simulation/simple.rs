//! One operation at a time: what each is for.

use messaging::{Channel, Operation, OperationError, PeerId, Receive, Send, SendMode, Status};

use crate::network::{Path, World};

const MS: u64 = 1_000_000;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 256) as u8).collect()
}

fn received(world: &World, at: usize, context: u64) -> (Status, u64) {
    let (_, completion) = world.completion(at, context).expect("the receive completed");
    match completion.operation {
        Operation::Receive { received_bytes, .. } => (completion.status, received_bytes),
        Operation::Send => panic!("a receive"),
    }
}

#[test]
fn messages_of_every_length_arrive_expected_and_unexpected() {
    for length in [0, 1, 100, 1408, 1409, 4096, 4097, 20_000, 32_768, 32_769, 100_000, 1_000_000] {
        for mode in [SendMode::Standard, SendMode::Synchronous, SendMode::Inject] {
            for is_expected in [true, false] {
                if mode == SendMode::Inject && length > 4096 {
                    continue;
                }
                let mut world = World::new(2, Path::LAN, length as u64);
                let posted = is_expected.then(|| world.receive(1, Some(0), 5, length));
                let sent = world.send(0, 1, 5, bytes(length), mode);
                world.run_for(5 * MS);
                let is_matched_late = mode == SendMode::Synchronous || length > 32_768;
                if !is_expected && is_matched_late {
                    assert!(world.completion(0, sent).is_none(), "not matched yet");
                }
                let posted = posted.unwrap_or_else(|| world.receive(1, None, 5, length));
                world.run_for(50 * MS);
                assert_eq!(received(&world, 1, posted), (Status::Ok, length as u64));
                assert_eq!(world.nodes[1].memory.bytes[&posted], bytes(length), "{length}");
                let is_complete = world.completion(0, sent).is_some();
                assert_eq!(is_complete, mode != SendMode::Inject, "{length} {mode:?}");
                assert!(world.nodes.iter().all(|node| node.machine.is_drained()));
                assert!(world.nodes.iter().all(|node| node.machine.held_bytes() == 0));
            }
        }
    }
}

#[test]
fn longer_messages_are_cut_off_and_nothing_is_written_behind() {
    for (length, room) in
        [(100, 10), (100, 0), (5000, 1500), (30_000, 29_999), (200_000, 77_777), (200_000, 0)]
    {
        for is_expected in [true, false] {
            let mut world = World::new(2, Path::LAN, 3);
            let posted = is_expected.then(|| world.receive(1, None, 5, room));
            world.send(0, 1, 5, bytes(length), SendMode::Standard);
            world.run_for(5 * MS);
            let posted = posted.unwrap_or_else(|| world.receive(1, None, 5, room));
            world.run_for(50 * MS);
            assert_eq!(received(&world, 1, posted), (Status::Truncated, room as u64));
            assert_eq!(world.nodes[1].memory.bytes[&posted], bytes(length)[..room]);
            assert!(world.nodes.iter().all(|node| node.machine.is_drained()));
        }
    }
}

#[test]
fn an_endpoint_talks_to_itself() {
    let mut world = World::new(1, Path::LAN, 3);
    for length in [0, 10, 3000, 100_000] {
        let sent = world.send(0, 0, 5, bytes(length), SendMode::Synchronous);
        let posted = world.receive(0, Some(0), 5, length);
        world.run_for(50 * MS);
        assert_eq!(received(&world, 0, posted), (Status::Ok, length as u64));
        assert!(world.completion(0, sent).is_some());
    }
}

#[test]
fn probes_see_and_claims_take() {
    let mut world = World::new(2, Path::LAN, 3);
    for (bits, length) in [(5, 100), (6, 100_000), (7, 3000)] {
        world.send(0, 1, bits, bytes(length), SendMode::Standard);
    }
    world.run_for(5 * MS);
    let node = &mut world.nodes[1];
    let machine = &mut node.machine;
    assert!(machine.probe(None, Channel::Plain, 0, u64::MAX).is_none(), "another channel");
    assert!(machine.probe(None, Channel::Tagged, 9, 0).is_none());
    let seen = machine.probe(None, Channel::Tagged, 0, u64::MAX).expect("three wait");
    assert_eq!((seen.match_bits, seen.length_bytes, seen.data), (5, 100, Some(5)));
    let (claim, message) = machine.claim(Some(seen.source), Channel::Tagged, 6, 0).expect("waits");
    assert_eq!(message.length_bytes, 100_000);
    assert!(machine.probe(None, Channel::Tagged, 6, 0).is_none(), "it was claimed");
    let buffer = node.memory.add(vec![0; 100_000]);
    let receive = Receive {
        source: None,
        channel: Channel::Tagged,
        match_bits: 0,
        ignore_bits: 0,
        buffer,
        offset: 0,
        length_bytes: 100_000,
        multi: None,
        context: 77,
    };
    let now_ns = world.now_ns;
    node.machine.receive_claimed(now_ns, claim, &receive, &mut node.memory).expect("claimed");
    let again = node.machine.receive_claimed(now_ns, claim, &receive, &mut node.memory);
    assert_eq!(again, Err(OperationError::NoClaim));
    world.pump(1);
    world.run_for(50 * MS);
    assert_eq!(received(&world, 1, 77), (Status::Ok, 100_000));
    assert_eq!(world.nodes[1].memory.bytes[&buffer.0], bytes(100_000));
    assert_eq!(world.nodes[1].machine.unexpected_count(), 2);
}

#[test]
fn a_cancelled_receive_takes_nothing() {
    let mut world = World::new(2, Path::LAN, 3);
    world.peer(1, 0);
    let node = &mut world.nodes[1];
    let buffer = node.memory.add(vec![0; 8]);
    let receive = Receive {
        source: Some(PeerId(0)),
        channel: Channel::Tagged,
        match_bits: 5,
        ignore_bits: 0,
        buffer,
        offset: 0,
        length_bytes: 8,
        multi: None,
        context: 1,
    };
    let id = node.machine.receive(1, &receive, &mut node.memory).expect("posted");
    assert!(node.machine.cancel(id));
    assert!(!node.machine.cancel(id), "once");
    world.pump(1);
    assert_eq!(received(&world, 1, 1), (Status::Cancelled, 0));
    let second = world.receive(1, Some(0), 5, 8);
    world.send(0, 1, 5, bytes(8), SendMode::Standard);
    world.run_for(5 * MS);
    assert_eq!(received(&world, 1, second), (Status::Ok, 8));
    assert!(!world.nodes[1].machine.cancel(id), "its place is another's");
}

#[test]
fn one_buffer_takes_many_messages_and_is_released_once() {
    for is_expected in [true, false] {
        let mut world = World::new(2, Path::LAN, 3);
        let peer = world.peer(0, 1);
        world.peer(1, 0);
        let mut contexts = Vec::new();
        for step in 0..2 {
            if (step == 0) == is_expected {
                let node = &mut world.nodes[1];
                for context in [1000, 2000] {
                    let buffer = node.memory.add(vec![0; 100_000]);
                    let receive = Receive {
                        source: None,
                        channel: Channel::Plain,
                        match_bits: 0,
                        ignore_bits: u64::MAX,
                        buffer,
                        offset: 0,
                        length_bytes: 100_000,
                        multi: Some(50_000),
                        context,
                    };
                    contexts.push((context, buffer));
                    node.machine.receive(1, &receive, &mut node.memory).expect("posted");
                }
                world.pump(1);
            } else {
                for length in [100, 40_000, 20_000, 0, 30_000] {
                    let node = &mut world.nodes[0];
                    let buffer = node.memory.add(bytes(length));
                    let send = Send {
                        peer,
                        channel: Channel::Plain,
                        match_bits: 0,
                        data: None,
                        buffer,
                        offset: 0,
                        length_bytes: length as u64,
                        mode: SendMode::Standard,
                        context: length as u64,
                    };
                    node.machine.send(1, &send, &node.memory).expect("sent");
                }
                world.pump(0);
            }
            world.run_for(10 * MS);
        }
        let mut seen = Vec::new();
        for (_, completion) in &world.nodes[1].completions {
            let Operation::Receive { message, offset, received_bytes, is_buffer_released } =
                completion.operation
            else {
                panic!("receives only");
            };
            let length = message.expect("a message").length_bytes;
            assert_eq!((completion.status, received_bytes), (Status::Ok, length));
            let (_, buffer) =
                contexts.iter().find(|(context, _)| *context == completion.context).expect("ours");
            let at = offset as usize;
            let stored = &world.nodes[1].memory.bytes[&buffer.0][at..at + length as usize];
            assert_eq!(stored, bytes(length as usize));
            seen.push((completion.context, offset, is_buffer_released));
        }
        seen.sort_unstable();
        let released: Vec<_> = seen.iter().filter(|(.., released)| *released).collect();
        assert_eq!(released.len(), 1, "100 + 40000 + 20000 leave less than 50000: {seen:?}");
        let places: Vec<_> = seen.iter().map(|(context, offset, _)| (*context, *offset)).collect();
        let expected = [(1000, 0), (1000, 100), (1000, 40_100), (2000, 0), (2000, 0)];
        assert_eq!(places, expected);
    }
}
