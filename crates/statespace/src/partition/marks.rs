//! What a rank knows of its states, by number.

use std::collections::BTreeMap;

use super::Goal;
use super::message::{Key, NO_ORIGIN, Task, origin};
use super::queue::Queue;
use crate::store::StateId;

/// Farther than any state.
const FAR: u32 = u32::MAX;

/// Distances for which [`Marks::farther_from`] is kept.
const FARTHER_MAX: usize = 1 << 20;

/// Its steps were looked at.
const SEEN: u8 = 1;
const ACCEPTING: u8 = 2;
/// Still a candidate for an accepting cycle.
const KEPT: u8 = 4;
/// Reached from an accepting candidate; for [`Goal::FairCycle`]: is to tell what it heard.
const REACHED: u8 = 8;
/// Violates a property.
const BROKEN: u8 = 16;
/// Its steps were told in this task, once.
const TOLD: u8 = 64;
/// Only where it is written down: its steps are still to be looked at, also if they were before.
const WAITING: u8 = 32;

/// What a task found that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Find {
    pub(super) distance: u32,
    pub(super) cycle_at: Option<StateId>,
}

/// Marks of all states, and the queue of those whose steps are to be looked at.
#[derive(Debug)]
pub(super) struct Marks {
    me: u32,
    aim: Goal,
    task: Task,
    pub(super) queue: Queue,
    /// Distances from the first state.
    distances: Vec<u32>,
    /// For each distance the first state that was farther when it came: those before it are not.
    farther_from: Vec<StateId>,
    flags: Vec<u8>,
    /// The greatest accepting state each was reached from; for [`Goal::FairCycle`] the demands that are
    /// served on the way to it. Not for [`Goal::BadState`], as the next.
    origins: Vec<u64>,
    /// Steps that lead there, or distances from the state of [`Task::Loop`].
    seconds: Vec<u32>,
    /// What is this far away needs no look.
    bound: u32,
    kept_count: u64,
    /// States that violate a property.
    broken: Vec<StateId>,
    /// Not yet told to rank 0.
    find: Option<Find>,
}

impl Marks {
    pub(super) fn new(me: u32, aim: Goal) -> Self {
        Self {
            me,
            aim,
            task: Task::Reach,
            queue: Queue::default(),
            distances: Vec::new(),
            farther_from: Vec::new(),
            flags: Vec::new(),
            origins: Vec::new(),
            seconds: Vec::new(),
            bound: FAR,
            kept_count: 0,
            broken: Vec::new(),
            find: None,
        }
    }

    /// What is known of each state while [`Task::Reach`] is halted, a number each.
    pub(super) fn written(&self) -> impl Iterator<Item = u64> {
        let mut waits = vec![false; self.flags.len()];
        for (distance, id) in self.queue.iter() {
            waits[id as usize] |= self.distances[id as usize] == distance;
        }
        self.flags.iter().zip(&self.distances).zip(waits).map(|((&flags, &distance), waits)| {
            let waiting = if waits { WAITING } else { 0 };
            u64::from(flags & (SEEN | BROKEN) | waiting) << 32 | u64::from(distance)
        })
    }

    /// Takes up what [`Self::written`] gave for the next state; tells whether it can be so.
    pub(super) fn take_up(&mut self, number: u64) -> bool {
        let (flags, distance) = (number >> 32, number as u32);
        let (Ok(flags), Ok(id)) = (u8::try_from(flags), StateId::try_from(self.flags.len())) else {
            return false;
        };
        let is_seen = flags & SEEN != 0;
        if flags & !(SEEN | BROKEN | WAITING) != 0
            || flags & BROKEN != 0 && !is_seen
            || distance >= FAR - 1
        {
            return false;
        }
        self.distances.push(distance);
        self.flags.push(flags & !WAITING);
        self.note_farther(id, distance);
        if flags & BROKEN != 0 {
            self.broken.push(id);
            self.look_at_broken(id);
        }
        // What was too far away to be looked at is not in the queue, but not seen either.
        if flags & WAITING != 0 || !is_seen {
            self.queue.push(distance, id);
        }
        true
    }

    /// Makes ready for a task and queues the states it begins with.
    pub(super) fn begin(&mut self, task: Task) {
        self.queue.clear();
        self.bound = FAR;
        self.find = None;
        match task {
            Task::Reach => {}
            Task::Gather => {
                for (id, flags) in (0..).zip(&self.flags) {
                    if flags & KEPT != 0 {
                        self.queue.push(0, id);
                    }
                }
            }
            Task::Forward => self.begin_forward(),
            Task::Prune => self.begin_prune(),
            Task::Loop { rank, id } => {
                self.seconds.fill(FAR);
                if rank == self.me && (id as usize) < self.seconds.len() {
                    self.seconds[id as usize] = 0;
                    self.queue.push(0, id);
                }
            }
        }
        self.task = task;
    }

