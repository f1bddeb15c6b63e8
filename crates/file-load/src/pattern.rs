//! What files are filled with, and how they are verified: the data of IOR and mdtest, byte for byte,
//! so that each program verifies what the other wrote.

use crate::c_random::rand_r;

/// Words of 8 bytes in a block of 4 KiB, whose first word is renewed for every transfer.
const BLOCK_WORDS: usize = 512;

/// Multiplier of the random pattern.
const GOLDEN_RATIO: u64 = 0x9e37_ffff_fffc_0001;

/// How the data is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PatternKind {
    /// Every transfer is the same: the writing task's number and a running number from the seed.
    #[default]
    Timestamp,
    /// As [`Self::Timestamp`], and each 4 KiB begin with the transfer's place in the file.
    Offset,
    /// One random word throughout, and each 4 KiB begin with the transfer's place in the file.
    Incompressible,
    /// Random words, others for each transfer.
    Random,
}

impl PatternKind {
    /// The kind of a command line's `-l`: by its first letter, as IOR and mdtest do.
    #[must_use]
    pub fn of_letter(letter: char) -> Option<Self> {
        match letter {
            't' => Some(Self::Timestamp),
            'o' => Some(Self::Offset),
            'i' => Some(Self::Incompressible),
            'r' => Some(Self::Random),
            _ => None,
        }
    }

    /// Its number in IOR's output.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Timestamp => 0,
            Self::Offset => 1,
            Self::Incompressible => 2,
            Self::Random => 3,
        }
    }
}

/// The data of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// How it is made.
    pub kind: PatternKind,
    /// What it is made from: `-G`, or the time of the run.
    pub seed: i32,
    /// The task that writes it.
    pub writer: u64,
}

impl Pattern {
    /// Fills a buffer once, before the first transfer.
    pub fn fill(&self, buffer: &mut [u8]) {
        let constant = self.incompressible();
        let (words, tail) = buffer.as_chunks_mut::<8>();
        for (index, word) in words.iter_mut().enumerate() {
            *word = match self.kind {
                PatternKind::Timestamp | PatternKind::Offset => self.counted(index),
                PatternKind::Incompressible => constant,
                PatternKind::Random => break,
            }
            .to_ne_bytes();
        }
        let counted = words.len() * 8;
        for (index, byte) in tail.iter_mut().enumerate() {
            *byte = (counted + index) as u8;
        }
    }

    /// Renews what differs from transfer to transfer; `item` is the offset in the file (IOR) or the
    /// number of the file (mdtest).
    pub fn renew(&self, buffer: &mut [u8], item: u64) {
        let (words, _tail) = buffer.as_chunks_mut::<8>();
        match self.kind {
            PatternKind::Timestamp => {}
            PatternKind::Random => {
                let mut random = self.random(item);
                for word in words {
                    *word = next(&mut random).to_ne_bytes();
                }
            }
            PatternKind::Offset | PatternKind::Incompressible => {
                for (block, word) in words.iter_mut().step_by(BLOCK_WORDS).enumerate() {
                    *word = self.place(item, block).to_ne_bytes();
                }
            }
        }
    }

    /// Whether the buffer holds this data.
    #[must_use]
    pub fn is_in(&self, buffer: &[u8], item: u64) -> bool {
        let constant = self.incompressible();
        let mut random = self.random(item);
        let (words, tail) = buffer.as_chunks::<8>();
        // All of it is looked at, whatever was found: a verification must not be faster for damage.
        let mut is_same = true;
        for (index, word) in words.iter().enumerate() {
            let has_place = index % BLOCK_WORDS == 0;
            let expected = match self.kind {
                PatternKind::Random => next(&mut random),
                PatternKind::Offset | PatternKind::Incompressible if has_place => {
                    self.place(item, index / BLOCK_WORDS)
                }
                PatternKind::Incompressible => constant,
                PatternKind::Timestamp | PatternKind::Offset => self.counted(index),
            };
            is_same &= u64::from_ne_bytes(*word) == expected;
        }
        let counted = words.len() * 8;
        for (index, &byte) in tail.iter().enumerate() {
            is_same &= byte == (counted + index) as u8;
        }
        is_same
    }

    fn counted(&self, index: usize) -> u64 {
        let number = i64::from(self.seed).wrapping_add(index as i64);
        self.writer << 32 | number.cast_unsigned()
    }

