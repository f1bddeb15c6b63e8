//! A search by many ranks: what threads and the processes of a job have in common.

mod hosts;
mod job;
mod judge;
mod keep;
mod threads;
mod together;

use std::time::{Duration, Instant};

use crew::{Exchange, Job, MpiError, Transport};
use dve::Model;
use judge::Judge;
use keep::Keeping;
pub(crate) use keep::{Files, of_ranks, read_manifest};
use results::Machine;
use statespace::partition::{Ending, Figures, Goal, Outcome, Rank, RankError};
use statespace::{Fairness, LossyStorage, Progress};

use crate::observer::Observer;
use crate::options::Bounds;
use crate::report::{Report, Traffic, Unreachable, Verdict, failing, lines};
use crate::search::violated_property;
use crate::watch::Watch;
use crate::{CheckError, DriveError, RankedModel, counterexample, fair, lossy};

/// The exit code of a job that lost a rank: undecided.
const LOST_CODE: u8 = 11;

/// Who searches.
#[derive(Debug)]
pub enum Ranks {
    /// The caller's thread alone, by the searches of one rank.
    One,
    /// Many.
    Many(Many),
}

/// Ranks that search together.
#[derive(Debug)]
pub enum Many {
    /// Threads of this process.
    Threads(Threads),
    /// The processes of an MPI job, of which this is one, and the threads of this one.
    Job(Box<Job>, Threads),
}

/// Ranks that are threads of this process.
#[derive(Debug)]
pub struct Threads {
    count: usize,
    /// The cores they are bound to, if they are.
    cores: Vec<u32>,
    /// Whether each keeps states of its own and sends messages, as the ranks of a job do, also where
    /// one search over one set of states would do.
    pub(crate) has_messages: bool,
}

impl Ranks {
    /// The job that launched this process, with so many threads in each of its processes, else `count` threads of it.
    ///
    /// `machine` is given where each rank is to be bound to a core of its own. With `has_messages`, ranks
    /// keep states of their own and look at them in an order of their own also where they need not.
    ///
    /// # Errors
    /// A launcher started this process, but its library cannot be loaded, or MPI cannot be entered.
    pub fn new(
        (count, threads_count): (usize, usize),
        machine: Option<&Machine>,
        has_messages: bool,
    ) -> Result<Self, MpiError> {
        if let Some(job) = Job::of_launcher(LOST_CODE)? {
            let cores = machine.map(|machine| crew::process_cores(machine, threads_count));
            let cores = cores.unwrap_or_default();
            if let Some(&core) = cores.first() {
                crew::bind_thread(core);
            }
            let threads = Threads { count: threads_count, cores, has_messages };
            return Ok(Self::Many(Many::Job(Box::new(job), threads)));
        }
        let count = count.max(threads_count);
        if count < 2 {
            return Ok(Self::One);
        }
        let cores = machine.map_or_else(Vec::new, |machine| crew::cores(machine, count));
        Ok(Self::Many(Many::Threads(Threads { count, cores, has_messages })))
    }

    /// Whether this process is rank 0 or all ranks. Another rank of a job calls [`Self::serve`].
    #[must_use]
    pub fn leads(&self) -> bool {
        !matches!(self, Self::Many(Many::Job(job, _)) if job.me() != 0)
    }

    /// Does this rank's part of what rank 0 checks, until the job is over.
    ///
    /// # Errors
    /// [`CheckError::Served`].
    pub fn serve(&mut self) -> Result<(), CheckError> {
        match self {
            Self::Many(Many::Job(job, threads)) => job::serve(job, threads),
            _ => Ok(()),
        }
    }

    /// Whether this process is one of a job, which [`Self::leave`] ends.
    #[must_use]
    pub fn is_job(&self) -> bool {
        matches!(self, Self::Many(Many::Job(..)))
    }

    /// Leaves the job, if this is one ([`Job::leave`]).
    pub fn leave(self, code: u8, was_cut: impl FnOnce() -> bool) {
        if let Self::Many(Many::Job(job, _)) = self {
            job.leave(code, was_cut);
        }
    }
}

impl Threads {
    /// A rank without further threads.
    #[cfg(test)]
    const ONE: Self = Self { count: 1, cores: Vec::new(), has_messages: false };

