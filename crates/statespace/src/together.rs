//! A breadth-first search by threads of one process, over one set of states.
//!
//! The threads look at the states of one level, a few at a time, and add what follows to the store they
//! share ([`crate::pairs`]); when all have been looked at they meet, and go on with the next level. So
//! the first violation met is one of the nearest, as with one thread. Levels of a few states are looked
//! at by the thread that came last, while the others wait. Where the store must grow they meet as
//! well, and do that together.
//!
//! [`SharedSearch::work`] is called by each thread; who called the threads may look at
//! [`SharedSearch::progress`] meanwhile, and [`SharedSearch::stop`] them. Many hosts may search together, each with
//! threads of its own ([`SharedSearch::of_host`]).

mod far;
mod hosts;
mod letter;
mod level;
mod meeting;
mod seat;

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::pairs::StoreFull;
use crate::pairs::shared::{CacheAligned, SharedPairs};
use crate::partition::Subject;
use crate::reach::Progress;
use crate::store::shape::Halves;
use crate::store::shared::SharedStore;
use crate::store::{StateId, Unpacked};
use far::Far;
pub use far::HostEnd;
use level::Levels;
use meeting::Meeting;
pub use meeting::ThreadFailed;
use seat::{Counts, Seat};

/// States whose successors are looked up together.
const BATCH_STATES: usize = 64;

/// A level of fewer states is not worth waking others for.
const ALONE_STATES: usize = 48;

/// Rows of states that a thread looks through at a time for a better cut.
const SAMPLE_ROWS: usize = 16;

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All states were looked at.
    Whole,
    /// At a state that violates a property.
    Broken,
    /// [`SharedSearch::stop`]
    Stopped,
    /// No further state can be numbered, or there is no memory for it.
    StoreFull,
}

/// What all threads do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Look at the states of this level.
    Look,
    /// Add what other hosts send until theirs are looked at too.
    Receive,
    /// Make a larger index of the old one.
    Grow(Which),
    /// Put into it what is left.
    Put(Which),
    /// See what halves the states have.
    Sample,
    /// Go home.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Inner,
    Roots,
}

/// What all threads read while they work, and one of them changes when they have met.
#[derive(Debug)]
struct Common {
    order: Order,
    store: SharedStore,
    levels: Levels,
    /// The first state found that violates a property, and its level.
    broken: Option<(StateId, usize)>,
    halves: Mutex<Option<Halves>>,
    /// Why they stopped before all was done.
    ended: Option<Ended>,
    /// States looked at before this level, where there are other hosts.
    looked_before: u64,
}

impl Common {
    fn pairs(&mut self, which: Which) -> &mut SharedPairs {
        match which {
            Which::Inner => &mut self.store.inner,
            Which::Roots => &mut self.store.roots,
        }
    }

    fn pairs_ref(&self, which: Which) -> &SharedPairs {
        match which {
            Which::Inner => &self.store.inner,
            Which::Roots => &self.store.roots,
        }
    }
}

/// [`Counts`] for others to read.
#[derive(Debug, Default)]
struct Tally([AtomicU64; 4]);

impl Tally {
    fn set(&self, counts: Counts) {
        let Counts { found, looked, transitions, deadlocks } = counts;
        for (to, value) in self.0.iter().zip([found, looked, transitions, deadlocks]) {
            to.store(value, Ordering::Relaxed);
        }
    }
}

const GO_ON: u8 = 0;
const STOP: u8 = 1;
const BROKEN: u8 = 2;

/// A search that threads make together.
#[derive(Debug)]
pub struct SharedSearch {
    common: RwLock<Common>,
    seats: Vec<CacheAligned<Mutex<Seat>>>,
    tallies: Vec<CacheAligned<Tally>>,
    meeting: CacheAligned<Meeting>,
    /// The next chunk of the level.
    next_chunk: CacheAligned<AtomicUsize>,
    /// The next piece of any other work.
    next_piece: CacheAligned<AtomicUsize>,
    halt: CacheAligned<AtomicU8>,
    /// Whether it goes on after a violation.
    is_full: bool,
    /// The other hosts that search, if there are any.
    far: Option<Far>,
}

