//! Searches that keep less than the states, and so may take a new state for a known one: they find
//! errors in spaces too large to keep, and never show that there is none.
//!
//! Depth first, so that the run to a state is at hand without being stored.

use crate::reach::{Progress, System};

/// How a lossy search stores states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossyStorage {
    /// A hash of 64 bits for each state (Wolper and Leroy 1993).
    HashCompaction,
    /// Three bits for each state, in a table of so many bytes (Holzmann 1998).
    Bitstate {
        /// Size of the table.
        table_bytes: usize,
    },
}

/// Bits set for a state.
const BITS_PER_STATE: u64 = 3;

/// Share of the hash table that may be in use, of 100.
const LOAD_MAX_PERCENT: usize = 80;

/// A search that can be halted anywhere.
#[derive(Debug)]
pub struct LossySearch<S> {
    system: S,
    seen: Seen,
    /// States on the path and beside it, each after the other.
    arena: Vec<u8>,
    frames: Vec<Frame>,
    states_count: u64,
    visited_count: u64,
    transitions_count: u64,
    deadlocks_count: u64,
}

/// New successors of one state: places in the arena, in states.
#[derive(Debug, Clone, Copy)]
struct Frame {
    first: usize,
    next: usize,
    end: usize,
}

/// What is kept of the states met.
#[derive(Debug)]
pub(crate) enum Seen {
    /// 0 is a free entry.
    Hashes {
        table: Vec<u64>,
        count: usize,
    },
    Bits {
        table: Vec<u64>,
        set_count: u64,
    },
}

impl<S: System> LossySearch<S> {
    /// A search that has found the first state only.
    #[must_use]
    pub fn new(system: S, kept: LossyStorage) -> Self {
        let seen = Seen::new(kept);
        let arena = system.initial();
        let mut search = Self {
            system,
            seen,
            arena,
            frames: vec![Frame { first: 0, next: 0, end: 1 }],
            states_count: 1,
            visited_count: 0,
            transitions_count: 0,
            deadlocks_count: 0,
        };
        search.seen.add(&search.arena);
        search
    }

    /// Looks at up to `states_max` further states; `found` hears each with the number of its steps, and
    /// may end the search by `false`: then [`Self::run`] leads to that state. Tells whether there is
    /// more to do.
    pub fn advance(
        &mut self,
        states_max: usize,
        mut found: impl FnMut(&[u8], usize) -> bool,
    ) -> bool {
        let bytes = self.system.state_bytes();
        let mut state = Vec::with_capacity(bytes);
        for _ in 0..states_max {
            while self.frames.last().is_some_and(|frame| frame.next == frame.end) {
                if let Some(frame) = self.frames.pop() {
                    self.arena.truncate(frame.first * bytes);
                }
            }
            let Some(frame) = self.frames.last_mut() else { return false };
            state.clear();
            state.extend_from_slice(&self.arena[frame.next * bytes..(frame.next + 1) * bytes]);
            frame.next += 1;
            let Self { system, seen, arena, .. } = self;
            let first = arena.len() / bytes;
            let steps = system.each(&state, |next| {
                if seen.add(next) {
                    arena.extend_from_slice(next);
                }
            });
            let end = self.arena.len() / bytes;
            self.visited_count += 1;
            self.states_count += (end - first) as u64;
            self.transitions_count += steps as u64;
            self.deadlocks_count += u64::from(steps == 0 && !self.system.is_error(&state));
            if !found(&state, steps) {
                return false;
            }
            self.frames.push(Frame { first, next: first, end });
        }
        true
    }

    /// The states from the first to the one looked at last.
    #[must_use]
    pub fn run(&self) -> Vec<Vec<u8>> {
        let bytes = self.system.state_bytes();
        let on_path = self.frames.iter().filter(|frame| frame.next > frame.first);
        on_path
            .map(|frame| self.arena[(frame.next - 1) * bytes..frame.next * bytes].to_vec())
            .collect()
    }

    /// The system that is searched.
    #[must_use]
    pub fn system(&self) -> &S {
        &self.system
    }

    /// How far it is; `depth` is the length of the path.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let path = self.arena.capacity() + self.frames.capacity() * size_of::<Frame>();
        Progress {
            states_count: self.states_count,
            queued_count: self.states_count - self.visited_count,
            transitions_count: self.transitions_count,
            deadlocks_count: self.deadlocks_count,
            depth: u32::try_from(self.frames.len()).unwrap_or(u32::MAX),
            memory_bytes: self.seen.memory_bytes() + path,
        }
    }

    /// How many states are likely to have been taken for others, so that they and what only they lead to
    /// were never looked at.
    #[must_use]
    pub fn missed_states(&self) -> f64 {
        self.seen.kept().missed_states(self.states_count, self.seen.marked_count())
    }
}

