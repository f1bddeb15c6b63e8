//! A peer that has the keys and says what it likes: nothing it says panics, hangs, makes the
//! machine grow beyond its bounds, or reaches another peer's messages.

use super::*;
use crate::types::{BufferId, Channel, Memory, Operation, Path, Receive, Send, SendMode, Status};
use crate::wire::{
    EAGER_BYTES, FLAG_TAGGED, Fragment, HEADER_BYTES, Header, PacketHeader, PullRequest, extend,
};

/// Buffers of 100 000 bytes each, whatever their number.
#[derive(Debug, Default)]
struct Buffers(BTreeMap<u64, Vec<u8>>);

const BUFFER_BYTES: usize = 100_000;

impl Memory for Buffers {
    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        let buffer = self.0.entry(buffer.0).or_insert_with(|| vec![0; BUFFER_BYTES]);
        let at = usize::try_from(offset).expect("an offset within the buffer");
        buffer[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, _: BufferId, offset: u64, bytes_count: usize, into: &mut Vec<u8>) {
        assert!(offset as usize + bytes_count <= BUFFER_BYTES);
        into.resize(into.len() + bytes_count, 7);
    }

    fn place(&self, buffer: BufferId, offset: u64) -> Option<u64> {
        Some(buffer.0 << 32 | offset)
    }
}

fn config(number: u8) -> Config {
    Config {
        peers_max: 4,
        unexpected_bytes_max: 1_600_000,
        unexpected_max: 120,
        ..Config::new(Address([number; 32]), number.into(), [1; 16], [number; 16])
    }
}

/// All packets of one machine, with their payloads.
fn packets(now_ns: u64, machine: &mut Machine, memory: &Buffers) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(mut transmit) = machine.poll_transmit(now_ns) {
        let mut payload = Vec::new();
        match transmit.payload {
            Payload::None => {}
            Payload::Bytes(bytes) => payload.extend_from_slice(bytes),
            Payload::User { buffer, offset, length_bytes } => {
                memory.read(buffer, offset, length_bytes, &mut payload);
            }
        }
        let mut packet = transmit.header(&payload).to_vec();
        packet.extend_from_slice(&payload);
        all.push(packet);
        assert!(all.len() < 100_000, "without end");
    }
    all
}

fn send(machine: &mut Machine, memory: &Buffers, length_bytes: u64, mode: SendMode) {
    let send = Send {
        peer: PeerId(0),
        channel: Channel::Tagged,
        match_bits: 1,
        data: None,
        buffer: BufferId(1),
        offset: 0,
        length_bytes,
        mode,
        context: length_bytes,
    };
    machine.send(1_000, &send, memory).expect("room");
}

fn post(machine: &mut Machine, memory: &mut Buffers, bits: u64, room: u64, multi: Option<u64>) {
    let receive = Receive {
        source: None,
        channel: Channel::Tagged,
        match_bits: bits,
        ignore_bits: 0,
        buffer: BufferId(100 + bits),
        offset: 0,
        length_bytes: room,
        multi,
        context: bits,
    };
    machine.receive(1_000, &receive, memory).expect("room");
}

/// Both ends read each other's memory.
const DIRECT: Path = Path { packet_bytes_max: 1_472, is_direct: true };

/// A machine with an open session and much under way in both directions.
fn busy(is_direct: bool) -> (Machine, Buffers) {
    let mut machine = Machine::new(config(1)).expect("sound");
    let mut liar = Machine::new(config(2)).expect("sound");
    let mut memory = Buffers::default();
    machine.insert_peer(Address([2; 32])).expect("room");
    liar.insert_peer(Address([1; 32])).expect("room");
    if is_direct {
        machine.set_path(PeerId(0), DIRECT);
        liar.set_path(PeerId(0), DIRECT);
    }
    for (length_bytes, mode) in
        [(10, SendMode::Synchronous), (5_000, SendMode::Standard), (90_000, SendMode::Standard)]
    {
        send(&mut machine, &memory, length_bytes, mode);
        send(&mut liar, &memory, length_bytes, mode);
    }
    post(&mut machine, &mut memory, 1, 50_000, None);
    post(&mut machine, &mut memory, 2, 100_000, Some(1_000));
    for round in 0..6 {
        let now_ns = 1_000 + round * 10_000;
        for packet in packets(now_ns, &mut machine, &memory) {
            liar.handle_packet(now_ns, &packet, &mut Buffers::default());
        }
        for packet in packets(now_ns, &mut liar, &memory) {
            machine.handle_packet(now_ns, &packet, &mut memory);
        }
    }
    post(&mut machine, &mut memory, 1, 100_000, None);
    post(&mut machine, &mut memory, 1, 100_000, None);
    (machine, memory)
}

