//! What one host of several that search together has to do with the others.
//!
//! A hash says which host a state belongs to, as for ranks ([`crate::partition`]); hosts go through the levels of the
//! search together. While a level is looked at, states that belong elsewhere leave in batches, and batches from
//! elsewhere are added to this host's next level. A host that has looked at its share of a level tells each other how many batches
//! it sent there; when it has all batches of all others, it goes on with the next level. When no host has
//! looked at a state, the search is over.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::letter::{Done, Letter, batch_head};
use super::{Ended, lock};
use crate::partition::home::{Home, hash};
use crate::partition::sent::Sent;
use crate::partition::{Figures, MalformedMessage};
use crate::reach::System;

/// A batch this long goes out at once. Longer messages wait in MPI for a round trip before they go
/// (rendezvous; UCX over TCP from 8 KiB on).
const BATCH_BYTES: usize = 8000;

/// Batches to one host that it has not yet told to have taken in: 32 MiB.
const WINDOW_BATCHES: u64 = 4096;

/// Batches that wait for a place among those; with more, threads take in what came before they look at
/// further states.
const WAITING_MAX: usize = 256;

/// This host's connections to all others.
#[derive(Debug)]
pub(super) struct Far {
    pub(super) me: usize,
    pub(super) hosts_count: usize,
    home: Home,
    state_bytes: usize,
    mail: Mutex<Mail>,
    /// Batches that came and were not taken.
    waiting: AtomicUsize,
    /// Some host takes no more for now.
    is_blocked: AtomicBool,
}

/// What came and what is to go.
#[derive(Debug, Default)]
struct Mail {
    level: u32,
    /// Whether the others know that this host has looked at its share of the level.
    is_told: bool,
    /// The same as they know it.
    own: Option<Done>,
    came: VecDeque<(usize, Vec<u8>)>,
    letters: VecDeque<(usize, Vec<u8>)>,
    lines: Vec<Line>,
    last: Last,
    sent_bytes: u64,
}

/// One other host.
#[derive(Debug, Default)]
struct Line {
    full: VecDeque<Vec<u8>>,
    sent_batches: u64,
    /// How many of them it has taken in.
    taken_batches: u64,
    /// Batches to it in this level.
    given: u64,
    /// Batches from it in this level, and how many of them were added.
    came: u64,
    added: u64,
    /// Added in all levels; how much of that it was told.
    added_batches: u64,
    told_batches: u64,
    done: Option<Done>,
    /// The same of the next level, which it may have begun.
    early: VecDeque<Vec<u8>>,
    early_done: Option<Done>,
}

/// What matters when the search is over.
#[derive(Debug, Default)]
struct Last {
    /// How far each host was when it last told host 0.
    figures: Vec<Figures>,
    /// How it ended there.
    ends: Vec<Option<HostEnd>>,
    question: u32,
    /// This host's turn to answer: the question, a level and a state.
    asked: Option<(u32, u32, Vec<u8>)>,
    answers_count: usize,
    answer: Option<Vec<u8>>,
    is_finished: bool,
}

/// How the search ended on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEnd {
    /// How it ended.
    pub ended: Ended,
    /// What was done there.
    pub figures: Figures,
    /// The level of a state that violates a property, and the state, if one was found.
    pub broken: Option<(u32, Vec<u8>)>,
    /// [`crate::partition::Subject::notes`] of one thread after the other.
    pub notes: Vec<u8>,
}

/// What a message asks of the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    /// The search ends before it is done.
    Halt,
    /// Another host found a violation.
    Broken,
}

/// What all hosts did in a level.
#[derive(Debug, Clone, Copy)]
pub(super) struct LevelEnd {
    pub(super) looked_count: u64,
    pub(super) is_broken: bool,
}