impl LossyStorage {
    /// How many states are likely to have been taken for others, of so many that were found by one
    /// search; `marked_count`: bits set in its table.
    #[must_use]
    pub fn missed_states(self, states_count: u64, marked_count: u64) -> f64 {
        let count = states_count as f64;
        match self {
            // Each of the states found could be mistaken for each other one.
            Self::HashCompaction => count * count / 2.0 / (u64::MAX as f64),
            // A new state is missed when its bits are set already; as if the table had always been as
            // full as it is now, so this is too many rather than too few.
            Self::Bitstate { table_bytes } => {
                let full = marked_count as f64 / ((table_bytes / 8).max(1) as f64 * 64.0);
                let share = full.powi(BITS_PER_STATE as i32);
                count * share / (1.0 - share).max(1e-9)
            }
        }
    }

    /// The part of one of so many ranks, which share a table out.
    #[must_use]
    pub fn of_rank(self, ranks_count: usize) -> Self {
        match self {
            Self::HashCompaction => Self::HashCompaction,
            Self::Bitstate { table_bytes } => {
                Self::Bitstate { table_bytes: table_bytes / ranks_count.max(1) }
            }
        }
    }
}

impl Seen {
    pub(crate) fn new(kept: LossyStorage) -> Self {
        match kept {
            LossyStorage::HashCompaction => Self::Hashes { table: vec![0; 1 << 10], count: 0 },
            LossyStorage::Bitstate { table_bytes } => {
                Self::Bits { table: vec![0; (table_bytes / 8).max(1)], set_count: 0 }
            }
        }
    }

    fn kept(&self) -> LossyStorage {
        match self {
            Self::Hashes { .. } => LossyStorage::HashCompaction,
            Self::Bits { table, .. } => LossyStorage::Bitstate { table_bytes: table.len() * 8 },
        }
    }

    /// Bits set in the table, if it is one of bits.
    pub(crate) fn marked_count(&self) -> u64 {
        match self {
            Self::Hashes { .. } => 0,
            Self::Bits { set_count, .. } => *set_count,
        }
    }

    /// Whether the state is new, as far as can be told.
    pub(crate) fn add(&mut self, state: &[u8]) -> bool {
        let hash = hash(state);
        match self {
            Self::Hashes { table, count } => {
                if !put(table, hash.max(1)) {
                    return false;
                }
                *count += 1;
                if *count * 100 > table.len() * LOAD_MAX_PERCENT {
                    let mut wider = vec![0; table.len() * 3 / 2];
                    table.iter().filter(|&&old| old != 0).for_each(|&old| {
                        put(&mut wider, old);
                    });
                    *table = wider;
                }
                true
            }
            Self::Bits { table, set_count } => {
                let before = *set_count;
                let mut place = hash;
                let bits = table.len() as u64 * 64;
                for _ in 0..BITS_PER_STATE {
                    let bit = ((u128::from(place) * u128::from(bits)) >> 64) as u64;
                    let word = &mut table[(bit / 64) as usize];
                    *set_count += u64::from(*word >> (bit % 64) & 1 == 0);
                    *word |= 1 << (bit % 64);
                    place = mix(place.wrapping_add(0x9e37_79b9_7f4a_7c15));
                }
                *set_count > before
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Hashes { table, .. } | Self::Bits { table, .. } => table.capacity() * 8,
        }
    }
}

/// Puts a hash into a table with room; whether it was not there.
fn put(table: &mut [u64], hash: u64) -> bool {
    let mut place = ((u128::from(hash) * table.len() as u128) >> 64) as usize;
    loop {
        match table[place] {
            0 => {
                table[place] = hash;
                return true;
            }
            known if known == hash => return false,
            _ => place = if place + 1 == table.len() { 0 } else { place + 1 },
        }
    }
}

/// 64 bits that depend on every byte.
fn hash(state: &[u8]) -> u64 {
    let mut chunks = state.chunks_exact(8);
    let mut mixed = mix(state.len() as u64);
    for chunk in chunks.by_ref() {
        let word = chunk.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        mixed = mix(mixed ^ word);
    }
    let rest =
        chunks.remainder().iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    mix(mixed ^ rest)
}

/// A bijection in which each bit depends on all (splitmix64's).
fn mix(word: u64) -> u64 {
    let mut mixed = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
