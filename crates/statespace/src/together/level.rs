//! States, level by level, in rows of numbers; and how a level is shared out.

use std::ops::Range;

use crate::store::StateId;

/// A chunk has at least so many states, and at most so many.
const CHUNK_MIN: usize = 8;
const CHUNK_MAX: usize = 256;

/// What is left of a level is handed out in chunks of this share for each thread.
const CHUNKS_A_THREAD: usize = 4;

/// All levels so far.
#[derive(Debug)]
pub(super) struct Levels {
    threads_count: usize,
    rows: Vec<Range<StateId>>,
    /// Where the rows of each level end.
    ends: Vec<usize>,
    /// The level that is looked at.
    chunks: Vec<Range<StateId>>,
    level_states: usize,
    states_count: u64,
}

impl Levels {
    /// The first level has these states.
    pub(super) fn new(first: Vec<Range<StateId>>, threads_count: usize) -> Self {
        let mut levels = Self {
            threads_count,
            rows: Vec::new(),
            ends: Vec::new(),
            chunks: Vec::new(),
            level_states: 0,
            states_count: 0,
        };
        levels.add(first);
        levels
    }

    /// Goes on to the next level; false if there is none.
    pub(super) fn go_on(&mut self, rows: impl IntoIterator<Item = Range<StateId>>) -> bool {
        let mut rows = rows.into_iter().peekable();
        let is_any = rows.peek().is_some();
        if is_any {
            self.add(rows);
        }
        is_any
    }

    /// Goes on to the next level, which may be empty where other hosts have states of it.
    pub(super) fn add(&mut self, rows: impl IntoIterator<Item = Range<StateId>>) {
        let first = self.rows.len();
        self.rows.extend(rows);
        let states = self.rows[first..].iter().map(ExactSizeIterator::len).sum();
        self.ends.push(self.rows.len());
        self.level_states = states;
        self.states_count += states as u64;
        self.chunks.clear();
        let mut left = states;
        for row in &self.rows[first..] {
            let mut row = row.clone();
            while !row.is_empty() {
                let wanted = left / (self.threads_count * CHUNKS_A_THREAD);
                let size = wanted.clamp(CHUNK_MIN, CHUNK_MAX).min(row.len());
                let chunk = row.start..row.start + size as u32;
                row.start = chunk.end;
                left -= size;
                self.chunks.push(chunk);
            }
        }
    }

    /// Takes back a last level that is empty on all hosts.
    pub(super) fn forget_empty(&mut self) {
        if self.ends.len() > 1 {
            self.ends.pop();
        }
    }

    /// A part of the level that is looked at.
    pub(super) fn chunk(&self, number: usize) -> Option<Range<StateId>> {
        self.chunks.get(number).cloned()
    }

    /// Whether it is not worth calling others for.
    pub(super) fn is_small(&self) -> bool {
        self.level_states < super::ALONE_STATES
    }

    /// Steps from the first state to those of the level that is looked at.
    pub(super) fn depth(&self) -> usize {
        self.ends.len() - 1
    }

    /// All states but those found since.
    pub(super) fn rows(&self) -> &[Range<StateId>] {
        &self.rows
    }

    /// How many these are.
    pub(super) fn states_count(&self) -> u32 {
        u32::try_from(self.states_count).unwrap_or(u32::MAX)
    }

    /// The states of a level; none of one that was not begun.
    pub(super) fn states(&self, level: usize) -> impl Iterator<Item = StateId> {
        let first = level.checked_sub(1).map_or(0, |before| self.end(before));
        self.rows[first..self.end(level)].iter().cloned().flatten()
    }

    fn end(&self, level: usize) -> usize {
        self.ends.get(level).copied().unwrap_or(self.rows.len())
    }

    /// Memory in use, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.rows.capacity() + self.chunks.capacity()) * size_of::<Range<StateId>>()
            + self.ends.capacity() * size_of::<usize>()
    }
}
