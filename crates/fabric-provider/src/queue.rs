//! Completion queues: what ended, in order, until the program reads it. Event counters: how many operations ended.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::time::Duration;

use crate::abi::{CqEntry, CqErrorEntry};

/// Polls in a row that found nothing after which others may run: ranks that share a core would
/// otherwise wait for the end of each other's time slices.
const POLLS_BEFORE_YIELD: u32 = 64;
/// Where it is not ranks that ran meanwhile, which yield themselves, but programs that use their time
/// slices up, polling goes on for longer: up to so many times twice as long.
const DOUBLINGS_MAX: u32 = 5;
/// Another rank comes back sooner.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// And mostly sooner than this.
const SHORT_YIELD: Duration = Duration::from_micros(200);

/// One thing that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) entry: CqEntry,
    /// From which address of the endpoint's address vector.
    pub(crate) source: u64,
    pub(crate) error: Option<Error>,
}

/// How it failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Error {
    pub(crate) number: c_int,
    /// Bytes of the message for which there was no room.
    pub(crate) cut_bytes: usize,
}

/// An event counter. What a program sets or adds wraps around.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) successes_count: u64,
    pub(crate) errors_count: u64,
}

/// A completion queue. It has no bound: each entry is an operation that the machine counted.
#[derive(Debug)]
pub(crate) struct Queue {
    ended: VecDeque<Ended>,
    pub(crate) entry_bytes: usize,
    /// Whoever waits for an entry is to return without one.
    pub(crate) is_signalled: bool,
    empty_polls: u32,
    doublings: u32,
}

impl Queue {
    /// With entries of so many bytes: the beginning of [`CqEntry`].
    pub(crate) fn new(entry_bytes: usize) -> Self {
        Self {
            ended: VecDeque::new(),
            entry_bytes,
            is_signalled: false,
            empty_polls: 0,
            doublings: 0,
        }
    }

    pub(crate) fn push(&mut self, ended: Ended) {
        self.ended.push_back(ended);
    }

    /// The next one, if it did not fail.
    pub(crate) fn pop(&mut self) -> Option<Ended> {
        self.ended.pop_front_if(|ended| ended.error.is_none())
    }

    /// The next one, failed or not.
    pub(crate) fn pop_any(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// How many wait for the program.
    pub(crate) fn count(&self) -> usize {
        self.ended.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// Whether the next one failed.
    pub(crate) fn has_error(&self) -> bool {
        self.ended.front().is_some_and(|ended| ended.error.is_some())
    }

    /// The next one, if it failed.
    pub(crate) fn pop_error(&mut self) -> Option<CqErrorEntry> {
        let ended = self.ended.pop_front_if(|ended| ended.error.is_some())?;
        let error = ended.error?;
        Some(CqErrorEntry {
            entry: ended.entry,
            olen: error.cut_bytes,
            err: error.number,
            prov_errno: error.number,
            err_data: 0,
            err_data_size: 0,
        })
    }

    /// A poll found something, or nothing. True: somebody else should run.
    pub(crate) fn note_poll(&mut self, has_found: bool) -> bool {
        self.empty_polls = if has_found { 0 } else { self.empty_polls.saturating_add(1) };
        self.empty_polls > POLLS_BEFORE_YIELD << self.doublings
    }

    /// Others ran for so long.
    pub(crate) fn note_yield(&mut self, took: Duration) {
        if took > LONG_YIELD {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
            self.empty_polls = 0;
        } else if took < SHORT_YIELD {
            self.doublings = self.doublings.saturating_sub(1);
        }
    }
}