impl Far {
    pub(super) fn new(system: &mut impl System, me: usize, hosts_count: usize) -> Self {
        assert!(me < hosts_count, "there is no host {me} of {hosts_count}");
        let lines = (0..hosts_count).map(|_| Line::default()).collect();
        let last = Last {
            figures: vec![Figures::default(); hosts_count],
            ends: vec![None; hosts_count],
            ..Last::default()
        };
        Self {
            me,
            hosts_count,
            home: Home::find(system, hosts_count),
            state_bytes: system.state_bytes(),
            mail: Mutex::new(Mail { lines, last, ..Mail::default() }),
            waiting: AtomicUsize::new(0),
            is_blocked: AtomicBool::new(false),
        }
    }

    /// Whether a state belongs to this host.
    pub(super) fn is_home(&self, state: &[u8]) -> bool {
        self.home.of(state) == self.me
    }

    pub(super) fn state_bytes(&self) -> usize {
        self.state_bytes.max(1)
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        lock(&self.mail)
    }

    /// Whether so much waits to go that nothing should be added to it.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// Hands over a batch of the level that is looked at.
    fn give(&self, to: usize, batch: Vec<u8>) {
        let mut mail = self.mail();
        let line = &mut mail.lines[to];
        line.given += 1;
        line.full.push_back(batch);
        self.is_blocked.fetch_or(line.full.len() > WAITING_MAX, Ordering::Relaxed);
    }

    /// A batch that came, and from where.
    pub(super) fn take(&self) -> Option<(usize, Vec<u8>)> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let taken = self.mail().came.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// A batch's states were added.
    pub(super) fn added(&self, from: usize) {
        let mut mail = self.mail();
        let line = &mut mail.lines[from];
        line.added += 1;
        line.added_batches += 1;
        if line.added_batches - line.told_batches > WINDOW_BATCHES / 4 {
            line.told_batches = line.added_batches;
            let letter = Letter::Taken { batches: line.told_batches }.encode();
            mail.letters.push_back((from, letter));
        }
    }

    /// What is to be sent now, and to which host.
    pub(super) fn poll(&self) -> Option<(usize, Vec<u8>)> {
        let mut guard = self.mail();
        let mail = &mut *guard;
        if let Some(letter) = mail.letters.pop_front() {
            return Some(letter);
        }
        let mut found = None;
        let mut is_blocked = false;
        for (to, line) in mail.lines.iter_mut().enumerate() {
            if found.is_none()
                && line.sent_batches - line.taken_batches < WINDOW_BATCHES
                && let Some(batch) = line.full.pop_front()
            {
                line.sent_batches += 1;
                mail.sent_bytes += batch.len() as u64;
                found = Some((to, batch));
            }
            is_blocked |= line.full.len() > WAITING_MAX;
        }
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
        found
    }

