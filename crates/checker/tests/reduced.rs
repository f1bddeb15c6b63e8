//! Reduced searches give the verdicts of whole ones, on random models and random formulas.
//!
//! `CLEARSTREAM_RANDOM_MODELS=5000` tries that many; else a few thousand.

use std::collections::{BTreeMap, BTreeSet};

use crate::naive::graph::Graph;
use crate::naive::random::{Taste, model};
use crate::naive::tree::Tree;
use checker::{ModelSystem, RankedModel};
use dve::Model;
use dve::ltl::{Formula, with_property};
use statespace::partition::{Ending, Figures, Goal, Outcome, Rank};
use statespace::{CycleSearch, Found, Reach};
use stats::Random;

/// What a search finds out about a model.
#[derive(Debug, PartialEq, Eq)]
struct Verdicts {
    has_deadlock: bool,
    has_error: bool,
    /// Assertions that fail somewhere.
    broken: BTreeSet<String>,
}

fn count(usual: u64) -> u64 {
    let given = std::env::var("CLEARSTREAM_RANDOM_MODELS").ok();
    given.map_or(usual, |text| text.parse().expect("a number of models"))
}

/// Verdicts and states.
fn verdicts(model: &Model, system: ModelSystem<'_>) -> (Verdicts, u64) {
    let mut search = Reach::new(system).unwrap();
    let mut found = Verdicts { has_deadlock: false, has_error: false, broken: BTreeSet::new() };
    while search
        .advance(100, |_, state, steps| {
            found.has_error |= model.is_error(state);
            found.has_deadlock |= steps == 0 && !model.is_error(state);
            let broken = model.violated_assertions(state);
            found.broken.extend(broken.iter().map(ToString::to_string));
            true
        })
        .unwrap()
    {}
    (found, search.progress().states_count)
}

fn has_cycle(system: ModelSystem<'_>) -> bool {
    let mut search = CycleSearch::new(system).unwrap();
    loop {
        match search.advance(100).unwrap() {
            Found::More => {}
            found => return found != Found::NoCycle,
        }
    }
}

/// The same by many ranks, their messages handed from one to the next; no deadlock is a violation.
fn by_ranks(model: &Model, aim: Goal, ranks_count: usize) -> Outcome {
    let new = |me| Rank::new(RankedModel::reduced(model, false), aim, me, ranks_count).unwrap();
    let mut ranks: Vec<_> = (0..ranks_count).map(new).collect();
    for now_us in (0..1_000_000).step_by(100) {
        for me in 0..ranks_count {
            ranks[me].work(8, now_us).unwrap();
            while let Some((to, message)) = ranks[me].poll(now_us) {
                ranks[to].handle(me, &message).unwrap();
            }
        }
        if ranks.iter().all(Rank::has_ended) {
            return ranks[0].outcome().unwrap();
        }
    }
    panic!("{ranks_count} ranks hang");
}

/// A formula without X over what can be said of the model.
fn formula(random: &mut Random, tree: &Tree, depth: u32) -> String {
    let process = random.below(tree.processes.len() as u64) as usize;
    let state = random.below(tree.processes[process].states as u64);
    if depth == 0 {
        let globals: Vec<usize> = (0..tree.variables.len())
            .filter(|&number| tree.variables[number].owner.is_none())
            .collect();
        return match globals.get(random.below(2 * globals.len() as u64) as usize) {
            Some(&number) => format!("{{{} == {}}}", tree.variable_name(number), random.below(2)),
            None => format!("{{P{process}.s{state}}}"),
        };
    }
    let one = formula(random, tree, depth - 1);
    let other = formula(random, tree, depth - 1);
    match random.below(6) {
        0 => format!("F ({one})"),
        1 => format!("G ({one})"),
        2 => format!("!({one})"),
        3 => format!("({one}) U ({other})"),
        4 => format!("({one}) && ({other})"),
        _ => format!("({one}) -> ({other})"),
    }
}

#[test]
fn reduced_searches_find_what_whole_ones_find() {
    let taste = Taste {
        processes_max: 3,
        transitions_max: 6,
        has_property: false,
        is_wild: false,
        is_private: true,
    };
    let mut random = Random::from_seed(23);
    let (mut smaller, mut violated, mut formulas) = (0, 0, 0);
    for number in 0..count(2500) {
        let is_wild = number % 3 == 0;
        let tree = model(&mut random, Taste { is_wild, ..taste });
        if Graph::of(&tree, 400).is_none() {
            continue;
        }
        let text = tree.text();
        let whole = Model::parse(&text).unwrap();
        let (wanted, states) = verdicts(&whole, ModelSystem::new(&whole));
        let (found, fewer) = verdicts(&whole, ModelSystem::reduced(&whole));
        assert_eq!(found, wanted, "{text}");
        assert!(fewer <= states);
        let ranks_count = 2 + (number % 3) as usize;
        let together = by_ranks(&whole, Goal::BadState { is_full: true }, ranks_count);
        let has_broken = matches!(together.ending, Ending::Broken(_));
        let wants_broken = wanted.has_deadlock || wanted.has_error || !wanted.broken.is_empty();
        assert_eq!(has_broken, wants_broken, "{ranks_count} ranks\n{text}");
        assert_eq!(Figures::total(&together.figures).states_count, fewer);
        smaller += u64::from(fewer < states);
        let formula = formula(&mut random, &tree, 2);
        let parsed = Formula::parse(&formula).unwrap();
        let Ok(product) = with_property(&text, &parsed, &BTreeMap::new()) else { continue };
        let product = Model::parse(&product).unwrap_or_else(|error| panic!("{error}\n{product}"));
        let wanted = has_cycle(ModelSystem::new(&product));
        assert_eq!(has_cycle(ModelSystem::reduced(&product)), wanted, "{formula}\n{text}");
        let together = by_ranks(&product, Goal::AcceptingCycle, ranks_count);
        assert_eq!(matches!(together.ending, Ending::Cycle(_)), wanted, "{formula}\n{text}");
        formulas += 1;
        violated += u64::from(wanted);
    }
    assert!(smaller > count(2500) / 20, "only {smaller} models were reduced");
    assert!(violated > formulas / 10 && violated < formulas, "{violated} of {formulas} violated");
}

/// Workers that count on their own before they meet: their steps need no interleaving.
#[test]
fn work_of_ones_own_is_not_interleaved() {
    let worker = |me: usize| {
        format!(
            "process W{me} {{ byte n; state a, b, c, d, e; init a; trans a -> b {{ effect n = 1; }}, \
             b -> c {{ effect n = n + 1; }}, c -> d {{ effect n = n * 2; }}, \
             d -> e {{ effect all = all + n; }}; }}\n"
        )
    };
    let workers: String = (0..4).map(worker).collect();
    let model = Model::parse(&format!("byte all; {workers} system async;")).unwrap();
    let (whole, states) = verdicts(&model, ModelSystem::new(&model));
    let (reduced, fewer) = verdicts(&model, ModelSystem::reduced(&model));
    assert_eq!(whole, reduced);
    assert_eq!((states, fewer), (625, 28));
}
