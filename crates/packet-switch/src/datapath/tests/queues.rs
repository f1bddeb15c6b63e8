//! Ports with several pairs of rings: operations in any order, against what must come of them.

use std::collections::{HashMap, HashSet};

use ring::{Shared, Word};
use stats::Random;
use switch::flow;

use super::*;

/// Pairs of rings of each port; the last has several as well, so that frames go both ways between such ports.
const PAIRS: [u32; 4] = [3, 1, 1, 4];
const PAIRS_MOST: u32 = 4;
const SLOTS: u32 = 32;
const FLOWS: u64 = 24;

/// What was found wrong, if anything.
type Verdict = Result<(), String>;

/// A client's ends of its pairs.
struct Pairs(Vec<(Sender, Receiver)>);

/// A port with so many pairs, as the control thread makes one of lent memory.
fn port(number: usize, pairs: u32) -> (PortEnds, Pairs) {
    let geometry = Geometry {
        tx_rings: pairs,
        rx_rings: pairs,
        slots: SLOTS,
        buffer_bytes: 256,
        extra_buffers: 0,
    };
    let region = Region::private(geometry.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &geometry).unwrap();
    let end = |ring, seat| layout.end(&region, ring, seat, 1).unwrap();
    let buffers = || layout.buffers(&region).unwrap();
    let (mut inlets, mut outlets, mut kicks) = (Vec::new(), Vec::new(), Vec::new());
    let mut clients = Vec::new();
    for pair in 0..pairs {
        let (tx_near, tx_far) = Bells::pair().unwrap();
        let (rx_near, rx_far) = Bells::pair().unwrap();
        inlets.push(Inlet::new(end(pair, Seat::TxOwner), buffers(), tx_far.theirs));
        outlets.push(Outlet::new(end(pairs + pair, Seat::RxOwner), buffers(), rx_far.theirs));
        kicks.push(tx_far.ours);
        let tx = Sender::join(end(pair, Seat::User), buffers(), tx_near);
        clients.push((tx, Receiver::join(end(pairs + pair, Seat::User), buffers(), rx_near)));
    }
    let ends = PortEnds {
        id: PortId::new(number).unwrap(),
        serial: number as u64 + 1,
        user: 0,
        inlets: Inlets::of(inlets).unwrap(),
        outlets: Outlets::of(outlets).unwrap(),
        header_bytes: 0,
        marks: Marks::new(&buffers()),
        kicks,
        counters: Arc::default(),
        credit: Credit::default(),
        rest: None,
    };
    (ends, Pairs(clients))
}

/// A UDP packet of a flow, with a number at its end.
fn datagram(from: usize, to: usize, flow: u64, number: u32) -> Vec<u8> {
    let mut bytes = frame(from, to, 0).to_vec();
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14..34].fill(0);
    bytes[14] = 0x45;
    bytes[23] = 17;
    bytes[26..34].copy_from_slice(&[10, 0, 0, from as u8, 10, 0, 0, to as u8]);
    bytes[34..38].copy_from_slice(&[0x10, flow as u8, 0x20, 0]);
    bytes[56..60].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// What a client knows of the frames of one flow from one port to another.
#[derive(Default)]
struct Track {
    sent: u64,
    received: u64,
    /// Number of the frame that came last.
    last: Option<u32>,
}

struct Run {
    bench: Bench,
    clients: Vec<Pairs>,
    random: Random,
    tracks: HashMap<(usize, usize, u64), Track>,
    /// Receive rings whose client sleeps.
    asleep: HashSet<(usize, usize)>,
    number: u32,
}

impl Run {
    fn new(seed: u64, fault: Option<QueueFault>) -> Self {
        let mut bench = bench(0);
        let mut clients = Vec::new();
        for (number, pairs) in PAIRS.into_iter().enumerate() {
            let (mut ends, client) = port(number, pairs);
            ends.inlets.fault = fault;
            ends.outlets.fault = fault;
            bench.switch.link.send(Command::Add(Box::new(ends))).unwrap();
            clients.push(client);
        }
        bench.switch.obey();
        let random = Random::from_seed(seed);
        let (tracks, asleep) = (HashMap::new(), HashSet::new());
        let mut run = Self { bench, clients, random, tracks, asleep, number: 0 };
        // The switch is to know where everybody is.
        for (number, Pairs(pairs)) in run.clients.iter_mut().enumerate() {
            let tx = &mut pairs[0].0;
            tx.reserve(1).unwrap();
            assert!(tx.put(0, &frame(number, number, 0)));
            tx.publish(1).unwrap();
        }
        run.bench.round();
        run
    }

