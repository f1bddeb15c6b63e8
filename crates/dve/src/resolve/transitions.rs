//! Transitions: their ends, guards, meetings and effects.

use super::expressions::Symbols;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::model::{Assignment, Channel, Process, Sync, Transition};
use crate::suggest::did_you_mean_or_list;
use crate::syntax::{self, Kind, Source};

/// Compiles all transitions and assertions, and lists them with the states they begin in.
pub(super) fn transitions<'s>(
    symbols: &Symbols<'s>,
    source: &Source<'s>,
    channels: &[Channel],
    processes: &mut [Process],
    code: &mut Code,
) -> Result<Vec<Transition>, Diagnostic> {
    let mut all = Vec::new();
    // How many values an untyped channel carries; its first use decides.
    let mut arities: Vec<Option<usize>> =
        channels.iter().map(|channel| channel.kinds.as_ref().map(Vec::len)).collect();
    for (process, text) in source.processes.iter().enumerate() {
        for (state, expr) in &text.assertions {
            let state = usize::from(symbols.state(process, *state)?);
            let entry = symbols.compile(code, Some(process), expr)?;
            processes[process].states[state].assertions.push((entry, expr.at));
        }
        for transition in &text.transitions {
            let number = all.len() as u32;
            let mut made = one(symbols, channels, &mut arities, process, transition, code)?;
            made.assigns.retain(|&variable| is_global(symbols, variable));
            let state = &mut processes[process].states[usize::from(made.from)];
            match (&made.sync, &transition.sync) {
                (Sync::MeetReceive { .. }, Some(sync)) => {
                    let channel = channel_number(symbols, channels, sync)?;
                    state.receivers.push((channel as u32, number));
                }
                _ => state.steps.push(number),
            }
            all.push(made);
        }
    }
    Ok(all)
}

fn one<'s>(
    symbols: &Symbols<'s>,
    channels: &[Channel],
    arities: &mut [Option<usize>],
    process: usize,
    text: &syntax::Transition<'s>,
    code: &mut Code,
) -> Result<Transition, Diagnostic> {
    let scope = Some(process);
    let guard = match &text.guard {
        Some(expr) => Some(symbols.compile(code, scope, expr)?),
        None => None,
    };
    let sync = match &text.sync {
        Some(sync) => compile_sync(symbols, channels, arities, scope, sync, code)?,
        None => Sync::None,
    };
    let (mut effects, mut assigns) = (Vec::new(), Vec::new());
    for (place, value) in &text.effects {
        let (place, variable) = symbols.place(code, scope, place)?;
        effects.push(Assignment { place, value: symbols.compile(code, scope, value)? });
        assigns.push(variable);
    }
    assigns.sort_unstable();
    assigns.dedup();
    Ok(Transition {
        process,
        from: symbols.state(process, text.from)?,
        to: symbols.state(process, text.to)?,
        at: text.at,
        guard,
        sync,
        effects,
        assigns,
    })
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
    arities: &mut [Option<usize>],
    scope: Option<usize>,
    sync: &syntax::Sync<'s>,
    code: &mut Code,
) -> Result<Sync, Diagnostic> {
    let number = channel_number(symbols, channels, sync)?;
    let arity = *arities[number].get_or_insert(sync.values.len());
    if arity != sync.values.len() {
        let (name, given) = (sync.channel.text, sync.values.len());
        let values = if arity == 1 { "value" } else { "values" };
        let text = format!("`{name}` carries {arity} {values} at a time, {given} given here");
        return Err(symbols.error(sync.channel.at, text));
    }
    let channel = &channels[number];
    // What an untyped channel carries is cut to nothing but the receiver's range.
    let kinds: &[Kind] = channel.kinds.as_deref().unwrap_or(&[]);
    let number = number as u32;
    if sync.sends {
        let mut values = Vec::new();
        for expr in &sync.values {
            values.push(symbols.compile(code, scope, expr)?);
        }
        return Ok(match channel.buffer {
            None => Sync::MeetSend { channel: number, values },
            Some(_) => {
                let values = values.into_iter().zip(kinds.iter().copied()).collect();
                Sync::Put { channel: number, values }
            }
        });
    }
    let mut places = Vec::new();
    for expr in &sync.values {
        places.push(symbols.place(code, scope, expr)?.0);
    }
    Ok(match channel.buffer {
        None => Sync::MeetReceive { places },
        Some(_) => {
            let places = places.into_iter().zip(kinds.iter().copied()).collect();
            Sync::Take { channel: number, places }
        }
    })
}

fn is_global(symbols: &Symbols<'_>, variable: u32) -> bool {
    (variable as usize) < symbols.globals_stored()
}
