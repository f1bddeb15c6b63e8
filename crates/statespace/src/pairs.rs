//! Pairs of 32-bit numbers, each kept once and numbered in the order they came.
//!
//! A pair takes 8 bytes, and its entry in the index 4 bytes over the load (0.66 to 0.88), so 12.5 to
//! 14.1 bytes in all. Entries stand in buckets of one cache line: looking for a new pair costs one
//! cache miss, finding an old one two.

pub(crate) mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pairs a block of storage holds; blocks never move, so growth copies nothing.
const BLOCK_PAIRS: usize = 1 << 16;

/// Pairs that the first block has space for at first; it doubles until it is as large as the others.
const FIRST_PAIRS: usize = 4;

const BUCKET_ENTRIES: usize = 16;

/// Share of the entries that may be in use, of 100.
const LOAD_MAX_PERCENT: usize = 88;

/// The same where the index may not grow any more.
const LOAD_LAST_PERCENT: usize = 95;

const BUCKETS_MIN: usize = 64;

/// Pairs that are put into a new index together.
const INDEXED_TOGETHER: usize = 64;

/// A cache line of the index. An entry is a pair's number and, in the bits that numbers of this index
/// do not need, part of its hash. Entries are filled from the first on.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bucket([u32; BUCKET_ENTRIES]);

const FREE: u32 = u32::MAX;
const EMPTY: Bucket = Bucket([FREE; BUCKET_ENTRIES]);

impl Bucket {
    /// How many entries are in use.
    #[inline]
    fn used_count(&self) -> usize {
        self.0.iter().map(|&entry| u32::from(entry != FREE)).sum::<u32>() as usize
    }

    /// The entries, a bit each, whose upper bits are those of `tag`; free ones may be among them.
    #[inline]
    fn alike(&self, tag: u32, number_mask: u32) -> u32 {
        let mut alike = 0;
        for (place, &entry) in self.0.iter().enumerate() {
            alike |= if (entry ^ tag) & !number_mask == 0 { 1 << place } else { 0 };
        }
        alike
    }
}

/// A set of pairs with numbers.
#[derive(Debug)]
pub(crate) struct Pairs {
    blocks: Vec<Vec<u64>>,
    count: u32,
    index: Vec<Bucket>,
    /// The bits of an entry that are the number.
    number_mask: u32,
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
        Self::of(u64::from(left) << 32 | u64::from(right))
    }

    fn of(pair: u64) -> Self {
        Self { pair, hash: hash(pair) }
    }

    /// The half of the hash that does not say where it belongs.
    #[inline]
    fn tag(self) -> u32 {
        self.hash as u32
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

    /// Gives back what was taken, then takes so many, be there as many or not.
    pub(crate) fn exchange(&self, back_bytes: usize, bytes: usize) {
        let other = |left: usize| Some(left.saturating_add(back_bytes).saturating_sub(bytes));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, other).ok();
    }

    /// How many are left.
    pub(crate) fn left_bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// No further pair can be numbered, or there is no memory for it ([`crate::Store::limit_memory`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreFull;

