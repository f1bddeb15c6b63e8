//! What the two sides of a ring share, and the order in which they must see it.
//!
//! # The argument
//!
//! *Data.* A side fills (or empties) slots and buffers, then stores its cursor with *release*. The
//! other loads that cursor with *acquire*, then touches the slots. So whatever was done to a slot
//! before it was handed over is seen by its new holder, and nothing its new holder does can reach
//! back. That takes four accesses, two cursors each stored by one side and loaded by the other, and
//! nothing else: `cur` and `hwcur` are stored before the cursor that publishes them and need no order
//! of their own (a reader may see a newer `cur` with an older `head`, never the reverse); slots are
//! plain words guarded by the cursors.
//!
//! *Sleep.* A sleeper stores its flag, then looks at the other's cursor once more. A waker stores its
//! cursor, then looks at the other's flag. If each could miss the other's store, the sleeper would
//! sleep on a full ring; a processor may do just that, because a store waits in its buffer while a
//! later load runs. A full fence between the store and the load on *both* sides forbids it: whichever
//! fence comes first in their single total order, the other side's load comes after that store.
//! Acquire and release do not order a store before a later load, so nothing weaker will do.
//!
//! *Flags* themselves carry no data. Clearing one late costs a wake-up too many, never one too few.
//!
//! The loom test of this crate weakens each of these orders in turn and must find the fault; so none
//! is there for decoration.

use std::sync::atomic::Ordering;

/// The words of one ring's CSB; each has one writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// User: first slot it has not handed over.
    Head,
    /// User: how far it has looked; stored with `head`.
    Cur,
    /// User: not 0 when it wants to be woken.
    UserSleeps,
    /// Owner: first slot it has not taken.
    HwCur,
    /// Owner: first slot that is not the user's.
    HwTail,
    /// Owner: not 0 when it wants to be woken.
    OwnerSleeps,
}

impl Word {
    /// With which order its writer stores it.
    #[inline]
    #[must_use]
    pub const fn store_order(self) -> Ordering {
        match self {
            Self::Head | Self::HwTail => Ordering::Release,
            Self::Cur | Self::HwCur | Self::UserSleeps | Self::OwnerSleeps => Ordering::Relaxed,
        }
    }

    /// With which order the other side loads it.
    #[inline]
    #[must_use]
    pub const fn load_order(self) -> Ordering {
        match self {
            Self::Head | Self::HwTail => Ordering::Acquire,
            Self::Cur | Self::HwCur | Self::UserSleeps | Self::OwnerSleeps => Ordering::Relaxed,
        }
    }
}

/// The two places where a store must be seen before a later load runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// A sleeper, between setting its flag and its last look at the other's cursor.
    BeforeSleep,
    /// A waker, between moving its cursor and looking at the other's flag.
    BeforeLook,
}

impl Fence {
    /// The fence's order.
    #[inline]
    #[must_use]
    pub const fn order(self) -> Ordering {
        Ordering::SeqCst
    }
}

/// The memory of one ring as either side sees it: a mapping ([`crate::Mapped`]), or in tests a model
/// checker's. An implementation uses the orders given by [`Word`] and [`Fence`].
pub trait Shared {
    /// Reads a word.
    fn load(&self, word: Word) -> u32;
    /// Writes a word; only its one writer does.
    fn store(&self, word: Word, value: u32);
    /// A full fence.
    fn fence(&self, place: Fence);
}
