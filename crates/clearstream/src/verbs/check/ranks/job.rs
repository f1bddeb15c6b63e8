//! Ranks as processes of an MPI job.
//!
//! Rank 0 alone reads files, talks and judges. It hands each model to the others, who search their
//! part of it, until it says that nothing more comes. Searches are numbered by MPI tags: what is left
//! of an earlier one is dropped, what comes early for the next waits.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use dve::Model;
use mpi::{Flavour, MpiError, World};
use statespace::Kept;
use statespace::partition::{Aim, Outcome};

use super::keep::Files;
use super::{Bounds, DriveError, Exchange, ExchangeError, ModelRank, Task, drive, keep, launcher};
use crate::exit::VerbError;
use crate::signals;

/// Each rank tells rank 0 so often that it is alive, and rank 0 each rank.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// A rank that was not heard of for so long is lost.
const LOST_AFTER: Duration = Duration::from_secs(30);

/// A rank with nothing to do looks for messages without a pause for so long, then with pauses.
const EAGER_FOR: Duration = Duration::from_micros(300);
const PAUSE: Duration = Duration::from_micros(50);

/// The exit code of a job that lost a rank: undecided.
const LOST_CODE: u8 = 11;

/// One process of the job.
#[derive(Debug)]
pub(crate) struct Job {
    /// Gone when the job is over.
    world: Option<World>,
    me: usize,
    ranks_count: usize,
    /// The search under way; counts up.
    number: i32,
    /// Messages of the next search.
    early: VecDeque<(usize, i32, Vec<u8>)>,
    /// When each rank was last heard of.
    heard: Vec<Instant>,
    beat: Instant,
    is_lost: bool,
    /// What this process ends with.
    code: u8,
}