/// Numbers that are likely to mean something, else any.
fn number(machine: &Machine, choice: u8, any: u64) -> u64 {
    let send = machine.sends.indices().nth(usize::from(choice) % 4);
    let pull = machine.pulls.indices().next();
    match choice % 8 {
        0 | 1 => send.map_or(any, |index| machine.sends.handle(index)),
        2 | 3 => pull.map_or(any, |index| machine.pulls.handle(index)),
        4 => any % 5,
        5 => any % 100_000,
        6 => any % 3 * 1_412,
        _ => any,
    }
}

#[derive(Debug, Clone, bolero::TypeGenerator)]
struct Lie {
    kind: u8,
    seq_step: i8,
    ack_step: i8,
    credit: u32,
    flags: u8,
    channel: u8,
    fragment_bytes: u16,
    numbers: [(u8, u64); 5],
    payload_bytes: u16,
}

/// The packet that says so, with a good tag.
fn tell(machine: &Machine, lie: &Lie) -> Vec<u8> {
    let peer = &machine.peers[0];
    let kind = 5 + lie.kind % 9;
    let seq = peer.inn.next_seq.saturating_add_signed((lie.seq_step / 8).into());
    let ack = peer.out.oldest_seq.saturating_add_signed((lie.ack_step / 4).into());
    let template = [MAGIC_AND_KIND, [kind; 2]].concat();
    let mut bytes = vec![template[0], kind];
    bytes.resize(HEADER_BYTES, 0);
    let mut header = Header::parse(&bytes).expect("a kind");
    header.endpoint = machine.config.endpoint;
    header.session = 0;
    (header.seq, header.ack) = (seq as u32, ack as u32);
    header.stamp = u32::from(lie.flags) + 1;
    header.echo = lie.credit;
    header.credit = peer.out.credit_bytes.wrapping_add(lie.credit >> (lie.flags % 32));
    header.flags = lie.flags | FLAG_TAGGED;
    header.channel = lie.channel % 3;
    header.bytes = if lie.flags & 64 == 0 { 1_412 } else { lie.fragment_bytes };
    let mut packet = PacketHeader::new();
    header.put(&mut packet);
    let [a, b, c, d, e] = lie.numbers.map(|(choice, any)| number(machine, choice, any));
    match header.kind {
        Kind::Pull => {
            let request = lie.credit % 100;
            let pull = PullRequest { pull: a, send: b, offset: c, mask: d, end: e, request };
            pull.put(&mut packet);
        }
        Kind::Data => {
            Fragment { pull: a, offset: b, request: lie.credit % 4 }.put(&mut packet);
        }
        _ => packet.put_u64s(&[a, b, c, d, e]),
    }
    let mut bytes = packet.bytes().to_vec();
    let payload_bytes = if lie.payload_bytes & 1 == 0 { 1_412 } else { lie.payload_bytes % 3_000 };
    bytes.truncate(header.length().max(HEADER_BYTES));
    bytes.resize(bytes.len() + usize::from(payload_bytes), 5);
    if header.kind == Kind::Ack {
        bytes.truncate(EAGER_BYTES);
    }
    let split =
        if header.kind == Kind::Ack { bytes.len() } else { header.length().min(bytes.len()) };
    let (head, payload) = bytes.split_at(split);
    let hidden = arrive::hidden(
        extend(peer.inn.next_seq, header.seq),
        extend(peer.out.oldest_seq, header.ack),
    );
    let key = peer.receive_key;
    let tag = crate::tag::tag(key, &machine.hash_key, hidden, head, payload, payload.len());
    bytes[8..16].copy_from_slice(&tag.to_le_bytes());
    bytes
}

