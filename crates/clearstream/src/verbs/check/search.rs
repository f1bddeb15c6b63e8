//! Searching a model in portions, with an eye on the clock, the memory and Ctrl-C.

use std::time::{Duration, Instant};

use checker::{FAILED, ModelSystem, WENT_WELL};
use dve::{Model, Step, Steps};
use results::CheckProgress;
use statespace::{CycleSearch, Found, Progress};

use super::checkpoint::Keep;
use super::show;
use crate::exit::VerbError;
use crate::signals;

/// When to give up, and what may be left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) memory_bytes: Option<u64>,
    pub(super) time: Option<Duration>,
    /// Whether steps that make no difference are left out.
    pub(super) is_reduced: bool,
}

impl Bounds {
    /// What is searched.
    pub(super) fn system(self, model: &Model) -> ModelSystem<'_> {
        if self.is_reduced { ModelSystem::reduced(model) } else { ModelSystem::new(model) }
    }

    /// What is checked, in words.
    pub(super) fn what(self, what: &str) -> String {
        let reduced = if self.is_reduced { " (reduced search)" } else { "" };
        format!("{what}{reduced}")
    }
}

/// What a search came to.
#[derive(Debug)]
pub(super) struct Report {
    /// What was checked.
    pub(super) what: String,
    pub(super) verdict: Verdict,
    pub(super) progress: Progress,
    pub(super) state_bytes: usize,
    pub(super) elapsed: Duration,
    /// How far it was as time went by.
    pub(super) over_time: Vec<CheckProgress>,
    /// Known after a whole search only.
    pub(super) unreachable: Option<Unreachable>,
    /// Transitions in which runs ended with a run-time error, where a formula was checked: it does not
    /// judge such runs.
    pub(super) failing: Vec<String>,
    /// Ranks that searched together, and what they said to each other.
    pub(super) ranks: Option<Traffic>,
}

/// Code of the model that no run comes to, a line each.
#[derive(Debug)]
pub(super) struct Unreachable {
    pub(super) transitions: Vec<String>,
    pub(super) states: Vec<String>,
}

impl Unreachable {
    /// From what a whole search took ([`ModelSystem::taken`]).
    pub(super) fn of(model: &Model, taken: &[u8]) -> Self {
        let how = |number: u32| taken.get(number as usize).copied().unwrap_or(0);
        let numbers = 0..model.transitions_count() as u32;
        let never = numbers.filter(|&number| how(number) == 0);
        Self {
            transitions: never.map(|number| model.show_transition(number)).collect(),
            states: model.unreached_states(|number| how(number) & WENT_WELL != 0),
        }
    }
}

/// Transitions that ended in an error, a line each ([`ModelSystem::taken`]).
pub(super) fn failing(model: &Model, taken: &[u8]) -> Vec<String> {
    let numbers = 0..model.transitions_count() as u32;
    let failed = |number: &u32| taken.get(*number as usize).is_some_and(|how| how & FAILED != 0);
    numbers.filter(failed).map(|number| model.show_transition(number)).collect()
}

/// What went between ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traffic {
    pub(super) ranks_count: usize,
    /// Whether they send each other messages; threads over one set of states do not.
    pub(super) has_messages: bool,
    pub(super) batches_count: u64,
    pub(super) sent_bytes: u64,
    /// States looked at again because they were nearer than thought.
    pub(super) again_count: u64,
}

/// Whether the model keeps its promise.
#[derive(Debug)]
pub(super) enum Verdict {
    Holds,
    /// Why not, and a run that shows it; its states from `turn` on repeat for ever.
    Violated {
        why: String,
        run: Vec<Line>,
        turn: Option<usize>,
    },
    /// Why the search ended early.
    Undecided(String),
}

/// A state of a run and the step that led to it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) step: Option<String>,
    /// Who took it.
    pub(super) movers: Vec<String>,
    pub(super) state: String,
}

impl Line {
    /// A state and the step to it, where there is one.
    pub(super) fn new(model: &Model, step: Option<&Step>, state: &[u8]) -> Self {
        Self {
            step: step.map(|step| model.show_step(step)),
            movers: step.map_or_else(Vec::new, |step| {
                model.movers(step).into_iter().map(str::to_owned).collect()
            }),
            state: model.show_state(state),
        }
    }
}

