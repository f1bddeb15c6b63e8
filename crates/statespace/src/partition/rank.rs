//! One rank: its states, what it does with messages, and the steps of its states.

mod gather;
mod kept;
mod lossy;

use std::collections::VecDeque;

pub use kept::{FileRequest, Written};

use super::home::{Home, hash};
use super::lead::{Ending, Lead, Order, Outcome};
use super::marks::Marks;
use super::mesh::Mesh;
use super::message::{Key, MalformedMessage, Message, NO_ORIGIN, Question, Task, groups};
use super::sent::Sent;
use super::thin::LossyStates;
use super::{Figures, Goal, Subject};
use crate::pairs::StoreFull;
use crate::store::{Batch, StateId, Store, Unpacked};

/// States that are looked up together.
const BATCH_STATES: usize = 64;

/// Rank 0 hears how far the others are after so many microseconds.
const FIGURES_EVERY_US: u64 = 200_000;

/// Why a rank cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankError {
    /// No further state can be numbered.
    StoreFull,
    /// Another rank sent a malformed message.
    MalformedMessage {
        /// The rank that sent it.
        from: usize,
    },
}

impl From<StoreFull> for RankError {
    fn from(StoreFull: StoreFull) -> Self {
        Self::StoreFull
    }
}

/// One of the ranks that search a state space together.
#[derive(Debug)]
pub struct Rank<S> {
    me: usize,
    ranks_count: usize,
    home: Home,
    aim: Goal,
    system: S,
    store: Store,
    marks: Marks,
    /// In place of both, where not all of a state is kept.
    thin: Option<LossyStates>,
    /// States that are still to be looked up, and what each was told with.
    batch: Batch,
    keys: Vec<Key>,
    parent: Unpacked,
    /// The same where not all of a state is kept.
    current: Vec<u8>,
    /// The states it leads to, one behind the other.
    next: Vec<u8>,
    /// The demands that each of the steps to them serves.
    served: Vec<u64>,
    mesh: Mesh,
    sent: Sent,
    /// The task under way; counts up.
    task: u32,
    /// Batches of tasks that have not begun here.
    early: Vec<(usize, u32, Vec<u8>)>,
    /// What this rank tells itself.
    own: VecDeque<Message>,
    /// The wave that waits for this rank to have nothing to do.
    probe: Option<u32>,
    lead: Option<Lead>,
    by_distance: Option<(bool, std::collections::BTreeMap<u32, Vec<StateId>>)>,
    transitions_count: u64,
    deadlocks_count: u64,
    again_count: u64,
    figures_at_us: u64,
    has_ended: bool,
    /// No state's steps are looked at.
    is_paused: bool,
    errand: Option<FileRequest>,
    /// States that all ranks handed to rank 0.
    gathered: Option<Store>,
}

impl<S: Subject> Rank<S> {
    /// Rank `me` of `ranks_count`; rank 0 leads.
    ///
    /// # Errors
    /// Never for a fresh store; [`RankError::StoreFull`].
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn new(system: S, aim: Goal, me: usize, ranks_count: usize) -> Result<Self, RankError> {
        let initial = system.initial();
        let mut rank = Self::empty(system, aim, me, ranks_count);
        if rank.home.of(&initial) == me {
            let key = Key { distance: 0, origin: NO_ORIGIN };
            rank.store.prepare(&Unpacked::default(), &initial, &mut rank.batch)?;
            rank.keys.push(key);
            rank.flush()?;
        }
        Ok(rank)
    }

    fn empty(system: S, aim: Goal, me: usize, ranks_count: usize) -> Self {
        let store = Store::new(system.state_bytes());
        Self::of(system, aim, me, ranks_count, (store, Marks::new(me as u32, aim)))
    }

