//! How states are joined: where they are cut, and where that would be better done.

use super::{Hashed, Store, Unpacked};

/// States that are looked at to find a better cut.
const SAMPLE_STATES: u32 = 1 << 18;

/// Places for a cut that are compared.
const CUTS_MAX: usize = 48;

/// A cut is moved where that leaves less than this share of the different halves.
const WORTH: f64 = 0.7;

/// Bytes a word holds.
const WORD_BYTES: usize = 4;

/// One joint of the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Joint {
    left: Part,
    right: Part,
    /// The words below it, one bit a word (the last bit stands for all from the 64th on).
    pub(super) words: u64,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Word(usize),
    Joint(usize),
}

impl Joint {
    /// What it joins.
    #[inline]
    pub(super) fn pair(&self, words: &[u32], joints: &[u32]) -> Hashed {
        let value = |part| match part {
            Part::Word(place) => words[place],
            Part::Joint(place) => joints[place],
        };
        Hashed::new(value(self.left), value(self.right))
    }

    /// Puts both sides of a pair where they belong; words only where there is room for them.
    #[inline]
    pub(super) fn take_apart(&self, pair: (u32, u32), words: &mut [u32], joints: &mut [u32]) {
        for (part, value) in [(self.left, pair.0), (self.right, pair.1)] {
            match part {
                Part::Word(place) => {
                    if let Some(word) = words.get_mut(place) {
                        *word = value;
                    }
                }
                Part::Joint(place) => joints[place] = value,
            }
        }
    }
}

/// A state's bytes as words, and the joints above them.
#[derive(Debug)]
pub(super) struct Shape {
    /// Tells the shapes of one store apart.
    number: u32,
    state_bytes: usize,
    /// The second half begins with this byte, on a word of its own.
    cut_at: usize,
    words_count: usize,
    /// Children before parents; the last is the root.
    joints: Vec<Joint>,
}

impl Shape {
    /// Cut in the middle.
    pub(super) fn new(state_bytes: usize) -> Self {
        let words_count = state_bytes.div_ceil(WORD_BYTES).max(2);
        Self::of(0, state_bytes, (words_count.div_ceil(2) * WORD_BYTES).min(state_bytes))
    }

    /// Cut at another byte.
    pub(super) fn cut_elsewhere(&self, cut_at: usize) -> Self {
        Self::of(self.number + 1, self.state_bytes, cut_at)
    }