    fn port(&mut self) -> usize {
        self.random.below(PAIRS.len() as u64) as usize
    }

    /// Some frames of a flow, on the transmit ring that a client has for the flow.
    fn send(&mut self) {
        let (from, to) = (self.port(), self.port());
        let flow = self.random.below(FLOWS);
        for _ in 0..1 + self.random.below(12) {
            self.send_one(from, to, flow);
        }
    }

    fn send_one(&mut self, from: usize, to: usize, flow: u64) {
        let pair = flow as usize % self.clients[from].0.len();
        let tx = &mut self.clients[from].0[pair].0;
        if from == to || tx.reserve(1).unwrap() < 1 {
            return;
        }
        assert!(tx.put(0, &datagram(from, to, flow, self.number)));
        tx.publish(1).unwrap();
        self.tracks.entry((from, to, flow)).or_default().sent += 1;
        self.number += 1;
    }

    /// Takes what has come on one ring.
    fn receive(&mut self, at: usize, queue: usize) -> Verdict {
        let queues = self.clients[at].0.len();
        let rx = &mut self.clients[at].0[queue].1;
        self.asleep.remove(&(at, queue));
        rx.disarm().unwrap();
        let count = rx.peek(u32::MAX).map_err(|why| why.to_string())?;
        for offset in 0..count {
            let mut bytes = [0; 256];
            let length = rx.copy(offset, &mut bytes).ok_or("a slot without a buffer")?;
            let bytes = &bytes[..length];
            let number = bytes.get(56..60).ok_or("a short frame")?;
            let number = u32::from_le_bytes(number.try_into().unwrap());
            let (from, flow) = (usize::from(bytes[11]), u64::from(bytes[35]));
            if bytes != datagram(from, at, flow, number) {
                return Err(format!("frame {number} arrives damaged at {at}"));
            }
            if flow::number(bytes) as usize % queues != queue {
                return Err(format!("frame {number} of flow {flow} arrives on ring {queue}"));
            }
            let track = self.tracks.get_mut(&(from, at, flow)).ok_or("a frame of nobody")?;
            if track.last.is_some_and(|last| last >= number) {
                return Err(format!("frame {number} arrives twice or out of order"));
            }
            track.last = Some(number);
            track.received += 1;
        }
        rx.release(count).unwrap();
        Ok(())
    }

    /// A client sleeps until a ring has frames.
    fn sleep(&mut self, at: usize, queue: usize) {
        let rx = &mut self.clients[at].0[queue].1;
        rx.disarm().unwrap();
        if rx.end().observe().unwrap() == 0 && rx.arm().unwrap() {
            self.asleep.insert((at, queue));
        } else {
            rx.disarm().unwrap();
            self.asleep.remove(&(at, queue));
        }
    }

    /// A client takes what has come and sleeps until any of its rings has frames.
    fn sleep_on_all(&mut self, at: usize) -> Verdict {
        for queue in 0..self.clients[at].0.len() {
            self.receive(at, queue)?;
            self.sleep(at, queue);
        }
        Ok(())
    }

    /// Nobody sleeps with frames in its ring.
    fn round(&mut self) -> Verdict {
        self.bench.round();
        if let Ok(trouble) = self.bench.trouble.try_recv() {
            return Err(format!("cut off: {}", trouble.why));
        }
        for (at, queue) in self.asleep.clone() {
            let rx = &mut self.clients[at].0[queue].1;
            if rx.end().observe().map_err(|why| why.to_string())? == 0 {
                continue;
            }
            if !rx.bell().wait(Some(Duration::ZERO)).unwrap() {
                return Err(format!("the client of ring {queue} of {at} sleeps on"));
            }
            self.asleep.remove(&(at, queue));
        }
        Ok(())
    }

    /// No transmit ring from the number `first` on has frames.
    fn find_waiting(&mut self, first: usize) -> Verdict {
        for (at, Pairs(pairs)) in self.clients.iter_mut().enumerate() {
            for (queue, (tx, _)) in pairs.iter_mut().enumerate().skip(first) {
                if tx.end().observe().map_err(|why| why.to_string())? != SLOTS - 1 {
                    return Err(format!("transmit ring {queue} of {at} waits"));
                }
            }
        }
        Ok(())
    }

