//! Ports that share a region: operations in any order, against what must come of them, and members that break the rules.

use std::collections::VecDeque;

use stats::Random;

use super::super::outlet::TradeFault;
use super::*;

const SEATS: u8 = 3;
const SHARED: Geometry =
    Geometry { tx_rings: 3, rx_rings: 3, slots: 16, buffer_bytes: 256, extra_buffers: 0 };
/// Members, then two ports that have their regions to themselves.
const PORTS: usize = SEATS as usize + 2;

/// What was found wrong, if anything.
type Verdict = Result<(), String>;

/// A region that members share.
struct Shared {
    region: Arc<Region>,
    layout: Layout,
    holders: Holders,
}

impl Shared {
    fn new() -> Self {
        let region = Region::private(SHARED.region_bytes().unwrap()).unwrap();
        let layout = Layout::format(&region, &SHARED).unwrap();
        Self { region, layout, holders: Holders::dealt(SEATS, 2 * SHARED.slots) }
    }

    /// A new member at a seat, as the control thread makes one.
    fn member(&self, seat: u8, serial: u64) -> (PortEnds, Client) {
        let rings = [u32::from(seat), u32::from(SEATS + seat)];
        let own = self.holders.take_back(seat);
        assert_eq!(own.len(), 2 * SHARED.slots as usize, "a seat has as many buffers as slots");
        self.layout.format_rings(&self.region, rings, own).unwrap();
        let end = |ring, seat| self.layout.end(&self.region, ring, seat, 1).unwrap();
        let buffers = || self.layout.buffers(&self.region).unwrap();
        let (tx_near, tx_far) = Bells::pair().unwrap();
        let (rx_near, rx_far) = Bells::pair().unwrap();
        let port = PortEnds {
            id: PortId::new(seat.into()).unwrap(),
            serial,
            user: 0,
            inlets: Inlets::of([Inlet::new(
                end(rings[0], Seat::TxOwner),
                buffers(),
                tx_far.theirs,
            )])
            .unwrap(),
            outlets: Outlets::of([Outlet::new(
                end(rings[1], Seat::RxOwner),
                buffers(),
                rx_far.theirs,
            )])
            .unwrap(),
            header_bytes: 0,
            marks: Marks::of_seat(self.holders.clone(), seat),
            kicks: vec![tx_far.ours],
            counters: Arc::default(),
            credit: Credit::default(),
            rest: None,
        };
        let client = Client {
            tx: Sender::join(end(rings[0], Seat::User), buffers(), tx_near),
            rx: Receiver::join(end(rings[1], Seat::User), buffers(), rx_near),
            number: seat.into(),
        };
        (port, client)
    }
}

/// Members 0 to 2 and ports 3 and 4, who know each other.
fn group() -> (Shared, Bench) {
    let shared = Shared::new();
    let mut bench = bench(0);
    for seat in 0..SEATS {
        let (port, client) = shared.member(seat, u64::from(seat) + 1);
        bench.switch.link.send(Command::Add(Box::new(port))).unwrap();
        bench.clients.push(client);
    }
    for number in usize::from(SEATS)..PORTS {
        bench.clients.push(plug(&mut bench.switch, number, &GEOMETRY));
    }
    bench.switch.obey();
    bench.introduce();
    (shared, bench)
}

/// The buffers in all slots that a client holds.
fn in_hand(client: &mut Client) -> Vec<u32> {
    let mut all = Vec::new();
    for end in [client.tx.end(), client.rx.end()] {
        let count = end.observe().unwrap();
        all.extend((0..count).map(|offset| end.memory().slot(end.index(offset)).buffer));
    }
    all
}

/// Operations of all ports in any order.
struct Run {
    shared: Shared,
    bench: Bench,
    random: Random,
    /// Of each port's frames to each other port, those that are under way, by their numbers.
    under_way: Vec<Vec<VecDeque<u32>>>,
    /// Frames that did not arrive, as far as that is known; and those that the switch said it dropped, of ports that are
    /// no more.
    missing: u64,
    dropped_before: u64,
    number: u32,
    serial: u64,
}