    fn of(number: u32, state_bytes: usize, cut_at: usize) -> Self {
        let words = |bytes: usize| bytes.div_ceil(WORD_BYTES).max(1);
        let (left, right) = (words(cut_at), words(state_bytes - cut_at));
        let mut joints = Vec::new();
        let halves = (join(0, left, &mut joints), join(left, left + right, &mut joints));
        joints.push(Joint { left: halves.0, right: halves.1, words: u64::MAX });
        Self { number, state_bytes, cut_at, words_count: left + right, joints }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    pub(super) fn cut_at(&self) -> usize {
        self.cut_at
    }

    pub(super) fn words_count(&self) -> usize {
        self.words_count
    }

    pub(super) fn root(&self) -> &Joint {
        &self.joints[self.joints.len() - 1]
    }

    /// All joints but the root.
    pub(super) fn below(&self) -> &[Joint] {
        &self.joints[..self.joints.len() - 1]
    }

    /// Takes the state apart whose root is this pair; `inner` knows the pairs below.
    #[inline]
    pub(super) fn unpack(
        &self,
        root: (u32, u32),
        inner: impl Fn(u32) -> (u32, u32),
        to: &mut Unpacked,
    ) {
        to.shape = Some(self.number());
        to.words.resize(self.words_count(), 0);
        to.joints.resize(self.below().len(), 0);
        self.root().take_apart(root, &mut to.words, &mut to.joints);
        for (number, joint) in self.below().iter().enumerate().rev() {
            let pair = inner(to.joints[number]);
            joint.take_apart(pair, &mut to.words, &mut to.joints);
        }
        self.to_bytes(&to.words, &mut to.bytes);
    }

    #[inline]
    pub(super) fn to_words(&self, state: &[u8], words: &mut Vec<u32>) {
        words.clear();
        let (left, right) = state.split_at(self.cut_at);
        append_words(left, words);
        append_words(right, words);
        words.resize(self.words_count, 0);
    }

    #[inline]
    pub(super) fn to_bytes(&self, words: &[u32], bytes: &mut Vec<u8>) {
        bytes.clear();
        let left_words = self.cut_at.div_ceil(WORD_BYTES);
        for (place, word) in words.iter().enumerate() {
            if place == left_words {
                bytes.truncate(self.cut_at);
            }
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(self.state_bytes);
    }
}

/// Joins the words from `first` to `last`; returns what stands for them.
fn join(first: usize, last: usize, joints: &mut Vec<Joint>) -> Part {
    if last - first == 1 {
        return Part::Word(first);
    }
    let middle = first + (last - first).div_ceil(2);
    let (left, right) = (join(first, middle, joints), join(middle, last, joints));
    let words = (first..last).fold(0, |mask, word| mask | 1u64 << word.min(63));
    joints.push(Joint { left, right, words });
    Part::Joint(joints.len() - 1)
}

#[inline]
fn append_words(bytes: &[u8], words: &mut Vec<u32>) {
    let mut chunks = bytes.chunks_exact(WORD_BYTES);
    for word in &mut chunks {
        words.push(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let mut last = [0; WORD_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        words.push(u32::from_le_bytes(last));
    }
}

/// About how many different halves there would be, for each place where states may be cut.
#[derive(Debug, Clone)]
pub(crate) struct Halves {
    cut_at: usize,
    /// Cuts that are tried are multiples of this.
    apart: usize,
    /// For each place the different rows of bytes before it, and from there on.
    before: Vec<Different>,
    behind: Vec<Different>,
}

impl Halves {
    /// Of no state yet, each of `length` bytes, now cut at `cut_at`.
    pub(crate) fn new(length: usize, cut_at: usize) -> Self {
        let none = vec![Different::new(); length + 1];
        Self { cut_at, apart: length.div_ceil(CUTS_MAX), before: none.clone(), behind: none }
    }

    /// Of so many states every how many-th is enough.
    pub(crate) fn step(states_count: u32) -> u32 {
        (states_count / SAMPLE_STATES).max(1)
    }

    fn is_tried(&self, place: usize) -> bool {
        place.is_multiple_of(self.apart) || place == self.cut_at
    }

    pub(crate) fn see(&mut self, state: &[u8]) {
        let mut sum = 0;
        for (place, byte) in state.iter().enumerate() {
            sum = add(sum, *byte);
            if self.is_tried(place + 1) {
                self.before[place + 1].see(sum);
            }
        }
        let mut sum = 0;
        for (place, byte) in state.iter().enumerate().rev() {
            sum = add(sum, *byte);
            if self.is_tried(place) {
                self.behind[place].see(sum);
            }
        }
    }

    /// Adds what another has seen.
    pub(crate) fn merge(&mut self, other: &Self) {
        let all = self.before.iter_mut().chain(&mut self.behind);
        for (one, other) in all.zip(other.before.iter().chain(&other.behind)) {
            one.merge(other);
        }
    }

    /// Where to cut, if what was seen says that it would be much better.
    pub(crate) fn better_cut(&self) -> Option<usize> {
        let halves_at = |place: usize| self.before[place].count() + self.behind[place].count();
        let now = halves_at(self.cut_at);
        let (halves, cut_at) = (1..self.before.len() - 1)
            .filter(|&place| self.is_tried(place))
            .map(|place| (halves_at(place), place))
            .min_by(|one, other| one.0.total_cmp(&other.0))?;
        (halves < now * WORTH).then_some(cut_at)
    }
}

/// Where to cut, if the halves of some of the states say that it would be much better.
pub(super) fn better_cut(store: &Store) -> Option<usize> {
    let mut halves = Halves::new(store.state_bytes(), store.cut_at());
    let mut state = Unpacked::default();
    for id in (0..store.len()).step_by(Halves::step(store.len()) as usize) {
        store.unpack(id, &mut state);
        halves.see(state.bytes());
    }
    halves.better_cut()
}

/// Adds a byte to a sum over a row of them, and mixes all bits.
#[inline]
fn add(sum: u64, byte: u8) -> u64 {
    let word = sum ^ (u64::from(byte) + 0x9e37_79b9_7f4a_7c15);
    let product = u128::from(word) * 0xa076_1d64_78bd_642f;
    ((product >> 64) as u64 ^ product as u64).wrapping_add(1)
}

/// About how many different sums were seen (Flajolet, Fusy, Gandouet, Meunier 2007): of 1024 shares of
/// the sums, the most leading zeros each.
#[derive(Debug, Clone)]
struct Different(Vec<u8>);

impl Different {
    const SHARES_BITS: u32 = 10;

    fn new() -> Self {
        Self(vec![0; 1 << Self::SHARES_BITS])
    }

    #[inline]
    fn see(&mut self, sum: u64) {
        let share = &mut self.0[(sum >> (u64::BITS - Self::SHARES_BITS)) as usize];
        let zeros = (sum << Self::SHARES_BITS).leading_zeros() as u8 + 1;
        *share = zeros.max(*share);
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one = (*one).max(*other));
    }

    fn count(&self) -> f64 {
        let shares = self.0.len() as f64;
        let harmonic: f64 = self.0.iter().map(|&zeros| 0.5f64.powi(i32::from(zeros))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / shares) * shares * shares / harmonic;
        let empty = self.0.iter().filter(|&&zeros| zeros == 0).count() as f64;
        if raw < 2.5 * shares && empty > 0.0 { shares * (shares / empty).ln() } else { raw }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_sums_are_counted_nearly() {
        for wanted in [1, 50, 2_000, 30_000, 400_000u32] {
            let mut different = Different::new();
            for number in 0..2 * wanted {
                let bytes = (number % wanted).to_le_bytes();
                different.see(bytes.iter().fold(0, |sum, byte| add(sum, *byte)));
            }
            let count = different.count();
            assert!((count / f64::from(wanted) - 1.0).abs() < 0.1, "{count} for {wanted}");
        }
    }
}
