//! What one thread of a search works with.

use std::ops::Range;

use super::BATCH_STATES;
use super::far::{Away, Far};
use crate::pairs::StoreFull;
use crate::partition::Subject;
use crate::store::shared::{NumberCache, SharedStore};
use crate::store::{Batch, StateId, Unpacked};

/// What one thread works with; its own while it works.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) hand: NumberCache,
    /// States of this level it still has to look at.
    pub(super) rest: Range<StateId>,
    /// New states.
    pub(super) found: Vec<Range<StateId>>,
    pub(super) batch: Batch,
    pub(super) parent: Unpacked,
    pub(super) broken: Option<StateId>,
    pub(super) counts: Counts,
    /// States that are on their way to other hosts, if there are any.
    pub(super) away: Option<Away>,
    /// A batch from another host: the host, and what is still to be added.
    incoming: Option<(usize, Vec<u8>, usize)>,
    /// The state that was added last.
    previous: Unpacked,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) found: u64,
    pub(super) looked: u64,
    pub(super) transitions: u64,
    pub(super) deadlocks: u64,
}

impl Seat {
    pub(super) fn new(far: Option<&Far>) -> Self {
        Self { away: far.map(Away::new), ..Self::default() }
    }

    /// Whether it has begun something that is to be done before the level is over.
    pub(super) fn is_begun(&self) -> bool {
        !self.rest.is_empty() || !self.batch.is_empty() || self.incoming.is_some()
    }

    /// Puts a state to those that wait to be added.
    pub(super) fn add(&mut self, store: &SharedStore, state: &[u8]) -> Result<(), StoreFull> {
        let Self { hand, previous, batch, .. } = self;
        store.prepare(hand, previous, state, batch)?;
        batch.keep_parts(previous);
        Ok(())
    }

    /// Adds the states of batches that came from other hosts. What is left after [`StoreFull`] is added the next time.
    pub(super) fn take_in(&mut self, far: &Far, store: &SharedStore) -> Result<(), StoreFull> {
        let length = far.state_bytes();
        loop {
            let next = || far.take().map(|(from, states)| (from, states, 0));
            let Some((from, states, mut at)) = self.incoming.take().or_else(next) else {
                return Ok(());
            };
            let mut done = Ok(());
            while let (Ok(()), Some(state)) = (done, states.get(at..at + length)) {
                done = self.add(store, state);
                if done.is_ok() {
                    at += length;
                    if self.batch.len() >= BATCH_STATES {
                        done = self.flush(store);
                    }
                }
            }
            if done.is_err() {
                self.incoming = Some((from, states, at));
                return done;
            }
            far.added(from);
        }
    }

    /// Looks at the steps of its next state; how many there are. After [`StoreFull`] it is still the next.
    #[inline]
    pub(super) fn expand(
        &mut self,
        store: &SharedStore,
        system: &mut impl Subject,
        far: Option<&Far>,
        level: u32,
    ) -> Result<usize, StoreFull> {
        let Self { hand, rest, batch, parent, counts, away, .. } = self;
        store.unpack(rest.start, parent);
        let mut done = Ok(());
        let mut keep = |state: &[u8]| {
            if done.is_ok() {
                done = store.prepare(hand, parent, state, batch);
            }
        };
        // Two loops: without other hosts a step asks nobody whose its state is.
        let steps = match (far, away) {
            (Some(far), Some(away)) => system.each(parent.bytes(), |state| {
                if !away.takes(far, level, state) {
                    keep(state);
                }
            }),
            _ => system.each(parent.bytes(), keep),
        };
        done?;
        rest.start += 1;
        counts.looked += 1;
        counts.transitions += steps as u64;
        counts.deadlocks += u64::from(steps == 0 && !system.is_error(parent.bytes()));
        Ok(steps)
    }

    /// Adds the states that wait.
    pub(super) fn flush(&mut self, store: &SharedStore) -> Result<(), StoreFull> {
        let Self { hand, batch, found, counts, .. } = self;
        store.insert_batch(hand, batch, |id, is_new| {
            if is_new {
                counts.found += 1;
                match found.last_mut() {
                    Some(row) if row.end == id => row.end += 1,
                    _ => found.push(id..id + 1),
                }
            }
        })
    }
}
