//! Processes of an MPI job that each have one set of states, which their threads share.
//!
//! The thread that entered MPI is one of those that search; it carries the messages of its process between looks at
//! states.

use std::thread;
use std::time::{Duration, Instant};

use crew::{Exchange, Job, Transport, bind_thread};
use dve::Model;
use statespace::partition::{Figures, Goal, RankError, Subject};
use statespace::{Ended, HostEnd, SharedSearch};

use super::{
    CUT_GRACE, LOOK_EVERY, MESSAGES_MAX, STOP_GRACE, Task, Threads, all_taken, job, progress,
    violated,
};
use crate::observer::Observer;
use crate::report::{Report, Traffic, Unreachable, Verdict};
use crate::watch::Watch;
use crate::{CheckError, DriveError};

/// A process with nothing to do waits for messages this long at a time.
const IDLE_WAIT: Duration = Duration::from_millis(1);

/// A thread that waits for states of other processes looks for them this often.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// Processes tell process 0 how far they are this often.
const FIGURES_EVERY: Duration = Duration::from_millis(200);

/// How the search ended everywhere, and a shortest run to a violation if there is one.
type End = (Vec<HostEnd>, Option<Vec<Vec<u8>>>);

/// Hands a model to all processes and searches it with them; for process 0.
pub(super) fn search<T: Transport>(
    job: &mut Job<T>,
    model: &Model,
    task: &Task<'_>,
    threads: &Threads,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let ranks_count = job.ranks_count() * threads.count;
    let mut lead = Lead::new(Watch::new(task.bounds, observer), ranks_count);
    let outcome = job
        .order(&job::encode(model, task, true))
        .map_err(DriveError::from)
        .and_then(|()| run(job, model, task, threads, &mut |search| lead.look(search)))
        .and_then(|(search, notes)| {
            lead_to_end(job, &search, task, model, notes, &mut |search| lead.look(search))
        });
    if outcome.is_err() {
        job.give_up();
    }
    lead.report(model, task, outcome)
}

/// Takes part in a search that process 0 has ordered; for all others.
pub(super) fn serve<T: Transport>(
    job: &mut Job<T>,
    model: &Model,
    task: &Task<'_>,
    threads: &Threads,
) -> Result<(), DriveError> {
    let mut told = Instant::now();
    let (search, notes) = run(job, model, task, threads, &mut |search| {
        if told.elapsed() >= FIGURES_EVERY {
            told = Instant::now();
            search.tell_figures();
        }
        Ok(())
    })?;
    search.tell_end(notes);
    let mut system = task.system(model);
    while !search.is_finished() {
        exchange(&search, job, IDLE_WAIT)?;
        search.answer_asked(&mut system);
    }
    Ok(())
}

/// Runs the threads of this process to their end. `look` is called now and then; it may stop the search.
fn run<'m, T: Transport>(
    job: &mut Job<T>,
    model: &'m Model,
    task: &Task<'_>,
    threads: &Threads,
    look: &mut dyn FnMut(&SharedSearch) -> Result<(), DriveError>,
) -> Result<(SharedSearch, Vec<u8>), DriveError> {
    let mut system = task.system(model);
    let is_full = task.aim == Goal::BadState { is_full: true };
    let us = (job.me(), job.ranks_count());
    let search = SharedSearch::of_host(&mut system, us, threads.count, is_full)
        .map_err(|_full| RankError::StoreFull)?;
    look(&search)?;
    let mut looked = Instant::now();
    let mut failed = None;
    let mut post = |is_idle: bool| {
        let wait = if is_idle { IDLE_WAIT } else { Duration::ZERO };
        let mut done = exchange(&search, job, wait);
        if done.is_ok() && looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            done = look(&search);
        }
        if let Err(error) = done {
            search.stop();
            failed.get_or_insert(error);
        }
    };
    let other = |me: usize| {
        if let Some(&core) = threads.cores.get(me) {
            bind_thread(core);
        }
        // Made here, so that what it writes to stands near nothing of another thread.
        let mut system = task.system(model);
        let mut wait = |is_idle: bool| {
            if is_idle {
                thread::sleep(LOOK_AGAIN);
            }
        };
        search.work_and_post(me, &mut system, &mut wait).map(|()| system.notes())
    };
    let notes = thread::scope(|scope| {
        let other = &other;
        let others: Vec<_> = (1..threads.count).map(|me| scope.spawn(move || other(me))).collect();
        if let Some(&core) = threads.cores.first() {
            bind_thread(core);
        }
        let own = search.work_and_post(0, &mut system, &mut post).map(|()| system.notes());
        let joined =
            others.into_iter().map(|one| one.join().map_err(|_panic| DriveError::Panicked));
        let mut all = vec![own.map_err(DriveError::ThreadFailed)];
        all.extend(joined.map(|one| one.and_then(|one| one.map_err(DriveError::ThreadFailed))));
        all.into_iter().collect::<Result<Vec<_>, _>>()
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let notes = all_taken(model, &notes?);
    Ok((search, notes))
}

/// Sends what is to be sent, and takes in what has come; waits for a message at most so long.
fn exchange<T: Transport>(
    search: &SharedSearch,
    job: &mut Job<T>,
    mut wait: Duration,
) -> Result<(), DriveError> {
    send_all(search, job)?;
    for _ in 0..MESSAGES_MAX {
        let Some((from, message)) = job.receive(wait)? else { break };
        wait = Duration::ZERO;
        let malformed = |_| RankError::MalformedMessage { from };
        search.handle(from, &message).map_err(malformed)?;
    }
    send_all(search, job)
}

fn send_all<T: Transport>(search: &SharedSearch, job: &mut Job<T>) -> Result<(), DriveError> {
    while let Some((to, message)) = search.poll() {
        job.send(to, message)?;
    }
    Ok(())
}

/// Waits until the search has ended everywhere, finds the run to a violation, and lets the others go; for process 0.
fn lead_to_end<T: Transport>(
    job: &mut Job<T>,
    search: &SharedSearch,
    task: &Task<'_>,
    model: &Model,
    notes: Vec<u8>,
    look: &mut dyn FnMut(&SharedSearch) -> Result<(), DriveError>,
) -> Result<End, DriveError> {
    search.tell_end(notes);
    let ends = loop {
        match search.all_ends() {
            Some(ends) => break ends,
            None => exchange(search, job, IDLE_WAIT)?,
        }
        look(search)?;
    };
    let nearest = ends.iter().filter_map(|end| end.broken.clone()).min_by_key(|(level, _)| *level);
    let mut way = None;
    if let Some((level, state)) = nearest {
        let mut system = task.system(model);
        let mut states = vec![state];
        for level in (0..level).rev() {
            let wanted = states.last().cloned().unwrap_or_default();
            let before = match search.ask(level, &wanted, &mut system) {
                Some(own) => Some(own),
                None => loop {
                    match search.answer() {
                        Some(answer) => break answer,
                        None => exchange(search, job, IDLE_WAIT)?,
                    }
                },
            };
            states.push(before.ok_or(DriveError::NoOutcome)?);
        }
        states.reverse();
        way = Some(states);
    }
    search.finish();
    send_all(search, job)?;
    Ok((ends, way))
}

/// What process 0 watches beside its own work.
struct Lead<'o> {
    watch: Watch<'o>,
    ranks_count: usize,
    /// Why the search was stopped.
    reason: Option<(String, Instant)>,
    /// How far all were when this last looked.
    last: Figures,
}

