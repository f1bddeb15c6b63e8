//! Accepting cycles by nested depth-first search (Courcoubetis, Vardi, Wolper, Yannakakis 1992, as
//! improved by Schwoon and Esparza 2005), which ends at the first one it meets.

use crate::pairs::StoreFull;
use crate::reach::{Progress, System};
use crate::store::{Batch, StateId, Store, Unpacked};

/// A system in which some states are accepting (a product with a Büchi automaton).
pub trait Accepting: System {
    /// Whether a state is accepting.
    fn is_accepting(&self, state: &[u8]) -> bool;
}

/// An infinite run: `prefix`, then `cycle` forever. The cycle's first state follows the prefix's
/// last (or is the initial state), and the cycle's last is followed by its first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lasso {
    /// States before the cycle.
    pub prefix: Vec<Vec<u8>>,
    /// States of the cycle; at least one is accepting.
    pub cycle: Vec<Vec<u8>>,
}

/// What a portion of a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// There is more to look at.
    More,
    /// No reachable cycle holds an accepting state.
    NoCycle,
    /// One does.
    Cycle(Lasso),
}

/// How the search sees a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    /// Not visited.
    White,
    /// On the path of the outer search.
    Cyan,
    /// Done with, for the outer search.
    Blue,
    /// Leads to no accepting cycle.
    Red,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    colour: Colour,
    is_accepting: bool,
}

/// A state on a path, and its successors in the arena.
#[derive(Debug, Clone, Copy)]
struct Frame {
    state: StateId,
    first: usize,
    next: usize,
    is_all_red: bool,
}

/// A search for accepting cycles that can be halted anywhere.
#[derive(Debug)]
pub struct CycleSearch<S> {
    system: S,
    store: Store,
    marks: Vec<Mark>,
    outer: Vec<Frame>,
    inner: Vec<Frame>,
    /// Successors of the states on both paths.
    arena: Vec<StateId>,
    batch: Batch,
    parent: Unpacked,
    transitions_count: u64,
    visited_count: u64,
}

impl<S: Accepting> CycleSearch<S> {
    /// The system that is searched.
    #[must_use]
    pub fn system(&self) -> &S {
        &self.system
    }

    /// A search that has not begun.
    ///
    /// # Errors
    /// As [`Store::insert`].
    pub fn new(system: S) -> Result<Self, StoreFull> {
        let mut store = Store::new(system.state_bytes());
        store.insert(&system.initial())?;
        let mut search = Self {
            system,
            store,
            marks: Vec::new(),
            outer: Vec::new(),
            inner: Vec::new(),
            arena: Vec::new(),
            batch: Batch::default(),
            parent: Unpacked::default(),
            transitions_count: 0,
            visited_count: 0,
        };
        search.enter(0)?;
        Ok(search)
    }

    /// Goes on for `moves_max` moves along edges.
    ///
    /// # Errors
    /// As [`Store::insert`].
    pub fn advance(&mut self, moves_max: usize) -> Result<Found, StoreFull> {
        for _ in 0..moves_max {
            if self.outer.is_empty() {
                return Ok(Found::NoCycle);
            }
            let found = if self.inner.is_empty() { self.blue()? } else { self.red()? };
            if let Some(closing) = found {
                return Ok(Found::Cycle(self.lasso(closing)));
            }
        }
        Ok(Found::More)
    }

