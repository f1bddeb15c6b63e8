//! From [`Source`] to [`Model`]: names looked up, space laid out, expressions compiled.

mod expressions;
mod transitions;

use std::collections::HashMap;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::model::{Buffer, Channel, Location, Model, Process, State, Variable};
use crate::parser::parse;
use crate::syntax::{self, Kind, Name, Source};
use expressions::{Symbol, Symbols};

/// Longest state, bytes: places are 16 bits wide.
const STATE_BYTES_MAX: usize = 1 << 15;

/// The model, or its errors in the order of the text: those of the syntax, else those of names and types.
pub(crate) fn resolve(text: &str) -> Result<Model, Vec<Diagnostic>> {
    let (source, warnings) = parse(text)?;
    let mut layout = Layout {
        symbols: Symbols { source: text, ..Symbols::default() },
        state: Vec::new(),
        variables: Vec::new(),
        code: Code::default(),
    };
    // Without space for the rest, nothing after it can be looked at.
    let (channels, mut processes) = layout.all(&source).map_err(|error| {
        layout.symbols.errors.add(error);
        layout.symbols.errors.sorted()
    })?;
    let Layout { symbols, state: initial, variables, mut code } = layout;
    let property = source.property.and_then(|name| symbols.errors.take(symbols.process(name)));
    if let Some(property) = property.map(|property| &source.processes[property]) {
        check_property(&symbols, property);
    }
    let transitions =
        transitions::transitions(&symbols, &source, &channels, &mut processes, &mut code);
    let errors = symbols.errors.sorted();
    if !errors.is_empty() {
        return Err(errors);
    }
    let has_commits =
        processes.iter().flat_map(|process| &process.states).any(|state| state.is_committed);
    Ok(Model {
        source: text.to_owned(),
        warnings,
        initial,
        variables,
        channels,
        processes,
        transitions,
        property,
        is_property_made: false,
        has_commits,
        code,
    })
}

fn check_property<'s>(symbols: &Symbols<'s>, property: &syntax::Process<'s>) {
    for name in &property.committed {
        let text = "a property process cannot have `commit` states";
        symbols.errors.add(symbols.error(name.at, text));
    }
    for sync in property.transitions.iter().filter_map(|one| one.sync.as_ref()) {
        if symbols.errors.is_full() {
            return;
        }
        let text = "a property process cannot send or receive";
        symbols.errors.add(symbols.error(sync.channel.at, text));
    }
}

/// The state as it grows, in the order of the declarations.
struct Layout<'s> {
    symbols: Symbols<'s>,
    state: Vec<u8>,
    variables: Vec<Variable>,
    code: Code,
}

/// Errors that leave the rest of the model readable are kept in the symbols, the others returned.
impl<'s> Layout<'s> {
    fn all(&mut self, source: &Source<'s>) -> Result<(Vec<Channel>, Vec<Process>), Diagnostic> {
        for variable in &source.variables {
            self.variable(None, variable)?;
        }
        let channels = self.channels(source)?;
        self.names(source)?;
        let mut processes = Vec::new();
        for (number, process) in source.processes.iter().enumerate() {
            processes.push(self.process(number, process)?);
        }
        Ok((channels, processes))
    }

    /// Keeps the error of a name that is declared twice in one place; the first declaration holds.
    fn is_twice(&self, is_known: bool, name: Name<'s>) -> bool {
        if is_known && !self.symbols.errors.is_full() {
            let text = format!("`{}` is declared twice", name.text);
            self.symbols.errors.add(self.symbols.error(name.at, text));
        }
        is_known
    }

    /// An initial value; `None` after an error.
    fn initial(
        &self,
        process: Option<usize>,
        variable: &syntax::Variable<'s>,
        expr: &syntax::Expr<'s>,
    ) -> Option<i32> {
        if self.symbols.errors.is_full() {
            return None;
        }
        let value = self.symbols.constant(process, expr)?;
        let range = range(variable.kind);
        if range.contains(&value) {
            return Some(value);
        }
        let (name, from, to) = (variable.name.text, range.start(), range.end());
        let text = format!("`{name}` cannot hold {value}; its range is {from} to {to}");
        self.symbols.errors.add(self.symbols.error(expr.at, text));
        None
    }

    fn variable(
        &mut self,
        process: Option<usize>,
        variable: &syntax::Variable<'s>,
    ) -> Result<(), Diagnostic> {
        let syntax::Variable { name, kind, is_const, length, .. } = variable;
        let initial: Vec<Option<i32>> =
            variable.initial.iter().map(|expr| self.initial(process, variable, expr)).collect();
        let is_known = initial.iter().all(Option::is_some);
        let mut values: Vec<i32> = initial.into_iter().map(Option::unwrap_or_default).collect();
        let names = match process {
            Some(process) => &self.symbols.locals[process],
            None => &self.symbols.globals,
        };
        if self.is_twice(names.contains_key(name.text), *name) {
            return Ok(());
        }
        // Too few are filled up with 0, too many are left out, as BEEM's models expect.
        values.resize(length.unwrap_or(1) as usize, 0);
        let symbol = if *is_const {
            // Both where it begins and its length are 16 bits wide.
            let table = u16::try_from(self.code.tables.len())
                .ok()
                .filter(|_| values.len() <= usize::from(u16::MAX))
                .ok_or_else(|| self.symbols.error(name.at, "too many constants"))?;
            self.code.tables.extend(&values);
            Symbol::Constant { values, table, is_array: length.is_some(), is_known }
        } else {
            let at = self.room(*name)?;
            for &value in &values {
                match kind {
                    Kind::Byte => self.state.push(value as u8),
                    Kind::Int => self.state.extend((value as i16).to_le_bytes()),
                }
            }
            self.room(*name)?;
            let number = self.variables.len() as u32;
            let length = length.map(|length| length as u16);
            self.variables.push(Variable {
                name: name.text.to_owned(),
                process,
                kind: *kind,
                at,
                length,
            });
            let initial = is_known.then_some(values);
            Symbol::Stored { kind: *kind, at, length, number, initial }
        };
        let names = match process {
            Some(process) => &mut self.symbols.locals[process],
            None => &mut self.symbols.globals,
        };
        names.insert(name.text, symbol);
        Ok(())
    }

