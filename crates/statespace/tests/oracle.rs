//! Searches against plain ones, on random graphs and on random rows of bytes.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::graph::Graph;
use statespace::{
    Accepting, Batch, CycleSearch, Found, LossySearch, LossyStorage, Reach, Store, System, Unpacked,
};
use stats::Random;

#[test]
fn reachability_finds_what_a_plain_search_finds() {
    let mut random = Random::from_seed(7);
    for _ in 0..2000 {
        let graph = Graph::random(&mut random);
        let reachable = graph.reachable();
        let mut search = Reach::new(graph.clone()).unwrap();
        let mut seen = Vec::new();
        while search.advance(3, |id, state, steps| {
            assert_eq!(steps, graph.edges[usize::from(state[0])].len());
            seen.push((id, usize::from(state[0])));
            true
        }) == Ok(true)
        {}
        let progress = search.progress();
        assert_eq!(progress.states_count as usize, reachable.len());
        let edges: usize = reachable.iter().map(|&node| graph.edges[node].len()).sum();
        assert_eq!(progress.transitions_count as usize, edges);
        let stuck = reachable.iter().filter(|&&node| graph.edges[node].is_empty()).count();
        assert_eq!(progress.deadlocks_count as usize, stuck);
        assert_eq!(seen.iter().map(|(_, node)| *node).collect::<HashSet<_>>(), reachable);
        for (id, node) in seen {
            assert_way(&graph, &search.way_to(id), node);
        }
    }
}

/// A way follows edges, ends where it should, and is no longer than a plain search's.
fn assert_way(graph: &Graph, way: &[Vec<u8>], node: usize) {
    let nodes: Vec<usize> = way.iter().map(|state| usize::from(state[0])).collect();
    assert_eq!((nodes[0], nodes[nodes.len() - 1]), (0, node));
    assert!(nodes.windows(2).all(|pair| graph.edges[pair[0]].contains(&pair[1])));
    let mut distance = HashMap::from([(0, 0)]);
    let mut queue = VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        for &next in &graph.edges[at] {
            if !distance.contains_key(&next) {
                distance.insert(next, distance[&at] + 1);
                queue.push_back(next);
            }
        }
    }
    assert_eq!(nodes.len() - 1, distance[&node]);
}

#[test]
fn accepting_cycles_are_found_exactly_where_they_are() {
    let mut random = Random::from_seed(11);
    let mut cycles = 0;
    for _ in 0..5000 {
        let graph = Graph::random(&mut random);
        let mut search = CycleSearch::new(graph.clone()).unwrap();
        let found = loop {
            match search.advance(5).unwrap() {
                Found::More => {}
                found => break found,
            }
        };
        assert_eq!(found != Found::NoCycle, graph.has_accepting_cycle(), "{graph:?}");
        if let Found::Cycle(lasso) = found {
            cycles += 1;
            let all: Vec<usize> = lasso
                .prefix
                .iter()
                .chain(&lasso.cycle)
                .chain(lasso.cycle.first())
                .map(|state| usize::from(state[0]))
                .collect();
            assert_eq!(all[0], 0);
            assert!(all.windows(2).all(|pair| graph.edges[pair[0]].contains(&pair[1])));
            assert!(lasso.cycle.iter().any(|state| graph.is_accepting(state)));
        }
    }
    assert!((500..4500).contains(&cycles), "{cycles} of 5000 is no fair mixture");
}

#[test]
fn stores_give_back_what_they_were_given() {
    let mut random = Random::from_seed(3);
    for state_bytes in [1, 3, 4, 5, 8, 11, 16, 33, 40, 300] {
        let mut store = Store::new(state_bytes);
        let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
        let (mut parent, mut batch) = (Unpacked::default(), Batch::default());
        let mut state = vec![0u8; state_bytes];
        for _ in 0..3000 {
            let place = random.below(state_bytes as u64) as usize;
            state[place] = random.below(7) as u8;
            store.prepare(&parent, &state, &mut batch).unwrap();
            assert_eq!(batch.len(), 1);
            let mut given = None;
            store.insert_batch(&mut batch, |id, is_new| given = Some((id, is_new))).unwrap();
            let (id, is_new) = given.unwrap();
            assert_eq!(is_new, !known.contains_key(&state));
            assert_eq!(*known.entry(state.clone()).or_insert(id), id);
            store.unpack(id, &mut parent);
            assert_eq!(parent.bytes(), state);
        }
        assert_eq!(store.len() as usize, known.len());
        for (state, id) in &known {
            assert_eq!(store.insert(state).unwrap(), (*id, false));
        }
    }
}

#[test]
fn a_million_states_of_40_bytes_take_less_than_25_bytes_each() {
    // Twenty processes of two bytes, each in one of two configurations.
    let mut store = Store::new(40);
    for number in 0..1_000_000u32 {
        let state: Vec<u8> =
            (0..20).flat_map(|process| [(number >> process & 1) as u8, process as u8]).collect();
        assert_eq!(store.insert(&state).unwrap(), (number, true));
    }
    let bytes = store.memory_bytes() as f64 / 1e6;
    assert!(bytes < 25.0, "{bytes} bytes a state");
}