    /// Searches one set of states by all threads.
    pub(crate) fn search_together(
        &self,
        model: &Model,
        task: &Task<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Report, CheckError> {
        together::search(model, task, self.count, &self.cores, observer)
    }
}

impl Many {
    /// Searches by ranks of which all threads of a process share one set of states.
    pub(crate) fn search_shared(
        &mut self,
        model: &Model,
        task: &Task<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Report, CheckError> {
        match self {
            Self::Threads(threads) => threads.search_together(model, task, observer),
            Self::Job(job, threads) => hosts::search(job, model, task, threads, observer),
        }
    }

    /// Whether ranks are to keep states of their own where they need not.
    pub(crate) fn has_messages(&self) -> bool {
        let (Self::Threads(threads) | Self::Job(_, threads)) = self;
        threads.has_messages
    }

    pub(crate) fn ranks_count(&self) -> usize {
        match self {
            Self::Threads(threads) => threads.count,
            Self::Job(job, _) => job.ranks_count(),
        }
    }

    /// Searches by ranks that each have a share of the states and send each other messages.
    pub(crate) fn search(
        &mut self,
        model: &Model,
        task: &Task<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Report, CheckError> {
        match self {
            Self::Threads(Threads { count, cores, .. }) => {
                let mut lead = LeadWatch::new(model, task, *count, true, observer);
                let outcome = threads::search(model, task, *count, cores, |rank| lead.look(rank));
                lead.report(model, task, outcome)
            }
            Self::Job(job, _) => search_job(job, model, task, observer),
        }
    }
}

/// Searches by the processes of a job; for rank 0.
fn search_job<T: Transport>(
    job: &mut Job<T>,
    model: &Model,
    task: &Task<'_>,
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let mut lead = LeadWatch::new(model, task, job.ranks_count(), false, observer);
    let outcome = job::search(job, model, task, |rank| lead.look(rank));
    lead.report(model, task, outcome)
}

/// What is asked of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) aim: Goal,
    pub(crate) allow_deadlock: bool,
    /// The same in words.
    pub(crate) what: &'a str,
    pub(crate) bounds: Bounds,
    /// What is kept of a state, where it is not all.
    pub(crate) kept: Option<LossyStorage>,
    pub(crate) files: &'a Files,
    /// The cycles that count, where not all do ([`Goal::FairCycle`]).
    pub(crate) fairness: Option<Fairness>,
}

impl Task<'_> {
    /// What is searched.
    fn system(self, model: &Model) -> RankedModel<'_> {
        let of = if self.bounds.is_reduced { RankedModel::reduced } else { RankedModel::new };
        of(model, self.allow_deadlock)
    }

    /// Rank `me` of so many that search a model.
    fn rank(self, model: &Model, me: usize, count: usize) -> Result<ModelRank<'_>, RankError> {
        let system = self.system(model);
        match (self.kept, self.aim) {
            (Some(kept), Goal::BadState { is_full }) => {
                Rank::lossy(system, is_full, kept, me, count)
            }
            (_, aim) => Rank::new(system, aim, me, count),
        }
    }

    /// The verdict of ranks that found nothing.
    fn nothing_found(self, figures: &[Figures]) -> Verdict {
        let Some(kept) = self.kept else { return Verdict::Holds };
        let of_rank = kept.of_rank(figures.len());
        let missed =
            figures.iter().map(|one| of_rank.missed_states(one.states_count, one.marked_count));
        let states_count = Figures::total(figures).states_count;
        Verdict::Undecided(lossy::nothing_found(kept, missed.sum(), states_count))
    }
}

type ModelRank<'m> = Rank<RankedModel<'m>>;

/// States whose steps are looked at between two looks for messages.
const PORTION: usize = 256;

/// Messages taken in before it is this rank's states' turn again.
const MESSAGES_MAX: usize = 64;

/// A rank with nothing to do wakes this often.
const IDLE_WAIT: Duration = Duration::from_millis(20);

/// Rank 0 looks at the clock, the memory and its observer this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Processes that do not stop when told to, within this time, are given up.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// The same after a signal ([`Observer::stop`]): launchers leave a job they end one second (Open MPI) for last words.
const CUT_GRACE: Duration = Duration::from_millis(400);

