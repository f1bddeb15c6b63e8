//! What a search came to.

use std::time::Duration;

use dve::{Model, Step, Steps};
use results::CheckProgress;
use statespace::Progress;

use crate::{FAILED, WENT_WELL};

/// What a search came to.
#[derive(Debug)]
pub struct Report {
    /// What was checked, in words.
    pub what: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// How far the search was at its end.
    pub progress: Progress,
    /// Length of a state, bytes.
    pub state_bytes: usize,
    /// How long the search took.
    pub elapsed: Duration,
    /// How far the search was as time went by.
    pub over_time: Vec<CheckProgress>,
    /// Known after a whole search only.
    pub unreachable: Option<Unreachable>,
    /// Transitions in which runs ended with a run-time error, where a formula was checked: it does not
    /// judge such runs.
    pub failing: Vec<String>,
    /// Ranks that searched together, and what they sent each other.
    pub ranks: Option<Traffic>,
}

/// Code of the model that no run comes to, a line each.
#[derive(Debug)]
pub struct Unreachable {
    /// Transitions that no step takes.
    pub transitions: Vec<String>,
    /// States of processes that no run comes to.
    pub states: Vec<String>,
}

impl Unreachable {
    /// From what a whole search took ([`crate::ModelSystem::taken`]).
    pub(crate) fn of(model: &Model, taken: &[u8]) -> Self {
        let how = |number: u32| taken.get(number as usize).copied().unwrap_or(0);
        let numbers = 0..model.transitions_count() as u32;
        let never = numbers.filter(|&number| how(number) == 0);
        Self {
            transitions: never.map(|number| model.show_transition(number)).collect(),
            states: model.unreached_states(|number| how(number) & WENT_WELL != 0),
        }
    }
}

/// Transitions that ended in an error, a line each ([`crate::ModelSystem::taken`]).
pub(crate) fn failing(model: &Model, taken: &[u8]) -> Vec<String> {
    let numbers = 0..model.transitions_count() as u32;
    let failed = |number: &u32| taken.get(*number as usize).is_some_and(|how| how & FAILED != 0);
    numbers.filter(failed).map(|number| model.show_transition(number)).collect()
}

/// What went between ranks.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    /// Number of ranks.
    pub ranks_count: usize,
    /// Whether they send each other messages; threads over one set of states do not.
    pub has_messages: bool,
    /// Messages that carried states.
    pub batches_count: u64,
    /// Their length, bytes.
    pub sent_bytes: u64,
    /// States looked at again because they were nearer than first thought.
    pub again_count: u64,
}

/// Whether the model has the property.
#[derive(Debug)]
pub enum Verdict {
    /// It has.
    Holds,
    /// It has not.
    Violated {
        /// Why not.
        why: String,
        /// A run that shows it.
        run: Vec<Line>,
        /// The states of the run from this one on repeat for ever.
        turn: Option<usize>,
    },
    /// Why the search ended early.
    Undecided(String),
}

/// A state of a run and the step that led to it.
#[derive(Debug)]
pub struct Line {
    /// The step; none in front of the first state.
    pub step: Option<String>,
    /// The processes that took the step.
    pub movers: Vec<String>,
    /// The state.
    pub state: String,
}

impl Line {
    /// A state and the step to it, where there is one.
    pub(crate) fn new(model: &Model, step: Option<&Step>, state: &[u8]) -> Self {
        Self {
            step: step.map(|step| model.show_step(step)),
            movers: step.map_or_else(Vec::new, |step| {
                model.movers(step).into_iter().map(str::to_owned).collect()
            }),
            state: model.show_state(state),
        }
    }
}

/// A row of states with the steps between them.
pub(crate) fn lines(model: &Model, states: &[Vec<u8>]) -> Vec<Line> {
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
