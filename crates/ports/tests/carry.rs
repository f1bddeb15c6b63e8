//! What comes out of any stack between any two ends is what went in, copied once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use ports::end::{Fill, Filled, PACKET_BYTES_MAX, Parts};
use ports::middle::{Capture, Counters, Inspected, Loss};
use ports::slots::Space;
use ports::{Delayed, EndError, FromRing, Moved, Sink, Source, ToRing, ToSlots, carry};
use ring::{Bells, Geometry, Layout, Receiver, Seat, Sender};
use shm::{Buffer, Region};
use switch::lightpath::{Lightpath, LightpathConfig};

/// A ring within this process.
fn ring(slots: u32, buffer_bytes: u32) -> (Sender, Receiver) {
    let geometry = Geometry { tx_rings: 1, rx_rings: 0, slots, buffer_bytes, extra_buffers: 0 };
    let region = Region::private(geometry.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &geometry).unwrap();
    let (near, far) = Bells::pair().unwrap();
    let end = |seat| layout.end(&region, 0, seat, 1).unwrap();
    let buffers = || layout.buffers(&region).unwrap();
    (
        Sender::join(end(Seat::User), buffers(), near),
        Receiver::join(end(Seat::TxOwner), buffers(), far),
    )
}

fn pipe(slots: u32, buffer_bytes: u32) -> (ToRing, FromRing) {
    let (sender, receiver) = ring(slots, buffer_bytes);
    (ToRing::new(sender), FromRing::new(receiver))
}

/// An end whose packets only a call can copy, as a TAP device's.
#[derive(Default)]
struct Kernel {
    waiting: VecDeque<Vec<u8>>,
    arrived: Vec<Vec<u8>>,
}

impl Kernel {
    fn with(packets: &[Vec<u8>]) -> Self {
        Self { waiting: packets.iter().cloned().collect(), arrived: Vec::new() }
    }
}

impl Source for Kernel {
    fn pass(&mut self, to: &mut impl Sink) -> Result<Moved, EndError> {
        to.fill(self)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

impl Fill for Kernel {
    fn fill<'a>(
        &mut self,
        space: impl Iterator<Item = Buffer<'a>> + Clone,
    ) -> Result<Filled, EndError> {
        let Some(packet) = self.waiting.pop_front() else { return Ok(Filled::Nothing) };
        let mut left = &packet[..];
        for buffer in space {
            let (now, later) = left.split_at(left.len().min(buffer.length_bytes()));
            assert!(buffer.write(0, now));
            left = later;
        }
        assert!(left.is_empty(), "no room for {} bytes", packet.len());
        Ok(Filled::Bytes(packet.len()))
    }
}

impl Sink for Kernel {
    fn put<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> Result<Moved, EndError> {
        let mut packet = Vec::new();
        for part in parts {
            let at = packet.len();
            packet.resize(at + part.length_bytes(), 0);
            assert!(part.read(0, &mut packet[at..]));
        }
        assert_eq!(packet.len(), bytes);
        self.arrived.push(packet);
        Ok(Moved::Given)
    }

    fn fill(&mut self, from: &mut impl Fill) -> Result<Moved, EndError> {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        match from.fill(std::iter::once(Buffer::from(&mut packet[..])))? {
            Filled::Bytes(bytes) => self.arrived.push(packet[..bytes].to_vec()),
            Filled::Dropped => return Ok(Moved::Dropped),
            Filled::Nothing => return Ok(Moved::Nothing),
        }
        Ok(Moved::Given)
    }

    fn flush(&mut self) -> Result<(), EndError> {
        Ok(())
    }
}

/// Out of the kernel, through a ring each, into the kernel: `around` puts a stack before each sink.
fn through<A: Sink, B: Sink>(
    packets: &[Vec<u8>],
    before_ring: impl FnOnce(ToRing) -> A,
    before_kernel: impl FnOnce(Kernel) -> B,
    arrived: impl FnOnce(B) -> Vec<Vec<u8>>,
) -> Vec<Vec<u8>> {
    let (to, mut from) = pipe(256, 2048);
    let (mut source, mut first, mut last) =
        (Kernel::with(packets), before_ring(to), before_kernel(Kernel::default()));
    for _ in 0..=packets.len() {
        carry(&mut source, &mut first, 3).unwrap();
        carry(&mut from, &mut last, 4).unwrap();
    }
    while carry(&mut from, &mut last, 4).unwrap().packets > 0 {}
    arrived(last)
}

fn path(config: LightpathConfig) -> Lightpath {
    Lightpath::new(LightpathConfig { seed: 1, ..config }).unwrap()
}

/// Packets of these lengths, each of bytes of its own.
fn packets(lengths: &[u16]) -> Vec<Vec<u8>> {
    let packet = |(number, &length): (usize, &u16)| {
        (0..usize::from(length).max(1)).map(|at| (at * 7 + number) as u8).collect()
    };
    lengths.iter().enumerate().map(packet).collect()
}

#[test]
fn a_packet_passes_unchanged_through_any_stack() {
    const SNAP: usize = 70;
    bolero::check!().with_type::<Vec<u16>>().for_each(|lengths| {
        let sent = packets(&lengths[..lengths.len().min(40)]);
        assert_eq!(through(&sent, |to| to, |to| to, |last| last.arrived), sent);
        let (mut seen, mut heads) = (Vec::new(), Vec::new());
        let mut record = |head: &[u8], bytes: usize| seen.push((head.to_vec(), bytes));
        let mut again = |head: &[u8], bytes: usize| heads.push((head.to_vec(), bytes));
        let mut counters = Counters::default();
        let arrived = through(
            &sent,
            |to| {
                let to = Inspected::new(Capture::new(SNAP, &mut record), to);
                Delayed::new(to, path(LightpathConfig::default()), 1 << 24)
            },
            |to| {
                let to = Inspected::new(Counters::default(), to);
                Inspected::new(Capture::new(SNAP, &mut again), to)
            },
            |last| {
                let last = last.into_sink();
                counters = last.inspect;
                last.into_sink().arrived
            },
        );
        assert_eq!(arrived, sent);
        let expected: Vec<(Vec<u8>, usize)> = sent
            .iter()
            .map(|packet| (packet[..packet.len().min(SNAP)].to_vec(), packet.len()))
            .collect();
        assert_eq!((&seen, &heads), (&expected, &expected));
        let bytes = sent.iter().map(|packet| packet.len() as u64).sum();
        assert_eq!(counters, Counters { packets: sent.len() as u64, bytes });
    });
}

/// A sender that counts how often a buffer of it is asked for: each copy into it does so once.
struct Counting {
    sender: Sender,
    copies: Cell<u32>,
}

impl Space for Counting {
    fn reserve(&mut self, wanted: u32) -> Result<u32, EndError> {
        Space::reserve(&mut self.sender, wanted)
    }

