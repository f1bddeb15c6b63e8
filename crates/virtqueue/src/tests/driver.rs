//! A driver's seat: what virtio says that a driver does, in the plainest way.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::{DESCRIPTOR_BYTES, GuestMemory, Options, Queue, Rings, Segment};

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

/// The areas of a queue in this process.
#[derive(Debug)]
pub(super) struct Areas {
    pub(super) descriptors: Vec<AtomicU64>,
    pub(super) available: Vec<AtomicU16>,
    pub(super) used_head: Vec<AtomicU16>,
    pub(super) used: Vec<AtomicU32>,
    pub(super) used_tail: Vec<AtomicU16>,
}

impl Areas {
    pub(super) fn new(size: u16) -> Rc<Self> {
        let size = usize::from(size);
        let narrow = |count| (0..count).map(|_| AtomicU16::new(0)).collect();
        Rc::new(Self {
            descriptors: (0..2 * size).map(|_| AtomicU64::new(0)).collect(),
            available: narrow(size + 3),
            used_head: narrow(2),
            used: (0..2 * size).map(|_| AtomicU32::new(0)).collect(),
            used_tail: narrow(1),
        })
    }

    pub(super) fn describe(&self, number: u16, segment: Segment, flags: u16, next: u16) {
        let [address, rest] = words(segment, flags, next);
        self.descriptors[usize::from(number) * 2].store(address, SeqCst);
        self.descriptors[usize::from(number) * 2 + 1].store(rest, SeqCst);
    }
}

fn words(segment: Segment, flags: u16, next: u16) -> [u64; 2] {
    let rest = u64::from(segment.length_bytes) | u64::from(flags) << 32 | u64::from(next) << 48;
    [segment.address.to_le(), rest.to_le()]
}

impl Rings for Rc<Areas> {
    fn descriptors(&self) -> &[AtomicU64] {
        &self.descriptors
    }
    fn available(&self) -> &[AtomicU16] {
        &self.available
    }
    fn used_head(&self) -> &[AtomicU16] {
        &self.used_head
    }
    fn used(&self) -> &[AtomicU32] {
        &self.used
    }
    fn used_tail(&self) -> &[AtomicU16] {
        &self.used_tail
    }
}

/// Guest memory from address 4096 on.
#[derive(Debug, Clone)]
pub(super) struct Memory(pub(super) Rc<RefCell<Vec<u8>>>);

pub(super) const MEMORY_START: u64 = 4096;

impl Memory {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Rc::new(RefCell::new(vec![0; bytes])))
    }

    pub(super) fn describe(&self, table: u64, place: usize, segment: Segment, flags: (u16, u16)) {
        let at = (table - MEMORY_START) as usize + place * DESCRIPTOR_BYTES;
        for (number, word) in words(segment, flags.0, flags.1).into_iter().enumerate() {
            let at = at + number * 8;
            self.0.borrow_mut()[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
    }
}

impl GuestMemory for Memory {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let memory = self.0.borrow();
        let start = address.checked_sub(MEMORY_START).and_then(|start| usize::try_from(start).ok());
        let part = start.and_then(|start| memory.get(start..start.checked_add(out.len())?));
        part.map(|part| out.copy_from_slice(part)).is_some()
    }
}

/// What a chain was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Posted {
    pub(super) head: u16,
    pub(super) readable: Vec<Segment>,
    pub(super) writable: Vec<Segment>,
    descriptors: Vec<u16>,
}

#[derive(Debug)]
pub(super) struct Driver {
    pub(super) areas: Rc<Areas>,
    pub(super) memory: Memory,
    size: u16,
    options: Options,
    free: Vec<u16>,
    held: BTreeMap<u16, Posted>,
    /// Posted and not yet taken, as the device should take them.
    pub(super) order: VecDeque<Posted>,
    available: u16,
    used: u16,
}

