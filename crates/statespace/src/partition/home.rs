//! Which rank a state belongs to: a hash of some of its bytes says so.
//!
//! A step changes few bytes. Where the bytes that count stay as they are, the state it leads to stays
//! where it is, and nothing is sent (the partition functions of Lerda and Sisto 1999). Which bytes
//! count is found out on a sample of states and steps, the same on all ranks: as few steps as can be
//! should change them, and they should still spread the states evenly.

use std::collections::HashMap;
use std::ops::Range;

use crate::reach::System;

/// States of the sample whose steps are looked at.
const EXPANDED_MAX: usize = 2048;

/// Most states of the sample, and the fewest for which it says anything.
const STATES_MAX: usize = 16_384;
const STATES_MIN: usize = 2048;

/// Places where bytes that count may begin or end.
const PLACES_MAX: usize = 32;

/// Different contents that the bytes that count must have, for each rank.
const CONTENTS_PER_RANK: usize = 512;

/// Most states of a rank, as a share of what it should have.
const UNEVEN_MAX: f64 = 1.04;

/// Bytes that change with less than this share of the steps are worth choosing.
const WORTH: f64 = 0.8;

/// Says where states belong.
#[derive(Debug, Clone)]
pub(super) struct Home {
    counted: Range<usize>,
    ranks_count: usize,
}

impl Home {
    /// For so many ranks, which must all ask for the same system.
    pub(super) fn find(system: &mut impl System, ranks_count: usize) -> Self {
        let all = Self { counted: 0..system.state_bytes(), ranks_count };
        if ranks_count == 1 {
            return all;
        }
        let sample = Sample::take(system);
        if sample.states.len() < STATES_MIN {
            return all;
        }
        let length = all.counted.end;
        let apart = length.div_ceil(PLACES_MAX).max(1);
        let places = (1..length).step_by(apart);
        places
            .flat_map(|place| [0..place, place..length])
            .map(|counted| Self { counted, ranks_count })
            .filter_map(|home| Some((home.share_of_steps(&sample)?, home)))
            .filter(|(share, _)| *share < WORTH)
            .min_by(|one, other| one.0.total_cmp(&other.0))
            .map_or(all, |(_, home)| home)
    }

    /// The rank a state belongs to.
    #[inline]
    pub(super) fn of(&self, state: &[u8]) -> usize {
        let hash = hash(&state[self.counted.clone()]);
        ((u128::from(hash) * self.ranks_count as u128) >> 64) as usize
    }

    /// Share of the steps that change the bytes that count; none where these do not spread the states.
    fn share_of_steps(&self, sample: &Sample) -> Option<f64> {
        let hashes: Vec<u64> =
            sample.states.iter().map(|state| hash(&state[self.counted.clone()])).collect();
        let mut contents = hashes.clone();
        contents.sort_unstable();
        contents.dedup();
        let mut counts = vec![0u32; self.ranks_count];
        sample.states.iter().for_each(|state| counts[self.of(state)] += 1);
        let fair = sample.states.len() as f64 / self.ranks_count as f64;
        let most = f64::from(counts.into_iter().max()?);
        if contents.len() < CONTENTS_PER_RANK * self.ranks_count || most > fair * UNEVEN_MAX {
            return None;
        }
        let is_change = |&&(from, to): &&(usize, usize)| hashes[from] != hashes[to];
        let changes = sample.steps.iter().filter(is_change).count();
        Some(changes as f64 / sample.steps.len().max(1) as f64)
    }
}

/// Some states and the steps between them.
#[derive(Debug, Default)]
struct Sample {
    states: Vec<Vec<u8>>,
    steps: Vec<(usize, usize)>,
}

impl Sample {
    /// Goes deep as well as wide, the same way on all ranks.
    fn take(system: &mut impl System) -> Self {
        let initial = system.initial();
        let mut numbers = HashMap::from([(initial.clone(), 0)]);
        let mut sample = Self { states: vec![initial], steps: Vec::new() };
        let (mut waiting, mut chance) = (vec![0], 0u64);
        for _ in 0..EXPANDED_MAX {
            if waiting.is_empty() || sample.states.len() >= STATES_MAX {
                break;
            }
            chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let place = (chance >> 33) as usize % waiting.len();
            let from = waiting.swap_remove(place);
            let state = sample.states[from].clone();
            system.each(&state, |next| {
                let count = numbers.len();
                let to = *numbers.entry(next.to_vec()).or_insert(count);
                if to == count {
                    sample.states.push(next.to_vec());
                    waiting.push(to);
                }
                sample.steps.push((from, to));
            });
        }
        sample
    }
}

/// Mixes all bits of some bytes.
#[inline]
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut mixed = 0x9e37_79b9_7f4a_7c15u64;
    let mix = |mixed: u64, word: u64| {
        let product = u128::from(mixed ^ word) * 0xa076_1d64_78bd_642f;
        (product >> 64) as u64 ^ product as u64
    };
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
                let home = Home { counted: 0..length, ranks_count };
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
        assert!(home.counted.start == 0 && home.counted.end < 8, "{home:?}");
        assert_eq!(home.of(&[9, 8, 7, 6, 5, 4, 3, 1]), home.of(&[9, 8, 7, 6, 5, 4, 3, 2]));
        assert_eq!(home.counted, Home::find(&mut Counters, 2).counted);
        assert_eq!(Home::find(&mut Counters, 1).counted, 0..8);
    }
}
