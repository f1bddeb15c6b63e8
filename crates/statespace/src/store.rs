//! States, each kept once, as trees of pairs (Blom, Lisser, van de Pol, Weber 2009; Laarman, van de
//! Pol, Weber 2011).
//!
//! A state is a row of 32-bit words. Neighbours are joined in pairs, pairs of pairs, up to one root a
//! state. Parts that states have in common are kept once: a state of any length costs little more
//! than its root. States are numbered in the order they came, which makes the store the queue of a
//! breadth-first search as well.

use crate::pairs::{Full, Hashed, Pairs, Room};

/// Number of a state in a [`Store`].
pub type StateId = u32;

/// One joint of the tree, children before parents; the last is the root.
#[derive(Debug, Clone, Copy)]
struct Joint {
    left: Part,
    right: Part,
    /// The words below it, one bit a word (the last bit stands for all from the 64th on).
    words: u64,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Word(usize),
    Joint(usize),
}

/// A set of states of one length.
#[derive(Debug)]
pub struct Store {
    state_bytes: usize,
    words_count: usize,
    joints: Vec<Joint>,
    inner: Pairs,
    roots: Pairs,
}

/// A state taken apart: its words and the numbers of its joints.
#[derive(Debug, Clone, Default)]
pub struct Unpacked {
    bytes: Vec<u8>,
    words: Vec<u32>,
    joints: Vec<u32>,
}

impl Unpacked {
    /// The state's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Roots of states that are still to be looked up.
#[derive(Debug, Default)]
pub struct Batch {
    roots: Vec<Hashed>,
    words: Vec<u32>,
    joints: Vec<u32>,
}

impl Batch {
    /// How many states wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// What the state prepared last is made of, for the next one to be compared with.
    pub(crate) fn keep_parts(&self, to: &mut Unpacked) {
        to.words.clone_from(&self.words);
        to.joints.clone_from(&self.joints);
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }
}

impl Store {
    /// For states of `state_bytes` bytes.
    #[must_use]
    pub fn new(state_bytes: usize) -> Self {
        let words_count = state_bytes.div_ceil(4).max(2);
        let mut joints = Vec::new();
        join(0, words_count, &mut joints);
        Self { state_bytes, words_count, joints, inner: Pairs::new(), roots: Pairs::new() }
    }

    /// From roots and the joints below them.
    pub(crate) fn of(state_bytes: usize, roots: Pairs, inner: Pairs) -> Self {
        Self { roots, inner, ..Self::new(state_bytes) }
    }

    pub(crate) fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    /// Roots, joints.
    pub(crate) fn pairs(&self) -> [&Pairs; 2] {
        [&self.roots, &self.inner]
    }

    /// Whether every state can be taken apart.
    pub(crate) fn is_sound(&self) -> bool {
        let mut numbers = vec![0; self.joints.len()];
        (0..self.len()).all(|id| {
            let mut pair = self.roots.get(id);
            for number in (0..self.joints.len()).rev() {
                if number < self.joints.len() - 1 {
                    if numbers[number] >= self.inner.count() {
                        return false;
                    }
                    pair = self.inner.get(numbers[number]);
                }
                let joint = &self.joints[number];
                for (part, value) in [(joint.left, pair.0), (joint.right, pair.1)] {
                    if let Part::Joint(place) = part {
                        numbers[place] = value;
                    }
                }
            }
            true
        })
    }

    /// States in it.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.roots.count()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in use, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.roots.memory_bytes() + self.inner.memory_bytes()
    }

    /// Lets it take so much memory from now on, bytes; then every new state is [`Full`].
    pub fn limit_memory(&mut self, bytes: usize) {
        let room = Room::new(bytes);
        self.roots.limit_memory(room.clone());
        self.inner.limit_memory(room);
    }

    /// Adds a state; its number, and whether it is new.
    ///
    /// # Errors
    /// [`Full`] when there are 2^32 states or parts of states.
    pub fn insert(&mut self, state: &[u8]) -> Result<(StateId, bool), Full> {
        let mut batch = Batch::default();
        self.prepare(&Unpacked::default(), state, &mut batch)?;
        self.roots.insert(batch.roots[0])
    }

    /// Looks up all parts of a state but its root, and leaves the root in `batch`. What it has in
    /// common with `parent`, the state it was reached from, is not looked up again.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn prepare(
        &mut self,
        parent: &Unpacked,
        state: &[u8],
        batch: &mut Batch,
    ) -> Result<(), Full> {
        to_words(state, self.words_count, &mut batch.words);
        let mut changed = u64::MAX;
        if parent.words.len() == self.words_count {
            changed = 0;
            for (place, (old, new)) in parent.words.iter().zip(&batch.words).enumerate() {
                changed |= u64::from(old != new) << place.min(63);
            }
        }
        let (root, below) = self.joints.split_last().expect("a tree has a root");
        batch.joints.clear();
        for (number, joint) in below.iter().enumerate() {
            let same = changed & joint.words == 0;
            let pair = if same {
                parent.joints[number]
            } else {
                self.inner.insert(hashed(joint, &batch.words, &batch.joints))?.0
            };
            batch.joints.push(pair);
        }
        batch.roots.push(hashed(root, &batch.words, &batch.joints));
        Ok(())
    }

    /// Adds the states of a batch and empties it; `each` hears their numbers and whether they are new,
    /// in their order.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn insert_batch(
        &mut self,
        batch: &mut Batch,
        mut each: impl FnMut(StateId, bool),
    ) -> Result<(), Full> {
        let done = self.roots.insert_all(&batch.roots, |_, number, is_new| each(number, is_new));
        batch.roots.clear();
        done
    }

    /// Takes a state apart.
    ///
    /// # Panics
    /// When there is no such state.
    pub fn unpack(&self, id: StateId, to: &mut Unpacked) {
        to.words.resize(self.words_count, 0);
        to.joints.resize(self.joints.len() - 1, 0);
        let mut pair = self.roots.get(id);
        for number in (0..self.joints.len()).rev() {
            let joint = &self.joints[number];
            if number < self.joints.len() - 1 {
                pair = self.inner.get(to.joints[number]);
            }
            for (part, value) in [(joint.left, pair.0), (joint.right, pair.1)] {
                match part {
                    Part::Word(place) => to.words[place] = value,
                    Part::Joint(place) => to.joints[place] = value,
                }
            }
        }
        to.bytes.clear();
        to.bytes.extend(to.words.iter().flat_map(|word| word.to_le_bytes()));
        to.bytes.truncate(self.state_bytes);
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

fn hashed(joint: &Joint, words: &[u32], joints: &[u32]) -> Hashed {
    let value = |part| match part {
        Part::Word(place) => words[place],
        Part::Joint(place) => joints[place],
    };
    Hashed::new(value(joint.left), value(joint.right))
}

fn to_words(state: &[u8], count: usize, words: &mut Vec<u32>) {
    words.clear();
    let mut chunks = state.chunks_exact(4);
    words.extend(
        chunks.by_ref().map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])),
    );
    let mut last = [0; 4];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    words.push(u32::from_le_bytes(last));
    words.resize(count, 0);
}
