//! Accepting runs that are fair to their processes, by strongly connected components (Emerson and Lei
//! 1987; for strong fairness, components without the states that starve somebody, again and again).
//!
//! The whole state space is stored first, with its edges: 8 bytes each and 21 a state beside the
//! store. A fair run is infinite; a process is left out of it when it moves only finitely often.

mod graph;
mod tour;

use crate::cycle::{Accepting, Lasso};
use crate::pairs::StoreFull;
use crate::reach::Progress;
use crate::store::Store;
use graph::{Explorer, Graph};

/// Whom a run must not leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fairness {
    /// A process that could move in every state from some point on (justice).
    Weak,
    /// A process that could move in infinitely many states (compassion).
    Strong,
}

/// Who takes a step: at most two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Actors(pub [Option<u16>; 2]);

impl Actors {
    /// The processes.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().flatten().map(usize::from)
    }
}

/// A system that knows who moves.
pub trait Acting: Accepting {
    /// How many processes there are; [`Actors`] are below.
    fn actors_count(&self) -> usize;

    /// As [`crate::System::each`], with who takes the step.
    fn each_acting(&mut self, state: &[u8], visit: impl FnMut(Actors, &[u8])) -> usize;
}

/// A fair run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FairLasso {
    /// Its states.
    pub lasso: Lasso,
    /// Who takes the step out of each state, the cycle's after the prefix's.
    pub actors: Vec<Actors>,
}

/// What a portion of a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FairFound {
    /// There is more to look at.
    More,
    /// No fair run visits accepting states forever.
    NoCycle,
    /// One does.
    Cycle(FairLasso),
}

/// A search for fair accepting runs that can be halted anywhere.
#[derive(Debug)]
pub struct FairSearch<S> {
    explorer: Explorer<S>,
    fairness: Fairness,
    components: Option<Components>,
}

impl<S: Acting> FairSearch<S> {
    /// The system that is searched.
    #[must_use]
    pub fn system(&self) -> &S {
        &self.explorer.system
    }

    /// A search that has not begun.
    ///
    /// # Errors
    /// As [`crate::Store::insert`].
    pub fn new(system: S, fairness: Fairness) -> Result<Self, StoreFull> {
        Ok(Self { explorer: Explorer::new(system)?, fairness, components: None })
    }

    /// A search among these states, out of which no step must lead: no run comes to them, so what is
    /// found has no prefix.
    #[must_use]
    pub fn within(system: S, fairness: Fairness, states: Store) -> Self {
        Self { explorer: Explorer::within(system, states), fairness, components: None }
    }

    /// Goes on for `moves_max` states, first to find them and then to sort them into components.
    ///
    /// # Errors
    /// As [`crate::Store::insert`].
    pub fn advance(&mut self, moves_max: usize) -> Result<FairFound, StoreFull> {
        if self.components.is_none() {
            if self.explorer.advance(moves_max)? {
                return Ok(FairFound::More);
            }
            self.components = Some(Components::new(self.explorer.graph.len()));
        }
        let Some(components) = &mut self.components else { return Ok(FairFound::More) };
        for _ in 0..moves_max {
            match components.advance(&self.explorer.graph) {
                Walked::On => {}
                Walked::Done => return Ok(FairFound::NoCycle),
                Walked::Component(states) => {
                    if let Some(wanted) =
                        components.judge(&self.explorer.graph, states, self.fairness)
                    {
                        return Ok(FairFound::Cycle(self.explorer.lasso(&wanted)));
                    }
                }
            }
        }
        Ok(FairFound::More)
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut progress = self.explorer.progress();
        progress.memory_bytes += self.components.as_ref().map_or(0, Components::memory_bytes);
        progress
    }
}

/// A set of actors.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ActorSet(Vec<u64>);

impl ActorSet {
    fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn add(&mut self, actor: usize) {
        self.0[actor / 64] |= 1 << (actor % 64);
    }

    fn has(&self, actor: usize) -> bool {
        self.0[actor / 64] >> (actor % 64) & 1 == 1
    }

    fn zip(&mut self, other: &Self, join: impl Fn(u64, u64) -> u64) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one = join(*one, *other));
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }
}

/// A component in which fair accepting runs live, and whom they must serve.
#[derive(Debug)]
struct FairComponent {
    states: Vec<u32>,
    /// Must move on the cycle.
    acts: ActorSet,
    /// Must be unable to move somewhere on it.
    rests: ActorSet,
}

/// Strongly connected components by depth-first search (Tarjan 1972), inside regions.
#[derive(Debug)]
struct Components {
    /// Order of the first visit, from 1; 0: not visited.
    order: Vec<u32>,
    low: Vec<u32>,
    is_stacked: Vec<bool>,
    /// Edges count only between states of one region.
    region: Vec<u32>,
    regions_count: u32,
    visited_count: u32,
    stack: Vec<u32>,
    /// State, next edge.
    path: Vec<(u32, usize)>,
    /// The next state to begin with, and those of regions to be looked at again.
    next_root: u32,
    again: Vec<u32>,
}

enum Walked {
    On,
    Done,
    Component(Vec<u32>),
}

