//! Ranks that search together, every message late or early by chance, against plain searches.

use std::collections::VecDeque;

use crate::promised::Promised;
use statespace::partition::{Ending, Figures, FileRequest, Goal, Outcome, Rank};
use statespace::{Accepting, LossyStorage, SnapshotError, System};
use stats::Random;

/// Runs ranks to the end; `stop_after`: rank 0 is told to stop after so many turns.
fn run(
    system: &Promised,
    aim: Goal,
    ranks_count: usize,
    random: &mut Random,
    stop_after: Option<usize>,
) -> Outcome {
    let new = |me| Rank::new(system.clone(), aim, me, ranks_count).unwrap();
    run_ranks((0..ranks_count).map(new).collect(), random, stop_after)
}

fn run_ranks(
    ranks: Vec<Rank<Promised>>,
    random: &mut Random,
    stop_after: Option<usize>,
) -> Outcome {
    drive(ranks, random, |turn, ranks| {
        if stop_after == Some(turn) {
            ranks[0].stop();
        }
    })
}

/// Who goes on and which message arrives next is chance, but messages between two ranks keep their
/// order. `look` is called before each turn and at the end.
fn drive(
    mut ranks: Vec<Rank<Promised>>,
    random: &mut Random,
    mut look: impl FnMut(usize, &mut [Rank<Promised>]),
) -> Outcome {
    let ranks_count = ranks.len();
    let mut lines = vec![VecDeque::new(); ranks_count * ranks_count];
    let mut now_us = 0;
    for turn in 0..1_000_000 {
        now_us += random.below(300);
        look(turn, &mut ranks);
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
            look(turn + 1, &mut ranks);
            return ranks[0].outcome().unwrap();
        }
    }
    panic!("{ranks_count} ranks hang: {ranks:?}");
}

#[test]
fn all_ranks_together_find_what_a_plain_search_finds() {
    let mut random = Random::from_seed(21);
    for round in 0..1500 {
        let system = Promised::random(&mut random, 0);
        let ranks_count = 1 + round % 5;
        let aim = Goal::BadState { is_full: round % 2 == 0 };
        let outcome = run(&system, aim, ranks_count, &mut random, None);
        assert_eq!(outcome.ending, Ending::Nothing);
        assert_eq!(outcome.notes.len(), ranks_count);
        assert_counts(&outcome, &system);
    }
}

/// All ranks together counted what a plain search counts.
fn assert_counts(outcome: &Outcome, system: &Promised) {
    let distances = system.distances();
    let total = Figures::total(&outcome.figures);
    let edges: usize = distances.keys().map(|&node| system.graph.edges[node].len()).sum();
    let stuck = distances.keys().filter(|&&node| system.graph.edges[node].is_empty()).count();
    let counts = (total.states_count, total.transitions_count, total.deadlocks_count);
    assert_eq!(counts, (distances.len() as u64, edges as u64, stuck as u64));
    assert_eq!(total.depth, u64::from(*distances.values().max().unwrap()));
    assert_eq!(total.queued_count, 0);
}

#[test]
fn a_broken_promise_is_shown_by_a_shortest_run() {
    let mut random = Random::from_seed(22);
    let mut violated = 0;
    for round in 0..1500 {
        let system = Promised::random(&mut random, 12);
        let aim = Goal::BadState { is_full: round % 3 == 0 };
        let outcome = run(&system, aim, 1 + round % 4, &mut random, None);
        violated += u32::from(assert_shortest(outcome.ending, &system));
    }
    assert!((300..1400).contains(&violated), "{violated} of 1500 is no fair mixture");
}

/// A run is shown where there is one, a shortest; tells whether there is.
fn assert_shortest(ending: Ending, system: &Promised) -> bool {
    let distances = system.distances();
    let broken = distances.iter().filter(|(node, _)| system.broken[**node]);
    let nearest = broken.map(|(_, distance)| *distance).min();
    match (ending, nearest) {
        (Ending::Nothing, None) => false,
        (Ending::Broken(way), Some(nearest)) => {
            assert_eq!(way.len(), nearest as usize + 1);
            assert!(system.follows(&way) && way[0] == system.initial());
            assert!(system.broken[usize::from(way[way.len() - 1][0])]);
            true
        }
        (ending, nearest) => panic!("{ending:?}, but the nearest is at {nearest:?}"),
    }
}

