//! A model as a system that ranks search together.

use dve::Model;
use statespace::partition::Subject;
use statespace::{Accepting, System};

use crate::ModelSystem;

/// A model with the properties that are checked of its states.
#[derive(Debug)]
pub struct RankedModel<'m> {
    system: ModelSystem<'m>,
    allow_deadlock: bool,
    has_assertions: bool,
}

impl<'m> RankedModel<'m> {
    /// No run-time error, no failed assertion and, unless allowed, no deadlock.
    #[must_use]
    pub fn new(model: &'m Model, allow_deadlock: bool) -> Self {
        let has_assertions = model.has_assertions();
        Self { system: ModelSystem::new(model), allow_deadlock, has_assertions }
    }

    /// The same without the steps that make no difference ([`ModelSystem::reduced`]). Which those are is
    /// seen from a state alone, so that ranks need not agree on it.
    #[must_use]
    pub fn reduced(model: &'m Model, allow_deadlock: bool) -> Self {
        Self { system: ModelSystem::reduced(model), ..Self::new(model, allow_deadlock) }
    }
}

impl System for RankedModel<'_> {
    fn state_bytes(&self) -> usize {
        self.system.state_bytes()
    }

    fn initial(&self) -> Vec<u8> {
        self.system.initial()
    }

    fn each(&mut self, state: &[u8], visit: impl FnMut(&[u8])) -> usize {
        self.system.each(state, visit)
    }

    fn is_error(&self, state: &[u8]) -> bool {
        self.system.is_error(state)
    }
}

impl Accepting for RankedModel<'_> {
    fn is_accepting(&self, state: &[u8]) -> bool {
        self.system.is_accepting(state)
    }
}

impl Subject for RankedModel<'_> {
    fn is_broken(&mut self, state: &[u8], steps_count: usize) -> bool {
        let model = self.system.model();
        (steps_count == 0 && !self.allow_deadlock)
            || model.is_error(state)
            || (self.has_assertions && !model.violated_assertions(state).is_empty())
    }

    /// [`ModelSystem::taken`]
    fn notes(&self) -> Vec<u8> {
        self.system.taken().to_vec()
    }

    fn each_serving(&mut self, state: &[u8], visit: impl FnMut(u64, &[u8])) -> u64 {
        statespace::partition::each_serving(&mut self.system, state, visit)
    }

    fn learn(&mut self, notes: &[u8]) {
        self.system.set_taken(notes);
    }
}
