//! What hostile peers may send.

use super::*;
use crate::endpoint::Binding;
use crate::name::Name;
use crate::queue::Queue;
use crate::remote::regions::Regions;

/// An endpoint that knows itself as peer 0.
fn endpoint() -> Endpoint {
    let binding =
        Binding { caps: abi::RMA | abi::ATOMIC, receive_queue: Some(0), ..Binding::default() };
    let mut endpoint = Endpoint::open(binding, 1).expect("a port is free");
    let name: Name = endpoint.name;
    endpoint.introduce(0, &name).expect("room");
    endpoint
}

fn request(action: Action, key: u64, length_bytes: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    Request { action, key, offset: 0, length_bytes, data: None }.encode(&mut bytes);
    bytes
}

/// Sends messages to itself; returns the codes of the answers to numbers 1 to 4, where there is one.
fn answers(
    endpoint: &mut Endpoint,
    regions: &Regions,
    messages: &[(u64, &[u8])],
) -> [Option<Option<u64>>; 4] {
    let mut queues = [Some(Queue::new(48))];
    let mut queues = Queues { queues: &mut queues, counters: &mut [], regions };
    let peer = PeerId(0);
    let now_ns = endpoint.now_ns();
    for number in 1..=4_u64 {
        let receive = Receive {
            source: Some(peer),
            channel: Channel::Remote,
            match_bits: Kind::Answer.bits(number),
            ignore_bits: 0,
            buffer: BufferId(0),
            offset: 0,
            length_bytes: 0,
            multi: None,
            context: number,
        };
        endpoint.machine.receive(now_ns, &receive, &mut endpoint.buffers).expect("room");
    }
    for (bits, bytes) in messages {
        endpoint.send_bytes(now_ns, peer, *bits, None, bytes).expect("room");
    }
    let mut found = [None; 4];
    for _ in 0..100 {
        let now_ns = endpoint.now_ns();
        endpoint.transmit(now_ns);
        while let Some(completion) = endpoint.machine.poll_completion() {
            match completion.context {
                number @ 1..=4 => {
                    let messaging::Operation::Receive { message, .. } = completion.operation else {
                        panic!("a receive")
                    };
                    found[number as usize - 1] = Some(message.and_then(|one| one.data));
                }
                _ => endpoint.complete_work(&completion, &mut queues),
            }
        }
        endpoint.serve(&mut queues);
    }
    found
}

#[test]
fn messages_that_no_correct_peer_sends_are_refused_or_thrown_away() {
    let mut endpoint = endpoint();
    let mut memory = vec![4_u8; 100];
    let mut regions = Regions::default();
    let access = abi::REMOTE_READ | abi::REMOTE_WRITE;
    // SAFETY: it lives to the end of the test.
    unsafe { regions.register(9, memory.as_mut_ptr(), 100, access) }.expect("free");
    let refused = |refusal: Refusal| Some(Some(refusal as u64));
    let apart = request(Action::WriteApart, 9, 50);
    let read = request(Action::Read, 9, 0);
    let (ask, data) = (|number| Kind::Request.bits(number), |number| Kind::Data.bits(number));
    // Data that nobody announced, answers that nobody awaits, a kind that there is not, requests that are none.
    let found = answers(
        &mut endpoint,
        &regions,
        &[
            (data(1), &[1; 50]),
            (Kind::Answer.bits(77), &[1; 50]),
            (5, &[1; 50]),
            (ask(2), &[1; 50]),
            (ask(3), &[]),
            (ask(4), &read),
        ],
    );
    let malformed = refused(Refusal::Malformed);
    assert_eq!(found, [None, malformed, malformed, Some(None)]);
    // Data of another operation, of another length, twice, and a write whose data do not come.
    for (messages, expected) in [
        (vec![(ask(1), &apart[..]), (data(2), &[1; 50][..])], [None; 4]),
        (vec![(ask(1), &apart), (data(1), &[1; 49])], [malformed, None, None, None]),
        (vec![(ask(1), &apart), (data(1), &[1; 51])], [malformed, None, None, None]),
        (vec![(ask(1), &apart), (ask(2), &read)], [malformed, Some(None), None, None]),
        (vec![(ask(1), &apart), (ask(2), &apart), (data(1), &[1; 50])], {
            [malformed, None, None, None]
        }),
    ] {
        let mut endpoint = self::endpoint();
        assert_eq!(answers(&mut endpoint, &regions, &messages), expected);
        assert_eq!(memory, vec![4; 100]);
        assert!(!endpoint.buffers.uses(9));
    }
    // A repeated message of a write that is over changes nothing more.
    let (first, second) = ([1; 50], [2; 50]);
    let messages: [(u64, &[u8]); 3] = [(ask(1), &apart), (data(1), &first), (data(1), &second)];
    let found = answers(&mut endpoint, &regions, &messages);
    assert_eq!(found, [Some(None), None, None, None]);
    assert_eq!(memory, [[1; 50], [4; 50]].concat());
    assert!(!endpoint.buffers.uses(9));
}

#[test]
fn closed_regions_are_neither_read_nor_written_any_more() {
    let mut endpoint = endpoint();
    let mut memory = vec![4_u8; 100];
    let mut regions = Regions::default();
    let access = abi::REMOTE_READ | abi::REMOTE_WRITE;
    // SAFETY: it lives to the end of the test.
    unsafe { regions.register(9, memory.as_mut_ptr(), 100, access) }.expect("free");
    let span = regions.find(9, 10, 50, access).expect("within");
    let lent = endpoint.buffers.of_region(9, span);
    let mut read = Vec::new();
    messaging::Memory::read(&endpoint.buffers, lent.buffer, 0, 50, &mut read);
    assert_eq!(read, vec![4; 50]);
    endpoint.buffers.revoke(9);
    assert!(!endpoint.buffers.uses(9) && !endpoint.buffers.is_of_region(lent.buffer));
    messaging::Memory::write(&mut endpoint.buffers, lent.buffer, 0, &[7; 50]);
    read.clear();
    messaging::Memory::read(&endpoint.buffers, lent.buffer, 5, 45, &mut read);
    assert_eq!(read, vec![0; 45]);
    assert_eq!(memory, vec![4; 100]);
    // The data of a write whose region is closed meanwhile go nowhere.
    let apart = request(Action::WriteApart, 9, 50);
    let (ask, data) = (Kind::Request.bits(1), Kind::Data.bits(1));
    let found = answers(&mut endpoint, &regions, &[(ask, &apart)]);
    assert_eq!(found, [None; 4]);
    regions.forget(9);
    let found = answers(&mut endpoint, &regions, &[(data, &[1; 50])]);
    assert_eq!(found[0], Some(Some(Refusal::UnknownKey as u64)));
    assert_eq!(memory, vec![4; 100]);
}