#[test]
fn states_are_cut_where_their_halves_have_most_in_common() {
    // All that differs stands in the second half: cut in the middle, no two states would share it.
    let mut store = Store::new(40);
    let state = |number: u32| -> Vec<u8> {
        (0..40u32).map(|place| (number >> place.saturating_sub(20) & 1) as u8).collect()
    };
    let mut batch = Batch::default();
    let (mut parent, mut seen) = (Unpacked::default(), 0);
    for number in 0..1 << 18 {
        store.prepare(&parent, &state(number), &mut batch).unwrap();
        store
            .insert_batch(&mut batch, |id, is_new| seen += u32::from(is_new && id == number))
            .unwrap();
        store.reshape();
        store.unpack(number, &mut parent);
        assert_eq!(parent.bytes(), state(number));
    }
    assert_eq!(seen, 1 << 18);
    let bytes = store.memory_bytes() as f64 / f64::from(seen);
    assert!(bytes < 18.0, "{bytes} bytes a state");
    for number in (0..1 << 18).step_by(99) {
        assert_eq!(store.insert(&state(number)), Ok((number, false)));
        store.unpack(number, &mut parent);
        assert_eq!(parent.bytes(), state(number));
    }
}

#[test]
fn memory_that_may_be_taken_is_not_exceeded_and_nearly_used_up() {
    for limit_bytes in [1 << 20, 2 << 20, 8 << 20] {
        check_limit(limit_bytes);
    }
}

fn check_limit(limit_bytes: usize) {
    let mut store = Store::new(40);
    store.limit_memory(limit_bytes);
    let state = |number: u32| -> Vec<u8> {
        (0..20).flat_map(|process| [(number >> process & 1) as u8, process as u8]).collect()
    };
    let full = (0u32..).find(|&number| store.insert(&state(number)).is_err()).unwrap();
    let used_bytes = store.memory_bytes();
    // Two empty indexes are taken before there is a limit.
    assert!(used_bytes <= limit_bytes + 8192, "{used_bytes} of {limit_bytes} bytes");
    assert!(full as usize > limit_bytes / 32, "{full} states in {limit_bytes} bytes");
    // What is there stays there.
    assert_eq!(store.insert(&state(7)), Ok((7, false)));
}

#[test]
fn searches_that_keep_less_find_nearly_all() {
    let mut random = Random::from_seed(17);
    for kept in [LossyStorage::HashCompaction, LossyStorage::Bitstate { table_bytes: 1 << 16 }] {
        for _ in 0..1000 {
            let graph = Graph::random(&mut random);
            let reachable = graph.reachable();
            let mut search = LossySearch::new(graph.clone(), kept);
            let mut seen = HashSet::new();
            let goal = usize::from(graph.state(random.below(graph.edges.len() as u64) as usize)[0]);
            let mut runs = 0;
            while search.advance(3, |state, steps| {
                assert_eq!(steps, graph.edges[usize::from(state[0])].len());
                seen.insert(usize::from(state[0]));
                usize::from(state[0]) != goal
            }) {}
            if seen.contains(&goal) {
                let run: Vec<usize> =
                    search.run().iter().map(|state| usize::from(state[0])).collect();
                assert_eq!((run[0], run[run.len() - 1]), (0, goal));
                assert!(run.windows(2).all(|pair| graph.edges[pair[0]].contains(&pair[1])));
                runs += 1;
                while search.advance(3, |state, _| {
                    seen.insert(usize::from(state[0]));
                    true
                }) {}
            }
            // The goal's own successors are only known to the search it did not end.
            assert!(seen.is_subset(&reachable) && (runs == 1 || seen == reachable));
            assert!(search.missed_states() < 0.01);
        }
    }
}

#[test]
fn a_small_table_of_bits_says_how_much_it_misses() {
    let mut search = LossySearch::new(Counter, LossyStorage::Bitstate { table_bytes: 4096 });
    while search.advance(1000, |_, _| true) {}
    let found = search.progress().states_count as f64;
    assert!(found < 65_536.0 && search.missed_states() > 0.1 * found, "{found}");
    let mut search = LossySearch::new(Counter, LossyStorage::Bitstate { table_bytes: 1 << 20 });
    while search.advance(1000, |_, _| true) {}
    assert!(search.progress().states_count > 65_500 && search.missed_states() < 65.0);
}

/// Two bytes, each of which counts up: 65 536 states.
#[derive(Debug)]
struct Counter;

impl System for Counter {
    fn state_bytes(&self) -> usize {
        2
    }
    fn initial(&self) -> Vec<u8> {
        vec![0, 0]
    }
    fn each(&mut self, state: &[u8], mut visit: impl FnMut(&[u8])) -> usize {
        visit(&[state[0].wrapping_add(1), state[1]]);
        visit(&[state[0], state[1].wrapping_add(1)]);
        2
    }
}
