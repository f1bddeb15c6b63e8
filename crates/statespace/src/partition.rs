//! One state space spread over many ranks: processes or threads, on one host or many.
//!
//! A hash says which rank a state belongs to. Each rank stores its states, looks at their steps and
//! hands the states they lead to, in batches, to the ranks they belong to. There is no barrier:
//! states carry their distance from the first, the nearest are looked at first, and a state that turns
//! out to be nearer than thought is looked at again. When all is quiet, which rank 0 finds out with
//! four counters (Mattern 1987), distances are exact, so a violation's run is a shortest one.
//!
//! Accepting cycles are found as `DiVinE` does: One Way Catch Them Young (Černá, Pelánek 2003), after a
//! first pass in which each state hands on the greatest accepting state it was reached from (Brim,
//! Černá, Moravec, Šimša 2004), once and never again (Barnat, Brim, Ročkai 2009): an accepting state
//! that hears of itself closes a cycle, long before all states are known.
//!
//! Ranks may also keep less than their states ([`Rank::lossy`]): see `thin`.
//!
//! A [`Rank`] is a machine without input or output: [`Rank::handle`] takes a message, [`Rank::work`]
//! goes on, [`Rank::poll`] gives what is to be sent. Messages between two ranks must arrive in order.

pub(crate) mod home;
mod lead;
mod manifest;
mod marks;
mod mesh;
mod message;
mod queue;
mod rank;
pub(crate) mod sent;
mod thin;

pub use lead::{Ending, Outcome};
pub use manifest::Manifest;
pub use message::MalformedMessage;
pub use rank::{FileRequest, Rank, RankError, Written};

use crate::cycle::Accepting;
use crate::fair::Acting;

/// A system that ranks search together.
pub trait Subject: Accepting {
    /// Whether a state with so many successors violates a property.
    fn is_broken(&mut self, state: &[u8], steps_count: usize) -> bool;

    /// What this rank learnt beside states, for whoever reads the outcome.
    fn notes(&self) -> Vec<u8>;

    /// As [`crate::System::each`], with the demands that each step serves, a bit each below
    /// [`DEMANDS_MAX`]; tells which the state itself serves. A cycle that counts ([`Goal::FairCycle`]) serves
    /// all of them. By default there are none.
    fn each_serving(&mut self, state: &[u8], mut visit: impl FnMut(u64, &[u8])) -> u64 {
        self.each(state, |next| visit(0, next));
        u64::MAX >> 1
    }

    /// What a rank learnt before, where a search is taken up again; of no interest to some.
    fn learn(&mut self, _notes: &[u8]) {}
}

/// Demands that cycles are asked to serve, at most.
pub const DEMANDS_MAX: usize = 63;

/// [`Subject::each_serving`] for cycles that are fair to processes, weakly or strongly: each moves on it or is
/// unable to somewhere. Processes beyond [`DEMANDS_MAX`] make no demand.
pub fn each_serving<S: Acting>(
    system: &mut S,
    state: &[u8],
    mut visit: impl FnMut(u64, &[u8]),
) -> u64 {
    let mut able = 0;
    system.each_acting(state, |actors, next| {
        let demands = actors.iter().filter(|&actor| actor < DEMANDS_MAX);
        let moving = demands.fold(0, |all, actor| all | 1 << actor);
        able |= moving;
        visit(moving, next);
    });
    !able & (u64::MAX >> 1)
}

/// What a search looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// A state that violates a property.
    BadState {
        /// Search all states, also after the first violation.
        is_full: bool,
    },
    /// An accepting cycle.
    AcceptingCycle,
    /// A fair accepting cycle. One rank alone can decide fairness: the caller of rank 0 gets all states
    /// that may be on such a cycle ([`Rank::take_gathered`]) and says which it is ([`Rank::judged`]).
    FairCycle,
}

impl Goal {
    /// Whether it is some cycle.
    fn is_of_cycles(self) -> bool {
        !matches!(self, Self::BadState { .. })
    }
}

/// What one rank has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// States it stores.
    pub states_count: u64,
    /// Of those, the ones whose steps are still to be looked at.
    pub queued_count: u64,
    /// Steps out of the states looked at.
    pub transitions_count: u64,
    /// States without a transition.
    pub deadlocks_count: u64,
    /// Distance of the states looked at now; at the end, of the farthest state.
    pub depth: u64,
    /// Memory of states and what is known of them, bytes.
    pub memory_bytes: u64,
    /// States looked at again, because they were nearer than thought.
    pub again_count: u64,
    /// Batches of states sent to other ranks.
    pub sent_batches: u64,
    /// Bytes of those batches.
    pub sent_bytes: u64,
    /// Bits set in its table of states, where it keeps no more than that of them.
    pub marked_count: u64,
}

impl Figures {
    /// How many figures there are.
    pub(crate) const COUNT: usize = 10;

    pub(crate) fn to_array(self) -> [u64; Self::COUNT] {
        [
            self.states_count,
            self.queued_count,
            self.transitions_count,
            self.deadlocks_count,
            self.depth,
            self.memory_bytes,
            self.again_count,
            self.sent_batches,
            self.sent_bytes,
            self.marked_count,
        ]
    }

    pub(crate) fn from_array(values: [u64; Self::COUNT]) -> Self {
        let [states_count, queued_count, transitions_count, deadlocks_count, ..] = values;
        let [.., depth, memory_bytes, again_count, sent_batches, sent_bytes, marked_count] = values;
        Self {
            states_count,
            queued_count,
            transitions_count,
            deadlocks_count,
            depth,
            memory_bytes,
            again_count,
            sent_batches,
            sent_bytes,
            marked_count,
        }
    }

    /// Sums, and the greatest depth.
    #[must_use]
    pub fn total(all: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
        Self {
            states_count: sum(|one| one.states_count),
            queued_count: sum(|one| one.queued_count),
            transitions_count: sum(|one| one.transitions_count),
            deadlocks_count: sum(|one| one.deadlocks_count),
            depth: all.iter().map(|one| one.depth).max().unwrap_or(0),
            memory_bytes: sum(|one| one.memory_bytes),
            again_count: sum(|one| one.again_count),
            sent_batches: sum(|one| one.sent_batches),
            sent_bytes: sum(|one| one.sent_bytes),
            marked_count: sum(|one| one.marked_count),
        }
    }
}
