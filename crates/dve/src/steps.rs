//! Steps out of a state.

use crate::model::{Buffer, Fault, Location, Model, Place, Sync, Transition};
use crate::reduction::Reduction;
use crate::resolve::{range, width};
use crate::syntax::Kind;

/// One step: which transitions were taken, and whether it went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// The transition, or the sender's where two meet; `None` where the system stands still and only
    /// the property moves.
    pub transition: Option<u32>,
    /// The receiver's transition, where two meet.
    pub receiver: Option<u32>,
    /// The property's.
    pub property: Option<u32>,
    /// What went wrong: the step leads to the error state.
    pub fault: Option<Fault>,
}

/// Finds the steps out of states of one model, with scratch space of its own.
#[derive(Debug)]
pub struct Steps<'m> {
    model: &'m Model,
    /// The state a step leads to.
    next: Vec<u8>,
    /// The same with the property's move.
    product: Vec<u8>,
    stack: Vec<i32>,
    /// Where fewer steps will do.
    reduction: Option<Reduction>,
    /// The property's enabled transitions in the state at hand.
    property_moves: Vec<(u32, Option<Fault>)>,
}

impl<'m> Steps<'m> {
    /// For one model.
    #[must_use]
    pub fn new(model: &'m Model) -> Self {
        let scratch = vec![0; model.initial.len()];
        Self {
            model,
            next: scratch.clone(),
            product: scratch,
            stack: Vec::new(),
            reduction: None,
            property_moves: Vec::new(),
        }
    }

    /// Leaves out steps that make no difference to deadlocks, errors, assertions and to properties that
    /// do not count steps (LTL without X).
    #[must_use]
    pub fn reduced(model: &'m Model) -> Self {
        let reduction = Some(Reduction::of(model)).filter(|reduction| !reduction.is_idle());
        Self { reduction, ..Self::new(model) }
    }

    /// Calls `visit` with every step out of `state` and the state it leads to, in the order of the
    /// model's text; tells how many there were. Two steps may lead to the same state.
    ///
    /// # Panics
    /// When `state` is not [`Model::state_bytes`] long.
    pub fn each(&mut self, state: &[u8], mut visit: impl FnMut(Step, &[u8])) -> usize {
        let model = self.model;
        if model.is_error(state) {
            return 0;
        }
        if let Some(property) = model.property {
            self.find_property_moves(property, state);
            if self.property_moves.is_empty() {
                return 0;
            }
        }
        let committed = model.has_commits
            && model
                .processes
                .iter()
                .any(|process| process.states[process.location.get(state)].is_committed);
        let only = self.process_that_will_do(state);
        let mut count = 0;
        for (number, process) in model.processes.iter().enumerate() {
            if model.property == Some(number) || only.is_some_and(|only| only != number) {
                continue;
            }
            let at = &process.states[process.location.get(state)];
            if committed && !at.is_committed {
                continue;
            }
            for &transition in &at.steps {
                count += self.begin(state, transition, committed, &mut visit);
            }
        }
        if count == 0 && model.property.is_some() {
            // The last state goes on forever.
            self.next.copy_from_slice(state);
            count = self.hand_on(Step::default(), &mut visit);
        }
        count
    }

    /// A process in a safe state that can move, and none of whose steps goes wrong.
    fn process_that_will_do(&mut self, state: &[u8]) -> Option<usize> {
        let reduction = self.reduction.take()?;
        let model = self.model;
        let found = model.processes.iter().enumerate().position(|(number, process)| {
            let at = process.location.get(state);
            reduction.is_safe(number, at) && self.goes_well(state, &process.states[at].steps)
        });
        self.reduction = Some(reduction);
        found
    }

