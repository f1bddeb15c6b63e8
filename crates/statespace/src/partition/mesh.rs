//! States on their way to other ranks: gathered into batches, as many under way as the far end takes.

use std::collections::VecDeque;

use super::message::{GROUP_BYTES, Key, Message, group};

/// A batch this long goes out at once. Longer messages wait in MPI for a round trip before they go
/// (rendezvous; UCX over TCP from 8 KiB on).
const BATCH_BYTES: usize = 8000;

/// A batch goes out at this age, microseconds, however short it is.
const BATCH_AGE_MAX_US: u64 = 400;

/// Batches to one rank that it has not yet told to have taken in. Enough for 32 MiB under way.
const WINDOW_BATCHES: u64 = 4096;

/// One rank's connections to all others.
#[derive(Debug)]
pub(super) struct Mesh {
    lines: Vec<Line>,
    task: u32,
    sent_batches: u64,
    received_batches: u64,
    sent_bytes: u64,
    /// Messages that are no batches.
    letters: VecDeque<(usize, Vec<u8>)>,
}

/// What goes to one other rank.
#[derive(Debug, Default)]
struct Line {
    open: Vec<u8>,
    /// Where the last group's head stands, its key and its states.
    group: Option<(usize, Key, u32)>,
    opened_us: u64,
    full: VecDeque<Vec<u8>>,
    sent_batches: u64,
    /// How many of them it has taken in.
    taken_batches: u64,
    /// Taken in from there; how much of that it was told.
    received_batches: u64,
    told_batches: u64,
}

impl Mesh {
    pub(super) fn new(ranks_count: usize) -> Self {
        Self {
            lines: (0..ranks_count).map(|_| Line::default()).collect(),
            task: 0,
            sent_batches: 0,
            received_batches: 0,
            sent_bytes: 0,
            letters: VecDeque::new(),
        }
    }

    /// States from now on belong to this task.
    pub(super) fn set_task(&mut self, task: u32) {
        self.task = task;
    }

    /// Hands a state to another rank, some time soon.
    #[inline]
    pub(super) fn push(&mut self, to: usize, key: Key, state: &[u8], now_us: u64) {
        let line = &mut self.lines[to];
        if line.open.is_empty() {
            line.open.reserve(BATCH_BYTES + GROUP_BYTES + state.len());
            line.open.extend_from_slice(&Message::Data { task: self.task }.encode());
            line.opened_us = now_us;
        }
        match &mut line.group {
            Some((_, of, count)) if *of == key => *count += 1,
            _ => {
                line.close_group();
                line.group = Some((line.open.len(), key, 1));
                line.open.extend_from_slice(&[0; GROUP_BYTES]);
            }
        }
        line.open.extend_from_slice(state);
        if line.open.len() >= BATCH_BYTES {
            line.close();
        }
    }

    /// Sends a message that is no batch.
    pub(super) fn letter(&mut self, to: usize, message: &Message) {
        self.letters.push_back((to, message.encode()));
    }

    /// A batch came from there and was taken in.
    pub(super) fn took(&mut self, from: usize) {
        self.received_batches += 1;
        self.lines[from].received_batches += 1;
    }

    /// That rank took in so many of our batches.
    pub(super) fn was_taken(&mut self, by: usize, batches: u64) {
        let line = &mut self.lines[by];
        line.taken_batches = line.taken_batches.max(batches.min(line.sent_batches));
    }

    /// What is to be sent now. `is_idle`: nothing else is left to do, so nothing is worth waiting for.
    pub(super) fn poll(&mut self, now_us: u64, is_idle: bool) -> Option<(usize, Vec<u8>)> {
        if let Some(letter) = self.letters.pop_front() {
            return Some(letter);
        }
        for (to, line) in self.lines.iter_mut().enumerate() {
            let owed = line.received_batches - line.told_batches;
            if owed > WINDOW_BATCHES / 4 {
                line.told_batches = line.received_batches;
                return Some((to, Message::Taken { batches: line.received_batches }.encode()));
            }
            let is_old = now_us.saturating_sub(line.opened_us) >= BATCH_AGE_MAX_US;
            if !line.open.is_empty() && (is_idle || is_old) {
                line.close();
            }
            if line.sent_batches - line.taken_batches < WINDOW_BATCHES
                && let Some(batch) = line.full.pop_front()
            {
                line.sent_batches += 1;
                self.sent_batches += 1;
                self.sent_bytes += batch.len() as u64;
                return Some((to, batch));
            }
        }
        None
    }

    /// Whether some rank takes no more for now.
    pub(super) fn is_blocked(&self) -> bool {
        self.lines.iter().any(|line| {
            !line.full.is_empty() && line.sent_batches - line.taken_batches >= WINDOW_BATCHES
        })
    }

    /// Whether every state that was handed over has gone out.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.open.is_empty() && line.full.is_empty())
    }

    /// Forgets states that have not gone out.
    pub(super) fn clear(&mut self) {
        for line in &mut self.lines {
            line.open.clear();
            line.group = None;
            line.full.clear();
        }
    }

    pub(super) fn sent_batches(&self) -> u64 {
        self.sent_batches
    }

    pub(super) fn received_batches(&self) -> u64 {
        self.received_batches
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

impl Line {
    fn close_group(&mut self) {
        if let Some((at, key, count)) = self.group.take() {
            self.open[at..at + GROUP_BYTES].copy_from_slice(&group(key, count));
        }
    }

    fn close(&mut self) {
        self.close_group();
        self.full.push_back(std::mem::take(&mut self.open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::message::{NO_ORIGIN, groups};

    const KEY: Key = Key { distance: 3, origin: NO_ORIGIN };

    #[test]
    fn a_batch_waits_for_company_but_not_for_long() {
        let mut mesh = Mesh::new(2);
        mesh.push(1, KEY, &[1, 2], 1000);
        mesh.push(1, KEY, &[3, 4], 1100);
        mesh.push(1, Key { distance: 4, ..KEY }, &[5, 6], 1100);
        assert_eq!(mesh.poll(1000 + BATCH_AGE_MAX_US - 1, false), None);
        let (to, batch) = mesh.poll(1000 + BATCH_AGE_MAX_US, false).unwrap();
        assert_eq!((to, mesh.is_empty()), (1, true));
        let (_, rest) = Message::decode(&batch).unwrap();
        let states: Vec<_> = groups(rest, 2).map(Result::unwrap).collect();
        let later = Key { distance: 4, ..KEY };
        assert_eq!(states, [(KEY, &[1u8, 2, 3, 4][..]), (later, &[5, 6][..])]);
        mesh.push(1, KEY, &[1, 2], 9000);
        assert!(mesh.poll(9000, true).is_some(), "idle: nothing is worth waiting for");
    }

    #[test]
    fn no_more_is_under_way_than_the_far_end_takes() {
        let mut mesh = Mesh::new(2);
        for _ in 0..=WINDOW_BATCHES {
            mesh.push(1, KEY, &[0; BATCH_BYTES], 0);
        }
        let sent = std::iter::from_fn(|| mesh.poll(0, false)).count() as u64;
        assert_eq!((sent, mesh.is_blocked()), (WINDOW_BATCHES, true));
        mesh.was_taken(1, 1);
        assert!(!mesh.is_blocked() && mesh.poll(0, false).is_some() && mesh.is_empty());
        // A far end cannot have taken more than was sent.
        mesh.was_taken(1, u64::MAX);
        assert!(!mesh.is_blocked());
    }
}