impl SharedSearch {
    /// A search by so many threads that has found the first state only; `is_full`: all states are
    /// searched, also after one that violates a property. The states take `memory_bytes` at most, and one
    /// block.
    ///
    /// # Errors
    /// Never for a first state that a fresh store has numbers for.
    ///
    /// # Panics
    /// When there are no threads.
    pub fn new(
        initial: &[u8],
        threads_count: usize,
        is_full: bool,
        memory_bytes: usize,
    ) -> Result<Self, StoreFull> {
        Self::begin(initial, threads_count, is_full, memory_bytes, None)
    }

    fn begin(
        initial: &[u8],
        threads_count: usize,
        is_full: bool,
        memory_bytes: usize,
        far: Option<Far>,
    ) -> Result<Self, StoreFull> {
        assert!(threads_count > 0, "somebody must search");
        let mut store = SharedStore::new(initial.len());
        let mut seat = Seat::new(far.as_ref());
        if far.as_ref().is_none_or(|far| far.is_home(initial)) {
            seat.add(&store, initial)?;
            seat.flush(&store)?;
        }
        store.limit_memory(memory_bytes.saturating_sub(store.memory_bytes()));
        let levels = Levels::new(std::mem::take(&mut seat.found), threads_count);
        let tallies: Vec<CacheAligned<Tally>> =
            (0..threads_count).map(|_| CacheAligned::default()).collect();
        tallies[0].0.set(seat.counts);
        let others = (1..threads_count).map(|_| Seat::new(far.as_ref()));
        let seats: Vec<_> = [seat].into_iter().chain(others).collect();
        let seats = seats.into_iter().map(|seat| CacheAligned(Mutex::new(seat))).collect();
        let common = Common {
            order: Order::Look,
            store,
            levels,
            broken: None,
            halves: Mutex::default(),
            ended: None,
            looked_before: 0,
        };
        Ok(Self {
            common: RwLock::new(common),
            seats,
            tallies,
            meeting: CacheAligned(Meeting::new(threads_count)),
            next_chunk: CacheAligned::default(),
            next_piece: CacheAligned::default(),
            halt: CacheAligned(AtomicU8::new(GO_ON)),
            is_full,
            far,
        })
    }

    /// Does the part of one thread, from the beginning to the end.
    ///
    /// # Errors
    /// [`ThreadFailed`] when another has panicked.
    ///
    /// # Panics
    /// When there is no such thread, or two of the number.
    pub fn work(&self, me: usize, system: &mut impl Subject) -> Result<(), ThreadFailed> {
        self.work_and_post(me, system, &mut |_is_idle| std::hint::spin_loop())
    }

    /// The same where there are other hosts: `post` is called again and again, and told whether there is nothing else to
    /// do. That of thread 0 carries messages, that of any other thread may wait a little.
    ///
    /// # Errors
    /// As of [`Self::work`].
    ///
    /// # Panics
    /// As of [`Self::work`].
    pub fn work_and_post(
        &self,
        me: usize,
        system: &mut impl Subject,
        post: &mut dyn FnMut(bool),
    ) -> Result<(), ThreadFailed> {
        let alarm = Alarm(&self.meeting.0);
        loop {
            if self.perform(me, system, post) {
                std::mem::forget(alarm);
                return Ok(());
            }
            if self.meeting.0.arrive()? {
                while self.decide() {
                    self.perform(me, system, post);
                }
                self.meeting.0.open();
            }
        }
    }

    /// Ends it soon, on all hosts.
    pub fn stop(&self) {
        let before = self.halt.0.fetch_max(STOP, Ordering::Relaxed);
        if let (GO_ON, Some(far)) = (before, &self.far) {
            far.halt_all();
        }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let sum = |which: usize| -> u64 {
            self.tallies.iter().map(|tally| tally.0.0[which].load(Ordering::Relaxed)).sum()
        };
        // Looked at before found: what is found grows meanwhile.
        let looked = sum(1);
        let found = sum(0);
        let common = self.common();
        Progress {
            states_count: found,
            queued_count: found.saturating_sub(looked),
            transitions_count: sum(2),
            deadlocks_count: sum(3),
            depth: common.levels.depth() as u32,
            memory_bytes: common.store.memory_bytes() + common.levels.memory_bytes(),
        }
    }

    /// How it ended, once all threads are back.
    #[must_use]
    pub fn ended(&self) -> Ended {
        let common = self.common();
        match common.ended {
            None if common.broken.is_some() => Ended::Broken,
            None => Ended::Whole,
            Some(ended) => ended,
        }
    }