const MAGIC_AND_KIND: [u8; 2] = [crate::wire::MAGIC, 0];

fn check_bounds(machine: &Machine) {
    let window = u64::from(machine.config.eager_window_bytes());
    assert!(machine.unexpected_bytes <= machine.config.unexpected_bytes_max);
    assert!(machine.matcher.unexpected.count() <= 2 * machine.config.unexpected_max);
    // Copies of sends, unexpected messages, early packets; classes round up.
    assert!(machine.pool.lent_bytes() <= 8 * (window + 200_000), "{}", machine.pool.lent_bytes());
    assert!(machine.jobs.count() <= 4 * 128 && machine.flights.count() <= 4 * 1_024);
    assert!(machine.early.count() <= 4 * 1_024 && machine.receiving.count() <= 4);
    let under_way: u64 = machine.peers.iter().map(|peer| peer.pulls.under_way_bytes).sum();
    assert_eq!(under_way, machine.pull_under_way_bytes);
    for peer in &machine.peers {
        let mut index = peer.out.flights.front();
        let (mut under_way_bytes, mut lost) = (0, 0);
        while index != crate::slab::NONE {
            let flight = &machine.flights[index];
            match flight.state {
                crate::peer::FlightState::UnderWay => {
                    under_way_bytes += u64::from(flight.packet_bytes)
                }
                crate::peer::FlightState::Lost => lost += 1,
                crate::peer::FlightState::Acked => {}
            }
            index = flight.link.next();
        }
        assert_eq!((under_way_bytes, lost), (peer.out.under_way_bytes, peer.out.lost_count));
    }
}

fn lie_to(lies: &[Lie], is_direct: bool) -> bool {
    let (mut machine, mut memory) = busy(is_direct);
    let mut now_ns = 100_000;
    let mut has_gone_through = false;
    for (step, lie) in lies.iter().enumerate() {
        let forged_pkts = machine.counters.forged_pkts;
        let packet = tell(&machine, lie);
        machine.handle_packet(now_ns, &packet, &mut memory);
        has_gone_through |= machine.counters.forged_pkts == forged_pkts;
        now_ns += 5_000;
        machine.handle_timeouts(now_ns);
        if step % 4 == 0 {
            let _sent = packets(now_ns, &mut machine, &memory);
        }
        while step % 3 == 0
            && let Some(copy) = machine.poll_copy()
        {
            assert!(is_direct && (1..=BUFFER_BYTES as u64).contains(&copy.length_bytes));
            machine.end_copy(now_ns, copy.id, step % 2 == 0);
        }
        check_bounds(&machine);
    }
    let mut ended = BTreeMap::new();
    machine.close(now_ns);
    while let Some(completion) = machine.poll_completion() {
        let is_over = match completion.operation {
            Operation::Send => true,
            Operation::Receive { is_buffer_released, .. } => is_buffer_released,
        };
        if completion.context >= 10 && is_over && completion.operation == Operation::Send {
            *ended.entry(completion.context).or_insert(0) += 1;
        }
        assert!(completion.status != Status::Cancelled);
    }
    // Each send ended once: by itself, or because the session did.
    assert_eq!(ended, BTreeMap::from([(10, 1), (5_000, 1), (90_000, 1)]));
    check_bounds(&machine);
    has_gone_through
}

#[test]
fn a_liar_with_the_keys_breaks_only_its_own_session() {
    bolero::check!().with_type::<Vec<Lie>>().for_each(|lies| {
        lie_to(lies, false);
        lie_to(lies, true);
    });
}

#[test]
fn the_lies_are_believed_to_be_genuine() {
    let lie = Lie {
        kind: 0,
        seq_step: 0,
        ack_step: 0,
        credit: 0,
        flags: 0,
        channel: 0,
        fragment_bytes: 0,
        numbers: [(7, 0); 5],
        payload_bytes: 0,
    };
    for kind in 0..9 {
        assert!(lie_to(&[Lie { kind, ..lie.clone() }], false), "kind {}", kind + 5);
    }
}

