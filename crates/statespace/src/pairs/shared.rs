//! Pairs that threads look up and add at the same time, without locks.
//!
//! A thread takes numbers a few hundred at a time. It writes a new pair under its next number, then puts
//! the number into the first free entry by compare-and-exchange (*release*); who reads an entry
//! (*acquire*) finds the pair behind it. Nothing moves while threads are at it; the index grows between,
//! by all of them ([`SharedPairs::begin_to_grow`]).
//!
//! *No pair is there twice.* The entries of a bucket fill from the first on and are never freed. A thread
//! looks at them in this order and adds to the first that is free, so what it wants stands in none before,
//! and an exchange succeeds only while that one is free. Of two threads with the same pair one gets the
//! entry; the other's exchange fails, it looks at the entry again, finds the pair there and keeps its
//! number for the next.
//!
//! *Growing.* The index doubles. An entry keeps the bits of the hash that follow those that say where it
//! belongs: one more of them says which of two buckets is its own then, so pairs need not be read and
//! all is written in order. Only entries that stand behind their own bucket are looked up anew.

#[cfg(test)]
mod interleaved;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::{
    BLOCK_PAIRS, BUCKET_ENTRIES, FREE, Hashed, INDEXED_TOGETHER, Room, StoreFull, following, place,
};

/// Share of the entries that may be in use, of 100; and where the index may not grow any more.
const LOAD_MAX_PERCENT: u64 = 92;
const LOAD_LAST_PERCENT: u64 = 97;

/// Buckets an index has at most: an entry has 31 bits for a number.
const BUCKETS_MAX: usize = 1 << 27;

/// The bit of an entry that stands behind its own bucket; the number is in the lowest bits, and bits of
/// the hash between.
const DISPLACED: u32 = 1 << 31;

/// Numbers a thread puts into a new index at a time.
const PUT_TOGETHER: usize = 1 << 10;

/// Numbers a thread takes at a time; a block holds them a whole number of times.
const GRANT: u32 = 256;

/// Pairs of a cache line.
const LINE_PAIRS: usize = 8;

/// Buckets of a segment of the index.
const SEGMENT_BUCKETS: usize = 1 << 13;

/// Buckets of an index of few pairs.
const BUCKETS_MIN: usize = 1 << 10;

/// Entries that are read and exchanged together, the first in the lower half of a word.
const WORD_ENTRIES: usize = 2;
pub(crate) const WORDS: usize = BUCKET_ENTRIES / WORD_ENTRIES;
const HALF_BITS: u32 = u64::BITS / 2;

/// A word of which both entries are free.
pub(crate) const FREE_WORD: u64 = u64::MAX;

/// From here on the upper entry of a word is free.
const HALF_FREE_WORD: u64 = FREE_WORD << HALF_BITS;

/// A cache line of the index.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line([AtomicU64; WORDS]);

/// Lines that stand together in memory.
pub(crate) type Segment = Box<[Line]>;

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CacheAligned<T>(pub(crate) T);

/// What a pair may be the same as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    number: u32,
    pair: u64,
}

/// Numbers that belong to one thread and are not in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    rest: Range<u32>,
}

impl Numbers {
    /// How many there are.
    pub(crate) fn rest(&self) -> Range<u32> {
        self.rest.clone()
    }
}

/// What [`find_or_add`] works on; a test has one whose threads run in every order.
pub(crate) trait Cells {
    /// A bucket's entries.
    type Line;

    /// So many buckets, a power of two.
    fn buckets(&self) -> usize;

    /// A bucket.
    fn line(&self, bucket: usize) -> &Self::Line;

    /// Two of its entries; reads *acquire*.
    fn word(line: &Self::Line, place: usize) -> u64;

    /// Exchanges them, *release*, if they are still the old ones.
    fn exchange(line: &Self::Line, place: usize, old: u64, new: u64) -> bool;

    /// The pair of a number that stood in an entry.
    fn pair(&self, number: u32) -> u64;

    /// Writes the pair of a number that is in no entry.
    fn write(&self, number: u32, pair: u64);

    /// Further numbers.
    fn grant(&self) -> Result<Range<u32>, StoreFull>;
}