/// Runs a rank to its end. `look` is called now and then; it may stop the search.
fn drive(
    rank: &mut ModelRank<'_>,
    exchange: &mut impl Exchange,
    (files, me): (&Files, usize),
    mut look: impl FnMut(&mut ModelRank<'_>) -> Result<(), DriveError>,
) -> Result<(), DriveError> {
    let start = Instant::now();
    look(rank)?;
    let mut looked = start;
    let mut wait = Duration::ZERO;
    loop {
        for _ in 0..MESSAGES_MAX {
            let Some((from, message)) = exchange.receive(wait)? else { break };
            wait = Duration::ZERO;
            rank.handle(from, &message)?;
        }
        let now_us = || start.elapsed().as_micros() as u64;
        let has_worked = rank.work(PORTION, now_us())?;
        while let Some((to, message)) = rank.poll(now_us()) {
            exchange.send(to, message)?;
        }
        keep::run(files, me, rank, exchange)?;
        if rank.has_ended() {
            return Ok(());
        }
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            look(rank)?;
        }
        wait = if has_worked { Duration::ZERO } else { IDLE_WAIT };
    }
}

/// What rank 0 watches beside its own work.
#[derive(Debug)]
struct LeadWatch<'m, 'o> {
    watch: Watch<'o>,
    ranks_count: usize,
    /// Why the search was stopped.
    reason: Option<(String, Instant)>,
    /// Ranks that were told to stop are waited for however long it takes.
    is_patient: bool,
    /// How far all were when this last looked.
    last: Figures,
    keeping: Keeping,
    judge: Option<Judge<'m>>,
}

impl<'m, 'o> LeadWatch<'m, 'o> {
    fn new(
        model: &'m Model,
        task: &Task<'_>,
        ranks_count: usize,
        is_patient: bool,
        observer: &'o mut dyn Observer,
    ) -> Self {
        let (watch, keeping) = (Watch::new(task.bounds, observer), Keeping::new(task.files));
        let last = Figures::default();
        let judge = task.fairness.map(|fairness| Judge::new(model, fairness));
        Self { watch, ranks_count, reason: None, is_patient, last, keeping, judge }
    }