    /// A rank with states of its own.
    fn of(
        mut system: S,
        aim: Goal,
        me: usize,
        ranks_count: usize,
        (store, marks): (Store, Marks),
    ) -> Self {
        assert!(me < ranks_count, "there is no rank {me} of {ranks_count}");
        let mut rank = Self {
            me,
            ranks_count,
            home: Home::find(&mut system, ranks_count),
            aim,
            store,
            sent: Sent::new(system.state_bytes()),
            system,
            marks,
            thin: None,
            batch: Batch::default(),
            keys: Vec::new(),
            parent: Unpacked::default(),
            current: Vec::new(),
            next: Vec::new(),
            served: Vec::new(),
            mesh: Mesh::new(ranks_count),
            task: 1,
            early: Vec::new(),
            own: VecDeque::new(),
            probe: None,
            lead: (me == 0).then(|| Lead::new(ranks_count, aim)),
            by_distance: None,
            transitions_count: 0,
            deadlocks_count: 0,
            again_count: 0,
            figures_at_us: 0,
            has_ended: false,
            is_paused: false,
            errand: None,
            gathered: None,
        };
        rank.mesh.set_task(rank.task);
        rank
    }

    /// Takes in a message of another rank.
    ///
    /// # Errors
    /// [`RankError::MalformedMessage`] for what no rank sends, [`RankError::StoreFull`].
    pub fn handle(&mut self, from: usize, bytes: &[u8]) -> Result<(), RankError> {
        let bad = |MalformedMessage: MalformedMessage| RankError::MalformedMessage { from };
        if from >= self.ranks_count {
            return Err(RankError::MalformedMessage { from });
        }
        match Message::decode(bytes).map_err(bad)? {
            (Message::Data { task }, states) if task == self.task => self.take_in(from, states),
            (Message::Data { task }, states) if task > self.task => {
                self.early.push((from, task, states.to_vec()));
                Ok(())
            }
            (Message::Data { .. }, _) => {
                // Of a task that was cut short: counted, as it was sent.
                self.mesh.took(from);
                Ok(())
            }
            (message, _) => self.hear(from, message),
        }
    }

    /// Looks at the steps of up to `states_max` states; `now_us` is any clock that does not go back.
    /// Tells whether there was anything to do.
    ///
    /// # Errors
    /// As [`Self::handle`].
    pub fn work(&mut self, states_max: usize, now_us: u64) -> Result<bool, RankError> {
        let mut has_worked = false;
        while let Some(message) = self.own.pop_front() {
            has_worked = true;
            self.hear(self.me, message)?;
        }
        if self.has_ended {
            return Ok(has_worked);
        }
        has_worked |= self.expand_some(states_max, now_us)?;
        self.tell_find();
        if now_us.saturating_sub(self.figures_at_us) >= FIGURES_EVERY_US {
            self.figures_at_us = now_us;
            let figures = self.figures();
            self.tell(0, Message::Figures(figures));
        }
        self.tell_releases();
        if self.is_idle() {
            if let Some(wave) = self.probe.take() {
                let (sent, received) = (self.mesh.sent_batches(), self.mesh.received_batches());
                let kept = self.marks.kept_count();
                self.tell(0, Message::Quiet { wave, sent, received, kept });
            }
            let orders = self.lead.as_mut().map(Lead::idle).unwrap_or_default();
            self.give(orders);
        }
        Ok(has_worked || !self.own.is_empty())
    }

    /// What is to be sent, and to whom; to be called until there is nothing.
    pub fn poll(&mut self, now_us: u64) -> Option<(usize, Vec<u8>)> {
        let is_idle = self.has_nothing_queued();
        self.mesh.poll(now_us, is_idle)
    }