    /// As many rounds as a port has rings carry all that is there, even if a ring gets more all the time; and what did not
    /// arrive was dropped.
    fn settle(&mut self) -> Verdict {
        for _ in 0..PAIRS_MOST {
            (0..PAIRS.len()).for_each(|from| self.send_one(from, (from + 1) % PAIRS.len(), 0));
            self.round()?;
        }
        self.find_waiting(1)?;
        for _ in 0..PAIRS_MOST {
            self.round()?;
        }
        self.find_waiting(0)?;
        for at in 0..PAIRS.len() {
            for queue in 0..self.clients[at].0.len() {
                self.receive(at, queue)?;
            }
        }
        let missing: u64 = self.tracks.values().map(|track| track.sent - track.received).sum();
        let dropped =
            (0..PAIRS.len()).map(|port| self.bench.counters(port).outgoing.dropped_total());
        let dropped = dropped.sum::<u64>();
        if missing == dropped {
            return Ok(());
        }
        Err(format!("{missing} frames are missing, {dropped} were dropped"))
    }
}

/// So many operations from a seed, with a fault or without.
fn run(seed: u64, count: u32, fault: Option<QueueFault>) -> Verdict {
    let mut run = Run::new(seed, fault);
    for _ in 0..count {
        let at = run.port();
        let queue = run.random.below(PAIRS[at].into()) as usize;
        match run.random.below(16) {
            0..=5 => run.send(),
            6..=9 => run.round()?,
            10..=13 => run.receive(at, queue)?,
            _ => run.sleep_on_all(at)?,
        }
        if run.random.chance(0.01) {
            run.settle()?;
        }
    }
    run.settle()
}

#[test]
fn flows_keep_their_ring_and_order_and_no_ring_waits_or_sleeps_on() {
    for seed in 0..40 {
        run(seed, 2000, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn the_model_finds_every_planted_fault_of_queues() {
    let faults = [
        QueueFault::RoundRobin(0),
        QueueFault::LastForgotten,
        QueueFault::SameRingAgain,
        QueueFault::SharedWakes,
    ];
    for fault in faults {
        let found = (0..10).filter(|&seed| run(seed, 2000, Some(fault)).is_err()).count();
        assert_eq!(found, 10, "{fault:?}");
    }
}

/// A client that breaks the rules on any ring loses the port with all rings.
#[test]
fn nonsense_on_any_ring_cuts_its_client_off_alone() {
    for pair in 0..PAIRS[0] as usize {
        let mut run = Run::new(1, None);
        let memory = run.clients[0].0[pair].0.end().memory();
        memory.store(Word::Head, 9999);
        run.bench.round();
        let Trouble { serial, why } = run.bench.trouble.try_recv().expect("it is cut off");
        assert!(serial == 1 && matches!(why, CutOff::Cursor(_)), "{why}");
        // A buffer in two slots, of which one is another ring's.
        let mut run = Run::new(1, None);
        let other = (pair + 1) % PAIRS[0] as usize;
        let end = run.clients[0].0[other].0.end();
        let stolen = end.memory().slot(end.position()).buffer;
        let tx = &mut run.clients[0].0[pair].0;
        tx.reserve(2).unwrap();
        assert!(tx.put(0, &datagram(0, 1, 1, 1)) && tx.put(1, &datagram(0, 1, 1, 2)));
        for offset in 0..2 {
            let end = tx.end();
            let index = end.index(offset);
            let slot = end.memory().slot(index);
            end.memory().set_slot(index, Slot { buffer: stolen, ..slot });
        }
        tx.publish(2).unwrap();
        run.bench.round();
        let why = run.bench.trouble.try_recv().expect("it is cut off").why;
        assert_eq!(why, CutOff::SharedTwice { buffer: stolen });
        // The others go on.
        let tx = &mut run.clients[3].0[2].0;
        tx.reserve(1).unwrap();
        assert!(tx.put(0, &datagram(3, 1, 5, 9)));
        tx.publish(1).unwrap();
        run.bench.round();
        assert_eq!(run.clients[1].0[0].1.peek(u32::MAX).unwrap(), 1);
    }
}
