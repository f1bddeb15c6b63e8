//! A state space with its edges.

use super::{Acting, Actors};
use crate::pairs::StoreFull;
use crate::reach::Progress;
use crate::store::{Batch, Store, Unpacked};

/// States by number, edges by state.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) actors_count: usize,
    pub(super) accepting: Vec<bool>,
    /// Where the edges of a state begin; those of the next state follow.
    begins: Vec<usize>,
    pub(super) targets: Vec<u32>,
    /// Who acts: number and one, in 16 bits each; 0 is nobody.
    labels: Vec<u32>,
}

impl Graph {
    pub(super) fn len(&self) -> usize {
        self.begins.len()
    }

    pub(super) fn edges_begin(&self, state: u32) -> usize {
        self.begins[state as usize]
    }

    pub(super) fn edges_end(&self, state: u32) -> usize {
        self.begins.get(state as usize + 1).copied().unwrap_or(self.targets.len())
    }

    /// Targets and who acts.
    pub(super) fn edges(&self, state: u32) -> impl Iterator<Item = (u32, Actors)> {
        let range = self.edges_begin(state)..self.edges_end(state);
        self.targets[range.clone()].iter().copied().zip(self.labels[range].iter().map(|&label| {
            let actor = |bits: u32| (bits as u16).checked_sub(1);
            Actors([actor(label), actor(label >> 16)])
        }))
    }

    fn memory_bytes(&self) -> usize {
        self.accepting.capacity()
            + 8 * self.begins.capacity()
            + 4 * (self.targets.capacity() + self.labels.capacity())
    }
}

/// Finds all states, breadth first.
#[derive(Debug)]
pub(super) struct Explorer<S> {
    pub(super) system: S,
    store: Store,
    pub(super) graph: Graph,
    batch: Batch,
    parent: Unpacked,
    /// The state that runs begin with, if it is among them.
    pub(super) begins_at: Option<u32>,
    /// Where the level at hand ends.
    level_end: u32,
    depth: u32,
}

impl<S: Acting> Explorer<S> {
    pub(super) fn new(system: S) -> Result<Self, StoreFull> {
        let mut store = Store::new(system.state_bytes());
        store.insert(&system.initial())?;
        Ok(Self { begins_at: Some(0), ..Self::within(system, store) })
    }

    /// With all the states there are.
    pub(super) fn within(system: S, store: Store) -> Self {
        let graph = Graph { actors_count: system.actors_count(), ..Graph::default() };
        let (batch, parent) = (Batch::default(), Unpacked::default());
        let level_end = store.len();
        Self { system, store, graph, batch, parent, begins_at: None, level_end, depth: 0 }
    }

    /// Looks at up to `states_max` further states; tells whether there are more.
    pub(super) fn advance(&mut self, states_max: usize) -> Result<bool, StoreFull> {
        for _ in 0..states_max {
            let number = self.graph.len() as u32;
            if number == self.store.len() {
                return Ok(false);
            }
            if number == self.level_end {
                self.level_end = self.store.len();
                self.depth += 1;
            }
            self.store.unpack(number, &mut self.parent);
            let Self { system, store, graph, batch, parent, .. } = self;
            graph.accepting.push(system.is_accepting(parent.bytes()));
            graph.begins.push(graph.targets.len());
            let mut error = None;
            system.each_acting(parent.bytes(), |actors, next| {
                let [one, other] =
                    actors.0.map(|actor| actor.map_or(0, |actor| u32::from(actor) + 1));
                graph.labels.push(one | other << 16);
                error = error.or(store.prepare(parent, next, batch).err());
            });
            store.insert_batch(batch, |id, _| graph.targets.push(id))?;
            store.reshape();
            if let Some(full) = error {
                return Err(full);
            }
        }
        Ok(true)
    }

    pub(super) fn progress(&self) -> Progress {
        let looked_at = self.graph.len() as u64;
        Progress {
            states_count: u64::from(self.store.len()),
            queued_count: u64::from(self.store.len()) - looked_at,
            transitions_count: self.graph.targets.len() as u64,
            deadlocks_count: 0,
            depth: self.depth,
            memory_bytes: self.store.memory_bytes() + self.graph.memory_bytes(),
        }
    }

    pub(super) fn state(&self, number: u32) -> Vec<u8> {
        let mut state = Unpacked::default();
        self.store.unpack(number, &mut state);
        state.bytes().to_vec()
    }
}