impl Driver {
    pub(super) fn new(size: u16, options: Options) -> (Self, Queue<Rc<Areas>>) {
        let areas = Areas::new(size);
        let queue = Queue::new(Rc::clone(&areas), size.into(), options, 0).unwrap();
        // An indirect table of up to 8 descriptors for each head.
        let memory = Memory::new(usize::from(size) * 8 * DESCRIPTOR_BYTES);
        let (free, held, order) = ((0..size).rev().collect(), BTreeMap::new(), VecDeque::new());
        let driver =
            Self { areas, memory, size, options, free, held, order, available: 0, used: 0 };
        (driver, queue)
    }

    /// Makes a chain available; whether the device is to be notified, or `None` without room.
    pub(super) fn post(
        &mut self,
        reads: &[Segment],
        writes: &[Segment],
        flat: bool,
    ) -> Option<bool> {
        let all: Vec<(Segment, u16)> = reads
            .iter()
            .map(|one| (*one, 0))
            .chain(writes.iter().map(|one| (*one, WRITE)))
            .collect();
        let needed = if flat { all.len() } else { 1 };
        if all.is_empty() || needed > self.free.len() {
            return None;
        }
        let places = self.free.split_off(self.free.len() - needed);
        let head = places[0];
        if flat {
            for (number, (segment, flags)) in all.iter().enumerate() {
                let next = places.get(number + 1);
                let flags = flags | if next.is_some() { NEXT } else { 0 };
                self.areas.describe(places[number], *segment, flags, *next.unwrap_or(&0xdead));
            }
        } else {
            let address = MEMORY_START + u64::from(head) * 8 * DESCRIPTOR_BYTES as u64;
            for (number, (segment, flags)) in all.iter().enumerate() {
                let goes_on = number + 1 < all.len();
                let flags = flags | if goes_on { NEXT } else { 0 };
                self.memory.describe(address, number, *segment, (flags, number as u16 + 1));
            }
            let length_bytes = (all.len() * DESCRIPTOR_BYTES) as u32;
            self.areas.describe(head, Segment { address, length_bytes }, INDIRECT, 0xdead);
        }
        let (readable, writable) = (reads.to_vec(), writes.to_vec());
        let posted = Posted { head, readable, writable, descriptors: places };
        self.held.insert(head, posted.clone());
        self.order.push_back(posted);
        let place = 2 + usize::from(self.available % self.size);
        self.areas.available[place].store(head.to_le(), SeqCst);
        let old = self.available;
        self.available = old.wrapping_add(1);
        self.areas.available[1].store(self.available.to_le(), SeqCst);
        Some(if self.options.event_index {
            let event = u16::from_le(self.areas.used_tail[0].load(SeqCst));
            // Whether `event` is among the indexes passed just now.
            event == old
        } else {
            u16::from_le(self.areas.used_head[0].load(SeqCst)) & 1 == 0
        })
    }

    /// The next used entry: which chain, and how many bytes were written.
    pub(super) fn harvest(&mut self) -> Option<(Posted, u32)> {
        let index = u16::from_le(self.areas.used_head[1].load(SeqCst));
        if index == self.used {
            return None;
        }
        let pair = usize::from(self.used % self.size) * 2;
        let word = |at: usize| u32::from_le(self.areas.used[at].load(SeqCst));
        self.used = self.used.wrapping_add(1);
        let posted = self.held.remove(&u16::try_from(word(pair)).ok()?)?;
        self.free.extend(posted.descriptors.iter().rev());
        Some((posted, word(pair + 1)))
    }

    /// Asks to be signalled; false when there is something already.
    pub(super) fn arm(&mut self) -> bool {
        let tail = 2 + usize::from(self.size);
        self.areas.available[0].store(0, SeqCst);
        self.areas.available[tail].store(self.used.to_le(), SeqCst);
        u16::from_le(self.areas.used_head[1].load(SeqCst)) == self.used
    }

    pub(super) fn disarm(&mut self) {
        self.areas.available[0].store(1_u16.to_le(), SeqCst);
    }
}