impl Components {
    fn new(count: usize) -> Self {
        Self {
            order: vec![0; count],
            low: vec![0; count],
            is_stacked: vec![false; count],
            region: vec![0; count],
            regions_count: 1,
            visited_count: 0,
            stack: Vec::new(),
            path: Vec::new(),
            next_root: 0,
            again: Vec::new(),
        }
    }

    fn memory_bytes(&self) -> usize {
        let words = self.order.capacity() + self.low.capacity() + self.region.capacity();
        4 * (words + self.stack.capacity() + self.again.capacity())
            + self.is_stacked.capacity()
            + self.path.capacity() * size_of::<(u32, usize)>()
    }

    /// One move of the depth-first search.
    fn advance(&mut self, graph: &Graph) -> Walked {
        let Some(&mut (state, ref mut edge)) = self.path.last_mut() else {
            return self.begin(graph);
        };
        let here = state as usize;
        if *edge < graph.edges_end(state) {
            let next = graph.targets[*edge] as usize;
            *edge += 1;
            if self.region[next] != self.region[here] {
            } else if self.order[next] == 0 {
                self.enter(next as u32, graph);
            } else if self.is_stacked[next] {
                self.low[here] = self.low[here].min(self.order[next]);
            }
            return Walked::On;
        }
        self.path.pop();
        if let Some(&(parent, _)) = self.path.last() {
            let parent = parent as usize;
            self.low[parent] = self.low[parent].min(self.low[here]);
        }
        if self.low[here] != self.order[here] {
            return Walked::On;
        }
        let first = self.stack.iter().rposition(|&one| one == state).unwrap_or(0);
        let states = self.stack.split_off(first);
        states.iter().for_each(|&one| self.is_stacked[one as usize] = false);
        Walked::Component(states)
    }

    fn begin(&mut self, graph: &Graph) -> Walked {
        while let Some(state) = self.again.pop() {
            if self.order[state as usize] == 0 {
                self.enter(state, graph);
                return Walked::On;
            }
        }
        while (self.next_root as usize) < self.order.len() {
            let state = self.next_root;
            self.next_root += 1;
            if self.order[state as usize] == 0 {
                self.enter(state, graph);
                return Walked::On;
            }
        }
        Walked::Done
    }

    fn enter(&mut self, state: u32, graph: &Graph) {
        // At most 2^32 - 1 states, but a region may be visited again: orders only need to tell
        // states on the stack apart, and a fresh path may begin with any number above.
        self.visited_count = if self.path.is_empty() { 1 } else { self.visited_count + 1 };
        self.order[state as usize] = self.visited_count;
        self.low[state as usize] = self.visited_count;
        self.is_stacked[state as usize] = true;
        self.stack.push(state);
        self.path.push((state, graph.edges_begin(state)));
    }

    /// Whether fair accepting runs live in a component; where only a part of it can hold some, that
    /// part is looked at again.
    fn judge(
        &mut self,
        graph: &Graph,
        states: Vec<u32>,
        fairness: Fairness,
    ) -> Option<FairComponent> {
        let region = self.regions_count;
        self.regions_count += 1;
        states.iter().for_each(|&state| self.region[state as usize] = region);
        if !states.iter().any(|&state| graph.accepting[state as usize]) {
            return None;
        }
        let none = ActorSet::none(graph.actors_count);
        let (mut acts, mut ever, mut always) = (none.clone(), none.clone(), none.clone());
        always.0.fill(u64::MAX);
        let mut has_edge = false;
        for &state in &states {
            let mut able = none.clone();
            for (target, actors) in graph.edges(state) {
                let is_inside = self.region[target as usize] == region;
                has_edge |= is_inside;
                for actor in actors.iter() {
                    able.add(actor);
                    if is_inside {
                        acts.add(actor);
                    }
                }
            }
            ever.zip(&able, |all, one| all | one);
            always.zip(&able, |all, one| all & one);
        }
        if !has_edge {
            return None;
        }
        let mut starved = if fairness == Fairness::Weak { always } else { ever };
        starved.zip(&acts, |able, acts| able & !acts);
        if starved.is_empty() {
            let mut rests = none;
            if fairness == Fairness::Weak {
                rests.0.fill(u64::MAX);
                rests.zip(&acts, |all, acts| all & !acts);
            }
            return Some(FairComponent { states, acts, rests });
        }
        if fairness == Fairness::Strong {
            self.split(graph, states, &starved);
        }
        None
    }

    /// Puts aside the states that could move somebody who never moves, and looks at the rest again.
    fn split(&mut self, graph: &Graph, states: Vec<u32>, starved: &ActorSet) {
        let starves = |state: u32| {
            graph.edges(state).any(|(_, actors)| actors.iter().any(|actor| starved.has(actor)))
        };
        let (out, rest): (Vec<u32>, Vec<u32>) = states.into_iter().partition(|&one| starves(one));
        let region = self.regions_count;
        self.regions_count += 1;
        out.iter().for_each(|&state| self.region[state as usize] = region);
        rest.iter().for_each(|&state| self.order[state as usize] = 0);
        self.again.extend(rest);
    }
}
