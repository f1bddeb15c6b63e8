//! A model as a system to search.

use dve::{Model, Step, Steps};
use statespace::{Accepting, Acting, Actors, System};

/// A model as a system to search; remembers which transitions were taken.
#[derive(Debug)]
pub struct ModelSystem<'m> {
    model: &'m Model,
    steps: Steps<'m>,
    taken: Vec<bool>,
}

impl<'m> ModelSystem<'m> {
    /// Of one model.
    #[must_use]
    pub fn new(model: &'m Model) -> Self {
        Self { model, steps: Steps::new(model), taken: vec![false; model.transitions_count()] }
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

    /// Which transitions were taken, a byte each.
    #[must_use]
    pub fn taken(&self) -> Vec<u8> {
        self.taken.iter().map(|&taken| u8::from(taken)).collect()
    }

    /// Says which transitions were taken before.
    pub fn set_taken(&mut self, taken: &[u8]) {
        self.taken.iter_mut().zip(taken).for_each(|(known, before)| *known |= *before != 0);
    }

    /// Transitions that no step so far took, by number ([`Model::show_transition`]).
    pub fn never_taken(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.taken).filter(|(_, taken)| !**taken).map(|(number, _)| number)
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
            for number in [step.transition, step.receiver].into_iter().flatten() {
                taken[number as usize] = true;
            }
            visit(next);
        })
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
        let Self { model, steps, .. } = self;
        steps.each(state, |step, next| visit(actors(model, &step), next))
    }
}

/// Who takes a step; the property process is nobody.
#[must_use]
pub fn actors(model: &Model, step: &Step) -> Actors {
    let process = |number: u32| model.process_of(number) as u16;
    Actors([step.transition.map(process), step.receiver.map(process)])
}
