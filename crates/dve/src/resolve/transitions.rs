//! Transitions: their ends, guards, meetings and effects.

use super::expressions::Symbols;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::model::{Assignment, Channel, Process, Sync, Transition};
use crate::suggest::did_you_mean_or_list;
use crate::syntax::{self, Source};

/// Compiles all transitions and assertions, and lists them with the states they begin in. Those with
/// errors, which are kept in the symbols, are left out.
pub(super) fn transitions<'s>(
    symbols: &Symbols<'s>,
    source: &Source<'s>,
    channels: &[Channel],
    processes: &mut [Process],
    code: &mut Code,
) -> Vec<Transition> {
    let mut all = Vec::new();
    let mut arities: Vec<Arity> = channels.iter().map(Arity::of).collect();
    for (process, text) in source.processes.iter().enumerate() {
        for (state, expr) in &text.assertions {
            if symbols.errors.is_full() {
                return all;
            }
            let entry = symbols.compile(code, Some(process), expr);
            if let Some(state) = symbols.errors.take(symbols.state(process, *state)) {
                let state = &mut processes[process].states[usize::from(state)];
                state.assertions.push((entry, expr.at));
            }
        }
        for transition in &text.transitions {
            if symbols.errors.is_full() {
                return all;
            }
            let number = all.len() as u32;
            let made = one(symbols, channels, &mut arities, process, transition, code);
            let Some((mut made, channel)) = made else { continue };
            made.assigns.retain(|&variable| is_global(symbols, variable));
            let state = &mut processes[process].states[usize::from(made.from)];
            match (&made.sync, channel) {
                (Sync::MeetReceive { .. }, Some(channel)) => {
                    state.receivers.push((channel, number))
                }
                _ => state.steps.push(number),
            }
            all.push(made);
        }
    }
    all
}

/// How many values a channel carries.
#[derive(Clone, Copy)]
struct Arity {
    /// The first use of an untyped channel decides.
    count: Option<usize>,
    is_declared: bool,
    /// Which of two uses of an untyped channel is wrong cannot be known: one error is enough.
    is_disputed: bool,
}

impl Arity {
    fn of(channel: &Channel) -> Self {
        let count = channel.kinds.as_ref().map(Vec::len);
        Self { count, is_declared: count.is_some(), is_disputed: false }
    }
}

/// A transition, and the channel that it sends to or receives from; `None` after an error.
fn one<'s>(
    symbols: &Symbols<'s>,
    channels: &[Channel],
    arities: &mut [Arity],
    process: usize,
    text: &syntax::Transition<'s>,
    code: &mut Code,
) -> Option<(Transition, Option<u32>)> {
    let scope = Some(process);
    let from = symbols.errors.take(symbols.state(process, text.from));
    let to = symbols.errors.take(symbols.state(process, text.to));
    let guard = text.guard.as_ref().map(|expr| symbols.compile(code, scope, expr));
    let sync = match &text.sync {
        Some(sync) => compile_sync(symbols, channels, arities, scope, sync, code)
            .map(|(channel, sync)| (Some(channel), sync)),
        None => Some((None, Sync::None)),
    };
    let (mut effects, mut assigns) = (Vec::new(), Vec::new());
    for (place, value) in &text.effects {
        if symbols.errors.is_full() {
            return None;
        }
        let place = symbols.place(code, scope, place);
        let value = symbols.compile(code, scope, value);
        if let Some((place, variable)) = place {
            effects.push(Assignment { place, value });
            assigns.push(variable);
        }
    }
    assigns.sort_unstable();
    assigns.dedup();
    let (channel, sync) = sync?;
    let at = text.at;
    Some((Transition { process, from: from?, to: to?, at, guard, sync, effects, assigns }, channel))
}

fn channel_number(
    symbols: &Symbols<'_>,
    channels: &[Channel],
    sync: &syntax::Sync<'_>,
) -> Result<usize, Diagnostic> {
    let name = sync.channel;
    channels.iter().position(|channel| channel.name == name.text).ok_or_else(|| {
        let known = channels.iter().map(|channel| channel.name.as_str());
        let hint = did_you_mean_or_list(name.text, "the channels are", known);
        symbols.error(name.at, format!("there is no channel `{}`{hint}", name.text))
    })
}

fn compile_sync<'s>(
    symbols: &Symbols<'s>,
    channels: &[Channel],
    arities: &mut [Arity],
    scope: Option<usize>,
    sync: &syntax::Sync<'s>,
    code: &mut Code,
) -> Option<(u32, Sync)> {
    let number = symbols.errors.take(channel_number(symbols, channels, sync));
    if let Some(number) = number {
        check_arity(symbols, &mut arities[number], sync);
    }
    let (mut values, mut places) = (Vec::new(), Vec::new());
    for expr in &sync.values {
        if symbols.errors.is_full() {
            return None;
        }
        if sync.sends {
            values.push(symbols.compile(code, scope, expr));
        } else {
            places.extend(symbols.place(code, scope, expr).map(|(place, _)| place));
        }
    }
    let channel = &channels[number?];
    // What an untyped channel carries is cut to nothing but the receiver's range.
    let kinds = channel.kinds.as_deref().unwrap_or(&[]).iter().copied();
    let number = number? as u32;
    let compiled = match (channel.buffer.is_some(), sync.sends) {
        (false, true) => Sync::MeetSend { channel: number, values },
        (false, false) => Sync::MeetReceive { places },
        (true, true) => {
            Sync::Put { channel: number, values: values.into_iter().zip(kinds).collect() }
        }
        (true, false) => {
            Sync::Take { channel: number, places: places.into_iter().zip(kinds).collect() }
        }
    };
    Some((number, compiled))
}

fn check_arity(symbols: &Symbols<'_>, arity: &mut Arity, sync: &syntax::Sync<'_>) {
    let (name, given) = (sync.channel.text, sync.values.len());
    let count = *arity.count.get_or_insert(given);
    if count == given || arity.is_disputed {
        return;
    }
    arity.is_disputed = !arity.is_declared;
    let values = if count == 1 { "value" } else { "values" };
    let text = format!("`{name}` carries {count} {values} at a time, {given} given here");
    symbols.errors.add(symbols.error(sync.channel.at, text));
}

fn is_global(symbols: &Symbols<'_>, variable: u32) -> bool {
    (variable as usize) < symbols.globals_stored()
}