    /// A shortest way to a state that violates a property, if one was found: states, first to last. Found
    /// as [`crate::Reach::way_to`] does.
    pub fn way(&self, system: &mut impl Subject) -> Option<Vec<Vec<u8>>> {
        let common = self.common();
        let (id, level) = common.broken?;
        let mut state = Unpacked::default();
        common.store.unpack(id, &mut state);
        drop(common);
        let mut way = vec![state.bytes().to_vec()];
        for level in (0..level).rev() {
            let before = way.last().and_then(|wanted| self.before(level, wanted, system));
            way.extend(before);
        }
        way.reverse();
        Some(way)
    }

    fn common(&self) -> RwLockReadGuard<'_, Common> {
        self.common.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(&self, number: usize) -> MutexGuard<'_, Seat> {
        self.seats[number].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_halted(&self) -> bool {
        self.halt.0.load(Ordering::Relaxed) != GO_ON
    }

    /// Pieces of work, until there is none.
    fn pieces(&self, count: usize) -> impl Iterator<Item = usize> {
        let next = move || self.next_piece.0.fetch_add(1, Ordering::Relaxed);
        std::iter::repeat_with(next).take_while(move |&piece| piece < count)
    }

    /// Does what all do; whether it was the last.
    fn perform(&self, me: usize, system: &mut impl Subject, post: &mut dyn FnMut(bool)) -> bool {
        let common = self.common();
        match common.order {
            Order::Look => {
                let mut seat = self.seat(me);
                // StoreFull: the leader finds the store full, or makes it grow and says to look again.
                self.look(&common, &mut seat, me, system, post).ok();
                self.tallies[me].0.set(seat.counts);
            }
            Order::Receive => {
                let mut seat = self.seat(me);
                // StoreFull: as above.
                self.receive(&common, &mut seat, post).ok();
                self.tallies[me].0.set(seat.counts);
            }
            Order::Grow(which) => common.pairs_ref(which).grow_segments(),
            Order::Put(which) => common.pairs_ref(which).put_displaced(),
            Order::Sample => self.sample(&common),
            Order::End => return true,
        }
        false
    }

    /// Looks at states of this level until none is left, or it must stop.
    fn look(
        &self,
        common: &Common,
        seat: &mut Seat,
        me: usize,
        system: &mut impl Subject,
        post: &mut dyn FnMut(bool),
    ) -> Result<(), StoreFull> {
        let store = &common.store;
        let is_watching = common.broken.is_none();
        let level = common.levels.depth() as u32;
        loop {
            if let Some(far) = &self.far {
                seat.take_in(far, store)?;
                post(far.is_blocked());
                if far.is_blocked() && !self.is_halted() && !store.wants_more() {
                    continue;
                }
            }
            if seat.rest.is_empty() {
                let chunk = self.next_chunk.0.fetch_add(1, Ordering::Relaxed);
                match common.levels.chunk(chunk) {
                    Some(states) => seat.rest = states,
                    None => {
                        if let (Some(far), Some(away)) = (&self.far, &mut seat.away) {
                            away.close(far);
                        }
                        return seat.flush(store);
                    }
                }
            }
            while !seat.rest.is_empty() {
                if self.is_halted() || store.wants_more() {
                    return Ok(());
                }
                let steps = seat.expand(store, system, self.far.as_ref(), level)?;
                if is_watching && system.is_broken(seat.parent.bytes(), steps) {
                    seat.broken.get_or_insert(seat.rest.start - 1);
                    if !self.is_full {
                        self.halt.0.fetch_max(BROKEN, Ordering::Relaxed);
                    }
                }
                if seat.batch.len() >= BATCH_STATES {
                    seat.flush(store)?;
                }
            }
            self.tallies[me].0.set(seat.counts);
        }
    }

    fn sample(&self, common: &Common) {
        let Some(mut halves) = lock(&common.halves).clone() else { return };
        let rows = common.levels.rows();
        let step = Halves::step(common.levels.states_count());
        let mut state = Unpacked::default();
        for piece in self.pieces(rows.len().div_ceil(SAMPLE_ROWS)) {
            let all = &rows[piece * SAMPLE_ROWS..rows.len().min((piece + 1) * SAMPLE_ROWS)];
            for id in all.iter().cloned().flatten().filter(|id| id.is_multiple_of(step)) {
                common.store.unpack(id, &mut state);
                halves.see(state.bytes());
            }
        }
        if let Some(all) = lock(&common.halves).as_mut() {
            all.merge(&halves);
        }
    }