    fn buffer_bytes(&self) -> usize {
        self.sender.buffer_bytes()
    }

    fn slots_max(&self) -> u32 {
        self.sender.slots_max()
    }

    fn buffer(&self, slot: u32) -> Option<Buffer<'_>> {
        self.copies.set(self.copies.get() + 1);
        Space::buffer(&self.sender, slot)
    }

    fn set(&mut self, slot: u32, bytes: usize, goes_on: bool) {
        self.sender.set(slot, bytes, goes_on);
    }

    fn hand_over(&mut self, slots: u32) -> Result<(), EndError> {
        self.sender.hand_over(slots)
    }
}

#[test]
fn from_memory_to_memory_a_packet_is_copied_once_through_what_only_looks() {
    let ((mut to, mut from), (sender, receiver)) = (pipe(64, 2048), ring(64, 2048));
    let sent = packets(&[60, 1500, 2048, 1, 64, 65]);
    carry(&mut Kernel::with(&sent), &mut to, 64).unwrap();
    let end = ToSlots::new(Counting { sender, copies: Cell::new(0) });
    let mut stack = Inspected::new(
        Counters::default(),
        Inspected::new(Capture::new(64, |_: &[u8], _| ()), end),
    );
    let turn = carry(&mut from, &mut stack, 64).unwrap();
    assert_eq!((turn.packets, turn.refused, turn.last), (6, 0, Moved::Nothing));
    let copies = stack.into_sink().into_sink().slots().copies.get();
    assert_eq!(copies, 6, "one for each packet");
    let mut last = Kernel::default();
    carry(&mut FromRing::new(receiver), &mut last, 64).unwrap();
    assert_eq!(last.arrived, sent);
}

#[test]
fn a_packet_that_waits_for_room_is_seen_once() {
    let ((mut to, mut from), (small, mut out)) = (pipe(256, 2048), pipe(8, 64));
    let sent = packets(&[60; 30]);
    carry(&mut Kernel::with(&sent), &mut to, 64).unwrap();
    let (mut stack, mut last) = (Inspected::new(Counters::default(), small), Kernel::default());
    let mut waited = 0;
    while last.arrived.len() < sent.len() {
        let turn = carry(&mut from, &mut stack, 64).unwrap();
        waited += u32::from(turn.last == Moved::NoRoom);
        carry(&mut out, &mut last, 64).unwrap();
    }
    assert!(waited > 2, "the sink was never full");
    assert_eq!(last.arrived, sent);
    assert_eq!(stack.inspect.packets, 30);
}

#[test]
fn what_a_path_loses_is_dropped_and_the_rest_keeps_its_order() {
    let sent = packets(&[100; 1000]);
    let lossy = || path(LightpathConfig { loss: 0.3, ..LightpathConfig::default() });
    let inspected =
        through(&sent, |to| Inspected::new(Loss::new(lossy()), to), |to| to, |last| last.arrived);
    // Read where they lie, or held in between: the same seed loses the same.
    let shown = through(
        &sent,
        |to| to,
        |to| Inspected::new(Loss::new(lossy()), to),
        |last| last.into_sink().arrived,
    );
    assert_eq!(inspected, shown);
    assert!((600..800).contains(&shown.len()), "{} of 1000", shown.len());
    let mut rest = sent.iter();
    assert!(shown.iter().all(|packet| rest.any(|other| other == packet)));
}

#[test]
fn a_packet_without_its_end_stays_and_one_that_is_too_long_is_refused() {
    let (mut sender, receiver) = ring(64, 64);
    let (mut from, mut last) = (FromRing::new(receiver), Kernel::default());
    assert!(sender.reserve(40).unwrap() >= 40 && sender.put_part(0, 64, true));
    sender.publish(1).unwrap();
    let turn = carry(&mut from, &mut last, 64).unwrap();
    assert_eq!((turn.packets, turn.last), (0, Moved::Nothing));
    assert!(sender.put_part(0, 10, false));
    sender.publish(1).unwrap();
    assert_eq!(carry(&mut from, &mut last, 64).unwrap().packets, 1);
    assert_eq!(last.arrived[0].len(), 74);
    // Five slots of a ring that takes packets of four.
    assert!(
        (0..5).all(|slot| sender.put_part(slot, 64, slot < 4)) && sender.put_part(5, 60, false)
    );
    sender.publish(6).unwrap();
    let (mut small, mut out) = pipe(8, 64);
    let turn = carry(&mut from, &mut small, 64).unwrap();
    assert_eq!((turn.packets, turn.refused), (2, 1));
    assert_eq!(carry(&mut out, &mut last, 64).unwrap().packets, 1);
    assert_eq!(last.arrived[1].len(), 60);
}