#[test]
fn accepting_cycles_are_found_and_no_others() {
    let mut random = Random::from_seed(23);
    let mut cycles = 0;
    for round in 0..2500 {
        let system = Promised::random(&mut random, 0);
        let outcome = run(&system, Goal::AcceptingCycle, 1 + round % 4, &mut random, None);
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

/// Ranks that keep less than their states.
fn run_lossy(system: &Promised, is_full: bool, kept: LossyStorage, random: &mut Random) -> Outcome {
    let ranks_count = 1 + random.below(4) as usize;
    let new = |me| Rank::lossy(system.clone(), is_full, kept, me, ranks_count).unwrap();
    run_ranks((0..ranks_count).map(new).collect(), random, None)
}

/// Whether a broken promise was shown, by a run that is one.
fn shows_broken(system: &Promised, ending: &Ending) -> bool {
    let Ending::Broken(way) = ending else {
        assert_eq!(*ending, Ending::Nothing);
        return false;
    };
    assert!(system.follows(way) && way[0] == system.initial(), "{way:?} {system:?}");
    assert!(system.broken[usize::from(way[way.len() - 1][0])]);
    true
}

#[test]
fn ranks_that_keep_hashes_find_what_those_find_that_keep_states() {
    let mut random = Random::from_seed(26);
    let mut violated = 0;
    for round in 0..1500 {
        let system = Promised::random(&mut random, 12);
        let is_full = round % 2 == 0;
        let outcome = run_lossy(&system, is_full, LossyStorage::HashCompaction, &mut random);
        let distances = system.distances();
        let is_violated = distances.keys().any(|&node| system.broken[node]);
        assert_eq!(shows_broken(&system, &outcome.ending), is_violated, "{system:?}");
        violated += u32::from(is_violated);
        if is_full {
            let total = Figures::total(&outcome.figures);
            let edges: usize = distances.keys().map(|&node| system.graph.edges[node].len()).sum();
            let stuck = |node: &&usize| system.graph.edges[**node].is_empty();
            let stuck = distances.keys().filter(stuck).count();
            let counts = (total.states_count, total.transitions_count, total.deadlocks_count);
            assert_eq!(counts, (distances.len() as u64, edges as u64, stuck as u64));
            assert_eq!((total.queued_count, total.again_count), (0, 0));
        }
    }
    assert!((300..1400).contains(&violated), "{violated} of 1500 is no fair mixture");
}

#[test]
fn ranks_that_keep_bits_find_at_most_that_and_show_only_what_is() {
    let mut random = Random::from_seed(27);
    let (mut shown, mut missed, mut fewer) = (0, 0, 0);
    for _ in 0..1500 {
        let system = Promised::random(&mut random, 12);
        // One word a rank, which a dozen states fill, or as many as are needed.
        let kept = LossyStorage::Bitstate { table_bytes: 8 << (6 * random.below(2)) };
        let outcome = run_lossy(&system, true, kept, &mut random);
        let distances = system.distances();
        let total = Figures::total(&outcome.figures);
        assert!((1..=distances.len() as u64).contains(&total.states_count));
        assert!(total.marked_count <= 3 * total.states_count && total.marked_count > 0);
        let is_shown = shows_broken(&system, &outcome.ending);
        let is_there = distances.keys().any(|&node| system.broken[node]);
        assert!(is_there || !is_shown);
        shown += u32::from(is_shown);
        missed += u32::from(is_there && !is_shown);
        fewer += u32::from(total.states_count < distances.len() as u64);
    }
    assert!(shown > 300 && missed > 0 && fewer > 20, "{shown} shown, {missed}, {fewer} fewer");
}

#[test]
fn a_search_can_be_stopped_anywhere() {
    let mut random = Random::from_seed(24);
    let mut stopped = 0;
    for round in 0..500 {
        let system = Promised::random(&mut random, 0);
        let aim =
            if round % 2 == 0 { Goal::AcceptingCycle } else { Goal::BadState { is_full: true } };
        let after = random.below(200) as usize;
        let outcome = run(&system, aim, 1 + round % 3, &mut random, Some(after));
        stopped += u32::from(outcome.ending == Ending::Stopped);
    }
    assert!(stopped > 50, "only {stopped} of 500 were stopped before their end");
}

const FINGERPRINT: u64 = 77;

/// What each rank wrote down, with its sum.
type Parts = Vec<(Vec<u8>, u64)>;

/// Runs ranks that are halted after some turns and write themselves down; then they end, or search on.
fn put_down(
    ranks: Vec<Rank<Promised>>,
    random: &mut Random,
    serial: u64,
    does_end: bool,
) -> (Outcome, Option<Parts>) {
    let halt_at = random.below(120) as usize;
    let mut parts: Vec<Option<(Vec<u8>, u64)>> = vec![None; ranks.len()];
    let mut settled = 0;
    let outcome = drive(ranks, random, |turn, ranks| {
        if turn == halt_at {
            ranks[0].pause(serial, true);
        }
        for (rank, part) in ranks.iter_mut().zip(&mut parts) {
            match rank.errand() {
                Some(FileRequest::Write { serial: told, is_second }) => {
                    assert_eq!((told, is_second), (serial, true));
                    let mut bytes = Vec::new();
                    let sum = rank.save(FINGERPRINT, serial, &mut bytes).unwrap();
                    *part = Some((bytes, sum));
                    rank.was_written(Ok(sum));
                }
                Some(FileRequest::Settled { is_whole, is_second }) => {
                    settled += u32::from(is_whole && is_second);
                }
                None => {}
            }
        }
        if let Some(written) = ranks[0].all_written() {
            assert!(
                written
                    .iter()
                    .zip(&parts)
                    .all(|(one, part)| { one.as_ref().ok() == part.as_ref().map(|(_, sum)| sum) })
            );
            ranks[0].settle(true, true);
            if does_end { ranks[0].stop() } else { ranks[0].go_on() }
        }
    });
    let parts: Option<Parts> = parts.into_iter().collect();
    assert_eq!(settled as usize, parts.as_ref().map_or(0, Vec::len));
    (outcome, parts)
}

fn restored(
    system: &Promised,
    aim: Goal,
    place: (usize, usize),
    serial: u64,
    bytes: &[u8],
) -> Result<(Rank<Promised>, u64), SnapshotError> {
    let nodes = system.graph.edges.len();
    let is_state = |state: &[u8]| usize::from(state[0]) < nodes;
    let of = (FINGERPRINT, serial);
    Rank::restore(system.clone(), aim, place, of, &mut &bytes[..], is_state)
}

#[test]
fn ranks_put_down_and_taken_up_again_find_the_same() {
    let mut random = Random::from_seed(26);
    let (mut again, mut violated) = (0, 0);
    for round in 0..1500 {
        let system = Promised::random(&mut random, if round % 2 == 0 { 0 } else { 12 });
        let ranks_count = 1 + round % 4;
        let aim = Goal::BadState { is_full: round % 3 == 0 };
        let new = |me| Rank::new(system.clone(), aim, me, ranks_count).unwrap();
        let mut ranks: Vec<Rank<Promised>> = (0..ranks_count).map(new).collect();
        // Put down up to three times, then searched to the end with a pause in between.
        let outcome = loop {
            let (serial, does_end) = (random.bits(), random.below(3) > 0);
            let (outcome, parts) = put_down(ranks, &mut random, serial, does_end);
            match parts {
                Some(parts) if outcome.ending == Ending::Stopped => {
                    again += 1;
                    let part = |(me, (bytes, sum)): (usize, &(Vec<u8>, u64))| {
                        let place = (me, ranks_count);
                        let (rank, same) = restored(&system, aim, place, serial, bytes).unwrap();
                        assert_eq!(same, *sum);
                        rank
                    };
                    ranks = parts.iter().enumerate().map(part).collect();
                }
                _ => break outcome,
            }
        };
        violated += u32::from(assert_shortest(outcome.ending.clone(), &system));
        if outcome.ending == Ending::Nothing || round % 3 == 0 {
            assert_counts(&outcome, &system);
        }
    }
    assert!(again > 700 && violated > 200, "{again} taken up, {violated} violated");
}

#[test]
fn a_part_that_is_damaged_or_of_another_search_is_refused() {
    let mut random = Random::from_seed(27);
    let system = Promised::random(&mut random, 6);
    let aim = Goal::BadState { is_full: true };
    let new = |me| Rank::new(system.clone(), aim, me, 2).unwrap();
    let parts = loop {
        let ranks = (0..2).map(new).collect();
        if let (_, Some(parts)) = put_down(ranks, &mut random, 5, true) {
            break parts;
        }
    };
    let (bytes, _) = &parts[1];
    assert!(restored(&system, aim, (1, 2), 5, bytes).is_ok());
    for (place, serial) in [((0, 2), 5), ((1, 3), 5), ((1, 2), 6)] {
        let other = restored(&system, aim, place, serial, bytes);
        assert!(matches!(other, Err(SnapshotError::Other)), "{place:?} {serial}");
    }
    for length in 0..bytes.len() {
        assert!(restored(&system, aim, (1, 2), 5, &bytes[..length]).is_err(), "cut to {length}");
    }
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1 << random.below(8);
        let refused = restored(&system, aim, (1, 2), 5, &changed).is_err();
        assert!(refused, "changed at {place}");
    }
    bolero::check!().with_type::<Vec<u8>>().for_each(|tail| {
        restored(&system, aim, (1, 2), 5, tail).map(|_| panic!("no part")).ok();
        let whole = [&bytes[..48], tail].concat();
        restored(&system, aim, (1, 2), 5, &whole).ok();
    });
}

#[test]
fn a_rank_that_cannot_begin_ends_the_search_of_all() {
    let mut random = Random::from_seed(28);
    for round in 0..300 {
        let system = Promised::random(&mut random, 0);
        let ranks_count = 1 + round % 4;
        let aim = Goal::BadState { is_full: true };
        let new = |me| Rank::new(system.clone(), aim, me, ranks_count).unwrap();
        let mut ranks: Vec<Rank<Promised>> = (0..ranks_count).map(new).collect();
        let unable = random.below(ranks_count as u64) as usize;
        ranks[unable].give_up("no such file".to_owned());
        let outcome = drive(ranks, &mut random, |_, _| {});
        assert_eq!(outcome.ending, Ending::Stopped);
        assert_eq!(outcome.trouble, Some((unable, "no such file".to_owned())));
    }
}

#[test]
fn what_is_no_message_ends_the_rank_and_never_panics() {
    let system = Promised::random(&mut Random::from_seed(25), 0);
    bolero::check!().for_each(|bytes: &[u8]| {
        for aim in [Goal::AcceptingCycle, Goal::BadState { is_full: true }] {
            let mut rank = Rank::new(system.clone(), aim, 1, 2).unwrap();
            // States come from ranks that run the same program; everything else is looked at.
            if bytes.first().is_some_and(|kind| *kind != 0) {
                rank.handle(0, bytes).ok();
                rank.work(10, 0).ok();
                for me in [0, 1] {
                    let mut rank =
                        Rank::lossy(system.clone(), true, LossyStorage::HashCompaction, me, 2)
                            .unwrap();
                    rank.handle(1 - me, bytes).ok();
                    rank.work(10, 0).ok();
                    rank.handle(1 - me, bytes).ok();
                    rank.work(10, 0).ok();
                }
            }
        }
    });
}