    /// Whether the search is over, as far as this rank is concerned.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended && self.lead.as_ref().is_none_or(|lead| lead.outcome().is_some())
    }

    /// What the search came to; rank 0 alone knows.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.lead.as_ref()?.outcome()
    }

    /// Ends the search before it is done; for rank 0 to call.
    pub fn stop(&mut self) {
        let orders = self.lead.as_mut().map(|lead| lead.end(Ending::Stopped)).unwrap_or_default();
        self.give(orders);
    }

    /// How far this rank is.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let thin = self.thin.as_ref();
        Figures {
            states_count: thin.map_or(u64::from(self.store.len()), LossyStates::states_count),
            queued_count: self.waiting_count(),
            transitions_count: self.transitions_count,
            deadlocks_count: self.deadlocks_count,
            depth: u64::from(thin.map_or(self.marks.queue.nearest(), LossyStates::depth)),
            memory_bytes: (self.store.memory_bytes()
                + self.marks.memory_bytes()
                + thin.map_or(0, LossyStates::memory_bytes)
                + self.gathered.as_ref().map_or(0, Store::memory_bytes)
                + self.sent.memory_bytes()) as u64,
            again_count: self.again_count,
            sent_batches: self.mesh.sent_batches(),
            sent_bytes: self.mesh.sent_bytes(),
            marked_count: thin.map_or(0, LossyStates::marked_count),
        }
    }

    /// States whose steps are still to be looked at.
    fn waiting_count(&self) -> u64 {
        self.thin.as_ref().map_or(self.marks.queue.len(), LossyStates::waiting_count)
    }

    /// How far all ranks were when rank 0, which alone knows, last heard of them.
    #[must_use]
    pub fn all_figures(&self) -> &[Figures] {
        self.lead.as_ref().map_or(&[], |lead| &lead.figures)
    }

    fn has_nothing_queued(&self) -> bool {
        (self.is_paused || self.waiting_count() == 0) && self.keys.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.has_nothing_queued() && self.mesh.is_empty()
    }

    fn tell(&mut self, to: usize, message: Message) {
        if to == self.me {
            self.own.push_back(message);
        } else {
            self.mesh.letter(to, &message);
        }
    }

    fn give(&mut self, orders: Vec<Order>) {
        for (to, message) in orders {
            match to {
                Some(to) => self.tell(to, message),
                None => (0..self.ranks_count).for_each(|to| self.tell(to, message.clone())),
            }
        }
    }

    fn tell_find(&mut self) {
        let find = match &mut self.thin {
            Some(thin) => thin.take_find(),
            None => self.marks.take_find(),
        };
        if let Some(find) = find {
            let (task, distance) = (self.task, find.distance);
            self.tell(0, Message::Found { task, distance, cycle_at: find.cycle_at });
        }
    }

    /// A message that is no batch of states.
    fn hear(&mut self, from: usize, message: Message) -> Result<(), RankError> {
        let bad = RankError::MalformedMessage { from };
        match message {
            Message::Taken { batches } => self.mesh.was_taken(from, batches),
            Message::Probe { wave } => self.probe = Some(wave),
            Message::Begin { number, task } => {
                if task != Task::Reach && !self.aim.is_of_cycles() {
                    return Err(bad);
                }
                return self.begin(number, task);
            }
            Message::Bound { task, distance } if task == self.task => {
                self.marks.limit(distance);
                self.thin.iter_mut().for_each(LossyStates::was_found);
            }
            Message::Bound { .. } => {}
            Message::Ask { question, what } => {
                let (state, value) = self.reply(&what);
                self.tell(0, Message::Answer { question, state, value });
            }
            Message::Release(uses) => {
                let thin = self.thin.as_mut().ok_or(bad)?;
                thin.released(&uses).map_err(|MalformedMessage| bad)?;
            }
            Message::End => {
                let farthest =
                    self.thin.as_ref().map_or_else(|| self.marks.depth(), LossyStates::depth);
                let figures = Figures { depth: u64::from(farthest), ..self.figures() };
                self.marks.queue.clear();
                self.thin.iter_mut().for_each(LossyStates::end);
                self.mesh.clear();
                self.keys.clear();
                self.batch = Batch::default();
                self.has_ended = true;
                let notes = self.system.notes();
                self.tell(0, Message::Ended { figures, notes });
            }
            Message::Data { .. } => return Err(bad),
            Message::Pause => self.is_paused = true,
            Message::GoOn => self.is_paused = false,
            Message::Write { serial, is_second } => {
                self.errand = Some(FileRequest::Write { serial, is_second });
            }
            Message::Settled { is_whole, is_second } => {
                self.errand = Some(FileRequest::Settled { is_whole, is_second });
            }
            of_lead => return self.hear_as_lead(from, of_lead),
        }
        Ok(())
    }

    /// The same, of what is for rank 0 alone.
    fn hear_as_lead(&mut self, from: usize, message: Message) -> Result<(), RankError> {
        let bad = RankError::MalformedMessage { from };
        let Some(lead) = &mut self.lead else { return Err(bad) };
        let orders = match message {
            Message::Quiet { wave, sent, received, kept } => {
                lead.quiet(from, wave, (sent, received, kept))
            }
            Message::Found { task, distance, cycle_at } => {
                lead.found(from, task, distance, cycle_at)
            }
            Message::Answer { question, state, value } => lead.answer(from, question, state, value),
            Message::Figures(figures) => {
                lead.figures[from] = figures;
                Vec::new()
            }
            Message::Ended { figures, notes } => {
                lead.ended(from, figures, notes);
                Vec::new()
            }
            Message::Written(written) => {
                lead.written(from, written);
                Vec::new()
            }
            Message::Unable { why } => lead.unable(from, why),
            _ => return Err(bad),
        };
        self.give(orders);
        Ok(())
    }

    fn begin(&mut self, number: u32, task: Task) -> Result<(), RankError> {
        self.task = number;
        self.mesh.set_task(number);
        self.by_distance = None;
        self.sent.clear();
        self.marks.begin(task);
        if task == Task::Gather && self.me == 0 {
            self.begin_gathering();
        }
        let (now, later) =
            std::mem::take(&mut self.early).into_iter().partition(|(_, of, _)| *of == number);
        self.early = later;
        let now: Vec<(usize, u32, Vec<u8>)> = now;
        now.iter().try_for_each(|(from, _, states)| self.take_in(*from, states))
    }

    /// Answers a question of rank 0.
    fn reply(&mut self, what: &Question) -> (Option<Vec<u8>>, u64) {
        if let Some(thin) = &mut self.thin {
            return thin.reply(&mut self.system, what);
        }
        match what {
            Question::Broken => match self.marks.nearest_broken() {
                Some((distance, id)) => (Some(self.state(id)), u64::from(distance)),
                None => (None, 0),
            },
            Question::State { id } => match self.marks.distance_of(*id) {
                Some(distance) => (Some(self.state(*id)), u64::from(distance)),
                None => (None, 0),
            },
            Question::Origin { id } => (None, self.marks.origin_of(*id)),
            Question::Kept => (None, self.marks.any_kept_origin()),
            Question::Where { state } => self.where_is(state),
            Question::Before { distance, in_loop, state } => {
                (self.before(*distance, *in_loop, state), 0)
            }
        }
    }

    fn state(&mut self, id: StateId) -> Vec<u8> {
        self.store.unpack(id, &mut self.parent);
        self.parent.bytes().to_vec()
    }

    /// A state so far away that leads to `wanted`.
    fn before(&mut self, distance: u32, in_loop: bool, wanted: &[u8]) -> Option<Vec<u8>> {
        let Self { by_distance, marks, store, parent, system, .. } = self;
        if by_distance.as_ref().is_none_or(|(of_loop, _)| *of_loop != in_loop) {
            *by_distance = Some((in_loop, marks.by_distance(in_loop)));
        }
        let level = by_distance.as_ref()?.1.get(&distance)?;
        level.iter().find_map(|&id| {
            store.unpack(id, parent);
            let mut leads_there = false;
            system.each(parent.bytes(), |next| leads_there |= next == wanted);
            leads_there.then(|| parent.bytes().to_vec())
        })
    }

    /// Takes in a batch of states.
    fn take_in(&mut self, from: usize, bytes: &[u8]) -> Result<(), RankError> {
        self.mesh.took(from);
        if self.has_ended {
            return Ok(());
        }
        if self.marks.is_gathering() {
            return self.gather(from, bytes);
        }
        let state_bytes = self.system.state_bytes();
        for group in groups(bytes, state_bytes) {
            let (key, states) =
                group.map_err(|MalformedMessage| RankError::MalformedMessage { from })?;
            if let Some(thin) = &mut self.thin {
                thin.take_in(from, key, states)?;
                continue;
            }
            for some in states.chunks(BATCH_STATES * state_bytes.max(1)) {
                if self.keys.len() >= BATCH_STATES {
                    self.flush()?;
                }
                self.store.prepare_all(some, &mut self.batch)?;
                self.keys.resize(self.batch.len(), key);
            }
        }
        self.flush()
    }

    /// Looks up the states that wait for it.
    fn flush(&mut self) -> Result<(), RankError> {
        let Self { store, batch, keys, marks, .. } = self;
        let mut place = 0;
        store.insert_batch(batch, |id, is_new| {
            marks.relax(id, is_new, keys[place]);
            place += 1;
        })?;
        keys.clear();
        store.reshape();
        Ok(())
    }

    fn expand_some(&mut self, states_max: usize, now_us: u64) -> Result<bool, RankError> {
        if self.is_paused {
            let has_waited = !self.keys.is_empty();
            self.flush()?;
            return Ok(has_waited);
        }
        if self.mesh.is_blocked() {
            return Ok(false);
        }
        if self.thin.is_some() {
            return self.expand_some_thin(states_max, now_us);
        }
        for done in 0..states_max {
            let next = match self.marks.next() {
                Some(next) => next,
                None => {
                    self.flush()?;
                    match self.marks.next() {
                        Some(next) => next,
                        None => return Ok(done > 0),
                    }
                }
            };
            self.expand(next, now_us)?;
        }
        Ok(true)
    }

    /// Looks at the steps of one state.
    fn expand(&mut self, (distance, id): (u32, StateId), now_us: u64) -> Result<(), RankError> {
        self.store.unpack(id, &mut self.parent);
        if self.marks.is_gathering() {
            return self.hand_on(now_us);
        }
        if self.marks.is_serving() {
            return self.tell_served(id, now_us);
        }
        let is_accepting = self.aim.is_of_cycles() && self.system.is_accepting(self.parent.bytes());
        let is_first = self.marks.see(id, is_accepting);
        let key = self.marks.key(id, distance, is_accepting);
        // Where nothing but a distance is told, telling it twice is of no use.
        let is_distance = matches!(self.aim, Goal::BadState { .. })
            || self.aim == Goal::FairCycle && self.marks.is_reaching();
        let Self { system, store, batch, keys, parent, next, mesh, sent, me, home, .. } = self;
        next.clear();
        let steps_count = system.each(parent.bytes(), |state| next.extend_from_slice(state));
        for state in next.chunks_exact(parent.bytes().len().max(1)) {
            let to = home.of(state);
            if to == *me {
                store.prepare(parent, state, batch)?;
                keys.push(key);
            } else if !is_distance || !sent.knows(hash(state), state, key.distance) {
                mesh.push(to, key, state, now_us);
            }
        }
        if is_first {
            self.transitions_count += steps_count as u64;
            let is_deadlock = steps_count == 0 && !self.system.is_error(self.parent.bytes());
            self.deadlocks_count += u64::from(is_deadlock);
            if matches!(self.aim, Goal::BadState { .. })
                && self.system.is_broken(self.parent.bytes(), steps_count)
            {
                self.marks.found_broken(id);
            }
        } else if self.marks.is_reaching() {
            self.again_count += 1;
            self.marks.came_nearer(id);
        }
        if self.keys.len() >= BATCH_STATES {
            self.flush()?;
        }
        Ok(())
    }
}
