//! A search by many ranks: what all transports have in common.

mod bind;
mod job;
mod judge;
mod keep;
mod launch;
mod launcher;
mod threads;
mod together;

use std::time::{Duration, Instant};

use checker::RankedModel;
use dve::Model;
use job::Job;
use judge::Judge;
use keep::{Files, Keeping};
pub(super) use keep::{of_ranks, read_manifest};
pub(super) use launch::launch;
use mpi::{MpiError, World};
use statespace::partition::{Aim, Ending, Figures, Outcome, Rank, RankError};
use statespace::{Fairness, Kept, Progress};

use super::checkpoint::Keep;
use super::search::{
    self, Bounds, Report, Traffic, Unreachable, Verdict, Watch, broken_promise, failing, lines,
    too_many,
};
use super::{fair, lossy, show};
use crate::VerbResult;
use crate::exit::{self, Exit, VerbError};
use crate::signals;

/// Ranks that are threads of this process.
#[derive(Debug)]
pub(super) struct Threads {
    count: usize,
    /// The cores they are bound to, if they are.
    cores: Vec<u32>,
    /// Whether each keeps states of its own and sends messages, as the ranks of a job do, also where
    /// one search over one set of states would do.
    has_messages: bool,
}

/// Who searches.
#[derive(Debug)]
pub(super) enum Crew {
    /// This thread alone, by the searches of one rank.
    One,
    /// Threads of this process.
    Threads(Threads),
    /// The processes of an MPI job, of which this is one.
    Job(Job),
}

impl Crew {
    /// The job that launched this process, or so many ranks of its own.
    ///
    /// `is_bound`: each to a core of its own; `has_messages`: each with states of its own.
    pub(super) fn new(
        ranks_count: usize,
        is_bound: bool,
        has_messages: bool,
    ) -> Result<Self, VerbError> {
        if let Some(flavour) = mpi::launched_by() {
            let world = World::open(flavour).map_err(|error| match error {
                MpiError::NoLibrary { .. } => VerbError::missing(error),
                _ => VerbError::from_error(&error),
            })?;
            if world.size() > 1 {
                if is_bound {
                    bind::bind_process(&topology::machine());
                }
                return Ok(Self::Job(Job::new(world)));
            }
            world.finish(1).map_err(|error| VerbError::from_error(&error))?;
        }
        if ranks_count < 2 {
            return Ok(Self::One);
        }
        let cores =
            if is_bound { bind::cores(&topology::machine(), ranks_count) } else { Vec::new() };
        Ok(Self::Threads(Threads { count: ranks_count, cores, has_messages }))
    }

    /// Whether this process is rank 0 or all ranks. Another has done its part when this returns.
    pub(super) fn leads(&mut self) -> Result<bool, VerbError> {
        match self {
            Self::Job(job) if job.me() != 0 => {
                // Launchers signal all ranks; rank 0 ends the search, in which all have their say.
                signals::watch().map_err(|error| VerbError::from_error(&error))?;
                job.serve().map(|()| false)
            }
            _ => Ok(true),
        }
    }

    /// Ends the job, if it is one. All has been said by then: MPI may not let go of its processes.
    pub(super) fn leave(mut self, result: VerbResult) -> VerbResult {
        let Self::Job(job) = &mut self else { return result };
        let code = exit::settle(result);
        job.settle(code);
        drop(self);
        Ok(Exit::Program(code))
    }

    /// Looks for deadlocks, failed assertions and run-time errors; a violation's run is a shortest.
    pub(super) fn states(
        &mut self,
        model: &Model,
        allow_deadlock: bool,
        is_full: bool,
        bounds: Bounds,
    ) -> Result<Option<Report>, VerbError> {
        let what = search::promises(allow_deadlock);
        let (aim, files) = (Aim::Broken { is_full }, &Files::default());
        let task =
            Task { aim, allow_deadlock, what: &what, bounds, kept: None, files, fairness: None };
        match self {
            Self::One => search::states(model, allow_deadlock, is_full, bounds).map(Some),
            Self::Threads(threads) if !threads.has_messages => {
                together::search(model, &task, threads.count, &threads.cores).map(Some)
            }
            _ => self.search(model, &task),
        }
    }

    /// The same, from files and into some.
    pub(super) fn states_kept(
        &mut self,
        model: &Model,
        allow_deadlock: bool,
        is_full: bool,
        bounds: Bounds,
        keep: Keep,
    ) -> Result<Option<Report>, VerbError> {
        let ranks_count = match self {
            Self::One => {
                return search::states_kept(model, allow_deadlock, is_full, bounds, keep).map(Some);
            }
            Self::Threads(threads) => threads.count,
            Self::Job(job) => job.ranks_count(),
        };
        let what = search::promises(allow_deadlock);
        let (aim, files) = (Aim::Broken { is_full }, &Files::new(keep, is_full, ranks_count)?);
        let task =
            Task { aim, allow_deadlock, what: &what, bounds, kept: None, files, fairness: None };
        self.search(model, &task)
    }