    /// What comes next, now that all have met; whether the one who decides does it alone.
    fn decide(&self) -> bool {
        let mut guard = self.common.write().unwrap_or_else(PoisonError::into_inner);
        let common = &mut *guard;
        let mut seats: Vec<_> = (0..self.seats.len()).map(|number| self.seat(number)).collect();
        self.next_piece.0.store(0, Ordering::Relaxed);
        common.order = match common.order {
            Order::Look | Order::Receive => self.looked(common, &mut seats),
            Order::Grow(which) => {
                common.pairs(which).end_growth();
                Order::Put(which)
            }
            Order::Put(_) => grow(common).unwrap_or(Order::Look),
            Order::Sample => {
                let halves = lock(&common.halves).take();
                if let Some(cut_at) = halves.and_then(|halves| halves.better_cut()) {
                    let mut hands: Vec<_> = seats.iter_mut().map(|seat| &mut seat.hand).collect();
                    common.store.cut_elsewhere(cut_at, common.levels.rows(), &mut hands);
                }
                Order::Look
            }
            Order::End => Order::End,
        };
        // What others left undone, when the store had to grow, is theirs.
        let is_begun = |seat: &MutexGuard<'_, Seat>| seat.is_begun();
        common.order == Order::Look && common.levels.is_small() && !seats.iter().any(is_begun)
    }

    /// After a level, or what could be done of it.
    fn looked(&self, common: &mut Common, seats: &mut [MutexGuard<'_, Seat>]) -> Order {
        let depth = common.levels.depth();
        if common.broken.is_none() {
            common.broken = seats.iter().find_map(|seat| seat.broken).map(|id| (id, depth));
        }
        let is_broken = common.broken.is_some_and(|(_, level)| level == depth);
        let looked_count = seats.iter().map(|seat| seat.counts.looked).sum::<u64>();
        let tell_done = |far: &Far, common: &Common| {
            far.tell_done(looked_count - common.looked_before, is_broken);
        };
        match self.halt.0.load(Ordering::Relaxed) {
            BROKEN => {
                self.far.iter().for_each(|far| tell_done(far, common));
                return Order::End;
            }
            STOP => return end(common, Ended::Stopped),
            _ => {}
        }
        if let Some(order) = grow(common) {
            return order;
        }
        if common.store.is_full() {
            self.far.iter().for_each(Far::halt_all);
            return end(common, Ended::StoreFull);
        }
        if seats.iter().any(|seat| seat.is_begun()) {
            return Order::Look;
        }
        let found = |seats: &mut [MutexGuard<'_, Seat>]| {
            let found = seats.iter_mut().flat_map(|seat| std::mem::take(&mut seat.found));
            found.collect::<Vec<_>>()
        };
        if let Some(far) = &self.far {
            tell_done(far, common);
            if !far.is_level_complete() {
                return Order::Receive;
            }
            let level = far.go_on();
            if level.looked_count == 0 {
                common.levels.forget_empty();
                return Order::End;
            }
            if level.is_broken && !self.is_full {
                return Order::End;
            }
            common.looked_before = looked_count;
            common.levels.add(found(seats));
        } else if !common.levels.go_on(found(seats)) {
            return Order::End;
        }
        self.next_chunk.0.store(0, Ordering::Relaxed);
        let halves = common.store.time_to_look(common.levels.states_count());
        let order = if halves.is_some() { Order::Sample } else { Order::Look };
        *lock(&common.halves) = halves;
        order
    }
}

fn end(common: &mut Common, ended: Ended) -> Order {
    common.ended = Some(ended);
    Order::End
}

/// Begins to grow what should grow, if there is room for it.
fn grow(common: &mut Common) -> Option<Order> {
    [Which::Inner, Which::Roots].into_iter().find_map(|which| {
        let pairs = common.pairs(which);
        (pairs.wants_more() && pairs.begin_to_grow()).then_some(Order::Grow(which))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the others when its thread ends in any way but a good one.
struct Alarm<'a>(&'a Meeting);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.break_up();
    }
}
