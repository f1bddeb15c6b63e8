//! A `netmap_ring` that the program writes, and behind it a ring of the switch.
//!
//! Synchronising checks what the program moved and hands it on. Where ring and switch share their buffers only
//! slots are copied (`direct`); a ring in another memory is filled and emptied frame by frame (`copied`).

mod copied;
mod direct;
mod fed;
mod forward;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use fed::{HostEnd, Watch};
use ring::{End, Mapped, Receiver, Sender, Slot, SlotFlags};
use rustix::io::Errno;
use shm::{Bell, View};

use crate::abi::{self, ring as words};
use crate::memory::Memory;
use crate::user::{UserMemory, or};

/// Which way packets go, seen by the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the program.
    Transmit,
    /// To the program.
    Receive,
}

/// What is behind a ring.
#[derive(Debug)]
pub enum Backend {
    /// Nothing: what is sent is gone, and nothing arrives.
    Idle,
    /// A ring of the switch to send on.
    Send(Sender),
    /// One to receive from.
    Receive(Receiver),
    /// Copies of what passes a port.
    Watch(Watch),
    /// The host's network stack.
    Host(HostEnd),
}

impl Backend {
    /// Takes the place of a former one, if it is for that: a monitor's receiver, or the same way's.
    pub fn renew(&mut self, other: &mut Self) {
        match (&mut *self, std::mem::replace(other, Self::Idle)) {
            (Self::Watch(watch), Self::Receive(receiver)) => watch.renew(receiver),
            (Self::Send(_), other @ Self::Send(_))
            | (Self::Receive(_), other @ Self::Receive(_)) => *self = other,
            _ => {}
        }
    }
}

/// Longest sleep where two descriptors of this process share a bell, and one may have taken the other's.
const SHARED_NAP: Duration = Duration::from_millis(20);
/// Longest sleep for copies: the switch wakes nobody for them.
const WATCH_NAP: Duration = Duration::from_millis(5);

/// A ring.
#[derive(Debug)]
pub struct Ring {
    direction: Direction,
    slots: u32,
    offset: usize,
    memory: Arc<Memory>,
    header: View<AtomicU32>,
    cells: View<AtomicU64>,
    /// Whether the other end of what is behind may change buffers: a pipe's does.
    pipe: bool,
    state: Mutex<State>,
}

/// What netmap calls `hwcur` and `hwtail`, and the backend.
#[derive(Debug)]
struct State {
    hwcur: u32,
    hwtail: u32,
    backend: Backend,
    /// Set when the backend is of no more use.
    broken: bool,
    /// Bound by somebody who wants it alone.
    users: u32,
    exclusive: bool,
}

/// What a synchronisation found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    /// Slots for the program, or none.
    Ready(bool),
    /// The program's cursors made no sense and were set back.
    Reset,
    /// The switch has ended, or has cut this client off.
    Broken,
}

impl Ring {
    /// A ring of so many slots. Where the backend's buffers are those of `memory` its slots name them from
    /// the beginning; otherwise it gets buffers of its own.
    ///
    /// # Errors
    /// `ENOMEM`: no room for a ring or its buffers.
    pub fn new(
        memory: &Arc<Memory>,
        direction: Direction,
        slots: u32,
        backend: Backend,
        pipe: bool,
    ) -> Result<Arc<Self>, Errno> {
        let offset = memory.take_ring()?;
        let ring = Self {
            direction,
            slots,
            offset,
            memory: Arc::clone(memory),
            header: memory.ring_words(offset)?,
            cells: memory.ring_slots(offset, slots)?,
            pipe,
            state: Mutex::new(State {
                hwcur: 0,
                hwtail: if direction == Direction::Transmit { slots - 1 } else { 0 },
                backend,
                broken: false,
                users: 0,
                exclusive: false,
            }),
        };
        ring.write_header();
        ring.fill()?;
        Ok(Arc::new(ring))
    }

    fn write_header(&self) {
        let put = |word: usize, value: u32| self.header[word].store(value, Ordering::Relaxed);
        let to_buffers = (self.memory.buffers_offset() - self.offset) as u64;
        put(words::BUF_OFS, to_buffers as u32);
        put(words::BUF_OFS + 1, (to_buffers >> 32) as u32);
        put(words::NUM_SLOTS, self.slots);
        put(words::BUF_SIZE, u32::try_from(self.memory.buffers().buffer_bytes()).unwrap_or(0));
        for word in words::HEAD..words::HEADER_BYTES / 4 {
            put(word, 0);
        }
        put(words::TAIL, self.state().hwtail);
    }