    fn begin_forward(&mut self) {
        let is_first = self.task == Task::Reach;
        self.kept_count = 0;
        self.seconds.fill(0);
        self.origins.fill(NO_ORIGIN);
        for (id, flags) in (0..).zip(&mut self.flags) {
            *flags &= !(REACHED | TOLD);
            if is_first {
                *flags |= KEPT;
            }
            if *flags & KEPT != 0 {
                self.kept_count += 1;
                if *flags & ACCEPTING != 0 || self.aim == Goal::FairCycle {
                    *flags |= REACHED;
                    self.queue.push(0, id);
                }
            }
        }
    }

    fn begin_prune(&mut self) {
        for (id, flags) in (0..).zip(&mut self.flags) {
            if *flags & KEPT == 0 {
                continue;
            }
            let is_judged = self.aim == Goal::FairCycle;
            let was_reached = is_judged || *flags & REACHED != 0;
            let is_served = !is_judged || self.origins[id as usize] == u64::MAX;
            if !was_reached || !is_served || self.seconds[id as usize] == 0 {
                *flags &= !KEPT;
                self.kept_count -= 1;
            }
            // What was not reached sent no steps that must be taken back.
            if was_reached && *flags & KEPT == 0 {
                self.queue.push(0, id);
            }
        }
    }

    /// A step leads to this state.
    #[inline]
    pub(super) fn relax(&mut self, id: StateId, is_new: bool, key: Key) {
        if is_new {
            self.distances.push(FAR);
            self.flags.push(0);
            if self.aim.is_of_cycles() {
                self.origins.push(NO_ORIGIN);
                self.seconds.push(FAR);
            }
        }
        let at = id as usize;
        match self.task {
            Task::Reach => {
                if is_new {
                    self.note_farther(id, key.distance);
                }
                if self.may_be_farther(id, key.distance) && key.distance < self.distances[at] {
                    self.distances[at] = key.distance;
                    if key.distance < self.bound {
                        self.queue.push(key.distance, id);
                    }
                }
                if self.aim == Goal::AcceptingCycle {
                    self.hear_of(id, key.origin);
                }
            }
            Task::Forward if self.flags[at] & KEPT != 0 => {
                if self.aim == Goal::FairCycle {
                    return self.hear_served(id, key);
                }
                self.seconds[at] += 1;
                self.hear_of(id, key.origin);
                if self.flags[at] & REACHED == 0 {
                    self.flags[at] |= REACHED;
                    self.queue.push(0, id);
                }
            }
            Task::Prune if self.flags[at] & KEPT != 0 => {
                self.seconds[at] = self.seconds[at].saturating_sub(1);
                if self.seconds[at] == 0 {
                    self.flags[at] &= !KEPT;
                    self.kept_count -= 1;
                    self.queue.push(0, id);
                }
            }
            Task::Loop { rank, id: first } if rank == self.me && id == first => {
                self.found(Find { distance: key.distance, cycle_at: None });
            }
            Task::Loop { .. } if key.distance < self.seconds[at] => {
                self.seconds[at] = key.distance;
                self.queue.push(key.distance, id);
            }
            Task::Forward | Task::Prune | Task::Loop { .. } | Task::Gather => {}
        }
    }

    /// A new state is so far away.
    #[inline]
    fn note_farther(&mut self, id: StateId, distance: u32) {
        while self.farther_from.len() < (distance as usize).min(FARTHER_MAX) {
            self.farther_from.push(id);
        }
    }

    /// Whether the state's distance, which is not likely to be in a cache, may be greater than this.
    #[inline]
    fn may_be_farther(&self, id: StateId, distance: u32) -> bool {
        // While all states are at most this far away, none is farther but a new one.
        let first = self.farther_from.get(distance as usize);
        first.map_or(
            id as usize + 1 == self.distances.len() || distance as usize >= FARTHER_MAX,
            |&first| id >= first,
        )
    }

    /// An accepting state leads here; if it is this one, there is a cycle.
    fn hear_of(&mut self, id: StateId, heard: u64) {
        let at = id as usize;
        self.origins[at] = self.origins[at].max(heard);
        if heard == origin(self.me, id) {
            let distance = if self.task == Task::Reach { self.distances[at] } else { 0 };
            self.found(Find { distance, cycle_at: Some(id) });
        }
    }

    /// Whether demands are served on the way to a state.
    fn hear_served(&mut self, id: StateId, key: Key) {
        let at = id as usize;
        // A state that tells again what it heard has no more steps than before.
        self.seconds[at] = self.seconds[at].saturating_add(key.distance.min(1));
        let all = self.origins[at] | key.origin;
        if all != self.origins[at] {
            self.origins[at] = all;
            if self.flags[at] & REACHED == 0 {
                self.flags[at] |= REACHED;
                self.queue.push(0, id);
            }
        }
    }

    /// What a state is to tell that serves these demands itself, without those of its steps.
    pub(super) fn serve(&mut self, id: StateId, own: u64) -> Key {
        let at = id as usize;
        let is_first = self.flags[at] & TOLD == 0;
        self.flags[at] = (self.flags[at] | TOLD) & !REACHED;
        self.origins[at] |= own;
        Key { distance: u32::from(is_first), origin: self.origins[at] }
    }