impl<'o> Lead<'o> {
    fn new(watch: Watch<'o>, ranks_count: usize) -> Self {
        Self { watch, ranks_count, reason: None, last: Figures::default() }
    }

    fn look(&mut self, search: &SharedSearch) -> Result<(), DriveError> {
        search.tell_figures();
        self.last = Figures::total(&search.all_figures());
        self.watch.note(&progress(&self.last), Some(self.last.sent_bytes));
        if self.watch.is_time_to_show() {
            let (traffic, elapsed) = (self.traffic(), self.watch.elapsed());
            self.watch.observer().progress(&progress(&self.last), Some(&traffic), elapsed);
        }
        match &self.reason {
            None => {
                if let Some(reason) = self.watch.reason(self.last.memory_bytes) {
                    self.reason = Some((reason, Instant::now()));
                    search.stop();
                }
            }
            Some((reason, since)) => {
                let grace = if self.watch.is_cut() { CUT_GRACE } else { STOP_GRACE };
                if since.elapsed() > grace {
                    return Err(DriveError::NotStopped(reason.clone()));
                }
            }
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            ranks_count: self.ranks_count,
            has_messages: true,
            batches_count: self.last.sent_batches,
            sent_bytes: self.last.sent_bytes,
            again_count: 0,
        }
    }

    fn report(
        mut self,
        model: &Model,
        task: &Task<'_>,
        outcome: Result<End, DriveError>,
    ) -> Result<Report, CheckError> {
        let elapsed = self.watch.elapsed();
        let (verdict, is_whole, notes) = match outcome {
            Ok((ends, way)) => {
                let figures: Vec<Figures> = ends.iter().map(|end| end.figures).collect();
                self.last = Figures::total(&figures);
                let is_ended = |how| ends.iter().any(|end| end.ended == how);
                let is_cut = is_ended(Ended::Stopped) || is_ended(Ended::StoreFull);
                let verdict = match way {
                    Some(way) => violated(model, task, &way)?,
                    None if is_ended(Ended::StoreFull) => return Err(CheckError::SetFull),
                    None if is_cut => {
                        let reason = self.reason.take().map(|(reason, _)| reason);
                        Verdict::Undecided(reason.unwrap_or_default())
                    }
                    None => Verdict::Holds,
                };
                let is_full = task.aim == Goal::BadState { is_full: true };
                let is_whole = !is_cut && (is_full || matches!(verdict, Verdict::Holds));
                (verdict, is_whole, ends.into_iter().map(|end| end.notes).collect())
            }
            Err(
                error @ (DriveError::Rank(_) | DriveError::Panicked | DriveError::ThreadFailed(_)),
            ) => {
                return Err(CheckError::Rank(error));
            }
            Err(error) => (Verdict::Undecided(error.to_string()), false, Vec::new()),
        };
        let is_whole = is_whole && !task.bounds.is_reduced;
        let unreachable = is_whole.then(|| Unreachable::of(model, &all_taken(model, &notes)));
        let (what, traffic) = (task.bounds.what(task.what), self.traffic());
        let report = self.watch.report(model, what, verdict, progress(&self.last));
        Ok(Report { elapsed, unreachable, ranks: Some(traffic), ..report })
    }
}