    /// Takes in a message of another host. `is_full`: the search goes on after a violation.
    pub(super) fn handle(
        &self,
        from: usize,
        bytes: &[u8],
        is_full: bool,
    ) -> Result<Heard, MalformedMessage> {
        let letter = Letter::decode(bytes, self.state_bytes)?;
        let mut guard = self.mail();
        let mail = &mut *guard;
        let level = mail.level;
        let is_next =
            |of: u32| of.checked_sub(level).filter(|ahead| *ahead < 2).map(|one| one == 1);
        let is_lead = self.me == 0;
        let line = mail.lines.get_mut(from).filter(|_| from != self.me).ok_or(MalformedMessage)?;
        match letter {
            // Of levels that were cut short.
            Letter::Batch { level: of, .. } | Letter::Done { level: of, .. } if of < level => {}
            Letter::Batch { level: of, states } => {
                let states = states.to_vec();
                if is_next(of).ok_or(MalformedMessage)? {
                    line.early.push_back(states);
                } else {
                    line.came += 1;
                    mail.came.push_back((from, states));
                    self.waiting.fetch_add(1, Ordering::Relaxed);
                }
            }
            Letter::Done { level: of, done } => {
                let is_early = is_next(of).ok_or(MalformedMessage)?;
                let known = if is_early { &mut line.early_done } else { &mut line.done };
                if known.replace(done).is_some() {
                    return Err(MalformedMessage);
                }
                return Ok(if done.is_broken && !is_full { Heard::Broken } else { Heard::Nothing });
            }
            Letter::Taken { batches } => {
                line.taken_batches = line.taken_batches.max(batches.min(line.sent_batches));
            }
            Letter::Halt => return Ok(Heard::Halt),
            Letter::Figures(figures) if is_lead => mail.last.figures[from] = figures,
            Letter::Ended { ended, figures, broken, notes } if is_lead => {
                let broken = broken.map(|(level, state)| (level, state.to_vec()));
                let end = HostEnd { ended, figures, broken, notes: notes.to_vec() };
                mail.last.figures[from] = figures;
                mail.last.ends[from] = Some(end);
            }
            Letter::Answer { question, state } if is_lead => {
                if question == mail.last.question {
                    mail.last.answers_count += 1;
                    let state = state.map(<[u8]>::to_vec);
                    mail.last.answer = mail.last.answer.take().or(state);
                }
            }
            Letter::Ask { question, level, state } if from == 0 => {
                mail.last.asked = Some((question, level, state.to_vec()));
            }
            Letter::Finish if from == 0 => mail.last.is_finished = true,
            _ => return Err(MalformedMessage),
        }
        Ok(Heard::Nothing)
    }

    fn tell_all(&self, mail: &mut Mail, letter: &Letter<'_>) {
        let others = (0..self.hosts_count).filter(|other| *other != self.me);
        mail.letters.extend(others.map(|other| (other, letter.encode())));
    }

    /// Tells all others, once, that this host has looked at its share of the level.
    pub(super) fn tell_done(&self, looked_count: u64, is_broken: bool) {
        let mut mail = self.mail();
        if std::mem::replace(&mut mail.is_told, true) {
            return;
        }
        let level = mail.level;
        mail.own = Some(Done { batches: 0, looked_count, is_broken });
        for to in (0..self.hosts_count).filter(|to| *to != self.me) {
            let batches = mail.lines[to].given;
            let done = Done { batches, looked_count, is_broken };
            mail.letters.push_back((to, Letter::Done { level, done }.encode()));
        }
    }

    /// Whether every host has looked at its share, and all batches were added here.
    pub(super) fn is_level_complete(&self) -> bool {
        let mail = self.mail();
        mail.own.is_some()
            && mail.lines.iter().enumerate().all(|(host, line)| {
                let is_all = |done: Done| done.batches == line.came && line.came == line.added;
                host == self.me || line.done.is_some_and(is_all)
            })
    }

    /// Goes on to the next level; what all did in this one.
    pub(super) fn go_on(&self) -> LevelEnd {
        let mut guard = self.mail();
        let mail = &mut *guard;
        let mut end = LevelEnd { looked_count: 0, is_broken: false };
        mail.level += 1;
        mail.is_told = false;
        let mut note = |done: Option<Done>| {
            if let Some(done) = done {
                end.looked_count = end.looked_count.saturating_add(done.looked_count);
                end.is_broken |= done.is_broken;
            }
        };
        note(mail.own.take());
        for (host, line) in mail.lines.iter_mut().enumerate() {
            note(line.done.take());
            line.done = line.early_done.take();
            line.came = line.early.len() as u64;
            (line.given, line.added) = (0, 0);
            self.waiting.fetch_add(line.early.len(), Ordering::Relaxed);
            mail.came.extend(line.early.drain(..).map(|states| (host, states)));
        }
        end
    }

    /// Tells all others that the search ends before it is done.
    pub(super) fn halt_all(&self) {
        self.tell_all(&mut self.mail(), &Letter::Halt);
    }

    /// Batches and bytes that have left.
    pub(super) fn sent(&self) -> (u64, u64) {
        let mail = self.mail();
        (mail.lines.iter().map(|line| line.sent_batches).sum(), mail.sent_bytes)
    }

