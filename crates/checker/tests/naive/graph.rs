//! All that can be reached, and cycles by their definition.

use std::collections::{HashMap, HashSet, VecDeque};

use super::interpreter::State;
use super::tree::Tree;

/// Which processes a run must not leave out for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fair {
    /// Any.
    No,
    /// Those that could always move, from some point on.
    Weak,
    /// Those that could move again and again.
    Strong,
}

/// A state space.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) states: Vec<State>,
    /// Steps from the first state.
    pub(crate) depths: Vec<usize>,
    /// For each state: who acts, and where it leads.
    pub(crate) edges: Vec<Vec<(Vec<usize>, usize)>>,
    pub(crate) accepting: Vec<bool>,
}

impl Graph {
    /// `None` with more than `states_max` states.
    pub(crate) fn of(tree: &Tree, states_max: usize) -> Option<Self> {
        let mut graph = Self::default();
        let mut numbers = HashMap::new();
        let mut queue = VecDeque::from([(tree.initial(), 0)]);
        numbers.insert(tree.initial(), 0);
        while let Some((state, depth)) = queue.pop_front() {
            let mut edges = Vec::new();
            for step in tree.steps(&state) {
                let count = numbers.len();
                let number = *numbers.entry(step.to.clone()).or_insert_with(|| {
                    queue.push_back((step.to, depth + 1));
                    count
                });
                edges.push((step.actors, number));
            }
            graph.accepting.push(tree.is_accepting(&state));
            graph.states.push(state);
            graph.depths.push(depth);
            graph.edges.push(edges);
            if numbers.len() > states_max {
                return None;
            }
        }
        Some(graph)
    }

    pub(crate) fn transitions(&self) -> usize {
        self.edges.iter().map(Vec::len).sum()
    }

    /// States without steps, except those in which an error ended the run.
    pub(crate) fn deadlocks(&self) -> usize {
        let is_deadlock = |(edges, state): &(&Vec<_>, &State)| edges.is_empty() && !state.is_error;
        self.edges.iter().zip(&self.states).filter(is_deadlock).count()
    }

    /// Whether some run visits accepting states for ever and is fair. What a run visits for ever is a
    /// set of states that all reach each other inside it, so each such set is tried; with fairness
    /// only for graphs of few states.
    pub(crate) fn has_accepting_run(&self, fair: Fair, processes: usize) -> bool {
        if fair == Fair::No {
            return (0..self.states.len()).filter(|&state| self.accepting[state]).any(|state| {
                let all: HashSet<usize> = (0..self.states.len()).collect();
                self.from(state, &all).contains(&state)
            });
        }
        let on_cycles: Vec<usize> = (0..self.states.len())
            .filter(|&state| self.from(state, &(0..self.states.len()).collect()).contains(&state))
            .collect();
        assert!(on_cycles.len() <= 12, "too many sets");
        (1usize..1 << on_cycles.len()).any(|bits| {
            let set: HashSet<usize> = (0..on_cycles.len())
                .filter(|place| bits >> place & 1 == 1)
                .map(|place| on_cycles[place])
                .collect();
            set.iter().any(|&state| self.accepting[state])
                && set.iter().all(|&state| self.from(state, &set).len() == set.len())
                && (0..processes).all(|process| self.treats(process, &set, fair))
        })
    }

    pub(crate) fn states_on_cycles(&self) -> usize {
        let all: HashSet<usize> = (0..self.states.len()).collect();
        (0..self.states.len()).filter(|&state| self.from(state, &all).contains(&state)).count()
    }

    /// Whether a run that visits `set` for ever is fair to a process.
    fn treats(&self, process: usize, set: &HashSet<usize>, fair: Fair) -> bool {
        let can =
            |state: &usize| self.edges[*state].iter().any(|(actors, _)| actors.contains(&process));
        let acts = set.iter().any(|&state| {
            self.edges[state]
                .iter()
                .any(|(actors, to)| actors.contains(&process) && set.contains(to))
        });
        acts || match fair {
            Fair::No => true,
            Fair::Weak => !set.iter().all(can),
            Fair::Strong => !set.iter().any(can),
        }
    }

    /// States of a set that one of it reaches in one step or more, inside the set.
    fn from(&self, state: usize, set: &HashSet<usize>) -> HashSet<usize> {
        let mut seen = HashSet::new();
        let mut queue = vec![state];
        while let Some(at) = queue.pop() {
            for (_, to) in &self.edges[at] {
                if set.contains(to) && seen.insert(*to) {
                    queue.push(*to);
                }
            }
        }
        seen
    }
}
