//! A model ready to run: names resolved, expressions compiled, every variable at its place.

use thiserror::Error;

use crate::code::{Code, Entry};
use crate::diagnostic::{At, Diagnostic};
use crate::syntax::Kind;

/// What went wrong while an expression was evaluated or a value stored. The step leads to the error
/// state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fault {
    /// An array has no such element.
    #[error("array index out of range")]
    IndexOutOfRange,
    /// `/ 0` or `% 0`.
    #[error("division by zero")]
    DivisionByZero,
    /// A value that the variable cannot hold.
    #[error("value outside the variable's range")]
    ValueOutOfRange,
    /// Both partners of a meeting assign the same global variable.
    #[error("sender and receiver assign the same global variable")]
    AssignedTwice,
}

/// A model, checked and compiled.
#[derive(Debug)]
pub struct Model {
    pub(crate) source: String,
    pub(crate) warnings: Vec<Diagnostic>,
    pub(crate) initial: Vec<u8>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) processes: Vec<Process>,
    pub(crate) transitions: Vec<Transition>,
    /// The process that watches the others, if any.
    pub(crate) property: Option<usize>,
    /// Whether the property was made from a formula and stands in nobody's file.
    pub(crate) is_property_made: bool,
    pub(crate) has_commits: bool,
    pub(crate) code: Code,
}

/// A variable that takes space in the state.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// Its process; `None` for a global.
    pub(crate) process: Option<usize>,
    pub(crate) kind: Kind,
    pub(crate) at: u16,
    /// Elements of an array.
    pub(crate) length: Option<u16>,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: String,
    /// Types of the values, when declared.
    pub(crate) kinds: Option<Vec<Kind>>,
    /// Place of its buffer: two bytes of length, then the messages. `None`: partners meet.
    pub(crate) buffer: Option<Buffer>,
}

/// A channel's messages in the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) at: u16,
    pub(crate) capacity: u16,
    pub(crate) message_bytes: u16,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) location: Location,
    pub(crate) states: Vec<State>,
}

/// Where a process's location stands in the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location {
    pub(crate) at: u16,
    /// Two bytes instead of one.
    pub(crate) is_wide: bool,
}

impl Location {
    pub(crate) fn get(self, state: &[u8]) -> usize {
        let at = usize::from(self.at);
        if self.is_wide {
            usize::from(u16::from_le_bytes([state[at], state[at + 1]]))
        } else {
            usize::from(state[at])
        }
    }

    pub(crate) fn set(self, state: &mut [u8], value: u16) {
        let at = usize::from(self.at);
        let [low, high] = value.to_le_bytes();
        state[at] = low;
        if self.is_wide {
            state[at + 1] = high;
        }
    }
}

/// One state of a process.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) name: String,
    /// Where it is declared.
    pub(crate) at: At,
    pub(crate) is_committed: bool,
    pub(crate) is_accepting: bool,
    /// What must hold here.
    pub(crate) assertions: Vec<(Entry, At)>,
    /// Transitions that begin a step, in the order of the text: all but receivers that meet.
    pub(crate) steps: Vec<u32>,
    /// Transitions that receive where partners meet: (channel, transition).
    pub(crate) receivers: Vec<(u32, u32)>,
}

#[derive(Debug)]
pub(crate) struct Transition {
    pub(crate) process: usize,
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) at: At,
    pub(crate) guard: Option<Entry>,
    pub(crate) sync: Sync,
    pub(crate) effects: Vec<Assignment>,
    /// Global variables its effects assign, by number, ascending.
    pub(crate) assigns: Vec<u32>,
}

#[derive(Debug)]
pub(crate) enum Sync {
    None,
    /// A partner meets a receiver.
    MeetSend {
        channel: u32,
        values: Vec<Entry>,
    },
    /// A receiver meets a partner.
    MeetReceive {
        places: Vec<Place>,
    },
    /// Into a buffer.
    Put {
        channel: u32,
        values: Vec<(Entry, Kind)>,
    },
    /// Out of a buffer.
    Take {
        channel: u32,
        places: Vec<(Place, Kind)>,
    },
}

#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) place: Place,
    pub(crate) value: Entry,
}

/// Where a value goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) at: u16,
    pub(crate) length: u16,
    pub(crate) index: Option<Entry>,
}