/// The number of a pair, and whether it is new.
#[inline]
pub(crate) fn find_or_add<C: Cells>(
    cells: &C,
    wanted: Hashed,
    numbers: &mut Numbers,
) -> Result<(u32, bool), StoreFull> {
    let buckets = cells.buckets();
    let mask = number_mask(buckets);
    let mut tag = tag(wanted.hash, buckets);
    let mut bucket = place(wanted.hash, buckets);
    loop {
        let line = cells.line(bucket);
        let mut place = 0;
        while place < WORDS {
            let word = C::word(line, place);
            if is_one_alike(word, tag, mask) {
                for entry in [word as u32, (word >> HALF_BITS) as u32] {
                    let is_alike = (entry ^ tag) & !mask == 0 && entry != FREE;
                    if is_alike && cells.pair(entry & mask) == wanted.pair {
                        return Ok((entry & mask, false));
                    }
                }
            }
            if word < HALF_FREE_WORD {
                place += 1;
                continue;
            }
            if numbers.rest.is_empty() {
                numbers.rest = cells.grant()?;
            }
            let number = numbers.rest.start;
            cells.write(number, wanted.pair);
            if C::exchange(line, place, word, filled(word, number | tag)) {
                numbers.rest.start += 1;
                return Ok((number, true));
            }
        }
        bucket = following(bucket, buckets);
        tag |= DISPLACED;
    }
}

/// The bits of an entry that are the number: never all of them.
#[inline]
fn number_mask(buckets: usize) -> u32 {
    (buckets * BUCKET_ENTRIES - 1) as u32
}

/// The bits of the hash that an entry keeps: those that follow the ones that say where it belongs.
#[inline]
fn tag(hash: u64, buckets: usize) -> u32 {
    ((hash << buckets.trailing_zeros()) >> (HALF_BITS + 1)) as u32 & !number_mask(buckets)
}

/// Whether one of two entries may have this tag; if not, none has.
#[inline]
fn is_one_alike(word: u64, tag: u32, number_mask: u32) -> bool {
    const ONES: u64 = 1 << HALF_BITS | 1;
    let twice = |half: u32| u64::from(half) * ONES;
    let different = (word ^ twice(tag)) & twice(!number_mask);
    // A half that is zero borrows from its upper bit.
    different.wrapping_sub(ONES) & !different & ONES << (HALF_BITS - 1) != 0
}

/// A word with its first free entry filled.
#[inline]
fn filled(word: u64, entry: u32) -> u64 {
    if word as u32 == FREE {
        word & HALF_FREE_WORD | u64::from(entry)
    } else {
        word & !HALF_FREE_WORD | u64::from(entry) << HALF_BITS
    }
}

/// Pairs that a thread met not long ago, with their numbers.
#[derive(Debug)]
pub(crate) struct Recent(Vec<Candidate>);

/// How many; they fit a core's first cache.
const RECENT_BITS: u32 = 10;

impl Default for Recent {
    fn default() -> Self {
        Self(vec![Candidate { number: FREE, pair: 0 }; 1 << RECENT_BITS])
    }
}

/// A set of pairs with numbers that threads share.
#[derive(Debug)]
pub(crate) struct SharedPairs {
    segments: Vec<Segment>,
    buckets: usize,
    /// While it grows: segments of the old index, those of the new one, and what to put there.
    growth: Mutex<Growth>,
    blocks: Vec<OnceLock<Box<[AtomicU64]>>>,
    /// From here on the index should grow; beyond the second figure nothing is added.
    grow_at: u64,
    end: u64,
    /// The index should grow, and it may.
    wants_more: AtomicBool,
    may_grow: bool,
    /// There is no memory for another pair, or no number.
    is_full: AtomicBool,
    granted: CacheAligned<AtomicU64>,
    room: Room,
}

impl SharedPairs {
    pub(crate) fn new(room: Room) -> Self {
        let mut pairs = Self {
            segments: Vec::new(),
            buckets: 0,
            growth: Mutex::default(),
            blocks: Vec::new(),
            grow_at: 0,
            end: 0,
            wants_more: AtomicBool::new(false),
            may_grow: true,
            is_full: AtomicBool::new(false),
            granted: CacheAligned::default(),
            room,
        };
        pairs.resize(BUCKETS_MIN);
        pairs.empty_index();
        pairs
    }

    /// Takes what it will need from `room`.
    pub(crate) fn take_from(&mut self, room: Room) {
        self.room = room;
    }

    fn resize(&mut self, buckets: usize) {
        let entries = (buckets * BUCKET_ENTRIES) as u64;
        self.buckets = buckets;
        self.grow_at = entries * LOAD_MAX_PERCENT / 100;
        self.end = entries * LOAD_LAST_PERCENT / 100;
        self.may_grow = buckets < BUCKETS_MAX;
        let blocks = self.end.div_ceil(BLOCK_PAIRS as u64) as usize;
        self.blocks.resize_with(blocks, OnceLock::new);
    }