/// States and edges between two looks at the clock.
pub(super) const PORTION: usize = 20_000;

/// Looks for deadlocks, failed assertions and run-time errors; a violation's run is the shortest.
pub(super) fn states(
    model: &Model,
    allow_deadlock: bool,
    full: bool,
    bounds: Bounds,
) -> Result<Report, VerbError> {
    states_kept(model, allow_deadlock, full, bounds, Keep::default())
}

/// The same, from a file and into one.
pub(super) fn states_kept(
    model: &Model,
    allow_deadlock: bool,
    full: bool,
    bounds: Bounds,
    mut keep: Keep,
) -> Result<Report, VerbError> {
    let mut watch = Watch::new(bounds);
    let mut search = keep.begin(model, bounds)?;
    if let Some(bytes) = bounds.memory_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        search.limit_memory(bytes.saturating_sub(search.progress().memory_bytes));
    }
    let has_assertions = model.has_assertions();
    let mut violation = None;
    let ended = loop {
        let more = search.advance(PORTION, |id, state, steps| {
            if violation.is_none() {
                let why =
                    broken_promise(model, state, steps == 0 && !allow_deadlock, has_assertions);
                violation = why.map(|why| (id, why));
            }
            full || violation.is_none()
        });
        match more {
            Ok(false) => break None,
            Ok(true) => {}
            Err(_full) if bounds.memory_bytes.is_some() => {
                break Some(too_much(search.progress().memory_bytes as u64));
            }
            Err(_full) => return Err(too_many()),
        }
        if let Some(reason) = watch.look(&search.progress())? {
            break Some(reason);
        }
        keep.now_and_then(&search)?;
    };
    if ended.is_some() && violation.is_none() {
        keep.save(&search)?;
    }
    let (progress, elapsed) = (search.progress(), watch.elapsed());
    let is_whole = ended.is_none() && progress.queued_count == 0 && !bounds.is_reduced;
    let unreachable = is_whole.then(|| Unreachable::of(model, search.system().taken()));
    let verdict = match (violation, ended) {
        (Some((id, why)), _) => {
            Verdict::Violated { why, run: lines(model, &search.way_to(id)), turn: None }
        }
        (None, Some(reason)) => Verdict::Undecided(reason),
        (None, None) => Verdict::Holds,
    };
    Ok(Report {
        what: bounds.what(&promises(allow_deadlock)),
        verdict,
        progress,
        state_bytes: model.state_bytes(),
        elapsed,
        over_time: watch.over_time(&progress),
        unreachable,
        failing: Vec::new(),
        ranks: None,
    })
}

/// What is promised of every state, in words.
pub(super) fn promises(allow_deadlock: bool) -> String {
    let deadlock = if allow_deadlock { "" } else { "no deadlock, " };
    format!("{deadlock}no failed assertion, no run-time error")
}

/// Looks for a run that the property process accepts for ever.
pub(super) fn cycles(model: &Model, what: &str, bounds: Bounds) -> Result<Report, VerbError> {
    let mut watch = Watch::new(bounds);
    let mut search = CycleSearch::new(bounds.system(model)).map_err(|_full| too_many())?;
    let verdict = loop {
        match search.advance(PORTION).map_err(|_full| too_many())? {
            Found::NoCycle => break Verdict::Holds,
            Found::Cycle(lasso) => {
                let turn = lasso.prefix.len();
                let mut run = [lasso.prefix, lasso.cycle].concat();
                // The cycle's first state once more, to show the step that closes it.
                run.push(run[turn].clone());
                let why = "a run violates it for ever".to_owned();
                break Verdict::Violated { why, run: lines(model, &run), turn: Some(turn) };
            }
            Found::More => {}
        }
        if let Some(reason) = watch.look(&search.progress())? {
            break Verdict::Undecided(reason);
        }
    };
    Ok(Report {
        what: bounds.what(what),
        verdict,
        progress: search.progress(),
        state_bytes: model.state_bytes(),
        elapsed: watch.elapsed(),
        over_time: watch.over_time(&search.progress()),
        unreachable: None,
        failing: failing(model, search.system().taken()),
        ranks: None,
    })
}

