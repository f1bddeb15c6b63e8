//! One side of a ring.
//!
//! Everything is seen from where the side stands: it is at `position`, and `available` slots from
//! there on are its own. Looking ([`End::observe`]) can only make more of them available; moving on
//! ([`End::advance`]) hands them over. What the other side writes is checked when it is looked at: a
//! cursor outside the ring or one that ran backwards is a [`Violation`], never a panic, and never
//! makes more slots available than a ring has.

use thiserror::Error;

use crate::memory::{Fence, Shared, Word};

/// Which side of which ring: who writes what.
///
/// One slot always stays with the owner, or a full ring would look like an empty one: on a transmit
/// ring it is the one before those the owner works on (`hwtail = hwcur - 1`), on a receive ring the
/// one before those of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// The user of either kind of ring: writes `head`, goes up to `hwtail`.
    User,
    /// The owner of a transmit ring: takes slots up to `head`, gives them back up to `hwtail`.
    TxOwner,
    /// The owner of a receive ring: fills slots up to the one before `head`.
    RxOwner,
}

impl Seat {
    /// The cursor this side follows.
    const fn their_cursor(self) -> Word {
        match self {
            Self::User => Word::HwTail,
            Self::TxOwner | Self::RxOwner => Word::Head,
        }
    }

    /// The flag by which the other side asks to be woken.
    const fn their_flag(self) -> Word {
        match self {
            Self::User => Word::OwnerSleeps,
            Self::TxOwner | Self::RxOwner => Word::UserSleeps,
        }
    }

    /// The flag by which this side does.
    const fn my_flag(self) -> Word {
        match self {
            Self::User => Word::UserSleeps,
            Self::TxOwner | Self::RxOwner => Word::OwnerSleeps,
        }
    }
}

/// What the other side of a ring may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// A cursor is not the index of a slot.
    #[error("cursor {cursor} of a ring of {slots} slots")]
    OutsideRing {
        /// The cursor that the other side wrote.
        cursor: u32,
        /// Slots of the ring.
        slots: u32,
    },
    /// A cursor took back slots that were handed over, or passed those it owns.
    #[error(
        "cursor ran backwards or too far, to {cursor}: {available} slots were handed over, now {now}"
    )]
    RanBackwards {
        /// The cursor that the other side wrote.
        cursor: u32,
        /// Slots it had handed over.
        available: u32,
        /// Slots it pretends to have handed over now.
        now: u32,
    },
}

/// A flag that asks to be woken each time, as ptnet guests write it.
const ALWAYS: u32 = 1;

/// One side of a ring. Not for two threads at once: each cursor has one writer.
#[derive(Debug)]
pub struct End<M> {
    memory: M,
    seat: Seat,
    slots: u32,
    position: u32,
    available: u32,
    /// What the flag was set to last. A new number each time, so that the other side can tell "still
    /// asleep, and already rung for" from "asleep again".
    asked: u32,
    /// The other side's number that was answered last.
    answered: u32,
}

impl<M: Shared> End<M> {
    /// Takes the seat where its last holder left it; for a new ring that is the beginning.
    ///
    /// `asked` should differ from what the last holder of the seat began with (any random number).
    ///
    /// # Errors
    /// The seat's own cursor lies outside the ring, or `slots` is less than 2.
    pub fn join(memory: M, seat: Seat, slots: u32, asked: u32) -> Result<Self, Violation> {
        let cursor = match seat {
            Seat::User => memory.load(Word::Head),
            Seat::TxOwner | Seat::RxOwner => memory.load(Word::HwTail),
        };
        if cursor >= slots || slots < 2 {
            return Err(Violation::OutsideRing { cursor, slots });
        }
        let mut end = Self { memory, seat, slots, position: 0, available: 0, asked, answered: 0 };
        end.position = if seat == Seat::TxOwner { end.after(cursor, 1) } else { cursor };
        Ok(end)
    }