    /// Numbers given to threads so far.
    pub(crate) fn granted(&self) -> u32 {
        self.granted.0.load(Ordering::Relaxed) as u32
    }

    /// Memory in use, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let blocks = self.blocks.iter().filter(|block| block.get().is_some()).count();
        blocks * BLOCK_PAIRS * 8 + self.buckets * size_of::<Line>()
    }

    /// Whether its index should grow now.
    #[inline]
    pub(crate) fn wants_more(&self) -> bool {
        self.wants_more.load(Ordering::Relaxed)
    }

    /// Whether it has refused a pair for good.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The pair of a number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> (u32, u32) {
        let pair = self.pair(number);
        ((pair >> 32) as u32, pair as u32)
    }

    /// The number of a pair, and whether it is new. Also [`StoreFull`] when the index must grow first.
    #[inline]
    pub(crate) fn insert(
        &self,
        wanted: Hashed,
        numbers: &mut Numbers,
    ) -> Result<(u32, bool), StoreFull> {
        find_or_add(self, wanted, numbers)
    }

    /// The number of a pair; those that were met not long ago are not looked up.
    #[inline]
    pub(crate) fn number(
        &self,
        wanted: Hashed,
        numbers: &mut Numbers,
        recent: &mut Recent,
    ) -> Result<u32, StoreFull> {
        let known = &mut recent.0[(wanted.hash >> (u64::BITS - RECENT_BITS)) as usize];
        if known.pair != wanted.pair || known.number == FREE {
            let (number, _) = self.insert(wanted, numbers)?;
            *known = Candidate { number, pair: wanted.pair };
        }
        Ok(known.number)
    }

    /// Inserts many; `each` hears their places, their numbers and whether they are new. After [`StoreFull`]
    /// those from the last place on were not inserted.
    ///
    /// All buckets are read first, then all pairs that may be the wanted ones: the processor waits for
    /// memory twice and not twice a pair.
    pub(crate) fn insert_all(
        &self,
        wanted: &[Hashed],
        numbers: &mut Numbers,
        likely: &mut Vec<Candidate>,
        mut each: impl FnMut(usize, u32, bool),
    ) -> Result<(), (usize, StoreFull)> {
        self.touch(wanted);
        likely.clear();
        likely.extend(wanted.iter().map(|&pair| Candidate { number: self.likely(pair), pair: 0 }));
        for likely in likely.iter_mut().filter(|likely| likely.number != FREE) {
            likely.pair = self.pair(likely.number);
        }
        for (place, (&wanted, likely)) in wanted.iter().zip(likely.iter()).enumerate() {
            if likely.number != FREE && likely.pair == wanted.pair {
                each(place, likely.number, false);
            } else {
                let (number, is_new) =
                    self.insert(wanted, numbers).map_err(|full| (place, full))?;
                each(place, number, is_new);
            }
        }
        Ok(())
    }

    /// The number that a pair has if it has one and no other is much like it, else [`FREE`].
    #[inline]
    fn likely(&self, wanted: Hashed) -> u32 {
        let mask = number_mask(self.buckets);
        let tag = tag(wanted.hash, self.buckets);
        let line = self.line(place(wanted.hash, self.buckets));
        for place in 0..WORDS {
            let word = Self::word(line, place);
            if is_one_alike(word, tag, mask) {
                for entry in [word as u32, (word >> HALF_BITS) as u32] {
                    if (entry ^ tag) & !mask == 0 && entry != FREE {
                        return entry & mask;
                    }
                }
            }
            if word >= HALF_FREE_WORD {
                break;
            }
        }
        FREE
    }

    /// Reads the buckets of many.
    fn touch(&self, wanted: &[Hashed]) {
        let mut touched = 0;
        for pair in wanted {
            touched ^= self.line(place(pair.hash, self.buckets)).0[0].load(Ordering::Relaxed);
        }
        std::hint::black_box(touched);
    }

    /// Begins to grow: there is no index then until all have done [`Self::grow_segments`], one
    /// [`Self::end_growth`], and all put what is left ([`Self::put_displaced`]). False where there is no
    /// room: then it fills up.
    pub(crate) fn begin_to_grow(&mut self) -> bool {
        *self.wants_more.get_mut() = false;
        if !self.may_grow || !self.room.take(self.buckets * size_of::<Line>()) {
            self.may_grow = false;
            if self.granted.0.load(Ordering::Relaxed) + u64::from(GRANT) > self.end {
                *self.is_full.get_mut() = true;
            }
            return false;
        }
        let old = std::mem::take(&mut self.segments).into_iter().enumerate().collect();
        self.growth = Mutex::new(Growth { old, ..Growth::default() });
        self.resize(self.buckets * 2);
        true
    }

    /// Makes segments of the new index out of the old one's, until none is left.
    pub(crate) fn grow_segments(&self) {
        loop {
            let next = self.growth().old.pop();
            let Some((place, old)) = next else { return };
            let mut displaced = Vec::new();
            let (mut lines, mut segments) = (Vec::new(), Vec::new());
            for line in old {
                if lines.is_empty() {
                    lines.reserve_exact(SEGMENT_BUCKETS.min(self.buckets));
                }
                lines.extend(line.split(self.buckets, &mut displaced));
                if lines.len() == SEGMENT_BUCKETS {
                    segments.push(std::mem::take(&mut lines).into_boxed_slice());
                }
            }
            if !lines.is_empty() {
                segments.push(lines.into_boxed_slice());
            }
            let mut growth = self.growth();
            growth.new.push((place, segments));
            growth.displaced.append(&mut displaced);
        }
    }

    /// The new index is there, but for some of its entries.
    pub(crate) fn end_growth(&mut self) {
        let growth = self.growth.get_mut().unwrap_or_else(PoisonError::into_inner);
        growth.new.sort_by_key(|(place, _)| *place);
        self.segments = growth.new.drain(..).flat_map(|(_, segments)| segments).collect();
    }

    /// Puts the entries that were not in their own bucket into the new index, until none is left.
    pub(crate) fn put_displaced(&self) {
        loop {
            let mut growth = self.growth();
            let rest = growth.displaced.len().saturating_sub(PUT_TOGETHER);
            let numbers = growth.displaced.split_off(rest);
            drop(growth);
            if numbers.is_empty() {
                return;
            }
            self.put(numbers);
        }
    }

    /// Puts the pairs of some numbers into the index, where they are not yet.
    fn put(&self, numbers: impl IntoIterator<Item = u32>) {
        let mut numbers = numbers.into_iter();
        let mut together = Vec::with_capacity(INDEXED_TOGETHER);
        let mut pairs: Vec<Hashed> = Vec::with_capacity(INDEXED_TOGETHER);
        loop {
            together.clear();
            together.extend(numbers.by_ref().take(INDEXED_TOGETHER));
            if together.is_empty() {
                return;
            }
            pairs.clear();
            pairs.extend(together.iter().map(|&number| Hashed::of(self.pair(number))));
            self.touch(&pairs);
            for (&number, &pair) in together.iter().zip(&pairs) {
                self.put_one(number, pair);
            }
        }
    }

    fn put_one(&self, number: u32, pair: Hashed) {
        let mut entry = number | tag(pair.hash, self.buckets);
        let mut bucket = place(pair.hash, self.buckets);
        loop {
            let line = self.line(bucket);
            let mut place = 0;
            while place < WORDS {
                let word = Self::word(line, place);
                if word < HALF_FREE_WORD {
                    place += 1;
                } else if Self::exchange(line, place, word, filled(word, entry)) {
                    return;
                }
            }
            bucket = following(bucket, self.buckets);
            entry |= DISPLACED;
        }
    }

    /// Grows its index with nobody else about.
    pub(crate) fn grow_alone(&mut self) -> bool {
        let has_grown = self.begin_to_grow();
        if has_grown {
            self.grow_segments();
            self.end_growth();
            self.put_displaced();
        }
        has_grown
    }

    /// Indexes all numbers given out but these ([`Numbers::rest`]) anew, with nobody else about.
    pub(crate) fn index_alone(&mut self, unused: &[Range<u32>]) {
        self.empty_index();
        let all = 0..self.granted.0.load(Ordering::Relaxed) as u32;
        let mut gaps: Vec<&Range<u32>> = unused.iter().filter(|gap| !gap.is_empty()).collect();
        gaps.sort_by_key(|gap| gap.start);
        let mut from = 0;
        for gap in gaps {
            self.put(from..gap.start);
            from = gap.end;
        }
        self.put(from..all.end);
    }

    fn empty_index(&mut self) {
        self.segments = Vec::new();
        let empty = || Line([const { AtomicU64::new(FREE_WORD) }; WORDS]);
        let segment = |first: usize| -> Segment {
            let buckets = (self.buckets - first).min(SEGMENT_BUCKETS);
            std::iter::repeat_with(empty).take(buckets).collect()
        };
        self.segments = (0..self.buckets).step_by(SEGMENT_BUCKETS).map(segment).collect();
    }

    fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes another pair in the place of one; all must be indexed anew then.
    pub(crate) fn replace(&self, number: u32, pair: Hashed) {
        self.write(number, pair.pair);
    }

    #[inline]
    fn cell(&self, number: u32) -> &AtomicU64 {
        let block = self.blocks[number as usize / BLOCK_PAIRS].get();
        &block.expect("a number that was given out")[number as usize % BLOCK_PAIRS]
    }
}

