//! Breadth-first search of all reachable states.

use crate::pairs::StoreFull;
use crate::store::{Batch, StateId, Store, Unpacked};

/// A system whose states can be searched.
pub trait System {
    /// Length of a state, bytes.
    fn state_bytes(&self) -> usize;

    /// The state it begins in.
    fn initial(&self) -> Vec<u8>;

    /// Calls `visit` with every state that follows; tells how many steps there were.
    fn each(&mut self, state: &[u8], visit: impl FnMut(&[u8])) -> usize;

    /// Whether runs end in this state because of an error. Such a state has no steps and is no deadlock.
    fn is_error(&self, _state: &[u8]) -> bool {
        false
    }
}

/// States whose successors are looked up together.
const BATCH_STATES: usize = 64;

/// A breadth-first search that can be halted anywhere.
#[derive(Debug)]
pub struct Reach<S> {
    system: S,
    store: Store,
    /// The next state whose steps are looked at.
    next: StateId,
    /// Where each level of the search ends; the last is still open.
    levels: Vec<StateId>,
    transitions_count: u64,
    deadlocks_count: u64,
    batch: Batch,
    parent: Unpacked,
    /// How far it was when all successors were last stored.
    mark: Mark,
}

/// How far a search is: everything before it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) next: StateId,
    pub(crate) transitions_count: u64,
    pub(crate) deadlocks_count: u64,
    pub(crate) levels_count: usize,
}

/// How far a search is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// States found.
    pub states_count: u64,
    /// Found, and their steps not yet looked at.
    pub queued_count: u64,
    /// Steps between the states looked at.
    pub transitions_count: u64,
    /// States without a transition.
    pub deadlocks_count: u64,
    /// Steps from the first state to those that are looked at now.
    pub depth: u32,
    /// Memory of the store, bytes.
    pub memory_bytes: usize,
}

impl<S: System> Reach<S> {
    /// A search that has found the first state only.
    ///
    /// # Errors
    /// Never for a fresh store; [`StoreFull`] as [`Store::insert`].
    pub fn new(system: S) -> Result<Self, StoreFull> {
        let mut store = Store::new(system.state_bytes());
        store.insert(&system.initial())?;
        let mark = Mark { next: 0, transitions_count: 0, deadlocks_count: 0, levels_count: 1 };
        Ok(Self::of(system, store, mark, vec![1]))
    }

    /// A search that has come so far.
    pub(crate) fn of(system: S, store: Store, mark: Mark, levels: Vec<StateId>) -> Self {
        Self {
            system,
            store,
            next: mark.next,
            levels,
            transitions_count: mark.transitions_count,
            deadlocks_count: mark.deadlocks_count,
            batch: Batch::default(),
            parent: Unpacked::default(),
            mark,
        }
    }

    /// Its store, how far it is, and where its levels end.
    pub(crate) fn parts(&self) -> (&Store, Mark, &[StateId]) {
        (&self.store, self.mark, &self.levels)
    }

    /// Looks at the steps of up to `states_max` further states; `found` hears each state before its
    /// successors are stored, with the number of its steps, and may end the search by `false`.
    /// Tells whether there is more to do.
    ///
    /// # Errors
    /// [`StoreFull`] when no further state can be numbered.
    pub fn advance(
        &mut self,
        states_max: usize,
        mut found: impl FnMut(StateId, &[u8], usize) -> bool,
    ) -> Result<bool, StoreFull> {
        let mut error = None;
        for _ in 0..states_max {
            if self.next == self.store.len() {
                self.flush()?;
                if self.next == self.store.len() {
                    return Ok(false);
                }
            }
            if self.levels.last() == Some(&self.next) {
                // All of this level have been looked at: what is stored then is the next level.
                self.flush()?;
                self.levels.push(self.store.len());
            }
            self.store.unpack(self.next, &mut self.parent);
            let Self { system, store, batch, parent, .. } = self;
            let steps = system.each(parent.bytes(), |state| {
                if let Err(full) = store.prepare(parent, state, batch) {
                    error = Some(full);
                }
            });
            self.transitions_count += steps as u64;
            let is_deadlock = steps == 0 && !self.system.is_error(self.parent.bytes());
            self.deadlocks_count += u64::from(is_deadlock);
            let id = self.next;
            self.next += 1;
            if let Some(full) = error {
                return Err(full);
            }
            if !found(id, self.parent.bytes(), steps) {
                return Ok(false);
            }
            if self.batch.len() >= BATCH_STATES {
                self.flush()?;
            }
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), StoreFull> {
        self.store.insert_batch(&mut self.batch, |_, _| {})?;
        self.store.reshape();
        self.mark = Mark {
            next: self.next,
            transitions_count: self.transitions_count,
            deadlocks_count: self.deadlocks_count,
            levels_count: self.levels.len(),
        };
        Ok(())
    }

    /// Lets the store take so much memory from now on, bytes; then the search ends with [`StoreFull`].
    pub fn limit_memory(&mut self, bytes: usize) {
        self.store.limit_memory(bytes);
    }

    /// The system that is searched, to be told what it knew.
    pub fn system_mut(&mut self) -> &mut S {
        &mut self.system
    }

    /// The system that is searched.
    #[must_use]
    pub fn system(&self) -> &S {
        &self.system
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            states_count: u64::from(self.store.len()),
            queued_count: u64::from(self.store.len() - self.next),
            transitions_count: self.transitions_count,
            deadlocks_count: self.deadlocks_count,
            depth: self.levels.len() as u32 - 1,
            memory_bytes: self.store.memory_bytes(),
        }
    }

    /// A shortest way from the first state to this one: states, first to last. Found by looking for a
    /// predecessor level by level, so it needs no memory while searching and at most as much time as
    /// the search took.
    pub fn way_to(&mut self, id: StateId) -> Vec<Vec<u8>> {
        let mut state = Unpacked::default();
        self.store.unpack(id, &mut state);
        let mut way = vec![state.bytes().to_vec()];
        let mut level = self.levels.partition_point(|&end| end <= id);
        while level > 0 {
            level -= 1;
            let wanted = way.last().cloned().unwrap_or_default();
            let first = if level == 0 { 0 } else { self.levels[level - 1] };
            for candidate in first..self.levels[level] {
                self.store.unpack(candidate, &mut state);
                let mut leads_there = false;
                self.system.each(state.bytes(), |next| leads_there |= next == wanted);
                if leads_there {
                    way.push(state.bytes().to_vec());
                    break;
                }
            }
        }
        way.reverse();
        way
    }
}