pub(super) fn broken_promise(
    model: &Model,
    state: &[u8],
    is_deadlock: bool,
    has_assertions: bool,
) -> Option<String> {
    if model.is_error(state) {
        return Some("a run-time error".to_owned());
    }
    if has_assertions && let Some(failed) = model.violated_assertions(state).first() {
        return Some(failed.to_string());
    }
    is_deadlock.then(|| "a deadlock: no step is possible".to_owned())
}

pub(super) fn too_many() -> VerbError {
    VerbError::failed("more than 4 294 967 295 states: no number is left for another")
}

pub(super) fn too_much(used_bytes: u64) -> String {
    let used = units::show_byte_size(used_bytes);
    format!("the states take {used}, and --memory allows no more")
}

/// A row of states with the steps between them.
pub(super) fn lines(model: &Model, states: &[Vec<u8>]) -> Vec<Line> {
    let mut steps = Steps::new(model);
    let mut before: Option<&Vec<u8>> = None;
    let mut lines = Vec::new();
    for state in states {
        let step = before.and_then(|before| {
            let mut found: Option<Step> = None;
            steps.each(before, |step, next| {
                if next == state.as_slice() {
                    found.get_or_insert(step);
                }
            });
            found
        });
        lines.push(Line::new(model, step.as_ref(), state));
        before = Some(state);
    }
    lines
}

/// Clock, memory, Ctrl-C, and a line of progress each second.
#[derive(Debug)]
pub(super) struct Watch {
    bounds: Bounds,
    start: Instant,
    shown: Instant,
    samples: Vec<CheckProgress>,
    /// Time between two samples: doubled, and every second one dropped, when there are too many.
    sample_every: Duration,
}

/// How far a search is, is noted so often at first, and never more than so many times.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const SAMPLES_MAX: usize = 240;

impl Watch {
    pub(super) fn new(bounds: Bounds) -> Self {
        let now = Instant::now();
        Self { bounds, start: now, shown: now, samples: Vec::new(), sample_every: SAMPLE_EVERY }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Why to end now, if there is a reason.
    pub(super) fn look(&mut self, progress: &Progress) -> Result<Option<String>, VerbError> {
        if self.is_time_to_show() {
            show::progress(progress, self.elapsed());
        }
        self.note(progress, None);
        Ok(self.reason(progress.memory_bytes as u64))
    }

    /// Notes how far the search is, when it is time to.
    pub(super) fn note(&mut self, progress: &Progress, sent_bytes: Option<u64>) {
        let at = self.elapsed();
        let noted = self.samples.last().map_or(0.0, |last| last.at_s);
        if at.as_secs_f64() - noted < self.sample_every.as_secs_f64() {
            return;
        }
        self.samples.push(sample(at, progress, sent_bytes));
        if self.samples.len() >= SAMPLES_MAX {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.sample_every *= 2;
        }
    }

    /// What was noted, and where the search ended.
    pub(super) fn over_time(&self, end: &Progress) -> Vec<CheckProgress> {
        let sent_bytes = self.samples.last().and_then(|last| last.sent_bytes);
        let mut samples = self.samples.clone();
        samples.push(sample(self.elapsed(), end, sent_bytes));
        samples
    }

    /// Whether a second has gone by since this last said so.
    pub(super) fn is_time_to_show(&mut self) -> bool {
        let is_time = self.shown.elapsed() >= Duration::from_secs(1);
        if is_time {
            self.shown = Instant::now();
        }
        is_time
    }

    /// Why to end now, if there is a reason.
    pub(super) fn reason(&self, used_bytes: u64) -> Option<String> {
        if let Some(signal) = signals::caught() {
            return Some(format!("interrupted by signal {signal}"));
        }
        if self.bounds.time.is_some_and(|time| self.elapsed() >= time) {
            return Some("the time is up (--time)".to_owned());
        }
        if self.bounds.memory_bytes.is_some_and(|bytes| used_bytes > bytes) {
            return Some(too_much(used_bytes));
        }
        None
    }
}

fn sample(at: Duration, progress: &Progress, sent_bytes: Option<u64>) -> CheckProgress {
    CheckProgress {
        at_s: at.as_secs_f64(),
        states_count: progress.states_count,
        queued_count: progress.queued_count,
        memory_bytes: progress.memory_bytes as u64,
        sent_bytes,
    }
}
