//! Random graphs as systems, with plain searches of their own.

use std::collections::{HashSet, VecDeque};

use statespace::{Accepting, System};
use stats::Random;

/// A random graph; a node's state is its number, written over `state_bytes` bytes.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub(crate) state_bytes: usize,
    pub(crate) edges: Vec<Vec<usize>>,
    pub(crate) accepting: Vec<bool>,
}

impl Graph {
    pub(crate) fn random(random: &mut Random) -> Self {
        let nodes = 1 + random.below(40) as usize;
        let fan = 1 + random.below(4);
        let edges = (0..nodes)
            .map(|_| {
                (0..random.below(fan + 1)).map(|_| random.below(nodes as u64) as usize).collect()
            })
            .collect();
        let accepting = (0..nodes).map(|_| random.below(5) == 0).collect();
        Self { state_bytes: 1 + random.below(45) as usize, edges, accepting }
    }

    /// The number, then bytes that depend on it, so that the tree's parts differ.
    pub(crate) fn state(&self, node: usize) -> Vec<u8> {
        (0..self.state_bytes).map(|place| (node * (place * place + 1)) as u8).collect()
    }

    pub(crate) fn reachable(&self) -> HashSet<usize> {
        let mut seen = HashSet::from([0]);
        let mut queue = VecDeque::from([0]);
        while let Some(node) = queue.pop_front() {
            queue.extend(self.edges[node].iter().copied().filter(|next| seen.insert(*next)));
        }
        seen
    }

    /// By definition: an accepting reachable node that reaches itself.
    pub(crate) fn has_accepting_cycle(&self) -> bool {
        self.reachable().into_iter().filter(|&node| self.accepting[node]).any(|node| {
            let mut seen = HashSet::new();
            let mut queue = VecDeque::from([node]);
            while let Some(at) = queue.pop_front() {
                queue.extend(self.edges[at].iter().copied().filter(|next| seen.insert(*next)));
            }
            seen.contains(&node)
        })
    }
}

impl System for Graph {
    fn state_bytes(&self) -> usize {
        self.state_bytes
    }
    fn initial(&self) -> Vec<u8> {
        self.state(0)
    }
    fn each(&mut self, state: &[u8], mut visit: impl FnMut(&[u8])) -> usize {
        // One byte tells nodes apart: there are fewer than 256, and the first is the number itself.
        let node = usize::from(state[0]);
        for &next in &self.edges[node] {
            visit(&self.state(next));
        }
        self.edges[node].len()
    }
}

impl Accepting for Graph {
    fn is_accepting(&self, state: &[u8]) -> bool {
        self.accepting[usize::from(state[0])]
    }
}
