//! The real interpreter and the real searches against plain ones, on random models.
//!
//! `CLEARSTREAM_RANDOM_MODELS=5000` tries that many; else a few thousand.

use crate::naive;
use std::collections::HashSet;
use std::thread;

use crate::naive::graph::{Fair, Graph};
use crate::naive::random::{Taste, model};
use crate::naive::tree::{Expr, Place, Process, Transition, Tree, Variable};
use checker::{ModelSystem, RankedModel};
use dve::Model;
use statespace::partition::{Ending, Goal, Rank};
use statespace::{Acting, CycleSearch, FairFound, FairLasso, FairSearch, Fairness, Found, Reach};
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
    assert_eq!(
        broken,
        graph.states.iter().map(|state| tree.broken(state)).sum::<usize>(),
        "{text}"
    );
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
    let taste = Taste {
        processes_max: 3,
        transitions_max: 6,
        has_property: false,
        is_wild: false,
        is_private: false,
    };
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

/// Rows of operators longer than any random model's, as models made by macros have them (a guard of
/// 6000 comparisons, a sum of 6000 terms); the plain interpreter recurs, so it gets a large stack.
#[test]
fn both_interpreters_agree_on_rows_of_thousands_of_operators() {
    let look = || {
        let place = |index| Box::new(Place { variable: 0, index: Some(Expr::Number(index)) });
        let chain = |operator: &'static str, of: &dyn Fn(i32) -> Expr| {
            (1..6000).fold(of(0), |left, n| Expr::Binary(operator, Box::new(left), Box::new(of(n))))
        };
        let read = |n: i32| Expr::Read(place(n % 3));
        let equal = |n: i32| {
            Expr::Binary(
                "==",
                Box::new(read(n)),
                Box::new(Expr::Number(if n == 5999 { 9 } else { n % 3 })),
            )
        };
        let step = |from, to, guard, value| Transition {
            from,
            to,
            guard: Some(guard),
            sync: None,
            effects: vec![(*place(1), value)],
        };
        let not = |expr| Expr::Unary("not", Box::new(expr));
        let process = Process {
            states: 3,
            transitions: vec![
                step(0, 1, chain("or", &|n| not(equal(n))), chain("^", &read)),
                step(0, 2, not(chain("and", &equal)), Expr::Number(2)),
                step(1, 2, chain("imply", &equal), Expr::Number(1)),
                step(2, 0, chain("-", &read), chain("+", &read)),
            ],
            ..Process::default()
        };
        let variable = Variable {
            owner: None,
            is_int: false,
            is_const: false,
            is_array: true,
            initial: vec![0, 1, 2],
        };
        let tree = Tree { variables: vec![variable], processes: vec![process], ..Tree::default() };
        let graph = Graph::of(&tree, STATES_MAX).expect("a few states");
        assert!(graph.transitions() >= 4, "{} steps", graph.transitions());
        compare(&tree, &tree.text(), &graph);
    };
    let large = thread::Builder::new().stack_size(256 << 20).spawn(look).expect("a thread");
    large.join().expect("they agree");
}