    /// Its number among those of its kind, as the program sees it.
    pub fn set_number(&self, number: u16) {
        let kind = u32::from(self.direction == Direction::Receive) << 16;
        self.header[words::RING_ID].store(u32::from(number) | kind, Ordering::Relaxed);
    }

    fn fill(&self) -> Result<(), Errno> {
        let mut state = self.state();
        let mut end = match &mut state.backend {
            Backend::Send(sender) if self.is_direct(sender.buffers()) => Some(sender.end()),
            Backend::Receive(receiver) if self.is_direct(receiver.buffers()) => {
                Some(receiver.end())
            }
            _ => None,
        };
        // Before the slots are copied: one that comes back later is taken over with its buffer then. Of a pipe's ring
        // the last holder's frames may still be on their way.
        let free = match &mut end {
            Some(end) if self.direction == Direction::Transmit => {
                Some(end.observe().map_err(or(Errno::IO))?)
            }
            _ => None,
        };
        for index in 0..self.slots {
            let buffer = match &end {
                Some(end) => end.memory().slot(end.index(index)).buffer,
                None => self.memory.take_buffer().ok_or(Errno::NOMEM)?,
            };
            self.set_slot(index, Slot { buffer, ..Slot::default() });
        }
        if let Some(free) = free {
            state.hwtail = free;
            self.header[words::TAIL].store(free, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Where it lies in what the program maps.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many slots it has.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Binds it to one more descriptor.
    ///
    /// # Errors
    /// `EBUSY`: somebody has it, and one of the two wants it alone.
    pub fn bind(&self, exclusive: bool) -> Result<(), Errno> {
        let mut state = self.state();
        if state.exclusive || (exclusive && state.users > 0) {
            return Err(Errno::BUSY);
        }
        state.users += 1;
        state.exclusive = exclusive;
        Ok(())
    }

    /// Takes a binding back.
    pub fn unbind(&self) {
        let mut state = self.state();
        state.users = state.users.saturating_sub(1);
        state.exclusive = false;
    }

    /// `NIOCTXSYNC` or `NIOCRXSYNC` for this ring.
    pub fn sync(&self, user: &dyn UserMemory) -> Synced {
        let (head, cur) = self.cursors();
        self.sync_at(head, cur, user)
    }

    /// `head` and `cur` as the program wrote them.
    #[must_use]
    pub fn cursors(&self) -> (u32, u32) {
        (self.load(words::HEAD), self.load(words::CUR))
    }

    /// `hwcur` and `hwtail`.
    #[must_use]
    pub fn positions(&self) -> (u32, u32) {
        let state = self.state();
        (state.hwcur, state.hwtail)
    }

    /// [`sync`](Self::sync) with cursors that the program wrote elsewhere.
    pub fn sync_at(&self, head: u32, cur: u32, user: &dyn UserMemory) -> Synced {
        let mut state = self.state();
        let Some(moved) = self.moved(&state, head, cur) else {
            self.reset(&state);
            return Synced::Reset;
        };
        let (hwcur, hwtail) = (state.hwcur, state.hwtail);
        let outcome = match &mut state.backend {
            Backend::Idle => Ok(self.idle(head, hwtail)),
            Backend::Send(sender) if self.is_direct(sender.buffers()) => {
                self.send_direct(sender, head, (moved, hwtail), user)
            }
            Backend::Send(sender) => self.send_copied(sender, hwcur, moved, user),
            Backend::Receive(receiver) if self.is_direct(receiver.buffers()) => {
                self.receive_direct(receiver, head, moved, hwtail)
            }
            Backend::Receive(receiver) => self.receive_copied(receiver, head, hwtail),
            Backend::Watch(watch) => self.receive_watched(watch, head, hwtail),
            Backend::Host(end) if self.direction == Direction::Transmit => {
                self.send_to_host(end, head, moved, user)
            }
            Backend::Host(end) => self.receive_from_host(end, head, hwtail),
        };
        match outcome {
            Ok((hwcur, hwtail)) => (state.hwcur, state.hwtail) = (hwcur, hwtail),
            Err(()) => state.broken = true,
        }
        if self.direction == Direction::Receive {
            self.stamp();
        }
        // What the program finds in the slots was written before.
        self.header[words::TAIL].store(state.hwtail, Ordering::Release);
        if state.broken { Synced::Broken } else { Synced::Ready(cur != state.hwtail) }
    }

    /// How many slots the program has given back since the last synchronisation, if its cursors make sense.
    fn moved(&self, state: &State, head: u32, cur: u32) -> Option<u32> {
        if head >= self.slots || cur >= self.slots {
            return None;
        }
        let held = self.distance(state.hwcur, state.hwtail);
        let moved = self.distance(state.hwcur, head);
        let fits = moved <= held && (moved..=held).contains(&self.distance(state.hwcur, cur));
        fits.then_some(moved)
    }

    /// Whether the program handed over slots that nobody took yet.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.load(words::HEAD) != self.state().hwcur
    }

    /// Puts another ring of the switch's behind this one, in memory of its own: from now on frames are copied.
    /// What the old one still has for the program is taken in; how many slots of frames it keeps that nobody
    /// took.
    pub fn renew(&self, backend: &mut Backend) -> u32 {
        let mut state = self.state();
        let State { hwcur, hwtail, backend: old, .. } = &mut *state;
        let mut lost = 0;
        match old {
            Backend::Send(sender) => {
                let all = sender.end().slots() - 1;
                lost = all.saturating_sub(sender.reserve(u32::MAX).unwrap_or(0));
                *hwtail = self.before(*hwcur);
            }
            Backend::Receive(receiver) if self.is_direct(receiver.buffers()) => {
                // A ring that was broken has nothing more.
                if let Ok((_, tail)) = self.receive_direct(receiver, *hwcur, 0, *hwtail) {
                    *hwtail = tail;
                }
            }
            Backend::Receive(receiver) => {
                if let Ok((_, tail)) = self.receive_copied(receiver, *hwcur, *hwtail) {
                    *hwtail = tail;
                }
                lost = receiver.peek(0).unwrap_or(0);
            }
            _ => {}
        }
        old.renew(backend);
        self.header[words::TAIL].store(state.hwtail, Ordering::Release);
        lost
    }

    /// Asks the switch to ring when something changes. False when it just did.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.with_end(|end, _| end.arm().unwrap_or(false)).unwrap_or(true)
    }

    /// No longer asks.
    pub fn disarm(&self) {
        self.with_end(|end, bell| {
            end.disarm();
            // A broken bell shows when somebody rings it.
            bell.clear().ok();
        });
    }

    /// Whether the switch has taken all that was handed to it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        match &mut self.state().backend {
            Backend::Send(sender) => {
                let all = sender.end().slots() - 1;
                // A broken ring drains no more.
                sender.reserve(u32::MAX).map_or(true, |free| free == all)
            }
            _ => true,
        }
    }

    /// Does something with what is readable when something changed; nobody says so of copies.
    pub fn with_waker<T>(&self, with: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        match &self.state().backend {
            Backend::Send(sender) => Some(with(sender.as_fd())),
            Backend::Receive(receiver) => Some(with(receiver.as_fd())),
            Backend::Host(end) if self.direction == Direction::Receive && end.receives() => {
                Some(with(end.port().as_fd()))
            }
            Backend::Idle | Backend::Watch(_) | Backend::Host(_) => None,
        }
    }

    /// How long whoever waits for it may sleep before it looks again.
    #[must_use]
    pub fn nap(&self) -> Option<Duration> {
        let state = self.state();
        match state.backend {
            Backend::Watch(_) => Some(WATCH_NAP),
            _ => (state.users > 1).then_some(SHARED_NAP),
        }
    }

    fn with_end<T>(&self, with: impl FnOnce(&mut End<Mapped>, &Bell) -> T) -> Option<T> {
        let mut state = self.state();
        let (end, bell) = match &mut state.backend {
            Backend::Send(sender) => sender.waiting(),
            Backend::Receive(receiver) => receiver.waiting(),
            Backend::Idle | Backend::Watch(_) | Backend::Host(_) => return None,
        };
        Some(with(end, bell))
    }

    fn is_direct(&self, buffers: &shm::Buffers) -> bool {
        Arc::ptr_eq(buffers.region(), self.memory.buffers().region())
    }

    fn idle(&self, head: u32, hwtail: u32) -> (u32, u32) {
        match self.direction {
            Direction::Transmit => (head, self.before(head)),
            Direction::Receive => (head, hwtail),
        }
    }

    /// netmap's `netmap_ring_reinit`.
    fn reset(&self, state: &State) {
        for index in 0..self.slots {
            let slot = self.slot(index);
            if !self.memory.has_buffer(slot.buffer) {
                self.set_slot(index, Slot::default());
            } else if usize::from(slot.length_bytes) > self.memory.buffers().buffer_bytes() {
                self.set_slot(index, Slot { length_bytes: 0, ..slot });
            }
        }
        let put = |word: usize, value: u32| self.header[word].store(value, Ordering::Relaxed);
        put(words::HEAD, state.hwcur);
        put(words::CUR, state.hwcur);
        put(words::TAIL, state.hwtail);
    }

    fn stamp(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let parts = [now.tv_sec as u64, now.tv_nsec as u64 / 1000];
        for (index, part) in parts.into_iter().enumerate() {
            let at = words::TIMESTAMP + 2 * index;
            self.header[at].store(part as u32, Ordering::Relaxed);
            self.header[at + 1].store((part >> 32) as u32, Ordering::Relaxed);
        }
    }

    /// A transmit slot that is fit to be handed on: a buffer that exists, bytes that it holds. What the
    /// program keeps elsewhere (`NS_INDIRECT`) is fetched.
    #[inline]
    fn outgoing(&self, index: u32, user: &dyn UserMemory) -> Option<Slot> {
        let mut slot = self.slot(index);
        let buffer = self.memory.buffers().get(slot.buffer)?;
        if slot.flags.0 & abi::INDIRECT != 0 {
            slot.length_bytes = self.fetch(index, slot.length_bytes, buffer, user);
        }
        let fits = usize::from(slot.length_bytes) <= buffer.length_bytes();
        (fits && slot.buffer >= ring::FIRST_BUFFER).then_some(slot)
    }

    #[cold]
    fn fetch(&self, index: u32, length: u16, to: shm::Buffer<'_>, user: &dyn UserMemory) -> u16 {
        let address = self.cells[2 * index as usize + 1].load(Ordering::Relaxed);
        let mut bytes = vec![0; usize::from(length)];
        let there = user.read(address, &mut bytes).is_ok() && to.write(0, &bytes);
        if there { length } else { 0 }
    }

    /// Takes the flags back that concern one synchronisation only.
    #[inline]
    fn acknowledge(&self, index: u32) {
        let slot = self.slot(index);
        if slot.flags.0 & (abi::BUF_CHANGED | abi::REPORT) != 0 {
            let flags = SlotFlags(slot.flags.0 & !(abi::BUF_CHANGED | abi::REPORT));
            self.set_slot(index, Slot { flags, ..slot });
        }
    }

    #[inline]
    fn slot(&self, index: u32) -> Slot {
        Slot::from_word(self.cells[2 * index as usize].load(Ordering::Relaxed))
    }

    #[inline]
    fn set_slot(&self, index: u32, slot: Slot) {
        self.cells[2 * index as usize].store(slot.to_word(), Ordering::Relaxed);
    }

    #[inline]
    fn load(&self, word: usize) -> u32 {
        self.header[word].load(Ordering::Acquire)
    }

    #[inline]
    fn after(&self, index: u32, count: u32) -> u32 {
        let sum = index + count;
        if sum >= self.slots { sum - self.slots } else { sum }
    }

    #[inline]
    fn before(&self, index: u32) -> u32 {
        if index == 0 { self.slots - 1 } else { index - 1 }
    }

    #[inline]
    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Buffers of the switch's rings are not free as long as these are there; they go together.
        let copied = {
            let state = self.state();
            match &state.backend {
                Backend::Idle | Backend::Watch(_) | Backend::Host(_) => true,
                Backend::Send(sender) => !self.is_direct(sender.buffers()),
                Backend::Receive(receiver) => !self.is_direct(receiver.buffers()),
            }
        };
        for index in (0..self.slots).filter(|_| copied) {
            self.memory.free_buffer(self.slot(index).buffer);
        }
        self.memory.free_ring(self.offset);
    }
}
