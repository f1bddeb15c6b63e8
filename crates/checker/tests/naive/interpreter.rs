//! Steps of a model, by walking its tree.

use super::tree::{Expr, Place, Sync, Transition, Tree};

/// A state; the error state has `is_error` and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    pub(crate) is_error: bool,
    pub(crate) at: Vec<usize>,
    pub(crate) values: Vec<Vec<i32>>,
    /// Messages of the channels.
    pub(crate) messages: Vec<Vec<Vec<i32>>>,
}

/// What went wrong; it does not matter what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrong;

type Maybe<T> = Result<T, Wrong>;

/// A step: the processes of the system that took part, and where it leads.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) actors: Vec<usize>,
    pub(crate) to: State,
}

impl Tree {
    pub(crate) fn initial(&self) -> State {
        State {
            is_error: false,
            at: self.processes.iter().map(|process| process.initial).collect(),
            values: self.variables.iter().map(|variable| variable.initial.clone()).collect(),
            messages: vec![Vec::new(); self.channels.len()],
        }
    }

    /// A state in words, as `dve` shows it.
    pub(crate) fn show(&self, state: &State) -> String {
        if state.is_error {
            return "error state".to_owned();
        }
        let mut words: Vec<String> =
            state.at.iter().enumerate().map(|(p, at)| format!("P{p}.s{at}")).collect();
        let owners = [None].into_iter().chain((0..self.processes.len()).map(Some));
        for owner in owners {
            for (number, variable) in self.variables.iter().enumerate() {
                if variable.owner != owner || variable.is_const {
                    continue;
                }
                let name = match owner {
                    None => self.variable_name(number),
                    Some(process) => format!("P{process}->{}", self.variable_name(number)),
                };
                let values: Vec<_> = state.values[number].iter().map(ToString::to_string).collect();
                words.push(match variable.is_array {
                    false => format!("{name}={}", values[0]),
                    true => format!("{name}={{{}}}", values.join(",")),
                });
            }
        }
        for (number, channel) in self.channels.iter().enumerate() {
            if channel.capacity > 0 {
                let show = |one: &Vec<i32>| {
                    one.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
                };
                let all: Vec<_> = state.messages[number].iter().map(show).collect();
                words.push(format!("c{number}=[{}]", all.join(";")));
            }
        }
        words.join(" ")
    }

    pub(crate) fn is_accepting(&self, state: &State) -> bool {
        let last = self.processes.len() - 1;
        self.has_property
            && !state.is_error
            && self.processes[last].accepting.contains(&state.at[last])
    }

    /// How many assertions a state breaks.
    pub(crate) fn broken(&self, state: &State) -> usize {
        if state.is_error {
            return 0;
        }
        let all = self.processes.iter().zip(&state.at);
        all.flat_map(|(process, at)| process.assertions.iter().filter(move |(on, _)| on == at))
            .filter(|(_, expr)| self.value(expr, state) == Ok(0))
            .count()
    }

    /// All steps out of a state, the property's moves with them.
    pub(crate) fn steps(&self, state: &State) -> Vec<Step> {
        if state.is_error {
            return Vec::new();
        }
        let mut steps = self.system_steps(state);
        if !self.has_property {
            return steps;
        }
        if steps.is_empty() {
            steps.push(Step { actors: Vec::new(), to: state.clone() });
        }
        let watch = self.processes.len() - 1;
        let mut product = Vec::new();
        for step in steps {
            for (transition, guard) in self.ready(watch, state) {
                let mut to = step.to.clone();
                let moved = guard.and_then(|()| match to.is_error {
                    true => Err(Wrong),
                    false => self.effects(watch, transition, &mut to),
                });
                let to = if moved.is_ok() { to } else { error() };
                product.push(Step { actors: step.actors.clone(), to });
            }
        }
        product
    }

    fn system_steps(&self, state: &State) -> Vec<Step> {
        let count = self.processes.len() - usize::from(self.has_property);
        let is_committed = |p: &usize| self.processes[*p].committed.contains(&state.at[*p]);
        let mut movers: Vec<usize> = (0..count).collect();
        if movers.iter().any(is_committed) {
            movers.retain(is_committed);
        }
        let mut steps = Vec::new();
        for &mover in &movers {
            for (transition, guard) in self.ready(mover, state) {
                let sent = match &transition.sync {
                    Some(Sync::Send(channel, _)) if self.channels[*channel].capacity == 0 => {
                        *channel
                    }
                    Some(Sync::Receive(channel, _)) if self.channels[*channel].capacity == 0 => {
                        continue;
                    }
                    _ => {
                        if self.is_blocked(transition, state) {
                            continue;
                        }
                        let to = guard.and_then(|()| self.alone(mover, transition, state));
                        steps
                            .push(Step { actors: vec![mover], to: to.unwrap_or_else(|_| error()) });
                        continue;
                    }
                };
                for &other in movers.iter().filter(|&&other| other != mover) {
                    for (partner, its_guard) in self.ready(other, state) {
                        if !matches!(&partner.sync, Some(Sync::Receive(on, _)) if *on == sent) {
                            continue;
                        }
                        let to = guard.and(its_guard).and_then(|()| {
                            self.together((mover, transition), (other, partner), state)
                        });
                        let actors = vec![mover, other];
                        steps.push(Step { actors, to: to.unwrap_or_else(|_| error()) });
                    }
                }
            }
        }
        steps
    }

