//! Searches put down anywhere and taken up again.

use crate::graph::Graph;
use statespace::{Reach, SnapshotError, System};
use stats::Random;

const FINGERPRINT: u64 = 77;

fn saved(search: &Reach<Graph>) -> Vec<u8> {
    let mut bytes = Vec::new();
    search.save(FINGERPRINT, b"extra", &mut bytes).unwrap();
    bytes
}

fn restore(graph: &Graph, bytes: &[u8]) -> Result<(Reach<Graph>, Vec<u8>), SnapshotError> {
    Reach::restore(graph.clone(), FINGERPRINT, &mut &bytes[..], |state| {
        usize::from(state[0]) < graph.edges.len()
    })
}

#[test]
fn a_search_taken_up_again_finds_the_same() {
    let mut random = Random::from_seed(29);
    for _ in 0..1000 {
        let graph = Graph::random(&mut random);
        let mut whole = Reach::new(graph.clone()).unwrap();
        while whole.advance(100, |_, _, _| true).unwrap() {}
        let mut search = Reach::new(graph.clone()).unwrap();
        // Put down where a state was found, or where memory ran out.
        search.advance(1 + random.below(20) as usize, |_, _, _| true).unwrap();
        let (mut again, extra) = restore(&graph, &saved(&search)).unwrap();
        assert_eq!(extra, b"extra");
        let mut last = 0;
        while again.advance(7, |id, _, _| {
            last = id;
            true
        }) == Ok(true)
        {}
        let (one, other) = (again.progress(), whole.progress());
        assert_eq!(
            (one.states_count, one.transitions_count),
            (other.states_count, other.transitions_count)
        );
        assert_eq!((one.deadlocks_count, one.depth), (other.deadlocks_count, other.depth));
        assert_eq!(again.way_to(last).len(), whole.way_to(last).len());
    }
}

#[test]
fn a_search_that_ran_out_of_memory_loses_nothing() {
    #[derive(Debug)]
    struct Counter;
    impl System for Counter {
        fn state_bytes(&self) -> usize {
            3
        }
        fn initial(&self) -> Vec<u8> {
            vec![0; 3]
        }
        fn each(&mut self, state: &[u8], mut visit: impl FnMut(&[u8])) -> usize {
            let mut next = [state[0], state[1], state[2]];
            for place in 0..3 {
                next[place] = (state[place] + 1) % 60;
                visit(&next);
                next[place] = state[place];
            }
            3
        }
    }
    let mut search = Reach::new(Counter).unwrap();
    search.limit_memory(1 << 20);
    while search.advance(1000, |_, _, _| true).is_ok_and(|more| more) {}
    assert!(search.progress().queued_count > 0);
    let mut bytes = Vec::new();
    search.save(0, &[], &mut bytes).unwrap();
    let (mut again, _) = Reach::restore(Counter, 0, &mut &bytes[..], |_| true).unwrap();
    while again.advance(1000, |_, _, _| true).unwrap() {}
    let progress = again.progress();
    assert_eq!((progress.states_count, progress.transitions_count), (216_000, 648_000));
}

#[test]
fn what_is_damaged_is_refused() {
    let mut random = Random::from_seed(31);
    let graph = Graph::random(&mut random);
    let mut search = Reach::new(graph.clone()).unwrap();
    search.advance(5, |_, _, _| true).unwrap();
    let bytes = saved(&search);
    for length in 0..bytes.len() {
        assert!(restore(&graph, &bytes[..length]).is_err(), "cut to {length}");
    }
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1 << random.below(8);
        assert!(restore(&graph, &changed).is_err(), "changed at {place}");
    }
    let other = Reach::restore(graph.clone(), 1, &mut &bytes[..], |_| true);
    assert!(matches!(other, Err(SnapshotError::Other)));
    bolero::check!().with_type::<Vec<u8>>().for_each(|tail| {
        restore(&graph, tail).map(|_| panic!("no snapshot")).ok();
        let whole = [&bytes[..56], tail].concat();
        restore(&graph, &whole).ok();
    });
}