    /// Tells host 0 how far this one is.
    pub(super) fn tell_figures(&self, figures: Figures) {
        let mut mail = self.mail();
        if self.me == 0 {
            mail.last.figures[0] = figures;
        } else {
            mail.letters.push_back((0, Letter::Figures(figures).encode()));
        }
    }

    pub(super) fn all_figures(&self) -> Vec<Figures> {
        self.mail().last.figures.clone()
    }

    /// Tells host 0 how the search ended here. Batches that have not left would come too late.
    pub(super) fn tell_end(&self, end: HostEnd) {
        let mut mail = self.mail();
        mail.lines.iter_mut().for_each(|line| line.full.clear());
        if self.me == 0 {
            mail.last.figures[0] = end.figures;
            mail.last.ends[0] = Some(end);
            return;
        }
        let HostEnd { ended, figures, broken, notes } = end;
        let broken = broken.as_ref().map(|(level, state)| (*level, state.as_slice()));
        let letter = Letter::Ended { ended, figures, broken, notes: &notes }.encode();
        mail.letters.push_back((0, letter));
    }

    /// How it ended everywhere, once host 0 knows.
    pub(super) fn all_ends(&self) -> Option<Vec<HostEnd>> {
        self.mail().last.ends.iter().cloned().collect()
    }

    /// Asks all others, for host 0.
    pub(super) fn ask(&self, level: u32, state: &[u8]) {
        let mut mail = self.mail();
        let last = &mut mail.last;
        last.question += 1;
        (last.answers_count, last.answer) = (0, None);
        let question = last.question;
        self.tell_all(&mut mail, &Letter::Ask { question, level, state });
    }

    /// What the others answer: a state, or none if they all have none; `None` while that is open.
    pub(super) fn answer(&self) -> Option<Option<Vec<u8>>> {
        let mut mail = self.mail();
        let is_all = mail.last.answers_count + 1 >= self.hosts_count;
        (is_all || mail.last.answer.is_some()).then(|| mail.last.answer.take())
    }

    /// What host 0 asks of this one.
    pub(super) fn asked(&self) -> Option<(u32, u32, Vec<u8>)> {
        self.mail().last.asked.take()
    }

    pub(super) fn tell_answer(&self, question: u32, state: Option<&[u8]>) {
        self.mail().letters.push_back((0, Letter::Answer { question, state }.encode()));
    }

    /// Lets the others go, for host 0.
    pub(super) fn finish(&self) {
        let mut mail = self.mail();
        self.tell_all(&mut mail, &Letter::Finish);
        mail.last.is_finished = true;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.mail().last.is_finished
    }
}

/// States of one thread that are on their way to other hosts.
#[derive(Debug)]
pub(super) struct Away {
    open: Vec<Vec<u8>>,
    sent: Sent,
}

impl Away {
    pub(super) fn new(far: &Far) -> Self {
        Self { open: vec![Vec::new(); far.hosts_count], sent: Sent::new(far.state_bytes) }
    }

    /// Takes a state that a state of this level leads to, unless it belongs to this host.
    #[inline]
    pub(super) fn takes(&mut self, far: &Far, level: u32, state: &[u8]) -> bool {
        let to = far.home.of(state);
        if to == far.me {
            return false;
        }
        if !self.sent.knows(hash(state), state, level + 1) {
            let open = &mut self.open[to];
            if open.is_empty() {
                open.reserve(BATCH_BYTES + state.len());
                open.extend_from_slice(&batch_head(level));
            }
            open.extend_from_slice(state);
            if open.len() >= BATCH_BYTES {
                far.give(to, std::mem::take(open));
            }
        }
        true
    }

    /// Hands over what there is.
    pub(super) fn close(&mut self, far: &Far) {
        for (to, open) in self.open.iter_mut().enumerate() {
            if !open.is_empty() {
                far.give(to, std::mem::take(open));
            }
        }
    }
}
