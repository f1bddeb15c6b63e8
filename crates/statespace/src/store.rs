//! States, each kept once, as trees of pairs (Blom, Lisser, van de Pol, Weber 2009; Laarman, van de
//! Pol, Weber 2011).
//!
//! A state is a row of 32-bit words. Neighbours are joined in pairs, pairs of pairs, up to one root a
//! state. Parts that states have in common are kept once: a state of any length costs little more
//! than its root. States are numbered in the order they came, which makes the store the queue of a
//! breadth-first search as well.
//!
//! Where a state is cut in two decides how much its halves have in common with others: the store
//! looks at what it holds now and then, and cuts where the fewest different halves come out.

pub(crate) mod shape;
pub(crate) mod shared;

use crate::pairs::{Hashed, Pairs, Room, StoreFull};
use shape::Shape;

/// Number of a state in a [`Store`].
pub type StateId = u32;

/// A set of states of one length.
#[derive(Debug)]
pub struct Store {
    shape: Shape,
    inner: Pairs,
    roots: Pairs,
    /// Memory that both may still take.
    room: Option<Room>,
    /// So many states, and it looks at its shape again.
    look_at: u32,
}

/// States at which a store first looks at its shape; then each time there are so many times more.
const LOOK_AT: u32 = 1 << 13;
const LOOK_AGAIN_TIMES: u32 = 4;

/// Joints for so many states are few enough.
const STATES_PER_JOINT: u32 = 8;

/// A state taken apart: its words and the numbers of its joints.
#[derive(Debug, Clone, Default)]
pub struct Unpacked {
    /// The shape of the tree it was taken out of; joints of another mean nothing.
    shape: Option<u32>,
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
    shape: Option<u32>,
    roots: Vec<Hashed>,
    words: Vec<u32>,
    joints: Vec<u32>,
    /// Of many states at once: their words, joints, and the pairs of one joint.
    all_words: Vec<u32>,
    all_joints: Vec<u32>,
    parts: Vec<Hashed>,
}

impl Batch {
    /// How many states wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// What the state prepared last is made of, for the next one to be compared with.
    pub(crate) fn keep_parts(&self, to: &mut Unpacked) {
        to.shape = self.shape;
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
        Self::of(Shape::new(state_bytes), Pairs::new(), Pairs::new())
    }

    fn of(shape: Shape, roots: Pairs, inner: Pairs) -> Self {
        let look_at = roots.count().saturating_mul(LOOK_AGAIN_TIMES).max(LOOK_AT);
        Self { shape, roots, inner, room: None, look_at }
    }

    /// From roots and the joints below them; `cut_at` as [`Self::cut_at`] told.
    pub(crate) fn restored(
        state_bytes: usize,
        cut_at: usize,
        roots: Pairs,
        inner: Pairs,
    ) -> Option<Self> {
        let shape = Shape::new(state_bytes);
        let is_possible = cut_at == shape.cut_at() || (1..state_bytes).contains(&cut_at);
        is_possible.then(|| Self::of(shape.cut_elsewhere(cut_at), roots, inner))
    }

    pub(crate) fn state_bytes(&self) -> usize {
        self.shape.state_bytes()
    }

    /// The byte with which the second half of a state begins.
    pub(crate) fn cut_at(&self) -> usize {
        self.shape.cut_at()
    }

    /// Roots, joints.
    pub(crate) fn pairs(&self) -> [&Pairs; 2] {
        [&self.roots, &self.inner]
    }

