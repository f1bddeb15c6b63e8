//! Which rank a state belongs to: a hash of some of its bytes says so.
//!
//! A step changes few bytes. Where the bytes that count stay as they are, the state it leads to stays
//! where it is, and nothing is sent (partition functions as those of Lerda and Sisto 1999). Which
//! bytes count is found out on a sample of states and steps, the same on all ranks: bytes whose change
//! costs most for the contents they tell apart are left out, one after the other, as long as the rest
//! still spreads the states; of some hashes of the rest that one is taken which separates fewest steps
//! and spreads best.

use crate::reach::System;
use crate::store::{Store, Unpacked};

/// States of the sample whose steps are looked at.
const EXPANDED_MAX: usize = 2048;

/// Most words of states and of steps in the sample, and fewest states for which it says anything.
const WORDS_MAX: usize = 1 << 14;
const STATES_MAX: usize = 6144;
const STATES_MIN: usize = 1024;

/// So many different contents, were all equally frequent, must be left for each rank.
const CONTENTS_PER_RANK: f64 = 50.0;

/// Groups of bytes that may be left out.
const GROUPS_MAX: usize = 32;

/// Hashes that are tried.
const SALTS: u64 = 32;

/// Bytes are worth choosing where ranks then need less than this share of the time.
const WORTH: f64 = 0.95;

const WORD_BYTES: usize = 8;

/// Says where states belong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Home {
    /// Where a word of the state begins, and which of its bits count.
    counted: Vec<(usize, u64)>,
    salt: u64,
    ranks_count: usize,
}

impl Home {
    /// For so many ranks, which must all ask for the same system.
    pub(crate) fn find(system: &mut impl System, ranks_count: usize) -> Self {
        let length = system.state_bytes();
        let all = Self { counted: words(length), salt: 0, ranks_count };
        if ranks_count == 1 || length < WORD_BYTES {
            return all;
        }
        let sample = Sample::take(system);
        if sample.states_count() < STATES_MIN {
            return all;
        }
        let fewer = all.fewer(&sample);
        let (cost, best) = (0..SALTS)
            .map(|salt| Self { salt, ..fewer.clone() })
            .map(|home| (home.cost(&sample), home))
            .min_by(|one, other| one.0.total_cmp(&other.0))
            .unwrap_or((f64::MAX, all.clone()));
        if cost < all.cost(&sample) * WORTH { best } else { all }
    }

    /// The rank a state belongs to.
    #[inline]
    pub(crate) fn of(&self, state: &[u8]) -> usize {
        ((u128::from(self.hash(state)) * self.ranks_count as u128) >> 64) as usize
    }

    #[inline]
    fn hash(&self, state: &[u8]) -> u64 {
        if state.len() < WORD_BYTES {
            return hash(state);
        }
        let mut mixed = self.salt ^ 0x9e37_79b9_7f4a_7c15;
        for &(at, mask) in &self.counted {
            mixed = mix(mixed, word(state, at) & mask);
        }
        mix(mixed, 0xe703_7ed1_a0b4_28db)
    }

    /// The same with fewer bytes that count.
    fn fewer(&self, sample: &Sample) -> Self {
        let mut home = self.clone();
        let mut groups = home.groups(sample);
        let contents_min = CONTENTS_PER_RANK * self.ranks_count as f64;
        let mut table = Contents::default();
        let mut known = (home.share_of_steps(sample), table.of(&home, sample));
        loop {
            let mut best: Option<(f64, usize, (f64, f64))> = None;
            for (number, &group) in groups.iter().enumerate() {
                let other = home.without(group);
                let share = other.share_of_steps(sample);
                if share >= known.0 {
                    continue;
                }
                let contents = table.of(&other, sample);
                let worth = (known.0 - share) / (known.1 / contents).ln().max(1e-3);
                if contents >= contents_min && best.is_none_or(|(most, ..)| worth > most) {
                    best = Some((worth, number, (share, contents)));
                }
            }
            let Some((_, number, now)) = best else { break };
            home = home.without(groups.swap_remove(number));
            known = now;
        }
        home.counted.retain(|(_, mask)| *mask != 0);
        home
    }

    fn without(&self, (place, mask): (usize, u64)) -> Self {
        let mut other = self.clone();
        other.counted[place].1 &= !mask;
        other
    }