#[test]
fn both_find_the_same_accepting_cycles() {
    let taste = Taste {
        processes_max: 2,
        transitions_max: 5,
        has_property: true,
        is_wild: true,
        is_private: false,
    };
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

/// What the search for fair runs finds.
fn fair_run(model: &Model, fairness: Fairness) -> Option<FairLasso> {
    ended(FairSearch::new(ModelSystem::new(model), fairness).unwrap())
}

fn ended(mut search: FairSearch<ModelSystem<'_>>) -> Option<FairLasso> {
    loop {
        match search.advance(7).unwrap() {
            FairFound::More => {}
            FairFound::NoCycle => return None,
            FairFound::Cycle(found) => return Some(found),
        }
    }
}

/// The same by many ranks, whose messages are handed from one to the next; who takes the steps of the
/// prefix is anybody who can.
fn fair_run_by_ranks(model: &Model, fairness: Fairness, ranks_count: usize) -> Option<FairLasso> {
    let new =
        |me| Rank::new(RankedModel::new(model, true), Goal::FairCycle, me, ranks_count).unwrap();
    let mut ranks: Vec<_> = (0..ranks_count).map(new).collect();
    let mut who = Vec::new();
    for now_us in (0..1_000_000).step_by(100) {
        for me in 0..ranks_count {
            ranks[me].work(8, now_us).unwrap();
            while let Some((to, message)) = ranks[me].poll(now_us) {
                ranks[to].handle(me, &message).unwrap();
            }
        }
        if let Some(states) = ranks[0].take_gathered() {
            let search = FairSearch::within(ModelSystem::new(model), fairness, states);
            let found = ended(search);
            let cycle = found.as_ref().map(|found| found.lasso.cycle.clone());
            who = found.map(|found| found.actors).unwrap_or_default();
            ranks[0].judged(cycle.unwrap_or_default());
        }
        if ranks.iter().all(Rank::has_ended) {
            let Ending::Cycle(lasso) = ranks[0].outcome().unwrap().ending else { return None };
            let way = [&lasso.prefix[..], &lasso.cycle[..1]].concat();
            let prefix = way.windows(2).map(|pair| {
                let mut found = None;
                ModelSystem::new(model).each_acting(&pair[0], |who, to| {
                    if to == pair[1] {
                        found.get_or_insert(who);
                    }
                });
                found.expect("a step")
            });
            let actors = prefix.chain(who).collect();
            return Some(FairLasso { lasso, actors });
        }
    }
    panic!("{ranks_count} ranks hang");
}

/// A run of the plain interpreter, step by step with who takes it, whose cycle is fair by definition.
fn replay_fair(tree: &Tree, model: &Model, found: &FairLasso, fairness: Fairness, text: &str) {
    let FairLasso { lasso, actors } = found;
    let mut run = [lasso.prefix.clone(), lasso.cycle.clone()].concat();
    run.push(lasso.cycle[0].clone());
    assert_eq!(actors.len(), run.len() - 1, "{text}");
    let mut state = tree.initial();
    let (mut able, mut acted) = (Vec::new(), HashSet::new());
    let mut is_accepting = false;
    for (number, next) in run[1..].iter().enumerate() {
        let who: Vec<usize> = actors[number].iter().collect();
        let steps = tree.steps(&state);
        if number >= lasso.prefix.len() {
            let all: HashSet<usize> = steps.iter().flat_map(|step| step.actors.clone()).collect();
            able.push(all);
            acted.extend(who.iter().copied());
            is_accepting |= tree.is_accepting(&state);
        }
        let wanted = model.show_state(next);
        let found =
            steps.into_iter().find(|step| step.actors == who && tree.show(&step.to) == wanted);
        state = found.unwrap_or_else(|| panic!("no step of {who:?} to {wanted}\n{text}")).to;
    }
    assert!(is_accepting, "{text}");
    for process in (0..tree.processes.len()).filter(|process| !acted.contains(process)) {
        let could = |able: &HashSet<usize>| able.contains(&process);
        let is_starved = match fairness {
            Fairness::Weak => able.iter().all(could),
            Fairness::Strong => able.iter().any(could),
        };
        assert!(!is_starved, "process {process} is left out\n{text}");
    }
}

#[test]
fn both_find_the_same_fair_runs() {
    const ON_CYCLES_MAX: usize = 9;
    let taste = Taste {
        processes_max: 3,
        transitions_max: 4,
        has_property: true,
        is_wild: false,
        is_private: false,
    };
    let (mut runs, mut unfair, mut tried) = ([0, 0], 0, 0);
    each_model(5, 4000, taste, |tree, text, graph| {
        if graph.states.len() > 60 || graph.states_on_cycles() > ON_CYCLES_MAX {
            return;
        }
        tried += 1;
        let model = parse(text);
        let processes = tree.processes.len();
        let kinds = [(Fairness::Weak, Fair::Weak), (Fairness::Strong, Fair::Strong)];
        let found = kinds.map(|(fairness, fair)| {
            let found = fair_run(&model, fairness);
            let wanted = graph.has_accepting_run(fair, processes);
            assert_eq!(found.is_some(), wanted, "{fairness:?}\n{text}");
            if let Some(found) = &found {
                replay_fair(tree, &model, found, fairness, text);
            }
            let by_ranks = fair_run_by_ranks(&model, fairness, 1 + tried % 3);
            assert_eq!(by_ranks.is_some(), wanted, "ranks, {fairness:?}\n{text}");
            if let Some(found) = &by_ranks {
                replay_fair(tree, &model, found, fairness, text);
            }
            found.is_some()
        });
        runs[0] += usize::from(found[0]);
        runs[1] += usize::from(found[1]);
        unfair += usize::from(!found[0] && graph.has_accepting_run(Fair::No, processes));
    });
    assert!(tried > 500, "{tried} models");
    assert!(runs[1] > tried / 20, "{runs:?} of {tried}");
    assert!(unfair > 0, "fairness made no difference");
}

/// One takes a lock again and again, the other waits for it: it could always take it while nobody has
/// it, but not always at all.
#[test]
fn who_waits_for_a_lock_needs_strong_fairness() {
    let text = "byte lock;
        process Busy { state out, in; init out; trans
            out -> in { guard lock == 0; effect lock = 1; }, in -> out { effect lock = 0; }; }
        process Waits { state waits, has, gone; init waits; trans
            waits -> has { guard lock == 0; effect lock = 1; }, has -> gone { effect lock = 0; }; }
        process Watch { state on; init on; accept on; trans on -> on { guard Waits.waits; }; }
        system async property Watch;";
    let model = parse(text);
    let weak = fair_run(&model, Fairness::Weak).expect("weak fairness may starve it");
    assert_eq!(weak.lasso.cycle.len(), 2);
    assert_eq!(fair_run(&model, Fairness::Strong), None);
}
