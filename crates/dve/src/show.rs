//! States and steps in words.

use crate::diagnostic::Diagnostic;
use crate::model::{Buffer, Model, Sync};
use crate::resolve::width;
use crate::steps::{Step, read};
use crate::syntax::Kind;

impl Model {
    /// A state in one line: processes with their states, then variables, then what waits in buffers.
    #[must_use]
    pub fn show_state(&self, state: &[u8]) -> String {
        if self.is_error(state) {
            return "error state".to_owned();
        }
        let mut line = String::new();
        for (number, process) in self.processes.iter().enumerate() {
            if self.is_made_property(number) {
                continue;
            }
            let name = &process.states[process.location.get(state)].name;
            line += &format!("{}.{name} ", process.name);
        }
        for variable in &self.variables {
            if let Some(process) = variable.process {
                line += &format!("{}->", self.processes[process].name);
            }
            let value = |index: u16| {
                let at = usize::from(variable.at) + usize::from(index) * width(variable.kind);
                read(state, at, variable.kind)
            };
            match variable.length {
                None => {
                    line += &format!("{}={} ", variable.name, value(0));
                }
                Some(length) => {
                    let values: Vec<String> =
                        (0..length).map(|index| value(index).to_string()).collect();
                    line += &format!("{}={{{}}} ", variable.name, values.join(","));
                }
            }
        }
        for channel in &self.channels {
            if let (Some(buffer), Some(kinds)) = (channel.buffer, &channel.kinds) {
                line += &format!("{}=[{}] ", channel.name, messages(buffer, kinds, state));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }

    /// Transitions of the model; [`Step`] names them by number.
    #[must_use]
    pub fn transitions_count(&self) -> usize {
        self.transitions.len()
    }

    /// Processes of the model, the property among them.
    #[must_use]
    pub fn processes_count(&self) -> usize {
        self.processes.len()
    }

    /// Who takes a step, the sender before the receiver; the property is nobody.
    #[must_use]
    pub fn movers(&self, step: &Step) -> Vec<&str> {
        let numbers = [step.transition, step.receiver].into_iter().flatten();
        numbers.map(|number| self.processes[self.process_of(number)].name.as_str()).collect()
    }

    /// Whose a transition is.
    ///
    /// # Panics
    /// When there is no transition of that number.
    #[must_use]
    pub fn process_of(&self, number: u32) -> usize {
        self.transitions[number as usize].process
    }

    /// Whether a process was made from a formula: a reader never wrote it, and it has no line.
    fn is_made_property(&self, process: usize) -> bool {
        self.is_property_made && self.property == Some(process)
    }

    /// A transition in one line: whose, from where to where, and its line in the text. Of a property that was
    /// made from a formula, that it is the formula.
    ///
    /// # Panics
    /// When there is no transition of that number.
    #[must_use]
    pub fn show_transition(&self, number: u32) -> String {
        let transition = &self.transitions[number as usize];
        if self.is_made_property(transition.process) {
            return "the formula".to_owned();
        }
        let process = &self.processes[transition.process];
        let name = |state: u16| &process.states[usize::from(state)].name;
        let line = Diagnostic::new(&self.source, transition.at, "").line;
        let (from, to) = (name(transition.from), name(transition.to));
        format!("{}: {from} -> {to} (line {line})", process.name)
    }

    /// States of processes that no run comes to, a line each with where they are declared, when
    /// `is_taken` tells of each transition whether some step took it and went well. The property's are
    /// left out: they are no part of what is checked.
    #[must_use]
    pub fn unreached_states(&self, is_taken: impl Fn(u32) -> bool) -> Vec<String> {
        let mut reached: Vec<Vec<bool>> =
            self.processes.iter().map(|process| vec![false; process.states.len()]).collect();
        for (process, reached) in self.processes.iter().zip(&mut reached) {
            if let Some(first) = reached.get_mut(process.location.get(&self.initial)) {
                *first = true;
            }
        }
        for (number, transition) in (0u32..).zip(&self.transitions) {
            reached[transition.process][usize::from(transition.to)] |= is_taken(number);
        }
        let mut lines = Vec::new();
        for (number, process) in self.processes.iter().enumerate() {
            if self.property == Some(number) {
                continue;
            }
            for (state, _) in
                process.states.iter().zip(&reached[number]).filter(|(_, seen)| !**seen)
            {
                let line = Diagnostic::new(&self.source, state.at, "").line;
                lines.push(format!("{}.{} (line {line})", process.name, state.name));
            }
        }
        lines
    }

    /// A step in one line: who moved from where to where, on which channel, and what went wrong.
    #[must_use]
    pub fn show_step(&self, step: &Step) -> String {
        let mut parts = Vec::new();
        // The formula is named only where evaluating it fails.
        let is_shown = !self.is_property_made || step.transition.is_none() && step.fault.is_some();
        let property = step.property.filter(|_| is_shown);
        for number in [step.transition, step.receiver, property].into_iter().flatten() {
            let transition = &self.transitions[number as usize];
            let mut part = self.show_transition(number);
            if let Sync::MeetSend { channel, .. }
            | Sync::Put { channel, .. }
            | Sync::Take { channel, .. } = &transition.sync
            {
                part += &format!(" on {}", self.channels[*channel as usize].name);
            }
            parts.push(part);
        }
        if parts.is_empty() {
            parts.push("no process moves: the run has ended in this state".to_owned());
        }
        let mut line = parts.join(", ");
        if let Some(fault) = step.fault {
            line += &format!(": {fault}");
        }
        line
    }
}

/// Messages in their order, `;` between them and `,` between the values of one.
fn messages(buffer: Buffer, kinds: &[Kind], state: &[u8]) -> String {
    let mut at = usize::from(buffer.at) + 2;
    let mut all = Vec::new();
    for _ in 0..buffer.length(state) {
        let mut values = Vec::new();
        for &kind in kinds {
            values.push(read(state, at, kind).to_string());
            at += width(kind);
        }
        all.push(values.join(","));
    }
    all.join(";")
}