    /// Neighbouring bytes, as places in `counted` and masks: those that change most often.
    fn groups(&self, sample: &Sample) -> Vec<(usize, u64)> {
        let bytes = (self.counted.len() * WORD_BYTES).div_ceil(GROUPS_MAX).next_power_of_two();
        let bytes = bytes.min(WORD_BYTES);
        let mask = u64::MAX >> (64 - 8 * bytes);
        let mut groups: Vec<_> = (0..self.counted.len())
            .flat_map(|place| {
                (0..WORD_BYTES / bytes).map(move |of| (place, mask << (8 * bytes * of)))
            })
            .map(|(place, mask)| {
                (sample.changes(place, mask & self.counted[place].1), (place, mask))
            })
            .filter(|(changes, _)| *changes > 0)
            .collect();
        groups.sort_by_key(|&(changes, _)| std::cmp::Reverse(changes));
        groups.into_iter().take(GROUPS_MAX).map(|(_, group)| group).collect()
    }

    /// Share of the steps that change the bytes that count.
    fn share_of_steps(&self, sample: &Sample) -> f64 {
        let is_change = |changed: &&[u64]| {
            changed.iter().zip(&self.counted).any(|(bits, (_, mask))| bits & mask != 0)
        };
        let changes = sample.changed().filter(is_change).count();
        changes as f64 / sample.steps.len().max(1) as f64
    }

    /// Time that ranks need, as a share of what they would need if all steps stayed at home and all
    /// ranks had as much to do. A step to another rank costs about as much again.
    fn cost(&self, sample: &Sample) -> f64 {
        let ranks: Vec<usize> = sample.each().map(|state| self.of(state)).collect();
        let mut counts = vec![0u32; self.ranks_count];
        ranks.iter().for_each(|&rank| counts[rank] += 1);
        let most = f64::from(counts.into_iter().max().unwrap_or(0));
        let uneven = most * self.ranks_count as f64 / ranks.len() as f64;
        let is_away = |&&(from, to): &&(u32, u32)| ranks[from as usize] != ranks[to as usize];
        let away = sample.steps.iter().filter(is_away).count() as f64;
        uneven * (1.0 + away / sample.steps.len().max(1) as f64)
    }
}

/// The words of a state of so many bytes, each bit in one of them.
fn words(length: usize) -> Vec<(usize, u64)> {
    let whole = (0..length / WORD_BYTES).map(|word| (word * WORD_BYTES, u64::MAX));
    let rest = length % WORD_BYTES;
    let last = (rest > 0 && length > WORD_BYTES)
        .then(|| (length - WORD_BYTES, u64::MAX << (8 * (WORD_BYTES - rest))));
    whole.chain(last).collect()
}

#[inline]
fn word(state: &[u8], at: usize) -> u64 {
    state[at..].first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes))
}

/// How many different contents there are, if all were equally frequent.
#[derive(Debug, Default)]
struct Contents(Vec<(u64, u32)>);

impl Contents {
    fn of(&mut self, home: &Home, sample: &Sample) -> f64 {
        let places = (sample.states_count() * 2).next_power_of_two();
        self.0.clear();
        self.0.resize(places, (0, 0));
        // Sum of squares, grown as counts grow.
        let (mut squares, mut states) = (0u64, 0u64);
        for state in sample.each() {
            let hash = home.hash(state);
            let mut place = hash as usize % places;
            while self.0[place].1 > 0 && self.0[place].0 != hash {
                place = (place + 1) % places;
            }
            self.0[place].0 = hash;
            squares += u64::from(self.0[place].1) * 2 + 1;
            self.0[place].1 += 1;
            states += 1;
        }
        (states * states) as f64 / squares.max(1) as f64
    }
}

/// Some states, one behind the other, and the steps between them.
#[derive(Debug, Default)]
struct Sample {
    state_bytes: usize,
    states: Vec<u8>,
    /// From which state to which, by their numbers.
    steps: Vec<(u32, u32)>,
    /// Which bits each step changes, in the words that [`words`] names.
    changed_bits: Vec<u64>,
}

impl Sample {
    /// Goes deep as well as wide, the same way on all ranks.
    fn take(system: &mut impl System) -> Self {
        let length = system.state_bytes();
        let words = words(length);
        let mut known = Store::new(length);
        let mut sample = Self { state_bytes: length, ..Self::default() };
        let initial = system.initial();
        known.insert(&initial).ok();
        sample.states.extend_from_slice(&initial);
        let (mut waiting, mut chance) = (vec![0], 0u64);
        let mut state = Unpacked::default();
        for _ in 0..EXPANDED_MAX {
            if waiting.is_empty()
                || sample.states_count() >= STATES_MAX.min(WORDS_MAX / words.len())
                || sample.changed_bits.len() >= 2 * WORDS_MAX
            {
                break;
            }
            chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let place = (chance >> 33) as usize % waiting.len();
            let from = waiting.swap_remove(place);
            known.unpack(from, &mut state);
            system.each(state.bytes(), |next| {
                let Ok((to, is_new)) = known.insert(next) else { return };
                if is_new {
                    sample.states.extend_from_slice(next);
                    waiting.push(to);
                }
                sample.steps.push((from, to));
                let changed = words.iter().map(|&(at, _)| word(state.bytes(), at) ^ word(next, at));
                sample.changed_bits.extend(changed);
            });
        }
        sample
    }