impl From<MpiError> for ExchangeError {
    fn from(error: MpiError) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Job {
    pub(super) fn new(world: World) -> Self {
        let (me, ranks_count) = (world.rank(), world.size());
        let now = Instant::now();
        Self {
            world: Some(world),
            me,
            ranks_count,
            number: 0,
            early: VecDeque::new(),
            heard: vec![now; ranks_count],
            beat: now,
            is_lost: false,
            code: 0,
        }
    }

    /// Says what this process will end with, all being said.
    pub(super) fn settle(&mut self, code: u8) {
        self.code = code;
    }

    pub(super) fn me(&self) -> usize {
        self.me
    }

    pub(super) fn ranks_count(&self) -> usize {
        self.ranks_count
    }

    /// Hands a model to all ranks and searches it with them; for rank 0.
    pub(super) fn search(
        &mut self,
        model: &Model,
        task: &Task<'_>,
        look: impl FnMut(&mut ModelRank<'_>) -> Result<(), ExchangeError>,
    ) -> Result<Outcome, DriveError> {
        let outcome = self.try_search(model, task, look);
        self.is_lost |= outcome.is_err();
        outcome
    }

    fn try_search(
        &mut self,
        model: &Model,
        task: &Task<'_>,
        look: impl FnMut(&mut ModelRank<'_>) -> Result<(), ExchangeError>,
    ) -> Result<Outcome, DriveError> {
        self.number += 1;
        let flags = [task.allow_deadlock, task.bounds.is_reduced].map(u8::from);
        let kept = kept_code(task.kept).to_le_bytes();
        let (aim, files) = ([aim_code(task.aim)], task.files.encode());
        let order = [&aim[..], &flags, &kept, &files, model.source().as_bytes()].concat();
        for to in 1..self.ranks_count {
            self.send(to, order.clone())?;
        }
        let mut rank = keep::begin(model, task, (0, self.ranks_count), self)?;
        drive(&mut rank, self, (task.files, 0), look)?;
        rank.outcome().ok_or_else(|| ExchangeError::Lost("rank 0 has no outcome".to_owned()).into())
    }

    /// Searches what rank 0 hands out until nothing more comes; for all other ranks.
    pub(super) fn serve(&mut self) -> Result<(), VerbError> {
        let served = self.try_serve();
        self.is_lost |= served.is_err();
        served.map_err(|error| VerbError::failed(format!("rank {}: {error}", self.me)))
    }

    fn try_serve(&mut self) -> Result<(), DriveError> {
        loop {
            self.number += 1;
            let order = loop {
                if let Some((0, order)) = self.receive(BEAT_EVERY)? {
                    break order;
                }
            };
            let bad = || ExchangeError::Lost("rank 0 asks for what this rank does not know".into());
            let Some(aim) = order.first().copied().and_then(aim_of) else { return Ok(()) };
            let [_, allow_deadlock, is_reduced, rest @ ..] = order.as_slice() else {
                return Err(bad().into());
            };
            let (kept, rest) = rest.split_first_chunk().ok_or_else(bad)?;
            let (files, text) = Files::decode(rest).ok_or_else(bad)?;
            let text = std::str::from_utf8(text).ok();
            let model = text.and_then(|text| Model::parse(text).ok()).ok_or_else(bad)?;
            let is_reduced = *is_reduced != 0;
            // Time and memory are rank 0's to watch.
            let bounds = Bounds { memory_bytes: None, time: None, is_reduced };
            let kept = kept_of(u64::from_le_bytes(*kept));
            let allow_deadlock = *allow_deadlock != 0;
            let task =
                Task { aim, allow_deadlock, what: "", bounds, kept, files: &files, fairness: None };
            let mut rank = keep::begin(&model, &task, (self.me, self.ranks_count), self)?;
            drive(&mut rank, self, (&files, self.me), |_| Ok(()))?;
        }
    }

    /// A message of this search or the next, if one has arrived; signs of life are noted and gone.
    fn arrived(&mut self) -> Result<Option<(usize, Vec<u8>)>, ExchangeError> {
        while self.early.front().is_some_and(|(_, tag, _)| *tag <= self.number) {
            if let Some((from, tag, message)) = self.early.pop_front()
                && tag == self.number
            {
                return Ok(Some((from, message)));
            }
        }
        let Some(world) = &mut self.world else { return Ok(None) };
        world.reap()?;
        while let Some((from, tag, message)) = world.receive()? {
            if let Some(heard) = self.heard.get_mut(from) {
                *heard = Instant::now();
            }
            if message.is_empty() || tag < self.number {
                continue;
            }
            if tag == self.number {
                return Ok(Some((from, message)));
            }
            self.early.push_back((from, tag, message));
        }
        Ok(None)
    }

    /// Rank 0 says that nothing more comes and hears everyone out: MPI may wait for ever for a message
    /// that nobody took before its receiver left. So nobody says anything behind that word.
    fn part(&mut self) -> Result<(), ExchangeError> {
        if self.me != 0 {
            return self.send(0, vec![END, 0]);
        }
        self.number += 1;
        (1..self.ranks_count).try_for_each(|to| self.send(to, vec![END, 0]))?;
        let start = Instant::now();
        let mut left = 1;
        while left < self.ranks_count {
            if self.arrived()?.is_some() {
                left += 1;
            } else if start.elapsed() > LOST_AFTER {
                return Err(ExchangeError::Lost("a rank does not take its leave".to_owned()));
            } else {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Tells that this rank is alive, and whether another is not.
    fn beat(&mut self) -> Result<(), ExchangeError> {
        if self.beat.elapsed() < BEAT_EVERY {
            return Ok(());
        }
        self.beat = Instant::now();
        let others = if self.me == 0 { 1..self.ranks_count } else { 0..1 };
        for other in others {
            if self.heard[other].elapsed() > LOST_AFTER {
                let seconds = LOST_AFTER.as_secs();
                let text = format!("rank {other} was not heard of for {seconds} s: it is lost");
                return Err(ExchangeError::Lost(text));
            }
            self.send(other, Vec::new())?;
        }
        Ok(())
    }
}

impl Exchange for Job {
    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), ExchangeError> {
        let Some(world) = &mut self.world else { return Ok(()) };
        Ok(world.send(to, self.number, message)?)
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Vec<u8>)>, ExchangeError> {
        self.beat()?;
        let start = Instant::now();
        loop {
            let message = self.arrived()?;
            let waited = start.elapsed();
            if message.is_some() || waited >= wait {
                return Ok(message);
            }
            if waited < EAGER_FOR {
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        }
    }

    fn stay(&mut self) -> Result<(), ExchangeError> {
        self.beat()?;
        // All ranks are in this search: what arrives is of this one, and stays in its order.
        let mut waiting = VecDeque::new();
        while let Some((from, message)) = self.arrived()? {
            waiting.push_back((from, self.number, message));
        }
        waiting.append(&mut self.early);
        self.early = waiting;
        Ok(())
    }
}

impl Drop for Job {
    /// Rank 0 tells the others that nothing more comes. Whoever lost a rank ends all.
    fn drop(&mut self) {
        if !self.is_lost {
            self.is_lost = self.part().is_err();
        }
        let Some(world) = self.world.take() else { return };
        // A launcher of MPICH that was told to end the job may end with 0, which says that all is well,
        // unless a rank ends it first.
        let is_cut = signals::caught().is_some();
        let ends_all = is_cut && self.me == 0 && world.flavour() == Flavour::Mpich;
        let code = if self.is_lost || is_cut && self.code == 0 { LOST_CODE } else { self.code };
        if self.is_lost || ends_all {
            if self.is_lost {
                launcher::end_soon(world.flavour());
            }
            world.abort(code);
        } else {
            // What it came to has been said; a bad end of MPI takes nothing from it.
            world.finish(code).ok();
        }
    }
}

/// Nothing more comes.
const END: u8 = u8::MAX;

fn aim_code(aim: Aim) -> u8 {
    match aim {
        Aim::Broken { is_full: false } => 0,
        Aim::Broken { is_full: true } => 1,
        Aim::Cycle => 2,
        Aim::Judged => 3,
    }
}

fn aim_of(code: u8) -> Option<Aim> {
    match code {
        0 => Some(Aim::Broken { is_full: false }),
        1 => Some(Aim::Broken { is_full: true }),
        2 => Some(Aim::Cycle),
        3 => Some(Aim::Judged),
        _ => None,
    }
}

/// All of a state, a hash, or a table of so many bytes.
fn kept_code(kept: Option<Kept>) -> u64 {
    match kept {
        None => 0,
        Some(Kept::Hash) => 1,
        Some(Kept::Bits { table_bytes }) => (table_bytes as u64).max(2),
    }
}

fn kept_of(code: u64) -> Option<Kept> {
    match code {
        0 => None,
        1 => Some(Kept::Hash),
        bytes => Some(Kept::Bits { table_bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }),
    }
}
