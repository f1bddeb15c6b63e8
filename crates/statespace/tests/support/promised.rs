//! Random graphs of which some nodes break a promise.

use std::collections::{HashMap, VecDeque};

use statespace::partition::Subject;
use statespace::{Accepting, System};
use stats::Random;

use crate::graph::Graph;

/// A graph of which some nodes break a promise.
#[derive(Debug, Clone)]
pub(crate) struct Promised {
    pub(crate) graph: Graph,
    pub(crate) broken: Vec<bool>,
}

impl System for Promised {
    fn state_bytes(&self) -> usize {
        self.graph.state_bytes()
    }
    fn initial(&self) -> Vec<u8> {
        self.graph.initial()
    }
    fn each(&mut self, state: &[u8], visit: impl FnMut(&[u8])) -> usize {
        self.graph.each(state, visit)
    }
}

impl Accepting for Promised {
    fn is_accepting(&self, state: &[u8]) -> bool {
        self.graph.is_accepting(state)
    }
}

impl Subject for Promised {
    fn is_broken(&mut self, state: &[u8], steps_count: usize) -> bool {
        assert_eq!(steps_count, self.graph.edges[usize::from(state[0])].len());
        self.broken[usize::from(state[0])]
    }
    fn notes(&self) -> Vec<u8> {
        vec![self.graph.edges.len() as u8]
    }
    fn learn(&mut self, notes: &[u8]) {
        assert_eq!(notes, self.notes());
    }
}

impl Promised {
    pub(crate) fn random(random: &mut Random, share: u64) -> Self {
        let graph = Graph::random(random);
        let broken = graph.edges.iter().map(|_| share > 0 && random.below(share) == 0).collect();
        Self { graph, broken }
    }

    /// Distances of all reachable nodes from the first.
    pub(crate) fn distances(&self) -> HashMap<usize, u32> {
        let mut distances = HashMap::from([(0, 0)]);
        let mut queue = VecDeque::from([0]);
        while let Some(node) = queue.pop_front() {
            for &next in &self.graph.edges[node] {
                if !distances.contains_key(&next) {
                    distances.insert(next, distances[&node] + 1);
                    queue.push_back(next);
                }
            }
        }
        distances
    }

    pub(crate) fn follows(&self, way: &[Vec<u8>]) -> bool {
        way.windows(2).all(|pair| {
            self.graph.edges[usize::from(pair[0][0])].contains(&usize::from(pair[1][0]))
        })
    }
}
