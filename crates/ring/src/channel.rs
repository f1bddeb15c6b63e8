//! Sending and receiving frames: an [`End`] together with the buffers its slots name.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shm::{Bell, Buffer, Buffers};
use sys::SyscallError;
use thiserror::Error;

use crate::eagerness::Eagerness;
use crate::end::{End, Violation};
use crate::mapped::Mapped;
use crate::slot::{Slot, SlotFlags};

/// Why a wait ended without an answer.
#[derive(Debug, Error)]
pub enum WaitError {
    /// The other side broke the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The bell is broken.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

/// The two bells of a ring as one side has them.
#[derive(Debug)]
pub struct Bells {
    /// Rung here, heard by the other side.
    pub theirs: Bell,
    /// Rung by the other side, heard here.
    pub ours: Bell,
}

impl Bells {
    /// For both sides of a new ring.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn pair() -> Result<(Self, Self), SyscallError> {
        let (one, other) = (Bell::new()?, Bell::new()?);
        let mirrored = Self { theirs: other.share()?, ours: one.share()? };
        Ok((Self { theirs: one, ours: other }, mirrored))
    }
}

/// How a side waits: it polls for a while, which answers fastest but keeps a core busy, then sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long it polls at most before it sleeps; less where that has not paid lately ([`Eagerness`]).
    pub linger: Duration,
    /// After how long it gives up.
    pub timeout: Duration,
}

/// One side of a ring with the buffers its slots name; `Way` is what it does with them.
#[derive(Debug)]
pub struct Channel<Way> {
    end: End<Mapped>,
    buffers: Buffers,
    bells: Bells,
    eagerness: Eagerness,
    way: PhantomData<Way>,
}

/// Fills slots; see [`Sender`].
#[derive(Debug)]
pub enum Sends {}

/// Reads them; see [`Receiver`].
#[derive(Debug)]
pub enum Receives {}

/// The sending side of a ring: at the user's seat of a transmit ring, or the owner's of a receive
/// ring.
pub type Sender = Channel<Sends>;

/// The receiving side of a ring: at the user's seat of a receive ring, or the owner's of a transmit
/// ring.
pub type Receiver = Channel<Receives>;

impl<Way> Channel<Way> {
    /// At this seat, with the region's buffers.
    #[must_use]
    pub fn join(end: End<Mapped>, buffers: Buffers, bells: Bells) -> Self {
        Self { end, buffers, bells, eagerness: Eagerness::default(), way: PhantomData }
    }

    /// Waits until at least one slot is this side's, to fill or to read: polls while that pays, then
    /// sleeps. Returns how many there are, 0 when the time is up.
    ///
    /// # Errors
    /// The other side broke the protocol, or the bell is broken.
    pub fn wait(&mut self, patience: Patience) -> Result<u32, WaitError> {
        let (began, mut passed) = (Instant::now(), Duration::ZERO);
        let linger = self.eagerness.of(patience.linger);
        // Whoever sleeps at once does so even where a few more looks would tell, as between two cores:
        // what it sees of wake-ups is then what they are.
        let looks = if patience.linger.is_zero() { 1 } else { LOOKS };
        loop {
            for _ in 0..looks {
                let available = self.end.observe()?;
                if available > 0 {
                    // At once, or after how long.
                    let waited = if passed.is_zero() { passed } else { began.elapsed() };
                    self.eagerness.learn(patience.linger, waited);
                    return Ok(available);
                }
                std::hint::spin_loop();
            }
            passed = began.elapsed();
            if passed >= patience.timeout {
                self.eagerness.learn(patience.linger, passed);
                return Ok(0);
            }
            if passed < linger {
                // Whom it waits for may want this very core.
                std::thread::yield_now();
                continue;
            }
            let slept = self.sleep(patience.timeout - passed);
            self.end.disarm();
            slept?;
        }
    }

    /// Asks to be woken when slots come, for an owner that waits for several things at once
    /// ([`AsFd`]). False when some just came: then do not sleep. Either way, call
    /// [`disarm`](Self::disarm) when awake.
    ///
    /// # Errors
    /// The other side broke the protocol.
    pub fn arm(&mut self) -> Result<bool, Violation> {
        self.end.arm()
    }