    /// Transitions of a process whose guard is not false, and whether it could be told.
    fn ready(&self, process: usize, state: &State) -> Vec<(&Transition, Maybe<()>)> {
        let mut ready = Vec::new();
        for transition in &self.processes[process].transitions {
            if transition.from != state.at[process] {
                continue;
            }
            match transition.guard.as_ref().map_or(Ok(1), |guard| self.value(guard, state)) {
                Ok(0) => {}
                Ok(_) => ready.push((transition, Ok(()))),
                Err(wrong) => ready.push((transition, Err(wrong))),
            }
        }
        ready
    }

    fn is_blocked(&self, transition: &Transition, state: &State) -> bool {
        match &transition.sync {
            Some(Sync::Send(channel, _)) => {
                state.messages[*channel].len() >= self.channels[*channel].capacity
            }
            Some(Sync::Receive(channel, _)) => state.messages[*channel].is_empty(),
            None => false,
        }
    }

    fn alone(&self, process: usize, transition: &Transition, state: &State) -> Maybe<State> {
        let mut to = state.clone();
        match &transition.sync {
            Some(Sync::Send(channel, values)) => {
                let ints = self.channels[*channel].ints.clone().expect("buffers have types");
                let mut message = Vec::new();
                for (value, is_int) in values.iter().zip(ints) {
                    message.push(cut(self.value(value, state)?, is_int));
                }
                to.messages[*channel].push(message);
            }
            Some(Sync::Receive(channel, places)) => {
                let message = to.messages[*channel].remove(0);
                for (place, value) in places.iter().zip(message) {
                    self.store(place, value, state, &mut to)?;
                }
            }
            None => {}
        }
        self.effects(process, transition, &mut to)?;
        Ok(to)
    }

    fn together(
        &self,
        (sender, sends): (usize, &Transition),
        (receiver, receives): (usize, &Transition),
        state: &State,
    ) -> Maybe<State> {
        let (Some(Sync::Send(channel, values)), Some(Sync::Receive(_, places))) =
            (&sends.sync, &receives.sync)
        else {
            unreachable!("they meet")
        };
        let mut to = state.clone();
        for (number, (value, place)) in values.iter().zip(places).enumerate() {
            let mut value = self.value(value, &to)?;
            if let Some(ints) = &self.channels[*channel].ints {
                value = cut(value, ints[number]);
            }
            self.store(place, value, state, &mut to)?;
        }
        for (place, _) in &sends.effects {
            let is_global = self.variables[place.variable].owner.is_none();
            let too = receives.effects.iter().any(|(other, _)| other.variable == place.variable);
            if is_global && too {
                return Err(Wrong);
            }
        }
        self.effects(receiver, receives, &mut to)?;
        self.effects(sender, sends, &mut to)?;
        Ok(to)
    }

    fn effects(&self, process: usize, transition: &Transition, to: &mut State) -> Maybe<()> {
        to.at[process] = transition.to;
        for (place, value) in &transition.effects {
            let now = to.clone();
            self.store(place, self.value(value, &now)?, &now, to)?;
        }
        Ok(())
    }

    /// An index is that of the state `seen`.
    fn store(&self, place: &Place, value: i32, seen: &State, to: &mut State) -> Maybe<()> {
        let index = place.index.as_ref().map_or(Ok(0), |index| self.value(index, seen))?;
        let variable = &self.variables[place.variable];
        let range = if variable.is_int { -32768..=32767 } else { 0..=255 };
        if index < 0 || index as usize >= variable.initial.len() || !range.contains(&value) {
            return Err(Wrong);
        }
        to.values[place.variable][index as usize] = value;
        Ok(())
    }

    fn value(&self, expr: &Expr, state: &State) -> Maybe<i32> {
        Ok(match expr {
            Expr::Number(number) => *number,
            Expr::In(process, at) => i32::from(state.at[*process] == *at),
            Expr::Read(place) => {
                let index = place.index.as_ref().map_or(Ok(0), |index| self.value(index, state))?;
                let values = &state.values[place.variable];
                *usize::try_from(index).ok().and_then(|at| values.get(at)).ok_or(Wrong)?
            }
            Expr::Unary(operator, operand) => {
                let operand = self.value(operand, state)?;
                match *operator {
                    "-" => (-i64::from(operand)) as i32,
                    "~" => -1 ^ operand,
                    _ => i32::from(operand == 0),
                }
            }
            Expr::Binary(operator, left, right) => {
                let left = self.value(left, state)?;
                // What decides early is not asked for more.
                match (*operator, left != 0) {
                    ("and", false) => return Ok(0),
                    ("or", true) | ("imply", false) => return Ok(1),
                    ("and" | "or" | "imply", _) => {
                        return Ok(i32::from(self.value(right, state)? > 0));
                    }
                    _ => {}
                }
                arithmetic(operator, i64::from(left), i64::from(self.value(right, state)?))?
            }
        })
    }
}

fn arithmetic(operator: &str, left: i64, right: i64) -> Maybe<i32> {
    let wide = match operator {
        "|" => left | right,
        "&" => left & right,
        "^" => left ^ right,
        "==" => i64::from(left == right),
        "!=" => i64::from(left != right),
        "<" => i64::from(left < right),
        "<=" => i64::from(left <= right),
        ">" => i64::from(left > right),
        ">=" => i64::from(left >= right),
        "<<" => left << (right & 31),
        ">>" => left >> (right & 31),
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" | "%" if right == 0 => return Err(Wrong),
        "/" => left / right,
        "%" => left % right,
        other => unreachable!("{other}"),
    };
    Ok(wide as i32)
}

fn cut(value: i32, is_int: bool) -> i32 {
    if is_int { i32::from(value as i16) } else { i32::from(value as u8) }
}

fn error() -> State {
    State { is_error: true, ..State::default() }
}