    fn look(&mut self, rank: &mut ModelRank<'_>) -> Result<(), DriveError> {
        self.last = Figures::total(rank.all_figures());
        // At the start nothing is known of the others yet.
        self.last.memory_bytes = self.last.memory_bytes.max(rank.figures().memory_bytes);
        let judged = self.judge.as_mut().map(|judge| (judge.go_on(rank), judge.memory_bytes()));
        if let Some((judged, memory_bytes)) = judged {
            self.last.memory_bytes += memory_bytes;
            if judged.is_err() {
                self.reason.get_or_insert((CheckError::TooManyStates.to_string(), Instant::now()));
                rank.stop();
            }
        }
        self.watch.note(&progress(&self.last), Some(self.last.sent_bytes));
        if self.watch.is_time_to_show() {
            let (traffic, elapsed) = (self.traffic(&self.last), self.watch.elapsed());
            self.watch.observer().progress(&progress(&self.last), Some(&traffic), elapsed);
        }
        if self.keeping.is_done(rank, self.watch.observer()) {
            if self.reason.is_some() || self.keeping.failure.is_some() {
                rank.stop();
            } else {
                rank.go_on();
            }
        } else if self.keeping.is_due() {
            self.keeping.begin(rank);
        }
        match &self.reason {
            None => {
                if let Some(reason) = self.watch.reason(self.last.memory_bytes)
                    && self.does_end(rank)
                {
                    self.reason = Some((reason, Instant::now()));
                }
            }
            // Whoever writes is waited for; that it is alive is seen elsewhere.
            Some((reason, since)) if !self.is_patient && !self.keeping.is_under_way() => {
                let grace = if self.watch.is_cut() { CUT_GRACE } else { STOP_GRACE };
                if since.elapsed() > grace {
                    return Err(DriveError::NotStopped(reason.clone()));
                }
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// There is a reason to end: now, or once all is written down. Not if all states are known: what
    /// could be written down is decided then, and what is left to do is short.
    fn does_end(&mut self, rank: &mut Rank<RankedModel<'_>>) -> bool {
        if self.keeping.is_wanted() {
            let is_kept = self.keeping.begin(rank);
            if is_kept || !self.watch.is_cut() {
                return is_kept;
            }
        }
        rank.stop();
        true
    }

    fn traffic(&self, total: &Figures) -> Traffic {
        Traffic {
            ranks_count: self.ranks_count,
            has_messages: true,
            batches_count: total.sent_batches,
            sent_bytes: total.sent_bytes,
            again_count: total.again_count,
        }
    }

    fn report(
        self,
        model: &Model,
        task: &Task<'_>,
        outcome: Result<Outcome, DriveError>,
    ) -> Result<Report, CheckError> {
        let elapsed = self.watch.elapsed();
        if let Some(why) = self.keeping.failure {
            return Err(CheckError::CheckpointPart(why));
        }
        let (verdict, total, notes) = match outcome {
            Ok(Outcome { trouble: Some((rank, why)), .. }) => {
                return Err(CheckError::ResumePart { rank, why });
            }
            Ok(outcome) => {
                let mut total = Figures::total(&outcome.figures);
                let (reason, judge) = (self.reason.clone().map(|(reason, _)| reason), &self.judge);
                total.memory_bytes += judge.as_ref().map_or(0, Judge::memory_bytes);
                let (ending, figures) = (outcome.ending, &outcome.figures);
                let verdict = verdict(model, task, ending, figures, reason, judge.as_ref())?;
                (verdict, total, outcome.notes)
            }
            Err(error @ DriveError::Rank(_)) => return Err(CheckError::Rank(error)),
            Err(error) => (Verdict::Undecided(error.to_string()), self.last, Vec::new()),
        };
        let is_whole = matches!(task.aim, Goal::BadState { .. })
            && !task.bounds.is_reduced
            && !notes.is_empty()
            && total.queued_count == 0
            && !matches!(verdict, Verdict::Undecided(_))
            && (matches!(verdict, Verdict::Holds) || task.aim == Goal::BadState { is_full: true });
        let taken = all_taken(model, &notes);
        let unreachable = is_whole.then(|| Unreachable::of(model, &taken));
        let is_formula = !matches!(task.aim, Goal::BadState { .. });
        let failing = if is_formula { failing(model, &taken) } else { Vec::new() };
        Ok(Report {
            what: task.bounds.what(task.what),
            verdict,
            progress: progress(&total),
            state_bytes: model.state_bytes(),
            elapsed,
            over_time: self.watch.over_time(&progress(&total)),
            unreachable,
            failing,
            ranks: Some(self.traffic(&total)),
        })
    }
}

/// From what each rank's system noted.
fn all_taken(model: &Model, notes: &[Vec<u8>]) -> Vec<u8> {
    let mut taken = vec![0; model.transitions_count()];
    for note in notes {
        taken.iter_mut().zip(note).for_each(|(all, one)| *all |= one);
    }
    taken
}

fn verdict(
    model: &Model,
    task: &Task<'_>,
    ending: Ending,
    figures: &[Figures],
    reason: Option<String>,
    judge: Option<&Judge<'_>>,
) -> Result<Verdict, CheckError> {
    Ok(match ending {
        Ending::Nothing => task.nothing_found(figures),
        Ending::Broken(way) => violated(model, task, &way)?,
        Ending::Cycle(lasso) => {
            if let Some(judge) = judge {
                return Ok(fair::violated(model, &lasso, &judge.actors, judge.fairness));
            }
            counterexample::of_lasso(model, &lasso)
        }
        Ending::Stopped => {
            let reason =
                reason.unwrap_or_else(|| "the ranks stopped without a common result".to_owned());
            Verdict::Undecided(match task.kept {
                Some(kept) => lossy::cut_short(kept, &reason),
                None => reason,
            })
        }
    })
}

/// The verdict that a trace to a violation shows.
fn violated(model: &Model, task: &Task<'_>, way: &[Vec<u8>]) -> Result<Verdict, CheckError> {
    let state = way.last().map(Vec::as_slice).unwrap_or_default();
    let mut steps = dve::Steps::new(model);
    let is_deadlock = steps.each(state, |_, _| {}) == 0 && !task.allow_deadlock;
    let why = violated_property(model, state, is_deadlock, model.has_assertions());
    let why = why.ok_or(CheckError::NoViolation)?;
    Ok(Verdict::Violated { why, run: lines(model, way), cycle_start: None })
}

fn progress(total: &Figures) -> Progress {
    Progress {
        states_count: total.states_count,
        queued_count: total.queued_count,
        transitions_count: total.transitions_count,
        deadlocks_count: total.deadlocks_count,
        depth: u32::try_from(total.depth).unwrap_or(u32::MAX),
        memory_bytes: usize::try_from(total.memory_bytes).unwrap_or(usize::MAX),
    }
}
