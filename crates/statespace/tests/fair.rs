//! Fair runs of random graphs, against their definition.

use std::collections::{HashSet, VecDeque};

use statespace::partition::{Ending, Goal, Rank, Subject, each_serving};
use statespace::{Accepting, Acting, Actors, FairFound, FairLasso, FairSearch, Fairness, System};
use stats::Random;

const ACTORS: usize = 3;

/// A node's state is its number; edges say who acts.
#[derive(Debug, Clone)]
struct Graph {
    edges: Vec<Vec<(Actors, usize)>>,
    accepting: Vec<bool>,
}

impl Graph {
    fn random(random: &mut Random) -> Self {
        let nodes = 1 + random.below(9);
        let fan = 1 + random.below(4);
        let actor = |random: &mut Random| random.below(ACTORS as u64) as u16;
        let node = |random: &mut Random| {
            let edge = |random: &mut Random| {
                let one = random.chance(0.9).then(|| actor(random));
                let other = random.chance(0.2).then(|| actor(random));
                (Actors([one, other]), random.below(nodes) as usize)
            };
            let count = random.below(fan + 1);
            (0..count).map(|_| edge(random)).collect()
        };
        let edges = (0..nodes).map(|_| node(random)).collect();
        Self { edges, accepting: (0..nodes).map(|_| random.below(4) == 0).collect() }
    }

    /// States of a set that one reaches in a step or more, inside the set.
    fn from(&self, state: usize, set: &HashSet<usize>) -> HashSet<usize> {
        let (mut seen, mut queue) = (HashSet::new(), vec![state]);
        while let Some(at) = queue.pop() {
            let next = self.edges[at].iter().map(|(_, to)| *to);
            queue.extend(next.filter(|to| set.contains(to) && seen.insert(*to)));
        }
        seen
    }

    fn able(&self, state: usize, actor: usize) -> bool {
        self.edges[state].iter().any(|(actors, _)| actors.iter().any(|one| one == actor))
    }

    /// By definition: some set of reachable states that all reach each other in it, one of them
    /// accepting, is fair to everybody.
    fn has_fair_run(&self, fairness: Fairness) -> bool {
        let all: HashSet<usize> = (0..self.edges.len()).collect();
        let mut reachable = self.from(0, &all);
        reachable.insert(0);
        (1usize..1 << self.edges.len()).any(|bits| {
            let set: HashSet<usize> =
                all.iter().copied().filter(|one| bits >> one & 1 == 1).collect();
            set.is_subset(&reachable)
                && set.iter().any(|&state| self.accepting[state])
                && set.iter().all(|&state| self.from(state, &set) == set)
                && (0..ACTORS).all(|actor| {
                    let acts = set.iter().any(|&state| {
                        self.edges[state].iter().any(|(actors, to)| {
                            set.contains(to) && actors.iter().any(|one| one == actor)
                        })
                    });
                    let mut states = set.iter();
                    acts || match fairness {
                        Fairness::Weak => !states.all(|&state| self.able(state, actor)),
                        Fairness::Strong => !states.any(|&state| self.able(state, actor)),
                    }
                })
        })
    }

    /// The run follows edges, its cycle is accepting and fair.
    fn assert_run(&self, found: &FairLasso, fairness: Fairness) {
        let FairLasso { lasso, actors } = found;
        let states: Vec<usize> = lasso
            .prefix
            .iter()
            .chain(&lasso.cycle)
            .chain(lasso.cycle.first())
            .map(|state| usize::from(state[0]))
            .collect();
        assert_eq!((states[0], states.len()), (0, actors.len() + 1));
        for (pair, who) in states.windows(2).zip(actors) {
            assert!(self.edges[pair[0]].contains(&(*who, pair[1])), "{self:?}");
        }
        let turn = lasso.prefix.len();
        let cycle = &states[turn..actors.len()];
        assert!(cycle.iter().any(|&state| self.accepting[state]), "{self:?}");
        for actor in 0..ACTORS {
            let acts = actors[turn..].iter().any(|who| who.iter().any(|one| one == actor));
            let fair = match fairness {
                Fairness::Weak => !cycle.iter().all(|&state| self.able(state, actor)),
                Fairness::Strong => !cycle.iter().any(|&state| self.able(state, actor)),
            };
            assert!(acts || fair, "{actor} is left out by {found:?} of {self:?}");
        }
    }
}

impl System for Graph {
    fn state_bytes(&self) -> usize {
        1
    }
    fn initial(&self) -> Vec<u8> {
        vec![0]
    }
    fn each(&mut self, state: &[u8], mut visit: impl FnMut(&[u8])) -> usize {
        self.each_acting(state, |_, next| visit(next))
    }
}

impl Accepting for Graph {
    fn is_accepting(&self, state: &[u8]) -> bool {
        self.accepting[usize::from(state[0])]
    }
}

