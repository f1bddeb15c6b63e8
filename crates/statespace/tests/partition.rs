//! Ranks that search together, every message late or early by chance, against plain searches.

#[path = "support/graph.rs"]
mod graph;

use std::collections::{HashMap, VecDeque};

use graph::Graph;
use statespace::partition::{Aim, Ending, Figures, Outcome, Rank, Subject};
use statespace::{Accepting, System};
use stats::Random;

/// A graph of which some nodes break a promise.
#[derive(Debug, Clone)]
struct Promised {
    graph: Graph,
    broken: Vec<bool>,
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
}

impl Promised {
    fn random(random: &mut Random, share: u64) -> Self {
        let graph = Graph::random(random);
        let broken = graph.edges.iter().map(|_| share > 0 && random.below(share) == 0).collect();
        Self { graph, broken }
    }

    /// Distances of all reachable nodes from the first.
    fn distances(&self) -> HashMap<usize, u32> {
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

    fn follows(&self, way: &[Vec<u8>]) -> bool {
        way.windows(2).all(|pair| {
            self.graph.edges[usize::from(pair[0][0])].contains(&usize::from(pair[1][0]))
        })
    }
}

/// Runs ranks to the end; who goes on and which message arrives next is chance, but messages between
/// two ranks keep their order. `stop_after`: rank 0 is told to stop after so many turns.
fn run(
    system: &Promised,
    aim: Aim,
    ranks_count: usize,
    random: &mut Random,
    stop_after: Option<usize>,
) -> Outcome {
    let new = |me| Rank::new(system.clone(), aim, me, ranks_count).unwrap();
    let mut ranks: Vec<Rank<Promised>> = (0..ranks_count).map(new).collect();
    let mut lines = vec![VecDeque::new(); ranks_count * ranks_count];
    let mut now_us = 0;
    for turn in 0..1_000_000 {
        now_us += random.below(300);
        if stop_after == Some(turn) {
            ranks[0].stop();
        }
        let me = random.below(ranks_count as u64) as usize;
        if random.below(2) == 0 {
            let from = random.below(ranks_count as u64) as usize;
            if let Some(message) = lines[from * ranks_count + me].pop_front() {
                let message: Vec<u8> = message;
                ranks[me].handle(from, &message).unwrap();
            }
        } else {
            ranks[me].work(1 + random.below(4) as usize, now_us).unwrap();
        }
        while let Some((to, message)) = ranks[me].poll(now_us) {
            assert_ne!(to, me);
            lines[me * ranks_count + to].push_back(message);
        }
        if ranks.iter().all(Rank::has_ended) {
            return ranks[0].outcome().unwrap();
        }
    }
    panic!("{ranks_count} ranks hang: {system:?}");
}

#[test]
fn all_ranks_together_find_what_a_plain_search_finds() {
    let mut random = Random::from_seed(21);
    for round in 0..1500 {
        let system = Promised::random(&mut random, 0);
        let ranks_count = 1 + round % 5;
        let aim = Aim::Broken { is_full: round % 2 == 0 };
        let outcome = run(&system, aim, ranks_count, &mut random, None);
        assert_eq!(outcome.ending, Ending::Nothing);
        assert_eq!(outcome.notes.len(), ranks_count);
        let distances = system.distances();
        let total = Figures::total(&outcome.figures);
        let edges: usize = distances.keys().map(|&node| system.graph.edges[node].len()).sum();
        let stuck = distances.keys().filter(|&&node| system.graph.edges[node].is_empty()).count();
        let counts = (total.states_count, total.transitions_count, total.deadlocks_count);
        assert_eq!(counts, (distances.len() as u64, edges as u64, stuck as u64));
        assert_eq!(total.depth, u64::from(*distances.values().max().unwrap()));
        assert_eq!(total.queued_count, 0);
    }
}

#[test]
fn a_broken_promise_is_shown_by_a_shortest_run() {
    let mut random = Random::from_seed(22);
    let mut violated = 0;
    for round in 0..1500 {
        let system = Promised::random(&mut random, 12);
        let aim = Aim::Broken { is_full: round % 3 == 0 };
        let outcome = run(&system, aim, 1 + round % 4, &mut random, None);
        let distances = system.distances();
        let nearest = distances
            .iter()
            .filter(|(node, _)| system.broken[**node])
            .map(|(_, distance)| *distance)
            .min();
        match (outcome.ending, nearest) {
            (Ending::Nothing, None) => {}
            (Ending::Broken(way), Some(nearest)) => {
                violated += 1;
                assert_eq!(way.len(), nearest as usize + 1);
                assert!(system.follows(&way) && way[0] == system.initial());
                assert!(system.broken[usize::from(way[way.len() - 1][0])]);
            }
            (ending, nearest) => panic!("{ending:?}, but the nearest is at {nearest:?}"),
        }
    }
    assert!((300..1400).contains(&violated), "{violated} of 1500 is no fair mixture");
}

#[test]
fn accepting_cycles_are_found_and_no_others() {
    let mut random = Random::from_seed(23);
    let mut cycles = 0;
    for round in 0..2500 {
        let system = Promised::random(&mut random, 0);
        let outcome = run(&system, Aim::Cycle, 1 + round % 4, &mut random, None);
        match outcome.ending {
            Ending::Nothing => assert!(!system.graph.has_accepting_cycle(), "{system:?}"),
            Ending::Cycle(lasso) => {
                cycles += 1;
                let all = [&lasso.prefix[..], &lasso.cycle, &lasso.cycle[..1]].concat();
                assert_eq!(all[0], system.initial());
                assert!(system.follows(&all), "{lasso:?} {system:?}");
                assert!(lasso.cycle.iter().any(|state| system.is_accepting(state)));
            }
            ending => panic!("{ending:?}"),
        }
    }
    assert!((250..2250).contains(&cycles), "{cycles} of 2500 is no fair mixture");
}

#[test]
fn a_search_can_be_stopped_anywhere() {
    let mut random = Random::from_seed(24);
    let mut stopped = 0;
    for round in 0..500 {
        let system = Promised::random(&mut random, 0);
        let aim = if round % 2 == 0 { Aim::Cycle } else { Aim::Broken { is_full: true } };
        let after = random.below(200) as usize;
        let outcome = run(&system, aim, 1 + round % 3, &mut random, Some(after));
        stopped += u32::from(outcome.ending == Ending::Stopped);
    }
    assert!(stopped > 50, "only {stopped} of 500 were stopped before their end");
}

#[test]
fn what_is_no_message_ends_the_rank_and_never_panics() {
    let system = Promised::random(&mut Random::from_seed(25), 0);
    bolero::check!().for_each(|bytes: &[u8]| {
        for aim in [Aim::Cycle, Aim::Broken { is_full: true }] {
            let mut rank = Rank::new(system.clone(), aim, 1, 2).unwrap();
            // States come from ranks that run the same program; everything else is looked at.
            if bytes.first().is_some_and(|kind| *kind != 0) {
                rank.handle(0, bytes).ok();
                rank.work(10, 0).ok();
            }
        }
    });
}