/// An index that is made out of another.
#[derive(Debug, Default)]
struct Growth {
    /// With their places.
    old: Vec<(usize, Segment)>,
    /// What became of each.
    new: Vec<(usize, Vec<Segment>)>,
    /// Numbers that were not in their own bucket.
    displaced: Vec<u32>,
}

impl Line {
    /// The two buckets that the entries of this one belong to where there are twice as many, `buckets`.
    fn split(self, buckets: usize, displaced: &mut Vec<u32>) -> [Self; 2] {
        let mask = number_mask(buckets);
        let mut lines = [[FREE_WORD; WORDS]; 2];
        let mut used = [0; 2];
        for word in self.0.map(AtomicU64::into_inner) {
            for entry in [word as u32, (word >> HALF_BITS) as u32] {
                // A number has one bit less in the old index, and is never all ones.
                let number = entry & mask >> 1;
                if entry == FREE {
                    break;
                }
                if entry & DISPLACED != 0 {
                    displaced.push(number);
                    continue;
                }
                let kept = (entry ^ number) << 1;
                let half = (kept >> 31) as usize;
                let place = used[half] / WORD_ENTRIES;
                let to = &mut lines[half][place];
                *to = filled(*to, kept & !DISPLACED & !mask | number);
                used[half] += 1;
            }
        }
        lines.map(|words| Self(words.map(AtomicU64::new)))
    }
}