impl Acting for Graph {
    fn actors_count(&self) -> usize {
        ACTORS
    }
    fn each_acting(&mut self, state: &[u8], mut visit: impl FnMut(Actors, &[u8])) -> usize {
        let edges = &self.edges[usize::from(state[0])];
        edges.iter().for_each(|(actors, to)| visit(*actors, &[*to as u8]));
        edges.len()
    }
}

impl Subject for Graph {
    fn is_broken(&mut self, _state: &[u8], _steps_count: usize) -> bool {
        panic!("nobody looks for broken promises")
    }
    fn notes(&self) -> Vec<u8> {
        Vec::new()
    }
    fn each_serving(&mut self, state: &[u8], visit: impl FnMut(u64, &[u8])) -> u64 {
        each_serving(self, state, visit)
    }
}

/// Goes through a search to its end.
fn ended(mut search: FairSearch<Graph>) -> Option<FairLasso> {
    loop {
        match search.advance(3).unwrap() {
            FairFound::More => {}
            FairFound::NoCycle => return None,
            FairFound::Cycle(found) => return Some(found),
        }
    }
}

/// The same by many ranks, whose turn and which message comes next being chance. Who acts in the prefix
/// is any that can.
fn by_ranks(graph: &Graph, fairness: Fairness, random: &mut Random) -> Option<FairLasso> {
    let count = 1 + random.below(4) as usize;
    let new = |me| Rank::new(graph.clone(), Goal::FairCycle, me, count).unwrap();
    let mut ranks: Vec<Rank<Graph>> = (0..count).map(new).collect();
    let mut lines: Vec<VecDeque<Vec<u8>>> = vec![VecDeque::new(); count * count];
    let mut actors = Vec::new();
    for now_us in 0..1_000_000 {
        let me = random.below(count as u64) as usize;
        ranks[me].work(1 + random.below(4) as usize, now_us * 100).unwrap();
        let from = random.below(count as u64) as usize;
        if let Some(message) = lines[from * count + me].pop_front() {
            ranks[me].handle(from, &message).unwrap();
        }
        while let Some((to, message)) = ranks[me].poll(now_us * 100) {
            lines[me * count + to].push_back(message);
        }
        if let Some(states) = ranks[0].take_gathered() {
            let found = ended(FairSearch::within(graph.clone(), fairness, states));
            // Few states are dropped to the last: for weak fairness some are left only if a run is.
            let is_few = graph.edges.len() < 8;
            assert!(found.is_some() || fairness == Fairness::Strong || !is_few, "{graph:?}");
            let cycle = found.as_ref().map(|found| found.lasso.cycle.clone());
            actors = found.map(|found| found.actors).unwrap_or_default();
            ranks[0].judged(cycle.unwrap_or_default());
        }
        if ranks.iter().all(Rank::has_ended) {
            return match ranks[0].outcome().unwrap().ending {
                Ending::Nothing => None,
                Ending::Cycle(lasso) => {
                    let way = lasso.prefix.iter().chain(lasso.cycle.first());
                    let way: Vec<usize> = way.map(|state| usize::from(state[0])).collect();
                    let acting = |pair: &[usize]| {
                        let edge = graph.edges[pair[0]].iter().find(|(_, to)| *to == pair[1]);
                        edge.expect("the prefix follows edges").0
                    };
                    let actors = way.windows(2).map(acting).chain(actors).collect();
                    Some(FairLasso { lasso, actors })
                }
                ending => panic!("{ending:?}"),
            };
        }
    }
    panic!("{count} ranks hang: {graph:?}");
}

#[test]
fn many_ranks_find_fair_runs_exactly_where_they_are() {
    let mut random = Random::from_seed(14);
    let mut counts = [0; 2];
    for _ in 0..2000 {
        let graph = Graph::random(&mut random);
        for (count, fairness) in counts.iter_mut().zip([Fairness::Weak, Fairness::Strong]) {
            let found = by_ranks(&graph, fairness, &mut random);
            assert_eq!(found.is_some(), graph.has_fair_run(fairness), "{fairness:?} {graph:?}");
            if let Some(found) = found {
                *count += 1;
                graph.assert_run(&found, fairness);
            }
        }
    }
    assert!(counts[0] > counts[1] + 10 && counts[1] > 200, "{counts:?}");
}

#[test]
fn fair_runs_are_found_exactly_where_they_are() {
    let mut random = Random::from_seed(13);
    let mut counts = [0; 2];
    for _ in 0..3000 {
        let graph = Graph::random(&mut random);
        for (count, fairness) in counts.iter_mut().zip([Fairness::Weak, Fairness::Strong]) {
            let found = ended(FairSearch::new(graph.clone(), fairness).unwrap());
            assert_eq!(found.is_some(), graph.has_fair_run(fairness), "{fairness:?} {graph:?}");
            if let Some(found) = found {
                *count += 1;
                graph.assert_run(&found, fairness);
            }
        }
    }
    // Strong fairness leaves fewer runs than weak.
    assert!(counts[0] > counts[1] + 20 && counts[1] > 300, "{counts:?}");
}