    /// No longer asks to be woken, and forgets that it was.
    ///
    /// # Errors
    /// The bell is broken.
    pub fn disarm(&mut self) -> Result<(), SyscallError> {
        self.end.disarm();
        self.bells.ours.clear()
    }

    /// Its side of the ring.
    #[must_use]
    pub fn end(&mut self) -> &mut End<Mapped> {
        &mut self.end
    }

    /// The same, to look at.
    #[must_use]
    pub fn place(&self) -> &End<Mapped> {
        &self.end
    }

    /// The bell that the other side rings, for whoever waits in a way of its own: [`End::arm`] first.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.bells.ours
    }

    /// Both bells, for whoever rings and waits by other means.
    #[must_use]
    pub fn bells(&self) -> &Bells {
        &self.bells
    }

    /// What waiting in a way of one's own needs: the side to arm and disarm, the bell to wait for.
    #[must_use]
    pub fn waiting(&mut self) -> (&mut End<Mapped>, &Bell) {
        (&mut self.end, &self.bells.ours)
    }

    /// The buffers of its region.
    #[must_use]
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    fn sleep(&mut self, timeout: Duration) -> Result<(), WaitError> {
        if self.end.arm()? {
            self.bells.ours.wait(Some(timeout))?;
        }
        Ok(())
    }

    /// Hands over the first `count` slots, and wakes the other side if it sleeps.
    #[inline]
    fn hand_over(&mut self, count: u32) -> Result<(), SyscallError> {
        if count == 0 {
            return Ok(());
        }
        self.end.advance(count);
        if self.end.must_ring() { self.bells.theirs.ring() } else { Ok(()) }
    }

    /// Looks at the other side only when fewer than `wanted` are known of.
    #[inline]
    fn look(&mut self, wanted: u32) -> Result<u32, Violation> {
        if self.end.available() < wanted { self.end.observe() } else { Ok(self.end.available()) }
    }

    /// The `offset`th slot that is this side's: its index, what stands in it, its buffer.
    #[inline]
    fn find(&self, offset: u32) -> Option<(u32, Slot, Buffer<'_>)> {
        if offset >= self.end.available() {
            return None;
        }
        let index = self.end.index(offset);
        let slot = self.end.memory().slot(index);
        self.buffers.get(slot.buffer).map(|buffer| (index, slot, buffer))
    }
}

impl Channel<Sends> {
    /// Slots that may be filled now. Looks at the other side only when fewer than `wanted` are known
    /// of: each look costs the cache line that the other side is writing.
    ///
    /// # Errors
    /// The other side broke the protocol.
    #[inline]
    pub fn reserve(&mut self, wanted: u32) -> Result<u32, Violation> {
        self.look(wanted)
    }

    /// Writes a frame into the `offset`th reserved slot; false when it does not fit, or the slot is
    /// not reserved.
    #[inline]
    #[must_use]
    pub fn put(&mut self, offset: u32, frame: &[u8]) -> bool {
        self.put_frame(offset, frame).is_some()
    }

    /// As [`put`](Self::put); the buffer it was written to, for what differs from frame to frame.
    #[inline]
    #[must_use]
    pub fn put_frame(&mut self, offset: u32, frame: &[u8]) -> Option<Buffer<'_>> {
        let (index, slot, buffer) = self.find(offset)?;
        let length_bytes = u16::try_from(frame.len()).ok()?;
        if !buffer.write(0, frame) {
            return None;
        }
        let flags = SlotFlags(slot.flags.0 & SlotFlags::BUFFER_CHANGED);
        self.end.memory().set_slot(index, Slot { length_bytes, flags, ..slot });
        Some(buffer)
    }

    /// Says that the `offset`th reserved slot holds a frame of that length already; false when no
    /// buffer is that long.
    #[inline]
    #[must_use]
    pub fn put_length(&mut self, offset: u32, length_bytes: u16) -> bool {
        self.put_part(offset, length_bytes, false)
    }

    /// The same for a part of a frame: `more` says that it goes on in the next slot.
    #[inline]
    #[must_use]
    pub fn put_part(&mut self, offset: u32, length_bytes: u16, more: bool) -> bool {
        let Some((index, slot, buffer)) = self.find(offset) else { return false };
        let fits = usize::from(length_bytes) <= buffer.length_bytes();
        let more = if more { SlotFlags::MORE_FRAGMENTS } else { 0 };
        let flags = SlotFlags(slot.flags.0 & SlotFlags::BUFFER_CHANGED | more);
        if fits {
            self.end.memory().set_slot(index, Slot { length_bytes, flags, ..slot });
        }
        fits
    }

    /// The buffer of the `offset`th reserved slot, to write parts of a frame.
    #[inline]
    #[must_use]
    pub fn buffer(&self, offset: u32) -> Option<Buffer<'_>> {
        self.find(offset).map(|(_, _, buffer)| buffer)
    }

    /// Hands over the first `count` reserved slots, and wakes the other side if it sleeps.
    ///
    /// # Errors
    /// The bell is broken; the slots are handed over all the same.
    #[inline]
    pub fn publish(&mut self, count: u32) -> Result<(), SyscallError> {
        self.hand_over(count)
    }
}

