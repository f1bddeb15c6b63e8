//! Threads that search one set of states, against plain searches. Who runs when is chance: some states
//! take long to look at.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::promised::Promised;
use statespace::partition::Subject;
use statespace::{Accepting, Ended, Progress, Reach, SharedSearch, System, ThreadFailed};
use stats::Random;

/// Bytes that change by rules, each only while another byte allows it.
#[derive(Debug, Clone)]
struct Machine {
    /// Values of each byte.
    sizes: Vec<u8>,
    rules: Vec<Rule>,
    /// Of so many states one breaks a promise; none if 0.
    share: u64,
    /// One of so many states takes long.
    slow_share: u64,
}

#[derive(Debug, Clone, Copy)]
struct Rule {
    changes: usize,
    factor: u8,
    step: u8,
    asks: usize,
    least: u8,
}

impl Machine {
    fn random(random: &mut Random, share: u64) -> Self {
        let bytes = 2 + random.below(4) as usize;
        let most = [90, 30, 12, 7][bytes - 2];
        let sizes: Vec<u8> = (0..bytes).map(|_| 2 + random.below(most) as u8).collect();
        let any = |random: &mut Random, below: u64| random.below(below) as u8;
        let rules = (0..bytes + random.below(4) as usize)
            .map(|number| {
                let (changes, asks) = (number % bytes, random.below(bytes as u64) as usize);
                let least = any(random, 1 + u64::from(sizes[asks]) / 3) * any(random, 2);
                Rule {
                    changes,
                    factor: 1 + any(random, 8) / 7,
                    step: 1 + any(random, 3),
                    asks,
                    least,
                }
            })
            .collect();
        Self { sizes, rules, share, slow_share: 40 }
    }

    fn number(state: &[u8]) -> u64 {
        state
            .iter()
            .fold(7, |sum: u64, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }
}

impl System for Machine {
    fn state_bytes(&self) -> usize {
        self.sizes.len()
    }
    fn initial(&self) -> Vec<u8> {
        vec![0; self.sizes.len()]
    }
    fn each(&mut self, state: &[u8], mut visit: impl FnMut(&[u8])) -> usize {
        let number = Self::number(state);
        if number.is_multiple_of(self.slow_share) {
            (0..number / self.slow_share % 1024).for_each(|_| std::hint::spin_loop());
        }
        let mut next = state.to_vec();
        let mut count = 0;
        for rule in self.rules.iter().filter(|rule| state[rule.asks] >= rule.least) {
            let old = u32::from(state[rule.changes]);
            let new = (old * u32::from(rule.factor) + u32::from(rule.step))
                % u32::from(self.sizes[rule.changes]);
            next[rule.changes] = new as u8;
            visit(&next);
            next[rule.changes] = state[rule.changes];
            count += 1;
        }
        count
    }
}

impl Accepting for Machine {
    fn is_accepting(&self, _state: &[u8]) -> bool {
        false
    }
}

impl Subject for Machine {
    fn is_broken(&mut self, state: &[u8], _steps_count: usize) -> bool {
        self.share > 0 && Self::number(state) % self.share == 1
    }
    fn notes(&self) -> Vec<u8> {
        Vec::new()
    }
    fn learn(&mut self, _notes: &[u8]) {}
}

/// Runs so many threads to the end.
fn search<S: Subject + Clone + Sync>(
    system: &S,
    threads_count: usize,
    is_full: bool,
) -> SharedSearch {
    let search = SharedSearch::new(&system.initial(), threads_count, is_full, usize::MAX).unwrap();
    run(&search, system, threads_count);
    search
}

fn run<S: Subject + Clone + Sync>(search: &SharedSearch, system: &S, threads_count: usize) {
    thread::scope(|scope| {
        for me in 0..threads_count {
            scope.spawn(move || search.work(me, &mut system.clone()).unwrap());
        }
    });
}

/// What one thread finds, and how many steps it is to the first state that breaks a promise.
fn alone<S: Subject + Clone>(system: &S) -> (Progress, Option<usize>) {
    let mut judge = system.clone();
    let mut search = Reach::new(system.clone()).unwrap();
    let mut broken = None;
    while search.advance(1000, |id, state, steps| {
        if broken.is_none() && judge.is_broken(state, steps) {
            broken = Some(id);
        }
        true
    }) == Ok(true)
    {}
    (search.progress(), broken.map(|id| search.way_to(id).len() - 1))
}

fn counts(progress: &Progress) -> [u64; 5] {
    let Progress { states_count, queued_count, transitions_count, deadlocks_count, depth, .. } =
        *progress;
    [states_count, queued_count, transitions_count, deadlocks_count, u64::from(depth)]
}

/// A way of steps, to a state that breaks a promise.
fn assert_way<S: Subject + Clone>(system: &S, way: &[Vec<u8>], steps: usize) {
    let mut system = system.clone();
    assert_eq!((way.len() - 1, &way[0]), (steps, &system.initial()));
    for pair in way.windows(2) {
        let mut leads_there = false;
        system.each(&pair[0], |next| leads_there |= next == pair[1]);
        assert!(leads_there, "{pair:?}");
    }
    let last = way.last().unwrap();
    let steps_count = system.each(last, |_| {});
    assert!(system.is_broken(last, steps_count));
}

#[test]
fn threads_find_what_one_finds_in_small_systems() {
    let mut random = Random::from_seed(41);
    let mut violated = 0;
    for round in 0..600 {
        let share = if round % 2 == 0 { 0 } else { 12 };
        let system = Promised::random(&mut random, share);
        let (progress, steps) = alone(&system);
        let is_full = round % 3 > 0;
        let search = search(&system, 1 + round % 4, is_full);
        let way = search.way(&mut system.clone());
        assert_eq!(way.is_some(), steps.is_some());
        if let (Some(way), Some(steps)) = (way, steps) {
            assert_way(&system, &way, steps);
            assert!(system.follows(&way));
            violated += 1;
        }
        if is_full || steps.is_none() {
            assert_eq!(counts(&search.progress()), counts(&progress));
            assert_eq!(search.progress().states_count as usize, system.distances().len());
        }
    }
    assert!((80..280).contains(&violated), "{violated} of 600 is no fair mixture");
}

#[test]
fn threads_find_what_one_finds_in_wide_systems() {
    let mut random = Random::from_seed(42);
    let (mut violated, mut wide) = (0, 0);
    for round in 0..250 {
        let system = Machine::random(&mut random, [0, 300, 3000][round % 3]);
        let (progress, steps) = alone(&system);
        wide += u32::from(progress.states_count > 500);
        let is_full = round % 2 == 0;
        let search = search(&system, 2 + round % 3, is_full);
        match steps {
            None => {
                assert_eq!((search.ended(), search.way(&mut system.clone())), (Ended::Whole, None))
            }
            Some(steps) => {
                assert_eq!(search.ended(), Ended::Broken);
                assert_way(&system, &search.way(&mut system.clone()).unwrap(), steps);
                violated += 1;
            }
        }
        if is_full || steps.is_none() {
            assert_eq!(counts(&search.progress()), counts(&progress), "{system:?}");
        }
    }
    assert!(wide > 80, "only {wide} of 250 are wide");
    assert!((30..220).contains(&violated), "{violated} of 250 is no fair mixture");
}

/// Bytes that count up, far apart, so that the cut in the middle is no good one: many states.
fn counters(values: u8) -> Machine {
    let mut sizes = vec![1; 40];
    let rule = |changes| Rule { changes, factor: 1, step: 1, asks: 0, least: 0 };
    let moving = [20, 24, 28, 33, 37];
    moving.iter().for_each(|&place| sizes[place] = values);
    Machine { sizes, rules: moving.map(rule).to_vec(), share: 0, slow_share: 500 }
}

#[test]
fn a_large_store_grows_and_is_cut_elsewhere_by_all() {
    let system = counters(9);
    let search = search(&system, 3, true);
    let progress = search.progress();
    assert_eq!(counts(&progress), [59_049, 0, 5 * 59_049, 0, 40]);
    let bytes = progress.memory_bytes as f64 / progress.states_count as f64;
    assert!(bytes < 40.0, "{bytes} bytes a state, blocks that are not full yet included");
}

#[test]
fn memory_that_may_be_taken_is_not_exceeded() {
    const LIMIT_BYTES: usize = 2 << 20;
    let system = counters(11);
    let search = SharedSearch::new(&system.initial(), 2, true, LIMIT_BYTES).unwrap();
    run(&search, &system, 2);
    let progress = search.progress();
    assert_eq!(search.ended(), Ended::StoreFull);
    assert!(progress.memory_bytes <= LIMIT_BYTES + (1 << 19), "{progress:?}");
    assert!(progress.states_count as usize > LIMIT_BYTES / 50, "{progress:?}");
    assert!(progress.queued_count > 0);
}

/// Does something in one of its states.
#[derive(Clone, Copy)]
struct Eventful<'a> {
    machine: &'a Machine,
    seen: &'a AtomicUsize,
    event: &'a (dyn Fn() + Sync),
}

