//! [`find_or_add`] under loom: every interleaving of two threads, every stale value that the memory
//! orders permit. Each order is then weakened by itself, and loom must find what goes wrong.

#![cfg(not(miri))]

use std::rc::Rc;

use loom::cell::Cell;
use loom::sync::atomic::AtomicU64;

use super::*;

/// A fault planted into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// Entries are read without seeing the pairs behind them.
    LooseRead,
    /// Entries are written without showing the pairs behind them.
    LooseExchange,
    /// What another has put there is written over.
    BlindExchange,
}

#[derive(Debug)]
struct Words {
    words: [AtomicU64; 2],
    planted: Planted,
}

/// One bucket, and pairs of which loom tracks who touches them when.
#[derive(Debug)]
struct Model {
    line: Words,
    pairs: Vec<Cell<u64>>,
}

impl Cells for Model {
    type Line = Words;

    fn buckets(&self) -> usize {
        1
    }
    fn line(&self, _bucket: usize) -> &Words {
        &self.line
    }
    fn word(line: &Words, place: usize) -> u64 {
        let is_loose = line.planted == Planted::LooseRead;
        line.words[place].load(if is_loose { Ordering::Relaxed } else { Ordering::Acquire })
    }
    fn exchange(line: &Words, place: usize, old: u64, new: u64) -> bool {
        let word = &line.words[place];
        if line.planted == Planted::BlindExchange {
            word.store(new, Ordering::Release);
            return true;
        }
        let is_loose = line.planted == Planted::LooseExchange;
        let order = if is_loose { Ordering::Relaxed } else { Ordering::Release };
        word.compare_exchange(old, new, order, Ordering::Relaxed).is_ok()
    }
    fn pair(&self, number: u32) -> u64 {
        self.pairs[number as usize].get()
    }
    fn write(&self, number: u32, pair: u64) {
        self.pairs[number as usize].set(pair);
    }
    fn grant(&self) -> Result<Range<u32>, StoreFull> {
        Err(StoreFull)
    }
}

/// Two threads add the same two pairs, and one of their own each that the other looks for.
fn add_by_two(planted: Planted) {
    let mut builder = loom::model::Builder::new();
    // `LOOM_MAX_PREEMPTIONS` asks for more (`make test-all`).
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(move || {
        let words = std::array::from_fn(|_| AtomicU64::new(FREE_WORD));
        let pairs = (0..6).map(|_| Cell::new(0)).collect();
        let model = Rc::new(Model { line: Words { words, planted }, pairs });
        let add = |model: Rc<Model>, first: u32, wanted: [u32; 2]| {
            let mut numbers = Numbers { rest: first..first + 3 };
            wanted.map(|pair| find_or_add(&*model, Hashed::new(pair, pair), &mut numbers).unwrap())
        };
        let other = Rc::clone(&model);
        let adding = loom::thread::spawn(move || add(other, 3, [7, 8]));
        let mine = add(Rc::clone(&model), 0, [8, 7]);
        let theirs = adding.join().unwrap();
        for (one, same) in [(mine[0], theirs[1]), (mine[1], theirs[0])] {
            assert_eq!(one.0, same.0, "a pair has one number");
            assert!(one.1 != same.1, "a pair is new once");
        }
    });
}

#[test]
fn two_threads_agree_on_the_number_of_a_pair() {
    add_by_two(Planted::Nothing);
}

#[test]
fn loom_finds_every_planted_fault() {
    for planted in [Planted::LooseRead, Planted::LooseExchange, Planted::BlindExchange] {
        let found = std::panic::catch_unwind(|| add_by_two(planted));
        assert!(found.is_err(), "{planted:?} goes unnoticed");
    }
}
