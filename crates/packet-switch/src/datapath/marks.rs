//! Whose each buffer of a region is.
//!
//! A client may hand over only buffers that it was given. What the switch knows of that is in its own memory: one byte a
//! buffer, with the seat that the buffer belongs to and whether it is in a slot that the switch holds at this moment. A port
//! that has its region to itself has all of its buffers. The ports of a [trust group](crate::daemon) share a region, and
//! each seat has its share of the buffers: two of them may [trade](Marks::trade) one for one, so every seat always has
//! as many, whatever happens to clients and frames. Only the switch's thread writes, so no order is needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ring::FIRST_BUFFER;
use shm::Buffers;

use super::CutOff;

/// The buffer is in a slot that the switch holds.
const HELD: u8 = 0x80;
/// No seat's: the buffers that no slot may name.
const NOBODY: u8 = 0x7f;

/// Whose each buffer is, for all seats of a region.
#[derive(Debug, Clone)]
pub(crate) struct Holders(Arc<[AtomicU8]>);

impl Holders {
    /// `seats` seats that have `each` buffers, from the first usable one on in the order of the seats.
    pub(crate) fn dealt(seats: u8, each: u32) -> Self {
        let nobody = std::iter::repeat_n(NOBODY, FIRST_BUFFER as usize);
        let dealt = (0..seats).flat_map(|seat| std::iter::repeat_n(seat, each as usize));
        Self(nobody.chain(dealt).map(AtomicU8::new).collect())
    }

    /// The buffers of a seat, in ascending order. None of them is in a slot any more: to be called when the switch's thread
    /// has dropped what it had of the seat.
    pub(crate) fn take_back(&self, seat: u8) -> Vec<u32> {
        let is_its = |holder: &AtomicU8| holder.load(Ordering::Relaxed) & !HELD == seat;
        let its = (0..).zip(&*self.0).filter(|(_, holder)| is_its(holder));
        its.map(|(buffer, holder)| {
            holder.store(seat, Ordering::Relaxed);
            buffer
        })
        .collect()
    }
}

/// The buffers of one port.
#[derive(Debug)]
pub(crate) struct Marks {
    seat: u8,
    /// Whether others can have seats of the region.
    is_shared: bool,
    holders: Holders,
}

impl Marks {
    /// Of a port that has its region to itself.
    pub(crate) fn new(buffers: &Buffers) -> Self {
        let holders = Holders::dealt(1, buffers.count().saturating_sub(FIRST_BUFFER));
        Self { seat: 0, is_shared: false, holders }
    }

    /// Of a seat of a region that several ports share.
    pub(crate) fn of_seat(holders: Holders, seat: u8) -> Self {
        Self { seat, is_shared: true, holders }
    }

    /// A slot with this buffer was handed over.
    #[inline]
    pub(crate) fn take(&mut self, buffer: u32) -> Result<(), CutOff> {
        let holders = &self.holders.0;
        let last = || u32::try_from(holders.len()).unwrap_or(u32::MAX).saturating_sub(1);
        let outside = || CutOff::NoBuffer { buffer, last: last() };
        let holder = holders.get(buffer as usize).ok_or_else(outside)?;
        match holder.load(Ordering::Relaxed) {
            free if free == self.seat => holder.store(free | HELD, Ordering::Relaxed),
            held if held == self.seat | HELD => return Err(CutOff::SharedTwice { buffer }),
            NOBODY => return Err(outside()),
            _ => return Err(CutOff::NotIts { buffer }),
        }
        Ok(())
    }

    /// It was handed back. Only for what [`Marks::take`] took, or what was got for that by [`Marks::trade`].
    #[inline]
    pub(crate) fn give(&mut self, buffer: u32) {
        self.holders.0[buffer as usize].store(self.seat, Ordering::Relaxed);
    }

    /// Whether others can have seats of the region.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether both are seats of one region, so that they can trade.
    #[inline]
    pub(crate) fn share_with(&self, other: &Self) -> bool {
        self.is_shared && Arc::ptr_eq(&self.holders.0, &other.holders.0)
    }

    /// A buffer of this seat becomes the other's, and one of the other's becomes this seat's. Both were
    /// [taken](Marks::take), and stay so.
    #[inline]
    pub(crate) fn trade(&mut self, own: u32, other: &Self, theirs: u32) {
        self.holders.0[own as usize].store(other.seat | HELD, Ordering::Relaxed);
        self.holders.0[theirs as usize].store(self.seat | HELD, Ordering::Relaxed);
    }
}