    /// How far it is; `depth` is the length of the outer path.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let rows = self.marks.capacity() * size_of::<Mark>()
            + self.arena.capacity() * size_of::<StateId>()
            + (self.outer.capacity() + self.inner.capacity()) * size_of::<Frame>();
        Progress {
            states_count: u64::from(self.store.len()),
            queued_count: u64::from(self.store.len()) - self.visited_count,
            transitions_count: self.transitions_count,
            deadlocks_count: 0,
            depth: u32::try_from(self.outer.len()).unwrap_or(u32::MAX),
            memory_bytes: self.store.memory_bytes() + rows,
        }
    }

    /// One move of the outer search; the state that closes an accepting cycle, if one does.
    fn blue(&mut self) -> Result<Option<StateId>, StoreFull> {
        let Some(frame) = self.outer.last_mut() else { return Ok(None) };
        let state = frame.state;
        if frame.next < self.arena.len() {
            let next = self.arena[frame.next];
            frame.next += 1;
            let (mark, own) = (self.marks[next as usize], self.marks[state as usize]);
            match mark.colour {
                Colour::Cyan if own.is_accepting || mark.is_accepting => return Ok(Some(next)),
                Colour::White => self.enter(next)?,
                Colour::Cyan | Colour::Blue => frame.is_all_red = false,
                Colour::Red => {}
            }
            return Ok(None);
        }
        let frame = *frame;
        if !frame.is_all_red && self.marks[state as usize].is_accepting {
            // All below is blue or red: look for a way back to the path.
            let first = self.expand(state)?;
            self.inner.push(Frame { state, first, next: first, is_all_red: false });
            return Ok(None);
        }
        self.leave(if frame.is_all_red { Colour::Red } else { Colour::Blue });
        Ok(None)
    }

    /// One move of the inner search.
    fn red(&mut self) -> Result<Option<StateId>, StoreFull> {
        let Some(frame) = self.inner.last_mut() else { return Ok(None) };
        if frame.next < self.arena.len() {
            let next = self.arena[frame.next];
            frame.next += 1;
            match self.marks[next as usize].colour {
                Colour::Cyan => return Ok(Some(next)),
                Colour::Blue => {
                    self.marks[next as usize].colour = Colour::Red;
                    let first = self.expand(next)?;
                    self.inner.push(Frame { state: next, first, next: first, is_all_red: false });
                }
                Colour::White | Colour::Red => {}
            }
            return Ok(None);
        }
        self.arena.truncate(frame.first);
        self.inner.pop();
        if self.inner.is_empty() {
            self.leave(Colour::Red);
        }
        Ok(None)
    }

    /// Takes the last state off the outer path.
    fn leave(&mut self, colour: Colour) {
        if let Some(frame) = self.outer.pop() {
            self.arena.truncate(frame.first);
            self.marks[frame.state as usize].colour = colour;
            if let Some(parent) = self.outer.last_mut() {
                parent.is_all_red &= colour == Colour::Red;
            }
        }
    }

    /// Puts a state on the outer path.
    fn enter(&mut self, state: StateId) -> Result<(), StoreFull> {
        let first = self.expand(state)?;
        self.visited_count += 1;
        let is_accepting = self.system.is_accepting(self.parent.bytes());
        self.marks[state as usize] = Mark { colour: Colour::Cyan, is_accepting };
        self.outer.push(Frame { state, first, next: first, is_all_red: true });
        Ok(())
    }

    /// Appends the successors of a state to the arena; returns where they begin.
    fn expand(&mut self, state: StateId) -> Result<usize, StoreFull> {
        let first = self.arena.len();
        self.store.unpack(state, &mut self.parent);
        let Self { system, store, batch, parent, arena, .. } = self;
        let mut error = None;
        let steps = system.each(parent.bytes(), |next| {
            if let Err(full) = store.prepare(parent, next, batch) {
                error = Some(full);
            }
        });
        store.insert_batch(batch, |id, _| arena.push(id))?;
        store.reshape();
        self.transitions_count += steps as u64;
        let white = Mark { colour: Colour::White, is_accepting: false };
        self.marks.resize(self.store.len() as usize, white);
        error.map_or(Ok(first), Err)
    }

    /// The outer path, then the inner one, closed by a state of the outer.
    fn lasso(&self, closing: StateId) -> Lasso {
        // The inner path begins with the last state of the outer one.
        let ids = self.outer.iter().chain(self.inner.iter().skip(1)).map(|frame| frame.state);
        let mut unpacked = Unpacked::default();
        let mut states: Vec<(StateId, Vec<u8>)> = Vec::new();
        for id in ids {
            self.store.unpack(id, &mut unpacked);
            states.push((id, unpacked.bytes().to_vec()));
        }
        let turn = states.iter().position(|(id, _)| *id == closing).unwrap_or(0);
        let mut prefix: Vec<Vec<u8>> = states.into_iter().map(|(_, state)| state).collect();
        let cycle = prefix.split_off(turn);
        Lasso { prefix, cycle }
    }
}