impl Model {
    /// Reads and compiles a model.
    ///
    /// # Errors
    /// The first thing that is wrong with it, with line, column and a caret.
    ///
    /// ```
    /// let text = "byte x; process P { state a, b; init a; trans a -> b { effect x = 1; }; } system async;";
    /// let model = dve::Model::parse(text).unwrap();
    /// assert_eq!(model.state_bytes(), 2);
    /// ```
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        Self::parse_or_errors(text).map_err(|mut errors| errors.swap_remove(0))
    }

    /// As [`Model::parse`], for a reader who wants to mend all errors at once.
    ///
    /// # Errors
    /// The errors in the order of the text, at least 1 and at most 20. One that follows from another, or repeats
    /// an undeclared name, is left out. Names are looked up once the syntax is right.
    pub fn parse_or_errors(text: &str) -> Result<Self, Vec<Diagnostic>> {
        crate::resolve::resolve(text)
    }

    /// The text it was read from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What a reader should be warned of.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Length of a state, bytes.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.initial.len()
    }

    /// The state a run begins in.
    #[must_use]
    pub fn initial(&self) -> &[u8] {
        &self.initial
    }

    /// Whether a property process watches the others.
    #[must_use]
    pub fn has_property(&self) -> bool {
        self.property.is_some()
    }

    /// Whether the property process is in an accepting state.
    #[must_use]
    pub fn is_accepting(&self, state: &[u8]) -> bool {
        self.property.is_some_and(|number| {
            let process = &self.processes[number];
            process.states.get(process.location.get(state)).is_some_and(|state| state.is_accepting)
        })
    }

    /// Whether a formula's property process is in a state from which it accepts every run: an accepting one with an
    /// unconditional step to itself. What it has read until then violates the formula, whatever follows.
    #[must_use]
    pub fn accepts_all(&self, state: &[u8]) -> bool {
        let Some(number) = self.property.filter(|_| self.is_property_made) else { return false };
        let process = &self.processes[number];
        let at = process.location.get(state);
        process.states.get(at).is_some_and(|here| {
            here.is_accepting
                && here.steps.iter().any(|&number| {
                    let step = &self.transitions[number as usize];
                    usize::from(step.to) == at && step.guard.is_none() && step.effects.is_empty()
                })
        })
    }

    /// Whether bytes can be a state: every process somewhere, no buffer more than full.
    #[must_use]
    pub fn is_state(&self, state: &[u8]) -> bool {
        state.len() == self.initial.len()
            && (self.is_error(state)
                || self.processes.iter().all(|one| one.location.get(state) < one.states.len())
                    && self
                        .channels
                        .iter()
                        .filter_map(|channel| channel.buffer)
                        .all(|buffer| buffer.length(state) <= buffer.capacity))
    }

    /// Whether this is the error state, in which a run ends after a [`Fault`].
    #[must_use]
    pub fn is_error(&self, state: &[u8]) -> bool {
        self.processes
            .first()
            .is_some_and(|process| process.location.get(state) >= process.states.len())
    }

    /// The error state: everything 0, the first process nowhere.
    pub(crate) fn set_error(&self, state: &mut [u8]) {
        state.fill(0);
        if let Some(process) = self.processes.first() {
            process.location.set(state, u16::MAX);
        }
    }

    /// Assertions that do not hold in a state, as the places of their expressions.
    #[must_use]
    pub fn violated_assertions(&self, state: &[u8]) -> Vec<Diagnostic> {
        let mut violated = Vec::new();
        if self.is_error(state) {
            return violated;
        }
        let mut stack = Vec::new();
        for process in &self.processes {
            for &(entry, at) in &process.states[process.location.get(state)].assertions {
                // Errors of evaluation are not the assertion's failure.
                if self.code.value(entry, state, &mut stack) == Ok(0) {
                    let text = format!("assertion of {} does not hold", process.name);
                    violated.push(Diagnostic::new(&self.source, at, text));
                }
                stack.clear();
            }
        }
        violated
    }

    /// Whether any state has an assertion.
    #[must_use]
    pub fn has_assertions(&self) -> bool {
        self.processes
            .iter()
            .flat_map(|process| &process.states)
            .any(|state| !state.assertions.is_empty())
    }
}
