//! A model as a system to search.

use dve::{Model, Step, Steps};
use statespace::{Accepting, Acting, Actors, System};

/// Some step took the transition.
pub const TAKEN: u8 = 1;
/// Some step took it and did not end in an error.
pub const WENT_WELL: u8 = 2;

/// Some step took it, or looked whether it could, and ended in a run-time error.
pub const FAILED: u8 = 4;

/// A model as a system to search; remembers which transitions were taken.
#[derive(Debug)]
pub struct ModelSystem<'m> {
    model: &'m Model,
    steps: Steps<'m>,
    /// Of each transition [`TAKEN`], [`WENT_WELL`] and [`FAILED`].
    taken: Vec<u8>,
}

impl<'m> ModelSystem<'m> {
    /// Of one model.
    #[must_use]
    pub fn new(model: &'m Model) -> Self {
        Self { model, steps: Steps::new(model), taken: vec![0; model.transitions_count()] }
    }

    /// Of one model, without the steps that make no difference ([`Steps::reduced`]).
    #[must_use]
    pub fn reduced(model: &'m Model) -> Self {
        Self { steps: Steps::reduced(model), ..Self::new(model) }
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Which transitions were taken, a byte each: [`TAKEN`], [`WENT_WELL`], [`FAILED`].
    #[must_use]
    pub fn taken(&self) -> &[u8] {
        &self.taken
    }

    /// Says which transitions were taken before.
    pub fn set_taken(&mut self, taken: &[u8]) {
        self.taken.iter_mut().zip(taken).for_each(|(known, before)| *known |= *before);
    }
}

impl System for ModelSystem<'_> {
    fn state_bytes(&self) -> usize {
        self.model.state_bytes()
    }

    fn initial(&self) -> Vec<u8> {
        self.model.initial().to_vec()
    }

    fn each(&mut self, state: &[u8], mut visit: impl FnMut(&[u8])) -> usize {
        let Self { steps, taken, .. } = self;
        steps.each(state, |step, next| {
            if step.fault.is_some() {
                note_failure(taken, &step);
            }
            let how = if step.fault.is_none() { TAKEN | WENT_WELL } else { TAKEN };
            for number in [step.transition, step.receiver].into_iter().flatten() {
                taken[number as usize] |= how;
            }
            visit(next);
        })
    }

    fn is_error(&self, state: &[u8]) -> bool {
        self.model.is_error(state)
    }
}

impl Accepting for ModelSystem<'_> {
    fn is_accepting(&self, state: &[u8]) -> bool {
        self.model.is_accepting(state)
    }
}

impl Acting for ModelSystem<'_> {
    fn actors_count(&self) -> usize {
        self.model.processes_count()
    }

    fn each_acting(&mut self, state: &[u8], mut visit: impl FnMut(Actors, &[u8])) -> usize {
        let Self { model, steps, taken } = self;
        steps.each(state, |step, next| {
            if step.fault.is_some() {
                note_failure(taken, &step);
            }
            visit(actors(model, &step), next);
        })
    }
}

/// The step ended in an error; where nobody but the property moved it was the property's.
#[cold]
fn note_failure(taken: &mut [u8], step: &Step) {
    let numbers = [step.transition.or(step.property), step.receiver];
    numbers.into_iter().flatten().for_each(|number| taken[number as usize] |= FAILED);
}

/// Who takes a step; the property process is nobody.
#[must_use]
pub fn actors(model: &Model, step: &Step) -> Actors {
    let process = |number: u32| model.process_of(number) as u16;
    Actors([step.transition.map(process), step.receiver.map(process)])
}
