//! A rank that keeps less than its states: a hash of each, or some bits of a table.
//!
//! States that wait for a look are kept whole, and so are those that led to them, rank by rank back to
//! the first: what a search by one rank has on its path. So a state that violates a property is shown by
//! a real run, whatever was missed. A state that leads to nothing that waits is dropped; when the state
//! it was reached from belongs to another rank, that rank is told. Each state is looked at once, the one
//! met last first: that goes deep, finds errors soon and keeps few waiting; runs are not the shortest.

use std::collections::BTreeMap;

use super::marks::Find;
use super::message::{Key, MalformedMessage, Question};
use super::rank::RankError;
use crate::lossy::{LossyStorage, Seen};
use crate::pairs::StoreFull;
use crate::reach::System;

/// Uses that are over are told together, so many or when there is nothing else to do.
const RELEASES_MAX: usize = 64;

/// The rank of the state before the first.
const NOWHERE: u32 = u32::MAX;

/// A state that is kept whole.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// The state it was reached from: its rank and number. Of a free place, the next free one.
    rank: u32,
    parent: u32,
    distance: u32,
    /// Whether it waits, whether it is shown as broken, and the states that were reached from it.
    uses: u32,
}

/// What a rank keeps.
#[derive(Debug)]
pub(super) struct LossyStates {
    me: u32,
    is_full: bool,
    seen: Seen,
    state_bytes: usize,
    /// States of `nodes`, one behind the other.
    states: Vec<u8>,
    nodes: Vec<Node>,
    free: Option<u32>,
    /// States that wait, the last first.
    waiting: Vec<u32>,
    /// Some rank found what was searched for: nothing needs a look any more.
    is_found: bool,
    /// The nearest state that violates a property.
    broken: Option<u32>,
    find: Option<Find>,
    /// Nothing is dropped any more: a run is being asked for.
    is_frozen: bool,
    /// What is kept then, by distance.
    levels: BTreeMap<u32, Vec<u32>>,
    states_count: u64,
    farthest: u32,
    /// Uses of states of each other rank that are over.
    releases: Vec<Vec<(u32, u32)>>,
}

impl LossyStates {
    pub(super) fn new(
        state_bytes: usize,
        is_full: bool,
        kept: LossyStorage,
        me: usize,
        ranks_count: usize,
    ) -> Self {
        Self {
            me: me as u32,
            is_full,
            seen: Seen::new(kept.of_rank(ranks_count)),
            state_bytes,
            states: Vec::new(),
            nodes: Vec::new(),
            free: None,
            waiting: Vec::new(),
            is_found: false,
            broken: None,
            find: None,
            is_frozen: false,
            levels: BTreeMap::new(),
            states_count: 0,
            farthest: 0,
            releases: vec![Vec::new(); ranks_count],
        }
    }

    /// The first state of all.
    pub(super) fn add_first(&mut self, state: &[u8]) -> Result<(), StoreFull> {
        self.add(state, 0, (NOWHERE, 0)).map(drop)
    }

    /// A state reached from the one with number `parent` here.
    pub(super) fn add_own(
        &mut self,
        state: &[u8],
        distance: u32,
        parent: u32,
    ) -> Result<(), StoreFull> {
        let is_new = self.add(state, distance, (self.me, parent))?;
        self.nodes[parent as usize].uses += u32::from(is_new);
        Ok(())
    }

    /// States that another rank reached from one of its own.
    pub(super) fn take_in(
        &mut self,
        from: usize,
        key: Key,
        states: &[u8],
    ) -> Result<(), RankError> {
        let parent =
            u32::try_from(key.origin).map_err(|_too_large| RankError::MalformedMessage { from })?;
        let mut known_count = 0;
        for state in states.chunks_exact(self.state_bytes.max(1)) {
            known_count += u32::from(!self.add(state, key.distance, (from as u32, parent))?);
        }
        if known_count > 0 {
            self.release(from as u32, parent, known_count);
        }
        Ok(())
    }

    fn add(
        &mut self,
        state: &[u8],
        distance: u32,
        (rank, parent): (u32, u32),
    ) -> Result<bool, StoreFull> {
        if !self.seen.add(state) {
            return Ok(false);
        }
        self.states_count += 1;
        self.farthest = self.farthest.max(distance);
        let node = Node { rank, parent, distance, uses: 1 };
        let id = match self.free {
            Some(id) => {
                let at = id as usize;
                let next = self.nodes[at].parent;
                self.free = (next != id).then_some(next);
                self.nodes[at] = node;
                self.states[at * self.state_bytes..][..self.state_bytes].copy_from_slice(state);
                id
            }
            None => {
                let id = u32::try_from(self.nodes.len()).map_err(|_too_many| StoreFull)?;
                grow(&mut self.nodes, 1);
                grow(&mut self.states, self.state_bytes);
                self.nodes.push(node);
                self.states.extend_from_slice(state);
                id
            }
        };
        self.waiting.push(id);
        Ok(true)
    }

    /// The next state to look at, put into `state`: its distance and number.
    pub(super) fn next(&mut self, state: &mut Vec<u8>) -> Option<(u32, u32)> {
        loop {
            let id = self.waiting.pop()?;
            let distance = self.nodes[id as usize].distance;
            if !self.is_found {
                state.clear();
                state.extend_from_slice(self.state(id));
                return Some((distance, id));
            }
            self.release(self.me, id, 1);
        }
    }

    /// A state of another rank was reached from this one.
    pub(super) fn use_more(&mut self, id: u32) {
        self.nodes[id as usize].uses += 1;
    }