    /// Keeping less than the states; a violation's run need not be a shortest.
    pub(super) fn lossy(
        &mut self,
        model: &Model,
        allow_deadlock: bool,
        kept: Kept,
        bounds: Bounds,
    ) -> Result<Option<Report>, VerbError> {
        if let Self::One = self {
            return lossy::states(model, allow_deadlock, kept, bounds).map(Some);
        }
        let what = search::promises(allow_deadlock);
        let (aim, files) = (Aim::Broken { is_full: false }, &Files::default());
        let task = Task {
            aim,
            allow_deadlock,
            what: &what,
            bounds,
            kept: Some(kept),
            files,
            fairness: None,
        };
        self.search(model, &task)
    }

    /// Looks for a run that the property process accepts for ever; with `fairness` for a fair one.
    pub(super) fn cycles(
        &mut self,
        model: &Model,
        what: &str,
        fairness: Option<Fairness>,
        bounds: Bounds,
    ) -> Result<Option<Report>, VerbError> {
        match (&self, fairness) {
            (Self::One, None) => return search::cycles(model, what, bounds).map(Some),
            (Self::One, Some(kind)) => return fair::cycles(model, what, kind, bounds).map(Some),
            _ => {}
        }
        let (aim, files) = (fairness.map_or(Aim::Cycle, |_| Aim::Judged), &Files::default());
        let what = &fairness.map_or_else(|| what.to_owned(), |kind| fair::what(what, kind));
        let task = Task { aim, allow_deadlock: true, what, bounds, kept: None, files, fairness };
        self.search(model, &task)
    }

    /// The report; only rank 0 has one.
    fn search(&mut self, model: &Model, task: &Task<'_>) -> Result<Option<Report>, VerbError> {
        match self {
            Self::One => Ok(None),
            Self::Threads(Threads { count, cores, .. }) => {
                let mut lead = LeadWatch::new(model, task, *count, true);
                let outcome = threads::search(model, task, *count, cores, |rank| lead.look(rank));
                lead.report(model, task, outcome).map(Some)
            }
            Self::Job(job) => {
                let mut lead = LeadWatch::new(model, task, job.ranks_count(), false);
                let outcome = job.search(model, task, |rank| lead.look(rank));
                lead.report(model, task, outcome).map(Some)
            }
        }
    }
}

/// What is asked of a model.
#[derive(Debug, Clone, Copy)]
struct Task<'a> {
    aim: Aim,
    allow_deadlock: bool,
    /// The same in words.
    what: &'a str,
    bounds: Bounds,
    /// What is kept of a state, where it is not all.
    kept: Option<Kept>,
    files: &'a Files,
    /// The cycles that count, where not all do ([`Aim::Judged`]).
    fairness: Option<Fairness>,
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
            (Some(kept), Aim::Broken { is_full }) => Rank::lossy(system, is_full, kept, me, count),
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

/// Carries messages between ranks, those between any two in order.
trait Exchange {
    /// Sends; never waits for long.
    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), ExchangeError>;

    /// The next message and its sender; waits for it, at most so long.
    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Vec<u8>)>, ExchangeError>;

    /// Keeps this rank from being taken for lost, and hears whether another is, while it does something
    /// else; to be called a few times a second. What arrives waits.
    fn stay(&mut self) -> Result<(), ExchangeError>;
}

/// Ranks can no longer speak to each other: why.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error("{0}")]
    Lost(String),
}

/// Why a rank could not go on.
#[derive(Debug, thiserror::Error)]
enum DriveError {
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("{}", show_rank_error(*.0))]
    Rank(RankError),
}

impl From<RankError> for DriveError {
    fn from(error: RankError) -> Self {
        Self::Rank(error)
    }
}

fn show_rank_error(error: RankError) -> String {
    match error {
        RankError::Full => too_many().to_string(),
        RankError::NoMessage { from } => format!("rank {from} sent what no rank of ours sends"),
    }
}

/// States whose steps are looked at between two looks for messages.
const PORTION: usize = 256;

/// Messages taken in before it is this rank's states' turn again.
const MESSAGES_MAX: usize = 64;

/// A rank with nothing to do wakes this often.
const IDLE_WAIT: Duration = Duration::from_millis(20);

/// Rank 0 looks at the clock, the memory and Ctrl-C this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Processes that do not stop when told to, within this time, are given up.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// The same after a signal: launchers leave a job they end one second (Open MPI) for last words.
const SIGNAL_GRACE: Duration = Duration::from_millis(400);

