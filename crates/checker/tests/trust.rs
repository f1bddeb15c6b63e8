//! The real interpreter and the real searches against plain ones, on random models.
//!
//! `CLEARSTREAM_RANDOM_MODELS=5000` tries that many; else a few thousand.

#[path = "naive/all.rs"]
mod naive;

use std::collections::HashSet;

use checker::ModelSystem;
use dve::Model;
use naive::graph::{Fair, Graph};
use naive::random::{Taste, model};
use naive::tree::Tree;
use statespace::{CycleSearch, Found, Reach};
use stats::Random;

const STATES_MAX: usize = 1500;

/// How many models to try.
fn count(usual: u64) -> u64 {
    let given = std::env::var("CLEARSTREAM_RANDOM_MODELS").ok();
    given.map_or(usual, |text| text.parse().expect("a number of models"))
}

/// Random models whose state space is small, with their text and it.
fn each_model(seed: u64, usual: u64, taste: Taste, mut look: impl FnMut(&Tree, &str, &Graph)) {
    let mut random = Random::from_seed(seed);
    let (mut tried, mut large) = (0, 0);
    while tried < count(usual) {
        let tree = model(&mut random, taste);
        match Graph::of(&tree, STATES_MAX) {
            Some(graph) => {
                tried += 1;
                look(&tree, &tree.text(), &graph);
            }
            None => large += 1,
        }
    }
    assert!(large < tried, "{large} of {tried} models were too large");
}

fn parse(text: &str) -> Model {
    Model::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A run of the real interpreter is one of the plain interpreter too; returns where it ends.
fn replay(tree: &Tree, model: &Model, run: &[Vec<u8>], text: &str) -> naive::interpreter::State {
    let mut state = tree.initial();
    assert_eq!(model.show_state(&run[0]), tree.show(&state), "{text}");
    for next in &run[1..] {
        let wanted = model.show_state(next);
        let mut ways = tree.steps(&state).into_iter().map(|step| step.to);
        state = ways
            .find(|to| tree.show(to) == wanted)
            .unwrap_or_else(|| panic!("no step leads to {wanted}\n{text}"));
    }
    state
}

fn compare(tree: &Tree, text: &str, graph: &Graph) -> bool {
    let model = parse(text);
    let mut search = Reach::new(ModelSystem::new(&model)).unwrap();
    let (mut shown, mut seen, mut broken) = (HashSet::new(), Vec::new(), 0);
    while search
        .advance(100, |id, state, steps| {
            broken += model.violated_assertions(state).len();
            shown.insert(model.show_state(state));
            seen.push((id, steps));
            true
        })
        .unwrap()
    {}
    let wanted: HashSet<String> = graph.states.iter().map(|state| tree.show(state)).collect();
    assert_eq!(wanted.len(), graph.states.len(), "the words tell states apart\n{text}");
    assert_eq!(shown, wanted, "{text}");
    let progress = search.progress();
    assert_eq!(progress.states_count as usize, graph.states.len(), "{text}");
    assert_eq!(progress.transitions_count as usize, graph.transitions(), "{text}");
    assert_eq!(progress.deadlocks_count as usize, graph.deadlocks(), "{text}");
    assert_eq!(broken, graph.states.iter().map(|state| tree.broken(state)).sum(), "{text}");
    // The shortest way to a deadlock, if there is one, is a run, and no shorter one exists.
    let stuck = seen.iter().find(|(_, steps)| *steps == 0);
    if let Some((id, _)) = stuck {
        let run = search.way_to(*id);
        let last = replay(tree, &model, &run, text);
        assert!(tree.steps(&last).is_empty(), "{text}");
        let nearest = (0..graph.states.len()).find(|&state| graph.edges[state].is_empty());
        assert_eq!(nearest.map(|state| graph.depths[state]), Some(run.len() - 1), "{text}");
    }
    stuck.is_some()
}

#[test]
fn both_interpreters_find_the_same_state_spaces() {
    let taste = Taste { processes_max: 3, transitions_max: 6, has_property: false, is_wild: false };
    let (mut stuck, mut moves, mut faults) = (0, 0, 0);
    for (seed, is_wild) in [(1, false), (2, true)] {
        each_model(seed, 2000, Taste { is_wild, ..taste }, |tree, text, graph| {
            stuck += usize::from(compare(tree, text, graph));
            moves += graph.transitions();
            faults += usize::from(graph.states.iter().any(|state| state.is_error));
        });
    }
    let models = 2 * count(2000) as usize;
    assert!((models / 10..models).contains(&stuck), "{stuck} deadlocks");
    assert!(moves > 10 * models, "{moves} transitions");
    assert!((models / 50..models / 2).contains(&faults), "{faults} run-time errors");
}

#[test]
fn both_find_the_same_accepting_cycles() {
    let taste = Taste { processes_max: 2, transitions_max: 5, has_property: true, is_wild: true };
    let mut cycles = 0;
    each_model(3, 2000, taste, |tree, text, graph| {
        compare(tree, text, graph);
        let model = parse(text);
        let mut search = CycleSearch::new(ModelSystem::new(&model)).unwrap();
        let found = loop {
            match search.advance(100).unwrap() {
                Found::More => {}
                found => break found,
            }
        };
        let wanted = graph.has_accepting_run(Fair::No, 0);
        assert_eq!(found != Found::NoCycle, wanted, "{text}");
        if let Found::Cycle(lasso) = found {
            cycles += 1;
            let mut run = [lasso.prefix, lasso.cycle.clone()].concat();
            run.push(lasso.cycle[0].clone());
            replay(tree, &model, &run, text);
            assert!(lasso.cycle.iter().any(|state| model.is_accepting(state)), "{text}");
        }
    });
    let models = count(2000) as usize;
    assert!((models / 20..models).contains(&cycles), "{cycles} cycles");
}