    fn each(&self) -> std::slice::ChunksExact<'_, u8> {
        self.states.chunks_exact(self.state_bytes)
    }

    fn states_count(&self) -> usize {
        self.states.len() / self.state_bytes
    }

    fn changed(&self) -> std::slice::ChunksExact<'_, u64> {
        self.changed_bits.chunks_exact(words(self.state_bytes).len())
    }

    /// Steps that change some of these bits.
    fn changes(&self, place: usize, mask: u64) -> usize {
        self.changed().filter(|bits| bits[place] & mask != 0).count()
    }
}

#[inline]
fn mix(mixed: u64, word: u64) -> u64 {
    let product = u128::from(mixed ^ word) * 0xa076_1d64_78bd_642f;
    (product >> 64) as u64 ^ product as u64
}

/// Mixes all bits of some bytes.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut mixed = 0x9e37_79b9_7f4a_7c15u64;
    // Bytes were written just now, one by one: each is read once.
    let (chunks, rest) = bytes.as_chunks::<8>();
    for &chunk in chunks {
        mixed = mix(mixed, u64::from_le_bytes(chunk));
    }
    let (words, rest) = rest.as_chunks::<4>();
    let low = words.first().map_or(0, |&word| u32::from_le_bytes(word));
    let high = rest.iter().fold(0, |high, &byte| high << 8 | u32::from(byte));
    mix(mix(mixed, u64::from(high) << 32 | u64::from(low)), 0xe703_7ed1_a0b4_28db)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_spread_evenly() {
        for ranks_count in [2, 3, 7] {
            for length in [1, 2, 8, 13, 40] {
                let mut counts = vec![0u32; ranks_count];
                let states = if length == 1 { 256 } else { 20_000u32 };
                let home = Home { counted: words(length), salt: 0, ranks_count };
                for number in 0..states {
                    let mut state = vec![0; length];
                    state[0] = number as u8;
                    if length > 1 {
                        state[length - 1] = (number >> 8) as u8;
                    }
                    counts[home.of(&state)] += 1;
                }
                let fair = f64::from(states) / ranks_count as f64;
                let far = 5.0 * fair.sqrt();
                for count in counts {
                    assert!((f64::from(count) - fair).abs() < far, "{count} of {states}, {length}");
                }
            }
        }
    }

    /// Eight counters of one byte; the last moves most often.
    struct Counters;

    impl System for Counters {
        fn state_bytes(&self) -> usize {
            8
        }
        fn initial(&self) -> Vec<u8> {
            vec![0; 8]
        }
        fn each(&mut self, state: &[u8], mut visit: impl FnMut(&[u8])) -> usize {
            let last = [1, 2, 3, 5, 7].map(|add| (7, add));
            for (place, add) in (0..7).map(|place| (place, 1)).chain(last) {
                let mut next = state.to_vec();
                next[place] = next[place].wrapping_add(add);
                visit(&next);
            }
            12
        }
    }

    #[test]
    fn what_changes_most_often_does_not_count() {
        let home = Home::find(&mut Counters, 2);
        assert_eq!(home.counted.len(), 1, "{home:?}");
        let (_, mask) = home.counted[0];
        assert!(mask >> 56 == 0 && mask != 0, "{home:?}");
        assert_eq!(home.of(&[9, 8, 7, 6, 5, 4, 3, 1]), home.of(&[9, 8, 7, 6, 5, 4, 3, 2]));
        assert_eq!(home, Home::find(&mut Counters, 2), "the same on all ranks");
        assert_eq!(Home::find(&mut Counters, 1).counted, [(0, u64::MAX)]);
    }

    #[test]
    fn every_byte_is_in_one_word() {
        assert_eq!(words(7), []);
        assert_eq!(words(16), [(0, u64::MAX), (8, u64::MAX)]);
        assert_eq!(words(13), [(0, u64::MAX), (5, 0xffff_ffff_ff00_0000)]);
    }
}
