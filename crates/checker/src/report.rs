//! The result of a search.

use std::time::Duration;

use dve::{Model, Step, Steps};
use results::CheckProgress;
use statespace::Progress;

use crate::{FAILED, WENT_WELL};

/// The result of a search.
#[derive(Debug)]
pub struct Report {
    /// What was checked, in words.
    pub what: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// The progress of the search at its end.
    pub progress: Progress,
    /// Length of a state, bytes.
    pub state_bytes: usize,
    /// How long the search took.
    pub elapsed: Duration,
    /// The progress of the search over time.
    pub over_time: Vec<CheckProgress>,
    /// Unreachable code; known after a complete search only.
    pub unreachable: Option<Unreachable>,
    /// Transitions in which runs ended with a run-time error, where a formula was checked: such runs are
    /// not judged.
    pub failing: Vec<String>,
    /// Ranks that searched together, and what they sent each other.
    pub ranks: Option<Traffic>,
}

/// Unreachable code of the model, as text with its line.
#[derive(Debug)]
pub struct Unreachable {
    /// Transitions that are never taken.
    pub transitions: Vec<String>,
    /// States of processes that are never reached.
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

/// Messages between ranks.
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
    /// States expanded again because a shorter trace to them was found.
    pub again_count: u64,
}

/// Whether the model satisfies a property.
#[derive(Debug)]
pub enum Verdict {
    /// All reachable states were searched without finding a violation.
    Holds,
    /// There is a counterexample.
    Violated {
        /// The reason in one line; an excerpt of the model may follow in further lines.
        why: String,
        /// The counterexample.
        run: Vec<TraceState>,
        /// Of an infinite run, the index of the first state of its cycle; the last state is that state again.
        cycle_start: Option<usize>,
    },
    /// The search ended early or stored states lossily: the reason.
    Undecided(String),
}

/// A state of a trace and the step that led to it.
#[derive(Debug)]
pub struct TraceState {
    /// The step; `None` for the initial state.
    pub step: Option<String>,
    /// The processes that moved.
    pub movers: Vec<String>,
    /// The state.
    pub state: String,
}

impl TraceState {
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
pub(crate) fn lines(model: &Model, states: &[Vec<u8>]) -> Vec<TraceState> {
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
        lines.push(TraceState::new(model, step.as_ref(), state));
        before = Some(state);
    }
    lines
}