    /// Whether states tell which demands are served on the way to them.
    pub(super) fn is_serving(&self) -> bool {
        self.aim == Goal::FairCycle && self.task == Task::Forward
    }

    /// A state that violates a property.
    pub(super) fn found_broken(&mut self, id: StateId) {
        self.broken.push(id);
        self.flags[id as usize] |= BROKEN;
        self.look_at_broken(id);
    }

    /// A state is looked at again because it is nearer than thought.
    pub(super) fn came_nearer(&mut self, id: StateId) {
        if self.flags[id as usize] & BROKEN != 0 {
            self.look_at_broken(id);
        }
    }

    fn look_at_broken(&mut self, id: StateId) {
        if let Goal::BadState { is_full: false } = self.aim {
            self.found(Find { distance: self.distances[id as usize], cycle_at: None });
        }
    }

    fn found(&mut self, find: Find) {
        if find.distance < self.bound {
            self.bound = find.distance;
            self.find = Some(find);
        }
    }

    /// What was found since the last call.
    pub(super) fn take_find(&mut self) -> Option<Find> {
        self.find.take()
    }

    /// What is this far away needs no look.
    pub(super) fn limit(&mut self, distance: u32) {
        self.bound = self.bound.min(distance);
    }

    /// The next state whose steps are to be looked at, and its distance in the task.
    pub(super) fn next(&mut self) -> Option<(u32, StateId)> {
        loop {
            let (distance, id) = self.queue.pop()?;
            let is_current = match self.task {
                Task::Reach => self.distances[id as usize] == distance,
                Task::Loop { .. } => self.seconds[id as usize] == distance,
                Task::Forward | Task::Prune | Task::Gather => true,
            };
            if is_current && distance < self.bound {
                return Some((distance, id));
            }
        }
    }

    /// Whether all that is kept is handed to rank 0.
    pub(super) fn is_gathering(&self) -> bool {
        self.task == Task::Gather
    }

    /// Whether distances from the first state are what is looked for.
    pub(super) fn is_reaching(&self) -> bool {
        self.task == Task::Reach
    }

    /// Notes that a state's steps are looked at; whether for the first time.
    pub(super) fn see(&mut self, id: StateId, is_accepting: bool) -> bool {
        let flags = &mut self.flags[id as usize];
        let is_first = *flags & SEEN == 0;
        *flags |= SEEN | if is_accepting { ACCEPTING } else { 0 };
        is_first
    }

    /// What the successors of a state are told with.
    pub(super) fn key(&self, id: StateId, distance: u32, is_accepting: bool) -> Key {
        let own = if is_accepting { origin(self.me, id) } else { NO_ORIGIN };
        match self.task {
            Task::Reach | Task::Forward if self.aim == Goal::AcceptingCycle => {
                Key { distance: distance + 1, origin: self.origins[id as usize].max(own) }
            }
            _ => Key { distance: distance + 1, origin: NO_ORIGIN },
        }
    }

    pub(super) fn kept_count(&self) -> u64 {
        self.kept_count
    }

    /// The nearest state that violates a property, and its distance.
    pub(super) fn nearest_broken(&self) -> Option<(u32, StateId)> {
        self.broken.iter().map(|&id| (self.distances[id as usize], id)).min()
    }

    /// Origin of a state.
    pub(super) fn origin_of(&self, id: StateId) -> u64 {
        self.origins.get(id as usize).copied().unwrap_or(NO_ORIGIN)
    }

    /// Distance of a state from the first.
    pub(super) fn distance_of(&self, id: StateId) -> Option<u32> {
        self.distances.get(id as usize).copied()
    }

    /// Origin of any accepting state that is kept.
    pub(super) fn any_kept_origin(&self) -> u64 {
        let is_wanted = |flags: &u8| flags & (KEPT | ACCEPTING) == KEPT | ACCEPTING;
        self.flags.iter().position(is_wanted).map_or(NO_ORIGIN, |id| self.origins[id])
    }

    /// States by their distance from the first, or from the state of [`Task::Loop`].
    pub(super) fn by_distance(&self, in_loop: bool) -> BTreeMap<u32, Vec<StateId>> {
        let distances = if in_loop { &self.seconds } else { &self.distances };
        let mut levels: BTreeMap<u32, Vec<StateId>> = BTreeMap::new();
        for (id, &distance) in (0..).zip(distances) {
            if distance != FAR {
                levels.entry(distance).or_default().push(id);
            }
        }
        levels
    }

    /// Distance of the farthest state.
    pub(super) fn depth(&self) -> u32 {
        self.distances.iter().copied().filter(|&distance| distance != FAR).max().unwrap_or(0)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.distances.capacity() * 4
            + self.farther_from.capacity() * 4
            + self.flags.capacity()
            + self.origins.capacity() * 8
            + self.seconds.capacity() * 4
            + self.queue.memory_bytes()
    }
}