    fn channels(&mut self, source: &Source<'s>) -> Result<Vec<Channel>, Diagnostic> {
        let mut channels: Vec<Channel> = Vec::new();
        for syntax::Channel { name, kinds, capacity } in &source.channels {
            if self.is_twice(channels.iter().any(|channel| channel.name == name.text), *name) {
                continue;
            }
            let buffer = match kinds {
                Some(kinds) if *capacity > 0 => {
                    let message_bytes = kinds.iter().map(|kind| width(*kind)).sum::<usize>();
                    let at = self.room(*name)?;
                    let bytes = 2 + message_bytes.saturating_mul(*capacity as usize);
                    self.state.resize(self.state.len() + bytes.min(STATE_BYTES_MAX + 1), 0);
                    self.room(*name)?;
                    let (capacity, message_bytes) = (*capacity as u16, message_bytes as u16);
                    Some(Buffer { at, capacity, message_bytes })
                }
                _ => None,
            };
            channels.push(Channel { name: name.text.to_owned(), kinds: kinds.clone(), buffer });
        }
        Ok(channels)
    }

    /// Processes and states may be named before they are declared.
    fn names(&mut self, source: &Source<'s>) -> Result<(), Diagnostic> {
        for (number, process) in source.processes.iter().enumerate() {
            let is_known = self.symbols.processes.contains_key(process.name.text);
            if !self.is_twice(is_known, process.name) {
                self.symbols.processes.insert(process.name.text, number);
            }
            let mut states = HashMap::new();
            for (state, name) in source.processes[number].states.iter().enumerate() {
                let state = u16::try_from(state).ok().filter(|&state| state < u16::MAX);
                let state = state.ok_or_else(|| self.symbols.error(name.at, "too many states"))?;
                if !self.is_twice(states.contains_key(name.text), *name) {
                    states.insert(name.text, state);
                }
            }
            self.symbols.states.push(states);
            self.symbols.locals.push(HashMap::new());
        }
        Ok(())
    }

    fn process(
        &mut self,
        number: usize,
        process: &syntax::Process<'s>,
    ) -> Result<Process, Diagnostic> {
        let at = self.room(process.name)?;
        // One value more than there are states: a process that is nowhere, in the error state.
        let is_wide = process.states.len() > usize::from(u8::MAX);
        let location = Location { at, is_wide };
        self.state.resize(self.state.len() + if is_wide { 2 } else { 1 }, 0);
        if let Some(initial) = self.state_named(number, process.initial) {
            location.set(&mut self.state, initial);
        }
        self.symbols.locations.push(location);
        for variable in &process.variables {
            self.variable(Some(number), variable)?;
        }
        let named =
            |name: &Name<'s>| State { name: name.text.to_owned(), at: name.at, ..State::default() };
        let mut states: Vec<State> = process.states.iter().map(named).collect();
        for name in &process.committed {
            if let Some(state) = self.state_named(number, *name) {
                states[usize::from(state)].is_committed = true;
            }
        }
        for name in &process.accepting {
            if let Some(state) = self.state_named(number, *name) {
                states[usize::from(state)].is_accepting = true;
            }
        }
        Ok(Process { name: process.name.text.to_owned(), location, states })
    }

    /// The next free place.
    fn room(&self, name: Name<'s>) -> Result<u16, Diagnostic> {
        if self.state.len() > STATE_BYTES_MAX {
            let text = format!(
                "a state may have {STATE_BYTES_MAX} bytes; with `{}` it has more",
                name.text
            );
            return Err(self.symbols.error(name.at, text));
        }
        Ok(self.state.len() as u16)
    }

    fn state_named(&self, process: usize, name: Name<'s>) -> Option<u16> {
        if self.symbols.errors.is_full() {
            return None;
        }
        self.symbols.errors.take(self.symbols.state(process, name))
    }
}

/// What a variable can hold.
pub(crate) fn range(kind: Kind) -> std::ops::RangeInclusive<i32> {
    match kind {
        Kind::Byte => 0..=255,
        Kind::Int => -32_768..=32_767,
    }
}

/// Bytes it takes.
pub(crate) fn width(kind: Kind) -> usize {
    match kind {
        Kind::Byte => 1,
        Kind::Int => 2,
    }
}