impl Cells for SharedPairs {
    type Line = Line;

    #[inline]
    fn buckets(&self) -> usize {
        self.buckets
    }

    #[inline]
    fn line(&self, bucket: usize) -> &Line {
        &self.segments[bucket / SEGMENT_BUCKETS][bucket % SEGMENT_BUCKETS]
    }

    #[inline]
    fn word(line: &Line, place: usize) -> u64 {
        line.0[place].load(Ordering::Acquire)
    }

    #[inline]
    fn exchange(line: &Line, place: usize, old: u64, new: u64) -> bool {
        line.0[place].compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn pair(&self, number: u32) -> u64 {
        self.cell(number).load(Ordering::Relaxed)
    }

    #[inline]
    fn write(&self, number: u32, pair: u64) {
        self.cell(number).store(pair, Ordering::Relaxed);
    }

    #[cold]
    fn grant(&self) -> Result<Range<u32>, StoreFull> {
        if self.is_full() {
            return Err(StoreFull);
        }
        let more = |granted: u64| {
            (granted + u64::from(GRANT) <= self.end).then_some(granted + u64::from(GRANT))
        };
        let Ok(first) = self.granted.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        else {
            self.wants_more.store(true, Ordering::Relaxed);
            return Err(StoreFull);
        };
        if first + u64::from(GRANT) > self.grow_at && self.may_grow {
            self.wants_more.store(true, Ordering::Relaxed);
        }
        let is_new_block = first.is_multiple_of(BLOCK_PAIRS as u64);
        if is_new_block && !self.room.take(BLOCK_PAIRS * 8) {
            // Nobody is given any from now on, and the index stays as it is.
            self.is_full.store(true, Ordering::Relaxed);
            return Err(StoreFull);
        }
        let empty = || (0..BLOCK_PAIRS).map(|_| AtomicU64::new(0)).collect();
        let block = self.blocks[first as usize / BLOCK_PAIRS].get_or_init(empty);
        // Written once, so that no exchange has to wait for a pair to be written; read, a fresh page would
        // be mapped twice, the second time with an interrupt of all cores.
        let at = first as usize % BLOCK_PAIRS;
        let lines = block[at..at + GRANT as usize].iter().step_by(LINE_PAIRS);
        lines.for_each(|pair| pair.store(0, Ordering::Relaxed));
        Ok(first as u32..first as u32 + GRANT)
    }
}