    /// A state was looked at.
    pub(super) fn looked_at(&mut self, id: u32, is_broken: bool) {
        let distance = self.nodes[id as usize].distance;
        let before = self.broken;
        let is_nearest =
            before.is_none_or(|before| distance < self.nodes[before as usize].distance);
        if is_broken && is_nearest {
            self.use_more(id);
            self.broken = Some(id);
            if let Some(before) = before {
                self.release(self.me, before, 1);
            }
            if !self.is_full && !self.is_found {
                self.is_found = true;
                self.find = Some(Find { distance, cycle_at: None });
            }
        }
        self.release(self.me, id, 1);
    }

    /// So many uses of a state are over. Drops it with the last of them, and so on back to the first.
    fn release(&mut self, mut rank: u32, mut id: u32, mut count: u32) {
        while rank == self.me {
            let node = &mut self.nodes[id as usize];
            // Never more than there are, unless another rank told of more than it had.
            let is_over = node.uses > 0 && node.uses <= count;
            node.uses = node.uses.saturating_sub(count);
            if !is_over {
                return;
            }
            let before = (node.rank, node.parent);
            node.parent = self.free.unwrap_or(id);
            self.free = Some(id);
            (rank, id) = before;
            count = 1;
        }
        if rank == NOWHERE {
            return;
        }
        let to = &mut self.releases[rank as usize];
        match to.last_mut() {
            Some((last, uses)) if *last == id => *uses += count,
            _ => to.push((id, count)),
        }
    }

    /// What other ranks say of uses that are over.
    pub(super) fn released(&mut self, uses: &[(u32, u32)]) -> Result<(), MalformedMessage> {
        for &(id, count) in uses {
            let known = self.nodes.get(id as usize).ok_or(MalformedMessage)?;
            if known.uses < count {
                return Err(MalformedMessage);
            }
            if count > 0 && !self.is_frozen {
                self.release(self.me, id, count);
            }
        }
        Ok(())
    }

    /// Uses that are over, to be told to this rank; few wait until nothing else is to do.
    pub(super) fn next_release(&mut self, is_idle: bool) -> Option<(usize, Vec<(u32, u32)>)> {
        let is_due = |uses: &Vec<_>| uses.len() >= if is_idle { 1 } else { RELEASES_MAX };
        let rank = self.releases.iter().position(is_due)?;
        Some((rank, std::mem::take(&mut self.releases[rank])))
    }

    /// What was found since the last call.
    pub(super) fn take_find(&mut self) -> Option<Find> {
        self.find.take()
    }

    /// Another rank found what was searched for.
    pub(super) fn was_found(&mut self) {
        self.is_found = true;
    }

    /// Answers a question of rank 0. From the first one on nothing is dropped any more: whatever is
    /// kept then leads back to the first state, over all ranks.
    pub(super) fn reply(
        &mut self,
        system: &mut impl System,
        what: &Question,
    ) -> (Option<Vec<u8>>, u64) {
        self.is_frozen = true;
        match what {
            Question::Broken => self.broken.map_or((None, 0), |id| {
                let distance = self.nodes[id as usize].distance;
                (Some(self.state(id).to_vec()), u64::from(distance))
            }),
            Question::Before { distance, state, .. } => {
                (self.before(system, *distance, state).map(<[u8]>::to_vec), 0)
            }
            // Of accepting cycles, which are not looked for.
            Question::State { .. }
            | Question::Origin { .. }
            | Question::Kept
            | Question::Where { .. } => (None, 0),
        }
    }

    /// A state that was met so far away and leads to `wanted`.
    fn before(&mut self, system: &mut impl System, distance: u32, wanted: &[u8]) -> Option<&[u8]> {
        if self.levels.is_empty() {
            self.levels = self.by_distance();
        }
        let level = self.levels.get(&distance)?;
        let id = level.iter().copied().find(|&id| {
            let mut leads_there = false;
            system.each(self.state(id), |next| leads_there |= next == wanted);
            leads_there
        })?;
        Some(self.state(id))
    }

    /// States kept whole, by their distance.
    fn by_distance(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut levels: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (id, node) in (0..).zip(&self.nodes) {
            if node.uses > 0 {
                levels.entry(node.distance).or_default().push(id);
            }
        }
        levels
    }

    fn state(&self, id: u32) -> &[u8] {
        &self.states[id as usize * self.state_bytes..][..self.state_bytes]
    }

    /// The search is over.
    pub(super) fn end(&mut self) {
        self.waiting.clear();
        self.releases.iter_mut().for_each(Vec::clear);
        self.is_frozen = true;
    }

    pub(super) fn waiting_count(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub(super) fn states_count(&self) -> u64 {
        self.states_count
    }

    /// States kept whole.
    #[cfg(test)]
    pub(super) fn whole_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.uses > 0).count()
    }

    /// Distance of the farthest state.
    pub(super) fn depth(&self) -> u32 {
        self.farthest
    }

    /// Bits set in the table.
    pub(super) fn marked_count(&self) -> u64 {
        self.seen.marked_count()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.seen.memory_bytes()
            + self.states.capacity()
            + self.nodes.capacity() * size_of::<Node>()
            + self.waiting.capacity() * size_of::<u32>()
    }
}

/// Makes room for some more, and not for twice as many: there are millions of them.
fn grow<T>(many: &mut Vec<T>, more: usize) {
    if many.capacity() - many.len() < more {
        many.reserve_exact(more.max(many.len() / 8).max(1024));
    }
}
