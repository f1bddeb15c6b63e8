//! Pairs of 32-bit numbers, each kept once and numbered in the order they came.
//!
//! A pair takes 8 bytes, and its entry in the index 5.3 bytes over the load (0.56 to 0.84), so 14.3 to
//! 17.5 bytes in all. Entries stand in buckets of one cache line: looking for a new pair costs one
//! cache miss, finding an old one two.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pairs a block of storage holds; blocks never move, so growth copies nothing.
const BLOCK_PAIRS: usize = 1 << 16;

const BUCKET_ENTRIES: usize = 12;

/// Share of the entries that may be in use, of 100.
const LOAD_MAX_PERCENT: usize = 84;

/// The same where the index may not grow any more.
const LOAD_LAST_PERCENT: usize = 95;

/// A cache line of the index.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket {
    numbers: [u32; BUCKET_ENTRIES],
    /// Eight bits of the hash; 0 is a free entry, and those behind it are free too.
    tags: [u8; BUCKET_ENTRIES],
}

const EMPTY: Bucket = Bucket { numbers: [0; BUCKET_ENTRIES], tags: [0; BUCKET_ENTRIES] };

/// A set of pairs with numbers.
#[derive(Debug)]
pub(crate) struct Pairs {
    blocks: Vec<Vec<u64>>,
    count: u32,
    index: Vec<Bucket>,
    room: Room,
}

/// A pair with its hash, for [`Pairs::insert_all`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hashed {
    pair: u64,
    hash: u64,
}

impl Hashed {
    pub(crate) fn new(left: u32, right: u32) -> Self {
        let pair = u64::from(left) << 32 | u64::from(right);
        Self { pair, hash: hash(pair) }
    }
}

