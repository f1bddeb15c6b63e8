//! What a rank does otherwise that keeps less than its states.

use super::{Rank, RankError};
use crate::lossy::LossyStorage;
use crate::partition::home::hash;
use crate::partition::message::{Key, Message};
use crate::partition::thin::LossyStates;
use crate::partition::{Goal, Subject};

/// States that were sent are known whatever their distance.
const SENT: u32 = 1;

impl<S: Subject> Rank<S> {
    /// As [`Self::new`], but keeping less than the states: looks for violations, each shown by a
    /// real run that need not be a shortest, and may miss all. All ranks share a table of bits out.
    ///
    /// # Errors
    /// Never for a fresh rank; [`RankError::StoreFull`].
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn lossy(
        system: S,
        is_full: bool,
        kept: LossyStorage,
        me: usize,
        ranks_count: usize,
    ) -> Result<Self, RankError> {
        let mut rank = Self::empty(system, Goal::BadState { is_full }, me, ranks_count);
        let initial = rank.system.initial();
        let mut thin = LossyStates::new(initial.len(), is_full, kept, me, ranks_count);
        if rank.home.of(&initial) == me {
            thin.add_first(&initial)?;
        }
        rank.thin = Some(thin);
        Ok(rank)
    }

    pub(super) fn expand_some_thin(
        &mut self,
        states_max: usize,
        now_us: u64,
    ) -> Result<bool, RankError> {
        for done in 0..states_max {
            if !self.expand_thin(now_us)? {
                return Ok(done > 0);
            }
        }
        Ok(true)
    }

    /// Looks at the steps of the next state, if there is one.
    fn expand_thin(&mut self, now_us: u64) -> Result<bool, RankError> {
        let Self { system, thin, current, next, mesh, sent, me, home, .. } = self;
        let Some(thin) = thin else { return Ok(false) };
        let Some((distance, id)) = thin.next(current) else { return Ok(false) };
        next.clear();
        let steps_count = system.each(current, |state| next.extend_from_slice(state));
        let key = Key { distance: distance + 1, origin: u64::from(id) };
        for state in next.chunks_exact(current.len().max(1)) {
            let to = home.of(state);
            if to == *me {
                thin.add_own(state, key.distance, id)?;
            } else if !sent.knows(hash(state), state, SENT) {
                mesh.push(to, key, state, now_us);
                thin.use_more(id);
            }
        }
        thin.looked_at(id, system.is_broken(current, steps_count));
        self.transitions_count += steps_count as u64;
        self.deadlocks_count += u64::from(steps_count == 0 && !system.is_error(current));
        Ok(true)
    }

    /// Tells other ranks which of their states are not used here any more.
    pub(super) fn tell_releases(&mut self) {
        let is_idle = self.has_nothing_queued();
        let Some(thin) = &mut self.thin else { return };
        while let Some((to, uses)) = thin.next_release(is_idle) {
            self.mesh.letter(to, &Message::Release(uses));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::Accepting;
    use crate::reach::System;

    /// Three counters that go up to 40; all steps at the end lead nowhere.
    #[derive(Debug, Clone)]
    struct Counters;

    impl System for Counters {
        fn state_bytes(&self) -> usize {
            3
        }
        fn initial(&self) -> Vec<u8> {
            vec![0; 3]
        }
        fn each(&mut self, state: &[u8], mut visit: impl FnMut(&[u8])) -> usize {
            let up: Vec<usize> = (0..3).filter(|&place| state[place] < 40).collect();
            for &place in &up {
                let mut next = state.to_vec();
                next[place] += 1;
                visit(&next);
            }
            up.len()
        }
    }

    impl Accepting for Counters {
        fn is_accepting(&self, _state: &[u8]) -> bool {
            false
        }
    }

    impl Subject for Counters {
        fn is_broken(&mut self, state: &[u8], _steps_count: usize) -> bool {
            *state == [40, 40, 40]
        }
        fn notes(&self) -> Vec<u8> {
            Vec::new()
        }
    }

    #[test]
    fn only_the_states_of_one_run_are_kept_whole_at_the_end() {
        let rank = |me| Rank::lossy(Counters, true, LossyStorage::HashCompaction, me, 3).unwrap();
        let mut ranks: Vec<_> = (0..3).map(rank).collect();
        let (mut most, mut left) = (0, 0);
        for now_us in (0..100_000).step_by(100) {
            for me in 0..3 {
                ranks[me].work(100, now_us).unwrap();
                while let Some((to, message)) = ranks[me].poll(now_us) {
                    // Nobody asks whether all is done: the ranks tidy up to the end.
                    if !matches!(Message::decode(&message), Ok((Message::Probe { .. }, _))) {
                        ranks[to].handle(me, &message).unwrap();
                    }
                }
            }
            let whole = ranks.iter().filter_map(|rank| rank.thin.as_ref());
            left = whole.map(LossyStates::whole_count).sum::<usize>();
            most = left.max(most);
        }
        let states: u64 = ranks.iter().map(|rank| rank.figures().states_count).sum();
        assert_eq!((states, left), (41 * 41 * 41, 121), "the run has 120 steps");
        assert!((200..30_000).contains(&most), "{most} states were kept whole at once");
    }
}
