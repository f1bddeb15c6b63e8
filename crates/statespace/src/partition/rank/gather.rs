//! States that may be on a cycle that counts, handed to rank 0, whose caller can tell more of them.
//!
//! Which those are is found out as for accepting cycles, but for every demand at once: a state stays while
//! each demand is served on the way to it from states that stay, and one of those leads to it. Of the
//! components of what is left in the end, those that no other leads to serve all demands.

use super::{BATCH_STATES, Key, Rank, RankError, StateId, Unpacked};
use crate::partition::message::{MalformedMessage, NO_ORIGIN, groups};
use crate::partition::{DEMANDS_MAX, Subject};
use crate::store::Store;

/// That a cycle is accepting is one demand more.
const ACCEPTS: u64 = 1 << DEMANDS_MAX;

impl<S: Subject> Rank<S> {
    /// All states that may be on an accepting cycle, once they are here: no step leads out of them. For
    /// rank 0, once.
    pub fn take_gathered(&mut self) -> Option<Store> {
        let is_there = self.lead.as_ref().is_some_and(super::Lead::is_judging);
        if is_there { self.gathered.take() } else { None }
    }

    /// Tells which of them, in their order, are a cycle of the kind that is looked for; none if there is
    /// none. The search then ends, with a way to it. For rank 0 to call.
    pub fn judged(&mut self, cycle: Vec<Vec<u8>>) {
        let orders = self.lead.as_mut().map(|lead| lead.judged(cycle)).unwrap_or_default();
        self.give(orders);
    }

    /// Tells the states that the unpacked one leads to which demands are served on the way to them.
    pub(super) fn tell_served(&mut self, id: StateId, now_us: u64) -> Result<(), RankError> {
        let Self {
            system, store, marks, batch, keys, parent, next, served, mesh, me, home, ..
        } = self;
        let is_accepting = system.is_accepting(parent.bytes());
        next.clear();
        served.clear();
        let own = system.each_serving(parent.bytes(), |demands, state| {
            next.extend_from_slice(state);
            served.push(demands);
        });
        let key = marks.serve(id, own | if is_accepting { ACCEPTS } else { 0 });
        for (state, demands) in next.chunks_exact(parent.bytes().len().max(1)).zip(served) {
            let key = Key { origin: key.origin | *demands, ..key };
            let to = home.of(state);
            if to == *me {
                store.prepare(parent, state, batch)?;
                keys.push(key);
            } else {
                mesh.push(to, key, state, now_us);
            }
        }
        if self.keys.len() >= BATCH_STATES {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes ready for what comes.
    pub(super) fn begin_gathering(&mut self) {
        self.gathered = Some(Store::new(self.system.state_bytes()));
    }

    /// Hands on the state that was unpacked.
    pub(super) fn hand_on(&mut self, now_us: u64) -> Result<(), RankError> {
        let Self { gathered, parent, mesh, .. } = self;
        match gathered.as_mut().filter(|_| self.me == 0) {
            Some(gathered) => {
                gathered.insert(parent.bytes())?;
                gathered.reshape();
            }
            None => mesh.push(0, Key { distance: 0, origin: NO_ORIGIN }, parent.bytes(), now_us),
        }
        Ok(())
    }

    /// States of another rank.
    pub(super) fn gather(&mut self, from: usize, bytes: &[u8]) -> Result<(), RankError> {
        let bad = |MalformedMessage: MalformedMessage| RankError::MalformedMessage { from };
        let state_bytes = self.system.state_bytes();
        let gathered = self.gathered.as_mut().filter(|_| self.me == 0);
        let gathered = gathered.ok_or(RankError::MalformedMessage { from })?;
        for group in groups(bytes, state_bytes) {
            let (_, states) = group.map_err(bad)?;
            for state in states.chunks_exact(state_bytes.max(1)) {
                gathered.insert(state)?;
            }
            gathered.reshape();
        }
        Ok(())
    }

    /// A state of this rank and its distance from the first.
    pub(super) fn where_is(&mut self, state: &[u8]) -> (Option<Vec<u8>>, u64) {
        if state.len() != self.system.state_bytes() || self.home.of(state) != self.me {
            return (None, 0);
        }
        // Asked once a search: no store has to be able to look without adding for it.
        let mut one = Unpacked::default();
        let id = (0..self.store.len()).find(|&id: &StateId| {
            self.store.unpack(id, &mut one);
            one.bytes() == state
        });
        match id.and_then(|id| self.marks.distance_of(id)) {
            Some(distance) => (Some(state.to_vec()), u64::from(distance)),
            None => (None, 0),
        }
    }
}