    /// The words of a new ring.
    pub fn format(memory: &M, transmit: bool, slots: u32) {
        for word in [Word::Head, Word::Cur, Word::UserSleeps, Word::HwCur, Word::OwnerSleeps] {
            memory.store(word, 0);
        }
        memory.store(Word::HwTail, if transmit { slots - 1 } else { 0 });
    }

    /// Looks how many slots from [`position`](Self::position) on are this side's now.
    ///
    /// # Errors
    /// The other side broke the protocol; its ring is of no more use.
    #[inline]
    pub fn observe(&mut self) -> Result<u32, Violation> {
        let cursor = self.memory.load(self.seat.their_cursor());
        if cursor >= self.slots {
            return Err(Violation::OutsideRing { cursor, slots: self.slots });
        }
        let limit = if self.seat == Seat::RxOwner { self.before(cursor) } else { cursor };
        let now = self.distance(limit);
        if now < self.available {
            let available = self.available;
            return Err(Violation::RanBackwards { cursor, available, now });
        }
        self.available = now;
        Ok(now)
    }

    /// Slots that are this side's as of the last look.
    #[inline]
    #[must_use]
    pub fn available(&self) -> u32 {
        self.available
    }

    /// The first of them.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u32 {
        self.position
    }

    /// Slots of the ring.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Index of the slot `offset` after the position; `offset` counts within the ring.
    #[inline]
    #[must_use]
    pub fn index(&self, offset: u32) -> u32 {
        self.after(self.position, offset)
    }

    /// Hands over the next `count` slots, at most those available.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        let count = count.min(self.available);
        self.available -= count;
        self.position = self.after(self.position, count);
        let (position, memory) = (self.position, &self.memory);
        match self.seat {
            Seat::User => {
                memory.store(Word::Cur, position);
                memory.store(Word::Head, position);
            }
            Seat::TxOwner => {
                memory.store(Word::HwCur, position);
                memory.store(Word::HwTail, self.before(position));
            }
            // What the owner has taken so far is everything up to its limit.
            Seat::RxOwner => {
                memory.store(Word::HwCur, self.after(position, self.available + 1));
                memory.store(Word::HwTail, position);
            }
        }
    }

    /// Whether the other side sleeps and must be woken, to be asked after [`advance`](Self::advance).
    /// Says so once for each time it fell asleep.
    #[inline]
    #[must_use]
    pub fn must_ring(&mut self) -> bool {
        self.memory.fence(Fence::BeforeLook);
        let asked = self.memory.load(self.seat.their_flag());
        if asked == 0 || (asked == self.answered && asked != ALWAYS) {
            return false;
        }
        self.answered = asked;
        true
    }

    /// Asks to be woken when the other side hands something over. False when it just did: then do
    /// not sleep. Either way, call [`disarm`](Self::disarm) when awake.
    ///
    /// # Errors
    /// As [`End::observe`].
    pub fn arm(&mut self) -> Result<bool, Violation> {
        let before = self.available;
        self.asked = self.asked.wrapping_add(1).max(ALWAYS + 1);
        self.memory.store(self.seat.my_flag(), self.asked);
        self.memory.fence(Fence::BeforeSleep);
        Ok(self.observe()? == before)
    }

    /// No longer asks to be woken.
    #[inline]
    pub fn disarm(&mut self) {
        self.memory.store(self.seat.my_flag(), 0);
    }

    /// The memory it works on.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    #[inline]
    fn after(&self, index: u32, count: u32) -> u32 {
        // Both are at most `slots`, which is far from overflowing.
        let sum = index + count;
        if sum >= self.slots { sum - self.slots } else { sum }
    }

    #[inline]
    fn before(&self, index: u32) -> u32 {
        if index == 0 { self.slots - 1 } else { index - 1 }
    }

    /// Slots from the position up to `limit`, not included.
    #[inline]
    fn distance(&self, limit: u32) -> u32 {
        if limit >= self.position {
            limit - self.position
        } else {
            limit + self.slots - self.position
        }
    }
}