impl Pairs {
    pub(crate) fn new() -> Self {
        let index = vec![EMPTY; BUCKETS_MIN];
        let (number_mask, room) = (number_mask(index.len()), Room::new(usize::MAX));
        Self { blocks: Vec::new(), count: 0, index, number_mask, room }
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
    pub(crate) fn insert(&mut self, wanted: Hashed) -> Result<(u32, bool), StoreFull> {
        let mut place = place(wanted.hash, self.index.len());
        let (mask, tag) = (self.number_mask, wanted.tag());
        loop {
            let bucket = &self.index[place];
            let used = bucket.used_count();
            let mut alike = bucket.alike(tag, mask) & ((1 << used) - 1);
            while alike != 0 {
                let number = bucket.0[alike.trailing_zeros() as usize] & mask;
                if self.pair(number) == wanted.pair {
                    return Ok((number, false));
                }
                alike &= alike - 1;
            }
            if used < BUCKET_ENTRIES {
                return self.add(wanted, place, used).map(|number| (number, true));
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
    ) -> Result<(), StoreFull> {
        self.touch(wanted);
        for (place, &pair) in wanted.iter().enumerate() {
            let (number, is_new) = self.insert(pair)?;
            each(place, number, is_new);
        }
        Ok(())
    }

    /// Reads the buckets of many.
    fn touch(&self, wanted: &[Hashed]) {
        let mut touched = 0;
        for pair in wanted {
            touched ^= self.index[place(pair.hash, self.index.len())].0[0];
        }
        std::hint::black_box(touched);
    }

    fn pair(&self, number: u32) -> u64 {
        self.blocks[number as usize / BLOCK_PAIRS][number as usize % BLOCK_PAIRS]
    }

    fn add(&mut self, new: Hashed, place: usize, entry: usize) -> Result<u32, StoreFull> {
        let number = self.count;
        if self.is_loaded(LOAD_LAST_PERCENT) {
            return Err(StoreFull);
        }
        let next = number.checked_add(1).ok_or(StoreFull)?;
        let is_full = |block: &Vec<u64>| block.len() == block.capacity();
        if (number as usize).is_multiple_of(BLOCK_PAIRS) || self.blocks.last().is_none_or(is_full) {
            self.make_space()?;
        }
        self.count = next;
        self.blocks[number as usize / BLOCK_PAIRS].push(new.pair);
        self.index[place].0[entry] = self.entry(number, new);
        if self.is_loaded(LOAD_MAX_PERCENT) {
            self.grow();
        }
        Ok(number)
    }

    /// Makes space for one more pair: a further block, or, in the first one, twice the space. Small state spaces take
    /// little.
    #[cold]
    fn make_space(&mut self) -> Result<(), StoreFull> {
        let last = self.blocks.last_mut().filter(|block| block.len() < BLOCK_PAIRS);
        let held = last.as_ref().map_or(0, |block| block.capacity());
        let more = match (&last, self.count) {
            (Some(_), _) => held.max(FIRST_PAIRS).min(BLOCK_PAIRS - held),
            (None, 0) => FIRST_PAIRS,
            (None, _) => BLOCK_PAIRS,
        };
        if !self.room.take(more * 8) {
            return Err(StoreFull);
        }
        match last {
            Some(block) => block.reserve_exact(more),
            None => self.blocks.push(Vec::with_capacity(more)),
        }
        Ok(())
    }

    fn is_loaded(&self, percent: usize) -> bool {
        self.count as usize * 100 > self.index.len() * BUCKET_ENTRIES * percent
    }

    #[inline]
    fn entry(&self, number: u32, pair: Hashed) -> u32 {
        number | pair.tag() & !self.number_mask
    }

    /// Grows the index, unless there is no room: then it fills up.
    #[cold]
    fn grow(&mut self) {
        let buckets = self.index.len() * 4 / 3;
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
        self.index_in(buckets.max(BUCKETS_MIN));
    }

    /// All pairs in the order of their numbers, the left part in the upper half.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flatten().copied()
    }

    fn index_in(&mut self, buckets: usize) {
        // The old index is gone before the new one is there.
        self.index = Vec::new();
        self.index = vec![EMPTY; buckets];
        self.number_mask = number_mask(buckets);
        let mut together = Vec::with_capacity(INDEXED_TOGETHER);
        for number in 0..self.count {
            together.push(Hashed::of(self.pair(number)));
            if together.len() == INDEXED_TOGETHER || number + 1 == self.count {
                self.touch(&together);
                let first = number + 1 - together.len() as u32;
                for (number, &pair) in (first..).zip(&together) {
                    self.put(number, pair);
                }
                together.clear();
            }
        }
    }

    /// Puts a number into the first free entry.
    #[inline]
    fn put(&mut self, number: u32, pair: Hashed) {
        let entry = self.entry(number, pair);
        let mut place = place(pair.hash, self.index.len());
        loop {
            let bucket = &mut self.index[place];
            let used = bucket.used_count();
            if used < BUCKET_ENTRIES {
                bucket.0[used] = entry;
                return;
            }
            place = following(place, self.index.len());
        }
    }

    /// Writes another pair in the place of one; [`Self::index_all`] follows.
    pub(crate) fn replace_unindexed(&mut self, number: u32, pair: Hashed) {
        self.blocks[number as usize / BLOCK_PAIRS][number as usize % BLOCK_PAIRS] = pair.pair;
    }
}

/// The bits that numbers of so many buckets need; a number never has all of them.
fn number_mask(buckets: usize) -> u32 {
    let entries = (buckets * BUCKET_ENTRIES) as u64;
    let bits = (u64::BITS - entries.leading_zeros()).min(u32::BITS);
    ((1u64 << bits) - 1) as u32
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