/// The state it is done in.
const EVENT_AT: usize = 5000;

impl System for Eventful<'_> {
    fn state_bytes(&self) -> usize {
        self.machine.state_bytes()
    }
    fn initial(&self) -> Vec<u8> {
        self.machine.initial()
    }
    fn each(&mut self, state: &[u8], visit: impl FnMut(&[u8])) -> usize {
        if self.seen.fetch_add(1, Ordering::Relaxed) == EVENT_AT {
            (self.event)();
        }
        self.machine.clone().each(state, visit)
    }
}

impl Accepting for Eventful<'_> {
    fn is_accepting(&self, _state: &[u8]) -> bool {
        false
    }
}

impl Subject for Eventful<'_> {
    fn is_broken(&mut self, _state: &[u8], _steps_count: usize) -> bool {
        false
    }
    fn notes(&self) -> Vec<u8> {
        Vec::new()
    }
    fn learn(&mut self, _notes: &[u8]) {}
}

#[test]
fn a_search_can_be_stopped() {
    let (machine, seen) = (&counters(11), &AtomicUsize::new(0));
    let search = SharedSearch::new(&machine.initial(), 2, true, usize::MAX).unwrap();
    run(&search, &Eventful { machine, seen, event: &|| search.stop() }, 2);
    let progress = search.progress();
    assert_eq!(search.ended(), Ended::Stopped);
    assert!((5000..161_051).contains(&progress.states_count) && progress.queued_count > 0);
}

#[test]
fn who_searches_with_one_that_fails_is_told() {
    let (machine, seen) = (&counters(11), &AtomicUsize::new(0));
    let system = Eventful { machine, seen, event: &|| panic!("planted") };
    let search = SharedSearch::new(&machine.initial(), 3, true, usize::MAX).unwrap();
    let results: Vec<_> = thread::scope(|scope| {
        let search = &search;
        let run = |me| scope.spawn(move || search.work(me, &mut { system }));
        let threads: Vec<_> = (0..3).map(run).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    assert_eq!(results.iter().filter(|result| matches!(result, Ok(Err(ThreadFailed)))).count(), 2);
}