    /// Whether some of these transitions are possible, and all that are end well.
    fn goes_well(&mut self, state: &[u8], transitions: &[u32]) -> bool {
        let mut can_move = false;
        for &number in transitions {
            let transition = &self.model.transitions[number as usize];
            match self.guard(transition, state) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return false,
            }
            self.next.copy_from_slice(state);
            if self.alone(transition, state).is_err() {
                self.stack.clear();
                return false;
            }
            can_move = true;
        }
        can_move
    }

    /// The steps that begin with one transition.
    fn begin(
        &mut self,
        state: &[u8],
        number: u32,
        committed: bool,
        visit: &mut impl FnMut(Step, &[u8]),
    ) -> usize {
        let model = self.model;
        let transition = &model.transitions[number as usize];
        let guard = match self.guard(transition, state) {
            Ok(false) => return 0,
            Ok(true) => None,
            Err(fault) => Some(fault),
        };
        let step = Step { transition: Some(number), fault: guard, ..Step::default() };
        let buffer = |channel: u32| {
            model.channels[channel as usize].buffer.expect("such a channel has a buffer")
        };
        match &transition.sync {
            Sync::MeetSend { channel, .. } => {
                return self.meet(state, step, *channel, committed, visit);
            }
            Sync::Put { channel, .. } if buffer(*channel).is_full(state) => return 0,
            Sync::Take { channel, .. } if buffer(*channel).is_empty(state) => return 0,
            _ => {}
        }
        self.next.copy_from_slice(state);
        let done = match guard {
            Some(fault) => Err(fault),
            None => self.alone(transition, state),
        };
        self.finish(step, done, visit)
    }

    /// A sender meets every receiver that is ready.
    fn meet(
        &mut self,
        state: &[u8],
        step: Step,
        channel: u32,
        committed: bool,
        visit: &mut impl FnMut(Step, &[u8]),
    ) -> usize {
        let model = self.model;
        let sender = &model.transitions[step.transition.expect("a sender") as usize];
        let mut count = 0;
        for (number, process) in model.processes.iter().enumerate() {
            if number == sender.process || model.property == Some(number) {
                continue;
            }
            let at = &process.states[process.location.get(state)];
            if committed && !at.is_committed {
                continue;
            }
            for &(_, receiver_number) in at.receivers.iter().filter(|(on, _)| *on == channel) {
                let receiver = &model.transitions[receiver_number as usize];
                let guard = match self.guard(receiver, state) {
                    Ok(false) => continue,
                    Ok(true) => step.fault,
                    Err(fault) => step.fault.or(Some(fault)),
                };
                let step = Step { receiver: Some(receiver_number), ..step };
                self.next.copy_from_slice(state);
                let done = match guard {
                    Some(fault) => Err(fault),
                    None => self.together(sender, receiver, state),
                };
                count += self.finish(step, done, visit);
            }
        }
        count
    }

    fn finish(
        &mut self,
        step: Step,
        done: Result<(), Fault>,
        visit: &mut impl FnMut(Step, &[u8]),
    ) -> usize {
        let fault = done.err();
        if fault.is_some() {
            self.stack.clear();
            self.model.set_error(&mut self.next);
        }
        self.hand_on(Step { fault, ..step }, visit)
    }

    /// Hands a step to the visitor, once for each move of the property.
    fn hand_on(&mut self, step: Step, visit: &mut impl FnMut(Step, &[u8])) -> usize {
        if self.model.property.is_none() {
            visit(step, &self.next);
            return 1;
        }
        let moves = std::mem::take(&mut self.property_moves);
        for &(number, fault) in &moves {
            self.product.copy_from_slice(&self.next);
            let mut step = Step { property: Some(number), ..step };
            if step.fault.is_none() {
                let transition = &self.model.transitions[number as usize];
                let moved = match fault {
                    Some(fault) => Err(fault),
                    None => self.effects_of_property(transition),
                };
                step.fault = moved.err();
                if step.fault.is_some() {
                    self.stack.clear();
                    self.model.set_error(&mut self.product);
                }
            }
            visit(step, &self.product);
        }
        self.property_moves = moves;
        self.property_moves.len()
    }

    fn find_property_moves(&mut self, property: usize, state: &[u8]) {
        let process = &self.model.processes[property];
        self.property_moves.clear();
        for &number in &process.states[process.location.get(state)].steps {
            match self.guard(&self.model.transitions[number as usize], state) {
                Ok(false) => {}
                Ok(true) => self.property_moves.push((number, None)),
                Err(fault) => self.property_moves.push((number, Some(fault))),
            }
        }
    }

    #[inline]
    fn guard(&mut self, transition: &Transition, state: &[u8]) -> Result<bool, Fault> {
        let Some(entry) = transition.guard else { return Ok(true) };
        let value = self.model.code.value(entry, state, &mut self.stack);
        if value.is_err() {
            self.stack.clear();
        }
        value.map(|value| value != 0)
    }

    /// A transition without a partner, on `next`, which is a copy of `state`. A buffer takes the value
    /// as it is before the effects (DIVINE 3's order; `DiVinE` 2.4's manual gives none).
    fn alone(&mut self, transition: &Transition, state: &[u8]) -> Result<(), Fault> {
        let code = &self.model.code;
        match &transition.sync {
            Sync::Put { channel, values } => {
                let buffer = self.model.channels[*channel as usize].buffer.expect("a buffer");
                let mut at = buffer.end(&self.next);
                for &(entry, kind) in values {
                    let value = code.value(entry, state, &mut self.stack)?;
                    write_cut(&mut self.next, at, kind, value);
                    at += width(kind);
                }
                buffer.grow(&mut self.next);
            }
            Sync::Take { channel, places } => {
                let buffer = self.model.channels[*channel as usize].buffer.expect("a buffer");
                let mut at = usize::from(buffer.at) + 2;
                for &(place, kind) in places {
                    let value = read(state, at, kind);
                    self.store(place, state, value)?;
                    at += width(kind);
                }
                buffer.shift(&mut self.next);
            }
            Sync::None | Sync::MeetSend { .. } | Sync::MeetReceive { .. } => {}
        }
        self.effects(transition)
    }

    /// Two that meet: values pass one after another, then the receiver moves, then the sender.
    fn together(
        &mut self,
        sender: &Transition,
        receiver: &Transition,
        state: &[u8],
    ) -> Result<(), Fault> {
        if let (Sync::MeetSend { channel, values }, Sync::MeetReceive { places }) =
            (&sender.sync, &receiver.sync)
        {
            let kinds = self.model.channels[*channel as usize].kinds.as_deref().unwrap_or(&[]);
            for (number, (&value, &place)) in values.iter().zip(places).enumerate() {
                let value = self.model.code.value(value, &self.next, &mut self.stack)?;
                let value = kinds.get(number).map_or(value, |&kind| cut(kind, value));
                self.store(place, state, value)?;
            }
        }
        if sender.assigns.iter().any(|variable| receiver.assigns.binary_search(variable).is_ok()) {
            return Err(Fault::AssignedTwice);
        }
        self.effects(receiver)?;
        self.effects(sender)
    }

    /// Moves a process, then assigns from left to right.
    fn effects(&mut self, transition: &Transition) -> Result<(), Fault> {
        let model = self.model;
        let location: Location = model.processes[transition.process].location;
        location.set(&mut self.next, transition.to);
        for effect in &transition.effects {
            let place = match effect.place.index {
                None => usize::from(effect.place.at),
                Some(entry) => {
                    let index = model.code.value(entry, &self.next, &mut self.stack)?;
                    element(effect.place, index)?
                }
            };
            let value = model.code.value(effect.value, &self.next, &mut self.stack)?;
            write(&mut self.next, place, effect.place.kind, value)?;
        }
        Ok(())
    }

    /// The property's effects, on `product`; its expressions see the state after the system's step.
    fn effects_of_property(&mut self, transition: &Transition) -> Result<(), Fault> {
        std::mem::swap(&mut self.next, &mut self.product);
        let done = self.effects(transition);
        std::mem::swap(&mut self.next, &mut self.product);
        done
    }

    /// Stores a received value; an index is that of the state before the step.
    fn store(&mut self, place: Place, state: &[u8], value: i32) -> Result<(), Fault> {
        let at = match place.index {
            None => usize::from(place.at),
            Some(entry) => {
                let index = self.model.code.value(entry, state, &mut self.stack)?;
                element(place, index)?
            }
        };
        write(&mut self.next, at, place.kind, value)
    }
}

