//! A model stepped through by hand.

use dve::{Diagnostic, Model, Steps};

/// A run through a model, made step by step.
#[derive(Debug)]
pub struct Simulation<'m> {
    model: &'m Model,
    steps: Steps<'m>,
    /// The states of the run, the first one always among them.
    run: Vec<Vec<u8>>,
    /// The steps that are possible now, and the states they lead to.
    choices: Vec<(String, Vec<u8>)>,
}

impl<'m> Simulation<'m> {
    /// A run that has not left the initial state.
    #[must_use]
    pub fn new(model: &'m Model) -> Self {
        let run = vec![model.initial().to_vec()];
        let mut new = Self { model, steps: Steps::new(model), run, choices: Vec::new() };
        new.look();
        new
    }

    /// Steps taken so far.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.run.len() - 1
    }

    /// The state the run is in.
    #[must_use]
    pub fn state(&self) -> String {
        self.run.last().map_or_else(String::new, |state| self.model.show_state(state))
    }

    /// Whether the last step was a run-time error, in which the run ends.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.run.last().is_some_and(|state| self.model.is_error(state))
    }

    /// The assertions that do not hold in this state, each with its place in the model: `13:22: assertion of P does not
    /// hold`.
    #[must_use]
    pub fn failed_assertions(&self) -> Vec<String> {
        let failed = self.run.last().map(|state| self.model.violated_assertions(state));
        let line = |one: &Diagnostic| one.to_string().lines().next().unwrap_or_default().to_owned();
        failed.iter().flatten().map(line).collect()
    }

    /// The steps that are possible.
    pub fn choices(&self) -> impl Iterator<Item = &str> {
        self.choices.iter().map(|(step, _)| step.as_str())
    }

    /// Takes one of the steps; whether there is such a one.
    pub fn take(&mut self, number: usize) -> bool {
        let Some((_, next)) = self.choices.get(number) else { return false };
        self.run.push(next.clone());
        self.look();
        true
    }

    /// Takes the last step back; whether there is one.
    pub fn back(&mut self) -> bool {
        if self.depth() == 0 {
            return false;
        }
        self.run.pop();
        self.look();
        true
    }

    fn look(&mut self) {
        let Self { model, steps, run, choices } = self;
        choices.clear();
        if let Some(state) = run.last() {
            steps.each(state, |step, next| choices.push((model.show_step(&step), next.to_vec())));
        }
    }
}