    /// Whether every state can be taken apart.
    pub(crate) fn is_sound(&self) -> bool {
        let below = self.shape.below();
        let mut numbers = vec![0; below.len()];
        (0..self.len()).all(|id| {
            self.shape.root().take_apart(self.roots.get(id), &mut [], &mut numbers);
            below.iter().enumerate().rev().all(|(number, joint)| {
                let is_there = numbers[number] < self.inner.count();
                if is_there {
                    let pair = self.inner.get(numbers[number]);
                    joint.take_apart(pair, &mut [], &mut numbers);
                }
                is_there
            })
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

    /// Lets it take so much memory from now on, bytes; then every new state is [`StoreFull`].
    pub fn limit_memory(&mut self, bytes: usize) {
        let room = Room::new(bytes);
        self.room = Some(room.clone());
        self.roots.limit_memory(room.clone());
        self.inner.limit_memory(room);
    }

    /// Adds a state; its number, and whether it is new.
    ///
    /// # Errors
    /// [`StoreFull`] when there are 2^32 states or parts of states.
    pub fn insert(&mut self, state: &[u8]) -> Result<(StateId, bool), StoreFull> {
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
    ) -> Result<(), StoreFull> {
        self.shape.to_words(state, &mut batch.words);
        batch.shape = Some(self.shape.number());
        let mut changed = u64::MAX;
        if parent.shape == batch.shape {
            changed = 0;
            for (place, (old, new)) in parent.words.iter().zip(&batch.words).enumerate() {
                changed |= u64::from(old != new) << place.min(63);
            }
        }
        batch.joints.clear();
        for (number, joint) in self.shape.below().iter().enumerate() {
            let pair = if changed & joint.words == 0 {
                parent.joints[number]
            } else {
                self.inner.insert(joint.pair(&batch.words, &batch.joints))?.0
            };
            batch.joints.push(pair);
        }
        batch.roots.push(self.shape.root().pair(&batch.words, &batch.joints));
        Ok(())
    }

    /// The same for states one behind the other that have little in common: parts are looked up together,
    /// so that the processor waits for memory once and not once a part.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub(crate) fn prepare_all(
        &mut self,
        states: &[u8],
        batch: &mut Batch,
    ) -> Result<(), StoreFull> {
        let (words, below) = (self.shape.words_count(), self.shape.below().len());
        let Batch { roots, words: state_words, all_words, all_joints, parts, .. } = batch;
        all_words.clear();
        for state in states.chunks_exact(self.state_bytes().max(1)) {
            self.shape.to_words(state, state_words);
            all_words.extend_from_slice(state_words);
        }
        let count = all_words.len() / words.max(1);
        all_joints.clear();
        all_joints.resize(count * below, 0);
        for (number, joint) in self.shape.below().iter().enumerate() {
            parts.clear();
            parts.extend((0..count).map(|state| {
                let joints = &all_joints[state * below..(state + 1) * below];
                joint.pair(&all_words[state * words..(state + 1) * words], joints)
            }));
            let note = |state: usize, pair, _| all_joints[state * below + number] = pair;
            self.inner.insert_all(parts, note)?;
        }
        roots.extend((0..count).map(|state| {
            let joints = &all_joints[state * below..(state + 1) * below];
            self.shape.root().pair(&all_words[state * words..(state + 1) * words], joints)
        }));
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
    ) -> Result<(), StoreFull> {
        let done = self.roots.insert_all(&batch.roots, |_, number, is_new| each(number, is_new));
        batch.roots.clear();
        done
    }

    /// Takes a state apart.
    ///
    /// # Panics
    /// When there is no such state.
    pub fn unpack(&self, id: StateId, to: &mut Unpacked) {
        self.shape.unpack(self.roots.get(id), |number| self.inner.get(number), to);
    }

    /// Cuts states elsewhere, once there are many more joints than there need be; numbers of states stay
    /// as they are. Nothing may wait in a batch.
    pub fn reshape(&mut self) {
        if self.len() < self.look_at {
            return;
        }
        self.look_at = self.len().saturating_mul(LOOK_AGAIN_TIMES);
        let may_take = |room: &Room| room.left_bytes() >= self.inner.memory_bytes();
        let joints_max = u64::from(self.len()) * self.shape.below().len() as u64;
        if self.inner.count() < self.len() / STATES_PER_JOINT
            || joints_max >= u64::from(u32::MAX)
            || !self.room.as_ref().is_none_or(may_take)
        {
            return;
        }
        if let Some(cut_at) = shape::better_cut(self) {
            self.cut_elsewhere(cut_at);
        }
    }

    #[cold]
    fn cut_elsewhere(&mut self, cut_at: usize) {
        let shape = self.shape.cut_elsewhere(cut_at);
        let mut other = Self::of(shape, Pairs::new(), Pairs::new());
        let (mut state, mut previous) = (Unpacked::default(), Unpacked::default());
        let mut batch = Batch::default();
        let mut roots = std::mem::replace(&mut self.roots, Pairs::new());
        for id in 0..roots.count() {
            std::mem::swap(&mut roots, &mut self.roots);
            self.unpack(id, &mut state);
            std::mem::swap(&mut roots, &mut self.roots);
            let prepared = other.prepare(&previous, &state.bytes, &mut batch);
            prepared.expect("there are numbers for the joints of so many states");
            batch.keep_parts(&mut previous);
            batch.roots.drain(..).for_each(|root| roots.replace_unindexed(id, root));
        }
        if let Some(room) = &self.room {
            room.exchange(self.inner.memory_bytes(), other.inner.memory_bytes());
            other.inner.limit_memory(room.clone());
        }
        roots.index_all();
        other.roots = roots;
        other.room = self.room.take();
        other.look_at = self.look_at;
        *self = other;
    }
}