    fn incompressible(&self) -> u64 {
        let mut state = self.seed.cast_unsigned().wrapping_add(self.writer as u32);
        let high = u64::from(rand_r(&mut state)) << 32;
        high | u64::from(rand_r(&mut state))
    }

    fn place(&self, item: u64, block: usize) -> u64 {
        let number = (item as u32).wrapping_mul(block as u32 + 1);
        u64::from(number) | self.writer << 32
    }

    fn random(&self, item: u64) -> u64 {
        let sum = self.seed.cast_unsigned().wrapping_add(self.writer as u32);
        u64::from(rand_r(&mut sum.wrapping_add(item as u32)))
    }
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(GOLDEN_RATIO) >> 3;
    *random
}

/// Changes a buffer so that a transfer that reads nothing into it is found out.
pub fn invalidate(buffer: &mut [u8]) {
    if let Some(first) = buffer.first_mut() {
        *first = !*first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [PatternKind; 4] = [
        PatternKind::Timestamp,
        PatternKind::Offset,
        PatternKind::Incompressible,
        PatternKind::Random,
    ];

    fn pattern(kind: PatternKind) -> Pattern {
        Pattern { kind, seed: 7, writer: 3 }
    }

    #[test]
    fn what_was_written_is_verified_and_any_changed_byte_is_found() {
        for kind in KINDS {
            let pattern = pattern(kind);
            // A multiple of neither 8 nor 4096 bytes.
            let mut buffer = vec![0; 4096 + 8 * 5 + 3];
            pattern.fill(&mut buffer);
            pattern.renew(&mut buffer, 1 << 20);
            assert!(pattern.is_in(&buffer, 1 << 20), "{kind:?}");
            for place in [0, 9, 4095, 4096, 4100, buffer.len() - 1] {
                buffer[place] ^= 1;
                assert!(!pattern.is_in(&buffer, 1 << 20), "{kind:?}: byte {place}");
                buffer[place] ^= 1;
            }
            invalidate(&mut buffer);
            assert!(!pattern.is_in(&buffer, 1 << 20), "{kind:?}: nothing was read");
        }
    }

    #[test]
    fn another_place_writer_or_seed_is_other_data() {
        for kind in KINDS {
            let mut buffer = vec![0; 8192];
            pattern(kind).fill(&mut buffer);
            pattern(kind).renew(&mut buffer, 4096);
            assert!(!Pattern { writer: 2, ..pattern(kind) }.is_in(&buffer, 4096), "{kind:?}");
            let is_seed_seen = !Pattern { seed: 8, ..pattern(kind) }.is_in(&buffer, 4096);
            assert!(is_seed_seen, "{kind:?}");
            let is_place_seen = !pattern(kind).is_in(&buffer, 8192);
            assert_eq!(is_place_seen, kind != PatternKind::Timestamp, "{kind:?}");
        }
    }

    #[test]
    fn a_timestamp_pattern_counts_from_its_seed() {
        let mut buffer = vec![0; 20];
        pattern(PatternKind::Timestamp).fill(&mut buffer);
        assert_eq!(buffer[..8], (3_u64 << 32 | 7).to_ne_bytes());
        assert_eq!(buffer[8..16], (3_u64 << 32 | 8).to_ne_bytes());
        assert_eq!(buffer[16..], [16, 17, 18, 19]);
    }

    /// Two transfers of 4112 bytes that task 1 of IOR 4.1.0+dev wrote with `-G 7`.
    #[test]
    fn the_data_is_that_of_the_reference() {
        let files: [(PatternKind, &[u8]); 4] = [
            (PatternKind::Timestamp, include_bytes!("../tests/data/ior-t.bin")),
            (PatternKind::Offset, include_bytes!("../tests/data/ior-o.bin")),
            (PatternKind::Incompressible, include_bytes!("../tests/data/ior-i.bin")),
            (PatternKind::Random, include_bytes!("../tests/data/ior-r.bin")),
        ];
        for (kind, file) in files {
            let pattern = Pattern { kind, seed: 7, writer: 1 };
            let mut buffer = vec![0; 4112];
            pattern.fill(&mut buffer);
            for (transfer, offset) in file.chunks_exact(4112).zip([0, 4112]) {
                pattern.renew(&mut buffer, offset);
                assert!(buffer == transfer, "{kind:?} at {offset}");
                assert!(pattern.is_in(transfer, offset), "{kind:?} at {offset}");
            }
        }
    }
}
