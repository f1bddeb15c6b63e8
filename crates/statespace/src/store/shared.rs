//! States that threads look up and add at the same time: trees of shared pairs.

use std::ops::Range;

use crate::pairs::shared::{Candidate, Numbers, Recent, SharedPairs};
use crate::pairs::{Room, StoreFull};

use super::shape::{Halves, Shape};
use super::{Batch, LOOK_AGAIN_TIMES, LOOK_AT, STATES_PER_JOINT, StateId, Unpacked};

/// A set of states of one length, shared.
#[derive(Debug)]
pub(crate) struct SharedStore {
    shape: Shape,
    pub(crate) inner: SharedPairs,
    pub(crate) roots: SharedPairs,
    room: Room,
    /// So many states, and it looks at its shape again.
    look_at: u32,
}

/// What one thread has of a store: numbers that are its own.
#[derive(Debug, Default)]
pub(crate) struct NumberCache {
    pub(crate) inner: Numbers,
    pub(crate) roots: Numbers,
    recent: Recent,
    likely: Vec<Candidate>,
}

impl SharedStore {
    /// For states of `state_bytes` bytes.
    pub(crate) fn new(state_bytes: usize) -> Self {
        let room = Room::new(usize::MAX);
        let (inner, roots) = (SharedPairs::new(room.clone()), SharedPairs::new(room.clone()));
        Self { shape: Shape::new(state_bytes), inner, roots, room, look_at: LOOK_AT }
    }

    /// Lets it take so much memory from now on, bytes; then every new state is [`StoreFull`].
    pub(crate) fn limit_memory(&mut self, bytes: usize) {
        self.room = Room::new(bytes);
        self.inner.take_from(self.room.clone());
        self.roots.take_from(self.room.clone());
    }

    /// Memory in use, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.roots.memory_bytes() + self.inner.memory_bytes()
    }

    /// Whether an index should grow now.
    #[inline]
    pub(crate) fn wants_more(&self) -> bool {
        self.inner.wants_more() || self.roots.wants_more()
    }

    /// Whether a state was refused for good.
    pub(crate) fn is_full(&self) -> bool {
        self.inner.is_full() || self.roots.is_full()
    }

    /// As [`super::Store::prepare`]. After [`StoreFull`] the same may succeed when the index has grown.
    #[inline]
    pub(crate) fn prepare(
        &self,
        hand: &mut NumberCache,
        parent: &Unpacked,
        state: &[u8],
        batch: &mut Batch,
    ) -> Result<(), StoreFull> {
        let NumberCache { inner, recent, .. } = hand;
        prepare_in(&self.shape, &self.inner, inner, recent, parent, state, batch)
    }

    /// Adds the states of a batch and empties it; `each` hears their numbers and whether they are new.
    /// After [`StoreFull`] those that were not added are still in it.
    pub(crate) fn insert_batch(
        &self,
        hand: &mut NumberCache,
        batch: &mut Batch,
        mut each: impl FnMut(StateId, bool),
    ) -> Result<(), StoreFull> {
        let NumberCache { roots, likely, .. } = hand;
        let done =
            self.roots.insert_all(&batch.roots, roots, likely, |_, id, is_new| each(id, is_new));
        match done {
            Ok(()) => batch.roots.clear(),
            Err((inserted, _full)) => drop(batch.roots.drain(..inserted)),
        }
        done.map_err(|(_, full)| full)
    }

    /// Takes a state apart.
    #[inline]
    pub(crate) fn unpack(&self, id: StateId, to: &mut Unpacked) {
        self.shape.unpack(self.roots.get(id), |number| self.inner.get(number), to);
    }

    /// Whether it is time to see if states should be cut elsewhere, of so many; then what to see with.
    pub(crate) fn time_to_look(&mut self, states_count: u32) -> Option<Halves> {
        if states_count < self.look_at {
            return None;
        }
        self.look_at = states_count.saturating_mul(LOOK_AGAIN_TIMES);
        let joints_max = u64::from(states_count) * self.shape.below().len() as u64;
        let is_worth = self.inner.granted() >= states_count / STATES_PER_JOINT
            && joints_max < u64::from(u32::MAX)
            && self.room.left_bytes() >= self.inner.memory_bytes();
        is_worth.then(|| Halves::new(self.shape.state_bytes(), self.shape.cut_at()))
    }

    /// Cuts states elsewhere, nobody else being about. `ids` are all states; `hands` are told that what
    /// they know of joints is gone.
    pub(crate) fn cut_elsewhere(
        &mut self,
        cut_at: usize,
        ids: &[Range<StateId>],
        hands: &mut [&mut NumberCache],
    ) {
        let shape = self.shape.cut_elsewhere(cut_at);
        let mut inner = SharedPairs::new(Room::new(usize::MAX));
        let (mut numbers, mut recent) = (Numbers::default(), Recent::default());
        let (mut state, mut previous) = (Unpacked::default(), Unpacked::default());
        let mut batch = Batch::default();
        for id in ids.iter().cloned().flatten() {
            self.unpack(id, &mut state);
            let bytes = &state.bytes;
            while prepare_in(
                &shape,
                &inner,
                &mut numbers,
                &mut recent,
                &previous,
                bytes,
                &mut batch,
            )
            .is_err()
            {
                let has_grown = inner.grow_alone();
                assert!(has_grown, "there are numbers for the joints of so many states");
            }
            if inner.wants_more() {
                inner.grow_alone();
            }
            batch.keep_parts(&mut previous);
            batch.roots.drain(..).for_each(|root| self.roots.replace(id, root));
        }
        self.room.exchange(self.inner.memory_bytes(), inner.memory_bytes());
        inner.take_from(self.room.clone());
        (self.shape, self.inner) = (shape, inner);
        let unused: Vec<_> = hands.iter().map(|hand| hand.roots.rest()).collect();
        self.roots.index_alone(&unused);
        for hand in hands.iter_mut() {
            (hand.inner, hand.recent) = (std::mem::take(&mut numbers), Recent::default());
        }
    }
}

fn prepare_in(
    shape: &Shape,
    inner: &SharedPairs,
    numbers: &mut Numbers,
    recent: &mut Recent,
    parent: &Unpacked,
    state: &[u8],
    batch: &mut Batch,
) -> Result<(), StoreFull> {
    shape.to_words(state, &mut batch.words);
    batch.shape = Some(shape.number());
    let mut changed = u64::MAX;
    if parent.shape == batch.shape {
        changed = 0;
        for (place, (old, new)) in parent.words.iter().zip(&batch.words).enumerate() {
            changed |= u64::from(old != new) << place.min(63);
        }
    }
    batch.joints.clear();
    for (number, joint) in shape.below().iter().enumerate() {
        let pair = if changed & joint.words == 0 {
            parent.joints[number]
        } else {
            inner.number(joint.pair(&batch.words, &batch.joints), numbers, recent)?
        };
        batch.joints.push(pair);
    }
    batch.roots.push(shape.root().pair(&batch.words, &batch.joints));
    Ok(())
}