impl Run {
    fn new(seed: u64, fault: Option<TradeFault>) -> Self {
        let (shared, mut bench) = group();
        bench.switch.ports.iter_mut().flatten().for_each(|port| port.outlets.first.fault = fault);
        let under_way = vec![vec![VecDeque::new(); PORTS]; PORTS];
        let random = Random::from_seed(seed);
        Self {
            shared,
            bench,
            random,
            under_way,
            missing: 0,
            dropped_before: 0,
            number: 0,
            serial: 100,
        }
    }

    fn port(&mut self) -> usize {
        self.random.below(PORTS as u64) as usize
    }

    /// What a frame's length and bytes are, by its number.
    fn frame_of(from: usize, to: usize, number: u32) -> Vec<u8> {
        let mut bytes = vec![number as u8; 60 + number as usize * 37 % 400];
        bytes[..60].copy_from_slice(&frame(from, to, number as u8));
        bytes[14..18].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn send(&mut self) -> Verdict {
        let (from, to) = (self.port(), self.port());
        let count = 1 + self.random.below(6);
        for _ in 0..count {
            let tx = &mut self.bench.clients[from].tx;
            let bytes = Self::frame_of(from, to, self.number);
            let slots = bytes.len().div_ceil(256) as u32;
            if from == to || tx.reserve(slots).map_err(|why| why.to_string())? < slots {
                return Ok(());
            }
            for (slot, piece) in (0..).zip(bytes.chunks(256)) {
                let buffer = tx.buffer(slot).ok_or("a slot without a buffer")?;
                let is_put = buffer.write(0, piece);
                if !is_put || !tx.put_part(slot, piece.len() as u16, slot + 1 < slots) {
                    return Err("a reserved slot takes no frame".to_owned());
                }
            }
            tx.publish(slots).unwrap();
            self.under_way[from][to].push_back(self.number);
            self.number += 1;
        }
        Ok(())
    }

    fn receive(&mut self, at: usize) -> Verdict {
        let rx = &mut self.bench.clients[at].rx;
        let count = rx.peek(u32::MAX).map_err(|why| why.to_string())?;
        let mut bytes = Vec::new();
        for offset in 0..count {
            let mut piece = [0; 256];
            let length = rx.copy(offset, &mut piece).ok_or("a slot without a buffer")?;
            bytes.extend_from_slice(&piece[..length]);
            let end = rx.end();
            if end.memory().slot(end.index(offset)).flags.more_fragments() {
                continue;
            }
            let number = bytes.get(14..18).ok_or("a short frame")?;
            let number = u32::from_le_bytes(number.try_into().unwrap());
            let from = usize::from(bytes[11]);
            if bytes != Self::frame_of(from, at, number) {
                return Err(format!("frame {number} arrives damaged at {at}"));
            }
            bytes.clear();
            // Those before it that are missing were dropped.
            loop {
                match self.under_way[from][at].pop_front() {
                    Some(next) if next == number => break,
                    Some(_) => self.missing += 1,
                    None => return Err(format!("frame {number} arrives twice or out of order")),
                }
            }
        }
        rx.release(count).unwrap();
        Ok(())
    }

    /// A client puts the buffer of one of its slots into another.
    fn swap(&mut self) {
        let at = self.port();
        let Client { tx, rx, .. } = &mut self.bench.clients[at];
        if tx.end().available() == 0 || rx.end().available() == 0 {
            return;
        }
        let (one, other) = (tx.end().index(0), rx.end().index(0));
        let (in_tx, in_rx) = (tx.end().memory().slot(one), rx.end().memory().slot(other));
        // What it has received goes on as what it sends, and an empty buffer takes its place.
        let mut bytes = [0; 256];
        assert!(rx.buffers().get(in_rx.buffer).unwrap().read(0, &mut bytes));
        assert!(tx.buffers().get(in_tx.buffer).unwrap().write(0, &bytes));
        tx.end().memory().set_slot(one, Slot { buffer: in_rx.buffer, ..in_tx });
        rx.end().memory().set_slot(other, Slot { buffer: in_tx.buffer, ..in_rx });
    }

    /// A member is killed, and another takes its seat.
    fn replace(&mut self, fault: Option<TradeFault>) -> Verdict {
        // Frames that are on their way arrive.
        self.round()?;
        let number = self.random.below(SEATS.into()) as usize;
        let (id, seat) = (PortId::new(number).unwrap(), number as u8);
        let client = &mut self.bench.clients[number];
        let (count, end) = (client.rx.peek(u32::MAX).unwrap(), client.rx.end());
        let is_last = |&offset: &u32| !end.memory().slot(end.index(offset)).flags.more_fragments();
        let lost_with_it = (0..count).filter(is_last).count() as u64;
        let lost = self.under_way.iter_mut().map(|from| from[number].drain(..).count() as u64);
        self.missing += lost.sum::<u64>() - lost_with_it;
        self.dropped_before += self.bench.counters(number).outgoing.dropped_total();
        let serial = self.bench.switch.ports[number].as_ref().unwrap().serial;
        self.bench.switch.link.send(Command::Remove { id, serial }).unwrap();
        self.bench.switch.obey();
        self.serial += 1;
        let (mut port, client) = self.shared.member(seat, self.serial);
        port.outlets.first.fault = fault;
        self.bench.clients[number] = client;
        self.bench.switch.link.send(Command::Add(Box::new(port))).unwrap();
        self.bench.switch.obey();
        // The switch is to know again where it is.
        let tx = &mut self.bench.clients[number].tx;
        tx.reserve(1).unwrap();
        assert!(tx.put(0, &frame(number, number, 0)));
        tx.publish(1).unwrap();
        self.round()
    }

    /// All that is under way arrives, and what does not the switch has dropped.
    fn settle(&mut self) -> Verdict {
        self.round()?;
        for at in 0..PORTS {
            self.receive(at)?;
        }
        let left = self.under_way.iter().flatten().map(|frames| frames.len() as u64);
        let missing = self.missing + left.sum::<u64>();
        let dropped = (0..PORTS).map(|port| self.bench.counters(port).outgoing.dropped_total());
        let dropped = dropped.sum::<u64>() + self.dropped_before;
        if missing == dropped {
            return Ok(());
        }
        Err(format!("{missing} frames are missing, {dropped} were dropped"))
    }

    fn round(&mut self) -> Verdict {
        self.bench.round();
        match self.bench.trouble.try_recv() {
            Ok(trouble) => Err(format!("cut off: {}", trouble.why)),
            Err(_) => self.check(),
        }
    }

    /// No buffer is in two hands, and each seat has as many as ever.
    fn check(&mut self) -> Verdict {
        let members = &mut self.bench.clients[..usize::from(SEATS)];
        let mut all: Vec<u32> = members.iter_mut().flat_map(in_hand).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        if all.len() != count || all.first().is_some_and(|&first| first < 2) {
            return Err("a buffer is in two hands, or in none".to_owned());
        }
        Ok(())
    }
}

/// So many operations from a seed, with a fault or without.
fn run(seed: u64, count: u32, fault: Option<TradeFault>) -> Verdict {
    let mut run = Run::new(seed, fault);
    for _ in 0..count {
        match run.random.below(16) {
            0..=5 => run.send()?,
            6..=9 => run.round()?,
            10..=13 => {
                let at = run.port();
                run.receive(at)?;
            }
            14 => run.swap(),
            _ if run.random.chance(0.1) => run.replace(fault)?,
            _ => {}
        }
    }
    run.settle()?;
    for seat in 0..SEATS {
        let own = run.shared.holders.take_back(seat).len();
        if own != 2 * SHARED.slots as usize {
            return Err(format!("seat {seat} has {own} buffers"));
        }
    }
    Ok(())
}

#[test]
fn frames_of_a_trust_group_arrive_whole_and_no_buffer_is_in_two_hands() {
    for seed in 0..40 {
        run(seed, 2000, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn the_model_finds_every_planted_fault_of_a_trade() {
    for fault in [TradeFault::SenderKeepsBuffer, TradeFault::BufferLost] {
        let found = (0..10).filter(|&seed| run(seed, 2000, Some(fault)).is_err()).count();
        assert_eq!(found, 10, "{fault:?}");
    }
}

/// A turn that ends in the middle, by a panic, gives nothing back.
#[test]
fn what_was_traded_stays_so_when_its_turn_does_not_end() {
    let holders = Holders::dealt(2, 4);
    let [mut one, mut two] = [0, 1].map(|seat| Marks::of_seat(holders.clone(), seat));
    one.take(2).unwrap();
    two.take(7).unwrap();
    two.trade(7, &one, 2);
    assert_eq!(one.take(2), Err(CutOff::NotIts { buffer: 2 }));
    assert_eq!(holders.take_back(0), [3, 4, 5, 7]);
    assert_eq!(holders.take_back(1), [2, 6, 8, 9]);
    two.take(2).unwrap();
    one.take(7).unwrap();
}

/// Number of the buffer in a client's next slot: of those it sends from, or of those it receives in.
fn next_buffer(end: &ring::End<ring::Mapped>) -> u32 {
    end.memory().slot(end.position()).buffer
}

#[test]
fn a_member_gets_the_very_buffer_that_another_filled_and_no_other_port_does() {
    let (_shared, mut bench) = group();
    let filled = next_buffer(bench.clients[0].tx.end());
    let place = bench.clients[0].tx.end().position();
    bench.send(0, 1, 1);
    assert_eq!(bench.round(), 1);
    assert_eq!(bench.clients[1].rx.peek(1).unwrap(), 1);
    let got = next_buffer(bench.clients[1].rx.end());
    assert_eq!(got, filled, "the receiver reads where the sender wrote");
    let back = bench.clients[0].tx.end().memory().slot(place);
    assert!(back.buffer != filled && back.flags.buffer_changed(), "{back:?}");
    assert_eq!(bench.receive(1), [frame(0, 1, 0)]);
    assert_eq!(bench.counters(1).handed_over, 1);
    // To a port of its own region, from there, and to everybody: copied.
    for (from, to) in [(0, 3), (3, 0), (0, 0xff)] {
        let filled = next_buffer(bench.clients[from].tx.end());
        let place = bench.clients[from].tx.end().position();
        bench.send(from, to, 1);
        assert_eq!(bench.round(), 1);
        assert_eq!(bench.clients[from].tx.end().memory().slot(place).buffer, filled);
    }
    let handed_over: Vec<u64> = (0..PORTS).map(|port| bench.counters(port).handed_over).collect();
    assert_eq!(handed_over, [0, 1, 0, 0, 0]);
    let copied = (0..PORTS).map(|port| bench.counters(port).outgoing.frames).sum::<u64>();
    let greetings = (PORTS * (PORTS - 1)) as u64;
    assert_eq!(copied, greetings + 1 + 2 + (PORTS - 1) as u64, "all have arrived");
}

#[test]
fn members_with_other_headers_get_copies() {
    let (_shared, mut bench) = group();
    let id = PortId::new(1).unwrap();
    bench.switch.link.send(Command::SetHeader { id, header_bytes: 10 }).unwrap();
    bench.switch.obey();
    bench.send(0, 1, 1);
    assert_eq!(bench.round(), 1);
    assert_eq!(bench.receive(1), [[&[0; 10][..], &frame(0, 1, 0)].concat()]);
    assert_eq!(bench.counters(1).handed_over, 0);
}

/// Whoever names what is not its own is cut off, whatever it does to its neighbours' memory; the others go on.
#[test]
fn a_member_that_hands_over_anothers_buffer_is_cut_off_alone() {
    type Choose = fn(&mut Bench) -> u32;
    let cases: [(Choose, &str); 4] = [
        (|_| 1, "a slot names buffer 1; buffers are 2 to 97"),
        (|_| 98, "a slot names buffer 98; buffers are 2 to 97"),
        // One that another holds, and one that the switch holds for another.
        (|bench| next_buffer(bench.clients[1].tx.end()), "is another port's"),
        (|bench| next_buffer(bench.clients[2].rx.end()), "is another port's"),
    ];
    for (choose, reason) in cases {
        let (shared, mut bench) = group();
        let buffer = choose(&mut bench);
        bench.send(0, 1, 1);
        let index = 1;
        let end = bench.clients[0].tx.end();
        let slot = end.memory().slot(index);
        end.memory().set_slot(index, Slot { buffer, ..slot });
        bench.round();
        let Trouble { serial, why } = bench.trouble.try_recv().expect(reason);
        assert!(serial == 1 && why.to_string().contains(reason), "{why}");
        // The others trade, and the next at that seat has all of its buffers.
        bench.send(2, 1, 3);
        bench.round();
        assert_eq!(bench.receive(1).len(), 3);
        assert_eq!(bench.counters(1).handed_over, 3);
        drop(shared.member(0, 9));
    }
}