/// Bytes that may still be taken; several sets share one.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<AtomicUsize>);

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Takes so many, if there are as many.
    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// No further pair can be numbered, or there is no memory for it ([`crate::Store::limit_memory`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Pairs {
    pub(crate) fn new() -> Self {
        Self { blocks: Vec::new(), count: 0, index: vec![EMPTY; 64], room: Room::new(usize::MAX) }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Memory in use, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| block.capacity() * 8).sum();
        blocks + self.index.capacity() * size_of::<Bucket>()
    }

    /// Takes what it will need from `room`.
    pub(crate) fn limit_memory(&mut self, room: Room) {
        self.room = room;
    }

    /// The pair of a number.
    pub(crate) fn get(&self, number: u32) -> (u32, u32) {
        let pair = self.blocks[number as usize / BLOCK_PAIRS][number as usize % BLOCK_PAIRS];
        ((pair >> 32) as u32, pair as u32)
    }

    /// The number of a pair, and whether it is new.
    #[inline]
    pub(crate) fn insert(&mut self, wanted: Hashed) -> Result<(u32, bool), Full> {
        let mut place = place(wanted.hash, self.index.len());
        let tag = tag(wanted.hash);
        loop {
            let bucket = &self.index[place];
            for entry in 0..BUCKET_ENTRIES {
                if bucket.tags[entry] == tag && self.pair(bucket.numbers[entry]) == wanted.pair {
                    return Ok((bucket.numbers[entry], false));
                }
                if bucket.tags[entry] == 0 {
                    return self.add(wanted, place, entry).map(|number| (number, true));
                }
            }
            place = following(place, self.index.len());
        }
    }

    /// Inserts many. Their buckets are read first, all at once, so that the processor waits for
    /// memory once and not once a pair.
    pub(crate) fn insert_all(
        &mut self,
        wanted: &[Hashed],
        mut each: impl FnMut(usize, u32, bool),
    ) -> Result<(), Full> {
        let mut touched = 0u8;
        for pair in wanted {
            touched ^= self.index[place(pair.hash, self.index.len())].tags[0];
        }
        std::hint::black_box(touched);
        for (place, &pair) in wanted.iter().enumerate() {
            let (number, is_new) = self.insert(pair)?;
            each(place, number, is_new);
        }
        Ok(())
    }

    fn pair(&self, number: u32) -> u64 {
        self.blocks[number as usize / BLOCK_PAIRS][number as usize % BLOCK_PAIRS]
    }

    fn add(&mut self, new: Hashed, place: usize, entry: usize) -> Result<u32, Full> {
        let number = self.count;
        if self.is_loaded(LOAD_LAST_PERCENT) {
            return Err(Full);
        }
        let is_new_block = (number as usize).is_multiple_of(BLOCK_PAIRS);
        if is_new_block && !self.room.take(BLOCK_PAIRS * 8) {
            return Err(Full);
        }
        self.count = number.checked_add(1).ok_or(Full)?;
        if is_new_block {
            // The first block grows as it must: small state spaces take little.
            let room = if number == 0 { 0 } else { BLOCK_PAIRS };
            self.blocks.push(Vec::with_capacity(room));
        }
        self.blocks[number as usize / BLOCK_PAIRS].push(new.pair);
        let bucket = &mut self.index[place];
        bucket.numbers[entry] = number;
        bucket.tags[entry] = tag(new.hash);
        if self.is_loaded(LOAD_MAX_PERCENT) {
            self.grow();
        }
        Ok(number)
    }

    fn is_loaded(&self, percent: usize) -> bool {
        self.count as usize * 100 > self.index.len() * BUCKET_ENTRIES * percent
    }

    /// Grows the index, unless there is no room: then it fills up.
    #[cold]
    fn grow(&mut self) {
        let buckets = self.index.len() * 3 / 2;
        if !self.room.take((buckets - self.index.len()) * size_of::<Bucket>()) {
            return;
        }
        self.index_in(buckets);
    }

    /// Adds a pair known to be new; [`Self::index_all`] follows.
    pub(crate) fn push_unindexed(&mut self, pair: u64) {
        if (self.count as usize).is_multiple_of(BLOCK_PAIRS) {
            let room = if self.count == 0 { 0 } else { BLOCK_PAIRS };
            self.blocks.push(Vec::with_capacity(room));
        }
        self.blocks[self.count as usize / BLOCK_PAIRS].push(pair);
        self.count += 1;
    }

    /// Puts all pairs into an index of the right size.
    pub(crate) fn index_all(&mut self) {
        let buckets = self.count as usize * 100 / (BUCKET_ENTRIES * LOAD_MAX_PERCENT) + 1;
        self.index_in(buckets.max(64));
    }

    /// All pairs in the order of their numbers, the left part in the upper half.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flatten().copied()
    }

    fn index_in(&mut self, buckets: usize) {
        // The old index is gone before the new one is there.
        self.index = Vec::new();
        let mut index = vec![EMPTY; buckets];
        let pairs = self.blocks.iter().flatten();
        for (number, &pair) in (0u32..).zip(pairs) {
            let hash = hash(pair);
            let mut place = place(hash, buckets);
            let entry = loop {
                match index[place].tags.iter().position(|&tag| tag == 0) {
                    Some(entry) => break entry,
                    None => place = following(place, buckets),
                }
            };
            index[place].numbers[entry] = number;
            index[place].tags[entry] = tag(hash);
        }
        self.index = index;
    }
}

/// Mixes all bits into all bits (the finaliser of `MurmurHash3`).
fn hash(pair: u64) -> u64 {
    let mut mixed = pair ^ (pair >> 33);
    mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

/// The bucket where a search begins: the hash's upper half, scaled to the number of buckets.
fn place(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

/// The bucket where it goes on.
fn following(place: usize, buckets: usize) -> usize {
    if place + 1 == buckets { 0 } else { place + 1 }
}

/// The hash's lowest bits, never 0.
fn tag(hash: u64) -> u8 {
    (hash as u8).max(1)
}
