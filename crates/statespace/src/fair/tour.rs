//! A run through a component that serves everybody it must.

use std::collections::{HashMap, HashSet, VecDeque};

use super::graph::{Explorer, Graph};
use super::{Acting, Actors, FairComponent, FairLasso};
use crate::cycle::Lasso;

/// A step: from where, who, to where.
#[derive(Debug, Clone, Copy)]
struct Move {
    from: u32,
    actors: Actors,
    to: u32,
}

impl<S: Acting> Explorer<S> {
    /// A shortest way to an accepting state of the component, then round through all that it needs.
    pub(super) fn lasso(&self, wanted: &FairComponent) -> FairLasso {
        let graph = &self.graph;
        let inside: HashSet<u32> = wanted.states.iter().copied().collect();
        let is_home = |state: u32| inside.contains(&state) && graph.accepting[state as usize];
        let way = match self.begins_at.filter(|&first| !is_home(first)) {
            Some(first) => way(graph, first, |_| true, |one| is_home(one.to)),
            None => Vec::new(),
        };
        let any =
            || self.begins_at.or_else(|| wanted.states.iter().copied().find(|&one| is_home(one)));
        let home = way.last().map(|last| last.to).or_else(any).unwrap_or(0);
        let round = round(graph, home, &inside, wanted);
        let states = |moves: &[Move]| moves.iter().map(|one| self.state(one.from)).collect();
        let lasso = Lasso { prefix: states(&way), cycle: states(&round) };
        let actors = way.iter().chain(&round).map(|one| one.actors).collect();
        FairLasso { lasso, actors }
    }
}

fn round(graph: &Graph, home: u32, inside: &HashSet<u32>, wanted: &FairComponent) -> Vec<Move> {
    let stays = |one: &Move| inside.contains(&one.to);
    let mut round: Vec<Move> = Vec::new();
    for actor in 0..graph.actors_count {
        let at = round.last().map_or(home, |last| last.to);
        let moves = |one: &Move| one.actors.iter().any(|moves| moves == actor);
        let rests = |state: u32| {
            !graph.edges(state).any(|(_, actors)| actors.iter().any(|able| able == actor))
        };
        let is_served = if wanted.acts.has(actor) {
            round.iter().any(moves)
        } else if wanted.rests.has(actor) {
            rests(at) || round.iter().any(|one| rests(one.from))
        } else {
            true
        };
        if !is_served {
            let does = |one: &Move| if wanted.acts.has(actor) { moves(one) } else { rests(one.to) };
            round.extend(way(graph, at, stays, does));
        }
    }
    let at = round.last().map_or(home, |last| last.to);
    if at != home || round.is_empty() {
        round.extend(way(graph, at, stays, |one| one.to == home));
    }
    round
}

/// A shortest way of at least one move, along allowed ones, whose last is the goal; empty when there is
/// none.
fn way(
    graph: &Graph,
    from: u32,
    allowed: impl Fn(&Move) -> bool,
    goal: impl Fn(&Move) -> bool,
) -> Vec<Move> {
    let mut came: HashMap<u32, Move> = HashMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        for (to, actors) in graph.edges(at) {
            let one = Move { from: at, actors, to };
            if !allowed(&one) {
                continue;
            }
            if goal(&one) {
                let mut way = vec![one];
                while let Some(before) = way.last().filter(|last| last.from != from) {
                    way.push(came[&before.from]);
                }
                way.reverse();
                return way;
            }
            if to != from && !came.contains_key(&to) {
                came.insert(to, one);
                queue.push_back(to);
            }
        }
    }
    Vec::new()
}
