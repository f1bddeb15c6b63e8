//! Partial-order reduction by ample sets that are known before the search (Holzmann and Peled 1994;
//! Kurshan, Levin, Minea, Peled and Yenigün 1998).
//!
//! A state of a process is *safe* when all its transitions go without a partner or a buffer, touch
//! nothing that another process, an assertion or the property touches, and close no loop of the
//! process. While a process is in a safe state its steps commute with everybody else's and nobody can
//! tell when they were taken: they alone need to be looked at. Every loop of the whole system takes
//! some process round a loop of its own, and so through a state that is not safe: nobody is put off
//! forever. Models with committed states are not reduced; a step that could go wrong is no safe one.

use crate::code::{Code, Entry, Op};
use crate::model::{Model, Place, Sync, Transition};
use crate::resolve::width;

/// Which states of which processes are safe.
#[derive(Debug, Clone)]
pub struct Reduction {
    safe: Vec<Vec<bool>>,
}

/// Bytes of the state.
#[derive(Debug, Clone)]
struct Bytes(Vec<bool>);

impl Bytes {
    fn none(model: &Model) -> Self {
        Self(vec![false; model.initial.len()])
    }

    fn add(&mut self, at: u16, count: usize) {
        let at = usize::from(at);
        let end = (at + count).min(self.0.len());
        self.0[at..end].fill(true);
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(one, other)| *one && *other)
    }

    fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one |= *other);
    }
}

/// What a transition touches.
#[derive(Debug, Clone)]
struct Accesses {
    reads: Bytes,
    writes: Bytes,
}

impl Accesses {
    fn nothing(model: &Model) -> Self {
        Self { reads: Bytes::none(model), writes: Bytes::none(model) }
    }

    fn join(&mut self, other: &Self) {
        self.reads.join(&other.reads);
        self.writes.join(&other.writes);
    }

    fn of(model: &Model, transition: &Transition) -> Self {
        let mut touched = Self::nothing(model);
        let code = &model.code;
        if let Some(guard) = transition.guard {
            touched.read(code, guard);
        }
        match &transition.sync {
            Sync::None => {}
            Sync::MeetSend { values, .. } => {
                values.iter().for_each(|&value| touched.read(code, value));
            }
            Sync::MeetReceive { places } => {
                places.iter().for_each(|&place| touched.write(code, place));
            }
            Sync::Put { channel, values } => {
                values.iter().for_each(|&(value, _)| touched.read(code, value));
                touched.buffer(model, *channel);
            }
            Sync::Take { channel, places } => {
                places.iter().for_each(|&(place, _)| touched.write(code, place));
                touched.buffer(model, *channel);
            }
        }
        for effect in &transition.effects {
            touched.read(code, effect.value);
            touched.write(code, effect.place);
        }
        let location = model.processes[transition.process].location;
        touched.writes.add(location.at, if location.is_wide { 2 } else { 1 });
        touched
    }

    fn buffer(&mut self, model: &Model, channel: u32) {
        if let Some(buffer) = model.channels[channel as usize].buffer {
            let count = 2 + usize::from(buffer.capacity) * usize::from(buffer.message_bytes);
            self.reads.add(buffer.at, count);
            self.writes.add(buffer.at, count);
        }
    }

    fn write(&mut self, code: &Code, place: Place) {
        let elements = if place.index.is_some() { usize::from(place.length) } else { 1 };
        self.writes.add(place.at, elements * width(place.kind));
        if let Some(index) = place.index {
            self.read(code, index);
        }
    }

    fn read(&mut self, code: &Code, entry: Entry) {
        for op in &code.ops[entry as usize..] {
            match *op {
                Op::Byte(at) | Op::WithByte(_, at) | Op::InState { at, .. } => {
                    self.reads.add(at, 1);
                }
                Op::Int(at) | Op::WithInt(_, at) | Op::InStateWide { at, .. } => {
                    self.reads.add(at, 2);
                }
                Op::ByteAt { at, length } => self.reads.add(at, usize::from(length)),
                Op::IntAt { at, length } => self.reads.add(at, 2 * usize::from(length)),
                Op::End => return,
                _ => {}
            }
        }
    }
}

impl Reduction {
    /// Of a model.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        let touched: Vec<Accesses> =
            model.transitions.iter().map(|transition| Accesses::of(model, transition)).collect();
        let mut by_process = vec![Accesses::nothing(model); model.processes.len()];
        for (transition, touched) in model.transitions.iter().zip(&touched) {
            by_process[transition.process].join(touched);
        }
        let mut watched = Accesses::nothing(model);
        for state in model.processes.iter().flat_map(|process| &process.states) {
            state.assertions.iter().for_each(|&(entry, _)| watched.read(&model.code, entry));
        }
        let closing = closing_transitions(model);
        let mut safe: Vec<Vec<bool>> = model
            .processes
            .iter()
            .enumerate()
            .map(|(number, process)| {
                let may_be = !model.has_commits && model.property != Some(number);
                vec![may_be; process.states.len()]
            })
            .collect();
        for (number, transition) in model.transitions.iter().enumerate() {
            let (process, one) = (transition.process, &touched[number]);
            let states = &model.processes[process].states;
            let is_seen = [transition.from, transition.to]
                .iter()
                .any(|&state| !states[usize::from(state)].assertions.is_empty());
            let others = || (0..by_process.len()).filter(|&other| other != process);
            let is_shared = others().any(|other| {
                let other = &by_process[other];
                one.writes.meets(&other.reads)
                    || one.writes.meets(&other.writes)
                    || one.reads.meets(&other.writes)
            });
            let meets = !matches!(transition.sync, Sync::None);
            if meets || closing[number] || is_seen || is_shared || one.writes.meets(&watched.reads)
            {
                safe[process][usize::from(transition.from)] = false;
            }
        }
        Self { safe }
    }

    /// Whether nothing is safe, so that nothing is reduced.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.safe.iter().flatten().any(|safe| *safe)
    }

    pub(crate) fn is_safe(&self, process: usize, state: usize) -> bool {
        self.safe[process][state]
    }
}

/// Transitions that close a loop among the states of their process: without them none has a loop.
fn closing_transitions(model: &Model) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnPath,
        Done,
    }
    let mut closing = vec![false; model.transitions.len()];
    for (process, states) in model.processes.iter().map(|process| &process.states).enumerate() {
        let out = |state: usize| -> Vec<usize> {
            let own = |number: &usize| {
                let transition = &model.transitions[*number];
                transition.process == process && usize::from(transition.from) == state
            };
            (0..model.transitions.len()).filter(own).collect()
        };
        let edges: Vec<Vec<usize>> = (0..states.len()).map(out).collect();
        let mut seen = vec![Seen::No; states.len()];
        for root in 0..states.len() {
            if seen[root] != Seen::No {
                continue;
            }
            seen[root] = Seen::OnPath;
            let mut path = vec![(root, 0)];
            while let Some((state, next)) = path.last_mut() {
                let Some(&number) = edges[*state].get(*next) else {
                    seen[*state] = Seen::Done;
                    path.pop();
                    continue;
                };
                *next += 1;
                let to = usize::from(model.transitions[number].to);
                match seen[to] {
                    Seen::OnPath => closing[number] = true,
                    Seen::No => {
                        seen[to] = Seen::OnPath;
                        path.push((to, 0));
                    }
                    Seen::Done => {}
                }
            }
        }
    }
    closing
}