/// Runs a rank to its end. `look` is called now and then; it may stop the search.
fn drive(
    rank: &mut ModelRank<'_>,
    exchange: &mut impl Exchange,
    (files, me): (&Files, usize),
    mut look: impl FnMut(&mut ModelRank<'_>) -> Result<(), ExchangeError>,
) -> Result<(), DriveError> {
    let start = Instant::now();
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
struct LeadWatch<'m> {
    watch: Watch,
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

impl<'m> LeadWatch<'m> {
    fn new(model: &'m Model, task: &Task<'_>, ranks_count: usize, is_patient: bool) -> Self {
        let (watch, keeping) = (Watch::new(task.bounds), Keeping::new(task.files));
        let last = Figures::default();
        let judge = task.fairness.map(|fairness| Judge::new(model, fairness));
        Self { watch, ranks_count, reason: None, is_patient, last, keeping, judge }
    }

    fn look(&mut self, rank: &mut ModelRank<'_>) -> Result<(), ExchangeError> {
        self.last = Figures::total(rank.all_figures());
        let judged = self.judge.as_mut().map(|judge| (judge.go_on(rank), judge.memory_bytes()));
        if let Some((judged, memory_bytes)) = judged {
            self.last.memory_bytes += memory_bytes;
            if judged.is_err() {
                self.reason.get_or_insert((too_many().to_string(), Instant::now()));
                rank.stop();
            }
        }
        self.watch.note(&progress(&self.last), Some(self.last.sent_bytes));
        if self.watch.is_time_to_show() {
            let traffic = self.traffic(&self.last);
            show::progress_of_ranks(&progress(&self.last), &traffic, self.watch.elapsed());
        }
        if self.keeping.is_done(rank) {
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
                let grace = if signals::caught().is_some() { SIGNAL_GRACE } else { STOP_GRACE };
                if since.elapsed() > grace {
                    return Err(ExchangeError::Lost(reason.clone()));
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
            if is_kept || signals::caught().is_none() {
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
    ) -> Result<Report, VerbError> {
        let elapsed = self.watch.elapsed();
        if let Some(why) = self.keeping.failure {
            return Err(VerbError::failed(why));
        }
        let (verdict, total, notes) = match outcome {
            Ok(Outcome { trouble: Some((rank, why)), .. }) => {
                return Err(VerbError::usage(format!("--resume, rank {rank}: {why}")));
            }
            Ok(outcome) => {
                let mut total = Figures::total(&outcome.figures);
                let (reason, judge) = (self.reason.clone().map(|(reason, _)| reason), &self.judge);
                total.memory_bytes += judge.as_ref().map_or(0, Judge::memory_bytes);
                let (ending, figures) = (outcome.ending, &outcome.figures);
                let verdict = verdict(model, task, ending, figures, reason, judge.as_ref())?;
                (verdict, total, outcome.notes)
            }
            Err(DriveError::Exchange(error)) => {
                (Verdict::Undecided(error.to_string()), self.last, Vec::new())
            }
            Err(error) => return Err(VerbError::from_error(&error)),
        };
        let is_whole = matches!(task.aim, Aim::Broken { .. })
            && !task.bounds.is_reduced
            && !notes.is_empty()
            && total.queued_count == 0
            && !matches!(verdict, Verdict::Undecided(_))
            && (matches!(verdict, Verdict::Holds) || task.aim == Aim::Broken { is_full: true });
        let taken = all_taken(model, &notes);
        let unreachable = is_whole.then(|| Unreachable::of(model, &taken));
        let is_formula = !matches!(task.aim, Aim::Broken { .. });
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
) -> Result<Verdict, VerbError> {
    Ok(match ending {
        Ending::Nothing => task.nothing_found(figures),
        Ending::Broken(way) => violated(model, task, &way)?,
        Ending::Cycle(lasso) => {
            let turn = Some(lasso.prefix.len());
            if let Some(judge) = judge {
                let run = fair::lines(model, &lasso, &judge.actors);
                return Ok(Verdict::Violated { why: fair::why(judge.fairness), run, turn });
            }
            let mut run = [&lasso.prefix[..], &lasso.cycle].concat();
            // The cycle's first state once more, to show the step that closes it.
            run.extend(lasso.cycle.first().cloned());
            let why = "a run violates it for ever".to_owned();
            Verdict::Violated { why, run: lines(model, &run), turn }
        }
        Ending::Stopped => {
            let reason = reason.unwrap_or_else(|| "the ranks did not agree".to_owned());
            Verdict::Undecided(match task.kept {
                Some(kept) => lossy::cut_short(kept, &reason),
                None => reason,
            })
        }
    })
}

/// What a run to a broken promise shows.
fn violated(model: &Model, task: &Task<'_>, way: &[Vec<u8>]) -> Result<Verdict, VerbError> {
    let state = way.last().map(Vec::as_slice).unwrap_or_default();
    let mut steps = dve::Steps::new(model);
    let is_deadlock = steps.each(state, |_, _| {}) == 0 && !task.allow_deadlock;
    let why = broken_promise(model, state, is_deadlock, model.has_assertions());
    let why = why.ok_or_else(|| VerbError::failed("the run shows no broken promise"))?;
    Ok(Verdict::Violated { why, run: lines(model, way), turn: None })
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