impl Buffer {
    pub(crate) fn length(self, state: &[u8]) -> u16 {
        let at = usize::from(self.at);
        u16::from_le_bytes([state[at], state[at + 1]])
    }

    fn is_empty(self, state: &[u8]) -> bool {
        self.length(state) == 0
    }

    fn is_full(self, state: &[u8]) -> bool {
        self.length(state) >= self.capacity
    }

    /// Where the next message goes.
    fn end(self, state: &[u8]) -> usize {
        usize::from(self.at) + 2 + usize::from(self.length(state)) * usize::from(self.message_bytes)
    }

    fn grow(self, state: &mut [u8]) {
        self.set_length(state, self.length(state) + 1);
    }

    /// Takes the first message away; what is not used stays 0, so that equal contents are equal states.
    fn shift(self, state: &mut [u8]) {
        let (first, end) = (usize::from(self.at) + 2, self.end(state));
        let message_bytes = usize::from(self.message_bytes);
        state.copy_within(first + message_bytes..end, first);
        state[end - message_bytes..end].fill(0);
        self.set_length(state, self.length(state) - 1);
    }

    fn set_length(self, state: &mut [u8], length: u16) {
        let at = usize::from(self.at);
        state[at..at + 2].copy_from_slice(&length.to_le_bytes());
    }
}

fn element(place: Place, index: i32) -> Result<usize, Fault> {
    let index = usize::try_from(index).ok().filter(|&index| index < usize::from(place.length));
    let index = index.ok_or(Fault::IndexOutOfRange)?;
    Ok(usize::from(place.at) + index * width(place.kind))
}

fn write(state: &mut [u8], at: usize, kind: Kind, value: i32) -> Result<(), Fault> {
    if !range(kind).contains(&value) {
        return Err(Fault::ValueOutOfRange);
    }
    write_cut(state, at, kind, value);
    Ok(())
}

/// Writes as much of a value as there is room for.
fn write_cut(state: &mut [u8], at: usize, kind: Kind, value: i32) {
    match kind {
        Kind::Byte => state[at] = value as u8,
        Kind::Int => state[at..at + 2].copy_from_slice(&(value as i16).to_le_bytes()),
    }
}

fn cut(kind: Kind, value: i32) -> i32 {
    match kind {
        Kind::Byte => i32::from(value as u8),
        Kind::Int => i32::from(value as i16),
    }
}

pub(crate) fn read(state: &[u8], at: usize, kind: Kind) -> i32 {
    match kind {
        Kind::Byte => i32::from(state[at]),
        Kind::Int => i32::from(i16::from_le_bytes([state[at], state[at + 1]])),
    }
}