/// Two with an open session, whose numbers are about to pass `seq` in both directions.
fn pair_at(seq: u64) -> [Machine; 2] {
    let mut pair = [1, 2].map(|number| Machine::new(config(number)).expect("sound"));
    let memory = Buffers::default();
    pair[0].insert_peer(Address([2; 32])).expect("room");
    pair[1].insert_peer(Address([1; 32])).expect("room");
    send(&mut pair[0], &memory, 0, SendMode::Inject);
    for step in 0..20 {
        exchange(1_000 + step * 20_000, &mut pair);
    }
    for machine in &mut pair {
        let peer = &mut machine.peers[0];
        assert!(peer.out.flights.is_empty());
        (peer.out.next_seq, peer.out.oldest_seq, peer.inn.next_seq) = (seq, seq, seq);
        peer.out.recovery_seq = 0;
    }
    pair
}

/// Hands packets over once, both ways; returns those that went to the second.
fn exchange(now_ns: u64, pair: &mut [Machine; 2]) -> Vec<Vec<u8>> {
    let mut memory = Buffers::default();
    let mut to_second = Vec::new();
    for from in [0, 1] {
        pair[from].handle_timeouts(now_ns);
        let all = packets(now_ns, &mut pair[from], &memory);
        for packet in &all {
            pair[1 - from].handle_packet(now_ns, packet, &mut memory);
        }
        if from == 0 {
            to_second.extend(all);
        }
    }
    to_second
}

#[test]
fn numbers_come_round_and_packets_of_an_earlier_round_are_dead() {
    let round = 1 << 32;
    let mut pair = pair_at(round - 10);
    let mut memory = Buffers::default();
    let mut recorded = Vec::new();
    for count in 1..=100 {
        send(&mut pair[0], &memory, 2_000, SendMode::Inject);
        for step in 0..4 {
            let now_ns = 1_000_000 + count * 100_000 + step * 20_000;
            recorded.extend(exchange(now_ns, &mut pair));
        }
    }
    assert_eq!(pair[1].unexpected_count(), 101, "all arrived");
    assert!(pair[0].is_drained());
    assert!(pair[1].peers[0].inn.next_seq > round);
    // A round later the same 32 bits are due again.
    for machine in &mut pair {
        let peer = &mut machine.peers[0];
        for seq in [&mut peer.out.next_seq, &mut peer.out.oldest_seq, &mut peer.inn.next_seq] {
            *seq += round - 200;
        }
    }
    let before = pair[1].counters;
    for packet in &recorded {
        pair[1].handle_packet(20_000_000, packet, &mut memory);
    }
    let forged_pkts = pair[1].counters.forged_pkts - before.forged_pkts;
    assert_eq!(forged_pkts, recorded.len() as u64);
    assert_eq!(pair[1].unexpected_count(), 101);
}

#[test]
fn a_copy_whose_session_has_ended_ends_nothing() {
    let mut pair = pair_at(100);
    let mut memory = Buffers::default();
    pair.iter_mut().for_each(|machine| machine.set_path(PeerId(0), DIRECT));
    post(&mut pair[1], &mut memory, 1, 0, None);
    post(&mut pair[1], &mut memory, 1, 50_000, None);
    send(&mut pair[0], &memory, 90_000, SendMode::Standard);
    exchange(2_000_000, &mut pair);
    let copy = pair[1].poll_copy().expect("a message to copy");
    assert_eq!((copy.place, copy.length_bytes), (1 << 32, 50_000));
    pair[1].reject(2_000_000, PeerId(0));
    pair[1].end_copy(2_000_000, copy.id, true);
    assert_eq!(pair[1].poll_copy(), None);
    let completions: Vec<_> = std::iter::from_fn(|| pair[1].poll_completion()).collect();
    let statuses: Vec<Status> = completions.iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::PeerFailed(Failure::Violation)]);
}