impl Channel<Receives> {
    /// Slots with frames that have arrived. Looks at the other side only when fewer than `wanted` are
    /// known of.
    ///
    /// # Errors
    /// The other side broke the protocol.
    #[inline]
    pub fn peek(&mut self, wanted: u32) -> Result<u32, Violation> {
        self.look(wanted)
    }

    /// Length of the `offset`th frame that has arrived, at most that of its buffer; `None` when none
    /// is there or its slot names no buffer.
    #[inline]
    #[must_use]
    pub fn length_bytes(&self, offset: u32) -> Option<usize> {
        self.frame(offset).map(|(_, length)| length)
    }

    /// The `offset`th frame that has arrived: its buffer and length.
    #[inline]
    #[must_use]
    pub fn frame(&self, offset: u32) -> Option<(Buffer<'_>, usize)> {
        self.fragment(offset).map(|(buffer, length, _)| (buffer, length))
    }

    /// The same, and whether the frame goes on in the next slot; the slot is read once.
    #[inline]
    #[must_use]
    pub fn fragment(&self, offset: u32) -> Option<(Buffer<'_>, usize, bool)> {
        let (_, slot, buffer) = self.find(offset)?;
        let length = usize::from(slot.length_bytes).min(buffer.length_bytes());
        Some((buffer, length, slot.flags.more_fragments()))
    }

    /// Whether the frame of the `offset`th slot goes on in the next one.
    #[inline]
    #[must_use]
    pub fn goes_on(&self, offset: u32) -> bool {
        self.find(offset).is_some_and(|(_, slot, _)| slot.flags.more_fragments())
    }

    /// Copies the `offset`th frame to the start of `out` and says how long it is; what is longer than
    /// `out` is cut off.
    #[inline]
    #[must_use]
    pub fn copy(&self, offset: u32, out: &mut [u8]) -> Option<usize> {
        let (buffer, length) = self.frame(offset)?;
        let copied = length.min(out.len());
        buffer.read(0, &mut out[..copied]).then_some(length)
    }

    /// Gives back the first `count` slots, whose frames are gone then, and wakes the other side if it
    /// sleeps.
    ///
    /// # Errors
    /// The bell is broken; the slots are given back all the same.
    #[inline]
    pub fn release(&mut self, count: u32) -> Result<(), SyscallError> {
        self.hand_over(count)
    }
}

/// Readable when it was woken.
impl<Way> AsFd for Channel<Way> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bells.ours.as_fd()
    }
}

/// Forwards a frame without copying it: the buffers of a received slot and of a reserved one change
/// places. False when the two rings are not of one region, or one of the slots is not there; then
/// nothing has changed.
pub fn swap(from: &mut Receiver, received: u32, to: &mut Sender, reserved: u32) -> bool {
    if !Arc::ptr_eq(from.buffers.region(), to.buffers.region()) {
        return false;
    }
    let Some((rx_index, full, _)) = from.find(received) else { return false };
    let Some((tx_index, empty, _)) = to.find(reserved) else { return false };
    let changed = |slot: Slot, buffer| Slot {
        buffer,
        flags: SlotFlags(slot.flags.0 | SlotFlags::BUFFER_CHANGED),
        ..slot
    };
    to.end.memory().set_slot(tx_index, changed(full, full.buffer));
    from.end.memory().set_slot(rx_index, changed(full, empty.buffer));
    true
}

/// Dry looks between two questions for the time.
const LOOKS: u32 = 32;
